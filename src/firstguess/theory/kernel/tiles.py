"""Tiles of the covariance through runs of layers.

A tile passes through all layers of a run while it is in the cache. Only the upper triangle is worked on. Tiles of flat
data share the cores; those of images hold all positions of a few images on each side.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from firstguess.base.errors import NotCovered
from firstguess.base.gaussian import Array
from firstguess.base.numerics import Chain, chain
from firstguess.base.text import duration, in_bytes
from firstguess.base.threads import in_threads, tiles
from firstguess.network.layer import Layer, LayerReading, Mix, has_reading
from firstguess.network.points import Correlate, PairwiseMap, Points, Tile, apply, at_equal_places, unchanged
from firstguess.network.shapes import PositionGrid, Shape
from firstguess.network.walk import every, shapes, unsigned, wants_all_pairs

# A tile and the arrays that a layer makes of it stay in the cache, and NumPy's overhead a call is small:
# measured.
_TILE_BYTES = 256 * 256 * 8
_NOISE = 4e-15  # of the terms of a series, which are computed in float64: smaller ones are left out


class Mapped(NamedTuple):
    """A layer with the points before it, and its move."""

    layer: Layer
    before: Points
    map: PairwiseMap

    @property
    def after(self) -> Points:
        """The points after it."""
        return self.map.after


class Gram:
    """XXᵀ/d of data (n, d), a block at a time.

    One thread multiplies while another is busy with the layers of its block: the interpreter's lock, which the short
    steps of layers contend for, is then mostly free.
    """

    def __init__(self, x: Array) -> None:
        self.x = x
        self.dtype: np.dtype[Any] = x.dtype

    def squares(self) -> Array:
        """The diagonal: the mean square of every data point over its components."""
        return np.einsum("ij,ij->i", self.x, self.x).astype(np.float64) / self.x.shape[1]

    def means(self) -> Array:
        """The mean of every data point over its components."""
        return self.x.mean(axis=1, dtype=np.float64)

    def block(self, a: slice, b: slice) -> tuple[Array, Array | None]:
        return self.x[a] @ self.x[b].T / self.x.shape[1], None

    def fill(self, k: Array, rows: slice, cols: slice) -> None:
        """The same, written into its place of the whole covariance."""
        np.multiply(self.x[rows] @ self.x[cols].T, 1.0 / self.x.shape[1], out=k[rows, cols])


class Pixels:
    """The same of data with positions (n, positions, channels), at all pairs of positions."""

    def __init__(self, x: Array, tangent: bool = False) -> None:
        self.pixels, self.channels, self.tangent = x, x.shape[2], tangent
        self.dtype: np.dtype[Any] = x.dtype

    def squares(self) -> Array:
        return np.einsum("apc,apc->ap", self.pixels, self.pixels).ravel() / self.channels

    def means(self) -> Array:
        return self.pixels.mean(axis=2).ravel()

    def block(self, a: slice, b: slice) -> tuple[Array, Array | None]:
        left, right = self.pixels[a].reshape(-1, self.channels), self.pixels[b].reshape(-1, self.channels)
        k = left @ right.T / self.channels
        return k, np.zeros_like(k) if self.tangent else None


class Ids:
    """1 where two tokens are the same, by blocks of sequences."""

    dtype: np.dtype[Any] = np.dtype(np.float64)

    def __init__(self, ids: NDArray[Any]) -> None:
        self._ids = ids

    def block(self, a: slice, b: slice) -> tuple[Array, Array | None]:
        return (self._ids[a].ravel()[:, None] == self._ids[b].ravel()).astype(np.float64), None


class Stored:
    """Covariances that are at hand."""

    def __init__(self, k: Array, t: Array | None, points: Points) -> None:
        self.k, self.t, self._grid = k, t, points.grid
        self.dtype: np.dtype[Any] = k.dtype

    def block(self, a: slice, b: slice) -> tuple[Array, Array | None]:
        part = self._grid.rows(a), self._grid.rows(b)
        return self.k[part].copy(), None if self.t is None else self.t[part].copy()


@dataclass
class Pending:
    """Covariances before some layers, these layers, and what was found on the way to them."""

    source: Gram | Pixels | Ids | Stored  # `block(a, b)`: those of points a × b and their tangents, to be overwritten
    points: Points
    layers: list[Mapped] = field(default_factory=list[Mapped])
    summaries: list[LayerReading] = field(default_factory=list[LayerReading])
    remarks: list[str] = field(default_factory=list[str])

    @property
    def last(self) -> Points:
        """The points after all layers."""
        return self.layers[-1].after if self.layers else self.points

    def within(self, point: int) -> Array:
        """K[i p, i p'] of one data point after all layers."""
        at = slice(point, point + 1)
        k, t = self.source.block(at, at)
        rows = self.points.grid.rows(at)
        tile = Tile(k, t, rows, rows)
        for stage in [_plain(mapped, watched) for mapped, watched in _watched(self.layers)]:
            stage(tile)
        return tile.k

    def stored(self, k: Array, t: Array | None, points: Points, *, said: Iterable[str] = ()) -> Pending:
        """A run that begins with covariances at hand, and knows what this one found."""
        if points.before is not None:  # the covariance before the last activation is not at hand any more
            points = replace(points, before=None, phi=None, what=f"{points.what} before a block that mixes points")
        return Pending(Stored(k, t, points), points, [], self.summaries, [*self.remarks, *said])


def all_pairs(pending: Pending, budget: Budget) -> tuple[Array, Array | None]:
    """All pairs through a pending, whose summaries grow by those of its layers; a stored covariance is overwritten."""
    if isinstance(pending.source, Stored) and not pending.layers:
        return pending.source.k, pending.source.t
    if pending.points.grid.flat:
        k, t, sums = _flat(pending, budget)
    else:
        k, t, sums = _by_images(pending, budget)
    for mapped, total in zip(pending.layers, sums, strict=True):
        after = mapped.after
        pending.summaries.append(LayerReading.of(mapped.layer, float(after.shown.mean()), float(total / after.pairs)))
    return k, t


def _flat(pending: Pending, budget: Budget) -> tuple[Array, Array | None, Array]:
    """Map in place on all cores, products of data in larger tiles than layers; the lower triangle is a mirror image."""
    if isinstance(pending.source, Gram):
        source = pending.source
        k = np.empty((len(source.x), len(source.x)), source.dtype)
        t = np.zeros_like(k) if budget.tangent else None
    else:
        assert isinstance(pending.source, Stored)
        source, k, t = None, pending.source.k, pending.source.t
    n = k.shape[0]
    small = math.isqrt(_TILE_BYTES // k.itemsize)
    large = small if source is None else 2 * small  # products want larger tiles
    corners = tiles(slice(0, n), slice(0, n), large)
    sums = np.zeros((len(corners), len(pending.layers)))
    stages = _stages(pending.layers, k.dtype, series=t is None)
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
        return _off_diagonal(totals, pending.layers, rows if tile.on_diagonal else None)

    def job(index: int) -> None:
        rows, cols = corners[index]
        if source is not None:
            source.fill(k, rows, cols)
        for tile in tiles(rows, cols, small):
            sums[index] += one(*tile)

    in_threads(job, len(corners))
    return k, t, sums.sum(axis=0)


def _by_images(pending: Pending, budget: Budget) -> tuple[Array, Array | None, Array]:
    """Tiles of a few images; only what is after all layers is kept: memory for one tile, not for all positions."""
    n, before, after = pending.points.count, pending.points.grid, pending.last.grid
    k = np.empty((n * after.places,) * 2)
    t = np.empty_like(k) if budget.tangent else None
    sums = np.zeros(len(pending.layers))
    stages = _stages(pending.layers, k.dtype, series=False)
    cuts = [slice(i, min(i + budget.images, n)) for i in range(0, n, budget.images)]
    for index, a in enumerate(cuts):
        for b in cuts[index:]:
            if budget.alike and a == b and index:  # the first points' block once more: alike
                rows = after.rows(a)
                k[rows, rows] = k[: rows.stop - rows.start, : rows.stop - rows.start]
                continue
            tile = Tile(*pending.source.block(a, b), before.rows(a), before.rows(b))
            totals = np.array([total for stage in stages for total in stage(tile)])
            for matrix, block in ((k, tile.k), (t, tile.t)):
                if matrix is not None and block is not None:
                    matrix[tile.rows, tile.cols] = block
                    if a != b:
                        matrix[tile.cols, tile.rows] = block.T
            sums += _off_diagonal(totals, pending.layers, a if a == b else None)
            budget.tick()
    return k, t, sums


def _off_diagonal(totals: Array, layers: Sequence[Mapped], on_diagonal: slice | None) -> Array:
    """Turn sums over a tile into sums over pairs of different points, mirror images included."""
    if on_diagonal is None:
        return 2.0 * totals
    own = [mapped.after.q if mapped.after.real is None else mapped.after.q * mapped.after.real for mapped in layers]
    return totals - [q[m.after.grid.rows(on_diagonal)].sum() for q, m in zip(own, layers, strict=True)]


Stage = Callable[[Tile], Iterable[float]]  # maps a tile through some layers; the sum of the covariances after each


def _watched(layers: Sequence[Mapped]) -> list[tuple[Mapped, bool]]:
    """Each with whether the next one looks after it."""
    return [
        (mapped, any(following.map.needs_previous for following in layers[index + 1 : index + 2]))
        for index, mapped in enumerate(layers)
    ]


def _plain(mapped: Mapped, watched: bool) -> Stage:
    after = mapped.after

    def stage(tile: Tile) -> list[float]:
        apply(mapped.map, tile, watched=watched)
        if tile.on_diagonal:  # the diagonal is known better than arccos near c = 1 can give it
            tile.fill_diagonal(after.q[tile.rows])
        if after.grid.places == 1:
            return [tile.total()]
        return [at_equal_places(tile.k, after, tile.rows, tile.cols)]

    return stage


def _stages(layers: Sequence[Mapped], dtype: np.dtype[Any], *, series: bool) -> list[Stage]:
    """The steps of pending layers, where several that act on correlations alone are one."""
    rest = _watched(layers)
    if not series:
        return [_plain(*one) for one in rest]
    stages: list[Stage] = []
    while rest:
        maps: list[Correlate] = []
        for mapped, watched in rest:
            if mapped.map.correlate is None or watched or not _same_shape(mapped):
                break
            maps.append(mapped.map.correlate)
        worth_it = (
            sum(correlate is not unchanged for correlate in maps) > 1
        )  # a series costs as much as two activations
        found = chain(maps, max(_NOISE, 0.5 * float(np.finfo(dtype).eps))) if worth_it else None
        if found is None:
            stages += [_plain(*one) for one in rest[: max(len(maps), 1)]]
        else:
            stages.append(_chained([mapped for mapped, _ in rest[: len(maps)]], found))
        rest = rest[max(len(maps), 1) :]
    return stages


def _same_shape(mapped: Mapped) -> bool:
    """Whether the mean squares of all points change by one factor."""
    if mapped.before.q.min() <= 0.0:
        return False
    growth = mapped.after.q / mapped.before.q
    return bool(np.ptp(growth) <= 1e-12 * growth.max())


def _chained(layers: Sequence[Mapped], series: Chain) -> Stage:
    before, last = layers[0].before.q, layers[-1].after.q
    growth = np.array([float(mapped.after.q[0] / before[0]) for mapped in layers])
    root, factor = np.sqrt(before), math.sqrt(growth[-1])

    def stage(tile: Tile) -> Array:
        sums = series(tile.correlations(before), root[tile.rows], root[tile.cols])
        tile.scale(factor)
        if tile.on_diagonal:
            tile.fill_diagonal(last[tile.rows])
        return growth * sums

    return stage


# Which layers ahead go together, by sampled units: decided by what they are, before any covariance is looked at.


def unitwise(layer: Layer) -> bool:
    """Whether a layer is arithmetic on units, without weights."""
    return has_reading(type(layer), "sampled_units")


def segment(layers: Sequence[Layer], grid: PositionGrid) -> int:
    """How many layers before have no weights, if sampled units serve one of them better than a formula; else 0."""
    length = next((i for i, layer in enumerate(layers) if not unitwise(layer)), len(layers))
    if length and layers[0].exact(layers[1:length]):
        return 0
    return length if any(layer.sampled(grid) for layer in layers[:length]) else 0


def sums_ahead(layers: Sequence[Layer]) -> int:
    """How many layers before, up to the next weights, have a sum of activated units under an activation; else 0."""
    if not layers or layers[0].paths:
        return 0
    length, bent, summed, needed = 0, False, False, False
    for layer in layers:
        if layer.paths:
            branch, *shortcut = layer.paths
            if unsigned(branch) or not all(unitwise(x) for path in shortcut for x in path):
                break
            summed = summed or bent
        elif not unitwise(layer):
            break
        bent, needed = bent or layer.breaks_gaussianity, needed or (layer.breaks_gaussianity and summed)
        length += 1
    return length if needed else 0


_TILE = 768  # rows of a tile, images × positions, if more than one image fits into it
_COPIES = 8  # arrays of the size of a tile that are alive at once
_ENTRY = 1.5e-8  # seconds a layer takes for a covariance (relu and 3×3 convolutions, one core: measured)


@dataclass
class Budget:
    """What the reading needs, told before it is begun; and how far it is."""

    n: int
    tangent: bool = False
    memory: float = 2e9
    seconds: float = 600.0
    progress: Callable[[int, int], None] | None = None
    images: int = 1  # on each side of a tile
    total: int = 0
    done: int = 0
    alike: bool = False  # points have one distribution: prototypes, of which the first speaks for itself and all others

    def plan(self, layers: Sequence[Layer], before: Shape) -> None:
        """Choose the size of tiles of images, or refuse."""
        arrays = 2 if self.tangent else 1
        found = [_grid(shape) for shape in shapes(layers, before, None)]
        largest, stored, copies, entries, segments = found[0].places, 0, 1.0, 0.0, 1
        weights, nodes_until = False, 0
        for index, layer in enumerate(layers, start=1):
            grid, after = found[index - 1], found[index]
            ahead = layers[index - 1 :]
            if weights and (length := (0 if self.tangent else sums_ahead(ahead)) or segment(ahead, grid)):
                stored, segments, nodes_until = max(stored, grid.places), segments + 1, index + length - 1
            weights = layer.weighted
            largest = max(largest, after.places)
            if not grid.flat and wants_all_pairs(layer, grid):
                # the input, both paths and what they are made from are held at once
                held, copies = max(grid.places, *_inside(layer, grid)), 2.0
                largest, stored = max(largest, held), max(stored, held)
                segments += 3 + sum(Mix.POINTS in x.mixes for x in every([layer]))
            entries += after.places**2 * layer.effort()
            if Mix.POINTS in layer.mixes and index > nodes_until:
                stored, segments = max(stored, after.places), segments + 1
        need = _COPIES * 8.0 * arrays * largest**2
        if need > self.memory:
            side = math.isqrt(math.isqrt(int(self.memory / (_COPIES * 8.0 * arrays))))
            expected = f"images of at most {side}×{side} positions, for which a pair takes {in_bytes(self.memory)}"
            got = f"{largest} positions: {in_bytes(need)} for one pair of images"
            hint = "smaller images, a stride in the first convolution, or the ensemble reading: fg.measure(...)"
            raise NotCovered(expected, got=got, where="data", hint=hint)
        each = 24.0 * copies * arrays  # bytes of a pair
        need = each * (self.n * stored) ** 2
        if need > self.memory:
            raise NotCovered(
                f"at most {int(math.sqrt(self.memory / each) / stored)} images: "
                f"a batchnorm or max-pool wants all pairs of images and positions in {in_bytes(self.memory)}",
                got=f"{self.n} images with {stored} positions: {in_bytes(need)}",
                where="data",
                hint="points=…, layernorm, or the ensemble reading: fg.measure(...)",
            )
        need = _ENTRY * arrays * entries * self.n**2 / 2.0
        if need > self.seconds:
            most = max(2, int(self.n * math.sqrt(self.seconds / need)))
            expected = f"at most {most} images, which take about {duration(self.seconds)}"
            got = f"{self.n} images with up to {largest} positions: about {duration(need)}"
            hint = "points=…, smaller images, or the ensemble reading: fg.measure(...)"
            raise NotCovered(expected, got=got, where="data", hint=hint)
        self.images = max(1, min(self.n, _TILE // largest))
        tiles = -(-self.n // self.images)
        self.total = segments * tiles * (tiles + 1) // 2

    def tick(self) -> None:
        """One tile is done."""
        self.done += 1
        if self.progress is not None:
            self.progress(min(self.done, self.total), self.total)


def _grid(shape: Shape) -> PositionGrid:
    assert shape.grid is not None
    return shape.grid


def _inside(block: Layer, grid: PositionGrid) -> list[int]:
    """Positions before and after every layer within a block."""
    found = [grid.places]
    for path in block.paths:
        grids = [_grid(shape) for shape in shapes(path, Shape(None, grid), None)]
        found += [g.places for g in grids]
        for layer, at in zip(path, grids[:-1], strict=True):
            found += _inside(layer, at)
    return found
