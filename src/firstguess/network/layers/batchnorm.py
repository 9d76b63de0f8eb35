"""BatchNorm: every node is centred and scaled by its own statistics over the data, or over a batch of it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, final

import numpy as np

from firstguess.base import gaussian
from firstguess.base.checks import check_count
from firstguess.base.errors import InvalidInput, NotCovered
from firstguess.base.self_normalized import effective_directions, self_normalized
from firstguess.network.grid import Shape
from firstguess.network.layer import Layer, Meaning, Mix, Parity, register
from firstguess.network.meaning import FLAT, IMAGE, Site
from firstguess.network.points import Points, Remark, Whole
from firstguess.network.signal import Activated, Gaussian, Signal, Unknown, exp

if TYPE_CHECKING:
    from firstguess.network.activations.record import Activation

Estimator = Literal["usual", "leave_one_out"]
WholeResult = tuple[gaussian.Array, gaussian.Array | None, Points, tuple[str, ...]]
_MANY = 2000.0  # directions from which on fluctuations of a node's scale are below 1e-3 of the covariance


@register
@final
@dataclass(frozen=True)
class BatchNorm(Layer):
    """Subtract a node's mean over the data, divide by its standard deviation: (0, 0, 1), whatever came in.

    `batch` is the batch size B; None is the whole data set. With `estimator="usual"` the sample is inside its own
    batch, as in every framework; `"leave_one_out"` is what NORM (App. E.1) computes with. theory.md (5).
    """

    kind: ClassVar[str] = "batchnorm"
    weighted = False
    mixes = Mix.POINTS
    parity = Parity.CENTRES
    bends = False
    batch: int | None = None
    estimator: Estimator = "usual"

    def __post_init__(self) -> None:
        check_count(self.batch, "batch", "batchnorm", low=2)
        if self.estimator not in ("usual", "leave_one_out"):
            raise InvalidInput(
                "estimator to be usual or leave_one_out",
                got=self.estimator,
                where="batchnorm",
                hint="batchnorm(batch=16, estimator=leave_one_out)",
            )
        if self.estimator == "leave_one_out" and (self.batch is None or self.batch < 5):
            raise InvalidInput(
                "a batch of at least 5 for the leave-one-out estimator (below, the variance is infinite)",
                got="the whole data set" if self.batch is None else self.batch,
                where="batchnorm",
                hint="batchnorm(batch=16, estimator=leave_one_out)",
            )

    def shape(self, before: Shape, units: int | None) -> Shape:
        if before.drawn and before.images and self.estimator == "leave_one_out":
            raise InvalidInput("the usual estimator for a BatchNorm of images", got="leave_one_out", hint="batchnorm")
        return before

    def moments(self, signal: Signal) -> Signal:
        if signal.spread == 0.0:
            raise NotCovered(
                "data points that differ",
                got="a signal without variance over the data",
                hint="a larger weight variance before this layer",
            )
        spread = 1.0
        if self.estimator == "leave_one_out" and self.batch is not None:
            b = self.batch
            spread = b / (b - 1) * (b - 2) / (b - 4)  # variance of Student's t with B−2 degrees, times B/(B−1)
        if not isinstance(signal.law, Gaussian):
            # Without centers of their own, all nodes have the same statistics over the data.
            alike = signal if signal.between == 0.0 and self.batch is None else None
            return Signal(0.0, 0.0, spread, law=Unknown("a BatchNorm of a signal that is not Gaussian", alike))
        law = Gaussian() if self.batch is None else BatchLaw(self.batch, self.estimator)
        return Signal(0.0, 0.0, spread, law=law)

    def covariance(self, points: Points) -> tuple[Points, Whole]:
        """K ← HKH divided by its mean diagonal, H the centring over the data or over each batch: theory.md (11).

        That is for many directions; `carry` has sampled nodes where a node's own scale matters (`kernel_nodes`).
        """

        def run(k: gaussian.Array, t: gaussian.Array | None) -> WholeResult:
            if self.estimator != "usual":
                raise NotCovered(
                    "Gaussian nodes (random weights in front) for the leave-one-out estimator",
                    got=points.what,
                    hint="a dense layer before it, or estimator=usual",
                )
            return normalize_over_data(k, t, points, self.batch)

        return points, Whole(run)

    def gradient(self, signal: Signal) -> float | None:
        # The statistics' own gradients vanish as 1/B; for finite B the exact factor is not known in closed form.
        return None if self.batch is not None else exp(-math.log(signal.spread) - signal.log_scale)

    def assumptions(self) -> Iterable[str]:
        if self.batch is None:
            yield "batchnorm: statistics over the whole data set"
        else:
            yield f"batchnorm: batches of {self.batch}, {self.estimator.replace('_', '-')} estimator"

    modules = ("BatchNorm1d", "BatchNorm2d")

    @classmethod
    def from_module(cls, module: Any, site: Site) -> Meaning:
        needed = FLAT if site.claim == "BatchNorm1d" else IMAGE
        if site.axes not in (None, needed):
            return Meaning(why=f"normalizes over an axis of positions ({site.axes} axes)")
        note = (
            "BatchNorm is described with all data as one batch, as in training; the batch size matters (theory.md "
            "(5)), and in evaluation mode an untrained BatchNorm does nothing"
        )
        return Meaning((cls(),), axes=needed, notes=(note,), affine=True)


def centre_over_data(
    k: gaussian.Array, t: gaussian.Array | None, points: Points, batch: int | None
) -> tuple[gaussian.Array | None, gaussian.Array, Points]:
    """Centre a whole covariance (in place) over batches of consecutive points, and divide by its mean diagonal there.

    Returns the tangent kernel, the factors, and the points. All nodes are divided by one scale, their root mean square.
    """
    n = k.shape[0]
    size = n if batch is None else batch
    scale = np.empty(n)
    starts = list(range(0, n, size))
    for start in starts:
        rows = slice(start, min(start + size, n))
        if rows.stop - rows.start < 2:
            raise NotCovered(
                "at least 2 points in every batch",
                got=f"a last batch of {rows.stop - rows.start}",
                hint="a number of points that the batch size divides",
            )
        k[rows] -= k[rows].mean(axis=0)
    for start in starts:
        cols = slice(start, min(start + size, n))
        k[:, cols] -= k[:, cols].mean(axis=1, keepdims=True)
        trace = float(np.trace(k[cols, cols]))
        # what centring leaves of identical points is rounding
        if trace <= 64.0 * float(np.finfo(k.dtype).eps) * float(points.q[cols].sum()):
            raise NotCovered(
                "data points that differ", got="a batch whose points are all alike", hint="drop duplicates"
            )
        scale[cols] = math.sqrt(trace / (cols.stop - cols.start))
    inverse = 1.0 / scale
    k *= inverse[:, None]
    k *= inverse[None, :]
    if t is not None:
        if batch is not None:
            raise NotCovered(
                "BatchNorm over the whole data set for the tangent kernel",
                got=f"batches of {batch}",
                hint="batchnorm without batch=",
            )
        t = _tangent(k, t, inverse)
    what = f"a batchnorm of {points.what}"
    q = k.diagonal().astype(np.float64)
    return t, inverse, Points(q, np.zeros(n), points.gaussian, points.width, points.width_after, what=what)


def normalize_over_data(k: gaussian.Array, t: gaussian.Array | None, points: Points, batch: int | None) -> WholeResult:
    """BatchNorm of a whole covariance by formula: where batches have many directions, or nodes are not Gaussian.

    A node's variance over the data fluctuates from node to node by √(2/directions), directions being (tr C)²/tr C² of
    the centred covariance C. Over the whole data set the covariance takes that into account (exactly for Gaussian
    nodes); the next activation and the tangent kernel, and batches altogether, do not. The result says how large it is.
    `kernel_nodes.by_nodes` has no such error.
    """
    t, _, after = centre_over_data(k, t, points, batch)
    n = k.shape[0]
    size = n if batch is None else batch
    directions = min(effective_directions(k[i : i + size, i : i + size]) for i in range(0, n, size))
    if batch is None and directions < _MANY:
        k = self_normalized(k)
        after = replace(after, q=k.diagonal().astype(np.float64))
    handled = "the covariance allows for it, the next activation does not" if batch is None else "the kernel ignores it"
    fluctuation = math.sqrt(2.0 / directions)
    remark = Remark(
        f"batchnorm: a node's variance over the data fluctuates by ±{fluctuation:.0%} "
        f"({directions:.0f} effective directions): {handled}",
        "batchnorm",
        fluctuation,
    )
    return k, t, after, (remark,)


def _tangent(k: gaussian.Array, t: gaussian.Array, inverse: gaussian.Array) -> gaussian.Array:
    """E[JΘJᵀ] with J = (H − yyᵀ/n)/σ, y ~ N(0, K) the normalized node: Gaussian fourth moments."""
    n = k.shape[0]
    t -= t.mean(axis=0)
    t -= t.mean(axis=1, keepdims=True)
    t *= inverse[:, None]
    t *= inverse[None, :]
    product = k @ t
    return t - (product + product.T) / n + (k * np.trace(product) + 2.0 * product @ k) / n**2


@dataclass(frozen=True)
class BatchLaw:
    """A Gaussian node normalized over a batch of B: û²/(B−1) ~ Beta(½, (B−2)/2); leave-one-out: Student's t."""

    batch: int
    estimator: Estimator

    def activate(self, signal: Signal, phi: Activation) -> Signal:
        if self.estimator == "leave_one_out":
            far, near = (float(np.max(np.abs(gaussian.evaluate(phi.rise, np.array([-x, x]))))) for x in (1e6, 1e3))
            if near > 0.0 and 2.0 * math.log(max(far, near) / near) / math.log(1e3) > self.batch - 2.5:
                raise NotCovered(
                    "an activation whose mean square exists: Student's t with B − 2 degrees has heavy tails",
                    got=f"{phi} after a leave-one-out batchnorm of {self.batch}",
                    hint="a larger batch, or estimator=usual",
                )
        u, w = self.rule(phi.features)
        f = gaussian.evaluate(phi.rise, u)
        mean = float(np.sum(w * f))
        spread = float(np.sum(w * (f - mean) ** 2))
        # At fixed weights no node has a center of its own: all batches are alike.
        return Signal(0.0 if phi.centered else phi.offset + mean, 0.0, spread, law=Activated(signal, phi))

    def mean_square_slope(self, signal: Signal, phi: Activation) -> float | None:
        return None

    def rule(self, features: Iterable[gaussian.Feature]) -> tuple[gaussian.Array, gaussian.Array]:
        """Quadrature nodes and weights of the normalized value."""
        b = self.batch
        if b == 2:
            return np.array([-1.0, 1.0]), np.array([0.5, 0.5])
        usual = self.estimator == "usual"
        # û = √(B−1) sin α with density ∝ cos^{B−3} α; Student: û' = √(B/(B−1)) √(B−2) tan α, density ∝ cos^{B−3} α
        stretch = math.sqrt(b - 1) if usual else math.sqrt(b / (b - 1) * (b - 2))
        limit = min(math.pi / 2, 2.0 * gaussian.REACH / math.sqrt(b))
        edges = [np.linspace(-limit, limit, 17)]
        if not usual:  # heavy tails: a wave such as sin is followed to where the mass beyond is 1e-10
            reach = min(stretch * 10.0 ** (10.0 / (b - 2)), 5000.0)
            edges.append(np.arctan(np.arange(-reach, reach, 4.0) / stretch))
        for feature in features:
            points = (feature.at + gaussian.graded(feature.width, 60.0 + abs(feature.at))) / stretch
            edges.append(np.arcsin(np.clip(points, -1.0, 1.0)) if usual else np.arctan(points))
        alpha, half = gaussian.panels(np.sort(np.clip(np.concatenate(edges), -limit, limit)))
        log_density = (b - 3) * np.log(np.maximum(np.cos(alpha), 1e-300))
        w = half * np.exp(log_density)
        u = stretch * (np.sin(alpha) if usual else np.tan(alpha))
        return u, w / w.sum()
