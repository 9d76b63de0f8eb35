"""Language models: every token of every sequence guesses one of the vocabulary, theory.md (30).

The covariance of the stream before the head is carried as for all networks of tokens. Given the D units of a token
the logits of V ≫ D classes are no V independent draws of one covariance: so the D nodes are drawn (Gaussian, with that
covariance), then the head. Of a tied head the stream holds the own token's vector: h = a·e + r, e the head's vector
too, r independent of it, since every branch of the stream ends in weights of its own.
"""

from __future__ import annotations

import math
import sys
import time
from dataclasses import dataclass, replace
from typing import Any

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
from firstguess.network.layer import Layer, text
from firstguess.network.layers import Embed, Unembed
from firstguess.network.network import Network
from firstguess.network.walk import check_vocabulary, every, shapes
from firstguess.theory.kernel.tiles import KernelLayer
from firstguess.theory.prediction import Prediction
from firstguess.theory.shares.empirical import EmpiricalGuesses
from firstguess.theory.tokens import TokenStream, reading, token_covariances

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
    stream = token_covariances(body, ids, width=width, seconds=seconds)
    real = None if isinstance(given, Tokens) else network.layers[0].real_tokens(ids)  # drawn ids are no padding
    kept = np.flatnonzero(np.ones(ids.size) if real is None else real)
    own = (_own(network, stream, ids.size) if head.tied else np.zeros(ids.size))[kept]
    inner = stream.k if real is None else stream.k[np.ix_(kept, kept)]
    variance = network.layers[0].std ** 2 if isinstance(network.layers[0], Embed) else 0.0
    heads = _Heads(inner, own, variance, ids.ravel()[kept].astype(np.int64), size, network.classes, seed)
    some = int(min(max(_WORK / (2.0 * kept.size * size * network.classes), _FEWEST), _MOST, draws or _MOST))
    least = 0.0 if positive(inner.copy()) else float(np.linalg.eigvalsh(inner)[0] / inner.diagonal().mean())
    if least < -_ROUNDING:
        said.append(
            f"directions of the tokens' covariance that are negative by up to {-least:.1%} of its diagonal, since "
            "attention's formula is not exact, count as 0"
        )
    fractions, hits = heads.draw(some)
    if head.tied:
        z = own * np.sqrt(size * variance / inner.diagonal())
        chance = float(np.mean([own_guess_chance(float(one), network.classes) for one in z]))
        said.append(
            f"tied head: the own token's logit stands z = {z.mean():.3g} standard deviations higher, which alone would "
            f"be guessed with probability {chance:.4g}: theory.md (30)"
        )
    k = heads.logits()
    off = (float(k.sum()) - float(np.trace(k))) / max(k.size - len(k), 1)
    found = [*stream.pending.summaries]
    found.append(KernelLayer(text(head), True, float(k.diagonal().mean()), off))
    assumptions = dict.fromkeys(line for layer in every(network.layers) for line in layer.assumptions())
    distribution = f"the law is sampled: {some} draws of {size}-dimensional tokens and of the head"
    return Prediction(
        network,
        "kernel",
        tuple(reading(layer) for layer in found),
        EmpiricalGuesses(fractions, kept.size, seed),
        ("wide layers", distribution, *assumptions, *said, *stream.remarks),
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
    """Ids with the coincidence asked for: alike frequent ones, 1/p₂ of them; `points` is how many tokens in all."""
    count = max(2, (points or _TOKENS) // tokens.length)
    free = vocabulary - tokens.shared
    kinds = free if tokens.chance == 0.0 else round(1.0 / tokens.chance)
    if not 1 <= kinds <= free:
        raise InvalidInput(
            f"a coincidence of at least 1/{free}, that of all tokens of the vocabulary",
            got=f"{tokens.chance:.3g}",
            where="Tokens",
            hint=f"coincidence={1.0 / max(free, 1):.3g}",
        )
    rng = np.random.default_rng((seed, 0x1D5))
    ids = rng.integers(tokens.shared, tokens.shared + kinds, (count, tokens.length))
    ids[:, : tokens.shared] = np.arange(tokens.shared)
    said.append(f"{count} sequences are drawn, of {kinds} tokens that are all alike frequent")
    return ids


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


@dataclass(frozen=True)
class _Heads:
    """What logits are drawn from."""

    k: Array  # (tokens, tokens) before the head
    own: Array  # a of every token; 0: nothing of its own vector
    variance: float  # of a vector's entries
    ids: NDArray[np.int64]
    width: int
    vocabulary: int
    seed: int

    def logits(self) -> Array:
        """The covariance of logits over classes, by that of a weight: the own logits add 1/V of their squares."""
        if not self.own.any():
            return self.k
        same = self.ids[:, None] == self.ids
        return self.k + same * np.multiply.outer(self.own, self.own) * (self.width * self.variance / self.vocabulary)

    def draw(self, count: int) -> tuple[Array, Array]:
        """(count, V) shares of guesses, and (count,) shares of tokens that guess themselves. float32 decides."""
        same = self.ids[:, None] == self.ids
        rest = self.k - self.variance * same * np.multiply.outer(self.own, self.own)
        factor = root(rest, negative=NEGATIVE).astype(np.float32)
        fractions, hits = np.empty((count, self.vocabulary)), np.empty(count)
        scale, own = np.float32(math.sqrt(self.variance)), self.own.astype(np.float32)[:, None]
        for index in range(count):
            rng = np.random.default_rng((self.seed, index, 0x1A46))
            x = factor @ rng.standard_normal((factor.shape[1], self.width), dtype=np.float32)
            table = rng.standard_normal((self.vocabulary, self.width), dtype=np.float32)
            if own.any():
                x += own * (scale * table[self.ids])
            guess = self._largest(x, table, rng)
            fractions[index] = np.bincount(guess, minlength=self.vocabulary) / guess.size
            hits[index] = np.mean(guess == self.ids)
        return fractions, hits

    def _largest(
        self, x: NDArray[np.float32], table: NDArray[np.float32], rng: np.random.Generator
    ) -> NDArray[np.int64]:
        """arg-max of x·table, a block of tokens at a time."""
        step = max(1, _AT_ONCE // self.vocabulary)
        parts = [guesses(x[first : first + step] @ table.T, rng) for first in range(0, len(x), step)]
        return np.concatenate(parts)
