"""Subtraction of a batch's own mean: every unit is centred over the data, and keeps its scale."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy as np

from firstguess.base.checks import check_count
from firstguess.base.errors import NotCovered
from firstguess.base.gaussian import Array
from firstguess.network.finite_sample import PointSample
from firstguess.network.layer import Fold, Layer, Mix, ReadContext, ReadResult, Symmetry, keeps_shape, register
from firstguess.network.norms import batches, centre_points
from firstguess.network.points import AllPairsMap, ControlVariates, Done, Points, UnitMap, Values, same_map
from firstguess.network.signal import Gaussian, Signal, Unknown
from firstguess.network.tensors import Draw, Local, OverData, Place, Scratch

if TYPE_CHECKING:
    from torch import Tensor, nn


@register
@final
@dataclass(frozen=True)
class BatchCenter(Layer):
    """x − (its mean over the data), unit by unit; on images at every position by itself (IGB App. G.3).

    `batch` is the batch size B, None the whole data set. The map is linear, so the kernel and the tangent kernel are
    exact for units of any distribution: K ← HKH, Θ ← HΘH, with H the centring over the data or over each batch.
    """

    kind: ClassVar[str] = "batchcenter"
    weighted = False
    mixes = Mix.POINTS
    symmetry = Symmetry.REMOVES_MEAN
    breaks_gaussianity = False
    batch: int | None = None

    def __post_init__(self) -> None:
        check_count(self.batch, "batch", "batchcenter", low=2)

    shape = keeps_shape

    def moments(self, signal: Signal) -> Signal:
        """(0, 0, spread): the center goes. A batch of B keeps 1 − 1/B of the spread."""
        if signal.spread == 0.0:
            raise NotCovered(
                "data points that differ",
                got="a signal without variance over the data",
                hint="a larger weight variance before this layer",
            )
        spread = signal.spread * (1.0 if self.batch is None else 1.0 - 1.0 / self.batch)
        if isinstance(signal.distribution, Gaussian):
            return Signal(0.0, 0.0, spread, signal.log_scale, signal.distribution).rescaled()
        # without centers of their own, the same constant is subtracted all units
        alike = signal if signal.between == 0.0 and self.batch is None else None
        distribution = Unknown("a batchcenter of a signal that is not Gaussian", alike)
        return Signal(0.0, 0.0, spread, signal.log_scale, distribution).rescaled()

    def covariance(self, points: Points, fold: Fold) -> AllPairsMap:
        """K ← HKH and Θ ← HΘH, exactly: theory.md (11) without the division."""
        return AllPairsMap(lambda k, t: Done(k, t, self._centred(points, k, t)))

    def _centred(self, points: Points, k: Array, t: Array | None) -> Points:
        """What is known after it; both matrices are centred in place."""
        places = points.grid.places
        self._check_last(points.count)
        for matrix in (k, t):
            if matrix is not None:
                centre_points(matrix, places, self.batch)
        # what centring leaves of identical points is rounding
        if float(np.trace(k)) <= 64.0 * float(np.finfo(k.dtype).eps) * float(points.q.sum()):
            raise NotCovered(
                "data points that differ", got="a batch whose points are all alike", hint="drop duplicates"
            )
        mean = points.mean.reshape(points.count, places)
        cut = [mean[i : i + self._size(points.count)] for i in range(0, points.count, self._size(points.count))]
        mean = np.concatenate([part - part.mean(axis=0) for part in cut]).ravel()
        q = np.maximum(k.diagonal().astype(np.float64), 0.0)
        return points.after(self, q, mean, gaussian=points.gaussian, what=f"a batchcenter of {points.what}")

    def _size(self, points: int) -> int:
        return points if self.batch is None else self.batch

    def _check_last(self, points: int) -> None:
        if self.batch is not None and points % self.batch == 1:
            raise NotCovered(
                "at least 2 points in every batch",
                got=f"{points} points in batches of {self.batch}: a last one of 1",
                hint="a number of points that the batch size divides",
            )

    def sampled_units(self, points: Points, known: bool) -> UnitMap:
        places, size = points.grid.places, self._size(points.count)

        def centred(y: Values) -> Values:
            at = y.reshape(len(y), -1, places)
            for start in range(0, at.shape[1], size):
                part = at[:, start : start + size]
                part -= part.mean(axis=1, keepdims=True)
            return y

        return same_map(centred)

    def point_sample(self, sample: PointSample) -> PointSample:
        """Over the points, which then are a whole batch, or several."""
        self._check_last(sample.points)
        x = sample.values.copy()
        size = self._size(sample.points)
        for start in range(0, sample.points, size):
            x[:, start : start + size] -= x[:, start : start + size].mean(axis=1, keepdims=True)
        return sample.with_values(x)

    def control_variates(self, points: Points, k: Array, t: Array | None) -> ControlVariates:
        after = self._centred(points, k, t)
        return ControlVariates(self.sampled_units(points, known=True).control, t, after)

    def gradient(self, signal: Signal) -> float | None:
        # as for BatchNorm: what a point does to the mean of its batch vanishes as 1/B
        return None if self.batch is not None else 1.0

    def assumptions(self) -> Iterable[str]:
        over = "the whole data set" if self.batch is None else f"batches of {self.batch}"
        yield f"batchcenter: means over {over}"

    def tensors(self, place: Place) -> Local | OverData:
        """Over the whole data set, or over consecutive batches; a last, shorter one is centred by itself."""
        size, points, images = self.batch or place.batch, place.points, place.before.images
        if size is None or (points is not None and size >= points):
            return OverData(_mean_of_images if images else _mean_of_nodes, lambda x, terms: x.sub_(terms[0]))
        if points is not None:
            self._check_last(points)
        dim = 0 if images else 2

        def by_batches(x: Tensor, scratch: Scratch) -> Tensor:
            for part in batches(x, dim, size):
                part.sub_(part.mean(dim + 1, keepdim=True))
            return x

        return Local(by_batches, batch=size)

    def module(self, place: Place, draw: Draw) -> nn.Module:
        """It uses the batch that it is given, or consecutive batches where their size is said."""
        from firstguess.network.torch_ops import BatchCentre, InBatches

        return BatchCentre() if self.batch is None else InBatches(BatchCentre(), self.batch)

    @classmethod
    def read_modules(cls) -> tuple[str | type, ...]:
        from firstguess.network.torch_ops import BatchCentre

        return (BatchCentre,)

    @classmethod
    def from_module(cls, module: Any, context: ReadContext) -> ReadResult:
        note = "batchcenter is described with all data as one batch: what it takes off depends on who is in the batch"
        return ReadResult((cls(),), notes=(note,))


def _mean_of_nodes(x: Tensor, mean: Tensor, variance: Tensor) -> tuple[Tensor, ...]:
    """Unit means (inits, units) in the layout of vectors."""
    return (mean.unsqueeze(2).to(x.dtype),)


def _mean_of_images(x: Tensor, mean: Tensor, variance: Tensor) -> tuple[Tensor, ...]:
    """The same for images: (1, inits, channels, height, width)."""
    return (mean.view(1, *x.shape[1:]).to(x.dtype),)
