"""Gaussian moments in closed form, for the activations that have one.

Every function takes a centred Gaussian as (between, spread) = (σ_μ², σ_y²) and returns `Moments`, written so that
neither c → 0 nor c → 1 costs digits: differences of nearly equal numbers are replaced by what they are equal to.
With r = σ_μ² the covariance of two data points, q = σ_μ² + σ_y², c = r/q and θ = arccos c.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from firstguess.base.gaussian import Moments

_LEGENDRE_X, _LEGENDRE_W = np.polynomial.legendre.leggauss(24)


def angle(between: float, spread: float) -> float:
    """θ = arccos c, accurate at both ends."""
    return math.atan2(math.sqrt(spread * (2.0 * between + spread)), between)


def piecewise_linear(left: float, right: float, between: float, spread: float) -> Moments:
    """`right·x` for x > 0, `left·x` below: ReLU (0, 1), leaky ReLU, |x| (−1, 1), the identity (1, 1).

    With φ = a·x + b·|x|: E φφ' = a²r + b²·(2q/π)(√(1−c²) + c·arcsin c), the arc-cosine kernel of Cho & Saul (2009).
    """
    a, b = 0.5 * (right + left), 0.5 * (right - left)
    q = between + spread
    theta = angle(between, spread)
    c = between / q
    # E|u||v| minus its value at c = 0, and its value at c = 1 minus it
    rise = math.sqrt(spread * (2.0 * between + spread)) / q
    above_zero = c * math.atan2(c, rise) - c * c / (1.0 + rise)
    below_one = math.pi * math.sin(theta / 2.0) ** 2 - _sin_minus_theta_cos(theta)
    scale = 2.0 * q / math.pi * b * b
    return Moments(
        b * math.sqrt(2.0 * q / math.pi),
        a * a * between + scale * above_zero,
        a * a * spread + scale * below_one,
    )


def _sin_minus_theta_cos(theta: float) -> float:
    """sin θ − θ cos θ = θ³/3 − θ⁵/30 + …, by its series where the difference would cancel."""
    if theta > 0.3:
        return math.sin(theta) - theta * math.cos(theta)
    total, term = 0.0, theta**3 / 6.0  # Σ_k (−1)^{k+1} · 2k/(2k+1)! · θ^{2k+1}
    for k in range(1, 9):
        total += 2 * k * term
        term *= -theta * theta / ((2 * k + 2) * (2 * k + 3))
    return total


def sign(between: float, spread: float) -> Moments:
    """E sign·sign = (2/π) arcsin c."""
    theta = angle(between, spread)
    arcsin = math.atan2(between, math.sqrt(spread * (2.0 * between + spread)))  # π/2 − θ, also where θ is π/2
    return Moments(0.0, 2.0 / math.pi * arcsin, 2.0 / math.pi * theta)


def square(between: float, spread: float, mean: float = 0.0) -> Moments:
    """E u²v² = q² + 2r² for a centred u; a mean m adds 2m·u to the square."""
    q = between + spread
    tilt = 4.0 * mean**2
    return Moments(mean**2 + q, between * (tilt + 2.0 * between), spread * (tilt + 2.0 * (q + between)))


def sine(between: float, spread: float, mean: float = 0.0) -> Moments:
    """E_y sin(m + μ + y) = e^{−σ_y²/2} sin(m + μ); for m = 0, E sin u sin v = e^{−q} sinh r.

    In closed form for any m, because no quadrature resolves a wave much finer than the Gaussian.
    """
    turn = math.cos(2.0 * mean)
    return Moments(
        math.exp(-0.5 * (between + spread)) * math.sin(mean),
        -0.5 * math.exp(-spread) * math.expm1(-between) * (1.0 + turn * math.exp(-between)),
        -0.5 * math.expm1(-spread) * (1.0 + turn * math.exp(-spread - 2.0 * between)),
    )


def sine_energy(q: float) -> float:
    """E cos² u = e^{−q} cosh q."""
    return 0.5 * (1.0 + math.exp(-2.0 * q))


def erf(between: float, spread: float) -> Moments:
    """E erf u erf v = (2/π) arcsin(2r/(1+2q)) (Williams, 1997)."""
    q = between + spread
    outer = 1.0 + 2.0 * q
    x, y = 2.0 * q / outer, 2.0 * between / outer
    # cosines of the two arcs, from 1 − x² = (1 − x)(1 + x) with 1 − x = 1/(1+2q); no square of q, which may overflow
    cos_x = math.sqrt(1.0 + 4.0 * q) / outer
    cos_y = math.sqrt((1.0 + 2.0 * spread) / outer * ((outer + 2.0 * between) / outer))
    # sin(arcsin x − arcsin y) = (x²−y²)/(x cos_y + y cos_x): no cancellation
    gap = 4.0 * (spread / outer) * ((q + between) / outer) / (x * cos_y + y * cos_x) if q > 0 else 0.0
    arc_gap = math.atan2(gap, cos_x * cos_y + x * y)
    return Moments(0.0, 2.0 / math.pi * math.atan2(y, cos_y), 2.0 / math.pi * arc_gap)


def erf_energy(q: float) -> float:
    """E erf'(u)² = (4/π)/√(1+4q)."""
    return 4.0 / math.pi / math.sqrt(1.0 + 4.0 * q)


