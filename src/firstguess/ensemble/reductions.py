"""What is exact for Gaussian weights and shorter than drawing them (performance.md): their input is replaced by the
data's triangular factor, or all units of a layer are drawn at once, given the Gram matrix of their input."""

from __future__ import annotations

import itertools
import math
import operator

import torch
from torch import Tensor

from firstguess.base.roots import least_jitter
from firstguess.network.tensors import Weights

# Nanoseconds on the machine of performance.md; only their ratios matter, and only for which exact way is shorter.
_NORMAL, _FLOP32, _FLOP64 = 4.0, 1 / 90, 1 / 41


def conditional_pays(points: int, fan_in: int, units: int) -> bool:
    """Whether drawing a whole layer given its Gram matrix is less work than drawing its weights: performance.md (2)."""
    if points >= min(fan_in, units):
        return False
    direct = _NORMAL * fan_in * units + 2 * _FLOP32 * points * fan_in * units
    gram = 2 * _FLOP64 * points**2 * fan_in + 2 * _FLOP64 * points**3 / 3
    return gram + _NORMAL * points * units + 2 * _FLOP32 * points**2 * units < direct


def triangular(data: Tensor) -> Tensor:
    """Points by points: with Xᵀ = QR the rows of Rᵀ have the overlaps of the data, so W x and W' r are equal in law.

    In float64, some dimensions at a time: R of (R so far, next rows) is R of all of them, and needs little memory.
    """
    points, dims = data.shape
    upper = torch.empty(0, points, dtype=torch.float64)
    for first in range(0, dims, 2 * points):
        rows = data[:, first : first + 2 * points].T.double()
        upper = torch.linalg.qr(torch.cat([upper, rows]), mode="r").R
    return upper.T.to(data.dtype).contiguous()


def conditional(x: Tensor, normals: Tensor, weights: Weights, out: Tensor) -> Tensor:
    """All units of a layer at once, given its input x (inits, N, n): rows N(0, σw² xᵀx/N + σb² 11ᵀ).

    Exact at finite width for Gaussian weights (performance.md, reduction 2): n·units normals instead of N·units.
    Uses up x.
    """
    gram, deviations = _gram(x)
    lower, info = torch.linalg.cholesky_ex(gram.mul_(weights.weight_var / x.shape[1]).add_(weights.bias_var))
    for i in torch.nonzero(info).flatten().tolist():
        wide = deviations[0][i].double() + deviations[1][i].double()
        lower[i] = factor((wide.T @ wide).mul_(weights.weight_var / x.shape[1]).add_(weights.bias_var))
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

    def attempt(jitter: float) -> Tensor | None:
        lower, failed = torch.linalg.cholesky_ex(gram + jitter * size * identity)
        return None if failed else lower

    ladder = itertools.chain([0.0], itertools.accumulate(itertools.repeat(10.0), operator.mul, initial=1e-15))
    found = least_jitter(attempt, ladder)
    assert found is not None  # some multiple of the identity is enough
    return found[0]
