"""Layers with random weights: dense ones, and convolutions."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np

from firstguess.base.checks import check_weights
from firstguess.base.errors import InvalidInput, NotCovered
from firstguess.base.gaussian import Array
from firstguess.base.text import number
from firstguess.network import weights as distributions
from firstguess.network.finite_sample import PointSample
from firstguess.network.finite_signal import FiniteSignal
from firstguess.network.layer import FLAT, IMAGE, Fold, Layer, Mix, ReadContext, ReadResult, Symmetry, register
from firstguess.network.ops import ops
from firstguess.network.points import PairwiseMap, Points, Tile, random_sum_map, split
from firstguess.network.shapes import PositionGrid, Shape
from firstguess.network.signal import Gaussian, Signal, random_sum
from firstguess.network.tensors import Draw, Place, SourceWriter, Weights

_VECTORS = (
    "inputs are taken to be vectors: with an example of them, a dense layer that acts on every position alike would be "
    "noticed"
)


class WeightedSums(Layer):
    """Sums over random weights of one distribution `init`: what a dense layer and a convolution share."""

    weighted = True
    symmetry = Symmetry.WEIGHTS
    breaks_gaussianity = False
    weight_var: float
    bias_var: float
    init: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "init", distributions.checked(self.init, self.kind))
        super().__post_init__()
        check_weights(self.weight_var, self.bias_var, self.kind)

    @property
    def gaussian(self) -> bool:
        return self.init == "normal"

    def with_variances(self, weight_var: float, bias_var: float) -> Self:
        given: Any = self
        return replace(given, weight_var=weight_var, bias_var=bias_var)

    def with_distribution(self, init: str) -> Self:
        given: Any = self
        return replace(given, init=init)

    def moments(self, signal: Signal) -> Signal:
        distributions.covered(self.init)
        return random_sum(signal, self.weight_var, self.bias_var)

    def gradient(self, signal: Signal) -> float | None:
        return self.weight_var

    def assumptions(self) -> Iterable[str]:
        yield from distributions.assumed(self.init)


@register
class Dense(WeightedSums):
    """`W x + b` with Var W = weight_var / fan-in and Var b = bias_var (Kaiming for ReLU: weight_var = 2).

    `init` is the distribution of the weights: normal, uniform, orthogonal, rademacher (±1), laplace, student(3) (heavy
    tails). In the wide limit all of finite variance have the same moments, so it changes nothing in theory
    (`network.weights`); it does in the ensemble reading. `width` is the number of units, where a description wants to
    fix it. `frozen` weights are not trained: the tangent kernel has no part of theirs.
    """

    kind: ClassVar[str] = "dense"
    mixes = Mix.NOTHING
    by_token = True
    weight_var: float = 1.0
    bias_var: float = 0.0
    width: int | None = None
    init: str = "normal"
    frozen: bool = False

    def shape(self, before: Shape, units: int | None) -> Shape:
        """Where positions are no tokens, it sees all of them, and none is left."""
        kept = before.grid is None or before.grid.apart
        return Shape(self.width or units, before.grid if kept else PositionGrid(), before.drawn)

    def frozen_weights(self) -> Dense:
        return replace(self, frozen=True)

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

    def finite(self, before: FiniteSignal, after: Signal) -> FiniteSignal:
        if not self.gaussian:
            raise NotCovered("Gaussian weights, for an expansion in 1/width", got=f"init={self.init}")
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

    def module(self, place: Place, draw: Draw) -> ops.nn.Module:
        return ops.linear(draw, self.tensors(place))

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


@register
class Conv(WeightedSums):
    """A convolution, Var W = weight_var / (kernel² · channels): the map of a dense layer where positions are alike.

    `width` is the number of output channels, `kernel`, `stride` and `padding` matter to the readings that see images.
    `frozen` weights are not trained: the tangent kernel has no part of theirs. `init` is their distribution, as a dense
    layer's.
    """

    kind: ClassVar[str] = "conv"
    mixes = Mix.POSITIONS
    least = (("padding", 0),)
    weight_var: float = 1.0
    bias_var: float = 0.0
    width: int | None = None
    kernel: int = 3
    stride: int = 1
    padding: int = 0
    frozen: bool = False
    init: str = "normal"

    def shape(self, before: Shape, units: int | None) -> Shape:
        grid = before.grid
        if grid is not None and not before.images:
            raise InvalidInput("images before a convolution", got=f"{grid}", hint="convolutions before dense layers")
        if grid is not None and not grid.fits(self.kernel, padding=self.padding):
            hint = f"conv(kernel={self.kernel}, padding={self.kernel // 2})"
            raise InvalidInput(f"a kernel that fits into {grid} images", got=self.kernel, hint=hint)
        if grid is None:
            return Shape(None, None)
        after = grid.windows(self.kernel, stride=self.stride, padding=self.padding)
        return Shape(self.width or units, after, before.drawn)

    def moments(self, signal: Signal) -> Signal:
        return replace(super().moments(signal), distribution=Gaussian(positions=True))

    def covariance(self, points: Points, fold: Fold) -> PairwiseMap:
        """K'[p, p'] = σw²/k² · Σ_δ K[p+δ, p'+δ] + σb², zeros as padding: theory.md (11) by position."""
        distributions.covered(self.init)
        shape = self.shape(points.shape, points.default_width)
        assert shape.grid is not None
        grid, after = points.grid, shape.grid
        share, channels = self.weight_var / self.kernel**2, points.width

        def step(tile: Tile) -> None:
            images = grid.points(tile.rows), grid.points(tile.cols)
            summed = self._windows(tile.k, grid, after)
            if tile.t is not None:
                tile.t = share * self._windows(tile.t, grid, after)
                if not self.frozen:
                    tile.t += channels * summed + bool(self.bias_var)
            tile.k = summed * share
            if self.bias_var:
                tile.k += self.bias_var
            tile.rows, tile.cols = after.rows(images[0]), after.rows(images[1])

        q = points.q.reshape(-1, *grid.sides)
        for axis, size in enumerate(after.sides, start=1):
            old = np.moveaxis(q, axis, -1)
            new = np.zeros((*old.shape[:-1], size))
            for to, come in self._shifts(old.shape[-1], size):
                new[..., to] += old[..., come]
            q = np.moveaxis(new, -1, axis)
        q = share * q.ravel() + self.bias_var
        return PairwiseMap(points.after(self, q, np.zeros_like(q), gaussian=True, what="a conv"), step)

    def _shifts(self, before: int, after: int) -> list[tuple[slice, slice]]:
        """Which outputs see the image at every place in a window, and where. Outside of it are zeros."""
        found: list[tuple[slice, slice]] = []
        for place in range(self.kernel):
            first = max(0, -((place - self.padding) // self.stride))  # the least h with stride·h + place − padding ≥ 0
            stop = min(after, (before - 1 - place + self.padding) // self.stride + 1)
            if stop > first:
                start = self.stride * first + place - self.padding
                end = self.stride * (stop - 1) + place - self.padding + 1
                found.append((slice(first, stop), slice(start, end, self.stride)))
        return found

    def _windows(self, k: Array, grid: PositionGrid, after: PositionGrid) -> Array:
        """Σ_δ K[p+δ, p'+δ]: first over the rows of a window, then over its columns."""
        a, b = k.shape[0] // grid.places, k.shape[1] // grid.places
        (high, wide), (tall, broad) = grid.sides, after.sides
        old = k.reshape(a, high, wide, b, high, wide)
        rows = np.zeros((a, tall, wide, b, tall, wide))
        for to, come in self._shifts(high, tall):
            rows[:, to, :, :, to, :] += old[:, come, :, :, come, :]
        both = np.zeros((a, tall, broad, b, tall, broad))
        for to, come in self._shifts(wide, broad):
            both[:, :, to, :, :, to] += rows[:, :, come, :, :, come]
        return both.reshape(a * after.places, b * after.places)

    def assumptions(self) -> Iterable[str]:
        yield "conv: positions of an image are alike (homogeneous inputs), borders are ignored"
        yield from super().assumptions()

    def tensors(self, place: Place) -> Weights:
        """A grouped convolution; for the data, which all initializations share, one with all their kernels."""
        shape = (place.after.units, place.before.units, self.kernel, self.kernel)
        stride, padding = self.stride, self.padding

        def product(x: ops.Tensor, kernels: ops.Tensor, bias: ops.Tensor | None, shared: bool) -> ops.Tensor:
            every = None if bias is None else bias.flatten()
            images, groups = (x, 1) if shared else (x.flatten(1, 2), len(kernels))
            return ops.F.conv2d(images, kernels.flatten(0, 1), every, stride, padding, groups=groups)

        # Room for unfolded images inside the convolution.
        fan_in = place.before.units * self.kernel**2
        drawn = self.weight_var, self.bias_var, self.init
        return Weights(shape, fan_in, *drawn, product=product, room=10.0, trained=not self.frozen)

    def module(self, place: Place, draw: Draw) -> ops.nn.Module:
        return ops.convolution(draw, self.tensors(place), self.stride, self.padding)

    @property
    def kernel_side(self) -> int:
        return self.kernel

    modules = ("Conv2d",)

    @classmethod
    def from_module(cls, module: Any, context: ReadContext) -> ReadResult:
        weights = context.weights
        if why := _odd(module) or weights.why:
            return ReadResult(why=why)
        kernel, padding = module.kernel_size[0], module.padding
        if isinstance(padding, str):
            padding = (kernel // 2 if padding == "same" else 0,)
        layer = cls(weights.weight_var, weights.bias_var, weights.units, kernel, module.stride[0], padding[0])
        layer = replace(layer, init="orthogonal") if weights.orthogonal else layer
        return ReadResult((layer,), axes=IMAGE, widths=(module.in_channels, weights.units))


def _odd(module: Any) -> str:
    """Why a convolution is none of a description's, "" if it is one."""
    if module.groups != 1:
        return f"groups = {module.groups}: a description's convolution sees all channels"
    if module.dilation != (1, 1):
        return f"dilation = {module.dilation[0]}: a description's convolution has none"
    if module.padding_mode != "zeros":
        return f"padding_mode = {module.padding_mode}: a description's convolution pads with zeros"
    (high, wide), stride = module.kernel_size, module.stride
    if high != wide or stride[0] != stride[1]:
        return f"a kernel of {high}×{wide} at a stride of {stride[0]}×{stride[1]}: a description's are square"
    if module.padding == "same":
        return "" if high % 2 else f"padding to the same size with an even kernel ({high}) is lopsided"
    if not isinstance(module.padding, str) and module.padding[0] != module.padding[1]:
        return f"padding of {module.padding[0]}×{module.padding[1]}: a description's is the same on all sides"
    return ""
