"""Average-pooling over independent nodes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, final

from firstguess.base.checks import check_count
from firstguess.network.grid import Shape
from firstguess.network.layer import Layer, Meaning, Mix, Parity, register
from firstguess.network.meaning import FLAT, IMAGE, Call, Site
from firstguess.network.points import Points, Step, Tile
from firstguess.network.pools import pool_of, pool_to, window_of_call, window_of_module
from firstguess.network.signal import Gaussian, Signal, Unknown


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

    modules = ("AvgPool1d", "AvgPool2d", "AdaptiveAvgPool2d")
    calls = ("F.avg_pool2d", "F.adaptive_avg_pool2d", "torch.mean", "Tensor.mean")

    @classmethod
    def from_module(cls, module: Any, site: Site) -> Meaning:
        if site.claim == "AdaptiveAvgPool2d":
            return pool_to(cls, module.output_size, site)
        return pool_of(cls, window_of_module(module), site, flat=site.claim == "AvgPool1d")

    @classmethod
    def from_call(cls, call: Call, site: Site) -> Meaning:
        if site.claim == "F.avg_pool2d":
            return pool_of(cls, window_of_call(call), site)
        if site.claim == "F.adaptive_avg_pool2d":
            return pool_to(cls, call.argument(1, "output_size", None), site)
        axes = call.argument(1, "dim", None)
        axes = tuple(sorted(a % IMAGE for a in axes)) if isinstance(axes, (tuple, list)) else axes
        if axes != (2, 3) or (site.axes or IMAGE) != IMAGE:
            return Meaning(why="an average over other axes than the positions of images")
        pooled = pool_to(cls, 1, site)
        kept = call.argument(2, "keepdim", False)
        return pooled if pooled.why else Meaning(pooled.layers, axes=IMAGE if kept else FLAT)
