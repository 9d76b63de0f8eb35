"""The hand-batched trainer of descriptions: groups of members side by side, with a backward pass of our own.

One flat buffer holds the weights of a group, so the optimizer is one fused pass over it (performance.md, "Training").
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from firstguess.ensemble.seeds import fill_biases, fill_weights, member_seeds
from firstguess.ensemble.training_loop import Observe, Values
from firstguess.ensemble.training_ops import (
    Dense,
    Look,
    Op,
    Room,
    aligned,
    back,
    every_dense,
    fresh,
    looked,
    through,
    widths,
)
from firstguess.ensemble.training_order import orders
from firstguess.ensemble.training_plain import room_for
from firstguess.ensemble.training_plan import Plan

_CACHE = 220_000  # numbers of an activation of a group
_MOST = 16  # members of a group


class BatchedTrainer:
    """Members of a description whose layers all have a way back: the same numbers as `build` and torch's optimizers.

    Training points are looked at as one batch; held-out ones behind a BatchNorm are normalized by the training points'
    statistics at that step.
    """

    def __init__(
        self,
        ops: Sequence[Op],
        x: NDArray[np.float32],
        labels: NDArray[np.int64],
        held: NDArray[np.float32] | None,
        plan: Plan,
        *,
        classes: int,
        threads: int,
        memory: float,
        dtype: torch.dtype = torch.float32,
        group: int | None = None,
    ) -> None:
        self.plan, self.classes, self.notes = plan, classes, ()
        self._ops, self._dtype = ops, dtype
        parts = [torch.tensor(part.reshape(len(part), -1), dtype=dtype) for part in (x, held) if part is not None]
        self._x = parts[0] if held is None else torch.cat(parts)  # training points, then held-out ones
        self._n, self._labels = len(x), torch.tensor(labels)
        self._whole = any(op.whole for op in ops)
        self._batch = plan.batch or self._n
        self._kept = list(widths(ops, self._x.shape[1]))
        self._widest = max(self._kept)
        wanted = group or max(1, min(_MOST, _CACHE // (self._widest * self._batch)))
        self.group, self.threads = self._fitting(wanted, threads, memory)

    def _fitting(self, group: int, threads: int, memory: float) -> tuple[int, int]:
        """As many members and threads as memory has room for."""
        size = 4 if self._dtype == torch.float32 else 8
        weights = sum(math.prod(op.weights.shape) + op.weights.shape[0] for op in every_dense(self._ops))
        kept = sum(self._kept) + 4 * self._widest + (self._x.shape[1] if self.plan.batch else 0)
        looked_at = 4 * self._widest * len(self._x) if self._whole else 4 * _CACHE

        def need(members: int) -> float:
            return size * (members * (5.0 * weights + kept * self._batch) + looked_at)

        while group > 1 and threads * need(group) > memory:
            group //= 2
        return group, room_for(need(group), threads, memory)

    @property
    def grain(self) -> int:
        """Those of a group: how sums over points are cut depends on how many there are."""
        return self.group

    def first(self, members: Sequence[int]) -> Iterator[Values]:
        """Logits at the start, of each."""
        torch.set_num_threads(1)  # OpenMP's setting belongs to the thread
        for start in range(0, len(members), self.group):
            with torch.no_grad():
                found = self._group(members[start : start + self.group]).look(self._n)
            yield from found

    def train(
        self, members: Sequence[int], looks: NDArray[np.int64], observe: Observe, stopped: Callable[[], bool]
    ) -> None:
        """All of them side by side."""
        torch.set_num_threads(1)
        with torch.no_grad():
            self._train(members, looks, observe, stopped)

    def _group(self, members: Sequence[int]) -> _Group:
        return _Group(self._ops, members, self._x, self._n, self.plan.seed, whole=self._whole, widest=self._widest)

    def _train(
        self, members: Sequence[int], looks: NDArray[np.int64], observe: Observe, stopped: Callable[[], bool]
    ) -> None:
        plan, n = self.plan, self._n
        group = self._group(members)
        feed = _Feed(members, self._x[:n], self._labels, plan)
        optimizer = _optimizer(plan, group.trained, group.gradient)
        places = {int(step): index for index, step in enumerate(looks)}
        alive = set(range(len(members)))
        for step in range(plan.steps + 1):
            if stopped():
                return
            x, labels = feed.next()
            group.differentiate(x, labels, plan.loss)
            if step in places:
                norms = torch.linalg.vector_norm(group.gradient, dim=1, dtype=torch.float64).tolist()
                for i, logits in enumerate(group.look(len(self._x))):
                    if i in alive:
                        held = logits[n:] if len(logits) > n else None
                        observe(members[i], places[step], logits[:n], held, norms[i])
                        if not np.isfinite(logits[:n]).all():
                            alive.discard(i)
                if not alive or step == plan.steps:
                    return
            optimizer.param_groups[0]["lr"] = float(plan.rates[step])
            optimizer.step()


class _Feed:
    """Batches of every member, each in its own order."""

    def __init__(self, members: Sequence[int], x: Tensor, labels: Tensor, plan: Plan) -> None:
        self._x, self._y, self._whole = x, labels, plan.batch is None
        self._labels = labels.expand(len(members), -1)
        if plan.batch is not None:
            self._orders = [orders(plan.seed, member, len(x), plan.batch) for member in members]
            self._room = torch.empty(len(members), aligned(plan.batch * x.shape[1]), dtype=x.dtype)

    def next(self) -> tuple[Tensor, Tensor]:
        """Points (members, nodes, points), or (points, nodes) where all see all; labels (members, points)."""
        if self._whole:
            return self._x, self._labels
        picked = torch.from_numpy(np.stack([next(order) for order in self._orders]))
        points, size = picked.shape[1], self._x.shape[1]
        batch = self._room[:, : points * size].view(len(picked), points, size)
        for which, out in zip(picked, batch, strict=True):
            torch.index_select(self._x, 0, which, out=out)
        return batch.transpose(1, 2), self._y[picked]


class _Group:
    """Members' weights and gradients in flat buffers, the operations bound to them."""

    def __init__(
        self, ops: Sequence[Op], members: Sequence[int], x: Tensor, n: int, seed: int, *, whole: bool, widest: int
    ) -> None:
        self._ops, self._x, self._n, self._whole, self._widest = fresh(ops), x, n, whole, widest
        self._count, dtype = len(members), x.dtype
        self._room = Room(self._count, dtype)
        dense = list(every_dense(self._ops))
        sizes = {learns: sum(_size(op) for op in dense if op.learns == learns) for learns in (True, False)}
        self.trained = torch.zeros(self._count, sizes[True], dtype=dtype)
        self.gradient = torch.zeros_like(self.trained)
        frozen = torch.zeros(self._count, sizes[False], dtype=dtype)
        offsets = {True: 0, False: 0}
        for op in dense:
            start = offsets[op.learns]
            op.matrix, op.bias = _views(op, self.trained if op.learns else frozen, start)
            if op.learns:
                op.matrix_gradient, op.bias_gradient = _views(op, self.gradient, start)
            offsets[op.learns] += _size(op)
        self._draw(dense, members, seed)

    def _draw(self, dense: Sequence[Dense], members: Sequence[int], seed: int) -> None:
        """As `member_module.build` does: in float32, each layer's weights and then its biases."""
        for i, member in enumerate(members):
            generator = torch.Generator().manual_seed(int(member_seeds(seed, member, member + 1)[0]))
            for op in dense:
                op.matrix[i].copy_(fill_weights(torch.empty(op.weights.shape), generator, op.weights))
                if op.bias is not None:
                    op.bias[i].copy_(fill_biases(torch.empty(op.weights.shape[0]), generator, op.weights))

    def differentiate(self, x: Tensor, labels: Tensor, loss: str) -> None:
        """Fill the gradient of the mean loss over each member's batch."""
        logits, _ = through(self._ops, self._room, x, False)
        gradient = self._room.get("logits", logits.shape[1], logits.shape[2])
        if loss == "squared":
            gradient.copy_(logits)
        else:
            torch.softmax(logits, 1, out=gradient)
        wanted = labels.unsqueeze(1)
        gradient.scatter_add_(1, wanted, gradient.new_full((), -1.0).expand(wanted.shape))
        gradient.div_(logits.shape[2])
        back(self._ops, self._room, gradient, False)

    def look(self, count: int) -> Iterator[NDArray[np.floating]]:
        """Logits (points, classes) of each member, on the first so many points."""
        x = self._x[:count]
        if self._whole:
            for i in range(self._count):
                yield looked(self._one(i), x, False, Look(1, self._n))[0].T.contiguous().numpy()
            return
        size = max(64, _CACHE // (self._widest * self._count))
        on = Look(self._count, self._n)
        parts = [looked(self._ops, part, False, on) for part in x.split(size)]
        yield from torch.cat(parts, 2).transpose(1, 2).contiguous().numpy()

    def _one(self, index: int) -> list[Op]:
        """The operations for one member alone."""
        ops = fresh(self._ops)
        for new, old in zip(every_dense(ops), every_dense(self._ops), strict=True):
            new.matrix = old.matrix[index : index + 1]
            new.bias = None if old.bias is None else old.bias[index : index + 1]
        return ops


def _size(op: Dense) -> int:
    units = op.weights.shape[0] if op.weights.bias_var > 0.0 else 0
    return aligned(math.prod(op.weights.shape)) + aligned(units)


def _views(op: Dense, flat: Tensor, start: int) -> tuple[Tensor, Tensor | None]:
    """A layer's matrices (members, units, inputs) and biases (members, units) in a flat buffer."""
    units, size = op.weights.shape[0], math.prod(op.weights.shape)
    matrix = flat[:, start : start + size].view(len(flat), *op.weights.shape)
    start += aligned(size)
    return matrix, flat[:, start : start + units] if op.weights.bias_var > 0.0 else None


def _optimizer(plan: Plan, weights: Tensor, gradient: Tensor) -> torch.optim.Optimizer:
    """torch's own, in one pass over the flat buffer; members never meet in it."""
    weights.grad = gradient
    if plan.optimizer == "adam":
        return torch.optim.Adam([weights], weight_decay=plan.decay, fused=True)
    return torch.optim.SGD([weights], weight_decay=plan.decay, fused=True)
