"""LayerNorm: one mean and one scale per sample, over the units."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, final

from firstguess.base.checks import check_number
from firstguess.network.finite_sample import PointSample, centred
from firstguess.network.finite_signal import FiniteSignal
from firstguess.network.layer import Fold, Layer, Mix, ReadContext, ReadResult, Symmetry, keeps_shape, register
from firstguess.network.norms import over_units, over_units_gradient, over_units_map, over_units_values
from firstguess.network.points import PairwiseMap, Points, UnitMap
from firstguess.network.signal import Signal
from firstguess.network.tensors import Draw, Local, Place, SourceWriter

if TYPE_CHECKING:
    from torch import nn


@register
@final
@dataclass(frozen=True)
class LayerNorm(Layer):
    """Subtract a sample's mean over units, divide by √(variance over units + eps): theory.md §2, (21).

    On tokens each token by itself.
    """

    kind: ClassVar[str] = "layernorm"
    weighted = False
    mixes = Mix.UNITS
    symmetry = Symmetry.REMOVES_MEAN
    breaks_gaussianity = False
    by_token = True
    eps: float = field(default=0.0, kw_only=True)

    def __post_init__(self) -> None:
        check_number(self.eps, "eps", "layernorm", hint="layernorm(eps=1e-5)")

    shape = keeps_shape

    @property
    def one_size(self) -> bool:
        return self.eps == 0.0

    def moments(self, signal: Signal) -> Signal:
        return over_units(signal, "layernorm", self.eps)

    def covariance(self, points: Points, fold: Fold) -> PairwiseMap:
        return over_units_map(self, points, eps=self.eps)

    def sampled_units(self, points: Points, known: bool) -> UnitMap:
        return over_units_values(points, known, eps=self.eps)

    def finite(self, before: FiniteSignal, after: Signal) -> FiniteSignal:
        return before.normed(after, centres=True, eps=self.eps)

    def point_sample(self, sample: PointSample) -> PointSample:
        return sample.with_values(centred(sample.values, self.eps))

    def gradient(self, signal: Signal) -> float | None:
        return over_units_gradient(signal, self.eps)

    def assumptions(self) -> Iterable[str]:
        return ()

    def tensors(self, place: Place) -> Local:
        from firstguess.network.torch_ops import over_units, over_units_derivative

        derivative = None if place.before.images else over_units_derivative(eps=self.eps)
        return Local(over_units(place.before.images, eps=self.eps), derivative=derivative)

    def source(self, at: SourceWriter) -> str:
        return f"nn.LayerNorm({at.size}{f', eps={self.eps}' if self.eps else ''})"

    def module(self, place: Place, draw: Draw) -> nn.Module:
        from torch import nn

        from firstguess.network.torch_ops import EPS

        return nn.LayerNorm(place.before.own_sizes, eps=self.eps or EPS, elementwise_affine=False)

    modules = ("LayerNorm",)

    @classmethod
    def from_module(cls, module: Any, context: ReadContext) -> ReadResult:
        axes = len(module.normalized_shape)
        why = context.whole_sample(axes)
        return ReadResult(why=why) if why else ReadResult((cls(),), axes=axes + 1, affine=True)
