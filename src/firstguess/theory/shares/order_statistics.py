"""The k-th largest share and the entropy of the guesses, over initializations: theory.md (8), IGB App. H.

A class's share grows with its center, so the class whose center is k-th has the k-th largest share, and its mean
is the chance that a data point is put there: of M independent pairs (center x, logit y) of correlation √c,

    E G_(k) = M!/((k−1)!(M−k)!) ∬ φ₂(x, y) [Φ(y) − Φ₂(x, y)]^{k−1} Φ₂(x, y)^{M−k} dx dy,

k − 1 rivals having a center above x and a logit below y, the others both below. k = 1 is theory.md's E max G.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Protocol, overload

import numpy as np
from scipy import special

from firstguess.base import checks
from firstguess.base.checks import Numbers
from firstguess.base.errors import InvalidInput
from firstguess.base.statistics import FloatArray
from firstguess.theory.shares import gaussian_argmax
from firstguess.theory.shares.counts import MANY, pmf_of
from firstguess.theory.shares.gaussian_argmax import log_ndtr, ndtr, phi

_STEP = 0.08  # of the logit given the center; halving it changes nothing in 12 digits (M up to 1000)
_CENTERS = 320  # over the range in which the k-th center lies
_QUICK = 64, 0.3  # both, for a chart
_REPLICATES = 8  # of plurality's draws
_SEED = 20261116


@dataclass(frozen=True, eq=False)
class OverInits:
    """One number of every initialization: its `mean` with the standard error of that, and its distribution by `values`.

    `values` are sorted: those of the members that were measured, or of initializations drawn from the predicted
    distribution (for two classes and infinitely many points its quantiles at even steps). An `error` of 0: the mean is
    exact.
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
        at = checks.unit(u, "a probability u from 0 to 1", "quantile(u)", "0.5")
        size = len(self.values)
        return checks.like(u, self.values[np.clip(np.ceil(at * size - 1e-9).astype(np.int64) - 1, 0, size - 1)])

    def std(self) -> float:
        """The standard deviation over initializations; NaN for one."""
        return float(self.values.std(ddof=1)) if len(self.values) > 1 else math.nan

    def __float__(self) -> float:
        return self.mean

    def __str__(self) -> str:
        error = f" ± {self.error:.1g}" if self.error > 0.0 else ""
        low, high = self.quantile([0.05, 0.95])
        return f"{self.mean:.4g}{error} on average, {low:.3g} to {high:.3g} in 90 % of the initializations"


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


def of_rows(values: FloatArray) -> OverInits:
    """Measured values, one an initialization."""
    error = float(values.std(ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return OverInits(float(values.mean()), error, np.sort(values))


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


def _log(p: FloatArray) -> FloatArray:
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
    return float(np.sum(phi(z) * both) * step)


@lru_cache(maxsize=64)
def entropy_of_many(gamma: float, classes: int) -> tuple[float, float]:
    """E of the entropy for M > 2 classes, 0 < γ < ∞, and its standard error.

    M·E[−G₁ ln G₁]: rivals are drawn and the own center integrated (`plurality.Rivals`), with E G₁ = 1/M and E G₁²,
    which are known, as control variates.
    """
    second = (1.0 / classes + gaussian_argmax.excess_agreement(classes, *_overlap(max(gamma, 1e-300)))) / classes
    if gamma < gaussian_argmax.TINY_GAMMA:  # 1/M plus a small Gaussian: ln M − ½M²·Var G
        return math.log(classes) - 0.5 * classes**2 * (second - 1.0 / classes**2), 0.0
    draws = gaussian_argmax.rivals(gamma, classes)
    root = math.sqrt(gamma)
    step = float(draws.shift[1] - draws.shift[0])
    weights = phi(draws.strongest[:, None] + draws.shift / root) * (step / root)  # (draws, shifts)
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


def _overlap(gamma: float) -> tuple[float, float]:
    """(c, 1 − c)."""
    return 1.0 / (1.0 + 1.0 / gamma), 1.0 / (1.0 + gamma)


# --- predicted distributions
# ---------------------------------------------------------------------------------------------------


class Sampled(Protocol):
    """A distribution of the fractions that can be drawn from: `Guesses`."""

    @property
    def gamma(self) -> float: ...

    @property
    def classes(self) -> int: ...

    @property
    def points(self) -> int | None: ...

    def sample(self, size: int, seed: int = 0) -> FloatArray: ...


def predicted_kth(distribution: Sampled, infinite: Sampled, k: int) -> OverInits:
    """The k-th largest share; `infinite` is the same distribution for infinitely many points."""
    mean = average_kth(distribution.classes, k, distribution.gamma)
    return _predicted(distribution, infinite, lambda rows: kth_values(rows, k), mean, 0.0)


def predicted_entropy(distribution: Sampled, infinite: Sampled) -> OverInits:
    """The entropy; `infinite` is the same distribution for infinitely many points."""
    gamma, classes = distribution.gamma, distribution.classes
    error = 0.0
    if gamma in (0.0, math.inf):
        mean = math.log(classes) if gamma == 0.0 else 0.0
    elif classes == 2:
        mean = entropy_of_two(gamma)
    else:
        mean, error = entropy_of_many(gamma, classes)
    return _predicted(distribution, infinite, entropies, mean, error)


def _predicted(
    distribution: Sampled, infinite: Sampled, number: Callable[[FloatArray], FloatArray], mean: float, error: float
) -> OverInits:
    """The distribution of a number of the fractions, whose mean for infinitely many points is known to `error`."""
    size = max(2000, min(20_000, 2_000_000 // distribution.classes))
    if distribution.classes == 2 and (distribution.points is None or distribution.points < MANY):
        if distribution.points is None:
            z = special.ndtri((np.arange(size) + 0.5) / size)  # quantiles at even steps: no sampling error
            one = ndtr(math.sqrt(distribution.gamma) * z)
            return OverInits(mean, error, np.sort(number(np.stack([one, 1.0 - one], axis=1))))
        pmf = pmf_of(distribution.gamma, 2, distribution.points)
        one = np.arange(distribution.points + 1) / distribution.points
        each = number(np.stack([one, 1.0 - one], axis=1))
        order = np.argsort(each, kind="stable")
        at = np.searchsorted(np.cumsum(pmf[order]), (np.arange(size) + 0.5) / size)
        return OverInits(float(each @ pmf), 0.0, each[order][np.minimum(at, distribution.points)])
    exact = number(infinite.sample(size, seed=_SEED))
    if distribution.points is None:
        return OverInits(mean, error, np.sort(exact))
    counted = number(distribution.sample(size, seed=_SEED))
    change = counted - exact  # what counting adds: the same initializations with and without it
    own = float(change.std(ddof=1)) / math.sqrt(size)
    return OverInits(mean + float(change.mean()), math.hypot(error, own), np.sort(counted))
