"""A learned token before all others, the same for every data point."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, final

import numpy as np

from firstguess.base.checks import check_number
from firstguess.base.gaussian import Array
from firstguess.network.layer import Fold, Layer, Mix, Symmetry, register
from firstguess.network.points import PairwiseMap, Points, Tile, split
from firstguess.network.shapes import Shape
from firstguess.network.tensors import Draw, Place, Unbatched, Weights
from firstguess.network.walk import check_tokens, sequence

if TYPE_CHECKING:
    from torch import nn


@register
@final
@dataclass(frozen=True)
class FirstToken(Layer):
    """One learned token before (a ViT's class token), entries N(0, std²); all points share it: theory.md (20)."""

    kind: ClassVar[str] = "cls"
    brief: ClassVar[tuple[str, ...]] = ("std",)
    weighted = False
    mixes = Mix.TOKENS
    symmetry = Symmetry.NONE
    breaks_gaussianity = False
    by_token = True
    std: float

    def __post_init__(self) -> None:
        check_number(self.std, "std", "cls", hint="cls(0.02)")

    def with_shared(self, factor: float) -> FirstToken:
        return replace(self, std=factor * self.std)

    def shape(self, before: Shape, units: int | None) -> Shape:
        check_tokens(before, self.kind)
        if before.grid is None:
            return before
        return Shape(before.width, sequence(before.grid.places + 1), before.drawn)

    def covariance(self, points: Points, fold: Fold) -> PairwiseMap:
        """Uncorrelated with all other tokens, and the same in all sequences."""
        grid, places, square = points.grid, points.grid.places, self.std**2
        larger = sequence(places + 1)

        def widened(v: Array, first: float) -> Array:
            rows = v.reshape(-1, places)
            return np.concatenate([np.full((len(rows), 1), first), rows], axis=1).ravel()

        def step(tile: Tile) -> None:
            old = split(tile.k, grid)
            a, _, b, _ = old.shape
            new = np.zeros((a, places + 1, b, places + 1))
            new[:, 1:, :, 1:] = old
            new[:, 0, :, 0] = square
            rows, cols = (larger.rows(grid.points(side)) for side in (tile.rows, tile.cols))
            tile.k = new.reshape(a * (places + 1), b * (places + 1))
            tile.rows, tile.cols = rows, cols

        level = None if points.level is None else np.pad(points.level, ((0, 0), (0, 0), (1, 0)))
        real = points.real
        if real is not None:
            real = np.pad(real.reshape(-1, places), ((0, 0), (1, 0)), constant_values=True).ravel()
        after = points.after(
            self,
            widened(points.q, square),
            widened(points.mean, 0.0),
            gaussian=points.gaussian,
            what=f"{points.what} after a first token",
            level=level,
            real=real,
        )
        return PairwiseMap(after, step)

    def assumptions(self) -> Iterable[str]:
        return ()

    def tensors(self, place: Place) -> Unbatched:
        return Unbatched()

    def module(self, place: Place, draw: Draw) -> nn.Module:
        from firstguess.network import torch_ops

        width = place.before.width
        assert width is not None
        return torch_ops.FirstTokenModule(draw.fill(torch_ops.Row(width), Weights((width,), 1, self.std**2, 0.0)))
