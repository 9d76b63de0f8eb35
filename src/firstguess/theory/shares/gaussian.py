"""From the drift ratio γ to the guesses: the distribution of the fractions (G_1..G_M) of an untrained classifier."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, cast, overload

import numpy as np
import numpy.typing as npt
from scipy import special

from firstguess.base import checks
from firstguess.base.checks import Numbers
from firstguess.base.errors import InvalidInput
from firstguess.base.plottable import Shown
from firstguess.theory.shares import counts as guess_counts
from firstguess.theory.shares import gaussian_argmax, order_statistics
from firstguess.theory.shares.counts import CountDistribution, Counts
from firstguess.theory.shares.gaussian_argmax import Curve, FloatArray
from firstguess.theory.shares.order_statistics import OverInits

_MOST_POINTS = 10**15  # counts are then still whole numbers in float64


@dataclass(frozen=True, repr=False)
class Guesses(Shown):
    """The distribution of class shares over initializations: theory.md (6), for more classes (8), for n points (7).

    `gamma` is the drift ratio γ of the logits (0 to ∞), `classes` is M, `points` is the number n of data points, or
    None for infinitely many. All classes are alike, so `pdf`, `cdf`, `quantile` are of any one fraction.

    How accurate: two classes, and `mean`, `var`, `std` of any number, are closed forms or converged integrals (1e-9
    relative or better; counts 1e-10 absolute to n = 10⁴). `expected_max` is too, unless M > 2 and n is finite.
    `cdf`, `pdf`, `quantile`, `prob_max_above` for M > 2 are estimated, from a fixed seed: `error`, `cdf_error`,
    `prob_max_above_error` and `expected_max_error` are their standard errors (0 where nothing is estimated).

    >>> one_relu_layer = Guesses(1 / (np.pi - 1))
    >>> print(f"{one_relu_layer.var():.8f} {one_relu_layer.expected_max():.8f}")
    0.05155762 0.69081130
    >>> print(Guesses(18.390547, classes=10))
    γ = 18.39, 10 classes: the largest share is 0.811 on average and above 0.9 with probability 0.462
    """

    gamma: float
    classes: int = 2
    points: int | None = None

    def __post_init__(self) -> None:
        gamma = checks.number(self.gamma)
        if not gamma >= 0:
            raise InvalidInput(
                "a drift ratio γ from 0 to infinity", got=self.gamma, where="Guesses(gamma)", hint="gamma=1.0"
            )
        object.__setattr__(self, "gamma", abs(gamma))  # −0.0 is 0
        object.__setattr__(
            self, "classes", checks.count(self.classes, 2, "number of classes", "Guesses(classes)", "classes=2")
        )
        if self.points is not None:
            hint = "points=1000, or points=None for infinitely many"
            points = checks.count(self.points, 1, "number of data points", "Guesses(points)", hint)
            if points > _MOST_POINTS:
                raise InvalidInput(
                    "at most 10¹⁵ data points",
                    got=points,
                    where="Guesses(points)",
                    hint="points=None for infinitely many",
                )
            object.__setattr__(self, "points", points)

    # -- One fraction --------------------------------------------------------------------------------------------

    @overload
    def cdf(self, g: float) -> float: ...
    @overload
    def cdf(self, g: Numbers) -> FloatArray: ...
    def cdf(self, g: float | Numbers) -> float | FloatArray:
        """P(G_c ≤ g), right-continuous. Two classes, n = ∞: Φ(Φ⁻¹(g)/√γ), theory.md (6).

        >>> Guesses(1.0).cdf([0.1, 0.5, 0.9]).round(12).tolist()  # γ = 1 is where two classes are uniform
        [0.1, 0.5, 0.9]
        """
        at = checks.array(g, "a class share g", "cdf(g)")
        if self.points is not None:
            return checks.like(
                g, self._counts().at_most(_floor(np.clip(at, -1.0, 1.0) * self.points).clip(-1, self.points))
            )
        if atoms := self._atoms():
            return checks.like(g, sum((mass * (at >= place) for place, mass in atoms), np.zeros_like(at)))
        x = cast(FloatArray, special.ndtri(np.clip(at, 0.0, 1.0)))
        return checks.like(g, gaussian_argmax.ndtr(self._curve().at(x)[0]))

    @overload
    def pdf(self, g: float) -> float: ...
    @overload
    def pdf(self, g: Numbers) -> FloatArray: ...
    def pdf(self, g: float | Numbers) -> float | FloatArray:
        """Density of G_c. Two classes, n = ∞: exp(½x²(1−1/γ))/√γ with x = Φ⁻¹(g), theory.md (6).

        Finite n: n·P(nG = the count nearest to n·g), which compares with a histogram's density. γ = 0 and γ = ∞ have
        no density for n = ∞: infinite at the fractions that do occur, 0 elsewhere.

        >>> round(Guesses(4.0).pdf(0.5), 12), Guesses(0.25).pdf(0.0), Guesses(4.0).pdf(0.0)
        (0.5, 0.0, inf)
        """
        at = checks.array(g, "a class share g", "pdf(g)")
        inside = (at >= 0) & (at <= 1)
        if self.points is not None:
            nearest = _floor(np.clip(at, 0.0, 1.0) * self.points + 0.5).clip(0, self.points)
            return checks.like(g, np.where(inside, self.points * self._counts().at(nearest), 0.0))
        if atoms := self._atoms():
            return checks.like(g, np.where(np.isin(at, [place for place, _ in atoms]), np.inf, 0.0))
        x = cast(FloatArray, special.ndtri(np.clip(at, 0.0, 1.0)))
        edge = np.isinf(x)
        curve = self._curve()
        w, slope = curve.at(np.where(edge, 0.0, x))
        with np.errstate(over="ignore"):  # ∞ is right: the density has a pole, or the exponent is −∞
            density = np.exp(0.5 * np.where(edge, 0.0, x) ** 2 - 0.5 * w * w) * slope
        end = np.where(x < 0, curve.slope[0], curve.slope[-1])
        density = np.where(edge, np.where(end < 1, np.inf, np.where(end > 1, 0.0, 1.0)), density)
        return checks.like(g, np.where(inside, density, 0.0))

    @overload
    def quantile(self, u: float) -> float: ...
    @overload
    def quantile(self, u: Numbers) -> FloatArray: ...
    def quantile(self, u: float | Numbers) -> float | FloatArray:
        """The smallest g with P(G_c ≤ g) ≥ u. Two classes, n = ∞: Φ(√γ·Φ⁻¹(u)), theory.md (6).

        >>> Guesses(9.0).quantile([0.1, 0.5, 0.9]).round(6).tolist()
        [6e-05, 0.5, 0.99994]
        """
        at = checks.unit(u, "a probability u from 0 to 1", "quantile(u)", "0.5")
        if self.points is not None:
            return checks.like(u, self._counts().first(at) / self.points)
        if atoms := self._atoms():
            place = atoms[0][0]
            return checks.like(u, np.where(at > 1 - 1 / self.classes, 1.0, 0.0) if len(atoms) > 1 else place * (at > 0))
        return checks.like(u, gaussian_argmax.ndtr(self._curve().inverse(cast(FloatArray, special.ndtri(at)))))

    def pmf(self) -> FloatArray:
        """P(n·G_c = k) for k = 0..n, theory.md (7); for M > 2 the same mixture over the distribution of G_c in (8).

        >>> Guesses(0.0, points=4).pmf().round(12).tolist()
        [0.0625, 0.25, 0.375, 0.25, 0.0625]
        """
        if self.points is None:
            raise InvalidInput(
                "a finite number of points", got="infinitely many", where="Guesses.pmf()", hint="points=1000, or pdf(g)"
            )
        return guess_counts.pmf_of(self.gamma, self.classes, self.points).copy()

    def mean(self) -> float:
        """1/M: classes are alike before training."""
        return 1 / self.classes

    def var(self) -> float:
        """Var G_c. Two classes, n = ∞: arcsin(c)/2π. M classes: (T(M, c) − 1/M)/M with T of `expected_max`.

        n data points add E[G(1−G)]/n.

        >>> round(Guesses(1.0).var(), 12), round(Guesses(1.0, 10).var(), 12), round(Guesses(0.0, points=100).var(), 12)
        (0.083333333333, 0.019380986643, 0.0025)
        """
        spread = self._agreement(self.gamma / (1 + self.gamma) if self.gamma < math.inf else 1.0, 1 / (1 + self.gamma))
        spread /= self.classes
        if self.points is None:
            return spread
        even = 1 / self.classes
        return spread + (even * (1 - even) - spread) / self.points

    def std(self) -> float:
        """The standard deviation of G_c, √var.

        >>> round(Guesses(1 / (np.pi - 1)).std(), 6)
        0.227063
        """
        return math.sqrt(self.var())

    # -- The largest share ------------------------------------------------------------------------------------

    def expected_max(self) -> float:
        """E max_c G_c = T(M, √c), the chance that M Gaussians and √c-correlated ones have the same arg-max.

        Exact, because the class with the largest center has the largest share (theory.md (8)). Two classes:
        ½ + arctan(√γ)/π. With n data points: for two classes from the counts; for more, T plus the simulated mean of
        (largest of the counts)/n − (largest of the fractions), whose standard error is `expected_max_error`.

        >>> [round(Guesses(1.0, classes).expected_max(), 6) for classes in (2, 10, 1000)]
        [0.75, 0.431824, 0.134045]
        """
        if self.points is None or self.gamma == math.inf:
            root = 1 / math.sqrt(1 + 1 / self.gamma) if self.gamma > 0 else 0.0
            return 1 / self.classes + self._agreement(root, 1 / (1 + self.gamma) / (1 + root))
        if self.classes == 2:
            distribution = self._counts()
            if isinstance(distribution, Counts):
                return Guesses(self.gamma).expected_max() + distribution.larger_of_two()
            k = np.arange(self.points + 1)
            return float((np.maximum(k, self.points - k) / self.points) @ distribution.at(k))
        counted, exact = _largest(self.gamma, self.classes, self.points)
        return min(1.0, Guesses(self.gamma, self.classes).expected_max() + float((counted - exact).mean()))

    def expected_max_error(self) -> float:
        """The standard error of `expected_max`: 0 unless M > 2 and n is finite."""
        if self.points is None or self.classes == 2 or self.gamma == math.inf:
            return 0.0
        counted, exact = _largest(self.gamma, self.classes, self.points)
        return float((counted - exact).std(ddof=1) / np.sqrt(len(exact)))

    @overload
    def prob_max_above(self, t: float) -> float: ...
    @overload
    def prob_max_above(self, t: Numbers) -> FloatArray: ...
    def prob_max_above(self, t: float | Numbers) -> float | FloatArray:
        """P(max_c G_c > t). Two classes, n = ∞: 2Φ(−Φ⁻¹(t)/√γ), theory.md §3.

        M > 2: M·E[Φ(−max(z_r, z*))], the chance that class 1 leads and is above t, given the strongest rival's center
        z_r and the own center z* at which G_1 = t; rivals are drawn. With n data points, from `pmf` where t ≥ ½ (only
        one class can be above ½), else from simulated counts, with n = ∞ as control variate.

        >>> round(Guesses(1.0).prob_max_above(0.9), 12)
        0.2
        """
        at = checks.unit(t, "a fraction t from 0 to 1", "prob_max_above(t)", "0.9")
        return checks.like(t, np.array([self._max_above(float(v))[0] for v in at.ravel()]).reshape(at.shape))

    @overload
    def prob_max_above_error(self, t: float) -> float: ...
    @overload
    def prob_max_above_error(self, t: Numbers) -> FloatArray: ...
    def prob_max_above_error(self, t: float | Numbers) -> float | FloatArray:
        """The standard error of `prob_max_above(t)`: 0 for two classes."""
        at = checks.unit(t, "a fraction t from 0 to 1", "prob_max_above_error(t)", "0.9")
        return checks.like(t, np.array([self._max_above(float(v))[1] for v in at.ravel()]).reshape(at.shape))

    def kth_largest(self, k: int) -> OverInits:
        """The k-th largest share over initializations (k = 1: the largest): its mean, exact for n = ∞, and its
        distribution.

        >>> print(Guesses(1.0, classes=10).kth_largest(2))
        0.2141 on average, 0.102 to 0.332 in 90 % of the initializations
        """
        return order_statistics.predicted_kth(
            self, replace(self, points=None), order_statistics.check_rank(k, self.classes)
        )

    def entropy(self) -> OverInits:
        """−Σ G ln G in nats over initializations: ln M if all classes get the same, 0 if one gets all.

        >>> print(Guesses(1.0).entropy())
        0.5 on average, 0.117 to 0.692 in 90 % of the initializations
        """
        return order_statistics.predicted_entropy(self, replace(self, points=None))

    # -- Accuracy, samples, exchange -----------------------------------------------------------------------------

    @overload
    def cdf_error(self, g: float) -> float: ...
    @overload
    def cdf_error(self, g: Numbers) -> FloatArray: ...
    def cdf_error(self, g: float | Numbers) -> float | FloatArray:
        """The standard error of `cdf(g)`: 0 for two classes; for finite n that of the mixed n = ∞ distribution."""
        at = checks.array(g, "a class share g", "cdf_error(g)")
        if self._atoms():
            return checks.like(g, np.zeros_like(at))
        return checks.like(g, self._curve().error_at(cast(FloatArray, special.ndtri(np.clip(at, 0.0, 1.0)))))

    @property
    def error(self) -> float:
        """The largest standard error that `cdf` has anywhere: 0 for two classes, about 1e-4 for more."""
        return 0.0 if self._atoms() else float(self._curve().error.max())

    def sample(self, size: int, seed: int = 0) -> FloatArray:
        """`size` draws of (G_1..G_M), theory.md (8), as rows that sum to 1: (size, classes). Finite n: counts/n.

        Row i depends on `seed` and i only, not on `size`. Fractions are accurate to 1e-6 relative.

        >>> Guesses(1.0, classes=3, points=10).sample(2, seed=1).tolist()
        [[0.2, 0.5, 0.3], [0.0, 0.8, 0.2]]
        """
        size = checks.count(size, 1, "number of samples", "sample(size)", "size=1000")
        seed = checks.count(seed, 0, "seed", "sample(seed)", "seed=0")
        z = np.random.default_rng([seed, 0]).standard_normal((size, self.classes))
        if self.gamma == 0:
            share = np.full_like(z, 1 / self.classes)
        elif self.gamma == math.inf:
            share = 1.0 * (np.arange(self.classes) == z.argmax(axis=1, keepdims=True))
        elif self.classes == 2:
            share = gaussian_argmax.ndtr(np.sqrt(self.gamma / 2) * (z - z[:, ::-1]))
        else:
            share = gaussian_argmax.fractions(z, self.gamma)
        if self.points is None:
            return share
        return np.random.default_rng([seed, 1]).multinomial(self.points, share) / self.points

    def to_dict(self) -> dict[str, Any]:
        """Plain values; `from_dict` reads them back.

        >>> Guesses.from_dict(Guesses(2.0, points=100).to_dict())
        Guesses(gamma=2.0, classes=2, points=100)
        """
        return {"gamma": self.gamma, "classes": self.classes, "points": self.points}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Guesses:
        """The inverse of `to_dict`; γ may also be text such as "inf"."""
        if "gamma" not in data or not set(data) <= {"gamma", "classes", "points"}:
            raise InvalidInput(
                "the keys gamma, classes, points", got=sorted(data), where="Guesses.from_dict", hint='{"gamma": 1.0}'
            )
        gamma = data["gamma"]
        return cls(float(gamma) if isinstance(gamma, str) else gamma, data.get("classes", 2), data.get("points"))

    def __repr__(self) -> str:
        points = "" if self.points is None else f", points={self.points}"
        return f"Guesses(gamma={self.gamma!r}, classes={self.classes}{points})"

    def __str__(self) -> str:
        points = "" if self.points is None else f", {self.points} points"
        largest, often = self.expected_max(), self.prob_max_above(0.9)
        return (
            f"γ = {self.gamma:.4g}, {self.classes} classes{points}: the largest share is {largest:.3f} on average "
            f"and above 0.9 with probability {often:.3f}"
        )

    # -- Parts ---------------------------------------------------------------------------------------------------

    def _atoms(self) -> tuple[tuple[float, float], ...]:
        """(fraction, probability) where the distribution for n = ∞ has no density: γ = 0 and γ = ∞."""
        even = 1 / self.classes
        return ((even, 1.0),) if self.gamma == 0 else ((0.0, 1 - even), (1.0, even)) if self.gamma == math.inf else ()

    def _curve(self) -> Curve:
        return guess_counts.curve_of(self.gamma, self.classes)

    def _agreement(self, rho: float, gap: float) -> float:
        if self.classes == 2:  # arcsin ρ/π, from 1 − ρ where ρ is near 1
            return math.atan2(rho, math.sqrt(gap * (2 - gap))) / math.pi
        return gaussian_argmax.excess_agreement(self.classes, rho, gap)

    def _counts(self) -> CountDistribution:
        return guess_counts.law_of(self.gamma, self.classes, cast(int, self.points))

    def _max_above(self, t: float) -> tuple[float, float]:
        """P(max > t) and its standard error."""
        if self.points is None:
            return gaussian_argmax.max_above(self.gamma, self.classes, t)
        first = int(_floor(np.array(t * self.points))) + 1  # the smallest count above
        if self.classes == 2 or 2 * first > self.points:
            above = self._counts().at_least(max(first, self.points // 2 + 1))
            middle = 2 * (self.points // 2) == self.points >= 2 * first  # an even split, above t itself
            half = float(self._counts().at(np.array(self.points // 2))) if middle and self.classes == 2 else 0.0
            error = 0.0 if self.classes == 2 else self.classes * self.cdf_error(t)
            return min(1.0, self.classes * above + half), error
        if first <= self.points / self.classes:
            return 1.0, 0.0  # the largest of M counts is at least their mean
        counted, exact = _largest(self.gamma, self.classes, self.points)
        base, error = gaussian_argmax.max_above(self.gamma, self.classes, t)
        change = 1.0 * (counted > t + 1e-9 / self.points) - 1.0 * (exact > t)
        noise = math.sqrt((float(change @ change) + 1) / len(change) ** 2)  # + 1: no difference seen is not none
        # It is at least the chance to be above ½, and at most the sum over the classes.
        least, most = (min(1.0, self.classes * self._counts().at_least(k)) for k in (self.points // 2 + 1, first))
        return min(most, max(least, base + float(change.mean()))), math.hypot(error, noise)


@lru_cache(maxsize=16)
def _largest(gamma: float, classes: int, points: int) -> tuple[FloatArray, FloatArray]:
    """Simulated largest count/n, and the largest of the fractions it was drawn from: a control variate."""
    size = max(2000, min(20_000, 2_000_000 // classes))
    counted = Guesses(gamma, classes, points).sample(size, seed=20240721)
    exact = Guesses(gamma, classes).sample(size, seed=20240721)
    return counted.max(axis=1), exact.max(axis=1)


def _floor(counts: FloatArray) -> npt.NDArray[np.int64]:
    # n·(k/n) may fall just short of k in float64
    return np.floor(counts + 1e-9).astype(np.int64)
