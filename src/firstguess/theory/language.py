"""Language models: every token of every sequence guesses one of the vocabulary, theory.md (30) and §13.

The covariance of the stream before the head is carried as for all networks of tokens. Given the D units of a token
the logits of V ≫ D classes are no V independent draws of one covariance: so the D units are drawn (Gaussian, with that
covariance), then the head. For a tied head the stream holds the own token's vector: h = a·e + r, e the head's vector
too, r independent of it, since every branch of the stream ends in weights of its own.

Thousands of positions have too many pairs to carry: the covariance of some sequences then says what positions share
(`theory/features.py`). Where the token decides, counts follow from how often each occurs (52); else units are drawn as
sums of these parts. Either way there are as many units as scatter correlations as the network does (55).
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

from firstguess.base import checks
from firstguess.base.checks import check_count, check_number
from firstguess.base.errors import InvalidInput, NotCovered
from firstguess.base.gaussian import Array
from firstguess.base.numerics import positive, root
from firstguess.base.statistics import guesses
from firstguess.base.text import in_bytes
from firstguess.network.attention_theory import NEGATIVE
from firstguess.network.inputs import Tokens
from firstguess.network.layer import Layer, LayerReading, text
from firstguess.network.layers import Embed, Unembed
from firstguess.network.network import Network
from firstguess.network.shapes import Shape
from firstguess.network.walk import check_vocabulary, every, sequence, shapes
from firstguess.network.weights import draw_weights
from firstguess.theory.features import Parts, effective_width, unequal_units
from firstguess.theory.prediction import Prediction, provenance
from firstguess.theory.shares.empirical import EmpiricalGuesses
from firstguess.theory.shares.token_counts import KAPPA, TokenCounts, same_guess_chance, support_steps
from firstguess.theory.tokens import TokenStream, token_covariances

# Units of all tokens, and how much of its own vector each holds.
Features: TypeAlias = Callable[[np.random.Generator], tuple[NDArray[np.float32], NDArray[np.float32]]]

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
_POSITION = 256  # bytes that counts take for a position
_ROUNDING = 1e-3  # of the diagonal
_TOKENS = 1024  # tokens in all, where sequences are only described
_PAIRS = 1536  # tokens whose pairs say what positions share, where there are too many for all pairs
# The input token decides the guess where positions with the same token correlate at least so, and pairs, which know of
# sequences and places too (51), agree with its counts (52) to this part: (52) was seen to hold down to 0.7 where
# nothing else is shared, and to fail by 140 % at 0.42, with sequences that resemble each other.
_DECIDES, _AGREE = 0.8, 0.2
_COUNTED = 24  # draws of counts, which cost little
_FIXED = 0.9  # share of a state from which its token decides, in words
_LONG, _LEAST = 1e12, 2  # operations for draws of parts, and how many there are at least


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
    first = network.layers[0]
    if not isinstance(first, Embed):
        expected = "embed as the first layer of a language model"
        hint = "embed(0.02, vocabulary=2000) > … > unembed"
        raise NotCovered(expected, got=text(first), where="layer 1", hint=hint)
    check_vocabulary(network.layers, network.classes)
    said: list[str] = []
    length = given.length if isinstance(given, Tokens) else given.shape[1]
    if points is not None:
        checks.count(points, 2, "number of points", "predict(points)", "points=1024")
    wanted = max(2, (points or _TOKENS) // length) * length if isinstance(given, Tokens) else given.size
    _check_memory(wanted, length, _POSITION)
    ids = given if isinstance(given, np.ndarray) else _described(given, network.classes, points, seed, said)
    size = shapes(network.layers[:-1], Shape(None, sequence(ids.shape[1])), width)[-1].width or width
    if head.tied:
        _check_head(network.classes, size)
    real = None if isinstance(given, Tokens) else first.real_tokens(ids)  # drawn ids are no padding
    first = replace(first, padding=None) if isinstance(given, Tokens) else first
    body = Network((first, *network.layers[1:-1]), network.classes)
    kept = np.flatnonzero(np.ones(ids.size) if real is None else real)
    flat = ids.ravel()[kept].astype(np.int64)
    variance = first.std**2
    whole = kept.size <= _PAIRS
    looked = ids if whole else ids[: max(2, _PAIRS // ids.shape[1])]
    stream = token_covariances(body, looked, width=width, seconds=seconds)
    at = kept[kept < looked.size]
    own = (_own(network, stream, looked.size) if head.tied else np.zeros(looked.size))[at]
    inner = stream.k[np.ix_(at, at)] if len(at) < len(stream.k) else stream.k
    effective = min(effective_width(body, looked, width=size), float(size))
    scales = np.ones(size)
    if effective < size - 0.5:
        scales = unequal_units(effective, size)
        drawn = (
            "which are drawn" if len(scales) == round(effective) else f"as {len(scales)} unequal ones that are drawn"
        )
        said.append(f"features of {size} units scatter as {effective:.0f} independent ones would, {drawn}: (55)")
    with contextlib.suppress(NotCovered):  # how much of the last state is the token's own embedding, where it is known
        share = float(np.mean(np.square(_own(network, stream, looked.size)) * variance / stream.k.diagonal()))
        maps = ": each token maps to a nearly fixed random answer" if share >= _FIXED and not head.tied else ""
        said.append(f"{share:.0%} of the last state is the token's own embedding{maps}")
    kappa = 2.0 - (2.0 - KAPPA.get(head.init, 2.0)) * effective / size
    heads = _Heads(inner, own, variance, flat[: len(at)], size, scales, network.classes, head.init, kappa, seed)
    parts = counts = None
    if not whole:
        some = np.zeros(looked.size, bool)
        some[at] = True
        causal = all(getattr(layer, "causal", True) for layer in every(network.layers))
        parts = Parts.between(stream.k, looked, some.reshape(looked.shape), network.classes, effective, causal)
        counts = None if head.tied else _decided(parts, ids, flat, effective, network.classes, kappa)
    least = 0.0 if positive(inner.copy()) else float(np.linalg.eigvalsh(inner)[0] / inner.diagonal().mean())
    if least < -_ROUNDING:
        said.append(
            f"directions of the tokens' covariance that are negative by up to {-least:.1%} of its diagonal, since "
            "attention's formula is not exact, count as 0"
        )
    work = (_WORK if whole else _LONG) / (2.0 * kept.size * heads.units * network.classes)
    some = int(min(max(work, _FEWEST if whole else _LEAST), _MOST if whole else _COUNTED, draws or _MOST))
    if counts is None:
        _check_head(network.classes, size if head.tied or heads.units == size else heads.units)
    if parts is None:
        fractions, hits = heads.draw(heads.features(), flat, some)
        how = f"the distribution is sampled: {some} draws of {size}-dimensional tokens and of the head"
    elif counts is not None:
        some = min(draws or _COUNTED, _COUNTED)
        fractions, hits = counts.draw(some, seed), np.full(1, 1.0 / network.classes)
        how = f"{parts.words}, so the input token decides: counts by theory.md (52), {some} draws"
    else:
        _check_memory(kept.size, length, 12 * heads.units)
        fractions, hits = heads.draw(heads.summed(parts, ids, kept), flat, some)
        how = f"{parts.words}: units are drawn as sums of what positions share, {some} draws of them and of the head"
    z = own * np.sqrt(size * variance / inner.diagonal())
    if head.tied:
        chance = float(np.mean([own_guess_chance(float(one), network.classes) for one in z]))
        said.append(
            f"tied head: the own token's logit stands z = {z.mean():.3g} standard deviations higher, which alone would "
            f"be guessed with probability {chance:.4g}: theory.md (30)"
        )
    k = heads.logits() * (size * variance if head.tied else head.weight_var)
    off = (float(k.sum()) - float(np.trace(k))) / max(k.size - len(k), 1)
    found = (*stream.pending.summaries, LayerReading.of(head, float(k.diagonal().mean()), off))
    assumptions = dict.fromkeys(line for layer in every(network.layers) for line in layer.assumptions())
    guessed = EmpiricalGuesses(fractions, kept.size, seed)
    support = guessed.effective_support().mean
    squares = stream.squares.get(len(network.layers) - 2)
    return Prediction(
        network,
        "kernel",
        found,
        guessed,
        ("wide layers", how, *assumptions, *said, *stream.remarks),
        provenance(network, points=kept.size, seed=seed, draws=some, **origin),
        time.perf_counter() - started,
        own_guess=float(hits.mean()),
        own_shift=float(z.mean()),
        # the mean square that the last norm divides by, at every position: what attention sinks show in, (23)
        by_position=()
        if real is not None or squares is None
        else tuple(squares.reshape(looked.shape).mean(axis=0).tolist()),
        support_steps=() if head.tied else support_steps(np.bincount(flat), network.classes, effective, kappa, support),
    )


def _check_memory(positions: int, length: int, each: float) -> None:
    """Refuse positions that do not fit: `each` is the bytes of one."""
    fits = int(_MEMORY / each) // length
    if positions > fits * length:
        most = fits * length if fits > 1 else int(_MEMORY / each)
        expected = f"at most {most} positions in all, which take {in_bytes(_MEMORY)}"
        hint = f"{fits} sequences, or fg.measure(...)" if fits > 1 else "shorter sequences, or fg.measure(...)"
        raise NotCovered(expected, got=f"{positions}: {in_bytes(positions * each)}", where="data", hint=hint)


def _check_head(tokens: int, units: int) -> None:
    """Refuse weights of a head that do not fit, where they are drawn."""
    if 4.0 * tokens * units > _MEMORY:
        got = f"{tokens} tokens of {units} numbers: {in_bytes(4.0 * tokens * units)}"
        hint = "a smaller vocabulary, or more than 1536 positions: counts need no head where the token decides"
        raise NotCovered(f"a head of at most {in_bytes(_MEMORY)}", got=got, where="predict", hint=hint)


def _described(tokens: Tokens, vocabulary: int, points: int | None, seed: int, said: list[str]) -> NDArray[np.int64]:
    """Ids with the frequencies asked for, or equally frequent ones, 1/p₂ of them; `points`: tokens in all."""
    count = max(2, (points or _TOKENS) // tokens.length)
    free = vocabulary - tokens.shared
    rng = np.random.default_rng((seed, 0x1D5))
    if tokens.frequencies is not None:
        if len(tokens.frequencies) > free:
            expected = f"frequencies of at most {free} tokens, the vocabulary"
            hint = "np.bincount(ids, minlength=vocabulary)"
            raise InvalidInput(expected, got=len(tokens.frequencies), where="Tokens", hint=hint)
        ids = tokens.shared + rng.choice(len(tokens.frequencies), (count, tokens.length), p=tokens.frequencies)
        kinds = int(np.count_nonzero(tokens.frequencies))
        said.append(f"{count} sequences are drawn, of {kinds} tokens with the frequencies given")
    else:
        kinds = free if tokens.chance == 0.0 else round(1.0 / tokens.chance)
        if not 1 <= kinds <= free:
            expected = f"a coincidence of at least 1/{free}, that of all tokens of the vocabulary"
            hint = f"coincidence={1.0 / max(free, 1):.3g}"
            raise InvalidInput(expected, got=f"{tokens.chance:.3g}", where="Tokens", hint=hint)
        ids = rng.integers(tokens.shared, tokens.shared + kinds, (count, tokens.length))
        said.append(f"{count} sequences are drawn, of {kinds} tokens that are all equally frequent")
    ids[:, : tokens.shared] = np.arange(tokens.shared)
    return ids


def _decided(
    parts: Parts, ids: NDArray[np.int64], kept: NDArray[np.int64], width: float, vocabulary: int, kappa: float
) -> TokenCounts | None:
    """Counts by how often each token occurs, or None where what else positions share changes them."""
    if parts.same_token < _DECIDES:
        return None
    repeats = np.bincount(kept)
    found = TokenCounts(repeats, vocabulary, width, parts.same_token, parts.different, kappa)
    total = kept.size * (kept.size - 1.0)
    same, sequence, place = float(repeats @ (repeats - 1.0)) / total, 1.0 / len(ids), 1.0 / ids.shape[1]
    pairs = (
        (same, parts.same_token),
        ((1.0 - same) * sequence, parts.same_sequence),
        ((1.0 - same) * place, parts.same_place),
        ((1.0 - same) * max(1.0 - sequence - place, 0.0), parts.different),
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
    expected = "a stream of residual blocks, norms and scales between an embedding and the head that is tied to it"
    return NotCovered(expected, got=text(layer), where="unembed(tied)", hint="fg.measure(...), or unembed without ties")


@dataclass(frozen=True)
class _Heads:
    """What logits are drawn from."""

    k: Array  # (tokens, tokens) before the head
    own: Array  # a of every token; 0: nothing of its own vector
    variance: float  # of a vector's entries
    ids: NDArray[np.int64]
    width: int
    scales: Array  # variances of units that scatter correlations as those of the network do: 1 on average
    vocabulary: int
    init: str  # distribution of the head's weights
    kappa: float  # Var |row|²/|row|⁴ of the part that the units see, by what they scatter
    seed: int

    @property
    def units(self) -> int:
        return len(self.scales)

    @property
    def every(self) -> bool:
        """Whether these are the network's own units, all alike."""
        return self.units == self.width and bool(np.all(self.scales == 1.0))

    def logits(self) -> Array:
        """The covariance of logits over classes, by that of a weight: the own logits add 1/V of their squares."""
        if not self.own.any():
            return self.k
        same = self.ids[:, None] == self.ids
        return self.k + same * np.multiply.outer(self.own, self.own) * (self.width * self.variance / self.vocabulary)

    def features(self) -> Features:
        """Draw units with the whole covariance, by its root."""
        same = self.ids[:, None] == self.ids
        rest = self.k - self.variance * same * np.multiply.outer(self.own, self.own)  # without the own token's vector
        factor = root(rest, negative=NEGATIVE).astype(np.float32)
        own = self.own.astype(np.float32)

        def draw(rng: np.random.Generator) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
            return factor @ rng.standard_normal((factor.shape[1], self.units), dtype=np.float32), own

        return draw

    def summed(self, parts: Parts, ids: NDArray[np.int64], kept: NDArray[np.int64]) -> Features:
        """Draw units as sums of what positions share; those of the whole data, of which `k` has some."""
        own = self.variance / float(self.k.diagonal().mean()) * float(np.square(self.own).mean())
        scaled = np.full(len(kept), math.sqrt(own / max(self.variance, 1e-300)), np.float32)

        drawn = parts.drawn(ids.astype(np.int64), self.units, own)

        def draw(rng: np.random.Generator) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
            x = drawn(rng)
            return x if len(kept) == len(x) else x[kept], scaled

        return draw

    def draw(self, features: Features, ids: NDArray[np.int64], count: int) -> tuple[Array, Array]:
        """(count, V) shares of guesses, and (count,) shares of tokens that guess themselves. float32 decides."""
        fractions, hits = np.empty((count, self.vocabulary)), np.empty(count)
        scale = np.float32(math.sqrt(self.variance))
        for index in range(count):
            rng = np.random.default_rng((self.seed, index, 0x1A46))
            x, own = features(rng)
            if not self.every:
                x *= np.sqrt(self.scales).astype(np.float32)
            table = self._rows(rng)
            if own.any():
                vectors = (own[:, None] * (scale * table[ids])).astype(np.float32, copy=False)
                if self.every:
                    x += vectors
                else:  # the token's own vector has all units, the rest fewer of its own
                    more = rng.standard_normal((self.vocabulary, self.units), dtype=np.float32)
                    more *= np.float32(math.sqrt(self.width / self.units))
                    x, table = np.hstack((x, vectors)), np.hstack((more, table))
            step = max(1, _AT_ONCE // self.vocabulary)
            guess = np.concatenate([guesses(x[i : i + step] @ table.T, rng) for i in range(0, len(x), step)])
            fractions[index] = np.bincount(guess, minlength=self.vocabulary) / guess.size
            hits[index] = np.mean(guess == ids)
        return fractions, hits

    def _rows(self, rng: np.random.Generator) -> NDArray[np.float32]:
        """The head: of tied ones all units, else those that are drawn, with lengths that scatter as κ says."""
        units = self.width if self.own.any() else self.units
        if self.init == "normal":
            return rng.standard_normal((self.vocabulary, units), dtype=np.float32)
        if self.every or self.own.any():
            return draw_weights(rng, self.init, units, 1, units, self.vocabulary)[0].T
        rows = rng.standard_normal((self.vocabulary, units), dtype=np.float32)
        shape = units / float(np.square(self.scales).mean()) / self.kappa
        squares = rng.gamma(shape, 1.0 / shape, self.vocabulary) / (np.square(rows) @ self.scales / units)
        return rows * np.sqrt(squares).astype(np.float32)[:, None]
