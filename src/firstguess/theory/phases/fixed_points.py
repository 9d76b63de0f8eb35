"""Fixed points, phases, the edge of chaos and the neutrality line: theory.md §5, MF.

Everything is solved for, nothing is iterated: along the edge σw² = 1/R₀(q) and σb² = q − σw²·V(q), parametrically in q
(see layer_map.py for V, R and R₀).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NoReturn, cast

import numpy as np

from firstguess.base.checks import check_number
from firstguess.base.errors import NotCovered
from firstguess.base.gaussian import Array, Function
from firstguess.base.numerics import find_root
from firstguess.base.record import Shown, StoredRecord
from firstguess.base.text import elided
from firstguess.network.activations.record import Activation
from firstguess.network.inputs import Inputs
from firstguess.network.layer import signal_after
from firstguess.network.layers import Dense
from firstguess.theory.phases.layer_map import RepeatedBlock, Stage, StageResult, as_block, as_stage
from firstguess.theory.prediction import Regime

Phase = Literal["ordered", "edge of chaos", "chaotic"]

AT_EDGE = 1e-7
_TINY = 1e-6  # an angle whose cosine is nearly 1
_FLAT = 1e-13  # a drift of log q that is rounding: edges without biases approach 0 or infinity that slowly
_LIMIT = 80.0  # |log q| beyond which the variance is called 0 or infinite: every activation is its asymptote there
_LOG_Q = np.concatenate([np.arange(-40.0, -6.0, 2.0), np.arange(-6.0, 8.0, 0.125), np.arange(8.0, 41.0, 2.0)])


@dataclass(frozen=True)
class FixedPoint(StoredRecord, Shown):
    """Where variance and correlation settle in an infinitely deep network.

    `chi` is χ̃ = σw²·E φ'², the growth of gradients' mean square per layer; `depth_scale` is ξ = −1/ln χ(c*), the
    number of layers over which a difference in correlation decays by e. `gamma` = c/(1−c) without cancelling.
    """

    _also = ("regime", "name")

    block: str
    weight_var: float
    bias_var: float
    q: float
    c: float
    gamma: float
    chi: float
    depth_scale: float
    phase: Phase
    note: str = ""

    @property
    def regime(self) -> Regime:
        """The regime of an infinitely deep network: deeply biased iff c* = 1 (theory.md §5, MF Table 1)."""
        return "deeply biased" if math.isinf(self.gamma) else "biased" if self.gamma >= 1.0 else "neutral"

    @property
    def name(self) -> str:
        """Phase and regime in words."""
        return phase_name(self.phase, self.regime)

    def __repr__(self) -> str:
        where = f"weight_var={self.weight_var:g}, bias_var={self.bias_var:g}"
        return f"FixedPoint({elided(self.block, 80)}, {where}: {self.name}, γ = {self.gamma:.4g})"

    def __str__(self) -> str:
        text = (
            f"{self.block} at weight_var {self.weight_var:g}, bias_var {self.bias_var:g}: {self.name}\n"
            f"  q = {self.q:.6g}, c = {self.c:.6g}, γ = {self.gamma:.6g}, "
            f"χ = {self.chi:.6g}, depth scale {self.depth_scale:.4g} layers"
        )
        return f"{text}\n  {self.note}" if self.note else text


def _root(fn: Callable[[float], float], low: float, high: float) -> float:
    """The root of fn between two points where it has different signs, to the last digits."""
    return find_root(fn, low, high, xtol=1e-15, rtol=1e-14)


def phase_name(phase: str, regime: str) -> str:
    """The row of theory.md §5's table, in words."""
    if phase == "edge of chaos":
        return (
            "edge of chaos, deeply but transiently biased" if regime == "deeply biased" else f"edge of chaos, {regime}"
        )
    if phase == "ordered" and regime == "deeply biased":
        return "ordered, deeply and persistently biased"
    return f"{phase}, {regime}"


