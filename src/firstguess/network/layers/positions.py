"""Positions of tokens: a vector for every place, learned or of waves."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, final

import numpy as np

from firstguess.base.checks import check_flag, check_number
from firstguess.base.gaussian import Array
from firstguess.base.text import number
from firstguess.network.layer import Fold, Layer, Mix, Symmetry, register
from firstguess.network.points import PairwiseMap, Points, Tile, split
from firstguess.network.shapes import Shape
from firstguess.network.tensors import Draw, Place, Unbatched, Weights
from firstguess.network.walk import check_tokens

if TYPE_CHECKING:
    from torch import nn


def waves(places: int, width: int) -> Array:
    """(places, width): sines and cosines of place/10000^(2j/width), side by side."""
    angles = np.arange(places)[:, None] * 10000.0 ** (-2.0 * np.arange((width + 1) // 2) / width)
    return np.stack([np.sin(angles), np.cos(angles)], axis=2).reshape(places, -1)[:, :width]


@register
@final
@dataclass(frozen=True)
class Positions(Layer):
    """x plus a vector for every place, shared by all sequences: K += std²·δ_st, theory.md (20).

    `sinusoidal`: the fixed waves of the first transformer instead, K += ½·mean_j cos ω_j(s − t). Rotary positions
    are no layer of the stream: attention(12, rotary).
    """

    kind: ClassVar[str] = "positions"
    brief: ClassVar[tuple[str, ...]] = ("std", "sinusoidal")
    weighted = False
    mixes = Mix.TOKENS
    symmetry = Symmetry.NONE
    breaks_gaussianity = False
    by_token = True
    std: float = 0.02
    sinusoidal: bool = False

    def __post_init__(self) -> None:
        check_number(self.std, "std", "positions", hint="positions(0.02), positions(sinusoidal); attention(12, rotary)")
        check_flag(self.sinusoidal, "sinusoidal", "positions")

    def text(self) -> str:
        return "positions(sinusoidal)" if self.sinusoidal else f"positions({number(self.std)})"

    def with_shared(self, factor: float) -> Positions:
        return self if self.sinusoidal else replace(self, std=factor * self.std)  # waves have a size of their own

    def shape(self, before: Shape, units: int | None) -> Shape:
        check_tokens(before, self.kind)
        return before

    def covariance(self, points: Points, fold: Fold) -> PairwiseMap:
        places, grid, old = points.grid.places, points.grid, points.mean
        if self.sinusoidal:
            values = waves(places, points.width)
            added, mean = values @ values.T / points.width, np.tile(values.mean(axis=1), points.count)
        else:
            added, mean = self.std**2 * np.eye(places), np.zeros_like(points.q)

        def step(tile: Tile) -> None:
            blocks = split(tile.k, grid)
            blocks += added[:, None, :]
            if mean.any() and old.any():
                tile.k += old[tile.rows, None] * mean[tile.cols] + mean[tile.rows, None] * old[tile.cols]

        after = points.after(
            self,
            points.q + np.tile(added.diagonal(), points.count) + 2.0 * old * mean,
            old + mean,
            gaussian=points.gaussian and not self.sinusoidal,
            what=f"{points.what} with positions",
            level=points.level,
        )
        return PairwiseMap(after, step)

    def assumptions(self) -> Iterable[str]:
        return ()

    def tensors(self, place: Place) -> Unbatched:
        return Unbatched()

    def module(self, place: Place, draw: Draw) -> nn.Module:
        import torch

        from firstguess.network.torch_ops import AddPositions, Row

        width, (places, *_) = place.before.width, place.before.sizes[1:]
        assert width is not None
        if self.sinusoidal:
            return AddPositions(torch.from_numpy(waves(places, width)))
        return AddPositions(draw.fill(Row(places, width), Weights((places, width), 1, self.std**2, 0.0)))
