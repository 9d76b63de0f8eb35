"""A pool for tests that does its jobs in this process."""

from __future__ import annotations

from typing import Any

from firstguess.studies.tasks import Job, Outcome, Work, perform


class InProcess:
    """A pool that does jobs when it is asked for them, the last one first."""

    capacity = 3

    def __init__(self, work: Work, **_: Any) -> None:
        self._work, self._jobs = work, list[Job]()

    def start(self, job: Job) -> None:
        self._jobs.append(job)

    def wait(self) -> list[Outcome]:
        return [perform(self._work, self._jobs.pop())]

    def close(self) -> None:
        self._jobs.clear()
