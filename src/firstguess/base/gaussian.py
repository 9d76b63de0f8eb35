"""Gaussian expectations of a function of one node, split into what data and what weights contribute.

A node's pre-activation is `u = μ + y`: `μ ~ N(0, σ_μ²)` over nodes and initializations, `y ~ N(0, σ_y²)` over data
(theory.md §1). For `x = φ(u)` everything the theory needs is in three numbers that never cancel:

    mean = E x,    between = Var_μ E_y x  (node to node),    spread = E_μ Var_y x  (point to point)

so that `center = mean² + between` and `total = center + spread` (theory.md (2)). Keeping the parts apart is what lets
γ run from 1e-12 to 1e12 without losing digits.

Quadrature: where φ is smooth on the scale of the Gaussian, the trapezoid rule (exponentially convergent); where it has
a kink, or structure much finer than the Gaussian, Gauss-Legendre panels split at the kinks and graded around the
structure. Both are vectorised over all `μ` at once.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from firstguess.base.errors import FirstguessError, InvalidInput, NotConverged
from firstguess.base.threads import in_threads, tiles

Array = NDArray[np.float64]
Function = Callable[[Array], Array]

# Gaussian mass beyond 9.5 standard deviations is 2e-21; with a fourth power before it is still below 1e-16.
REACH = 9.5
_GL_NODES, _GL_WEIGHTS = np.polynomial.legendre.leggauss(16)
# The trapezoid rule is cheaper than panels up to about this many nodes.
_MOST_TRAPEZOID_NODES = 160
_PLAIN_STEP = 0.7  # error exp(−2π²/h²) ≈ 3e-18 for a Gaussian times an entire function of moderate growth
_TINY_CORRELATION = 1e-4
_TINY_SPREAD = 1e-12  # below this share of q, rounding of u = μ + y reaches 1e-10 of y


class Feature(NamedTuple):
    """A place where φ is not smooth: `width` is how far its nearest complex singularity is (0: a kink or a jump)."""

    at: float
    width: float


class Moments(NamedTuple):
    """mean, between-node variance of the data-means, and mean variance over data: theory.md (2), taken apart."""

    mean: float
    between: float
    spread: float


def moments(
    fn: Function,
    between: float,
    spread: float,
    features: Sequence[Feature] = (),
    *,
    refine: float = 1.0,
    jumps: bool = False,
    derivative: Function | None = None,
    checked: bool = False,
) -> Moments:
    """The three moments of `fn(u)`, `u = μ + y`, `Var μ = between`, `Var y = spread`: theory.md (4).

    `refine > 1` uses proportionally more nodes. Relative accuracy about 1e-12 for the registered activations.
    A `derivative` keeps that accuracy at any γ; without it slopes at γ > 1e12 are numerical. `checked`, for a function
    nothing is known about: refined until two answers agree to 1e-9, else NotConverged.

    >>> relu = moments(lambda u: np.maximum(u, 0.0), between=0.0, spread=1.0, features=[Feature(0.0, 0.0)])
    >>> print(f"{relu.mean**2 / relu.spread:.6f}")     # 1/(π−1)
    0.466942
    """
    q = between + spread
    if checked:
        found = partial(moments, fn, between, spread, features, jumps=jumps, derivative=derivative)
        return _agreed(lambda finer: found(refine=finer), q)
    if q == 0.0:
        return Moments(float(evaluate(fn, np.zeros(1))[0]), 0.0, 0.0)
    if between <= _TINY_CORRELATION * q:
        return _nearly_independent(fn, between, spread, features, refine)
    if spread == 0.0 or (spread < _TINY_SPREAD * q and not jumps):
        alone = _nearly_independent(fn, 0.0, q, features, refine)
        if spread == 0.0:
            return Moments(alone.mean, alone.spread, 0.0)
        s = max(spread, 1e-250 * q)  # the ratio is at its limit long before, and smaller angles would underflow
        slope = derivative or numerical_slope(fn, kinks(features))
        new_spread = spread * _slope_ratio(slope, q - s, s, features, refine)
        return Moments(alone.mean, max(alone.spread - new_spread, 0.0), new_spread)
    return _two_level(fn, between, spread, features, refine)


def _agreed(compute: Callable[[float], Moments], q: float) -> Moments:
    coarse = compute(1.0)
    for refine in (1.7, 2.9, 4.9, 8.3, 14.1):  # not multiples of each other: steps h and h/2 share their aliases
        fine = compute(refine)
        scale = abs(fine.mean) + math.sqrt(fine.between + fine.spread)
        rounding = 1e-15 * scale  # of a mean: it moves a variance v by 2√v times that
        close = abs(fine.mean - coarse.mean) <= 1e-9 * scale and all(
            abs(a - b) <= 1e-9 * abs(a) + 2.0 * rounding * math.sqrt(abs(a)) + rounding**2
            for a, b in zip(fine[1:], coarse[1:], strict=True)
        )
        if close:
            return fine
        coarse = fine
    expected = "an activation that is smooth between its kinks"
    hint = "name the points where it bends or jumps: fg.activation(fn, kinks=(0.0, 1.0))"
    raise NotConverged(expected, got=f"expectations that still move by more than 1e-9 (about q = {q:.3g})", hint=hint)


def expectation(
    fn: Function,
    variance: float,
    features: Sequence[Feature] = (),
    *,
    mean: float = 0.0,
    refine: float = 1.0,
    checked: bool = False,
) -> float:
    """`E fn(mean + √variance · z)`; `refine` and `checked` as of `moments`."""
    if checked:
        found = partial(expectation, fn, variance, features, mean=mean)
        return _agreed(lambda finer: Moments(found(refine=finer), 0.0, 0.0), variance).mean
    center = np.full(1, mean)
    if variance == 0.0:
        return float(evaluate(fn, center)[0])
    u, w = _rule(center, math.sqrt(variance), features, refine)
    return float(np.sum(w * evaluate(fn, u)))


def _nearly_independent(
    fn: Function, between: float, spread: float, features: Sequence[Feature], refine: float
) -> Moments:
    # Mehler's series Var_μ A = Σ_k a_k² c^k, a_k the Hermite coefficients. Five terms leave c⁴ ≤ 1e-16 of the first,
    # also for an even φ, whose series starts at c²: there A − mean would keep only 16 + log₁₀ c digits.
    q = between + spread
    u, w = _rule(np.zeros(1), math.sqrt(q), features, refine)
    z = u / math.sqrt(q)
    f = evaluate(fn, u)
    mean = float(np.sum(w * f))
    f = f - mean
    variance = float(np.sum(w * f * f))
    if between == 0.0 and math.isfinite(variance):
        return Moments(mean, 0.0, max(variance, 0.0))
    c = between / q
    new_between, weight = 0.0, 1.0
    before, hermite = np.ones_like(z), z
    for k in range(1, 6):
        weight *= c / k
        new_between += weight * float(np.sum(w * f * hermite)) ** 2
        before, hermite = hermite, z * hermite - k * before
    return Moments(mean, new_between, max(variance - new_between, 0.0))


def _slope_ratio(
    derivative: Function, between: float, spread: float, features: Sequence[Feature], refine: float
) -> float:
    # New spread / spread by Price's theorem: the integral of E φ'φ' over the covariance, from between to q. Nothing
    # cancels. In the angle E φ'φ' is analytic (kinks included) on the scale of the finest structure of φ.
    q = between + spread
    theta = 2.0 * math.asin(math.sqrt(0.5 * spread / q))
    places = sorted({f.at for f in features})
    sizes = [f.width for f in features if f.width > 0.0] + [float(d) for d in np.diff(places)]
    finest = min([*sizes, math.sqrt(q)]) / math.sqrt(q)
    edges, nodes = [0.0], 4
    if theta > 0.01 * finest:
        nodes = 12
        while 0.25 * finest * 2.5 ** len(edges) < theta:
            edges.append(0.25 * finest * 2.5 ** len(edges))
    edges.append(theta)
    x, w = np.polynomial.legendre.leggauss(nodes)
    total = 0.0
    for low, high in itertools.pairwise(edges):
        half = 0.5 * (high - low)
        for angle, weight in zip(low + half * (1.0 + x), half * w, strict=True):
            s = 2.0 * q * math.sin(0.5 * angle) ** 2
            m = _two_level(derivative, q - s, s, features, refine)
            total += weight * math.sin(angle) * (m.mean**2 + m.between)
    return float(total * (q / spread))


def kinks(features: Sequence[Feature]) -> list[float]:
    """Where a function bends or jumps."""
    return [f.at for f in features if f.width == 0.0]


def numerical_slope(fn: Function, bends: Sequence[float] = ()) -> Function:
    """The derivative of `fn` by five points, all on one side of every kink; about ten digits.

    >>> bool(abs(numerical_slope(np.sin)(np.array([0.5]))[0] - math.cos(0.5)) < 1e-11)
    True
    """
    probe = np.linspace(-8.0, 8.0, 513) + 0.003
    step, best = 0.0, math.inf
    for h in (2.0**-10, 2.0**-13, 2.0**-16):  # powers of two: x ± h is exact
        one, other = (_five_points(fn, probe, np.full_like(probe, k * h), bends) for k in (1.0, 0.5))
        moved = float(np.max(np.abs(one - other)) / (np.max(np.abs(one)) + 1e-300))
        if moved < 0.1 * best:
            step, best = h, moved
    return lambda x: _five_points(fn, x, step * np.exp2(np.ceil(np.log2(np.maximum(np.abs(x) / 1024.0, 1.0)))), bends)


def _five_points(fn: Function, x: Array, h: Array, bends: Sequence[float]) -> Array:
    side = np.zeros_like(x)
    for bend in bends:
        side = np.where(np.abs(x - bend) <= 2.0 * h, np.where(x >= bend, 1.0, -1.0), side)
    total = np.zeros_like(x)
    for k, (inner, outer) in enumerate(zip((1.0, -8.0, 0.0, 8.0, -1.0), (-25.0, 48.0, -36.0, 16.0, -3.0), strict=True)):
        place = np.where(side == 0.0, (k - 2.0) * h, side * k * h)
        total += np.where(side == 0.0, inner, side * outer) * evaluate(fn, x + place)
    return total / (12.0 * h)


def _two_level(fn: Function, between: float, spread: float, features: Sequence[Feature], refine: float) -> Moments:
    sigma_y = math.sqrt(spread)
    # E_y φ(μ + y) is φ smoothed over σ_y: kinks become structure of that width.
    outer = [Feature(f.at, max(f.width, 1.2 * sigma_y)) for f in features]
    mu, w = _rule(np.zeros(1), math.sqrt(between), outer, refine)
    mu, w = mu[0], w[0]
    a, v = _conditional(fn, mu, sigma_y, features, refine)
    mean = float(np.sum(w * a))
    return Moments(mean, float(np.sum(w * (a - mean) ** 2)), float(np.sum(w * v)))


def _conditional(
    fn: Function, mu: Array, sigma: float, features: Sequence[Feature], refine: float
) -> tuple[Array, Array]:
    """Mean and variance of `fn(μ + σ z)` over z, for every μ."""
    mean, variance = np.empty_like(mu), np.empty_like(mu)
    near = np.zeros(mu.shape, dtype=bool)
    for f in features:
        near |= np.abs(mu - f.at) <= REACH * sigma
    for rows, structure in ((near, features), (~near, ())):
        if rows.any():
            u, w = _rule(mu[rows], sigma, structure, refine)
            f = evaluate(fn, u)
            m = np.sum(w * f, axis=1)
            f = f - m[:, None]
            variance[rows] = np.sum(w * f * f, axis=1)
            mean[rows] = m
    return mean, variance


@lru_cache(maxsize=16)
def gauss_hermite(nodes: int) -> tuple[Array, Array]:
    """Nodes and weights of an average over N(0, 1)."""
    z, w = np.polynomial.hermite_e.hermegauss(nodes)
    return z, w / w.sum()


def rule(features: Sequence[Feature], refine: float = 1.0) -> tuple[Array, Array]:
    """Nodes and weights of a standard normal, for a function with these features."""
    z, w = _rule(np.zeros(1), 1.0, features, refine)
    return z[0], w[0]


def conditional_mean(fn: Function, mu: Array, sigma: float, features: Sequence[Feature], refine: float = 1.0) -> Array:
    """`E fn(μ + σ z)` for every μ."""
    return evaluate(fn, mu) if sigma == 0.0 else _conditional(fn, mu, sigma, features, refine)[0]


def _rule(centers: Array, sigma: float, features: Sequence[Feature], refine: float) -> tuple[Array, Array]:
    """Nodes u (rows, k) and weights (rows or 1, k) for `E f(center + σ z)`, one row a center."""
    step = _PLAIN_STEP
    kinked = False
    for feature in features:
        d = feature.width / sigma
        kinked = kinked or d == 0.0
        if d < 8.0:
            # exp(−2πd/h + d²/2) < e^{−40}: shift the contour to the singularity
            step = min(step, 2.0 * math.pi * d / (40.0 + d * d / 2.0))
    step /= refine
    if not kinked and 2.0 * REACH / step <= _MOST_TRAPEZOID_NODES * refine:
        half = math.ceil(REACH / step)
        z = step * np.arange(-half, half + 1)
        w = np.exp(-0.5 * z * z)
        return centers[:, None] + sigma * z, (w / w.sum())[None, :]
    return _panels(centers, sigma, features, refine)


def _panels(centers: Array, sigma: float, features: Sequence[Feature], refine: float) -> tuple[Array, Array]:
    edges = [np.tile(np.linspace(-REACH, REACH, math.ceil(7 * refine) + 1), (centers.size, 1))]
    for feature in features:
        at = ((feature.at - centers) / sigma)[:, None]
        edges.append(at + graded(feature.width / sigma, 2.0 * REACH, refine))
    z_edges = np.sort(np.clip(np.concatenate(edges, axis=1), -REACH, REACH), axis=1)
    z, w = panels(z_edges)
    w *= np.exp(-0.5 * z * z)
    return centers[:, None] + sigma * z, w / w.sum(axis=1, keepdims=True)


def panels(edges: Array) -> tuple[Array, Array]:
    """Gauss-Legendre nodes and weights of all panels between sorted edges; one rule per row if edges has two axes."""
    half = 0.5 * np.diff(edges, axis=-1)[..., None]
    middle = 0.5 * (edges[..., 1:] + edges[..., :-1])[..., None]
    shape = (*edges.shape[:-1], -1)
    return (middle + half * _GL_NODES).reshape(shape), (half * _GL_WEIGHTS).reshape(shape)


def graded(width: float, reach: float, refine: float = 1.0) -> Array:
    """Offsets of panel edges around a feature: itself, then steps growing geometrically from its width."""
    if width == 0.0:
        return np.zeros(1)
    ratio = 1.0 + 1.5 / refine
    count = max(1, math.ceil(math.log(reach / width * refine, ratio)) + 1)
    steps = width / refine * np.asarray(ratio ** np.arange(count), dtype=np.float64)
    return np.concatenate([-steps[::-1], np.zeros(1), steps])


def evaluate(fn: Function, u: Array) -> Array:
    """`fn(u)` in float64, checked: same shape, finite everywhere."""
    try:
        with np.errstate(all="ignore"):  # what is not finite is reported below
            f: Array = np.asarray(fn(u), dtype=np.float64)
    except FirstguessError:
        raise
    except (TypeError, ValueError) as error:  # math.exp(array), x if x > 0 else 0, complex results
        expected = "an activation that maps an array of floats to an array of floats"
        hint = "write it with NumPy functions, e.g. lambda x: np.maximum(x, 0)"
        raise InvalidInput(expected, got=f"{type(error).__name__}: {error}", hint=hint) from error
    if f.shape != u.shape:
        expected = "an activation that maps an array to an array of the same shape"
        hint = "write it with NumPy functions, e.g. lambda x: np.maximum(x, 0)"
        raise InvalidInput(expected, got=f"shape {f.shape} for input of shape {u.shape}", hint=hint)
    bad = ~np.isfinite(f)
    if bad.any():
        hint = "clip its argument, or use a form that does not overflow"
        raise InvalidInput("an activation that is finite everywhere", got=f"{f[bad][0]} at {u[bad][0]:.6g}", hint=hint)
    return f


# Correlations through functions with a kink at 0: the arc-cosine formula.


def correlate_leaky(
    left: float, right: float, c: Array, slope: bool, spare: tuple[Array, Array, Array] | None = None
) -> Array | None:
    """Correlations of u to those of φ(u), in place, for φ = a·x + b·|x| (Cho & Saul, 2009); returns E φ'φ' if asked.

    `spare` are three arrays like c to work in: fresh memory costs as much as the arithmetic. The result is one of them.

    E φφ = √(q_a q_b)·(a²c + b²(2/π)(√(1−c²) + c·arcsin c)), E φ² = q(a² + b²), E φ'φ' = a² + b²(2/π)arcsin c.
    """
    a2, b2 = (0.5 * (right + left)) ** 2, (0.5 * (right - left)) ** 2 * 2.0 / math.pi
    if b2 == 0.0:
        return np.full_like(c, a2) if slope else None
    arc, root, other = spare if spare is not None else (np.empty_like(c) for _ in range(3))
    np.arcsin(c, out=arc)
    np.subtract(1.0, c, out=root)  # (1−c)(1+c) keeps the digits of 1−c that 1−c² would lose near c = 1
    np.add(c, 1.0, out=other)
    root *= other
    np.sqrt(root, out=root)
    if slope:
        np.multiply(arc, b2, out=other)
        other += a2
    arc += a2 / b2
    c *= arc
    c += root
    c *= b2 / (a2 + 0.5 * math.pi * b2)
    return other if slope else None


def correlated_leaky(left: float, right: float, c: Array) -> Array:
    """Correlations of u (which are overwritten) to those of φ(u), for φ = a·x + b·|x|."""
    correlate_leaky(left, right, c, slope=False)
    return c


# Nodes divided by their own root mean square over the data: exact expectations over a Gaussian y.
#
# With C = Σ λ_i v_i v_iᵀ, y = Σ √λ_i z_i v_i, and 1/yᵀy = ∫ e^{−t·yᵀy} dt, an expectation over y becomes one over t:
# under the integral y is Gaussian again, with the *tilted* covariance C(t) = Σ λ_i/(1 + 2λ_i t)·v_i v_iᵀ:
#
# n·E[f(y)/yᵀy] = n·∫ ∏_j (1 + 2λ_j t)^{−½} · E[f(y); y ~ N(0, C(t))] dt.
#
# Where many directions share the variance this is f at C/mean diagonal; where few dominate, theirs shrink and the
# others grow.

_ALL = 300  # points up to which every direction is taken apart
_LEADING = (
    96  # directions beyond that; the rest stand for as many equal ones as give the same trace and trace of squares
)
# the integral over s = log t, tr C = 1: integrand ~ e^s on the left, at least e^{−s/2} on the right, analytic in |Im s|
# < π
_STEP = 0.25
_S = np.arange(-36.0, 72.0, _STEP)
_GAUSS = 8, 16, 32  # nodes in t for whole matrices; more where the diagonal, which is known, asks for more
_TILE = 256


def pdf(x: Array) -> Array:
    """The standard normal density."""
    return np.exp(-0.5 * x * x) / math.sqrt(2.0 * math.pi)


def effective_directions(c: Array) -> float:
    """(tr C)²/tr C²: a node's variance over the data fluctuates by √(2/this)."""
    trace = float(np.trace(c))
    square = sum(float(np.vdot(row, row)) for row in c)  # no second matrix
    return trace * trace / square


