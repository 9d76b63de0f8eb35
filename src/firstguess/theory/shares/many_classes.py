"""Logits of many classes where overlaps of pairs differ: Gaussian over points, with a covariance of their own.

In one network the last hidden layer of a point is μ + g_a (`pair_moments`). After Gaussian output weights W (M × N) its
logits are m + W g_a with m = Wμ: over points N(m, S), S = WΣWᵀ, and shares are P(arg-max = k | m, S). Distribution (8)
is S = (1 − e)·1. Of Σ three numbers are known, tr Σ, tr Σ², tr Σ³, and where μ lies in it, μΣμ: Σ is given the
eigenvalues of a gamma distribution, K of them, with which unit vectors (g/|g|) have these traces.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy import special

from firstguess.base.gaussian import Array
from firstguess.base.numerics import find_root
from firstguess.base.statistics import guesses
from firstguess.theory.shares.gaussian_argmax import agreement_probability

# How the overlaps of pairs of points hang together within a network: what the distribution of many classes needs.
#
# The last hidden layer of a point is μ + g_a, with μ what all points have in common (|μ|² = e, the mean overlap) and
# g_a of covariance Σ over the points; of unit vectors tr Σ = 1 − e. Then over distinct points
#
# E c_ab = e,   E c_ab c_ac = e² + μΣμ,   E c_ab c_cd = e²,   E c_ab² = e² + 2μΣμ + tr Σ²,
# E c_ab c_bc c_cd = e³ + 2e·μΣμ + μΣ²μ,   E c_ab c_bc c_ca = e³ + 3e·μΣμ + 3μΣ²μ + tr Σ³,
#
# sums over pairs, paths and triangles of points, of which a sample has many.


@dataclass(frozen=True)
class PairMoments:
    """e; what pairs differ by: `spread` = tr Σ²/(tr Σ)², `third` = tr Σ³/(tr Σ)³ in units of its square; `along` = μΣμ.

    `spread` is one over how many directions points differ in; `third` is 1 where these are all alike, more where some
    have more than others.
    """

    e: float = 0.0
    spread: float = 0.0
    third: float = 1.0
    along: float = 0.0

    @classmethod
    def of(cls, rows: Array) -> PairMoments:
        """The moments of the averages of every network (`pair_moments`)."""
        e, square, near, far, path, triangle = (float(v) for v in rows.mean(axis=0))
        along = near - far
        spread = square - 2.0 * near + far
        own = 1.0 - e
        if spread <= 0.0 or own <= 0.0:
            return cls(e)
        curved = path - e**3 - 2.0 * e * along  # μΣ²μ
        third = triangle - e**3 - 3.0 * e * along - 3.0 * curved
        return cls(e, spread / own**2, third * own / spread**2, along)


def pair_moments(c: Array) -> Array:
    """(networks, 6): of cosines c the averages of c_ab, c_ab², c_ab c_ac, c_ab c_cd, c_ab c_bc c_cd, c_ab c_bc c_ca."""
    n = c.shape[1]
    c = c * (1.0 - np.eye(n))
    row = c.sum(axis=2)
    squares = (c * c).sum(axis=2)
    one, two = row.sum(axis=1), squares.sum(axis=1)
    near = (row**2).sum(axis=1) - two
    far = one**2 - 2.0 * two - 4.0 * near
    triangle = np.einsum("rab,rba->r", c @ c, c)
    # all a-b-c-d with neighbours distinct, less those with a = c, b = d or a = d
    path = (
        np.einsum("ra,rab,rb->r", row, c, row) - 2.0 * (squares * row).sum(axis=1) + (c**3).sum(axis=(1, 2)) - triangle
    )
    pairs = n * (n - 1.0)
    threes = pairs * (n - 2.0)
    fours = threes * (n - 3.0)
    return np.stack([one / pairs, two / pairs, near / threes, far / fours, path / fours, triangle / threes], axis=1)


MOST_CLASSES = 64  # beyond, drawing takes long
_WIDEST = 300  # directions from which on all are taken to be alike, and μ to be none of them
_LEAST = 1.5  # directions, at least
_STEEP = 8.0  # 1/shape of the gamma distribution, at most
_PAIRS = 40_000
_SEED = 20261117
_POINTS = 1024  # of a network: what shares are read off
_JITTER = 1e-9  # on the diagonal of S, which is about 1: S may be nearly singular
_BLOCK = 32  # networks drawn at a time


@dataclass(frozen=True)
class ShareSpectrum:
    """Eigenvalues of Σ (their sum 1), and the squares of μ's parts along them (their sum at most 1).

    None for both: `directions` alike, and μ none of them.
    """

    directions: float
    values: tuple[float, ...] = ()
    along: tuple[float, ...] = ()


def unit_traces(values: Array) -> Array:
    """E of the squared components of g/|g|, for g of independent Gaussian components of these variances.

    E x_i²/Σx_j² = ∫₀^∞ λ_i (1 + 2tλ_i)^{-3/2} Π_{j≠i} (1 + 2tλ_j)^{-1/2} dt.
    """
    nodes, weights = np.polynomial.legendre.leggauss(60)
    x = 0.5 * (nodes + 1.0)
    t = x / (1.0 - x)
    grown = 1.0 + 2.0 * t[:, None] * values
    common = 0.5 * weights / (1.0 - x) ** 2 * np.exp(-0.5 * np.log(grown).sum(axis=1))
    return np.asarray((common[:, None] * values / grown).sum(axis=0))


def _gamma(count: int, steep: float) -> Array:
    """`count` quantiles of a gamma distribution of shape 1/steep, of sum 1."""
    if steep <= 0.0:
        return np.full(count, 1.0 / count)
    middle = (np.arange(count) + 0.5) / count
    values = np.asarray(special.gammaincinv(1.0 / steep, middle), dtype=np.float64)
    return values / values.sum()


def _traces(count: int, steep: float) -> tuple[float, float]:
    s = unit_traces(_gamma(count, steep))
    two = float((s**2).sum())
    return two, float((s**3).sum()) / two**2


def _count(spread: float, steep: float) -> int:
    """The least number of eigenvalues with at most this spread."""
    low, high = 1, 2
    while _traces(high, steep)[0] > spread:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _traces(middle, steep)[0] > spread else (low, middle)
    return high


@lru_cache(maxsize=64)
def spectrum(spread: float, third: float, along: float) -> ShareSpectrum:
    """The spectrum with these traces (`PairMoments`), and with μΣμ = along for μ of length 1 and tr Σ = 1."""
    spread = min(spread, 1.0 / _LEAST)
    if spread * _WIDEST < 1.0:
        return ShareSpectrum(1.0 / spread)
    flat, steepest = 0.0, _STEEP
    if third <= 1.0:
        steep = 0.0
    elif _traces(_count(spread, steepest), steepest)[1] <= third:
        steep = steepest
    else:
        for _ in range(12):
            steep = 0.5 * (flat + steepest)
            if _traces(_count(spread, steep), steep)[1] < third:
                flat = steep
            else:
                steepest = steep
        steep = 0.5 * (flat + steepest)
    count = _count(spread, steep)
    if _traces(count, 2.0 * _STEEP)[0] > spread > _traces(count, 0.0)[0]:  # between two whole numbers of directions
        steep = find_root(lambda s: _traces(count, s)[0] - spread, 0.0, 2.0 * _STEEP)
    values = _gamma(count, steep)
    return ShareSpectrum(float(count), tuple(values.tolist()), tuple(_along(values, along).tolist()))


def _along(values: Array, along: float) -> Array:
    """Squares of μ's components, ∝ λ^p, with Σ μ_i² λ_i = along; where p = 0 has too much, a part of μ is outside."""

    def mean(power: float) -> Array:
        share = (values / values.max()) ** power
        return share / share.sum()

    level = float(values.mean())
    if along <= level:
        return mean(0.0) * max(along / level, 0.0)
    most = 8.0
    if float(mean(most) @ values) <= along:
        return mean(most)
    return mean(find_root(lambda p: float(mean(p) @ values) - along, 0.0, most))


