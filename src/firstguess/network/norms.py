"""What norms share: over units (LayerNorm, GroupNorm with wide groups, RMSNorm), and over the points of a batch."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Literal

import numpy as np
from scipy import special

from firstguess.base import gaussian
from firstguess.base.errors import NotCovered
from firstguess.base.gaussian import Array
from firstguess.network.activations.kernels import leaky_slopes
from firstguess.network.activations.record import Activation, sine_minus
from firstguess.network.finite_sample import PointSample
from firstguess.network.finite_signal import FiniteSignal
from firstguess.network.layer import Fold, Layer, Mix, ReadContext, ReadResult, Symmetry, keeps_shape, nothing_assumed
from firstguess.network.ops import ops
from firstguess.network.points import Op, PairwiseMap, Points, Tile, UnitMap, Values, same_map, take_level, unchanged
from firstguess.network.shapes import Shape
from firstguess.network.signal import Activated, Distribution, Signal, Unknown, exp
from firstguess.network.tensors import Draw, Local, Place, SourceWriter, variance_of_others


class UnitNorm(Layer):
    """A norm over units, every sample (of a sequence every token) by itself: theory.md §2, (11), (21).

    Less the mean over units if `centre`, by √(mean square of what is left + ε) if `divide`. It is no kind of layer: a
    kind derives from it, states what it does to the sign, and overrides what it does otherwise.
    """

    weighted = False
    mixes = Mix.UNITS
    breaks_gaussianity = False
    centre: ClassVar[bool] = True
    divide: ClassVar[bool] = True
    torch_name: ClassVar[str] = ""  # of the class in torch.nn, with the arguments of a LayerNorm
    eps: float = 0.0

    shape = keeps_shape
    assumptions = nothing_assumed

    @property
    def one_size(self) -> bool:
        return self.divide and self.eps == 0.0 and self.together == 1

    def moments(self, signal: Signal) -> Signal:
        """(0, (center − mean²)/(total − mean²), 1): the mean over units goes, the centers' differences stay.

        With ε: all of it times variance/(variance + ε), theory.md (21).
        """
        square = self._square(signal)
        if square == 0.0:
            differ = ("nodes that differ", "a signal without variance over nodes")
            expected, got = differ if self.centre else ("a signal that is not zero", "zero")
            raise NotCovered(expected, got=got, hint="a larger weight variance before this layer")
        distribution = signal.gaussian_or(Unknown(f"{self._named} of a signal that is not Gaussian", signal))
        mean = 0.0 if self.centre else signal.mean
        if not self.divide:
            return Signal(mean, signal.between, signal.spread, signal.log_scale, distribution).rescaled()
        log_square = math.log(square) + signal.log_scale
        scale = log_square - float(np.logaddexp(log_square, math.log(self.eps))) if self.eps else 0.0
        parts = mean / math.sqrt(square), signal.between / square, signal.spread / square
        return Signal(*parts, scale, distribution=distribution).rescaled()

    def _square(self, signal: Signal) -> float:
        """What it divides by, squared and without ε."""
        return signal.between + signal.spread if self.centre else signal.total

    @property
    def _named(self) -> str:
        return f"{'a' if self.centre else 'an'} {self.kind}"

    def gradient(self, signal: Signal) -> float | None:
        """1/(x² + ε), x the scale over units; the two directions it projects out are negligible when wide."""
        if not self.divide:
            return 1.0
        log_square = math.log(self._square(signal)) + signal.log_scale
        return exp(-(float(np.logaddexp(log_square, math.log(self.eps))) if self.eps else log_square))

    def covariance(self, points: Points, fold: Fold) -> PairwiseMap:
        """One mean and one scale a data point, over units and, on images, over positions."""
        return self._over_positions(points) if points.shape.images else self._by_pair(points)

    def _by_pair(self, points: Points) -> PairwiseMap:
        """K ← (K_ab − m_a m_b)/(s_a s_b), Θ ← Θ/(s_a s_b): theory.md (11), (21).

        What it projects out is one unit in many. Where weights make the mean over units random, its covariance is
        subtracted instead: theory.md (29).
        """
        eps, square = self.eps, points.q - points.mean_square if self.centre else points.q
        zero = points.q == 0.0  # with ε it stays 0: a class token that starts so
        alike = (square <= 0.0) & ~(zero & (eps > 0.0))
        if np.any(alike) and self.centre:
            expected = "nodes that differ on every data point"
            hint = "a larger weight or bias variance before this layer"
            raise NotCovered(expected, got=f"{int(np.sum(square <= 0.0))} points where they do not", hint=hint)
        if np.any(alike):
            hint = "a bias variance above 0 before this layer"
            raise NotCovered("a signal that is not zero on any data point", got="one that is", hint=hint)
        mean, inverse = points.mean, 1.0 / np.sqrt(square + eps) if self.divide else np.ones_like(square)
        shifted = self.centre and bool(np.any(mean != 0.0))

        def step(tile: Tile) -> None:
            if shifted:
                tile.k -= tile.outer(mean)
            if self.centre:
                take_level(tile, points)
            tile.scale(inverse)
            if tile.t is not None:
                tile.t *= tile.outer(inverse)

        each = inverse.reshape(points.count, points.grid.places)
        level = None if self.centre or points.level is None else points.level * (each[:, None] * each)
        q = square if not self.divide else square / (square + eps) if eps else np.ones_like(square)
        left = np.zeros_like(square) if self.centre else mean * inverse
        what = f"{self._named} of {points.what}"
        after = points.after(self, q, left, gaussian=points.gaussian, what=what, level=level)
        if zero.any():
            return PairwiseMap(after, step)
        if not self.centre:
            return PairwiseMap(after, step, unchanged)
        shares = mean**2 / points.q
        if points.level is not None or np.ptp(shares) > 1e-12 or np.ptp(np.sign(mean)) > 0.0:
            return PairwiseMap(after, step)
        share = float(shares[0])
        return PairwiseMap(after, step, lambda c: (c - share) / (1.0 - share))

    def _over_positions(self, points: Points) -> PairwiseMap:
        q, mean = (v.reshape(-1, points.grid.places) for v in (points.q, points.mean))
        level = mean.mean(axis=1, keepdims=True) if self.centre else np.zeros((q.shape[0], 1))
        variance = q.mean(axis=1, keepdims=True) - level**2
        if np.any(variance <= 1e-14 * q.mean(axis=1, keepdims=True)):
            expected = "nodes that differ on every image"
            hint = "a bias variance above 0 before this layer"
            raise NotCovered(expected, got=f"{int(np.sum(variance <= 0.0))} images where they do not", hint=hint)
        inverse = 1.0 / np.sqrt(variance + self.eps) if self.divide else np.ones_like(variance)
        each = np.broadcast_to(inverse, q.shape).ravel()
        off = np.broadcast_to(level, q.shape).ravel()
        old = points.mean

        def step(tile: Tile) -> None:
            if off.any():  # E (x_a − l_a)(x_b − l_b)
                tile.k -= off[tile.rows, None] * old[None, tile.cols]
                tile.k -= (old - off)[tile.rows, None] * off[None, tile.cols]
            scale = tile.outer(each)
            tile.k *= scale
            if tile.t is not None:
                tile.t *= scale

        squares, means = (q - 2.0 * level * mean + level**2) * inverse**2, (mean - level) * inverse
        what = f"{self._named} of {points.what}"
        after = points.after(self, squares.ravel(), means.ravel(), gaussian=points.gaussian, what=what)
        return PairwiseMap(after, step)

    def sampled_units(self, points: Points, known: bool) -> UnitMap:
        """The statistics of the units drawn at once, as in a wide layer; for control variates those of formulas."""
        places = 1 if points.grid.apart else points.grid.places

        def own(y: Values) -> Values:
            images = y.reshape(y.shape[0], -1, places)
            if self.centre:
                images = images - images.mean(axis=(0, 2), keepdims=True)
            if self.divide:
                images = images / np.sqrt(np.mean(images * images, axis=(0, 2), keepdims=True) + self.eps)
            return images.reshape(y.shape)

        if not known:
            return same_map(own)
        q, mean = (v.reshape(-1, places).mean(axis=1) for v in (points.q, points.mean))
        level = mean if self.centre else np.zeros_like(q)
        scale = np.repeat(1.0 / np.sqrt(q - level**2 + self.eps) if self.divide else np.ones_like(q), places)
        level = np.repeat(level, places)

        def control(y: Values) -> Values:
            y -= level.astype(y.dtype)
            y *= scale.astype(y.dtype)
            return y

        return UnitMap(own, control)

    def finite(self, before: FiniteSignal, after: Signal) -> FiniteSignal:
        if not self.divide:
            self._refuse("an expansion in 1/width")
        return before.normed(after, centres=self.centre, eps=self.eps)

    def point_sample(self, sample: PointSample) -> PointSample:
        return sample.with_values(self._normed(sample.values))

    def _normed(self, x: Values) -> Values:
        """Arithmetic on the last axis; what is 0 stays 0."""
        if self.centre:
            x = x - x.mean(axis=2, keepdims=True)
        if not self.divide:
            return x
        square = np.mean(x * x, axis=2, keepdims=True) + x.dtype.type(self.eps)
        return x / np.sqrt(np.where(square > 0.0, square, x.dtype.type(1.0)))

    def tensors(self, place: Place) -> Local:
        groups = self.groups_of(place.before)
        return ops.over_units(place.before.images, groups, center=self.centre, eps=self.eps, divide=self.divide)

    def groups_of(self, before: Shape) -> int:
        """How many groups it parts the units (channels) before it into."""
        return 1

    def source(self, at: SourceWriter) -> str:
        if not self.torch_name:
            self._refuse("PyTorch source")
        return f"nn.{self.torch_name}({at.size}{f', eps={self.eps}' if self.eps else ''})"

    def module(self, place: Place, draw: Draw) -> ops.nn.Module:
        if not self.torch_name:
            self._refuse("a torch module")
        made = getattr(ops.nn, self.torch_name)
        return made(place.before.own_sizes, eps=self.eps or ops.EPS, elementwise_affine=False)

    @classmethod
    def from_module(cls, module: Any, context: ReadContext) -> ReadResult:
        axes = len(module.normalized_shape if hasattr(module, "normalized_shape") else module.weight.shape)
        if why := context.whole_sample(axes):
            return ReadResult(why=why)
        kind: Any = cls
        if not context.tokens:
            return ReadResult((kind(),), axes=axes + 1, affine=True)
        eps = getattr(module, "variance_epsilon", getattr(module, "eps", None))
        return ReadResult((kind(eps=float(np.finfo(np.float32).eps if eps is None else eps)),), affine=True)


# Statistics over the data, or over batches of consecutive rows: what such norms share (theory.md (11)).


class PointNorm(Layer):
    """A layer that takes off the mean over points, of a batch or of the whole data set: what its kinds state alike."""

    weighted = False
    mixes = Mix.POINTS
    symmetry = Symmetry.REMOVES_MEAN
    breaks_gaussianity = False
    least = (("batch", 2),)


_EPS = 1e-12  # of the squared mean: what is left of a unit that is the same on all points is rounding


def centre_over_data(k: Array, t: Array | None, q: Array, batch: int | None) -> tuple[Array | None, Array]:
    """Centre a whole covariance (in place) over batches of consecutive rows, and divide by its mean diagonal there.

    Returns the tangent kernel and the factors. All units are divided by one scale, their root mean square.
    """
    n = k.shape[0]
    size = n if batch is None else batch
    scale = np.empty(n)
    starts = list(range(0, n, size))
    for start in starts:
        rows = slice(start, min(start + size, n))
        if rows.stop - rows.start < 2:
            expected = "at least 2 points in every batch"
            hint = "a number of points that the batch size divides"
            raise NotCovered(expected, got=f"a last batch of {rows.stop - rows.start}", hint=hint)
    centre_points(k, 1, batch)
    for start in starts:
        rows = slice(start, min(start + size, n))
        check_differ(k[rows, rows], q[rows])
        scale[rows] = math.sqrt(float(np.trace(k[rows, rows])) / (rows.stop - rows.start))
    inverse = 1.0 / scale
    k *= inverse[:, None]
    k *= inverse[None, :]
    if t is not None:
        if batch is not None:
            expected = "BatchNorm over the whole data set for the tangent kernel"
            raise NotCovered(expected, got=f"batches of {batch}", hint="batchnorm without batch=")
        t = _tangent(k, t, inverse)
    return t, inverse


def check_differ(k: Array, q: Array) -> None:
    """Refuse a batch of one point, many times: what centring leaves of mean squares q is then rounding."""
    if float(np.trace(k)) <= 64.0 * float(np.finfo(k.dtype).eps) * float(q.sum()):
        raise NotCovered("data points that differ", got="a batch whose points are all alike", hint="drop duplicates")


def check_spread(signal: Signal) -> None:
    """Refuse a signal that is the same on all points."""
    if signal.spread == 0.0:
        hint = "a larger weight variance before this layer"
        raise NotCovered("data points that differ", got="a signal without variance over the data", hint=hint)


def centred(k: Array) -> Array:
    """HKH, in place."""
    k -= k.mean(axis=0)
    k -= k.mean(axis=1, keepdims=True)
    return k


def _tangent(k: Array, t: Array, inverse: Array) -> Array:
    """E[JΘJᵀ] with J = (H − yyᵀ/n)/σ, y ~ N(0, K) the normalized node: Gaussian fourth moments."""
    n, t = k.shape[0], centred(t)
    t *= inverse[:, None]
    t *= inverse[None, :]
    product = k @ t
    return t - (product + product.T) / n + (k * np.trace(product) + 2.0 * product @ k) / n**2


def centre_points(k: Array, places: int, batch: int | None) -> None:
    """Take off (in place) what the points of a batch have in common, at every pair of positions: HKH."""
    n = k.shape[0] // places
    size = n if batch is None else batch
    whole = k.reshape(n, places, n, places)
    for start in range(0, n, size):
        part = whole[start : start + size]
        part -= part.mean(axis=0)
    for start in range(0, n, size):
        part = whole[:, :, start : start + size]
        part -= part.mean(axis=2, keepdims=True)


def effective(k: Array, size: int | None) -> tuple[float, float]:
    """The least number of effective directions of a batch of rows, and the least share of the variance that is left."""
    rows = k.shape[0]
    each = rows if size is None else min(size, rows)
    directions, share = math.inf, 1.0
    for start in range(0, rows, each):
        block = k[start : start + each, start : start + each].astype(np.float64)
        full = float(np.trace(block))
        trace = float(np.trace(centred(block)))
        if trace > 0.0:
            directions = min(directions, trace**2 / float(np.vdot(block, block)))
        share = min(share, trace / full if full > 0.0 else 0.0)
    return directions, share


def over_batches(size: int | None, *, leave_one_out: bool) -> Op:
    """BatchNorm of sampled units; leave-one-out is (u − mean')/sd' over the other B − 1 points: theory.md (5)."""

    def run(y: Values) -> Values:
        y = np.ascontiguousarray(y)
        out = np.empty_like(y)
        for part, to in zip(columns(y, size), columns(out, size), strict=True):
            b = length_of(part, size)
            cut = part.reshape(y.shape[0], -1, b)
            mean = cut.mean(axis=2, keepdims=True)
            d = cut - mean
            square = np.einsum("rbp,rbp->rb", d, d)[:, :, None]
            if leave_one_out:
                variance = variance_of_others(d, square, b)
                d *= y.dtype.type(b / (b - 1))
            else:
                variance = square / b
            variance += _EPS * mean * mean + np.finfo(y.dtype).tiny
            d /= np.sqrt(variance)
            to[:] = d.reshape(part.shape)
        return out

    return run


def columns(y: Values, size: int | None) -> list[Values]:
    """All whole batches, and a last shorter one."""
    points = y.shape[1]
    whole = points if size is None or size >= points else points // size * size
    return [y[:, :whole], y[:, whole:]] if whole < points else [y]


def length_of(part: Values, size: int | None) -> int:
    return part.shape[1] if size is None else min(size, part.shape[1])


def batches(x: ops.Tensor, dim: int, size: int) -> Iterator[ops.Tensor]:
    """Views of x in which the points are (batches, points of a batch): all whole batches, then a last shorter one."""
    whole = x.shape[dim] // size * size
    if whole:
        yield x.narrow(dim, 0, whole).unflatten(dim, (-1, size))
    if whole < x.shape[dim]:
        yield x.narrow(dim, whole, x.shape[dim] - whole).unsqueeze(dim)


# The distribution of a Gaussian node that was normalized over a batch: theory.md (5).

Estimator = Literal["usual", "leave_one_out"]


@dataclass(frozen=True)
class BatchNormed(Distribution):
    """A Gaussian node normalized over a batch of B: û²/(B−1) ~ Beta(½, (B−2)/2); leave-one-out: Student's t."""

    batch: int
    estimator: Estimator

    def activate(self, signal: Signal, phi: Activation) -> Signal:
        if self.estimator == "leave_one_out":
            far, near = (float(np.max(np.abs(gaussian.evaluate(phi.rise, np.array([-x, x]))))) for x in (1e6, 1e3))
            if near > 0.0 and 2.0 * math.log(max(far, near) / near) / math.log(1e3) > self.batch - 2.5:
                expected = "an activation whose mean square exists: Student's t with B − 2 degrees has heavy tails"
                hint = "a larger batch, or estimator=usual"
                raise NotCovered(expected, got=f"{phi} after a leave-one-out batchnorm of {self.batch}", hint=hint)
        u, w = self.rule(phi.features)
        f = gaussian.evaluate(phi.rise, u)
        mean = float(np.sum(w * f))
        spread = float(np.sum(w * (f - mean) ** 2))
        # At fixed weights no unit has a center of its own: all batches are alike.
        return Signal(0.0 if phi.centered else phi.offset + mean, 0.0, spread, distribution=Activated(signal, phi))

    def level(self, phi: Activation) -> float:
        """E φ of the normalized value, whether or not φ subtracts it."""
        u, w = self.rule(phi.features)
        return phi.offset + float(np.sum(w * gaussian.evaluate(phi.rise, u)))

    def rule(self, features: Iterable[gaussian.Feature]) -> tuple[gaussian.Array, gaussian.Array]:
        """Quadrature nodes and weights of the normalized value."""
        b = self.batch
        if b == 2:
            return np.array([-1.0, 1.0]), np.array([0.5, 0.5])
        usual = self.estimator == "usual"
        # û = √(B−1) sin α with density ∝ cos^{B−3} α; Student: û' = √(B/(B−1)) √(B−2) tan α, density ∝ cos^{B−3} α
        segment = math.sqrt(b - 1) if usual else math.sqrt(b / (b - 1) * (b - 2))
        limit = min(math.pi / 2, 2.0 * gaussian.REACH / math.sqrt(b))
        edges = [np.linspace(-limit, limit, 17)]
        if not usual:  # heavy tails: a wave such as sin is followed to where the mass beyond is 1e-10
            reach = min(segment * 10.0 ** (10.0 / (b - 2)), 5000.0)
            edges.append(np.arctan(np.arange(-reach, reach, 4.0) / segment))
        for feature in features:
            points = (feature.at + gaussian.graded(feature.width, 60.0 + abs(feature.at))) / segment
            edges.append(np.arcsin(np.clip(points, -1.0, 1.0)) if usual else np.arctan(points))
        alpha, half = gaussian.panels(np.sort(np.clip(np.concatenate(edges), -limit, limit)))
        log_density = (b - 3) * np.log(np.maximum(np.cos(alpha), 1e-300))
        w = half * np.exp(log_density)
        u = segment * (np.sin(alpha) if usual else np.tan(alpha))
        return u, w / w.sum()


# Nodes normalized within groups of m independent Gaussian ones: what a narrow GroupNorm leaves, exactly.
#
# A group's centred values on two data points are two vectors in m − 1 dimensions with the units' correlation c. Divided
# by their own length they meet at a cosine r, the sample correlation of m pairs. So E x_a x_b = E r (< c: a norm over
# few units takes correlation away), and a unit is √(m−1) times one coordinate of a random direction, as in a batch of m
# (theory.md (5)). With r = −tanh v its density is
#
# p(v) ∝ (sech v)^{m−2} · (1 − c·r)^{3/2 − m} · ₂F₁(½, ½; m − ½; (1 + c·r)/2)      (Hotelling, 1953; m ≥ 3),
#
# analytic in |Im v| < π/2: the trapezoidal rule converges geometrically, for every c up to 1.


@lru_cache(maxsize=4096)
def cosines(nodes: int, c: float, one_minus_c: float) -> tuple[Array, Array]:
    """(angles θ, weights) of the distribution of r = cos θ for groups of `nodes` units at correlation c ≥ 0.

    >>> theta, weights = cosines(4, 0.5, 0.5)
    >>> print(f"{weights @ np.cos(theta):.10f}")      # 4/3π·₂F₁(½, ½; 5/2; ¼)
    0.4359911242
    """
    if nodes == 2:  # r = ±1
        apart = 2.0 / math.pi * math.asin(math.sqrt(0.5 * one_minus_c))
        return np.array([0.0, math.pi]), np.array([1.0 - apart, apart])
    peak = 0.5 * math.log(max(one_minus_c, 1e-300) / (1.0 + c))
    tail = 80.0 / (nodes - 2) + 2.0
    step = min(0.1, 0.25 / math.sqrt(nodes))
    v = np.arange(peak - tail, tail, step)
    square = np.exp(2.0 * v)  # tan² ½θ
    apart = one_minus_c + c * 2.0 * square / (1.0 + square)  # 1 − c·r without cancelling
    log_density = -(nodes - 2) * np.logaddexp(v, -v) - (nodes - 1.5) * np.log(apart)
    # scipy's ₂F₁ overflows at 1 itself for large groups; it is flat there
    rest = special.hyp2f1(0.5, 0.5, nodes - 0.5, np.minimum(1.0 - 0.5 * apart, 1.0 - 1e-13))
    density = np.exp(log_density - log_density.max()) * rest
    return 2.0 * np.arctan(np.exp(v)), density / density.sum()


def normalized(nodes: int, c: float, one_minus_c: float) -> tuple[float, float]:
    """(E r, 1 − E r): center and spread of a Gaussian unit after a norm over groups of `nodes`."""
    theta, weights = cosines(nodes, c, one_minus_c)
    spread = float(weights @ (2.0 * np.sin(0.5 * theta) ** 2))
    if c > 0.5:
        return 1.0 - spread, spread
    log_ratio = special.gammaln(0.5 * nodes) - special.gammaln(0.5 * (nodes - 1))
    center = 2.0 / (nodes - 1) * math.exp(2.0 * log_ratio) * c * special.hyp2f1(0.5, 0.5, 0.5 * (nodes + 1), c * c)
    return float(center), 1.0 - float(center)


@dataclass(frozen=True)
class GroupNormed(Distribution):
    """A Gaussian node of correlation c after a norm over groups of `nodes`.

    Exact for every activation where data points are uncorrelated (c = 0), and for piecewise linear ones at any c:
    these do not care for the length of a direction, so E φφ is the arc-cosine formula at r, averaged over r.
    """

    nodes: int
    c: float
    one_minus_c: float

    def activate(self, signal: Signal, phi: Activation) -> Signal:
        alone = BatchNormed(self.nodes, "usual").activate(signal, phi)
        if self.c == 0.0:
            return alone
        slopes = leaky_slopes(phi)
        if slopes is None:
            expected = "a piecewise linear activation after a groupnorm of narrow groups, or uncorrelated data points"
            hint = "the kernel reading: fg.predict(net, data=x), or fg.measure(...)"
            raise NotCovered(expected, got=f"{phi} at c = {self.c:.3g}", hint=hint)
        a2, b2 = (0.5 * (slopes[1] + slopes[0])) ** 2, (0.5 * (slopes[1] - slopes[0])) ** 2
        theta, weights = cosines(self.nodes, self.c, self.one_minus_c)
        away = 2.0 * np.sin(0.5 * theta) ** 2
        lost = away - 2.0 / math.pi * np.vectorize(sine_minus)(theta)  # 1 − (2/π)(√(1−r²) + r·arcsin r)
        spread = float(weights @ (a2 * away + b2 * lost))
        level = alone.mean**2 if not phi.centered else BatchNormed(self.nodes, "usual").level(phi) ** 2
        between = max(a2 + b2 - spread - level, 0.0)
        return Signal(alone.mean, between, spread, distribution=Activated(signal, phi))

    def mean_square_slope(self, signal: Signal, phi: Activation) -> float | None:
        """A slope that depends on the sign alone is independent of all that the norm's own Jacobian is made of."""
        slopes = leaky_slopes(phi)
        return None if slopes is None else 0.5 * (slopes[0] ** 2 + slopes[1] ** 2)


def gradient_of(nodes: int, log_variance: float) -> float:
    """What a norm over groups of m Gaussian nodes multiplies squared gradients by: (m−2)/((m−3)·variance).

    Two of a group's directions are projected out, and E 1/χ²_{m−1} = 1/(m−3): infinite for three units, 0 for two.
    """
    if nodes == 2:
        return 0.0
    return math.inf if nodes == 3 else (nodes - 2) / (nodes - 3) * math.exp(min(-log_variance, 700.0))
