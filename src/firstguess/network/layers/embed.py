"""Layers that make tokens, mark them and read them: embeddings, patches, positions, a first token, pools, heads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field, replace
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from firstguess.base import checks
from firstguess.base.checks import check_weights
from firstguess.base.errors import InvalidInput, NotCovered
from firstguess.base.gaussian import Array
from firstguess.base.text import number
from firstguess.network import weights
from firstguess.network.layer import Back, Fold, Layer, Symmetry, TokenLayer, register, same_gradients
from firstguess.network.ops import ops
from firstguess.network.points import AllPairsMap, Done, PairwiseMap, Points, Tile, random_sum_map, split
from firstguess.network.shapes import PositionGrid, Shape, check_first_tokens
from firstguess.network.tensors import Draw, Place, Weights
from firstguess.network.walk import check_tokens, keeps_tokens, sequence

_HINT = "fg.predict(net, data=ids) with whole numbers of shape (sequences, tokens)"


@register
class Embed(TokenLayer):
    """A random vector for every token of the vocabulary, entries N(0, std²): K = std²·1[same token], theory.md (20).

    `types`: one more vector of this standard deviation that all tokens share (BERT's token types, of one segment).
    `vocabulary` is the number of tokens, where a description wants to fix it; `width` that of units. `padding`: the id
    that fills up sequences which are shorter than others: nobody attends to it, and it is not read.
    """

    kind: ClassVar[str] = "embed"
    brief: ClassVar[tuple[str, ...]] = ("std",)
    weighted = True
    symmetry = Symmetry.WEIGHTS
    least = (("vocabulary", 2), ("padding", 0))
    above = ("std",)
    example = "0.02"
    std: float
    width: int | None = field(default=None, kw_only=True)
    types: float = field(default=0.0, kw_only=True)
    vocabulary: int | None = field(default=None, kw_only=True)
    padding: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.padding is not None and self.vocabulary is not None and self.padding >= self.vocabulary:
            expected = f"an id of padding below the vocabulary's size, {self.vocabulary}"
            raise InvalidInput(expected, got=self.padding, where="embed")

    def with_shared(self, factor: float) -> Embed:
        return replace(self, types=factor * self.types)

    def shape(self, before: Shape, units: int | None) -> Shape:
        check_tokens(before, self.kind)
        return Shape(self.width or units, before.grid, before.drawn)

    def tokens_of(self, x: NDArray[Any]) -> NDArray[np.int64]:
        """Ids as whole numbers, or one clear error."""
        if x.ndim != 2:
            got = f"data of shape {x.shape}"
            raise InvalidInput("token ids (sequences, tokens)", got=got, where="data", hint=_HINT)
        ids = np.asarray(x, dtype=np.float64) if x.size and x.dtype.kind in "biuf" else np.array([np.nan])
        if not np.isfinite(ids).all() or (ids != np.floor(ids)).any() or (ids < 0).any() or (ids >= 2.0**53).any():
            raise InvalidInput("token ids: whole numbers from 0 on", got="others", where="data", hint=_HINT)
        if self.vocabulary is not None and ids.max() >= self.vocabulary:
            expected = f"ids below the vocabulary's size, {self.vocabulary}"
            hint = f"embed(vocabulary={int(ids.max()) + 1})"
            raise InvalidInput(expected, got=int(ids.max()), where="data", hint=hint)
        return ids.astype(np.int64)

    def real_tokens(self, tokens: NDArray[Any]) -> NDArray[np.bool_] | None:
        real = tokens != self.padding
        if self.padding is None or real.all():
            return None
        empty = int((~real.any(axis=1)).sum())
        if empty:
            expected = "sequences with at least one token that is no padding"
            hint = "leave them out"
            raise InvalidInput(expected, got=f"{empty} of {len(real)} that are nothing else", where="data", hint=hint)
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

    token_gradients = same_gradients

    def module(self, place: Place, draw: Draw) -> ops.nn.Module:
        size, width = self.vocabulary or place.before.width, place.after.units
        if size is None:
            raise InvalidInput("the size of the vocabulary", got="none", hint="embed(vocabulary=1000), or ids as data")
        table = draw.fill(
            ops.nn.utils.skip_init(ops.nn.Embedding, size, width), Weights((size, width), 1, self.std**2, 0.0)
        )
        types = draw.fill(ops.Row(width), Weights((width,), 1, self.types**2, 0.0)) if self.types else None
        return ops.Embedding(table, types, self.padding)


@register
class Patches(TokenLayer):
    """An image cut into size×size patches, row by row, and one dense layer on every patch: theory.md (20).

    Var W = weight_var / (size² · channels): Hugging Face's std 0.02 is weight_var = 0.02²·size²·channels.
    """

    kind: ClassVar[str] = "patches"
    brief: ClassVar[tuple[str, ...]] = ("size",)
    weighted = True
    symmetry = Symmetry.WEIGHTS
    example = "16"
    size: int
    weight_var: float = field(default=1.0, kw_only=True)
    bias_var: float = field(default=0.0, kw_only=True)
    width: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_weights(self.weight_var, self.bias_var, "patches")

    def shape(self, before: Shape, units: int | None) -> Shape:
        """One token per patch of an image; tokens are patches already."""
        if before.grid is None or before.grid.apart:
            return Shape(self.width or units, before.grid, before.drawn)
        if not before.images:
            raise InvalidInput("images before patches", got=f"{before.grid}", hint="x.reshape(n, 1, 28, 28)")
        self._check(before.grid.sides)
        return Shape(self.width or units, sequence(before.grid.places // self.size**2), before.drawn)

    def _check(self, sides: tuple[int, ...]) -> None:
        if any(side % self.size for side in sides):
            expected = f"images whose sides are multiples of {self.size}, the side of a patch"
            raise InvalidInput(expected, got="×".join(map(str, sides)), hint="another size, or padded images")

    def tokens_of(self, x: NDArray[Any]) -> NDArray[np.float64]:
        """(n, patches, numbers of a patch)."""
        if x.ndim != 4:
            expected = "images (n, channels, height, width) for a network of patches"
            hint = "x.reshape(n, 1, 28, 28)"
            raise InvalidInput(expected, got=f"points of shape {x.shape[1:]}", where="data", hint=hint)
        n, channels, high, wide = x.shape
        self._check((high, wide))
        cut = x.reshape(n, channels, high // self.size, self.size, wide // self.size, self.size)
        parts = cut.transpose(0, 2, 4, 1, 3, 5).reshape(n, -1, channels * self.size**2)
        return np.ascontiguousarray(parts, dtype=np.float64)

    def covariance(self, points: Points, fold: Fold) -> PairwiseMap:
        if points.shape.images:
            hint = "fg.measure(...), or patches first"
            raise NotCovered("patches as the first layer", got=f"patches after {points.what}", hint=hint)
        return random_sum_map(self, points, self.weight_var, self.bias_var, "patches")

    token_gradients = same_gradients

    def module(self, place: Place, draw: Draw) -> ops.nn.Module:
        channels, units, size = place.before.units, place.after.units, self.size
        fan_in = channels * size * size
        weights = Weights((units, channels, size, size), fan_in, self.weight_var, self.bias_var)
        return ops.PatchesModule(ops.convolution(draw, weights, size))


def waves(places: int, width: int) -> Array:
    """(places, width): sines and cosines of place/10000^(2j/width), side by side."""
    angles = np.arange(places)[:, None] * 10000.0 ** (-2.0 * np.arange((width + 1) // 2) / width)
    return np.stack([np.sin(angles), np.cos(angles)], axis=2).reshape(places, -1)[:, :width]


@register
class Positions(TokenLayer):
    """x plus a vector for every place, shared by all sequences: K += std²·δ_st, theory.md (20).

    `sinusoidal`: the fixed waves of the first transformer instead, K += ½·mean_j cos ω_j(s − t). Rotary positions
    are no layer of the stream: attention(12, rotary).
    """

    kind: ClassVar[str] = "positions"
    brief: ClassVar[tuple[str, ...]] = ("std", "sinusoidal")
    weighted = False
    symmetry = Symmetry.NONE
    example = "0.02"
    std: float = 0.02
    sinusoidal: bool = False

    def text(self) -> str:
        return "positions(sinusoidal)" if self.sinusoidal else f"positions({number(self.std)})"

    def with_shared(self, factor: float) -> Positions:
        return self if self.sinusoidal else replace(self, std=factor * self.std)  # waves have a size of their own

    shape = keeps_tokens

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

        q = points.q + np.tile(added.diagonal(), points.count) + 2.0 * old * mean
        gaussian, what = points.gaussian and not self.sinusoidal, f"{points.what} with positions"
        after = points.after(self, q, old + mean, gaussian=gaussian, what=what, level=points.level)
        return PairwiseMap(after, step)

    token_gradients = same_gradients

    def module(self, place: Place, draw: Draw) -> ops.nn.Module:
        width, places = place.before.sizes
        if self.sinusoidal:
            return ops.AddPositions(ops.torch.from_numpy(waves(places, width)))
        return ops.AddPositions(draw.fill(ops.Row(places, width), Weights((places, width), 1, self.std**2, 0.0)))


@register
class FirstToken(TokenLayer):
    """One learned token before (a ViT's class token), entries N(0, std²); all points share it: theory.md (20)."""

    kind: ClassVar[str] = "cls"
    brief: ClassVar[tuple[str, ...]] = ("std",)
    weighted = False
    symmetry = Symmetry.NONE
    example = "0.02"
    std: float

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
        q, mean, what = widened(points.q, square), widened(points.mean, 0.0), f"{points.what} after a first token"
        after = points.after(self, q, mean, gaussian=points.gaussian, what=what, level=level, real=real)
        return PairwiseMap(after, step)

    def token_gradients(self, points: Points, k: Array, along: Callable[[Sequence[Layer]], Back]) -> Back:
        return lambda g: g[1:, 1:]

    def module(self, place: Place, draw: Draw) -> ops.nn.Module:
        width = place.before.units
        return ops.FirstTokenModule(draw.fill(ops.Row(width), Weights((width,), 1, self.std**2, 0.0)))


@register
class PoolTokens(TokenLayer):
    """The first token (cls), the last, or the mean of all: K[:, :, s, s], or its mean over s and t: theory.md (28).

    Padding is not read: of a sequence with some, the last token is the last real one, and the mean that of real ones.
    """

    kind: ClassVar[str] = "pool_tokens"
    brief: ClassVar[tuple[str, ...]] = ("at",)
    weighted = False
    symmetry = Symmetry.LINEAR
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
        what = f"{'the mean' if self.at == 'mean' else 'one'} of {points.what}"
        after = points.after(self, new.diagonal().copy(), mean, gaussian=points.gaussian, what=what, level=level)
        return Done(new, None if t is None else pooled(t), after)

    def _shares(self, points: Points) -> Array:
        places = points.grid.places
        real = np.ones((points.count, places), dtype=bool) if points.real is None else points.real.reshape(-1, places)
        if self.at == "mean":
            return real / real.sum(axis=1, keepdims=True)
        check_first_tokens(self.at != "cls" or bool(real[:, 0].all()))
        # the last real token: the first one from after
        place = np.zeros(len(real), dtype=int) if self.at == "cls" else places - 1 - real[:, ::-1].argmax(axis=1)
        return np.eye(places)[place]

    def token_gradients(self, points: Points, k: Array, along: Callable[[Sequence[Layer]], Back]) -> Back:
        places, at = points.grid.places, 0 if self.at == "cls" else -1

        def back(g: Array) -> Array:
            if self.at == "mean":
                return np.full((places, places), float(g[0, 0]) / places**2)
            out = np.zeros((places, places))
            out[at, at] = g[0, 0]
            return out

        return back

    def module(self, place: Place, draw: Draw) -> ops.nn.Module:
        return ops.PoolTokensModule(self.at)


@register
class Unembed(TokenLayer):
    """A language model's head: the classes are the vocabulary, and every token is a point that is guessed.

    Weights of its own, Var W = weight_var / width, or `tied`: the vectors of the embedding, by which the logit of the
    own input stands higher: theory.md (30). `init` is the weights' distribution, as for `dense`: rows of different
    lengths win at different rates, and Gaussian rows differ more than uniform ones: theory.md (52).
    """

    kind: ClassVar[str] = "unembed"
    brief: ClassVar[tuple[str, ...]] = ("tied",)
    weighted = True
    symmetry = Symmetry.WEIGHTS
    above = ("weight_var",)
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

    def module(self, place: Place, draw: Draw) -> ops.nn.Module:
        if self.tied:
            return ops.TiedHead()
        units, width = place.after.units, place.before.units
        return ops.linear(draw, Weights((units, width), width, self.weight_var, 0.0, self.init))
