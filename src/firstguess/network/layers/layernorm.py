"""Norms of one sample: over its units (LayerNorm, RMSNorm), over groups of them, and over a channel's positions."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import field
from typing import Any, ClassVar

import numpy as np

from firstguess.base.errors import InvalidInput, NotCovered
from firstguess.base.gaussian import Array
from firstguess.network.activations.kernels import leaky_slopes
from firstguess.network.finite_sample import PointSample
from firstguess.network.finite_signal import FiniteSignal
from firstguess.network.layer import IMAGE, Fold, Layer, Mix, ReadContext, ReadResult, Symmetry, register
from firstguess.network.layers.affine import Scale
from firstguess.network.norms import GroupNormed, UnitNorm, centred, effective, gradient_of, normalized, over_batches
from firstguess.network.ops import ops
from firstguess.network.points import Need, PairwiseMap, Points, Tile, UnitMap, Values, same_map, split
from firstguess.network.shapes import PositionGrid, Shape
from firstguess.network.signal import Activated, Gaussian, Signal, Unknown
from firstguess.network.tensors import Draw, Local, Place, Scratch


@register
class LayerNorm(UnitNorm):
    """Subtract a sample's mean over units, divide by √(variance over units + eps): theory.md §2, (21).

    On tokens each token by itself.
    """

    kind: ClassVar[str] = "layernorm"
    symmetry = Symmetry.REMOVES_MEAN
    by_token = True
    torch_name = "LayerNorm"
    modules = ("LayerNorm",)
    eps: float = field(default=0.0, kw_only=True)


@register
class RMSNorm(UnitNorm):
    """Divide a sample by √(mean square over units + eps): it does not centre, so after φ it does not cure.

    On tokens each token by itself.
    """

    kind: ClassVar[str] = "rmsnorm"
    symmetry = Symmetry.ODD
    by_token = True
    centre = False
    torch_name = "RMSNorm"
    modules = ("RMSNorm", "*RMSNorm")
    eps: float = field(default=0.0, kw_only=True)

    @classmethod
    def from_module(cls, module: Any, context: ReadContext) -> ReadResult:
        tried = context.claim == "*RMSNorm" and not context.tokens  # a model of tokens is compared as a whole
        return _tried(module, context) if tried else super().from_module(module, context)


def _tried(module: Any, context: ReadContext) -> ReadResult:
    """A class called …RMSNorm, tried on random vectors: c·x/rms(x) with one c, or not read."""
    weight = module.weight
    if weight.ndim != 1:
        return ReadResult(why=f"called RMSNorm, with a weight of {weight.ndim} axes")
    if why := context.whole_sample(weight.ndim):
        return ReadResult(why=why)
    x = ops.torch.randn(8, weight.numel(), generator=ops.torch.Generator().manual_seed(0)).to(weight)
    try:
        with ops.torch.no_grad():
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


_NARROW = 16  # units (channels) of a module's groups below which they are described as narrow


@register
class GroupNorm(UnitNorm):
    """One mean and one scale per sample and group: the number of `groups`, or the units (channels) of `each`.

    `groups` are taken to be wide: each is a LayerNorm and so is the whole. Groups of a few units `each` are not,
    however wide the layer: what they leave is exact in closed form (`GroupNormed`), and sampled in the kernel reading.
    """

    kind: ClassVar[str] = "groupnorm"
    symmetry = Symmetry.REMOVES_MEAN
    groups: int = 1
    each: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.each is not None and self.groups != 1:
            hint = "groupnorm(each=4)"
            raise InvalidInput("groups or each, not both", got=f"groups={self.groups}, each={self.each}", hint=hint)

    @property
    def together(self) -> int:
        return self.each or 1

    def groups_of(self, before: Shape) -> int:
        return self.groups if self.each is None else before.sizes[0] // self.each

    def shape(self, before: Shape, units: int | None) -> Shape:
        if self.each == 1 and before.grid is not None and not before.images:
            hint = "groupnorm(each=2)"
            raise InvalidInput("groups of at least 2 nodes where there are no positions", got="each=1", hint=hint)
        divisor = self.each or self.groups
        if before.drawn and before.width is not None and before.width % divisor:
            what, fits = ("each" if self.each else "groups"), math.gcd(before.width, divisor)
            expected = f"groups that divide the {before.width} nodes (channels) before them"
            raise InvalidInput(expected, got=divisor, hint=f"groupnorm({what}={fits})")
        return before

    def moments(self, signal: Signal) -> Signal:
        wide = super().moments(signal)  # refuses units that do not differ
        if self.each is None:
            return wide
        distribution = signal.distribution
        before = distribution.before.distribution if isinstance(distribution, Activated) else distribution
        if self.each == 1 or (isinstance(before, Gaussian) and before.positions):
            expected = "groups of at least 2 nodes without positions, for the closed form of narrow groups"
            got = "positions, of which the closed form does not know how they are correlated"
            raise NotCovered(expected, got=got, hint="the kernel reading: fg.predict(net, data=x), or fg.measure(...)")
        if isinstance(distribution, Gaussian):
            c, apart = wide.between, wide.spread
            return Signal(0.0, *normalized(self.each, c, apart), distribution=GroupNormed(self.each, c, apart))
        if isinstance(distribution, Activated) and signal.between == 0.0 and isinstance(before, Gaussian):
            # points are independent, and units of a group alike: E x = 0, whatever φ is. All of a group may be dead.
            dead = _all_alike(distribution, self.each)
            return Signal(0.0, 0.0, 1.0 - dead, distribution=Unknown("a groupnorm of a signal that is not Gaussian"))
        expected = "Gaussian nodes, or data points without centers, before a groupnorm of narrow groups"
        hint = "the kernel reading: fg.predict(net, data=x), or fg.measure(...)"
        raise NotCovered(expected, got="nodes that are not Gaussian, with centers of their own", hint=hint)

    def covariance(self, points: Points, fold: Fold) -> PairwiseMap:
        if self.each is None:
            return super().covariance(points, fold)
        expected = f"a formula for groups of {self.each}: the kernel reading samples them, after random weights"
        hint = "a dense layer before it and no tangent=, or fg.measure(...)"
        raise NotCovered(expected, got="a tangent kernel, or nodes that are not Gaussian", hint=hint)

    def sampled_units(self, points: Points, known: bool) -> UnitMap:
        each = self.each
        if each is None:
            return super().sampled_units(points, known)
        places = 1 if points.grid.apart else points.grid.places

        def grouped(y: Values) -> Values:
            group = y.reshape(len(y) // each, each, -1, places)
            away = group - group.mean(axis=(1, 3), keepdims=True)
            scale = np.sqrt(np.mean(away * away, axis=(1, 3), keepdims=True))
            np.divide(away, scale, out=away, where=scale > 1e-6 * np.abs(group).max(axis=(1, 3), keepdims=True))
            return away.reshape(y.shape)

        return same_map(grouped)

    def point_sample(self, sample: PointSample) -> PointSample:
        x = sample.values
        before = Shape(x.shape[2], drawn=True)
        self.shape(before, None)
        each = x.shape[2] // self.groups_of(before)
        return sample.with_values(self._normed(x.reshape(len(x), -1, each)).reshape(x.shape))

    def finite(self, before: FiniteSignal, after: Signal) -> FiniteSignal:
        self._refuse("an expansion in 1/width")

    def sampled(self, grid: PositionGrid) -> bool:
        return self.each is not None

    def need(self, points: Points, k: Array) -> Need:
        return Need(always=True)

    def gradient(self, signal: Signal) -> float | None:
        if self.each is None:
            return super().gradient(signal)
        if not isinstance(signal.distribution, Gaussian):
            return None
        return gradient_of(self.each, math.log(signal.between + signal.spread) + signal.log_scale)

    def assumptions(self) -> Iterable[str]:
        yield "groupnorm: groups are wide" if self.each is None else f"groupnorm: groups of {self.each}, many of them"

    def module(self, place: Place, draw: Draw) -> ops.nn.Module:
        channels = place.before.sizes[0]
        return ops.nn.GroupNorm(self.groups_of(place.before), channels, eps=ops.EPS, affine=False)

    modules = ("GroupNorm",)

    @classmethod
    def from_module(cls, module: Any, context: ReadContext) -> ReadResult:
        each = module.num_channels // module.num_groups
        layer = cls(each=each) if each < _NARROW and module.num_groups > 1 else cls(module.num_groups)
        return ReadResult((layer,), affine=True)


def _all_alike(distribution: Activated, nodes: int) -> float:
    """The chance that φ is the same on all units of a group, where it has a flat side: then nothing is left of them."""
    slopes = leaky_slopes(distribution.phi)
    if slopes is not None and distribution.before.mean == 0.0:
        return 0.5**nodes if 0.0 in slopes else 0.0
    if (
        distribution.phi.jumps
        or distribution.phi.source is not None
        or any(feature.width == 0.0 for feature in distribution.phi.features)
    ):
        expected = "a smooth activation, or one with a kink at 0, before a groupnorm of narrow groups"
        got = f"{distribution.phi}, of which all nodes of a group may be on one flat side"
        raise NotCovered(expected, got=got, hint="the kernel reading: fg.predict(net, data=x), or fg.measure(...)")
    return 0.0


@register
class InstanceNorm(Layer):
    """(x − mean)/sd over the positions of one image and one channel: a BatchNorm whose batch is one image.

    What it leaves depends on how the positions of an image are correlated. The kernel reading knows that and samples
    units (a channel's own scale matters, as for BatchNorm); the closed form does not, and refuses.
    """

    kind: ClassVar[str] = "instancenorm"
    weighted = False
    mixes = Mix.POSITIONS
    symmetry = Symmetry.REMOVES_MEAN
    breaks_gaussianity = False

    def shape(self, before: Shape, units: int | None) -> Shape:
        if before.grid is not None and (not before.images or before.grid.places < 2):
            hint = "layernorm, which is over nodes"
            raise InvalidInput("images of at least 2 positions before an instancenorm", got=str(before.grid), hint=hint)
        return before

    def moments(self, signal: Signal) -> Signal:
        expected = "a closed form of instancenorm (it depends on how the positions of an image are correlated)"
        hint = "the kernel reading: fg.predict(net, data=x), or fg.measure(...)"
        raise NotCovered(expected, got="a closed form, which has no positions", hint=hint)

    def gradient(self, signal: Signal) -> float | None:
        return None

    def assumptions(self) -> Iterable[str]:
        return ()

    def covariance(self, points: Points, fold: Fold) -> PairwiseMap:
        """K ← H K_ab H/(σ_a σ_b), σ_a² an image's mean variance over positions: theory.md (11) image by image.

        Θ ← E[J_a Θ_ab J_bᵀ], J_a = (H − y_a y_aᵀ/P)/σ_a with y the normalized channel. Exact for many directions, as
        BatchNorm's; where a channel's own scale matters units are sampled (`need`). One channel, which is data, has no
        scale but its own.
        """
        self.shape(points.shape, None)  # refuses what has no positions
        if not points.gaussian and points.width > 1:
            expected = "Gaussian nodes (random weights before it) for the formula of an instancenorm"
            hint = "a conv before it, or the ensemble reading: fg.measure(...)"
            raise NotCovered(expected, got=points.what, hint=hint)
        grid, places = points.grid, points.grid.places
        within = np.stack([centred(fold.within(i).copy()) for i in range(points.count)])
        trace = np.trace(within, axis1=1, axis2=2)
        full = points.q.reshape(-1, places).sum(axis=1)
        alike = trace <= 64.0 * float(np.finfo(np.float64).eps) * full
        if np.any(alike):
            got = f"{int(alike.sum())} images whose positions are all alike"
            raise NotCovered("positions that differ on every image", got=got, hint="drop such images")
        inverse = np.sqrt(places / trace)
        own = within * (inverse**2)[:, None, None]  # K_aa of the normalized channel

        def step(tile: Tile) -> None:
            a, b = grid.points(tile.rows), grid.points(tile.cols)
            scale = inverse[a, None, None, None] * inverse[None, None, b, None]
            k = _centred_blocks(split(tile.k, grid)) * scale
            if tile.t is not None:
                t = _centred_blocks(split(tile.t, grid)) * scale
                tile.t = _tangent(k, t, own[a], own[b]).reshape(tile.t.shape)
            tile.k = k.reshape(tile.k.shape)

        q = own.diagonal(axis1=1, axis2=2).ravel().copy()
        what = f"an instancenorm of {points.what}"
        return PairwiseMap(points.after(self, q, np.zeros_like(q), gaussian=points.gaussian, what=what), step)

    def sampled_units(self, points: Points, known: bool) -> UnitMap:
        own = over_batches(points.grid.places, leave_one_out=False)
        if not known:
            return UnitMap(own, own)
        places = points.grid.places

        def control(y: Values) -> Values:
            """One scale an image for all channels: the root mean square of those drawn, which formulas give too."""
            at = y.reshape(len(y), -1, places)
            at -= at.mean(axis=2, keepdims=True)
            at /= np.sqrt(np.mean(at * at, axis=(0, 2), keepdims=True))
            return y

        return UnitMap(own, control)

    def sampled(self, grid: PositionGrid) -> bool:
        return not grid.flat

    def need(self, points: Points, k: Array) -> Need:
        """The images' least number of effective directions, and the least share of the variance left."""
        return Need(*effective(k, points.grid.places), of="instancenorm", over="positions")

    def tensors(self, place: Place) -> Local:
        def over_positions(x: ops.Tensor, scratch: Scratch) -> ops.Tensor:
            ops.standardize(x, (3, 4), scratch)
            return x

        return Local(over_positions)

    def module(self, place: Place, draw: Draw) -> ops.nn.Module:
        return ops.nn.InstanceNorm2d(place.before.sizes[0], eps=ops.EPS)

    modules = ("InstanceNorm2d",)

    @classmethod
    def from_module(cls, module: Any, context: ReadContext) -> ReadResult:
        if context.axes not in (None, IMAGE):
            return ReadResult(why=f"normalizes over an axis of positions ({context.axes} axes)")
        if module.track_running_stats:
            return ReadResult(why="keeps running statistics, which a description's instancenorm has none of")
        return ReadResult((cls(),), axes=IMAGE, affine=True)


def _centred_blocks(k: Array) -> Array:
    """H K_ab H of all pairs of images: (points, positions, points, positions)."""
    k = k - k.mean(axis=1, keepdims=True)
    return np.asarray(k - k.mean(axis=3, keepdims=True))


def _tangent(k: Array, t: Array, left: Array, right: Array) -> Array:
    """E[(H − y_a y_aᵀ/P) T (H − y_b y_bᵀ/P)] by Gaussian fourth moments, for all pairs of images."""
    places = k.shape[1]
    on_left = np.einsum("aij,ajbk->aibk", left, t)
    on_right = np.einsum("aibk,bkj->aibj", t, right)
    both = np.einsum("aibk,bkj->aibj", on_left, right)
    both += np.einsum("aibj,akbj,akbl->aibl", k, t, k, optimize=True)
    both += k * np.einsum("aibk,aibk->ab", t, k)[:, None, :, None]
    return np.asarray(t - (on_left + on_right) / places + both / places**2)
