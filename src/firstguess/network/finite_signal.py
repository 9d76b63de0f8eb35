"""The closed form at finite width and dimension: the overlap of two points is then not one number.

Over pairs of points and networks it has a mean e, a variance v and a third cumulant k; of v a part u is between
networks: the covariance of the overlaps of two disjoint pairs. A layer maps them by what it does to one overlap, and
its N units add to them (`node_moments`): theory.md (40), (42), (45). The state's `signal` carries e, as in the wide
limit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.polynomial import chebyshev

from firstguess.base import gaussian
from firstguess.base.errors import NotCovered
from firstguess.base.gaussian import Array, Feature
from firstguess.base.numerics import interpolate
from firstguess.base.record import changed
from firstguess.network.activations.kernels import leaky_slopes
from firstguess.network.activations.record import Activation
from firstguess.network.signal import Signal

# How overlaps of two points fluctuate where a layer has finitely many units: theory.md (42), (45), (46).
#
# Two points' pre-activations at a node are Gaussian with correlation c. After φ the two points' overlap (their cosine,
# or with a centring norm Pearson's correlation over the units) is, for N units, C(c) + B(c)/N on average, with variance
# s(c)/N. With x the unit's value, centred or not and scaled to mean square 1, and m_ij = E x_a^i x_b^j:
#
# C = m₁₁,   s = m₂₂ − 2C·m₃₁ + ½C²(m₄₀ + m₂₂),   B = ¾C·m₄₀ + ¼C·m₂₂ − m₃₁
#
# (the delta method on node averages; the same for both kinds of overlap). All are expectations of φ by quadrature.

_TERMS = 48  # of the series in θ = arccos c: 1e-11 for ReLU and GELU at unit variance
_ORDERS = np.arange(_TERMS, dtype=np.float64)
_TOGETHER = 14  # the degree of s₄'s: a fit, whose units are not its own; good to 1e-8
_TAIL = 1e-7  # what may be left of it, where more terms do not help: these are corrections


@dataclass(frozen=True)
class UnitDistribution:
    """What nodes are, between two layers of weights: φ of Gaussian ones of variance q, with norms over nodes.

    None for φ: the Gaussian nodes themselves. `centres`: a norm after φ subtracts the mean over nodes.
    `centred_first`: one before φ does, which φ must then be scale-free to be covered with (theory.md (46)).
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
    """Numbers at one c: C', C'', s, B, and s₄, the covariance that units give to overlaps of disjoint pairs."""

    slope: float
    curve: float
    s: float
    b: float
    s4: float


@lru_cache(maxsize=64)
def at_zero(distribution: UnitDistribution) -> AtZero:
    """Values at 0 by Hermite coefficients: x = Σ a_k h_k, x² = Σ b_k h_k, x³ = Σ d_k h_k; then C = Σ a_k² c^k, …"""
    if distribution.phi is None:
        return AtZero(1.0, 0.0, 0.0, 0.0, 1.0, 0.0, -4.0 + 2.0, -0.5, 0.0, 0.0, 3.0)
    z, w = gaussian.rule(_features(distribution.phi, math.sqrt(distribution.q)))
    x = _standard(distribution)(math.sqrt(distribution.q) * z)
    before, hermite = np.zeros_like(z), np.ones_like(z)
    a, b, d = [0.0] * 5, [0.0] * 5, [0.0] * 5
    for k in range(5):  # h_k = He_k/√k!
        a[k], b[k], d[k] = (float(np.sum(w * x**power * hermite)) for power in (1, 2, 3))
        before, hermite = hermite, (z * hermite - math.sqrt(k) * before) / math.sqrt(k + 1)
    if distribution.phi.odd:  # exactly, not to rounding: an even network stays even
        a[0] = a[2] = a[4] = b[1] = b[3] = d[0] = d[2] = d[4] = 0.0
    if abs(a[0]) > 1e-9:
        raise NotCovered("nodes without a mean, for an expansion about c = 0", got=f"{distribution.phi}")
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


