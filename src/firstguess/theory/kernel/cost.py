"""What a kernel reading may take, and the refusal, before any work, of what would take more."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from firstguess.base.errors import NotCovered
from firstguess.base.text import duration
from firstguess.network.layer import Layer, Mix, has_reading
from firstguess.network.shapes import Grid, Shape
from firstguess.network.walk import every, shapes, unsigned, wants_all_pairs

# --------------------------------------------------------------------------------------------------------------
# Which layers ahead go together, by sampled units: decided by what they are, before any covariance is looked at.


def unitwise(layer: Layer) -> bool:
    """Whether a layer is arithmetic on units, without weights."""
    return has_reading(type(layer), "sampled_units")


def segment(layers: Sequence[Layer], grid: Grid) -> int:
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
            raise NotCovered(
                f"images of at most {side}×{side} positions, for which a pair takes {_bytes(self.memory)}",
                got=f"{largest} positions: {_bytes(need)} for one pair of images",
                where="data",
                hint="smaller images, a stride in the first convolution, or the ensemble reading: fg.measure(...)",
            )
        each = 24.0 * copies * arrays  # bytes of a pair
        need = each * (self.n * stored) ** 2
        if need > self.memory:
            raise NotCovered(
                f"at most {int(math.sqrt(self.memory / each) / stored)} images: "
                f"a batchnorm or max-pool wants all pairs of images and positions in {_bytes(self.memory)}",
                got=f"{self.n} images with {stored} positions: {_bytes(need)}",
                where="data",
                hint="points=…, layernorm, or the ensemble reading: fg.measure(...)",
            )
        need = _ENTRY * arrays * entries * self.n**2 / 2.0
        if need > self.seconds:
            raise NotCovered(
                f"at most {max(2, int(self.n * math.sqrt(self.seconds / need)))} images, which take about "
                f"{duration(self.seconds)}",
                got=f"{self.n} images with up to {largest} positions: about {duration(need)}",
                where="data",
                hint="points=…, smaller images, or the ensemble reading: fg.measure(...)",
            )
        self.images = max(1, min(self.n, _TILE // largest))
        tiles = -(-self.n // self.images)
        self.total = segments * tiles * (tiles + 1) // 2

    def tick(self) -> None:
        """One tile is done."""
        self.done += 1
        if self.progress is not None:
            self.progress(min(self.done, self.total), self.total)


def _grid(shape: Shape) -> Grid:
    assert shape.grid is not None
    return shape.grid


def _inside(block: Layer, grid: Grid) -> list[int]:
    """Positions before and after every layer within a block."""
    found = [grid.places]
    for path in block.paths:
        grids = [_grid(shape) for shape in shapes(path, Shape(None, grid), None)]
        found += [g.places for g in grids]
        for layer, at in zip(path, grids[:-1], strict=True):
            found += _inside(layer, at)
    return found


def _bytes(size: float) -> str:
    return f"{size / 1e9:.3g} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"
