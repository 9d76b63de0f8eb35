"""BatchNorm, and subtraction of a batch's mean: every unit by its own statistics over the data, or over a batch."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, ClassVar, get_args

import numpy as np

from firstguess.base import checks
from firstguess.base.errors import InvalidInput, NotCovered
from firstguess.base.gaussian import Array, effective_directions, self_normalized, through_leaky
from firstguess.network import norms
from firstguess.network.finite_sample import PointSample, by_unit
from firstguess.network.finite_signal import FiniteSignal
from firstguess.network.layer import FLAT, IMAGE, Fold, Layer, ReadContext, ReadResult, keeps_shape, register
from firstguess.network.ops import ops
from firstguess.network.points import (
    AllPairsMap,
    ControlVariates,
    Done,
    Joint,
    Need,
    Points,
    Remark,
    UnitMap,
    Values,
    mean_of_pairs,
    same_map,
)
from firstguess.network.shapes import PositionGrid, Shape
from firstguess.network.signal import Gaussian, Signal, Unknown, exp
from firstguess.network.tensors import Draw, Local, OverData, Place, Scratch, SourceWriter, variance_of_others

_MANY = 2000.0  # directions from which on fluctuations of a unit's scale are below 1e-3 of the covariance


@register
class BatchNorm(norms.PointNorm):
    """Subtract a unit's mean over the data, divide by its standard deviation: (0, 0, 1), whatever came in.

    `batch` is the batch size B; None is the whole data set. With `estimator="usual"` the sample is inside its own
    batch, as in every framework; `"leave_one_out"` is what NORM (App. E.1) computes with. theory.md (5).
    """

    kind: ClassVar[str] = "batchnorm"
    batch: int | None = None
    estimator: norms.Estimator = "usual"

    def __post_init__(self) -> None:
        super().__post_init__()
        hint = "batchnorm(batch=16, estimator=leave_one_out)"
        checks.choice(self.estimator, get_args(norms.Estimator), "batchnorm", "estimator", hint=hint)
        if self.estimator == "leave_one_out" and (self.batch is None or self.batch < 5):
            expected = "a batch of at least 5 for the leave-one-out estimator (below, the variance is infinite)"
            got = "the whole data set" if self.batch is None else self.batch
            raise InvalidInput(expected, got=got, where="batchnorm", hint=hint)

    def shape(self, before: Shape, units: int | None) -> Shape:
        if before.images and self.estimator == "leave_one_out":
            raise InvalidInput("the usual estimator for a BatchNorm of images", got="leave_one_out", hint="batchnorm")
        return before

    def moments(self, signal: Signal) -> Signal:
        norms.check_spread(signal)
        spread = 1.0
        if self.estimator == "leave_one_out" and self.batch is not None:
            b = self.batch
            spread = b / (b - 1) * (b - 2) / (b - 4)  # variance of Student's t with B−2 degrees, times B/(B−1)
        if not isinstance(signal.distribution, Gaussian):
            # Without centers of their own, all units have the same statistics over the data.
            alike = signal if signal.between == 0.0 and self.batch is None else None
            return Signal(0.0, 0.0, spread, distribution=Unknown("a BatchNorm of a signal that is not Gaussian", alike))
        distribution = signal.distribution if self.batch is None else norms.BatchNormed(self.batch, self.estimator)
        return Signal(0.0, 0.0, spread, distribution=distribution)

    def covariance(self, points: Points, fold: Fold) -> AllPairsMap:
        """K ← HKH divided by its mean diagonal, H the centring over the data or over each batch: theory.md (11).

        That is for many directions; where a unit's own scale matters, units are sampled (`need`).
        """
        return AllPairsMap(lambda k, t: self._by_formula(points, k, t))

    def _rows(self, points: Points) -> int | None:
        """Rows of a batch: a channel's statistics are over positions too. None: all."""
        return None if self.batch is None else self.batch * points.grid.places

    def _by_formula(self, points: Points, k: Array, t: Array | None) -> Done:
        """BatchNorm of a whole covariance: where batches have many directions, or nodes are not Gaussian.

        A unit's variance over the data fluctuates from unit to unit by √(2/directions), directions being (tr C)²/tr C²
        of the centred covariance C. Over the whole data set the covariance takes that into account (exactly for
        Gaussian nodes); the next activation and the tangent kernel, and batches altogether, do not. The result says
        how large it is. Sampled units have no such error.
        """
        if self.estimator != "usual":
            expected = "Gaussian nodes (random weights before it) for the leave-one-out estimator"
            raise NotCovered(expected, got=points.what, hint="a dense layer before it, or estimator=usual")
        batch = self._rows(points)
        t, _, after = self._centred(points, k, t)
        n = k.shape[0]
        size = n if batch is None else batch
        directions = min(effective_directions(k[i : i + size, i : i + size]) for i in range(0, n, size))
        if batch is None and directions < _MANY:
            k = self_normalized(k)
            after = replace(after, q=k.diagonal().astype(np.float64))
        handled = (
            "the covariance allows for it, the next activation does not" if batch is None else "the kernel ignores it"
        )
        fluctuation = math.sqrt(2.0 / directions)
        remark = Remark(
            f"batchnorm: a node's variance over the data fluctuates by ±{fluctuation:.0%} "
            f"({directions:.0f} effective directions): {handled}",
            "batchnorm",
            fluctuation,
        )
        return Done(k, t, after, (remark,))

    def _centred(self, points: Points, k: Array, t: Array | None) -> tuple[Array | None, Array, Points]:
        """The tangent kernel, factors and points of a covariance that is centred (in place) over batches."""
        t, inverse = norms.centre_over_data(k, t, points.q, self._rows(points))
        what, n = f"a batchnorm of {points.what}", k.shape[0]
        q = k.diagonal().astype(np.float64)
        return t, inverse, points.after(self, q, np.zeros(n), gaussian=points.gaussian, what=what)

    def sampled_units(self, points: Points, known: bool) -> UnitMap:
        own = norms.over_batches(self._rows(points), leave_one_out=self.estimator == "leave_one_out")

        def settle(found: Array, known: Array) -> None:
            """A unit's mean square over a batch is 1 (0 where it is dead): nothing to estimate."""
            size = min(self._rows(points) or len(known), len(known))
            for start in range(0, len(known), size):
                rows = slice(start, start + size)
                scale = math.sqrt(float(known[rows].mean() / found.diagonal()[rows].mean()))
                found[rows] *= scale
                found[:, rows] *= scale

        return UnitMap(own, own, settle)

    def finite(self, before: FiniteSignal, after: Signal) -> FiniteSignal:
        if self.batch is not None:
            self._refuse("an expansion in 1/width, with batch=,")
        return before.normed_over_points(after)

    def point_sample(self, sample: PointSample) -> PointSample:
        """Normalize over the points, which then are a whole batch, or several."""
        self._check_last(self.batch or sample.points, sample.points)
        normed = norms.over_batches(self.batch, leave_one_out=self.estimator == "leave_one_out")
        return sample.with_values(by_unit(sample.values, normed))

    def control_variates(self, points: Points, k: Array, t: Array | None) -> ControlVariates:
        """One scale for all units, the root mean square one of every point's batch."""
        t, inverse, after = self._centred(points, k, t)
        size = self._rows(points)

        def control(y: Values) -> Values:
            for part in norms.columns(y, size):
                cut = part.reshape(y.shape[0], -1, norms.length_of(part, size))
                part -= np.repeat(cut.mean(axis=2), cut.shape[2], axis=1)
            y *= inverse.astype(y.dtype)
            return y

        return ControlVariates(control, t, after)

    def sampled(self, grid: PositionGrid) -> bool:
        return True

    def need(self, points: Points, k: Array) -> Need:
        """The batches' least number of effective directions, and the least share of the variance left."""
        return Need(*norms.effective(k, self._rows(points)), always=self.estimator == "leave_one_out")

    def exact(self, rest: Sequence[Layer]) -> bool:
        """The exact map over all data, with nothing bent after it: `base.gaussian`."""
        return self == BatchNorm() and all(x.affine for x in rest)

    def jointly(self, rest: Sequence[Layer]) -> Joint | None:
        """The map over all data, and of a piecewise linear activation: without sampling (`base.gaussian`)."""
        if self != BatchNorm() or len(rest) != 1 or (slopes := rest[0].leaky_slopes) is None:
            return None

        def run(points: Points, k: Array) -> tuple[float, Array, Array]:
            norms.centre_over_data(k, None, points.q, None)
            if points.grid.flat:  # a unit's values have mean square 1 and sum to 0
                off = -1.0 / (len(k) - 1)
            else:
                off = mean_of_pairs(self_normalized(k.copy()), replace(points, q=np.ones(len(k))))
            return off, *through_leaky(k, *slopes)

        return run

    def gradient(self, signal: Signal) -> float | None:
        # The statistics' own gradients vanish as 1/B; for finite B the exact factor is not known in closed form.
        return None if self.batch is not None else exp(-math.log(signal.spread) - signal.log_scale)

    def assumptions(self) -> Iterable[str]:
        if self.batch is None:
            yield "batchnorm: statistics over the whole data set"
        else:
            yield f"batchnorm: batches of {self.batch}, {self.estimator.replace('_', '-')} estimator"

    def tensors(self, place: Place) -> Local | OverData:
        """An operation over the data set, or over consecutive batches; a last, shorter one is normalized by itself."""
        usual = self.estimator == "usual"
        size, points = self.batch or place.batch, place.points
        images = place.before.images
        if size is None or (usual and points is not None and size >= points):
            return OverData(_terms_of_channels if images else _terms, lambda x, terms: x.sub_(terms[0]).mul_(terms[1]))
        self._check_last(size, points)

        def of_images(x: ops.Tensor, scratch: Scratch) -> ops.Tensor:
            for part in norms.batches(x, 0, size):
                ops.standardize(part, (1, 4, 5), scratch)
            return x

        def of_vectors(x: ops.Tensor, scratch: Scratch) -> ops.Tensor:
            for part in norms.batches(x, 2, size):
                if usual:
                    ops.standardize(part, (3,), scratch)
                else:
                    _leave_one_out(part)
            return x

        return Local(of_images if images else of_vectors, batch=size)

    def _check_last(self, size: int, points: int | None) -> None:
        least = 2 if self.estimator == "usual" else 5
        rest = (points or 0) % size
        if points is not None and 0 < rest < least:
            expected = f"a last batch of at least {least} points"
            hint = f"{points - rest} points, or another batch size"
            raise InvalidInput(expected, got=f"{points} points in batches of {size}", hint=hint)

    def source(self, at: SourceWriter) -> str:
        if self.batch is not None:
            self._refuse("PyTorch source, with batch=")
        return f"nn.BatchNorm1d({at.size})"

    def module(self, place: Place, draw: Draw) -> ops.nn.Module:
        """It uses the batch that it is given, or consecutive batches where their size is said."""
        if self.estimator == "leave_one_out":
            return ops.LeaveOneOutNorm(self.batch or 0)
        kind = ops.nn.BatchNorm2d if place.before.images else ops.nn.BatchNorm1d
        norm = kind(place.before.sizes[0], eps=ops.EPS, affine=False, track_running_stats=False)
        return norm if self.batch is None else ops.InBatches(norm, self.batch)

    modules = ("BatchNorm1d", "BatchNorm2d")

    @classmethod
    def from_module(cls, module: Any, context: ReadContext) -> ReadResult:
        needed = FLAT if context.claim == "BatchNorm1d" else IMAGE
        if context.axes not in (None, needed):
            return ReadResult(why=f"normalizes over an axis of positions ({context.axes} axes)")
        note = (
            "BatchNorm is described with all data as one batch, as in training; the batch size matters, and in "
            "evaluation mode an untrained BatchNorm does nothing"
        )
        return ReadResult((cls(),), axes=needed, notes=(note,), affine=True)


