"""GroupNorm: LayerNorm within each group of units."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy as np

from firstguess.base.errors import InvalidInput, NotCovered
from firstguess.base.gaussian import Array
from firstguess.network.activations.kernels import leaky_slopes
from firstguess.network.finite_sample import PointSample
from firstguess.network.finite_signal import FiniteSignal
from firstguess.network.layer import Fold, Mix, ReadContext, ReadResult, Symmetry, register
from firstguess.network.norms import GroupNormed, UnitNorm, gradient_of, normalized
from firstguess.network.points import Need, PairwiseMap, Points, UnitMap, Values, same_map
from firstguess.network.shapes import PositionGrid, Shape
from firstguess.network.signal import Activated, Gaussian, Signal, Unknown
from firstguess.network.tensors import Draw, Place

if TYPE_CHECKING:
    from torch import nn

_NARROW = 16  # units (channels) of a module's groups below which they are described as narrow


@register
@final
@dataclass(frozen=True)
class GroupNorm(UnitNorm):
    """One mean and one scale per sample and group: the number of `groups`, or the units (channels) of `each`.

    `groups` are taken to be wide: each is a LayerNorm and so is the whole. Groups of a few units `each` are not,
    however wide the layer: what they leave is exact in closed form (`group_law`), and sampled in the kernel reading.
    """

    kind: ClassVar[str] = "groupnorm"
    weighted = False
    mixes = Mix.UNITS
    symmetry = Symmetry.REMOVES_MEAN
    breaks_gaussianity = False
    groups: int = 1
    each: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.each is not None and self.groups != 1:
            raise InvalidInput(
                "groups or each, not both", got=f"groups={self.groups}, each={self.each}", hint="groupnorm(each=4)"
            )

    @property
    def together(self) -> int:
        return self.each or 1

    def groups_of(self, before: Shape) -> int:
        return self.groups if self.each is None else before.sizes[0] // self.each

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
        wide = super().moments(signal)  # refuses units that do not differ
        if self.each is None:
            return wide
        distribution = signal.distribution
        before = distribution.before.distribution if isinstance(distribution, Activated) else distribution
        if self.each == 1 or (isinstance(before, Gaussian) and before.positions):
            raise NotCovered(
                "groups of at least 2 nodes without positions, for the closed form of narrow groups",
                got="positions, of which the closed form does not know how they are correlated",
                hint="the kernel reading: fg.predict(net, data=x), or fg.measure(...)",
            )
        if isinstance(distribution, Gaussian):
            c, apart = wide.between, wide.spread
            return Signal(0.0, *normalized(self.each, c, apart), distribution=GroupNormed(self.each, c, apart))
        if isinstance(distribution, Activated) and signal.between == 0.0 and isinstance(before, Gaussian):
            # points are independent, and units of a group alike: E x = 0, whatever φ is. All of a group may be dead.
            dead = _all_alike(distribution, self.each)
            return Signal(0.0, 0.0, 1.0 - dead, distribution=Unknown("a groupnorm of a signal that is not Gaussian"))
        raise NotCovered(
            "Gaussian nodes, or data points without centers, before a groupnorm of narrow groups",
            got="nodes that are not Gaussian, with centers of their own",
            hint="the kernel reading: fg.predict(net, data=x), or fg.measure(...)",
        )

    def covariance(self, points: Points, fold: Fold) -> PairwiseMap:
        if self.each is None:
            return super().covariance(points, fold)
        raise NotCovered(
            f"a formula for groups of {self.each}: the kernel reading samples them, behind random weights",
            got="a tangent kernel, or nodes that are not Gaussian",
            hint="a dense layer before it and no tangent=, or fg.measure(...)",
        )

    def sampled_units(self, points: Points, known: bool) -> UnitMap:
        each = self.each
        if each is None:
            return super().sampled_units(points, known)
        places = 1 if points.grid.apart else points.grid.places

        def grouped(y: Values) -> Values:
            group = y.reshape(len(y) // each, each, -1, places)
            away = group - group.mean(axis=(1, 3), keepdims=True)
            scale = np.sqrt(np.mean(away * away, axis=(1, 3), keepdims=True))
            np.divide(away, scale, out=away, where=scale > 1e-6 * np.abs(group).max(axis=(1, 3), keepdims=True))
            return away.reshape(y.shape)

        return same_map(grouped)

    def point_sample(self, sample: PointSample) -> PointSample:
        x = sample.values
        before = Shape(x.shape[2], drawn=True)
        self.shape(before, None)
        each = x.shape[2] // self.groups_of(before)
        return sample.with_values(self._normed(x.reshape(len(x), -1, each)).reshape(x.shape))

    def finite(self, before: FiniteSignal, after: Signal) -> FiniteSignal:
        self._refuse("an expansion in 1/width")

    def sampled(self, grid: PositionGrid) -> bool:
        return self.each is not None

    def need(self, points: Points, k: Array) -> Need:
        return Need(always=True)

    def gradient(self, signal: Signal) -> float | None:
        if self.each is None:
            return super().gradient(signal)
        if not isinstance(signal.distribution, Gaussian):
            return None
        return gradient_of(self.each, math.log(signal.between + signal.spread) + signal.log_scale)

    def assumptions(self) -> Iterable[str]:
        yield "groupnorm: groups are wide" if self.each is None else f"groupnorm: groups of {self.each}, many of them"

    def module(self, place: Place, draw: Draw) -> nn.Module:
        from torch import nn

        from firstguess.network.torch_ops import EPS

        channels = place.before.sizes[0]
        return nn.GroupNorm(self.groups_of(place.before), channels, eps=EPS, affine=False)

    modules = ("GroupNorm",)

    @classmethod
    def from_module(cls, module: Any, context: ReadContext) -> ReadResult:
        each = module.num_channels // module.num_groups
        layer = cls(each=each) if each < _NARROW and module.num_groups > 1 else cls(module.num_groups)
        return ReadResult((layer,), affine=True)


def _all_alike(distribution: Activated, nodes: int) -> float:
    """The chance that φ is the same on all units of a group, where it has a flat side: then nothing is left of them."""
    slopes = leaky_slopes(distribution.phi)
    if slopes is not None and distribution.before.mean == 0.0:
        return 0.5**nodes if 0.0 in slopes else 0.0
    if (
        distribution.phi.jumps
        or distribution.phi.source is not None
        or any(feature.width == 0.0 for feature in distribution.phi.features)
    ):
        raise NotCovered(
            "a smooth activation, or one with a kink at 0, before a groupnorm of narrow groups",
            got=f"{distribution.phi}, of which all nodes of a group may be on one flat side",
            hint="the kernel reading: fg.predict(net, data=x), or fg.measure(...)",
        )
    return 0.0