def self_normalized(c: Array) -> Array:
    """n·E[y yᵀ/(yᵀy)] for y ~ N(0, c); `c` is overwritten.

    >>> print(self_normalized(np.diag([3.0, 1.0])).round(4))     # 2√λ_i/(√λ₁ + √λ₂)
    [[1.2679 0.    ]
     [0.     0.7321]]
    """
    n = c.shape[0]
    c /= np.trace(c)
    spectrum = _Spectrum.of(c)
    tilt = spectrum.tilted(np.exp(_S))
    weight = _STEP * np.exp(_S) * tilt.product
    common = float(tilt.common @ weight)
    correction = (spectrum.vectors * (spectrum.values * (tilt.leading @ weight - common))) @ spectrum.vectors.T
    c *= common
    c += correction
    c *= n / np.trace(c)  # the trace is n exactly
    return c


def through_leaky(c: Array, left: float, right: float) -> tuple[Array, Array]:
    """n·E[φ(y)φ(y)ᵀ/(yᵀy)] and √n·E[φ(y)/|y|] for y ~ N(0, c), φ having slopes left and right of 0; `c` is overwritten.

    φ does not care for scale: φ(y)/|y| is what a piecewise linear activation makes of a node after a BatchNorm.

    >>> k, mean = through_leaky(np.array([[1.0, -1.0], [-1.0, 1.0]]), 0.0, 1.0)    # relu of (1, −1) or of (−1, 1)
    >>> print(np.abs(k).round(6).tolist(), mean.round(6))
    [[0.5, 0.0], [0.0, 0.5]] [0.5 0.5]
    """
    n = c.shape[0]
    c /= np.trace(c)
    spectrum = _Spectrum.of(c)
    fine = spectrum.tilted(np.exp(_S))
    weight = _STEP * np.exp(_S) * fine.product
    diagonal = c.diagonal().astype(np.float64)
    variances = spectrum.variances(diagonal, fine)
    growth = 0.5 * n * (left * left + right * right)
    q = growth * (variances @ weight)
    mean = math.sqrt(0.5 * n) / math.pi * (right - left) * (np.sqrt(variances) @ (weight * np.exp(-0.5 * _S)))
    # 1/(1 + 2t/directions) runs from 1 to 0, and expectations are smooth in it
    typical = 2.0 * (float(spectrum.values @ spectrum.values) + spectrum.rest * spectrum.each)
    for nodes in _GAUSS:
        x, share = _gauss_rule(1.0 / (1.0 + typical * np.exp(_S)), weight * fine.trace, nodes)
        tilt = spectrum.tilted((1.0 / x - 1.0) / typical)
        share *= growth / tilt.trace
        error = np.abs(spectrum.variances(diagonal, tilt) @ share - q).max() / q.max()
        if error <= 1e-8 or nodes == _GAUSS[-1]:
            _add_up(c, spectrum, tilt, share, left, right)
            break
    c[np.diag_indices_from(c)] = q
    return c, mean