@lru_cache(maxsize=64)
def strength(shape: ShareSpectrum, excess: float, classes: int, first: float) -> float:
    """The mean overlap e with which E A(c) over pairs is right; `first`, what overlaps say, where none is."""
    same = agreement_probability(classes)
    rng = np.random.default_rng([_SEED, 1])
    if shape.values:
        g = rng.standard_normal((2, _PAIRS // 2, len(shape.values))) * np.sqrt(np.array(shape.values))
        inside = np.sqrt(np.array(shape.along))
        ab, aa, bb = (np.einsum("pi,pi->p", *pair) for pair in ((g[0], g[1]), (g[0], g[0]), (g[1], g[1])))
        ma, mb = g[0] @ inside, g[1] @ inside
    else:
        # cosines of points in this number of directions: half a beta distribution about 0
        half = 0.5 * (shape.directions - 1.0)
        ab = 2.0 * rng.beta(half, half, _PAIRS // 2) - 1.0
        aa = bb = np.ones_like(ab)
        ma = mb = np.zeros_like(ab)

    def wrong(e: float) -> float:
        r, cross = 1.0 - e, math.sqrt(e * (1.0 - e))
        found = 0.0
        for sign in (1.0, -1.0):  # b and its mirror image
            top = e + cross * (ma + sign * mb) + r * sign * ab
            bottom = (e + 2.0 * cross * ma + r * aa) * (e + 2.0 * cross * sign * mb + r * bb)
            found += 0.5 * float(same(top / np.sqrt(np.maximum(bottom, 1e-300))).mean())
        return found - excess

    low, high = 0.0, min(max(2.0 * first, 0.05), 0.9)
    if wrong(low) >= 0.0 or wrong(high) <= 0.0:
        return max(first, 0.0)
    return find_root(wrong, low, high, xtol=1e-9)


def draw_shares(shape: ShareSpectrum, e: float, classes: int, networks: int, seed: int) -> Array:
    """(networks, classes): shares of infinitely many points, of which 1024 are drawn. Row i depends on seed and i."""
    found = np.empty((-(-networks // _BLOCK) * _BLOCK, classes))
    for start in range(0, networks, _BLOCK):
        rng = np.random.default_rng([seed, 5, start // _BLOCK])
        m, root = _logits(shape, e, classes, rng)
        z = rng.standard_normal((_BLOCK, _POINTS // 2, root.shape[2]), dtype=np.float32)
        own = z @ root.transpose(0, 2, 1).astype(np.float32)
        center = m[:, None, :].astype(np.float32)
        best = np.concatenate([guesses(center + own, rng), guesses(center - own, rng)], axis=1)
        best += classes * np.arange(_BLOCK)[:, None]
        counts = np.bincount(best.ravel(), minlength=classes * _BLOCK)
        found[start : start + _BLOCK] = counts.reshape(_BLOCK, classes) / (2 * (_POINTS // 2))
    return found[:networks]


def _logits(shape: ShareSpectrum, e: float, classes: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """m and a root of S for a block of networks: (networks, M), (networks, M, directions)."""
    own = math.sqrt(1.0 - e)
    if not shape.values:  # Bartlett's decomposition of a Wishart matrix
        root = np.tril(rng.standard_normal((_BLOCK, classes, classes)), -1)
        rows = np.arange(classes)
        root[:, rows, rows] = np.sqrt(rng.chisquare(shape.directions - rows, (_BLOCK, classes)))
        m = math.sqrt(e) * rng.standard_normal((_BLOCK, classes))
        return m, root * (own / math.sqrt(shape.directions))
    weights = rng.standard_normal((_BLOCK, classes, len(shape.values)))
    inside = np.array(shape.along)
    outside = math.sqrt(max(1.0 - float(inside.sum()), 0.0))
    m = math.sqrt(e) * (weights @ np.sqrt(inside) + outside * rng.standard_normal((_BLOCK, classes)))
    root = own * weights * np.sqrt(np.array(shape.values))
    if root.shape[2] <= classes:
        return m, root
    square = root @ root.transpose(0, 2, 1)
    return m, np.asarray(np.linalg.cholesky(square + _JITTER * np.eye(classes)), dtype=np.float64)


def of_pairs(pairs: PairMoments) -> ShareSpectrum:
    """The spectrum of what a network's overlaps say."""
    own = 1.0 - pairs.e
    along = pairs.along / (pairs.e * own) if pairs.e > 0.0 else 0.0
    return spectrum(round(pairs.spread, 9), round(pairs.third, 4), round(along, 6))
