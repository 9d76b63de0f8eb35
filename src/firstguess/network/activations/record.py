"""The record of an activation: all that any reading knows of it, and its Gaussian moments.

Records stand in catalogue.py; registry.py finds them by name.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from firstguess.base import gaussian
from firstguess.base.gaussian import Array, Feature, Function, Moments
from firstguess.base.text import number

# Gaussian moments in closed form, for the activations that have one.
#
# Every function takes a centred Gaussian as (between, spread) = (σ_μ², σ_y²) and returns `Moments`, written so that
# neither c → 0 nor c → 1 costs digits: differences of nearly equal numbers are replaced by what they are equal to.
# With r = σ_μ² the covariance of two data points, q = σ_μ² + σ_y², c = r/q and θ = arccos c.

_LEGENDRE_X, _LEGENDRE_W = np.polynomial.legendre.leggauss(24)


def angle(between: float, spread: float) -> float:
    """θ = arccos c, accurate at both ends."""
    return math.atan2(math.sqrt(spread * (2.0 * between + spread)), between)


def piecewise_linear_moments(left: float, right: float, between: float, spread: float) -> Moments:
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
    below_one = math.pi * math.sin(theta / 2.0) ** 2 - sine_minus(theta)
    scale = 2.0 * q / math.pi * b * b
    return Moments(
        b * math.sqrt(2.0 * q / math.pi), a * a * between + scale * above_zero, a * a * spread + scale * below_one
    )


def sine_minus(theta: float) -> float:
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

# Beyond this |log q| an activation is its own asymptote to 1e-16, and √q would soon leave float64.
_FAR = 75.0


# (k, q_a, q_b, want_slope) -> (E φφ, E φ'φ' or None); k is (rows, cols), q_a (rows, 1), q_b (1, cols)
Map = Callable[[Array, Array, Array, bool], tuple[Array, Array | None]]


class Kink(NamedTuple):
    """Σ_p powers[p]·(side·x − at)₊^p, the power 0 being the step from 0 to 1."""

    side: float
    at: float
    powers: tuple[float, float, float]


class Piecewise(NamedTuple):
    """poly[0] + poly[1]·x + poly[2]·x² plus kinks."""

    poly: tuple[float, float, float]
    kinks: tuple[Kink, ...]

    def slope(self) -> Piecewise:
        """The derivative, of the same form."""
        poly = (self.poly[1], 2.0 * self.poly[2], 0.0)
        return Piecewise(
            poly, tuple(Kink(b.side, b.at, (b.side * b.powers[1], b.side * 2.0 * b.powers[2], 0.0)) for b in self.kinks)
        )


class TorchNames(NamedTuple):
    """What torch calls an activation. Names only, so that no record loads torch: tensors.py resolves them.

    Roots are `torch`, `F` (torch.nn.functional), `aten` (torch.ops.aten), `operator`, and `Tensor` for methods, whose
    in-place form is meant as well. The module, the functions and the in-place form share their keywords.
    """

    inplace: str = ""  # what an ensemble runs; an overload `.out` writes where it reads. "": the function, in NumPy
    module: str | type = ""  # a class of torch.nn by its name, or any class; "": one that calls calls[0]
    calls: tuple[str, ...] = ()  # functions and methods that are this activation
    # The keyword of torch, or the attribute of the class, -> the activation's parameter, in the order of its arguments.
    arguments: tuple[tuple[str, str], ...] = ()
    fixed: tuple[tuple[str, float | str], ...] = ()  # keywords that must have these values to be this activation
    refuse: str = ""  # what to say of other values, as a format of them
    read: bool = True  # False: it is built with this module, which is not read as it
    also: tuple[TorchNames, ...] = ()  # other ways to write it


@dataclass(frozen=True)
class Activation:
    """A scalar function with what is known about it. Get one with `fg.activation("gelu")`.

    The function is `offset + rise(x)` with `rise(0) = 0`, so that small signals on a large constant keep their digits.
    Two activations are equal when their names and parameters are; what is known of them is not compared,
    which would slow every cache that asks for one.
    """

    name: str
    params: tuple[tuple[str, float], ...] = ()
    rise: Function = field(default=lambda x: x, compare=False, repr=False)
    derivative: Function | None = field(default=None, compare=False, repr=False)
    offset: float = field(default=0.0, repr=False)  # compared: asymptotes of different functions differ only in it
    features: tuple[Feature, ...] = field(default=(), repr=False)  # compared: the same callable with other kinks
    degree: int | None = field(default=None, compare=False, repr=False)  # φ(ax) = a^degree φ(x) for a > 0
    near: tuple[float, float] | None = field(default=None, compare=False, repr=False)  # slopes left, right of 0
    far: tuple[float, float] | None = field(default=None, compare=False, repr=False)  # slopes at −∞, +∞; None: bounded
    nondecreasing: bool = field(default=False, compare=False, repr=False)
    odd: bool = field(default=False, compare=False, repr=False)  # its mean is 0 exactly, not to rounding
    closed: ClosedForm | None = field(default=None, compare=False, repr=False)
    shifted: ShiftedForm | None = field(default=None, compare=False, repr=False)  # about any mean
    energy: Callable[[float], float] | None = field(default=None, compare=False, repr=False)  # closed E φ'(√q z)²
    kernel: Map | None = field(default=None, compare=False, repr=False)  # closed; of degree 1 it is known anyway
    pieces: Piecewise | None = field(default=None, compare=False, repr=False)  # of a piecewise quadratic: its kernel
    torch: TorchNames | None = field(default=None, compare=False, repr=False)  # None: ensembles run it in NumPy
    text_argument: str = field(default="slope", compare=False, repr=False)  # the parameter that x is in name(x)
    jumps: bool = field(default=False, compare=False, repr=False)
    source: Function | None = field(default=None, repr=False)  # a user's callable: part of its identity
    centered: bool = False

    def __call__(self, x: Array) -> Array:
        """φ(x), elementwise. A centered activation subtracts its mean at unit variance."""
        x = np.asarray(x, dtype=np.float64)
        value = self.offset + self.rise(x)
        return value - replace(self, centered=False).moments(0.0, 1.0).mean if self.centered else value

    def __str__(self) -> str:
        base = self.name + (f"({', '.join(f'{k}={number(v)}' for k, v in self.params)})" if self.params else "")
        return f"centered({base})" if self.centered else base

    def moments(self, between: float, spread: float, *, mean: float = 0.0) -> Moments:
        """The moments of φ(u) for a Gaussian u with this mean, between-node and over-data variance: theory.md (4)."""
        result = _shifted_moments(self, mean, between, spread) if mean != 0.0 else _moments(self, between, spread)
        return result._replace(mean=0.0) if self.centered else result

    def mean_square_slope(self, q: float, mean: float = 0.0) -> float:
        """E φ'(mean + √q z)²: what a layer does to the mean square of gradients, up to σw² (theory.md (10))."""
        if self.jumps:
            return math.inf
        if mean == 0.0 and self.energy is not None:
            return self.energy(q)
        slope = self.derivative or gaussian.numerical_slope(self.rise, gaussian.kinks(self.features))
        own = self.source is not None
        return gaussian.expectation(lambda x: slope(x) ** 2, q, self.features, mean=mean, checked=own)

    def asymptote(self, log_q: float) -> Activation | None:
        """The piecewise-linear function φ is equal to at such scales, None where it must be computed."""
        if self.degree is not None or abs(log_q) <= _FAR:
            return None
        slopes = self.near if log_q < 0 else self.far
        if slopes is None:
            return None
        left, right = slopes
        line = piecewise_linear("piecewise_linear", left, right, (("left", left), ("right", right)))
        return replace(line, offset=self.offset if log_q < 0 else 0.0, centered=self.centered)


