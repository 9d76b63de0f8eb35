"""The covariance of a data set through a sequence of layers: runs of tiles, whole-matrix steps, sampled nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from firstguess.base.errors import FirstguessError
from firstguess.base.gaussian import Array
from firstguess.network.points import Points, Whole
from firstguess.theory.tiles import Gram, Mapped, Summary, through

if TYPE_CHECKING:
    from firstguess.network.layer import Layer
    from firstguess.theory.sampled_nodes import Nodewise


@dataclass
class Carried:
    """What comes out of a sequence of layers."""

    k: Array
    t: Array | None
    points: Points
    summaries: list[Summary]
    remarks: list[str]


def carry(
    layers: Sequence[Layer],
    points: Points,
    k: Array | Gram,
    t: Array | None,
    name: Callable[[int, Layer], str],
    *,
    formulas: bool = False,
) -> Carried:
    """Carry a covariance (overwritten, or made from data) through layers; `name` says where an error came from.

    Stretches with a BatchNorm go by sampled nodes where that is more accurate (`kernel_nodes`), unless `formulas`.
    """
    source = k if isinstance(k, Gram) else None
    if source is None and points.before is not None:  # what stood in front of the last activation is not at hand
        points = replace(points, before=None, phi=None, what=f"{points.what} in front of a block that mixes points")
    done = Carried(k.empty() if isinstance(k, Gram) else k, t, points, [], [])
    run: list[Mapped] = []

    def catch_up() -> None:
        """The layers that were only collected so far."""
        nonlocal source
        done.summaries += through(done.k, done.t, run, source)
        run.clear()
        source = None

    formulas_until = len(layers) if formulas else 0
    skip = 0
    for index, layer in enumerate(layers, start=1):
        if index <= skip:
            continue
        try:
            if index > formulas_until and points.gaussian and not points.mean.any():
                length, by_nodes = _sums(layers[index - 1 :]) if t is None else (0, None)
                if not length or by_nodes is None:
                    length, by_nodes = _stretch(layers[index - 1 :])
                if length:
                    catch_up()
                    found = by_nodes(points, done.k, done.t, index)
                    if found is not None:
                        done.k, done.t, points = found.k, found.t, found.points
                        done.summaries += found.summaries
                        done.remarks += found.remarks
                        skip = index + length - 1
                        continue
                    formulas_until = index + length - 1
            before = points
            points, step = layer.covariance(before)
            if isinstance(step, Whole):
                catch_up()
                done.k, done.t, points, said = step.run(done.k, done.t)
                done.remarks += said
                diagonal = points.q
                pairs = max(diagonal.size * (diagonal.size - 1), 1)
                off = float(done.k.sum(dtype=np.float64) - diagonal.sum()) / pairs
                done.summaries.append(Summary(layer, float(diagonal.mean()), off))
            else:
                run.append(Mapped(layer, before, points, step))
        except FirstguessError as error:
            raise error.at(name(index, layer)) from None
    catch_up()
    done.points = points
    return done


def _sums(layers: Sequence[Layer]) -> tuple[int, Callable[[Points, Array, Array | None, int], Nodewise | None]]:
    from firstguess.network.grid import Grid
    from firstguess.theory.sampled_sums import by_sums, sums_ahead

    def through(branch: Sequence[Layer], points: Points, _: Grid, k: Array) -> tuple[Points, Array, Sequence[str]]:
        done = carry(branch, points, k, None, lambda index, layer: f"branch layer {index} ({layer.kind})")
        return done.points, done.k, done.remarks

    length = sums_ahead(layers)
    return length, lambda points, k, _, seed: by_sums(layers[:length], points, Grid(), k, through, seed=seed)


def _stretch(layers: Sequence[Layer]) -> tuple[int, Callable[[Points, Array, Array | None, int], Nodewise | None]]:
    from firstguess.network.grid import Grid  # these know all layers, and layers know this module
    from firstguess.theory.sampled_nodes import by_nodes, stretch

    flat = Grid()
    length = stretch(layers, flat)

    def formula(
        run: Sequence[Layer], points: Points, _: Grid, k: Array, t: Array | None
    ) -> tuple[Points, Array, Array | None]:
        done = carry(run, points, k, t, lambda _, layer: "", formulas=True)
        return done.points, done.k, done.t

    return length, lambda points, k, t, seed: by_nodes(layers[:length], points, flat, k, t, formula, seed=seed)
