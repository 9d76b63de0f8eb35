"""Average-pooling over independent units."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, final

import numpy as np

from firstguess.base.gaussian import Array
from firstguess.network.layer import FLAT, IMAGE, Call, Fold, Mix, ReadContext, ReadResult, Symmetry, register
from firstguess.network.points import PairwiseMap, Points, Tile
from firstguess.network.pooling import UnitPool, pool_to
from firstguess.network.signal import Signal, Unknown

if TYPE_CHECKING:
    pass


@register
@final
@dataclass(frozen=True)
class AvgPool(UnitPool):
    """The mean of K units: what is common to them stays, what differs between them is divided by K (theory.md §2)."""

    kind: ClassVar[str] = "avgpool"
    weighted = False
    mixes = Mix.POSITIONS
    symmetry = Symmetry.LINEAR
    breaks_gaussianity = False
    reduce = "mean"
    size: int = 2

    def text(self) -> str:
        return f"avgpool({self.size})"

    def moments(self, signal: Signal) -> Signal:
        distribution = signal.gaussian_or(Unknown("an average of nodes that are not Gaussian"))
        return replace(
            signal, between=signal.between / self.size, spread=signal.spread / self.size, distribution=distribution
        ).rescaled()

    def covariance(self, points: Points, fold: Fold) -> PairwiseMap:
        """K ← K/K_pool + (1 − 1/K_pool)·m_a m_b for independent units, Θ ← Θ/K_pool; on images means over windows."""
        if points.shape.images:
            return self._over_positions(points, fold)
        share, mean = 1.0 / self.size, points.mean

        def step(tile: Tile) -> None:
            tile.k *= share
            tile.k += (1.0 - share) * tile.outer(mean)
            if tile.t is not None:
                tile.t *= share

        q = share * points.q + (1.0 - share) * mean**2
        what = f"an average of {points.what}"
        return PairwiseMap(points.after(self, q, mean, gaussian=points.gaussian, what=what), step)

    def _over_positions(self, points: Points, fold: Fold) -> PairwiseMap:
        shape, side = self.shape(points.shape, None), self.side
        assert shape.grid is not None
        grid, after = points.grid, shape.grid
        high, wide = (length * side for length in after.sides)  # what is left over at the border is not pooled
        windows = after.sides[0], side, after.sides[1], side

        def pooled(k: Array) -> Array:
            a, b = k.shape[0] // grid.places, k.shape[1] // grid.places
            old = k.reshape(a, *grid.sides, b, *grid.sides)[:, :high, :wide, :, :high, :wide]
            both = old.reshape(a, *windows, b, *windows)
            return both.mean(axis=(2, 4, 7, 9)).reshape(a * after.places, b * after.places)

        def step(tile: Tile) -> None:
            images = grid.points(tile.rows), grid.points(tile.cols)
            tile.k = pooled(tile.k)
            tile.t = None if tile.t is None else pooled(tile.t)
            tile.rows, tile.cols = after.rows(images[0]), after.rows(images[1])

        # The variance of a mean wants the covariances within an image: each image's own tile so far, one at a time.
        q = np.concatenate([pooled(fold.within(i)).diagonal() for i in range(points.count)])
        mean = points.mean.reshape(-1, *grid.sides)[:, :high, :wide].reshape(-1, *windows).mean(axis=(2, 4)).ravel()
        what = f"an average of {points.what}"
        return PairwiseMap(points.after(self, q, mean, gaussian=points.gaussian, what=what), step)

    def gradient(self, signal: Signal) -> float | None:
        return 1.0 / self.size  # Σ_k (1/K)²

    modules = ("AvgPool1d", "AvgPool2d", "AdaptiveAvgPool2d")
    calls = ("F.avg_pool2d", "F.adaptive_avg_pool2d", "torch.mean", "Tensor.mean")

    @classmethod
    def from_call(cls, call: Call, context: ReadContext) -> ReadResult:
        if context.claim == "F.avg_pool2d":
            return super().from_call(call, context)
        if context.claim == "F.adaptive_avg_pool2d":
            return pool_to(cls, call.argument(1, "output_size", None), context)
        axes = call.argument(1, "dim", None)
        axes = tuple(sorted(a % IMAGE for a in axes)) if isinstance(axes, (tuple, list)) else axes
        if axes != (2, 3) or (context.axes or IMAGE) != IMAGE:
            return ReadResult(why="an average over other axes than the positions of images")
        pooled = pool_to(cls, 1, context)
        kept = call.argument(2, "keepdim", False)
        return pooled if pooled.why else ReadResult(pooled.layers, axes=IMAGE if kept else FLAT)
