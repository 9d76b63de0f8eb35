"""Blocks of members: a measurement that is cut into pieces for several machines, and joined from them again.

`measure` asks here for its engine. Outside of `cut` and `joined` it gets the one it has. Member i depends on (seed, i)
only, but rounding depends on which members are computed side by side (`grain`): blocks hold whole groups of them, and
so join to the very numbers of one machine, bit for bit. Engines that choose their way by the clock have no grain, and
are not cut; nor are measurements that stop by precision or time.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from firstguess.ensemble.members import Engine, Members, ProbedLayer


@dataclass
class _Asked:
    """What this thread's next measurement is to do; the one after it does all of its own work."""

    size: int
    start: int = 0
    known: Sequence[Members] = ()
    used: bool = False


class Cut(BaseException):
    """Ends a measurement that was cut, with the members of its block; nobody's `except Exception` stops it."""

    def __init__(self, members: Members, total: int, size: int) -> None:
        super().__init__("a measurement was cut into blocks")
        self.members = members
        self.total = total  # members in all
        self.size = size  # of every block but the last


_asked: ContextVar[_Asked | None] = ContextVar("firstguess_blocks", default=None)


@contextmanager
def cut(start: int, size: int) -> Generator[None]:
    """The first measurement inside computes the block that begins at member `start`, and ends with `Cut`.

    `size` is rounded up to whole groups of members. A measurement that has no more than one block, or cannot be cut, is
    done as ever.
    """
    yield from _with(_Asked(size, start))


@contextmanager
def joined(blocks: Sequence[Members], size: int) -> Generator[None]:
    """The first measurement inside takes its members from these blocks, all there are, in order."""
    yield from _with(_Asked(size, known=blocks))


def _with(asked: _Asked) -> Generator[None]:
    token = _asked.set(asked)
    try:
        yield
    finally:
        _asked.reset(token)


def engine_for(engine: Engine, inits: int) -> Engine:
    """The engine that `measure` should ask for its `inits` members; inside `cut`, `Cut` instead."""
    asked = _asked.get()
    grain: int = getattr(engine, "grain", 0)
    if asked is None or asked.used or not grain:
        return engine
    asked.used = True
    size = grain * -(-asked.size // grain)
    if inits <= size:
        return engine
    if asked.known:
        return _Joined(engine, {block.start: block for block in asked.known}, size)
    raise Cut(engine.run(asked.start, min(asked.start + size, inits)), inits, size)


class _Joined:
    """An engine whose members are known."""

    def __init__(self, engine: Engine, blocks: dict[int, Members], size: int) -> None:
        self.layers: tuple[ProbedLayer, ...] = engine.layers
        self.classes = engine.classes
        self.points = engine.points
        self.notes = engine.notes
        self.stretch = size
        self._blocks = blocks

    def run(self, start: int, stop: int) -> Members:
        block = self._blocks[start]
        assert block.inits == stop - start, (start, stop, block.inits)
        return block
