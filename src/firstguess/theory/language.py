"""Language models: every token of every sequence guesses one of the vocabulary, theory.md (30) and §13.

The covariance of the stream before the head is carried as for all networks of tokens. Given the D units of a token
the logits of V ≫ D classes are no V independent draws of one covariance: so the D units are drawn (Gaussian, with that
covariance), then the head. For a tied head the stream holds the own token's vector: h = a·e + r, e the head's vector
too, r independent of it, since every branch of the stream ends in weights of its own.

Thousands of positions have too many pairs to carry: the covariance of some sequences then says what positions share
(the input token, the sequence, the place). Where the token decides, counts follow from how often each occurs (52);
else units are drawn as sums of these parts.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

from firstguess._version import __version__
from firstguess.base.checks import check_count, check_number
from firstguess.base.errors import InvalidInput, NotCovered
from firstguess.base.gaussian import Array
from firstguess.base.numerics import positive, root
from firstguess.base.statistics import guesses
from firstguess.network.attention_theory import NEGATIVE
from firstguess.network.inputs import Tokens
from firstguess.network.layer import Layer, LayerReading, text
from firstguess.network.layers import Embed, Unembed
from firstguess.network.network import Network
from firstguess.network.walk import check_vocabulary, every, shapes
from firstguess.network.weights import draw_weights
from firstguess.theory.prediction import Prediction
from firstguess.theory.shares.empirical import EmpiricalGuesses
from firstguess.theory.shares.token_counts import KAPPA, TokenCounts, same_guess_chance
from firstguess.theory.tokens import TokenStream, token_covariances

# Units of all tokens, and how much of its own vector each holds.
Features: TypeAlias = Callable[[np.random.Generator], tuple[NDArray[np.float32], NDArray[np.float32]]]

# --------------------------------------------------------------------------------------------------------------
# Language-model heads: how often an untrained model with a tied head guesses the token that it was given.

_STEP, _REACH = 1.0 / 64.0, 12.0


def own_guess_chance(shift: float, vocabulary: int) -> float:
    """P(guess = own input) = ∫ φ(t − z) Φ(t)^{V−1} dt, where the own token's logit stands `shift` = z higher.

    z is in standard deviations of a logit: √(D·v_e/q_final) for a tied head, whatever γ is: theory.md (30).

    >>> print(f"{own_guess_chance(3.48, 2000):.6f} {own_guess_chance(1.88, 50257):.6f}")
    0.518636 0.011449
    """
    check_number(shift, "shift", "own_guess_chance", low=-math.inf, hint="own_guess_chance(3.48, 2000)")
    check_count(vocabulary, "vocabulary", "own_guess_chance", low=2)
    t = np.arange(-_REACH, _REACH + _STEP, _STEP)
    weights = np.exp(-0.5 * t * t) * _STEP / math.sqrt(2.0 * math.pi)  # a trapezoid rule: exact to e^(−2π²/_STEP²)
    return float(np.sum(weights * np.exp((vocabulary - 1) * log_ndtr(t + shift))))


_WORK, _FEWEST, _MOST = 6e10, 8, 200  # operations that draws of heads may take, and how many there are at least
_AT_ONCE = 16_000_000  # logits at once
_MEMORY = 2e9  # bytes that a head's weights may take
_ROUNDING = 1e-3  # of the diagonal
_TOKENS = 1024  # tokens in all, where sequences are only described
_PAIRS = 1536  # tokens whose pairs say what positions share, where there are too many for all pairs
# The input token decides the guess where positions with the same token correlate at least so, and pairs, which know of
# sequences and places too (51), agree with its counts (52) to this part: (52) was seen to hold down to 0.7 where
# nothing else is shared, and to fail by 140 % at 0.42, with sequences that resemble each other.
_DECIDES, _AGREE = 0.8, 0.2
_COUNTED = 24  # draws of counts, which cost little
_LEAST = 2  # draws of heads that take long
_ALL_PAIRS = 4096  # tokens whose pairs are all carried where the token does not decide


def predict_language(
    network: Network,
    given: NDArray[Any] | Tokens,
    origin: dict[str, Any],
    *,
    draws: int | None = None,
    points: int | None = None,
    seed: int = 0,
    width: int = 1000,
    seconds: float = 600.0,
) -> Prediction:
    """The distribution of guesses over the vocabulary, and how often a token guesses itself.

    γ of the output is over all pairs of tokens, wherever they stand (theory.md (38)); of layers before, over tokens at
    the same place of two sequences.
    """
    started = time.perf_counter()
    head = network.layers[-1]
    assert isinstance(head, Unembed)
    _check(network)
    check_vocabulary(network.layers, network.classes)
    said: list[str] = []
    ids = given if isinstance(given, np.ndarray) else _described(given, network.classes, points, seed, said)
    size = _width(network.layers[:-1], ids.shape[1], width)
    if 4.0 * network.classes * size > _MEMORY:
        raise NotCovered(
            f"a head of at most {_MEMORY / 1e9:.2g} GB",
            got=f"{network.classes} tokens of {size} numbers: {4e-9 * network.classes * size:.2g} GB",
            where="predict",
            hint="a smaller vocabulary",
        )
    first = network.layers[0]
    if isinstance(given, Tokens) and isinstance(first, Embed):
        first = replace(first, padding=None)
    body = Network((first, *network.layers[1:-1]), network.classes)
    real = None if isinstance(given, Tokens) else network.layers[0].real_tokens(ids)  # drawn ids are no padding
    kept = np.flatnonzero(np.ones(ids.size) if real is None else real)
    flat = ids.ravel()[kept].astype(np.int64)
    variance = network.layers[0].std ** 2 if isinstance(network.layers[0], Embed) else 0.0

    def carried(looked: NDArray[Any]) -> tuple[TokenStream, _Heads, NDArray[np.int64]]:
        stream = token_covariances(body, looked, width=width, seconds=seconds)
        at = kept[kept < looked.size]
        own = (_own(network, stream, looked.size) if head.tied else np.zeros(looked.size))[at]
        inner = stream.k[np.ix_(at, at)] if len(at) < len(stream.k) else stream.k
        return stream, _Heads(inner, own, variance, flat[: len(at)], size, network.classes, head.init, seed), at

    whole = kept.size <= _PAIRS
    stream, heads, at = carried(ids if whole else ids[: max(2, _PAIRS // ids.shape[1])])
    shared = Shared.between(heads.k, heads.ids, at, ids.shape[1], network.classes, size)
    counts = None if whole or head.tied else _decided(shared, ids, flat, size, network.classes, head.init)
    if counts is None and not whole and kept.size <= _ALL_PAIRS:
        whole = True
        stream, heads, at = carried(ids)
    inner, own = heads.k, heads.own
    least = 0.0 if positive(inner.copy()) else float(np.linalg.eigvalsh(inner)[0] / inner.diagonal().mean())
    if least < -_ROUNDING:
        said.append(
            f"directions of the tokens' covariance that are negative by up to {-least:.1%} of its diagonal, since "
            "attention's formula is not exact, count as 0"
        )
    work = _WORK / (2.0 * kept.size * size * network.classes)
    some = int(min(max(work, _FEWEST if whole else _LEAST), _MOST, draws or _MOST))
    if whole:
        fractions, hits = heads.draw(heads.features(), flat, some)
        how = f"the distribution is sampled: {some} draws of {size}-dimensional tokens and of the head"
    elif counts is not None:
        some = min(draws or _COUNTED, _COUNTED)
        fractions, hits = counts.draw(some, seed), np.full(1, 1.0 / network.classes)
        how = f"{shared.words}, so the input token decides: counts by theory.md (52), {some} draws"
    else:
        fractions, hits = heads.draw(heads.summed(shared, kept, ids.shape[1], flat), flat, some)
        how = f"{shared.words}: units are drawn as sums of what positions share, {some} draws of them and of the head"
    if head.tied:
        z = own * np.sqrt(size * variance / inner.diagonal())
        chance = float(np.mean([own_guess_chance(float(one), network.classes) for one in z]))
        said.append(
            f"tied head: the own token's logit stands z = {z.mean():.3g} standard deviations higher, which alone would "
            f"be guessed with probability {chance:.4g}: theory.md (30)"
        )
    k = heads.logits()
    off = (float(k.sum()) - float(np.trace(k))) / max(k.size - len(k), 1)
    found = (*stream.pending.summaries, LayerReading.of(head, float(k.diagonal().mean()), off))
    assumptions = dict.fromkeys(line for layer in every(network.layers) for line in layer.assumptions())
    return Prediction(
        network,
        "kernel",
        found,
        EmpiricalGuesses(fractions, kept.size, seed),
        ("wide layers", how, *assumptions, *said, *stream.remarks),
        {
            "firstguess": __version__,
            "python": sys.version.split()[0],
            "network": str(network),
            "points": kept.size,
            "seed": seed,
            "draws": some,
            **origin,
        },
        time.perf_counter() - started,
        own_guess=float(hits.mean()),
    )


def _check(network: Network) -> None:
    if not isinstance(network.layers[0], Embed):
        raise NotCovered(
            "embed as the first layer of a language model",
            got=text(network.layers[0]),
            where="layer 1",
            hint="embed(0.02, vocabulary=2000) > … > unembed",
        )


def _width(layers: tuple[Layer, ...], tokens: int, width: int) -> int:
    from firstguess.network.shapes import Shape
    from firstguess.network.walk import sequence

    found = shapes(layers, Shape(None, sequence(tokens)), width)[-1].width
    return width if found is None else found


def _described(tokens: Tokens, vocabulary: int, points: int | None, seed: int, said: list[str]) -> NDArray[np.int64]:
    """Ids with the frequencies asked for, or equally frequent ones, 1/p₂ of them; `points`: tokens in all."""
    count = max(2, (points or _TOKENS) // tokens.length)
    free = vocabulary - tokens.shared
    rng = np.random.default_rng((seed, 0x1D5))
    if tokens.frequencies is not None:
        if len(tokens.frequencies) > free:
            raise InvalidInput(
                f"frequencies of at most {free} tokens, the vocabulary",
                got=len(tokens.frequencies),
                where="Tokens",
                hint="np.bincount(ids, minlength=vocabulary)",
            )
        ids = tokens.shared + rng.choice(len(tokens.frequencies), (count, tokens.length), p=tokens.frequencies)
        kinds = int(np.count_nonzero(tokens.frequencies))
        said.append(f"{count} sequences are drawn, of {kinds} tokens with the frequencies given")
    else:
        kinds = free if tokens.chance == 0.0 else round(1.0 / tokens.chance)
        if not 1 <= kinds <= free:
            raise InvalidInput(
                f"a coincidence of at least 1/{free}, that of all tokens of the vocabulary",
                got=f"{tokens.chance:.3g}",
                where="Tokens",
                hint=f"coincidence={1.0 / max(free, 1):.3g}",
            )
        ids = rng.integers(tokens.shared, tokens.shared + kinds, (count, tokens.length))
        said.append(f"{count} sequences are drawn, of {kinds} tokens that are all equally frequent")
    ids[:, : tokens.shared] = np.arange(tokens.shared)
    return ids


@dataclass(frozen=True, eq=False)
class Shared:
    """What features of two positions have in common on average: correlations before the head, by place."""

    places: Array  # (T, T): of other tokens in other sequences
    sequence: Array  # (T, T): what the same sequence adds to it
    token: Array  # (T,): √ of what the same token adds to it, which is their product
    same_token: float  # r, that of two positions with the same token whose guesses agree as often as theirs do
    different: float  # c, of others

    @classmethod
    def between(
        cls,
        k: Array,
        ids: NDArray[np.int64],
        positions: NDArray[np.int64],
        tokens: int,
        vocabulary: int,
        width: int,
    ) -> Shared:
        """The averages over pairs of positions of a covariance; `tokens` is how many a sequence has."""
        scale = np.sqrt(k.diagonal())
        c = k / np.multiply.outer(scale, scale)
        place = positions % tokens
        token, sequence = (label[:, None] == label for label in (ids, positions // tokens))
        key = place[:, None] * tokens + place

        def by_place(pairs: NDArray[np.bool_], otherwise: Array | float) -> Array:
            number = np.bincount(key[pairs], minlength=tokens * tokens).reshape(tokens, tokens)
            total = np.bincount(key[pairs], c[pairs], minlength=tokens * tokens).reshape(tokens, tokens)
            return np.where(number > 0, total / np.maximum(number, 1), otherwise)

        others = ~token & ~sequence
        different = float(c[others].mean()) if others.any() else 0.0
        places = by_place(others, different)
        same = token & ~sequence
        added = (c - places.ravel()[key])[same]
        mean = max(float(added.mean()), 0.0) if added.size else 0.0
        rows = np.bincount(place[same.nonzero()[0]], added, minlength=tokens)
        number = np.bincount(place[same.nonzero()[0]], minlength=tokens)
        share = np.where(number > 0, rows / np.maximum(number, 1), mean) / math.sqrt(mean) if mean else np.zeros(tokens)
        return cls(
            places,
            by_place(~token & sequence, places) - places,
            np.clip(share, 0.0, 1.0),
            _agreeing(c[same], vocabulary, width) if added.size else different,
            different,
        )

    @property
    def words(self) -> str:
        """r and c in a sentence."""
        return (
            f"features of two positions correlate by {self.same_token:.3g} where they hold the same token, "
            f"by {self.different:.2g} else"
        )


def _agreeing(correlations: Array, vocabulary: int, width: int) -> float:
    """The one correlation at which guesses agree as often as they do on average over these, theory.md (51)."""
    some = np.clip(np.quantile(correlations, (np.arange(12) + 0.5) / 12), 0.0, 1.0)
    wanted = float(np.mean([same_guess_chance(float(one), vocabulary, width) for one in some]))
    low, high = 0.0, 1.0
    for _ in range(30):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if same_guess_chance(middle, vocabulary) < wanted else (low, middle)
    return 0.5 * (low + high)


def _decided(
    shared: Shared, ids: NDArray[np.int64], kept: NDArray[np.int64], width: int, vocabulary: int, init: str
) -> TokenCounts | None:
    """Counts by how often each token occurs, or None where what else positions share changes them."""
    if shared.same_token < _DECIDES:
        return None
    repeats = np.bincount(kept)
    found = TokenCounts(repeats, vocabulary, width, shared.same_token, shared.different, KAPPA.get(init, 2.0))
    total = kept.size * (kept.size - 1.0)
    same, sequence, place = float(repeats @ (repeats - 1.0)) / total, 1.0 / len(ids), 1.0 / ids.shape[1]
    pairs = (
        (same, shared.same_token),
        ((1.0 - same) * sequence, float((shared.places + shared.sequence).mean())),
        ((1.0 - same) * place, float(shared.places.diagonal().mean())),
        ((1.0 - same) * max(1.0 - sequence - place, 0.0), shared.different),
    )
    by_pairs = sum(weight * same_guess_chance(max(rho, 0.0), vocabulary, width) for weight, rho in pairs)
    return found if abs(found.same_guess() / by_pairs - 1.0) <= _AGREE else None


def _own(network: Network, stream: TokenStream, count: int) -> Array:
    """a of h = a·e + r for every token: what norms and scales leave of the embedding in the stream."""
    own = np.ones(count)
    for place, layer in enumerate(network.layers[1:-1], start=1):
        if not own.any():
            break
        if layer.paths:
            if layer.paths[1]:
                raise _refused(layer)
        elif layer.draws:
            own[:] = 0.0
        elif place in stream.squares:
            own /= np.sqrt(stream.squares[place] + getattr(layer, "eps", 0.0))
        elif layer.multiplier is not None:
            own *= layer.multiplier
        elif layer.kind not in ("positions", "shift"):
            raise _refused(layer)
    return own


def _refused(layer: Layer) -> NotCovered:
    return NotCovered(
        "a stream of residual blocks, norms and scales between an embedding and the head that is tied to it",
        got=text(layer),
        where="unembed(tied)",
        hint="fg.measure(...), or unembed without ties",
    )


def _root(covariance: Array) -> NDArray[np.float32]:
    """A root of what is nearest to it without negative directions."""
    values, vectors = np.linalg.eigh(0.5 * (covariance + covariance.T))
    return (vectors * np.sqrt(np.maximum(values, 0.0))).astype(np.float32)


@dataclass(frozen=True)
class _Heads:
    """What logits are drawn from."""

    k: Array  # (tokens, tokens) before the head
    own: Array  # a of every token; 0: nothing of its own vector
    variance: float  # of a vector's entries
    ids: NDArray[np.int64]
    width: int
    vocabulary: int
    init: str  # distribution of the head's weights
    seed: int

    def logits(self) -> Array:
        """The covariance of logits over classes, by that of a weight: the own logits add 1/V of their squares."""
        if not self.own.any():
            return self.k
        same = self.ids[:, None] == self.ids
        return self.k + same * np.multiply.outer(self.own, self.own) * (self.width * self.variance / self.vocabulary)

    def rest(self) -> Array:
        """The covariance without the own token's vector."""
        same = self.ids[:, None] == self.ids
        return self.k - self.variance * same * np.multiply.outer(self.own, self.own)

    def features(self) -> Features:
        """Draw units with the whole covariance, by its root."""
        factor = root(self.rest(), negative=NEGATIVE).astype(np.float32)
        own = self.own.astype(np.float32)

        def draw(rng: np.random.Generator) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
            return factor @ rng.standard_normal((factor.shape[1], self.width), dtype=np.float32), own

        return draw

    def summed(self, shared: Shared, kept: NDArray[np.int64], tokens: int, ids: NDArray[np.int64]) -> Features:
        """Draw units as sums of what positions share; those of the whole data, of which `k` has some."""
        own = math.sqrt(self.variance / float(self.k.diagonal().mean())) * float(self.own.mean())
        sequences, place = kept // tokens, kept % tokens
        by_place, by_sequence = (_root(part) for part in (shared.places, shared.sequence))
        by_token = np.sqrt(np.maximum(shared.token**2 - own * own, 0.0))
        left = 1.0 - own * own - np.square(by_place).sum(1) - np.square(by_sequence).sum(1) - by_token**2
        noise, token = (np.float32(part[place, None]) for part in (np.sqrt(np.maximum(left, 0.0)), by_token))
        scaled = np.full(len(kept), own / math.sqrt(max(self.variance, 1e-300)), np.float32)

        def draw(rng: np.random.Generator) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
            x = noise * rng.standard_normal((len(kept), self.width), dtype=np.float32)
            x += token * rng.standard_normal((int(ids.max()) + 1, self.width), dtype=np.float32)[ids]
            x += (by_place @ rng.standard_normal((tokens, self.width), dtype=np.float32))[place]
            for one in range(int(sequences[-1]) + 1):
                here = slice(*np.searchsorted(sequences, (one, one + 1)))
                x[here] += by_sequence[place[here]] @ rng.standard_normal((tokens, self.width), dtype=np.float32)
            return x, scaled

        return draw

    def draw(self, features: Features, ids: NDArray[np.int64], count: int) -> tuple[Array, Array]:
        """(count, V) shares of guesses, and (count,) shares of tokens that guess themselves. float32 decides."""
        fractions, hits = np.empty((count, self.vocabulary)), np.empty(count)
        scale = np.float32(math.sqrt(self.variance))
        for index in range(count):
            rng = np.random.default_rng((self.seed, index, 0x1A46))
            x, own = features(rng)
            if self.init == "normal":
                table = rng.standard_normal((self.vocabulary, self.width), dtype=np.float32)
            else:
                table = draw_weights(rng, self.init, self.width, 1, self.width, self.vocabulary)[0].T
            if own.any():
                x += own[:, None] * (scale * table[ids])
            guess = self._largest(x, table, rng)
            fractions[index] = np.bincount(guess, minlength=self.vocabulary) / guess.size
            hits[index] = np.mean(guess == ids)
        return fractions, hits

    def _largest(
        self, x: NDArray[np.float32], table: NDArray[np.float32], rng: np.random.Generator
    ) -> NDArray[np.int64]:
        """arg-max of x·table, a block of tokens at a time."""
        step = max(1, _AT_ONCE // self.vocabulary)
        parts = [guesses(x[first : first + step] @ table.T, rng) for first in range(0, len(x), step)]
        return np.concatenate(parts)