def phase_of(chi: float) -> Phase:
    """Ordered: gradients vanish (χ̃ < 1); chaotic: they explode (χ̃ > 1): theory.md (10)."""
    if abs(chi - 1.0) <= AT_EDGE:
        return "edge of chaos"
    return "ordered" if chi < 1.0 else "chaotic"


def fixed_point(
    what: str | Activation | Function | RepeatedBlock, *, weight_var: float, bias_var: float = 0.0
) -> FixedPoint:
    """Where a deep network with this activation (or block, "relu > maxpool(2)") ends up, started from blob inputs.

    A residual block, "residual[layernorm > dense > tanh]", is what is repeated: `weight_var`, `bias_var` are those of
    its own weights, q is the stream's. BatchNorm, "batchnorm > relu", is over the whole data set (`stages`).

    >>> print(fixed_point("tanh", weight_var=2.5, bias_var=0.05))
    tanh at weight_var 2.5, bias_var 0.05: chaotic, neutral
      q = 1.06396, c = 0.446804, γ = 0.807678, χ = 1.13352, depth scale 11.8 layers
    """
    check_number(weight_var, "weight_var", "fixed_point", strict=True)
    check_number(bias_var, "bias_var", "fixed_point")
    if stage := as_stage(what):
        return stage_point(stage, weight_var, bias_var)
    block = as_block(what)
    log_q = settle(block, weight_var, bias_var)
    chi = weight_var * block.slope(log_q)
    if abs(log_q) >= _LIMIT or (chi >= 1.0 - AT_EDGE and block.keeps_correlation(log_q)):
        return _at_limit(block, weight_var, bias_var, log_q, chi)
    c, gamma, scale = correlation_at(block, log_q, weight_var)
    return _point(block, weight_var, bias_var, log_q, c, gamma, chi, scale)


def stage_point(stage: Stage, weight_var: float, bias_var: float) -> FixedPoint:
    def advance(log_q: float) -> float:
        return stage.next(log_q, math.pi / 2, weight_var, bias_var).log_q

    log_q = settle_by(advance, math.log(weight_var + bias_var))

    def ratio(theta: float) -> float:
        return stage.next(log_q, theta, weight_var, bias_var).ratio

    def point(theta: float, chi: float, scale: float, note: str) -> FixedPoint:
        apart = 2.0 * math.sin(0.5 * theta) ** 2
        c = 1.0 - apart if theta < math.pi / 2 else 0.0
        gamma = c / apart if apart > 0.0 else math.inf
        return _point(stage, weight_var, bias_var, log_q, c, gamma, chi, scale, note)

    after = stage.next(log_q, math.pi / 2, weight_var, bias_var)
    note = ""
    if abs(log_q) >= _LIMIT:
        note = f"the variance {'vanishes' if log_q < 0.0 else 'grows without limit'} with depth"
    at_one = math.inf if stage.mixes_points else ratio(_TINY)
    if after.kept > 1.0 + 1e-12 and after.added < 1e-9 * after.kept:
        got = f"{stage}: the shortcut alone multiplies the variance by {after.kept:.3g} a block"
        hint = "a shortcut without scale, or with one below 1"
        raise NotCovered("a branch that is not negligible compared with its shortcut", got=got, hint=hint)
    if not stage.mixes_points and abs(ratio(1.0) - 1.0) < 1e-12:
        # linear there: c keeps what inputs and first layers gave it, which is nothing for a centred blob
        theta, note = math.pi / 2, (note + "; " if note else "") + "the block is linear there, so c stays as it was"
        return point(theta, stage.growth(log_q, theta, weight_var, bias_var), math.inf, note)
    # a kink makes the ratio fall like θ from its value at 0, by less than θ: _TINY is then room enough
    if at_one <= 1.0 + _TINY:
        theta = 0.0
    elif ratio(math.pi / 2) >= 1.0 - 1e-14:
        theta = math.pi / 2
    else:
        theta = _root(lambda t: ratio(t) - 1.0, _TINY, math.pi / 2)
    chi = stage.growth(log_q, theta or _TINY, weight_var, bias_var)
    if log_q >= _LIMIT and after.kept == 1.0 and after.added < 1e-9:
        more = "every block adds less to the stream, so gradients grow more slowly than any exponential"
        return point(theta, 1.0, math.inf, f"{note}; {more}")
    return point(theta, chi, _depth_scale(after, ratio, theta, at_one), note)


