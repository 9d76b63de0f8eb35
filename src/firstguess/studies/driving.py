"""Which tasks are missing, in what order they run, and what is kept of each: the same on every engine."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from firstguess.base.errors import InvalidInput
from firstguess.base.files import told
from firstguess.studies.kept import Results
from firstguess.studies.store import Piece
from firstguess.studies.tasks import Job, Outcome


class Pool(Protocol):
    """Where jobs run."""

    @property
    def capacity(self) -> int:
        """Jobs that may be under way at once."""
        ...

    def start(self, job: Job) -> None: ...

    def wait(self) -> list[Outcome]:
        """What is finished, once something is."""
        ...

    def close(self) -> None: ...


class Task(NamedTuple):
    """A configuration and the address of its result."""

    key: str
    given: Any


@dataclass
class Ran:
    """What a run did."""

    total: int
    found: int = 0  # tasks that were done before
    done: int = 0
    failed: int = 0
    damaged: int = 0  # results that could not be read: computed again
    reasons: list[str] = field(default_factory=list[str])

    @property
    def left(self) -> int:
        """Tasks that were not tried."""
        return self.total - self.found - self.done - self.failed

    def __str__(self) -> str:
        words = [f"{self.done} of {self.total} tasks done", f"{self.found} were there"]
        words += [f"{self.failed} failed"] if self.failed else []
        words += [f"{self.damaged} result files were damaged and are computed again"] if self.damaged else []
        words += [f"{self.left} not tried"] if self.left else []
        return ", ".join(words)


class Drive:
    """One run: pulls tasks as the pool has room, keeps what comes back, splits and joins ensembles.

    Only this process writes results, so that workers need no disk in common with it.
    """

    def __init__(
        self,
        results: Results,
        tasks: Iterable[Task],
        total: int,
        *,
        block: int | None = None,
        tick: Callable[[Ran], object] = lambda ran: None,
    ) -> None:
        self.ran = Ran(total)
        self._results = results
        self._tasks = iter(tasks)
        self._block = block
        self._tick = tick
        self._urgent: deque[Job] = deque()  # blocks of ensembles that have begun, and joins
        self._open: dict[str, set[int]] = {}  # ensembles that have begun: the blocks that are missing
        self._given: dict[str, Task] = {}  # tasks under way
        self._dropped: set[str] = set()  # ensembles of which a block failed

    def run_in(self, pool: Callable[[], Pool]) -> Ran:
        """Until nothing is left to do; the pool is made when there is a first job, and closed whatever happens."""
        made: Pool | None = None
        flying = 0
        try:
            while True:
                while (made is None or flying < made.capacity) and (job := self._next()) is not None:
                    made = made or pool()
                    made.start(job)
                    flying += 1
                if made is None or not flying:
                    return self.ran
                for outcome in made.wait():
                    flying -= 1
                    self._keep(outcome)
        finally:
            if made is not None:
                made.close()

    def _next(self) -> Job | None:
        while True:
            if self._urgent:
                return self._urgent.popleft()
            task = next(self._tasks, None)
            if task is None:
                return None
            if self._results.whole(task.key):
                self.ran.found += 1
                self._tick(self.ran)
                continue
            if self._results.set_aside(task.key):
                self.ran.damaged += 1
            self._given[task.key] = task
            if self._block is None or not self._resumed(task):
                return Job(task.key, task.given, self._block)

    def _keep(self, outcome: Outcome) -> None:
        if outcome.key in self._dropped:
            return
        task = self._given[outcome.key]
        if outcome.reason:
            if self._open.pop(outcome.key, None) is not None:
                self._dropped.add(outcome.key)
                self._urgent = deque(job for job in self._urgent if job.key != outcome.key)
            self._write(lambda: self._results.fail(outcome.key, outcome.reason, outcome.seconds, outcome.trace))
            self.ran.failed += 1
            self.ran.reasons.append(outcome.reason)
        elif outcome.kind == "block":
            self._keep_block(task, outcome)
            return
        else:
            self._write(lambda: self._results.keep(outcome.key, outcome.piece, outcome.seconds))
            if self._block is not None:
                self._results.drop_blocks(outcome.key, self._block)
            self.ran.done += 1
        del self._given[outcome.key]
        self._tick(self.ran)

    # -- Ensembles in blocks ----------------------------------------------------------------------------------------

    def _keep_block(self, task: Task, outcome: Outcome) -> None:
        piece = outcome.piece
        self._write(lambda: self._results.keep_block(task.key, self._block or 0, piece, outcome.seconds))
        if task.key not in self._open:
            self._plan(task, piece)
        else:
            self._open[task.key].discard(int(piece["start"]))
            self._join(task)

    def _resumed(self, task: Task) -> bool:
        """Whether its first block was there, which says how many there are: it goes on from those there are."""
        first = self._results.block(task.key, self._block or 0, 0)
        if first is None:
            return False
        self._plan(task, first)
        return True

    def _plan(self, task: Task, first: Piece) -> None:
        """All other blocks of an ensemble, but for those that are there."""
        starts = range(int(first["size"]), int(first["total"]), int(first["size"]))
        missing = {at for at in starts if self._results.block(task.key, self._block or 0, at) is None}
        self._open[task.key] = missing
        self._urgent.extend(Job(task.key, task.given, self._block, at) for at in sorted(missing))
        self._join(task)

    def _join(self, task: Task) -> None:
        if self._open[task.key]:
            return
        del self._open[task.key]
        known = self._results.blocks(task.key, self._block or 0)
        self._urgent.append(Job(task.key, task.given, self._block, known=known))

    def _write(self, write: Callable[[], None]) -> None:
        try:
            write()
        except OSError as error:
            raise InvalidInput(
                "a store that takes results",
                got=told(error),
                where=str(self._results.folder),
                hint="make room and run again: what is done is kept",
            ) from error
