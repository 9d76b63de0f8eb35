"""The race of M Gaussian classes after theory.md (8): exact moments, the conditional distribution, fast samples.

Everything here is about M > 2 classes and infinitely many data; :mod:`firstguess.theory.shares.gaussian` is the public
face.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import lru_cache
from typing import cast

import numpy as np
import numpy.typing as npt
from numpy.polynomial import chebyshev
from scipy import special
from scipy.special import log_ndtr, ndtr

from firstguess.base.gaussian import Array, pdf
from firstguess.base.numerics import bisect, find_root, interpolate

# A distribution of fractions as a curve, and the distribution of counts that it makes of n data points: theory.md (6)
# and (7).


@dataclass(frozen=True)
class ShareCurve:
    """A distribution of fractions as W(x) = Φ⁻¹(cdf(Φ(x))): a straight line for two classes, nearly one for more.

    Cubic Hermite between its nodes and straight beyond them, so cdf, pdf and quantile belong to one distribution
    exactly. Two nodes make a straight line, which is evaluated as such.
    """

    x: Array  # (nodes,)
    w: Array
    slope: Array
    error: Array  # standard error of the cdf at the nodes

    @classmethod
    def line(cls, slope: float, middle: float, *, error: float = 0.0) -> ShareCurve:
        """W(x) = slope·(x − middle). theory.md (6) has slope 1/√γ and middle 0."""
        x = middle + np.array([-1.0, 1.0]) / slope
        return cls(x, slope * (x - middle), np.full(2, slope), np.full(2, error))

    def at(self, x: Array) -> tuple[Array, Array]:
        """W and dW/dx."""
        if len(self.x) == 2:
            return self.slope[0] * (x - 0.5 * (self.x[0] + self.x[1])), np.full_like(x, self.slope[0])
        cell = np.clip(np.searchsorted(self.x, x) - 1, 0, len(self.x) - 2)
        width = (self.x[1:] - self.x[:-1])[cell]
        rise = (self.w[1:] - self.w[:-1])[cell]
        value, slope = _cubic((x - self.x[cell]) / width, rise, self.slope[cell] * width, self.slope[cell + 1] * width)
        return self.w[cell] + value, slope / width

    def inverse(self, w: Array) -> Array:
        """x with W(x) = w: bisection inside a cell until float64 is exhausted, straight beyond the ends."""
        if len(self.x) == 2:
            return w / self.slope[0] + 0.5 * (self.x[0] + self.x[1])
        cell = np.clip(np.searchsorted(self.w, w) - 1, 0, len(self.w) - 2)
        x = bisect(lambda x: self.at(x)[0] < w, self.x[cell], self.x[cell + 1], 54)
        x = np.where(w < self.w[0], self.x[0] + (w - self.w[0]) / self.slope[0], x)
        return np.where(w > self.w[-1], self.x[-1] + (w - self.w[-1]) / self.slope[-1], x)


def _cubic(t: Array, rise: Array | float, s0: Array, s1: Array) -> tuple[Array, Array]:
    """0 to `rise` from t = 0 to 1 with slopes s0 and s1 there, straight beyond: the value, and its slope."""
    u = np.clip(t, 0.0, 1.0)
    c2, c3 = 3 * rise - 2 * s0 - s1, s0 + s1 - 2 * rise
    end = np.where(t > 1, s1, s0)
    inside = s0 + u * (2 * c2 + 3 * u * c3)
    return u * (s0 + u * (c2 + u * c3)) + (t - u) * end, np.where(t == u, inside, end)


def binomial(points: int, p: float) -> Array:
    """Binomial(n, p) probabilities of 0..n, 0 < p < 1."""
    k = np.arange(points + 1)
    return np.exp(log_choose(points, k) + k * np.log(p) + (points - k) * np.log1p(-p))


def log_choose(n: int, k: npt.NDArray[np.int64]) -> Array:
    """ln of n over k."""
    out = special.gammaln(n + 1.0) - (special.gammaln(k + 1.0) + special.gammaln(n - k + 1.0))
    return np.where((k == 0) | (k == n), 0.0, out)


def binomial_mixture(curve: ShareCurve, points: int) -> Array:
    """Probabilities of 0..n for Binomial(n, G) with G from `curve`: theory.md (7).

    P(k) = ∫ Binomial(k; n, Φ(x)) dcdf(x), by 12-point Gauss-Legendre panels of 2.5 widths of the integrand; where Φ(x)
    is within 1e-21 of 0 or 1 the rest of the distribution goes to the count 0 or n as a whole. Beyond about 1e-12 the
    accuracy is that of log-Gamma: 1e-11 at n = 10⁴, 1e-9 at n = 10⁶.

    >>> binomial_mixture(ShareCurve.line(1.0, 0.0), 3).round(12).tolist()  # γ = 1: every count is equally likely
    [0.25, 0.25, 0.25, 0.25]
    """
    ends = np.clip(curve.inverse(np.array([-9.0, 9.0])), -9.5, 9.5)
    if ends[1] - ends[0] < 1e-10:  # narrower than float64 can divide; its spread changes no probability by 1e-15
        return binomial(points, float(ndtr(ends.mean())))
    (w_low, w_high), _ = curve.at(ends)
    inner = curve.x[(curve.x > ends[0]) & (curve.x < ends[1])]
    edges = np.concatenate([ends[:1], inner, ends[1:]])
    # The likelihood of k in x is as narrow as √(π/2n), the distribution as narrow as 1/W′; their product is narrower
    # than both.
    scale = 1 / np.sqrt(2 / np.pi * points + curve.slope.max() ** 2)
    pieces = np.maximum(1, np.ceil(np.diff(edges) / (2.5 * scale))).astype(np.int64)
    starts = [np.linspace(a, b, m, endpoint=False) for a, b, m in zip(edges[:-1], edges[1:], pieces, strict=True)]
    half = np.repeat(np.diff(edges) / pieces, pieces) / 2
    nodes, weights = np.polynomial.legendre.leggauss(12)
    x = (np.concatenate(starts)[:, None] + half[:, None] * (nodes + 1)).ravel()
    w, slope = curve.at(x)
    mass = (half[:, None] * weights).ravel() * pdf(w) * slope

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
        exponent += log_choose(points, k)[:, None]
        out[start:stop] = np.exp(exponent) @ mass[i:j]
    # Where the range was cut at W = ±9 instead, the rest is 1e-19 and belongs to no count in particular.
    low, high = ndtr(np.array([w_low, -w_high]))
    out[0] += low if ends[0] == -9.5 else 0.0
    out[-1] += high if ends[1] == 9.5 else 0.0
    return out / out.sum()


# Below this γ the fractions are 1/M + √γ·(a Gaussian) to a relative error of about √γ·√(2 ln M): distributions only
# rescale.
TINY_GAMMA = 1e-12

# The line x = (class-free) logit minus the strongest rival's center, on which products of Φ are tabulated. Beyond
# these ends the product is below 1e-50 or within 1e-37 of 1. The trapezoidal rule on it converges geometrically;
# at step 1/8 its relative error is below 1e-12 for M = 1000 (checked by halving the step).
_LINE_STEP = 0.125
_LINE = np.arange(-15.0, 13.0 + _LINE_STEP / 2, _LINE_STEP)
_GAP_NODES = 160
_GAP_END = 20.0  # a rival this far below the strongest one changes no fraction by more than 1e-12
_SHIFT_NODES = 49
_CURVE_NODES = 97

# Rank-1 Korobov lattices (1, a, a², …) mod N, as {N: a}: a minimizes the weighted P₂ criterion with weights 1/j² on
# 20 coordinates, by exhaustive search. Many classes average themselves, so fewer points do as well and save memory.
_LATTICES = {509: 146, 127: 44}
_LATTICE_DIMENSIONS = 20
_REPLICATES = 8
_RIVALS_SEED = 20240721


def _exp(x: Array) -> Array:
    """exp, with 0 below 1e-130: products of two such numbers are never denormal, which would be 20 times slower."""
    return np.where(x < -300.0, 0.0, np.exp(np.maximum(x, -300.0)))


# -- Exact moments -----------------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def excess_agreement(classes: int, rho: float, gap: float) -> float:
    """T(M, ρ) − 1/M, where T is the probability that two ρ-correlated Gaussian M-vectors have the same arg-max.

    T(M, ρ) = M ∬ φ₂(x, y; ρ) Φ₂(x, y; ρ)^{M−1} dx dy. With two data points ρ = c, so E Σ G² = T(M, c); with one data
    point against the centers themselves ρ = √c, so E max G = T(M, √c), because the largest center has the largest
    fraction (theory.md (8)). `gap` is 1 − ρ, passed along because it cannot be recovered from ρ near 1.
    The excess over 1/M is what is returned, to full relative accuracy as ρ → 0, where T − 1/M ≈ ρ·(E max z)²/(M−1).

    >>> round(excess_agreement(2, 0.5, 0.5), 12), round(1 / 6, 12)  # two classes: arcsin(ρ)/π
    (0.166666666667, 0.166666666667)
    """
    if rho == 0.0:
        return 0.0
    if gap == 0.0:
        return 1.0 - 1.0 / classes
    # x + y and x − y are independent; in those coordinates the integrand is smooth at unit scale for every ρ, and the
    # trapezoidal rule on an entire, Gaussian-decaying integrand converges geometrically. Step 0.1: below 1e-12.
    step = 0.1
    total = np.linspace(-9.45, 9.45, 190)  # (190,)
    difference = np.linspace(0.05, 9.45, 95)  # half of the plane: the integrand is even in it
    weight = 2 * classes * step * step
    if not 0.0 < rho <= 0.5:  # below 0 there is no small share to keep: two points that differ more than by chance
        joint = joint_ndtr(np.sqrt(1 - gap / 2) * total[:, None], np.sqrt(gap / 2) * difference[None, :], rho, gap)
        plane = pdf(total)[:, None] * pdf(difference)[None, :] * joint ** (classes - 1)
        return weight * float(plane.sum()) - 1.0 / classes
    # Small ρ: integrate the difference from ρ = 0 itself, as Φ₂(ρ) − Φ₂(0) = ∫₀^ρ φ₂ dr with r = sin θ (Plackett 1954).
    x = np.sqrt(0.5) * (total[:, None] + difference[None, :])
    y = np.sqrt(0.5) * (total[:, None] - difference[None, :])
    nodes, weights = np.polynomial.legendre.leggauss(16)
    end = np.arcsin(rho)
    growth = np.zeros_like(x)
    squares, product = x * x + y * y, x * y
    for node, w in zip(0.5 * end * (nodes + 1), 0.5 * end * weights, strict=True):
        growth += w * np.exp(-(0.5 * squares - product * np.sin(node)) / np.cos(node) ** 2)
    lone = ndtr(x) * ndtr(y)
    log_cdf_ratio = (classes - 1) * np.log1p(growth / (2 * np.pi) / lone)
    log_pdf_ratio = -0.5 * np.log1p(-rho * rho) - (0.5 * rho * rho * squares - rho * product) / (1 - rho * rho)
    log_ratio = log_cdf_ratio + log_pdf_ratio
    log_independent = (classes - 1) * (log_ndtr(x) + log_ndtr(y)) - 0.5 * squares - np.log(2 * np.pi)
    # In the far corner the ratio overflows while its product with the density vanishes: multiply as exponents there.
    small = np.exp(log_independent) * np.expm1(np.minimum(log_ratio, 1.0))
    large = np.exp(log_independent + log_ratio) - np.exp(log_independent)
    return weight * float(np.where(log_ratio < 1.0, small, large).sum())


def joint_ndtr(s: Array, d: Array, rho: float, gap: float) -> Array:
    """Φ₂(s+d, s−d; ρ) by Owen's T function (Owen 1956), with the slopes formed from 1 − ρ and not from ρ."""
    x, y = s + d, s - d
    across = np.sqrt(gap * (2 - gap))
    with np.errstate(divide="ignore", invalid="ignore"):
        slope_x = np.where(x == 0, np.copysign(np.inf, y), (s * gap - d * (1 + rho)) / (x * across))
        slope_y = np.where(y == 0, np.copysign(np.inf, x), (s * gap + d * (1 + rho)) / (y * across))
    opposite = np.where((x * y < 0) | ((x * y == 0) & (x + y < 0)), 0.5, 0.0)
    owen = special.owens_t(x, slope_x) + special.owens_t(y, slope_y)
    return np.clip(0.5 * (ndtr(x) + ndtr(y)) - owen - opposite, 0.0, 1.0)


