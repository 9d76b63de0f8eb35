"""ψ(x) = g·(φ(ax + b) + d) of a standard normal x: averages, and the b, d, g that keep q = 1, theory.md (35)."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple, cast

import numpy as np
from scipy import optimize

from firstguess.base import gaussian
from firstguess.base.gaussian import Array, Function
from firstguess.network.activations.record import Activation

_SCALES = np.geomspace(1e-3, 30.0, 46)  # a that are looked at; between two of them b moves on by little
_SHIFTS = np.linspace(-6.0, 6.0, 241)  # b that are looked at


class Averages(NamedTuple):
    """Of φ(ax + b): E φ, E φ², a² E φ'², and by parts, so that kinks count, a² E φφ'' and a² E φ''."""

    mean: float
    square: float
    slope: float
    curved: float
    curvature: float


class Shifted(NamedTuple):
    """g·(φ(ax + b) + d)."""

    scale_in: float
    shift_in: float
    shift_out: float
    scale_out: float


@lru_cache(maxsize=20_000)
def averages(phi: Activation, a: float, b: float = 0.0) -> Averages:
    """By quadrature.

    >>> from firstguess.network.activations import lookup
    >>> round(averages(lookup.activation("relu"), 1.0).slope, 12)
    0.5
    """

    def slope(x: Array) -> Array:
        if phi.derivative is not None:
            return a * phi.derivative(x)
        return a * (phi(x + 1e-5) - phi(x - 1e-5)) / 2e-5

    def average(fn: Function) -> float:
        # finer where φ is stretched: a sine has 3a turns within the normal's reach
        return gaussian.expectation(fn, a * a, phi.features, mean=b, refine=max(2.0, a))

    energy = average(lambda x: slope(x) ** 2)
    curved = average(lambda x: phi(x) * slope(x) * (x - b) / a) - energy
    return Averages(
        average(phi), average(lambda x: phi(x) ** 2), energy, curved, average(lambda x: slope(x) * (x - b) / a)
    )


def shifted(phi: Activation, a: float, growth: float) -> Shifted | None:
    """The ψ of this a with E ψ² = 1, E ψ'² = χ and a stable q; None: there is none.

    An odd φ needs no b: there 1 + E ψψ'' ≤ 1 already. For others b is the root of E ψψ'' on the branch that goes on
    from nearly linear ψ.
    """
    if phi.odd:
        b: float | None = 0.0
        of = averages(phi, a)
        if of.curved > 1e-9 * of.slope or of.slope < growth * of.square * (1.0 - 1e-12):
            return None
    else:
        b = _stable_shift(phi, a, growth)
    if b is None:
        return None
    of = averages(phi, a, b)
    rest = of.slope / growth - (of.square - of.mean**2)
    return Shifted(a, b, -of.mean + math.sqrt(max(rest, 0.0)), math.sqrt(growth / of.slope))


@lru_cache(maxsize=64)
def scales(phi: Activation, growth: float) -> tuple[float, ...]:
    """The a that have a ψ, from nearly linear on."""
    if not phi.odd:
        return tuple(a for a, _ in _branch(phi, growth))
    fine: list[float] = []
    for a in _SCALES:
        if shifted(phi, float(a), growth) is not None:
            fine.append(float(a))
        elif fine:
            break
    return tuple(fine)


# -- Where E ψψ'' = 0 --------------------------------------------------------------------------------------------------


@lru_cache(maxsize=64)
def _branch(phi: Activation, growth: float) -> tuple[tuple[float, float], ...]:
    """(a, b) along the stable b that is nearest to 0 where φ is nearly linear, as far as it goes without a jump."""
    found: list[tuple[float, float]] = []
    for a in _SCALES:
        near = found[-1][1] if found else 0.0
        b = _nearest(phi, float(a), growth, near)
        if b is None or (found and abs(b - near) > 0.25 + 0.5 * abs(near)):
            if found:
                break
            continue
        found.append((float(a), b))
    return tuple(found)


def _stable_shift(phi: Activation, a: float, growth: float) -> float | None:
    """The b of the branch at this a; None: it does not go so far."""
    branch = _branch(phi, growth)
    if not branch or not branch[0][0] <= a <= branch[-1][0]:
        return None
    near = float(np.interp(math.log(a), [math.log(x) for x, _ in branch], [b for _, b in branch]))
    return _nearest(phi, a, growth, near)


@lru_cache(maxsize=2_000)
def _nearest(phi: Activation, a: float, growth: float, near: float) -> float | None:
    """The b from −6 to 6 nearest to `near` at which E ψψ'' = 0, so that q is stable."""

    def unstable(b: float) -> float:
        of = averages(phi, a, b)
        rest = of.slope / growth - (of.square - of.mean**2)
        if not of.slope > 0.0 or rest < -1e-12 * of.slope:
            return math.nan
        return (of.curved + (math.sqrt(max(rest, 0.0)) - of.mean) * of.curvature) / of.slope

    values = _roughly_unstable(phi, a, growth)
    roots = [float(b) for b, value in zip(_SHIFTS, values, strict=True) if value == 0.0]
    crossed = [i for i in np.flatnonzero((values[:-1] > 0.0) != (values[1:] > 0.0)) if _both(values, int(i))]
    solved = 0
    for i in sorted(crossed, key=lambda i: abs(_SHIFTS[i] - near)):
        try:
            found = optimize.brentq(unstable, float(_SHIFTS[i]) - 1e-3, float(_SHIFTS[i + 1]) + 1e-3, xtol=1e-13)  # type: ignore[arg-type]
        except ValueError:  # NaN on the way, or the rough sign was wrong
            continue
        roots.append(float(cast(float, found)))
        solved += 1
        if solved == 2:  # one on either side: the others are farther
            break
    return min(roots, key=lambda root: abs(root - near)) if roots else None


def _both(values: Array, i: int) -> bool:
    return bool(np.isfinite(values[i : i + 2]).all())


def _roughly_unstable(phi: Activation, a: float, growth: float) -> Array:
    """What `unstable` is at all b, on a plain grid: enough to see where its sign changes."""
    z = np.linspace(-8.0, 8.0, 401)
    w = np.exp(-0.5 * z * z) / np.exp(-0.5 * z * z).sum()
    x = a * z + _SHIFTS[:, None]
    value = phi(x)
    slope = a * (phi.derivative(x) if phi.derivative is not None else (phi(x + 1e-5) - phi(x - 1e-5)) / 2e-5)
    mean, square, energy = value @ w, value**2 @ w, slope**2 @ w
    with np.errstate(invalid="ignore", divide="ignore"):
        shift = np.sqrt(energy / growth - (square - mean**2)) - mean
        return ((value + shift[:, None]) * slope * z @ w - energy) / energy
