"""A law of class shares that is known by draws: shares of infinitely many points, in many networks."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import special

from firstguess.base.statistics import FloatArray

_BINS = 400  # groups of shares that are alike, for the law of a count


@dataclass(frozen=True, eq=False)
class DrawnShares:
    """What one share and the largest one are like, with standard errors; all classes are alike."""

    shares: FloatArray  # (networks, classes), of infinitely many points
    points: int | None
    seed: int

    @cached_property
    def counted(self) -> FloatArray:
        """Shares of `points` points of each network."""
        if self.points is None:
            return self.shares
        rng = np.random.default_rng([self.seed, 6])
        return rng.multinomial(self.points, self.shares) / self.points

    @cached_property
    def _sorted(self) -> FloatArray:
        return np.sort(self.shares, axis=None)

    @cached_property
    def pmf(self) -> FloatArray:
        """P(n·G = k): binomial, over the law of a share."""
        assert self.points is not None
        n, size = self.points, self._sorted.size
        ends = np.linspace(0, size, min(_BINS, size) + 1).astype(int)
        share = np.array([self._sorted[a:b].mean() for a, b in itertools.pairwise(ends)])
        k = np.arange(n + 1)
        ways = special.gammaln(n + 1) - special.gammaln(k + 1) - special.gammaln(n - k + 1)
        found = np.zeros(n + 1)
        for weight, g in zip(np.diff(ends) / size, share, strict=True):
            found += weight * np.exp(ways + special.xlogy(k, g) + special.xlog1py(n - k, -g))
        return found

    def cdf(self, g: FloatArray) -> FloatArray:
        if self.points is None:
            return np.searchsorted(self._sorted, g, side="right") / self._sorted.size
        at = np.floor(np.clip(g, -1.0, 1.0) * self.points + 1e-9).astype(int)
        total = np.concatenate([[0.0], np.cumsum(self.pmf)])
        return total[np.clip(at, -1, self.points) + 1]

    def pdf(self, g: FloatArray) -> FloatArray:
        """Of infinitely many points by a window of a quarter of a standard deviation."""
        if self.points is not None:
            inside = (g >= 0.0) & (g <= 1.0)
            nearest = np.floor(np.clip(g, 0.0, 1.0) * self.points + 0.5).astype(int)
            return np.where(inside, self.points * self.pmf[nearest], 0.0)
        half = 0.125 * float(self.shares.std())
        return (self.cdf(g + half) - self.cdf(g - half)) / (2.0 * half)

    def quantile(self, u: FloatArray) -> FloatArray:
        if self.points is None:
            size = self._sorted.size
            return self._sorted[np.clip(np.ceil(u * size - 1e-9).astype(int) - 1, 0, size - 1)]
        return np.minimum(np.searchsorted(np.cumsum(self.pmf), u - 1e-12), self.points) / self.points

    def cdf_error(self, g: FloatArray) -> FloatArray:
        """Over networks: classes of one are not independent."""
        at = np.asarray(g)
        below = np.array([(self.shares <= v).mean(axis=1).std() for v in at.ravel()]).reshape(at.shape)
        return below / math.sqrt(len(self.shares))

    @cached_property
    def largest(self) -> FloatArray:
        return self.counted.max(axis=1)

    def expected_max(self) -> tuple[float, float]:
        """And its standard error."""
        return float(self.largest.mean()), float(self.largest.std(ddof=1)) / math.sqrt(len(self.largest))

    def max_above(self, t: float) -> tuple[float, float]:
        """P(max G > t), and its standard error."""
        share = float((self.largest > t + 1e-12).mean())
        return share, math.sqrt(share * (1.0 - share) / len(self.largest))
