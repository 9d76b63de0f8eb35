"""Kernels of activations without a closed form, as series: E φφ = √(s_a s_b)·Σ_m T_m(θ)·Σ_ij T_i(q_a) T_j(q_b) G_ijm.

T are Chebyshev polynomials, in θ = arccos c and in log q; s(q) = E φ(√q z)². The correlation of two φ is analytic in
all three (a kink at 0 included), so a few dozen terms give 1e-9. It is computed from conditional means E[φ(u) | z] on a
grid of the part z that both points share.

A kink away from 0 is a different matter when variances differ: two points then meet it at different z, and the kernel
is no longer analytic where q_a = q_b and θ = 0. Such activations have a table for points of one size only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.polynomial import chebyshev

from firstguess.base import gaussian
from firstguess.base.errors import NotConverged, NotCovered
from firstguess.base.gaussian import Array, Feature
from firstguess.base.series import interpolate
from firstguess.network.activations.pieces import pieces_kernel
from firstguess.network.activations.record import Activation

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
    if high > low:
        _refuse_far_kinks(phi, high)
    if phi.source is None:
        return _built(part, low, high, 1.0)
    error = math.inf
    for refine in (1.0, 1.7, 2.9):  # nothing is known about it: finer quadrature off the nodes has to agree
        made = _built(part, low, high, refine)
        error = _error(made, part, 1.7 * refine)
        if error <= 2.0 * TOLERANCE:
            return made
    raise NotConverged(
        "an activation that is smooth between its kinks",
        got=f"{phi}: kernels that still move by {error:.1e}",
        hint="name the points where it bends or jumps: fg.activation(fn, kinks=(0.0, 1.0))",
    )


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
    raise NotConverged(
        "an activation whose kernel is smooth, for points of similar size",
        got=f"{part.phi} for mean squares from {math.exp(low):.3g} to {math.exp(high):.3g}",
        hint="inputs of more equal size (a layernorm before the activation), or fg.measure(...)",
    )


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
            raise NotCovered(
                "an activation whose derivative is known",
                got=str(self.phi),
                hint="pass it: fg.activation(fn, derivative=...)",
            )
        return self.phi.derivative

    @property
    def offset(self) -> float:
        return 0.0 if self.slope else self.phi.offset


def _refuse_far_kinks(phi: Activation, high: float) -> None:
    reach = gaussian.REACH * math.exp(0.5 * high)
    kinks = [f.at for f in phi.features if f.width == 0.0 and 0.0 < abs(f.at) < reach]
    if kinks:
        raise NotConverged(
            "points of one size for an activation that bends away from 0",
            got=f"{phi}, which bends at {', '.join(f'{k:g}' for k in kinks)}",
            hint="a layernorm or rmsnorm before the activation, or the ensemble reading: fg.measure(...)",
        )


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
            values[index] = pieces_kernel(f, math.cos(theta) * outer, q[:, None], q[None, :])
        square = np.diagonal(pieces_kernel(f, outer, q[:, None], q[None, :]))
    else:
        for index in range((n_t + 1) // 2):  # nodes lie symmetrically: θ and π − θ share their conditional means
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
