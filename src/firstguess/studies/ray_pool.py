"""Tasks on Ray: remote functions with retries, and what they share put into its object store once."""

from __future__ import annotations

import contextlib
import faulthandler
import logging
import os
import re
import signal
import sys
import time
from collections.abc import Generator
from typing import Any

from firstguess.base.checks import optional
from firstguess.base.errors import FirstguessError, InvalidInput
from firstguess.studies.local_pool import sendable
from firstguess.studies.tasks import Came, Job, TaskOutcome, Work, failed, perform, perform_all

_AHEAD = 4  # calls a processor that are handed over: enough that none waits, few enough that nothing piles up
_LEAST = 16
_LOOK = 5.0  # seconds between two looks at how large the cluster is: it may grow
_GRACE = 10.0  # seconds after its time limit, when a task that does not listen takes its process down


class RayPool:
    """A cluster, or a small one on this machine. A connection that there is already is used, and stays.

    A task whose worker or node dies is started again by Ray, up to `retries` times. `in_flight` calls at most have been
    handed over and not come back: a million of them never sit in memory. Several small tasks may share a call: if that
    is lost they come back undone, since nobody knows which one it was.
    """

    def __init__(
        self,
        work: Work,
        *,
        address: str | None = None,
        retries: int = 3,
        cpus: float = 1,
        gpus: float = 0,
        seconds: float | None = None,
        in_flight: int | None = None,
    ) -> None:
        ray = self._ray = optional("ray", "ray", 'engine="ray"')
        sendable(work.function)  # what cannot be sent is refused before anything is started
        self._own = not ray.is_initialized()
        if self._own:
            _connect(ray, address)
        self._cpus = cpus
        self._fixed = in_flight
        self._looked, self._found = -_LOOK, _LEAST
        self._jobs: dict[Any, tuple[Job, ...]] = {}
        try:
            options = {"num_cpus": cpus, "num_gpus": gpus, "max_retries": retries, "retry_exceptions": False}
            self._alone = ray.remote(_limited).options(**options)
            self._together = ray.remote(_limited).options(**options | {"max_retries": 0})
            self._work = ray.put(work)
        except Exception as error:
            self.close()
            raise FirstguessError("a Ray cluster that takes tasks", got=_first(error), where="run") from error
        self._seconds = seconds

    @property
    def capacity(self) -> int:
        """How many tasks may be handed over: some for each processor of the cluster as it is now."""
        if self._fixed is not None:
            return self._fixed
        if time.monotonic() - self._looked > _LOOK:
            processors = float(self._ray.cluster_resources().get("CPU", 1))
            self._found = max(_LEAST, int(_AHEAD * processors / max(self._cpus, 0.1)))
            self._looked = time.monotonic()
        return self._found

    def start(self, jobs: tuple[Job, ...]) -> None:
        """Hand jobs over."""
        function = self._alone if len(jobs) == 1 else self._together
        self._jobs[function.remote(self._work, jobs, self._seconds)] = jobs

    def wait(self) -> list[Came]:
        """What is finished, once something is."""
        references = list(self._jobs)
        self._ray.wait(references, num_returns=1, timeout=None)
        done, _ = self._ray.wait(references, num_returns=len(references), timeout=0)
        return [self._result(reference) for reference in done]

    def _result(self, reference: Any) -> Came:
        jobs = self._jobs.pop(reference)
        try:
            return Came(jobs, self._ray.get(reference))
        except self._ray.exceptions.RayError as error:  # what it raised itself is in its outcome: this is the cluster's
            reason = f"Ray lost it: {type(error).__name__}: {_last(error)}"
            lost = [failed(job.key, reason, trace=str(error)[-4000:]) for job in jobs]
            return Came(jobs, lost if len(jobs) == 1 else [])

    def close(self) -> None:
        """Cancel what is under way; leave the cluster if this is who came."""
        for reference in self._jobs:
            with contextlib.suppress(Exception):
                self._ray.cancel(reference, force=True)
        self._jobs.clear()
        if self._own:
            self._ray.shutdown()


def _connect(ray: Any, address: str | None) -> None:
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if address is None and not os.environ.get("RAY_ADDRESS"):
        address = "local"  # of itself Ray would look for a cluster that was here last, and may be gone
        options["include_dashboard"] = False
        sys.stderr.write("firstguess: starting Ray on this machine, which takes some seconds\n")
    before = os.environ.get("PYTHONPATH")
    try:
        if address == "local":  # its workers find modules where this process does
            os.environ["PYTHONPATH"] = os.pathsep.join(path or os.getcwd() for path in sys.path)
        ray.init(address=address, **options)
    except Exception as error:  # ConnectionError, ValueError, RuntimeError: as the version has it
        raise InvalidInput(
            "a Ray cluster that answers", got=_first(error), where=f"run(address={address!r})", hint="ray start --head"
        ) from error
    finally:
        os.environ.pop("PYTHONPATH", None)
        if before is not None:
            os.environ["PYTHONPATH"] = before


def _first(error: Exception) -> str:
    lines = [line for line in str(error).strip().splitlines() if line.strip()]
    return lines[0].strip() if lines else type(error).__name__


def _last(error: Exception) -> str:
    """What was wrong, which Ray puts under a traceback, in colours."""
    lines = [line.strip() for line in re.sub(r"\x1b\[[0-9;]*m", "", str(error)).splitlines()]
    return next((line for line in reversed(lines) if line), type(error).__name__)


class _TimeUp(BaseException):
    pass


def _limited(work: Work, jobs: tuple[Job, ...], seconds: float | None) -> list[TaskOutcome]:
    """Each within a time limit: first by a signal, which Python hears; then, for what does not, by force."""

    def one(work: Work, job: Job) -> TaskOutcome:
        try:
            with _alarm(seconds):
                return perform(work, job)
        except _TimeUp:
            return failed(job.key, f"it took longer than {seconds:g} s", seconds or 0.0)

    return perform_all(work, jobs, one)


@contextlib.contextmanager
def _alarm(seconds: float | None) -> Generator[None]:
    if seconds is None:
        yield
        return

    def ring(*_: object) -> None:
        raise _TimeUp

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    faulthandler.dump_traceback_later(seconds + _GRACE, exit=True, file=sys.__stderr__ or sys.stderr)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        faulthandler.cancel_dump_traceback_later()
