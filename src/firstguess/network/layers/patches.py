"""Patches of an image as tokens."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray

from firstguess.base.checks import check_count, check_number, check_weights
from firstguess.base.errors import InvalidInput, NotCovered
from firstguess.network.layer import Fold, Layer, Mix, Symmetry, register
from firstguess.network.points import PairwiseMap, Points, random_sum_map
from firstguess.network.shapes import Shape
from firstguess.network.tensors import Draw, Place, Unbatched, Weights
from firstguess.network.walk import sequence

if TYPE_CHECKING:
    from torch import nn


@register
@final
@dataclass(frozen=True)
class Patches(Layer):
    """An image cut into size×size patches, row by row, and one dense layer on every patch: theory.md (20).

    Var W = weight_var / (size² · channels): Hugging Face's std 0.02 is weight_var = 0.02²·size²·channels.
    """

    kind: ClassVar[str] = "patches"
    brief: ClassVar[tuple[str, ...]] = ("size",)
    weighted = True
    mixes = Mix.TOKENS
    symmetry = Symmetry.WEIGHTS
    breaks_gaussianity = False
    by_token = True
    size: int
    weight_var: float = field(default=1.0, kw_only=True)
    bias_var: float = field(default=0.0, kw_only=True)
    width: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        check_count(self.size, "size", "patches")
        check_number(self.weight_var, "weight_var", "patches", hint="patches(16, weight_var=1)")
        check_number(self.bias_var, "bias_var", "patches", hint="patches(16, bias_var=0.1)")
        check_count(self.width, "width", "patches")
        check_weights(self.weight_var, self.bias_var, "patches")

    def shape(self, before: Shape, units: int | None) -> Shape:
        """On images one token a patch; tokens are patches already."""
        if before.grid is None or before.grid.apart:
            return Shape(self.width or units, before.grid, before.drawn)
        if not before.images:
            raise InvalidInput("images before patches", got=f"{before.grid}", hint="x.reshape(n, 1, 28, 28)")
        self._check(before.grid.sides)
        return Shape(self.width or units, sequence(before.grid.places // self.size**2), before.drawn)

    def _check(self, sides: tuple[int, ...]) -> None:
        if any(side % self.size for side in sides):
            raise InvalidInput(
                f"images whose sides are multiples of {self.size}, the side of a patch",
                got="×".join(map(str, sides)),
                hint="another size, or padded images",
            )

    def tokens_of(self, x: NDArray[Any]) -> NDArray[np.float64]:
        """(n, patches, numbers of a patch)."""
        if x.ndim != 4:
            raise InvalidInput(
                "images (n, channels, height, width) for a network of patches",
                got=f"points of shape {x.shape[1:]}",
                where="data",
                hint="x.reshape(n, 1, 28, 28)",
            )
        n, channels, high, wide = x.shape
        self._check((high, wide))
        cut = x.reshape(n, channels, high // self.size, self.size, wide // self.size, self.size)
        parts = cut.transpose(0, 2, 4, 1, 3, 5).reshape(n, -1, channels * self.size**2)
        return np.ascontiguousarray(parts, dtype=np.float64)

    def covariance(self, points: Points, fold: Fold) -> PairwiseMap:
        if points.shape.images:
            raise NotCovered(
                "patches as the first layer", got=f"behind {points.what}", hint="fg.measure(...), or patches first"
            )
        return random_sum_map(self, points, self.weight_var, self.bias_var, "patches")

    def assumptions(self) -> Iterable[str]:
        return ()

    def tensors(self, place: Place) -> Unbatched:
        return Unbatched()

    def module(self, place: Place, draw: Draw) -> nn.Module:
        from torch import nn

        from firstguess.network import torch_ops

        assert place.before.width is not None
        assert place.after.width is not None
        channels, units, size = place.before.width, place.after.width, self.size
        kernels = nn.utils.skip_init(nn.Conv2d, channels, units, size, stride=size, bias=self.bias_var > 0.0)
        fan_in = channels * size * size
        weights = Weights((units, channels, size, size), fan_in, self.weight_var, self.bias_var)
        return torch_ops.PatchesModule(draw.fill(kernels, weights))
