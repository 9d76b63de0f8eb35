"""Kernels of piecewise quadratic activations in closed form, for any two variances.

Such a function is a quadratic around 0 plus bends (s·x − k)₊^p outwards, s = ±1 the side, k ≥ 0. All expectations
follow from moments of a bivariate normal above two thresholds, E (X−h)₊^m (Y−g)₊^n, which Stein's lemma reduces to the
probability of an orthant (Rosenbaum, 1961; Owen's T). Nothing cancels at small variances: bends far out contribute 0.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import ndtr, owens_t

from firstguess.base.gaussian import Array
from firstguess.network.activations.record import Bend, Pieces


def shifted_rays(left: float, right: float, by: float) -> Pieces:
    """The function with slopes left and right of 0, of x + by."""
    slope = right if by >= 0.0 else left
    bend = Bend(-1.0 if by >= 0.0 else 1.0, abs(by), (0.0, right - left, 0.0))
    return Pieces((slope * by, slope, 0.0), (bend,))


def pieces_kernel(f: Pieces, k: Array, qa: Array, qb: Array) -> Array:
    """E f(u_a) f(u_b) for covariance k and variances q_a, q_b (which may broadcast)."""
    k = np.asarray(k, dtype=np.float64)
    a, b = (np.broadcast_to(np.sqrt(q), k.shape) for q in (qa, qb))
    c = np.clip(k / (a * b), -1.0, 1.0)
    p0, p1, p2 = f.poly
    out = (p0 + p2 * a * a) * (p0 + p2 * b * b) + p1 * p1 * k + 2.0 * (p2 * k) ** 2
    for bend in f.bends:
        out += _poly_bend(f.poly, bend, a, b, c) + _poly_bend(f.poly, bend, b, a, c)
    for left in f.bends:
        for right in f.bends:
            out += _bend_bend(left, right, a, b, c)
    return out


def _poly_bend(poly: tuple[float, float, float], bend: Bend, a: Array, b: Array, c: Array) -> Array:
    """E poly(u_a)·bend(u_b): E X f(Y) = c E f', E X² f(Y) = E f + c² E f''."""
    h = bend.at / b
    tail, pdf = ndtr(-h), _pdf(h)
    first = pdf - h * tail
    e0, e1, e2 = bend.powers
    value = e0 * tail + e1 * b * first + e2 * b * b * ((1.0 + h * h) * tail - h * pdf)
    slope = e0 * pdf + e1 * b * tail + 2.0 * e2 * b * b * first  # by Y = u_b/b
    curve = e0 * h * pdf + e1 * b * pdf + 2.0 * e2 * b * b * tail
    p0, p1, p2 = poly
    return p0 * value + p1 * a * (bend.side * c) * slope + p2 * a * a * (value + c * c * curve)


def _bend_bend(left: Bend, right: Bend, a: Array, b: Array, c: Array) -> Array:
    # a threshold of 0 is moved to 1e-290: the ratios of Owen's T stay defined, and nothing else notices
    h, g = np.maximum(left.at / a, 1e-290), np.maximum(right.at / b, 1e-290)
    c = left.side * right.side * c
    root = np.maximum(np.sqrt((1.0 - c) * (1.0 + c)), 1e-12)  # where the pair coincides the limit is taken there
    v, w = (g - c * h) / root, (h - c * g) / root
    half_v, half_w = ndtr(-v), ndtr(-w)
    at_h, at_g = _pdf(h), _pdf(g)
    x0, y0 = at_h * half_v, at_g * half_w
    x1 = at_h * root * (_pdf(v) - v * half_v)
    y1 = at_g * root * (_pdf(w) - w * half_w)
    p00 = np.clip(0.5 * (ndtr(-h) + ndtr(-g)) - owens_t(h, v / h) - owens_t(g, w / g), 0.0, 1.0)
    p10 = x0 + c * y0 - h * p00
    p01 = y0 + c * x0 - g * p00
    p11 = x1 + c * p00 - h * p01
    (l0, l1, l2), (r0, r1, r2) = left.powers, right.powers
    out = l1 * r1 * (a * b) * p11
    if l0 or r0:
        out += l0 * r0 * p00 + l0 * r1 * b * p01 + l1 * r0 * a * p10
    if l2 or r2:
        p20, p02 = p00 + c * y1 - h * p10, p00 + c * x1 - g * p01
        p21, p12 = p01 + c * p10 - h * p11, p10 + c * p01 - g * p11
        p22 = p02 + 2.0 * c * p11 - h * p12
        out += l2 * r2 * (a * b) ** 2 * p22 + l2 * r1 * a * a * b * p21 + l1 * r2 * a * b * b * p12
        out += l2 * r0 * a * a * p20 + l0 * r2 * b * b * p02
    return out


def _pdf(x: Array) -> Array:
    return np.exp(-0.5 * x * x) / math.sqrt(2.0 * math.pi)
