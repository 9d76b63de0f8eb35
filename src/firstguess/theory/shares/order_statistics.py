"""The k-th largest share and the entropy of the guesses, over initializations: theory.md (8), IGB App. H.

A class's share grows with its center, so the class whose center is k-th has the k-th largest share, and its mean
is the chance that a data point is put there: of M independent pairs (center x, logit y) of correlation √c,

    E G_(k) = M!/((k−1)!(M−k)!) ∬ φ₂(x, y) [Φ(y) − Φ₂(x, y)]^{k−1} Φ₂(x, y)^{M−k} dx dy,

k − 1 rivals having a center above x and a logit below y, the others both below. k = 1 is theory.md's E max G.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from scipy import special

from firstguess.base.statistics import FloatArray
from firstguess.theory.shares import gaussian_argmax
from firstguess.theory.shares.base import ClassShares, OverInits, entropies, kth_values
from firstguess.theory.shares.counts import MANY, pmf_of
from firstguess.theory.shares.gaussian_argmax import log_ndtr, ndtr, phi

_STEP = 0.08  # of the logit given the center; halving it changes nothing in 12 digits (M up to 1000)
_CENTERS = 320  # over the range in which the k-th center lies
_QUICK = 64, 0.3  # both, for a chart
_REPLICATES = 8  # of plurality's draws
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


def predicted_kth(shares: ClassShares, gamma: float, k: int) -> OverInits:
    """The k-th largest share, of drift ratio γ."""
    return _predicted(shares, gamma, lambda rows: kth_values(rows, k), average_kth(shares.classes, k, gamma), 0.0)


def predicted_entropy(shares: ClassShares, gamma: float) -> OverInits:
    """The entropy, of drift ratio γ."""
    classes, error = shares.classes, 0.0
    if gamma in (0.0, math.inf):
        mean = math.log(classes) if gamma == 0.0 else 0.0
    elif classes == 2:
        mean = entropy_of_two(gamma)
    else:
        mean, error = entropy_of_many(gamma, classes)
    return _predicted(shares, gamma, entropies, mean, error)


def _predicted(
    shares: ClassShares, gamma: float, number: Callable[[FloatArray], FloatArray], mean: float, error: float
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
