"""The hand-batched trainer of descriptions: groups of members side by side, with a backward pass of our own.

One flat buffer holds the weights of a group, so the optimizer is one fused pass over it (performance.md, "Training").
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from firstguess.base.errors import FirstguessError
from firstguess.ensemble.seeds import fill_biases, fill_weights, member_seeds, orders
from firstguess.ensemble.training_loop import Observe, Plan, Values, room_for
from firstguess.network.activations.tensors import Derivative, Kept
from firstguess.network.tensors import Local, OverData, Paths, Place, Unbatched, Weights

# A description as operations that many members go through side by side, forward and backward.
#
# Activations are (members, units, points). Every operation has buffers of its own, which steps use again. A member's
# part of a buffer begins at a multiple of 64 bytes, so that its numbers do not depend on how many are carried together.

_ALIGN = 16  # numbers


def aligned(size: int) -> int:
    """The next size at which a member's part may end."""
    return -(-size // _ALIGN) * _ALIGN


class Room:
    """Buffers of one group of members, by name; made when first asked for."""

    def __init__(self, members: int, dtype: torch.dtype) -> None:
        self.members, self.dtype = members, dtype
        self._flat: dict[object, Tensor] = {}
        self._views: dict[tuple[object, int, int], Tensor] = {}

    def get(self, name: object, nodes: int, points: int) -> Tensor:
        """(members, units, points); the same memory for the same name."""
        found = self._views.get((name, nodes, points))
        if found is None:
            size = aligned(nodes * points)
            flat = self._flat.get(name)
            if flat is None or flat.shape[1] < size:
                flat = self._flat[name] = torch.zeros(self.members, size, dtype=self.dtype)
                self._views = {key: view for key, view in self._views.items() if key[0] != name}
            found = flat[:, : nodes * points].view(self.members, nodes, points)
            self._views[name, nodes, points] = found
        return found

    def other(self, than: Tensor, nodes: int, points: int) -> Tensor:
        """One of two gradients, that which does not hold `than`."""
        first = self.get("gradient 0", nodes, points)
        return first if first.data_ptr() != than.data_ptr() else self.get("gradient 1", nodes, points)


@dataclass(frozen=True)
class Evaluation:
    """How many members there are, and how many of the points are for training: norms use their statistics."""

    members: int
    training: int


class Op(Protocol):
    """One operation in training."""

    @property
    def learns(self) -> bool:
        """Whether it has weights that are trained."""
        ...

    def forward(self, room: Room, x: Tensor, free: bool) -> tuple[Tensor, bool]:
        """The result, and whether what comes next may overwrite it; `free`: this may overwrite x.

        x is (members, units, points), or (points, units) where all members see the same data.
        """
        ...

    def backward(self, room: Room, gradient: Tensor, wanted: bool) -> Tensor:
        """Return the gradient by the input, if that is `wanted`, from that by the result, which it may overwrite."""
        ...

    def look(self, x: Tensor, free: bool, on: Evaluation) -> Tensor:
        """Return the result, with nothing kept for a backward pass."""
        ...

    @property
    def whole(self) -> bool:
        """Whether points see each other: then all of them are looked at together."""
        ...

    @property
    def batches(self) -> bool:
        """Whether it is a norm over batches of its own, which has no meaning for held-out points."""
        ...

    def fresh(self) -> Op:
        """The same with nothing kept, for another group of members."""
        ...


def through(ops: Sequence[Op], room: Room, x: Tensor, free: bool) -> tuple[Tensor, bool]:
    """Run the operations forward, one after another."""
    for op in ops:
        x, free = op.forward(room, x, free)
    return x, free


def back(ops: Sequence[Op], room: Room, gradient: Tensor, wanted: bool) -> Tensor:
    """Run backward, as far as something before is trained or the input's gradient is wanted."""
    first = next((i for i, op in enumerate(ops) if op.learns), len(ops))
    for index in range(len(ops) - 1, -1, -1):
        if index < first and not wanted:
            break
        gradient = ops[index].backward(room, gradient, wanted or index > first)
    return gradient


def looked(ops: Sequence[Op], x: Tensor, free: bool, on: Evaluation) -> Tensor:
    """Run forward without keeping anything for a backward pass."""
    for op in ops:
        x, free = op.look(x, free, on), True
    return x


def _each(x: Tensor, members: int) -> Tensor:
    """Data that all members share, in the common layout."""
    return x.T.expand(members, -1, -1) if x.dim() == 2 else x


@dataclass(eq=False)
class DenseOp:
    """Rows of weights times all units of a point; `matrix` and the others are views, bound by a group."""

    weights: Weights
    where: Place
    matrix: Tensor = field(init=False)
    bias: Tensor | None = field(init=False, default=None)
    matrix_gradient: Tensor | None = field(init=False, default=None)
    bias_gradient: Tensor | None = field(init=False, default=None)
    _x: Tensor = field(init=False)

    @property
    def learns(self) -> bool:
        return self.weights.trained

    def forward(self, room: Room, x: Tensor, free: bool) -> tuple[Tensor, bool]:
        self._x = x
        points = x.shape[0] if x.dim() == 2 else x.shape[2]
        return self._product(x, room.get(self, self.weights.shape[0], points)), True

    def _product(self, x: Tensor, out: Tensor) -> Tensor:
        if x.dim() == 2:
            for matrix, one in zip(self.matrix, out, strict=True):
                torch.mm(matrix, x.T, out=one)
        else:
            torch.bmm(self.matrix, x, out=out)
        return out if self.bias is None else out.add_(self.bias.unsqueeze(2))

    def backward(self, room: Room, gradient: Tensor, wanted: bool) -> Tensor:
        x = self._x
        if self.matrix_gradient is not None:
            if x.dim() == 2:
                for one, into in zip(gradient, self.matrix_gradient, strict=True):
                    torch.mm(one, x, out=into)
            else:
                torch.bmm(gradient, x.transpose(1, 2), out=self.matrix_gradient)
        if self.bias_gradient is not None:
            torch.sum(gradient, 2, out=self.bias_gradient)
        if not wanted:
            return gradient
        out = room.other(gradient, self.weights.shape[1], gradient.shape[2])
        return torch.bmm(self.matrix.transpose(1, 2), gradient, out=out)

    def look(self, x: Tensor, free: bool, on: Evaluation) -> Tensor:
        points = x.shape[0] if x.dim() == 2 else x.shape[2]
        size = aligned(self.weights.shape[0] * points)
        flat = torch.empty(len(self.matrix), size, dtype=x.dtype)[:, : self.weights.shape[0] * points]
        return self._product(x, flat.view(len(self.matrix), -1, points))

    whole = False
    batches = False

    def fresh(self) -> DenseOp:
        return DenseOp(self.weights, self.where)


@dataclass(eq=False)
class UnitOp:
    """An operation without weights."""

    record: Local | OverData
    derivative: Derivative
    learns: bool = field(init=False, default=False)
    _kept: Tensor = field(init=False)
    _more: Kept = field(init=False, default=())

    def forward(self, room: Room, x: Tensor, free: bool) -> tuple[Tensor, bool]:
        x = _each(x, room.members)
        keeps = self.derivative.keeps
        out = x if free and keeps != "input" else room.get(self, x.shape[1], x.shape[2])
        self._more = self.derivative.forward(x, out)
        self._kept = x if keeps == "input" else out
        return out, keeps != "output"

    def backward(self, room: Room, gradient: Tensor, wanted: bool) -> Tensor:
        return self.derivative.backward(gradient, self._kept, self._more)

    def look(self, x: Tensor, free: bool, on: Evaluation) -> Tensor:
        x = x if free else _each(x, on.members).clone(memory_format=torch.contiguous_format)
        record = self.record
        if isinstance(record, Local):
            return record.apply(x, torch.empty_like)
        if record.first is not None:
            x = record.first(x, torch.empty_like)
        own = x[:, :, : on.training].double()
        mean = own.mean(2)
        variance = (own - mean.unsqueeze(2)).square_().mean(2)
        return record.apply(x, record.terms(x, mean, variance))

    @property
    def whole(self) -> bool:
        return isinstance(self.record, OverData) or self.batches

    @property
    def batches(self) -> bool:
        return isinstance(self.record, Local) and self.record.batch > 1

    def fresh(self) -> UnitOp:
        return UnitOp(self.record, self.derivative)


@dataclass(eq=False)
class SumOp:
    """shortcut(x) + scale · branch(x)."""

    branch: list[Op]
    shortcut: list[Op]
    scale: float

    @property
    def learns(self) -> bool:
        return any(op.learns for op in (*self.branch, *self.shortcut))

    def forward(self, room: Room, x: Tensor, free: bool) -> tuple[Tensor, bool]:
        one, _ = through(self.branch, room, x, False)
        other, _ = through(self.shortcut, room, x, False)
        other = _each(other, room.members)
        out = room.get(self, one.shape[1], one.shape[2])
        torch.add(other, _each(one, room.members), alpha=self.scale, out=out)
        return out, True

    def backward(self, room: Room, gradient: Tensor, wanted: bool) -> Tensor:
        sizes = gradient.shape[1:]
        aside = room.get((self, "shortcut"), *sizes).copy_(gradient)
        one = back(self.branch, room, gradient.mul_(self.scale), wanted)
        if not self.shortcut:
            return aside.add_(one) if wanted else aside
        if wanted:
            one = room.get((self, "branch"), *one.shape[1:]).copy_(one)
        other = back(self.shortcut, room, aside, wanted)
        return other.add_(one) if wanted else other

    def look(self, x: Tensor, free: bool, on: Evaluation) -> Tensor:
        one = looked(self.branch, x, False, on)
        other = looked(self.shortcut, x, False, on) if self.shortcut else _each(x, on.members)
        return torch.add(other, one, alpha=self.scale)

    @property
    def whole(self) -> bool:
        return any(op.whole for op in (*self.branch, *self.shortcut))

    @property
    def batches(self) -> bool:
        return any(op.batches for op in (*self.branch, *self.shortcut))

    def fresh(self) -> SumOp:
        return SumOp(fresh(self.branch), fresh(self.shortcut), self.scale)


def compile_ops(places: Sequence[Place]) -> list[Op] | str:
    """The operations of these layers, or the first layer that has no backward pass here."""
    found: list[Op] = []
    for place in places:
        try:
            record = place.layer.tensors(place)
        except FirstguessError as error:
            raise error.at(place.where) from None
        if place.before.images or place.after.images:
            return place.where
        match record:
            case Weights() as weights:
                if weights.product is not None:
                    return place.where
                found.append(DenseOp(weights, place))
            case Local(derivative=derivative) | OverData(derivative=derivative):
                if derivative is None:
                    return place.where
                found.append(UnitOp(record, derivative))
            case Unbatched():
                return place.where
            case Paths(scale):
                paths = [compile_ops(path) for path in place.paths]
                for path in paths:
                    if isinstance(path, str):
                        return path
                branch, shortcut = (path for path in paths if not isinstance(path, str))
                found.append(SumOp(branch, shortcut, scale))
    return found


def every_dense(ops: Sequence[Op]) -> Iterator[DenseOp]:
    """All weights, in the order in which members draw them."""
    for op in ops:
        if isinstance(op, DenseOp):
            yield op
        elif isinstance(op, SumOp):
            yield from every_dense(op.branch)
            yield from every_dense(op.shortcut)


def fresh(ops: Sequence[Op]) -> list[Op]:
    """The same operations with nothing kept, for another group of members."""
    return [op.fresh() for op in ops]


def widths(ops: Sequence[Op], last: int) -> Iterator[int]:
    """Units of every buffer that a pass keeps, roughly: one an operation; `last` units come in."""
    for op in ops:
        if isinstance(op, DenseOp):
            last = op.weights.shape[0]
        elif isinstance(op, SumOp):
            inside = [*widths(op.branch, last), *widths(op.shortcut, last)]
            yield from inside
            last = max(inside, default=last)
        yield last


_CACHE = 220_000  # numbers of an activation of a group
_MOST = 16  # members of a group


class BatchedTrainer:
    """Members of a description whose layers all have a backward pass: the numbers of `build` and torch's optimizers.

    Training points are looked at as one batch; held-out ones after a BatchNorm are normalized by the training points'
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
    def bitwise_group(self) -> int:
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
        """Train all of them side by side."""
        torch.set_num_threads(1)
        with torch.no_grad():
            self._train(members, looks, observe, stopped)

    def _group(self, members: Sequence[int]) -> _MemberGroup:
        return _MemberGroup(
            self._ops, members, self._x, self._n, self.plan.seed, whole=self._whole, widest=self._widest
        )

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
        """Points (members, units, points), or (points, units) where all see all; labels (members, points)."""
        if self._whole:
            return self._x, self._labels
        picked = torch.from_numpy(np.stack([next(order) for order in self._orders]))
        points, size = picked.shape[1], self._x.shape[1]
        batch = self._room[:, : points * size].view(len(picked), points, size)
        for which, out in zip(picked, batch, strict=True):
            torch.index_select(self._x, 0, which, out=out)
        return batch.transpose(1, 2), self._y[picked]


class _MemberGroup:
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

    def _draw(self, dense: Sequence[DenseOp], members: Sequence[int], seed: int) -> None:
        """Draw as `member_module.build` does: in float32, each layer's weights and then its biases."""
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
        """Logits (points, classes) of each member, on the first `count` points."""
        x = self._x[:count]
        if self._whole:
            for i in range(self._count):
                yield looked(self._one(i), x, False, Evaluation(1, self._n))[0].T.contiguous().numpy()
            return
        size = max(64, _CACHE // (self._widest * self._count))
        on = Evaluation(self._count, self._n)
        parts = [looked(self._ops, part, False, on) for part in x.split(size)]
        yield from torch.cat(parts, 2).transpose(1, 2).contiguous().numpy()

    def _one(self, index: int) -> list[Op]:
        """The operations for one member alone."""
        ops = fresh(self._ops)
        for new, old in zip(every_dense(ops), every_dense(self._ops), strict=True):
            new.matrix = old.matrix[index : index + 1]
            new.bias = None if old.bias is None else old.bias[index : index + 1]
        return ops


def _size(op: DenseOp) -> int:
    units = op.weights.shape[0] if op.weights.bias_var > 0.0 else 0
    return aligned(math.prod(op.weights.shape)) + aligned(units)


def _views(op: DenseOp, flat: Tensor, start: int) -> tuple[Tensor, Tensor | None]:
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
