"""A description as operations that many members go through side by side, forth and back.

Activations are (members, nodes, points). Every operation has buffers of its own, which steps use again. A member's part
of a buffer begins at a multiple of 64 bytes, so that its numbers do not depend on how many are carried together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from firstguess.base.errors import FirstguessError
from firstguess.network.derivative import Derivative, Kept
from firstguess.network.tensors import Alone, Local, OverData, Paths, Place, Weights

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
        """(members, nodes, points); the same memory for the same name."""
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
class Look:
    """So many members, and of the points the first `training` ones, whose statistics norms use."""

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

        x is (members, nodes, points), or (points, nodes) where all members see the same data.
        """
        ...

    def backward(self, room: Room, gradient: Tensor, wanted: bool) -> Tensor:
        """Of the gradient by the result, which it may overwrite, that by the input, if that is `wanted`."""
        ...

    def look(self, x: Tensor, free: bool, on: Look) -> Tensor:
        """The result without a way back."""
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
    """Forth, one after another."""
    for op in ops:
        x, free = op.forward(room, x, free)
    return x, free


def back(ops: Sequence[Op], room: Room, gradient: Tensor, wanted: bool) -> Tensor:
    """Back, as far as anything in front is trained or the input's gradient is wanted."""
    first = next((i for i, op in enumerate(ops) if op.learns), len(ops))
    for index in range(len(ops) - 1, -1, -1):
        if index < first and not wanted:
            break
        gradient = ops[index].backward(room, gradient, wanted or index > first)
    return gradient


def looked(ops: Sequence[Op], x: Tensor, free: bool, on: Look) -> Tensor:
    """Forth, to look only."""
    for op in ops:
        x, free = op.look(x, free, on), True
    return x


def _each(x: Tensor, members: int) -> Tensor:
    """Data that all members share, in the common layout."""
    return x.T.expand(members, -1, -1) if x.dim() == 2 else x


@dataclass(eq=False)
class Dense:
    """Rows of weights times all nodes of a point; `matrix` and the others are views, bound by a group."""

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

    def look(self, x: Tensor, free: bool, on: Look) -> Tensor:
        points = x.shape[0] if x.dim() == 2 else x.shape[2]
        size = aligned(self.weights.shape[0] * points)
        flat = torch.empty(len(self.matrix), size, dtype=x.dtype)[:, : self.weights.shape[0] * points]
        return self._product(x, flat.view(len(self.matrix), -1, points))

    whole = False
    batches = False

    def fresh(self) -> Dense:
        return Dense(self.weights, self.where)


@dataclass(eq=False)
class Unit:
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

    def look(self, x: Tensor, free: bool, on: Look) -> Tensor:
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

    def fresh(self) -> Unit:
        return Unit(self.record, self.derivative)


@dataclass(eq=False)
class Sum:
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

    def look(self, x: Tensor, free: bool, on: Look) -> Tensor:
        one = looked(self.branch, x, False, on)
        other = looked(self.shortcut, x, False, on) if self.shortcut else _each(x, on.members)
        return torch.add(other, one, alpha=self.scale)

    @property
    def whole(self) -> bool:
        return any(op.whole for op in (*self.branch, *self.shortcut))

    @property
    def batches(self) -> bool:
        return any(op.batches for op in (*self.branch, *self.shortcut))

    def fresh(self) -> Sum:
        return Sum(fresh(self.branch), fresh(self.shortcut), self.scale)


def compile_ops(places: Sequence[Place]) -> list[Op] | str:
    """The operations of these layers, or the first layer that has no way back here."""
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
                found.append(Dense(weights, place))
            case Local(derivative=derivative) | OverData(derivative=derivative):
                if derivative is None:
                    return place.where
                found.append(Unit(record, derivative))
            case Alone():
                return place.where
            case Paths(scale):
                paths = [compile_ops(path) for path in place.paths]
                for path in paths:
                    if isinstance(path, str):
                        return path
                branch, shortcut = (path for path in paths if not isinstance(path, str))
                found.append(Sum(branch, shortcut, scale))
    return found


def every_dense(ops: Sequence[Op]) -> Iterator[Dense]:
    """All weights, in the order in which members draw them."""
    for op in ops:
        if isinstance(op, Dense):
            yield op
        elif isinstance(op, Sum):
            yield from every_dense(op.branch)
            yield from every_dense(op.shortcut)


def fresh(ops: Sequence[Op]) -> list[Op]:
    """The same operations with nothing kept, for another group of members."""
    return [op.fresh() for op in ops]


def widths(ops: Sequence[Op], last: int) -> Iterator[int]:
    """Nodes of every buffer that a pass keeps, roughly: one an operation; `last` nodes come in."""
    for op in ops:
        if isinstance(op, Dense):
            last = op.weights.shape[0]
        elif isinstance(op, Sum):
            inside = [*widths(op.branch, last), *widths(op.shortcut, last)]
            yield from inside
            last = max(inside, default=last)
        yield last
