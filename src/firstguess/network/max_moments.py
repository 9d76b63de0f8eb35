"""The largest of several independent nodes: its moments, and the covariance of two of them (theory.md (9))."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache

import numpy as np
from numpy.polynomial import chebyshev

from firstguess.base import gaussian
from firstguess.base.errors import NotCovered
from firstguess.base.gaussian import Array, Moments
from firstguess.base.series import interpolate
from firstguess.network.activations.record import Activation

_TINY_ANGLE = 5e-4
_ANGLE_X, _ANGLE_W = np.polynomial.legendre.leggauss(20)


def activation_mean(phi: Activation, q: float) -> float:
    """E φ(√q z) of the activation before its mean was taken off."""
    return replace(phi, centered=False).moments(0.0, q).mean


@lru_cache(maxsize=16384)
def max_moments(phi: Activation, size: int, between: float, spread: float) -> Moments:
    """Moments of M = max_k φ(u_k) over `size` independent nodes.

    Mean and variance are integrals over the law of the largest node. Of the variance, the smaller part is computed and
    the other is the rest: both integrands below are positive, so neither end loses digits. With F₂ the law of a pair,

        between = ∬ (F₂^K − (F₁F₁)^K) dφ dφ,     spread = 2∬_{s<t} (F₁(s)^K − F₂(s,t)^K) dφ(s) dφ(t),

    where F₂ − F₁F₁ and F₁(s) − F₂ are themselves integrals of the bivariate density over the correlation (Price).
    """
    q = between + spread
    root = math.sqrt(q)
    x, w = _nodes(phi, root)
    mass = size * w * _pdf(x) * _cdf(x) ** (size - 1)
    mass /= mass.sum()
    f = phi.offset + phi.rise(root * x)
    mean = float(np.dot(mass, f))
    variance = float(np.dot(mass, (f - mean) ** 2))
    theta = math.atan2(math.sqrt(spread * (2.0 * between + spread)), between)
    if between == 0.0:
        return Moments(mean, 0.0, variance)
    if spread == 0.0:
        return Moments(mean, variance, 0.0)
    if theta > 0.8:
        new_between = _between(phi, size, root, math.pi / 2 - theta, x, w)
        return Moments(mean, new_between, max(variance - new_between, 0.0))
    if theta > _TINY_ANGLE:
        new_spread = _spread(phi, size, root, theta)
    else:  # too narrow to integrate over; the ratio of spreads is analytic in θ, so it is continued from wider angles
        angles = _TINY_ANGLE * np.arange(1.0, 5.0)
        ratios = [_spread(phi, size, root, float(t)) / (2.0 * q * math.sin(t / 2.0) ** 2) for t in angles]
        fit = np.polynomial.polynomial.polyfit(angles, np.array(ratios), 2)
        new_spread = spread * float(np.polynomial.polynomial.polyval(theta, fit))
    return Moments(mean, max(variance - new_spread, 0.0), new_spread)


@lru_cache(maxsize=64)
def max_series(phi: Activation, size: int, q: float) -> tuple[Array, Array, float, float]:
    """E[M_a M_b] and its derivative by the covariance as Chebyshev series in θ ∈ [0, π]; E M and E M²."""
    n = 24
    while True:
        theta = (chebyshev.chebpts1(n) + 1.0) * 0.5 * math.pi
        series = interpolate(np.array([_center(phi, size, q, float(t)) for t in theta]))
        if np.abs(series[-3:]).max() <= 1e-10 * np.abs(series).max() or n > 300:
            break
        n *= 2
    slope = -chebyshev.chebval(chebyshev.chebpts1(n), chebyshev.chebder(series)) * (2.0 / math.pi) / (q * np.sin(theta))
    alone = max_moments(phi, size, 0.0, q)
    return series, interpolate(slope), alone.mean, alone.mean**2 + alone.spread


def _center(phi: Activation, size: int, q: float, theta: float) -> float:
    if theta <= math.pi / 2:
        spread = 2.0 * q * math.sin(theta / 2.0) ** 2
        m = max_moments(phi, size, q - spread, spread)
        return m.mean**2 + m.between
    x, w = _nodes(phi, math.sqrt(q))  # negative correlation: the same integral, over a negative arc
    return max_moments(phi, size, 0.0, q).mean ** 2 + _between(phi, size, math.sqrt(q), math.pi / 2 - theta, x, w)


def max_mean_square_slope(phi: Activation, size: int, q: float) -> float:
    """E Σ_k (∂M/∂u_k)² = E φ'(max)²: gradients flow through the largest node only (theory.md §5)."""
    x, w = _nodes(phi, math.sqrt(q))
    mass = size * w * _pdf(x) * _cdf(x) ** (size - 1)
    return float(np.dot(mass, _derivative(phi, math.sqrt(q) * x) ** 2) / mass.sum())


