"""A gate: one half of the units through an activation, times the other half."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, final

import numpy as np

from firstguess.base.errors import InvalidInput
from firstguess.network.activations import registry
from firstguess.network.activations.record import Activation
from firstguess.network.layer import Fold, Layer, Mix, Symmetry, nothing_assumed, register
from firstguess.network.layers.activate import Activate
from firstguess.network.points import PairwiseMap, Points, Tile, UnitMap, Values, same_map
from firstguess.network.shapes import Shape
from firstguess.network.signal import Signal, Unknown
from firstguess.network.tensors import Draw, Local, Place, Scratch

if TYPE_CHECKING:
    from torch import Tensor, nn

_WIDTH = 2  # units that become one


@register
@final
@dataclass(frozen=True)
class Gated(Layer):
    """φ(gate)·up, the two halves of what a dense layer gives (SwiGLU: gated(silu)): K' = F_φ(K)∘K, theory.md (22).

    Gate and up have weights of their own, so they are independent. 0 where two points are: gating creates no bias.
    """

    kind: ClassVar[str] = "gated"
    brief: ClassVar[tuple[str, ...]] = ("phi",)
    weighted = False
    mixes = Mix.UNITS
    symmetry = Symmetry.NONE
    breaks_gaussianity = True
    by_token = True
    phi: Activation

    def __post_init__(self) -> None:
        if isinstance(self.phi, str):
            object.__setattr__(self, "phi", registry.activation(self.phi))
        if not isinstance(self.phi, Activation) or self.phi.centered:
            raise InvalidInput("an activation, not centred", got=str(self.phi), where="gated", hint="gated(silu)")

    def text(self) -> str:
        return f"gated({self.phi})"

    @property
    def pools(self) -> int:
        return _WIDTH

    def shape(self, before: Shape, units: int | None) -> Shape:
        if before.width is None:
            return before
        if before.width % _WIDTH and (before.drawn or before.width < _WIDTH):
            raise InvalidInput(
                "an even width before a gate: two halves",
                got=before.width,
                hint=f"a width of {before.width + 1} in the dense layer before it",
            )
        return replace(before, width=before.width // _WIDTH)

    def moments(self, signal: Signal) -> Signal:
        """Independent factors: means, centers and totals multiply."""
        gate = (signal.distribution or Unknown("a signal of unknown law")).activate(signal, self.phi)
        between = gate.between * signal.center + gate.mean**2 * signal.between
        spread = gate.center * signal.spread + gate.spread * signal.total
        distribution = Unknown(f"the output of {self.text()}")
        scale = gate.log_scale + signal.log_scale
        return Signal(gate.mean * signal.mean, between, spread, scale, distribution).rescaled()

    def covariance(self, points: Points, fold: Fold) -> PairwiseMap:
        """K' = F∘K, Θ' = Θ∘(Ḟ∘K + F), entry by entry."""
        move = Activate(self.phi).covariance(points, fold)
        gate = move.after

        def step(tile: Tile) -> None:
            up, tangent = tile.k.copy(), tile.t
            tile.t = None if tangent is None else np.ones_like(tangent)
            move.step(tile)
            if tangent is not None:
                assert tile.t is not None  # now Ḟ
                tile.t = tangent * (tile.t * up + tile.k)
            tile.k *= up

        after = points.after(
            self, gate.q * points.q, gate.mean * points.mean, gaussian=False, what=f"the output of {self.text()}"
        )
        return PairwiseMap(after, step)

    def sampled_units(self, points: Points, known: bool) -> UnitMap:
        phi = self.phi

        def run(y: Values) -> Values:
            gate, up = y.reshape(-1, _WIDTH, y.shape[1]).swapaxes(0, 1)
            out = phi.rise(gate).astype(y.dtype, copy=False)
            out += y.dtype.type(phi.offset)
            return out * up

        return same_map(run)

    def gradient(self, signal: Signal) -> float | None:
        """E (∂/∂gate)² + E (∂/∂up)² = E φ'²·E x² + E φ²."""
        if signal.distribution is None:
            return None
        slope = signal.distribution.mean_square_slope(signal, self.phi)
        gate = signal.distribution.activate(signal, self.phi)
        return None if slope is None else slope * signal.q + gate.q

    def effort(self) -> float:
        return Activate(self.phi).effort() + 1.0

    assumptions = nothing_assumed

    def tensors(self, place: Place) -> Local:
        from firstguess.network.activations.tensors import elementwise

        run, axis = elementwise(self.phi, 0.0), 2 if place.before.images else 1

        def apply(x: Tensor, scratch: Scratch) -> Tensor:
            gate, up = x.chunk(2, dim=axis)
            return run(gate.contiguous()).mul_(up)

        return Local(apply)

    def module(self, place: Place, draw: Draw) -> nn.Module:
        from firstguess.network.activations.tensors import module_of
        from firstguess.network.torch_ops import Gate

        return Gate(module_of(self.phi), 1 if place.before.images else -1)
