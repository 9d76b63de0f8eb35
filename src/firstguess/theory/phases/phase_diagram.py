"""Phases over a grid of weight and bias variances, all points at once.

The maps of layer_map.py are tabulated as Chebyshev series in log q (and in θ = arccos c, in which they are analytic
even for activations with kinks), so a grid of 10 000 points costs a few hundred Gaussian integrals instead of millions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.polynomial import chebyshev
from numpy.typing import ArrayLike, NDArray

from firstguess.base import record
from firstguess.base.checks import check_number
from firstguess.base.errors import FirstguessError, InvalidInput, NotConverged, NotCovered
from firstguess.base.gaussian import Array, Function
from firstguess.base.numerics import bisect, interpolate
from firstguess.base.record import Shown, StoredRecord
from firstguess.base.text import elided
from firstguess.network.activations.record import Activation
from firstguess.theory.phases import fixed_points
from firstguess.theory.phases.layer_map import RepeatedBlock, Stage, as_block, as_stage

_LOW, _HIGH = -28.0, 28.0  # log q beyond which a variance is called 0 or infinite on a grid
_STEPS = 449


@dataclass(frozen=True)
class PhaseDiagram(StoredRecord, Shown):
    """Fixed points over a grid: arrays of shape (bias_vars, weight_vars).

    `edge`, `variance_edge` and `neutrality` are the lines of a figure: the weight variance at each bias variance, NaN
    where there is none. Near a bias variance of 0 a line may go like its cube root, so `fine` has five more bias
    variances between the two smallest, and the three lines there: (4, 5), or (4, 0) where lines are straight.
    """

    block: str
    weight_vars: Array
    bias_vars: Array
    q: Array
    c: Array
    gamma: Array
    chi: Array
    phase: NDArray[np.str_]
    regime: NDArray[np.str_]
    edge: Array
    variance_edge: Array
    neutrality: Array
    error: float = field(default=0.0)  # largest error of the tables, measured off their nodes
    fine: Array = field(default_factory=lambda: np.empty((4, 0)))  # bias variances, edge, variance edge, neutrality
    note: str = ""  # what holds at every point

    @property
    def names(self) -> NDArray[np.str_]:
        """Phase and regime of every point in words: the rows of theory.md §5's table."""
        return np.vectorize(fixed_points.phase_name, otypes=["U64"])(self.phase, self.regime)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> PhaseDiagram:
        fine = np.array(data["fine"], dtype=np.float64).reshape(4, -1)
        return record.from_dict(cls, data, fine=fine)

    def __repr__(self) -> str:
        return f"PhaseDiagram({elided(self.block, 80)}, {self.bias_vars.size} × {self.weight_vars.size} points)"

    def __str__(self) -> str:
        counts = {name: int(np.sum(self.names == name)) for name in np.unique(self.names)}
        total = self.phase.size
        lines = [f"Phase diagram of {self.block}: {self.bias_vars.size} × {self.weight_vars.size} points"]
        lines += [f"  {100 * n / total:5.1f} %  {name}" for name, n in sorted(counts.items(), key=lambda x: -x[1])]
        return "\n".join([*lines, *([f"  {self.note}"] if self.note else [])])


