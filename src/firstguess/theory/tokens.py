"""Sequences in the readings without weights: your ids or images, or two prototypes (theory.md §9)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from firstguess.base.checks import float_range
from firstguess.base.errors import InvalidInput, NotCovered
from firstguess.base.gaussian import Array
from firstguess.base.text import duration, in_bytes
from firstguess.network.inputs import Tokens
from firstguess.network.layer import Layer, Mix, Symmetry, text
from firstguess.network.network import Network
from firstguess.network.points import Points, merged
from firstguess.network.shapes import Shape
from firstguess.network.walk import every, sequence, shapes
from firstguess.theory.kernel.propagation import Kernel, propagate, read_pending
from firstguess.theory.kernel.tiles import Budget, Ids, Pending, Pixels, Stored, all_pairs

_COPIES = 7  # matrices of all pairs of tokens that are alive at once
_ENTRY = 2.5e-8  # seconds a layer takes for a covariance (gelu, one core: measured)
_TILE = 512  # rows of a tile, sequences × tokens, if more than one sequence fits into it


@dataclass(frozen=True)
class TokenStream:
    """The covariance of all tokens of n sequences, (n·T, n·T), and how it was found."""

    k: Array
    pending: Pending
    squares: dict[int, Array]  # what norms in the stream divide all tokens by, squared, by the layer's place

    @property
    def remarks(self) -> tuple[str, ...]:
        """What is to be said about the way it was found."""
        return merged(self.pending.remarks)


def prototype_kernel(network: Network, tokens: Tokens) -> Kernel:
    """The fold on two prototype sequences: a 2×2 covariance, S on its diagonal and C off it: theory.md §9."""
    started = time.perf_counter()
    places = 2 * tokens.length
    shape = Shape(tokens.length, sequence(tokens.length))
    budget = _plan(network, shape, 2)
    budget.images, budget.alike = 1, True
    points = Points(np.ones(places), np.zeros(places), False, shape, 1000, what="tokens")
    return read_pending(network, Pending(Stored(tokens.prototypes(), None, points), points), budget, started)


def token_kernel(
    network: Network,
    x: NDArray[Any],
    *,
    width: int = 1000,
    seconds: float = 600.0,
    progress: Callable[[int, int], None] | None = None,
) -> Kernel:
    """Carry the covariance of all tokens of your sequences: ids (n, tokens), or images where patches come first."""
    started = time.perf_counter()
    pending, budget = _started(network, x, width, seconds, progress)
    return read_pending(network, pending, budget, started)


def token_covariances(network: Network, x: NDArray[Any], *, width: int = 1000, seconds: float = 600.0) -> TokenStream:
    """The same of every token after the last layer: for read-outs of all kinds from one fold."""
    pending, budget = _started(network, x, width, seconds)
    layers, squares, start = network.layers, dict[int, Array](), 0
    with float_range():
        for place in _norms(layers):
            pending = propagate(layers[start:place], pending, budget)
            centres = layers[place].symmetry is Symmetry.REMOVES_MEAN
            squares[place], start = pending.last.q - pending.last.mean**2 * centres, place
        pending = propagate(layers[start:], pending, budget)
        k, _ = all_pairs(pending, budget)
    return TokenStream(k, pending, squares)


def block_covariances(
    network: Network, x: NDArray[Any], *, width: int = 1000
) -> Iterator[tuple[tuple[Layer, ...], int, Array, Array]]:
    """Residual blocks and what stands between them, from the first block on: units, covariances before and after."""
    pending, budget = _started(network, x, width)
    layers = network.layers
    cuts = sorted({0, len(layers), *(i + j for i, layer in enumerate(layers) if layer.paths for j in (0, 1))})
    widths = shapes(layers, Shape(None, sequence(x.shape[1])), width)
    before: Array | None = None
    with float_range():
        for start, stop in pairwise(cuts):
            pending = propagate(layers[start:stop], pending, budget)
            after, _ = all_pairs(pending, budget)
            pending = pending.stored(after.copy(), None, pending.last)
            if before is not None:
                yield layers[start:stop], widths[start].width or width, before, after
            before = after


def _norms(layers: Sequence[Layer]) -> list[int]:
    """Places of norms that stand in the stream itself: not after an activation, whose units may be sampled with it."""
    return [
        i
        for i, layer in enumerate(layers)
        if i and layer.mixes is Mix.UNITS and not layer.breaks_gaussianity and not layers[i - 1].breaks_gaussianity
    ]


def _started(
    network: Network,
    x: NDArray[Any],
    width: int,
    seconds: float = 600.0,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[Pending, Budget]:
    """What goes into the first layer, if it fits."""
    found = network.layers[0].tokens_of(x)
    if found is None:
        if x.ndim != 3:
            expected = "token ids (sequences, tokens) for embed, images for patches, or vectors (sequences, tokens, "
            got = f"data of shape {x.shape} before {text(network.layers[0])}"
            hint = "embed(0.02) or patches(16) as the first layer"
            raise InvalidInput(f"{expected}numbers)", got=got, where="data", hint=hint)
        found = np.asarray(x, dtype=np.float64)
    n, tokens = found.shape[:2]
    shape = Shape(found.shape[2] if found.ndim == 3 else None, sequence(tokens))
    budget = _plan(network, shape, n, seconds, progress)
    if found.ndim == 2:
        source, q, mean = Ids(found), np.ones(n * tokens), np.zeros(n * tokens)
    else:
        source = Pixels(found)
        q, mean = source.squares(), source.means()
    real = network.layers[0].real_tokens(found)
    real = None if real is None else real.ravel()
    return Pending(source, Points(q, mean, False, shape, width, what="the data", real=real)), budget


def _plan(
    network: Network,
    before: Shape,
    n: int,
    seconds: float = 600.0,
    progress: Callable[[int, int], None] | None = None,
    *,
    memory: float = 2e9,
) -> Budget:
    """Refuse, before any work, what does not fit; and choose the size of tiles."""
    for index, layer in enumerate(network.layers[1:], start=2):
        if layer.kind == "embed":
            raise InvalidInput("embed as the first layer", got=f"layer {index} (embed)", hint="one embed, at the start")
    grids = [shape.grid for shape in shapes(network.layers, before, before.width)]
    places = max(grid.places for grid in grids if grid is not None)
    rows = n * places
    need = 8.0 * _COPIES * rows**2
    if need > memory:
        most = int((memory / (8.0 * _COPIES)) ** 0.5)
        expected = f"at most {most} tokens in all, whose pairs take {in_bytes(memory)}"
        hint = f"points={max(2, most // places)}" if most // places >= 2 else "shorter sequences, or fg.measure(...)"
        raise NotCovered(expected, got=f"{n} sequences of {places} tokens: {in_bytes(need)}", where="data", hint=hint)
    effort = sum(layer.effort() for layer in every(network.layers) if not layer.paths)
    need = _ENTRY * effort * rows**2 / 2.0
    if need > seconds:
        got = f"{n} sequences of {places} tokens: about {duration(need)}"
        hint = f"points={max(2, int(n * (seconds / need) ** 0.5))}, or seconds=…"
        raise NotCovered(f"sequences that take at most {duration(seconds)}", got=got, where="data", hint=hint)
    budget = Budget(n, False, memory, seconds, progress, images=max(1, min(n, _TILE // places)))
    tiles = -(-n // budget.images)
    budget.total = (1 + 2 * sum(bool(layer.paths) for layer in network.layers)) * tiles * (tiles + 1) // 2
    return budget
