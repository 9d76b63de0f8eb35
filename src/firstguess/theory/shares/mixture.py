"""The distribution of class shares where networks differ: a mixture of distributions, one γ each (theory.md (45)).

Of more than two classes it is another one where overlaps differ over pairs of points more than by their mean (nearly
even networks): drawn from `overlap_spectrum`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, cast, overload

import numpy as np
from scipy import special

from firstguess.base import checks
from firstguess.base.checks import Numbers
from firstguess.base.errors import InvalidInput
from firstguess.base.gaussian import Array
from firstguess.base.plottable import Shown
from firstguess.base.statistics import FloatArray
from firstguess.theory.shares.agreement import agreement_probability
from firstguess.theory.shares.gaussian import Guesses
from firstguess.theory.shares.many_classes import MOST_CLASSES, PairMoments, Spectrum, draw_shares, of_pairs, strength
from firstguess.theory.shares.order_statistics import OverInits, check_rank, entropies, kth_values, of_rows

# --------------------------------------------------------------------------------------------------------------
# A distribution of class shares that is known by draws: shares of infinitely many points, in many networks.

_BINS = 400  # groups of shares that are alike, for the distribution of a count


@dataclass(frozen=True, eq=False)
class DrawnShares:
    """What one share and the largest one are like, with standard errors; all classes are alike."""

    shares: FloatArray  # (networks, classes), of infinitely many points
    points: int | None
    seed: int

    @cached_property
    def counted(self) -> FloatArray:
        """Shares of `points` points of each network."""
        if self.points is None:
            return self.shares
        rng = np.random.default_rng([self.seed, 6])
        return rng.multinomial(self.points, self.shares) / self.points

    @cached_property
    def _sorted(self) -> FloatArray:
        return np.sort(self.shares, axis=None)

    @cached_property
    def pmf(self) -> FloatArray:
        """P(n·G = k): binomial, over the distribution of a share."""
        assert self.points is not None
        n, size = self.points, self._sorted.size
        ends = np.linspace(0, size, min(_BINS, size) + 1).astype(int)
        share = np.array([self._sorted[a:b].mean() for a, b in itertools.pairwise(ends)])
        k = np.arange(n + 1)
        ways = special.gammaln(n + 1) - special.gammaln(k + 1) - special.gammaln(n - k + 1)
        found = np.zeros(n + 1)
        for weight, g in zip(np.diff(ends) / size, share, strict=True):
            found += weight * np.exp(ways + special.xlogy(k, g) + special.xlog1py(n - k, -g))
        return found

    def cdf(self, g: FloatArray) -> FloatArray:
        if self.points is None:
            return np.searchsorted(self._sorted, g, side="right") / self._sorted.size
        at = np.floor(np.clip(g, -1.0, 1.0) * self.points + 1e-9).astype(int)
        total = np.concatenate([[0.0], np.cumsum(self.pmf)])
        return total[np.clip(at, -1, self.points) + 1]

    def pdf(self, g: FloatArray) -> FloatArray:
        """Of infinitely many points by a window of a quarter of a standard deviation."""
        if self.points is not None:
            inside = (g >= 0.0) & (g <= 1.0)
            nearest = np.floor(np.clip(g, 0.0, 1.0) * self.points + 0.5).astype(int)
            return np.where(inside, self.points * self.pmf[nearest], 0.0)
        half = 0.125 * float(self.shares.std())
        return (self.cdf(g + half) - self.cdf(g - half)) / (2.0 * half)

    def quantile(self, u: FloatArray) -> FloatArray:
        if self.points is None:
            size = self._sorted.size
            return self._sorted[np.clip(np.ceil(u * size - 1e-9).astype(int) - 1, 0, size - 1)]
        return np.minimum(np.searchsorted(np.cumsum(self.pmf), u - 1e-12), self.points) / self.points

    def cdf_error(self, g: FloatArray) -> FloatArray:
        """Over networks: classes of one are not independent."""
        at = np.asarray(g)
        below = np.array([(self.shares <= v).mean(axis=1).std() for v in at.ravel()]).reshape(at.shape)
        return below / math.sqrt(len(self.shares))

    @cached_property
    def largest(self) -> FloatArray:
        return self.counted.max(axis=1)

    def expected_max(self) -> tuple[float, float]:
        """And its standard error."""
        return float(self.largest.mean()), float(self.largest.std(ddof=1)) / math.sqrt(len(self.largest))

    def max_above(self, t: float) -> tuple[float, float]:
        """P(max G > t), and its standard error."""
        share = float((self.largest > t + 1e-12).mean())
        return share, math.sqrt(share * (1.0 - share) / len(self.largest))


_DRAWN = 20_000  # networks that stand for the distribution of what has no formula
_SEED = 20261117


def _networks(classes: int) -> int:
    """How many of them stand for the distribution: what takes about a second."""
    return round(min(max(4e5 / classes**2, 400), 3000))


@lru_cache(maxsize=16)
def _stand_in(shape: Spectrum, e: float, classes: int) -> FloatArray:
    """Networks that stand for all; the noise of drawing shares by points is in their variance, which is scaled away."""
    return draw_shares(shape, e, classes, _networks(classes), _SEED)


@dataclass(frozen=True, repr=False)
class MixedGuesses(Shown):
    """Class shares over networks of finite width: the methods of `fg.Guesses`, each network with a γ of its own.

    `gammas` and `weights`: a quadrature over networks. What `Guesses` knows exactly is exact here too, for this
    mixture; `kth_largest` and `entropy` are drawn. `pairs`: how overlaps of pairs differ within a network; then `var`
    and `std` are exact, and all else is drawn, with standard errors (`expected_max_error`, `cdf_error`, …).

    >>> one, mixed = Guesses(1.0), MixedGuesses((0.5, 2.0), (0.5, 0.5))
    >>> print(f"{one.expected_max():.4f} {mixed.expected_max():.4f} {mixed.cdf(0.5):.4f}")
    0.7500 0.7500 0.5000
    """

    gammas: tuple[float, ...]
    weights: tuple[float, ...]
    classes: int = 2
    points: int | None = None
    pairs: PairMoments | None = None

    def __post_init__(self) -> None:
        if not self.gammas or len(self.gammas) != len(self.weights) or abs(sum(self.weights) - 1.0) > 1e-9:
            raise InvalidInput(
                "as many weights as drift ratios, of sum 1",
                got=f"{len(self.gammas)} and {len(self.weights)}",
                where="MixedGuesses",
                hint="MixedGuesses((0.5, 2.0), (0.5, 0.5))",
            )

    @cached_property
    def parts(self) -> tuple[Guesses, ...]:
        """The distribution at every γ."""
        return tuple(Guesses(gamma, self.classes, self.points) for gamma in self.gammas)

    @property
    def gamma(self) -> float:
        """The one γ whose distribution has the same variance of a fraction."""
        c = agreement_probability(self.classes).overlap(self.classes * self._infinite_var())
        return c / (1.0 - c) if c < 1.0 else math.inf

    def _infinite_var(self) -> float:
        """Of a share of infinitely many points."""
        return sum(w * Guesses(g, self.classes).var() for g, w in zip(self.gammas, self.weights, strict=True))

    @cached_property
    def _drawn(self) -> DrawnShares | None:
        """The distribution by draws, where overlaps differ over pairs."""
        if self.pairs is None:
            return None
        return DrawnShares(self._shares(_networks(self.classes), _SEED), self.points, _SEED)

    def _shares(self, size: int, seed: int) -> FloatArray:
        """Shares of infinitely many points, whose variance is the one that is known."""
        assert self.pairs is not None
        excess = self.classes * self._infinite_var()
        shape = of_pairs(self.pairs)
        e = strength(shape, round(excess, 12), self.classes, round(self.pairs.e, 9))
        even = 1.0 / self.classes
        stand_in = _stand_in(shape, e, self.classes)
        drawn = stand_in if seed == _SEED and size <= len(stand_in) else draw_shares(shape, e, self.classes, size, seed)
        away = (drawn[:size] - even) * math.sqrt(excess / self.classes / float(stand_in.var()))
        share = np.maximum(even + away, 0.0)
        return share / share.sum(axis=1, keepdims=True)

    def _mean(self, values: list[Any]) -> Any:
        return sum(w * v for w, v in zip(self.weights, values, strict=True))

    def _error(self, values: list[Any]) -> Any:
        return np.sqrt(sum((w * np.asarray(v)) ** 2 for w, v in zip(self.weights, values, strict=True)))

    @overload
    def cdf(self, g: float) -> float: ...
    @overload
    def cdf(self, g: Numbers) -> FloatArray: ...
    def cdf(self, g: float | Numbers) -> float | FloatArray:
        """P(G_c ≤ g) over networks."""
        if self._drawn is not None:
            return checks.like(g, self._drawn.cdf(checks.array(g, "a class share g", "cdf(g)")))
        return self._mean([part.cdf(g) for part in self.parts])

    @overload
    def pdf(self, g: float) -> float: ...
    @overload
    def pdf(self, g: Numbers) -> FloatArray: ...
    def pdf(self, g: float | Numbers) -> float | FloatArray:
        """Density of G_c; n·P of the nearest count for finite n."""
        if self._drawn is not None:
            return checks.like(g, self._drawn.pdf(checks.array(g, "a class share g", "pdf(g)")))
        return self._mean([part.pdf(g) for part in self.parts])

    @overload
    def quantile(self, u: float) -> float: ...
    @overload
    def quantile(self, u: Numbers) -> FloatArray: ...
    def quantile(self, u: float | Numbers) -> float | FloatArray:
        """The smallest g with P(G_c ≤ g) ≥ u: by halving, to 1e-12 or to a count."""
        at = checks.unit(u, "a probability u from 0 to 1", "quantile(u)", "0.5")
        if self._drawn is not None:
            return checks.like(u, self._drawn.quantile(at))
        each = np.array([np.atleast_1d(part.quantile(at)) for part in self.parts])
        low, high = each.min(axis=0) - 1e-12, each.max(axis=0)
        for _ in range(44):
            middle = 0.5 * (low + high)
            above = np.atleast_1d(self.cdf(middle)) >= np.atleast_1d(at)
            low, high = np.where(above, low, middle), np.where(above, middle, high)
        if self.points is not None:
            high = np.ceil(high * self.points - 1e-6) / self.points
        return checks.like(u, high.reshape(at.shape))

    def pmf(self) -> FloatArray:
        """P(n·G_c = k) for k = 0..n."""
        if self._drawn is not None and self.points is not None:
            return self._drawn.pmf.copy()
        return self._mean([part.pmf() for part in self.parts])

    def mean(self) -> float:
        """1/M: classes are alike before training."""
        return 1 / self.classes

    def var(self) -> float:
        """Var G_c: all parts have the same mean."""
        return self._mean([part.var() for part in self.parts])

    def std(self) -> float:
        """√var."""
        return math.sqrt(self.var())

    def expected_max(self) -> float:
        """E max_c G_c."""
        if self._drawn is not None:
            return self._drawn.expected_max()[0]
        return self._mean([part.expected_max() for part in self.parts])

    def expected_max_error(self) -> float:
        """The standard error of `expected_max`: 0 unless M > 2 and n is finite, or it is drawn."""
        if self._drawn is not None:
            return self._drawn.expected_max()[1]
        return float(self._error([part.expected_max_error() for part in self.parts]))

    @overload
    def prob_max_above(self, t: float) -> float: ...
    @overload
    def prob_max_above(self, t: Numbers) -> FloatArray: ...
    def prob_max_above(self, t: float | Numbers) -> float | FloatArray:
        """P(max_c G_c > t)."""
        if self._drawn is not None:
            return self._above(t, 0)
        return self._mean([part.prob_max_above(t) for part in self.parts])

    def _above(self, t: float | Numbers, which: int) -> float | FloatArray:
        assert self._drawn is not None
        at = checks.unit(t, "a fraction t from 0 to 1", "prob_max_above(t)", "0.9")
        found = [self._drawn.max_above(float(v))[which] for v in at.ravel()]
        return checks.like(t, np.array(found).reshape(at.shape))

    @overload
    def prob_max_above_error(self, t: float) -> float: ...
    @overload
    def prob_max_above_error(self, t: Numbers) -> FloatArray: ...
    def prob_max_above_error(self, t: float | Numbers) -> float | FloatArray:
        """The standard error of `prob_max_above(t)`: 0 for two classes."""
        if self._drawn is not None:
            return self._above(t, 1)
        return checks.like(t, self._error([part.prob_max_above_error(t) for part in self.parts]))

    @overload
    def cdf_error(self, g: float) -> float: ...
    @overload
    def cdf_error(self, g: Numbers) -> FloatArray: ...
    def cdf_error(self, g: float | Numbers) -> float | FloatArray:
        """The standard error of `cdf(g)`: 0 for two classes."""
        if self._drawn is not None:
            return checks.like(g, self._drawn.cdf_error(checks.array(g, "a class share g", "cdf_error(g)")))
        return checks.like(g, self._error([part.cdf_error(g) for part in self.parts]))

    @property
    def error(self) -> float:
        """The largest standard error that `cdf` has anywhere."""
        if self._drawn is not None:
            return float(self._drawn.cdf_error(self._drawn.quantile(np.linspace(0.1, 0.9, 9))).max())
        return float(self._error([part.error for part in self.parts]))

    def kth_largest(self, k: int) -> OverInits:
        """The k-th largest share over networks, drawn."""
        return of_rows(kth_values(self.sample(_DRAWN, seed=_SEED), check_rank(k, self.classes)))

    def entropy(self) -> OverInits:
        """−Σ G ln G in nats over networks, drawn."""
        return of_rows(entropies(self.sample(_DRAWN, seed=_SEED)))

    def sample(self, size: int, seed: int = 0) -> FloatArray:
        """`size` draws of (G_1..G_M): (size, classes). Row i depends on `seed` and i only."""
        size = checks.count(size, 1, "number of samples", "sample(size)", "size=1000")
        seed = checks.count(seed, 0, "seed", "sample(seed)", "seed=0")
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

    def to_dict(self) -> dict[str, Any]:
        """Plain values; `from_dict` reads them back.

        >>> MixedGuesses.from_dict(MixedGuesses((0.5, 2.0), (0.5, 0.5)).to_dict())
        MixedGuesses(2 networks' drift ratios from 0.5 to 2, classes=2)
        """
        gammas, weights = list(self.gammas), list(self.weights)
        data = {"gammas": gammas, "weights": weights, "classes": self.classes, "points": self.points}
        return data | ({} if self.pairs is None else {"pairs": self.pairs._asdict()})

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> MixedGuesses:
        """The inverse of `to_dict`."""
        pairs = None if data.get("pairs") is None else PairMoments(**data["pairs"])
        gammas, weights = (tuple(float(v) for v in data[key]) for key in ("gammas", "weights"))
        return cls(gammas, weights, data.get("classes", 2), data.get("points"), pairs)

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


# --------------------------------------------------------------------------------------------------------------
# The distribution of the shares at finite width, from how often two points get the same class and how networks differ.

_NETWORKS = 7  # Gauss-Hermite nodes over networks
_SMALL = 0.3  # mean overlaps up to which pairs differ more than networks do
_SEEN = 1e-3  # a share of E A that the spread over pairs may have without being seen
_ALIKE = 1e-3  # a standard deviation of ln(1 − c) over networks below which one γ stands for all


@lru_cache(maxsize=8)
def gauss_hermite(nodes: int) -> tuple[Array, Array]:
    """Nodes and weights of an average over N(0, 1)."""
    z, w = np.polynomial.hermite_e.hermegauss(nodes)
    return z, w / w.sum()


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
    from scipy.optimize import brentq  # scipy.optimize takes 50 ms to import

    found = overlaps(cast(float, brentq(wrong, low, high)))
    return MixedGuesses(tuple((found / (1.0 - found)).tolist()), tuple(w.tolist()), classes, points)


def uneven(pairs: PairMoments, excess: float, classes: int) -> bool:
    """Whether the distribution of many classes shows that overlaps differ over pairs, and can be drawn."""
    if not 2 < classes <= MOST_CLASSES or excess <= 0.0 or pairs.e > _SMALL or pairs.spread <= 0.0:
        return False
    by_spread = 0.5 * agreement_probability(classes).slopes_at_zero()[1] * pairs.spread
    return by_spread > _SEEN * excess
