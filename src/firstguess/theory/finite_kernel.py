"""The kernel reading at finite width: what a network's own noise adds to the overlaps of these data (theory.md (50)).

Where an overlap behind a layer depends on that in front alone (scale-free activations, norms over nodes, no biases), a
pair of points goes its way by its own overlap: mean and variance at the output are two functions of the overlap of the
inputs, which are read off the fold of one pair (`network.finite_signal`) at a few overlaps.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.polynomial import chebyshev

from firstguess.base.errors import NotConverged, NotCovered
from firstguess.base.gaussian import Array
from firstguess.network.finite_folds import finite_steps
from firstguess.network.finite_signal import FiniteSignal
from firstguess.network.layer import steps
from firstguess.network.network import Network
from firstguess.network.signal import Gaussian, Signal
from firstguess.theory.drawing import factor
from firstguess.theory.finite_data import sampled_on_data
from firstguess.theory.finite_record import FiniteSize, missing
from firstguess.theory.kernel import KernelLayer
from firstguess.theory.same_class import SameClass, same_class

_PLACES = 48  # overlaps at which a pair is followed; between them a cubic spline, good to 1e-4 of the change
_STEPS = 4001  # of the table that pairs look up
_SOME = 300  # points whose pairs are enough for an average variance
_ENOUGH, _LEAST = 0.01, 0.001  # the next order may be this share of the standard deviation of a share, or this
_FINE = 20_001  # places at which the chance of one class is inverted


@dataclass(frozen=True)
class Shifts:
    """By the overlap c of two inputs: the one at the output at infinite width, what width adds to it, the variance."""

    angles: Array  # arcsin c, dense at both ends
    wide: Array
    moved: Array
    variance: Array

    def __call__(self, c: Array) -> tuple[Array, Array]:
        """What width adds to the mean overlap, and the variance."""
        _, moved, variance = self.at(np.arcsin(np.clip(c, -1.0, 1.0)))
        return moved, variance

    def at(self, angles: Array) -> tuple[Array, Array, Array]:
        """All three, at arcsin c."""
        from scipy.interpolate import CubicSpline

        wide, moved, variance = (CubicSpline(self.angles, v)(angles) for v in (self.wide, self.moved, self.variance))
        return wide, moved, np.maximum(variance, 0.0)


@lru_cache(maxsize=16)
def shifts(network: Network, width: int) -> Shifts:
    """The functions of a network; NotCovered where an overlap depends on more than an overlap."""
    angles = 0.5 * math.pi * chebyshev.chebpts1(_PLACES)
    rows = np.array([_pair(network, width, math.sin(float(angle))) for angle in angles])
    ends = 0.5 * math.pi  # a point and itself: exact, and never different
    wide, moved, variance = (np.append(rows[:, i], end) for i, end in enumerate((1.0, 0.0, 0.0)))
    return Shifts(np.append(angles, ends), wide, moved, variance)


def _pair(network: Network, width: int, c: float) -> tuple[float, float, float]:
    """One pair of points of overlap c: theory.md (45), from v = 0 on."""
    start = Signal(0.0, c, 1.0 - c, law=Gaussian())
    state = FiniteSignal(start, math.inf, float(width), False, 1.0, c, inputs=True)  # 1: sizes of data differ
    wide = start
    for _, _, wide in steps(network.layers, start):  # noqa: B007  # the last one
        pass
    for _, state in finite_steps(network.layers, state):  # noqa: B007, B020  # the last one
        pass
    return wide.correlation, state.e - wide.correlation, state.v


@dataclass(frozen=True)
class FiniteKernel:
    """A covariance whose Gaussian logits put two points in one class as often as networks of this width do."""

    covariance: Array
    size: FiniteSize
    counted: Array | None = None  # guesses of networks, where a layer looks at all points


def at_width(
    network: Network,
    width: int,
    x: Array,
    covariance: Array,
    *,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> FiniteKernel:
    """By expansion where one is known and its next order is small, else by handfuls of the data through networks."""
    try:
        found, why = expanded_on_data(network, width, x, covariance), ""
    except NotCovered as error:
        found, why = None, f"by networks that were drawn, as no expansion in 1/width is known here: {missing(error)}"
    if found is not None and found.size.next_order <= max(_ENOUGH * found.size.std, _LEAST):
        return found
    try:
        drawn = sampled_on_data(network, width, x, covariance, seed=seed, progress=progress)
    except NotCovered as error:
        if found is None:
            raise error.at("finite width") from None
        return replace(found, size=replace(found.size, remark=f"{found.size.remark}; the next order is not small"))
    if found is not None and drawn.size.error >= found.size.next_order:
        return found
    root = np.sqrt(np.diagonal(covariance))
    remark = "; ".join(said for said in (why, drawn.size.remark) if said)
    size = replace(drawn.size, remark=remark)
    return FiniteKernel(positive(drawn.correlation) * np.outer(root, root), size, drawn.counted)


def expanded_on_data(network: Network, width: int, x: Array, covariance: Array) -> FiniteKernel:
    """The covariance at infinite width, made one for `width`: A(c_eff) = E A(c) for every pair of points.

    c_eff − c is a function of the overlap of two inputs: a fine table, which all pairs look up.
    """
    found = shifts(network, width)
    flat = x.reshape(len(x), -1)
    unit = flat / np.sqrt(np.einsum("ai,ai->a", flat, flat))[:, None]
    angles = np.arcsin(np.clip(unit @ unit.T, -1.0, 1.0))
    root = np.sqrt(np.diagonal(covariance))
    same = same_class(network.classes)
    table, change, variance = _table(found, same)
    wide = np.clip(covariance / np.outer(root, root), -1.0, 1.0)
    c = np.clip(wide + np.interp(angles, table, change), -1.0, 1.0)
    np.fill_diagonal(c, 1.0)
    infinite, finite = (math.sqrt(max(_over_pairs(same(k)), 0.0) / network.classes) for k in (wide, c))
    some = angles[:_SOME, :_SOME]
    typical = _over_pairs(np.interp(some, table, variance))
    size = FiniteSize(
        width,
        None,
        "expansion",
        finite,
        infinite,
        next_order=abs(finite - infinite) * min(1.0, 2.0 * typical),
        overlap=_over_pairs(c),
        overlap_variance=typical,
        remark="the network's noise is averaged over networks: how they differ is not in the law of the shares",
    )
    return FiniteKernel(positive(c) * np.outer(root, root), size)


def _table(found: Shifts, same: SameClass) -> tuple[Array, Array, Array]:
    """At fine steps of arcsin c: what has to be added to an overlap, and its variance."""
    table = np.linspace(-0.5 * math.pi, 0.5 * math.pi, _STEPS)
    wide, moved, variance = found.at(table)
    grid = np.sin(np.linspace(-0.5 * math.pi, 0.5 * math.pi, _FINE))
    excess = same(grid)
    curve = np.gradient(np.gradient(excess, grid), grid)
    e = np.clip(wide + moved, -1.0, 1.0)
    # from E A(c) − A(e) alone, so that no width is no change
    added = np.interp(np.interp(e, grid, excess) + 0.5 * np.interp(e, grid, curve) * variance, excess, grid)
    change = moved + added - np.interp(np.interp(e, grid, excess), excess, grid)
    change[-1] = variance[-1] = 0.0
    return table, change, variance


def _over_pairs(k: Array) -> float:
    """The mean over distinct points."""
    n = len(k)
    return float(k.sum() - np.trace(k)) / (n * (n - 1))


def positive(c: Array) -> Array:
    """The same correlations where they have a root; else without their negative directions, which are small."""
    try:
        factor(c)
        return c
    except NotConverged:
        values, vectors = np.linalg.eigh(c)
        kept = (vectors * np.maximum(values, 0.0)) @ vectors.T
        scale = 1.0 / np.sqrt(np.diagonal(kept))
        return np.asarray(kept * np.outer(scale, scale), dtype=np.float64)


def with_output(layers: tuple[KernelLayer, ...], covariance: Array) -> tuple[KernelLayer, ...]:
    """The summaries with the output's own: the mean covariance of two points."""
    n = len(covariance)
    q = float(np.trace(covariance)) / n
    return (*layers[:-1], replace(layers[-1], q=q, q_ab=(float(covariance.sum()) - n * q) / (n * (n - 1))))
