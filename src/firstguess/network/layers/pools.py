"""Pools over units or positions: the largest, or the mean."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import ClassVar

import numpy as np
from numpy.polynomial import chebyshev

from firstguess.base.errors import InvalidInput, NotCovered
from firstguess.base.gaussian import Array
from firstguess.network import pooling
from firstguess.network.activations.record import Activation
from firstguess.network.activations.registry import activation
from firstguess.network.layer import FLAT, IMAGE, Call, Fold, ReadContext, ReadResult, Symmetry, register
from firstguess.network.points import Need, PairwiseMap, Points, Tile, UnitMap, same_map
from firstguess.network.pooling import UnitPool
from firstguess.network.shapes import PositionGrid, Shape
from firstguess.network.signal import Activated, Gaussian, Largest, Signal, Unknown

_LARGEST = 1_000_000


@register
class MaxPool(UnitPool):
    """The largest of K nodes, each φ of a Gaussian: theory.md (9). Needs a φ that never decreases.

    It creates bias (the mean of a maximum is not 0) and amplifies it; γ grows with K. On images a pool is of k×k = K
    positions; `stride` (k if None) and `padding` matter to the readings that see images.
    """

    kind: ClassVar[str] = "maxpool"
    symmetry = Symmetry.NONE
    breaks_gaussianity = True
    least = (("padding", 0),)
    reduce = "max"
    size: int = 2
    stride: int | None = None
    padding: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if 2 * self.padding > self.side:
            expected = "padding of at most half the side of a pool"
            raise InvalidInput(expected, got=self.padding, where="maxpool", hint="maxpool(9, 2, 1)")
        if self.size > _LARGEST:  # quadrature reaches 9.5 standard deviations; the largest of 10⁶ nodes lies at 4.9
            raise InvalidInput(f"a pool of at most {_LARGEST} nodes", got=self.size, where="maxpool", hint="maxpool(4)")

    def text(self) -> str:
        more = [f"stride={self.stride}"] if self.stride is not None else []
        more += [f"padding={self.padding}"] if self.padding else []
        return f"maxpool({', '.join([str(self.size), *more])})"

    @property
    def apart(self) -> bool:
        """Whether pools lie side by side, without overlap, gaps or padding."""
        return self.padding == 0 and self.stride in (None, self.side)

    def shape(self, before: Shape, units: int | None) -> Shape:
        if before.drawn and not before.images and not self.apart:
            hint = f"maxpool({self.size})"
            raise InvalidInput("pools of nodes side by side where there are no images", got=self.text(), hint=hint)
        return super().shape(before, units)

    def moments(self, signal: Signal) -> Signal:
        if self.size == 1:
            return signal
        before, phi = self._source(signal)
        distribution = Largest(before, phi, self.size)
        line = phi.asymptote(before.log_q)
        offset, phi = (line.offset, replace(line, offset=0.0)) if line is not None else (0.0, phi)
        log_scale = 0.0
        if phi.degree is not None:
            log_scale = phi.degree * before.log_scale
        elif abs(before.log_q) > 600.0:
            raise before.beyond_float(phi)
        else:
            before = before.at_scale(0.0)
        m = pooling.max_moments(phi, self.size, before.between, before.spread)
        if phi.centered:  # the constant that was subtracted each unit comes off their maximum
            plain = replace(phi, centered=False).moments(0.0, before.between + before.spread)
            m = m._replace(mean=m.mean - plain.mean)
            offset = 0.0
        if offset == 0.0:
            return Signal(*m, log_scale, distribution).rescaled()
        unit = Signal(*m, log_scale).at_scale(0.0)
        return replace(unit, mean=offset + unit.mean, distribution=distribution)

    def covariance(self, points: Points, fold: Fold) -> PairwiseMap:
        """E[M_a M_b] as a series in θ = arccos c: for pairs of equal variance, or of any where φ is scale-free."""
        if self.size == 1:
            return PairwiseMap(points, lambda tile: None)
        if points.shape.images:
            raise NotCovered(
                "a max-pool over positions in a stretch of layers right after a conv, and no tangent kernel "
                "(neighbours are correlated: their maximum has no formula, it is sampled)",
                got=self.text(),
                hint=f"avgpool({self.size}), or the ensemble reading: fg.measure(...)",
            )
        if not self.apart:
            raise NotCovered("pools of nodes side by side", got=self.text(), hint=f"maxpool({self.size})")
        before, phi = self._points_source(points)
        scale_free = phi.degree == 1
        if not scale_free and np.ptp(before.q) > 1e-12 * before.q.max():
            expected = "points of one size before a max-pool, or a scale-free activation"
            hint = "a layernorm or rmsnorm before the activation, or the ensemble reading"
            raise NotCovered(expected, got=f"{phi} on points whose variances differ", hint=hint)
        unit = 1.0 if scale_free else float(before.q[0])
        root = np.sqrt(before.q / unit)
        values, slopes, mean, square = pooling.max_series(phi, self.size, unit)

        def step(tile: Tile) -> None:
            k, t = tile.k, tile.t
            if not points.gaussian:
                if tile.previous is None:  # the output of an activation is not what it was made from
                    expected = "the covariance before the activation, for a max-pool to look after it"
                    hint = "the ensemble reading, fg.measure(...), or average-pooling"
                    raise NotCovered(expected, got=points.what, hint=hint)
                k, t = tile.previous
            scale = tile.outer(root)
            at = np.arccos(np.clip(k / (unit * scale), -1.0, 1.0)) * (2.0 / math.pi) - 1.0
            tile.k = chebyshev.chebval(at, values) * scale
            tile.t = None if t is None else t * chebyshev.chebval(at, slopes)

        what = "the maximum of several nodes"
        after = points.after(self, square * root**2, mean * root, gaussian=False, what=what)
        return PairwiseMap(after, step, needs_previous=not points.gaussian)

    def sampled_units(self, points: Points, known: bool) -> UnitMap:
        if self.apart or not points.shape.images:
            return super().sampled_units(points, known)
        return same_map(pooling.pool_overlapping(self.size, self.stride or self.side, self.padding, points.grid))

    def sampled(self, grid: PositionGrid) -> bool:
        return self.size > 1 and not grid.flat and not grid.apart

    def need(self, points: Points, k: Array) -> Need:
        return Need(always=self.sampled(points.grid))

    def _points_source(self, points: Points) -> tuple[Points, Activation]:
        if points.gaussian and not points.mean.any():
            return points, activation("linear")
        before, phi = points.before, points.phi
        if before is None or phi is None or phi.centered or not phi.nondecreasing or phi.jumps:
            expected = "a max-pool right after random weights or an activation that never decreases"
            hint = "the ensemble reading, fg.measure(...), or average-pooling"
            raise NotCovered(expected, got=points.what, hint=hint)
        return before, phi

    def gradient(self, signal: Signal) -> float | None:
        if self.size == 1:
            return 1.0
        before, phi = self._source(signal)
        phi = phi.asymptote(before.log_q) or phi
        q = 1.0 if phi.degree == 1 else before.q
        # The activation before has counted E φ'² already; together they are E φ'(max)².
        single = phi.mean_square_slope(q)
        return pooling.max_mean_square_slope(phi, self.size, q) / single if math.isfinite(single) else None

    def _source(self, signal: Signal) -> tuple[Signal, Activation]:
        distribution = signal.distribution
        if isinstance(distribution, Gaussian) and signal.mean == 0.0:
            return signal, activation("linear")
        if (
            isinstance(distribution, Activated)
            and isinstance(distribution.before.distribution, Gaussian)
            and distribution.before.mean == 0.0
        ):
            if distribution.phi.nondecreasing and not distribution.phi.jumps:
                return distribution.before, distribution.phi
            expected = "an activation that never decreases before a max-pool"
            hint = "the ensemble reading, fg.measure(...), or average-pooling"
            raise NotCovered(expected, got=str(distribution.phi), hint=hint)
        expected = "a max-pool right after random weights or an activation"
        hint = "the ensemble reading, fg.measure(...), or put the max-pool right after the activation"
        raise NotCovered(expected, got=getattr(distribution, "why", "another signal"), hint=hint)

    modules = ("MaxPool1d", "MaxPool2d", "AdaptiveMaxPool2d")
    calls = ("F.max_pool2d",)


@register
class AvgPool(UnitPool):
    """The mean of K units: what is common to them stays, what differs between them is divided by K (theory.md §2)."""

    kind: ClassVar[str] = "avgpool"
    symmetry = Symmetry.LINEAR
    breaks_gaussianity = False
    reduce = "mean"
    size: int = 2

    def text(self) -> str:
        return f"avgpool({self.size})"

    def moments(self, signal: Signal) -> Signal:
        distribution = signal.gaussian_or(Unknown("an average of nodes that are not Gaussian"))
        return replace(
            signal, between=signal.between / self.size, spread=signal.spread / self.size, distribution=distribution
        ).rescaled()

    def covariance(self, points: Points, fold: Fold) -> PairwiseMap:
        """K ← K/K_pool + (1 − 1/K_pool)·m_a m_b for independent units, Θ ← Θ/K_pool; on images means over windows."""
        if points.shape.images:
            return self._over_positions(points, fold)
        share, mean = 1.0 / self.size, points.mean

        def step(tile: Tile) -> None:
            tile.k *= share
            tile.k += (1.0 - share) * tile.outer(mean)
            if tile.t is not None:
                tile.t *= share

        q = share * points.q + (1.0 - share) * mean**2
        what = f"an average of {points.what}"
        return PairwiseMap(points.after(self, q, mean, gaussian=points.gaussian, what=what), step)

    def _over_positions(self, points: Points, fold: Fold) -> PairwiseMap:
        shape, side = self.shape(points.shape, None), self.side
        assert shape.grid is not None
        grid, after = points.grid, shape.grid
        high, wide = (length * side for length in after.sides)  # what is left over at the border is not pooled
        windows = after.sides[0], side, after.sides[1], side

        def pooled(k: Array) -> Array:
            a, b = k.shape[0] // grid.places, k.shape[1] // grid.places
            old = k.reshape(a, *grid.sides, b, *grid.sides)[:, :high, :wide, :, :high, :wide]
            both = old.reshape(a, *windows, b, *windows)
            return both.mean(axis=(2, 4, 7, 9)).reshape(a * after.places, b * after.places)

        def step(tile: Tile) -> None:
            images = grid.points(tile.rows), grid.points(tile.cols)
            tile.k = pooled(tile.k)
            tile.t = None if tile.t is None else pooled(tile.t)
            tile.rows, tile.cols = after.rows(images[0]), after.rows(images[1])

        # The variance of a mean wants the covariances within an image: each image's own tile so far, one at a time.
        q = np.concatenate([pooled(fold.within(i)).diagonal() for i in range(points.count)])
        mean = points.mean.reshape(-1, *grid.sides)[:, :high, :wide].reshape(-1, *windows).mean(axis=(2, 4)).ravel()
        what = f"an average of {points.what}"
        return PairwiseMap(points.after(self, q, mean, gaussian=points.gaussian, what=what), step)

    def gradient(self, signal: Signal) -> float | None:
        return 1.0 / self.size  # Σ_k (1/K)²

    modules = ("AvgPool1d", "AvgPool2d", "AdaptiveAvgPool2d")
    calls = ("F.avg_pool2d", "F.adaptive_avg_pool2d", "torch.mean", "Tensor.mean")

    @classmethod
    def from_call(cls, call: Call, context: ReadContext) -> ReadResult:
        if context.claim == "F.avg_pool2d":
            return super().from_call(call, context)
        if context.claim == "F.adaptive_avg_pool2d":
            return pooling.pool_to(cls, call.argument(1, "output_size", None), context)
        axes = call.argument(1, "dim", None)
        axes = tuple(sorted(a % IMAGE for a in axes)) if isinstance(axes, (tuple, list)) else axes
        if axes != (2, 3) or (context.axes or IMAGE) != IMAGE:
            return ReadResult(why="an average over other axes than the positions of images")
        pooled = pooling.pool_to(cls, 1, context)
        kept = call.argument(2, "keepdim", False)
        return pooled if pooled.why else ReadResult(pooled.layers, axes=IMAGE if kept else FLAT)
