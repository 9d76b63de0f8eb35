"""Mini-batches, weight decay, and Adam layer by layer, a step at a time: theory.md (14), (18)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from firstguess.base.gaussian import Array
from firstguess.base.threads import in_threads
from firstguess.network.layer import Layer
from firstguess.network.network import Network
from firstguess.network.shapes import PositionGrid, Shape
from firstguess.network.walk import changed, needs_images, shapes
from firstguess.theory.training.flow import DescentTask, State, Values
from firstguess.theory.training.problem import kernel_of
from firstguess.theory.training.schedules import Rate

# Mini-batches: epochs of the data in a random order, redrawn each time; their last batch may be smaller.


class BatchRows:
    """Rows of the next batch, for ever; without a size all of them."""

    def __init__(self, n: int, size: int | None, rng: np.random.Generator) -> None:
        self._n, self._size, self._rng = n, size, rng
        self._queue: list[NDArray[np.int64]] = []

    def next(self) -> NDArray[np.int64] | slice:
        if self._size is None:
            return slice(0, self._n)
        if not self._queue:
            order = self._rng.permutation(self._n)
            self._queue = [order[i : i + self._size] for i in range(0, self._n, self._size)]
        return self._queue.pop(0)


_ORDERS = 8  # groups of networks, each with its own order of the data
_STREAM = 0x5D6
BETAS, EPS = (0.9, 0.999), 1e-8  # torch.optim.Adam's
# C, the mean of |gradient| by its root mean square over the weights of a layer: theory.md (18).
HIDDEN, OUTPUT = 2.0 / math.pi, math.sqrt(2.0 / math.pi)


def step_by_step(
    task: DescentTask,
    theta: Values,
    start: Values,
    rate: Rate,
    looks: NDArray[np.int64],
    *,
    batch: int | None,
    seed: int,
    decay: float = 0.0,
    layers: int = 1,
) -> Iterator[State]:
    """SGD: epochs of batches, reshuffled each time (networks share orders in eight groups), with weight decay.

    Decay shrinks weights by 1 − ηλ a step, as torch.optim.SGD's does: with s their product and D `layers` of a
    homogeneous network f ∝ s^D and Θ ∝ s^{2(D−1)}.
    """
    n, k = len(start), task.columns
    number = theta.dtype.type
    factor = number(task.factor)
    count = 1 if batch is None else min(_ORDERS, task.networks)
    groups = np.array_split(np.arange(task.networks), count)
    columns = [slice(int(g[0]) * k, (int(g[-1]) + 1) * k) for g in groups]
    parts = [
        replace(task, networks=len(g), gains=None if task.gains is None else task.gains[cols])
        for g, cols in zip(groups, columns, strict=True)
    ]
    orders = [BatchRows(n, batch, np.random.default_rng([seed, _STREAM, i])) for i in range(count)]
    z, s, step, shrunk = start.copy(), np.zeros_like(start), 0, 1.0
    for target in looks.tolist():
        while step < target:
            now = rate(step)
            keep = 1.0 - now * decay
            for cols, part, order in zip(columns, parts, orders, strict=True):
                rows = order.next()
                few = replace(part, labels=part.labels[rows])
                r = few.residuals(z[rows, cols])
                if decay:
                    z[:, cols] *= number(keep**layers)
                    s[:, cols] *= number(keep**layers)
                move = number(now * shrunk ** (2 * (layers - 1)) / len(r)) * r
                s[rows, cols] += move
                z[:, cols] -= factor * (theta[:, rows] @ move)
            shrunk *= keep
            step += 1
        yield State(step, z, s, shrunk**layers)


@dataclass(frozen=True)
class LayerPart:
    """One layer's own tangent kernel over the training points, how many weights it has, whether it is last."""

    theta: Values  # (n, n)
    weights: int
    last: bool
    evenness: tuple[float, float]  # C of (18) for residuals that are common to all points, and for the rest


