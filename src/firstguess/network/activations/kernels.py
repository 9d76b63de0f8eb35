"""Kernels of activations: E φ(u_a)φ(u_b) and E φ'(u_a)φ'(u_b) for pairs with any covariance and any two variances.

Closed forms where a record has one (closed_kernels.py; piecewise quadratics: pieces.py), otherwise series (tables.py).
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache

import numpy as np
from numpy.polynomial import chebyshev

from firstguess.base.arc_cosine import correlate_rays
from firstguess.base.errors import NotCovered
from firstguess.base.gaussian import Array, Feature
from firstguess.base.series import interpolate
from firstguess.network.activations.pieces import pieces_kernel, shifted_rays
from firstguess.network.activations.record import Activation, Map, Pieces
from firstguess.network.activations.tables import table

_GRID = 0.25  # ends of a table lie on this grid in log q: the layers of a deep network then share a few tables
_MOST_EXACT = 24  # up to so many distinct sizes their moments are computed one by one


def kernel_map(phi: Activation, q: Array) -> Map:
    """The map of an activation, for points with these mean squares.

    >>> relu = Activation("relu", degree=1, rise=lambda x: np.maximum(x, 0.0))
    >>> one = np.ones((1, 1))
    >>> k, slope = kernel_map(relu, one)(0.5 * one, one, one, True)   # (√3/2 + 2π/3·½)/2π, (π − π/3)/2π
    >>> print(f"{k[0, 0]:.6f} {slope[0, 0]:.6f}")
    0.304499 0.333333
    """
    plain = replace(phi, centered=False)
    if plain.kernel is not None:
        return plain.kernel
    slopes = rays(plain)
    if slopes is not None:
        return _piecewise_linear(*slopes)
    if plain.jumps:
        raise NotCovered(
            "an activation without jumps, or sign", got=str(phi), hint="the ensemble reading: fg.measure(...)"
        )
    low, high = math.log(float(q.min())), math.log(float(q.max()))
    if high - low < 1e-11:
        low = high = 0.5 * (low + high)
    elif plain.pieces is not None:
        return _pieces(plain.pieces)
    else:
        low, high = _GRID * math.floor(low / _GRID), _GRID * math.ceil(high / _GRID)
    table(plain, low, high)  # an activation it does not suit is refused before any long work

    def run(k: Array, qa: Array, qb: Array, slope: bool) -> tuple[Array, Array | None]:
        return table(plain, low, high)(k, qa, qb), table(plain, low, high, True)(k, qa, qb) if slope else None

    return run


def shifted(phi: Activation, by: float) -> Activation:
    """x ↦ φ(x + by), for signals with a mean: a function of centred ones."""
    rise, slope = phi.rise, phi.derivative
    at = float(rise(np.array([by]))[0])
    slopes = rays(phi)
    return Activation(
        f"shifted {phi.name}" if slopes is None else "shifted piecewise linear",
        (*(phi.params if slopes is None else (("left", slopes[0]), ("right", slopes[1]))), ("by", by)),
        rise=lambda x: rise(x + by) - at,
        derivative=None if slope is None else lambda x: slope(x + by),
        offset=phi.offset + at,
        features=tuple(Feature(f.at - by, f.width) for f in phi.features),
        nondecreasing=phi.nondecreasing,
        pieces=None if slopes is None else shifted_rays(*slopes, by),
        jumps=phi.jumps,
        source=phi.source,
        centered=phi.centered,
    )


def means(phi: Activation, q: Array) -> tuple[Array, Array]:
    """E φ and E φ² for every mean square; a centred activation is taken before its mean is off."""
    plain = replace(phi, centered=False)
    if plain.degree is not None:  # homogeneous: one moment serves all
        mean, square = _moment(plain, 1.0)
        scale = q ** (plain.degree / 2)
        return mean * scale, square * scale**2
    values, index = np.unique(q, return_inverse=True)
    if values.size > _MOST_EXACT:
        between = _interpolated(plain, np.log(values).tobytes())
        if between is not None:
            return between[0][index], between[1][index]
    exact = np.array([_moment(plain, float(v)) for v in values])
    return exact[index, 0], exact[index, 1]


def _moment(phi: Activation, q: float) -> tuple[float, float]:
    m = phi.moments(0.0, q)
    return m.mean, m.mean**2 + m.between + m.spread


@lru_cache(maxsize=64)  # a fold asks for the same points again: forth, back, and once more around a block
def _interpolated(phi: Activation, sizes: bytes) -> tuple[Array, Array] | None:
    """Both moments as series in log q, in which log E φ² and E φ/√E φ² are analytic; None if 192 terms do not do."""
    log_q = np.frombuffer(sizes)
    low, high = float(log_q[0]), float(log_q[-1])
    if high - low < 1e-6:
        low, high = low - 1e-6, high + 1e-6
    n = 16
    while n < 200:
        nodes = low + 0.5 * (high - low) * (chebyshev.chebpts1(n) + 1.0)
        exact = np.array([_moment(phi, math.exp(v)) for v in nodes])
        root = np.sqrt(exact[:, 1])
        series = interpolate(np.stack([exact[:, 0] / root, 2.0 * np.log(root)], axis=1))
        if np.abs(series[-2:]).max() <= 1e-13 * max(1.0, float(np.abs(series[0, 1]))):
            share, log_square = chebyshev.chebval(2.0 * (log_q - low) / (high - low) - 1.0, series)
            return share * np.exp(0.5 * log_square), np.exp(log_square)
        n *= 2
    return None


# --- piecewise linear -------------------------------------------------------------------------------------------------


def rays(phi: Activation) -> tuple[float, float] | None:
    """The slopes of a piecewise linear activation left and right of 0; None for any other."""
    if phi.degree != 1 or phi.source is not None:
        return None
    left, right = (float(phi.rise(np.array([x]))[0]) * x for x in (-1.0, 1.0))
    return left, right


def _piecewise_linear(left: float, right: float) -> Map:
    def run(k: Array, qa: Array, qb: Array, slope: bool) -> tuple[Array, Array | None]:
        scale = np.sqrt(qa * qb)
        c = np.clip(k / scale, -1.0, 1.0)
        slopes = correlate_rays(left, right, c, slope)
        c *= scale * (0.5 * (left * left + right * right))
        return c, slopes

    return run


@lru_cache(maxsize=8)
def _pieces(f: Pieces) -> Map:
    derivative = f.slope()
    return lambda k, qa, qb, slope: (
        pieces_kernel(f, k, qa, qb),
        pieces_kernel(derivative, k, qa, qb) if slope else None,
    )
