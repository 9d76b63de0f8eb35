"""Which tasks are missing, in what order they run, and what is kept of each: the same on every engine."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from firstguess.base.errors import InvalidInput
from firstguess.base.files import reason
from firstguess.base.text import spaced
from firstguess.studies.store import Piece
from firstguess.studies.study_files import Results
from firstguess.studies.tasks import TOGETHER, Came, Job, TaskOutcome

MOST = 200  # small jobs a call
UNDER_WAY = 100_000  # tasks that have been handed over and not come back, however large the cluster is


class Pool(Protocol):
    """Where jobs run, one or several small ones a call."""

    @property
    def capacity(self) -> int:
        """Calls that may be under way at once."""
        ...

    def start(self, jobs: tuple[Job, ...]) -> None: ...

    def wait(self) -> list[Came]:
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
        words = [f"{spaced(self.done)} of {spaced(self.total)} tasks done"]
        words += [f"{spaced(self.found)} were there before"] if self.found else []
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
        self._alone: set[str] = set()  # jobs of calls that were lost: each continues by itself
        self._size = 1  # jobs a call: as many as they are small

    def run_in(self, pool: Callable[[], Pool]) -> Ran:
        """Run until nothing is left to do; the pool is made when there is a first job, and closed whatever happens."""
        made: Pool | None = None
        flying = 0
        try:
            while True:
                while (made is None or flying < made.capacity) and (jobs := self._batch()):
                    made = made or pool()
                    made.start(jobs)
                    flying += 1
                if made is None or not flying:
                    return self.ran
                came = made.wait()
                flying -= len(came)
                self._take(came)
        finally:
            if made is not None:
                made.close()

    def _batch(self) -> tuple[Job, ...]:
        jobs: list[Job] = []
        while len(jobs) < self._size and not (jobs and self._urgent and self._urgent[0].key in self._alone):
            job = self._next()
            if job is None:
                break
            jobs.append(job)
            if job.block is not None or job.key in self._alone:
                break
        return tuple(jobs)

    def _next(self) -> Job | None:
        while True:
            if self._urgent:
                return self._urgent.popleft()
            if len(self._given) >= UNDER_WAY:
                return None
            task = next(self._tasks, None)
            if task is None:
                return None
            if self._results.whole(task.key):
                self.ran.found += 1
                self._tick(self.ran)
                continue
            self.ran.damaged += self._results.set_aside(task.key)
            self._given[task.key] = task
            if self._block is None or not self._resumed(task):
                return Job(task.key, task.given, self._block)

    def _take(self, came: Iterable[Came]) -> None:
        """Keep what came back, results that came together in one file; what was not done is done next."""
        done: list[TaskOutcome] = []
        for jobs, outcomes in came:
            undone = jobs[len(outcomes) :]
            if not outcomes:
                self._alone.update(job.key for job in undone)
            else:
                mean = sum(outcome.seconds for outcome in outcomes) / len(outcomes)
                self._size = max(1, min(MOST, int(TOGETHER / max(mean, 1e-9))))
            self._urgent.extendleft(reversed(undone))
            for outcome in outcomes:
                if outcome.reason or outcome.kind == "block":
                    self._keep(outcome)
                else:
                    done.append(outcome)
        if done:
            self._keep_results(done)

    def _keep_results(self, done: Sequence[TaskOutcome]) -> None:
        try:
            self._write(lambda: self._results.keep_all([(one.key, one.piece, one.seconds) for one in done]))
        except InvalidInput:  # the disk
            raise
        except (ValueError, TypeError, OverflowError) as error:  # Parquet has no place for one of them
            if len(done) > 1:
                for outcome in done:
                    self._keep_results([outcome])
                return
            said = f"{type(error).__name__}: {error}".splitlines()[0]
            self._keep(
                TaskOutcome(done[0].key, reason=f"a result that cannot be kept: {said}", seconds=done[0].seconds)
            )
            return
        for outcome in done:
            if self._block is not None:
                self._results.drop_blocks(outcome.key, self._block)
            self.ran.done += 1
            self._given.pop(outcome.key, None)
            self._tick(self.ran)

    def _keep(self, outcome: TaskOutcome) -> None:
        """A block, or a failure."""
        if not outcome.reason:
            self._keep_block(outcome)
            return
        if outcome.key in self._dropped:
            return
        if self._open.pop(outcome.key, None) is not None:
            self._dropped.add(outcome.key)
            self._urgent = deque(job for job in self._urgent if job.key != outcome.key)
        self._write(lambda: self._results.fail(outcome.key, outcome.reason, outcome.seconds, outcome.trace))
        self.ran.failed += 1
        self.ran.reasons.append(outcome.reason)
        self._given.pop(outcome.key, None)
        self._tick(self.ran)

    # -- Ensembles in blocks ----------------------------------------------------------------------------------------

    def _keep_block(self, outcome: TaskOutcome) -> None:
        piece = outcome.piece
        self._write(lambda: self._results.keep_block(outcome.key, self._block or 0, piece, outcome.seconds))
        if outcome.key in self._dropped:  # for the next run: another block of it failed in this one
            return
        task = self._given[outcome.key]
        if task.key not in self._open:
            self._plan(task, piece)
        else:
            self._open[task.key].discard(int(piece["start"]))
            self._join(task)

    def _resumed(self, task: Task) -> bool:
        """Whether its first block was there, which says how many there are: it resumes from those there are."""
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
        if known:
            self._urgent.append(Job(task.key, task.given, self._block, known=known))
        elif self._results.whole(task.key):  # another run has joined them meanwhile
            self.ran.found += 1
            del self._given[task.key]
            self._tick(self.ran)
        elif not self._resumed(task):  # they have gone, or are damaged
            self._urgent.append(Job(task.key, task.given, self._block))

    def _write(self, write: Callable[[], None]) -> None:
        try:
            write()
        except OSError as error:
            expected = "a store that takes results"
            hint = "make room and run again: what is done is kept"
            raise InvalidInput(expected, got=reason(error), where=str(self._results.folder), hint=hint) from error