def _add_up(c: Array, spectrum: _Spectrum, tilt: _Tilt, share: Array, left: float, right: float) -> None:
    """c ← Σ_t share_t · √(q_a q_b)·h(correlation) of c(t), tile by tile."""
    roots = np.sqrt(spectrum.variances(c.diagonal().astype(np.float64), tilt))
    scaled = spectrum.values[:, None] * (tilt.leading - tilt.common)
    vectors = spectrum.vectors.astype(c.dtype, copy=False)
    everything = slice(0, c.shape[0])
    corners = tiles(everything, everything, _TILE)

    def job(index: int) -> None:
        rows, cols = corners[index]
        total = np.zeros_like(c[rows, cols])
        for node, weight in enumerate(share):
            now = np.dot(vectors[rows] * scaled[:, node].astype(c.dtype), vectors[cols].T)
            now += c.dtype.type(tilt.common[node]) * c[rows, cols]
            a, b = roots[rows, node, None].astype(c.dtype), roots[None, cols, node].astype(c.dtype)
            now /= a
            now /= b
            np.clip(now, -1.0, 1.0, out=now)
            correlate_leaky(left, right, now, slope=False)
            now *= a * c.dtype.type(weight)
            now *= b
            total += now
        c[rows, cols] = total

    in_threads(job, len(corners))
    for rows, cols in corners:
        if rows != cols:
            c[cols, rows] = c[rows, cols].T


