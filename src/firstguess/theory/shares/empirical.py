"""The measured distribution of class shares, with the methods of the predicted one and error bars."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt
from scipy import special

from firstguess.base import checks, statistics
from firstguess.base.errors import InvalidInput
from firstguess.base.numerics import find_root
from firstguess.base.statistics import Estimates, FloatArray, Interval
from firstguess.theory.shares.base import SharesByRow, Summary, at_steps

# Intervals of E max_c G_c and of the standard deviation of G over initializations, calibrated by the distribution of G.
#
# Fractions crowd at the ends of [0, 1], so the bootstrap fails where it matters: of 20 members of a deeply biased
# network 19 put everything into one class and one does not. Here the distribution itself says how an average of R
# members scatters. The guess-equivalent γ of theory.md (8) makes the variance of a member a function of its mean
# (`_variance`), the average is taken as Beta with these two moments, and an end of the interval is the truth at which
# what was seen is just not yet too unlikely (Neyman). Where nearly all members are at the end, an average is a few
# jumps: two classes of theory.md (8) then compete, 1 − max G = Φ(−x) with x uniform, and their sum is a compound
# Poisson distribution without any other parameter.
#
# Networks that do not follow the distribution: the members' own variance replaces the distribution's where it is
# larger, and where it is smaller than the distribution allows; where classes differ, `of_spread` leaves it to the
# bootstrap. No random numbers, and the order of members does not matter. How often these intervals hold:
# docs/intervals.md.

_SURE = 1e-3  # chance, from which on a variance is below what the distribution allows
_DIFFER = 0.01  # chance, from which on classes are not alike
_JUMPS = 1.0  # Σ(1 − max G) up to which the members away from the end are few enough to be counted
_SOME = 5.0  # members away from the end that weigh as much as the distribution
_FAR = 30.0  # logit of what stands for 0 and 1

# Var/(m²(1 − m)) of (max G − 1/M)/(1 − 1/M) and of Σ(G − 1/M)²/(1 − 1/M) at their means m, for M classes by the
# distribution of theory.md (8), n = ∞: benchmarks/intervals.py table.
MEANS = (0.0, 0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.96, 1.0)
CLASSES = (2, 3, 5, 10, 30, 100, 1000)
_LARGEST = (
    (0.572, 0.598, 0.621, 0.653, 0.672, 0.666, 0.647, 0.622, 0.604, 0.592, 0.586),
    (0.313, 0.342, 0.368, 0.410, 0.449, 0.465, 0.466, 0.457, 0.449, 0.442, 0.439),
    (0.183, 0.217, 0.248, 0.299, 0.349, 0.374, 0.382, 0.380, 0.376, 0.369, 0.366),
    (0.104, 0.148, 0.187, 0.250, 0.306, 0.332, 0.340, 0.338, 0.334, 0.334, 0.325),
    (0.051, 0.121, 0.176, 0.251, 0.303, 0.319, 0.319, 0.310, 0.302, 0.298, 0.303),
    (0.029, 0.152, 0.228, 0.310, 0.349, 0.346, 0.331, 0.316, 0.304, 0.290, 0.296),
    (0.012, 0.246, 0.319, 0.369, 0.374, 0.360, 0.341, 0.320, 0.308, 0.299, 0.293),
)
_SQUARES = (
    (2.014, 1.817, 1.659, 1.419, 1.176, 1.010, 0.889, 0.797, 0.747, 0.718, 0.702),
    (0.995, 0.964, 0.934, 0.869, 0.778, 0.701, 0.638, 0.585, 0.555, 0.535, 0.526),
    (0.500, 0.568, 0.602, 0.619, 0.595, 0.557, 0.519, 0.485, 0.464, 0.446, 0.439),
    (0.224, 0.362, 0.442, 0.504, 0.510, 0.488, 0.458, 0.427, 0.410, 0.404, 0.390),
    (0.070, 0.291, 0.412, 0.492, 0.491, 0.460, 0.424, 0.390, 0.370, 0.363, 0.363),
    (0.020, 0.382, 0.529, 0.592, 0.546, 0.482, 0.433, 0.398, 0.372, 0.351, 0.355),
    (0.002, 0.623, 0.691, 0.653, 0.566, 0.498, 0.444, 0.399, 0.376, 0.362, 0.351),
)


def of_expected_max(largest: FloatArray, classes: int, points: int, level: float = 0.95) -> Interval:
    """An interval of the mean of max_c G_c over initializations, from those of two or more that do not all agree.

    >>> low, high = of_expected_max(np.array([1.0] * 45 + [0.87]), 10, 1000)
    >>> print(f"{low:.3f} {high:.3f}")
    0.979 1.000
    """
    room = 1.0 - 1.0 / classes
    away = 1.0 - largest
    if float(away.sum()) < _JUMPS:
        few = _few_jumps(away, points, level)
        if few is not None:
            return (max(1.0 / classes, few[0]), few[1])
    low, high = _beta(largest, classes, points, level, free=float(away.sum()) < _JUMPS)
    return (1.0 / classes + room * low, 1.0 / classes + room * high)


def of_spread(fractions: FloatArray, level: float = 0.95) -> Interval | None:
    """An interval of the standard deviation over initializations, averaged over classes; None where classes differ.

    T = Σ_rc (G_rc − mean_c)²/(R(1 − 1/M)) lies in [0, 1] with mean (1 − 1/R)·q, q = Var G/(its largest value). Besides
    the members' own variance T has that of the class means, q·χ²_{M−1}/((M − 1)R), which is all that is left of it
    where every member puts all into one class.
    """
    inits, classes = fractions.shape
    room = 1.0 - 1.0 / classes
    means = fractions.mean(axis=0)
    square = np.square(fractions - means).sum(axis=1) / room
    seen = float(square.mean())
    q = min(seen * inits / (inits - 1), 1.0)
    between = float(np.square(means - 1.0 / classes).sum()) / room
    if between * inits * (classes - 1) > q * special.chdtri(classes - 1, _DIFFER):
        return None
    curve = _table(_SQUARES, classes)
    tail = 0.5 * (1.0 - level)
    distribution = _variance(curve, q, 1.0 - q)
    part = 1.0
    if q < 1.0 - 1e-6:
        # About means that are those of these members the squares vary more, though they say nothing more.
        scaled = float(square.var(ddof=1)) / (distribution + 4.0 * q * between / (classes - 1))
        part = _part(scaled, q, distribution, inits, level, 0.2)
    shrunk = 1.0 - 1.0 / inits

    def below(t: float, x: float) -> float:
        mean, rest = _share(x), _share(-x)
        variance = shrunk**2 * part * _variance(curve, mean, rest) / inits + 2 * (mean / inits) ** 2 / (classes - 1)
        return _beta_cdf(t, shrunk * mean, 1.0 - shrunk * mean, variance)

    # Members that put all into one class make T a count. Half a count next to it is what is below "at least this".
    step = (1.0 / inits + 2.0 * math.sqrt(between) if classes == 2 else 1.0 / (inits * room)) / inits
    even = 0.5 * classes * math.log(classes) - 0.5 * (classes - 1) * math.log(2 * math.pi * inits)
    balanced = math.exp(min(even, 0.0))  # the chance that all classes lead as often, by Stirling

    def missed_above(x: float) -> float:
        """What the upper end may miss: all, if what would be missed at the lower one is a count of its own."""
        top = balanced * math.exp(-inits * _share(-x) * room / _JUMP_SQUARE * 3.3)
        return 2.0 * tail - max(0.0, tail - top)

    start = float(special.logit(min(max(q, _share(-_FAR)), _share(_FAR))))
    high = _first(lambda x: missed_above(x) - below(seen, x), start, _FAR)
    under = max(seen - step * q**10, 0.0)
    low = _first(lambda x: 1.0 - below(under, x) - tail, -_FAR, start)
    scale = math.sqrt(room / classes)
    end = 1.0 if high >= _FAR else _share(high)
    return (scale * math.sqrt(_share(low)), scale * math.sqrt(end))


def _beta(largest: FloatArray, classes: int, points: int, level: float, *, free: bool) -> Interval:
    """An interval of the mean of x = (max G − 1/M)/(1 − 1/M), in [0, 1]; by their own variance alone if `free`."""
    room = 1.0 - 1.0 / classes
    x = (largest - 1.0 / classes) / room
    inits, seen = len(x), float(x.mean())
    curve, tail = _table(_LARGEST, classes), 0.5 * (1.0 - level)
    distribution = _variance(curve, seen, 1.0 - seen)
    own = float(x.var(ddof=1)) / distribution
    part = own * _student(inits, level) if free else _part(own, seen, distribution, inits, level, 1.0)

    def below(x: float) -> float:
        mean, rest = _share(x), _share(-x)
        return _beta_cdf(seen, mean, rest, part * _variance(curve, mean, rest) / inits)

    start = float(special.logit(seen))
    low = _first(lambda x: 1.0 - below(x) - tail, -_FAR, start)
    high = _first(lambda x: _missed_above(inits * room * _share(-x), points, tail) - below(x), start, _FAR)
    return (_share(low), _share(high))


def _part(own: float, mean: float, distribution: float, inits: int, level: float, trust: float) -> float:
    """The factor on the distribution's variance, from that of the members over it: their own where that is larger, and
    where it is smaller than the distribution allows; else at least the distribution's, but for `trust` standard errors
    of their own."""
    # the relative standard deviation of a variance of members that are Beta with this mean and variance
    size = max(mean * (1.0 - mean) / distribution - 1.0, 1e-9)
    a, b = mean * size, (1.0 - mean) * size
    excess = 6.0 * ((a - b) ** 2 * (size + 1.0) - a * b * (size + 2.0)) / (a * b * (size + 2.0) * (size + 3.0))
    scatter = math.sqrt((excess + 2.0) / inits)
    shape = 1.0 / scatter**2
    if own < special.gammaincinv(shape, _SURE) / shape or own > 1.0 + 2.0 * scatter:
        return own * _student(inits, level)
    return max(1.0 - trust * scatter, 0.5, own)


def _student(inits: int, level: float) -> float:
    upper = 0.5 + 0.5 * level
    return float(special.stdtrit(inits - 1, upper) / special.ndtri(upper)) ** 2


# -- A few members away from the end -----------------------------------------------------------------------------

_BINS = 256  # a unit
_RANGE = 16  # units: sums reach 9 ± 5·1.6
_MOST_JUMPS = 9.0  # expected, with none of them: 1e-10
_MEAN_JUMP = 1.0 / math.sqrt(2.0 * math.pi)  # ∫ Φ(−x) dx over x > 0
_JUMP_SQUARE = 1.0 / math.sqrt(math.pi)  # ∫ 2Φ(−x)Φ(x) dx over x > 0
_SIZE = 1.0 - 1.0 / math.sqrt(2.0)  # ∫ Φ(−x)² dx over ∫ Φ(−x) dx


def _few_jumps(away: FloatArray, points: int, level: float) -> Interval | None:
    """An interval of 1 − mean(away), where Σ away is small; None if these are not the jumps of the distribution."""
    inits, total = len(away), float(away.sum())
    square = float(np.square(away).sum())
    half = 0.5 * total / inits
    # As many members away from the end by at least half the mean: the distribution has few that are.
    if special.pdtrc(int((away >= half).sum()) - 1, -total / _MEAN_JUMP * special.ndtri(half)) < 1e-5:
        return None
    number = total * total / square
    part = 1.0 + (max(square / total / _SIZE, 0.8) - 1.0) * number / (number + _SOME)
    tail = 0.5 * (1.0 - level)

    def below(t: float, mean: float) -> float:
        distribution = _compound(mean / part)
        return float(np.interp(t / part * _BINS, np.arange(len(distribution)) + 0.5, distribution))

    least = _first(lambda mean: 1.0 - below(total - 0.5 / _BINS, mean) - _missed_above(mean, points, tail), 0.0, total)
    most = _first(lambda mean: tail - below(total, mean), total, _MOST_JUMPS)
    return (1.0 - most / inits, 1.0 - least / inits)


def _missed_above(mean: float, points: int, tail: float) -> float:
    """What the upper end may miss where Σ(1 − max G) has this mean: one tail, and what the lower end cannot miss.

    Members that all agree have an interval of their own (`statistics.rule_of_three`), which holds every truth that
    makes them likely; beyond Φ⁻¹(1 − 1/2n) a jump is no count.
    """
    agree = math.exp(mean / _MEAN_JUMP * float(special.ndtri(0.5 / points)))
    return 2.0 * tail - max(0.0, tail - agree)


@lru_cache(maxsize=1)
def _transform() -> npt.NDArray[np.complex128]:
    """The transform of the density of jumps Φ(−x) for x uniform over x > 0, without those of size 0."""
    x = np.linspace(0.0, 9.0, 20_001)
    at = cast(FloatArray, special.ndtr(-0.5 * (x[1:] + x[:-1]))) * _BINS
    first = np.floor(at).astype(np.int64)
    size = _RANGE * _BINS
    weight = (at - first) * (x[1] - x[0])
    density = np.bincount(first, x[1] - x[0] - weight, minlength=size) + np.bincount(first + 1, weight, minlength=size)
    density[0] = 0.0
    return np.fft.rfft(density) - density.sum()


def _compound(mean: float) -> FloatArray:
    """P(Σ jumps ≤ k/256), k = 0, 1, …, for a Poisson number of jumps whose sum has this mean."""
    return np.cumsum(np.fft.irfft(np.exp(mean / _MEAN_JUMP * _transform())))


@lru_cache(maxsize=16)
def _table(rows: tuple[tuple[float, ...], ...], classes: int) -> FloatArray:
    """The row of a number of classes, between those that there are by its logarithm."""
    steps = np.log(np.array(CLASSES))
    return np.array([np.interp(math.log(classes), steps, column) for column in np.array(rows).T])


def _variance(curve: FloatArray, mean: float, rest: float) -> float:
    """The variance of one member by the distribution; `rest` is 1 − mean."""
    return float(np.interp(mean, MEANS, curve)) * mean * mean * rest


def _share(logit: float) -> float:
    return float(special.expit(logit))


def _beta_cdf(t: float, mean: float, rest: float, variance: float) -> float:
    size = max(mean * rest / variance - 1.0, 1e-9)
    return float(special.betainc(mean * size, rest * size, t))


def _first(rising: Callable[[float], float], low: float, high: float) -> float:
    """Where a function that rises is 0, or the end of the range nearer to it."""
    if rising(low) >= 0.0:
        return low
    if rising(high) <= 0.0:
        return high
    return find_root(rising, low, high, xtol=1e-6, rtol=1e-6)


@dataclass(frozen=True, eq=False, repr=False)
class EmpiricalGuesses(SharesByRow):
    """Class shares as an ensemble shows them: the methods of `fg.Guesses`, and `interval` for their errors.

    `fractions[r, c]` is the share of the `points` data points that member r puts in class c. `pdf`, `cdf`, `quantile`
    are those of the fraction of a class chosen at random: theory says that all classes are alike, and pooling them uses
    all that was measured. `var` and `std` are over initializations only (about each class's own mean, averaged over
    classes), so they stay what they are called for a head that prefers a class; the pooled distribution is wider by the
    variance of `class_means`, which is 0 in theory.

    >>> from firstguess.theory.shares.gaussian import Guesses
    >>> measured = EmpiricalGuesses(Guesses(1.0, points=1000).sample(500), points=1000)
    >>> print(measured)
    500 initializations, 2 classes, 1000 points: the largest share is 0.746 ± 0.006 on average and above 0.9
    with probability 0.180 ± 0.017
    >>> low, high = measured.interval("std")
    >>> print(f"{measured.std():.3f} ({low:.3f} to {high:.3f})")
    0.283 (0.272 to 0.294)
    """

    fractions: FloatArray  # pyright: ignore[reportIncompatibleMethodOverride]
    points: int  # pyright: ignore[reportIncompatibleMethodOverride]
    seed: int = 0  # of the bootstrap

    def __post_init__(self) -> None:
        fractions = np.array(self.fractions, dtype=np.float64)  # a copy: nobody else can change it
        if fractions.ndim != 2 or not len(fractions) or fractions.shape[1] < 2:
            expected = "fractions as an array (inits, classes)"
            raise InvalidInput(expected, got=f"shape {fractions.shape}", where="EmpiricalGuesses")
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
    def _room(self) -> float:
        return 1e-9 / self.points  # k/n computed in two ways may differ in the last digit

    @property
    def class_means(self) -> FloatArray:
        """The average fraction of every class: 1/M each where classes are alike."""
        return self.fractions.mean(axis=0)

    def _cdf(self, at: FloatArray) -> FloatArray:
        """The share of all fractions (of all members and classes) that are at most g.

        >>> EmpiricalGuesses(np.array([[0.2, 0.8], [0.4, 0.6]]), points=5).cdf([0.1, 0.4, 0.7, 1.0]).tolist()
        [0.0, 0.5, 0.75, 1.0]
        """
        return np.searchsorted(self._sorted, at + self._room, side="right") / self._sorted.size

    def _quantile(self, at: FloatArray) -> FloatArray:
        return at_steps(self._sorted, at)

    def _pmf(self, points: int) -> FloatArray:
        counts = np.round(self._sorted * points).astype(np.int64)
        return np.bincount(counts, minlength=points + 1) / counts.size

    def histogram(self, bins: int | None = None) -> tuple[FloatArray, FloatArray]:
        """Edges (bins + 1,) and densities (bins,) of all fractions; by default 2·R^⅓ bins for R initializations.

        Fractions are counts k/n, so a bin is a run of counts: edges lie half a count next to one, the first at −1/2n
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

    def _pdf(self, at: FloatArray) -> FloatArray:
        edges, density = self.histogram()
        cell = np.clip(np.searchsorted(edges, at, side="right") - 1, 0, len(density) - 1)
        return np.where((at >= 0) & (at <= 1), density[cell], 0.0)

    def var(self) -> float:
        """Variance of a fraction over initializations, unbiased (R − 1), averaged over classes; NaN for one member."""
        return self.std() ** 2

    def std(self) -> float:
        """√var. For two classes, the standard deviation of G₀."""
        return float(statistics.spread(self.fractions, level=None).value[0])

    def expected_max_error(self) -> float:
        return self.standard_error("largest")

    def _rows(self) -> FloatArray:
        return self.fractions

    def interval(self, what: Summary, *, level: float = 0.95) -> Interval:
        """The interval of a summary: `"std"`, `"var"`, `"largest"` (share, on average) or `("prob_max_above", 0.9)`.

        By the predicted distribution where the members follow it, else by their own variance (docs/intervals.md has how
        often they hold); Wilson's interval for `prob_max_above`. One initialization has none: (nan, nan). Where all
        agree, nothing varies: the interval is then what the initializations that were not seen can change.

        >>> EmpiricalGuesses(np.tile([1.0, 0.0], (30, 1)), points=10).interval(("prob_max_above", 0.9))[1]
        1.0
        """
        checks.within(level, "a level between 0 and 1", "interval(level)", "level=0.95", high=1)
        if what == "mean":
            return (1 / self.classes, 1 / self.classes)
        value = self._share_above(what) if isinstance(what, tuple) else float(self._estimate(what, None).value[0])
        if self.inits < 2:
            return (math.nan, math.nan)
        if isinstance(what, tuple):
            return statistics.proportion(round(value * self.inits), self.inits, level=level)
        if what in ("largest", "expected_max"):
            return self._interval_of_max(level)
        low, high = self._interval_of_std(level)
        return (low * low, high * high) if what == "var" else (low, high)

    def _interval_of_max(self, level: float) -> Interval:
        mean = self.expected_max()
        if float(np.ptp(self.largest)) <= 1e-12:
            share = statistics.rule_of_three(self.inits, level=level)
            return (mean - share * (mean - 1 / self.classes), mean + share * (1.0 - mean))
        low, high = of_expected_max(self.largest, self.classes, self.points, level)
        return (min(low, mean), max(high, mean))

    def _interval_of_std(self, level: float) -> Interval:
        std = self.std()
        if float(np.ptp(self.fractions, axis=0).max()) <= 1e-12:
            # A share p of members elsewhere makes Σ_c Var G_c ≤ p(1 − p)·|g − g'|², and two fractions are √2 apart.
            share = min(0.5, statistics.rule_of_three(self.inits, level=level))
            return (0.0, math.sqrt(2 * share * (1 - share) / self.classes))
        found = of_spread(self.fractions, level)
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
            self._share_above(what)  # refuses what is no such summary
            return self.prob_max_above_error(what[1])
        error = float(self._estimate(what, None).error[0])
        return 2 * self.std() * error if what == "var" else error

    def chance(self, what: Literal["std", "largest", "expected_max"], truth: float, *, room: float = 0.0) -> float:
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
        if what in ("largest", "expected_max"):
            return statistics.means(self.largest[:, None], seed=self.seed, level=level)
        expected = 'a summary: "std", "var", "mean", "largest" or ("prob_max_above", t)'
        raise InvalidInput(expected, got=repr(what), where="EmpiricalGuesses", hint='interval("std")')

    def _share_above(self, what: tuple[str, float]) -> float:
        if len(what) != 2 or what[0] != "prob_max_above":
            raise InvalidInput('a summary such as ("prob_max_above", 0.9)', got=repr(what), where="EmpiricalGuesses")
        return self.prob_max_above(float(what[1]))

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
