"""Mini-batches, weight decay, and Adam layer by layer, a step at a time: theory.md (14), (18)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from firstguess.theory.training.flow import DescentTask, State, Values
from firstguess.theory.training.schedules import Rate

# --------------------------------------------------------------------------------------------------------------
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
_BETA1, _BETA2, _EPS = 0.9, 0.999, 1e-8  # torch.optim.Adam's
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
            mean = number(_BETA1) * mean + number(1 - _BETA1) * r
            moved = np.zeros_like(z)
            for index, part in enumerate(parts):
                along = part.theta @ r
                square = np.einsum("ij,ij->j", r, along, dtype=np.float64).reshape(networks, k) / n**2
                common = np.square(r.mean(axis=0, dtype=np.float64)).reshape(networks, k) * ones[index]
                even = _evenness(part, common, square)
                if share:
                    own = (diagonals[index] @ np.square(r, dtype=np.float64)).reshape(networks, k) / n
                    square = square + (own - square) * share
                second[index] = _BETA2 * second[index] + (1 - _BETA2) * square
                v = second[index] / (1 - _BETA2 ** (step + 1))
                scale = even * _scale(task, part, v) * (rate(step) / (1 - _BETA1 ** (step + 1)) / n)
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
        return math.sqrt(weights) / (np.sqrt(v) + _EPS * math.sqrt(weights))
    total = v.sum(axis=1, keepdims=True) * task.factor
    found = math.sqrt(part.weights) / (np.sqrt(total) + _EPS * math.sqrt(part.weights))
    return np.broadcast_to(found, v.shape)