@dataclass(frozen=True)
class _Tilt:
    """Values at some t: ∏ (1 + 2λt)^{−½}, 1/(1 + 2λt) of leading directions and the others, and the trace of C(t)."""

    product: Array  # (t,)
    leading: Array  # (directions, t)
    common: Array  # (t,)
    trace: Array  # (t,)


@dataclass(frozen=True)
class _Spectrum:
    """A spectrum of trace 1: leading directions, and `rest` of the trace in directions of variance `each`."""

    values: Array
    vectors: Array  # (n, directions)
    rest: float
    each: float

    @classmethod
    def of(cls, c: Array) -> _Spectrum:
        values, vectors = _directions(c)
        rest = max(1.0 - float(values.sum()), 0.0)
        square = max(sum(float(np.vdot(row, row)) for row in c) - float(values @ values), 0.0)
        rest = rest if c.shape[0] > _ALL and square > 0.0 else 0.0
        return cls(values, vectors, rest, square / rest if rest > 0.0 else 0.0)

    def tilted(self, t: Array) -> _Tilt:
        spread = 2.0 * self.values[:, None] * t
        log_product = -0.5 * np.log1p(spread).sum(axis=0)
        if self.rest > 0.0:
            log_product -= 0.5 * self.rest / self.each * np.log1p(2.0 * self.each * t)
        leading = 1.0 / (1.0 + spread)
        common = 1.0 / (1.0 + 2.0 * self.each * t) if self.rest > 0.0 else np.zeros_like(t)
        return _Tilt(np.exp(log_product), leading, common, self.values @ leading + self.rest * common)

    def variances(self, diagonal: Array, tilt: _Tilt) -> Array:
        """The diagonal of C(t), (n, t)."""
        scaled = self.values[:, None] * (tilt.leading - tilt.common)
        return np.maximum(diagonal[:, None] * tilt.common + self.vectors.astype(np.float64) ** 2 @ scaled, 0.0)


