"""The distribution of class shares where networks differ: a mixture of distributions, one γ each (theory.md (45)).

Of more than two classes it is another one where overlaps differ over pairs of points more than by their mean (nearly
even networks): drawn from `overlap_spectrum`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from scipy import special

from firstguess.base.errors import InvalidInput
from firstguess.base.gaussian import Array, gauss_hermite
from firstguess.base.numerics import find_root
from firstguess.base.record import StoredRecord
from firstguess.base.statistics import FloatArray
from firstguess.theory.shares import many_classes
from firstguess.theory.shares.base import SEED, ClassShares, SharesByRow, at_steps
from firstguess.theory.shares.counts import Listed
from firstguess.theory.shares.gaussian import Guesses
from firstguess.theory.shares.gaussian_argmax import agreement_probability, log_choose
from firstguess.theory.shares.many_classes import PairMoments

# A distribution of class shares that is known by draws: shares of infinitely many points, in many networks.

_BINS = 400  # groups of shares that are alike, for the distribution of a count


@dataclass(frozen=True, eq=False)
class DrawnShares(SharesByRow):
    """Class shares that are known by draws: of infinitely many points, in many networks; all classes are alike."""

    fractions: FloatArray  # pyright: ignore[reportIncompatibleMethodOverride]
    points: int | None  # pyright: ignore[reportIncompatibleMethodOverride]
    seed: int

    @property
    def drawn(self) -> bool:
        return True

    @cached_property
    def _counts(self) -> Listed:
        """The distribution of a count: binomial, over the distribution of a share."""
        assert self.points is not None
        n, size = self.points, self._sorted.size
        ends = np.linspace(0, size, min(_BINS, size) + 1).astype(int)
        share = np.array([self._sorted[a:b].mean() for a, b in itertools.pairwise(ends)])
        k = np.arange(n + 1)
        found = np.zeros(n + 1)
        for weight, g in zip(np.diff(ends) / size, share, strict=True):
            found += weight * np.exp(log_choose(n, k) + special.xlogy(k, g) + special.xlog1py(n - k, -g))
        return Listed(found)

    def _pmf(self, points: int) -> FloatArray:
        return self._counts.pmf.copy()

    def _cdf(self, at: FloatArray) -> FloatArray:
        if self.points is not None:
            return self._counts.share_at_most(at, self.points)
        return np.searchsorted(self._sorted, at, side="right") / self._sorted.size

    def _pdf(self, at: FloatArray) -> FloatArray:
        """The density, of infinitely many points by a window of a quarter of a standard deviation."""
        if self.points is not None:
            return self._counts.density(at, self.points)
        half = 0.125 * float(self.fractions.std())
        return (self._cdf(at + half) - self._cdf(at - half)) / (2.0 * half)

    def _quantile(self, at: FloatArray) -> FloatArray:
        return at_steps(self._sorted, at) if self.points is None else self._counts.first(at - 1e-12) / self.points

    @property
    def error(self) -> float:
        """The largest standard error that `cdf` has in the middle of the distribution."""
        return float(self._cdf_error(self._quantile(np.linspace(0.1, 0.9, 9))).max())

    @cached_property
    def largest(self) -> FloatArray:
        """The largest share, of `points` points of each network."""
        if self.points is None:
            return self.fractions.max(axis=1)
        counts = np.random.default_rng([self.seed, 6]).multinomial(self.points, self.fractions)
        return (counts / self.points).max(axis=1)

    def var(self) -> float:
        return float(self.fractions.var())

    def expected_max_error(self) -> float:
        return float(self.largest.std(ddof=1)) / math.sqrt(len(self.largest))


def _networks(classes: int) -> int:
    """How many of them stand for the distribution: what takes about a second."""
    return round(min(max(4e5 / classes**2, 400), 3000))


@lru_cache(maxsize=16)
def _stand_in(shape: many_classes.ShareSpectrum, e: float, classes: int) -> FloatArray:
    """Networks that stand for all; the noise of drawing shares by points is in their variance, which is scaled away."""
    return many_classes.draw_shares(shape, e, classes, _networks(classes), SEED)


@dataclass(frozen=True, repr=False)
class MixedGuesses(StoredRecord, ClassShares):
    """Class shares over networks of finite width: the methods of `fg.Guesses`, each network with a γ of its own.

    `gammas` and `weights`: a quadrature over networks. What `Guesses` knows exactly is exact here too, for this
    mixture; `kth_largest` and `entropy` are drawn. `pairs`: how overlaps of pairs differ within a network; then `var`
    and `std` are exact, and all else is drawn, with standard errors (`expected_max_error`, `cdf_error`, …).

    >>> one, mixed = Guesses(1.0), MixedGuesses((0.5, 2.0), (0.5, 0.5))
    >>> print(f"{one.expected_max():.4f} {mixed.expected_max():.4f} {mixed.cdf(0.5):.4f}")
    0.7500 0.7500 0.5000
    >>> MixedGuesses.from_dict(mixed.to_dict())
    MixedGuesses(2 networks' drift ratios from 0.5 to 2, classes=2)
    """

    _optional = ("pairs",)
    gammas: tuple[float, ...]
    weights: tuple[float, ...]
    classes: int = 2  # pyright: ignore[reportIncompatibleMethodOverride]
    points: int | None = None  # pyright: ignore[reportIncompatibleMethodOverride]
    pairs: PairMoments | None = None

    def __post_init__(self) -> None:
        if not self.gammas or len(self.gammas) != len(self.weights) or abs(sum(self.weights) - 1.0) > 1e-9:
            got = f"{len(self.gammas)} and {len(self.weights)}"
            hint = "MixedGuesses((0.5, 2.0), (0.5, 0.5))"
            raise InvalidInput("as many weights as drift ratios, of sum 1", got=got, where="MixedGuesses", hint=hint)

    @cached_property
    def parts(self) -> tuple[Guesses | DrawnShares, ...]:
        """The distribution at every γ; where overlaps differ over pairs, one that is drawn."""
        if self.pairs is not None:
            return (DrawnShares(self._shares(_networks(self.classes), SEED), self.points, SEED),)
        return tuple(Guesses(gamma, self.classes, self.points) for gamma in self.gammas)

    @property
    def drawn(self) -> bool:
        return self.pairs is not None

    @property
    def gamma(self) -> float:
        """The one γ whose distribution has the same variance of a fraction."""
        c = agreement_probability(self.classes).overlap(self.classes * self._var(None))
        return c / (1.0 - c) if c < 1.0 else math.inf

    def _var(self, points: int | None) -> float:
        each = (Guesses(gamma, self.classes, points).var() for gamma in self.gammas)
        return sum(w * v for w, v in zip(self.weights, each, strict=True))

    def _shares(self, size: int, seed: int) -> FloatArray:
        """Shares of infinitely many points, whose variance is the one that is known."""
        assert self.pairs is not None
        excess = self.classes * self._var(None)
        shape = many_classes.of_pairs(self.pairs)
        e = many_classes.strength(shape, round(excess, 12), self.classes, round(self.pairs.e, 9))
        even = 1.0 / self.classes
        stand_in = _stand_in(shape, e, self.classes)
        known = seed == SEED and size <= len(stand_in)
        drawn = stand_in if known else many_classes.draw_shares(shape, e, self.classes, size, seed)
        away = (drawn[:size] - even) * math.sqrt(excess / self.classes / float(stand_in.var()))
        share = np.maximum(even + away, 0.0)
        return share / share.sum(axis=1, keepdims=True)

    def _mean(self, values: Iterable[Any]) -> Any:
        weights = (1.0,) if self.drawn else self.weights
        return sum(w * v for w, v in zip(weights, values, strict=True))

    def _error(self, values: Iterable[Any]) -> Any:
        weights = (1.0,) if self.drawn else self.weights
        return np.sqrt(sum((w * np.asarray(v)) ** 2 for w, v in zip(weights, values, strict=True)))

    def _cdf(self, at: FloatArray) -> FloatArray:
        return self._mean(part.cdf(at) for part in self.parts)

    def _cdf_error(self, at: FloatArray) -> FloatArray:
        return self._error(part.cdf_error(at) for part in self.parts)

    @property
    def error(self) -> float:
        """The largest standard error that `cdf` has anywhere."""
        return float(self._error(part.error for part in self.parts))

    def _pdf(self, at: FloatArray) -> FloatArray:
        return self._mean(part.pdf(at) for part in self.parts)

    def _quantile(self, at: FloatArray) -> FloatArray:
        """Find the quantile by halving, to 1e-12 or to a count."""
        if self.drawn:
            return self.parts[0].quantile(at)
        each = np.array([np.atleast_1d(part.quantile(at)) for part in self.parts])
        low, high = each.min(axis=0) - 1e-12, each.max(axis=0)
        for _ in range(44):
            middle = 0.5 * (low + high)
            above = np.atleast_1d(self._cdf(middle)) >= np.atleast_1d(at)
            low, high = np.where(above, low, middle), np.where(above, middle, high)
        if self.points is not None:
            high = np.ceil(high * self.points - 1e-6) / self.points
        return high.reshape(at.shape)

    def _pmf(self, points: int) -> FloatArray:
        return self._mean(part.pmf() for part in self.parts)

    def var(self) -> float:
        """Var G_c, exactly: all networks have the same mean."""
        return self._var(self.points)

    def expected_max(self) -> float:
        return self._mean(part.expected_max() for part in self.parts)

    def expected_max_error(self) -> float:
        return float(self._error(part.expected_max_error() for part in self.parts))

    def _above(self, t: float) -> tuple[float, float]:
        value = self._mean(part.prob_max_above(t) for part in self.parts)
        return value, float(self._error(part.prob_max_above_error(t) for part in self.parts))

    def _sample(self, size: int, seed: int) -> FloatArray:
        if self.pairs is not None:
            share = self._shares(size, seed)
            if self.points is None:
                return share
            return np.random.default_rng([seed, 1]).multinomial(self.points, share) / self.points
        uniform = np.random.default_rng([seed, 2]).random(size)
        part = np.minimum(np.searchsorted(np.cumsum(self.weights), uniform), len(self.weights) - 1)
        found = np.empty((size, self.classes))
        for index, distribution in enumerate(self.parts):
            rows = part == index
            if rows.any():
                found[rows] = distribution.sample(size, seed)[rows]
        return found

    def __repr__(self) -> str:
        points = "" if self.points is None else f", points={self.points}"
        if self.pairs is not None:
            return f"MixedGuesses(drift ratio {self.gamma:.4g}, {self.pairs}, classes={self.classes}{points})"
        ends = f"{min(self.gammas):.4g} to {max(self.gammas):.4g}"
        return f"MixedGuesses({len(self.gammas)} networks' drift ratios from {ends}, classes={self.classes}{points})"

    def __str__(self) -> str:
        points = "" if self.points is None else f", {self.points} points"
        return (
            f"γ from {min(self.gammas):.4g} to {max(self.gammas):.4g} over networks, {self.classes} classes{points}: "
            f"the largest share is {self.expected_max():.3f} on average and above 0.9 with probability "
            f"{self.prob_max_above(0.9):.3f}"
        )


# The distribution of the shares at finite width, from how often two points get the same class and how networks differ.

_NETWORKS = 7  # Gauss-Hermite nodes over networks
_SMALL = 0.3  # mean overlaps up to which pairs differ more than networks do
_SEEN = 1e-3  # a share of E A that the spread over pairs may have without being seen
_ALIKE = 1e-3  # a standard deviation of ln(1 − c) over networks below which one γ stands for all


@lru_cache(maxsize=256)
def share_distribution(
    excess: float, differ: float, classes: int, points: int | None, pairs: PairMoments | None = None
) -> Guesses | MixedGuesses:
    """The distribution of G over networks whose average A is `excess` and whose ln(1 − c) has standard deviation
    `differ`.

    In one network (8) holds, with the γ of its own overlap; over networks y = −ln(1 − c) is Gaussian (theory.md (45)),
    about the mean with which the average of A is right. Where overlaps differ over `pairs` of points, and their mean is
    small, more than two classes have the distribution of `overlap_spectrum`.
    """
    same = agreement_probability(classes)
    c = same.overlap(excess)
    if pairs is not None and uneven(pairs, excess, classes):
        return MixedGuesses((c / (1.0 - c),), (1.0,), classes, points, pairs)
    if differ < _ALIKE or not 0.0 < c < 1.0:
        return Guesses(c / (1.0 - c) if c < 1.0 else math.inf, classes, points)
    z, w = gauss_hermite(_NETWORKS)

    def overlaps(middle: float) -> Array:
        return -np.expm1(-np.maximum(middle + differ * z, 0.0))

    def wrong(middle: float) -> float:
        return float(w @ same(overlaps(middle))) - excess

    start = -math.log1p(-c)
    low, high = start - 10.0 * differ, start + 10.0 * differ
    found = overlaps(find_root(wrong, low, high))
    return MixedGuesses(tuple((found / (1.0 - found)).tolist()), tuple(w.tolist()), classes, points)


def uneven(pairs: PairMoments, excess: float, classes: int) -> bool:
    """Whether the distribution of many classes shows that overlaps differ over pairs, and can be drawn."""
    if not 2 < classes <= many_classes.MOST_CLASSES or excess <= 0.0 or pairs.e > _SMALL or pairs.spread <= 0.0:
        return False
    by_spread = 0.5 * agreement_probability(classes).slopes_at_zero()[1] * pairs.spread
    return by_spread > _SEEN * excess
