"""Nodes divided by their own root mean square over the data: exact expectations over a Gaussian y.

With C = Σ λ_i v_i v_iᵀ, y = Σ √λ_i z_i v_i, and 1/yᵀy = ∫ e^{−t·yᵀy} dt, an expectation over y becomes one over t:
under the integral y is Gaussian again, with the *tilted* covariance C(t) = Σ λ_i/(1 + 2λ_i t)·v_i v_iᵀ:

    n·E[f(y)/yᵀy] = n·∫ ∏_j (1 + 2λ_j t)^{−½} · E[f(y); y ~ N(0, C(t))] dt.

Where many directions share the variance this is f at C/mean diagonal; where few dominate, theirs shrink and the others
grow.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from firstguess.base.arc_cosine import correlate_rays
from firstguess.base.gaussian import Array
from firstguess.base.threads import in_threads, tiles

_ALL = 300  # up to so many points every direction is taken apart
_LEADING = 96  # beyond, so many; the rest stand for as many equal ones as give the same trace and trace of squares
# the integral over s = log t, tr C = 1: integrand ~ e^s on the left, at least e^{−s/2} on the right, analytic in |Im s|
# < π
_STEP = 0.25
_S = np.arange(-36.0, 72.0, _STEP)
_GAUSS = 8, 16, 32  # nodes in t for whole matrices; more where the diagonal, which is known, asks for more
_TILE = 256


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


def through_rays(c: Array, left: float, right: float) -> tuple[Array, Array]:
    """n·E[φ(y)φ(y)ᵀ/(yᵀy)] and √n·E[φ(y)/|y|] for y ~ N(0, c), φ having slopes left and right of 0; `c` is overwritten.

    φ does not care for scale: φ(y)/|y| is what a piecewise linear activation makes of a node behind a BatchNorm.

    >>> k, mean = through_rays(np.array([[1.0, -1.0], [-1.0, 1.0]]), 0.0, 1.0)    # relu of (1, −1) or of (−1, 1)
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
            correlate_rays(left, right, now, slope=False)
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
    """At some t: ∏ (1 + 2λt)^{−½}, 1/(1 + 2λt) of the leading directions and of the others, and the trace of C(t)."""

    product: Array  # (t,)
    leading: Array  # (directions, t)
    common: Array  # (t,)
    trace: Array  # (t,)


@dataclass(frozen=True)
class _Spectrum:
    """Of a covariance of trace 1: leading directions, and `rest` of the trace in directions of variance `each`."""

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
