"""What pools share: of units side by side, or of positions of an image."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.polynomial import chebyshev
from scipy.special import ndtr, owens_t

from firstguess.base import gaussian
from firstguess.base.errors import NotCovered
from firstguess.base.gaussian import Array, Moments
from firstguess.base.numerics import interpolate
from firstguess.network.activations.record import Activation
from firstguess.network.finite_sample import PointSample
from firstguess.network.layer import FLAT, IMAGE, Call, Layer, Mix, ReadContext, ReadResult
from firstguess.network.ops import ops
from firstguess.network.points import Op, Points, UnitMap, Values, same_map
from firstguess.network.shapes import PositionGrid, Shape
from firstguess.network.tensors import Draw, Local, Place, Scratch


class UnitPool(Layer):
    """Windows of `size` units side by side, or of k×k = size positions; what is left over at a border is not pooled.

    A kind derives from it and says what it makes of a window.
    """

    weighted = False
    mixes = Mix.POSITIONS
    reduce: ClassVar[str]  # "max" or "mean": the name of an array's method, and the pool of torch
    size: int
    stride: int | None = None
    padding: int = 0

    @property
    def pools(self) -> int:
        return self.size

    @property
    def side(self) -> int:
        """Positions a side of a window."""
        return math.isqrt(self.size)

    def shape(self, before: Shape, units: int | None) -> Shape:
        return before.pooled(self.kind, self.size, stride=self.stride, padding=self.padding)

    def assumptions(self) -> Iterable[str]:
        yield f"{self.kind}: the {self.size} nodes of a pool are independent"

    def sampled_units(self, points: Points, known: bool) -> UnitMap:
        grid, size, side = points.grid, self.size, self.side
        if not points.shape.images:
            return same_map(lambda y: getattr(y.reshape(-1, size, y.shape[1]), self.reduce)(axis=1))
        high, wide = (length // side for length in grid.sides)

        def run(y: Values) -> Values:
            image = y.reshape(y.shape[0], -1, *grid.sides)[:, :, : high * side, : wide * side]
            windows = image.reshape(y.shape[0], -1, high, side, wide, side)
            return getattr(windows, self.reduce)(axis=(3, 5)).reshape(y.shape[0], -1)

        return same_map(run)

    def point_sample(self, sample: PointSample) -> PointSample:
        """Pool units side by side."""
        x = sample.values
        self.shape(Shape(x.shape[2], drawn=True), None)
        return sample.with_values(getattr(x.reshape(*x.shape[:2], -1, self.size), self.reduce)(axis=3))

    def tensors(self, place: Place) -> Local:
        """A pool over K consecutive units; on images over k×k positions, K = k²."""
        pool = ops.F.max_pool2d if self.reduce == "max" else ops.F.avg_pool2d

        def of_images(x: ops.Tensor, scratch: Scratch) -> ops.Tensor:
            return pool(x.flatten(0, 1), self.side, self.stride, self.padding).unflatten(0, x.shape[:2])

        def of_vectors(x: ops.Tensor, scratch: Scratch) -> ops.Tensor:
            nodes = x.view(x.shape[0], -1, self.size, x.shape[2])
            if self.reduce == "max":
                return ops.torch.amax(nodes, 2, out=scratch(nodes[:, :, 0]))
            return ops.torch.sum(nodes, 2, out=scratch(nodes[:, :, 0])).div_(self.size)

        return Local(of_images if place.before.images else of_vectors)

    def module(self, place: Place, draw: Draw) -> ops.nn.Module:
        flat, images = (
            (ops.nn.MaxPool1d, ops.nn.MaxPool2d) if self.reduce == "max" else (ops.nn.AvgPool1d, ops.nn.AvgPool2d)
        )
        return images(self.side, self.stride, self.padding) if place.before.images else flat(self.size)

    @classmethod
    def from_module(cls, module: Any, context: ReadContext) -> ReadResult:
        if context.claim.startswith("Adaptive"):
            return pool_to(cls, module.output_size, context)
        flat = context.claim.endswith("1d")
        return pool_of(cls, window_of_module(module), context, flat=flat, overlaps=cls.reduce == "max")

    @classmethod
    def from_call(cls, call: Call, context: ReadContext) -> ReadResult:
        return pool_of(cls, window_of_call(call), context, flat=False, overlaps=cls.reduce == "max")


def pool_overlapping(size: int, stride: int, padding: int, grid: PositionGrid) -> Op:
    """The largest of windows of positions that may overlap, with −∞ around the image."""
    side = math.isqrt(size)
    around = (padding, padding)

    def run(y: Values) -> Values:
        image = y.reshape(y.shape[0], -1, *grid.sides)
        image = np.pad(image, ((0, 0), (0, 0), around, around), constant_values=-np.inf)
        windows = np.lib.stride_tricks.sliding_window_view(image, (side, side), axis=(2, 3))
        return windows[:, :, ::stride, ::stride].max(axis=(4, 5)).reshape(y.shape[0], -1)

    return run


# Pools of torch as those of a description: what max- and average pools share when they are read.

_PLAIN = ("kernel_size", "stride", "padding")


class Window(NamedTuple):
    """What a pool runs over, by height and width."""

    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]


def window_of_module(module: Any) -> Window | str:
    """The window of a pool of torch.nn, or why it is none of a description's."""
    if module.ceil_mode or _pair(getattr(module, "dilation", 1)) != (1, 1):
        return "a description's pools have no dilation or ceil_mode"
    if getattr(module, "divisor_override", None) is not None or getattr(module, "return_indices", False):
        return "divisor_override and return_indices are not part of a description"
    return Window(_pair(module.kernel_size), _pair(module.stride), _pair(module.padding))


