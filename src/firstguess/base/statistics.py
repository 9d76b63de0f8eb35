"""Errors of what an ensemble measures: initializations are independent, so they are what is resampled. And ties.

Intervals are studentized bootstrap intervals (bootstrap-t; Efron & Tibshirani, An Introduction to the Bootstrap, 12.5):
every resample has its own standard error, and the quantiles of t* = (value* − value)/error* are turned around. Against
the plain percentile bootstrap this matters: the distribution of a guess fraction has its weight at the ends, and the
center of an output layer with two units is as skewed as χ²₂. Percentile intervals of level 95 % then cover down to 90 %
at 50 initializations and 93 % at 200, these 94-97 % (tests/base/test_statistics.py).

Resamples depend on the seed and the number of initializations only, and members are resampled in the order of their
influence. Guess fractions have intervals of their own (theory/shares/empirical.py), because these fail at the ends of
[0, 1]. Standard errors are those of the infinitesimal jackknife (the delta method): √(Σ L²/(R(R−1))) with L a member's
influence on the value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, TypeAlias, cast

import numpy as np
import numpy.typing as npt
from numpy.typing import NDArray
from scipy import special

FloatArray: TypeAlias = npt.NDArray[np.float64]
Interval: TypeAlias = tuple[float, float]

RESAMPLES = 999  # 999 and not 1000: then the 2.5 % quantile is the 25th of them, with no interpolation
_STREAM = 0xB007  # keeps the resamples apart from the streams that draw weights from the same seed
_CHUNK = 1 << 22  # numbers of a block of resamples: 32 MB


@dataclass(frozen=True)
class Estimates:
    """Values with standard errors and intervals, one for each column that was given: (columns,) each."""

    value: FloatArray
    error: FloatArray
    low: FloatArray
    high: FloatArray
    skew: FloatArray  # skewness of the members' influences, for `chance`


def resamples(seed: int, inits: int) -> Iterator[FloatArray]:
    """Bootstrap weights in blocks of rows, (block, inits) each and RESAMPLES rows in all; every row sums to 1.

    >>> block = next(resamples(0, 4))
    >>> block.shape, block[0].tolist()
    ((999, 4), [0.0, 0.75, 0.25, 0.0])
    """
    rng = np.random.default_rng([seed, _STREAM])
    rows = max(1, min(RESAMPLES, _CHUNK // inits))
    for start in range(0, RESAMPLES, rows):
        size = min(rows, RESAMPLES - start)
        drawn = rng.integers(0, inits, size=(size, inits), dtype=np.int32)
        drawn += np.arange(0, size * inits, inits, dtype=np.int32)[:, None]
        yield np.bincount(drawn.ravel(), minlength=size * inits).reshape(size, inits) / inits


def means(x: FloatArray, *, seed: int = 0, level: float | None = 0.95) -> Estimates:
    """Mean over initializations of every column of (inits, columns); `level=None` leaves the intervals out.

    >>> m = means(np.arange(10.0)[:, None])
    >>> print(f"{m.value[0]:.2f} ± {m.error[0]:.2f}, 95 % {m.low[0]:.2f} to {m.high[0]:.2f}")
    4.50 ± 0.96, 95 % 1.77 to 7.09
    """
    return ratios(x, np.ones_like(x), seed=seed, level=level)  # where x is not finite, the 1 is left out as well


def ratios(top: FloatArray, bottom: FloatArray, *, seed: int = 0, level: float | None = 0.95) -> Estimates:
    """Ratio of the means over initializations, mean(top)/mean(bottom), for every column of (inits, columns).

    A member's influence is L = (top − ratio·bottom)/mean(bottom). Members that are not finite in a column are left out
    of it. Where `bottom` is 0 throughout, the ratio is ∞, or NaN if `top` is 0 as well, without an error.

    >>> r = ratios(np.array([[1.0], [2.0], [6.0]]), np.array([[2.0], [4.0], [6.0]]), level=None)
    >>> print(f"{r.value[0]:.2f} ± {r.error[0]:.2f}")
    0.75 ± 0.19
    """
    fine = np.isfinite(top) & np.isfinite(bottom)
    count = fine.sum(axis=0)
    # A member left out has weight 0 in both sums; the ratio of the sums is that of the means of the others.
    x, y = np.where(fine, top, 0.0), np.where(fine, bottom, 0.0)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        scale = y.sum(axis=0) / count
        value = (x / scale).sum(axis=0) / count
        value = np.where(scale == 0, x.sum(axis=0) / 0.0, value)
    known = np.isfinite(value) & (count > 1)
    divisor = np.where(known, scale, 1.0)
    y = y / divisor  # scaled: deep networks without a norm reach 1e±150, whose squares float64 does not have
    rest = np.where(known, x / divisor - np.where(known, value, 0.0) * y, 0.0)  # L: its mean is 0
    few = np.maximum(count - 1, 1)
    error = np.where(known, np.sqrt(np.square(rest).sum(axis=0) / (np.maximum(count, 1) * few)), math.nan)
    skew = _skewness(rest, count)
    if level is None:
        return Estimates(value, error, np.full_like(value, math.nan), np.full_like(value, math.nan), skew)
    order = np.lexsort((y, rest), axis=0)  # so that the order of members does not matter
    rest, y = np.take_along_axis(rest, order, axis=0), np.take_along_axis(y, order, axis=0)
    products = (rest, y, rest * rest, rest * y, y * y)
    shifts: list[FloatArray] = []
    errors: list[FloatArray] = []
    for weights in resamples(seed, len(x)):
        r, m, rr, rm, mm = (weights @ product for product in products)
        with np.errstate(divide="ignore", invalid="ignore"):
            shift = np.where(m != 0, r / m, 0.0)
            square = (rr - 2 * shift * rm + shift * shift * mm) / np.where(m != 0, m * m, 1.0)
            # m is about the share of members in use, count/R; `square` is too large by its inverse.
            errors.append(np.sqrt(np.maximum(square, 0.0) * count / (len(x) * few)))
        shifts.append(shift)
    t = studentized(np.concatenate(shifts), np.concatenate(errors), error, level) * _wider(count)
    return Estimates(value, error, value - t[1] * error, value - t[0] * error, skew)


def _wider(count: npt.NDArray[Any]) -> FloatArray:
    """Resamples of few members vary less than new members would: a factor that is 1 from 100 members on.

    With it intervals of a ratio hold in 93 to 96 % instead of 91 to 94 % at 12 members (docs/intervals.md).
    """
    return 1.0 + np.maximum(2.0 / np.maximum(count, 1) - 0.02, 0.0)


def deviations(x: FloatArray, *, seed: int = 0, level: float | None = 0.95) -> Estimates:
    """Standard deviation over initializations (R − 1 in its variance) of every column of (inits, columns).

    >>> s = deviations(np.arange(10.0)[:, None])
    >>> print(f"{s.value[0]:.2f} ± {s.error[0]:.2f}, 95 % {s.low[0]:.2f} to {s.high[0]:.2f}")
    3.03 ± 0.40, 95 % 2.26 to 4.63
    """
    inits, columns = x.shape
    if inits < 2:
        return Estimates(*(np.full(columns, math.nan) for _ in range(5)))
    away = x - x.mean(axis=0)
    square = np.square(away)
    std = np.sqrt(square.sum(axis=0) / (inits - 1))

    def resampled(weights: FloatArray) -> tuple[FloatArray, FloatArray]:
        m1, m2, m3, m4 = (weights @ power for power in (away, square, away * square, square * square))
        centre = m2 - m1 * m1
        return centre, m4 - 4 * m1 * m3 + 6 * m1 * m1 * m2 - 3 * m1**4 - centre * centre

    return _deviations(std, square, seed, level, resampled)


def spread(fractions: FloatArray, *, seed: int = 0, level: float | None = 0.95) -> Estimates:
    """Standard deviation of a guess fraction over initializations, from (inits, classes): one column.

    The variance is Σ_r (G_rc − mean_c)²/(R − 1), averaged over the classes: unbiased, and about each class's own mean
    rather than 1/M, so that a head that prefers a class does not count as one that varies.

    >>> s = spread(np.array([[0.5, 0.5], [0.8, 0.2], [0.2, 0.8], [0.7, 0.3]]))
    >>> print(f"{s.value[0]:.4f}")
    0.2646
    """
    inits, classes = fractions.shape
    if classes == 2 or inits < 2:
        return deviations(fractions[:, :1], seed=seed, level=level)  # G₁ = 1 − G₀
    away = fractions - fractions.mean(axis=0)
    square = np.square(away).mean(axis=1)  # u_r, a member's squared distance from the class means
    std = np.sqrt(square.sum(keepdims=True) / (inits - 1))
    # Σ_c away_rc·mean*_c/M for all r: through the Gram matrix where there are more classes than members.
    gram = away @ away.T / classes if classes > inits else None

    def resampled(weights: FloatArray) -> tuple[FloatArray, FloatArray]:
        along = weights @ gram if gram is not None else (weights @ away) @ away.T / classes  # (block, inits)
        moved = (weights * along).sum(axis=1, keepdims=True)  # |mean*|²/M
        around = square - 2 * along + moved
        centre = (weights * around).sum(axis=1, keepdims=True)
        return centre, (weights * np.square(around - centre)).sum(axis=1, keepdims=True)

    return _deviations(std, square[:, None], seed, level, resampled)


def _deviations(
    std: FloatArray,
    square: FloatArray,
    seed: int,
    level: float | None,
    resampled: Callable[[FloatArray], tuple[FloatArray, FloatArray]],
) -> Estimates:
    """Roots of variances: from squared deviations (inits, columns), and the mean and variance of resampled ones."""
    inits = len(square)

    def error_of(variance: FloatArray, root: FloatArray) -> FloatArray:  # d√v = dv/(2√v)
        room = np.sqrt(np.maximum(variance, 0.0) / (inits - 1))
        return np.where(root > 0, room / np.where(root > 0, 2 * root, 1.0), 0.0)

    influence = square - square.mean(axis=0)
    error = error_of(np.square(influence).mean(axis=0), std)
    skew = _skewness(influence, np.full(std.shape, inits))
    if level is None:
        return Estimates(std, error, np.full_like(std, math.nan), np.full_like(std, math.nan), skew)
    shifts: list[FloatArray] = []
    errors: list[FloatArray] = []
    for weights in resamples(seed, inits):
        centre, variance = resampled(weights)
        root = np.sqrt(np.maximum(centre, 0.0) * inits / (inits - 1))
        shifts.append(root - std)
        errors.append(error_of(variance, root))
    t = studentized(np.concatenate(shifts), np.concatenate(errors), error, level)
    return Estimates(std, error, np.maximum(std - t[1] * error, 0.0), std - t[0] * error, skew)


def _skewness(influence: FloatArray, count: npt.NDArray[Any]) -> FloatArray:
    number = np.maximum(count, 1)
    scale = np.sqrt(np.square(influence).sum(axis=0) / number)
    unit = influence / np.where(scale > 0, scale, 1.0)
    return (unit**3).sum(axis=0) / number


def chance(z: float, skew: float, inits: int) -> float:
    """Two-sided p-value of z = (value − truth)/error where members' influences are skewed.

    A mean that comes out small by chance also has a small error, so z of positive numbers has a long left tail: a
    normal p-value of 2e-4 for 100 members with skewness 2 (the center of two output units) happens with 2e-3. Hall's
    transformation z + a·z²/3 + a²z³/27 + a/6 with a = skew/√R (Hall 1992, The Bootstrap and Edgeworth Expansion) brings
    that to 3e-4; Student's t with R − 1 degrees of freedom is used for the rest.

    >>> print(f"{chance(-4.0, 0.0, 10_000):.1e} {chance(-4.0, 2.0, 100):.1e}")
    6.4e-05 3.5e-03
    """
    if not math.isfinite(z) or inits < 2:
        return 0.0 if math.isinf(z) else 1.0
    a = skew / math.sqrt(inits)
    straight = z + a * z * z / 3 + a * a * z**3 / 27 + a / 6
    return min(1.0, 2 * float(special.stdtr(inits - 1, -abs(straight))))


def studentized(shifts: FloatArray, errors: FloatArray, error: FloatArray, level: float) -> FloatArray:
    """The two quantiles of t* = shift/error of every column of (resamples, columns): (2, columns).

    A resample without any variation has t* = 0 if it did not move and ±∞ if it did: an interval that such resamples
    leave open is open. Rounding (the root of 1e-16) must not pass for variation, hence the floor.
    """
    floor = 1e-6 * np.where(np.isfinite(error), error, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.where(errors > floor, shifts / errors, np.where(np.abs(shifts) <= floor, 0.0, np.sign(shifts) * np.inf))
    k = min(max(1, round((len(t) + 1) * (1 - level) / 2)), (len(t) + 1) // 2)
    ordered = np.partition(t, (k - 1, len(t) - k), axis=0)
    low, high = ordered[k - 1], ordered[len(t) - k]
    still = error == 0  # 0·∞ is not an interval
    return np.stack([np.where(still, 0.0, low), np.where(still, 0.0, high)])


def proportion(
    successes: int, inits: int, *, level: float = 0.95, method: Literal["wilson", "exact"] = "wilson"
) -> Interval:
    """Wilson's interval for a probability: unlike a bootstrap of 0s and 1s it is right when all members agree.

    "exact" is that of Clopper and Pearson, which covers at least `level`.

    >>> low, high = proportion(0, 100)
    >>> print(f"{low:.4f} to {high:.4f}")
    0.0000 to 0.0370
    """
    if inits < 1:
        return (math.nan, math.nan)
    from scipy import stats  # slow to import

    found: Any = cast(Any, stats.binomtest(successes, inits)).proportion_ci(level, method=method)
    return (float(found.low), float(found.high))


def rule_of_three(count: int, *, level: float = 0.95) -> float:
    """The largest share of a population that `count` draws may all have missed: Clopper and Pearson's, two-sided.

    >>> print(f"{rule_of_three(20):.3f}")
    0.168
    """
    return 1.0 - (0.5 * (1.0 - level)) ** (1.0 / count)


def equal_means_test(fractions: FloatArray) -> tuple[float, float]:
    """Whether classes are alike: T = R·Σ_c (mean_c − 1/M)² / mean_r Σ_c (G_rc − 1/M)², and its p-value.

    If every permutation of the classes is as likely, T is 1 on average and (M − 1)·T ~ χ²_{M−1} for many members.
    It is R if every member makes the same guesses. Zero heads whose ties are broken at random are alike.

    >>> always_the_first = np.tile([0.9, 0.1], (50, 1))
    >>> round(equal_means_test(always_the_first)[0], 6)
    50.0
    """
    inits, classes = fractions.shape
    away = fractions - 1 / classes
    own = float(np.square(away).sum(axis=1).mean()) if inits else 0.0
    if own == 0:
        return 1.0, 1.0
    t = inits * float(np.square(away.mean(axis=0)).sum()) / own
    return t, float(special.chdtrc(classes - 1, (classes - 1) * t))


# Whether two samples are of one distribution: by permutations, over many columns at once.

_BLOCK = 1 << 22  # numbers looked at together: 32 MB


def permutation_test(
    tables: Sequence[tuple[FloatArray, FloatArray]], *, deals: int = 9999, seed: int = 0
) -> tuple[list[float], float]:
    """p-values of every table, and of all together: how often rows that are permuted between the two samples differ as
    much in some column.

    A table is two samples of some columns, (rows, columns) each; row i of all tables is one individual, NaN where it
    has no value. In a column the difference of means is taken in standard errors of a common distribution: σ of all
    rows times √(1/R + 1/S). A permutation test of its largest size is exact for any distribution, however skewed, and
    for columns that go together.

    >>> one, other = np.arange(6.0)[:, None], np.arange(6.0)[:, None] + 10
    >>> alone, together = permutation_test([(one, other)])
    >>> abs(together - 2 / 924) < 0.002  # two of all deals differ as much as this one
    True
    """
    one, other = (np.concatenate(part, axis=1) for part in zip(*tables, strict=True))
    both = np.concatenate([one, other])
    fine = np.isfinite(both)
    few = np.minimum(fine[: len(one)].sum(axis=0), fine[len(one) :].sum(axis=0)) == 0
    count = np.maximum(fine.sum(axis=0), 1)
    x = np.where(fine, both, 0.0)
    x = np.where(fine, x - x.sum(axis=0) / count, 0.0)
    scale = np.sqrt(np.square(x).sum(axis=0) / count)
    flat = (scale <= 1e-12) | few  # nothing varies, or one sample has nobody here
    x = x / np.where(flat, 1.0, scale)
    x[:, flat] = 0.0
    edges = np.cumsum([0, *(table[0].shape[1] for table in tables)])
    seen = _largest(x, fine, np.arange(len(both))[None] < len(one), edges)[0]
    rng = np.random.default_rng(seed)
    above, all_above, rows = np.zeros(len(tables), np.int64), 0, max(1, _BLOCK // len(both))
    for start in range(0, deals, rows):
        size = min(rows, deals - start)
        dealt = rng.random((size, len(both))).argsort(axis=1) < len(one)
        found = _largest(x, fine, dealt, edges)
        above += (found >= seen - 1e-9).sum(axis=0)
        all_above += int((found.max(axis=1) >= seen.max() - 1e-9).sum())
    return ((above + 1) / (deals + 1)).tolist(), (all_above + 1) / (deals + 1)


def _largest(
    x: FloatArray, fine: npt.NDArray[np.bool_], first: npt.NDArray[np.bool_], edges: npt.NDArray[np.int64]
) -> FloatArray:
    chosen, there = first.astype(np.float64), fine.astype(np.float64)
    whole = bool(fine.all())
    a = chosen.sum(axis=1, keepdims=True) if whole else chosen @ there
    b = there.sum(axis=0) - a
    sums = chosen @ x
    with np.errstate(divide="ignore", invalid="ignore"):
        z = (sums / a - (x.sum(axis=0) - sums) / b) / np.sqrt(1.0 / a + 1.0 / b)
    z = np.abs(np.where((a > 0) & (b > 0), z, 0.0))
    return np.stack([z[:, i:j].max(axis=1) for i, j in pairwise(edges.tolist())], axis=1)


# Points whose largest logit several classes share: one of these gets the point, at random; such points are counted.
# The one rule of all readings: sharing a point between classes, or giving it to the first, would make a network that
# guesses nothing (a zero head) look even, or all of one class.


def settle(top: NDArray[np.bool_], stream: np.random.Generator) -> int:
    """Leave one of the classes that have a point's largest logit: `top` is (classes, points), and written to.

    Takes one number of the stream for each point that has several; returns how many have.

    >>> top = np.array([[True, False, True], [True, True, True]])
    >>> settle(top, np.random.default_rng(0)), top.sum(axis=0).tolist()
    (2, [1, 1, 1])
    """
    shared = top.sum(axis=0)
    several = np.flatnonzero(shared > 1)
    size = max(1, _BLOCK // len(top))
    for start in range(0, len(several), size):
        points = several[start : start + size]
        choice = np.floor(stream.random(len(points)) * shared[points])  # which of them, from 0
        tied = top[:, points]
        top[:, points] = tied & (np.cumsum(tied, axis=0, dtype=np.int32) - 1 == choice)
    return len(several)


def guesses(logits: NDArray[Any], stream: np.random.Generator) -> NDArray[np.intp]:
    """The class, along the last axis, of the largest logit; where several share it, one of them at random.

    >>> guesses(np.array([[1.0, 3.0, 2.0], [0.0, 1.0, 1.0]]), np.random.default_rng(0)).tolist()
    [1, 2]
    """
    best = logits.argmax(axis=-1)
    top = logits == np.take_along_axis(logits, best[..., None], axis=-1)  # False throughout where the largest is NaN
    tied = np.count_nonzero(top, axis=-1) > 1
    if tied.any():
        of_tied = np.ascontiguousarray(top[tied].T)
        settle(of_tied, stream)
        best[tied] = of_tied.argmax(axis=0)
    return best
