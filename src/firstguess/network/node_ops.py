"""Layers without weights as arithmetic on sampled nodes: rows are nodes, columns data points (image by image, then by
position)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from firstguess.base.gaussian import Array
from firstguess.network.grid import Grid
from firstguess.network.layers import (
    Activate,
    AvgPool,
    BatchNorm,
    GroupNorm,
    Layer,
    LayerNorm,
    MaxPool,
    RMSNorm,
    Scale,
    Shift,
)
from firstguess.network.leave_one_out import variance_of_others
from firstguess.network.points import Points

Values = NDArray[Any]  # (nodes, points), float32 or float64
Op = Callable[[Values], Values]

NODEWISE = (Activate, AvgPool, BatchNorm, GroupNorm, LayerNorm, MaxPool, RMSNorm, Scale, Shift)
_EPS = 1e-12  # of the squared mean: what is left of a node that is the same on all points is rounding


def operation(layer: Layer, grid: Grid, constant: float | None = 0.0) -> Op:
    """What a layer does to nodes; it may overwrite them. `constant` is what a centred activation takes off.

    >>> pool = operation(MaxPool(4), Grid((2, 4)))
    >>> pool(np.arange(8.0)[None, :]).tolist()          # one node on one image of 2×4 positions
    [[5.0, 7.0]]
    """
    if isinstance(layer, Activate):
        return _activate(layer, constant)
    if isinstance(layer, Scale):
        return lambda y: np.multiply(y, layer.factor, out=y)
    if isinstance(layer, Shift):
        return lambda y: np.add(y, layer.by, out=y)
    if isinstance(layer, (AvgPool, MaxPool)):
        return _pool(layer, grid)
    if isinstance(layer, BatchNorm):
        size = None if layer.batch is None else layer.batch * grid.places
        return _batches(size, leave_one_out=layer.estimator == "leave_one_out")
    if isinstance(layer, (LayerNorm, GroupNorm, RMSNorm)):
        return _over_nodes(grid, centre=not isinstance(layer, RMSNorm))
    raise TypeError(f"no meaning on nodes for {layer.kind}")


def twin_batches(layer: BatchNorm, grid: Grid, inverse: Array) -> Op:
    """BatchNorm with one scale for all nodes: the root mean square one, of every point's batch."""
    size = None if layer.batch is None else layer.batch * grid.places

    def run(y: Values) -> Values:
        for part in _columns(y, size):
            cut = part.reshape(y.shape[0], -1, _length(part, size))
            part -= np.repeat(cut.mean(axis=2), cut.shape[2], axis=1)
        y *= inverse.astype(y.dtype)
        return y

    return run


def twin_over_nodes(layer: Layer, points: Points, grid: Grid) -> Op:
    """LayerNorm and RMSNorm with the moments over nodes that formulas give, instead of the sample's."""
    q, mean = (v.reshape(-1, grid.places).mean(axis=1) for v in (points.q, points.mean))
    level = np.zeros_like(q) if isinstance(layer, RMSNorm) else mean
    scale = np.repeat(1.0 / np.sqrt(q - level**2), grid.places)
    level = np.repeat(level, grid.places)

    def run(y: Values) -> Values:
        y -= level.astype(y.dtype)
        y *= scale.astype(y.dtype)
        return y

    return run


def _activate(layer: Activate, constant: float | None) -> Op:
    phi = layer.phi

    def run(y: Values) -> Values:
        out = phi.rise(y).astype(y.dtype, copy=False)
        if phi.centered:
            out -= out.mean() if constant is None else y.dtype.type(constant - phi.offset)
        elif phi.offset:
            out += y.dtype.type(phi.offset)
        return out

    return run


def _pool(layer: AvgPool | MaxPool, grid: Grid) -> Op:
    largest = isinstance(layer, MaxPool)
    if grid.flat:  # of nodes
        return lambda y: _reduce(y.reshape(-1, layer.size, y.shape[1]), (1,), largest)
    side = math.isqrt(layer.size)
    if isinstance(layer, MaxPool) and not layer.apart:
        return _overlapping(layer, grid, side)
    high, wide = grid.sides[0] // side, grid.sides[1] // side

    def run(y: Values) -> Values:
        image = y.reshape(y.shape[0], -1, *grid.sides)[:, :, : high * side, : wide * side]
        windows = image.reshape(y.shape[0], -1, high, side, wide, side)
        return _reduce(windows, (3, 5), largest).reshape(y.shape[0], -1)

    return run


def _overlapping(layer: MaxPool, grid: Grid, side: int) -> Op:
    p, stride = layer.padding, layer.stride or side

    def run(y: Values) -> Values:
        image = y.reshape(y.shape[0], -1, *grid.sides)
        image = np.pad(image, ((0, 0), (0, 0), (p, p), (p, p)), constant_values=-np.inf)
        windows = np.lib.stride_tricks.sliding_window_view(image, (side, side), axis=(2, 3))
        return windows[:, :, ::stride, ::stride].max(axis=(4, 5)).reshape(y.shape[0], -1)

    return run


def _reduce(y: Values, axes: tuple[int, ...], largest: bool) -> Values:
    return y.max(axis=axes) if largest else y.mean(axis=axes, dtype=y.dtype)


def _batches(size: int | None, *, leave_one_out: bool) -> Op:
    """BatchNorm; leave-one-out is (u − mean')/sd' over the other B − 1 points: theory.md (5)."""

    def run(y: Values) -> Values:
        y = np.ascontiguousarray(y)
        out = np.empty_like(y)
        for part, to in zip(_columns(y, size), _columns(out, size), strict=True):
            b = _length(part, size)
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


def _columns(y: Values, size: int | None) -> list[Values]:
    """All whole batches, and a last shorter one."""
    points = y.shape[1]
    whole = points if size is None or size >= points else points // size * size
    return [y[:, :whole], y[:, whole:]] if whole < points else [y]


def _length(part: Values, size: int | None) -> int:
    return part.shape[1] if size is None else min(size, part.shape[1])


def _over_nodes(grid: Grid, *, centre: bool) -> Op:
    """One mean and one scale an image, over nodes and positions: of the nodes drawn at once, as in a wide layer."""

    def run(y: Values) -> Values:
        images = y.reshape(y.shape[0], -1, grid.places)
        if centre:
            images = images - images.mean(axis=(0, 2), keepdims=True)
        scale = np.sqrt(np.mean(images * images, axis=(0, 2), keepdims=True))
        return (images / scale).reshape(y.shape)

    return run
