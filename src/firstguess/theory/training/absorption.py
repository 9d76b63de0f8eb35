"""How long the bias lasts, in closed form: the tangent of i.i.d. inputs, the time to absorb: theory.md (15)-(17).

Prototype inputs with the data's own overlaps go through the kernel's fold: what it has on the diagonal and off it are
θ_d and θ_off; a few pairs whose overlap is a little off the data's tell the derivative. BatchNorm sees infinitely many.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from firstguess.base import checks
from firstguess.base.checks import float_range
from firstguess.base.errors import InvalidInput, NotCovered
from firstguess.base.gaussian import Array, pdf
from firstguess.base.numerics import bisect
from firstguess.network.inputs import Inputs
from firstguess.network.layer import Layer, Mix, text
from firstguess.network.network import Network
from firstguess.network.points import Points
from firstguess.network.shapes import Shape
from firstguess.network.signal import Gaussian, Signal
from firstguess.network.walk import every
from firstguess.theory.kernel.propagation import propagate
from firstguess.theory.kernel.tiles import Budget, Pending, Stored, all_pairs
from firstguess.theory.training.curves import Absorption

# How long the bias of M classes lasts, in closed form: the mean logits of the classes over time (theory.md (16)).
#
# Logits of i.i.d. inputs are f_c = m_c + s·z_c, z ~ N(0, 1) over the data, s² = q − q_ab, and m ~ N(0, q_ab) over
# initializations. Of Θ only the direction common to all points moves m, and labels are even and know nothing of z:
# `dm_c/dτ = −(E_z softmax_c(m + s·z) − 1/M)`, τ = ηλ_b·t. The average is one integral for any M: softmax is the chance
# that f_c + g_c is largest, g_c independent Gumbel variables, so with F the distribution of s·z + g
# `E softmax_c = ∫ F'(t − m_c) Π_{j≠c} F(t − m_j) dt`; without g that is the share G_c of (8). For two classes (16)
# replaces this average by σ(m/κ), which is good to some percent.

_SPACING = 0.4  # of quadratures over t: e^{−π²/spacing} of a Gumbel's distribution is left
_FINE = 2e-3  # of tables: linear between, 1e-6 of a slope
_NODES = 80  # Gauss–Hermite, for the distribution of s·z + g
_LONGEST = 1000.0  # τ by classes: later is never
_NETWORKS, _QUANTILES = 256, 2001  # starts that stand for their distribution, of more than two classes and of two


@dataclass(frozen=True)
class _Race:
    """Who of M independent variables around m_c is largest: tables of ln F and of its derivative."""

    low: float
    high: float
    log_cdf: Array
    slope: Array

    @classmethod
    def of(cls, log_cdf: Callable[[Array], Array], slope: Callable[[Array], Array], low: float, high: float) -> _Race:
        x = np.linspace(low, high, 1 + math.ceil((high - low) / _FINE))
        return cls(low, high, log_cdf(x), slope(x))

    def chances(self, m: Array) -> Array:
        """(networks, classes): that each class is largest."""
        top = m.max(axis=1, keepdims=True)
        t = np.arange(self.low + _SPACING / 2, self.high, _SPACING)
        at = t[None, None, :] - (m - top)[:, :, None]  # at least t: beyond the table F is 1
        place = (np.clip(at, self.low, self.high) - self.low) * ((len(self.slope) - 1) / (self.high - self.low))
        index = np.minimum(place.astype(np.int64), len(self.slope) - 2)
        part = place - index
        logs = self.log_cdf[index] * (1.0 - part) + self.log_cdf[index + 1] * part
        slopes = self.slope[index] * (1.0 - part) + self.slope[index + 1] * part
        found = np.einsum("ict,it->ic", slopes, np.exp(logs.sum(axis=1))) * _SPACING
        return found / found.sum(axis=1, keepdims=True)


def _softmax_race(spread: float) -> _Race:
    """F = E_z exp(−exp(−(x − s·z)))."""
    nodes, weights = special.roots_hermitenorm(_NODES)
    weights = weights / weights.sum()

    def terms(x: Array) -> tuple[Array, Array]:
        away = np.exp(np.clip(spread * nodes[None, :] - x[:, None], -700.0, 700.0))
        alive = np.exp(-away)
        return alive @ weights, (away * alive) @ weights

    def log_cdf(x: Array) -> Array:
        return np.log(np.maximum(terms(x)[0], 1e-300))

    def slope(x: Array) -> Array:
        cdf, density = terms(x)
        return density / np.maximum(cdf, 1e-300)

    return _Race.of(log_cdf, slope, -4.0 - 6.0 * spread, 22.0 + 6.0 * spread)


def flow_times(level: float, means: Array, spread: float, *, step: float = 0.3) -> Array:
    """τ = ηλ_b·t until the largest share falls to `level`, from means m (networks, classes); inf: never.

    >>> m = np.array([[1.0, -1.0]])                         # g = 2, s·√2 = 1.4: (16) says 4.84
    >>> print(f"{flow_times(0.6, m, 1.4 / np.sqrt(2.0))[0]:.4f}")
    4.9414
    """
    count, classes = means.shape
    found = np.full(count, math.inf)
    if not spread > 0.0:
        return np.where(np.ptp(means, axis=1) > 0, math.inf, 0.0)
    softmax = _softmax_race(spread)
    normal = _Race.of(special.log_ndtr, lambda x: pdf(x) / special.ndtr(x), -9.0, 9.0)  # in units of s
    step *= softening(math.sqrt(2.0) * spread)  # of that width are the bends of the soft-max: errors of 1e-6

    def slope(m: Array) -> Array:
        return 1.0 / classes - softmax.chances(m)

    def largest(m: Array) -> Array:
        return normal.chances(m / spread).max(axis=1)

    m = means - means.mean(axis=1, keepdims=True)
    left = np.arange(count)
    done = largest(m) <= level
    found[done] = 0.0
    left, m = left[~done], m[~done]
    k1, time = slope(m), 0.0
    while len(left) and time < _LONGEST * classes:
        k2 = slope(m + 0.5 * step * k1)
        k3 = slope(m + 0.5 * step * k2)
        k4 = slope(m + step * k3)
        new = m + step / 6.0 * (k1 + 2.0 * k2 + 2.0 * k3 + k4)
        after = slope(new)
        done = largest(new) <= level
        if done.any():
            found[left[done]] = time + step * _crossing(
                largest, level, m[done], new[done], step * k1[done], step * after[done]
            )
        keep = ~done
        left, m, k1 = left[keep], new[keep], after[keep]
        time += step
    return found


def _crossing(
    largest: Callable[[Array], Array], level: float, old: Array, new: Array, left: Array, right: Array
) -> Array:
    """Where in a step the share is at the level: bisection along the cubic through both ends and their slopes."""

    def above(u: Array) -> NDArray[np.bool_]:
        v = u[:, None]
        w = 1 - v
        return (
            largest(old * (1 + 2 * v) * w**2 + left * v * w**2 + new * v * v * (3 - 2 * v) - right * v * v * w) > level
        )

    return bisect(above, np.zeros(len(old)), np.ones(len(old)), 26)


_H = 1e-3  # of the inputs' mean square: steps of the overlap, for the derivative by it; the error is of order h⁴
_STEPS = np.array([0.0, _H, -_H, 2 * _H, -2 * _H])  # by which the overlap of input 0 and the others is off


@dataclass(frozen=True)
class Tangent:
    """The outputs' covariance and tangent kernel of i.i.d. inputs, of a point with itself and of two points.

    `signal` is θ'_off, the derivative of θ_off by the overlap of two inputs (by component).
    """

    q: float
    q_ab: float
    diagonal: float
    off: float
    signal: float
    dimension: int

    def bias_mode(self, points: int | None = None) -> float:
        """λ_b = θ_off + (θ_d − θ_off)/n: theory.md (15)."""
        return self.off + (0.0 if points is None else (self.diagonal - self.off) / points)

    def signal_mode(self, points: int | None = None) -> float:
        """λ_sig = θ'_off/d + (θ_d − θ_off)/n, of two blobs at ±1/√d in every component."""
        return self.signal / self.dimension + (0.0 if points is None else (self.diagonal - self.off) / points)