def window_of_call(call: Call) -> Window | str:
    """The same of a pool that is a function."""
    usual = (*_PLAIN, "input", "count_include_pad")
    odd = {key: value for key, value in call.kwargs.items() if key not in usual and value}
    if odd.get("dilation") in (1, (1, 1), [1, 1]):
        del odd["dilation"]
    if odd or len(call.args) > 1 + len(_PLAIN):
        return "a description's pools have no dilation, ceil_mode or divisor_override"
    kernel = call.argument(1, "kernel_size", None)
    sizes = kernel, call.argument(2, "stride", None) or kernel, call.argument(3, "padding", 0)
    if not all(isinstance(n, int) for size in sizes for n in (size if isinstance(size, (tuple, list)) else [size])):
        return "what it pools depends on the shape"
    return Window(_pair(sizes[0]), _pair(sizes[1]), _pair(sizes[2]))


def pool_of(
    kind: Callable[..., Layer], window: Window | str, context: ReadContext, *, flat: bool, overlaps: bool
) -> ReadResult:
    """A pool over positions or (flat) over units; `overlaps`: whether this kind has a stride and padding."""
    if isinstance(window, str):
        return ReadResult(why=window)
    kernel, stride, padding = window
    size = kernel[0]
    if kernel != (size, size) or stride[0] != stride[1] or padding[0] != padding[1]:
        return ReadResult(why=f"a pool of {kernel[0]}×{kernel[1]}; a description has square ones")
    axes = FLAT if flat else IMAGE
    if context.axes not in (None, axes):
        return ReadResult(why=f"a {'one' if flat else 'two'}-dimensional pool of a batch with {context.axes} axes")
    if (stride, padding) == (kernel, (0, 0)):
        return ReadResult((kind(size if flat else size * size),), axes=axes)
    if flat or not overlaps:
        what = "of nodes" if flat else "of averages"
        why = f"pools of {size} at a stride of {stride[0]} overlap or leave gaps; those {what} do not here"
        return ReadResult(why=why)
    return ReadResult((kind(size * size, None if stride == kernel else stride[0], padding[0]),), axes=axes)


