"""From a sequence of tokens to one vector: the first token, the last one, or the mean of all."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, final

import numpy as np

from firstguess.base.errors import InvalidInput
from firstguess.base.gaussian import Array
from firstguess.network.layer import Fold, Layer, Mix, Symmetry, register
from firstguess.network.points import AllPairsMap, Done, Points, split
from firstguess.network.shapes import PositionGrid, Shape
from firstguess.network.tensors import Draw, Place, Unbatched
from firstguess.network.walk import check_tokens

if TYPE_CHECKING:
    from torch import nn


@register
@final
@dataclass(frozen=True)
class PoolTokens(Layer):
    """The first token (cls), the last, or the mean of all: K[:, :, s, s], or its mean over s and t: theory.md (28).

    Padding is not read: of a sequence with some, the last token is the last real one, and the mean that of real ones.
    """

    kind: ClassVar[str] = "pool_tokens"
    brief: ClassVar[tuple[str, ...]] = ("at",)
    weighted = False
    mixes = Mix.TOKENS
    symmetry = Symmetry.LINEAR
    breaks_gaussianity = False
    by_token = True
    at: Literal["cls", "mean", "last"]

    def __post_init__(self) -> None:
        if self.at not in ("cls", "mean", "last"):
            raise InvalidInput("cls, mean or last", got=self.at, where="pool_tokens", hint="pool_tokens(mean)")

    def shape(self, before: Shape, units: int | None) -> Shape:
        check_tokens(before, self.kind)
        return before if before.grid is None else Shape(before.width, PositionGrid(), before.drawn)

    def covariance(self, points: Points, fold: Fold) -> AllPairsMap:
        return AllPairsMap(lambda k, t: self._run(points, k, t))

    def _run(self, points: Points, k: Array, t: Array | None) -> Done:
        grid, level = points.grid, points.level
        share = self._shares(points)  # (n, T): what a token counts for

        def pooled(entries: Array) -> Array:
            blocks = split(entries, grid)
            if self.at != "mean":
                place = share.argmax(axis=1)
                every = np.arange(len(place))
                return blocks[every[:, None], place[:, None], every, place]
            if points.real is None:
                return blocks.mean(axis=(1, 3))
            return np.einsum("asbt,as,bt->ab", blocks, share, share, optimize=True)

        new = pooled(k)
        mean = np.sum(points.mean.reshape(-1, grid.places) * share, axis=1)
        if level is not None:
            level = np.einsum("abt,at,bt->ab", level, share, share)[:, :, None]
        after = points.after(
            self,
            new.diagonal().copy(),
            mean,
            gaussian=points.gaussian,
            what=f"{'the mean' if self.at == 'mean' else 'one'} of {points.what}",
            level=level,
        )
        return Done(new, None if t is None else pooled(t), after)

    def _shares(self, points: Points) -> Array:
        places = points.grid.places
        real = np.ones((points.count, places), dtype=bool) if points.real is None else points.real.reshape(-1, places)
        if self.at == "mean":
            return real / real.sum(axis=1, keepdims=True)
        if self.at == "cls" and not real[:, 0].all():
            raise InvalidInput(
                "sequences that begin with a token",
                got="some that begin with padding",
                hint="padding behind, not before",
            )
        # the last real token: the first one from after
        place = np.zeros(len(real), dtype=int) if self.at == "cls" else places - 1 - real[:, ::-1].argmax(axis=1)
        return np.eye(places)[place]

    def assumptions(self) -> Iterable[str]:
        return ()

    def tensors(self, place: Place) -> Unbatched:
        return Unbatched()

    def module(self, place: Place, draw: Draw) -> nn.Module:
        from firstguess.network import torch_ops

        return torch_ops.PoolTokensModule(self.at)
