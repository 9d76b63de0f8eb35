"""What reads a sequence of tokens: one vector of it, or the head of a language model at every place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ClassVar, Literal, final

import numpy as np

from firstguess.base import checks
from firstguess.base.errors import InvalidInput
from firstguess.base.gaussian import Array
from firstguess.network import weights
from firstguess.network.layer import Back, Fold, Layer, Mix, Symmetry, nothing_assumed, register, unbatched
from firstguess.network.points import AllPairsMap, Done, PairwiseMap, Points, random_sum_map, split
from firstguess.network.shapes import PositionGrid, Shape
from firstguess.network.tensors import Draw, Place, Weights
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
        checks.choice(self.at, ("cls", "mean", "last"), "pool_tokens", hint="pool_tokens(mean)")

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
                hint="padding after the tokens, not before",
            )
        # the last real token: the first one from after
        place = np.zeros(len(real), dtype=int) if self.at == "cls" else places - 1 - real[:, ::-1].argmax(axis=1)
        return np.eye(places)[place]

    assumptions = nothing_assumed
    tensors = unbatched

    def token_gradients(self, points: Points, k: Array, along: Callable[[Sequence[Layer]], Back]) -> Back:
        places, at = points.grid.places, 0 if self.at == "cls" else -1

        def back(g: Array) -> Array:
            if self.at == "mean":
                return np.full((places, places), float(g[0, 0]) / places**2)
            out = np.zeros((places, places))
            out[at, at] = g[0, 0]
            return out

        return back

    def module(self, place: Place, draw: Draw) -> nn.Module:
        from firstguess.network import torch_ops

        return torch_ops.PoolTokensModule(self.at)


@register
@final
@dataclass(frozen=True)
class Unembed(Layer):
    """A language model's head: the classes are the vocabulary, and every token is a point that is guessed.

    Weights of its own, Var W = weight_var / width, or `tied`: the vectors of the embedding, by which the logit of the
    own input stands higher: theory.md (30). `init` is the weights' distribution, as for `dense`: rows of different
    lengths win at different rates, and Gaussian rows differ more than uniform ones: theory.md (52).
    """

    kind: ClassVar[str] = "unembed"
    brief: ClassVar[tuple[str, ...]] = ("tied",)
    weighted = True
    mixes = Mix.TOKENS
    symmetry = Symmetry.WEIGHTS
    breaks_gaussianity = False
    above = ("weight_var",)
    by_token = True
    each_token: ClassVar[bool] = True
    tied: bool = False
    weight_var: float = field(default=1.0, kw_only=True)
    init: str = field(default="normal", kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "init", weights.checked(self.init, "unembed"))

    def with_distribution(self, init: str) -> Unembed:
        return replace(self, init=init)

    def shape(self, before: Shape, units: int | None) -> Shape:
        check_tokens(before, self.kind)
        return Shape(units, before.grid, before.drawn)

    def covariance(self, points: Points, fold: Fold) -> PairwiseMap:
        """The covariance of a class's logits at all tokens; what ties add is drawn by `theory/language.py`."""
        return random_sum_map(self, points, self.weight_var, 0.0, "a language-model head")

    assumptions = nothing_assumed
    tensors = unbatched

    def module(self, place: Place, draw: Draw) -> nn.Module:
        from torch import nn

        from firstguess.network.torch_ops import TiedHead

        if self.tied:
            return TiedHead()
        units, width = place.after.units, place.before.units
        head = nn.utils.skip_init(nn.Linear, width, units, bias=False)
        return draw.fill(head, Weights((units, width), width, self.weight_var, 0.0, self.init))