def adam_by_layer(
    task: DescentTask,
    parts: Sequence[LayerPart],
    start: Values,
    rate: Rate,
    looks: NDArray[np.int64],
    *,
    batch: int | None,
) -> Iterator[tuple[State, list[Values]]]:
    """Adam by (18); besides each state, S of every layer, for logits of other points.

    A factor on Θ divides out but for its root: r is without it here, and every step is longer by √gain.
    """
    n, networks, k = len(start), task.networks, task.columns
    number = start.dtype.type
    root = np.ones(networks * k) if task.gains is None else np.sqrt(task.gains)
    task = replace(task, gains=None)
    mean = np.zeros_like(start)  # the 0.9-average of r
    second = [np.zeros((networks, k)) for _ in parts]
    ones = [float(part.theta.sum(dtype=np.float64)) / n**2 for part in parts]
    diagonals = [np.diagonal(part.theta).astype(np.float64) for part in parts]
    sums = [np.zeros_like(start) for _ in parts]
    z, step = start.copy(), 0
    share = 0.0 if batch is None or batch >= n else (1.0 - batch / n) / batch
    for target in looks.tolist():
        while step < target:
            r = task.residuals(z)
            mean = number(BETAS[0]) * mean + number(1 - BETAS[0]) * r
            moved = np.zeros_like(z)
            for index, part in enumerate(parts):
                along = part.theta @ r
                square = np.einsum("ij,ij->j", r, along, dtype=np.float64).reshape(networks, k) / n**2
                common = np.square(r.mean(axis=0, dtype=np.float64)).reshape(networks, k) * ones[index]
                even = _evenness(part, common, square)
                if share:
                    own = (diagonals[index] @ np.square(r, dtype=np.float64)).reshape(networks, k) / n
                    square = square + (own - square) * share
                second[index] = BETAS[1] * second[index] + (1 - BETAS[1]) * square
                v = second[index] / (1 - BETAS[1] ** (step + 1))
                scale = even * _scale(task, part, v) * (rate(step) / (1 - BETAS[0] ** (step + 1)) / n)
                wide = mean * (scale.reshape(-1) * root).astype(z.dtype)
                sums[index] += wide
                moved += part.theta @ wide
            z = z - number(task.factor) * moved
            step += 1
        yield State(step, z, sums[0]), sums


def _evenness(part: LayerPart, common: Values, square: Values) -> Values:
    """C of every network: between that of the common direction and of the rest, by their shares of the gradient."""
    if not part.last:
        common, square = common.sum(axis=1, keepdims=True), square.sum(axis=1, keepdims=True)
    share = np.clip(common / np.maximum(square, 1e-300), 0.0, 1.0)
    one, other = part.evenness
    return np.sqrt(share * one**2 + (1.0 - share) * other**2)


def _scale(task: DescentTask, part: LayerPart, v: Values) -> Values:
    """√P/√v of every column (networks, columns): a hidden layer's gradient is the sum over classes, the last layer has
    weights for each class.

    `v` is rᵀΘr/n² of a column; of two classes there are two such residuals, r and −r.
    """
    if part.last:
        weights = part.weights / task.classes
        return math.sqrt(weights) / (np.sqrt(v) + EPS * math.sqrt(weights))
    total = v.sum(axis=1, keepdims=True) * task.factor
    found = math.sqrt(part.weights) / (np.sqrt(total) + EPS * math.sqrt(part.weights))
    return np.broadcast_to(found, v.shape)


# Adam in the wide limit, on a sample of weights: what (18) of theory.md averages, weight by weight.
#
# Lazy training is linear in the weights, f = f(0) + J·(w − w(0)), whatever steps w takes. Adam's step of a weight is
# −η·m/√v with m and v of that weight alone, so J·Δw is an average over the weights of a layer, and a thousand of them
# drawn at random tell it: no constant C, any number of classes, any loss; mini-batches are mini-batches.


_ADAM_STREAM = 0x5D7


