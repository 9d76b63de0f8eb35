"""Token embeddings with random vectors."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray

from firstguess.base.checks import check_count, check_number
from firstguess.base.errors import InvalidInput
from firstguess.network.layer import Fold, Layer, Mix, Symmetry, register
from firstguess.network.points import PairwiseMap, Points, Tile
from firstguess.network.shapes import Shape
from firstguess.network.tensors import Draw, Place, Unbatched, Weights
from firstguess.network.walk import check_tokens

if TYPE_CHECKING:
    from torch import nn

_HINT = "fg.predict(net, data=ids) with whole numbers of shape (sequences, tokens)"


@register
@final
@dataclass(frozen=True)
class Embed(Layer):
    """A random vector for every token of the vocabulary, entries N(0, std²): K = std²·1[same token], theory.md (20).

    `types`: one more vector of this standard deviation that all tokens share (BERT's token types, of one segment).
    `vocabulary` is the number of tokens, where a description wants to fix it; `width` that of units. `padding`: the id
    that fills up sequences which are shorter than others: nobody attends to it, and it is not read.
    """

    kind: ClassVar[str] = "embed"
    brief: ClassVar[tuple[str, ...]] = ("std",)
    weighted = True
    mixes = Mix.TOKENS
    symmetry = Symmetry.WEIGHTS
    breaks_gaussianity = False
    by_token = True
    std: float
    width: int | None = field(default=None, kw_only=True)
    types: float = field(default=0.0, kw_only=True)
    vocabulary: int | None = field(default=None, kw_only=True)
    padding: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        check_number(self.std, "std", "embed", strict=True, hint="embed(0.02)")
        check_number(self.types, "types", "embed", hint="embed(0.02, types=0.02)")
        check_count(self.width, "width", "embed")
        check_count(self.vocabulary, "vocabulary", "embed", low=2)
        check_count(self.padding, "padding", "embed", low=0)
        if self.padding is not None and self.vocabulary is not None and self.padding >= self.vocabulary:
            raise InvalidInput(
                f"an id of padding below the vocabulary's size, {self.vocabulary}", got=self.padding, where="embed"
            )

    def with_shared(self, factor: float) -> Embed:
        return replace(self, types=factor * self.types)

    def shape(self, before: Shape, units: int | None) -> Shape:
        check_tokens(before, self.kind)
        return Shape(self.width or units, before.grid, before.drawn)

    def tokens_of(self, x: NDArray[Any]) -> NDArray[np.int64]:
        """Ids as whole numbers, or one clear error."""
        if x.ndim != 2:
            raise InvalidInput(
                "token ids (sequences, tokens)", got=f"data of shape {x.shape}", where="data", hint=_HINT
            )
        ids = np.asarray(x, dtype=np.float64)
        if not np.isfinite(ids).all() or (ids != np.floor(ids)).any() or (ids < 0).any():
            raise InvalidInput("token ids: whole numbers from 0 on", got="others", where="data", hint=_HINT)
        if self.vocabulary is not None and ids.max() >= self.vocabulary:
            raise InvalidInput(
                f"ids below the vocabulary's size, {self.vocabulary}",
                got=int(ids.max()),
                where="data",
                hint=f"embed(vocabulary={int(ids.max()) + 1})",
            )
        return ids.astype(np.int64)

    def real_tokens(self, tokens: NDArray[Any]) -> NDArray[np.bool_] | None:
        real = tokens != self.padding
        if self.padding is None or real.all():
            return None
        empty = int((~real.any(axis=1)).sum())
        if empty:
            raise InvalidInput(
                "sequences with at least one token that is no padding",
                got=f"{empty} of {len(real)} that are nothing else",
                where="data",
                hint="leave them out",
            )
        return real

    def covariance(self, points: Points, fold: Fold) -> PairwiseMap:
        """`points` are one-hot vectors: 1 for the same token, else 0 (or the chance that two tokens are the same)."""
        square = self.types**2

        def step(tile: Tile) -> None:
            if tile.t is not None:  # vectors are trained: their gradient is 1 for the same token
                tile.t += tile.k
                tile.t += bool(self.types)
            tile.scale(self.std)
            if square:
                tile.k += square

        q = self.std**2 * points.q + square
        return PairwiseMap(points.after(self, q, np.zeros_like(q), gaussian=True, what="an embedding"), step)

    def assumptions(self) -> Iterable[str]:
        return ()

    def tensors(self, place: Place) -> Unbatched:
        return Unbatched()

    def module(self, place: Place, draw: Draw) -> nn.Module:
        from torch import nn

        from firstguess.network.torch_ops import Embedding, Row

        size, width = self.vocabulary or place.before.width, place.after.width
        if size is None:
            raise InvalidInput("the size of the vocabulary", got="none", hint="embed(vocabulary=1000), or ids as data")
        assert width is not None
        table = draw.fill(nn.utils.skip_init(nn.Embedding, size, width), Weights((size, width), 1, self.std**2, 0.0))
        types = draw.fill(Row(width), Weights((width,), 1, self.types**2, 0.0)) if self.types else None
        return Embedding(table, types, self.padding)
