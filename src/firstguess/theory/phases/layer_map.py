"""What one layer of an infinitely deep network does to variance, correlation and gradients.

A block is everything between two dense layers: an activation, perhaps with a pool or a norm. With `V(q)` the mean
square of its output, `R(q, θ)` the factor on the spread over data, and `R₀(q) = E Σ(∂x/∂u)²`, a layer maps

    q → σw²·V(q) + σb²,    q(1−c) → σw²·R(q, θ)·q(1−c),    gradients' mean square → σw²·R₀(q).

R decreases from R₀ at θ = arccos c = 0, so a fixed point c* < 1 exists iff χ̃ = σw²·R₀ > 1, and solves σw²·R(q*, θ) = 1:
nothing has to be iterated, not even at the edge, where iteration is algebraically slow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from firstguess.base.errors import FirstguessError, InvalidInput, NotConverged, NotCovered
from firstguess.base.gaussian import Function
from firstguess.network.activations.record import Activation
from firstguess.network.causes_bias import layers_of
from firstguess.network.grammar import parse_layers
from firstguess.network.layer import Layer, Mix, sequence_text, signal_after, steps
from firstguess.network.layers import Dense, Residual
from firstguess.network.signal import Gaussian, Signal, Unknown
from firstguess.network.walk import changed, every

# |log q| at which an own function is tried
_PROBES = (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 11.0, 15.0, 20.0, 28.0, 40.0, 80.0)


@dataclass(frozen=True)
class RepeatedBlock:
    """An activation with what comes between it and the next weights."""

    layers: tuple[Layer, ...]

    def __str__(self) -> str:
        return sequence_text(self.layers)

    def variance(self, log_q: float) -> float:
        """log V(q): the log mean square after the block."""
        x = self.within(log_q)
        return _after(self, x, math.pi / 2).log_q + (_exponents(self, x)[0] * (log_q - x) if x != log_q else 0.0)

    def secant(self, log_q: float, theta: float) -> float:
        """R(q, θ): what the spread over data is multiplied by, before σw²."""
        if theta == 0.0:
            return self.slope(log_q)
        x = self.within(log_q)
        after = _after(self, x, theta)
        spread = 2.0 * math.sin(theta / 2.0) ** 2
        return after.spread / spread * math.exp(after.log_scale - x) * self._beyond(log_q, x)

    def slope(self, log_q: float) -> float:
        """R₀(q) = E Σ (∂x/∂u)²."""
        x = self.within(log_q)
        return _slope(self, x) * self._beyond(log_q, x)

    def _beyond(self, log_q: float, end: float) -> float:
        return math.exp(min(_exponents(self, end)[1] * (log_q - end), 700.0)) if log_q != end else 1.0

    @property
    def reach(self) -> tuple[float, float]:
        """The log q between which it is computed; beyond them V and R are powers of q. ±∞ but for own functions.

        A function of a user's own may be too fine to integrate (x·sin x at large q), or too flat (cos at small q).
        """
        return (-_furthest(self, -1.0), _furthest(self, 1.0)) if self.own else (-math.inf, math.inf)

    @property
    def own(self) -> bool:
        """Whether there is a function of a user's own in it, of which nothing is known."""
        return any(layer.function is not None and layer.function.source is not None for layer in self.layers)

    def within(self, log_q: float) -> float:
        """The nearest log q at which it can be computed."""
        low, high = self.reach
        return min(max(log_q, low), high)

    def scale_free(self) -> bool:
        """Whether V(q) ∝ q and R₀ is constant, at every scale: ReLU and similar ones."""
        v = [self.variance(x) - x for x in (-1.0, 0.7)]
        if abs(v[1] - v[0]) < 1e-12:
            v += [self.variance(x) - x for x in (-40.0, 40.0)]
        return max(v) - min(v) < 1e-12

    def keeps_correlation(self, log_q: float) -> bool:
        """Whether the block is linear at this scale, so that c goes through unchanged."""
        return abs(self.secant(log_q, 1.0) / self.slope(log_q) - 1.0) < 1e-12


@lru_cache(maxsize=256)
def _furthest(block: RepeatedBlock, sign: float) -> float:
    """How far from log q = 0 all maps of a user's own function can be computed, up to 80; inf if everywhere."""
    passed = [0.0, 0.0]
    for x in _PROBES:
        try:
            _after(block, sign * x, math.pi / 2)
            _after(block, sign * x, math.pi / 3)
            if not math.isfinite(_slope(block, sign * x)):
                return math.inf  # it jumps: gradients are infinite at every scale
        except (InvalidInput, NotConverged):
            return passed[-2]  # one step inside: other correlations may fail earlier
        passed.append(x)
    return math.inf


