"""Pools as arithmetic on sampled nodes: of nodes side by side, or of positions of an image."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from firstguess.network.grid import Grid
from firstguess.network.nodes import Op, Values

Reduce = Callable[[Values, tuple[int, ...]], Values]


def pool_nodes(size: int, grid: Grid, reduce: Reduce) -> Op:
    """Windows side by side: `size` nodes, or k×k = size positions; what is left over at the border is not pooled.

    >>> pool = pool_nodes(4, Grid((2, 4)), lambda y, axes: y.max(axis=axes))
    >>> pool(np.arange(8.0)[None, :]).tolist()          # one node on one image of 2×4 positions
    [[5.0, 7.0]]
    """
    if grid.flat or grid.apart:
        return lambda y: reduce(y.reshape(-1, size, y.shape[1]), (1,))
    side = math.isqrt(size)
    high, wide = (length // side for length in grid.sides)

    def run(y: Values) -> Values:
        image = y.reshape(y.shape[0], -1, *grid.sides)[:, :, : high * side, : wide * side]
        windows = image.reshape(y.shape[0], -1, high, side, wide, side)
        return reduce(windows, (3, 5)).reshape(y.shape[0], -1)

    return run


def pool_overlapping(size: int, stride: int, padding: int, grid: Grid) -> Op:
    """The largest of windows of positions that may overlap, with −∞ around the image."""
    side = math.isqrt(size)
    around = (padding, padding)

    def run(y: Values) -> Values:
        image = y.reshape(y.shape[0], -1, *grid.sides)
        image = np.pad(image, ((0, 0), (0, 0), around, around), constant_values=-np.inf)
        windows = np.lib.stride_tricks.sliding_window_view(image, (side, side), axis=(2, 3))
        return windows[:, :, ::stride, ::stride].max(axis=(4, 5)).reshape(y.shape[0], -1)

    return run
