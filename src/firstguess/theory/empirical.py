"""The measured distribution of class shares, with the methods of the predicted one and error bars."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeAlias, overload

import numpy as np

from firstguess.base import checks, statistics
from firstguess.base.checks import Numbers
from firstguess.base.errors import InvalidInput
from firstguess.base.shown import Shown
from firstguess.base.statistics import Estimates, FloatArray, Interval
from firstguess.theory import intervals
from firstguess.theory.ranked import OverInits, check_rank, entropies, kth_values, of_rows

# A summary that has an interval; ("prob_max_above", t) names its threshold.
Summary: TypeAlias = Literal["mean", "var", "std", "expected_max"] | tuple[Literal["prob_max_above"], float]


@dataclass(frozen=True, eq=False, repr=False)
class EmpiricalGuesses(Shown):
    """Class shares as an ensemble shows them: the methods of `fg.Guesses`, and `interval` for their errors.

    `fractions[r, c]` is the share of the `points` data points that member r puts in class c. `pdf`, `cdf`, `quantile`
    are those of the fraction of a class chosen at random: theory says that all classes are alike, and pooling them uses
    all that was measured. `var` and `std` are over initializations only (about each class's own mean, averaged over
    classes), so they stay what they are called for a head that prefers a class; the pooled law is wider by the
    variance of `class_means`, which is 0 in theory.

    >>> from firstguess.theory.guesses import Guesses
    >>> measured = EmpiricalGuesses(Guesses(1.0, points=1000).sample(500), points=1000)
    >>> print(measured)
    500 initializations, 2 classes, 1000 points: the largest share is 0.746 ± 0.006 on average and above 0.9
    with probability 0.180 ± 0.017
    >>> low, high = measured.interval("std")
    >>> print(f"{measured.std():.3f} ({low:.3f} to {high:.3f})")
    0.283 (0.272 to 0.294)
    """

    fractions: FloatArray
    points: int
    seed: int = 0  # of the bootstrap

    def __post_init__(self) -> None:
        fractions = np.array(self.fractions, dtype=np.float64)  # a copy: nobody else can change it
        if fractions.ndim != 2 or not len(fractions) or fractions.shape[1] < 2:
            raise InvalidInput(
                "fractions as an array (inits, classes)", got=f"shape {fractions.shape}", where="EmpiricalGuesses"
            )
        if not (np.abs(fractions.sum(axis=1) - 1) < 1e-6).all() or fractions.min() < 0:
            raise InvalidInput("fractions whose rows sum to 1", got="rows that do not", where="EmpiricalGuesses")
        fractions.flags.writeable = False
        object.__setattr__(self, "fractions", fractions)
        object.__setattr__(
            self, "points", checks.count(self.points, 1, "number of data points", "EmpiricalGuesses", "points=1000")
        )

    @property
    def inits(self) -> int:
        """The number of initializations."""
        return self.fractions.shape[0]

    @property
    def classes(self) -> int:
        """The number of classes M."""
        return self.fractions.shape[1]

    @property
    def class_means(self) -> FloatArray:
        """The average fraction of every class: 1/M each where classes are alike."""
        return self.fractions.mean(axis=0)

    @cached_property
    def largest(self) -> FloatArray:
        """max_c G_c of every initialization."""
        return self.fractions.max(axis=1)

    @cached_property
    def _sorted(self) -> FloatArray:
        return np.sort(self.fractions, axis=None)

    # -- One fraction --------------------------------------------------------------------------------------------

    @overload
    def cdf(self, g: float) -> float: ...
    @overload
    def cdf(self, g: Numbers) -> FloatArray: ...
    def cdf(self, g: float | Numbers) -> float | FloatArray:
        """The share of all fractions (of all members and classes) that are at most g.

        >>> EmpiricalGuesses(np.array([[0.2, 0.8], [0.4, 0.6]]), points=5).cdf([0.1, 0.4, 0.7, 1.0]).tolist()
        [0.0, 0.5, 0.75, 1.0]
        """
        at = checks.array(g, "a class share g", "cdf(g)")
        # k/n computed in two ways may differ in the last digit: half a count of room decides it.
        near = at + 1e-9 / self.points
        return checks.like(g, np.searchsorted(self._sorted, near, side="right") / self._sorted.size)

    @overload
    def quantile(self, u: float) -> float: ...
    @overload
    def quantile(self, u: Numbers) -> FloatArray: ...
    def quantile(self, u: float | Numbers) -> float | FloatArray:
        """The smallest fraction g that occurs with cdf(g) ≥ u."""
        at = checks.unit(u, "a probability u from 0 to 1", "quantile(u)", "0.5")
        size = self._sorted.size
        return checks.like(u, self._sorted[np.clip(np.ceil(at * size - 1e-9).astype(np.int64) - 1, 0, size - 1)])

    def histogram(self, bins: int | None = None) -> tuple[FloatArray, FloatArray]:
        """Edges (bins + 1,) and densities (bins,) of all fractions; by default 2·R^⅓ bins for R initializations.

        Fractions are counts k/n, so a bin is a run of counts: edges lie half a count beside one, the first at −1/2n
        and the last at 1 + 1/2n, and no bin is empty only because no count falls into it.

        >>> edges, density = EmpiricalGuesses(np.array([[0.0, 1.0], [0.5, 0.5]]), points=2).histogram()
        >>> edges.tolist(), density.tolist()
        ([-0.25, 0.25, 0.75, 1.25], [0.5, 1.0, 0.5])
        """
        wanted = math.ceil(2 * self.inits ** (1 / 3)) if bins is None else bins
        wanted = checks.count(wanted, 1, "number of bins", "histogram(bins)", "bins=20")
        wanted = min(wanted, self.points + 1)
        bounds = np.round(np.linspace(0, self.points + 1, wanted + 1))
        edges = (bounds - 0.5) / self.points
        counts = np.diff(np.searchsorted(self._sorted, edges[1:-1], side="right"), prepend=0, append=self._sorted.size)
        return edges, counts / self._sorted.size / np.diff(edges)

    @overload
    def pdf(self, g: float) -> float: ...
    @overload
    def pdf(self, g: Numbers) -> FloatArray: ...
    def pdf(self, g: float | Numbers) -> float | FloatArray:
        """Density of a fraction: the height of `histogram()`, so an average over a bin and not a smooth curve."""
        at = checks.array(g, "a class share g", "pdf(g)")
        edges, density = self.histogram()
        cell = np.clip(np.searchsorted(edges, at, side="right") - 1, 0, len(density) - 1)
        return checks.like(g, np.where((at >= 0) & (at <= 1), density[cell], 0.0))

    def mean(self) -> float:
        """1/M: fractions sum to 1. For each class see `class_means`."""
        return 1 / self.classes

    def var(self) -> float:
        """Variance of a fraction over initializations, unbiased (R − 1), averaged over classes; NaN for one member."""
        return self.std() ** 2

    def std(self) -> float:
        """√var. For two classes, the standard deviation of G₀."""
        return float(statistics.spread(self.fractions, level=None).value[0])

    # -- The largest share ------------------------------------------------------------------------------------

    def expected_max(self) -> float:
        """The average of max_c G_c."""
        return float(self.largest.mean())

    @overload
    def prob_max_above(self, t: float) -> float: ...
    @overload
    def prob_max_above(self, t: Numbers) -> FloatArray: ...
    def prob_max_above(self, t: float | Numbers) -> float | FloatArray:
        """The share of the initializations whose largest share is above t."""
        at = checks.unit(t, "a fraction t from 0 to 1", "prob_max_above(t)", "0.9")
        near = at + 1e-9 / self.points
        return checks.like(t, 1 - np.searchsorted(np.sort(self.largest), near, side="right") / self.inits)

    def kth_largest(self, k: int) -> OverInits:
        """The k-th largest share of every initialization: its mean with standard error, and its law.

        >>> print(EmpiricalGuesses(np.array([[0.2, 0.7, 0.1], [0.4, 0.3, 0.3]]), points=10).kth_largest(2).values)
        [0.2 0.3]
        """
        return of_rows(kth_values(self.fractions, check_rank(k, self.classes)))

    def entropy(self) -> OverInits:
        """−Σ G ln G of every initialization, in nats: its mean with standard error, and its law."""
        return of_rows(entropies(self.fractions))

    # -- Errors --------------------------------------------------------------------------------------------------

    def interval(self, what: Summary, *, level: float = 0.95) -> Interval:
        """The interval of a summary: `"std"`, `"var"`, `"expected_max"`, or `("prob_max_above", 0.9)`.

        By the predicted distribution where the members follow it, else by their own variance (docs/intervals.md has how
        often they hold); Wilson's interval for `prob_max_above`. One initialization has none: (nan, nan). Where all
        agree, nothing varies: the interval is then what the initializations that were not seen can change.

        >>> EmpiricalGuesses(np.tile([1.0, 0.0], (30, 1)), points=10).interval(("prob_max_above", 0.9))[1]
        1.0
        """
        if not 0 < checks.number(level) < 1:
            raise InvalidInput("a level between 0 and 1", got=level, where="interval(level)", hint="level=0.95")
        if what == "mean":
            return (1 / self.classes, 1 / self.classes)
        value = self._above(what) if isinstance(what, tuple) else float(self._estimate(what, None).value[0])
        if self.inits < 2:
            return (math.nan, math.nan)
        if isinstance(what, tuple):
            return statistics.proportion(round(value * self.inits), self.inits, level=level)
        if what == "expected_max":
            return self._interval_of_max(level)
        low, high = self._interval_of_std(level)
        return (low * low, high * high) if what == "var" else (low, high)

    def _interval_of_max(self, level: float) -> Interval:
        mean = self.expected_max()
        if float(np.ptp(self.largest)) <= 1e-12:
            share = statistics.unseen(self.inits, level=level)
            return (mean - share * (mean - 1 / self.classes), mean + share * (1.0 - mean))
        low, high = intervals.of_expected_max(self.largest, self.classes, self.points, level)
        return (min(low, mean), max(high, mean))

    def _interval_of_std(self, level: float) -> Interval:
        std = self.std()
        if float(np.ptp(self.fractions, axis=0).max()) <= 1e-12:
            # A share p of members elsewhere makes Σ_c Var G_c ≤ p(1 − p)·|g − g'|², and two fractions are √2 apart.
            share = min(0.5, statistics.unseen(self.inits, level=level))
            return (0.0, math.sqrt(2 * share * (1 - share) / self.classes))
        found = intervals.of_spread(self.fractions, level)
        if found is None:
            rows = self.fractions[np.lexsort(self.fractions.T)]  # so that the order of members does not matter
            boot = statistics.spread(rows, seed=self.seed, level=level)
            found = (float(boot.low[0]), float(boot.high[0]))
        # Σ_c (G_c − mean_c)² ≤ 1 − 1/M, reached when one class gets all and each is as likely.
        return (min(std, found[0]), max(std, min(found[1], math.sqrt((1 - 1 / self.classes) / self.classes))))

    def standard_error(self, what: Summary) -> float:
        """The standard error of a summary (infinitesimal jackknife; for `prob_max_above` that of a binomial share)."""
        if what == "mean":
            return 0.0
        if isinstance(what, tuple):
            share = self._above(what)
            return math.sqrt(share * (1 - share) / self.inits)
        error = float(self._estimate(what, None).error[0])
        return 2 * self.std() * error if what == "var" else error

    def chance(self, what: Literal["std", "expected_max"], truth: float, *, room: float = 0.0) -> float:
        """The p-value of a true value of a summary, whose own standard error is `room`: how unlikely this would be."""
        found = self._estimate(what, None)
        error = math.hypot(float(found.error[0]), room)
        difference = float(found.value[0]) - truth
        if abs(difference) < 1e-12 or math.isnan(difference) or math.isnan(error):
            return 1.0
        z = difference / error if error > 0 else math.copysign(math.inf, difference)
        return statistics.chance(z, float(found.skew[0]), self.inits)

    def _estimate(self, what: str, level: float | None) -> Estimates:
        if what in ("std", "var"):
            return statistics.spread(self.fractions, seed=self.seed, level=level)
        if what == "expected_max":
            return statistics.means(self.largest[:, None], seed=self.seed, level=level)
        raise InvalidInput(
            'a summary: "std", "var", "mean", "expected_max" or ("prob_max_above", t)',
            got=repr(what),
            where="EmpiricalGuesses",
            hint='interval("std")',
        )

    def _above(self, what: tuple[str, float]) -> float:
        if len(what) != 2 or what[0] != "prob_max_above":
            raise InvalidInput('a summary such as ("prob_max_above", 0.9)', got=repr(what), where="EmpiricalGuesses")
        return self.prob_max_above(float(what[1]))

    # -- Samples, exchange ---------------------------------------------------------------------------------------

    def sample(self, size: int, seed: int = 0) -> FloatArray:
        """`size` members drawn with replacement: bootstrap draws of (G_1..G_M), (size, classes)."""
        size = checks.count(size, 1, "number of samples", "sample(size)", "size=1000")
        seed = checks.count(seed, 0, "seed", "sample(seed)", "seed=0")
        return self.fractions[np.random.default_rng(seed).integers(0, self.inits, size=size)]

    def to_dict(self) -> dict[str, Any]:
        """Plain values; `from_dict` reads them back."""
        return {"fractions": self.fractions.tolist(), "points": self.points, "seed": self.seed}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> EmpiricalGuesses:
        """The inverse of `to_dict`."""
        missing = {"fractions", "points"} - set(data)
        if missing:
            raise InvalidInput("the keys fractions, points", got=sorted(data), where="EmpiricalGuesses.from_dict")
        return cls(np.asarray(data["fractions"], dtype=np.float64), data["points"], data.get("seed", 0))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, EmpiricalGuesses):
            return NotImplemented
        same = (self.points, self.seed) == (other.points, other.seed)
        return same and np.array_equal(self.fractions, other.fractions)

    def __repr__(self) -> str:
        return f"EmpiricalGuesses({self.inits} initializations, {self.classes} classes, points={self.points})"

    def __str__(self) -> str:
        often: Summary = ("prob_max_above", 0.9)
        size = f"{self.inits} initializations, {self.classes} classes, {self.points} points"
        if self.inits < 2:
            return f"{size}: the largest share is {self.expected_max():.3f}; no error from one initialization"
        return (
            f"{size}: the largest share is "
            f"{self.expected_max():.3f} ± {self.standard_error('expected_max'):.3f} on average and above 0.9 with "
            f"probability {self.prob_max_above(0.9):.3f} ± {self.standard_error(often):.3f}"
        )
