"""Predictions at the user's width and dimension: theory.md §12.

An expansion in 1/width and 1/dimension where one is known and its next order is small (`network.finite_signal`), else
the exact chain of a few points through many networks (`sample_points`), with its sampling error.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from firstguess.base import checks
from firstguess.base.errors import FirstguessError, InvalidInput
from firstguess.base.gaussian import Array, gauss_hermite
from firstguess.base.record import changed
from firstguess.network.finite_signal import FiniteSignal, Overlaps
from firstguess.network.inputs import Inputs
from firstguess.network.layer import LayerReading, Symmetry
from firstguess.network.network import Network
from firstguess.network.walk import finite_steps
from firstguess.theory.finite.monte_carlo import sample_points, whole_batch
from firstguess.theory.prediction import FiniteSize, Prediction, missing
from firstguess.theory.shares.empirical import EmpiricalGuesses
from firstguess.theory.shares.gaussian import Guesses
from firstguess.theory.shares.gaussian_argmax import agreement_probability
from firstguess.theory.shares.many_classes import MOST_CLASSES, PairMoments
from firstguess.theory.shares.mixture import share_distribution

_ENOUGH, _LEAST = 0.01, 0.001  # the next order may be this share of the standard deviation of G, or this
_HERMITE = 20
_COUNTED = 2000  # the widest layers whose batches are counted where an expansion would do
_MANY = (
    "more classes than 64: the variance of a share is that of these networks; its distribution takes one overlap "
    "for all pairs of points, with which the largest share of nearly even, narrow networks comes out too large"
)
_DEAD = "{:.2g} of all points are 0 at a network's output (all nodes are dead): their guess is taken to be chance"
_CENTRED = (
    "a centred batch guesses more evenly than counting by chance (by 1/2πn of variance), "
    "which the distribution leaves out"
)
_ODD = (Symmetry.WEIGHTS, Symmetry.ODD, Symmetry.LINEAR, Symmetry.REMOVES_MEAN)  # biases would show in the wide limit


class _Found(NamedTuple):
    layers: tuple[LayerReading, ...]
    excess: float
    differ: float
    size: FiniteSize
    pairs: PairMoments | None = None
    counted: Array | None = None  # shares of a whole batch
    batch: int = 0


def predict_finite(
    infinite: Prediction,
    inputs: Inputs,
    width: int | None,
    *,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Prediction:
    """The prediction for infinite size, made one for layers of `width` and inputs of `inputs.dimension`."""
    started = time.perf_counter()
    network = infinite.network
    limit = Guesses(max(infinite.layers[-1].gamma, 0.0), network.classes).std()
    found, why = expanded(infinite, inputs, width, limit)
    # a batch that is centred guesses more evenly than counting by chance: only counts show that
    counts_show = found is not None and found.excess < 0.0 and width is not None and width <= _COUNTED
    if found is None or counts_show or found.size.next_order > max(_ENOUGH * found.size.std, _LEAST):
        if width is None:
            expected = "a width, where 1/dimension alone has no expansion that holds"
            raise InvalidInput(expected, got="width=None", where="predict", hint="width=1000")
        try:
            drawn = _sampled(network, inputs, width, limit, infinite.guesses.points, seed, progress)
            worse = found is None or found.excess < 0.0 or drawn.size.error < found.size.next_order
            found = drawn if found is None or worse else found
        except FirstguessError as error:
            if found is None:
                raise error.at("finite width") from None
            remark = f"the next order is not small, and the chain, which is exact, cannot be had: {missing(error)}"
            found = found._replace(size=replace(found.size, remark=remark))
    points = infinite.guesses.points
    if found.counted is None:
        distribution = share_distribution(found.excess, found.differ, network.classes, points, found.pairs)
    else:
        distribution = EmpiricalGuesses(found.counted, found.batch)
    finite = [said for said in infinite.assumptions if said != "wide layers"]
    of = "points= names none" if points is None else f"it stands for {points}"
    remarks = (
        why if found.size.way == "chain" else "",
        _MANY if network.classes > MOST_CLASSES else "",
        f"norms over the data: of a batch of {found.batch} points, since {of}; guesses are those of such a batch"
        if found.counted is not None and points != found.batch
        else "",
        _CENTRED if found.counted is None and found.excess < 0.0 and points is not None else "",
        found.size.remark,
    )
    return Prediction(
        network,
        "closed form",
        found.layers
        if found.size.way == "expansion"
        # gradients are those of the wide limit
        else tuple(replace(new, gradient=old.gradient) for new, old in zip(found.layers, infinite.layers, strict=True)),
        distribution,
        (*finite, *(said for said in remarks if said)),
        infinite.provenance | {"width": width},
        infinite.seconds + time.perf_counter() - started,
        finite_size=found.size,
    )


def _sampled(
    network: Network,
    inputs: Inputs,
    width: int,
    limit: float,
    points: int | None,
    seed: int,
    progress: Callable[[int, int], None] | None,
) -> _Found:
    few = sample_points(network, inputs, width, points=points, seed=seed, progress=progress)
    odd = limit == 0.0 and all(layer.symmetry in _ODD for layer in network.layers)
    if odd and network.classes == 2 and not whole_batch(network):
        # f(−x) = −f(x), and −x is as likely as x: E arcsin c = 0 exactly (theory.md §12)
        few = replace(few, excess=0.0, excess_error=0.0, differ=0.0)
    size = FiniteSize.of_sample(
        width,
        inputs.dimension,
        few.excess / network.classes,
        few.excess_error / network.classes,
        limit,
        networks=few.networks,
        overlap=few.overlap,
        overlap_variance=few.variance,
        remark=_DEAD.format(few.dead) if few.dead else "",
    )
    return _Found(few.layers, few.excess, few.differ, size, few.pairs, few.counted, few.points)


def expanded(infinite: Prediction, inputs: Inputs, width: int | None, limit: float) -> tuple[_Found | None, str]:
    """The expansion, or why there is none; `limit` is the standard deviation of a share at infinite size."""
    network, points, signal = infinite.network, infinite.guesses.points, inputs.signal()
    # in the wide limit, at every layer of weights
    even = signal.correlation == 0.0 and all(x.correlation == 0.0 for x in infinite.layers if x.weights)
    start = FiniteSignal(
        signal,
        math.inf if inputs.dimension is None else float(inputs.dimension),
        math.inf if width is None else float(width),
        even,
        0.0,
        Overlaps(signal.correlation),
        points=math.inf if points is None else float(points),
    )
    try:
        states = finite_steps(network.layers, start)
    except FirstguessError as error:
        return None, f"by a chain of networks, as no expansion in 1/width is known here: {missing(error)}"
    layers: list[LayerReading] = []  # texts and gradients of the wide limit, with the numbers of finite size
    for reading, state in zip(infinite.layers, states, strict=True):
        gamma, c, one_minus_c, log_q = state.signal.numbers()
        layers.append(changed(reading, gamma=gamma, correlation=c, one_minus_c=one_minus_c, log_q=log_q))
    state, classes = states[-1], network.classes
    excess, rough = _excess(state, classes)
    std = math.sqrt(max(excess, 0.0) / classes)
    rougher = math.sqrt(max(rough, 0.0) / classes)
    size = FiniteSize(
        width,
        inputs.dimension,
        "expansion",
        std,
        limit,
        next_order=_next_order(state, std, rougher, limit),
        overlap=state.overlaps.e,
        overlap_variance=state.overlaps.v,
    )
    differ = math.sqrt(max(state.overlaps.u, 0.0)) / state.signal.one_minus_c if state.signal.one_minus_c > 0.0 else 0.0
    return _Found(tuple(layers), excess, differ, size, _pairs(state)), ""


def _pairs(state: FiniteSignal) -> PairMoments | None:
    """How overlaps of pairs hang together, to leading order; known where the network is even in the wide limit."""
    if not state.even or state.overlaps.v <= 0.0:
        return None
    e, v, *_, triangle, common = state.overlaps
    spread = v - 2.0 * common
    return PairMoments(e, spread / (1.0 - e) ** 2, triangle / spread**2, common) if spread > 0.0 else None


def _excess(state: FiniteSignal, classes: int) -> tuple[float, float]:
    """E A(c) over pairs, and by a cruder rule: (40) alone for even networks, the other way to average for others."""
    same, (e, v, k, *_) = agreement_probability(classes), state.overlaps
    if state.even:
        one, two, three, four = same.slopes_at_zero()
        e1, v1 = state.overlaps.leading
        if state.pulls:  # centring over n points: −1/n of an overlap, exactly (44)
            n = state.points
            return (one * (e - 1.0 / n) + 0.5 * two * v + three * k / 6.0) / (1.0 - 1.0 / n), one * e1 + 0.5 * two * v1
        full = one * e + 0.5 * two * (e * e + v) + three * (e**3 + 3.0 * e * v + k) / 6.0 + four * v * v / 8.0
        return full, one * e1 + 0.5 * two * v1
    if not -1.0 < e < 1.0:
        return float(same(np.array([e]))[0]), float(same(np.array([e]))[0])
    step = 1e-3 * (1.0 - abs(e))
    z, w = gauss_hermite(_HERMITE)
    wide = math.log1p(v / (1.0 - e) ** 2)  # 1 − c is taken to be lognormal, with the right mean and variance
    c = 1.0 - (1.0 - e) * np.exp(-0.5 * wide + math.sqrt(wide) * z)
    found = same(np.concatenate([(e - step, e, e + step), c]))
    low, here, high = found[:3].tolist()
    curve = (low - 2.0 * here + high) / step**2
    lognormal = float(w @ found[3:])
    return here + 0.5 * curve * v, lognormal


def _next_order(state: FiniteSignal, std: float, rougher: float, limit: float) -> float:
    """What the expansion leaves out, about.

    Even networks: (42) changed (40) by d₂, which had changed infinite size by d₁; the next is taken to be √(d₂/d₁)·d₂,
    more than a geometric series would have. Others: how far two averages over v are apart that differ in the next
    order, plus the first order's change times the relative variance of 1 − c.
    """
    if state.pulls:  # what (44) was off by in its tests, for sizes that differ by V
        return 0.5 * state.sizes * (std + 1.0 / math.sqrt(state.points))
    if state.even:
        first, second = abs(rougher - limit), abs(std - rougher)
        return second * min(1.0, math.sqrt(second / first)) if first > 0.0 else second
    spread = state.signal.one_minus_c
    relative = state.overlaps.v / spread**2 if spread > 0.0 else math.inf
    return abs(std - rougher) + abs(std - limit) * min(1.0, relative)


def check_width(width: object) -> int:
    """A width of at least 2."""
    return checks.count(width, 2, "width", "predict", "width=100, or width=None for infinitely wide layers")
