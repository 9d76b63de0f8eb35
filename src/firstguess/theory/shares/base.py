"""What every distribution of class shares can be asked, whether it is known by a formula or by initializations."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal, Self, TypeAlias, overload

import numpy as np
from scipy import special

from firstguess.base import checks
from firstguess.base.checks import Numbers
from firstguess.base.errors import InvalidInput
from firstguess.base.record import Record, Shown
from firstguess.base.statistics import FloatArray
from firstguess.base.text import short, spaced, with_error
from firstguess.theory.shares.token_counts import EvenCounts

# A summary that has a standard error; ("prob_max_above", t) names its threshold.
Summary: TypeAlias = Literal["mean", "var", "std", "largest", "expected_max"] | tuple[Literal["prob_max_above"], float]
_DRAWN = 20_000  # networks that stand for the distribution of what has no formula
_NUMBERS = 20_000_000  # shares that are drawn at most
_POSITIONS = 128  # drawn, for probabilities at a temperature
SEED = 20261117


def at_steps(values: FloatArray, u: FloatArray) -> FloatArray:
    """The smallest of sorted values whose share of all is at least u."""
    return values[np.clip(np.ceil(u * len(values) - 1e-9).astype(np.int64) - 1, 0, len(values) - 1)]


@dataclass(frozen=True, eq=False)
class OverInits:
    """One number of every initialization: its `mean` with the standard error of that, and all `values`.

    `values` are sorted: those of the members that were measured, or of initializations drawn from the prediction (for
    two classes and infinitely many points its quantiles at even steps). An `error` of 0: the mean is exact.
    """

    mean: float
    error: float
    values: FloatArray = field(repr=False)

    @overload
    def cdf(self, at: float) -> float: ...
    @overload
    def cdf(self, at: Numbers) -> FloatArray: ...
    def cdf(self, at: float | Numbers) -> float | FloatArray:
        """The share of the initializations in which it is at most this."""
        x = checks.array(at, "a number", "cdf(at)")
        return checks.like(at, np.searchsorted(self.values, x + 1e-12, side="right") / len(self.values))

    @overload
    def quantile(self, u: float) -> float: ...
    @overload
    def quantile(self, u: Numbers) -> FloatArray: ...
    def quantile(self, u: float | Numbers) -> float | FloatArray:
        """The smallest value v with cdf(v) ≥ u."""
        return checks.like(
            u, at_steps(self.values, checks.unit(u, "a probability u from 0 to 1", "quantile(u)", "0.5"))
        )

    def std(self) -> float:
        """The standard deviation over initializations; NaN for one."""
        return float(self.values.std(ddof=1)) if len(self.values) > 1 else math.nan

    def __float__(self) -> float:
        return self.mean

    def __str__(self) -> str:
        low, high = (short(v) for v in self.quantile([0.05, 0.95]))
        mean = with_error(self.mean, self.error if self.error > 0.0 else math.nan)
        return f"{mean} on average, {low} to {high} in 90 % of the initializations"


def check_rank(k: object, classes: int) -> int:
    """A rank from 1, the largest, to the number of classes."""
    rank = checks.count(k, 1, "rank k", "kth_largest(k)", "k=1")
    if rank > classes:
        raise InvalidInput(f"a rank k from 1 to {classes}, the classes", got=k, where="kth_largest(k)", hint="k=2")
    return rank


def kth_values(fractions: FloatArray, k: int) -> FloatArray:
    """The k-th largest share of every row."""
    place = fractions.shape[1] - k
    return np.partition(fractions, place, axis=1)[:, place]


def entropies(fractions: FloatArray) -> FloatArray:
    """−Σ G ln G of every row, in nats; an empty class adds nothing.

    >>> entropies(np.array([[0.5, 0.5], [1.0, 0.0]])).round(6).tolist()
    [0.693147, 0.0]
    """
    return np.asarray(special.entr(fractions).sum(axis=1), dtype=np.float64)


def support_at(logits: FloatArray) -> FloatArray:
    """exp(H) of the probabilities that every row of logits gives.

    >>> support_at(np.array([[0.0, 0.0], [0.0, 1000.0]])).tolist()
    [2.0, 1.0]
    """
    return np.exp(entropies(special.softmax(logits, axis=1)))


def of_rows(values: FloatArray) -> OverInits:
    """Measured values, one for each initialization."""
    error = float(values.std(ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return OverInits(float(values.mean()), error, np.sort(values))


def predictive_support(
    variance: float, classes: int, temperature: float = 1.0, shift: float = 0.0, excess: float = 0.0
) -> OverInits:
    """exp(H) of what one position predicts at a temperature, for logits of this variance, drawn.

    V·exp(−σ²/2T²) while σ²/T² is well below 2 ln V: theory.md (53). Beyond it few tokens hold all probability. One
    logit stands `shift` standard deviations higher: the own token's, of a tied head. `excess` is the logits' kurtosis
    minus 3, to first order: below 0 where rows of the head are uniform.
    """
    rng = np.random.default_rng((SEED, classes))
    scale, own = math.sqrt(variance) / temperature, shift * (np.arange(classes) == 0)
    draws = (rng.standard_normal((1, classes)) for _ in range(_POSITIONS))
    rows = (scale * (z + excess / 24.0 * (z**3 - 3.0 * z) + own) for z in draws)
    return of_rows(np.array([support_at(row)[0] for row in rows]))


class ClassShares(Record, Shown):
    """The distribution of class shares (G_1..G_M) over initializations, and the summaries that all of its forms have.

    `classes` is M, `points` the number n of data points (None: infinitely many). `pdf`, `cdf`, `quantile` are of the
    share of any one class: before training all classes are alike. What is not exact has a standard error.
    """

    __slots__ = ()

    if TYPE_CHECKING:

        @property
        def classes(self) -> int: ...
        @property
        def points(self) -> int | None: ...

    @property
    def inits(self) -> int | None:
        """How many initializations it is known by; None: by a formula."""
        return None

    @property
    def drawn(self) -> bool:
        """Whether it is known by draws: a density is then that of a histogram."""
        return self.inits is not None

    def on_points(self, points: int | None) -> Self:
        """The same for `points` data points; one that was counted on data stays as it is."""
        return self if self.inits is not None else replace(self, points=points)  # type: ignore[type-var]

    # -- One share -----------------------------------------------------------------------------------------------

    @overload
    def cdf(self, g: float) -> float: ...
    @overload
    def cdf(self, g: Numbers) -> FloatArray: ...
    def cdf(self, g: float | Numbers) -> float | FloatArray:
        """P(G_c ≤ g), right-continuous. Two classes, n = ∞: Φ(Φ⁻¹(g)/√γ), theory.md (6).

        >>> from firstguess.theory.shares.gaussian import Guesses
        >>> Guesses(1.0).cdf([0.1, 0.5, 0.9]).round(12).tolist()  # γ = 1 is where two classes are uniform
        [0.1, 0.5, 0.9]
        """
        return checks.like(g, self._cdf(checks.array(g, "a class share g", "cdf(g)")))

    @overload
    def cdf_error(self, g: float) -> float: ...
    @overload
    def cdf_error(self, g: Numbers) -> FloatArray: ...
    def cdf_error(self, g: float | Numbers) -> float | FloatArray:
        """The standard error of `cdf(g)`: 0 for two classes by formula."""
        return checks.like(g, self._cdf_error(checks.array(g, "a class share g", "cdf_error(g)")))

    @overload
    def pdf(self, g: float) -> float: ...
    @overload
    def pdf(self, g: Numbers) -> FloatArray: ...
    def pdf(self, g: float | Numbers) -> float | FloatArray:
        """Density of G_c. Two classes, n = ∞: exp(½x²(1−1/γ))/√γ with x = Φ⁻¹(g), theory.md (6).

        Finite n: n·P(nG = the count nearest to n·g), which compares with a histogram's density. γ = 0 and γ = ∞ have
        no density for n = ∞: infinite at the fractions that do occur, 0 elsewhere. Of measured shares it is the height
        of `histogram()`: an average over a bin and not a smooth curve.

        >>> from firstguess.theory.shares.gaussian import Guesses
        >>> round(Guesses(4.0).pdf(0.5), 12), Guesses(0.25).pdf(0.0), Guesses(4.0).pdf(0.0)
        (0.5, 0.0, inf)
        """
        return checks.like(g, self._pdf(checks.array(g, "a class share g", "pdf(g)")))

    @overload
    def quantile(self, u: float) -> float: ...
    @overload
    def quantile(self, u: Numbers) -> FloatArray: ...
    def quantile(self, u: float | Numbers) -> float | FloatArray:
        """The smallest g with P(G_c ≤ g) ≥ u. Two classes, n = ∞: Φ(√γ·Φ⁻¹(u)), theory.md (6).

        >>> from firstguess.theory.shares.gaussian import Guesses
        >>> Guesses(9.0).quantile([0.1, 0.5, 0.9]).round(6).tolist()
        [6e-05, 0.5, 0.99994]
        """
        return checks.like(u, self._quantile(checks.unit(u, "a probability u from 0 to 1", "quantile(u)", "0.5")))

    def pmf(self) -> FloatArray:
        """P(n·G_c = k) for k = 0..n, theory.md (7); for M > 2 the same mixture over the distribution of G_c in (8).

        >>> from firstguess.theory.shares.gaussian import Guesses
        >>> Guesses(0.0, points=4).pmf().round(12).tolist()
        [0.0625, 0.25, 0.375, 0.25, 0.0625]
        """
        if self.points is None:
            hint = "points=1000, or pdf(g)"
            raise InvalidInput("a finite number of points", got="infinitely many", where="Guesses.pmf()", hint=hint)
        return self._pmf(self.points)

    def mean(self) -> float:
        """1/M: classes are alike before training."""
        return 1 / self.classes

    @abstractmethod
    def var(self) -> float:
        """Var G_c over initializations."""

    def std(self) -> float:
        """√var. For two classes, the standard deviation of G₀."""
        return math.sqrt(self.var())

    # -- The largest share ---------------------------------------------------------------------------------------

    @abstractmethod
    def expected_max(self) -> float:
        """E max_c G_c."""

    def expected_max_error(self) -> float:
        """The standard error of `expected_max`: 0 where it is exact."""
        return 0.0

    @overload
    def prob_max_above(self, t: float) -> float: ...
    @overload
    def prob_max_above(self, t: Numbers) -> FloatArray: ...
    def prob_max_above(self, t: float | Numbers) -> float | FloatArray:
        """P(max_c G_c > t). Two classes, n = ∞: 2Φ(−Φ⁻¹(t)/√γ), theory.md §3.

        M > 2: M·E[Φ(−max(z_r, z*))], the chance that class 1 leads and is above t, given the strongest rival's center
        z_r and the own center z* at which G_1 = t; rivals are drawn. With n data points, from `pmf` where t ≥ ½ (only
        one class can be above ½), else from simulated counts, with n = ∞ as control variate.

        >>> from firstguess.theory.shares.gaussian import Guesses
        >>> round(Guesses(1.0).prob_max_above(0.9), 12)
        0.2
        """
        return checks.like(t, self._max_above(t, "prob_max_above(t)")[0])

    @overload
    def prob_max_above_error(self, t: float) -> float: ...
    @overload
    def prob_max_above_error(self, t: Numbers) -> FloatArray: ...
    def prob_max_above_error(self, t: float | Numbers) -> float | FloatArray:
        """The standard error of `prob_max_above(t)`: 0 for two classes by formula."""
        return checks.like(t, self._max_above(t, "prob_max_above_error(t)")[1])

    def _max_above(self, t: float | Numbers, where: str) -> tuple[FloatArray, FloatArray]:
        at = checks.unit(t, "a fraction t from 0 to 1", where, "0.9")
        found = np.array([self._above(float(v)) for v in at.ravel()]).reshape(*at.shape, 2)
        return found[..., 0], found[..., 1]

    def kth_largest(self, k: int) -> OverInits:
        """The k-th largest share over initializations, measured or drawn (k = 1: the largest)."""
        return of_rows(kth_values(self._rows(), check_rank(k, self.classes)))

    def entropy(self) -> OverInits:
        """−Σ G ln G in nats over initializations: ln M if all classes get the same, 0 if one gets all."""
        return of_rows(entropies(self._rows()))

    # -- How many classes are guessed ----------------------------------------------------------------------------

    def effective_support(self) -> OverInits:
        """exp(−Σ G ln G), the number of classes that guesses spread over: M if all get the same, 1 if one gets all.

        >>> from firstguess.theory.shares.empirical import EmpiricalGuesses
        >>> EmpiricalGuesses(np.array([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]]), points=10).effective_support().values
        array([1., 2.])
        """
        return of_rows(np.exp(entropies(self._rows())))

    def same_guess(self) -> OverInits:
        """Σ G², the chance that two points, drawn with replacement, get the same guess."""
        return of_rows(np.square(self._rows()).sum(axis=1))

    def never(self, n: int | None = None) -> OverInits:
        """How many classes are guessed for none of n points (None: for none of all points).

        Of fewer points than were counted: the expectation over subsets of that size.
        """
        rows, points = self._rows(), self.points
        n = points if n is None else checks.count(n, 1, "number of points", "never(n)", "n=1000")
        if n is None or (points is not None and n > points):
            expected = "a number of points n" + (f" up to {points}" if points else "")
            raise InvalidInput(expected, got=n, where="never(n)", hint="n=1000")
        if points is None:
            return of_rows(np.exp(n * np.log1p(-np.minimum(rows, 1.0 - 1e-16))).sum(axis=1))
        left = points - np.rint(rows * points)  # points with another guess, of which all n have to be
        with np.errstate(invalid="ignore"):
            chance = np.exp(
                special.gammaln(left + 1) - special.gammaln(left - n + 1)
                + special.gammaln(points - n + 1) - special.gammaln(points + 1)
            )  # fmt: skip
        return of_rows(np.where(left >= n, chance, 0.0).sum(axis=1))

    def support_words(self) -> str:
        """How many classes are guessed, in a line."""
        spread, never = self.effective_support(), self.never()
        return (
            f"{with_error(spread.mean, spread.error)} (effective support; even guessing "
            f"{spaced(self.null().effective_support)}), {with_error(never.mean, never.error)} of "
            f"{spaced(self.classes)} never"
        )

    def null(self, n: int | None = None) -> EvenCounts:
        """What guesses that fall on every class equally often would show on n points (None: on all points)."""
        given = self.points if n is None else n
        if given is None:
            raise InvalidInput("a number of points n", got=n, where="null(n)", hint="null(1000)")
        return EvenCounts(self.classes, checks.count(given, 1, "number of points", "null(n)", "n=1000"))

    def _rows(self) -> FloatArray:
        """(initializations, classes) shares: measured, or drawn from the prediction."""
        return self.sample(max(64, min(_DRAWN, _NUMBERS // self.classes)), seed=SEED)

    # -- Accuracy and samples ------------------------------------------------------------------------------------

    def standard_error(self, what: Summary) -> float:
        """The standard error of a summary: `"std"`, `"var"`, `"largest"`, or `("prob_max_above", 0.9)`."""
        if isinstance(what, tuple):
            return self.prob_max_above_error(what[1])
        return self.expected_max_error() if what in ("largest", "expected_max") else 0.0

    def sample(self, size: int, seed: int = 0) -> FloatArray:
        """`size` draws of (G_1..G_M), theory.md (8), as rows that sum to 1: (size, classes). Finite n: counts/n.

        Row i depends on `seed` and i only, not on `size`; of measured shares these are bootstrap draws of members.

        >>> from firstguess.theory.shares.gaussian import Guesses
        >>> Guesses(1.0, classes=3, points=10).sample(2, seed=1).tolist()
        [[0.2, 0.5, 0.3], [0.0, 0.8, 0.2]]
        """
        size = checks.count(size, 1, "number of samples", "sample(size)", "size=1000")
        return self._sample(size, checks.count(seed, 0, "seed", "sample(seed)", "seed=0"))

    # -- What a form has to say ----------------------------------------------------------------------------------

    @abstractmethod
    def _cdf(self, at: FloatArray) -> FloatArray: ...
    def _cdf_error(self, at: FloatArray) -> FloatArray:
        return np.zeros_like(at)

    @abstractmethod
    def _pdf(self, at: FloatArray) -> FloatArray: ...
    @abstractmethod
    def _quantile(self, at: FloatArray) -> FloatArray: ...
    @abstractmethod
    def _pmf(self, points: int) -> FloatArray: ...
    @abstractmethod
    def _above(self, t: float) -> tuple[float, float]:
        """P(max > t) and its standard error."""

    @abstractmethod
    def _sample(self, size: int, seed: int) -> FloatArray: ...


class SharesByRow(ClassShares):
    """Shares that are known one initialization after the other, as rows of `fractions`: measured, or drawn."""

    _room = 0.0  # by which a share that equals a number may be above it, as rounded
    if TYPE_CHECKING:

        @property
        def fractions(self) -> FloatArray: ...

    @property
    def classes(self) -> int:
        """The number of classes M."""
        return self.fractions.shape[1]

    @cached_property
    def largest(self) -> FloatArray:
        """max_c G_c of every initialization."""
        return self.fractions.max(axis=1)

    @cached_property
    def _sorted(self) -> FloatArray:
        return np.sort(self.fractions, axis=None)

    def _cdf_error(self, at: FloatArray) -> FloatArray:
        """The error over initializations: classes of one are not independent."""
        below = np.array([(self.fractions <= v + self._room).mean(axis=1).std() for v in at.ravel()])
        return below.reshape(at.shape) / math.sqrt(len(self.fractions))

    def expected_max(self) -> float:
        """The average of max_c G_c."""
        return float(self.largest.mean())

    def _above(self, t: float) -> tuple[float, float]:
        share = float((self.largest > t + max(self._room, 1e-12)).mean())
        return share, math.sqrt(share * (1 - share) / len(self.largest))

    def _sample(self, size: int, seed: int) -> FloatArray:
        return self.fractions[np.random.default_rng(seed).integers(0, len(self.fractions), size=size)]
