"""Correlations through functions with a kink at 0: the arc-cosine formula."""

from __future__ import annotations

import math

import numpy as np

from firstguess.base.gaussian import Array


def correlate_rays(
    left: float, right: float, c: Array, slope: bool, spare: tuple[Array, Array, Array] | None = None
) -> Array | None:
    """Correlations of u to those of φ(u), in place, for φ = a·x + b·|x| (Cho & Saul, 2009); returns E φ'φ' if asked.

    `spare` are three arrays like c to work in: fresh memory costs as much as the arithmetic. The result is one of them.

    E φφ = √(q_a q_b)·(a²c + b²(2/π)(√(1−c²) + c·arcsin c)), E φ² = q(a² + b²), E φ'φ' = a² + b²(2/π)arcsin c.
    """
    a2, b2 = (0.5 * (right + left)) ** 2, (0.5 * (right - left)) ** 2 * 2.0 / math.pi
    if b2 == 0.0:
        return np.full_like(c, a2) if slope else None
    arc, root, other = spare if spare is not None else (np.empty_like(c) for _ in range(3))
    np.arcsin(c, out=arc)
    np.subtract(1.0, c, out=root)  # (1−c)(1+c) keeps the digits of 1−c that 1−c² would lose near c = 1
    np.add(c, 1.0, out=other)
    root *= other
    np.sqrt(root, out=root)
    if slope:
        np.multiply(arc, b2, out=other)
        other += a2
    arc += a2 / b2
    c *= arc
    c += root
    c *= b2 / (a2 + 0.5 * math.pi * b2)
    return other if slope else None


def correlated_rays(left: float, right: float, c: Array) -> Array:
    """Correlations of u (which are overwritten) to those of φ(u), for φ = a·x + b·|x|."""
    correlate_rays(left, right, c, slope=False)
    return c
