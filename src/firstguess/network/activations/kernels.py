"""Kernels of activations: E φ(u_a)φ(u_b) and E φ'(u_a)φ'(u_b) for pairs with any covariance and any two variances.

Closed forms where a record has one (`catalogue`), otherwise series (`table`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.polynomial import chebyshev
from scipy.special import ndtr, owens_t

from firstguess.base import gaussian
from firstguess.base.errors import NotConverged, NotCovered
from firstguess.base.gaussian import Array, Feature, correlate_leaky
from firstguess.base.numerics import interpolate
from firstguess.network.activations.record import Activation, Kink, Map, Piecewise

# Kernels of piecewise quadratic activations in closed form, for any two variances.
#
# Such a function is a quadratic around 0 plus kinks (s·x − k)₊^p outwards, s = ±1 the side, k ≥ 0. All expectations
# follow from moments of a bivariate normal above two thresholds, E (X−h)₊^m (Y−g)₊^n, which Stein's lemma reduces to
# the probability of an orthant (Rosenbaum, 1961; Owen's T). Nothing cancels at small variances: kinks far out
# contribute 0.


def piecewise_kernel(f: Piecewise, k: Array, qa: Array, qb: Array) -> Array:
    """E f(u_a) f(u_b) for covariance k and variances q_a, q_b (which may broadcast)."""
    k = np.asarray(k, dtype=np.float64)
    a, b = (np.broadcast_to(np.sqrt(q), k.shape) for q in (qa, qb))
    c = np.clip(k / (a * b), -1.0, 1.0)
    p0, p1, p2 = f.poly
    out = (p0 + p2 * a * a) * (p0 + p2 * b * b) + p1 * p1 * k + 2.0 * (p2 * k) ** 2
    for kink in f.kinks:
        out += _poly_kink(f.poly, kink, a, b, c) + _poly_kink(f.poly, kink, b, a, c)
    for left in f.kinks:
        for right in f.kinks:
            out += _kink_kink(left, right, a, b, c)
    return out


def _poly_kink(poly: tuple[float, float, float], kink: Kink, a: Array, b: Array, c: Array) -> Array:
    """E poly(u_a)·kink(u_b): E X f(Y) = c E f', E X² f(Y) = E f + c² E f''."""
    h = kink.at / b
    tail, pdf = ndtr(-h), gaussian.pdf(h)
    first = pdf - h * tail
    e0, e1, e2 = kink.powers
    value = e0 * tail + e1 * b * first + e2 * b * b * ((1.0 + h * h) * tail - h * pdf)
    slope = e0 * pdf + e1 * b * tail + 2.0 * e2 * b * b * first  # by Y = u_b/b
    curve = e0 * h * pdf + e1 * b * pdf + 2.0 * e2 * b * b * tail
    p0, p1, p2 = poly
    return p0 * value + p1 * a * (kink.side * c) * slope + p2 * a * a * (value + c * c * curve)


def _kink_kink(left: Kink, right: Kink, a: Array, b: Array, c: Array) -> Array:
    # a threshold of 0 is moved to 1e-290: the ratios of Owen's T stay defined, and nothing else notices
    h, g = np.maximum(left.at / a, 1e-290), np.maximum(right.at / b, 1e-290)
    c = left.side * right.side * c
    root = np.maximum(np.sqrt((1.0 - c) * (1.0 + c)), 1e-12)  # where the pair coincides the limit is taken there
    v, w = (g - c * h) / root, (h - c * g) / root
    half_v, half_w = ndtr(-v), ndtr(-w)
    at_h, at_g = gaussian.pdf(h), gaussian.pdf(g)
    x0, y0 = at_h * half_v, at_g * half_w
    x1 = at_h * root * (gaussian.pdf(v) - v * half_v)
    y1 = at_g * root * (gaussian.pdf(w) - w * half_w)
    p00 = np.clip(0.5 * (ndtr(-h) + ndtr(-g)) - owens_t(h, v / h) - owens_t(g, w / g), 0.0, 1.0)
    p10 = x0 + c * y0 - h * p00
    p01 = y0 + c * x0 - g * p00
    p11 = x1 + c * p00 - h * p01
    (l0, l1, l2), (r0, r1, r2) = left.powers, right.powers
    out = l1 * r1 * (a * b) * p11
    if l0 or r0:
        out += l0 * r0 * p00 + l0 * r1 * b * p01 + l1 * r0 * a * p10
    if l2 or r2:
        p20, p02 = p00 + c * y1 - h * p10, p00 + c * x1 - g * p01
        p21, p12 = p01 + c * p10 - h * p11, p10 + c * p01 - g * p11
        p22 = p02 + 2.0 * c * p11 - h * p12
        out += l2 * r2 * (a * b) ** 2 * p22 + l2 * r1 * a * a * b * p21 + l1 * r2 * a * b * b * p12
        out += l2 * r0 * a * a * p20 + l0 * r2 * b * b * p02
    return out