def pool_to(kind: Callable[..., Layer], output: Any, context: ReadContext) -> ReadResult:
    """A pool to a given size is a pool of positions, once the size of the image is known."""
    high, wide = (output, output) if output is None or isinstance(output, int) else (output[0], output[-1])
    if context.shape is None:
        return ReadResult(why="how many positions it pools depends on the images: give an example of the inputs")
    if len(context.shape) != IMAGE:
        return ReadResult(why=f"a pool of images of a batch with {len(context.shape)} axes")
    sides = context.shape[2:]
    high, wide = high or sides[0], wide or sides[1]
    if sides[0] % high or sides[1] % wide or sides[0] // high != sides[1] // wide:
        return ReadResult(why=f"{sides[0]}×{sides[1]} positions to {high}×{wide}; a description has square pools")
    size = (sides[0] // high) ** 2
    return ReadResult((kind(size),) if size > 1 else (), axes=IMAGE)


def _pair(value: Any) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else (int(value[0]), int(value[-1]))


# The largest of several independent units: its moments, and the covariance of two of them (theory.md (9)).

_TINY_ANGLE = 5e-4
_ANGLE_X, _ANGLE_W = np.polynomial.legendre.leggauss(20)


@lru_cache(maxsize=16384)
def max_moments(phi: Activation, size: int, between: float, spread: float) -> Moments:
    """Moments of M = max_k φ(u_k) over `size` independent units.

    Mean and variance are integrals over the distribution of the largest unit. Of the variance, the smaller part is
    computed and the other is the rest: both integrands below are positive, so neither end loses digits. With F₂ the
    distribution of a pair,

        between = ∬ (F₂^K − (F₁F₁)^K) dφ dφ,     spread = 2∬_{s<t} (F₁(s)^K − F₂(s,t)^K) dφ(s) dφ(t),

    where F₂ − F₁F₁ and F₁(s) − F₂ are themselves integrals of the bivariate density over the correlation (Price).
    """
    q = between + spread
    if q == 0.0:  # after scale(0): every unit is φ(0)
        return Moments(phi.offset, 0.0, 0.0)
    root = math.sqrt(q)
    x, w = _nodes(phi, root)
    mass = size * w * gaussian.pdf(x) * ndtr(x) ** (size - 1)
    mass /= mass.sum()
    f = phi.offset + phi.rise(root * x)
    mean = float(np.dot(mass, f))
    variance = float(np.dot(mass, (f - mean) ** 2))
    theta = math.atan2(math.sqrt(spread * (2.0 * between + spread)), between)
    if between == 0.0:
        return Moments(mean, 0.0, variance)
    if spread == 0.0:
        return Moments(mean, variance, 0.0)
    if theta > 0.8:
        new_between = _between(phi, size, root, math.pi / 2 - theta, x, w)
        return Moments(mean, new_between, max(variance - new_between, 0.0))
    if theta > _TINY_ANGLE:
        new_spread = _spread(phi, size, root, theta)
    else:  # too narrow to integrate over; the ratio of spreads is analytic in θ, so it is continued from wider angles
        angles = _TINY_ANGLE * np.arange(1.0, 5.0)
        ratios = [_spread(phi, size, root, float(t)) / (2.0 * q * math.sin(t / 2.0) ** 2) for t in angles]
        fit = np.polynomial.polynomial.polyfit(angles, np.array(ratios), 2)
        new_spread = spread * float(np.polynomial.polynomial.polyval(theta, fit))
    return Moments(mean, max(variance - new_spread, 0.0), new_spread)


@lru_cache(maxsize=64)
def max_series(phi: Activation, size: int, q: float) -> tuple[Array, Array, float, float]:
    """E[M_a M_b] and its derivative by the covariance as Chebyshev series in θ ∈ [0, π]; E M and E M²."""
    n = 24
    while True:
        theta = (chebyshev.chebpts1(n) + 1.0) * 0.5 * math.pi
        series = interpolate(np.array([_center(phi, size, q, float(t)) for t in theta]))
        if np.abs(series[-3:]).max() <= 1e-10 * np.abs(series).max() or n > 300:
            break
        n *= 2
    slope = -chebyshev.chebval(chebyshev.chebpts1(n), chebyshev.chebder(series)) * (2.0 / math.pi) / (q * np.sin(theta))
    alone = max_moments(phi, size, 0.0, q)
    return series, interpolate(slope), alone.mean, alone.mean**2 + alone.spread


def _center(phi: Activation, size: int, q: float, theta: float) -> float:
    if theta <= math.pi / 2:
        spread = 2.0 * q * math.sin(theta / 2.0) ** 2
        m = max_moments(phi, size, q - spread, spread)
        return m.mean**2 + m.between
    x, w = _nodes(phi, math.sqrt(q))  # negative correlation: the same integral, over a negative arc
    return max_moments(phi, size, 0.0, q).mean ** 2 + _between(phi, size, math.sqrt(q), math.pi / 2 - theta, x, w)


def max_mean_square_slope(phi: Activation, size: int, q: float) -> float:
    """E Σ_k (∂M/∂u_k)² = E φ'(max)²: gradients flow through the largest unit only (theory.md §5)."""
    x, w = _nodes(phi, math.sqrt(q))
    mass = size * w * gaussian.pdf(x) * ndtr(x) ** (size - 1)
    return float(np.dot(mass, _derivative(phi, math.sqrt(q) * x) ** 2) / mass.sum())


def _between(phi: Activation, size: int, root: float, arc: float, x: Array, w: Array) -> float:
    rise = w * root * _derivative(phi, root * x)  # dφ at the units
    keep = rise != 0.0
    x, rise = x[keep], rise[keep]
    s, t = x[:, None], x[None, :]
    # F₂ − F₁F₁ = ∫₀^{arcsin c} exp(−(s²+t²−2st sin a)/(2cos²a)) da / 2π
    extra = np.zeros((x.size, x.size))
    for a, wa in zip(0.5 * arc * (1 + _ANGLE_X), 0.5 * arc * _ANGLE_W, strict=True):
        extra += wa * np.exp(-(s * s + t * t - 2.0 * s * t * math.sin(a)) / (2.0 * math.cos(a) ** 2))
    extra /= 2.0 * math.pi
    product = np.maximum(ndtr(s) * ndtr(t), 1e-290)
    # p^K((1+e/p)^K − 1), by logarithms so that deep tails neither over- nor underflow; F₂ ≥ 0 up to rounding
    log_ratio = np.log1p(np.maximum(extra / product, -1.0 + 1e-16))
    gain = np.exp(size * (np.log(product) + log_ratio)) * -np.expm1(-size * log_ratio)
    return float(rise @ gain @ rise)


def _spread(phi: Activation, size: int, root: float, theta: float) -> float:
    # d = t − s lives on the scale of sin θ; both s and t may meet kinks of φ.
    width = math.sin(theta)
    s, ws = _nodes(phi, root, least=width)
    rise_s = ws * root * _derivative(phi, root * s)
    keep = rise_s != 0.0
    s, rise_s = s[keep], rise_s[keep]
    reach = min(gaussian.REACH * width, 2 * gaussian.REACH)
    edges = [np.tile(np.linspace(0.0, reach, 6), (s.size, 1))]
    for feature in phi.features:
        offsets = gaussian.graded(feature.width / root, 2.0 * gaussian.REACH)
        if feature.width / root < 2 * reach:
            edges.append(feature.at / root - s[:, None] + offsets)
    d, wd = gaussian.panels(np.sort(np.clip(np.concatenate(edges, axis=1), 0.0, reach), axis=1))
    t = s[:, None] + d
    gap = _below_above(np.broadcast_to(s[:, None], t.shape), t, theta)
    single = np.maximum(ndtr(s), 1e-290)[:, None]
    loss = single**size * -np.expm1(size * np.log1p(-np.minimum(gap / single, 1.0 - 1e-16)))
    inner = np.sum(wd * loss * root * _derivative(phi, root * t), axis=1)
    return 2.0 * float(np.dot(rise_s, inner))


def _below_above(s: Array, t: Array, theta: float) -> Array:
    """P(a ≤ s, b > t) for standard normals with correlation cos θ, s < t, by Owen's T: F₁(s) − F₂(s, t)."""
    # 1e-290 instead of 0 keeps the ratios defined; T is continuous there
    s_safe, t_safe = (np.where(x == 0.0, 1e-290, x) for x in (s, t))
    rise = math.tan(theta / 2.0)  # (t − s cos θ)/sin θ = (t − s)/sin θ + s·tan(θ/2)
    d = (t - s) / math.sin(theta)
    gap = 0.5 * (ndtr(s) - ndtr(t)) + owens_t(s, (d + s * rise) / s_safe) + owens_t(t, (t * rise - d) / t_safe)
    return np.maximum(gap + 0.5 * ((s_safe < 0.0) & (t_safe > 0.0)), 0.0)


def _nodes(phi: Activation, root: float, least: float = 0.0) -> tuple[Array, Array]:
    edges = [np.linspace(-gaussian.REACH, gaussian.REACH, 13)]
    for at, w in phi.features:
        edges.append(at / root + gaussian.graded(w / root, 2.0 * gaussian.REACH))
        if w == 0.0 and least > 0.0:
            edges.append(at / root + gaussian.graded(least, 2.0 * gaussian.REACH))
    return gaussian.panels(np.sort(np.clip(np.concatenate(edges), -gaussian.REACH, gaussian.REACH)))


def _derivative(phi: Activation, u: Array) -> Array:
    if phi.derivative is None:
        hint = "pass it: fg.activation(fn, derivative=...)"
        raise NotCovered("an activation whose derivative is known before a max-pool", got=str(phi), hint=hint)
    return phi.derivative(u)