def _leave_one_out(part: ops.Tensor) -> None:
    """(u − mean')/sd' over the other B − 1 points: theory.md (5)."""
    b = part.shape[3]
    mean = part.sum(3, keepdim=True).div_(b)
    part.sub_(mean)
    variance = variance_of_others(part, part.square().sum(3, keepdim=True), b)
    part.mul_(ops.inverse_sd(variance, mean.expand_as(part))).mul_(b / (b - 1))


def _terms_of_channels(x: ops.Tensor, mean: ops.Tensor, variance: ops.Tensor) -> tuple[ops.Tensor, ...]:
    """Images are normalized by channel, as in every framework: a unit's statistics are pooled over positions."""
    means, variances = (m.view(*x.shape[1:3], -1) for m in (mean, variance))
    common = means.mean(2)
    spread = (variances + (means - common.unsqueeze(2)).square()).mean(2)
    return tuple(term[None, ..., None] for term in _terms(x, common, spread))


def _terms(x: ops.Tensor, mean: ops.Tensor, variance: ops.Tensor) -> tuple[ops.Tensor, ...]:
    """What is subtracted and multiplied by, (inits, units, 1), from unit statistics (inits, units)."""
    scale = (variance + ops.RELATIVE_EPS * mean.square() + float(np.finfo(np.float32).tiny)).rsqrt()
    return mean.to(x.dtype).unsqueeze(2), scale.to(x.dtype).unsqueeze(2)


