"""How long the bias of M classes lasts, in closed form: the mean logits of the classes over time (theory.md (16)).

Logits of i.i.d. inputs are f_c = m_c + s·z_c, z ~ N(0, 1) over the data, s² = q − q_ab, and m ~ N(0, q_ab) over
initializations. Of Θ only the direction common to all points moves m, and labels are even and know nothing of z:
`dm_c/dτ = −(E_z softmax_c(m + s·z) − 1/M)`, τ = ηλ_b·t. The average is one integral for any M: softmax is the chance
that f_c + g_c is largest, g_c independent Gumbel variables, so with F the law of s·z + g
`E softmax_c = ∫ F'(t − m_c) Π_{j≠c} F(t − m_j) dt`; without g that is the share G_c of (8). For two classes (16)
replaces this average by σ(m/κ), which is good to some percent.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import special

from firstguess.base.gaussian import Array

_SPACING = 0.4  # of quadratures over t: e^{−π²/spacing} of a Gumbel's law is left
_FINE = 2e-3  # of tables: linear between, 1e-6 of a slope
_NODES = 80  # Gauss–Hermite, for the law of s·z + g
_LONGEST = 1000.0  # τ by classes: later is never


@dataclass(frozen=True)
class _Race:
    """Who of M independent variables around m_c is largest: tables of ln F and of its derivative."""

    low: float
    high: float
    log_cdf: Array
    slope: Array

    @classmethod
    def of(cls, log_cdf: Callable[[Array], Array], slope: Callable[[Array], Array], low: float, high: float) -> _Race:
        x = np.linspace(low, high, 1 + math.ceil((high - low) / _FINE))
        return cls(low, high, log_cdf(x), slope(x))

    def chances(self, m: Array) -> Array:
        """(networks, classes): that each class is largest."""
        top = m.max(axis=1, keepdims=True)
        t = np.arange(self.low + _SPACING / 2, self.high, _SPACING)
        at = t[None, None, :] - (m - top)[:, :, None]  # at least t: beyond the table F is 1
        place = (np.clip(at, self.low, self.high) - self.low) * ((len(self.slope) - 1) / (self.high - self.low))
        index = np.minimum(place.astype(np.int64), len(self.slope) - 2)
        part = place - index
        logs = self.log_cdf[index] * (1.0 - part) + self.log_cdf[index + 1] * part
        slopes = self.slope[index] * (1.0 - part) + self.slope[index + 1] * part
        found = np.einsum("ict,it->ic", slopes, np.exp(logs.sum(axis=1))) * _SPACING
        return found / found.sum(axis=1, keepdims=True)


def _softmax_race(spread: float) -> _Race:
    """F = E_z exp(−exp(−(x − s·z)))."""
    nodes, weights = special.roots_hermitenorm(_NODES)
    weights = weights / weights.sum()

    def terms(x: Array) -> tuple[Array, Array]:
        away = np.exp(np.clip(spread * nodes[None, :] - x[:, None], -700.0, 700.0))
        alive = np.exp(-away)
        return alive @ weights, (away * alive) @ weights

    def log_cdf(x: Array) -> Array:
        return np.log(np.maximum(terms(x)[0], 1e-300))

    def slope(x: Array) -> Array:
        cdf, density = terms(x)
        return density / np.maximum(cdf, 1e-300)

    return _Race.of(log_cdf, slope, -4.0 - 6.0 * spread, 22.0 + 6.0 * spread)


def _normal_race() -> _Race:
    """F = Φ, in units of s."""

    def slope(x: Array) -> Array:
        return np.exp(-0.5 * np.square(x) - special.log_ndtr(x)) / math.sqrt(2.0 * math.pi)

    return _Race.of(special.log_ndtr, slope, -9.0, 9.0)


def flow_times(level: float, means: Array, spread: float, *, step: float = 0.5) -> Array:
    """τ = ηλ_b·t until the largest share falls to `level`, from means m (networks, classes); inf: never.

    >>> m = np.array([[1.0, -1.0]])                         # g = 2, s·√2 = 1.4: (16) says 4.84
    >>> print(f"{flow_times(0.6, m, 1.4 / np.sqrt(2.0))[0]:.4f}")
    4.9414
    """
    count, classes = means.shape
    found = np.full(count, math.inf)
    if not spread > 0.0:
        return np.where(np.ptp(means, axis=1) > 0, math.inf, 0.0)
    softmax, normal = _softmax_race(spread), _normal_race()

    def slope(m: Array) -> Array:
        return 1.0 / classes - softmax.chances(m)

    def largest(m: Array) -> Array:
        return normal.chances(m / spread).max(axis=1)

    m = means - means.mean(axis=1, keepdims=True)
    left = np.arange(count)
    done = largest(m) <= level
    found[done] = 0.0
    left, m = left[~done], m[~done]
    k1, time = slope(m), 0.0
    while len(left) and time < _LONGEST * classes:
        k2 = slope(m + 0.5 * step * k1)
        k3 = slope(m + 0.5 * step * k2)
        k4 = slope(m + step * k3)
        new = m + step / 6.0 * (k1 + 2.0 * k2 + 2.0 * k3 + k4)
        after = slope(new)
        done = largest(new) <= level
        if done.any():
            found[left[done]] = time + step * _crossing(
                largest, level, m[done], new[done], step * k1[done], step * after[done]
            )
        keep = ~done
        left, m, k1 = left[keep], new[keep], after[keep]
        time += step
    return found


def _crossing(
    largest: Callable[[Array], Array], level: float, old: Array, new: Array, left: Array, right: Array
) -> Array:
    """Where in a step the share is at the level: bisection along the cubic through both ends and their slopes."""
    low, high = np.zeros(len(old)), np.ones(len(old))
    for _ in range(26):
        u = 0.5 * (low + high)
        v = u[:, None]
        m = (
            old * (1 + 2 * v) * (1 - v) ** 2
            + left * v * (1 - v) ** 2
            + new * v * v * (3 - 2 * v)
            + right * v * v * (v - 1)
        )
        below = largest(m) <= level
        high, low = np.where(below, u, high), np.where(below, low, u)
    return 0.5 * (low + high)


def drawn_means(classes: int, variance: float, draws: int) -> Array:
    """m ~ N(0, variance) of every class, of networks evenly spread over their law (Sobol points, a power of two)."""
    from scipy.stats import qmc

    points = qmc.Sobol(classes, scramble=True, rng=np.random.default_rng(0)).random_base2(round(math.log2(draws)))
    return math.sqrt(max(variance, 0.0)) * special.ndtri(np.clip(points, 1e-9, 1.0 - 1e-9))
