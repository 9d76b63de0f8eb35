"""Norms over nodes: what LayerNorm, GroupNorm (with wide groups) and RMSNorm share in the readings without weights."""

from __future__ import annotations

import math

import numpy as np

from firstguess.base.errors import NotCovered
from firstguess.network.layer import Layer
from firstguess.network.nodes import NodeMove, Values, alike
from firstguess.network.points import Move, Points, Tile, take_level, unchanged
from firstguess.network.signal import Gaussian, Law, Signal, Unknown, exp


def over_nodes(signal: Signal, kind: str, eps: float = 0.0) -> Signal:
    """(0, (center − mean²)/(total − mean²), 1): the mean over nodes goes, the centers' differences stay.

    With ε: all of it times variance/(variance + ε), theory.md (21).
    """
    variance = signal.between + signal.spread
    if variance == 0.0:
        raise NotCovered(
            "nodes that differ",
            got="a signal without variance over nodes",
            hint="a larger weight variance before this layer",
        )
    law = (
        signal.law
        if isinstance(signal.law, Gaussian)
        else Unknown(f"a {kind} of a signal that is not Gaussian", signal)
    )
    scale = _kept(math.log(variance) + signal.log_scale, eps)
    return Signal(0.0, signal.between / variance, signal.spread / variance, scale, law=law).rescaled()


def _kept(log_square: float, eps: float) -> float:
    """log x²/(x² + ε)."""
    return log_square - float(np.logaddexp(log_square, math.log(eps))) if eps else 0.0


def scaled(signal: Signal, law: Law, eps: float) -> Signal:
    """All divided by the root mean square: √(total + ε)."""
    total = signal.total
    scale = _kept(signal.log_q, eps)
    one = Signal(signal.mean / math.sqrt(total), signal.between / total, signal.spread / total, scale, law=law)
    return one.rescaled()


def over_nodes_gradient(signal: Signal, eps: float = 0.0) -> float:
    """Dividing by the standard deviation over nodes; the two directions it projects out are negligible when wide."""
    return inverse_square(math.log(signal.between + signal.spread) + signal.log_scale, eps)


def inverse_square(log_square: float, eps: float) -> float:
    """1/(x² + ε)."""
    return exp(-(float(np.logaddexp(log_square, math.log(eps))) if eps else log_square))


def over_nodes_move(layer: Layer, points: Points, *, centre: bool = True, eps: float = 0.0) -> Move:
    """One mean (if `centre`) and one scale a data point, over nodes and, on images, over positions."""
    if points.shape.images:
        return _over_positions(layer, points, centre, eps)
    return _centred(layer, points, eps) if centre else _scaled(layer, points, eps)


def _centred(layer: Layer, points: Points, eps: float) -> Move:
    """K ← (K_ab − m_a m_b)/(s_a s_b), Θ ← Θ/(s_a s_b): theory.md (11), (21). What it projects out is one node in many.

    Where weights make the mean over nodes random, its covariance is taken off instead: theory.md (29).
    """
    variance = points.q - points.mean_square
    zero = points.q == 0.0  # with ε it stays 0: a class token that starts so
    if np.any((variance <= 0.0) & ~(zero & (eps > 0.0))):
        raise NotCovered(
            "nodes that differ on every data point",
            got=f"{int(np.sum(variance <= 0.0))} points where they do not",
            hint="a larger weight or bias variance before this layer",
        )
    mean, inverse = points.mean, 1.0 / np.sqrt(variance + eps)
    centred = bool(np.any(mean != 0.0))

    def step(tile: Tile) -> None:
        if centred:
            tile.k -= tile.outer(mean)
        take_level(tile, points)
        tile.scale(inverse)
        if tile.t is not None:
            tile.t *= tile.outer(inverse)

    n = points.q.size
    what = f"a {layer.kind} of {points.what}"
    kept = variance / (variance + eps) if eps else np.ones(n)
    after = points.after(layer, kept, np.zeros(n), gaussian=points.gaussian, what=what)
    if zero.any():
        return Move(after, step)
    shares = mean**2 / points.q
    if points.level is not None or np.ptp(shares) > 1e-12 or np.ptp(np.sign(mean)) > 0.0:
        return Move(after, step)
    share = float(shares[0])
    return Move(after, step, lambda c: (c - share) / (1.0 - share))


def _scaled(layer: Layer, points: Points, eps: float) -> Move:
    """K ← K_ab/√((q_a + ε)(q_b + ε)), Θ likewise: theory.md (11), (21)."""
    zero = points.q <= 0.0
    if zero.any() and not eps:
        raise NotCovered(
            "a signal that is not zero on any data point",
            got="one that is",
            hint="a bias variance above 0 before this layer",
        )
    inverse = 1.0 / np.sqrt(points.q + eps)

    def step(tile: Tile) -> None:
        tile.scale(inverse)
        if tile.t is not None:
            tile.t *= tile.outer(inverse)

    what = f"an {layer.kind} of {points.what}"
    q = points.q / (points.q + eps) if eps else np.ones_like(points.q)
    level = None if points.level is None else points.level * points.outer_factors(inverse)
    after = points.after(layer, q, points.mean * inverse, gaussian=points.gaussian, what=what, level=level)
    return Move(after, step) if zero.any() else Move(after, step, unchanged)


def _over_positions(layer: Layer, points: Points, centre: bool, eps: float) -> Move:
    q, mean = (v.reshape(-1, points.grid.places) for v in (points.q, points.mean))
    level = mean.mean(axis=1, keepdims=True) if centre else np.zeros((q.shape[0], 1))
    variance = q.mean(axis=1, keepdims=True) - level**2
    if np.any(variance <= 1e-14 * q.mean(axis=1, keepdims=True)):
        raise NotCovered(
            "nodes that differ on every image",
            got=f"{int(np.sum(variance <= 0.0))} images where they do not",
            hint="a bias variance above 0 before this layer",
        )
    inverse = 1.0 / np.sqrt(variance + eps)
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

    after = points.after(
        layer,
        ((q - 2.0 * level * mean + level**2) * inverse**2).ravel(),
        ((mean - level) * inverse).ravel(),
        gaussian=points.gaussian,
        what=f"a {layer.kind} of {points.what}",
    )
    return Move(after, step)


def over_nodes_nodes(points: Points, known: bool, *, centre: bool = True, eps: float = 0.0) -> NodeMove:
    """The statistics of the nodes drawn at once, as in a wide layer; for twins those that formulas give."""
    places = 1 if points.grid.apart else points.grid.places

    def own(y: Values) -> Values:
        images = y.reshape(y.shape[0], -1, places)
        if centre:
            images = images - images.mean(axis=(0, 2), keepdims=True)
        scale = np.sqrt(np.mean(images * images, axis=(0, 2), keepdims=True) + eps)
        return (images / scale).reshape(y.shape)

    if not known:
        return alike(own)
    q, mean = (v.reshape(-1, places).mean(axis=1) for v in (points.q, points.mean))
    level = mean if centre else np.zeros_like(q)
    scale = np.repeat(1.0 / np.sqrt(q - level**2 + eps), places)
    level = np.repeat(level, places)

    def twin(y: Values) -> Values:
        y -= level.astype(y.dtype)
        y *= scale.astype(y.dtype)
        return y

    return NodeMove(own, twin)