def _gauss_rule(x: Array, weights: Array, nodes: int) -> tuple[Array, Array]:
    """Nodes and weights that integrate polynomials like a finer rule does (Stieltjes' recursion; Golub & Welsch)."""
    total = float(weights.sum())
    alpha, beta = np.zeros(nodes), np.zeros(nodes)
    before, now = np.zeros_like(x), np.full_like(x, 1.0 / math.sqrt(total))
    for k in range(nodes):
        alpha[k] = float(weights @ (x * now * now))
        new = (x - alpha[k]) * now - (beta[k - 1] * before if k else 0.0)
        beta[k] = math.sqrt(float(weights @ (new * new)))
        before, now = now, new / beta[k]
    found, vectors = np.linalg.eigh(np.diag(alpha) + np.diag(beta[:-1], 1) + np.diag(beta[:-1], -1))
    return found, total * vectors[0] ** 2


def _directions(c: Array) -> tuple[Array, Array]:
    """Eigenvalues and vectors: all of a small matrix, the leading ones of a large one (subspace iteration)."""
    n = c.shape[0]
    if n <= _ALL:
        values, vectors = np.linalg.eigh(c.astype(np.float64))
        # what rounding left of a direction would be as large as any other once t is
        rounding = max(n * float(np.finfo(np.float64).eps), float(np.finfo(c.dtype).eps))
        return np.where(values > rounding * values[-1], values, 0.0), vectors
    basis = np.random.default_rng(0).standard_normal((n, _LEADING)).astype(c.dtype)  # any start does
    for _ in range(5):
        basis = c @ basis
        # orthonormal through the small matrix of overlaps: large products only, where BLAS threads do not wait in vain
        square, turn = np.linalg.eigh((basis.T @ basis).astype(np.float64))
        kept = square > max(1e-12, 64.0 * float(np.finfo(c.dtype).eps)) * square[-1]
        basis = basis @ (turn[:, kept] / np.sqrt(square[kept])).astype(c.dtype)
    values, turn = np.linalg.eigh((basis.T @ (c @ basis)).astype(np.float64))
    return np.maximum(values, 0.0), basis @ turn