def _depth_scale(after: StageResult, ratio: Callable[[float], float], theta: float, at_one: float) -> float:
    """−1/ln of d(1 − c')/d(1 − c) at the fixed point."""
    if theta == 0.0:
        own = at_one
    else:
        h = min(0.02, 0.2 * theta)
        low, high = theta - h, min(theta + h, math.pi / 2)
        apart = [2.0 * math.sin(0.5 * t) ** 2 for t in (low, high)]
        own = (ratio(high) * apart[1] - ratio(low) * apart[0]) / (apart[1] - apart[0])
    total = after.kept + after.added
    slope = (after.kept + after.added * own) / total
    return 0.0 if slope <= 1e-12 else -1.0 / math.log(slope) if slope < 1.0 - 2.0 * _TINY else math.inf


def _point(
    what: object, weight_var: float, bias_var: float, log_q: float, c: float, gamma: float, chi: float, scale: float,
    note: str = "",
) -> FixedPoint:  # fmt: skip
    q = 0.0 if log_q <= -_LIMIT else math.inf if log_q >= _LIMIT else math.exp(log_q)
    return FixedPoint(str(what), weight_var, bias_var, q, c, gamma, chi, scale, phase_of(chi), note)


def correlation_at(block: RepeatedBlock, log_q: float, factor: float) -> tuple[float, float, float]:
    """(c*, γ*, depth scale) of the map spread → factor·R(q, θ)·spread at a variance that no longer changes."""
    at_one = factor * block.slope(log_q)
    if at_one <= 1.0 + AT_EDGE:
        scale = math.inf if abs(at_one - 1.0) <= AT_EDGE else -1.0 / math.log(at_one) if at_one > 0.0 else 0.0
        return 1.0, math.inf, scale

    def excess(theta: float) -> float:
        return factor * block.secant(log_q, theta) - 1.0

    lowest = excess(math.pi / 2)
    theta = math.pi / 2 if lowest >= -1e-14 else _root(excess, 1e-9, math.pi / 2)
    one_minus_c = 2.0 * math.sin(theta / 2.0) ** 2
    c = math.cos(theta) if theta < math.pi / 2 else 0.0
    # χ(c*) = d(new spread)/d(spread) = σw²(R + tan(θ/2)·dR/dθ)
    h = min(0.02, 0.2 * theta)
    stencil = (
        block.secant(log_q, theta - 2 * h)
        - 8 * block.secant(log_q, theta - h)
        + 8 * block.secant(log_q, theta + h)
        - block.secant(log_q, theta + 2 * h)
    ) / (12 * h)
    slope = factor * (block.secant(log_q, theta) + math.tan(theta / 2.0) * stencil)
    scale = -1.0 / math.log(slope) if 0.0 < slope < 1.0 else 0.0 if slope <= 0.0 else math.inf
    return c, c / one_minus_c, scale


def _at_limit(block: RepeatedBlock, weight_var: float, bias_var: float, log_q: float, chi: float) -> FixedPoint:
    word = "vanishes" if log_q <= -_LIMIT else "grows without limit" if log_q >= _LIMIT else "keeps its size"
    note = f"the variance {word} with depth"
    if block.keeps_correlation(log_q):
        note += "; the block is linear there, so c keeps what inputs and first layers gave it (here: centred inputs)"
        gamma = _linear_gamma(block, weight_var, bias_var)
        c, scale = gamma / (1 + gamma) if math.isfinite(gamma) else 1.0, math.inf
    else:  # at such scales the map of c no longer depends on q: 1−c → R·q/V·(1−c)
        c, gamma, scale = correlation_at(block, log_q, math.exp(log_q - block.variance(log_q)))
    return _point(block, weight_var, bias_var, log_q, c, gamma, chi, scale, note)


