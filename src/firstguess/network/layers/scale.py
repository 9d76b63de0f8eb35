"""Multiplication by a constant."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, final

import numpy as np

from firstguess.base.checks import check_number
from firstguess.base.record import changed
from firstguess.base.text import number
from firstguess.network.activations.tensors import linear_derivative
from firstguess.network.finite_sample import PointSample
from firstguess.network.finite_signal import FiniteSignal
from firstguess.network.layer import Fold, Layer, Mix, Symmetry, keeps_shape, register
from firstguess.network.points import PairwiseMap, Points, Tile, UnitMap, same_map, unchanged
from firstguess.network.signal import Gaussian, Signal, Unknown
from firstguess.network.tensors import AFFINE, Draw, Local, Place, SourceWriter

if TYPE_CHECKING:
    from torch import nn


@register
@final
@dataclass(frozen=True)
class Scale(Layer):
    """α x."""

    kind: ClassVar[str] = "scale"
    weighted = False
    mixes = Mix.NOTHING
    symmetry = Symmetry.LINEAR
    breaks_gaussianity = False
    by_token = True
    factor: float = 1.0

    def __post_init__(self) -> None:
        check_number(self.factor, "factor", "scale", low=-math.inf, hint="scale(0.5)")

    def text(self) -> str:
        return f"scale({number(self.factor)})"

    shape = keeps_shape

    def moments(self, signal: Signal) -> Signal:
        why = "a scaled signal that is not Gaussian"
        distribution = (
            signal.distribution
            if isinstance(signal.distribution, Gaussian)
            else Unknown(why, signal, self.factor < 0.0)
        )
        return replace(signal.times(self.factor), distribution=distribution)

    def covariance(self, points: Points, fold: Fold) -> PairwiseMap:
        factor, square = abs(self.factor), self.factor**2

        def step(tile: Tile) -> None:
            tile.scale(factor)
            if tile.t is not None:
                tile.t *= square

        after = replace(
            points,
            q=square * points.q,
            mean=self.factor * points.mean,
            before=None,
            phi=None,
            what=f"a scaled version of {points.what}",
            level=None if points.level is None else square * points.level,
        )
        return PairwiseMap(after, step, unchanged)

    def sampled_units(self, points: Points, known: bool) -> UnitMap:
        return same_map(lambda y: np.multiply(y, self.factor, out=y))

    def finite(self, before: FiniteSignal, after: Signal) -> FiniteSignal:
        return changed(before, signal=after)

    def point_sample(self, sample: PointSample) -> PointSample:
        return sample.with_values(self.factor * sample.values)

    def gradient(self, signal: Signal) -> float | None:
        return self.factor * self.factor

    def assumptions(self) -> Iterable[str]:
        return ()

    def tensors(self, place: Place) -> Local:
        factor = self.factor
        return Local(lambda x, scratch: x.mul_(factor), derivative=linear_derivative(factor))

    def source(self, at: SourceWriter) -> str:
        at.classes[AFFINE] = None
        return f"Affine(scale={number(self.factor)})"

    def module(self, place: Place, draw: Draw) -> nn.Module:
        from firstguess.network.torch_ops import Affine

        return Affine(self.factor, 0.0)

    @property
    def multiplier(self) -> float:
        return self.factor