@lru_cache(maxsize=65536)
def _moments(phi: Activation, between: float, spread: float) -> Moments:
    if between + spread == 0.0:
        return Moments(phi.offset, 0.0, 0.0)
    if phi.closed is not None:
        result = phi.closed(between, spread)
    else:
        own, slope = phi.source is not None, phi.derivative
        result = gaussian.moments(
            phi.rise, between, spread, phi.features, jumps=phi.jumps, derivative=slope, checked=own
        )
    return result._replace(mean=0.0 if phi.odd else phi.offset + result.mean)


@lru_cache(maxsize=4096)
def _shifted_moments(phi: Activation, mean: float, between: float, spread: float) -> Moments:
    if phi.shifted is not None:
        return phi.shifted(between, spread, mean)
    features = tuple(Feature(f.at - mean, f.width) for f in phi.features)
    slope, own = phi.derivative, phi.source is not None
    moved = None if slope is None else lambda x: slope(x + mean)
    rise = phi.rise
    result = gaussian.moments(
        lambda x: rise(x + mean), between, spread, features, jumps=phi.jumps, derivative=moved, checked=own
    )
    return result._replace(mean=phi.offset + result.mean)


def piecewise_linear(
    name: str, left: float, right: float, params: tuple[tuple[str, float], ...] = (), torch: TorchNames | None = None
) -> Activation:
    """The record of `right·x` above 0, `left·x` below."""
    return Activation(
        name,
        params,
        rise=lambda x: np.where(x > 0, right * x, left * x),
        derivative=lambda x: np.where(x > 0, right, left) + 0.0 * x,
        features=(Feature(0.0, 0.0),) if left != right else (),
        degree=1,
        nondecreasing=left >= 0 and right >= 0,
        closed=lambda b, s: piecewise_linear_moments(left, right, b, s),
        energy=lambda q: 0.5 * (left * left + right * right),
        torch=torch,
    )