@register
class BatchCenter(norms.PointNorm):
    """x − (its mean over the data), unit by unit; on images at every position by itself (IGB App. G.3).

    `batch` is the batch size B, None the whole data set. The map is linear, so the kernel and the tangent kernel are
    exact for units of any distribution: K ← HKH, Θ ← HΘH, with H the centring over the data or over each batch.
    """

    kind: ClassVar[str] = "batchcenter"
    batch: int | None = None

    shape = keeps_shape

    def moments(self, signal: Signal) -> Signal:
        """(0, 0, spread): the center goes. A batch of B keeps 1 − 1/B of the spread."""
        norms.check_spread(signal)
        spread = signal.spread * (1.0 if self.batch is None else 1.0 - 1.0 / self.batch)
        # without centers of their own, the same constant is subtracted from all units
        alike = signal if signal.between == 0.0 and self.batch is None else None
        distribution = signal.gaussian_or(Unknown("a batchcenter of a signal that is not Gaussian", alike))
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
                norms.centre_points(matrix, places, self.batch)
        norms.check_differ(k, points.q)
        mean = points.mean.reshape(points.count, places)
        cut = [mean[i : i + self._size(points.count)] for i in range(0, points.count, self._size(points.count))]
        mean = np.concatenate([part - part.mean(axis=0) for part in cut]).ravel()
        q = np.maximum(k.diagonal().astype(np.float64), 0.0)
        return points.after(self, q, mean, gaussian=points.gaussian, what=f"a batchcenter of {points.what}")

    def _size(self, points: int) -> int:
        return points if self.batch is None else self.batch

    def _check_last(self, points: int) -> None:
        if self.batch is not None and points % self.batch == 1:
            expected = "at least 2 points in every batch"
            hint = "a number of points that the batch size divides"
            raise NotCovered(expected, got=f"{points} points in batches of {self.batch}: a last one of 1", hint=hint)

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
        """Normalize over the points, which then are a whole batch, or several."""
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
        """An operation over the data set, or over consecutive batches; a last, shorter one is centred by itself."""
        size, points, images = self.batch or place.batch, place.points, place.before.images
        if size is None or (points is not None and size >= points):
            return OverData(
                lambda x, mean, _: ((mean.view(1, *x.shape[1:]) if images else mean.unsqueeze(2)).to(x.dtype),),
                lambda x, terms: x.sub_(*terms),
            )
        if points is not None:
            self._check_last(points)
        dim = 0 if images else 2

        def by_batches(x: ops.Tensor, scratch: Scratch) -> ops.Tensor:
            for part in norms.batches(x, dim, size):
                part.sub_(part.mean(dim + 1, keepdim=True))
            return x

        return Local(by_batches, batch=size)

    def module(self, place: Place, draw: Draw) -> ops.nn.Module:
        """It uses the batch that it is given, or consecutive batches where their size is said."""
        return ops.BatchCentre() if self.batch is None else ops.InBatches(ops.BatchCentre(), self.batch)

    @classmethod
    def read_modules(cls) -> tuple[str | type, ...]:
        return (ops.BatchCentre,)

    @classmethod
    def from_module(cls, module: Any, context: ReadContext) -> ReadResult:
        note = "batchcenter is described with all data as one batch: what it takes off depends on who is in the batch"
        return ReadResult((cls(),), notes=(note,))
