"""What each layer does to covariances of images by position: see `firstguess.theory.image_kernel`."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from firstguess.base.errors import NotCovered
from firstguess.base.gaussian import Array
from firstguess.network.grid import Grid, Shape
from firstguess.network.layers import (
    Activate,
    AvgPool,
    BatchNorm,
    Conv,
    Dense,
    GroupNorm,
    Layer,
    LayerNorm,
    MaxPool,
    Residual,
    RMSNorm,
    text,
)
from firstguess.network.points import Points, Step, Tile, Whole

Own = Callable[[int], Array]

_STRIP = 1 << 14  # numbers that an activation maps at once


@dataclass(frozen=True)
class Placed:
    """A layer in its place: what is known of the images after it, and its step."""

    layer: Layer
    points: Points  # n × positions, image by image
    grid: Grid
    step: Step


def split(k: Array, grid: Grid) -> Array:
    """(images, positions, images, positions) of a tile."""
    return k.reshape(-1, grid.places, k.shape[1] // grid.places, grid.places)


def positions_after(layer: Layer, grid: Grid) -> Grid:
    """The positions after a layer, or InvalidInput."""
    after = layer.shape(Shape(None, grid), None).grid
    assert after is not None
    return after


def needs_all_pairs(layer: Layer, grid: Grid) -> bool:
    """A residual block with a layer inside that mixes images, or wants the covariances within one."""
    if not isinstance(layer, Residual) or grid.flat:
        return False
    inside = [one for path in layer.paths for one in path]
    return any(isinstance(one, (BatchNorm, MaxPool, AvgPool)) or needs_all_pairs(one, grid) for one in inside)


def place(layer: Layer, points: Points, grid: Grid, own: Own | None) -> Placed | Whole:
    """The kernel meaning of a layer on images. `own(i)` is K[i p, i p'] so far; None inside a branch."""
    after = positions_after(layer, grid)
    if grid.flat:
        points, step = layer.covariance(points)
    elif isinstance(layer, Conv):
        points, step = _conv(layer, points, grid, after)
    elif isinstance(layer, Dense):
        points, step = _dense(layer, points, grid)
    elif isinstance(layer, AvgPool):
        points, step = _avgpool(layer, points, grid, after, own)
    elif isinstance(layer, MaxPool) and layer.size > 1:
        raise NotCovered(
            "a max-pool over positions in a stretch of layers right behind a conv, and no tangent kernel "
            "(neighbours are correlated: their maximum has no formula, it is sampled)",
            got=text(layer),
            hint=f"avgpool({layer.size}), or the ensemble reading: fg.measure(...)",
        )
    elif isinstance(layer, (LayerNorm, GroupNorm, RMSNorm)):
        points, step = _over_nodes(layer, points, grid)
    elif isinstance(layer, Residual):
        points, step = _residual(layer, points, grid)
    elif isinstance(layer, Activate):
        points, step = _activate(layer, points)
    elif isinstance(layer, BatchNorm) and layer.batch is not None:  # a channel's statistics are over positions too
        points, step = replace(layer, batch=layer.batch * grid.places).covariance(points)
    else:
        points, step = layer.covariance(points)
    return step if isinstance(step, Whole) else Placed(layer, points, after, step)


def _conv(layer: Conv, points: Points, grid: Grid, after: Grid) -> tuple[Points, Step]:
    share, channels = layer.weight_var / layer.kernel**2, points.width

    def step(tile: Tile) -> None:
        images = grid.points(tile.rows), grid.points(tile.cols)
        summed = _windows(tile.k, layer, grid, after)
        if tile.t is not None:
            tile.t = share * _windows(tile.t, layer, grid, after) + channels * summed + bool(layer.bias_var)
        tile.k = summed * share
        if layer.bias_var:
            tile.k += layer.bias_var
        tile.rows, tile.cols = after.rows(images[0]), after.rows(images[1])

    q = points.q.reshape(-1, *grid.sides)
    for axis, size in ((1, after.sides[0]), (2, after.sides[1])):
        old = np.moveaxis(q, axis, -1)
        new = np.zeros((*old.shape[:-1], size))
        for to, come in _shifts(layer, old.shape[-1], size):
            new[..., to] += old[..., come]
        q = np.moveaxis(new, -1, axis)
    q = share * q.ravel() + layer.bias_var
    return Points(q, np.zeros_like(q), True, layer.width or points.width_after, points.width_after, what="a conv"), step


def _shifts(layer: Conv, before: int, after: int) -> list[tuple[slice, slice]]:
    """For every place in a window: which outputs see the image there, and where. Outside of it are zeros."""
    found: list[tuple[slice, slice]] = []
    for place in range(layer.kernel):
        first = max(0, -((place - layer.padding) // layer.stride))  # the least h with stride·h + place − padding ≥ 0
        stop = min(after, (before - 1 - place + layer.padding) // layer.stride + 1)
        if stop > first:
            start = layer.stride * first + place - layer.padding
            end = layer.stride * (stop - 1) + place - layer.padding + 1
            found.append((slice(first, stop), slice(start, end, layer.stride)))
    return found


def _windows(k: Array, layer: Conv, grid: Grid, after: Grid) -> Array:
    """Σ_δ K[p+δ, p'+δ]: first over the rows of a window, then over its columns."""
    a, b = k.shape[0] // grid.places, k.shape[1] // grid.places
    old = k.reshape(a, *grid.sides, b, *grid.sides)
    tall = np.zeros((a, after.sides[0], grid.sides[1], b, after.sides[0], grid.sides[1]))
    for to, come in _shifts(layer, grid.sides[0], after.sides[0]):
        tall[:, to, :, :, to, :] += old[:, come, :, :, come, :]
    wide = np.zeros((a, *after.sides, b, *after.sides))
    for to, come in _shifts(layer, grid.sides[1], after.sides[1]):
        wide[:, :, to, :, :, to] += tall[:, :, come, :, :, come]
    return wide.reshape(a * after.places, b * after.places)


def _dense(layer: Dense, points: Points, grid: Grid) -> tuple[Points, Step]:
    """Every position has weights of its own, so only equal positions count: K' = σw² · mean_p K[p, p] + σb²."""
    fan_in = points.width * grid.places

    def step(tile: Tile) -> None:
        images = grid.points(tile.rows), grid.points(tile.cols)
        mean = split(tile.k, grid).diagonal(axis1=1, axis2=3).mean(axis=2)
        if tile.t is not None:
            own = split(tile.t, grid).diagonal(axis1=1, axis2=3).mean(axis=2)
            tile.t = layer.weight_var * own + fan_in * mean + bool(layer.bias_var)  # trained biases add 1
        tile.k = layer.weight_var * mean + layer.bias_var
        tile.rows, tile.cols = images

    q = layer.weight_var * points.q.reshape(-1, grid.places).mean(axis=1) + layer.bias_var
    width = layer.width or points.width_after
    return Points(q, np.zeros_like(q), True, width, points.width_after, what="a dense layer"), step


def _avgpool(layer: AvgPool, points: Points, grid: Grid, after: Grid, own: Own | None) -> tuple[Points, Step]:
    assert own is not None  # blocks with pools take all pairs at once
    side = math.isqrt(layer.size)

    def pooled(k: Array) -> Array:
        a, b = k.shape[0] // grid.places, k.shape[1] // grid.places
        high, wide = after.sides[0] * side, after.sides[1] * side  # what is left over at the border is not pooled
        old = k.reshape(a, *grid.sides, b, *grid.sides)[:, :high, :wide, :, :high, :wide]
        both = old.reshape(a, after.sides[0], side, after.sides[1], side, b, after.sides[0], side, after.sides[1], side)
        return both.mean(axis=(2, 4, 7, 9)).reshape(a * after.places, b * after.places)

    def step(tile: Tile) -> None:
        images = grid.points(tile.rows), grid.points(tile.cols)
        tile.k = pooled(tile.k)
        tile.t = None if tile.t is None else pooled(tile.t)
        tile.rows, tile.cols = after.rows(images[0]), after.rows(images[1])

    # The variance of a mean wants the covariances within an image: each image's own tile so far, one at a time.
    n = points.q.size // grid.places
    q = np.concatenate([pooled(own(i)).diagonal() for i in range(n)])
    mean = points.mean.reshape(n, *grid.sides)[:, : after.sides[0] * side, : after.sides[1] * side]
    mean = mean.reshape(n, after.sides[0], side, after.sides[1], side).mean(axis=(2, 4)).ravel()
    what = f"an average of {points.what}"
    return Points(q, mean, points.gaussian, points.width, points.width_after, what=what), step


def _over_nodes(layer: LayerNorm | GroupNorm | RMSNorm, points: Points, grid: Grid) -> tuple[Points, Step]:
    """One mean and one scale an image, over channels and positions."""
    q, mean = (v.reshape(-1, grid.places) for v in (points.q, points.mean))
    level = np.zeros((q.shape[0], 1)) if isinstance(layer, RMSNorm) else mean.mean(axis=1, keepdims=True)
    variance = q.mean(axis=1, keepdims=True) - level**2
    if np.any(variance <= 1e-14 * q.mean(axis=1, keepdims=True)):
        raise NotCovered(
            "nodes that differ on every image",
            got=f"{int(np.sum(variance <= 0.0))} images where they do not",
            hint="a bias variance above 0 before this layer",
        )
    inverse = 1.0 / np.sqrt(variance)
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

    after = replace(
        points,
        q=((q - 2.0 * level * mean + level**2) * inverse**2).ravel(),
        mean=((mean - level) * inverse).ravel(),
        before=None,
        phi=None,
        what=f"a {layer.kind} of {points.what}",
    )
    return after, step


def _activate(layer: Activate, points: Points) -> tuple[Points, Step]:
    """By pair. A position that is 0 in all channels (a black border) stays at φ(0), without a correlation."""
    dead = points.q <= 0.0
    if not dead.any() or dead.all():
        after, inner = layer.covariance(points)
        return after, _in_strips(inner)
    if layer.phi.centered:
        raise NotCovered(
            "images without positions that are 0 in front of a centred activation",
            got=f"{int(dead.sum())} of them",
            hint="a bias variance above 0, or standardized images",
        )
    after, inner = layer.covariance(replace(points, q=np.where(dead, np.median(points.q[~dead]), points.q)))
    run = _in_strips(inner)
    zero = float((layer.phi.offset + layer.phi.rise(np.zeros(1)))[0])
    mean, q = np.where(dead, zero, after.mean), np.where(dead, zero**2, after.q)

    def step(tile: Tile) -> None:
        run(tile)
        tile.k[dead[tile.rows]] = zero * mean[None, tile.cols]
        tile.k[:, dead[tile.cols]] = zero * mean[tile.rows, None]

    return replace(after, mean=mean, q=q), step


def _in_strips(step: Step) -> Step:
    """The same, a few rows at a time: a tile of large images is larger than the cache, which costs a factor of five."""

    def strips(tile: Tile) -> None:
        rows, cols = tile.k.shape
        few = max(1, _STRIP // cols)
        for start in range(0, rows, few):
            stop = min(start + few, rows)
            at = slice(tile.rows.start + start, tile.rows.start + stop)
            part = Tile(tile.k[start:stop], None if tile.t is None else tile.t[start:stop], at, tile.cols)
            step(part)
            tile.k[start:stop] = part.k
            if tile.t is not None and part.t is not None:
                tile.t[start:stop] = part.t

    return strips


def _residual(layer: Residual, points: Points, grid: Grid) -> tuple[Points, Step]:
    """Both paths by pair; blocks where that is not enough are `image_kernel`'s business (`needs_all_pairs`)."""
    layer.check()
    found: list[tuple[Points, list[Step]]] = []
    for path in layer.paths:
        steps, inner, inside = list[Step](), points, grid
        for one in path:
            placed = place(one, inner, inside, None)
            assert isinstance(placed, Placed)
            inner, inside = placed.points, placed.grid
            steps.append(placed.step)
        found.append((inner, steps))
    (inner, run), (outer, other) = found

    def step(tile: Tile) -> None:
        branch = Tile(tile.k.copy(), None if tile.t is None else tile.t.copy(), tile.rows, tile.cols)
        for one in run:
            one(branch)
        for one in other:
            one(tile)
        layer.add(tile, branch, outer, inner)

    return layer.sum_of(outer, inner), step
