"""The guesses that a drift ratio γ means: the distribution of the fractions (G_1..G_M) of an untrained classifier."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

import numpy as np
from scipy import special
from scipy.special import log_ndtr, ndtr

from firstguess.base import checks
from firstguess.base.errors import InvalidInput
from firstguess.base.gaussian import Array, pdf
from firstguess.theory.shares import counts as guess_counts
from firstguess.theory.shares import gaussian_argmax
from firstguess.theory.shares.base import ClassShares, OverInits, check_rank, entropies, kth_values
from firstguess.theory.shares.counts import MANY, CountDistribution, Counts, pmf_of, whole
from firstguess.theory.shares.gaussian_argmax import ShareCurve

# The k-th largest share and the entropy of the guesses, over initializations: theory.md (8), IGB App. H.
#
# A class's share grows with its center, so the class whose center is k-th has the k-th largest share, and its mean
# is the chance that a data point is put there: of M independent pairs (center x, logit y) of correlation √c,
#
#     E G_(k) = M!/((k−1)!(M−k)!) ∬ φ₂(x, y) [Φ(y) − Φ₂(x, y)]^{k−1} Φ₂(x, y)^{M−k} dx dy,
#
# k − 1 rivals having a center above x and a logit below y, the others both below. k = 1 is theory.md's E max G.

_STEP = 0.08  # of the logit given the center; halving it changes nothing in 12 digits (M up to 1000)
_CENTERS = 320  # over the range in which the k-th center lies
_QUICK = 64, 0.3  # both, for a chart
_REPLICATES = 8  # of the draws of rivals
_SEED = 20261116


def average_kth(classes: int, k: int, gamma: float, *, quick: bool = False) -> float:
    """E G_(k) for infinitely many data points, to about 1e-12 absolute; `quick`, eighteen times as fast, to 1e-8."""
    if gamma in (0.0, math.inf):
        return 1.0 / classes if gamma == 0.0 else 1.0 * (k == 1)
    return expected_kth(classes, k, gamma, *_QUICK) if quick else expected_kth(classes, k, gamma)


@lru_cache(maxsize=256)
def expected_kth(classes: int, k: int, gamma: float, centers: int = _CENTERS, across_step: float = _STEP) -> float:
    """E G_(k) for infinitely many data points, 0 < γ < ∞, to about 1e-12 absolute.

    >>> print(f"{expected_kth(2, 1, 1.0):.9f} {sum(expected_kth(5, k, 3.0) for k in range(1, 6)):.9f}")
    0.750000000 1.000000000
    """
    rho = 1.0 / math.sqrt(1.0 + 1.0 / gamma)
    gap = 1.0 / (1.0 + gamma) / (1.0 + rho)  # 1 − ρ without cancelling
    across = math.sqrt(gap * (2.0 - gap))
    log_count = special.gammaln(classes + 1) - special.gammaln(k) - special.gammaln(classes - k + 1)
    wide = np.linspace(-9.5, 9.5, 2001)
    log_density = log_count - 0.5 * wide**2 + (classes - k) * log_ndtr(wide) + (k - 1) * log_ndtr(-wide)
    inside = wide[log_density > log_density.max() - 42.0]
    x, step = np.linspace(inside[0], inside[-1], centers, retstep=True)
    t = np.arange(-9.6, 9.6 + across_step / 2, across_step)
    y = rho * x[:, None] + across * t[None, :]
    d = 0.5 * (gap * x[:, None] - across * t[None, :])  # ½(x − y)
    both = gaussian_argmax.joint_ndtr(x[:, None] - d, d, rho, gap)
    log_terms = log_count - 0.5 * (x[:, None] ** 2 + t[None, :] ** 2) - math.log(2.0 * math.pi)
    log_terms = log_terms + (classes - k) * _log(both)
    if k > 1:
        log_terms = log_terms + (k - 1) * _log(ndtr(y) - both)
    return float(np.exp(log_terms).sum() * float(step) * across_step)


def _log(p: Array) -> Array:
    return np.log(np.maximum(p, 1e-300))


@lru_cache(maxsize=256)
def entropy_of_two(gamma: float) -> float:
    """E of the binary entropy of Φ(√γ z), 0 < γ < ∞: the trapezoidal rule in Φ⁻¹(G) or in z, whichever is wider."""
    scale = max(1.0, math.sqrt(gamma))
    at = np.arange(-40.0, 40.0, 0.05) * (1.0 if gamma > 1.0 else 0.3)
    x = at if gamma > 1.0 else math.sqrt(gamma) * at  # Φ⁻¹(G)
    z = at / scale
    step = float(at[1] - at[0]) / scale
    both = -ndtr(x) * log_ndtr(x) - ndtr(-x) * log_ndtr(-x)
    return float(np.sum(pdf(z) * both) * step)


@lru_cache(maxsize=64)
def entropy_of_many(gamma: float, classes: int) -> tuple[float, float]:
    """E of the entropy for M > 2 classes, 0 < γ < ∞, and its standard error.

    M·E[−G₁ ln G₁]: rivals are drawn and the own center integrated (`gaussian_argmax.Rivals`), with E G₁ = 1/M and
    E G₁², which are known, as control variates.
    """
    least = max(gamma, 1e-300)
    same = gaussian_argmax.excess_agreement(classes, 1.0 / (1.0 + 1.0 / least), 1.0 / (1.0 + least))
    second = (1.0 / classes + same) / classes
    if gamma < gaussian_argmax.TINY_GAMMA:  # 1/M plus a small Gaussian: ln M − ½M²·Var G
        return math.log(classes) - 0.5 * classes**2 * (second - 1.0 / classes**2), 0.0
    draws = gaussian_argmax.rivals(gamma, classes)
    root = math.sqrt(gamma)
    step = float(draws.shift[1] - draws.shift[0])
    weights = pdf(draws.strongest[:, None] + draws.shift / root) * (step / root)  # (draws, shifts)
    share, log_share = ndtr(draws.probit), log_ndtr(draws.probit)
    beyond = ndtr(-(draws.strongest + (draws.shift[-1] + 0.5 * step) / root))  # there G₁ = 1
    lost = np.sum(weights * -share * log_share, axis=1)
    once = np.sum(weights * share, axis=1) + beyond
    twice = np.sum(weights * share**2, axis=1) + beyond
    controls = np.stack([once, twice], axis=1) * draws.weight[:, None]
    value = lost * draws.weight
    away = controls - controls.mean(axis=0)
    slopes = np.linalg.lstsq(away, value - value.mean(), rcond=None)[0]
    corrected = value - (controls - np.array([1.0 / classes, second])) @ slopes
    means = classes * corrected.reshape(_REPLICATES, -1).mean(axis=1)
    return float(means.mean()), float(means.std(ddof=1) / math.sqrt(_REPLICATES))


def _predicted(
    shares: ClassShares, gamma: float, number: Callable[[Array], Array], mean: float, error: float
) -> OverInits:
    """The distribution of a number of the shares, whose mean for infinitely many points is known to `error`."""
    size, points = max(2000, min(20_000, 2_000_000 // shares.classes)), shares.points
    if shares.classes == 2 and (points is None or points < MANY):
        if points is None:
            z = special.ndtri((np.arange(size) + 0.5) / size)  # quantiles at even steps: no sampling error
            one = ndtr(math.sqrt(gamma) * z)
            return OverInits(mean, error, np.sort(number(np.stack([one, 1.0 - one], axis=1))))
        pmf = pmf_of(gamma, 2, points)
        one = np.arange(points + 1) / points
        each = number(np.stack([one, 1.0 - one], axis=1))
        order = np.argsort(each, kind="stable")
        at = np.searchsorted(np.cumsum(pmf[order]), (np.arange(size) + 0.5) / size)
        return OverInits(float(each @ pmf), 0.0, each[order][np.minimum(at, points)])
    exact = number(shares.on_points(None).sample(size, seed=_SEED))
    if points is None:
        return OverInits(mean, error, np.sort(exact))
    counted = number(shares.sample(size, seed=_SEED))
    change = counted - exact  # what counting adds: the same initializations with and without it
    own = float(change.std(ddof=1)) / math.sqrt(size)
    return OverInits(mean + float(change.mean()), math.hypot(error, own), np.sort(counted))


_MOST_POINTS = 10**15  # counts are then still whole numbers in float64


@dataclass(frozen=True, repr=False)
class Guesses(ClassShares):
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
    classes: int = 2  # pyright: ignore[reportIncompatibleMethodOverride]
    points: int | None = None  # pyright: ignore[reportIncompatibleMethodOverride]

    def __post_init__(self) -> None:
        gamma = checks.number(self.gamma)
        if not gamma >= 0:
            hint = "gamma=1.0"
            raise InvalidInput("a drift ratio γ from 0 to infinity", got=self.gamma, where="Guesses(gamma)", hint=hint)
        object.__setattr__(self, "gamma", abs(gamma))  # −0.0 is 0
        object.__setattr__(
            self, "classes", checks.count(self.classes, 2, "number of classes", "Guesses(classes)", "classes=2")
        )
        if self.points is not None:
            hint = "points=1000, or points=None for infinitely many"
            points = checks.count(self.points, 1, "number of data points", "Guesses(points)", hint)
            if points > _MOST_POINTS:
                hint = "points=None for infinitely many"
                raise InvalidInput("at most 10¹⁵ data points", got=points, where="Guesses(points)", hint=hint)
            object.__setattr__(self, "points", points)

    def _cdf(self, at: Array) -> Array:
        if self.points is not None:
            return self._counts().share_at_most(at, self.points)
        if atoms := self._atoms():
            return np.asarray(sum(mass * (at >= place) for place, mass in atoms), dtype=np.float64)
        x = cast(Array, special.ndtri(np.clip(at, 0.0, 1.0)))
        return ndtr(self._curve().at(x)[0])

    def _cdf_error(self, at: Array) -> Array:
        """The error, for finite n that of the n = ∞ distribution that is mixed."""
        if self._atoms():
            return np.zeros_like(at)
        curve = self._curve()
        return np.interp(special.ndtri(np.clip(at, 0.0, 1.0)), curve.x, curve.error)

    @property
    def error(self) -> float:
        """The largest standard error that `cdf` has anywhere: 0 for two classes, about 1e-4 for more."""
        return 0.0 if self._atoms() else float(self._curve().error.max())

    def _pdf(self, at: Array) -> Array:
        if self.points is not None:
            return self._counts().density(at, self.points)
        if atoms := self._atoms():
            return np.where(np.isin(at, [place for place, _ in atoms]), np.inf, 0.0)
        x = cast(Array, special.ndtri(np.clip(at, 0.0, 1.0)))
        edge = np.isinf(x)
        curve = self._curve()
        w, slope = curve.at(np.where(edge, 0.0, x))
        with np.errstate(over="ignore"):  # ∞ is right: the density has a pole, or the exponent is −∞
            density = np.exp(0.5 * np.where(edge, 0.0, x) ** 2 - 0.5 * w * w) * slope
        end = np.where(x < 0, curve.slope[0], curve.slope[-1])
        density = np.where(edge, np.where(end < 1, np.inf, np.where(end > 1, 0.0, 1.0)), density)
        return np.where((at >= 0) & (at <= 1), density, 0.0)

    def _quantile(self, at: Array) -> Array:
        if self.points is not None:
            return self._counts().first(at) / self.points
        if atoms := self._atoms():
            place = atoms[0][0]
            found = 1.0 * (at > 1 - 1 / self.classes) if len(atoms) > 1 else place * (at > 0)
            return np.asarray(found, dtype=np.float64)
        return ndtr(self._curve().inverse(cast(Array, special.ndtri(at))))

    def _pmf(self, points: int) -> Array:
        return guess_counts.pmf_of(self.gamma, self.classes, points).copy()

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

    def kth_largest(self, k: int) -> OverInits:
        """The k-th largest share over initializations (k = 1: the largest): its mean, exact for n = ∞, and its
        distribution.

        >>> print(Guesses(1.0, classes=10).kth_largest(2))
        0.2141 on average, 0.102 to 0.332 in 90 % of the initializations
        """
        k, gamma = check_rank(k, self.classes), self.gamma
        return _predicted(self, gamma, lambda rows: kth_values(rows, k), average_kth(self.classes, k, gamma), 0.0)

    def entropy(self) -> OverInits:
        """−Σ G ln G in nats over initializations: ln M if all classes get the same, 0 if one gets all.

        >>> print(Guesses(1.0).entropy())
        0.5 on average, 0.117 to 0.692 in 90 % of the initializations
        """
        classes, gamma, error = self.classes, self.gamma, 0.0
        if gamma in (0.0, math.inf):
            mean = math.log(classes) if gamma == 0.0 else 0.0
        elif classes == 2:
            mean = entropy_of_two(gamma)
        else:
            mean, error = entropy_of_many(gamma, classes)
        return _predicted(self, gamma, entropies, mean, error)

    def _sample(self, size: int, seed: int) -> Array:
        """Fractions are accurate to 1e-6 relative."""
        z = np.random.default_rng([seed, 0]).standard_normal((size, self.classes))
        if self.gamma == 0:
            share = np.full_like(z, 1 / self.classes)
        elif self.gamma == math.inf:
            share = 1.0 * (np.arange(self.classes) == z.argmax(axis=1, keepdims=True))
        elif self.classes == 2:
            share = ndtr(np.sqrt(self.gamma / 2) * (z - z[:, ::-1]))
        else:
            share = gaussian_argmax.fractions(z, self.gamma)
        if self.points is None:
            return share
        return np.random.default_rng([seed, 1]).multinomial(self.points, share) / self.points

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Guesses:
        """The inverse of `to_dict`; γ may also be text such as "inf".

        >>> Guesses.from_dict(Guesses(2.0, points=100).to_dict())
        Guesses(gamma=2.0, classes=2, points=100)
        """
        if "gamma" not in data or not set(data) <= {"gamma", "classes", "points"}:
            expected = "the keys gamma, classes, points"
            raise InvalidInput(expected, got=sorted(data), where="Guesses.from_dict", hint='{"gamma": 1.0}')
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

    def _atoms(self) -> tuple[tuple[float, float], ...]:
        """(fraction, probability) where the distribution for n = ∞ has no density: γ = 0 and γ = ∞."""
        even = 1 / self.classes
        return ((even, 1.0),) if self.gamma == 0 else ((0.0, 1 - even), (1.0, even)) if self.gamma == math.inf else ()

    def _curve(self) -> ShareCurve:
        return guess_counts.curve_of(self.gamma, self.classes)

    def _agreement(self, rho: float, gap: float) -> float:
        if self.classes == 2:  # arcsin ρ/π, from 1 − ρ where ρ is near 1
            return math.atan2(rho, math.sqrt(gap * (2 - gap))) / math.pi
        return gaussian_argmax.excess_agreement(self.classes, rho, gap)

    def _counts(self) -> CountDistribution:
        return guess_counts.count_distribution(self.gamma, self.classes, cast(int, self.points))

    def _above(self, t: float) -> tuple[float, float]:
        """P(max > t) and its standard error."""
        if self.points is None:
            return gaussian_argmax.max_above(self.gamma, self.classes, t)
        first = int(whole(np.array(t * self.points))) + 1  # the smallest count above
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
def _largest(gamma: float, classes: int, points: int) -> tuple[Array, Array]:
    """Simulated largest count/n, and the largest of the fractions it was drawn from: a control variate."""
    size = max(2000, min(20_000, 2_000_000 // classes))
    counted = Guesses(gamma, classes, points).sample(size, seed=20240721)
    exact = Guesses(gamma, classes).sample(size, seed=20240721)
    return counted.max(axis=1), exact.max(axis=1)
