"""Kernels in closed form for any two variances: covariances k to E φ(u_a)φ(u_b), and to E φ'(u_a)φ'(u_b) if asked.

Of activations in no family: piecewise linear and quadratic ones have theirs in kernels.py and pieces.py.
"""

from __future__ import annotations

import math

import numpy as np

from firstguess.base.errors import NotCovered
from firstguess.base.gaussian import Array


def erf(k: Array, qa: Array, qb: Array, slope: bool) -> tuple[Array, Array | None]:
    product = (1.0 + 2.0 * qa) * (1.0 + 2.0 * qb)
    out = 2.0 / math.pi * np.arcsin(2.0 * k / np.sqrt(product))
    return out, (4.0 / math.pi / np.sqrt(product - 4.0 * k * k) if slope else None)


def gelu(k: Array, qa: Array, qb: Array, slope: bool) -> tuple[Array, Array | None]:
    """By Stein's lemma twice: P(q_a q_b − r² + r²s) + r(¼ + arcsin(r/√(·))/2π), P = 1/(2π√D), s = Σ 1/(1+q)."""
    product = (1.0 + qa) * (1.0 + qb)
    d = product - k * k
    p = 1.0 / (2.0 * math.pi * np.sqrt(d))
    s = 1.0 / (1.0 + qa) + 1.0 / (1.0 + qb)
    arc = 0.25 + np.arcsin(k / np.sqrt(product)) / (2.0 * math.pi)
    bracket = qa * qb + k * k * (s - 1.0)
    out = p * bracket + k * arc
    return out, (p * k * (bracket / d + 2.0 * s - 1.0) + arc if slope else None)


def sine(k: Array, qa: Array, qb: Array, slope: bool) -> tuple[Array, Array | None]:
    middle = 0.5 * (qa + qb)
    plus, minus = np.exp(k - middle), np.exp(-k - middle)
    return 0.5 * (plus - minus), (0.5 * (plus + minus) if slope else None)


def square(k: Array, qa: Array, qb: Array, slope: bool) -> tuple[Array, Array | None]:
    return qa * qb + 2.0 * k * k, (4.0 * k if slope else None)


def sign(k: Array, qa: Array, qb: Array, slope: bool) -> tuple[Array, Array | None]:
    if slope:
        raise NotCovered(
            "an activation with a derivative, for the tangent kernel",
            got="sign, through which no gradient flows",
            hint="hardtanh or tanh",
        )
    return 2.0 / math.pi * np.arcsin(np.clip(k / np.sqrt(qa * qb), -1.0, 1.0)), None
