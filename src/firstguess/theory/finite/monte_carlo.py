"""The exact reference at any width: a few points through many networks of real width (theory.md (41)).

Nothing is expanded, so the only error is that of sampling, which is stated. It covers every network of dense layers:
Gaussian weights node by node, others by drawing them; activations, norms over nodes, constants, pools, residual blocks.
Where a norm looks at the points (BatchNorm), the sample is a whole batch, and guesses are counted on it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from firstguess.base.checks import float_range
from firstguess.base.errors import NotCovered
from firstguess.base.gaussian import Array
from firstguess.network.finite_sample import Described, PointSample
from firstguess.network.inputs import Inputs
from firstguess.network.layer import LayerReading, Mix, text
from firstguess.network.network import Network
from firstguess.network.walk import every, no_output, through
from firstguess.theory.shares.gaussian_argmax import AgreementProbability, agreement_probability
from firstguess.theory.shares.many_classes import PairMoments, pair_moments

POINTS = 16  # of a network: 120 pairs of them, for eight times the work of two points
BATCH = 256  # points of a batch that nobody named, for a norm over it
_BATCH_MOST = 2000  # points of a batch, at most: they stand for larger ones
_BY_WEIGHTS = 32  # points of a network whose weights are drawn: those cost more than points
NETWORKS = 8000
ENOUGH = 1000  # networks that do, where they say all to `_PRECISE`
_PRECISE = 0.002  # standard error of the standard deviation of a share, relative to it
_BATCHES = 600  # networks whose whole batches are counted, with many output layers each
_FEWEST = 200
_WORK = 1e8  # units that are drawn at most: a few seconds
_FEWEST_BY_WEIGHTS, _WEIGHTS, _PRODUCTS = 50, 1.2e9, 1e11  # likewise: weights, and products with them
_WIDEST = 200_000
_PAIRED = 256  # points of a batch whose pairs are looked at
_SURE = 3.0  # standard errors of a variance over networks below which none is taken to be there
_AT_ONCE = 1 << 20  # numbers of one layer in memory
HEADS = 64  # output layers of a network, where guesses are counted


@dataclass(frozen=True)
class SampledPoints:
    """What the networks say: A (`agreement_probability`) and overlap averaged over pairs, each with its standard error.

    `differ` is the standard deviation of ln(1 − c) over networks: by two halves of the points, which only the network
    has in common. `counted`: the shares of the points themselves, where these are a whole batch.
    """

    layers: tuple[LayerReading, ...]
    excess: float
    excess_error: float
    overlap: float
    overlap_error: float
    variance: float  # of an overlap, over pairs and networks
    differ: float
    networks: int
    points: int
    dead: float  # the share of points that are 0 at the output
    pairs: PairMoments
    counted: Array | None = None  # (networks · output layers, classes)


def whole_batch(network: Network) -> bool:
    """Whether a layer looks at all points of a batch."""
    return any(Mix.POINTS in layer.mixes for layer in every(network.layers))


def sample_size(network: Network, width: int, dimension: int | None, points: int | None) -> tuple[int, int]:
    """How many networks, of how many points each, a few seconds are enough for; `points`: those of the data set."""
    batch, own = whole_batch(network), all(layer.gaussian for layer in every(network.layers))
    size = _batch(network, points) if batch else POINTS if own else _BY_WEIGHTS
    depth = max(sum(layer.draws for layer in every(network.layers)), 1)
    if own and not batch:
        return round(min(max(_WORK / (size * width * depth), _FEWEST), NETWORKS)), size
    weights = width * (dimension or 0) + width * width * (depth - 1)
    most = min(_WEIGHTS / max(weights, 1), _PRODUCTS / max(weights * size, 1), _BATCHES if batch else NETWORKS)
    return round(max(most, _FEWEST_BY_WEIGHTS)), size


def _batch(network: Network, points: int | None) -> int:
    """As many as the data have, or a documented number of whole batches."""
    if points is not None:
        return min(points, _BATCH_MOST)
    whole = math.lcm(*(layer.batch or 1 for layer in every(network.layers)))
    return max(BATCH // whole, 1) * whole


def sample_points(
    network: Network,
    inputs: Inputs,
    width: int,
    *,
    networks: int | None = None,
    points: int | None = None,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> SampledPoints:
    """Points through `networks` networks; by default up to 8000, fewer where that would take long or add nothing.

    `points` is the size of the data set, which matters where a layer looks at all of them. `inputs.dimension` of None:
    infinitely many, whose overlaps are all the same.

    >>> from firstguess.network.network import Network
    >>> net = Network.parse("2 x [dense(weight_var=2) > relu > layernorm] > dense(weight_var=2)")
    >>> found = sample_points(net, Inputs(dimension=100), 100, networks=500)
    >>> print(abs(found.overlap - 0.00505) < 5 * found.overlap_error)     # the expansion (42)
    True
    """
    check_sampled(network, width)
    enough, each = sample_size(network, width, inputs.dimension, points)

    def start(rng: np.random.Generator, size: int) -> PointSample:
        return PointSample(rng, width, inputs.signal(), source=Described(rng, inputs, size, each))

    rng = np.random.default_rng([seed, 0x417])
    count = networks or enough
    largest = max(width, each, inputs.dimension or 0)
    gathered = _Gathered(network, each, whole_batch(network))
    for size in blocks(count, each, largest, weights=each != POINTS):
        gathered.add(start(rng, size), size)
        if progress is not None:
            progress(gathered.done, count)
        if networks is None and gathered.done >= ENOUGH and gathered.precise:
            break
    return gathered.found()


def blocks(count: int, points: int, nodes: int, *, weights: bool) -> Iterator[int]:
    """How many networks at a time, by the numbers that a layer of them has."""
    block = max(1, _AT_ONCE // ((nodes if weights else points) * max(nodes, points)))
    for start in range(0, count, block):
        yield min(block, count - start)


def check_sampled(network: Network, width: int) -> None:
    """Refuse what cannot be drawn."""
    if not network.layers[-1].draws:
        raise no_output(network.layers)
    if width > _WIDEST:
        hint = "width=None: infinite"
        raise NotCovered(f"layers of at most {_WIDEST} nodes, to draw them", got=width, where="width", hint=hint)


class _Gathered:
    def __init__(self, network: Network, points: int, batch: bool) -> None:
        self._network, self._points, self._batch = network, points, batch
        self._same = agreement_probability(network.classes)
        self._sums = np.zeros((len(network.layers), 2))
        self._rows, self._pairs, self._counted = list[Array](), list[Array](), list[Array]()
        self.done, self._dead = 0, 0.0

    def add(self, sample: PointSample, size: int) -> None:
        """A block of networks, from their points to what they guess."""
        with float_range():
            for index, (_, after) in enumerate(through(self._network.layers, sample, last=self._network.classes)):
                self._sums[index] += np.array([v.sum() for v in after.sizes()])
                sample = after
        seen = sample.first(_PAIRED)
        c = seen.overlaps
        self._dead += size * seen.dead
        guesses = sample.guesses(HEADS) if self._batch or not sample.gaussian else None
        if sample.gaussian or guesses is None:
            same, (a, b), middle = self._same(c), np.triu_indices(seen.points, 1), seen.points // 2
            excess = same.mean(1), same[:, b < middle].mean(1), same[:, a >= middle].mean(1)
        else:
            middle = self._points // 2
            parts = guesses, guesses[:, :, :middle], guesses[:, :, middle:]
            excess = tuple(_together(part, self._network.classes) for part in parts)
        self._rows.append(np.stack([*excess, c.mean(1), (c * c).mean(1)], axis=1))
        if self._batch and guesses is not None:
            self._counted.append(shares_of(guesses, self._network.classes).reshape(-1, self._network.classes))
        elif self._network.classes > 2:
            self._pairs.append(pair_moments(sample.correlation))
        self.done += size

    @property
    def precise(self) -> bool:
        """Whether the standard deviation of a share is known well: more networks would change nothing that shows."""
        excess = np.concatenate(self._rows)[:, 0]
        error = float(excess.std(ddof=1)) / math.sqrt(len(excess))
        return error < 2.0 * _PRECISE * float(excess.mean())

    def found(self) -> SampledPoints:
        rows, count = np.concatenate(self._rows), self.done
        excess, _, _, overlap, square = (float(v) for v in rows.mean(axis=0))
        errors = rows.std(axis=0, ddof=1) / math.sqrt(count)
        layers = self._network.layers
        # The mean overlap of independent points is |E x/|x||², never below 0; a batch that is centred has −1/(n − 1).
        least = -1.0 if self._batch else 0.0
        sizes = [(float(q), max(float(c), least)) for q, c in self._sums / count]
        return SampledPoints(
            tuple(_reading(text(x), x.weighted, *size) for x, size in zip(layers, sizes, strict=True)),
            excess,
            float(errors[0]),
            overlap,
            float(errors[3]),
            square - overlap**2,
            _differ(self._same, excess, _between(rows[:, 1], rows[:, 2])),
            count,
            self._points,
            self._dead / count,
            PairMoments.of(np.concatenate(self._pairs)) if self._pairs else PairMoments(),
            np.concatenate(self._counted) if self._counted else None,
        )


def shares_of(guesses: NDArray[np.intp], classes: int) -> Array:
    """(networks, heads, classes) of guesses (networks, heads, points)."""
    return np.stack([(guesses == k).mean(axis=2) for k in range(classes)], axis=2)


def _together(guesses: NDArray[np.intp], classes: int) -> Array:
    """How often two points get one class, less 1/M: over the pairs and output layers of every network."""
    n = guesses.shape[2]
    shares = shares_of(guesses, classes)
    return ((n * (shares**2).sum(axis=2) - 1.0) / (n - 1)).mean(axis=1) - 1.0 / classes


def _reading(name: str, weights: bool, q: float, c: float) -> LayerReading:
    """γ of the mean overlap."""
    gamma = c / (1.0 - c) if c < 1.0 else math.inf
    return LayerReading(name, weights, gamma, c, 1.0 - c, math.log(q) if q > 0.0 else -math.inf, None)


def _between(one: Array, other: Array) -> float:
    """The variance over networks: the covariance of two halves; 0 where it is not clearly above its own error."""
    product = (one - one.mean()) * (other - other.mean())
    error = float(product.std()) / math.sqrt(len(product))
    found = float(product.mean())
    return found if found > _SURE * error else 0.0


def _differ(same: AgreementProbability, excess: float, between: float) -> float:
    """The standard deviation of y = −ln(1 − c) whose A has this variance over networks."""
    c = same.overlap(excess)
    if not 0.0 < c < 1.0 or between <= 0.0:
        return 0.0
    step = 1e-4
    y = -math.log1p(-c)
    up, down = (float(same(np.array([-math.expm1(-(y + s))]))[0]) for s in (step, -step))
    return math.sqrt(between) * 2.0 * step / (up - down)
