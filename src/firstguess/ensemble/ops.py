"""What each layer does to tensors of many initializations at once.

Two layouts. Flat layers: (inits, nodes, points), feature-major, so that the weights of several networks side by side
times the data land in the shape that the next batched product wants (performance.md). Images: (points, inits, channels,
height, width), which is what a grouped convolution takes. Operations may work in place; they return their result.

Norms have no epsilon in theory. Here the variance gets 1e-12 of the squared mean and the smallest normal number:
nothing where float32 resolves the variance, and a constant node or sample becomes 0 instead of amplified rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from firstguess.ensemble.places import Step
from firstguess.network.activations.tensors import elementwise
from firstguess.network.layers import (
    Activate,
    AvgPool,
    BatchNorm,
    Dense,
    GroupNorm,
    LayerNorm,
    MaxPool,
    RMSNorm,
    Scale,
    Shift,
)

Scratch = Callable[[Tensor], Tensor]  # a buffer of the shape of its argument
RELATIVE_EPS = 1e-12


def is_image(x: Tensor) -> bool:
    """Which of the two layouts a tensor has."""
    return x.dim() == 5


def local(step: Step, *, batch: int | None = None) -> Callable[[Tensor, Scratch], Tensor] | None:
    """The operation of a layer without weights on a chunk of points; None where it needs the whole data set."""
    layer = step.layer
    if isinstance(layer, Activate):
        apply = elementwise(layer.phi, step.constant or 0.0)
        return lambda x, _: apply(x)
    if isinstance(layer, Scale):
        return lambda x, _: x.mul_(layer.factor)
    if isinstance(layer, Shift):
        return lambda x, _: x.add_(layer.by)
    if isinstance(layer, (MaxPool, AvgPool)):
        return lambda x, scratch: pool(x, layer, scratch)
    if isinstance(layer, (LayerNorm, GroupNorm)):
        groups = layer.groups if isinstance(layer, GroupNorm) else 1
        return lambda x, scratch: over_nodes(x, groups, scratch)
    if isinstance(layer, RMSNorm):
        return lambda x, scratch: over_nodes(x, 1, scratch, center=False)
    if isinstance(layer, BatchNorm):
        if batch is None:
            return None
        return lambda x, scratch: over_batches(x, batch, layer.estimator == "leave_one_out", scratch)
    raise TypeError(f"no tensor meaning for {layer.kind}")


def _inverse_sd(variance: Tensor, mean: Tensor) -> Tensor:
    floor = torch.finfo(variance.dtype).tiny
    return variance.add_(mean.square().mul_(RELATIVE_EPS)).add_(floor).rsqrt_()


def over_nodes(x: Tensor, groups: int, scratch: Scratch, *, center: bool = True) -> Tensor:
    """LayerNorm (one group), GroupNorm, and without centring RMSNorm: one scale per sample and group."""
    if is_image(x):
        grouped, dim = x.view(x.shape[0], x.shape[1], groups, -1), 3
    else:
        grouped, dim = x.view(x.shape[0], groups, -1, x.shape[2]), 2
    size = grouped.shape[dim]
    mean = grouped.sum(dim, keepdim=True).div_(size) if center else torch.zeros(())
    if center:
        grouped.sub_(mean)
    # Squares and a sum: a norm over a strided dimension is 15 times slower.
    square = torch.mul(grouped, grouped, out=scratch(grouped))
    grouped.mul_(_inverse_sd(square.sum(dim, keepdim=True).div_(size), mean))
    return x


def over_batches(x: Tensor, batch: int, leave_one_out: bool, scratch: Scratch) -> Tensor:
    """BatchNorm over consecutive batches of the points; a last, shorter batch is normalized by itself."""
    points = x.shape[0] if is_image(x) else x.shape[2]
    whole = points // batch * batch
    if is_image(x):
        for part in (x[:whole].unflatten(0, (-1, batch)) if whole else None, x[whole:].unsqueeze(0)):
            if part is not None and part.numel():
                _standardize(part, (1, 4, 5), scratch)
        return x
    for part in (x[..., :whole].unflatten(2, (-1, batch)) if whole else None, x[..., whole:].unsqueeze(2)):
        if part is None or not part.numel():
            continue
        if leave_one_out:
            _leave_one_out(part)
        else:
            _standardize(part, (3,), scratch)
    return x


def _standardize(part: Tensor, dims: tuple[int, ...], scratch: Scratch) -> None:
    size = math.prod(part.shape[d] for d in dims)
    mean = part.sum(dims, keepdim=True).div_(size)
    part.sub_(mean)
    square = torch.mul(part, part, out=scratch(part))
    part.mul_(_inverse_sd(square.sum(dims, keepdim=True).div_(size), mean))


def _leave_one_out(part: Tensor) -> None:
    """(u − mean')/sd' over the other B − 1 points: theory.md (5), NORM App. E.1. With d = u − mean of all B,

    u − mean' = d·B/(B−1) and sd'² = (Σd² − d²·B/(B−1))/(B−2).
    """
    b = part.shape[3]
    mean = part.sum(3, keepdim=True).div_(b)
    part.sub_(mean)
    square = part.square()
    variance = (square.sum(3, keepdim=True) - square * (b / (b - 1))).div_(b - 2).clamp_min_(0.0)
    part.mul_(_inverse_sd(variance, mean.expand_as(part))).mul_(b / (b - 1))


def pool(x: Tensor, layer: MaxPool | AvgPool, scratch: Scratch) -> Tensor:
    """Over K consecutive nodes; on images over k×k positions, K = k²."""
    size = layer.size
    if is_image(x):
        side = math.isqrt(size)
        images = x.flatten(0, 1)
        largest = isinstance(layer, MaxPool)
        pooled = F.max_pool2d(images, side, layer.stride, layer.padding) if largest else F.avg_pool2d(images, side)
        return pooled.unflatten(0, x.shape[:2])
    nodes = x.view(x.shape[0], -1, size, x.shape[2])
    if isinstance(layer, MaxPool):
        return torch.amax(nodes, 2, out=scratch(nodes[:, :, 0]))
    return torch.sum(nodes, 2, out=scratch(nodes[:, :, 0])).div_(size)


def batchnorm_terms(x: Tensor, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
    """What BatchNorm takes off and multiplies by, from the whole data set's node statistics (inits, nodes).

    Images are normalized by channel, as in every framework: the node's statistics are pooled over positions.
    """
    if is_image(x):
        channel_mean = mean.view(*x.shape[1:3], -1).mean(2)
        spread = variance.view(*x.shape[1:3], -1) + (mean.view(*x.shape[1:3], -1) - channel_mean.unsqueeze(2)).square()
        mean, variance = channel_mean[None, :, :, None, None], spread.mean(2)[None, :, :, None, None]
    else:
        mean, variance = mean.unsqueeze(2), variance.unsqueeze(2)
    scale = (variance + RELATIVE_EPS * mean.square() + torch.finfo(torch.float32).tiny).rsqrt()
    return mean.to(x.dtype), scale.to(x.dtype)


def batchnorm(x: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
    """BatchNorm by the statistics of the whole data set."""
    shift, scale = batchnorm_terms(x, mean, variance)
    return x.sub_(shift).mul_(scale)


def conditional(x: Tensor, normals: Tensor, layer: Dense, out: Tensor) -> Tensor:
    """All units of a dense layer at once, given its input x (inits, N, n): rows N(0, σw² xᵀx/N + σb² 11ᵀ).

    Exact at finite width for Gaussian weights (performance.md, reduction 2): n·units normals instead of N·units.
    Uses up x.
    """
    gram, deviations = _gram(x)
    lower, info = torch.linalg.cholesky_ex(gram.mul_(layer.weight_var / x.shape[1]).add_(layer.bias_var))
    for i in torch.nonzero(info).flatten().tolist():
        wide = deviations[0][i].double() + deviations[1][i].double()
        lower[i] = factor((wide.T @ wide).mul_(layer.weight_var / x.shape[1]).add_(layer.bias_var))
    return torch.bmm(normals, lower.to(x.dtype).mT, out=out)


def _gram(x: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
    """xᵀx in float64 from products of the deviations d from each node's mean m: dᵀd + mᵀd + dᵀm + mᵀm.

    Near c → 1 the differences between points are far below float32's resolution of xᵀx. Deviations keep them: the error
    is float32's relative to dᵀd, which the rounding of x itself has too, at half the cost of a float64 product.
    """
    mean = x.sum(2, keepdim=True).div_(x.shape[2])
    deviations = x.sub_(mean)
    gram = torch.bmm(deviations.mT, deviations).double()
    cross = torch.bmm(mean.mT, deviations).double()
    return gram.add_(cross).add_(cross.mT).add_(mean.double().square().sum(1, keepdim=True)), (mean, deviations)


def factor(gram: Tensor) -> Tensor:
    """The Cholesky factor of a Gram matrix, with jitter only if it is singular to float64 (points that coincide)."""
    size = float(gram.diagonal().mean())
    if size == 0.0 or not math.isfinite(size):
        return torch.full_like(gram, 0.0 if size == 0.0 else math.nan)
    identity = torch.eye(gram.shape[0], dtype=gram.dtype)
    jitter = 0.0
    while True:
        lower, failed = torch.linalg.cholesky_ex(gram + jitter * size * identity)
        if not failed:
            return lower
        jitter = 10.0 * jitter or 1e-15
