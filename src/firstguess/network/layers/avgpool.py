"""Average-pooling over independent nodes."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, final

from firstguess.base.checks import check_count
from firstguess.network.grid import Shape
from firstguess.network.layer import Layer, Mix, Parity, register
from firstguess.network.points import Points, Step, Tile
from firstguess.network.signal import Gaussian, Signal, Unknown
from firstguess.network.tensors import Draw, Local, Place, Scratch

if TYPE_CHECKING:
    from torch import Tensor, nn


@register
@final
@dataclass(frozen=True)
class AvgPool(Layer):
    """The mean of K nodes: what is common to them stays, what differs between them is divided by K (theory.md §2)."""

    kind: ClassVar[str] = "avgpool"
    weighted = False
    mixes = Mix.POSITIONS
    parity = Parity.LINEAR
    bends = False
    size: int = 2

    def __post_init__(self) -> None:
        check_count(self.size, "size", "avgpool")

    def text(self) -> str:
        return f"avgpool({self.size})"

    @property
    def pools(self) -> int:
        return self.size

    def shape(self, before: Shape, units: int | None) -> Shape:
        return before.pooled("avgpool", self.size)

    def moments(self, signal: Signal) -> Signal:
        law = Gaussian() if isinstance(signal.law, Gaussian) else Unknown("an average of nodes that are not Gaussian")
        return replace(signal, between=signal.between / self.size, spread=signal.spread / self.size, law=law).rescaled()

    def covariance(self, points: Points) -> tuple[Points, Step]:
        """K ← K/K_pool + (1 − 1/K_pool)·m_a m_b for independent nodes, Θ ← Θ/K_pool."""
        share, mean = 1.0 / self.size, points.mean

        def step(tile: Tile) -> None:
            tile.k *= share
            tile.k += (1.0 - share) * tile.outer(mean)
            if tile.t is not None:
                tile.t *= share

        after = Points(
            share * points.q + (1.0 - share) * mean**2,
            mean,
            points.gaussian,
            max(points.width // self.size, 1),
            points.width_after,
            what=f"an average of {points.what}",
        )
        return after, step

    def gradient(self, signal: Signal) -> float | None:
        return 1.0 / self.size  # Σ_k (1/K)²

    def assumptions(self) -> Iterable[str]:
        yield f"avgpool: the {self.size} nodes of a pool are independent"

    def tensors(self, place: Place) -> Local:
        """Over K consecutive nodes; on images over k×k positions, K = k²."""
        import torch
        import torch.nn.functional as F

        size, side = self.size, math.isqrt(self.size)

        def of_images(x: Tensor, scratch: Scratch) -> Tensor:
            return F.avg_pool2d(x.flatten(0, 1), side).unflatten(0, x.shape[:2])

        def of_vectors(x: Tensor, scratch: Scratch) -> Tensor:
            nodes = x.view(x.shape[0], -1, size, x.shape[2])
            return torch.sum(nodes, 2, out=scratch(nodes[:, :, 0])).div_(size)

        return Local(of_images if place.before.images else of_vectors)

    def module(self, place: Place, draw: Draw) -> nn.Module:
        from torch import nn

        return nn.AvgPool2d(math.isqrt(self.size)) if place.before.images else nn.AvgPool1d(self.size)
