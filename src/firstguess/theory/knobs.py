"""Knobs on the frontier between bias and gradients: families of networks with one parameter, theory.md (31)-(35).

A knob turns a description into one whose mean squares neither grow nor shrink, at a wanted gradient growth a layer; its
parameter then decides γ alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple, Protocol, cast

import numpy as np
from scipy import optimize

from firstguess.base import gaussian
from firstguess.base.errors import NotCovered
from firstguess.base.gaussian import Array, Function
from firstguess.network.activations import lookup
from firstguess.network.activations.record import Activation
from firstguess.network.layer import Layer, Mix, text
from firstguess.network.layers import Activate, Conv, Dense, Residual
from firstguess.network.layers.scale import Scale
from firstguess.network.layers.shift import Shift
from firstguess.network.network import Network
from firstguess.network.walk import every

_RAYS = ("relu", "leaky_relu", "prelu", "abs")


class Knob(Protocol):
    """One parameter of a family."""

    @property
    def name(self) -> str: ...

    @property
    def span(self) -> tuple[float, float]:
        """Where it may stand, γ growing from the first to the second."""
        ...

    def network(self, at: float) -> Network:
        """The member with this parameter."""
        ...

    def settings(self, at: float) -> dict[str, float]:
        """Its numbers, by the names that users know."""
        ...


def activation_of(network: Network) -> Activation:
    """The one activation of a network, or NotCovered."""
    found = {layer.phi for layer in every(network.layers) if isinstance(layer, Activate)}
    if len(found) != 1:
        got = "none" if not found else ", ".join(sorted(str(phi) for phi in found))
        raise NotCovered("a network with one activation throughout", got=got, where="tune")
    return found.pop()


def changed(layers: Iterable[Layer], how: Callable[[Layer], list[Layer]]) -> tuple[Layer, ...]:
    """Every layer replaced by some, inside blocks too."""
    found: list[Layer] = []
    for layer in layers:
        inner = layer.with_paths(lambda path: changed(path, how)) if layer.paths else layer
        found += how(inner)
    return tuple(found)


def normed(network: Network) -> Layer | None:
    """The first norm, which sets the mean square itself."""
    for layer in every(network.layers):
        if not layer.weighted and not layer.paths and layer.mixes in (Mix.NODES, Mix.POINTS):
            return layer
    return None


def _with_variance(layer: Layer, weight_var: float, bias_var: float = 0.0) -> Layer:
    if isinstance(layer, (Dense, Conv)):
        return replace(layer, weight_var=weight_var, bias_var=bias_var)
    return layer


@dataclass(frozen=True)
class Slope:
    """Of a leaky ReLU, 1 being linear and −1 the absolute value: σw² = 2χ/(1+α²), theory.md (33)."""

    base: Network
    growth: float  # χ a layer
    mean_square: float  # E x² of the inputs
    name: str = "slope"
    span: tuple[float, float] = (1.0, -1.0)

    def settings(self, at: float) -> dict[str, float]:
        found = {"slope": at, "weight_var": 2.0 * self.growth / (1.0 + at * at), "bias_var": 0.0}
        # A norm divides by what the first layer brings, and gradients with it.
        return found if normed(self.base) is None else found | {"first_weight_var": 1.0 / self.mean_square}

    def network(self, at: float) -> Network:
        numbers = self.settings(at)
        phi = Activate(lookup.activation("leaky_relu", slope=at))
        first = [numbers.get("first_weight_var", numbers["weight_var"])]

        def how(layer: Layer) -> list[Layer]:
            if isinstance(layer, Activate):
                return [phi]
            if isinstance(layer, (Dense, Conv)) and first:
                return [_with_variance(layer, first.pop())]
            return [_with_variance(layer, numbers["weight_var"])]

        return replace(self.base, layers=changed(self.base.layers, how))


@dataclass(frozen=True)
class BranchScale:
    """β of √(1−β²)·x + β·f(x), the branch's weights at its activation's gain: theory.md (34)."""

    base: Network
    name: str = "branch_scale"
    span: tuple[float, float] = (0.0, 1.0)

    def settings(self, at: float) -> dict[str, float]:
        gain = 1.0 / averages(activation_of(self.base), 1.0).square
        return {"branch_scale": at, "shortcut_scale": math.sqrt(1.0 - at * at), "weight_var": gain, "bias_var": 0.0}

    def network(self, at: float) -> Network:
        numbers = self.settings(at)

        def how(layer: Layer) -> list[Layer]:
            if isinstance(layer, Residual):
                kept = math.sqrt(1.0 - at * at)
                branch = changed(layer.branch, lambda one: [_with_variance(one, numbers["weight_var"])])
                return [replace(layer, branch=branch, scale=at, shortcut=(*layer.shortcut, Scale(kept)))]
            return [_with_variance(layer, 1.0)]

        return replace(self.base, layers=changed(self.base.layers, how))


@dataclass(frozen=True)
class Variances:
    """q of a smooth activation: σw² = χq/D, σb² = q − σw² E φ², behind a first layer that brings q: theory.md (35).

    Only where q is stable: 1 + σw² E φφ'' ≤ 1.
    """

    base: Network
    growth: float
    mean_square: float  # E x² of the inputs
    name: str = "variances"

    @property
    def span(self) -> tuple[float, float]:
        """As far as biases have a variance of at least 0 and q is stable."""
        fine = [q for q in np.geomspace(1e-6, 1e3, 120) if self._fine(float(q))]
        if not fine:
            raise NotCovered(
                "an activation whose mean square is stable where gradients neither grow nor vanish",
                got=str(activation_of(self.base)),
                where="tune",
                hint='knob="affine"',
            )
        return float(fine[0]), float(fine[-1])

    def _fine(self, q: float) -> bool:
        numbers = self.settings(q)
        phi = activation_of(self.base)
        of = averages(phi, math.sqrt(q))
        return numbers["bias_var"] >= 0.0 and numbers["weight_var"] * (of.slope + of.curved) <= q * (1.0 + 1e-9)

    def settings(self, at: float) -> dict[str, float]:
        of = averages(activation_of(self.base), math.sqrt(at))
        weight_var = self.growth * at / of.slope
        bias_var = at - weight_var * of.square
        return {
            "weight_var": weight_var,
            "bias_var": max(bias_var, 0.0) if bias_var > -1e-12 * at else bias_var,
            "first_weight_var": at / self.mean_square,
        }

    def network(self, at: float) -> Network:
        numbers = self.settings(at)
        first = [True]

        def how(layer: Layer) -> list[Layer]:
            if isinstance(layer, (Dense, Conv)) and first[0]:
                first[0] = False
                return [_with_variance(layer, numbers["first_weight_var"])]
            return [_with_variance(layer, numbers["weight_var"], numbers["bias_var"])]

        return replace(self.base, layers=changed(self.base.layers, how))


@dataclass(frozen=True)
class Affine:
    """a of g·(φ(ax + b) + d) at q = 1: b so that q is stable, d and g so that it stays at χ: theory.md (35)."""

    base: Network
    growth: float
    mean_square: float
    name: str = "affine"

    @property
    def span(self) -> tuple[float, float]:
        """From nearly linear on, as far as there is a stable b."""
        fine = [a for a, _ in _branch(activation_of(self.base), self.growth)]
        if len(fine) < 2:
            raise NotCovered(
                "an activation that a shift and a scale make stable at these gradients",
                got=str(activation_of(self.base)),
                where="tune",
                hint='knob="slope" with a ReLU, or knob="branch_scale" in residual blocks',
            )
        return fine[0], fine[-1]

    def settings(self, at: float) -> dict[str, float]:
        phi = activation_of(self.base)
        b = _stable_shift(phi, at, self.growth)
        if b is None:
            raise NotCovered("a stable shift", got=f"{phi} at scale {at:.4g}", where="tune")
        d, g = _outside(phi, at, b, self.growth)
        return {"scale_in": at, "shift_in": b, "shift_out": d, "scale_out": g, "weight_var": 1.0, "bias_var": 0.0}

    def network(self, at: float) -> Network:
        n = self.settings(at)
        first = [True]

        def how(layer: Layer) -> list[Layer]:
            if isinstance(layer, Activate):
                return [Scale(n["scale_in"]), Shift(n["shift_in"]), layer, Shift(n["shift_out"]), Scale(n["scale_out"])]
            if isinstance(layer, (Dense, Conv)) and first[0]:
                first[0] = False
                return [_with_variance(layer, 1.0 / self.mean_square)]
            return [_with_variance(layer, 1.0)]

        return replace(self.base, layers=changed(self.base.layers, how))


# -- Moments of φ(ax + b) over a standard normal x ---------------------------------------------------------------------


class Averages(NamedTuple):
    """Of φ(ax + b): E φ, E φ², a² E φ'², and by parts, so that kinks count, a² E φφ'' and a² E φ''."""

    mean: float
    square: float
    slope: float
    curved: float
    curvature: float