# Kernels of activations without a closed form, as series: E φφ = √(s_a s_b)·Σ_m T_m(θ)·Σ_ij T_i(q_a) T_j(q_b) G_ijm.
#
# T are Chebyshev polynomials, in θ = arccos c and in log q; s(q) = E φ(√q z)². The correlation of two φ is analytic in
# all three (a kink at 0 included), so a few dozen terms give 1e-9. It is computed from conditional means E[φ(u) | z]
# on a grid of the part z that both points share.
#
# A kink away from 0 is a different matter when variances differ: two points then meet it at different z, and the kernel
# is no longer analytic where q_a = q_b and θ = 0. Such activations have a table for points of one size only.

TOLERANCE = 1e-9  # of √(E φ_a² E φ_b²)
_TAIL = 0.1 * TOLERANCE
_MOST_ANGLES, _MOST_SIZES = 800, 100
_STRIP = 2.2  # kernels are analytic in log q for |Im log q| < about π; a little less, to be right the first time


@dataclass(frozen=True)
class Table:
    """The series of one function's kernel, for log q in [low, high]."""

    low: float
    high: float
    values: Array  # (θ order, q order, q order)
    log_square: Array  # (q order,): log E f(√q z)²

    def __call__(self, k: Array, qa: Array, qb: Array) -> Array:
        """E f(u_a) f(u_b) for a block: k is (rows, cols), q_a (rows, 1), q_b (1, cols)."""
        left, right = np.sqrt(1.0 / np.ravel(qa)), np.sqrt(1.0 / np.ravel(qb))
        at = k * left[:, None]
        at *= right
        np.clip(at, -1.0, 1.0, out=at)
        np.arccos(at, out=at)
        at *= 2.0 / math.pi
        at -= 1.0
        basis_a, scale_a = self._basis(np.ravel(qa))
        basis_b, scale_b = self._basis(np.ravel(qb))
        basis_a *= scale_a[:, None]
        basis_b *= scale_b[:, None]
        return _clenshaw(self.values, at, basis_a, basis_b)

    def _basis(self, q: Array) -> tuple[Array, Array]:
        n = self.values.shape[1]
        if n == 1:
            return np.ones((q.size, 1)), np.full(q.size, math.exp(0.5 * float(self.log_square[0])))
        at = 2.0 * (np.log(q) - self.low) / (self.high - self.low) - 1.0
        v: Array = np.asarray(chebyshev.chebvander(at, n - 1), dtype=np.float64)
        return v, np.exp(0.5 * (v @ self.log_square))


def _clenshaw(values: Array, at: Array, left: Array, right: Array) -> Array:
    """Σ_m T_m(at) ∘ (left · values_m · rightᵀ)."""
    b1, b2, new = np.zeros_like(at), np.zeros_like(at), np.empty_like(at)
    across = np.ascontiguousarray(right.T)
    common = values.shape[1] == 1
    scale = left @ across if common else np.empty(0)
    term = np.empty_like(at)
    twice = 2.0 * at
    for m in range(values.shape[0] - 1, -1, -1):
        np.multiply(twice if m else at, b1, out=new)
        new -= b2
        if common:
            new += values[m, 0, 0]
        else:
            np.matmul(left @ values[m], across, out=term)
            new += term
        b1, b2, new = new, b1, b2
    if common:
        b1 *= scale
    return b1


