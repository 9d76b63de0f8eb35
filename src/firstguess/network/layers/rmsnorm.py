"""RMSNorm: one scale per sample, no centring."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, final

from firstguess.base.checks import check_number
from firstguess.base.errors import NotCovered
from firstguess.network.finite_sample import PointSample, scaled_to_one
from firstguess.network.finite_signal import FiniteSignal
from firstguess.network.layer import Fold, Layer, Mix, ReadContext, ReadResult, Symmetry, keeps_shape, register
from firstguess.network.layers.scale import Scale
from firstguess.network.norms import inverse_square, over_units_map, over_units_values, scaled
from firstguess.network.points import PairwiseMap, Points, UnitMap
from firstguess.network.signal import Gaussian, Signal, Unknown
from firstguess.network.tensors import Draw, Local, Place, SourceWriter

if TYPE_CHECKING:
    from torch import nn


@register
@final
@dataclass(frozen=True)
class RMSNorm(Layer):
    """Divide a sample by √(mean square over units + eps): it does not centre, so after φ it does not cure.

    On tokens each token by itself.
    """

    kind: ClassVar[str] = "rmsnorm"
    weighted = False
    mixes = Mix.UNITS
    symmetry = Symmetry.ODD
    breaks_gaussianity = False
    by_token = True
    eps: float = field(default=0.0, kw_only=True)

    def __post_init__(self) -> None:
        check_number(self.eps, "eps", "rmsnorm", hint="rmsnorm(eps=1e-6)")

    shape = keeps_shape

    @property
    def one_size(self) -> bool:
        return self.eps == 0.0

    def moments(self, signal: Signal) -> Signal:
        if signal.total == 0.0:
            raise NotCovered("a signal that is not zero", got="zero", hint="a larger weight variance before this layer")
        distribution = (
            signal.distribution
            if isinstance(signal.distribution, Gaussian)
            else Unknown("an rmsnorm of a signal that is not Gaussian", signal)
        )
        return scaled(signal, distribution, self.eps)

    def covariance(self, points: Points, fold: Fold) -> PairwiseMap:
        return over_units_map(self, points, centre=False, eps=self.eps)

    def sampled_units(self, points: Points, known: bool) -> UnitMap:
        return over_units_values(points, known, centre=False, eps=self.eps)

    def finite(self, before: FiniteSignal, after: Signal) -> FiniteSignal:
        return before.normed(after, centres=False, eps=self.eps)

    def point_sample(self, sample: PointSample) -> PointSample:
        return sample.with_values(scaled_to_one(sample.values, self.eps))

    def gradient(self, signal: Signal) -> float | None:
        return inverse_square(signal.log_q, self.eps)

    def assumptions(self) -> Iterable[str]:
        return ()

    def tensors(self, place: Place) -> Local:
        from firstguess.network.torch_ops import over_units, over_units_derivative

        derivative = None if place.before.images else over_units_derivative(center=False, eps=self.eps)
        return Local(over_units(place.before.images, center=False, eps=self.eps), derivative=derivative)

    def source(self, at: SourceWriter) -> str:
        return f"nn.RMSNorm({at.size}{f', eps={self.eps}' if self.eps else ''})"

    def module(self, place: Place, draw: Draw) -> nn.Module:
        from torch import nn

        from firstguess.network.torch_ops import EPS

        return nn.RMSNorm(place.before.own_sizes, eps=self.eps or EPS, elementwise_affine=False)

    modules = ("RMSNorm", "*RMSNorm")

    @classmethod
    def from_module(cls, module: Any, context: ReadContext) -> ReadResult:
        if context.claim == "*RMSNorm":
            return _tried(module, context)
        axes = len(module.normalized_shape)
        why = context.whole_sample(axes)
        return ReadResult(why=why) if why else ReadResult((cls(),), axes=axes + 1, affine=True)


def _tried(module: Any, context: ReadContext) -> ReadResult:
    """A class called …RMSNorm, tried on random vectors: c·x/rms(x) with one c, or not read."""
    import torch

    weight = module.weight
    if weight.ndim != 1:
        return ReadResult(why=f"called RMSNorm, with a weight of {weight.ndim} axes")
    if why := context.whole_sample(weight.ndim):
        return ReadResult(why=why)
    x = torch.randn(8, weight.numel(), generator=torch.Generator().manual_seed(0)).to(weight)
    try:
        with torch.no_grad():
            ratio = (module(x) / (x / x.square().mean(-1, keepdim=True).sqrt())).double()
    except Exception as error:  # someone else's forward
        return ReadResult(why=f"called RMSNorm, but fails on vectors: {type(error).__name__}")
    factor = float(ratio.median())
    if not math.isfinite(factor) or float((ratio - factor).abs().max()) > 1e-2 * max(abs(factor), 1e-3):
        return ReadResult(why="called RMSNorm, but does not divide by the root mean square")
    factor = float(f"{factor:.3g}")
    if factor == 1.0:
        return ReadResult((RMSNorm(),))
    return ReadResult((RMSNorm(), Scale(factor)), notes=(f"the norm starts with weights of {factor:g}, not 1",))
