"""A whole covariance centred and scaled over the data, as BatchNorm does: theory.md (11)."""

from __future__ import annotations

import math

import numpy as np

from firstguess.base.errors import NotCovered
from firstguess.base.gaussian import Array


def centre_over_data(k: Array, t: Array | None, q: Array, batch: int | None) -> tuple[Array | None, Array]:
    """Centre a whole covariance (in place) over batches of consecutive rows, and divide by its mean diagonal there.

    Returns the tangent kernel and the factors. All nodes are divided by one scale, their root mean square.
    """
    n = k.shape[0]
    size = n if batch is None else batch
    scale = np.empty(n)
    starts = list(range(0, n, size))
    for start in starts:
        rows = slice(start, min(start + size, n))
        if rows.stop - rows.start < 2:
            raise NotCovered(
                "at least 2 points in every batch",
                got=f"a last batch of {rows.stop - rows.start}",
                hint="a number of points that the batch size divides",
            )
        k[rows] -= k[rows].mean(axis=0)
    for start in starts:
        cols = slice(start, min(start + size, n))
        k[:, cols] -= k[:, cols].mean(axis=1, keepdims=True)
        trace = float(np.trace(k[cols, cols]))
        # what centring leaves of identical points is rounding
        if trace <= 64.0 * float(np.finfo(k.dtype).eps) * float(q[cols].sum()):
            raise NotCovered(
                "data points that differ", got="a batch whose points are all alike", hint="drop duplicates"
            )
        scale[cols] = math.sqrt(trace / (cols.stop - cols.start))
    inverse = 1.0 / scale
    k *= inverse[:, None]
    k *= inverse[None, :]
    if t is not None:
        if batch is not None:
            raise NotCovered(
                "BatchNorm over the whole data set for the tangent kernel",
                got=f"batches of {batch}",
                hint="batchnorm without batch=",
            )
        t = _tangent(k, t, inverse)
    return t, inverse


def _tangent(k: Array, t: Array, inverse: Array) -> Array:
    """E[JΘJᵀ] with J = (H − yyᵀ/n)/σ, y ~ N(0, K) the normalized node: Gaussian fourth moments."""
    n = k.shape[0]
    t -= t.mean(axis=0)
    t -= t.mean(axis=1, keepdims=True)
    t *= inverse[:, None]
    t *= inverse[None, :]
    product = k @ t
    return t - (product + product.T) / n + (k * np.trace(product) + 2.0 * product @ k) / n**2