@lru_cache(maxsize=4096)
def at(distribution: UnitDistribution, c: float) -> At:
    """Its meanings at an overlap c from −1 to 1; s₄ for c ≥ 0 only (0 below)."""
    if distribution.phi is None:
        common = 2.0 * c * c * (1.0 - c) ** 2  # what the common part of the units adds to s, for all pairs alike
        s, b = (1.0 - c * c) ** 2, -0.5 * c * (1.0 - c * c)
        return (
            At(1.0, 0.0, s - common, b + 2.0 * c * c * (1.0 - c), 0.0)
            if distribution.fixed_center
            else At(1.0, 0.0, s, b, common)
        )
    return series(distribution).at(c)


@dataclass(frozen=True)
class ChebyshevSeries:
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


@lru_cache(maxsize=32)
def series(distribution: UnitDistribution) -> ChebyshevSeries:
    """The series of a distribution; NotCovered where they do not converge (φ is much steeper than its input)."""
    angles = (chebyshev.chebpts1(_TERMS) + 1.0) * 0.5 * math.pi
    rows = np.empty((_TERMS, 4))
    for index in range(_TERMS // 2):  # θ and π − θ share their conditional means
        near, far = _at_angle(distribution, float(angles[index]))
        rows[index], rows[_TERMS - 1 - index] = near, far
    terms = interpolate(rows[:, :3])
    tail = float(np.abs(terms[-3:]).max() / np.abs(terms).max())
    if tail > _TAIL:
        got = f"{distribution.phi}, whose fluctuations are known to {tail:.0e} only"
        hint = "the exact reading: fg.measure(...)"
        raise NotCovered("an activation that is smooth on the scale of its input", got=got, hint=hint)
    half = np.append(4.0 * angles[: _TERMS // 2] / math.pi - 1.0, 1.0)  # at c = 0 pairs have nothing in common
    together = chebyshev.chebfit(half, np.append(rows[: _TERMS // 2, 3], 0.0), _TOGETHER)
    scale = 2.0 / math.pi
    first, second = np.zeros(_TERMS), np.zeros(_TERMS)
    first[:-1] = scale * chebyshev.chebder(terms[:, 0])
    second[:-2] = scale**2 * chebyshev.chebder(terms[:, 0], 2)
    kept = np.stack([first, second, terms[:, 1], terms[:, 2]], axis=1)
    return ChebyshevSeries(kept, np.asarray(together, dtype=np.float64))


def _at_angle(distribution: UnitDistribution, theta: float) -> tuple[Array, Array]:
    """(C, s, B, s₄) at c = cos θ ≥ 0 and at −c: given the common part z of two units they are independent."""
    assert distribution.phi is not None
    c, root = math.cos(theta), math.sqrt(distribution.q)
    shared, own = math.sqrt(c), math.sqrt(2.0) * math.sin(0.5 * theta)
    seen = [Feature(f.at / shared, max(f.width, 1.2 * root * own) / shared) for f in _features(distribution.phi, root)]
    z, w = gaussian.rule([*seen, *(Feature(-f.at, f.width) for f in seen)])
    x, features = _standard(distribution), distribution.phi.features

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
        if distribution.centred_first:
            tilt, bend = _centring(distribution.phi, sign * c, m11)
            s, b = s - 2.0 * (1.0 + sign * c) * tilt**2, b + bend
            together = together - 2.0 * tilt * shared * z
        mean_together = float(np.sum(w * together))
        found.append(np.array([m11, s, b, float(np.sum(w * (together - mean_together) ** 2))]))
    return found[0], found[1]


def _centring(phi: Activation, c: float, overlap: float) -> tuple[float, float]:
    """P − CQ, and what B gets, of units whose mean was subtracted before φ = right·x above 0, left·x below.

    Q = E φφ', P = E φ'_a φ_b = ½(1 + c)Q: theory.md (46).
    """
    slopes = leaky_slopes(phi)
    if slopes is None:
        raise NotCovered("a scale-free activation after a norm that centres", got=str(phi))
    left, right = slopes
    q = (right**2 - left**2) / (left**2 + right**2) * math.sqrt(2.0 / math.pi)
    p = 0.5 * (1.0 + c) * q
    return p - overlap * q, -overlap * q * q * (3.0 + c) + 2.0 * q * p * (1.0 + c)


def _features(phi: Activation, root: float) -> tuple[Feature, ...]:
    """Where φ(root·z) is not smooth in z."""
    return tuple(Feature(f.at / root, f.width / root) for f in phi.features)


@lru_cache(maxsize=64)
def taken_off(distribution: UnitDistribution) -> tuple[float, float]:
    """What is subtracted a unit, and what it is divided by."""
    assert distribution.phi is not None
    z, w = gaussian.rule(_features(distribution.phi, math.sqrt(distribution.q)))
    f = distribution.phi.offset + gaussian.evaluate(distribution.phi.rise, math.sqrt(distribution.q) * z)
    mean = float(np.sum(w * f)) if distribution.centres else 0.0
    square = float(np.sum(w * (f - mean) ** 2))
    if not square > 0.0:
        raise NotCovered("nodes that differ", got=f"{distribution.phi}")
    return mean, math.sqrt(square)


def _standard(distribution: UnitDistribution) -> gaussian.Function:
    """x = (φ − its mean)/its standard deviation, or φ/√E φ² where nothing centres."""
    phi = distribution.phi
    assert phi is not None
    mean, scale = taken_off(distribution)
    return lambda u: (phi.offset + phi.rise(u) - mean) / scale


_SMALL_EPS = 1e-3  # a share of the variance that a norm's ε may have: more, and it is no norm to the expansion
_ROUNDING = 1e-9  # of a variance that is 0 for points that nearly coincide
_ONE_SIZE = 1e-6  # relative variance of sizes that is none
_SMALL_SIZES = 0.01  # relative variance of the inputs' sizes that a centring norm after φ makes a small correction of


def _refuse(what: str, got: str) -> NotCovered:
    return NotCovered(f"{what}, for an expansion in 1/width", got=got, hint="fg.measure(net, x, width=…)")


_INPUTS, _GAUSSIAN = UnitDistribution(fixed_center=True), UnitDistribution()  # before all weights, and right after some


class Overlaps(NamedTuple):
    """How the overlap of two points is distributed: mean, variance, third cumulant, variance between networks.

    Of even networks also e and v by (40) alone, which the next order changed; E c_ab c_bc c_ca, and the covariance of
    two overlaps with a common point.
    """

    e: float
    v: float = 0.0
    k: float = 0.0
    u: float = 0.0
    leading: tuple[float, float] = (0.0, 0.0)
    triangle: float = 0.0
    common: float = 0.0


@dataclass(frozen=True)
class FiniteSignal:
    """Overlaps of two points through a network of finite layers.

    `nodes` is how many of them the next weights sum over (the data's dimension, at first), `distribution` what they
    are, `overlaps` those of the Gaussian nodes that they were made of. `even`: in the wide limit all overlaps are
    0; then e is of the order 1/units itself, and one more order is known (42).
    """

    signal: Signal
    nodes: float  # may be infinite
    width: float  # of layers that name none
    even: bool
    sizes: float  # 0: all points have one size; else about the relative variance of their mean squares
    overlaps: Overlaps
    distribution: UnitDistribution = _INPUTS
    shifted: bool = False  # a constant was subtracted after φ, which is right at one size only
    fixed: bool = False  # a norm stands between φ and the next weights
    over_points: bool = False  # so does one over points
    pulls: tuple[float, ...] = ()  # after norms over points: how sizes of points un-centred them, layer by layer
    points: float = math.inf  # of a batch

    def activated(self, phi: Activation, after: Signal) -> FiniteSignal:
        """φ on every unit."""
        if self.distribution.phi is not None:
            raise _refuse("one activation between two layers of weights", "two")
        if phi.degree is None and self.distribution.centred_first:
            raise _refuse("a scale-free activation after a norm", str(phi))
        plain = replace(phi, centered=False) if phi.centered else phi
        distribution = changed(self.distribution, phi=plain, q=1.0 if phi.degree is not None else self.signal.q)
        return changed(self, signal=after, distribution=distribution, shifted=phi.centered)

    def normed(self, after: Signal, *, centres: bool, eps: float) -> FiniteSignal:
        """A norm over units: before φ, or after it."""
        if eps and eps > _SMALL_EPS * self.signal.q:
            raise _refuse("a norm whose ε is far below the variance", f"ε = {eps:g}")
        if self.distribution.phi is None and not self.distribution.fixed_center:
            return changed(
                self,
                signal=after,
                distribution=changed(self.distribution, centred_first=centres or self.distribution.centred_first),
            )
        if self.distribution.phi is None and centres:
            raise _refuse("inputs that meet a dense layer first", "a norm on the inputs")
        if self.distribution.centred_first:
            raise _refuse("a norm on one side of the activation", "norms on both")
        distribution = changed(self.distribution, centres=centres or self.distribution.centres)
        return changed(self, signal=after, distribution=distribution, fixed=True)

    def normed_over_points(self, after: Signal) -> FiniteSignal:
        """A norm over the points of a batch, after a scale-free φ: theory.md (44)."""
        phi = self.distribution.phi
        if phi is None or phi.degree is None or not self.even or self.fixed or self.distribution.centred_first:
            got = "one before it" if phi is None else str(phi)
            raise _refuse("a norm over points after a scale-free activation, and no other norm", got)
        distribution = changed(self.distribution, centres=True)
        return changed(self, signal=after, distribution=distribution, shifted=False, fixed=True, over_points=True)

    def _after_batchnorm(self) -> tuple[Overlaps, float, tuple[float, ...]]:
        """theory.md (44): what a layer adds, the relative variance of the points' sizes V, and the pulls.

        Signs see directions, and sizes that differ over points un-centre the unit vectors: by βV and skew/N a layer.
        """
        z, n, (e, v, k, *_) = at_zero(self.distribution), self.nodes, self.overlaps
        kept = 1.0 - min(1.0, 4.0 * z.s1 * e / self.sizes) if self.sizes > 0.0 else 1.0
        mean, scale = taken_off(self.distribution)
        pulls = (*(kept * pull for pull in self.pulls), kept * 0.5 * mean / scale * self.sizes + z.skew / n)
        last = len(pulls) - 1
        e = 0.25 * sum(z.c1 ** (last - i) * pull**2 for i, pull in enumerate(pulls))
        third = z.c1**3 * k + 3.0 * z.c1**2 * z.c2 * v * v + 3.0 * z.c1 * z.s1 * v / n + (z.skew / n) ** 2
        triangle = z.c1**3 * self.overlaps.triangle + 3.0 * z.c1**2 * v / n + 1.0 / n**2
        wide = z.c1**2 * v + z.s0 / n
        return (
            Overlaps(e, wide, third, 0.0, (e, wide), triangle, 0.0),
            kept**2 * self.sizes + (z.fourth - 1.0) / n,
            pulls,
        )

    def weighted(self, after: Signal, bias_var: float, nodes: float) -> FiniteSignal:
        """The signal after Gaussian weights, which sum over all units; `after`: the closed form of the mean overlap."""
        self._check(bias_var)
        pulls, sizes = self.pulls, 0.0 if self.fixed else self.sizes + 2.0 / self.nodes
        if self.over_points:
            change, sizes, pulls = self._after_batchnorm()
        else:
            change = self._even() if self.even else self._about_e()
        one_minus_c, total = self.signal.one_minus_c, after.total
        kept = after.one_minus_c / one_minus_c if one_minus_c > 0.0 else 0.0  # biases add the same to all pairs
        shift = kept * change.e * total
        if not (-total < after.between + shift < total and change.v > -_ROUNDING):
            raise _refuse("corrections that are small", f"a mean overlap of {after.correlation + kept * change.e:.3g}")
        signal = changed(after, between=after.between + shift, spread=after.spread - shift)
        square, cube = kept**2, kept**3
        _, v, k, u, leading, triangle, common = change
        return changed(
            self,
            signal=signal,
            nodes=nodes,
            sizes=sizes,
            overlaps=Overlaps(
                signal.correlation,
                square * v if v > 0.0 else 0.0,
                cube * k,
                square * u,
                leading,
                cube * triangle,
                square * common,
            ),
            pulls=pulls,
            distribution=_GAUSSIAN,
            shifted=False,
            fixed=False,
            over_points=False,
        )

    def _check(self, bias_var: float) -> None:
        """Refuse what makes an overlap depend on more than the overlap before: the sizes of the points."""
        phi, centres = self.distribution.phi, self.distribution.centres
        if (self.over_points or self.pulls) and bias_var > 0.0:
            raise _refuse("no biases with norms over points", f"bias_var={bias_var:g}")
        if self.pulls and phi is not None and not self.over_points:
            raise _refuse("norms over points after every activation", "some without")
        if self.shifted and not centres:
            raise _refuse("an activation that is centred at any size", f"centered({phi})")
        if bias_var > 0.0 and self.sizes > _ONE_SIZE and not self.fixed:
            raise _refuse("points of one size before biases", "points whose sizes differ")
        if phi is None or phi.degree is not None or self.sizes <= _ONE_SIZE:
            return
        if not (self.even and centres and self.sizes <= _SMALL_SIZES):
            raise _refuse("points of one size before an activation that is not scale-free", str(phi))

    def _even(self) -> Overlaps:
        """theory.md (42), and its terms in the third derivative of C where φ has one; (40) otherwise."""
        z, n, (e, v, k, *_) = at_zero(self.distribution), self.nodes, self.overlaps
        slope = z.c1 + z.c2 * e
        change = 0.5 * (z.c2 + z.c3 * e) * v + z.c3 * k / 6.0 + z.c4 * v * v / 8.0 + (z.b1 * e + 0.5 * z.b2 * v) / n
        own = z.s0 / (n - 1.0 if self.distribution.centres else n)
        wide = slope**2 * v + slope * z.c2 * k + (0.5 * z.c2**2 + z.c1 * z.c3) * v * v + 2.0 * z.c1 * z.b1 * v / n
        third = slope**3 * k + 3.0 * z.c1**2 * z.c2 * v * v + 3.0 * z.c1 * z.s1 * v / n + (z.skew / n) ** 2
        e1, v1 = self.overlaps.leading
        leading = z.c1 * e1 + 0.5 * z.c2 * (e1 * e1 + v1), (z.c1 + z.c2 * e1) ** 2 * v1 + z.s0 / n
        # to leading order: noise of the units at two of three sides, or at all; at two sides with a common point
        triangle = z.c1**3 * self.overlaps.triangle + 3.0 * z.c1**2 * v / n + 1.0 / n**2
        common = z.c1**2 * self.overlaps.common + (z.c1 * e + 0.5 * z.c2 * v) / n
        wide += own + (z.s1 * e + 0.5 * z.s2 * (v + e * e)) / n
        return Overlaps(change, wide, third, 0.0, leading, triangle, common)

    def _about_e(self) -> Overlaps:
        """theory.md (45), with the moments of what is centred where a norm after φ centres."""
        e, v, _, u, _, _, _ = self.overlaps
        here, n = at(self.distribution, e), self.nodes
        square = here.slope**2
        return Overlaps(0.5 * here.curve * v + here.b / n, square * v + here.s / n, 0.0, square * u + here.s4 / n)
