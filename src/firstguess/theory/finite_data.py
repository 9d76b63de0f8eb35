"""The kernel reading at finite width where no expansion holds: handfuls of the data through networks of real width.

For every pair of data points the infinite theory has an overlap. Pairs of the handfuls say how far the chance of one
class, A(c) on average over networks, is from that: a smooth function of the overlap, which all pairs then get. The
infinite theory is a control variate, so few networks are enough. Where a norm looks at all points, all of them go
through the networks and guesses are counted.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from firstguess.base.errors import NotCovered
from firstguess.base.float_range import float_range
from firstguess.base.gaussian import Array
from firstguess.network.finite_folds import through
from firstguess.network.handful import Handful
from firstguess.network.inputs import Inputs
from firstguess.network.network import Network
from firstguess.theory.drawn_points import OfData
from firstguess.theory.few_points import (
    HEADS,
    POINTS,
    blocks,
    check_sampled,
    handfuls,
    shares_of,
    whole_batch,
)
from firstguess.theory.finite_record import FiniteSize
from firstguess.theory.same_class import same_class

_TERMS = 3  # of the change as (1 − c)·polynomial: it is 0 for a point and itself
_MOST = 2000  # points of a batch
_NETWORKS = 2000
_FINE = 20_001  # places at which the chance of one class is inverted


class OnData(NamedTuple):
    """Correlations at the output that put two points in one class as often as networks do; or guesses, counted."""

    correlation: Array
    size: FiniteSize
    counted: Array | None = None  # (networks · output layers, classes)


def sampled_on_data(
    network: Network,
    width: int,
    x: Array,
    covariance: Array,
    *,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> OnData:
    """Networks of `width` on the rows of x; `covariance` is that of their outputs at infinite width."""
    check_sampled(network, width)
    flat = x.reshape(len(x), -1)
    batch = whole_batch(network)
    if batch and len(flat) > _MOST:
        raise NotCovered(
            f"at most {_MOST} points, where a layer looks at all of them at finite width",
            got=len(flat),
            where="predict(width)",
            hint="points=2000, or fg.measure(net, x, width=…)",
        )
    chosen = handfuls(network, width, flat.shape[1], len(flat))
    points = len(flat) if batch else min(chosen.points, len(flat))
    root = np.sqrt(np.diagonal(covariance))
    if not (root > 0.0).all():
        raise NotCovered("points that are not 0 at the output", got="some that are", hint="fg.measure(net, x, width=…)")
    wide = np.clip(covariance / np.outer(root, root), -1.0, 1.0)
    same = same_class(network.classes)
    rng = np.random.default_rng([seed, 0x418])
    signal = _moments(flat).signal()
    a, b = np.triu_indices(points, 1)
    rows, counted = list[Array](), list[Array]()
    normal, target = np.zeros((_TERMS, _TERMS)), np.zeros(_TERMS)
    count, done = min(chosen.networks, _NETWORKS), 0
    largest = max(width, points, flat.shape[1])
    for size in blocks(count, points, largest, weights=points > POINTS):
        picked = np.stack([np.arange(points) if batch else rng.choice(len(flat), points, False) for _ in range(size)])
        few = Handful(rng, width, signal, source=OfData(flat, picked))
        with float_range():
            for _, few in through(network.layers, few, last=network.classes):  # noqa: B007, B020  # the last one
                pass
        before = wide[picked[:, a], picked[:, b]]
        guesses = few.guesses(HEADS) if batch or not few.gaussian else None
        if batch and guesses is not None:
            counted.append(shares_of(guesses, network.classes).reshape(-1, network.classes))
        if few.gaussian or guesses is None:
            together = same(few.overlaps)
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
    before = wide
    fitted = same(before) + (1.0 - before) * sum(t * before**k for k, t in enumerate(terms))
    grid = np.sin(np.linspace(-0.5 * math.pi, 0.5 * math.pi, _FINE))
    c = np.interp(fitted, same(grid), grid)
    np.fill_diagonal(c, 1.0)
    off = ~np.eye(len(flat), dtype=bool)
    before_all = float(same(wide[off]).mean())
    excess = before_all + float(changed.mean())
    error = float(changed.std(ddof=1)) / math.sqrt(len(changed)) / network.classes
    finite, infinite = (math.sqrt(max(v, 0.0) / network.classes) for v in (excess, before_all))
    size = FiniteSize(
        width,
        None,
        "chain",
        finite,
        infinite,
        error=min(error / (2.0 * finite), math.sqrt(error)) if finite > 0.0 else math.sqrt(error),
        networks=len(changed),
        overlap=float(c[off].mean()),
        overlap_variance=float(c[off].var()),
        remark=""
        if batch
        else "the network's noise is averaged over networks: how they differ is not in the law of the shares",
    )
    return OnData(c, size, np.concatenate(counted) if counted else None)


def _moments(flat: Array) -> Inputs:
    """What a centred activation takes off is its mean at the variance of the closed form, for inputs like these."""
    center = flat.mean(axis=0)
    square = float((center**2).mean())
    variance = float(((flat - center) ** 2).mean())
    return Inputs.of_sample(square, variance, float(flat.mean()), points=len(flat))
