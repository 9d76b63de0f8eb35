"""A pool for tests that does its jobs in this process."""

from __future__ import annotations

from typing import Any

from firstguess.studies.tasks import Came, Job, Work, perform_all


class InProcess:
    """A pool that does jobs when it is asked for them, the last one first."""

    capacity = 3

    def __init__(self, work: Work, **_: Any) -> None:
        self._work, self._jobs = work, list[tuple[Job, ...]]()

    def start(self, jobs: tuple[Job, ...]) -> None:
        self._jobs.append(jobs)

    def wait(self) -> list[Came]:
        jobs = self._jobs.pop()
        return [Came(jobs, perform_all(self._work, jobs))]

    def close(self) -> None:
        self._jobs.clear()