# -- Products of many Φ at once ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _GapGrid:
    """A table over (gap, line): sums of log Φ(x + gap) over any number of rivals become one scatter and one product.

    The gaps of all rivals to the strongest one are spread over a regular grid by four-point Lagrange interpolation;
    as log Φ is smooth, this costs less than 1e-7 in log R and makes M = 1000 as cheap as M = 160.
    """

    step: float
    log_phi: Array  # (gaps, line)
    log_hazard: Array  # (gaps, line): log φ/Φ

    @classmethod
    def of(cls, gamma: float) -> _GapGrid:
        # 14 standard normal deviations hold every gap that occurs; a larger one is extrapolated, harmlessly.
        step = min(_GAP_END, 14.0 * float(np.sqrt(gamma))) / (_GAP_NODES - 1)
        at = _LINE[None, :] + step * np.arange(_GAP_NODES)[:, None]
        log_phi = log_ndtr(at)
        return cls(step, log_phi, -0.5 * at * at - 0.5 * np.log(2 * np.pi) - log_phi)

    def stencil(self, gaps: Array) -> tuple[npt.NDArray[np.intp], list[Array]]:
        """The first of four grid indices, and the four weights, of every gap; weight 0 for those out of reach."""
        position = np.minimum(gaps, _GAP_END) / self.step
        first = np.clip(position.astype(np.intp) - 1, 0, _GAP_NODES - 4)
        t = position - first
        near = gaps <= _GAP_END
        a, b, c = t - 1, t - 2, t - 3
        return first, [-a * b * c / 6 * near, t * b * c / 2 * near, -t * a * c / 2 * near, t * a * b / 6 * near]

    def spread(self, first: npt.NDArray[np.intp], weights: list[Array]) -> Array:
        """How many gaps each grid node stands for, by row: (rows, gaps)."""
        rows = first.shape[0]
        cell = (first + _GAP_NODES * np.arange(rows)[:, None]).ravel()
        spread = np.zeros(rows * _GAP_NODES)
        for k, w in enumerate(weights):
            spread += np.bincount(cell + k, weights=w.ravel(), minlength=rows * _GAP_NODES)
        return spread.reshape(rows, _GAP_NODES)

    def log_product(self, spread: Array) -> Array:
        """Σ_j log Φ(x + gap_j) on the line, for each row of gaps: (rows, line)."""
        return np.minimum(spread @ self.log_phi, 0.0)