@lru_cache(maxsize=20_000)
def averages(phi: Activation, a: float, b: float = 0.0) -> Averages:
    """By quadrature.

    >>> averages(lookup.activation("relu"), 1.0).slope
    0.5...
    """

    def slope(x: Array) -> Array:
        if phi.derivative is not None:
            return a * phi.derivative(x)
        return a * (phi(x + 1e-5) - phi(x - 1e-5)) / 2e-5

    def average(fn: Function) -> float:
        return gaussian.expectation(fn, a * a, phi.features, mean=b)

    energy = average(lambda x: slope(x) ** 2)
    curved = average(lambda x: phi(x) * slope(x) * (x - b) / a) - energy
    return Averages(
        average(phi), average(lambda x: phi(x) ** 2), energy, curved, average(lambda x: slope(x) * (x - b) / a)
    )


def _outside(phi: Activation, a: float, b: float, growth: float) -> tuple[float, float]:
    """d and g: E ψ² = 1 and E ψ'² = χ for ψ = g(φ(ax + b) + d)."""
    of = averages(phi, a, b)
    rest = of.slope / growth - (of.square - of.mean**2)
    return -of.mean + math.sqrt(max(rest, 0.0)), math.sqrt(growth / of.slope)


def _stable_shifts(phi: Activation, a: float, growth: float) -> list[float]:
    """All b from −6 to 6 at which E ψψ'' = 0, so that q is stable."""

    def unstable(b: float) -> float:
        of = averages(phi, a, b)
        rest = of.slope / growth - (of.square - of.mean**2)
        if not of.slope > 0.0 or rest < -1e-12 * of.slope:
            return math.nan
        return (of.curved + (math.sqrt(max(rest, 0.0)) - of.mean) * of.curvature) / of.slope

    at = np.linspace(-6.0, 6.0, 241)
    values = _roughly_unstable(phi, a, at, growth)
    roots = [float(b) for b, value in zip(at, values, strict=True) if value == 0.0]
    for i in np.flatnonzero((values[:-1] > 0.0) != (values[1:] > 0.0)):
        if np.isfinite(values[i : i + 2]).all():
            try:
                found = optimize.brentq(unstable, float(at[i]) - 1e-3, float(at[i + 1]) + 1e-3, xtol=1e-13)  # type: ignore[arg-type]
            except ValueError:  # NaN on the way, or the rough sign was wrong
                continue
            roots.append(float(cast(float, found)))
    return roots


