"""A convolution with random weights."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from firstguess.base.errors import NotCovered
from firstguess.network.layers.base import check_count, check_number, check_weights
from firstguess.network.layers.dense import random_sum
from firstguess.network.points import Points, Step
from firstguess.network.signal import Signal


@dataclass(frozen=True)
class Conv:
    """A convolution, Var W = weight_var / (kernel² · channels): the map of a dense layer where positions are alike.

    `width` is the number of output channels, `kernel`, `stride` and `padding` matter to the readings that see images.
    """

    kind: ClassVar[str] = "conv"
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