@lru_cache(maxsize=256)
def _exponents(block: RepeatedBlock, end: float) -> tuple[float, float]:
    """The powers of q that V and R are proportional to at the end of the reach."""
    inner = end - math.copysign(1.0, end)
    v = math.copysign(1.0, end) * (block.variance(end) - block.variance(inner))
    slopes = _slope(block, end), _slope(block, inner)
    r = math.copysign(1.0, end) * math.log(slopes[0] / slopes[1]) if min(slopes) > 0.0 else 0.0
    return _near_half(v), _near_half(r)


def _near_half(power: float) -> float:
    whole = round(2.0 * power) / 2.0
    return whole if abs(power - whole) < 0.02 else power


@lru_cache(maxsize=65536)
def _after(block: RepeatedBlock, log_q: float, theta: float) -> Signal:
    return signal_after(block.layers, pair_signal(log_q, theta))


@lru_cache(maxsize=65536)
def _slope(block: RepeatedBlock, log_q: float) -> float:
    hint = "fg.activation(fn, derivative=...) for a function of your own"
    unknown = NotCovered("a block whose derivative is known", got=str(block), hint=hint)
    return _growth(block.layers, pair_signal(log_q, math.pi / 2), unknown)


def pair_signal(log_q: float, theta: float) -> Signal:
    """Gaussian nodes of two points at an angle θ."""
    spread = 2.0 * math.sin(0.5 * theta) ** 2
    return Signal(0.0, max(1.0 - spread, 0.0), min(spread, 1.0), log_q, Gaussian())


def _growth(layers: Sequence[Layer], signal: Signal, unknown: NotCovered) -> float:
    """What the mean square of gradients is multiplied by, going back through layers."""
    product = 1.0
    for layer, before, _ in steps(layers, signal):
        factor = layer.gradient(before)
        if factor is None:
            raise unknown
        product *= factor
    return product


def as_block(what: str | Activation | Function | RepeatedBlock) -> RepeatedBlock:
    """`"tanh"`, `"relu > maxpool(2)"`, an Activation or a function, as a Block."""
    if isinstance(what, RepeatedBlock):
        return what
    layers = layers_of(what)
    if not any(layer.kind == "activation" for layer in layers):
        hint = "'tanh' or 'relu > maxpool(2)'"
        raise InvalidInput("an activation, with pools or norms if you like", got=repr(str(what)), hint=hint)
    for layer in layers:
        if layer.weighted or Mix.POINTS in layer.mixes:
            hint = "fg.predict of a deep network: its gradient_growth and gamma by depth"
            raise NotCovered("a block without weights, residual sums or BatchNorm", got=layer.kind, hint=hint)
    return RepeatedBlock(layers)


# Phases of blocks that have no map above: BatchNorm, and residual blocks with weights of their own.
#
# A stage is what a deep network repeats, with (σw², σb²) in all its weights: a block with the dense layer after it,
# or a residual block. Its closed form gives the map (q, c) → (q', c') of two points, and χ̃ the growth of squared
# gradients.
#
# - q moves by itself, to a fixed point, to 0 or to infinity (`fixed_points.settle_by`).
# - c* solves (1 − c')/(1 − c) = 1 there, which falls with the angle. A residual stream x + f(x) may grow for ever; c
# then still goes to where the branch gives back what it gets, 1 − c_f = 1 − c (theory.md §5): each block adds a part
# of the stream's variance, and parts of later blocks outweigh the earlier ones. Its gradients grow by 1 + O(f/q) a
# block, less than any exponential, if the branch is bounded or normalized: χ̃ = 1 at every variance, an edge that is
# everywhere.
# - BatchNorm subtracts the center, so c* is reached in one stage, and gradients depend on c* too (theory.md §5).


class StageResult(NamedTuple):
    """The result of a stage: log q', what part of the old mean square the shortcut keeps (a²), and what is added to it.

    `correlation` maps are those of what is added: (1 − c_f)/(1 − c). Without a shortcut that is all there is.
    """

    log_q: float
    kept: float
    added: float  # f/q
    ratio: float


