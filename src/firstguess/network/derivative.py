"""The way back through an operation without weights: what training asks of an activation or a norm (no torch here)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from torch import Tensor

Kept: TypeAlias = "tuple[Tensor, ...]"


@dataclass(frozen=True)
class Derivative:
    """An operation on a batch of points in training, layout (inits, units, points), and its way back.

    `forward(x, out)` writes the result into `out`, which may be x itself unless the input is kept, and gives what
    `backward` needs besides. `backward(gradient, kept, more)` makes, of the gradient by the result, in place, that by
    the input; `kept` is the input or the output, as `keeps` says, as it was then.
    """

    forward: Callable[[Tensor, Tensor], Kept]
    backward: Callable[[Tensor, Tensor, Kept], Tensor]
    keeps: Literal["input", "output", "nothing"]


def linear_derivative(factor: float, shift: float = 0.0) -> Derivative:
    """Of factor · x + shift."""

    def forward(x: Tensor, out: Tensor) -> Kept:
        if out is not x:
            out.copy_(x)
        out.mul_(factor).add_(shift)
        return ()

    return Derivative(forward, lambda gradient, kept, more: gradient.mul_(factor), "nothing")