def _linear_gamma(block: RepeatedBlock, weight_var: float, bias_var: float) -> float:
    """γ where the block has become linear and no longer changes it."""
    dense = Dense(weight_var, bias_var)
    signal = dense.moments(Inputs().signal())
    for _ in range(5000):
        after = signal_after((*block.layers, dense), signal)
        unchanged = math.isclose(after.gamma, signal.gamma, rel_tol=1e-13)
        signal = after
        if abs(signal.log_q) >= _LIMIT or unchanged:
            return signal.gamma
    return math.inf  # still growing: biases add to the center layer after layer


def settle(block: RepeatedBlock, weight_var: float, bias_var: float) -> float:
    """log q*, the variance that a deep network settles at from blob inputs; ±80 stands for infinity and 0.

    The map q → σw²V(q) + σb² is monotone, so the iteration moves one way until the first fixed point in its way: look
    for a change of sign there and solve.
    """
    log_weight = math.log(weight_var)

    def advance(x: float) -> float:
        return float(np.logaddexp(log_weight + block.variance(x), math.log(bias_var) if bias_var else -math.inf))

    return settle_by(advance, math.log(weight_var + bias_var))


def settle_by(advance: Callable[[float], float], start: float) -> float:
    """Where a monotone map of log q leads from a start; ±80 stands for infinity and 0."""

    def drift(x: float) -> float:
        """log of q'/q."""
        return advance(x) - x

    x = start
    first = drift(x)
    if abs(first) < _FLAT:
        return x
    direction = math.copysign(1.0, first)
    last, step = x, 0.125  # `last`: where the drift was last larger than rounding
    passed = [(x, abs(first))]  # the last three points and their drifts
    while abs(x) < _LIMIT:
        x += direction * step
        value = drift(x) * direction
        if value < -_FLAT:
            return _root(drift, min(x, last), max(x, last))
        passed = [*passed[-2:], (x, value)]
        if len(passed) == 3 and passed[1][1] < min(passed[0][1], 0.5 * value):  # two fixed points may lie in between
            from scipy.optimize import fminbound  # takes 50 ms to import

            ends = min(passed[0][0], x), max(passed[0][0], x)
            lowest = cast(float, fminbound(lambda at: drift(at) * direction, *ends, xtol=1e-9))
            if drift(lowest) * direction < -_FLAT:
                return _root(drift, min(passed[0][0], lowest), max(passed[0][0], lowest))
        if value > _FLAT:
            last = x
        step = min(step * 1.1, 1.0)
    return math.copysign(_LIMIT, direction)


def edge_of_chaos(
    what: str | Activation | Function | RepeatedBlock,
    *,
    bias_var: float = 0.0,
    kind: Literal["gradients", "variance"] = "gradients",
) -> float:
    """The weight variance at which gradients keep their size, χ̃ = 1: theory.md (10).

    Where the variance has two fixed points (x·sin x), gradients may pass from vanishing to exploding in a jump between
    them: then it is the weight variance of the jump.
    `kind="variance"` gives the weight variance at which the *forward* signal keeps its size instead, for scale-free
    blocks such as ReLU; with pooling the two lines differ (theory.md §5).

    >>> print(f"{edge_of_chaos('tanh', bias_var=0.05):.6f} {edge_of_chaos('relu'):.6f}")
    1.760955 2.000000
    >>> print(f"{edge_of_chaos('relu > maxpool(2)'):.6f} {edge_of_chaos('relu > maxpool(2)', kind='variance'):.6f}")
    1.333333 1.099923
    """
    check_number(bias_var, "bias_var", "edge_of_chaos")
    if stage := as_stage(what):
        if kind == "variance":
            hint = "fg.fixed_point: its q"
            raise NotCovered("kind='gradients' for residual blocks and BatchNorm", got=kind, hint=hint)
        return _crossing(stage, bias_var, "edge of chaos")
    block = as_block(what)
    if kind == "variance":
        if not block.scale_free():
            raise NotCovered(
                "a scale-free block (relu, leaky_relu, abs, linear, with pools) for the line of constant variance",
                got=str(block),
                hint="kind='gradients'; its variance settles by itself",
            )
        return math.exp(-block.variance(0.0))
    if block.scale_free():
        return 1.0 / block.slope(0.0)  # independent of the biases
    found = line_at(block, bias_var, "edge of chaos")
    if not math.isnan(found):
        return found
    jump = None if math.isinf(block.slope(0.0)) else jump_at(block, bias_var)
    if jump is not None and settle(block, jump * (1.0 + 1e-6), bias_var) < _LIMIT:
        return jump
    return _no_line(block, bias_var, "edge of chaos", jump)