@dataclass(frozen=True, eq=False)
class WeightSample:
    """Some weights of one network, drawn at random from every layer."""

    jacobian: Values  # (points · columns, weights): the derivative of every logit by every weight
    stands_for: tuple[Values, ...]  # by layer: how many of its weights each stands for


def sampled_adam(
    task: DescentTask,
    samples: Sequence[WeightSample],
    tangents: Sequence[Values],
    start: Values,
    rate: Rate,
    looks: NDArray[np.int64],
    *,
    batch: int | None,
    seed: int,
) -> Iterator[Values]:
    """Logits of all points at the steps `looks`; the first `len(task.labels)` points are trained on.

    `tangents` are the layers' own Θ (points, training points). The part of a step that is m times one number for all
    weights of a layer is theirs, and only the rest is left to the sample: Δw = −η(s·m + (1/√v − s)·m), where s is the
    regression of m/√v on m. This few weights are enough for many points. Networks are split into as many groups as
    there are samples; each has its own order of the data. A factor on Θ of a network (theory.md (19)) is a factor √ on
    J.
    """
    split = [part for part in np.array_split(np.arange(task.networks), len(samples)) if len(part)]
    groups = [
        _Group(task, sample, tangents, start, part, BatchRows(len(task.labels), batch, _rng(seed, i)))
        for i, (sample, part) in enumerate(zip(samples, split, strict=False))
    ]
    done = 0
    for target in looks.tolist():
        found = [start] * len(groups)
        in_threads(partial(_walk, groups, [rate(step) for step in range(done, target)], found), len(groups))
        yield np.concatenate(found, axis=1)
        done = target


def _rng(seed: int, group: int) -> np.random.Generator:
    """The order of the data of a group of networks; tests follow it, too."""
    return np.random.default_rng([seed, _ADAM_STREAM, group])


def _walk(groups: Sequence[_Group], rates: Sequence[float], found: list[Values], index: int) -> None:
    for rate in rates:
        groups[index].step(rate)
    found[index] = groups[index].logits(slice(None))


class _Group:
    """Networks that share a sample of weights."""

    def __init__(
        self,
        task: DescentTask,
        sample: WeightSample,
        tangents: Sequence[Values],
        start: Values,
        networks: NDArray[np.int64],
        batches: BatchRows,
    ) -> None:
        k, count, self._type = task.columns, len(networks), start.dtype
        columns = slice(int(networks[0]) * k, (int(networks[-1]) + 1) * k)
        self._task = replace(task, networks=count, gains=None)
        self._start, self._tangents, self._batches, self._k = start[:, columns], tangents, batches, k
        gains = np.ones(count * k) if task.gains is None else task.gains[columns]
        self._root = np.sqrt(gains).astype(self._type)
        self._jacobian = sample.jacobian.reshape(len(start), k, -1)
        edges = np.cumsum([0, *(len(layer) for layer in sample.stands_for)]).tolist()
        self._layers = [slice(a, b) for a, b in pairwise(edges)]
        self._stands_for = np.concatenate(sample.stands_for).astype(self._type)
        shape = (count, edges[-1])
        self._moved, self._mean, self._square = (np.zeros(shape, self._type) for _ in range(3))
        trained = (len(task.labels), count * k)
        self._residuals = np.zeros(trained, self._type)  # their 0.9-average, by points of the batch
        self._sums = [np.zeros(trained, self._type) for _ in tangents]
        self._factor = self._type.type(task.factor)  # the difference of two logits has twice their tangent
        self._steps = 0

    def logits(self, rows: NDArray[np.int64] | slice, j: Values | None = None) -> Values:
        """(points, networks · columns); `j` are the derivatives of these points, where they are at hand."""
        j = self._jacobian[rows] if j is None else j
        moved = (self._moved * self._stands_for) @ j.reshape(-1, j.shape[-1]).T  # (networks, points · columns)
        change = moved.reshape(-1, len(j), self._k).transpose(1, 0, 2).reshape(len(j), -1)
        for theta, s in zip(self._tangents, self._sums, strict=True):
            change -= self._factor * (theta[rows] @ s)
        return self._start[rows] + change * self._root

    def step(self, rate: float) -> None:
        """torch.optim.Adam's, of the sampled weights."""
        rows = self._batches.next()
        j = self._jacobian[rows]
        r = replace(self._task, labels=self._task.labels[rows]).residuals(self.logits(rows, j)) * self._root
        n, number = len(r), self._type.type
        r /= number(n)
        flat = r.reshape(n, -1, self._k).transpose(1, 0, 2).reshape(-1, n * self._k)
        gradient = flat @ j.reshape(n * self._k, -1)
        self._steps += 1
        first, second = BETAS
        for average, new, beta in (
            (self._residuals, None, first),
            (self._mean, gradient, first),
            (self._square, np.square(gradient), second),
        ):
            average *= number(beta)
            if new is not None:
                average += number(1.0 - beta) * new
        self._residuals[rows] += number(1.0 - first) * r
        inverse = self._square / number(1.0 - second**self._steps)
        np.sqrt(inverse, out=inverse)
        inverse += number(EPS)
        np.reciprocal(inverse, out=inverse)
        pace = number(rate / (1.0 - first**self._steps))
        for layer, s in zip(self._layers, self._sums, strict=True):
            square = np.square(self._mean[:, layer]) * self._stands_for[layer]
            size = square.sum(axis=1)
            common = np.einsum("ij,ij->i", square, inverse[:, layer]) / np.where(size > 0, size, 1)
            inverse[:, layer] -= common[:, None]
            s += self._residuals * (pace * np.repeat(common, self._k))
        inverse *= self._mean
        self._moved -= pace * inverse