def scalar_tangent(
    network: Network, inputs: Inputs | None = None, *, dimension: int = 1000, width: int = 1000
) -> Tangent:
    """θ_d, θ_off and θ'_off of a network on i.i.d. inputs of `dimension` components: theory.md (15).

    >>> t = scalar_tangent(Network.parse("dense(weight_var=2) > relu > dense(weight_var=2)"), dimension=784)
    >>> print(f"{t.diagonal:.0f} {t.off:.5f} {t.signal:.4f}")
    1784 318.30989 892.0000
    """
    given = inputs or Inputs()
    total, n = given.mean_square + given.variance, 1 + len(_STEPS)
    budget = Budget(n, True)
    points = Points(np.full(n, total), np.full(n, given.mean), False, Shape(dimension), width)
    k = np.full((n, n), given.mean_square)
    k[0, 1:] += _STEPS * total
    k[1:, 0] = k[0, 1:]
    np.fill_diagonal(k, total)
    pending = Pending(Stored(k, np.zeros((n, n)), points), points)
    with float_range():
        for index, layer in enumerate(network.layers, start=1):
            if Mix.POINTS in layer.mixes:
                pending = _over_data(layer, pending, budget, index)
            elif any(Mix.POINTS in inner.mixes for path in layer.paths for inner in every(path)):
                expected = "norms over the data outside of residual blocks, for the closed form of training"
                hint = "the kernel reading: fg.predict_training(net, data=(x, y))"
                raise NotCovered(expected, got=text(layer), where=f"layer {index}", hint=hint)
            else:
                pending = propagate([layer], pending, budget)
        k, t = all_pairs(pending, budget)
    assert t is not None  # of both only the first row is meant
    slopes = [(t[0, i] - t[0, i + 1]) / (2.0 * _STEPS[i - 1] * total) for i in (2, 4)]
    signal = (4.0 * slopes[0] - slopes[1]) / 3.0
    q, q_ab, own, off = (float(v) for v in (k[0, 0], k[0, 1], t[0, 0], t[0, 1]))
    return Tangent(q, q_ab, own, off, float(signal), dimension)


