"""Statistics over the data, or over batches of consecutive rows: what BatchNorm and its kin share (theory.md (11))."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from firstguess.base.errors import NotCovered
from firstguess.base.gaussian import Array
from firstguess.network.leave_one_out import variance_of_others
from firstguess.network.nodes import Op, Values

if TYPE_CHECKING:
    from torch import Tensor

_EPS = 1e-12  # of the squared mean: what is left of a node that is the same on all points is rounding


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


def centre_points(k: Array, places: int, batch: int | None) -> None:
    """Take off (in place) what the points of a batch have in common, at every pair of positions: HKH."""
    n = k.shape[0] // places
    size = n if batch is None else batch
    whole = k.reshape(n, places, n, places)
    for start in range(0, n, size):
        part = whole[start : start + size]
        part -= part.mean(axis=0)
    for start in range(0, n, size):
        part = whole[:, :, start : start + size]
        part -= part.mean(axis=2, keepdims=True)


def effective(k: Array, size: int | None) -> tuple[float, float]:
    """Of batches of so many rows: the least number of effective directions, the least share of the variance left."""
    rows = k.shape[0]
    each = rows if size is None else min(size, rows)
    directions, share = math.inf, 1.0
    for start in range(0, rows, each):
        block = k[start : start + each, start : start + each].astype(np.float64)
        full = float(np.trace(block))
        block -= block.mean(axis=0)
        block -= block.mean(axis=1, keepdims=True)
        trace = float(np.trace(block))
        if trace > 0.0:
            directions = min(directions, trace**2 / float(np.vdot(block, block)))
        share = min(share, trace / full if full > 0.0 else 0.0)
    return directions, share


def over_batches(size: int | None, *, leave_one_out: bool) -> Op:
    """BatchNorm of sampled nodes; leave-one-out is (u − mean')/sd' over the other B − 1 points: theory.md (5)."""

    def run(y: Values) -> Values:
        y = np.ascontiguousarray(y)
        out = np.empty_like(y)
        for part, to in zip(columns(y, size), columns(out, size), strict=True):
            b = length_of(part, size)
            cut = part.reshape(y.shape[0], -1, b)
            mean = cut.mean(axis=2, keepdims=True)
            d = cut - mean
            square = np.einsum("rbp,rbp->rb", d, d)[:, :, None]
            if leave_one_out:
                variance = variance_of_others(d, square, b)
                d *= y.dtype.type(b / (b - 1))
            else:
                variance = square / b
            variance += _EPS * mean * mean + np.finfo(y.dtype).tiny
            d /= np.sqrt(variance)
            to[:] = d.reshape(part.shape)
        return out

    return run


def columns(y: Values, size: int | None) -> list[Values]:
    """All whole batches, and a last shorter one."""
    points = y.shape[1]
    whole = points if size is None or size >= points else points // size * size
    return [y[:, :whole], y[:, whole:]] if whole < points else [y]


def length_of(part: Values, size: int | None) -> int:
    return part.shape[1] if size is None else min(size, part.shape[1])


def batches(x: Tensor, dim: int, size: int) -> Iterator[Tensor]:
    """Views of x in which the points are (batches, points of a batch): all whole batches, then a last shorter one."""
    whole = x.shape[dim] // size * size
    if whole:
        yield x.narrow(dim, 0, whole).unflatten(dim, (-1, size))
    if whole < x.shape[dim]:
        yield x.narrow(dim, whole, x.shape[dim] - whole).unsqueeze(dim)
