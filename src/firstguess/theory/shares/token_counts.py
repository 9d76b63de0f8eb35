"""How many tokens of its vocabulary an untrained language model ever guesses: theory.md (51)-(53).

Each of n positions guesses the token whose row of the head gives the largest logit. Features of two positions that
hold the same input token have the correlation r, of different tokens c: where r is near 1 a token maps to a nearly
fixed guess, so how often each input token occurs decides how few tokens are ever guessed.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import special

from firstguess.base.gaussian import Array, gauss_hermite
from firstguess.theory.shares.gaussian_argmax import joint_ndtr, log_choose

_LENGTHS, _COMMON, _WITHIN = 9, 5, 31  # quadrature nodes: lengths of rows, what all positions share, each position
_LEAST_COMMON = 1e-3  # c below which what all positions share changes nothing
_FIXED = 1e-4  # 1 − r below which all positions of a token guess the same
_LOGIT, _BIN = 25.0, 0.1  # range and step of the chances of a guess, on a logit scale
_REACH = 9.0  # standard deviations of a logit
_MIDDLE, _APART = 0.05, 0.2  # steps of the trapezoid rule for pairs
_ADDS_UP, _TRIES = 0.01, 100  # how nearly drawn counts add up to the number of positions, and how often that is tried

# Excess of the squared length of a row: Var |w|²/D = κ/D, κ = E w⁴/(E w²)² − 1.
KAPPA = {"normal": 2.0, "uniform": 0.8, "rademacher": 0.0, "orthogonal": 0.0, "laplace": 5.0}


def same_guess_chance(correlation: float, vocabulary: int, width: float | None = None) -> float:
    """P(two positions guess the same token), for features of this correlation: theory.md (51).

    P_V(ρ) = V ∬ φ₂(x, y; ρ) Φ₂(x, y; ρ)^{V−1} dx dy. At finite `width` D the correlations of pairs scatter by
    (1 − ρ²)/√D, over which it is averaged.

    >>> [f"{same_guess_chance(rho, 31997):.3g}" for rho in (0.09, 0.5, 0.9, 0.984)]
    ['0.000129', '0.0123', '0.273', '0.637']
    """
    rho = correlation
    if width is not None:
        scatter = (1.0 - rho * rho) / math.sqrt(width) * math.sqrt(3.0)
        around = ((1.0 / 6.0, rho - scatter), (2.0 / 3.0, rho), (1.0 / 6.0, rho + scatter))
        return sum(weight * same_guess_chance(max(one, 0.0), vocabulary) for weight, one in around)
    if rho >= 1.0 - 1e-9:
        return 1.0
    middle = np.arange(-1.0, _REACH, _MIDDLE)
    apart = np.arange(-8.0, 8.1, _APART)
    half = math.sqrt(0.5 * (1.0 - rho))
    x = middle[:, None] + half * apart
    y = middle[:, None] - half * apart
    above = special.ndtr(-x) + special.ndtr(-y) - joint_ndtr(-middle[:, None], -half * apart, rho, 1.0 - rho)
    exponent = -(x * x + y * y - 2.0 * rho * x * y) / (2.0 * (1.0 - rho * rho))
    density = np.exp(exponent) / (2.0 * math.pi * math.sqrt(1.0 - rho * rho))
    area = _MIDDLE * _APART * 2.0 * half  # of dx dy, by half the sum and half the difference
    inside = np.log1p(-np.minimum(above, 1.0 - 1e-15))
    return float(min(1.0, vocabulary * area * np.sum(density * np.exp((vocabulary - 1) * inside))))


@dataclass(frozen=True)
class EvenCounts:
    """What a model that guesses every token equally often would show on n positions: the multinomial."""

    classes: int
    points: int

    @property
    def effective_support(self) -> float:
        """exp(H) of the shares, of their expected entropy."""
        k = np.arange(1, min(self.points, 60 + 20 * self.points // self.classes) + 1)
        share = k / self.points
        return math.exp(-self.classes * float(np.sum(self._chances(k) * share * np.log(share))))

    @property
    def never(self) -> float:
        """How many classes no position guesses."""
        return self.classes * (1.0 - 1.0 / self.classes) ** self.points

    @property
    def same_guess(self) -> float:
        """P(two positions guess the same class)."""
        return 1.0 / self.classes

    def _chances(self, k: NDArray[np.int64]) -> Array:
        n, p = self.points, 1.0 / self.classes
        return np.exp(log_choose(n, k) + k * math.log(p) + (n - k) * math.log1p(-p))


@dataclass(frozen=True, eq=False)
class TokenCounts:
    """Counts of guesses where the input token decides them: theory.md (52).

    `repeats[k]` is how often the k-th input token occurs, r and c are the correlations of features of two positions
    with the same and with different tokens, `kappa` that of `KAPPA` for the head's rows of `width` weights.

    A position's logit of a row of length s is t = s(√c·a + √(r−c)·z + √(1−r)·ε): a is of the row, z = √D·cos θ of row
    and token, ε of row and position. It wins if no other row is above it, of which Λ(t) = V·P(logit > t) are expected.
    Rivals at positions of one token are nearly the same: P(win | S) = exp(−S·Λ(t)^{1/α}) with S positive stable of
    index α = 1 − P_V(r), which makes the largest rival Gumbel at each position. (theory.md writes Λ as e^{−u(t−m₀)};
    the exact tail needs no m₀ and is closer: 15 413 tokens at D = 128 where networks give 15 419 ± 31.)
    """

    repeats: NDArray[np.int64]
    vocabulary: int
    width: float
    r: float
    c: float
    kappa: float

    def same_guess(self) -> float:
        """P(two positions guess the same token)."""
        chances, n = self.distribution, float(self.repeats.sum())
        k = np.arange(len(chances))
        return self.vocabulary * float(np.sum(chances * k * (k - 1.0))) / (n * (n - 1.0))

    def effective_support(self) -> float:
        """exp(H) of the shares, of their expected entropy."""
        share = np.arange(1, len(self.distribution)) / float(self.repeats.sum())
        return math.exp(-self.vocabulary * float(np.sum(self.distribution[1:] * share * np.log(share))))

    @functools.cached_property
    def distribution(self) -> Array:
        """P(N = k), k = 0, 1, …: how often a token of the vocabulary is guessed."""
        sizes, numbers = np.unique(self.repeats[self.repeats > 0], return_counts=True)
        within = self.r if sizes[-1] > 1 else 1.0  # tokens that occur once: nothing to tell apart
        common = self.c if self.c > _LEAST_COMMON else 0.0
        # Positions of one token share z; what they share with all others is in `a`.
        rows = _Rows(self.width, self.kappa, common, within - common, max(1.0 - within, 0.0), self.vocabulary)
        fixed = 1.0 - within < _FIXED
        alpha = 1.0 if sizes[-1] == 1 else 1.0 - same_guess_chance(within, self.vocabulary)
        length = 1 << math.ceil(math.log2(4 * self.repeats.sum() + 2))
        found = np.zeros(length)
        for weight, chances, weights in rows.winning(None if fixed or alpha >= 1.0 else alpha):
            jumps = np.zeros(int(sizes[-1]) + 1)
            for size, number in zip(sizes, numbers, strict=True):
                if fixed:
                    jumps[size] += number * float(weights @ chances)
                else:
                    jumps[: size + 1] += number * (weights @ _binomial(int(size), chances))
            jumps[0] = 0.0
            transform = np.fft.rfft(jumps, length) - jumps.sum()
            found += weight * np.fft.irfft(np.exp(transform), length)
        return np.maximum(found, 0.0)

    def draw(self, draws: int, seed: int) -> Array:
        """(draws, V) shares of guesses: independent counts of all tokens, given that they add up to n (to 1 %)."""
        total = int(self.repeats.sum())
        steps = np.cumsum(self.distribution)
        steps /= steps[-1]
        shares = np.empty((draws, self.vocabulary))
        for index in range(draws):
            rng = np.random.default_rng((seed, index, 0x70C))
            best, missed = np.zeros(self.vocabulary, np.int64), math.inf
            for _ in range(_TRIES):
                counts = np.searchsorted(steps, rng.random(self.vocabulary), side="right")
                if abs(counts.sum() / total - 1.0) < missed:
                    best, missed = counts, abs(counts.sum() / total - 1.0)
                if missed < _ADDS_UP:
                    break
            shares[index] = best / best.sum()
        return shares


def _binomial(size: int, chances: Array) -> Array:
    """(chances, size + 1) of P(Bin(size, x) = j)."""
    j = np.arange(size + 1)
    return np.exp(
        log_choose(size, j) + np.multiply.outer(np.log(chances), j) + np.multiply.outer(np.log1p(-chances), size - j)
    )


@dataclass(frozen=True)
class _Rows:
    """Rows of a head: how often one of them wins a position, over what the row and the token bring."""

    width: float
    kappa: float
    common: float  # variance shared by all positions
    token: float  # by those of one token
    own: float  # of a position
    vocabulary: int

    def winning(self, alpha: float | None) -> list[tuple[float, Array, Array]]:
        """Kinds of rows: their weight, chances to win a position of a token, and how likely these chances are."""
        z, density = self._projections()
        noise, noisy = gauss_hermite(_WITHIN) if self.own > 0.0 else (np.zeros(1), np.ones(1))
        kinds = self._kinds()
        grid = np.linspace(-2.0, 1.5 * _REACH, 3101)
        tail = np.zeros_like(grid)
        for weight, length, shared in kinds:
            tail += weight * self._above(grid / length - math.sqrt(self.common) * shared, z, density)
        rivals = np.log(self.vocabulary * np.maximum(tail, 1e-300))
        found: list[tuple[float, Array, Array]] = []
        for weight, length, shared in kinds:
            t = length * (
                math.sqrt(self.common) * shared + math.sqrt(self.token) * z[:, None] + math.sqrt(self.own) * noise
            )
            above = np.interp(t, grid, rivals)
            if alpha is None:
                chances, weights = np.exp(-np.exp(np.minimum(above, 50.0))) @ noisy, density
            else:
                levels, stable = _positive_stable(alpha)
                exponent = np.minimum(above[:, None, :] / alpha + levels[:, None], 50.0)
                chances = (np.exp(-np.exp(exponent)) @ noisy).ravel()
                weights = np.multiply.outer(density, stable).ravel()
            found.append((weight, *_binned(chances, weights)))
        return found

    def _kinds(self) -> list[tuple[float, float, float]]:
        """Weight, length and what all positions share, of rows."""
        nodes, weights = gauss_hermite(_LENGTHS if self.common == 0.0 else _COMMON)
        size = self.width / self.kappa if self.kappa > 0.0 else 0.0
        squares = special.gammaincinv(size, special.ndtr(nodes)) / size if size else np.ones(1)
        weights = weights if size else np.ones(1)
        shared, likely = gauss_hermite(_COMMON) if self.common > 0.0 else (np.zeros(1), np.ones(1))
        return [
            (float(w * v), math.sqrt(float(square)), float(a))
            for square, w in zip(squares, weights, strict=True)
            for a, v in zip(shared, likely, strict=True)
        ]

    def _projections(self) -> tuple[Array, Array]:
        """√D·cos θ on a grid, and its weights; the lower half never wins."""
        top = min(math.sqrt(self.width), _REACH)
        z = np.linspace(0.0, top, 361)[:-1] + top / 720.0
        constant = special.gammaln(0.5 * self.width) - special.gammaln(0.5 * (self.width - 1))
        log = constant - 0.5 * math.log(math.pi * self.width) + 0.5 * (self.width - 3) * np.log1p(-z * z / self.width)
        return z, np.exp(log) * top / 360.0

    def _above(self, t: Array, z: Array, density: Array) -> Array:
        """P(√token·z + √own·ε > t)."""
        scale = math.sqrt(self.token)
        both, twice = np.concatenate((-z[::-1], z)), np.concatenate((density[::-1], density))
        if self.own > 0.0:
            return special.ndtr(-(t[:, None] - scale * both) / math.sqrt(self.own)) @ twice
        square = np.minimum(t * t / (scale * scale * self.width), 1.0)  # cos² θ, a Beta(½, (D − 1)/2)
        return 0.5 - 0.5 * np.sign(t) * special.betainc(0.5, 0.5 * (self.width - 1), square)


def _positive_stable(alpha: float) -> tuple[Array, Array]:
    """ln S on a grid and its weights, E e^{−tS} = e^{−t^α}: Kanter's representation, on even steps of both draws."""
    angle = (np.arange(300) + 0.5) / 300 * math.pi
    draw = -np.log((np.arange(300) + 0.5) / 300)
    first = np.log(np.sin(alpha * angle)) - np.log(np.sin(angle)) / alpha
    first += (1.0 - alpha) / alpha * np.log(np.sin((1.0 - alpha) * angle))
    values = first[:, None] - (1.0 - alpha) / alpha * np.log(draw)
    edges = np.linspace(values.min(), values.max() + 1e-9, 121)
    weights = np.histogram(values, bins=edges)[0] / values.size
    sums = np.histogram(values, bins=edges, weights=values)[0] / values.size
    kept = weights > 0.0
    return sums[kept] / weights[kept], weights[kept]