def _between(phi: Activation, size: int, root: float, arc: float, x: Array, w: Array) -> float:
    rise = w * root * _derivative(phi, root * x)  # dφ at the nodes
    keep = rise != 0.0
    x, rise = x[keep], rise[keep]
    s, t = x[:, None], x[None, :]
    # F₂ − F₁F₁ = ∫₀^{arcsin c} exp(−(s²+t²−2st sin a)/(2cos²a)) da / 2π
    extra = np.zeros((x.size, x.size))
    for a, wa in zip(0.5 * arc * (1 + _ANGLE_X), 0.5 * arc * _ANGLE_W, strict=True):
        extra += wa * np.exp(-(s * s + t * t - 2.0 * s * t * math.sin(a)) / (2.0 * math.cos(a) ** 2))
    extra /= 2.0 * math.pi
    product = np.maximum(_cdf(s) * _cdf(t), 1e-290)
    # p^K((1+e/p)^K − 1), by logarithms so that deep tails neither over- nor underflow; F₂ ≥ 0 up to rounding
    log_ratio = np.log1p(np.maximum(extra / product, -1.0 + 1e-16))
    gain = np.exp(size * (np.log(product) + log_ratio)) * -np.expm1(-size * log_ratio)
    return float(rise @ gain @ rise)


def _spread(phi: Activation, size: int, root: float, theta: float) -> float:
    # d = t − s lives on the scale of sin θ; both s and t may meet kinks of φ.
    width = math.sin(theta)
    s, ws = _nodes(phi, root, least=width)
    rise_s = ws * root * _derivative(phi, root * s)
    keep = rise_s != 0.0
    s, rise_s = s[keep], rise_s[keep]
    reach = min(gaussian.REACH * width, 2 * gaussian.REACH)
    edges = [np.tile(np.linspace(0.0, reach, 6), (s.size, 1))]
    for feature in phi.features:
        offsets = gaussian.graded(feature.width / root, 2.0 * gaussian.REACH)
        if feature.width / root < 2 * reach:
            edges.append(feature.at / root - s[:, None] + offsets)
    d, wd = gaussian.panels(np.sort(np.clip(np.concatenate(edges, axis=1), 0.0, reach), axis=1))
    t = s[:, None] + d
    gap = _below_above(np.broadcast_to(s[:, None], t.shape), t, theta)
    single = np.maximum(_cdf(s), 1e-290)[:, None]
    loss = single**size * -np.expm1(size * np.log1p(-np.minimum(gap / single, 1.0 - 1e-16)))
    inner = np.sum(wd * loss * root * _derivative(phi, root * t), axis=1)
    return 2.0 * float(np.dot(rise_s, inner))


def _below_above(s: Array, t: Array, theta: float) -> Array:
    """P(a ≤ s, b > t) for standard normals with correlation cos θ, s < t, by Owen's T: F₁(s) − F₂(s, t)."""
    from scipy.special import owens_t

    # 1e-290 instead of 0 keeps the ratios defined; T is continuous there
    s_safe, t_safe = (np.where(x == 0.0, 1e-290, x) for x in (s, t))
    rise = math.tan(theta / 2.0)  # (t − s cos θ)/sin θ = (t − s)/sin θ + s·tan(θ/2)
    d = (t - s) / math.sin(theta)
    gap = 0.5 * (_cdf(s) - _cdf(t)) + owens_t(s, (d + s * rise) / s_safe) + owens_t(t, (t * rise - d) / t_safe)
    return np.maximum(gap + 0.5 * ((s_safe < 0.0) & (t_safe > 0.0)), 0.0)


def _nodes(phi: Activation, root: float, least: float = 0.0) -> tuple[Array, Array]:
    edges = [np.linspace(-gaussian.REACH, gaussian.REACH, 13)]
    for at, w in phi.features:
        edges.append(at / root + gaussian.graded(w / root, 2.0 * gaussian.REACH))
        if w == 0.0 and least > 0.0:
            edges.append(at / root + gaussian.graded(least, 2.0 * gaussian.REACH))
    return gaussian.panels(np.sort(np.clip(np.concatenate(edges), -gaussian.REACH, gaussian.REACH)))


def _derivative(phi: Activation, u: Array) -> Array:
    if phi.derivative is None:
        raise NotCovered(
            "an activation whose derivative is known in front of a max-pool",
            got=str(phi),
            hint="pass it: fg.activation(fn, derivative=...)",
        )
    return phi.derivative(u)


def _pdf(x: Array) -> Array:
    return np.exp(-0.5 * x * x) / math.sqrt(2.0 * math.pi)


def _cdf(x: Array) -> Array:
    from scipy.special import ndtr

    return ndtr(x)
