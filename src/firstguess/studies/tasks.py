"""One task, as a worker does it, wherever that is: limits, blocks of members, and what went wrong in words."""

from __future__ import annotations

import contextlib
import os
import sys
import time
import traceback
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias

from firstguess.base.errors import FirstguessError, InvalidInput
from firstguess.base.threads import THREADS
from firstguess.ensemble import blocks
from firstguess.studies.identity import code_version
from firstguess.studies.member_blocks import packed, unpacked
from firstguess.studies.rows import Stopped, row_of
from firstguess.studies.store import Piece

Kind: TypeAlias = Literal["row", "block"]  # what an outcome is: the result of a configuration, or members for one
TOGETHER = 0.1  # seconds of small jobs that are done in one call: what a worker that dies has to do again
_LONGEST = 4000  # characters of a traceback that is kept


@dataclass(frozen=True)
class Job:
    """A configuration; or one block of its members; or, with all blocks, the result that they join to."""

    key: str
    given: Any
    block: int | None = None  # members a block, about; None: all at once
    start: int = 0
    known: tuple[Piece, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """What became of a job: a piece to keep, or a reason."""

    key: str
    kind: Kind = "row"
    piece: dict[str, Any] = field(default_factory=dict[str, Any])
    seconds: float = 0.0
    reason: str = ""  # empty: it was done
    trace: str = ""


class Came(NamedTuple):
    """Jobs that were handed over together, and what became of the first of them; the others have to be done again."""

    jobs: tuple[Job, ...]
    outcomes: list[Outcome]


@dataclass(frozen=True)
class Work:
    """What all jobs of a run share: sent to each worker once."""

    function: Callable[..., Any]
    data: Any = None
    threads: int = 1
    memory: float | None = None  # bytes that a task may use
    code: str = ""  # the driver's `code_version`: another one would give results that are not what their address says


def perform_all(work: Work, jobs: Iterable[Job], one: Callable[[Work, Job], Outcome] | None = None) -> list[Outcome]:
    """Do small jobs one after the other; what has not begun after `TOGETHER` seconds is left."""
    until = time.perf_counter() + TOGETHER
    outcomes: list[Outcome] = []
    for job in jobs:
        outcomes.append((one or perform)(work, job))
        if time.perf_counter() > until:
            break
    return outcomes


def perform(work: Work, job: Job) -> Outcome:
    """Do a job; what it raises is its outcome."""
    started = time.perf_counter()
    os.environ[THREADS] = str(work.threads)
    arguments = (job.given,) if work.data is None else (job.given, work.data)
    kind: Kind = "row"
    piece: Piece = {}
    try:
        _check(work.code)
        with _memory(work.memory):
            try:
                with _members(job):
                    piece = row_of(work.function(*arguments))
            except blocks.Cut as cut:
                kind, piece = "block", packed(cut.members, cut.total, cut.size)
    except (Exception, SystemExit) as error:
        return failed(job.key, _reason(error), time.perf_counter() - started, _trace(error))
    return Outcome(job.key, kind, dict(piece), time.perf_counter() - started)


def _check(code: str) -> None:
    if code and code != code_version():
        raise InvalidInput(
            f"firstguess {code}, as the driver has it", got=code_version(), where="a worker",
            hint="the same firstguess, numpy, scipy and torch on all nodes, and no edits while a study runs",
        )  # fmt: skip


def failed(key: str, reason: str, seconds: float = 0.0, trace: str = "") -> Outcome:
    """An outcome without a result."""
    return Outcome(key, reason=reason, seconds=seconds, trace=trace)


def _members(job: Job) -> contextlib.AbstractContextManager[None]:
    if job.block is None:
        return contextlib.nullcontext()
    if job.known:
        return blocks.joined([unpacked(piece) for piece in job.known], job.block)
    return blocks.cut(job.start, job.block)


def _reason(error: BaseException) -> str:
    """One line."""
    if isinstance(error, FirstguessError):
        return " ".join(str(error).split())
    if isinstance(error, MemoryError):
        return f"MemoryError: {error or 'no more memory'}"
    if isinstance(error, Stopped):
        return "it was interrupted"
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def _trace(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))[-_LONGEST:]


@contextlib.contextmanager
def _memory(most: float | None) -> Generator[None]:
    """So many bytes of data for this process, where the system can say so; the limit that was there comes back."""
    if most is None or not sys.platform.startswith("linux"):
        yield
        return
    import resource

    before = resource.getrlimit(resource.RLIMIT_DATA)
    room = int(most) if before[1] == resource.RLIM_INFINITY else min(int(most), before[1])
    resource.setrlimit(resource.RLIMIT_DATA, (room, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)