# The tangent kernel, layer by layer: Adam has another step for each (theory.md (18)).


def layer_tangents(network: Network, x: Array, width: int) -> Iterator[tuple[Array, int, bool]]:
    """Θ of each layer's own weights alone, their number, and whether it is the output: the sum is Θ.

    Frozen layers have none.
    """
    sizes = list(layer_weights(network, x, width))
    frozen = [getattr(layer, "frozen", False) for layer in _in_order(network.layers) if layer.draws]
    for index, size in enumerate(sizes):
        if frozen[index]:
            continue
        alone = kernel_of(_only(network, index), x, width).tangent
        assert alone is not None
        yield alone, size, index == len(sizes) - 1


def _in_order(layers: Sequence[Layer]) -> Iterator[Layer]:
    """Layers within others first, as `changed` has them."""
    for layer in layers:
        for path in layer.paths:
            yield from _in_order(path)
        yield layer


def _only(network: Network, index: int) -> Network:
    """The network in which only one layer is trained."""
    seen = -1

    def change(layer: Layer) -> tuple[Layer, ...]:
        nonlocal seen
        if not layer.draws:
            return (layer,)
        seen += 1
        given: Any = layer
        return (replace(given, frozen=given.frozen or seen != index),)

    return replace(network, layers=changed(network.layers, change))


def layer_weights(network: Network, x: Array, width: int) -> Iterator[int]:
    """How many weights each layer has, in the order of `changed`."""
    images = needs_images(network.layers)
    shape = Shape(x.shape[1], PositionGrid(tuple(x.shape[2:]))) if images else Shape(math.prod(x.shape[1:]))
    yield from _counted(network.layers, shapes(network.layers, shape, width, last=network.classes), width)


def _counted(layers: Sequence[Layer], found: Sequence[Shape], width: int) -> Iterator[int]:
    for layer, before, after in zip(layers, found, found[1:], strict=False):
        for path, inner in zip(layer.paths, layer.inside(before, width), strict=False):
            yield from _counted(path, inner, width)
        if layer.draws:
            places = layer.kernel_side**2 if layer.kernel_side else (before.grid.places if before.grid else 1)
            yield before.units * places * after.units
