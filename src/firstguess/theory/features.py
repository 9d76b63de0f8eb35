"""Features of positions before the head of a language model: what they share, and how much they scatter.

Beyond a few thousand positions there are too many pairs to carry. The covariance of some sequences then says what
features are made of: the token's own vector, a weighted sum of vectors of the words seen so far (which other sequences
share through their words), what belongs to the place, and the rest.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from firstguess.base.gaussian import Array
from firstguess.base.numerics import bisect
from firstguess.network.attention_theory import Heads
from firstguess.network.layer import Mix
from firstguess.network.layers import Attention
from firstguess.network.network import Network
from firstguess.network.shapes import Shape
from firstguess.network.walk import every, sequence, shapes
from firstguess.theory.shares.token_counts import same_guess_chance
from firstguess.theory.tokens import block_covariances

_SEEN = 384  # tokens whose covariance says how far widths scatter it
_EQUAL = 128  # independent units from which on they are drawn of equal size
_CHUNK = 4096  # positions whose features are drawn at once


def effective_width(body: Network, ids: NDArray[np.int64], width: int) -> float:
    """How many independent units would scatter correlations of features as those of this network do: theory.md (55).

    Correlations of two sequences that share nothing scatter by 1/D for D independent units. Each branch of the stream
    passes the scatter of what enters it on, and adds that of its inner units. Attention averages over the window, which
    leaves the branches before it and little of the embedding: so scatter piles up with depth.
    """
    some = ids[: max(2, _SEEN // ids.shape[1])]
    tokens, flat = some.shape[1], some.ravel()
    window = np.arange(flat.size) // tokens
    far = (window[:, None] != window) & (flat[:, None] != flat)
    sources: list[tuple[float, Array]] = []  # weight, and the part of a window's covariance that scatters together
    whole = np.ones((tokens, tokens))
    for layers, units, before, after in block_covariances(body, some, width=width):
        k, whole = _window(before, tokens), _window(after, tokens)
        if not layers[0].paths or layers[0].paths[1]:  # norms, or an MLP without a sum
            ratio = np.sqrt(whole.diagonal() / k.diagonal())
            sources = [(weight, part * np.multiply.outer(ratio, ratio)) for weight, part in sources]
            sources += [(1.0 / units, whole)] * any(layer.draws for layer in layers)
            continue
        branch = layers[0].paths[0]
        scale = np.sqrt(k.diagonal()) if Mix.UNITS in branch[0].mixes else np.ones(tokens)
        added = whole - k
        attention = next((layer for layer in every(branch) if isinstance(layer, Attention)), None)
        if attention is not None:  # its weights are taken to be even
            seen = Heads(1, tokens, 1.0, attention.causal, window=attention.window).allowed[0]
            a = seen / seen.sum(axis=1, keepdims=True) / scale
            inner = max(1, units // attention.heads * (attention.groups or attention.heads))  # units of all values
            gain = added.trace() / np.trace(a @ k @ a.T)
            sources = [(weight, part + gain * (a @ part @ a.T)) for weight, part in sources]
            sources.append((1.0 / units + 1.0 / inner, added))
        else:
            norm = np.sqrt(before.diagonal()) if Mix.UNITS in branch[0].mixes else np.ones(len(before))
            x, y = (before / np.multiply.outer(norm, norm))[far], (after - before)[far]
            x = x - x.mean() if x.size else x
            last = max((i for i, layer in enumerate(branch) if layer.draws), default=0)
            inner = shapes(branch, Shape(units, sequence(tokens)), units)[last].width or units
            slope = max(float(x @ y / max(float(x @ x), 1e-300)), 0.0) / np.multiply.outer(scale, scale)
            sources = [(weight, part * (1.0 + slope)) for weight, part in sources]
            sources += [(1.0 / units, np.sqrt(slope * (2.0 + slope)) * k), (1.0 / inner, added)]
    end = whole.diagonal()
    return 1.0 / (1.0 / width + sum(weight * float(np.mean(part.diagonal() / end)) ** 2 for weight, part in sources))


def unequal_units(effective: float, width: int) -> Array:
    """Variances of units, 1 on average, that scatter correlations as `effective` independent ones of `width` do.

    Products of random weights leave few strong directions and many weak ones. The strongest half are the largest of
    `width` log-normal variances; what is left of these is shared out equally. Beyond 128 equal ones do as well.

    >>> found = unequal_units(20.0, 104)
    >>> print(len(found), round(float(found.sum() ** 2 / (found**2).sum()), 3), f"{found[0] / found.sum():.2f}")
    40 20.0 0.15
    """
    units = min(width, 2 * round(effective))
    levels = special.ndtri((np.arange(width, 0, -1) - 0.5) / width)
    low, high, found = 0.0, 6.0, np.ones(round(effective))
    if effective > _EQUAL or units < effective + 0.5:
        return found
    for _ in range(40):
        middle = 0.5 * (low + high)
        found = np.exp(middle * levels)
        found[units // 2 : units] = found[units // 2 :].sum() / (units - units // 2)
        found = found[:units] * (units / found[:units].sum())
        low, high = (middle, high) if units / np.square(found).mean() > effective else (low, middle)
    return found


def _window(k: Array, tokens: int) -> Array:
    """The covariance within a sequence, on average over sequences."""
    count = len(k) // tokens
    return np.einsum("asat->st", k.reshape(count, tokens, count, tokens)) / count


@dataclass(frozen=True, eq=False)
class Parts:
    """Features of a position: token·u + window·(vectors of the window's words, and of the window) + place + the rest.

    All by place, in correlations before the head: `window` is (T, T), weights of the words, whose vectors belong to the
    word by `by_words` and to the window otherwise.
    """

    window: Array
    by_words: float
    token: Array  # (T,): √ of what the same token adds
    places: Array  # (T, T): a root of what places share
    same_token: float  # r, that of two positions with the same token whose guesses agree as often as theirs do
    different: float  # c, of others
    same_sequence: float  # of others in the same sequence
    same_place: float  # of others at the same place of other sequences

    @classmethod
    def between(
        cls, k: Array, ids: NDArray[np.int64], real: NDArray[np.bool_], vocabulary: int, width: float, causal: bool
    ) -> Parts:
        """What explains a covariance of all positions of sequences, (n·T, n·T); padding (not `real`) is left out."""
        n, tokens = ids.shape
        scale = np.sqrt(k.diagonal())
        c = (k / np.multiply.outer(scale, scale)).reshape(n, tokens, n, tokens).transpose(0, 2, 1, 3)
        same = ids[:, None, :, None] == ids[None, :, None, :]
        counted = real[:, None, :, None] & real[None, :, None, :]
        own = np.eye(n, dtype=bool)[:, :, None, None]
        far, near, again = counted & ~same & ~own, counted & ~same & own, counted & same & ~own

        def by_place(pairs: NDArray[np.bool_], values: Array, otherwise: Array | float) -> Array:
            number, total = pairs.sum(axis=(0, 1)), np.where(pairs, values, 0.0).sum(axis=(0, 1))
            return np.where(number > 0, total / np.maximum(number, 1), otherwise)

        different = float(c[far].mean()) if far.any() else 0.0
        across = by_place(far, c, different)
        inside = by_place(near, c, across)
        repeats = float(same[counted & own].sum() - real.sum()) / max(float((counted & own).sum() - real.sum()), 1.0)
        coincide = float(same[counted & ~own].mean()) if n > 1 else 0.0
        by_words, window, overlap = 1.0, np.zeros((tokens, tokens)), c
        for _ in range(2):  # how far vectors belong to words is found with a window, whose weights depend on it
            repeated, kept = by_words * (repeats - coincide), 1.0 - by_words * coincide
            window = _words(inside - across, 1.0 - across.diagonal(), repeated, kept, causal)
            overlap = window @ same.astype(np.float64) @ window.T
            x = overlap[far] - overlap[far].mean() if far.any() else np.zeros(1)
            slope = float(x @ c[far]) / max(float(x @ x), 1e-300) if far.any() else 0.0
            by_words = min(max(slope, 0.0), 1.0)
        left = c - by_words * overlap
        places = by_place(far, left, different)
        added = np.where(again, left - places, 0.0)
        number = again.sum(axis=(0, 1, 3))
        mean = max(float(added.sum()) / max(int(number.sum()), 1), 0.0)
        each = np.where(number > 0, added.sum(axis=(0, 1, 3)) / np.maximum(number, 1), mean)
        return cls(
            window,
            by_words,
            np.clip(each / math.sqrt(mean), 0.0, 1.0) if mean else np.zeros(tokens),
            _root(places),
            _agreeing(c[again], vocabulary, width) if again.any() else different,
            different,
            float(inside.mean()),
            float(across.diagonal().mean()),
        )

    @property
    def words(self) -> str:
        """r and c in a sentence."""
        return (
            f"features of two positions correlate by {self.same_token:.3g} where they hold the same token, "
            f"by {self.different:.2g} otherwise"
        )

    def drawn(
        self, ids: NDArray[np.int64], units: int, own: float
    ) -> Callable[[np.random.Generator], NDArray[np.float32]]:
        """(n·T, units) features of sequences of ids; without the part `own` of the token's vector, in variance."""
        tokens = ids.shape[1]
        token = np.sqrt(np.maximum(self.token**2 - own, 0.0))
        left = 1.0 - own - token**2 - self._spread(ids) - np.square(self.places).sum(1)
        by_token, rest = (x.astype(np.float32)[..., None] for x in (token, np.sqrt(np.maximum(left, 0.0))))
        window, places = self.window.astype(np.float32), self.places.astype(np.float32)
        kinds, step = int(ids.max()) + 1, max(1, _CHUNK // tokens)

        def draw(rng: np.random.Generator) -> NDArray[np.float32]:
            def normal(*shape: int) -> NDArray[np.float32]:
                return rng.standard_normal((*shape, units), dtype=np.float32)

            vectors, words = normal(kinds), np.float32(math.sqrt(self.by_words)) * normal(kinds)
            place, own_window = places @ normal(tokens), np.float32(math.sqrt(1.0 - self.by_words))
            x = np.empty((*ids.shape, units), np.float32)
            for first in range(0, len(ids), step):
                part = slice(first, first + step)
                some = ids[part]
                x[part] = window @ (words[some] + own_window * normal(*some.shape))
                x[part] += by_token * vectors[some] + place + rest[part] * normal(*some.shape)
            return x.reshape(-1, units)

        return draw

    def _spread(self, ids: NDArray[np.int64]) -> Array:
        """(n, T): variance of the windows' sums, which is larger where words come again: the rest is smaller there."""
        again = np.stack([((self.window @ (row[:, None] == row)) * self.window).sum(1) for row in ids])
        return np.asarray(self.by_words * again + (1.0 - self.by_words) * np.square(self.window).sum(1))


def _words(shared: Array, most: Array, repeated: float, kept: float, causal: bool) -> Array:
    """Weights of a window's words whose sums have this covariance, where words coincide by `repeated` or are one word.

    Its diagonal, where the token's own part and the rest stand too, is that of sums that continue from word to word:
    given the middle one, the last does not depend on the first. Causal weights are a triangle: Cholesky's.
    """
    size = len(shared)
    shared = np.maximum(0.5 * (shared + shared.T), 1e-12)
    if size < 4:
        return np.zeros((size, size))
    diagonal = np.empty(size)
    place = np.arange(1, size - 1)
    diagonal[1:-1] = shared[place - 1, place] * shared[place, place + 1] / shared[place - 1, place + 1]
    for end, inner, next_one in ((0, 1, 2), (-1, -2, -3)):  # sums over words fall like one over their number
        diagonal[end] = 1.0 / max(2.0 / diagonal[inner] - 1.0 / diagonal[next_one], 1.0)
    np.fill_diagonal(shared, np.clip(diagonal, 1e-12, np.maximum(most, 1e-12)))
    words = np.full((size, size), repeated)
    np.fill_diagonal(words, kept)
    return np.asarray(np.linalg.solve(_root(words, causal).T, _root(shared, causal).T).T, dtype=np.float64)


def _root(covariance: Array, triangle: bool = False) -> Array:
    """A root, symmetric or a lower triangle, of what is nearest to it without negative directions."""
    values, vectors = np.linalg.eigh(0.5 * (covariance + covariance.T))
    found = vectors * np.sqrt(np.maximum(values, 0.0))
    if not triangle:
        return found @ vectors.T
    lower = np.linalg.qr(found.T)[1].T
    return lower * np.where(lower.diagonal() < 0.0, -1.0, 1.0)


def _agreeing(correlations: Array, vocabulary: int, width: float) -> float:
    """The one correlation at which guesses agree as often as they do on average over these, theory.md (51)."""
    some = np.clip(np.quantile(correlations, (np.arange(12) + 0.5) / 12), 0.0, 1.0)
    wanted = float(np.mean([same_guess_chance(float(one), vocabulary, width) for one in some]))

    def below(c: Array) -> NDArray[np.bool_]:
        return np.array(same_guess_chance(float(c), vocabulary) < wanted)

    return float(bisect(below, np.array(0.0), np.array(1.0), 30))