def neutrality_line(what: str | Activation | Function | RepeatedBlock, *, bias_var: float = 0.0) -> float:
    """The weight variance at which c* = ½, γ = 1, in an infinitely deep network: beyond it, neutral (theory.md §5).

    >>> print(f"{neutrality_line('tanh', bias_var=0.05):.5f}")
    2.37827
    """
    check_number(bias_var, "bias_var", "neutrality_line")
    if stage := as_stage(what):
        return _crossing(stage, bias_var, "neutrality line")
    block = as_block(what)
    if block.scale_free():
        weight_var = 1.0 / block.secant(0.0, math.pi / 3)
        if bias_var > 0.0 and math.log(weight_var) + block.variance(0.0) < -1e-12:  # where the variance settles
            return weight_var
        at_one = block.slope(0.0) * math.exp(-block.variance(0.0))  # slope of the map of c at c = 1
        why = "c* = 1 everywhere" if at_one <= 1.0 + 1e-9 else "c* does not depend on the weight variance"
        if block.keeps_correlation(0.0):
            why = "c stays what the inputs made it"
        hint = "tanh, erf, hardtanh or sin; or a norm after the activation: fg.predict"
        raise NotCovered(f"an activation with a neutrality line, unlike {block}", got=f"none: {why}", hint=hint)
    found = line_at(block, bias_var, "neutrality line")
    return _no_line(block, bias_var, "neutrality line") if math.isnan(found) else found


def _crossing(stage: Stage, bias_var: float, what: str) -> float:
    """The weight variance between 0.01 and 30 at which χ̃ passes 1, or c* passes ½, else NotCovered."""
    weights = np.geomspace(0.01, 30.0, 33)
    return stage_crossing(stage, bias_var, what, weights, [_excess(stage, float(w), bias_var, what) for w in weights])


def stage_crossing(stage: Stage, bias_var: float, what: str, weights: Array, values: Sequence[float]) -> float:
    """The same, where the excess over the line is known at these weight variances."""
    for w0, w1, v0, v1 in zip(weights, weights[1:], values, values[1:], strict=False):
        if v0 * v1 < 0.0:
            return _root(lambda w: _excess(stage, w, bias_var, what), float(w0), float(w1))
    if not any(values):
        got = "every weight variance is at it" if what == "edge of chaos" else "c* = ½ at every weight variance"
    else:
        side = "above 1" if max(values) > 0.0 else "below 1"
        got = (
            f"none: χ̃ is {side} from weight_var {weights[0]:g} to {weights[-1]:g}"
            if what == "edge of chaos"
            else "none"
        )
    expected = f"a weight variance with {what} for {stage} at this bias variance"
    hint = f"fg.phase_diagram({str(stage)!r}) shows where the phases meet"
    raise NotCovered(expected, got=f"{got} (bias_var {bias_var:g})", hint=hint)