@dataclass(frozen=True)
class Stage:
    """Layers that are repeated, all of their weights with the variances of the axes."""

    layers: tuple[Layer, ...]
    source: str

    def __str__(self) -> str:
        return self.source

    def at(self, weight_var: float, bias_var: float) -> tuple[Layer, ...]:
        """The layers with these variances."""
        return changed(self.layers, lambda layer: (layer.with_variances(weight_var, bias_var),))

    def next(self, log_q: float, theta: float, weight_var: float, bias_var: float) -> StageResult:
        """Two points of mean square q at an angle θ, one stage on."""
        before = pair_signal(log_q, theta)
        layers = self.at(weight_var, bias_var)
        if stream := _stream(layers):
            kept, branch = stream
            f = signal_after(branch.branch, before).times(branch.scale)
            log_f = f.log_q
            log_next = float(np.logaddexp(math.log(kept) + log_q if kept > 0.0 else -math.inf, log_f))
            return StageResult(log_next, kept, math.exp(min(log_f - log_q, 700.0)), f.one_minus_c / before.one_minus_c)
        after = signal_after(layers, before)
        return StageResult(after.log_q, 0.0, math.exp(after.log_q - log_q), after.one_minus_c / before.one_minus_c)

    def growth(self, log_q: float, theta: float, weight_var: float, bias_var: float) -> float:
        """χ̃: what the mean square of gradients is multiplied by, going back through a stage."""
        hint = "batchnorm without batch=; fg.activation(fn, derivative=...) for a function of your own"
        unknown = NotCovered("a block whose gradients are known in closed form", got=str(self), hint=hint)
        return _growth(self.at(weight_var, bias_var), pair_signal(log_q, theta), unknown)

    @property
    def mixes_points(self) -> bool:
        """Whether it has statistics over the data: then no center is left, and c = 1 is no fixed point."""
        return any(Mix.POINTS in layer.mixes for layer in every(self.layers))


def as_stage(what: object) -> Stage | None:
    """The stage of a text with BatchNorm or residual blocks in it; None for what `as_block` has a map for."""
    if not isinstance(what, str):
        return None
    try:
        layers = parse_layers(what)
    except InvalidInput:
        return None  # as_block says what is wrong
    inside = list(every(layers))
    if not any(layer.weighted or Mix.POINTS in layer.mixes for layer in inside):
        return None
    if not any(layer.kind == "activation" for layer in inside):
        raise InvalidInput("a block with an activation", got=repr(what), hint="'residual[layernorm > dense > tanh]'")
    if any(layer.draws for layer in layers):
        expected = "a block without weights of its own outside of residual branches: the axes are those between blocks"
        raise NotCovered(expected, got=what, hint="leave the dense layers out: 'batchnorm > relu'")
    own = any(layer.paths for layer in layers)
    stage = Stage(layers if own else (*layers, Dense()), sequence_text(layers))
    _check(stage)
    return stage


def _check(stage: Stage) -> None:
    """Raise NotCovered where a stage's map of two numbers does not say what the next stage gets."""
    layers = stage.at(1.0, 0.1)
    try:
        after = signal_after(layers, pair_signal(0.0, 1.0))
        if not isinstance(after.distribution, Gaussian):  # does the next stage want to know the distribution?
            signal_after(
                layers, replace(after, distribution=Unknown("the sum of activated nodes in a residual stream"))
            )
    except FirstguessError as error:
        expected = f"a block that keeps Gaussian nodes, or has weights before its first activation ({error.expected})"
        hint = "'residual[layernorm > dense > tanh]' or 'residual[relu > dense]'; fg.predict of a deep network"
        raise NotCovered(expected, got=f"{error.got}", where=error.where, hint=hint) from None
    if after.mean != 0.0:
        hint = "weights at the end of the branch"
        raise NotCovered("a block whose stream has no mean over nodes", got=f"{stage}, which adds one", hint=hint)
    totals = [stage.next(0.0, theta, 1.0, 0.1).log_q for theta in (0.5, math.pi / 2)]
    if abs(totals[0] - totals[1]) > 1e-9:
        expected = "a block whose variance does not depend on the correlation of points"
        hint = "batchnorm, or fg.predict of a deep network: its gradient_growth and gamma by depth"
        raise NotCovered(expected, got=f"{stage}, which subtracts a mean over the data and keeps the scale", hint=hint)
    stage.growth(0.0, 1.0, 1.0, 0.1)


def _stream(layers: tuple[Layer, ...]) -> tuple[float, Residual] | None:
    """(a², block) of a stage that is one residual block whose shortcut only multiplies by a."""
    if len(layers) != 1 or not isinstance(layers[0], Residual):
        return None
    factors = [layer.multiplier for layer in layers[0].shortcut]
    known = [factor for factor in factors if factor is not None]
    return (math.prod(factor * factor for factor in known), layers[0]) if len(known) == len(factors) else None