def _over_data(layer: Layer, pending: Pending, budget: Budget, index: int) -> Pending:
    """BatchNorm over infinitely many points: θ ← (θ − θ_off)/(q − q_ab), and the same of the covariance.

    A batchcenter does not divide: the factor is what the layer does to the spread over data.
    """
    if getattr(layer, "batch", None) is not None:
        expected = f"a {layer.kind} over the whole data set, for training"
        raise NotCovered(expected, got=text(layer), where=f"layer {index}", hint=f"{layer.kind} without batch=")
    before = pending.last
    k, t = all_pairs(pending, budget)
    assert t is not None
    n, common, tangent = len(k), float(k[0, 1]), float(t[0, 1])
    spread = float(k[0, 0]) - common
    if not spread > 0.0:
        raise NotCovered("inputs that still differ", got="a batch whose points are all alike", where=f"layer {index}")
    moved = layer.moments(Signal(0.0, common, spread, distribution=Gaussian()))
    growth = moved.spread * math.exp(moved.log_scale) / spread
    what = f"a {layer.kind} of {before.what}"
    q = np.full(n, growth * spread)
    after = before.after(layer, q, np.zeros(n), gaussian=before.gaussian, what=what)
    return pending.stored((k - common) * growth, (t - tangent) * growth, after)


# -- Time to absorb ---------------------------------------------------------------------------------------------------


def softening(spread: float) -> float:
    """κ = √(1 + πs²/8): by how much the spread s of the logits over the data flattens the sigmoid."""
    return math.sqrt(1.0 + math.pi * spread * spread / 8.0)


def overshoot_rate(mode: float, classes: int, kappa: float = 1.0) -> float:
    """The learning rate Mκ/λ from which on a step of descent throws a mode of Θ/n over to its other side."""
    return classes * kappa / mode if mode > 0.0 else math.inf


def steps_to(level: float, mean: Array, spread: float, rate: float, prior: float = 0.5) -> Array:
    """Steps of descent until the largest share of two classes falls to `level`, from means m₀ of g: theory.md (16).

    `rate` is ηλ_b, `spread` is s. 0 where it is there already. `prior` is the share of labels in the class that g > 0
    guesses: ṁ = −2ηλ_b(σ(m/κ) − prior), whose integral is elementary, too; inf where training itself ends above `level`
    (the labels' majority is guessed that often before anything is learned).

    >>> float(steps_to(0.6, np.array([2.0]), 1.4, 1e-9)[0] * 1e-9)
    4.840086...
    """
    _check_level(level, 2)
    checks.within(prior, "a share of labels between 0 and 1", "absorption(prior)", "prior=0.5", high=1.0)
    kappa = softening(spread)
    target = spread * float(special.ndtri(level)) / kappa
    start = np.asarray(mean, dtype=np.float64) / kappa
    side = np.where(start < 0.0, -1.0, 1.0)  # g's sign is a name of the classes: turn it, and the prior with it
    start, share = side * start, np.where(side > 0.0, prior, 1.0 - prior)
    end = special.logit(share)  # where the mean comes to rest
    discrete = _discrete(4.0 * prior * (1.0 - prior) * rate, 2, kappa)
    with np.errstate(divide="ignore", invalid="ignore"):
        flow = (_log_gap(start, end) - _log_gap(np.array(target), end)) / (share * (1.0 - share))
        flow = flow - (start - target) / share
        found = kappa * flow / (2.0 * rate * discrete)
    return np.where(start <= target, 0.0, np.where(end < target, found, math.inf))


