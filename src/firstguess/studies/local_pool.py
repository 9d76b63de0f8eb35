"""Tasks on this machine: worker processes with one thread each."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time
from multiprocessing.connection import Pipe, wait
from typing import Any

from firstguess.base.checks import optional
from firstguess.base.errors import FirstguessError, InvalidInput
from firstguess.base.threads import THREADS
from firstguess.studies.identity import not_sent
from firstguess.studies.tasks import TOGETHER, Came, Job, Work, failed
from firstguess.studies.worker import READY

_STARTS = 3  # workers in a row that may die before they are ready
_LIBRARIES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


class LocalPool:
    """Processes, started when they are needed. One that dies takes its task along, which another then gets.

    `seconds` is the time limit of a task, `retries` how often one may take its process down before it is a failure. Of
    several small tasks that were given together nobody knows which one it was: they come back undone.
    """

    def __init__(self, work: Work, *, workers: int, seconds: float | None = None, retries: int = 3) -> None:
        if os.name != "posix":
            raise InvalidInput("Linux or macOS, for workers", got=os.name, where="run", hint='run(engine="ray")')
        self.capacity = workers
        self.workers: list[_Worker] = []
        self._payload = sendable(work)
        self._threads = work.threads
        self._seconds = math.inf if seconds is None else seconds
        self._retries = retries
        self._deaths: dict[str, int] = {}  # of a job's worker, by the job's key
        self._stillborn = 0

    def start(self, jobs: tuple[Job, ...]) -> None:
        """Give jobs to a worker that is free, or to a new one."""
        worker = next((worker for worker in self.workers if not worker.jobs), None)
        if worker is None:
            worker = _Worker(self._payload, self._threads)
            self.workers.append(worker)
        worker.take(jobs)

    def wait(self) -> list[Came]:
        """What is finished, once something is."""
        came: list[Came] = []
        while not came:
            busy = {worker.pipe: worker for worker in self.workers if worker.jobs}
            first = min(worker.since + self._limit(worker) for worker in busy.values())
            patience = None if math.isinf(first) else max(0.0, first - time.monotonic())
            for pipe in wait(list(busy), patience):
                came += self._heard(busy[pipe])  # pyright: ignore[reportArgumentType]
            now = time.monotonic()
            came += [self._late(w) for w in busy.values() if w.jobs and now - w.since > self._limit(w)]
        return came

    def _limit(self, worker: _Worker) -> float:
        return self._seconds + TOGETHER * (len(worker.jobs) > 1)

    def _heard(self, worker: _Worker) -> list[Came]:
        try:
            said: Any = worker.pipe.recv()
        except (EOFError, OSError):
            return self._died(worker)
        if said == READY:
            self._stillborn = 0
            worker.begin()
            return []
        if isinstance(said, str):
            raise FirstguessError("a function that another process can read", got=said, where="study(function)")
        jobs, worker.jobs = worker.jobs, ()
        self._deaths.pop(jobs[0].key, None)
        return [Came(jobs, said)]

    def _died(self, worker: _Worker) -> list[Came]:
        jobs, ready = worker.jobs, worker.ready
        code = self._end(worker, patience=5.0)
        how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
        if not ready:  # nothing was begun: it was killed, or nothing can start here
            self._stillborn += 1
            if self._stillborn < _STARTS:
                self.start(jobs)
                return []
            raise FirstguessError("a worker process that starts", got=f"{_STARTS} that ended {how}", where="run")
        if len(jobs) != 1:
            return [Came(jobs, [])]
        job = jobs[0]
        deaths = self._deaths[job.key] = self._deaths.get(job.key, 0) + 1
        if deaths <= self._retries:
            self.start(jobs)
            return []
        del self._deaths[job.key]
        hint = "; was memory short?" if code == -signal.SIGKILL else ""
        reason = f"its process ended {how}, {deaths} time{'s' * (deaths > 1)}{hint}"
        return [Came(jobs, [failed(job.key, reason)])]

    def _late(self, worker: _Worker) -> Came:
        jobs = worker.jobs
        self._end(worker)
        late = [failed(job.key, f"it took longer than {self._seconds:g} s", self._seconds) for job in jobs]
        return Came(jobs, late if len(jobs) == 1 else [])

    def _end(self, worker: _Worker, patience: float = 0.0) -> int:
        self.workers.remove(worker)
        worker.jobs = ()
        return worker.end(patience)

    def close(self) -> None:
        """End all workers, whatever they do."""
        for worker in self.workers:
            worker.process.kill()
        for worker in self.workers:
            worker.end()
        self.workers.clear()


class _Worker:
    """A process, and what it is doing."""

    def __init__(self, payload: bytes, threads: int) -> None:
        self.pipe, theirs = Pipe()
        with theirs:
            fd = theirs.fileno()
            command = [sys.executable, "-m", "firstguess.studies.worker", str(fd), str(os.getpid())]
            # In a session of its own: Ctrl-C is for the driver alone.
            self.process = subprocess.Popen(
                command, pass_fds=[fd], env=_environment(threads), stdin=subprocess.DEVNULL, start_new_session=True
            )
        self.jobs: tuple[Job, ...] = ()
        self.ready = False
        self.since = math.inf  # when its jobs began: not before it has loaded the function
        self._payload: bytes | None = payload

    def take(self, jobs: tuple[Job, ...]) -> None:
        self.jobs = jobs
        try:
            if self._payload is not None:
                self.pipe.send_bytes(self._payload)
                self._payload = None
            self.pipe.send_bytes(sendable(jobs))
        except BrokenPipeError:
            return  # it has died: `wait` hears of it
        if self.ready:
            self.begin()

    def begin(self) -> None:
        self.ready = True
        self.since = time.monotonic()

    def end(self, patience: float = 0.0) -> int:
        """End it, by force if it has not ended by itself until then; its exit code."""
        self.pipe.close()
        try:
            return self.process.wait(patience)
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()


def sendable(what: object) -> bytes:
    """What another process can read; a function by its value where it has no module."""
    cloudpickle = optional("cloudpickle", "studies", "study(function)")
    try:
        return cloudpickle.dumps(what)
    except Exception as error:  # what refuses to be pickled raises anything
        raise not_sent(error) from error


def _environment(threads: int) -> dict[str, str]:
    """This process's own, where it finds modules, and one thread for every library that counts the cores itself."""
    environment = os.environ | dict.fromkeys(_LIBRARIES, str(threads)) | {THREADS: str(threads)}
    environment["PYTHONPATH"] = os.pathsep.join(path or os.getcwd() for path in sys.path)
    return environment