def gelu(between: float, spread: float) -> Moments:
    """x·Φ(x): mean q/√(2π(1+q)); the rest by integrating E φ'φ' = d/dr E φφ (Price) over r = (1+q) cos s.

    E φφ = r/4 + r·arcsin(r/(1+q))/2π + (q² + r²(1−q)/(1+q)) / 2π√((1+q)²−r²) (two steps of Stein's lemma) loses digits
    in its differences. In s every part of the integrand is positive, so nothing cancels at any q or c.
    """
    q = between + spread
    outer = 1.0 + q
    root_q, root_r = math.sqrt(1.0 + 2.0 * q), math.sqrt((1.0 + spread) * (outer + between))  # √((1+q)² − r²) at q, r
    s_q, s_r = math.atan2(root_q, q), math.atan2(root_r, between)
    # s_r − s_q and sin s_r − sin s_q, from q² − r² = spread·(q + r)
    product = spread * (q + between)
    arc = math.atan2(product / (q * root_r + between * root_q), (root_q * root_r / outer + between / outer * q) / outer)
    rise = product / (root_q + root_r) / outer
    rest = math.atan2(between, root_r)  # π/2 − s_r
    return Moments(
        q / math.sqrt(2.0 * math.pi * outer),
        _gelu_integral(outer, outer, root_r, between / outer * between / (outer + root_r), s_r, rest),
        _gelu_integral(outer, root_r, root_q, rise, s_q, arc),
    )


def _gelu_integral(outer: float, root_high: float, root_low: float, rise: float, start: float, length: float) -> float:
    """∫ E φ'φ' dr, over s: 2π times it is ∫ cos s (cot² s + 3 + 2q)/(1+q) ds + (1+q) ∫ (π − s) sin s ds."""
    s = start + 0.5 * length * (1.0 + _LEGENDRE_X)
    smooth = 0.5 * length * float(np.dot(_LEGENDRE_W, (math.pi - s) * np.sin(s)))
    return (rise * (outer / root_high / root_low + 2.0) + outer * smooth) / (2.0 * math.pi)


def gelu_energy(q: float) -> float:
    """E φ'(u)² for GELU: ½ − s/2π + cot s (cot² s + 3 + 2q)/2π(1+q)², with s as in `gelu` at r = q."""
    outer = 1.0 + q
    root = math.sqrt(outer + q)
    cot = q / root
    return 0.5 + (cot * (cot / outer * cot + 2.0 + 1.0 / outer) / outer - math.atan2(root, q)) / (2.0 * math.pi)


ClosedForm = Callable[[float, float], Moments]
ShiftedForm = Callable[[float, float, float], Moments]
