"""GroupNorm: LayerNorm within each group of nodes."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy as np

from firstguess.base.checks import check_count
from firstguess.base.errors import InvalidInput, NotCovered
from firstguess.base.gaussian import Array
from firstguess.network.activations.kernels import rays
from firstguess.network.finite_sample import Handful, centred
from firstguess.network.layer import Fold, Layer, Meaning, Mix, Parity, register
from firstguess.network.norms import (
    GroupLaw,
    gradient_of,
    normalized,
    over_nodes,
    over_nodes_gradient,
    over_nodes_move,
    over_nodes_nodes,
)
from firstguess.network.points import Move, Need, NodeMove, Points, Values, alike
from firstguess.network.read_result import Site
from firstguess.network.shapes import Grid, Shape
from firstguess.network.signal import Activated, Gaussian, Signal, Unknown
from firstguess.network.tensors import Draw, Local, Place

if TYPE_CHECKING:
    from torch import nn

_NARROW = 16  # nodes (channels) of a module's groups below which they are described as narrow


@register
@final
@dataclass(frozen=True)
class GroupNorm(Layer):
    """One mean and one scale per sample and group: so many `groups`, or groups of so many nodes (channels) `each`.

    `groups` are taken to be wide: each is a LayerNorm and so is the whole. Groups of a few nodes `each` are not,
    however wide the layer: what they leave is exact in closed form (`group_law`), and sampled in the kernel reading.
    """

    kind: ClassVar[str] = "groupnorm"
    weighted = False
    mixes = Mix.NODES
    parity = Parity.CENTRES
    bends = False
    groups: int = 1
    each: int | None = None

    def __post_init__(self) -> None:
        check_count(self.groups, "groups", "groupnorm")
        check_count(self.each, "each", "groupnorm")
        if self.each is not None and self.groups != 1:
            raise InvalidInput(
                "groups or each, not both", got=f"groups={self.groups}, each={self.each}", hint="groupnorm(each=4)"
            )

    @property
    def together(self) -> int:
        return self.each or 1

    def _groups(self, width: int) -> int:
        return self.groups if self.each is None else width // self.each

    def shape(self, before: Shape, units: int | None) -> Shape:
        if self.each == 1 and before.grid is not None and not before.images:
            raise InvalidInput(
                "groups of at least 2 nodes where there are no positions",
                got="each=1",
                hint="groupnorm(each=2)",
            )
        divisor = self.each or self.groups
        if before.drawn and before.width is not None and before.width % divisor:
            what, fits = ("each" if self.each else "groups"), math.gcd(before.width, divisor)
            raise InvalidInput(
                f"groups that divide the {before.width} nodes (channels) before them",
                got=divisor,
                hint=f"groupnorm({what}={fits})",
            )
        return before

    def moments(self, signal: Signal) -> Signal:
        if self.each is None:
            return over_nodes(signal, "groupnorm")
        wide = over_nodes(signal, "groupnorm")  # refuses nodes that do not differ
        law = signal.law
        before = law.before.law if isinstance(law, Activated) else law
        if self.each == 1 or (isinstance(before, Gaussian) and before.positions):
            raise NotCovered(
                "groups of at least 2 nodes without positions, for the closed form of narrow groups",
                got="positions, of which the closed form does not know how they are correlated",
                hint="the kernel reading: fg.predict(net, data=x), or fg.measure(...)",
            )
        if isinstance(law, Gaussian):
            c, apart = wide.between, wide.spread
            return Signal(0.0, *normalized(self.each, c, apart), law=GroupLaw(self.each, c, apart))
        if isinstance(law, Activated) and signal.between == 0.0 and isinstance(before, Gaussian):
            # points are independent, and nodes of a group alike: E x = 0, whatever φ is. All of a group may be dead.
            dead = _all_alike(law, self.each)
            return Signal(0.0, 0.0, 1.0 - dead, law=Unknown("a groupnorm of a signal that is not Gaussian"))
        raise NotCovered(
            "Gaussian nodes, or data points without centers, in front of a groupnorm of narrow groups",
            got="nodes that are not Gaussian, with centers of their own",
            hint="the kernel reading: fg.predict(net, data=x), or fg.measure(...)",
        )

    def covariance(self, points: Points, fold: Fold) -> Move:
        if self.each is None:
            return over_nodes_move(self, points)
        raise NotCovered(
            f"a formula for groups of {self.each}: the kernel reading samples them, behind random weights",
            got="a tangent kernel, or nodes that are not Gaussian",
            hint="a dense layer before it and no tangent=, or fg.measure(...)",
        )

    def nodes(self, points: Points, known: bool) -> NodeMove:
        each = self.each
        if each is None:
            return over_nodes_nodes(points, known)
        places = 1 if points.grid.apart else points.grid.places

        def grouped(y: Values) -> Values:
            group = y.reshape(len(y) // each, each, -1, places)
            away = group - group.mean(axis=(1, 3), keepdims=True)
            scale = np.sqrt(np.mean(away * away, axis=(1, 3), keepdims=True))
            np.divide(away, scale, out=away, where=scale > 1e-6 * np.abs(group).max(axis=(1, 3), keepdims=True))
            return away.reshape(y.shape)

        return alike(grouped)

    def handful(self, few: Handful) -> Handful:
        x = few.values
        self.shape(Shape(x.shape[2], drawn=True), None)
        each = x.shape[2] // self._groups(x.shape[2])
        return few.with_values(centred(x.reshape(len(x), -1, each), 0.0).reshape(x.shape))

    def sampled(self, grid: Grid) -> bool:
        return self.each is not None

    def need(self, points: Points, k: Array) -> Need:
        return Need(always=True)

    def gradient(self, signal: Signal) -> float | None:
        if self.each is None:
            return over_nodes_gradient(signal)
        if not isinstance(signal.law, Gaussian):
            return None
        return gradient_of(self.each, math.log(signal.between + signal.spread) + signal.log_scale)

    def assumptions(self) -> Iterable[str]:
        yield "groupnorm: groups are wide" if self.each is None else f"groupnorm: groups of {self.each}, many of them"

    def tensors(self, place: Place) -> Local:
        from firstguess.network.torch_ops import over_nodes, over_nodes_derivative

        groups = self._groups(place.before.sizes[0])
        derivative = None if place.before.images else over_nodes_derivative(groups=groups)
        return Local(over_nodes(place.before.images, groups=groups), derivative=derivative)

    def module(self, place: Place, draw: Draw) -> nn.Module:
        from torch import nn

        from firstguess.network.torch_ops import EPS

        channels = place.before.sizes[0]
        return nn.GroupNorm(self._groups(channels), channels, eps=EPS, affine=False)

    modules = ("GroupNorm",)

    @classmethod
    def from_module(cls, module: Any, site: Site) -> Meaning:
        each = module.num_channels // module.num_groups
        layer = cls(each=each) if each < _NARROW and module.num_groups > 1 else cls(module.num_groups)
        return Meaning((layer,), affine=True)


def _all_alike(law: Activated, nodes: int) -> float:
    """The chance that φ is the same on all nodes of a group, where it has a flat side: then nothing is left of them."""
    slopes = rays(law.phi)
    if slopes is not None and law.before.mean == 0.0:
        return 0.5**nodes if 0.0 in slopes else 0.0
    if law.phi.jumps or law.phi.source is not None or any(feature.width == 0.0 for feature in law.phi.features):
        raise NotCovered(
            "a smooth activation, or one with a kink at 0, in front of a groupnorm of narrow groups",
            got=f"{law.phi}, of which all nodes of a group may be on one flat side",
            hint="the kernel reading: fg.predict(net, data=x), or fg.measure(...)",
        )
    return 0.0
