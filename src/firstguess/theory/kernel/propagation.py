"""The one fold of the kernel reading: flat data, images and sequences differ in their grid, not in this."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from firstguess.base.checks import beyond_float64
from firstguess.base.errors import FirstguessError, NotCovered
from firstguess.base.gaussian import Array
from firstguess.network.layer import Layer, text
from firstguess.network.points import AllPairsMap, Done, Points, mean_of_pairs
from firstguess.theory.kernel.monte_carlo import SampledUnits, by_sampled_sums, by_sampled_units
from firstguess.theory.kernel.tiles import Budget, KernelLayer, Mapped, Pending, all_pairs, segment, sums_ahead


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
                length = 0 if budget.tangent else sums_ahead(layers[index - 1 :])
                sums = length > 0
                length = length or segment(layers[index - 1 :], points.grid)
                if length:
                    ahead = layers[index - 1 : index - 1 + length]
                    k, t = all_pairs(pending, budget)
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
                done = found_map.apply(*all_pairs(pending, budget))
                pending = pending.stored(*done[:3], said=done.remarks)
                off = mean_of_pairs(done.k, done.points)
                pending.summaries.append(KernelLayer.of(layer, float(done.points.shown.mean()), off))
            else:
                pending.layers.append(Mapped(layer, points, found_map))
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
        raise NotCovered(
            f"mean squares from {1.0 / most:.0e} to {most:.0e}: others are lost in {precision}",
            got="an infinite one" if not largest < np.inf else f"{largest:.1e}",
            hint="precision='float64'" if single else "weight variances that keep the signal's size, or fewer layers",
        )


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
        return Done(*all_pairs(pending, self.budget), pending.last, tuple(pending.remarks))
