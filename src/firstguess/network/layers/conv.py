"""A convolution with random weights."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, final

from firstguess.base.checks import check_count, check_number, check_weights
from firstguess.base.errors import InvalidInput, NotCovered
from firstguess.network.grid import Shape
from firstguess.network.layer import Layer, Meaning, Mix, Parity, register
from firstguess.network.layers.dense import random_sum
from firstguess.network.meaning import IMAGE, Site
from firstguess.network.points import Points, Step
from firstguess.network.signal import Signal


@register
@final
@dataclass(frozen=True)
class Conv(Layer):
    """A convolution, Var W = weight_var / (kernel² · channels): the map of a dense layer where positions are alike.

    `width` is the number of output channels, `kernel`, `stride` and `padding` matter to the readings that see images.
    """

    kind: ClassVar[str] = "conv"
    weighted = True
    mixes = Mix.POSITIONS
    parity = Parity.WEIGHTS
    bends = False
    weight_var: float = 1.0
    bias_var: float = 0.0
    width: int | None = None
    kernel: int = 3
    stride: int = 1
    padding: int = 0

    def __post_init__(self) -> None:
        check_number(self.weight_var, "weight_var", "conv", hint="conv(weight_var=2)")
        check_number(self.bias_var, "bias_var", "conv", hint="conv(bias_var=0.1)")
        check_count(self.width, "width", "conv")
        check_count(self.kernel, "kernel", "conv")
        check_count(self.stride, "stride", "conv")
        check_count(self.padding, "padding", "conv", low=0)
        check_weights(self.weight_var, self.bias_var, "conv")

    def shape(self, before: Shape, units: int | None) -> Shape:
        grid = before.grid
        if grid is not None and not before.images:
            raise InvalidInput("images before a convolution", got=f"{grid}", hint="convolutions before dense layers")
        if grid is not None and not grid.fits(self.kernel, padding=self.padding):
            raise InvalidInput(
                f"a kernel that fits into {grid} images",
                got=self.kernel,
                hint=f"conv(kernel={self.kernel}, padding={self.kernel // 2})",
            )
        if grid is None:
            return Shape(None, None)
        after = grid.windows(self.kernel, stride=self.stride, padding=self.padding)
        return Shape(self.width or units, after, before.drawn)

    def moments(self, signal: Signal) -> Signal:
        return random_sum(signal, self.weight_var, self.bias_var)

    def covariance(self, points: Points) -> tuple[Points, Step]:
        raise NotCovered(
            "dense layers in the kernel reading of flat data",
            got="a convolution",
            hint="the ensemble reading: fg.measure(...)",
        )

    def gradient(self, signal: Signal) -> float | None:
        return self.weight_var

    def assumptions(self) -> Iterable[str]:
        yield "conv: positions of an image are alike (homogeneous inputs), borders are ignored"

    @property
    def kernel_side(self) -> int:
        return self.kernel

    modules = ("Conv2d",)

    @classmethod
    def from_module(cls, module: Any, site: Site) -> Meaning:
        weights = site.weights
        if why := _odd(module) or weights.why:
            return Meaning(why=why)
        kernel, padding = module.kernel_size[0], module.padding
        if isinstance(padding, str):
            padding = (kernel // 2 if padding == "same" else 0,)
        layer = cls(weights.weight_var, weights.bias_var, weights.units, kernel, module.stride[0], padding[0])
        # its text has no room for more than the variance
        notes = (f"{site.path} is orthogonal: its description has the variance only",) if weights.orthogonal else ()
        return Meaning((layer,), axes=IMAGE, notes=notes, widths=(module.in_channels, weights.units))


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
