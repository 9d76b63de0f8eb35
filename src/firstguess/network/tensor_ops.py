"""What norms share on tensors. Loads torch: layers import it where they are asked for their tensors.

Norms have no epsilon in theory. Here the variance gets 1e-12 of the squared mean and the smallest normal number:
nothing where float32 resolves the variance, and a constant node or sample becomes 0 instead of amplified rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from firstguess.network.derivative import Derivative, Kept
from firstguess.network.tensors import Apply, Scratch

RELATIVE_EPS = 1e-12


def inverse_sd(variance: Tensor, mean: Tensor | None) -> Tensor:
    """1/√variance, with what keeps it finite; uses up the variance."""
    if mean is not None:
        variance.add_(mean.square().mul_(RELATIVE_EPS))
    return variance.add_(torch.finfo(variance.dtype).tiny).rsqrt_()


def standardize(x: Tensor, dims: tuple[int, ...], scratch: Scratch, *, center: bool = True, eps: float = 0.0) -> None:
    """Subtract the mean over these dimensions (if `center`), divide by √(mean square of what is left + eps)."""
    size = math.prod(x.shape[d] for d in dims)
    mean = None
    if center:
        mean = x.sum(dims, keepdim=True).div_(size)
        x.sub_(mean)
    # Squares and a sum: a norm over a strided dimension is 15 times slower.
    square = torch.mul(x, x, out=scratch(x))
    x.mul_(inverse_sd(square.sum(dims, keepdim=True).div_(size).add_(eps), mean))


def over_nodes(images: bool, *, groups: int = 1, center: bool = True, eps: float = 0.0) -> Apply:
    """LayerNorm (one group), GroupNorm, and without centring RMSNorm: one scale per sample and group."""

    def of_images(x: Tensor, scratch: Scratch) -> Tensor:
        standardize(x.view(x.shape[0], x.shape[1], groups, -1), (3,), scratch, center=center, eps=eps)
        return x

    def of_vectors(x: Tensor, scratch: Scratch) -> Tensor:
        standardize(x.view(x.shape[0], groups, -1, x.shape[2]), (2,), scratch, center=center, eps=eps)
        return x

    return of_images if images else of_vectors


def standardizing(
    parts: Callable[[Tensor], Iterable[Tensor]], dim: int, *, center: bool = True, eps: float = 0.0
) -> Derivative:
    """`standardize` over one dimension of each of these views, and its way back.

    With y the result and s = 1/√(variance + eps), dx = s·(dy − mean dy − y·mean(y·dy)); without centring the
    mean of dy stays.
    """

    def forward(x: Tensor, out: Tensor) -> Kept:
        if out is not x:
            out.copy_(x)
        scales: list[Tensor] = []
        for part in parts(out):
            mean = None
            if center:
                mean = part.mean(dim, keepdim=True)
                part.sub_(mean)
            scales.append(inverse_sd((part * part).mean(dim, keepdim=True).add_(eps), mean))
            part.mul_(scales[-1])
        return tuple(scales)

    def backward(gradient: Tensor, kept: Tensor, more: Kept) -> Tensor:
        for g, y, scale in zip(parts(gradient), parts(kept), more, strict=True):
            along = (g * y).mean(dim, keepdim=True)
            if center:
                g.sub_(g.mean(dim, keepdim=True))
            g.addcmul_(y, along, value=-1.0).mul_(scale)
        return gradient

    return Derivative(forward, backward, "output")


def over_nodes_derivative(*, groups: int = 1, center: bool = True, eps: float = 0.0) -> Derivative:
    """Of `over_nodes`, on vectors."""
    return standardizing(lambda x: (x.unflatten(1, (groups, -1)),), 2, center=center, eps=eps)
