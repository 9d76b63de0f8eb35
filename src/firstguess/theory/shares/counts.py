"""Probabilities of single counts, exactly, where a whole distribution would be too long: theory.md (7)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Protocol, TypeAlias, cast

import numpy as np
import numpy.typing as npt
from scipy import special
from scipy.special import ndtr

from firstguess.base.gaussian import Array, pdf
from firstguess.theory.shares import gaussian_argmax
from firstguess.theory.shares.gaussian_argmax import ShareCurve

MANY = 100_000  # data points from which probabilities are computed one by one: all of them would take seconds

IntArray: TypeAlias = npt.NDArray[np.int64]

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(12)
_NORMAL = 100_000_000
_END = 9.5  # Φ(−9.5) = 1e-21: what is beyond is a count of 0 or n as a whole
_REACH = 6.0  # in units of 1/√n, as in `binomial_mixture`: e⁻³⁶ beyond it
_PANELS = 12  # of such a window, which is 24 standard deviations wide
_STEP = 0.25  # in x: near 0 and n a window is wide, and what is rare becomes sure within about such a step


class CountDistribution(Protocol):
    """The distribution of a count k = 0..n, and of the share k/n."""

    def at(self, k: IntArray) -> Array:
        """P(count = k)."""
        ...

    def at_most(self, k: IntArray) -> Array:
        """P(count ≤ k), k from −1."""
        ...

    def at_least(self, k: int) -> float:
        """P(count ≥ k)."""
        ...

    def first(self, u: Array) -> IntArray:
        """The smallest k with P(count ≤ k) ≥ u."""
        ...

    def share_at_most(self, g: Array, points: int) -> Array:
        """P(count/n ≤ g)."""
        return self.at_most(whole(np.clip(g, -1.0, 1.0) * points).clip(-1, points))

    def density(self, g: Array, points: int) -> Array:
        """n·P(the count nearest to n·g)."""
        nearest = whole(np.clip(g, 0.0, 1.0) * points + 0.5).clip(0, points)
        return np.where((g >= 0) & (g <= 1), points * self.at(nearest), 0.0)


def whole(counts: Array) -> IntArray:
    """Round down, except what falls just short of a whole number in float64, as n·(k/n) may."""
    return np.floor(counts + 1e-9).astype(np.int64)


@dataclass(frozen=True, eq=False)
class Listed(CountDistribution):
    """A distribution of counts, given by all its probabilities."""

    pmf: Array

    @cached_property
    def _sums(self) -> Array:
        sums = np.minimum(np.cumsum(self.pmf), 1.0)
        sums[-1] = 1.0
        return np.concatenate([[0.0], sums])

    def at(self, k: IntArray) -> Array:
        return self.pmf[k]

    def at_most(self, k: IntArray) -> Array:
        return self._sums[1 + k]

    def at_least(self, k: int) -> float:
        return float(self.pmf[k:].sum())

    def first(self, u: Array) -> IntArray:
        return np.searchsorted(self._sums[1:], u).clip(0, len(self.pmf) - 1)


@dataclass(frozen=True)
class AllOrNone(CountDistribution):
    """γ = ∞: all data or none, with probabilities `share` and 1 − share."""

    share: float
    points: int

    def at(self, k: IntArray) -> Array:
        return np.where(k == 0, 1 - self.share, 0.0) + np.where(k == self.points, self.share, 0.0)

    def at_most(self, k: IntArray) -> Array:
        return np.where(k < 0, 0.0, np.where(k < self.points, 1 - self.share, 1.0))

    def at_least(self, k: int) -> float:
        return 1.0 if k <= 0 else self.share if k <= self.points else 0.0

    def first(self, u: Array) -> IntArray:
        return np.where(u > 1 - self.share, self.points, 0).astype(np.int64)


@dataclass(frozen=True, eq=False)
class Counts(CountDistribution):
    """The distribution of a count, Binomial(n, G) with G from `curve`, by its single probabilities; `curve` may be one
    fraction.

    P(count ≥ k) = ∫ P(Binomial(n, Φ(x)) ≥ k) dcdf(x). In the angle arcsin √p the binomial step at k/n is 1/(2√n) wide
    whatever k is: outside ±6/√n it is 0 or 1, inside it is integrated. A probability costs the same at every n. Against
    the sums of `binomial_mixture` it is the same within 1e-11 at n = 10³, 10⁴ and 10⁵, whose own accuracy that is.

    >>> distribution = Counts(ShareCurve.line(1.0, 0.0), 9)  # γ = 1: every count is equally likely
    >>> print(f"{distribution.at_least(8):.12f} {distribution.exactly(3):.12f} {Counts(0.5, 4).at_least(4):.4f}")
    0.200000000000 0.100000000000 0.0625
    """

    curve: ShareCurve | float
    points: int

    def at_least(self, k: int) -> float:
        if k <= 0 or k > self.points:
            return 1.0 * (k <= 0)
        if self._share is not None:
            return float(_at_least(self.points, k, np.array(self._share), np.array(1 - self._share)))
        x, mass, (_, above) = self._window(k)
        return min(1.0, float(_at_least(self.points, k, ndtr(x), ndtr(-x)) @ mass) + above)

    def exactly(self, k: int) -> float:
        """P(count = k)."""
        if not 0 <= k <= self.points:
            return 0.0
        if self._share is not None:
            return float(_exactly(self.points, k, np.array(self._share), np.array(1 - self._share)))
        x, mass, (below, above) = self._window(k)
        end = below if k == 0 else above if k == self.points else 0.0
        return float(_exactly(self.points, k, ndtr(x), ndtr(-x)) @ mass) + end

    def at(self, k: IntArray) -> Array:
        """`exactly` for an array."""
        return _each(self.exactly, k)

    def at_most(self, k: IntArray) -> Array:
        return 1.0 - _each(lambda one: self.at_least(one + 1), k)

    def first(self, u: Array) -> IntArray:
        """Find each quantile by bisection in a bracket around the Gaussian guess."""
        return _each(self._first, u).astype(np.int64)

    def _first(self, u: float) -> int:
        z, n = np.array([special.ndtri(u)]), self.points
        if self._share is not None:
            p = self._share
            guess = n * p + float(np.nan_to_num(z[0])) * math.sqrt(n * p * (1 - p))
        else:
            curve = cast(ShareCurve, self.curve)
            middle = curve.inverse(np.zeros(1))
            with np.errstate(all="ignore"):  # for γ ≫ 1 a class mostly gets none or all: its middle has no density
                room = np.sqrt(ndtr(middle) * ndtr(-middle) / n) / pdf(middle) * curve.slope.max()
                guess = n * float(ndtr(middle + (curve.inverse(z) - middle) * np.hypot(1.0, room))[0])
            if math.isnan(guess):
                guess = n * float(ndtr(curve.inverse(z))[0])

        def enough(k: int) -> bool:
            return k >= n or 1.0 - self.at_least(k + 1) >= u

        low = high = int(min(max(guess, 0.0), n))
        step = 1
        while not enough(high):
            low, high, step = high + 1, min(n, high + step), 2 * step
        while low > 0 and enough(low - 1):
            low, high, step = max(0, low - 1 - step), low - 1, 2 * step
        while low < high:
            k = (low + high) // 2
            low, high = (low, k) if enough(k) else (k + 1, high)
        return low

    def larger_of_two(self) -> float:
        """E[max(count, n − count)/n − max(G, 1 − G)]: what finitely many data add to the larger of two fractions.

        E[B; B ≥ k] = n·p·P(Binomial(n − 1, p) ≥ k − 1), and the same for n − B. It vanishes away from p = ½. Where n
        is so large that these cancel, a count is as good as normal: to 1/n of what is added.
        """
        n, k = self.points, self.points // 2 + 1

        def added(p: Array, q: Array) -> Array:
            if n > _NORMAL:
                sd, away = np.sqrt(p * q / n), np.abs(p - q) / 2
                return 2.0 * sd * (pdf(away / sd) - away / sd * special.ndtr(-away / sd))
            half = 0.5 * _exactly(n, n // 2, p, q) if n % 2 == 0 else 0.0
            return p * _at_least(n - 1, k - 1, p, q) + q * _at_least(n - 1, k - 1, q, p) + half - np.maximum(p, q)

        if self._share is not None:
            return float(added(np.array(self._share), np.array(1 - self._share)))
        x, mass, _ = self._window(n // 2, kink=0.0)
        return float(added(ndtr(x), ndtr(-x)) @ mass)

    @cached_property
    def _share(self) -> float | None:
        """The one fraction of a distribution that is narrower than float64 can divide."""
        if isinstance(self.curve, float):
            return self.curve
        low, high = self._ends
        return float(ndtr(np.array(0.5 * (low + high)))) if high - low < 1e-10 else None

    @cached_property
    def _ends(self) -> tuple[float, float]:
        low, high = np.clip(cast(ShareCurve, self.curve).inverse(np.array([-9.0, 9.0])), -_END, _END).tolist()
        return low, high

    def _window(self, k: int, kink: float | None = None) -> tuple[Array, Array, tuple[float, float]]:
        """Units x around the step at k/n, their probabilities, and the probabilities of all below and above."""
        curve = cast(ShareCurve, self.curve)
        middle = np.arcsin(np.sqrt(k / self.points))
        reach = _REACH / np.sqrt(self.points)
        angles = np.clip(middle + np.linspace(-reach, reach, _PANELS + 1), 0.0, np.pi / 2)
        # ndtri of whichever of p and 1 − p is small: the other has no digits left.
        small = np.where(angles < np.pi / 4, np.sin(angles) ** 2, np.cos(angles) ** 2)
        marks = np.clip(np.where(angles < np.pi / 4, 1, -1) * special.ndtri(small), *self._ends)
        low, high = float(marks[0]), float(marks[-1])
        w_low, w_high = curve.at(np.array([low, high]))[0].tolist()
        outside = float(special.ndtr(w_low)), float(special.ndtr(-w_high))
        if high <= low:  # the distribution has ended before this count
            return np.zeros(0), np.zeros(0), outside
        step = min(_STEP, 1 / float(curve.slope.max()))
        grid = np.linspace(low, high, max(2, int(np.ceil((high - low) / step)) + 1))
        inner = curve.x[(curve.x > low) & (curve.x < high)]
        extra = [kink] if kink is not None and low < kink < high else []
        edges = np.unique(np.concatenate([marks, grid, inner, extra]))
        half = np.diff(edges)[:, None] / 2
        x = (edges[:-1, None] + half * (_NODES + 1)).ravel()
        w, slope = curve.at(x)
        return x, (half * _WEIGHTS).ravel() * pdf(w) * slope, outside


def curve_of(gamma: float, classes: int) -> ShareCurve:
    """The distribution of one fraction for infinitely many data, 0 < γ < ∞: theory.md (6), (8)."""
    return (
        ShareCurve.line(1 / math.sqrt(gamma), 0.0) if classes == 2 else gaussian_argmax.marginal_curve(gamma, classes)
    )


@lru_cache(maxsize=16)
def count_distribution(gamma: float, classes: int, points: int) -> CountDistribution:
    """The distribution of the count of one class among n data points: theory.md (7), and the same mixture over (8)."""
    if gamma == math.inf:
        return AllOrNone(1 / classes, points)
    if points <= MANY:
        return Listed(pmf_of(gamma, classes, points))
    return Counts(1 / classes if gamma == 0 else curve_of(gamma, classes), points)


@lru_cache(maxsize=16)
def pmf_of(gamma: float, classes: int, points: int) -> Array:
    """All probabilities of the counts 0..n."""
    if gamma == 0:
        return gaussian_argmax.binomial(points, 1 / classes)
    if gamma < math.inf:
        return gaussian_argmax.binomial_mixture(curve_of(gamma, classes), points)
    return AllOrNone(1 / classes, points).at(np.arange(points + 1))


def _each(fn: Callable[[Any], float], values: npt.NDArray[Any]) -> Array:
    """A function of one number, once for each number that there is."""
    distinct, where = np.unique(values, return_inverse=True)
    found = np.array([fn(value) for value in distinct.tolist()])
    return found[where].reshape(values.shape)


def _at_least(n: int, k: int, p: Array, q: Array) -> Array:
    """P(Binomial(n, p) ≥ k) with q = 1 − p, from the smaller of the two."""
    if k <= 0:
        return np.ones_like(p)
    if k > n:
        return np.zeros_like(p)
    a, b = float(k), float(n - k + 1)
    return cast(Array, np.where(p < 0.5, special.betainc(a, b, p), special.betaincc(b, a, q)))


def _exactly(n: int, k: int, p: Array, q: Array) -> Array:
    from scipy import stats  # its binomial keeps its digits at n = 10⁹, log-Gamma does not; slow to import

    binom: Any = stats.binom
    return cast(Array, np.where(p < 0.5, binom.pmf(k, n, p), binom.pmf(n - k, n, q)))
