"""Knobs on the frontier between bias and gradients: families of networks with one parameter, theory.md (31)-(35).

A parameter turns a description into one whose mean squares neither grow nor shrink, at a wanted gradient growth a
layer; its parameter then decides γ alone. That of tokens decides γ by what all sequences share, and leaves gradients as
they come.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar, NamedTuple

import numpy as np

from firstguess.base import gaussian
from firstguess.base.errors import NotCovered
from firstguess.base.gaussian import Array, Function
from firstguess.base.numerics import find_root
from firstguess.network.activations import registry
from firstguess.network.activations.record import Activation
from firstguess.network.layer import Layer, Mix, text
from firstguess.network.layers import Activate, Scale, Shift
from firstguess.network.network import Network
from firstguess.network.walk import changed, every, needs_tokens

# ψ(x) = g·(φ(ax + b) + d) of a standard normal x: averages, and the b, d, g that keep q = 1, theory.md (35).

_SCALES = np.geomspace(1e-3, 30.0, 46)  # a that are looked at; between two of them b moves on by little
_SHIFTS = np.linspace(-6.0, 6.0, 241)  # b that are looked at


class Averages(NamedTuple):
    """Averages of φ(ax + b): E φ, E φ², a² E φ'², and by parts, so that kinks count, a² E φφ'' and a² E φ''."""

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
    """The averages by quadrature.

    >>> from firstguess.network.activations import registry
    >>> round(averages(registry.activation("relu"), 1.0).slope, 12)
    0.5
    """

    def slope(x: Array) -> Array:
        return a * _slope(phi, x)

    def average(fn: Function) -> float:
        # finer where φ is stretched: a sine has 3a turns within the normal's reach
        return gaussian.expectation(fn, a * a, phi.features, mean=b, refine=max(2.0, a))

    energy = average(lambda x: slope(x) ** 2)
    curved = average(lambda x: phi(x) * slope(x) * (x - b) / a) - energy
    return Averages(
        average(phi), average(lambda x: phi(x) ** 2), energy, curved, average(lambda x: slope(x) * (x - b) / a)
    )


def _slope(phi: Activation, x: Array) -> Array:
    return phi.derivative(x) if phi.derivative is not None else (phi(x + 1e-5) - phi(x - 1e-5)) / 2e-5


def shifted(phi: Activation, a: float, growth: float) -> Shifted | None:
    """The ψ of this a with E ψ² = 1, E ψ'² = χ and a stable q; None: there is none.

    An odd φ needs no b: there 1 + E ψψ'' ≤ 1 already. For others b is the root of E ψψ'' on the branch that continues
    from nearly linear ψ.
    """
    if phi.odd:
        b: float | None = 0.0
        of = averages(phi, a)
        if of.curved > 1e-9 * of.slope or of.slope < growth * of.square * (1.0 - 1e-12):
            return None
    else:
        branch, b = _branch(phi, growth), None
        if branch and branch[0][0] <= a <= branch[-1][0]:  # as far as it goes
            near = float(np.interp(math.log(a), [math.log(x) for x, _ in branch], [b for _, b in branch]))
            b = _nearest(phi, a, growth, near)
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
    known = np.isfinite(values[:-1]) & np.isfinite(values[1:])
    crossed = np.flatnonzero(((values[:-1] > 0.0) != (values[1:] > 0.0)) & known)
    solved = 0
    for i in sorted(crossed, key=lambda i: abs(_SHIFTS[i] - near)):
        try:
            found = find_root(unstable, float(_SHIFTS[i]) - 1e-3, float(_SHIFTS[i + 1]) + 1e-3, xtol=1e-13)
        except ValueError:  # NaN on the way, or the rough sign was wrong
            continue
        roots.append(found)
        solved += 1
        if solved == 2:  # one on either side: the others are farther
            break
    return min(roots, key=lambda root: abs(root - near)) if roots else None