def fractions(centers: Array, gamma: float) -> Array:
    """(8) for rows of standard normal centers z: (rows, classes) fractions that sum to 1, relative error about 1e-6."""
    grid = _GapGrid.of(gamma)
    hazard = _LINE_STEP * _exp(grid.log_hazard)
    out = np.empty_like(centers)
    rows = max(1, 2_000_000 // centers.shape[1])
    for start in range(0, len(centers), rows):
        z = centers[start : start + rows]
        gaps = np.sqrt(gamma) * (z.max(axis=1, keepdims=True) - z)
        first, weights = grid.stencil(gaps)
        product = _exp(grid.log_product(grid.spread(first, weights)))
        with np.errstate(divide="ignore"):
            by_gap = np.log(product @ hazard.T)  # (rows, gaps), a nearly quadratic function of the gap
        row = np.arange(len(z))[:, None]
        log_fraction = sum(w * by_gap[row, first + k] for k, w in enumerate(weights))
        share = np.where(gaps <= _GAP_END, np.exp(log_fraction), 0.0)
        out[start : start + rows] = share / share.sum(axis=1, keepdims=True)
    return out


# -- The distribution of one fraction, conditional on the rivals


def _rivals(classes: int, replicate: int, points: int) -> Array:
    """Centers of the M − 1 rivals, strongest first: the top 20 from a shifted lattice, the rest at random."""
    rng = np.random.default_rng([_RIVALS_SEED, replicate])
    rivals = classes - 1
    leading = min(rivals, _LATTICE_DIMENSIONS)
    powers = [pow(_LATTICES[points], j, points) for j in range(leading)]
    lattice = np.arange(points)[:, None] * np.array(powers)[None, :] / points
    uniform = (lattice + rng.random(leading)) % 1.0
    uniform = np.clip(1 - np.abs(2 * uniform - 1), 1e-300, 1.0 - 1e-16)  # the tent map: periodic, better rate
    # Order statistics from the top: the largest of k uniforms is V^{1/k}, and so on below it.
    log_top = np.cumsum(np.log(uniform) / (rivals - np.arange(leading)), axis=1)
    rest = log_top[:, -1:] + np.log1p(-rng.random((points, rivals - leading)))
    return cast(Array, -special.ndtri(-np.expm1(np.concatenate([log_top, rest], axis=1))))


def _calibration(z: Array) -> Array:
    """Weights of the draws that make their means exact where the mean is known: a regression on control variates.

    Known are P(z₁ > z_r) = 1/M, its second moment, and the first two moments of the sum over rivals. The weights are
    within a few per cent of 1 and the same for every question, so estimated distributions stay monotone and positive.
    """
    classes = z.shape[1] + 1
    lead = ndtr(-z[:, 0])
    controls = np.stack([lead, lead**2, z.sum(axis=1), (z * z).sum(axis=1)], axis=1)
    known = np.array([1 / classes, 2 / (classes * (classes + 1)), 0.0, classes - 1.0])
    centered = controls - controls.mean(axis=0)
    return (
        1 + centered @ np.linalg.lstsq(centered.T @ centered, len(z) * (known - controls.mean(axis=0)), rcond=None)[0]
    )


@dataclass(frozen=True)
class Rivals:
    """Conditional Monte Carlo for theory.md (8): rivals are drawn, class 1's own center is integrated exactly.

    Given the rivals, G₁ increases with z₁, so {G₁ ≤ g} = {z₁ ≤ z*(g)} and P(G₁ ≤ g) = E Φ(z*(g)). Class 1 leads iff
    z₁ exceeds the strongest rival's z_r, so P(max ≤ t) = M·E[(Φ(z*(t)) − Φ(z_r))₊], for every t, also below ½.
    Fixed seed: the same question has the same answer. Standard errors come from 8 independently shifted lattices.
    """

    gamma: float
    classes: int
    weight: Array  # (draws,) close to 1
    strongest: Array  # (draws,) z of the strongest rival
    shift: Array  # (shifts,) own center minus the strongest rival's
    probit: Array  # (draws, shifts) Φ⁻¹(G₁)
    slope: Array  # (draws, shifts) its derivative

    def threshold(self, x: float, *, every: int = 1) -> tuple[Array, Array]:
        """z*(Φ(x)) and its derivative in x, for each draw (or each `every`-th): the inverse of a cubic table."""
        q, slope = self.probit[::every], self.slope[::every]
        row = np.arange(len(q))
        cell = np.clip((q < x).sum(axis=1) - 1, 0, len(self.shift) - 2)
        q0, q1, a0 = q[row, cell], q[row, cell + 1], self.shift[cell]
        width, rise = q1 - q0, self.shift[1] - self.shift[0]
        # beyond the table Φ⁻¹(G₁) is a straight line
        value, derivative = _cubic((x - q0) / width, rise, width / slope[row, cell], width / slope[row, cell + 1])
        root = np.sqrt(self.gamma)
        return self.strongest[::every] + (a0 + value) / root, derivative / width / root

    def _average(self, values: Array) -> tuple[float, float]:
        means = (self.weight * values).reshape(_REPLICATES, -1).mean(axis=1)
        return float(means.mean()), float(means.std(ddof=1) / np.sqrt(_REPLICATES))

    def max_above(self, x: float) -> tuple[float, float]:
        """P(max > Φ(x)) and its standard error."""
        threshold, _ = self.threshold(x)
        above, error = self._average(ndtr(-np.maximum(threshold, self.strongest)))
        return min(1.0, self.classes * above), self.classes * error

    def marginal(self, x: float) -> tuple[float, float, float]:
        """Φ⁻¹(P(G₁ ≤ Φ(x))), its derivative in x, and the standard error of the probability."""
        threshold, derivative = self.threshold(x)
        below, error = self._average(ndtr(threshold))
        above, _ = self._average(ndtr(-threshold))
        w = float(special.ndtri(below) if below < 0.5 else -special.ndtri(above))
        density, _ = self._average(pdf(threshold) * derivative)
        return w, density / float(pdf(np.array(w))), error

    def reach(self, level: float) -> float:
        """The x where Φ⁻¹(P(G₁ ≤ Φ(x))) is about `level`, within what float64 fractions can tell apart."""

        def below(x: Array) -> npt.NDArray[np.bool_]:
            z, _ = self.threshold(float(x), every=16)
            tail = float(np.mean(ndtr(z if level < 0 else -z)))
            return np.array((tail < ndtr(-abs(level))) == (level < 0))

        return float(bisect(below, np.array(-37.0), np.array(8.2), 50))


@lru_cache(maxsize=8)
def rivals(gamma: float, classes: int) -> Rivals:
    """The draws for (γ, M), kept for the last few questions (a few MB each)."""
    grid = _GapGrid.of(gamma)
    root = float(np.sqrt(gamma))
    shift = np.linspace(-min(16.0, 15 * root), min(14.0, 15 * root), _SHIFT_NODES)
    offset = _LINE[:, None] - shift[None, :]  # (line, shifts)
    kernel = _LINE_STEP * _exp(-0.5 * offset * offset) / np.sqrt(2 * np.pi)
    kernels = np.concatenate([kernel, kernel * offset], axis=1)  # for G₁ and for its derivative
    points = 509 if classes <= 1200 else 127
    weight: list[Array] = []
    strongest: list[Array] = []
    spread: list[Array] = []
    for replicate in range(_REPLICATES):
        z = _rivals(classes, replicate, points)
        weight.append(_calibration(z))
        strongest.append(z[:, 0])
        spread.append(grid.spread(*grid.stencil(root * (z[:, :1] - z))))
    # One large product instead of eight: threads of a busy machine wait for each other at every call.
    log_r = grid.log_product(np.concatenate(spread))
    below, density_below = np.split(_exp(log_r) @ kernels, 2, axis=1)
    above, density_above = np.split(-np.expm1(log_r) @ kernels, 2, axis=1)
    # The smaller tail is the accurate one, and the only one that the ends of the line do not cut.
    lower = below < above
    probit = np.where(lower, 1, -1) * special.ndtri(np.where(lower, below, above))
    slope = np.where(lower, density_below, -density_above) / pdf(probit)
    return Rivals(gamma, classes, np.concatenate(weight), np.concatenate(strongest), shift, probit, slope)


@lru_cache(maxsize=64)
def marginal_curve(gamma: float, classes: int) -> ShareCurve:
    """The distribution of one fraction of M > 2 classes, 0 < γ < ∞."""
    if gamma < TINY_GAMMA:
        middle = float(special.ndtri(1 / classes))
        # The variance is proportional to γ here; from TINY_GAMMA, as a γ of 1e-320 would underflow on the way.
        per_gamma = excess_agreement(classes, TINY_GAMMA, 1 - TINY_GAMMA) / TINY_GAMMA / classes
        deviation = np.sqrt(per_gamma) * np.sqrt(gamma)
        return ShareCurve.line(float(pdf(np.array(middle)) / deviation), middle, error=1e-6)
    draws = rivals(gamma, classes)
    x = np.linspace(draws.reach(-8.5), draws.reach(8.5), _CURVE_NODES)
    w, slope, error = np.array([draws.marginal(float(v)) for v in x]).T
    return ShareCurve(x, w, slope, error)


def max_above(gamma: float, classes: int, t: float) -> tuple[float, float]:
    """P(max > t) for infinitely many data, and its standard error."""
    if t >= 1 or gamma in (0.0, math.inf):
        return 1.0 * (t < (1 / classes if gamma == 0 else 1.0)), 0.0
    if t <= 1 / classes:
        return 1.0, 0.0
    x = float(special.ndtri(t))
    if classes == 2:
        return 2 * float(special.ndtr(-x / math.sqrt(gamma))), 0.0
    even = float(special.ndtri(1 / classes))
    # Below TINY_GAMMA the deviations from 1/M only scale with √γ.
    scaled = even + (x - even) * math.sqrt(max(1.0, TINY_GAMMA / gamma))
    return rivals(max(gamma, TINY_GAMMA), classes).max_above(scaled)


# How often two points of an overlap get the same class, as a series in the overlap.


_TERMS = 28  # of A as a series in arcsin c: 1e-9 for ten classes


@dataclass(frozen=True)
class AgreementProbability:
    """A(c) for a number of classes: a series in arcsin c from −π/2 to π/2."""

    classes: int
    terms: Array

    def __call__(self, c: Array) -> Array:
        angle: Array = np.arcsin(np.clip(c, -1.0, 1.0))
        if self.classes == 2:
            return angle / math.pi
        return np.asarray(chebyshev.chebval(2.0 * angle / math.pi, self.terms), dtype=np.float64)

    def overlap(self, excess: float) -> float:
        """The c with A(c) = excess; 0 where that is not above 0."""
        if excess <= 0.0:
            return 0.0
        most = 1.0 - 1.0 / self.classes
        if excess >= most:
            return 1.0
        if self.classes == 2:
            return math.sin(math.pi * excess)
        return math.sin(find_root(lambda a: float(self(np.array([math.sin(a)]))[0]) - excess, 0.0, 0.5 * math.pi))

    def slopes_at_zero(self) -> tuple[float, float, float, float]:
        """A', A'', A''', A'''' at c = 0."""
        if self.classes == 2:
            return 1.0 / math.pi, 0.0, 1.0 / math.pi, 0.0
        scale = 2.0 / math.pi
        one, two, three, four = (
            scale**k * float(chebyshev.chebval(0.0, chebyshev.chebder(self.terms, k))) for k in (1, 2, 3, 4)
        )
        return one, two, three + one, four + 4.0 * two  # α = c + c³/6 + …


@lru_cache(maxsize=32)
def agreement_probability(classes: int) -> AgreementProbability:
    """A(c), tabulated once for a number of classes."""
    if classes == 2:
        return AgreementProbability(2, np.zeros(1))
    c = np.sin(0.5 * math.pi * chebyshev.chebpts1(_TERMS))
    return AgreementProbability(
        classes, interpolate(np.array([excess_agreement(classes, float(x), float(1.0 - x)) for x in c]))
    )
