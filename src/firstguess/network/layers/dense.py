"""A dense layer with random weights."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, final

import numpy as np

from firstguess.base.checks import check_count, check_number, check_weights
from firstguess.base.errors import InvalidInput
from firstguess.network.grid import Grid, Shape
from firstguess.network.layer import Layer, Meaning, Mix, Parity, register
from firstguess.network.meaning import FLAT, Site
from firstguess.network.points import OnCorrelations, Points, Step, Tile, unchanged
from firstguess.network.signal import Gaussian, Signal

Init = Literal["normal", "uniform", "orthogonal"]

_VECTORS = (
    "inputs are taken to be vectors: with an example of them, a dense layer that acts on every position alike would be "
    "noticed"
)


def random_sum(signal: Signal, weight_var: float, bias_var: float) -> Signal:
    """Weights of variance σw²/fan-in and biases of variance σb²: theory.md (3). Gaussian in the wide limit."""
    # The bias is written in the units of the larger of the two, so that neither under- nor overflows.
    if weight_var == 0.0:
        return Signal(0.0, bias_var, 0.0, law=Gaussian()).rescaled()
    if not 1e-100 < weight_var < 1e100:
        signal, weight_var = replace(signal, log_scale=signal.log_scale + math.log(weight_var)), 1.0
    scale = signal.log_scale
    if bias_var > 0.0 and signal.log_q + math.log(weight_var) < math.log(bias_var) - 100.0:
        scale = 0.0 if 1e-10 < bias_var < 1e10 else math.log(bias_var)
        signal, weight_var = replace(signal, log_scale=signal.log_scale + math.log(weight_var)).at_scale(scale), 1.0
    bias = bias_var if scale == 0.0 or bias_var == 0.0 else math.exp(math.log(bias_var) - scale)
    return Signal(0.0, weight_var * signal.center + bias, weight_var * signal.spread, scale, Gaussian()).rescaled()


def random_sum_kernel(
    points: Points, weight_var: float, bias_var: float, width: int | None, what: str
) -> tuple[Points, Step]:
    """K ← σw²K + σb², and Θ ← σw²Θ + N·K_in with N the fan-in: theory.md (11), (12).

    Biases are trained where they exist, that is where σb² > 0 (as `.module()` builds them): then Θ grows by 1.
    """
    fan_in, root = points.width, math.sqrt(weight_var)

    def step(tile: Tile) -> None:
        if tile.t is not None:
            tile.t *= weight_var
            tile.t += fan_in * tile.k
            if bias_var:
                tile.t += 1.0
        tile.scale(root)
        if bias_var:
            tile.k += bias_var

    q = weight_var * points.q + bias_var
    after = Points(q, np.zeros_like(q), True, width or points.width_after, points.width_after, what=what)
    return after, step if bias_var else OnCorrelations(step, unchanged)


@register
@final
@dataclass(frozen=True)
class Dense(Layer):
    """`W x + b` with Var W = weight_var / fan-in and Var b = bias_var (Kaiming for ReLU: weight_var = 2).

    Uniform and orthogonal weights have the same moments in the wide limit, so `init` changes nothing here; it does in
    the ensemble reading. `width` is the number of units, where a description wants to fix it.
    """

    kind: ClassVar[str] = "dense"
    weighted = True
    mixes = Mix.NOTHING
    parity = Parity.WEIGHTS
    bends = False
    weight_var: float = 1.0
    bias_var: float = 0.0
    width: int | None = None
    init: Init = "normal"

    def __post_init__(self) -> None:
        check_number(self.weight_var, "weight_var", "dense", hint="dense(weight_var=2)")
        check_number(self.bias_var, "bias_var", "dense", hint="dense(bias_var=0.1)")
        check_count(self.width, "width", "dense")
        if self.init not in ("normal", "uniform", "orthogonal"):
            raise InvalidInput(
                "init to be normal, uniform or orthogonal", got=self.init, where="dense", hint="dense(init=uniform)"
            )
        check_weights(self.weight_var, self.bias_var, "dense")

    def shape(self, before: Shape, units: int | None) -> Shape:
        """Where positions are no tokens, it sees all of them, and none is left."""
        kept = before.grid is None or before.grid.apart
        return Shape(self.width or units, before.grid if kept else Grid(), before.drawn)

    def moments(self, signal: Signal) -> Signal:
        return random_sum(signal, self.weight_var, self.bias_var)

    def covariance(self, points: Points) -> tuple[Points, Step]:
        return random_sum_kernel(points, self.weight_var, self.bias_var, self.width, "a dense layer")

    def gradient(self, signal: Signal) -> float | None:
        return self.weight_var

    def assumptions(self) -> Iterable[str]:
        if self.init != "normal":
            yield f"{self.init} weights have the moments of Gaussian ones in the wide limit"

    def as_output(self) -> tuple[Dense, int | None]:
        return replace(self, width=None), self.width

    modules = ("Linear",)

    @classmethod
    def from_module(cls, module: Any, site: Site) -> Meaning:
        positions = (
            f"acts on the last axis of a batch with {site.axes} axes, with the same weights at every position; a "
            "description's dense layer is over all nodes of a sample"
        )
        weights = site.weights
        if why := weights.why if site.axes in (None, FLAT) else positions:
            return Meaning(why=why)
        init: Init = "orthogonal" if weights.orthogonal else "normal"
        layer = cls(weights.weight_var, weights.bias_var, weights.units, init)
        notes = (_VECTORS,) if site.axes is None else ()
        return Meaning((layer,), axes=FLAT, notes=notes, widths=(module.in_features, weights.units))
