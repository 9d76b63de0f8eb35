"""GroupNorm: LayerNorm within each group of nodes."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, final

from firstguess.base.checks import check_count
from firstguess.base.errors import InvalidInput
from firstguess.network.grid import Shape
from firstguess.network.layer import Fold, Layer, Meaning, Mix, Parity, register
from firstguess.network.meaning import Site
from firstguess.network.nodes import NodeMove
from firstguess.network.over_nodes import over_nodes, over_nodes_gradient, over_nodes_move, over_nodes_nodes
from firstguess.network.points import Move, Points
from firstguess.network.signal import Signal
from firstguess.network.tensors import Draw, Local, Place

if TYPE_CHECKING:
    from torch import nn


@register
@final
@dataclass(frozen=True)
class GroupNorm(Layer):
    """One mean and one scale per sample and group. Where groups are wide, each is a LayerNorm and so is the whole."""

    kind: ClassVar[str] = "groupnorm"
    weighted = False
    mixes = Mix.NODES
    parity = Parity.CENTRES
    bends = False
    groups: int = 1

    def __post_init__(self) -> None:
        check_count(self.groups, "groups", "groupnorm")

    def shape(self, before: Shape, units: int | None) -> Shape:
        if before.drawn and before.width is not None and before.width % self.groups:
            raise InvalidInput(
                f"groups that divide the {before.width} nodes (channels) before them",
                got=self.groups,
                hint=f"groupnorm(groups={math.gcd(before.width, self.groups)})",
            )
        return before

    def moments(self, signal: Signal) -> Signal:
        return over_nodes(signal, "groupnorm")

    def covariance(self, points: Points, fold: Fold) -> Move:
        return over_nodes_move(self, points)

    def nodes(self, points: Points, known: bool) -> NodeMove:
        return over_nodes_nodes(points, known)

    def gradient(self, signal: Signal) -> float | None:
        return over_nodes_gradient(signal)

    def assumptions(self) -> Iterable[str]:
        yield "groupnorm: groups are wide"

    def tensors(self, place: Place) -> Local:
        from firstguess.network.tensor_ops import over_nodes, over_nodes_derivative

        derivative = None if place.before.images else over_nodes_derivative(groups=self.groups)
        return Local(over_nodes(place.before.images, groups=self.groups), derivative=derivative)

    def module(self, place: Place, draw: Draw) -> nn.Module:
        from torch import nn

        from firstguess.network.small_modules import EPS

        return nn.GroupNorm(self.groups, place.before.sizes[0], eps=EPS, affine=False)

    modules = ("GroupNorm",)

    @classmethod
    def from_module(cls, module: Any, site: Site) -> Meaning:
        return Meaning((cls(module.num_groups),), affine=True)