@lru_cache(maxsize=256)
def table(phi: Activation, low: float, high: float, slope: bool = False) -> Table:
    """The table of φ, or of φ' if `slope`, for log q in [low, high]; NotConverged where 1e-9 cannot be had."""
    part = _Part(phi, slope)
    reach = gaussian.REACH * math.exp(0.5 * high)
    kinks = [f.at for f in phi.features if f.width == 0.0 and 0.0 < abs(f.at) < reach]
    if high > low and kinks:
        expected = "points of one size for an activation that bends away from 0"
        hint = "a layernorm or rmsnorm before the activation, or the ensemble reading: fg.measure(...)"
        raise NotConverged(expected, got=f"{phi}, which bends at {', '.join(f'{k:g}' for k in kinks)}", hint=hint)
    if phi.source is None:
        return _built(part, low, high, 1.0)
    error = math.inf
    for refine in (1.0, 1.7, 2.9):  # nothing is known about it: finer quadrature off the nodes has to agree
        made = _built(part, low, high, refine)
        error = _error(made, part, 1.7 * refine)
        if error <= 2.0 * TOLERANCE:
            return made
    expected = "an activation that is smooth between its kinks"
    hint = "name the points where it bends or jumps: fg.activation(fn, kinks=(0.0, 1.0))"
    raise NotConverged(expected, got=f"{phi}: kernels that still move by {error:.1e}", hint=hint)


def _built(part: _Part, low: float, high: float, refine: float) -> Table:
    n_t, n_q = _angles(part, high, refine), 1
    if high > low:
        x = _STRIP / (0.5 * (high - low))
        n_q = max(6, math.ceil(-math.log(_TAIL) / math.log(x + math.sqrt(1.0 + x * x))))
    while n_q <= _MOST_SIZES and n_t <= _MOST_ANGLES:
        values, log_square = _series(part, low, high, n_q, n_t, refine)
        tail_t = float(np.abs(values[-3:]).max())
        tail_q = 0.0 if n_q == 1 else max(float(np.abs(values[:, -2:]).max()), float(np.abs(log_square[-2:]).max()))
        if max(tail_t, tail_q) <= _TAIL:
            return Table(low, high, values, log_square)
        if tail_t > _TAIL:
            n_t = math.ceil(1.3 * n_t)
        if tail_q > _TAIL:
            n_q = math.ceil(1.3 * n_q)
    got = f"{part.phi} for mean squares from {math.exp(low):.3g} to {math.exp(high):.3g}"
    hint = "inputs of more equal size (a layernorm before the activation), or fg.measure(...)"
    raise NotConverged("an activation whose kernel is smooth, for points of similar size", got=got, hint=hint)


@dataclass(frozen=True)
class _Part:
    """φ = offset + rise, or φ'."""

    phi: Activation
    slope: bool

    @property
    def fn(self) -> gaussian.Function:
        if not self.slope:
            return self.phi.rise
        if self.phi.derivative is None:
            hint = "pass it: fg.activation(fn, derivative=...)"
            raise NotCovered("an activation whose derivative is known", got=str(self.phi), hint=hint)
        return self.phi.derivative

    @property
    def offset(self) -> float:
        return 0.0 if self.slope else self.phi.offset


def _angles(part: _Part, high: float, refine: float) -> int:
    """How many terms in θ the largest variance wants: its kernel is the least smooth."""
    n = 16
    while n <= _MOST_ANGLES:
        values, _ = _series(part, high, high, 1, n, refine)
        if float(np.abs(values[-3:]).max()) <= _TAIL:
            return n
        n = math.ceil(1.4 * n)
    return n


