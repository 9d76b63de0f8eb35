"""Modules that torch has none of, for one member of an ensemble. Loads torch: layers import it where they are built."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from firstguess.network.leave_one_out import variance_of_others

EPS = float(torch.finfo(torch.float32).tiny)  # theory's norms have none


class Affine(nn.Module):
    """factor · x + shift, both constants."""

    def __init__(self, factor: float, shift: float) -> None:
        super().__init__()
        self.factor, self.shift = factor, shift

    def extra_repr(self) -> str:
        return f"factor={self.factor}, shift={self.shift}"

    def forward(self, x: Tensor) -> Tensor:
        return x * self.factor + self.shift


class MeanFree(nn.Module):
    """x minus its mean over data and nodes."""

    def forward(self, x: Tensor) -> Tensor:
        return x - x.mean()


class BatchCentre(nn.Module):
    """x minus its mean over the points of the batch, node by node."""

    def forward(self, x: Tensor) -> Tensor:
        return x - x.mean(0, keepdim=True)


class ResidualSum(nn.Module):
    """shortcut(x) + scale · branch(x); without a shortcut x itself."""

    def __init__(self, branch: nn.Module, scale: float, shortcut: nn.Module | None = None) -> None:
        super().__init__()
        self.branch, self.scale, self.shortcut = branch, scale, shortcut or nn.Identity()

    def extra_repr(self) -> str:
        return "" if self.scale == 1.0 else f"scale={self.scale}"

    def forward(self, x: Tensor) -> Tensor:
        return self.shortcut(x) + self.scale * self.branch(x)


class Batches(nn.Module):
    """A norm applied to consecutive batches of the points."""

    def __init__(self, norm: nn.Module, batch: int) -> None:
        super().__init__()
        self.norm, self.batch = norm, batch

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.norm(part) for part in x.split(self.batch)])


class LeaveOneOutNorm(nn.Module):
    """BatchNorm where a point is left out of its own statistics: theory.md (5), NORM App. E.1."""

    def __init__(self, batch: int) -> None:
        super().__init__()
        self.batch = batch

    def forward(self, x: Tensor) -> Tensor:
        parts: list[Tensor] = []
        for part in x.split(self.batch):
            b = len(part)
            d = part - part.mean(0, keepdim=True)
            others = variance_of_others(d, (d * d).sum(0, keepdim=True), b)
            parts.append(d * (b / (b - 1)) / others.sqrt())
        return torch.cat(parts)
