"""The one fold of the kernel reading: flat data, images and sequences differ in their grid, not in this."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from firstguess.base.checks import beyond_float64, float_range
from firstguess.base.errors import FirstguessError, InvalidInput, NotCovered
from firstguess.base.gaussian import Array
from firstguess.base.text import in_bytes
from firstguess.network.layer import Layer, LayerReading, text
from firstguess.network.network import Network
from firstguess.network.points import AllPairsMap, Done, Points, Remark, mean_of_pairs, merged
from firstguess.network.shapes import PositionGrid, Shape
from firstguess.network.walk import all_zero
from firstguess.theory.kernel import tiles
from firstguess.theory.kernel.monte_carlo import SampledUnits, by_sampled_sums, by_sampled_units
from firstguess.theory.kernel.tiles import Budget, Pending


def propagate(layers: Sequence[Layer], pending: Pending, budget: Budget, *, prefix: str = "") -> Pending:
    """Covariances through layers; the last of them may still wait in the pending that comes back.

    Layers that act on pairs of points are collected, and tiles go through them together (`tiles.whole`) when one comes
    that wants all pairs. Stretches without weights go by sampled units where that is more accurate (`sampled_nodes`,
    `sampled_sums`). An error names the layer that it came from.
    """
    skip = formulas_until = 0
    for index, layer in enumerate(layers, start=1):
        if index <= skip:
            continue
        points = pending.last
        try:
            if index > formulas_until and points.gaussian and points.centred:
                length = 0 if budget.tangent else tiles.sums_ahead(layers[index - 1 :])
                sums = length > 0
                length = length or tiles.segment(layers[index - 1 :], points.grid)
                if length:
                    ahead = layers[index - 1 : index - 1 + length]
                    k, t = tiles.all_pairs(pending, budget)
                    if sums:
                        found = by_sampled_sums(ahead, points, k, Folding(pending, budget), seed=index)
                    else:
                        found = by_sampled_units(ahead, points, k, t, budget, seed=index)
                    if found is not None:
                        pending = _sampled(pending, found)
                        skip = index + length - 1
                        _check_scale(pending)
                        continue
                    pending = pending.stored(k, t, points)
                    formulas_until = index + length - 1
                    points = pending.last
            found_map = layer.covariance(points, Folding(pending, budget))
            if isinstance(found_map, AllPairsMap):
                done = found_map.apply(*tiles.all_pairs(pending, budget))
                pending = pending.stored(*done[:3], said=done.remarks)
                off = mean_of_pairs(done.k, done.points)
                pending.summaries.append(LayerReading.of(layer, float(done.points.shown.mean()), off))
            else:
                pending.layers.append(tiles.Mapped(layer, points, found_map))
            _check_scale(pending)
        except FirstguessError as error:
            raise error.at(f"{prefix}layer {index} ({text(layer)})") from None
        except ArithmeticError:
            raise beyond_float64().at(f"{prefix}layer {index} ({text(layer)})") from None
    return pending


def _check_scale(pending: Pending) -> None:
    """Refuse mean squares that are lost in the covariance's precision: float64 ends at 1e±308, float32 at 1e±38.

    Points without any signal are the layers' to judge; with any, the largest tells whether entries are still numbers.
    """
    single = pending.source.dtype == np.float32
    precision, most = ("float32", 1e30) if single else ("float64", 1e300)
    largest = float(pending.last.q.max())
    if largest != 0.0 and not 1.0 / most < largest < most:
        expected = f"mean squares from {1.0 / most:.0e} to {most:.0e}: others are lost in {precision}"
        hint = "precision='float64'" if single else "weight variances that keep the signal's size, or fewer layers"
        raise NotCovered(expected, got="an infinite one" if not largest < np.inf else f"{largest:.1e}", hint=hint)


def _sampled(pending: Pending, found: SampledUnits) -> Pending:
    after = pending.stored(found.k, found.t, found.points, said=found.remarks)
    after.summaries += found.summaries
    return after


@dataclass(frozen=True)
class Folding:
    """What this fold does for a layer, or for sampled units, in the middle of it."""

    pending: Pending
    budget: Budget

    def within(self, point: int) -> Array:
        return self.pending.within(point)

    def through(self, layers: Sequence[Layer], points: Points, k: Array, t: Array | None, path: str) -> Done:
        start = Pending(self.pending.source, points).stored(k, t, points)
        pending = propagate(layers, start, self.budget, prefix=f"{path} ")
        return Done(*tiles.all_pairs(pending, self.budget), pending.last, tuple(pending.remarks))


# The second reading: the covariance of all pairs of data points through the layers, for *your* data at infinite width.
#
# In the wide limit the outputs over a fixed data set are jointly Gaussian over initializations, M independent vectors
# N(0, K): carry K through the layers (theory.md (11)), draw, take the arg-max, count.


@dataclass(frozen=True)
class Kernel:
    """The covariance of the outputs (and their tangent kernel) over a data set, with a summary of every layer."""

    covariance: Array  # (n, n)
    tangent: Array | None
    layers: tuple[LayerReading, ...]
    remarks: tuple[str, ...]
    seconds: float
    error: float = 0.0  # one standard error of an entry by the diagonal, where units were sampled (the worst layer)


def kernel(
    network: Network,
    x: NDArray[Any],
    *,
    tangent: bool = False,
    width: int = 1000,
    dtype: type[np.floating] = np.float64,
) -> Kernel:
    """Carry the covariance of the data through a network: theory.md (11), and (12) if `tangent`.

    `x` is (n, d). `width` is the fan-in of layers without a width of their own; only the tangent kernel sees it. In
    float32 entries are good to about 1e-6 of the diagonal, 20 layers of a smooth activation to 3e-5, and what a
    BatchNorm leaves of a signal to 1e-6 by its share: 1e-3 where only a thousandth is left (the tangent kernel of
    kinked activations to 3e-4 where two points nearly coincide). `error` says what sampled units add.

    >>> from firstguess.network.network import Network
    >>> x = np.array([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]])
    >>> k = kernel(Network.parse("dense(weight_var=2) > relu > dense(weight_var=2)"), x).covariance
    >>> print(f"{k[0, 0]:.6f} {k[0, 1]:.6f}")           # 1 and 1/π
    1.000000 0.318310
    """
    started = time.perf_counter()
    flat = np.asarray(x).reshape(len(x), -1)
    n, d = flat.shape
    _check_memory(n, 2 if tangent else 1, np.dtype(dtype).itemsize)
    data: NDArray[Any] = flat.astype(dtype, copy=False)
    gram = tiles.Gram(data)
    q = gram.squares()
    if not np.isfinite(q).all():  # a point that is not finite has no finite size
        raise InvalidInput("finite data", got="NaN or Inf", where="kernel", hint="check how the data were loaded")
    pending = Pending(gram, Points(q, gram.means(), False, Shape(d), width))
    return read_pending(network, pending, Budget(n, tangent), started)


def image_kernel(
    network: Network,
    x: Array,
    *,
    tangent: bool = False,
    width: int = 1000,
    memory: float = 2e9,
    seconds: float = 600.0,
    progress: Callable[[int, int], None] | None = None,
) -> Kernel:
    """Carry the covariance of images (n, channels, height, width) through a network with convolutions.

    A channel over an image is Gaussian over initializations with K[a p, b p'] for images a, b and positions p, p'. A
    pair of images never meets another pair, except in a BatchNorm; and a max-pool over positions has no formula. So
    tiles of a few images go through all layers up to the next of these, and only the n×n covariance of the outputs is
    kept. What would take more than `memory` bytes or, roughly, more than `seconds` is refused, with the number of
    images that would fit. `width` is the number of channels of layers that name none; only the tangent kernel sees it.
    """
    started = time.perf_counter()
    if x.ndim != 4:
        expected = "images (n, channels, height, width) for a network with convolutions"
        raise InvalidInput(expected, got=f"points of shape {x.shape[1:]}", where="data", hint="x.reshape(n, 1, 28, 28)")
    n, channels, *sides = x.shape
    by_place = x.reshape(n, channels, -1).transpose(0, 2, 1)
    pixels = tiles.Pixels(np.ascontiguousarray(by_place, dtype=np.float64), tangent)
    shape = Shape(channels, PositionGrid(tuple(sides)))
    budget = Budget(n, tangent, memory, seconds, progress)
    budget.plan(network.layers, shape)
    return read_pending(
        network, Pending(pixels, Points(pixels.squares(), pixels.means(), False, shape, width)), budget, started
    )


def read_pending(network: Network, pending: Pending, budget: Budget, started: float) -> Kernel:
    """All layers of a network on covariances at hand."""
    with float_range():
        pending = propagate(network.layers, pending, budget)
    if not pending.last.grid.flat:
        expected = "a network that ends in a dense layer: its units are the classes"
        got = f"one that ends in {text(network.layers[-1])}"
        hint = "add 'pool_tokens(mean) > dense'" if pending.last.grid.apart else "add '> dense'"
        raise NotCovered(expected, got=got, where=f"layer {len(network.layers)}", hint=hint)
    if not pending.last.q.any():
        raise all_zero(network.layers)
    with float_range():
        k, t = tiles.all_pairs(pending, budget)
    seconds = time.perf_counter() - started
    sampled = (r.size for r in pending.remarks if isinstance(r, Remark) and r.kind in ("nodes", "heads"))
    return Kernel(k, t, tuple(pending.summaries), merged(pending.remarks), seconds, max(sampled, default=0.0))


def _check_memory(n: int, matrices: int, itemsize: int) -> None:
    """Refuse what would not fit: the matrices, and the factor of one of them that sampling needs (float64)."""
    try:
        free = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, OSError, ValueError):  # not every system tells
        return
    needs = n * n * (itemsize * (matrices + 1) + 12.0)
    if needs > 0.9 * free:
        most = int((0.5 * free / (itemsize * (matrices + 1) + 12.0)) ** 0.5)
        expected = f"data whose pairs fit in memory ({in_bytes(free)})"
        hint = f"a random subset: points={most}"
        raise InvalidInput(expected, got=f"{n} points: {in_bytes(needs)}", where="kernel", hint=hint)
