"""The law of the guess fractions where networks differ: a mixture of laws, one γ each (theory.md (45))."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, overload

import numpy as np

from firstguess.base import checks
from firstguess.base.checks import Numbers
from firstguess.base.errors import InvalidInput
from firstguess.base.shown import Shown
from firstguess.base.statistics import FloatArray
from firstguess.theory.guesses import Guesses
from firstguess.theory.ranked import OverInits, check_rank, entropies, kth_values, of_rows
from firstguess.theory.same_class import same_class

_DRAWN = 20_000  # networks that stand for the law of what has no formula
_SEED = 20261117


@dataclass(frozen=True, repr=False)
class MixedGuesses(Shown):
    """Guess fractions over networks of finite width: the methods of `fg.Guesses`, each network with a γ of its own.

    `gammas` and `weights`: a quadrature over networks. What `Guesses` knows exactly is exact here too, for this
    mixture; `kth_largest` and `entropy` are drawn.

    >>> one, mixed = Guesses(1.0), MixedGuesses((0.5, 2.0), (0.5, 0.5))
    >>> print(f"{one.expected_max():.4f} {mixed.expected_max():.4f} {mixed.cdf(0.5):.4f}")
    0.7500 0.7500 0.5000
    """

    gammas: tuple[float, ...]
    weights: tuple[float, ...]
    classes: int = 2
    points: int | None = None

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
        infinite = sum(w * Guesses(g, self.classes).var() for g, w in zip(self.gammas, self.weights, strict=True))
        c = same_class(self.classes).overlap(self.classes * infinite)
        return c / (1.0 - c) if c < 1.0 else math.inf

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
        return self._mean([part.cdf(g) for part in self.parts])

    @overload
    def pdf(self, g: float) -> float: ...
    @overload
    def pdf(self, g: Numbers) -> FloatArray: ...
    def pdf(self, g: float | Numbers) -> float | FloatArray:
        """Density of G_c; n·P of the nearest count for finite n."""
        return self._mean([part.pdf(g) for part in self.parts])

    @overload
    def quantile(self, u: float) -> float: ...
    @overload
    def quantile(self, u: Numbers) -> FloatArray: ...
    def quantile(self, u: float | Numbers) -> float | FloatArray:
        """The smallest g with P(G_c ≤ g) ≥ u: by halving, to 1e-12 or to a count."""
        at = checks.unit(u, "a probability u from 0 to 1", "quantile(u)", "0.5")
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
        return self._mean([part.expected_max() for part in self.parts])

    def expected_max_error(self) -> float:
        """The standard error of `expected_max`: 0 unless M > 2 and n is finite."""
        return float(self._error([part.expected_max_error() for part in self.parts]))

    @overload
    def prob_max_above(self, t: float) -> float: ...
    @overload
    def prob_max_above(self, t: Numbers) -> FloatArray: ...
    def prob_max_above(self, t: float | Numbers) -> float | FloatArray:
        """P(max_c G_c > t)."""
        return self._mean([part.prob_max_above(t) for part in self.parts])

    @overload
    def prob_max_above_error(self, t: float) -> float: ...
    @overload
    def prob_max_above_error(self, t: Numbers) -> FloatArray: ...
    def prob_max_above_error(self, t: float | Numbers) -> float | FloatArray:
        """The standard error of `prob_max_above(t)`: 0 for two classes."""
        return checks.like(t, self._error([part.prob_max_above_error(t) for part in self.parts]))

    @overload
    def cdf_error(self, g: float) -> float: ...
    @overload
    def cdf_error(self, g: Numbers) -> FloatArray: ...
    def cdf_error(self, g: float | Numbers) -> float | FloatArray:
        """The standard error of `cdf(g)`: 0 for two classes."""
        return checks.like(g, self._error([part.cdf_error(g) for part in self.parts]))

    @property
    def error(self) -> float:
        """The largest standard error that `cdf` has anywhere."""
        return float(self._error([part.error for part in self.parts]))

    def kth_largest(self, k: int) -> OverInits:
        """The k-th largest fraction over networks, drawn."""
        return of_rows(kth_values(self.sample(_DRAWN, seed=_SEED), check_rank(k, self.classes)))

    def entropy(self) -> OverInits:
        """−Σ G ln G in nats over networks, drawn."""
        return of_rows(entropies(self.sample(_DRAWN, seed=_SEED)))

    def sample(self, size: int, seed: int = 0) -> FloatArray:
        """`size` draws of (G_1..G_M): (size, classes). Row i depends on `seed` and i only."""
        size = checks.count(size, 1, "number of samples", "sample(size)", "size=1000")
        seed = checks.count(seed, 0, "seed", "sample(seed)", "seed=0")
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
        return {"gammas": gammas, "weights": weights, "classes": self.classes, "points": self.points}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> MixedGuesses:
        """The inverse of `to_dict`."""
        return cls(
            tuple(float(g) for g in data["gammas"]), tuple(data["weights"]), data.get("classes", 2), data.get("points")
        )

    def __repr__(self) -> str:
        points = "" if self.points is None else f", points={self.points}"
        ends = f"{min(self.gammas):.4g} to {max(self.gammas):.4g}"
        return f"MixedGuesses({len(self.gammas)} networks' drift ratios from {ends}, classes={self.classes}{points})"

    def __str__(self) -> str:
        points = "" if self.points is None else f", {self.points} points"
        return (
            f"γ from {min(self.gammas):.4g} to {max(self.gammas):.4g} over networks, {self.classes} classes{points}: "
            f"the largest fraction is {self.expected_max():.3f} on average and above 0.9 with probability "
            f"{self.prob_max_above(0.9):.3f}"
        )
