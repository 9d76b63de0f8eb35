"""From a sequence of tokens to one vector: the first token, the last one, or the mean of all."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, final

from firstguess.base.errors import InvalidInput
from firstguess.base.gaussian import Array
from firstguess.network.grid import Grid, Shape
from firstguess.network.layer import Fold, Layer, Mix, Parity, register
from firstguess.network.points import Done, Points, Whole, split
from firstguess.network.tensors import Alone, Draw, Place
from firstguess.network.token_grid import check_tokens

if TYPE_CHECKING:
    from torch import nn

_PLACES = {"cls": 0, "last": -1}


@register
@final
@dataclass(frozen=True)
class PoolTokens(Layer):
    """The first token (cls), the last, or the mean of all: K[:, :, s, s], or its mean over s and t: theory.md (28)."""

    kind: ClassVar[str] = "pool_tokens"
    brief: ClassVar[tuple[str, ...]] = ("at",)
    weighted = False
    mixes = Mix.TOKENS
    parity = Parity.LINEAR
    bends = False
    by_token = True
    at: Literal["cls", "mean", "last"]

    def __post_init__(self) -> None:
        if self.at not in (*_PLACES, "mean"):
            raise InvalidInput("cls, mean or last", got=self.at, where="pool_tokens", hint="pool_tokens(mean)")

    def shape(self, before: Shape, units: int | None) -> Shape:
        check_tokens(before, self.kind)
        return before if before.grid is None else Shape(before.width, Grid(), before.drawn)

    def covariance(self, points: Points, fold: Fold) -> Whole:
        return Whole(lambda k, t: self._run(points, k, t))

    def _run(self, points: Points, k: Array, t: Array | None) -> Done:
        grid, level = points.grid, points.level

        def pooled(entries: Array) -> Array:
            blocks = split(entries, grid)
            if self.at == "mean":
                return blocks.mean(axis=(1, 3))
            place = _PLACES[self.at]
            return blocks[:, place, :, place].copy()

        new = pooled(k)
        mean = points.mean.reshape(-1, grid.places)
        if self.at == "mean":
            mean = mean.mean(axis=1)
            level = None if level is None else level.mean(axis=2, keepdims=True) / grid.places
        else:
            mean = mean[:, _PLACES[self.at]]
            level = None if level is None else level[:, :, [_PLACES[self.at]]]
        after = points.after(
            self,
            new.diagonal().copy(),
            mean,
            gaussian=points.gaussian,
            what=f"{'the mean' if self.at == 'mean' else 'one'} of {points.what}",
            level=level,
        )
        return Done(new, None if t is None else pooled(t), after)

    def assumptions(self) -> Iterable[str]:
        return ()

    def tensors(self, place: Place) -> Alone:
        return Alone()

    def module(self, place: Place, draw: Draw) -> nn.Module:
        from firstguess.network import token_modules

        return token_modules.PoolTokens(self.at)