def phase_diagram(
    what: str | Activation | Function | RepeatedBlock,
    *,
    weight_vars: ArrayLike | None = None,
    bias_vars: ArrayLike | None = None,
    tolerance: float = 1e-6,
    lines: bool = True,
) -> PhaseDiagram:
    """Fixed points and phases of an activation (or block) over weight and bias variances: theory.md §5, MF Fig 3.

    Blocks may hold norms, and be residual: "residual[layernorm > dense > tanh]" has the variances of the axes in its
    own weights (see `fixed_point`); these are computed point by point, by default 25 × 25.

    >>> d = phase_diagram("tanh", weight_vars=[1.0, 2.0, 4.0], bias_vars=[0.05, 0.2], lines=False)
    >>> print(d.names[0].tolist())
    ['ordered, deeply and persistently biased', 'chaotic, biased', 'chaotic, neutral']
    """
    check_number(tolerance, "tolerance", "phase_diagram", low=1e-12, hint="tolerance=1e-6")
    if stage := as_stage(what):
        weights = axis(weight_vars, np.linspace(0.16, 4.0, 25), "weight_vars", positive=True)
        biases = axis(bias_vars, np.linspace(0.0, 0.5, 25), "bias_vars", positive=False)
        return _of_stage(stage, weights, biases, lines)
    block = as_block(what)
    top = 5.0 if block.scale_free() else 4.0
    weights = axis(weight_vars, np.linspace(top / 100, top, 100), "weight_vars", positive=True)
    biases = axis(bias_vars, np.linspace(0.0, 0.5, 100), "bias_vars", positive=False)
    w, b = np.meshgrid(weights, biases)
    low, high = block.within(_LOW), block.within(_HIGH)
    log_v, error_v = _table(block.variance, low, high, 1e-12, start=48)
    log_q = _settle(log_v, np.log(w), b, low, high)
    inside = (log_q > low) & (log_q < high)
    chi, c, one_minus_c = np.empty_like(w), np.ones_like(w), np.zeros_like(w)
    for value in (low, high):
        chi[log_q == value] = block.slope(math.copysign(80.0, value))
    error = error_v
    jumps = math.isinf(block.slope(0.0))  # an activation that jumps: χ̃ is infinite everywhere
    if inside.any() and jumps:
        chi[inside] = math.inf
    elif inside.any():
        slope, error_r = _table(block.slope, float(log_q[inside].min()), float(log_q[inside].max()), 1e-9, start=24)
        chi[inside] = slope(log_q[inside])
        error = max(error, error_r)
    chi *= w
    for value in (low, high):
        rows = log_q == value
        if rows.any() and block.keeps_correlation(math.copysign(80.0, value)):
            c[rows], one_minus_c[rows] = _linear_correlation(block, w[rows], b[rows])
        elif rows.any():
            far = math.copysign(80.0, value)
            at, ratio, _ = fixed_points.correlation_at(block, far, math.exp(far - block.variance(far)))
            c[rows], one_minus_c[rows] = at, 0.0 if math.isinf(ratio) else 1.0 / (1.0 + ratio)
    solve = inside & (chi > 1.0 + fixed_points.AT_EDGE)
    if solve.any():
        c[solve], one_minus_c[solve], error_c = _correlation(block, log_q[solve], w[solve], tolerance)
        error = max(error, error_c)
    with np.errstate(divide="ignore"):
        gamma = np.where(one_minus_c > 0.0, c / one_minus_c, np.inf)
    q = np.where(log_q == low, 0.0, np.where(log_q == high, np.inf, np.exp(log_q)))
    phase = np.vectorize(fixed_points.phase_of, otypes=["U16"])(chi)
    regime = np.where(np.isinf(gamma), "deeply biased", np.where(gamma >= 1.0, "biased", "neutral"))
    kinds = ("gradients", "variance", "neutrality")
    found = [_line(block, biases, kind) if lines else np.full(biases.shape, math.nan) for kind in kinds]
    for i in np.flatnonzero(np.isnan(found[0])) if lines and not (jumps or block.scale_free()) else ():
        over = int(np.argmax(chi[i] > 1.0))  # gradients may pass from vanishing to exploding between finite variances
        if over and np.isfinite(q[i, over]):
            ends = np.log(weights[over - 1 : over + 1]).tolist()
            found[0][i] = fixed_points.jump_at(block, float(biases[i]), *ends) or math.nan
    extra = _between(biases) if lines and not block.scale_free() else np.empty(0)
    fine = np.array([extra, *(_line(block, extra, kind) for kind in kinds)])
    return PhaseDiagram(
        str(block), weights, biases, q, c, gamma, chi, phase, regime, *found, error=error, fine=fine,
        note=_cut(low, high, log_q),
    )  # fmt: skip


def _cut(low: float, high: float, log_q: Array) -> str:
    """What to say where a function of one's own cannot be integrated at every scale."""
    said = [f"below {math.exp(low):.2g} is called 0"] if low > _LOW and (log_q == low).any() else []
    said += [f"above {math.exp(high):.2g} is called infinite"] if high < _HIGH and (log_q == high).any() else []
    return f"a variance {', one '.join(said)}: it cannot be integrated there" if said else ""


def _of_stage(stage: Stage, weights: Array, biases: Array, lines: bool) -> PhaseDiagram:
    """Point by point: residual blocks and BatchNorm have no maps to tabulate."""
    points = [[fixed_points.stage_point(stage, float(w), float(b)) for w in weights] for b in biases]

    def grid(name: str) -> Any:
        return np.array([[getattr(point, name) for point in row] for row in points])

    def line(what: str, excess: Callable[[fixed_points.FixedPoint], float]) -> Array:
        """Interpolate by the neighbouring points."""
        found: list[float] = []
        for b, row in zip(biases, points, strict=True):
            try:
                off = [excess(point) for point in row]
                found.append(fixed_points.stage_crossing(stage, float(b), what, weights, off))
            except NotCovered:
                found.append(math.nan)
        return np.array(found)

    none = np.full(biases.shape, math.nan)
    edge = line("edge of chaos", lambda p: 0.0 if p.phase == "edge of chaos" else p.chi - 1.0) if lines else none
    neutral = line("neutrality line", lambda p: 0.5 - p.c) if lines else none
    notes = {point.note for row in points for point in row}
    note = notes.pop() if len(notes) == 1 else ""
    return PhaseDiagram(
        str(stage), weights, biases, grid("q"), grid("c"), grid("gamma"), grid("chi"), grid("phase"), grid("regime"),
        edge, none, neutral, note=note,
    )  # fmt: skip


