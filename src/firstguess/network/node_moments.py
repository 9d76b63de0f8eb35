"""How overlaps of two points fluctuate where a layer has finitely many nodes: theory.md (42), (45), (46).

Two points' pre-activations at a node are Gaussian with correlation c. Behind φ the two points' overlap (their cosine,
or with a centring norm Pearson's correlation over the nodes) is, for N nodes, C(c) + B(c)/N on average, with variance
s(c)/N. With x the node's value, centred or not and scaled to mean square 1, and m_ij = E x_a^i x_b^j:

    C = m₁₁,   s = m₂₂ − 2C·m₃₁ + ½C²(m₄₀ + m₂₂),   B = ¾C·m₄₀ + ¼C·m₂₂ − m₃₁

(the delta method on node averages; the same for both kinds of overlap). All are expectations of φ by quadrature.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.polynomial import chebyshev

from firstguess.base import gaussian
from firstguess.base.errors import NotCovered
from firstguess.base.gaussian import Array, Feature
from firstguess.base.series import interpolate
from firstguess.network.activations.kernels import rays
from firstguess.network.activations.record import Activation

_TERMS = 48  # of the series in θ = arccos c: 1e-11 for ReLU and GELU at unit variance
_ORDERS = np.arange(_TERMS, dtype=np.float64)
_TOGETHER = 14  # the degree of s₄'s: a fit, whose nodes are not its own; good to 1e-8
_TAIL = 1e-7  # what may be left of it, where more terms do not help: these are corrections


@dataclass(frozen=True)
class NodeLaw:
    """What nodes are, between two layers of weights: φ of Gaussian ones of variance q, with norms over nodes.

    None for φ: the Gaussian nodes themselves. `centres`: a norm behind φ takes off the mean over nodes.
    `centred_first`: one in front of φ does, which φ must then be scale-free to be covered with (theory.md (46)).
    """

    phi: Activation | None = None
    q: float = 1.0
    centres: bool = False
    centred_first: bool = False
    fixed_center: bool = False  # inputs: what points have in common is their mean, the same in every draw


class AtZero(NamedTuple):
    """Derivatives at c = 0: C', C'', C''', C''''; s, s', s''; B', B''; the third and fourth moment of x."""

    c1: float
    c2: float
    c3: float
    c4: float
    s0: float
    s1: float
    s2: float
    b1: float
    b2: float
    skew: float
    fourth: float


class At(NamedTuple):
    """At one c: C', C'', s, B, and s₄, the covariance that the overlaps of two disjoint pairs get from their nodes."""

    slope: float
    curve: float
    s: float
    b: float
    s4: float


@lru_cache(maxsize=64)
def at_zero(law: NodeLaw) -> AtZero:
    """By Hermite coefficients: x = Σ a_k h_k, x² = Σ b_k h_k, x³ = Σ d_k h_k; then C = Σ a_k² c^k and so on."""
    if law.phi is None:
        return AtZero(1.0, 0.0, 0.0, 0.0, 1.0, 0.0, -4.0 + 2.0, -0.5, 0.0, 0.0, 3.0)
    z, w = gaussian.rule(_features(law.phi, math.sqrt(law.q)))
    x = _standard(law)(math.sqrt(law.q) * z)
    before, hermite = np.zeros_like(z), np.ones_like(z)
    a, b, d = [0.0] * 5, [0.0] * 5, [0.0] * 5
    for k in range(5):  # h_k = He_k/√k!
        a[k], b[k], d[k] = (float(np.sum(w * x**power * hermite)) for power in (1, 2, 3))
        before, hermite = hermite, (z * hermite - math.sqrt(k) * before) / math.sqrt(k + 1)
    if law.phi.odd:  # exactly, not to rounding: an even network stays even
        a[0] = a[2] = a[4] = b[1] = b[3] = d[0] = d[2] = d[4] = 0.0
    if abs(a[0]) > 1e-9:
        raise NotCovered("nodes without a mean, for an expansion about c = 0", got=f"{law.phi}")
    fourth = float(np.sum(w * x**4))
    c1, c2 = a[1] ** 2, 2.0 * a[2] ** 2
    return AtZero(
        c1,
        c2,
        6.0 * a[3] ** 2,
        24.0 * a[4] ** 2,
        1.0,
        b[1] ** 2,
        2.0 * b[2] ** 2 - 4.0 * c1 * a[1] * d[1] + c1 * c1 * (fourth + 1.0),
        0.75 * c1 * fourth + 0.25 * c1 - a[1] * d[1],
        0.75 * c2 * fourth + 0.25 * (c2 + 2.0 * c1 * b[1] ** 2) - 2.0 * a[2] * d[2],
        d[0],
        fourth,
    )


def at(law: NodeLaw, c: float) -> At:
    """Its meanings at an overlap c from −1 to 1; s₄ for c ≥ 0 only (0 below)."""
    if law.phi is None:
        common = 2.0 * c * c * (1.0 - c) ** 2  # what the common part of the nodes adds to s, for all pairs alike
        s, b = (1.0 - c * c) ** 2, -0.5 * c * (1.0 - c * c)
        return (
            At(1.0, 0.0, s - common, b + 2.0 * c * c * (1.0 - c), 0.0)
            if law.fixed_center
            else At(1.0, 0.0, s, b, common)
        )
    return series(law).at(c)


@dataclass(frozen=True)
class Series:
    """C and what fluctuates, as Chebyshev series in θ = arccos c, in which all of them are analytic."""

    terms: Array  # (terms, 4): dC/dθ, d²C/dθ², s, B
    together: Array  # s₄, for c ≥ 0: in θ from 0 to π/2

    def at(self, c: float) -> At:
        """The same at one c, which is what a layer asks for: T_k(x) = cos(k·arccos x)."""
        theta = math.acos(min(max(c, -1.0), 1.0))
        sine = max(math.sin(theta), 1e-9)
        basis = np.cos(math.acos(2.0 * theta / math.pi - 1.0) * _ORDERS)
        first, second, s, b = (basis @ self.terms).tolist()
        s4 = 0.0
        if c >= 0.0:
            near = math.acos(min(4.0 * theta / math.pi - 1.0, 1.0)) * _ORDERS[: len(self.together)]
            s4 = float(np.cos(near) @ self.together)
        return At(-first / sine, (second - first * math.cos(theta) / sine) / sine**2, s, b, s4)

    def __call__(self, c: Array) -> tuple[Array, Array, Array, Array, Array]:
        """C', C'', s, B, s₄ at every c."""
        theta = np.arccos(np.clip(c, -1.0, 1.0))
        sine = np.maximum(np.sin(theta), 1e-9)
        first, second, s, b = _value(2.0 * theta / math.pi - 1.0, self.terms)
        s4 = _value(np.minimum(4.0 * theta / math.pi - 1.0, 1.0), self.together)
        curve = (second - first * np.cos(theta) / sine) / sine**2
        return -first / sine, curve, s, b, np.where(c >= 0.0, s4, 0.0)


def _value(x: Array, terms: Array) -> Array:
    return np.asarray(chebyshev.chebval(x, terms), dtype=np.float64)


@lru_cache(maxsize=32)
def series(law: NodeLaw) -> Series:
    """The series of a law; NotCovered where they do not converge (an activation much steeper than its input)."""
    angles = (chebyshev.chebpts1(_TERMS) + 1.0) * 0.5 * math.pi
    rows = np.empty((_TERMS, 4))
    for index in range(_TERMS // 2):  # θ and π − θ share their conditional means
        near, far = _at_angle(law, float(angles[index]))
        rows[index], rows[_TERMS - 1 - index] = near, far
    terms = interpolate(rows[:, :3])
    tail = float(np.abs(terms[-3:]).max() / np.abs(terms).max())
    if tail > _TAIL:
        raise NotCovered(
            "an activation that is smooth on the scale of its input",
            got=f"{law.phi}, whose fluctuations are known to {tail:.0e} only",
            hint="the exact reading: fg.measure(...)",
        )
    half = np.append(4.0 * angles[: _TERMS // 2] / math.pi - 1.0, 1.0)  # at c = 0 pairs have nothing in common
    together = chebyshev.chebfit(half, np.append(rows[: _TERMS // 2, 3], 0.0), _TOGETHER)
    scale = 2.0 / math.pi
    first, second = np.zeros(_TERMS), np.zeros(_TERMS)
    first[:-1] = scale * chebyshev.chebder(terms[:, 0])
    second[:-2] = scale**2 * chebyshev.chebder(terms[:, 0], 2)
    kept = np.stack([first, second, terms[:, 1], terms[:, 2]], axis=1)
    return Series(kept, np.asarray(together, dtype=np.float64))


def _at_angle(law: NodeLaw, theta: float) -> tuple[Array, Array]:
    """(C, s, B, s₄) at c = cos θ ≥ 0 and at −c: given the common part z of two nodes they are independent."""
    assert law.phi is not None
    c, root = math.cos(theta), math.sqrt(law.q)
    shared, own = math.sqrt(c), math.sqrt(2.0) * math.sin(0.5 * theta)
    seen = [Feature(f.at / shared, max(f.width, 1.2 * root * own) / shared) for f in _features(law.phi, root)]
    z, w = gaussian.rule([*seen, *(Feature(-f.at, f.width) for f in seen)])
    x, features = _standard(law), law.phi.features

    def mean(power: int) -> Array:
        return gaussian.conditional_mean(lambda u: x(u) ** power, root * shared * z, root * own, features)

    one, two, three = mean(1), mean(2), mean(3)
    m40 = float(np.sum(w * gaussian.conditional_mean(lambda u: x(u) ** 4, root * shared * z, root * own, features)))
    found: list[Array] = []
    for other, sign in ((slice(None), 1.0), (slice(None, None, -1), -1.0)):
        m11, m22, m31 = (
            float(np.sum(w * left * right[other])) for left, right in ((one, one), (two, two), (three, one))
        )
        s = m22 - 2.0 * m11 * m31 + 0.5 * m11**2 * (m40 + m22)
        b = 0.75 * m11 * m40 + 0.25 * m11 * m22 - m31
        together = one * one - m11 * two
        if law.centred_first:
            tilt, bend = _centring(law.phi, sign * c, m11)
            s, b = s - 2.0 * (1.0 + sign * c) * tilt**2, b + bend
            together = together - 2.0 * tilt * shared * z
        mean_together = float(np.sum(w * together))
        found.append(np.array([m11, s, b, float(np.sum(w * (together - mean_together) ** 2))]))
    return found[0], found[1]


def _centring(phi: Activation, c: float, overlap: float) -> tuple[float, float]:
    """P − CQ, and what B gets, of nodes whose mean was taken off in front of φ = right·x above 0, left·x below.

    Q = E φφ', P = E φ'_a φ_b = ½(1 + c)Q: theory.md (46).
    """
    slopes = rays(phi)
    if slopes is None:
        raise NotCovered("a scale-free activation behind a norm that centres", got=str(phi))
    left, right = slopes
    q = (right**2 - left**2) / (left**2 + right**2) * math.sqrt(2.0 / math.pi)
    p = 0.5 * (1.0 + c) * q
    return p - overlap * q, -overlap * q * q * (3.0 + c) + 2.0 * q * p * (1.0 + c)


def _features(phi: Activation, root: float) -> tuple[Feature, ...]:
    """Where φ(root·z) is not smooth in z."""
    return tuple(Feature(f.at / root, f.width / root) for f in phi.features)


@lru_cache(maxsize=64)
def taken_off(law: NodeLaw) -> tuple[float, float]:
    """What is taken off a node, and what it is divided by."""
    assert law.phi is not None
    z, w = gaussian.rule(_features(law.phi, math.sqrt(law.q)))
    f = law.phi.offset + gaussian.evaluate(law.phi.rise, math.sqrt(law.q) * z)
    mean = float(np.sum(w * f)) if law.centres else 0.0
    square = float(np.sum(w * (f - mean) ** 2))
    if not square > 0.0:
        raise NotCovered("nodes that differ", got=f"{law.phi}")
    return mean, math.sqrt(square)


def _standard(law: NodeLaw) -> gaussian.Function:
    """x = (φ − its mean)/its standard deviation, or φ/√E φ² where nothing centres."""
    phi = law.phi
    assert phi is not None
    mean, scale = taken_off(law)
    return lambda u: (phi.offset + phi.rise(u) - mean) / scale