def _roughly_unstable(phi: Activation, a: float, growth: float) -> Array:
    """What `unstable` is at all b, on a plain grid: enough to see where its sign changes."""
    z = np.linspace(-8.0, 8.0, 401)
    w = np.exp(-0.5 * z * z) / np.exp(-0.5 * z * z).sum()
    x = a * z + _SHIFTS[:, None]
    value = phi(x)
    slope = a * _slope(phi, x)
    mean, square, energy = value @ w, value**2 @ w, slope**2 @ w
    with np.errstate(invalid="ignore", divide="ignore"):
        shift = np.sqrt(energy / growth - (square - mean**2)) - mean
        return ((value + shift[:, None]) * slope * z @ w - energy) / energy


_LEAKY = ("relu", "leaky_relu", "prelu", "abs")


@dataclass(frozen=True)
class Family:
    """Networks with one parameter, γ growing from the first to the second end of its span."""

    name: ClassVar[str]
    ends: ClassVar[tuple[float, float]] = (0.0, 1.0)  # of the span, where these are the same for all networks
    base: Network
    growth: float = 1.0  # χ a layer
    mean_square: float = 1.0  # E x² of the inputs

    @property
    def phi(self) -> Activation:
        """The one activation."""
        return activation_of(self.base)

    @property
    def span(self) -> tuple[float, float]:
        """Where the parameter may stand."""
        return self.ends

    def network(self, at: float) -> Network:
        """The member with this parameter."""
        raise NotImplementedError

    def settings(self, at: float) -> dict[str, float]:
        """Its numbers, by the names that users know."""
        raise NotImplementedError

    def _unstable(self, hint: str = "") -> NotCovered:
        expected = "an activation that a shift and a scale make stable at these gradients"
        return NotCovered(expected, got=str(self.phi), where="tune", hint=hint)


def activation_of(network: Network) -> Activation:
    """The one activation of a network, or NotCovered."""
    found = {layer.function for layer in every(network.layers) if layer.function is not None}
    if len(found) != 1:
        got = "none" if not found else ", ".join(sorted(str(phi) for phi in found))
        raise NotCovered("a network with one activation throughout", got=got, where="tune")
    return found.pop()


def is_norm(layer: Layer) -> bool:
    """Whether it sets the mean square itself."""
    return not layer.weighted and not layer.paths and layer.mixes in (Mix.UNITS, Mix.POINTS)


def normed(network: Network) -> Layer | None:
    """The first norm."""
    return next((layer for layer in every(network.layers) if is_norm(layer)), None)


def _redrawn(
    base: Network, first: float, weight_var: float, bias_var: float = 0.0,
    phi: Callable[[Layer], Iterable[Layer]] = lambda layer: (layer,),
) -> Network:  # fmt: skip
    """The first weights with variance `first` and no biases, all others with these; activations as `phi` has them."""
    seen: list[Layer] = []

    def how(layer: Layer) -> Iterable[Layer]:
        if layer.function is not None:
            return phi(layer)
        if not layer.draws:
            return (layer,)
        seen.append(layer)
        return (layer.with_variances(first, 0.0) if len(seen) == 1 else layer.with_variances(weight_var, bias_var),)

    return replace(base, layers=changed(base.layers, how))


def _around(psi: Shifted) -> Callable[[Layer], Iterable[Layer]]:
    """φ as g·(φ(ax + b) + d)."""
    a, b, d, g = psi
    return lambda layer: (Scale(a), *([Shift(b)] if b else []), layer, Shift(d), Scale(g))


class SlopeFamily(Family):
    """The family of a leaky ReLU, 1 being linear and −1 the absolute value: σw² = 2χ/(1+α²), theory.md (33)."""

    name = "slope"
    ends = (1.0, -1.0)

    def settings(self, at: float) -> dict[str, float]:
        # A norm after φ brings a mean square of 1; one before divides by what weights bring, and gradients with it.
        norm = normed(self.base)
        first = next((x for x in every(self.base.layers) if x.function is not None or is_norm(x)), None)
        after = norm is not None and first is not norm
        weight_var = self.growth * (1.0 if after else 2.0 / (1.0 + at * at))
        found = {"slope": at, "weight_var": weight_var, "bias_var": 0.0}
        return found if norm is None else found | {"first_weight_var": 1.0 / self.mean_square}

    def network(self, at: float) -> Network:
        numbers = self.settings(at)
        phi = Activate(registry.activation("leaky_relu", slope=at))
        first = numbers.get("first_weight_var", numbers["weight_var"])
        return _redrawn(self.base, first, numbers["weight_var"], phi=lambda _: (phi,))