def _series(part: _Part, low: float, high: float, n_q: int, n_t: int, refine: float) -> tuple[Array, Array]:
    log_q = np.array([low]) if n_q == 1 else low + 0.5 * (high - low) * (chebyshev.chebpts1(n_q) + 1.0)
    q = np.exp(log_q)
    roots = np.sqrt(q)
    angles = (chebyshev.chebpts1(n_t) + 1.0) * 0.5 * math.pi
    values = np.empty((n_t, n_q, n_q))
    pieces = part.phi.pieces
    if pieces is not None:
        f = pieces.slope() if part.slope else pieces
        outer = np.sqrt(q[:, None] * q)
        for index, theta in enumerate(angles):
            values[index] = piecewise_kernel(f, math.cos(theta) * outer, q[:, None], q[None, :])
        square = np.diagonal(piecewise_kernel(f, outer, q[:, None], q[None, :]))
    else:
        for index in range((n_t + 1) // 2):  # units lie symmetrically: θ and π − θ share their conditional means
            theta = 0.5 * math.pi * (1.0 - abs(float(chebyshev.chebpts1(n_t)[index])))
            near, far = _pairs(part, roots, theta, refine)
            values[n_t - 1 - index], values[index] = far, near
        features, offset, fn = part.phi.features, part.offset, part.fn
        square = np.array(
            [gaussian.expectation(lambda x: (offset + fn(x)) ** 2, float(v), features, refine=refine) for v in q]
        )
    norm = 1.0 / np.sqrt(square)
    values *= norm[:, None] * norm
    series = interpolate(values)
    if n_q > 1:
        series = np.moveaxis(interpolate(np.moveaxis(series, 1, 0)), 0, 1)
        series = np.moveaxis(interpolate(np.moveaxis(series, 2, 0)), 0, 2)
    return series, interpolate(np.log(square))


def _pairs(part: _Part, roots: Array, theta: float, refine: float) -> tuple[Array, Array]:
    """E f(u_i) f(u_j) for all pairs of standard deviations at the correlations cos θ ≥ 0 and −cos θ.

    u = √q(√c·z + √(1−c)·y): given the shared z (and ±z for the two signs), u_i and u_j are independent.
    """
    c = math.cos(theta)
    shared, own = math.sqrt(max(c, 0.0)), math.sqrt(2.0) * math.sin(0.5 * theta)
    features: list[Feature] = []
    if shared > 0.0:
        for root in roots:
            for at, width in part.phi.features:
                features.append(Feature(abs(at) / (root * shared), max(width, 1.2 * root * own) / (root * shared)))
    kept = _thin(features)
    z, w = gaussian.rule([*kept, *(Feature(-f.at, f.width) for f in kept if f.at > 0.0)], refine)
    f = np.stack(
        [
            part.offset
            + gaussian.conditional_mean(part.fn, root * shared * z, float(root * own), part.phi.features, refine)
            for root in roots
        ]
    )
    weighted = f * w
    return weighted @ f.T, weighted @ f[:, ::-1].T


def _thin(features: list[Feature]) -> list[Feature]:
    """Features that lie within a tenth of a width of each other count once."""
    kept: list[Feature] = []
    for f in sorted(features):
        if kept and abs(f.at - kept[-1].at) < 0.1 * min(f.width, kept[-1].width):
            kept[-1] = Feature(kept[-1].at, min(f.width, kept[-1].width))
        else:
            kept.append(f)
    return kept


def _error(made: Table, part: _Part, refine: float) -> float:
    shares = np.array([0.0]) if made.high == made.low else np.array([0.03, 0.41, 0.94])
    q = np.exp(made.low + shares * (made.high - made.low))
    root = np.sqrt(made(np.sqrt(q[:, None] * q), q[:, None], q[None, :]).diagonal())
    worst = 0.0
    for theta in (0.05, 0.4, 1.1):
        for sign, exact in zip((1.0, -1.0), _pairs(part, np.sqrt(q), theta, refine), strict=True):
            got = made(sign * math.cos(theta) * np.sqrt(q[:, None] * q), q[:, None], q[None, :])
            worst = max(worst, float(np.max(np.abs(got - exact) / (root[:, None] * root))))
    return worst


_GRID = 0.25  # ends of a table lie on this grid in log q: the layers of a deep network then share a few tables
_MOST_EXACT = 24  # distinct sizes up to which moments are computed one by one


def kernel_map(phi: Activation, q: Array) -> Map:
    """The map of an activation, for points with these mean squares.

    >>> relu = Activation("relu", degree=1, rise=lambda x: np.maximum(x, 0.0))
    >>> one = np.ones((1, 1))
    >>> k, slope = kernel_map(relu, one)(0.5 * one, one, one, True)   # (√3/2 + 2π/3·½)/2π, (π − π/3)/2π
    >>> print(f"{k[0, 0]:.6f} {slope[0, 0]:.6f}")
    0.304499 0.333333
    """
    plain = replace(phi, centered=False)
    if plain.kernel is not None:
        return plain.kernel
    slopes = leaky_slopes(plain)
    if slopes is not None:
        return _piecewise_linear(*slopes)
    if plain.jumps:
        hint = "the ensemble reading: fg.measure(...)"
        raise NotCovered("an activation without jumps, or sign", got=str(phi), hint=hint)
    low, high = math.log(float(q.min())), math.log(float(q.max()))
    if high - low < 1e-11:
        low = high = 0.5 * (low + high)
    elif plain.pieces is not None:
        return _piecewise(plain.pieces)
    else:
        low, high = _GRID * math.floor(low / _GRID), _GRID * math.ceil(high / _GRID)
    table(plain, low, high)  # an activation it does not suit is refused before any long work

    def run(k: Array, qa: Array, qb: Array, slope: bool) -> tuple[Array, Array | None]:
        return table(plain, low, high)(k, qa, qb), table(plain, low, high, True)(k, qa, qb) if slope else None

    return run


def shifted(phi: Activation, by: float) -> Activation:
    """x ↦ φ(x + by), for signals with a mean: a function of centred ones."""
    rise, slope = phi.rise, phi.derivative
    at = float(rise(np.array([by]))[0])
    slopes, pieces = leaky_slopes(phi), None
    if slopes is not None:
        inner, sign = (slopes[1], -1.0) if by >= 0.0 else (slopes[0], 1.0)
        pieces = Piecewise((inner * by, inner, 0.0), (Kink(sign, abs(by), (0.0, slopes[1] - slopes[0], 0.0)),))
    return Activation(
        f"shifted {phi.name}" if slopes is None else "shifted piecewise linear",
        (*(phi.params if slopes is None else (("left", slopes[0]), ("right", slopes[1]))), ("by", by)),
        rise=lambda x: rise(x + by) - at,
        derivative=None if slope is None else lambda x: slope(x + by),
        offset=phi.offset + at,
        features=tuple(Feature(f.at - by, f.width) for f in phi.features),
        nondecreasing=phi.nondecreasing,
        pieces=pieces,
        jumps=phi.jumps,
        source=phi.source,
        centered=phi.centered,
    )


def means(phi: Activation, q: Array) -> tuple[Array, Array]:
    """E φ and E φ² for every mean square; a centred activation is taken before its mean is off."""
    plain = replace(phi, centered=False)
    if plain.degree is not None:  # homogeneous: one moment serves all
        mean, square = _moment(plain, 1.0)
        scale = q ** (plain.degree / 2)
        return mean * scale, square * scale**2
    values, index = np.unique(q, return_inverse=True)
    if values.size > _MOST_EXACT:
        between = _interpolated(plain, np.log(values).tobytes())
        if between is not None:
            return between[0][index], between[1][index]
    exact = np.array([_moment(plain, float(v)) for v in values])
    return exact[index, 0], exact[index, 1]


def _moment(phi: Activation, q: float) -> tuple[float, float]:
    m = phi.moments(0.0, q)
    return m.mean, m.mean**2 + m.between + m.spread


@lru_cache(maxsize=64)  # a fold asks for the same points again: forth, back, and once more around a block
def _interpolated(phi: Activation, sizes: bytes) -> tuple[Array, Array] | None:
    """Both moments as series in log q, in which log E φ² and E φ/√E φ² are analytic; None if 192 terms do not do."""
    log_q = np.frombuffer(sizes)
    low, high = float(log_q[0]), float(log_q[-1])
    if high - low < 1e-6:
        low, high = low - 1e-6, high + 1e-6
    n = 16
    while n < 200:
        nodes = low + 0.5 * (high - low) * (chebyshev.chebpts1(n) + 1.0)
        exact = np.array([_moment(phi, math.exp(v)) for v in nodes])
        root = np.sqrt(exact[:, 1])
        series = interpolate(np.stack([exact[:, 0] / root, 2.0 * np.log(root)], axis=1))
        if np.abs(series[-2:]).max() <= 1e-13 * max(1.0, float(np.abs(series[0, 1]))):
            share, log_square = chebyshev.chebval(2.0 * (log_q - low) / (high - low) - 1.0, series)
            return share * np.exp(0.5 * log_square), np.exp(log_square)
        n *= 2
    return None


# piecewise linear


def leaky_slopes(phi: Activation) -> tuple[float, float] | None:
    """The slopes of a piecewise linear activation left and right of 0; None for any other."""
    if phi.degree != 1 or phi.source is not None:
        return None
    left, right = (float(phi.rise(np.array([x]))[0]) * x for x in (-1.0, 1.0))
    return left, right


def _piecewise_linear(left: float, right: float) -> Map:
    def run(k: Array, qa: Array, qb: Array, slope: bool) -> tuple[Array, Array | None]:
        scale = np.sqrt(qa * qb)
        c = np.clip(k / scale, -1.0, 1.0)
        slopes = correlate_leaky(left, right, c, slope)
        c *= scale * (0.5 * (left * left + right * right))
        return c, slopes

    return run


@lru_cache(maxsize=8)
def _piecewise(f: Piecewise) -> Map:
    derivative = f.slope()
    return lambda k, qa, qb, slope: (
        piecewise_kernel(f, k, qa, qb),
        piecewise_kernel(derivative, k, qa, qb) if slope else None,
    )
