"""The exact reference at any width: a few points through many networks of real width, node by node (theory.md (41)).

Nothing is expanded, so the only error is that of sampling, which is stated. It covers every network whose nodes see one
data point at a time: weights, activations, norms over nodes, constants, residual blocks.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from firstguess.base.errors import NotCovered
from firstguess.base.float_range import float_range
from firstguess.base.gaussian import Array
from firstguess.network.finite_folds import through
from firstguess.network.handful import Handful, input_gram
from firstguess.network.inputs import Inputs
from firstguess.network.layer import text
from firstguess.network.network import Network
from firstguess.theory.prediction import LayerReading
from firstguess.theory.same_class import SameClass, same_class

POINTS = 16  # of a network: 120 pairs of them, for eight times the work of two points
NETWORKS = 2000
_FEWEST = 200
_WORK = 2e8  # nodes that are drawn at most: a few seconds
_WIDEST = 200_000
_SURE = 3.0  # standard errors of a variance over networks below which none is taken to be there
_AT_ONCE = 1 << 20  # numbers of one layer in memory


@dataclass(frozen=True)
class FewPoints:
    """What the networks say: A (`same_class`) and overlap averaged over pairs, each with its standard error.

    `differ` is the standard deviation of ln(1 − c) over networks: by two halves of the points, which only the network
    has in common.
    """

    layers: tuple[LayerReading, ...]
    excess: float
    excess_error: float
    overlap: float
    overlap_error: float
    variance: float  # of an overlap, over pairs and networks
    differ: float
    networks: int


def few_points(
    network: Network,
    inputs: Inputs,
    width: int,
    *,
    networks: int | None = None,
    points: int = POINTS,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> FewPoints:
    """Points through `networks` networks; by default 2000 of them, fewer where that would take long.

    `inputs.dimension` of None: infinitely many, whose overlaps are all the same.

    >>> from firstguess.network.network import Network
    >>> net = Network.parse("2 x [dense(weight_var=2) > relu > layernorm] > dense(weight_var=2)")
    >>> found = few_points(net, Inputs(dimension=100), 100, networks=500)
    >>> print(abs(found.overlap - 0.00505) < 5 * found.overlap_error)     # the expansion (42)
    True
    """
    if not network.layers[-1].draws:
        raise NotCovered(
            "a network that ends in its output layer (random weights)",
            got=f"one that ends in {text(network.layers[-1])}",
            where=f"layer {len(network.layers)}",
            hint="add '> dense'",
        )
    if width > _WIDEST:
        raise NotCovered(
            f"layers of at most {_WIDEST} nodes, to draw them", got=width, where="width", hint="width=None: infinite"
        )
    rng = np.random.default_rng([seed, 0x417])
    count = networks or round(min(max(_WORK / (points * width * (network.depth + 1)), _FEWEST), NETWORKS))
    block = max(1, _AT_ONCE // (points * max(width, points)))
    same = same_class(network.classes)
    sums = np.zeros((len(network.layers), 2))
    means: list[Array] = []
    for start in range(0, count, block):
        size = min(block, count - start)
        few = _inputs(network, inputs, rng, size, points, width)
        with float_range():
            for index, (_, behind) in enumerate(through(network.layers, few)):
                sums[index] += size * np.array(_sizes(behind))
                few = behind
        c = few.overlaps
        if not np.isfinite(c).all():
            raise NotCovered("outputs that are not all zero", got="a network that is 0 for an input")
        half = _half(points)
        a = same(c)
        means.append(
            np.stack([a.mean(1), a[:, half[0]].mean(1), a[:, half[1]].mean(1), c.mean(1), (c * c).mean(1)], axis=1)
        )
        if progress is not None:
            progress(min(start + block, count), count)
    found = np.concatenate(means)
    excess, _, _, overlap, square = (float(v) for v in found.mean(axis=0))
    errors = found.std(axis=0, ddof=1) / math.sqrt(count)
    return FewPoints(
        tuple(_reading(text(x), x.weighted, *(sums[i] / count)) for i, x in enumerate(network.layers)),
        excess,
        float(errors[0]),
        overlap,
        float(errors[3]),
        square - overlap**2,
        _differ(same, excess, _between(found[:, 1], found[:, 2])),
        count,
    )


def _inputs(network: Network, inputs: Inputs, rng: np.random.Generator, size: int, points: int, width: int) -> Handful:
    """Points N(μ, variance): their overlaps, or their components where another layer than a dense one sees them."""
    signal, d = inputs.signal(), inputs.dimension
    if network.layers[0].draws:
        if d is None:
            gram = np.full((points, points), inputs.mean_square) + inputs.variance * np.eye(points)
            return Handful(rng, width, signal, given=np.broadcast_to(gram, (size, points, points)))
        return Handful(rng, width, signal, given=input_gram(rng, size, points, inputs.mean_square, inputs.variance, d))
    if d is None:
        raise NotCovered(
            "a finite dimension, where the first layer is not a dense one",
            got="infinitely many components",
            where="layer 1",
            hint="fg.Inputs(dimension=1000)",
        )
    own = np.random.default_rng(d).standard_normal(d)  # the means of the components: theirs for all networks
    own = (own - own.mean()) / own.std() if d > 1 else np.zeros(d)
    center = inputs.mean + math.sqrt(max(inputs.mean_square - inputs.mean**2, 0.0)) * own
    return Handful(
        rng, width, signal, known=center + math.sqrt(inputs.variance) * rng.standard_normal((size, points, d))
    )


def _sizes(few: Handful) -> tuple[float, float]:
    """E q_aa and the mean overlap of two points behind a layer; a point that is 0 there has none with others."""
    k = few.gram if few.covariance is None else few.covariance
    return float(np.einsum("raa->", k)) / (k.shape[0] * k.shape[1]), float(np.nan_to_num(few.overlaps).mean())


def _reading(name: str, weights: bool, q: float, c: float) -> LayerReading:
    """γ of the mean overlap."""
    gamma = c / (1.0 - c) if c < 1.0 else math.inf
    return LayerReading(name, weights, gamma, c, 1.0 - c, math.log(q) if q > 0.0 else -math.inf, None)


def _half(points: int) -> tuple[list[int], list[int]]:
    """Which pairs are of the first half of the points, and which of the second."""
    a, b = np.triu_indices(points, 1)
    middle = points // 2
    return np.flatnonzero(b < middle).tolist(), np.flatnonzero(a >= middle).tolist()


def _between(one: Array, other: Array) -> float:
    """The variance over networks: the covariance of two halves; 0 where it is not clearly above its own error."""
    product = (one - one.mean()) * (other - other.mean())
    error = float(product.std()) / math.sqrt(len(product))
    found = float(product.mean())
    return found if found > _SURE * error else 0.0


def _differ(same: SameClass, excess: float, between: float) -> float:
    """The standard deviation of y = −ln(1 − c) whose A has this variance over networks."""
    c = same.overlap(excess)
    if not 0.0 < c < 1.0 or between <= 0.0:
        return 0.0
    step = 1e-4
    y = -math.log1p(-c)
    up, down = (float(same(np.array([-math.expm1(-(y + s))]))[0]) for s in (step, -step))
    return math.sqrt(between) * 2.0 * step / (up - down)