def _between(biases: Array) -> Array:
    """Cubes of even steps between the two smallest bias variances: even steps of a line that starts like a cube root.

    tanh: χ̃ = 1 at σw² = 1 + 2q + O(q²), where q* has σb² = 4q³/3 + O(q⁴), so the edge is at 1 + 2(3σb²/4)^⅓.
    """
    low, high = (*np.unique(biases)[:2].tolist(), math.nan)[:2]
    return low + (high - low) * (np.arange(1, 6) / 6) ** 3 if math.isfinite(high) else np.empty(0)


def axis(values: ArrayLike | None, default: Array, name: str, *, positive: bool) -> Array:
    """The values of an axis, or its default, as an array."""
    try:
        array = default if values is None else np.atleast_1d(np.asarray(values, dtype=np.float64))
    except (TypeError, ValueError):
        array = np.array([math.nan])
    low_ok = np.all(array > 0.0) if positive else np.all(array >= 0.0)
    if array.ndim != 1 or array.size == 0 or not np.all(np.isfinite(array)) or not low_ok:
        expected = f"{name} as finite numbers {'above' if positive else 'of at least'} 0"
        raise InvalidInput(expected, got=values, where=name, hint=f"{name}=np.linspace(0.1, 4, 100)")
    return array


def _table(
    fn: Callable[[float], float], low: float, high: float, tolerance: float, *, start: int
) -> tuple[Callable[[Array], Array], float]:
    """A function of log q as a Chebyshev series, its order doubled until values between the nodes agree."""
    if high - low < 1e-9:
        value = fn(low)
        return (lambda x: np.full_like(x, value)), 0.0
    probes = low + (high - low) * (np.arange(1, 12) / 12.0 + 0.013)
    exact = np.array([fn(float(x)) for x in probes])
    n, error = start, math.inf
    series: Any = None
    while n <= 512:
        nodes = chebyshev.chebpts1(n)
        values = np.array([fn(float(x)) for x in low + 0.5 * (high - low) * (nodes + 1.0)])
        series = chebyshev.Chebyshev(interpolate(values), domain=[low, high])
        error = float(np.max(np.abs(series(probes) - exact)))
        if error <= tolerance:
            break
        n *= 2
    return series, error


def _settle(log_v: Callable[[Array], Array], log_w: Array, b: Array, low: float, high: float) -> Array:
    """log q* of every grid point: march from blob inputs to the first fixed point in the way, as `settle` does."""
    x = np.linspace(low, high, _STEPS)
    v = log_v(x)
    with np.errstate(divide="ignore"):
        log_b = np.log(b)
    start = np.log(np.exp(log_w) + b)
    result = np.empty_like(log_w)
    flat_w, flat_b, flat_start, out = log_w.ravel(), log_b.ravel(), start.ravel(), result.ravel()

    def drift(at: Array, lw: Array, lb: Array) -> Array:
        return np.logaddexp(lw + log_v(at), lb) - at

    first = drift(flat_start, flat_w, flat_b)
    grid = np.logaddexp(flat_w[:, None] + v, flat_b[:, None]) - x  # (points, steps)
    flat_noise = 1e-11
    for sign in (1.0, -1.0):
        rows = np.flatnonzero(first * sign > flat_noise)
        if rows.size == 0:
            continue
        ahead = (x - flat_start[rows, None]) * sign > 0.0
        crossed = ahead & (grid[rows] * sign < -flat_noise)
        order = crossed if sign > 0 else crossed[:, ::-1]
        some = order.any(axis=1)
        index = order.argmax(axis=1)
        index = index if sign > 0 else _STEPS - 1 - index
        out[rows[~some]] = high if sign > 0 else low
        rows, index = rows[some], index[some]
        # the bracket reaches back to the last point whose drift was not rounding
        significant = grid[rows] * sign > flat_noise
        steps = np.arange(_STEPS)
        back = significant & ((steps < index[:, None]) if sign > 0 else (steps > index[:, None]))
        back &= (x - flat_start[rows, None]) * sign > 0.0
        has = back.any(axis=1)
        nearest = np.where(sign > 0, _STEPS - 1 - back[:, ::-1].argmax(axis=1), back.argmax(axis=1))
        inner = np.where(has, x[nearest], flat_start[rows])
        outer = x[index]
        w, b = flat_w[rows], flat_b[rows]
        out[rows] = bisect(lambda at, w=w, b=b, sign=sign: drift(at, w, b) * sign > 0.0, inner, outer, 60)
    still = np.abs(first) <= flat_noise
    out[still] = flat_start[still]
    return result


