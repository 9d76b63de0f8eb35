"""A law of fractions as a curve, and the law of counts that it makes of n data points: theory.md (6) and (7)."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt
from scipy import special

FloatArray = npt.NDArray[np.float64]


def ndtr(x: FloatArray) -> FloatArray:
    """Φ, the standard normal cdf."""
    return cast(FloatArray, special.ndtr(x))


def log_ndtr(x: FloatArray) -> FloatArray:
    """log Φ."""
    return cast(FloatArray, special.log_ndtr(x))


def phi(x: FloatArray) -> FloatArray:
    """The standard normal density."""
    return np.exp(-0.5 * x * x) / np.sqrt(2 * np.pi)


@dataclass(frozen=True)
class Curve:
    """A law of fractions as W(x) = Φ⁻¹(cdf(Φ(x))): a straight line for two classes, nearly one for more.

    Cubic Hermite between its nodes and straight beyond them, so cdf, pdf and quantile belong to one law exactly.
    Two nodes make a straight line, which is evaluated as such.
    """

    x: FloatArray  # (nodes,)
    w: FloatArray
    slope: FloatArray
    error: FloatArray  # standard error of the cdf at the nodes

    @classmethod
    def line(cls, slope: float, middle: float, *, error: float = 0.0) -> Curve:
        """W(x) = slope·(x − middle). theory.md (6) has slope 1/√γ and middle 0."""
        x = middle + np.array([-1.0, 1.0]) / slope
        return cls(x, slope * (x - middle), np.full(2, slope), np.full(2, error))

    def at(self, x: FloatArray) -> tuple[FloatArray, FloatArray]:
        """W and dW/dx."""
        if len(self.x) == 2:
            return self.slope[0] * (x - 0.5 * (self.x[0] + self.x[1])), np.full_like(x, self.slope[0])
        cell = np.clip(np.searchsorted(self.x, x) - 1, 0, len(self.x) - 2)
        width = (self.x[1:] - self.x[:-1])[cell]
        rise = (self.w[1:] - self.w[:-1])[cell]
        s0, s1 = self.slope[cell] * width, self.slope[cell + 1] * width
        t = (x - self.x[cell]) / width
        u = np.clip(t, 0.0, 1.0)
        c2, c3 = 3 * rise - 2 * s0 - s1, s0 + s1 - 2 * rise
        end = np.where(t > 1, s1, s0)
        inside = s0 + u * (2 * c2 + 3 * u * c3)
        value = self.w[cell] + u * (s0 + u * (c2 + u * c3)) + (t - u) * end
        return value, np.where(t == u, inside, end) / width

    def inverse(self, w: FloatArray) -> FloatArray:
        """x with W(x) = w: bisection inside a cell until float64 is exhausted, straight beyond the ends."""
        if len(self.x) == 2:
            return w / self.slope[0] + 0.5 * (self.x[0] + self.x[1])
        cell = np.clip(np.searchsorted(self.w, w) - 1, 0, len(self.w) - 2)
        low, high = self.x[cell], self.x[cell + 1]
        for _ in range(54):
            middle = 0.5 * (low + high)
            short = self.at(middle)[0] < w
            low, high = np.where(short, middle, low), np.where(short, high, middle)
        x = 0.5 * (low + high)
        x = np.where(w < self.w[0], self.x[0] + (w - self.w[0]) / self.slope[0], x)
        return np.where(w > self.w[-1], self.x[-1] + (w - self.w[-1]) / self.slope[-1], x)

    def error_at(self, x: FloatArray) -> FloatArray:
        """Standard error of the cdf."""
        return np.interp(x, self.x, self.error)


def binomial(points: int, p: float) -> FloatArray:
    """Binomial(n, p) probabilities of 0..n, 0 < p < 1."""
    k = np.arange(points + 1)
    return np.exp(_log_choose(points, k) + k * np.log(p) + (points - k) * np.log1p(-p))


def _log_choose(n: int, k: npt.NDArray[np.int64]) -> FloatArray:
    out = special.gammaln(n + 1.0) - (special.gammaln(k + 1.0) + special.gammaln(n - k + 1.0))
    return np.where((k == 0) | (k == n), 0.0, out)


def binomial_mixture(curve: Curve, points: int) -> FloatArray:
    """Probabilities of 0..n for Binomial(n, G) with G from `curve`: theory.md (7).

    P(k) = ∫ Binomial(k; n, Φ(x)) dcdf(x), by 12-point Gauss-Legendre panels of 2.5 widths of the integrand; where Φ(x)
    is within 1e-21 of 0 or 1 the rest of the law goes to the count 0 or n as a whole. Beyond about 1e-12 the accuracy
    is that of log-Gamma: 1e-11 at n = 10⁴, 1e-9 at n = 10⁶.

    >>> binomial_mixture(Curve.line(1.0, 0.0), 3).round(12).tolist()  # γ = 1: every count is equally likely
    [0.25, 0.25, 0.25, 0.25]
    """
    ends = np.clip(curve.inverse(np.array([-9.0, 9.0])), -9.5, 9.5)
    if ends[1] - ends[0] < 1e-10:  # narrower than float64 can divide; its spread changes no probability by 1e-15
        return binomial(points, float(ndtr(ends.mean())))
    (w_low, w_high), _ = curve.at(ends)
    inner = curve.x[(curve.x > ends[0]) & (curve.x < ends[1])]
    edges = np.concatenate([ends[:1], inner, ends[1:]])
    # The likelihood of k in x is as narrow as √(π/2n), the law as narrow as 1/W′; their product is narrower than both.
    scale = 1 / np.sqrt(2 / np.pi * points + curve.slope.max() ** 2)
    pieces = np.maximum(1, np.ceil(np.diff(edges) / (2.5 * scale))).astype(np.int64)
    starts = [np.linspace(a, b, m, endpoint=False) for a, b, m in zip(edges[:-1], edges[1:], pieces, strict=True)]
    half = np.repeat(np.diff(edges) / pieces, pieces) / 2
    nodes, weights = np.polynomial.legendre.leggauss(12)
    x = (np.concatenate(starts)[:, None] + half[:, None] * (nodes + 1)).ravel()
    w, slope = curve.at(x)
    mass = (half[:, None] * weights).ravel() * phi(w) * slope

    log_p, log_q = log_ndtr(x), log_ndtr(-x)
    angle = np.arcsin(np.exp(0.5 * log_p))
    # pmf(k) ≤ exp(−n·KL) ≤ exp(−n·Δ²), Δ the distance of the angles arcsin √p and arcsin √(k/n): e⁻³⁶ is skipped.
    reach = 6 / np.sqrt(points)
    blocks = max(1, int(0.8 * np.sqrt(points)))
    bounds = np.unique(np.round((points + 1) * np.sin(np.linspace(0, np.pi / 2, blocks + 1)) ** 2).astype(np.int64))
    out = np.zeros(points + 1)
    for start, stop in itertools.pairwise(bounds):
        k = np.arange(start, stop)
        spread = np.arcsin(np.sqrt(k[[0, -1]] / points))
        i, j = np.searchsorted(angle, [spread[0] - reach, spread[1] + reach])
        exponent = np.outer(k, log_p[i:j])
        exponent += np.outer(points - k, log_q[i:j])
        exponent += _log_choose(points, k)[:, None]
        out[start:stop] = np.exp(exponent) @ mass[i:j]
    # Where the range was cut at W = ±9 instead, the rest is 1e-19 and belongs to no count in particular.
    low, high = ndtr(np.array([w_low, -w_high]))
    out[0] += low if ends[0] == -9.5 else 0.0
    out[-1] += high if ends[1] == 9.5 else 0.0
    return out / out.sum()
