"""Tiles of the covariance through runs of layers, on all cores.

A tile passes through all layers of a run while it is in the cache. Only the upper triangle is worked on.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from firstguess.base.gaussian import Array
from firstguess.base.series import Chain, Correlate, chain
from firstguess.base.threads import in_threads, tiles
from firstguess.network.points import OnCorrelations, Points, Step, Tile, unchanged

if TYPE_CHECKING:
    from firstguess.network.layer import Layer

# A tile and the handful of arrays a layer makes of it stay in the cache, and NumPy's overhead a call is small:
# measured.
_TILE_BYTES = 256 * 256 * 8
_NOISE = 4e-15  # of the terms of a series, which are computed in float64: smaller ones are left out


class Summary(NamedTuple):
    """Diagonal and off-diagonal means of the covariance after one layer."""

    layer: Layer
    q: float
    q_ab: float


class Mapped(NamedTuple):
    """A layer with the points in front of it and behind it, and its step."""

    layer: Layer
    before: Points
    after: Points
    step: Step


class Gram:
    """XXᵀ/d of data (n, d), a block at a time.

    One thread multiplies while another is busy with the layers of its block: the interpreter's lock, which the short
    steps of layers contend for, is then mostly free.
    """

    def __init__(self, x: Array) -> None:
        self.x = x

    def empty(self) -> Array:
        return np.empty((len(self.x), len(self.x)), self.x.dtype)

    def squares(self) -> Array:
        """The diagonal: the mean square of every data point over its components."""
        return np.einsum("ij,ij->i", self.x, self.x).astype(np.float64) / self.x.shape[1]

    def means(self) -> Array:
        """The mean of every data point over its components."""
        return self.x.mean(axis=1, dtype=np.float64)

    def fill(self, k: Array, rows: slice, cols: slice) -> None:
        np.multiply(self.x[rows] @ self.x[cols].T, 1.0 / self.x.shape[1], out=k[rows, cols])


def through(k: Array, t: Array | None, run: Sequence[Mapped], source: Gram | None = None) -> list[Summary]:
    """All tiles of the upper triangle through a run of layers, on all cores; the lower one becomes its mirror image.

    With a source, `k` is filled from it first.
    """
    if not run and source is None:
        return []
    n = k.shape[0]
    small = math.isqrt(_TILE_BYTES // k.itemsize)
    large = small if source is None else 2 * small  # products want larger tiles
    corners = tiles(slice(0, n), slice(0, n), large)
    sums = np.zeros((len(corners), len(run)))
    stages = _stages(run, k.dtype) if t is None else [_plain(mapped) for mapped in run]
    mine = threading.local()  # every thread works in memory of its own, which it keeps: fresh memory is slow

    def room(rows: slice, cols: slice) -> list[Array]:
        if not hasattr(mine, "held"):
            mine.held = np.empty((4, small * small), k.dtype)
        shape = rows.stop - rows.start, cols.stop - cols.start
        return [held[: shape[0] * shape[1]].reshape(shape) for held in mine.held]

    def one(rows: slice, cols: slice) -> Array:
        """A tile through all stages; what its entries off the diagonal, and their mirror images, sum to."""
        entries, *spare = room(rows, cols)
        np.copyto(entries, k[rows, cols])
        tile = Tile(entries, None if t is None else t[rows, cols].copy(), rows, cols, (spare[0], spare[1], spare[2]))
        totals = np.array([total for stage in stages for total in stage(tile)])
        for matrix, block in ((k, tile.k), (t, tile.t)):
            if matrix is not None and block is not None:
                # on the diagonal, rows and columns were scaled in turn: symmetric up to rounding only
                matrix[rows, cols] = 0.5 * (block + block.T) if tile.on_diagonal else block
                if not tile.on_diagonal:
                    matrix[cols, rows] = block.T
        if tile.on_diagonal:
            return totals - [mapped.after.q[rows].sum() for mapped in run]
        return 2.0 * totals

    def job(index: int) -> None:
        rows, cols = corners[index]
        if source is not None:
            source.fill(k, rows, cols)
        for tile in tiles(rows, cols, small):
            sums[index] += one(*tile)

    in_threads(job, len(corners))
    pairs = max(n * (n - 1), 1)
    return [
        Summary(mapped.layer, float(mapped.after.q.mean()), float(total / pairs))
        for mapped, total in zip(run, sums.sum(axis=0), strict=True)
    ]


Stage = Callable[[Tile], Iterable[float]]  # maps a tile through some layers; the sum of the covariances after each


def _plain(mapped: Mapped) -> Stage:
    def stage(tile: Tile) -> list[float]:
        mapped.step(tile)
        if tile.on_diagonal:
            tile.fill_diagonal(mapped.after.q[tile.rows])
        return [tile.total()]

    return stage


def _stages(run: Sequence[Mapped], dtype: np.dtype[Any]) -> list[Stage]:
    """The steps of a run, where several that act on correlations alone are one."""
    stages: list[Stage] = []
    while run:
        maps: list[Correlate] = []
        for mapped in run:
            if not (isinstance(mapped.step, OnCorrelations) and _same_shape(mapped) and not mapped.after.watched):
                break
            maps.append(mapped.step.correlate)
        worth_it = (
            sum(correlate is not unchanged for correlate in maps) > 1
        )  # a series costs as much as two activations
        series = chain(maps, max(_NOISE, 0.5 * float(np.finfo(dtype).eps))) if worth_it else None
        if series is None:
            stages += [_plain(mapped) for mapped in run[: max(len(maps), 1)]]
        else:
            stages.append(_chained(run[: len(maps)], series))
        run = run[max(len(maps), 1) :]
    return stages


def _same_shape(mapped: Mapped) -> bool:
    """Whether the mean squares of all points change by one factor."""
    if mapped.before.q.min() <= 0.0:
        return False
    growth = mapped.after.q / mapped.before.q
    return bool(np.ptp(growth) <= 1e-12 * growth.max())


def _chained(run: Sequence[Mapped], series: Chain) -> Stage:
    before, last = run[0].before.q, run[-1].after.q
    growth = np.array([float(mapped.after.q[0] / before[0]) for mapped in run])
    root, factor = np.sqrt(before), math.sqrt(growth[-1])

    def stage(tile: Tile) -> Array:
        sums = series(tile.correlations(before), root[tile.rows], root[tile.cols])
        tile.scale(factor)
        if tile.on_diagonal:
            tile.fill_diagonal(last[tile.rows])
        return growth * sums

    return stage
