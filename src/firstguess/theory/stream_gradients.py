"""Gradients by layer of networks of tokens: back along the stream, on one prototype sequence.

G_st = Σ_nodes ∂L/∂x_s ∂L/∂x_t goes back through layers as the tangent kernel of frozen weights goes forth, entry by
entry (theory.md (12)); attention and read-outs mix tokens. As in (10), weights going back count as independent of those
going forth, and what a branch adds is uncorrelated with its shortcut.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from firstguess.base.errors import FirstguessError
from firstguess.base.float_range import float_range
from firstguess.base.gaussian import Array
from firstguess.network.attention_gradients import attention_back
from firstguess.network.grid import Shape
from firstguess.network.layer import Layer, Mix
from firstguess.network.layers import Attention, Dense, Embed, FirstToken, Patches, PoolTokens, Residual
from firstguess.network.network import Network
from firstguess.network.points import Move, Points, Tile
from firstguess.network.token_grid import sequence
from firstguess.network.tokens import Tokens
from firstguess.theory.budget import Budget
from firstguess.theory.carry import Folding, carry
from firstguess.theory.stretches import stretch
from firstguess.theory.tiles import Run, Stored, whole

Back = Callable[[Array], Array]
LONGEST = 256  # tokens up to which they are worth their time
_TURNED = 0.02  # β² up to which queries and keys are left out where they turn: no formula is known


class _Unknown(Exception):
    """A layer whose gradient has no formula here."""


def stream_gradients(network: Network, tokens: Tokens, *, width: int = 1000) -> list[float | None]:
    """What every layer multiplies Σ_tokens Σ_nodes (∂L/∂x)² by, going back; None: not known."""
    unknown: list[float | None] = [None] * len(network.layers)
    if tokens.length > LONGEST:
        return unknown
    places = tokens.length
    points = Points(np.ones(places), np.zeros(places), False, Shape(places, sequence(places)), width, what="tokens")
    try:
        with float_range():
            _, _, backs = _through(network.layers, points, tokens.prototypes()[:places, :places].copy())
            return _factors(backs)
    except (_Unknown, FirstguessError, ArithmeticError):
        return unknown


def _factors(backs: Sequence[Back]) -> list[float | None]:
    g, found = np.ones((1, 1)), list[float | None]()
    for back in reversed(backs):
        before = float(np.trace(g))
        g = back(g)
        found.append(float(np.trace(g)) / before)
    return found[::-1]


def _through(layers: Sequence[Layer], points: Points, k: Array) -> tuple[Points, Array, list[Back]]:
    """Forth, keeping how each layer goes back."""
    backs: list[Back] = []
    for layer in layers:
        points, k, back = _one(layer, points, k)
        backs.append(back)
    return points, k, backs


def _one(layer: Layer, points: Points, k: Array) -> tuple[Points, Array, Back]:
    """Points and covariance behind a layer, and its way back."""
    back = _mixing(layer, points, k)
    if back is None:
        found = _by_pair(layer, points, k)
        if stretch((layer,), points.grid) == 0:  # else it is sampled, forth by a rule of its own
            return found
        back = found[2]
    budget = Budget(1)
    run = carry((layer,), _start(points, k), budget)
    return run.last, whole(run, budget)[0], back


def _start(points: Points, k: Array) -> Run:
    return Run(Stored(k.copy(), None, points), points)


def _mixing(layer: Layer, points: Points, k: Array) -> Back | None:
    """The way back of a layer that is more than a factor an entry."""
    if isinstance(layer, Residual):
        branch, shortcut = (_through(path, points, k)[2] for path in layer.paths)
        return lambda g: _along(shortcut, g) + layer.scale**2 * _along(branch, g)
    if isinstance(layer, Attention):
        return _attention(layer, points, k)
    if isinstance(layer, PoolTokens):
        return _pool(layer, points.grid.places)
    if isinstance(layer, FirstToken):
        return lambda g: g[1:, 1:]
    if isinstance(layer, (Embed, Patches)) or layer.kind == "positions":
        return lambda g: g
    if Mix.TOKENS in layer.mixes:
        raise _Unknown
    return None


def _by_pair(layer: Layer, points: Points, k: Array) -> tuple[Points, Array, Back]:
    """A layer that acts on every entry: forth and back in one step."""
    frozen = replace(layer, frozen=True) if isinstance(layer, Dense) else layer
    move = frozen.covariance(points, Folding(_start(points, k), Budget(1, True)))
    if not isinstance(move, Move):
        raise _Unknown
    rows = slice(0, len(k))
    tile = Tile(k.copy(), np.ones_like(k), rows, rows)
    move.step(tile)
    tile.fill_diagonal(move.after.q[rows])  # known better than arccos near c = 1 can give it
    factor = tile.t
    assert factor is not None
    return move.after, tile.k, lambda g: g * factor


def _along(backs: Sequence[Back], g: Array) -> Array:
    for back in reversed(backs):
        g = back(g)
    return g


def _pool(layer: PoolTokens, places: int) -> Back:
    def back(g: Array) -> Array:
        if layer.at == "mean":
            return np.full((places, places), float(g[0, 0]) / places**2)
        out = np.zeros((places, places))
        at = 0 if layer.at == "cls" else -1
        out[at, at] = g[0, 0]
        return out

    return back


def _attention(layer: Attention, points: Points, k: Array) -> Back:
    heads = layer.heads_of(points)
    beta = float(heads.logit_variance(k).max())
    if layer.rotary and beta > _TURNED:
        raise _Unknown
    uniform = layer.way(beta, heads, points) == "uniform"
    return lambda g: layer.gain * attention_back(k, g, heads, uniform=uniform)