@lru_cache(maxsize=64)
def _branch(phi: Activation, growth: float) -> tuple[tuple[float, float], ...]:
    """(a, b) along the stable b that is nearest to 0 where φ is nearly linear, as far as it goes without a jump."""
    found: list[tuple[float, float]] = []
    for a in np.geomspace(1e-3, 30.0, 91):
        roots = _stable_shifts(phi, float(a), growth)
        near = found[-1][1] if found else 0.0
        b = min(roots, key=lambda root: abs(root - near)) if roots else None
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
    roots = _stable_shifts(phi, a, growth)
    return min(roots, key=lambda root: abs(root - near)) if roots else None


def _roughly_unstable(phi: Activation, a: float, at: Array, growth: float) -> Array:
    """What `unstable` is at all these b, on a plain grid: enough to see where its sign changes."""
    z = np.linspace(-8.0, 8.0, 401)
    w = np.exp(-0.5 * z * z) / np.exp(-0.5 * z * z).sum()
    x = a * z + at[:, None]
    value = phi(x)
    slope = a * (phi.derivative(x) if phi.derivative is not None else (phi(x + 1e-5) - phi(x - 1e-5)) / 2e-5)
    mean, square, energy = value @ w, value**2 @ w, slope**2 @ w
    with np.errstate(invalid="ignore", divide="ignore"):
        shift = np.sqrt(energy / growth - (square - mean**2)) - mean
        return ((value + shift[:, None]) * slope * z @ w - energy) / energy


def knob_for(network: Network, *, growth: float, mean_square: float, name: str | None = None) -> Knob:
    """The knob of this name, or the one that the activation calls for."""
    phi = activation_of(network)
    if phi.jumps or phi.name == "linear":
        raise NotCovered("an activation that bends and does not jump", got=str(phi), where="tune")
    residual = any(isinstance(layer, Residual) for layer in every(network.layers))
    norm = normed(network)
    if name is None:
        if residual:
            name = "branch_scale"
        elif phi.name in _RAYS and not phi.centered:
            name = "slope"
        elif norm is None and phi.odd:
            name = "variances"
        else:
            name = "affine"
    if name in ("variances", "affine") and residual:
        raise NotCovered(f"a plain network, for knob={name!r}", got="residual blocks", hint='knob="branch_scale"')
    if name == "variances" and norm is not None:
        raise NotCovered("a network whose variances count", got=text(norm), where="tune", hint='knob="affine"')
    match name:
        case "slope":
            if phi.name not in _RAYS:
                raise NotCovered("a ReLU, for its slope", got=str(phi), where="tune", hint='knob="affine"')
            return Slope(network, growth, mean_square)
        case "branch_scale":
            if not residual:
                raise NotCovered("residual blocks, for their scale", got="a plain network", where="tune")
            return BranchScale(network)
        case "variances":
            return Variances(network, growth, mean_square)
        case "affine":
            return Affine(network, growth, mean_square)
        case _:
            raise NotCovered('knob "slope", "branch_scale", "variances" or "affine"', got=repr(name), where="tune")
