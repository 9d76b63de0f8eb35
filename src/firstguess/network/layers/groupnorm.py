"""GroupNorm: LayerNorm within each group of nodes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from firstguess.network.layers.base import check_count
from firstguess.network.layers.layernorm import over_nodes, over_nodes_gradient, over_nodes_kernel
from firstguess.network.points import Points, Step
from firstguess.network.signal import Signal


@dataclass(frozen=True)
class GroupNorm:
    """One mean and one scale per sample and group. Where groups are wide, each is a LayerNorm and so is the whole."""

    kind: ClassVar[str] = "groupnorm"
    groups: int = 1

    def __post_init__(self) -> None:
        check_count(self.groups, "groups", "groupnorm")

    def moments(self, signal: Signal) -> Signal:
        return over_nodes(signal, "groupnorm")

    def covariance(self, points: Points) -> tuple[Points, Step]:
        return over_nodes_kernel(points, "a groupnorm")

    def gradient(self, signal: Signal) -> float | None:
        return over_nodes_gradient(signal)

    def assumptions(self) -> Iterable[str]:
        yield "groupnorm: groups are wide"