def _excess(stage: Stage, weight_var: float, bias_var: float, what: str) -> float:
    found = stage_point(stage, weight_var, bias_var)
    if what == "neutrality line":
        return 0.5 - found.c
    return 0.0 if found.phase == "edge of chaos" else found.chi - 1.0


def line_at(block: RepeatedBlock, bias_var: float, what: str) -> float:
    """Solve σb²(q) = bias_var on the curve σw² = 1/factor(q), σb² = q − σw²·V(q), keeping what a network settles at.

    `factor` is R₀ at the edge of chaos, R at c = ½ on the neutrality line. NaN where there is none.
    """

    def factor(x: float) -> float:
        return block.slope(x) if what == "edge of chaos" else block.secant(x, math.pi / 3)

    def excess(x: float) -> float:
        return math.exp(x) - math.exp(block.variance(x)) / factor(x) - bias_var

    if math.isinf(factor(0.0)):
        return math.nan
    found: list[float] = []
    if bias_var == 0.0:
        start = 1.0 / max(factor(-_LIMIT), 1e-300)  # the curve may start at q = 0
        # below 1e-30 it is no line: a block that divides by its own scale does not see the weights
        returns = start > 1e-30 and abs(block.variance(-_LIMIT) + _LIMIT + math.log(start)) < 1e-9
        if returns and block.own:  # V has more digits than a numerical slope
            start = math.exp(-_LIMIT - block.variance(-_LIMIT))
        if (
            returns
            and settle(block, start * (1 - 1e-6), 0.0) <= -_LIMIT
            and settle(block, start, 0.0) <= -_LIMIT
            # neutrality starts there only if c* is below ½ just beyond, as it is for odd activations
            and (what == "edge of chaos" or fixed_point(block, weight_var=start * (1 + 1e-3)).c <= 0.5)
        ):
            return start
    low, high = block.reach
    grid = _LOG_Q[(low <= _LOG_Q) & (high >= _LOG_Q)]
    values = [excess(float(x)) for x in grid]
    for x0, x1, v0, v1 in zip(grid, grid[1:], values, values[1:], strict=False):
        if v0 * v1 < 0.0 and max(abs(v0) / math.exp(x0), abs(v1) / math.exp(x1)) > 1e-11:  # else it is rounding
            root = _root(excess, float(x0), float(x1))
            weight_var = 1.0 / factor(root)
            if abs(settle(block, weight_var, bias_var) - root) < 1e-6 * max(1.0, abs(root)):
                found.append(weight_var)
    return min(found, default=math.nan)


def _no_line(block: RepeatedBlock, bias_var: float, what: str, jump: float | None = None) -> NoReturn:
    if math.isinf(block.slope(0.0)):
        expected = f"an activation without jumps for the {what}"
        hint = "a steep but continuous version of it: hardtanh, tanh"
        raise NotCovered(expected, got=f"{block}, whose gradients are infinite at every weight variance", hint=hint)
    detail = f": gradients go from vanishing to exploding in a jump, at weight_var {jump:.6g}" if jump else ""
    expected = f"a weight variance with {what} for {block} at this bias variance"
    hint = f"fg.phase_diagram({'the function' if block.own else repr(str(block))}) shows where the phases meet"
    raise NotCovered(expected, got=f"none at bias_var {bias_var:g}{detail}", hint=hint)


def jump_at(block: RepeatedBlock, bias_var: float, low: float = -5.0, high: float = math.log(1e3)) -> float | None:
    """The weight variance at which χ̃ passes 1, continuously or not, by its logarithm; None if it never does there."""

    def chaotic(log_weight: float) -> bool:
        weight_var = math.exp(log_weight)
        return weight_var * block.slope(settle(block, weight_var, bias_var)) > 1.0

    grid = np.linspace(low, high, 60 if high - low > 1.0 else 2)
    above = next((i for i, x in enumerate(grid) if chaotic(float(x))), None)
    if not above:
        return None
    low, high = float(grid[above - 1]), float(grid[above])
    for _ in range(40):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if chaotic(middle) else (middle, high)
    return math.exp(high)
