"""How many tokens one token attends to: the participation of soft-max weights with Gaussian logits, theory.md (26)."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from firstguess.base.gaussian import Array

if TYPE_CHECKING:
    from scipy.interpolate import CubicSpline

_STEP = 0.25  # of v: exp(−eᵛ) is analytic up to π/2 beside the axis, so a trapezoid rule is exact to e^(−π²/_STEP)
_LARGEST = 40.0  # β beyond which weights are one token, to what matters here
_GRID = 80  # values of β between which the renormalization is interpolated


def participation(tokens: int, beta: float) -> float:
    """Y = Σ E A_t² of soft-max weights over `tokens` independent logits N(0, β²): theory.md (26).

    Y = T ∫ h(v) M(v)^{T−1} dv with h = E e^{2y − e^y}, M = E exp(−e^y), y ~ N(v, β²).

    >>> print(f"{participation(16, 1.0):.6f} {participation(64, 1.0):.6f}")
    0.132452 0.038804
    """
    if tokens == 1 or beta == 0.0:
        return 1.0 / tokens
    step, h, m = _integrands(beta)
    return float(tokens * step * np.sum(h * m ** (tokens - 1)))


@lru_cache(maxsize=512)
def _integrands(beta: float) -> tuple[float, Array, Array]:
    """The step of v, and h and M on it: convolutions of smooth functions with a Gaussian of width β."""
    step = min(_STEP, 0.25 * beta)
    reach = 9.0 * beta
    width = math.ceil(reach / step)
    z = np.arange(-width, width + 1) * step
    weights = np.exp(-0.5 * (z / beta) ** 2)
    weights /= weights.sum()
    # h falls like e^{2v} to the left and doubly exponentially to the right
    y = np.arange(math.floor((-25.0 - 2.0 * reach) / step), math.ceil((4.0 + 2.0 * reach) / step) + 1) * step
    with np.errstate(under="ignore"):
        e = np.exp(np.minimum(y, 7.0))
        survive = np.exp(-e)
        squares = e * e * survive
    return step, np.convolve(squares, weights, "valid"), np.minimum(np.convolve(survive, weights, "valid"), 1.0)


@lru_cache(maxsize=64)
def _ratios(counts: tuple[int, ...]) -> CubicSpline:
    """β_eff²/β² of so many tokens as a function of β, from a grid that is finer where β is small."""
    from scipy.interpolate import CubicSpline

    beta = _LARGEST * np.linspace(0.0, 1.0, _GRID) ** 2
    tokens = np.array(counts, dtype=np.float64)
    ratio = np.ones((_GRID, tokens.size))
    for index, b in enumerate(beta[1:], start=1):
        step, h, m = _integrands(float(b))
        with np.errstate(under="ignore", divide="ignore"):
            y = tokens * step * (np.exp(np.multiply.outer(tokens - 1.0, np.log(m))) @ h)
        y = np.clip(y, 1.0 / tokens, 1.0 - 1e-12)
        ratio[index] = np.log(y * (tokens - 1.0) / (1.0 - y)) / b**2
    return CubicSpline(beta, ratio)


def renormalized(tokens: Array, beta_square: Array) -> Array:
    """r² = β_eff²/β² with e^{β_eff²} = Y(T−1)/(1−Y): for which annealed weights have the exact participation.

    `beta_square` is (…, T) for `tokens` (T,): how many tokens each attends to.

    >>> print(f"{renormalized(np.array([64]), np.array([4.0]))[0]:.3f}")
    0.623
    """
    beta = np.minimum(np.sqrt(np.maximum(beta_square, 0.0)), _LARGEST)
    out = np.ones_like(beta)
    counts = tuple(int(c) for c in np.unique(tokens) if c > 1)
    spline = _ratios(counts) if counts else None
    for index, count in enumerate(counts):
        at = np.broadcast_to(tokens == count, beta.shape)
        out[at] = _column(spline, beta[at], index)
    return np.clip(out, 0.0, 1.0)


def _column(spline: CubicSpline | None, beta: Array, index: int) -> Array:
    assert spline is not None
    one = type(spline).construct_fast(spline.c[:, :, index], spline.x)
    return np.asarray(one(beta), dtype=np.float64)
