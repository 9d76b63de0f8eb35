"""The kernel reading at finite width: what a network's own noise adds to the overlaps of these data (theory.md (50)).

Where an overlap behind a layer depends on that in front alone (scale-free activations, norms over nodes, no biases), a
pair of points goes its way by its own overlap: mean and variance at the output are two functions of the overlap of the
inputs, which are read off the fold of one pair (`network.finite_signal`) at a few overlaps.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

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
from firstguess.theory.finite_record import FiniteSize
from firstguess.theory.kernel import KernelLayer
from firstguess.theory.same_class import same_class

_PLACES = 80  # overlaps at which a pair is followed; between them a cubic spline, good to 1e-5 of the change
_ENOUGH, _LEAST = 0.01, 0.001  # the next order may be this share of the standard deviation of a share, or this
_FINE = 20_001  # places at which the chance of one class is inverted


@dataclass(frozen=True)
class Shifts:
    """What width adds to the mean overlap at the output, and the variance there, by the overlap c of two inputs."""

    angles: Array  # arcsin c, dense at both ends
    moved: Array
    variance: Array

    def __call__(self, c: Array) -> tuple[Array, Array]:
        from scipy.interpolate import CubicSpline

        x = np.arcsin(np.clip(c, -1.0, 1.0))
        moved, variance = (CubicSpline(self.angles, v)(x) for v in (self.moved, self.variance))
        return moved, np.maximum(variance, 0.0)


def shifts(network: Network, width: int) -> Shifts:
    """The two functions of a network; NotCovered where an overlap depends on more than an overlap."""
    angles = 0.5 * math.pi * chebyshev.chebpts1(_PLACES)
    rows = np.array([_pair(network, width, math.sin(float(angle))) for angle in angles])
    ends = 0.5 * math.pi  # a point and itself: exact, and never different
    return Shifts(np.append(angles, ends), np.append(rows[:, 0], 0.0), np.append(rows[:, 1], 0.0))


def _pair(network: Network, width: int, c: float) -> tuple[float, float]:
    """One pair of points of overlap c: theory.md (45), from v = 0 on."""
    start = Signal(0.0, c, 1.0 - c, law=Gaussian())
    state = FiniteSignal(start, math.inf, float(width), False, 1.0, c, inputs=True)  # 1: sizes of data differ
    wide = start
    for _, _, wide in steps(network.layers, start):  # noqa: B007  # the last one
        pass
    for _, state in finite_steps(network.layers, state):  # noqa: B007, B020  # the last one
        pass
    return state.e - wide.correlation, state.v


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
        found, why = None, f"by networks that were drawn, since an expansion says: {error}"
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
    """The covariance at infinite width, made one for `width`: A(c_eff) = E A(c) for every pair of points."""
    found = shifts(network, width)
    flat = x.reshape(len(x), -1)
    length = np.sqrt(np.einsum("ai,ai->a", flat, flat))
    before = (flat / length[:, None]) @ (flat / length[:, None]).T
    root = np.sqrt(np.diagonal(covariance))
    wide = np.clip(covariance / np.outer(root, root), -1.0, 1.0)
    moved, variance = found(before)
    e = np.clip(wide + moved, -1.0, 1.0)
    same = same_class(network.classes)
    grid = np.sin(np.linspace(-0.5 * math.pi, 0.5 * math.pi, _FINE))
    excess = same(grid)
    curve = np.gradient(np.gradient(excess, grid), grid)
    off = ~np.eye(len(x), dtype=bool)
    target = np.interp(e, grid, excess) + 0.5 * np.interp(e, grid, curve) * variance
    c = np.interp(target, excess, grid)
    np.fill_diagonal(c, 1.0)
    infinite, finite = (math.sqrt(max(float(same(k[off]).mean()), 0.0) / network.classes) for k in (wide, c))
    typical = float(variance[off].mean())
    size = FiniteSize(
        width,
        None,
        "expansion",
        finite,
        infinite,
        next_order=abs(finite - infinite) * min(1.0, 2.0 * typical),
        overlap=float(e[off].mean()),
        overlap_variance=typical,
        remark="the network's noise is averaged over networks: how they differ is not in the law of the shares",
    )
    return FiniteKernel(positive(c) * np.outer(root, root), size)


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
