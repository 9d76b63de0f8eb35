"""Nodes divided by their own root mean square over the data: the exact covariance n·E[y yᵀ/(yᵀy)] of a Gaussian y.

With C = Σ λ_i v_i v_iᵀ, y = Σ √λ_i z_i v_i, the result is diagonal in the same directions, with 1/yᵀy = ∫ e^{−t·yᵀy}
dt:

    n·E[λ_i z_i² / Σ_j λ_j z_j²] = n·∫ λ_i/(1 + 2λ_i t)·∏_j (1 + 2λ_j t)^{−½} dt.

Where many directions share the variance this is C/mean diagonal; where few dominate, theirs shrink and the others grow.
"""

from __future__ import annotations

import numpy as np

from firstguess.gaussian import Array

_ALL = 300  # up to so many points every direction is taken apart
_LEADING = 96  # beyond, so many; the rest stand for as many equal ones as give the same trace and trace of squares
# the integral over s = log t, tr C = 1: integrand ~ e^s on the left, at least e^{−s/2} on the right, analytic in |Im s|
# < π
_S = np.arange(-36.0, 72.0, 0.25)
_T = np.exp(_S)


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
    values, vectors = _directions(c)
    rest = max(1.0 - float(values.sum()), 0.0)
    square = max(sum(float(np.vdot(row, row)) for row in c) - float(values @ values), 0.0)
    rest = rest if n > _ALL and square > 0.0 else 0.0
    each = square / rest if rest > 0.0 else 0.0
    log_product = -0.5 * np.log1p(2.0 * values[:, None] * _T).sum(axis=0)
    if rest > 0.0:
        log_product -= 0.5 * rest / each * np.log1p(2.0 * each * _T)
    weight = 0.25 * _T * np.exp(log_product)
    factors = (weight / (1.0 + 2.0 * values[:, None] * _T)).sum(axis=1)  # of every leading direction
    common = float((weight / (1.0 + 2.0 * each * _T)).sum()) if rest > 0.0 else 0.0
    correction = (vectors * (values * (factors - common))) @ vectors.T
    c *= common
    c += correction
    c *= n / np.trace(c)  # the trace is n exactly
    return c


def _directions(c: Array) -> tuple[Array, Array]:
    """Eigenvalues and vectors: all of a small matrix, the leading ones of a large one (subspace iteration)."""
    n = c.shape[0]
    if n <= _ALL:
        values, vectors = np.linalg.eigh(c.astype(np.float64))
        return np.maximum(values, 0.0), vectors
    basis = np.random.default_rng(0).standard_normal((n, _LEADING)).astype(c.dtype)  # any start does
    for _ in range(5):
        basis = c @ basis
        # orthonormal through the small matrix of overlaps: large products only, where BLAS threads do not wait in vain
        square, turn = np.linalg.eigh((basis.T @ basis).astype(np.float64))
        kept = square > max(1e-12, 64.0 * float(np.finfo(c.dtype).eps)) * square[-1]
        basis = basis @ (turn[:, kept] / np.sqrt(square[kept])).astype(c.dtype)
    values, turn = np.linalg.eigh((basis.T @ (c @ basis)).astype(np.float64))
    return np.maximum(values, 0.0), basis @ turn
