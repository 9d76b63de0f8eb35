"""Who does the tasks: processes of this machine, one thread each, or Ray.

The pool of processes is our own. Those of `pebble` and `concurrent.futures` are made by multiprocessing: spawn runs the
user's script again (one without `if __name__ == "__main__"` ends in BrokenProcessPool), fork hangs once torch has used
two threads, a worker that hangs outlives a driver that is killed; `concurrent.futures` has no time limits besides.
"""

from __future__ import annotations

import contextlib
import faulthandler
import logging
import math
import os
import pickle
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Generator
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any

from firstguess.base.checks import optional
from firstguess.base.errors import FirstguessError, InvalidInput
from firstguess.base.threads import THREADS
from firstguess.studies.identity import not_sent
from firstguess.studies.tasks import TOGETHER, Came, Job, TaskOutcome, Work, perform, perform_all

READY = "ready"
_STARTS = 3  # workers in a row that may die before they are ready
_LIBRARIES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
_AHEAD = 4  # calls a processor that are handed over: enough that none waits, few enough that nothing piles up
_LEAST = 16
_LOOK = 5.0  # seconds between two looks at how large the cluster is: it may grow
_GRACE = 10.0  # seconds after its time limit, when a task that does not listen takes its process down


# -- Processes of this machine ----------------------------------------------------------------------------------------


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
        return [Came(jobs, [TaskOutcome(job.key, reason=reason)])]

    def _late(self, worker: _Worker) -> Came:
        jobs = worker.jobs
        self._end(worker)
        reason = f"it took longer than {self._seconds:g} s"
        late = [TaskOutcome(job.key, reason=reason, seconds=self._seconds) for job in jobs]
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
            program = f"from firstguess.studies.pools import worker; worker({fd}, {os.getpid()})"
            # In a session of its own: Ctrl-C is for the driver alone.
            known: Any = {"pass_fds": [fd], "env": _environment(threads), "start_new_session": True}
            self.process = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.DEVNULL, **known)
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


def _leave_with(parent: int) -> None:
    """End when the process that started this one is gone, even in the middle of a task that hangs."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def worker(fd: int, parent: int) -> None:
    """Get a function once, then jobs, and answer with what became of them, until the pipe ends.

    Runs in a process of its own, not forked and not a copy of the user's script: the script needs no `if __name__ ==
    "__main__"`. What comes through the pipe is from the process that started this one, and only from it.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the driver, which then ends this one
    threading.Thread(target=_leave_with, args=(parent,), daemon=True).start()
    # EOFError, and ConnectionError where it was killed: the driver is gone, and with it whoever wants an answer.
    with contextlib.suppress(EOFError, ConnectionError), Connection(fd) as pipe:
        try:
            work = pickle.loads(pipe.recv_bytes())
        except EOFError:
            return
        except Exception as error:  # a module that is not found here
            pipe.send(f"{type(error).__name__}: {error}")
            return
        pipe.send(READY)
        while True:
            pipe.send(perform_all(work, pickle.loads(pipe.recv_bytes())))


# -- Ray: remote functions with retries, and what they share put into its object store once ---------------------------


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
            lost = [TaskOutcome(job.key, reason=reason, trace=str(error)[-4000:]) for job in jobs]
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
            with _time_limit(seconds):
                return perform(work, job)
        except _TimeUp:
            return TaskOutcome(job.key, reason=f"it took longer than {seconds:g} s", seconds=seconds or 0.0)

    return perform_all(work, jobs, one)


@contextlib.contextmanager
def _time_limit(seconds: float | None) -> Generator[None]:
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
