"""Blocks of members: an ensemble that is cut into pieces for several machines, and joined from them again.

`measure` asks here for its engine, `train` for the members it should train (`share`). Outside of `cut` and `joined`
they do all of their work. Member i depends on (seed, i) only, but rounding depends on which members are computed side
by side (`bitwise_group`): blocks hold whole groups of them, and so join to the very numbers of one machine, bit for
bit. Engines that choose their way by the clock have no such group, and are not cut; nor are measurements that stop by
precision or time, and trainings of starts that are picked.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from firstguess.base.errors import FirstguessError
from firstguess.base.gaussian import Array
from firstguess.ensemble.member_statistics import Engine, Members, ProbedLayer


@dataclass(frozen=True, eq=False)
class TrainedBlock:
    """What consecutive members of a training showed: arrays by name, a row each."""

    start: int
    arrays: dict[str, Array]

    @property
    def inits(self) -> int:
        """How many members."""
        return len(next(iter(self.arrays.values())))


@dataclass
class _Asked:
    """What this thread's next ensemble is to do; the one after it does all of its own work."""

    size: int
    start: int = 0
    known: Sequence[Members | TrainedBlock] = ()
    used: bool = False


@dataclass(frozen=True)
class Share:
    """Members `start` … `stop` − 1 of an ensemble; or all of them, where they are `known`."""

    start: int
    stop: int
    size: int  # of every block but the last
    known: Sequence[Any] = ()


class Cut(BaseException):
    """Ends an ensemble that was cut, with the members of its block; nobody's `except Exception` stops it."""

    def __init__(self, members: Members | TrainedBlock, total: int, size: int) -> None:
        super().__init__("an ensemble was cut into blocks")
        self.members = members
        self.total = total  # members in all
        self.size = size  # of every block but the last


_asked: ContextVar[_Asked | None] = ContextVar("firstguess_blocks", default=None)


@contextmanager
def cut(start: int, size: int) -> Generator[None]:
    """The first ensemble inside computes the block that begins at member `start`, and ends with `Cut`.

    `size` is rounded up to whole groups of members. What has no more than one block, or cannot be cut, is done as ever.
    """
    yield from _with(_Asked(size, start))


@contextmanager
def joined(blocks: Sequence[Members | TrainedBlock], size: int) -> Generator[None]:
    """The first ensemble inside takes its members from these blocks, all there are, in order."""
    yield from _with(_Asked(size, known=blocks))


def _with(asked: _Asked) -> Generator[None]:
    token = _asked.set(asked)
    try:
        yield
    finally:
        _asked.reset(token)


def share(inits: int, bitwise_group: int) -> Share | None:
    """Which of `inits` members are asked for, in blocks of whole `bitwise_group`s; None: all, as ever."""
    asked = _asked.get()
    if asked is None or asked.used or not bitwise_group:
        return None
    asked.used = True
    size = bitwise_group * -(-asked.size // bitwise_group)
    if inits <= size:
        return None
    if not asked.known:
        return Share(asked.start, min(asked.start + size, inits), size)
    blocks = {block.start: block for block in asked.known}
    for start in range(0, inits, size):
        if start not in blocks or blocks[start].inits != min(size, inits - start):
            raise FirstguessError(
                f"blocks of {size} members", got="others: workers computed them in groups of another size",
                where="a join", hint="machines with as much memory, or no block=",
            )  # fmt: skip
    return Share(0, inits, size, [blocks[start] for start in range(0, inits, size)])


def engine_for(engine: Engine, inits: int) -> Engine:
    """The engine that `measure` should ask for its `inits` members; inside `cut`, `Cut` instead."""
    found = share(inits, getattr(engine, "bitwise_group", 0))
    if found is None:
        return engine
    if found.known:
        return _Joined(engine, {block.start: block for block in found.known}, found.size)
    raise Cut(engine.run(found.start, found.stop), inits, found.size)


class _Joined:
    """An engine whose members are known."""

    def __init__(self, engine: Engine, blocks: dict[int, Members], size: int) -> None:
        self.layers: tuple[ProbedLayer, ...] = engine.layers
        self.classes = engine.classes
        self.points = engine.points
        self.notes = engine.notes
        self.batch_hint = size
        self._blocks = blocks

    def run(self, start: int, stop: int) -> Members:
        block = self._blocks[start]
        assert block.inits == stop - start, (start, stop, block.inits)
        return block
