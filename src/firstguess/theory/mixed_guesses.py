"""The distribution of class shares where networks differ: a mixture of laws, one γ each (theory.md (45)).

Of more than two classes it is another one where overlaps differ over pairs of points more than by their mean (nearly
even networks): drawn from `overlap_spectrum`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, overload

import numpy as np

from firstguess.base import checks
from firstguess.base.checks import Numbers
from firstguess.base.errors import InvalidInput
from firstguess.base.shown import Shown
from firstguess.base.statistics import FloatArray
from firstguess.theory.drawn_shares import DrawnShares
from firstguess.theory.guesses import Guesses
from firstguess.theory.overlap_spectrum import Spectrum, draw_shares, of_pairs, strength
from firstguess.theory.pair_moments import PairMoments
from firstguess.theory.ranked import OverInits, check_rank, entropies, kth_values, of_rows
from firstguess.theory.same_class import same_class

_DRAWN = 20_000  # networks that stand for the law of what has no formula
_SEED = 20261117


def _networks(classes: int) -> int:
    """How many of them stand for the law: what takes about a second."""
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
        """The law at every γ."""
        return tuple(Guesses(gamma, self.classes, self.points) for gamma in self.gammas)

    @property
    def gamma(self) -> float:
        """The one γ whose law has the same variance of a fraction."""
        c = same_class(self.classes).overlap(self.classes * self._infinite_var())
        return c / (1.0 - c) if c < 1.0 else math.inf

    def _infinite_var(self) -> float:
        """Of a share of infinitely many points."""
        return sum(w * Guesses(g, self.classes).var() for g, w in zip(self.gammas, self.weights, strict=True))

    @cached_property
    def _drawn(self) -> DrawnShares | None:
        """The law by draws, where overlaps differ over pairs."""
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
        for index, law in enumerate(self.parts):
            rows = part == index
            if rows.any():
                found[rows] = law.sample(size, seed)[rows]
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