def _log_gap(u: Array, end: Array) -> Array:
    """ln |(1 − p)eᵘ − p|, p = σ(end), also where exp leaves float64: theory.md (16)'s ln sinh, for any prior."""
    return u + np.log(-np.expm1(end - u)) + np.log(special.expit(-end))


def _check_level(level: float, classes: int) -> None:
    even = 1.0 / classes
    checks.within(level, f"a level above {even:.3g} and below 1", "absorption(level)", "level=0.6", low=even, high=1.0)


def _discrete(rate: float, classes: int, kappa: float) -> float:
    """The factor by which steps of descent are fewer than the flow's time: −ln(1 − ρ)/ρ, ρ = ηλ_b/Mκ."""
    rho = 1.0 / overshoot_rate(rate, classes, kappa)  # of a learning rate of 1
    if rho >= 1.0:
        expected = "a learning rate at which the bias does not overshoot"
        hint = f"lr below {1.0 / rho:.3g} of it"
        raise InvalidInput(expected, got=f"ηλ = {rate:.3g}", where="absorption(lr)", hint=hint)
    return -math.log1p(-rho) / rho if rho > 0.0 else 1.0  # 0: a network without a bias mode, and without a bias


def absorption_of(
    tangent: Tangent,
    *,
    lr: float,
    level: float,
    points: int | None = None,
    classes: int = 2,
    prior: float = 0.5,
) -> Absorption:
    """The distribution of the absorption time over initializations.

    Two classes by (16): m₀ ~ N(0, 2q_ab), at its quantiles. More by the flow of all classes' means (`class_means`), and
    steps of descent as in (16), with the rate ηλ_b/Mκ near even.
    """
    rate = lr * tangent.bias_mode(points)
    spread = math.sqrt(max(2.0 * (tangent.q - tangent.q_ab), 0.0))
    if classes > 2:
        _check_level(level, classes)
        if prior != 0.5:
            raise NotCovered("a prior of two classes", got=f"{classes} classes", where="absorption(prior)")
        pace = rate * _discrete(
            rate, classes, softening(spread)
        )  # refused where it overshoots, before the flow, which takes seconds
        from scipy.stats import qmc

        # m ~ N(0, q_ab) of every class, in networks evenly spread over that
        sobol = qmc.Sobol(classes, scramble=True, rng=np.random.default_rng(0))
        even = np.clip(sobol.random_base2(_NETWORKS.bit_length() - 1), 1e-9, 1.0 - 1e-9)
        means = math.sqrt(max(tangent.q_ab, 0.0)) * special.ndtri(even)
        flow = flow_times(level, means, spread / math.sqrt(2.0))
        steps = np.divide(flow, pace, out=np.full_like(flow, math.inf), where=pace > 0.0)
        return Absorption(level, np.where(flow > 0.0, steps, 0.0))
    quantiles = special.ndtri((np.arange(_QUANTILES) + 0.5) / _QUANTILES)
    mean = math.sqrt(max(2.0 * tangent.q_ab, 0.0)) * quantiles
    return Absorption(level, steps_to(level, mean, spread, rate, prior))


def floor(rate: float, spread: float, batch: int, points: int | None) -> float:
    """E max G that mini-batches leave, rate = ηλ_b: theory.md (17). NaN where it has no stationary state."""
    left = 1.0 if points is None else max(0.0, 1.0 - batch / points)
    if not rate < 4.0:
        return math.nan
    square = rate / batch * left / (1.0 - rate / 4.0)
    return 0.5 + math.atan(math.sqrt(square) / spread) / math.pi if spread > 0 else math.nan