class BranchScaleFamily(Family):
    """β of √(1−β²)·x + β·f(x), the branch's weights at its activation's gain: theory.md (34).

    An activation other than these becomes g·(φ(ax + b) + d) with E ψ² = E ψ'² = 1, a as near to 1 as a stable q
    allows: or gradients would change.
    """

    name = "branch_scale"

    def _inside(self) -> Shifted | None:
        phi = self.phi
        if phi.name in _LEAKY and not phi.centered:
            return None
        fine = scales(phi, 1.0)
        found = shifted(phi, min(1.0, fine[-1]), 1.0) if len(fine) > 1 and fine[0] <= 1.0 else None
        if found is None:
            raise self._unstable()
        return found

    def settings(self, at: float) -> dict[str, float]:
        psi = self._inside()
        gain = 1.0 / averages(self.phi, 1.0).square if psi is None else 1.0
        found = {"branch_scale": at, "shortcut_scale": math.sqrt(1.0 - at * at), "weight_var": gain, "bias_var": 0.0}
        return found if psi is None else found | psi._asdict()

    def network(self, at: float) -> Network:
        psi = self._inside()
        gain = self.settings(at)["weight_var"]
        # Weights outside of blocks bring q = 1 to the next layer; those of a shortcut count as outside.
        plain = _redrawn(self.base, 1.0 / self.mean_square, 1.0)

        def how(layer: Layer) -> Iterable[Layer]:
            if not layer.paths:
                return (layer,)
            branch, *shortcut = layer.paths
            inner = changed(branch, lambda one: _inner(one, gain, psi))
            paths = iter((inner, *shortcut))
            return (layer.with_paths(lambda _: next(paths)).balanced(at),)

        return replace(plain, layers=tuple(new for layer in plain.layers for new in how(layer)))


def _inner(layer: Layer, gain: float, psi: Shifted | None) -> Iterable[Layer]:
    if layer.function is not None:
        return (layer,) if psi is None else _around(psi)(layer)
    return (layer.with_variances(gain, 0.0) if layer.draws else layer,)


class VarianceFamily(Family):
    """q of a smooth activation: σw² = χq/D, σb² = q − σw² E φ², after a first layer that brings q: theory.md (35).

    Only where q is stable: 1 + σw² E φφ'' ≤ 1.
    """

    name = "variances"

    @property
    def span(self) -> tuple[float, float]:
        """The range in which biases have a variance of at least 0 and q is stable."""
        fine = [q for q in np.geomspace(1e-6, 1e3, 120) if self._fine(float(q))]
        if not fine:
            expected = "an activation whose mean square is stable where gradients neither grow nor vanish"
            raise NotCovered(expected, got=str(self.phi), where="tune", hint='knob="affine"')
        return float(fine[0]), float(fine[-1])

    def _fine(self, q: float) -> bool:
        numbers = self.settings(q)
        of = averages(self.phi, math.sqrt(q))
        return numbers["bias_var"] >= 0.0 and numbers["weight_var"] * (of.slope + of.curved) <= q * (1.0 + 1e-9)

    def settings(self, at: float) -> dict[str, float]:
        of = averages(self.phi, math.sqrt(at))
        weight_var = self.growth * at / of.slope
        bias_var = at - weight_var * of.square
        return {
            "weight_var": weight_var,
            "bias_var": max(bias_var, 0.0) if bias_var > -1e-12 * at else bias_var,
            "first_weight_var": at / self.mean_square,
        }

    def network(self, at: float) -> Network:
        numbers = self.settings(at)
        return _redrawn(self.base, numbers["first_weight_var"], numbers["weight_var"], numbers["bias_var"])


