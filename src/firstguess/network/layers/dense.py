"""A dense layer with random weights."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy as np

from firstguess.base.checks import check_weights
from firstguess.base.text import number
from firstguess.network import weights as distributions
from firstguess.network.finite_sample import PointSample
from firstguess.network.finite_signal import FiniteSignal
from firstguess.network.layer import FLAT, Fold, Layer, Mix, ReadContext, ReadResult, Symmetry, register
from firstguess.network.points import PairwiseMap, Points, Tile, random_sum_map, split
from firstguess.network.shapes import PositionGrid, Shape
from firstguess.network.signal import Signal, random_sum
from firstguess.network.tensors import Draw, Place, SourceWriter, Weights

if TYPE_CHECKING:
    from torch import nn

_VECTORS = (
    "inputs are taken to be vectors: with an example of them, a dense layer that acts on every position alike would be "
    "noticed"
)


@register
@final
@dataclass(frozen=True)
class Dense(Layer):
    """`W x + b` with Var W = weight_var / fan-in and Var b = bias_var (Kaiming for ReLU: weight_var = 2).

    `init` is the distribution of the weights: normal, uniform, orthogonal, rademacher (±1), laplace, student(3) (heavy
    tails). In the wide limit all of finite variance have the same moments, so it changes nothing in theory
    (`network.weights`); it does in the ensemble reading. `width` is the number of units, where a description wants to
    fix it. `frozen` weights are not trained: the tangent kernel has no part of theirs.
    """

    kind: ClassVar[str] = "dense"
    weighted = True
    mixes = Mix.NOTHING
    symmetry = Symmetry.WEIGHTS
    breaks_gaussianity = False
    by_token = True
    weight_var: float = 1.0
    bias_var: float = 0.0
    width: int | None = None
    init: str = "normal"
    frozen: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "init", distributions.checked(self.init, "dense"))
        super().__post_init__()
        check_weights(self.weight_var, self.bias_var, "dense")

    def shape(self, before: Shape, units: int | None) -> Shape:
        """Where positions are no tokens, it sees all of them, and none is left."""
        kept = before.grid is None or before.grid.apart
        return Shape(self.width or units, before.grid if kept else PositionGrid(), before.drawn)

    @property
    def gaussian(self) -> bool:
        return self.init == "normal"

    def with_variances(self, weight_var: float, bias_var: float) -> Dense:
        return replace(self, weight_var=weight_var, bias_var=bias_var)

    def with_distribution(self, init: str) -> Dense:
        return replace(self, init=init)

    def frozen_weights(self) -> Dense:
        return replace(self, frozen=True)

    def moments(self, signal: Signal) -> Signal:
        distributions.covered(self.init)
        return random_sum(signal, self.weight_var, self.bias_var)

    def covariance(self, points: Points, fold: Fold) -> PairwiseMap:
        distributions.covered(self.init)
        if not points.shape.images:
            return random_sum_map(self, points, self.weight_var, self.bias_var, "a dense layer", frozen=self.frozen)
        return self._over_positions(points)

    def _over_positions(self, points: Points) -> PairwiseMap:
        """Every position has weights of its own, so only equal positions count: K' = σw² · mean_p K[p, p] + σb²."""
        grid, fan_in = points.grid, points.width * points.grid.places

        def step(tile: Tile) -> None:
            images = grid.points(tile.rows), grid.points(tile.cols)
            mean = split(tile.k, grid).diagonal(axis1=1, axis2=3).mean(axis=2)
            if tile.t is not None:
                own = split(tile.t, grid).diagonal(axis1=1, axis2=3).mean(axis=2)
                tile.t = self.weight_var * own
                if not self.frozen:
                    tile.t += fan_in * mean + bool(self.bias_var)  # trained biases add 1
            tile.k = self.weight_var * mean + self.bias_var
            tile.rows, tile.cols = images

        q = self.weight_var * points.q.reshape(-1, grid.places).mean(axis=1) + self.bias_var
        return PairwiseMap(points.after(self, q, np.zeros_like(q), gaussian=True, what="a dense layer"), step)

    def gradient(self, signal: Signal) -> float | None:
        return self.weight_var

    def assumptions(self) -> Iterable[str]:
        yield from distributions.assumed(self.init)

    def finite(self, before: FiniteSignal, after: Signal) -> FiniteSignal:
        distributions.expandable(self.init)
        return before.weighted(after, self.bias_var, self.width or before.width)

    def point_sample(self, sample: PointSample) -> PointSample:
        distributions.covered(self.init)
        return sample.weighted(self.weight_var, self.bias_var, self.width or sample.width, self.init)

    def tensors(self, place: Place) -> Weights:
        """Every unit sees all units; on images those of all positions, of a sequence those of one token."""
        fan_in = math.prod(place.before.own_sizes)
        shape = (place.after.units, fan_in)
        return Weights(shape, fan_in, self.weight_var, self.bias_var, self.init, trained=not self.frozen)

    def source(self, at: SourceWriter) -> str:
        entering, at.size = at.size, at.out or str(self.width or at.width)
        bias = f", bias_var={number(self.bias_var)}" if self.bias_var else ""
        return f"dense({entering}, {at.size}, weight_var={number(self.weight_var)}{bias})"

    def module(self, place: Place, draw: Draw) -> nn.Module:
        from torch import nn

        weights = self.tensors(place)
        units, inputs = weights.shape
        return draw.fill(nn.utils.skip_init(nn.Linear, inputs, units, bias=self.bias_var > 0.0), weights)

    def as_output(self) -> tuple[Dense, int | None]:
        return replace(self, width=None), self.width

    modules = ("Linear",)

    @classmethod
    def from_module(cls, module: Any, context: ReadContext) -> ReadResult:
        positions = (
            f"acts on the last axis of a batch with {context.axes} axes, with the same weights at every position; a "
            "description's dense layer is over all nodes of a sample"
        )
        weights = context.weights
        if why := weights.why if context.axes in (None, FLAT) else positions:
            return ReadResult(why=why)
        init = "orthogonal" if weights.orthogonal else "normal"
        layer = cls(weights.weight_var, weights.bias_var, weights.units, init)
        notes = (_VECTORS,) if context.axes is None else ()
        return ReadResult((layer,), axes=FLAT, notes=notes, widths=(module.in_features, weights.units))
