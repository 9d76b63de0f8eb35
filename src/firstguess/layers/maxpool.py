"""Max-pooling over independent nodes."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar

import numpy as np
from numpy.polynomial import chebyshev

from firstguess import gaussian
from firstguess.activations import Activation, activation
from firstguess.covariance import Points, Step, Tile
from firstguess.errors import InvalidInput, NotCovered
from firstguess.gaussian import Array, Moments
from firstguess.kernel_tables import interpolate
from firstguess.layers.base import check_count
from firstguess.signal import Activated, Gaussian, Largest, Signal

_TINY_ANGLE = 5e-4
_LARGEST = 1_000_000
_ANGLE_X, _ANGLE_W = np.polynomial.legendre.leggauss(20)


@dataclass(frozen=True)
class MaxPool:
    """The largest of K nodes, each φ of a Gaussian: theory.md (9). Needs a φ that never decreases.

    It creates bias (the mean of a maximum is not 0) and amplifies it; γ grows with K. On images a pool is of k×k = K
    positions; `stride` (k if None) and `padding` matter to the readings that see images.
    """

    kind: ClassVar[str] = "maxpool"
    size: int = 2
    stride: int | None = None
    padding: int = 0

    def __post_init__(self) -> None:
        check_count(self.size, "size", "maxpool")
        check_count(self.stride, "stride", "maxpool")
        check_count(self.padding, "padding", "maxpool", low=0)
        if 2 * self.padding > math.isqrt(self.size):
            raise InvalidInput(
                "padding of at most half the side of a pool", got=self.padding, where="maxpool", hint="maxpool(9, 2, 1)"
            )
        if self.size > _LARGEST:  # quadrature reaches 9.5 standard deviations; the largest of 10⁶ nodes lies at 4.9
            raise InvalidInput(f"a pool of at most {_LARGEST} nodes", got=self.size, where="maxpool", hint="maxpool(4)")

    def text(self) -> str:
        more = [f"stride={self.stride}"] if self.stride is not None else []
        more += [f"padding={self.padding}"] if self.padding else []
        return f"maxpool({', '.join([str(self.size), *more])})"

    @property
    def apart(self) -> bool:
        """Whether pools lie side by side, without overlap, gaps or padding."""
        return self.padding == 0 and self.stride in (None, math.isqrt(self.size))

    def windows(self, length: int) -> int:
        """How many pools fit beside each other on so many positions."""
        side = math.isqrt(self.size)
        return (length + 2 * self.padding - side) // (self.stride or side) + 1

    def moments(self, signal: Signal) -> Signal:
        if self.size == 1:
            return signal
        before, phi = self._source(signal)
        law = Largest(before, phi, self.size)
        ray = phi.asymptote(before.log_q)
        offset, phi = (ray.offset, replace(ray, offset=0.0)) if ray is not None else (0.0, phi)
        log_scale = 0.0
        if phi.degree is not None:
            log_scale = phi.degree * before.log_scale
        elif abs(before.log_q) > 600.0:
            raise NotCovered(
                "a signal that float64 can hold",
                got=f"log q = {before.log_q:.4g} entering {phi}",
                hint="a smaller weight variance, or a norm",
            )
        else:
            before = before.at_scale(0.0)
        m = max_moments(phi, self.size, before.between, before.spread)
        if phi.centered:  # the constant that was taken off each node comes off their maximum
            m = m._replace(mean=m.mean - activation_mean(phi, before.between + before.spread))
            offset = 0.0
        if offset == 0.0:
            return Signal(*m, log_scale, law).rescaled()
        unit = Signal(*m, log_scale).at_scale(0.0)
        return replace(unit, mean=offset + unit.mean, law=law)

    def covariance(self, points: Points) -> tuple[Points, Step]:
        """E[M_a M_b] as a series in θ = arccos c: for pairs of equal variance, or of any where φ is scale-free."""
        if self.size == 1:
            return points, lambda tile: None
        if not self.apart:
            raise NotCovered("pools of nodes side by side", got=self.text(), hint=f"maxpool({self.size})")
        before, phi = self._points_source(points)
        points.watched.append(True)
        scale_free = phi.degree == 1
        if not (scale_free or before.common):
            raise NotCovered(
                "points of one size in front of a max-pool, or a scale-free activation",
                got=f"{phi} on points whose variances differ",
                hint="a layernorm or rmsnorm before the activation, or the ensemble reading",
            )
        unit = 1.0 if scale_free else float(before.q[0])
        root = np.sqrt(before.q / unit)
        values, slopes, mean, square = max_series(phi, self.size, unit)

        def step(tile: Tile) -> None:
            k, t = (tile.k, tile.t) if points.gaussian or tile.before is None else tile.before
            scale = tile.outer(root)
            at = np.arccos(np.clip(k / (unit * scale), -1.0, 1.0)) * (2.0 / math.pi) - 1.0
            tile.k = chebyshev.chebval(at, values) * scale
            tile.t = None if t is None else t * chebyshev.chebval(at, slopes)

        after = Points(
            square * root**2,
            mean * root,
            False,
            max(points.width // self.size, 1),
            points.width_after,
            what="the maximum of several nodes",
        )
        return after, step

    def _points_source(self, points: Points) -> tuple[Points, Activation]:
        if points.gaussian and not points.mean.any():
            return points, activation("linear")
        before, phi = points.before, points.phi
        if before is None or phi is None or phi.centered or not phi.nondecreasing or phi.jumps:
            raise NotCovered(
                "a max-pool right after random weights or an activation that never decreases",
                got=points.what,
                hint="the ensemble reading, fg.measure(...), or average-pooling",
            )
        return before, phi

    def gradient(self, signal: Signal) -> float | None:
        if self.size == 1:
            return 1.0
        before, phi = self._source(signal)
        phi = phi.asymptote(before.log_q) or phi
        q = 1.0 if phi.degree == 1 else before.q
        # The activation in front has counted E φ'² already; together they are E φ'(max)².
        single = phi.mean_square_slope(q)
        return max_mean_square_slope(phi, self.size, q) / single if math.isfinite(single) else None

    def assumptions(self) -> Iterable[str]:
        yield f"maxpool: the {self.size} nodes of a pool are independent"

    def _source(self, signal: Signal) -> tuple[Signal, Activation]:
        law = signal.law
        if isinstance(law, Gaussian) and signal.mean == 0.0:
            return signal, activation("linear")
        if isinstance(law, Activated) and isinstance(law.before.law, Gaussian) and law.before.mean == 0.0:
            if law.phi.nondecreasing and not law.phi.jumps:
                return law.before, law.phi
            raise NotCovered(
                "an activation that never decreases in front of a max-pool",
                got=str(law.phi),
                hint="the ensemble reading, fg.measure(...), or average-pooling",
            )
        raise NotCovered(
            "a max-pool right after random weights or an activation",
            got=getattr(law, "why", "another signal"),
            hint="the ensemble reading, fg.measure(...), or put the max-pool right after the activation",
        )


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
    if q == 0.0:  # behind scale(0): every node is φ(0)
        return Moments(phi.offset, 0.0, 0.0)
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
