"""Addition of a constant."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, final

import numpy as np

from firstguess.base.checks import check_number
from firstguess.base.text import number
from firstguess.network.activations.tensors import linear_derivative
from firstguess.network.finite_sample import PointSample
from firstguess.network.layer import Fold, Layer, Mix, Symmetry, keeps_shape, register
from firstguess.network.points import PairwiseMap, Points, Tile, UnitMap, same_map
from firstguess.network.signal import Gaussian, Signal, Unknown
from firstguess.network.tensors import AFFINE, Draw, Local, Place, SourceWriter

if TYPE_CHECKING:
    from torch import nn


@register
@final
@dataclass(frozen=True)
class Shift(Layer):
    """x + β on every unit: any activation can be given bias, or cured of it, this way (theory.md §4)."""

    kind: ClassVar[str] = "shift"
    weighted = False
    mixes = Mix.NOTHING
    symmetry = Symmetry.SHIFTS
    breaks_gaussianity = False
    by_token = True
    by: float = 0.0

    def __post_init__(self) -> None:
        check_number(self.by, "by", "shift", low=-math.inf, hint="shift(0.5)")

    def text(self) -> str:
        return f"shift({number(self.by)})"

    shape = keeps_shape

    def moments(self, signal: Signal) -> Signal:
        if self.by == 0.0:
            return signal
        distribution = (
            signal.distribution
            if isinstance(signal.distribution, Gaussian)
            else Unknown("a shifted signal that is not Gaussian", signal)
        )
        if signal.log_scale > 0.0:  # a huge signal: write the constant in its units
            return replace(
                signal, mean=signal.mean + self.by * math.exp(-0.5 * signal.log_scale), distribution=distribution
            )
        unit = signal.at_scale(0.0)
        return replace(unit, mean=unit.mean + self.by, distribution=distribution)

    def covariance(self, points: Points, fold: Fold) -> PairwiseMap:
        by, mean = self.by, points.mean

        def step(tile: Tile) -> None:
            tile.k += by * (mean[tile.rows, None] + mean[None, tile.cols] + by)

        after = replace(
            points,
            q=points.q + by * (2.0 * mean + by),
            mean=mean + by,
            before=None,
            phi=None,
            what=f"a shifted version of {points.what}",
        )
        return PairwiseMap(after, step)

    def sampled_units(self, points: Points, known: bool) -> UnitMap:
        return same_map(lambda y: np.add(y, self.by, out=y))

    def point_sample(self, sample: PointSample) -> PointSample:
        return sample.with_values(sample.values + self.by)

    def gradient(self, signal: Signal) -> float | None:
        return 1.0

    def assumptions(self) -> Iterable[str]:
        return ()

    def tensors(self, place: Place) -> Local:
        by = self.by
        return Local(lambda x, scratch: x.add_(by), derivative=linear_derivative(1.0, by))

    def source(self, at: SourceWriter) -> str:
        at.classes[AFFINE] = None
        return f"Affine(shift={number(self.by)})"

    def module(self, place: Place, draw: Draw) -> nn.Module:
        from firstguess.network.torch_ops import Affine

        return Affine(1.0, self.by)