def _binned(chances: Array, weights: Array) -> tuple[Array, Array]:
    """The same distribution of chances on a grid of their logits; means are kept."""
    chances = np.clip(chances, math.exp(-_LOGIT), 1.0 - 1e-11)
    cell = np.floor((special.logit(chances) + _LOGIT) / _BIN).astype(np.int64)
    sums = np.bincount(cell, weights * chances)
    total = np.bincount(cell, weights).astype(np.float64)
    kept = total > 0.0
    return sums[kept] / total[kept], total[kept]


def support_steps(
    repeats: NDArray[np.int64], vocabulary: int, width: float, kappa: float, predicted: float
) -> tuple[tuple[str, float], ...]:
    """Effective supports from even guessing to what is predicted, one more reason at a time: theory.md §13.

    Rows of unequal length are (52) with every position a token of its own; that a token maps to one guess is r = 1.
    """
    every, here = np.ones(int(repeats.sum()), np.int64), repeats[repeats > 0]
    alone, fixed = (TokenCounts(m, vocabulary, width, 1.0, 0.0, kappa).effective_support() for m in (every, here))
    context = "context spreads it" if predicted >= fixed else "positions share more than their token"
    return (
        ("even guessing", EvenCounts(vocabulary, every.size).effective_support),
        ("rows of the head differ in length", alone),
        ("a token maps to one guess", fixed),
        (context, predicted),
    )
