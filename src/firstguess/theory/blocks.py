"""What one layer of an infinitely deep network does to variance, correlation and gradients.

A block is everything between two dense layers: an activation, perhaps with a pool or a norm. With `V(q)` the mean
square of its output, `R(q, θ)` the factor on the spread over data, and `R₀(q) = E Σ(∂x/∂u)²`, a layer maps

    q → σw²·V(q) + σb²,    q(1−c) → σw²·R(q, θ)·q(1−c),    gradients' mean square → σw²·R₀(q).

R decreases from R₀ at θ = arccos c = 0, so a fixed point c* < 1 exists iff χ̃ = σw²·R₀ > 1, and solves σw²·R(q*, θ) = 1:
nothing has to be iterated, not even at the edge, where iteration is algebraically slow.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from firstguess.base.errors import InvalidInput, NotCovered
from firstguess.base.gaussian import Function
from firstguess.network.activations.lookup import activation
from firstguess.network.activations.record import Activation
from firstguess.network.grammar import parse_layers
from firstguess.network.layer import Layer, Mix, sequence_text, steps
from firstguess.network.layers import Activate
from firstguess.network.signal import Gaussian, Signal


@dataclass(frozen=True)
class Block:
    """An activation with what comes between it and the next weights."""

    layers: tuple[Layer, ...]

    def __str__(self) -> str:
        return sequence_text(self.layers)

    def variance(self, log_q: float) -> float:
        """log V(q): the log mean square after the block."""
        return _after(self, log_q, math.pi / 2).log_q

    def secant(self, log_q: float, theta: float) -> float:
        """R(q, θ): what the spread over data is multiplied by, before σw²."""
        if theta == 0.0:
            return self.slope(log_q)
        after = _after(self, log_q, theta)
        spread = 2.0 * math.sin(theta / 2.0) ** 2
        return after.spread / spread * math.exp(after.log_scale - log_q)

    def slope(self, log_q: float) -> float:
        """R₀(q) = E Σ (∂x/∂u)²."""
        return _slope(self, log_q)

    def scale_free(self) -> bool:
        """Whether V(q) ∝ q and R₀ is constant, at every scale: ReLU and its kin."""
        v = [self.variance(x) - x for x in (-40.0, -1.0, 0.7, 40.0)]
        return max(v) - min(v) < 1e-12

    def keeps_correlation(self, log_q: float) -> bool:
        """Whether the block is linear at this scale, so that c goes through unchanged."""
        return abs(self.secant(log_q, 1.0) / self.slope(log_q) - 1.0) < 1e-12


@lru_cache(maxsize=65536)
def _after(block: Block, log_q: float, theta: float) -> Signal:
    spread = 2.0 * math.sin(theta / 2.0) ** 2
    signal = Signal(0.0, 1.0 - spread if theta < math.pi / 2 else 0.0, min(spread, 1.0), log_q, Gaussian())
    *_, (_, _, after) = steps(block.layers, signal)
    return after


@lru_cache(maxsize=65536)
def _slope(block: Block, log_q: float) -> float:
    product = 1.0
    for layer, before, _ in steps(block.layers, Signal(0.0, 0.0, 1.0, log_q, Gaussian())):
        factor = layer.gradient(before)
        if factor is None:
            raise NotCovered(
                "a block whose derivative is known",
                got=str(block),
                hint="fg.activation(fn, derivative=...) for a function of your own",
            )
        product *= factor
    return product


def as_block(what: str | Activation | Function | Block) -> Block:
    """`"tanh"`, `"relu > maxpool(2)"`, an Activation or a function, as a Block."""
    if isinstance(what, Block):
        return what
    if isinstance(what, str):
        try:
            layers = parse_layers(what)
        except InvalidInput:
            if what.strip().isidentifier():  # a single wrong word is most likely a wrong activation
                activation(what)
            raise
    else:
        layers = (Activate(activation(what)),)
    if not any(layer.kind == "activation" for layer in layers):
        raise InvalidInput(
            "an activation, with pools or norms if you like", got=repr(str(what)), hint="'tanh' or 'relu > maxpool(2)'"
        )
    for layer in layers:
        if layer.weighted or Mix.POINTS in layer.mixes:
            raise NotCovered(
                "a block without weights, residual sums or BatchNorm",
                got=layer.kind,
                hint="fg.predict of a deep network: its gradient_growth and gamma by depth",
            )
    return Block(layers)
