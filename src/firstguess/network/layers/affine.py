"""Multiplication by a constant, and addition of one."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import ClassVar

import numpy as np

from firstguess.base.record import changed
from firstguess.base.text import number
from firstguess.network.finite_sample import PointSample
from firstguess.network.finite_signal import FiniteSignal
from firstguess.network.layer import Fold, Layer, Mix, Symmetry, keeps_shape, nothing_assumed, register
from firstguess.network.ops import ops
from firstguess.network.points import PairwiseMap, Points, Tile, UnitMap, same_map, unchanged
from firstguess.network.signal import Signal, Unknown
from firstguess.network.tensors import AFFINE, Draw, Local, Place, SourceWriter


class UnitAffine(Layer):
    """factor · x + by on every unit, of which a kind has one: what they share."""

    weighted = False
    mixes = Mix.NOTHING
    breaks_gaussianity = False
    example = "0.5"
    by_token = True
    factor: float = 1.0
    by: float = 0.0

    shape = keeps_shape
    assumptions = nothing_assumed

    def sampled_units(self, points: Points, known: bool) -> UnitMap:
        return same_map(lambda y: np.add(np.multiply(y, self.factor, out=y), self.by, out=y))

    def point_sample(self, sample: PointSample) -> PointSample:
        return sample.with_values(self.factor * sample.values + self.by)

    def gradient(self, signal: Signal) -> float | None:
        return self.factor * self.factor

    def tensors(self, place: Place) -> Local:
        factor, by = self.factor, self.by
        return Local(lambda x, scratch: x.add_(by) if factor == 1.0 else x.mul_(factor))

    def source(self, at: SourceWriter) -> str:
        at.classes[AFFINE] = None
        return f"Affine({self.text().replace('(', '=').rstrip(')')})"

    def module(self, place: Place, draw: Draw) -> ops.nn.Module:
        return ops.Affine(self.factor, self.by)


@register
class Scale(UnitAffine):
    """α x."""

    kind: ClassVar[str] = "scale"
    symmetry = Symmetry.LINEAR
    least = (("factor", -math.inf),)
    factor: float = 1.0

    def text(self) -> str:
        return f"scale({number(self.factor)})"

    @property
    def multiplier(self) -> float:
        return self.factor

    def moments(self, signal: Signal) -> Signal:
        distribution = signal.gaussian_or(Unknown("a scaled signal that is not Gaussian", signal, self.factor < 0.0))
        return replace(signal.times(self.factor), distribution=distribution)

    def covariance(self, points: Points, fold: Fold) -> PairwiseMap:
        factor, square = abs(self.factor), self.factor**2

        def step(tile: Tile) -> None:
            tile.scale(factor)
            if tile.t is not None:
                tile.t *= square

        what = f"a scaled version of {points.what}"
        level = None if points.level is None else square * points.level
        mean = self.factor * points.mean
        after = replace(points, before=None, phi=None, q=square * points.q, mean=mean, what=what, level=level)
        return PairwiseMap(after, step, unchanged)

    def finite(self, before: FiniteSignal, after: Signal) -> FiniteSignal:
        return changed(before, signal=after)


@register
class Shift(UnitAffine):
    """x + β on every unit: any activation can be given bias, or cured of it, this way (theory.md §4)."""

    kind: ClassVar[str] = "shift"
    symmetry = Symmetry.SHIFTS
    least = (("by", -math.inf),)
    by: float = 0.0

    def text(self) -> str:
        return f"shift({number(self.by)})"

    def moments(self, signal: Signal) -> Signal:
        if self.by == 0.0:
            return signal
        distribution = signal.gaussian_or(Unknown("a shifted signal that is not Gaussian", signal))
        if signal.log_scale > 0.0:  # a huge signal: write the constant in its units
            by = self.by * math.exp(-0.5 * signal.log_scale)
            return replace(signal, mean=signal.mean + by, distribution=distribution)
        unit = signal.at_scale(0.0)
        return replace(unit, mean=unit.mean + self.by, distribution=distribution)

    def covariance(self, points: Points, fold: Fold) -> PairwiseMap:
        by, mean = self.by, points.mean

        def step(tile: Tile) -> None:
            tile.k += by * (mean[tile.rows, None] + mean[None, tile.cols] + by)

        q = points.q + by * (2.0 * mean + by)
        after = replace(points, before=None, phi=None, q=q, mean=mean + by, what=f"a shifted version of {points.what}")
        return PairwiseMap(after, step)
