"""The kernel reading of convolutional networks: the covariance of all pairs of images, at all pairs of positions.

A channel over an image is Gaussian over initializations with K[a p, b p'] for images a, b and positions p, p'. With
windows of k×k positions δ and weights of variance σw²/(k²·channels), zeros as padding (theory.md (11) by position):

    conv: K'[p, p'] = σw²/k² · Σ_δ K[p+δ, p'+δ] + σb²;  activations: by pair, as for flat data;
    avgpool: means of K over both windows;  dense, which sees all positions: K' = σw² · mean_p K[p, p] + σb².

A pair of images never meets another pair, except in a BatchNorm; and a max-pool over positions has no formula. So tiles
of a few images go through all layers up to the next of these, and only the n×n covariance of the outputs is kept:
memory for one tile, not for (n·positions)². BatchNorms and max-pools go by sampled nodes (channels): `kernel_nodes`;
activations on residual sums that are not Gaussian as well: `kernel_sums`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from firstguess.base.errors import FirstguessError, InvalidInput, NotCovered
from firstguess.base.gaussian import Array
from firstguess.network.grid import Grid
from firstguess.network.image_layers import Placed, needs_all_pairs, place, positions_after, split
from firstguess.network.layers import Activate, BatchNorm, Layer, Residual, text
from firstguess.network.network import Network
from firstguess.network.points import Points, Tile, merged
from firstguess.theory.kernel import Kernel, KernelLayer, sampling_error
from firstguess.theory.sampled_nodes import by_nodes, stretch, summary
from firstguess.theory.sampled_sums import Through, by_sums, sums_ahead

_TILE = 768  # rows of a tile, images × positions, if more than one image fits into it
_COPIES = 8  # arrays of the size of a tile that are alive at once
_ENTRY = 1.5e-8  # seconds a layer takes for a covariance (relu and 3×3 convolutions, one core: measured)
_TABLE = 15.0  # times as long where an activation's kernel has no closed form (tanh)

Block = Callable[[slice, slice], tuple[Array, Array | None]]  # images × images -> their covariances (and tangents)


@dataclass
class _Run:
    """Layers that act on pairs of images alone, and the covariances in front of them."""

    source: Block
    points: Points
    grid: Grid
    placed: list[Placed]

    @property
    def last(self) -> tuple[Points, Grid]:
        return (self.placed[-1].points, self.placed[-1].grid) if self.placed else (self.points, self.grid)

    def own(self, image: int) -> Array:
        """K[i p, i p'] of one image after all layers."""
        return self.through(slice(image, image + 1), slice(image, image + 1)).k

    def through(self, a: slice, b: slice, sums: Array | None = None) -> Tile:
        """The covariances of images a and b after all layers; Σ over positions and pairs of different images."""
        k, t = self.source(a, b)
        tile = Tile(k, t, self.grid.rows(a), self.grid.rows(b))
        for index, one in enumerate(self.placed):
            one.step(tile)
            if a == b:  # the diagonal is known better than arccos near c = 1 can give it
                tile.fill_diagonal(one.points.q[tile.rows])
            if sums is not None:
                pairs = split(tile.k, one.grid).diagonal(axis1=1, axis2=3).sum(axis=2)
                sums[index] += float(pairs.sum() - np.trace(pairs)) if a == b else 2.0 * float(pairs.sum())
        return tile


def image_kernel(
    network: Network,
    x: Array,
    *,
    tangent: bool = False,
    width: int = 1000,
    memory: float = 2e9,
    seconds: float = 600.0,
    progress: Callable[[int, int], None] | None = None,
) -> Kernel:
    """Carry the covariance of images (n, channels, height, width) through a network with convolutions.

    What would take more than `memory` bytes or, roughly, more than `seconds` is refused, with the number of images that
    would fit. `width` is the number of channels of layers that name none; only the tangent kernel sees it.
    """
    started = time.perf_counter()
    if x.ndim != 4:
        raise InvalidInput(
            "images (n, channels, height, width) for a network with convolutions",
            got=f"points of shape {x.shape[1:]}",
            where="data",
            hint="x.reshape(n, 1, 28, 28)",
        )
    n, channels, height, breadth = x.shape
    pixels = np.ascontiguousarray(x.reshape(n, channels, -1).transpose(0, 2, 1), dtype=np.float64)  # (n, places, C)

    def of_data(a: slice, b: slice) -> tuple[Array, Array | None]:
        left, right = pixels[a].reshape(-1, channels), pixels[b].reshape(-1, channels)
        k = left @ right.T / channels
        return k, np.zeros_like(k) if tangent else None

    q = np.einsum("apc,apc->ap", pixels, pixels).ravel() / channels
    run = _Run(of_data, Points(q, pixels.mean(axis=2).ravel(), False, channels, width), Grid((height, breadth)), [])
    work = _Work(n, memory, seconds, 2 if tangent else 1, progress)
    work.plan(network.layers, run.grid)
    readings: list[KernelLayer] = []
    remarks: list[str] = []
    run = _carry(network.layers, run, work, readings, remarks)
    if not run.last[1].flat:
        raise NotCovered(
            "a network that ends in a dense layer: its units are the classes",
            got=f"one that ends in {text(network.layers[-1])}",
            where=f"layer {len(network.layers)}",
            hint="add '> dense'",
        )
    k, t, more = _whole(run, work)
    seconds_taken = time.perf_counter() - started
    return Kernel(k, t, (*readings, *more), merged(remarks), seconds_taken, sampling_error(remarks))


def _carry(
    layers: Sequence[Layer], run: _Run, work: _Work, readings: list[KernelLayer], remarks: list[str], prefix: str = ""
) -> _Run:
    """Covariances through layers; the last of them may still wait in the run that comes back."""
    skip = formulas_until = 0
    for index, layer in enumerate(layers, start=1):
        if index <= skip:
            continue
        points, grid = run.last
        try:
            length = 0 if work.arrays > 1 else sums_ahead(layers[index - 1 :])
            sums = length > 0
            length = length or stretch(layers[index - 1 :], grid)
            if length and index > formulas_until and points.gaussian and not points.mean.any():
                k, t, more = _whole(run, work)
                readings += more
                ahead = layers[index - 1 : index - 1 + length]
                if sums:
                    found = by_sums(ahead, points, grid, k, _branch(work), seed=index)
                else:
                    found = by_nodes(ahead, points, grid, k, t, _formula, seed=index)
                if found is not None:
                    readings += [_reading(s.layer, s.q, s.q_ab) for s in found.summaries]
                    remarks += found.remarks
                    run = _Run(_stored(found.k, found.t, found.grid), found.points, found.grid, [])
                    skip = index + length - 1
                    continue
                formulas_until = index + length - 1
                run = _Run(_stored(k, t, grid), points, grid, [])
            if needs_all_pairs(layer, grid):
                assert isinstance(layer, Residual)
                run = _block(layer, run, work, readings, remarks)
                continue
            placed = place(layer, points, grid, run.own)
            if isinstance(placed, Placed):
                run.placed.append(placed)
                continue
            k, t, more = _whole(run, work)
            k, t, points, said = placed.run(k, t)
        except FirstguessError as error:
            raise error.at(f"{prefix}layer {index} ({text(layer)})") from None
        remarks += said
        s = summary(layer, k, points.q, grid)
        readings += [*more, _reading(s.layer, s.q, s.q_ab)]
        run = _Run(_stored(k, t, grid), points, grid, [])
    return run


def _branch(work: _Work) -> Through:
    def through(layers: Sequence[Layer], points: Points, grid: Grid, k: Array) -> tuple[Points, Array, list[str]]:
        remarks: list[str] = []
        done = _carry(layers, _Run(_stored(k, None, grid), points, grid, []), work, [], remarks, "branch ")
        return done.last[0], _whole(done, work)[0], remarks

    return through


def _block(layer: Residual, run: _Run, work: _Work, readings: list[KernelLayer], remarks: list[str]) -> _Run:
    """A residual block whose paths mix images: all pairs through each, then their sum."""
    layer.check()
    points, grid = run.last
    k, t, more = _whole(run, work)
    readings += more
    inner = _carry(layer.branch, _Run(_stored(k, t, grid), points, grid, []), work, [], remarks, "branch ")
    f, ft, _ = _whole(inner, work)
    outer = _Run(_stored(k, t, grid), points, grid, [])
    if layer.shortcut:
        outer = _carry(layer.shortcut, outer, work, [], remarks, "shortcut ")
        k, t, _ = _whole(outer, work)
    everything = slice(0, k.shape[0])
    tile = Tile(k, t, everything, everything)
    layer.add(tile, Tile(f, ft, everything, everything), outer.last[0], inner.last[0])
    points, grid = layer.sum_of(outer.last[0], inner.last[0]), outer.last[1]
    s = summary(layer, tile.k, points.q, grid)
    readings.append(_reading(s.layer, s.q, s.q_ab))
    return _Run(_stored(tile.k, tile.t, grid), points, grid, [])


# --- tiles ------------------------------------------------------------------------------------------------------------


@dataclass
class _Work:
    """What the reading needs, told before it is begun; and how far it is."""

    n: int
    memory: float
    seconds: float
    arrays: int
    progress: Callable[[int, int], None] | None
    images: int = 1  # on each side of a tile
    total: int = 0
    done: int = 0

    def plan(self, layers: Sequence[Layer], grid: Grid) -> None:
        largest, stored, copies, entries, stretches = grid.places, 0, 1.0, 0.0, 1
        weights, nodes_until = False, 0
        for index, layer in enumerate(layers, start=1):
            ahead = layers[index - 1 :]
            if weights and (length := (sums_ahead(ahead) if self.arrays == 1 else 0) or stretch(ahead, grid)):
                stored, stretches, nodes_until = max(stored, grid.places), stretches + 1, index + length - 1
            weights = layer.weighted
            before = grid
            try:
                grid = positions_after(layer, grid)
            except FirstguessError as error:
                raise error.at(f"layer {index} ({text(layer)})") from None
            largest = max(largest, grid.places)
            if needs_all_pairs(layer, before):  # the input, both paths and what they are made from are held at once
                held, copies = max(before.places, *_inside(layer, before)), 2.0
                largest, stored = max(largest, held), max(stored, held)
                stretches += 3 + sum(isinstance(x, BatchNorm) for x in _all(layer))
            entries += grid.places**2 * _effort(layer)
            if isinstance(layer, BatchNorm) and index > nodes_until:
                stored, stretches = max(stored, grid.places), stretches + 1
        need = _COPIES * 8.0 * self.arrays * largest**2
        if need > self.memory:
            side = math.isqrt(math.isqrt(int(self.memory / (_COPIES * 8.0 * self.arrays))))
            raise NotCovered(
                f"images of at most {side}×{side} positions, for which a pair takes {_bytes(self.memory)}",
                got=f"{largest} positions: {_bytes(need)} for one pair of images",
                where="data",
                hint="smaller images, a stride in the first convolution, or the ensemble reading: fg.measure(...)",
            )
        each = 24.0 * copies * self.arrays  # bytes of a pair
        need = each * (self.n * stored) ** 2
        if need > self.memory:
            raise NotCovered(
                f"at most {int(math.sqrt(self.memory / each) / stored)} images: "
                f"a batchnorm or max-pool wants all pairs of images and positions in {_bytes(self.memory)}",
                got=f"{self.n} images with {stored} positions: {_bytes(need)}",
                where="data",
                hint="points=…, layernorm, or the ensemble reading: fg.measure(...)",
            )
        need = _ENTRY * self.arrays * entries * self.n**2 / 2.0
        if need > self.seconds:
            raise NotCovered(
                f"at most {max(2, int(self.n * math.sqrt(self.seconds / need)))} images, which take about "
                f"{self.seconds / 60:.2g} minutes",
                got=f"{self.n} images with up to {largest} positions: about {need / 60:.0f} minutes",
                where="data",
                hint="points=…, smaller images, or the ensemble reading: fg.measure(...)",
            )
        self.images = max(1, min(self.n, _TILE // largest))
        tiles = -(-self.n // self.images)
        self.total = stretches * tiles * (tiles + 1) // 2

    def tick(self) -> None:
        self.done += 1
        if self.progress is not None:
            self.progress(min(self.done, self.total), self.total)


def _whole(run: _Run, work: _Work) -> tuple[Array, Array | None, list[KernelLayer]]:
    """All pairs of images through a run: the upper triangle, and its mirror image."""
    n, grid = work.n, run.last[1]
    k = np.empty((n * grid.places,) * 2)
    t = np.empty_like(k) if work.arrays > 1 else None
    sums = np.zeros(len(run.placed))
    step = work.images
    for i in range(0, n, step):
        for j in range(i, n, step):
            tile = run.through(slice(i, min(i + step, n)), slice(j, min(j + step, n)), sums)
            for whole, part in ((k, tile.k), (t, tile.t)):
                if whole is not None and part is not None:
                    whole[tile.rows, tile.cols] = part
                    if i != j:
                        whole[tile.cols, tile.rows] = part.T
            work.tick()
    pairs = max(n * (n - 1), 1)
    return (
        k,
        t,
        [
            _reading(p.layer, p.points.q.mean(), s / (pairs * p.grid.places))
            for p, s in zip(run.placed, sums, strict=True)
        ],
    )


def _reading(layer: Layer, q: float, q_ab: float) -> KernelLayer:
    return KernelLayer(text(layer), layer.weighted, float(q), float(q_ab))


def _formula(
    layers: Sequence[Layer], points: Points, grid: Grid, k: Array, t: Array | None
) -> tuple[Points, Array, Array | None]:
    """One layer on all pairs at once; of a flat signal also several, of which a later one looks behind the first."""
    assert grid.flat or len(layers) == 1

    def own(image: int) -> Array:
        rows = grid.rows(slice(image, image + 1))
        return k[rows, rows]

    run: list[Placed] = []
    for layer in layers:
        placed = place(layer, points, grid, own)
        assert isinstance(placed, Placed)  # a BatchNorm is no formula's business here
        run.append(placed)
        points = placed.points
    everything = slice(0, k.shape[0])
    tile = Tile(k, t, everything, everything)
    for placed in run:
        placed.step(tile)
        tile.fill_diagonal(placed.points.q)
    return points, tile.k, tile.t


def _stored(k: Array, t: Array | None, grid: Grid) -> Block:
    def block(a: slice, b: slice) -> tuple[Array, Array | None]:
        part = grid.rows(a), grid.rows(b)
        return k[part].copy(), None if t is None else t[part].copy()

    return block


def _effort(layer: Layer) -> float:
    """What a layer costs, in units of `_ENTRY`."""
    if isinstance(layer, Residual):
        return sum(_effort(one) for path in layer.paths for one in path)
    if isinstance(layer, Activate) and layer.phi.degree is None and layer.phi.kernel is None:
        return _TABLE
    return 1.0


def _all(layer: Layer) -> Iterator[Layer]:
    """A layer, and all layers within."""
    yield layer
    if isinstance(layer, Residual):
        for path in layer.paths:
            for one in path:
                yield from _all(one)


def _inside(block: Layer, grid: Grid) -> list[int]:
    """Positions after every layer within a block."""
    found: list[int] = [grid.places]
    if isinstance(block, Residual):
        for path in block.paths:
            at = grid
            for one in path:
                found += _inside(one, at)
                at = positions_after(one, at)
                found.append(at.places)
    return found


def _bytes(size: float) -> str:
    return f"{size / 1e9:.3g} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"