def _linear_correlation(block: RepeatedBlock, w: Array, b: Array) -> tuple[Array, Array]:
    """c where the block is linear: whatever inputs and first layers gave it, by the scalar route."""
    if block.scale_free():  # linear at every scale: γ' = γ + (σb²/σw²)(kσw²)^{−l}, a geometric series
        k = block.slope(0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            gammas = np.where(b == 0.0, 0.0, np.where(k * w > 1.0 + 1e-12, b * k / (k * w - 1.0), np.inf))
        one_minus_c = 1.0 / (1.0 + gammas)
        return 1.0 - one_minus_c, one_minus_c
    each = zip(w.tolist(), b.tolist(), strict=True)
    gammas = np.array([fixed_points.fixed_point(block, weight_var=x, bias_var=y).gamma for x, y in each])
    one_minus_c = 1.0 / (1.0 + gammas)
    # where γ is infinite, γ(1 − c) would be ∞·0
    return np.multiply(gammas, one_minus_c, out=np.ones_like(gammas), where=np.isfinite(gammas)), one_minus_c


def _correlation(block: RepeatedBlock, log_q: Array, w: Array, tolerance: float) -> tuple[Array, Array, float]:
    """Solve σw²·R(q*, θ) = 1 for all points: R as a series in (log q, θ), bisection on θ."""
    low, high = float(log_q.min()), float(log_q.max()) + 1e-9
    jumps = math.isinf(block.slope(low))

    def smooth(x: float, theta: float) -> float:
        """R, or θ·R where a jump makes R grow like 1/θ."""
        return block.secant(x, theta) * (theta if jumps else 1.0)

    n_q, n_t = 12, 12
    rng = np.random.default_rng(0)
    probes = np.stack([rng.uniform(low, high, 8), rng.uniform(0.0, math.pi / 2, 8)])
    exact = np.array([smooth(float(x), float(t)) for x, t in probes.T])
    coefficients, error = np.zeros((1, 1)), math.inf
    while True:
        nodes_q, nodes_t = chebyshev.chebpts1(n_q), chebyshev.chebpts1(n_t)
        values = np.array(
            [
                [smooth(float(x), float(t)) for t in (nodes_t + 1.0) * math.pi / 4]
                for x in low + 0.5 * (high - low) * (nodes_q + 1.0)
            ]
        )
        coefficients = interpolate(interpolate(values).T).T
        got = chebyshev.chebval2d(2 * (probes[0] - low) / (high - low) - 1, probes[1] * 4 / math.pi - 1, coefficients)
        error = float(np.max(np.abs(got - exact) / exact))
        if error <= 0.03 * tolerance:
            break
        # the axis whose last coefficients are larger is the one that needs more nodes
        tail_q, tail_t = np.abs(coefficients[-2:]).max(), np.abs(coefficients[:, -2:]).max()
        n_q, n_t = (2 * n_q, n_t) if tail_q > tail_t else (n_q, 2 * n_t)
        if n_q * n_t > 40_000:
            expected = f"a phase diagram within {tolerance:g}"
            hint = "a smaller range of weight variances, or a larger tolerance"
            raise NotConverged(expected, got=f"an error of {error:.1e}", where=str(block), hint=hint)
    # one series in θ for every point, then bisection: R decreases with θ
    in_q = chebyshev.chebvander(2 * (log_q - low) / (high - low) - 1, n_q - 1) @ coefficients  # (points, n_t)

    def above(theta: Array) -> NDArray[np.bool_]:
        r = np.sum(in_q * chebyshev.chebvander(theta * 4 / math.pi - 1, n_t - 1), axis=1)
        return r * w > (theta if jumps else 1.0)

    theta = bisect(above, np.zeros_like(log_q), np.full_like(log_q, math.pi / 2), 50)
    c = np.where(theta > math.pi / 2 - 1e-12, 0.0, np.cos(theta))
    return c, np.where(c == 0.0, 1.0, 2.0 * np.sin(theta / 2.0) ** 2), error


def _line(
    block: RepeatedBlock, biases: Sequence[float] | Array, kind: Literal["gradients", "variance", "neutrality"]
) -> Array:
    if block.scale_free():
        try:
            found = (
                fixed_points.neutrality_line(block)
                if kind == "neutrality"
                else fixed_points.edge_of_chaos(block, kind=kind)
            )
        except FirstguessError:
            found = math.nan
        return np.full(len(biases), found)
    if kind == "variance":
        return np.full(len(biases), math.nan)
    what = "neutrality line" if kind == "neutrality" else "edge of chaos"
    return np.array([fixed_points.line_at(block, float(b), what) for b in biases])
