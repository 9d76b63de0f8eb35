"""InstanceNorm: every channel of an image is centred and scaled by its own statistics over the positions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy as np

from firstguess.base.errors import InvalidInput, NotCovered
from firstguess.base.gaussian import Array
from firstguess.network.layer import IMAGE, Fold, Layer, Mix, ReadContext, ReadResult, Symmetry, register
from firstguess.network.norms import effective, over_batches
from firstguess.network.points import Need, PairwiseMap, Points, Tile, UnitMap, Values, split
from firstguess.network.shapes import PositionGrid, Shape
from firstguess.network.signal import Signal
from firstguess.network.tensors import Draw, Local, Place, Scratch

if TYPE_CHECKING:
    from torch import Tensor, nn


@register
@final
@dataclass(frozen=True)
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
            raise InvalidInput(
                "images of at least 2 positions before an instancenorm",
                got=str(before.grid),
                hint="layernorm, which is over nodes",
            )
        return before

    def moments(self, signal: Signal) -> Signal:
        raise NotCovered(
            "a closed form of instancenorm (it depends on how the positions of an image are correlated)",
            got="a closed form, which has no positions",
            hint="the kernel reading: fg.predict(net, data=x), or fg.measure(...)",
        )

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
            raise NotCovered(
                "Gaussian nodes (random weights in front) for the formula of an instancenorm",
                got=points.what,
                hint="a conv before it, or the ensemble reading: fg.measure(...)",
            )
        grid, places = points.grid, points.grid.places
        within = np.stack([_centred(fold.within(i)) for i in range(points.count)])
        trace = np.trace(within, axis1=1, axis2=2)
        full = points.q.reshape(-1, places).sum(axis=1)
        alike = trace <= 64.0 * float(np.finfo(np.float64).eps) * full
        if np.any(alike):
            raise NotCovered(
                "positions that differ on every image",
                got=f"{int(alike.sum())} images whose positions are all alike",
                hint="drop such images",
            )
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
        """Of the images: the least number of effective directions, and the least share of the variance left."""
        return Need(*effective(k, points.grid.places), of="instancenorm", over="positions")

    def tensors(self, place: Place) -> Local:
        from firstguess.network.torch_ops import standardize

        def over_positions(x: Tensor, scratch: Scratch) -> Tensor:
            standardize(x, (3, 4), scratch)
            return x

        return Local(over_positions)

    def module(self, place: Place, draw: Draw) -> nn.Module:
        from torch import nn

        from firstguess.network.torch_ops import EPS

        return nn.InstanceNorm2d(place.before.sizes[0], eps=EPS)

    modules = ("InstanceNorm2d",)

    @classmethod
    def from_module(cls, module: Any, context: ReadContext) -> ReadResult:
        if context.axes not in (None, IMAGE):
            return ReadResult(why=f"normalizes over an axis of positions ({context.axes} axes)")
        if module.track_running_stats:
            return ReadResult(why="keeps running statistics, which a description's instancenorm has none of")
        return ReadResult((cls(),), axes=IMAGE, affine=True)


def _centred(k: Array) -> Array:
    """H K H of one image."""
    k = k - k.mean(axis=0)
    return np.asarray(k - k.mean(axis=1, keepdims=True))


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