class AffineFamily(Family):
    """a of g·(φ(ax + b) + d) at q = 1: b so that q is stable, d and g so that it stays at χ: theory.md (35)."""

    name = "affine"

    @property
    def span(self) -> tuple[float, float]:
        """The range from nearly linear on, as far as there is a stable b."""
        fine = scales(self.phi, self.growth)
        if len(fine) < 2:
            raise self._unstable('knob="slope" with a ReLU, or knob="branch_scale" in residual blocks')
        return fine[0], fine[-1]

    def _psi(self, at: float) -> Shifted:
        found = shifted(self.phi, at, self.growth)
        if found is None:
            raise NotCovered("a stable shift", got=f"{self.phi} at scale {at:.4g}", where="tune")
        return found

    def settings(self, at: float) -> dict[str, float]:
        first = {} if self.mean_square == 1.0 else {"first_weight_var": 1.0 / self.mean_square}
        return {**self._psi(at)._asdict(), "weight_var": 1.0, "bias_var": 0.0, **first}

    def network(self, at: float) -> Network:
        return _redrawn(self.base, 1.0 / self.mean_square, 1.0, phi=_around(self._psi(at)))


class SharedScaleFamily(Family):
    """Positions, token types and class token, times a factor: what sequences share is their bias, theory.md (20)."""

    name = "shared_scale"
    ends = (0.0, 1e3)

    def settings(self, at: float) -> dict[str, float]:
        return {"shared_scale": at}

    def network(self, at: float) -> Network:
        return replace(self.base, layers=changed(self.base.layers, lambda layer: (layer.with_shared(at),)))


_FAMILIES = (SlopeFamily, BranchScaleFamily, VarianceFamily, AffineFamily, SharedScaleFamily)
PARAMETERS = tuple(family.name for family in _FAMILIES)


def family_for(network: Network, *, growth: float, mean_square: float, name: str | None = None) -> Family:
    """The parameter of this name, or the one that the activation calls for."""
    if name is not None and name not in PARAMETERS:
        raise NotCovered(f"knob {', '.join(PARAMETERS[:-1])} or {PARAMETERS[-1]}", got=repr(name), where="tune")
    if needs_tokens(network.layers) or name == "shared_scale":
        return _of_tokens(network, name)
    pool = next((layer for layer in every(network.layers) if layer.pools > 1), None)
    if pool is not None:  # theory's gradients are those of single units, what trains is their sum: theory.md (39)
        raise NotCovered("a network without pools", got=text(pool), where="tune")
    phi = activation_of(network)
    if phi.jumps or phi.name == "linear":
        raise NotCovered("an activation that bends and does not jump", got=str(phi), where="tune")
    residual = any(layer.paths for layer in every(network.layers))
    norm = normed(network)
    if name is None:
        leaky = phi.name in _LEAKY and not phi.centered
        plain = "slope" if leaky else "variances" if phi.odd and norm is None else "affine"
        name = "branch_scale" if residual else plain
    if name in ("variances", "affine") and residual:
        raise NotCovered(f"a plain network, for knob={name!r}", got="residual blocks", hint='knob="branch_scale"')
    if name == "variances" and norm is not None:
        raise NotCovered("a network whose variances count", got=text(norm), where="tune", hint='knob="affine"')
    if name == "slope" and phi.name not in _LEAKY:
        raise NotCovered("a ReLU, for its slope", got=str(phi), where="tune", hint='knob="affine"')
    if name == "branch_scale" and not residual:
        raise NotCovered("residual blocks, for their scale", got="a plain network", where="tune")
    return _FAMILIES[PARAMETERS.index(name)](network, growth, mean_square)


def _of_tokens(network: Network, name: str | None) -> Family:
    if name not in (None, "shared_scale"):
        hint = "knob=None"
        raise NotCovered('knob="shared_scale", for a network of tokens', got=f"knob={name!r}", where="tune", hint=hint)
    found = SharedScaleFamily(network)
    if found.network(0.0) == network:
        expected = "positions, token types or a class token to scale"
        hint = "fg.repair(model, loader, gamma=…) moves the head's bias"
        raise NotCovered(expected, got="a network in which sequences share none", where="tune", hint=hint)
    return found
