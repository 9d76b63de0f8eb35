"""The kernel reading at finite width: what a network's own noise adds to the overlaps of these data (theory.md (50)).

Where an overlap after a layer depends on that before alone (scale-free activations, norms over units, no biases), a
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

from firstguess.base.checks import float_range
from firstguess.base.errors import NotConverged, NotCovered
from firstguess.base.gaussian import Array
from firstguess.network.finite_sample import OfData, PointSample
from firstguess.network.finite_signal import FiniteSignal, Overlaps
from firstguess.network.inputs import Inputs
from firstguess.network.layer import Layer, LayerReading, signal_after
from firstguess.network.network import Network
from firstguess.network.signal import Gaussian, Signal
from firstguess.network.walk import finite_steps, through
from firstguess.theory.finite import monte_carlo
from firstguess.theory.prediction import FiniteSize, missing
from firstguess.theory.shares.argmax_sampling import factor
from firstguess.theory.shares.gaussian_argmax import AgreementProbability, agreement_probability

# The kernel reading at finite width where no expansion holds: samples of the data in networks of real width.
#
# For every pair of data points the infinite theory has an overlap. Pairs of the samples say how far the chance of one
# class, A(c) on average over networks, is from that: a smooth function of the overlap, which all pairs then get. The
# infinite theory is a control variate, so few networks are enough. Where a norm looks at all points, all of them go
# through the networks and guesses are counted.

_TERMS = 3  # of the change as (1 − c)·polynomial: it is 0 for a point and itself
_MOST = 2000  # points of a batch
_NETWORKS = 2000
_AVERAGED = "the network's noise is averaged over networks: how they differ is not in the distribution of the shares"


def sampled_on_data(
    network: Network,
    width: int,
    x: Array,
    covariance: Array,
    *,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> FiniteKernel:
    """Networks of `width` on the rows of x; `covariance` is that of their outputs at infinite width."""
    monte_carlo.check_sampled(network, width)
    flat = x.reshape(len(x), -1)
    batch = monte_carlo.whole_batch(network)
    if batch and len(flat) > _MOST:
        expected = f"at most {_MOST} points, where a layer looks at all of them at finite width"
        hint = "points=2000, or fg.measure(net, x, width=…)"
        raise NotCovered(expected, got=len(flat), where="predict(width)", hint=hint)
    networks, points = monte_carlo.sample_size(network, width, flat.shape[1], len(flat))
    points = len(flat) if batch else min(points, len(flat))
    root = np.sqrt(np.diagonal(covariance))
    if not (root > 0.0).all():
        raise NotCovered("points that are not 0 at the output", got="some that are", hint="fg.measure(net, x, width=…)")
    wide = np.clip(covariance / np.outer(root, root), -1.0, 1.0)
    same = agreement_probability(network.classes)
    rng = np.random.default_rng([seed, 0x418])
    # What a centred activation takes off is its mean at the variance of the closed form, for inputs like these.
    center = flat.mean(axis=0)
    square, variance = float((center**2).mean()), float(((flat - center) ** 2).mean())
    signal = Inputs.of_sample(square, variance, float(flat.mean()), points=len(flat)).signal()
    a, b = np.triu_indices(points, 1)
    rows, counted = list[Array](), list[Array]()
    normal, target = np.zeros((_TERMS, _TERMS)), np.zeros(_TERMS)
    count, done = min(networks, _NETWORKS), 0
    largest = max(width, points, flat.shape[1])
    for size in monte_carlo.blocks(count, points, largest, weights=points > monte_carlo.POINTS):
        picked = np.stack([np.arange(points) if batch else rng.choice(len(flat), points, False) for _ in range(size)])
        sample = PointSample(rng, width, signal, source=OfData(flat, picked))
        with float_range():
            for _, sample in through(network.layers, sample, last=network.classes):  # noqa: B007, B020  # the last one
                pass
        before = wide[picked[:, a], picked[:, b]]
        guesses = sample.guesses(monte_carlo.HEADS) if batch or not sample.gaussian else None
        if batch and guesses is not None:
            counted.append(monte_carlo.shares_of(guesses, network.classes).reshape(-1, network.classes))
        if sample.gaussian or guesses is None:
            together = same(sample.overlaps)
        else:
            alike = [g[:, a] == g[:, b] for g in guesses.transpose(1, 0, 2)]
            together = np.mean(alike, axis=0) - 1.0 / network.classes
        change = together - same(before)
        basis = np.stack([(1.0 - before) * before**k for k in range(_TERMS)], axis=2)
        normal += np.einsum("rpi,rpj->ij", basis, basis)
        target += np.einsum("rpi,rp->i", basis, change)
        rows.append(change.mean(axis=1))
        done += size
        if progress is not None:
            progress(done, count)
    changed = np.concatenate(rows)
    terms = np.linalg.lstsq(normal, target, rcond=1e-10)[0]
    fitted = same(wide) + (1.0 - wide) * sum(t * wide**k for k, t in enumerate(terms))
    grid = np.sin(np.linspace(-0.5 * math.pi, 0.5 * math.pi, _FINE))
    c = np.interp(fitted, same(grid), grid)
    np.fill_diagonal(c, 1.0)
    off = ~np.eye(len(flat), dtype=bool)
    before_all = float(same(wide[off]).mean())
    size = FiniteSize.of_sample(
        width,
        None,
        (before_all + float(changed.mean())) / network.classes,
        float(changed.std(ddof=1)) / math.sqrt(len(changed)) / network.classes,
        math.sqrt(max(before_all, 0.0) / network.classes),
        networks=len(changed),
        overlap=float(c[off].mean()),
        overlap_variance=float(c[off].var()),
        remark="" if batch else _AVERAGED,
    )
    return _scaled(c, root, size, np.concatenate(counted) if counted else None)


_PLACES = 48  # overlaps at which a pair is followed; between them a cubic spline, good to 1e-4 of the change
_STEPS = 4001  # of the table that pairs look up
_SOME = 300  # points whose pairs are enough for an average variance
_ENOUGH, _LEAST = 0.01, 0.001  # the next order may be this share of the standard deviation of a share, or this
_FINE = 20_001  # places at which the chance of one class is inverted


@dataclass(frozen=True)
class Shifts:
    """Shifts by the overlap c of two inputs: that of the outputs at infinite width, what width adds, the variance."""

    angles: Array  # arcsin c, dense at both ends
    wide: Array
    moved: Array
    variance: Array

    def at(self, angles: Array) -> tuple[Array, Array, Array]:
        """All three, at arcsin c."""
        from scipy.interpolate import CubicSpline

        wide, moved, variance = (CubicSpline(self.angles, v)(angles) for v in (self.wide, self.moved, self.variance))
        return wide, moved, np.maximum(variance, 0.0)


@lru_cache(maxsize=16)
def shifts(network: Network, width: int) -> Shifts:
    """The functions of a network; NotCovered where an overlap depends on more than an overlap."""
    angles = 0.5 * math.pi * chebyshev.chebpts1(_PLACES)
    found: list[tuple[float, float, float]] = []
    for c in map(math.sin, angles.tolist()):  # a pair of points of this overlap: theory.md (45), from v = 0 on
        start = Signal(0.0, c, 1.0 - c, distribution=Gaussian())
        state = FiniteSignal(start, math.inf, float(width), False, 1.0, Overlaps(c))  # 1: sizes of data differ
        limit = signal_after(network.layers, start).correlation
        last = finite_steps(network.layers, state)[-1].overlaps
        found.append((limit, last.e - limit, last.v))
    rows = np.array(found)
    ends = 0.5 * math.pi  # a point and itself: exact, and never different
    wide, moved, variance = (np.append(rows[:, i], end) for i, end in enumerate((1.0, 0.0, 0.0)))
    return Shifts(np.append(angles, ends), wide, moved, variance)


@dataclass(frozen=True)
class FiniteKernel:
    """A covariance whose Gaussian logits put two points in one class as often as networks of this width do."""

    covariance: Array
    size: FiniteSize
    counted: Array | None = None  # guesses (networks · output layers, classes), where a layer looks at all points
    lower: tuple[Array, float] | None = None  # its factor and the jitter of that, where one was found


def at_width(
    network: Network,
    width: int,
    x: Array,
    covariance: Array,
    *,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> FiniteKernel:
    """The kernel by expansion where its next order is known and small, else by Monte Carlo samples of the data."""
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
    remark = "; ".join(said for said in (why, drawn.size.remark) if said)
    return replace(drawn, size=replace(drawn.size, remark=remark))


def expanded_on_data(network: Network, width: int, x: Array, covariance: Array) -> FiniteKernel:
    """The covariance at infinite width, made one for `width`: A(c_eff) = E A(c) for every pair of points.

    c_eff − c is a function of the overlap of two inputs: a fine table, which all pairs look up.
    """
    found = shifts(network, width)
    flat = x.reshape(len(x), -1)
    unit = flat / np.sqrt(np.einsum("ai,ai->a", flat, flat))[:, None]
    pairs = np.tri(len(flat), k=-1, dtype=bool)  # everything below is symmetric: each pair once
    angles = np.arcsin(np.clip((unit @ unit.T)[pairs], -1.0, 1.0))
    root = np.sqrt(np.diagonal(covariance))
    same = agreement_probability(network.classes)
    change, variance = _table(found, same)
    wide = np.clip((covariance / np.outer(root, root))[pairs], -1.0, 1.0)
    c = np.clip(wide + _looked_up(change, angles), -1.0, 1.0)
    infinite, finite = (math.sqrt(max(float(same(k).mean()), 0.0) / network.classes) for k in (wide, c))
    typical = float(_looked_up(variance, angles[: _SOME * (_SOME - 1) // 2]).mean())  # rows come one after the other
    size = FiniteSize(
        width,
        None,
        "expansion",
        finite,
        infinite,
        next_order=abs(finite - infinite) * min(1.0, 2.0 * typical),
        overlap=float(c.mean()),
        overlap_variance=typical,
        remark=_AVERAGED,
    )
    whole = np.zeros_like(covariance)
    whole[pairs] = c
    whole += whole.T
    np.fill_diagonal(whole, 1.0)
    return _scaled(whole, root, size)


def _scaled(c: Array, root: Array, size: FiniteSize, counted: Array | None = None) -> FiniteKernel:
    """The covariance of these correlations, with its factor, which is at hand where they have one."""
    c, lower = positive(c)
    if lower is not None:
        lower[0][:] *= root[:, None]
    return FiniteKernel(c * np.outer(root, root), size, counted, lower)


def _looked_up(values: Array, angles: Array) -> Array:
    """Interpolate a table of `_table` linearly: its steps are equal, so no place has to be searched."""
    at = (angles + 0.5 * math.pi) * ((_STEPS - 1) / math.pi)
    cell = np.minimum(at.astype(np.intp), _STEPS - 2)
    return values[cell] + (at - cell) * np.diff(values)[cell]


def _table(found: Shifts, same: AgreementProbability) -> tuple[Array, Array]:
    """A table at fine steps of arcsin c: what has to be added to an overlap, and its variance."""
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
    return change, variance


def positive(c: Array) -> tuple[Array, tuple[Array, float] | None]:
    """The same correlations and their factor; without one, without their negative directions, which are small."""
    try:
        return c, factor(c)
    except NotConverged:
        values, vectors = np.linalg.eigh(c)
        kept = (vectors * np.maximum(values, 0.0)) @ vectors.T
        scale = 1.0 / np.sqrt(np.diagonal(kept))
        return np.asarray(kept * np.outer(scale, scale), dtype=np.float64), None


def output_reading(output: Layer, covariance: Array) -> LayerReading:
    """What the mean covariances of the outputs say."""
    n, trace = len(covariance), np.trace(covariance)
    return LayerReading.of(output, float(trace) / n, float(covariance.sum() - trace) / (n * (n - 1)))
