"""All cores for work in NumPy, whose loops run without the interpreter's lock."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import lru_cache
from itertools import pairwise
from threading import Event

import numpy as np
from threadpoolctl import ThreadpoolController

THREADS = (
    "FIRSTGUESS_THREADS"  # of the environment: workers of a study share a machine, and say here how many are theirs
)


def cores() -> int:
    """How many of the machine's cores this process may use; no more than FIRSTGUESS_THREADS, where that is set."""
    if sys.platform == "emscripten":
        return 1  # a browser starts no threads
    found = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    most = os.environ.get(THREADS, "")
    return min(found, int(most)) if most.isdecimal() and int(most) else found


def in_threads(job: Callable[[int], None], count: int, *, small: bool = False) -> None:
    """Run job(0) … job(count − 1), a core each (`small` ones on one), with products on the core that asks for them.

    OpenBLAS' own threads would compete with ours, and keep a core busy for some 30 ms after each product.
    """
    errors = np.geterr()  # threads begin with NumPy's own settings

    def one(index: int) -> None:
        with np.errstate(**errors):
            job(index)

    workers = 1 if small else min(cores(), count)
    with _libraries().limit(limits=1, user_api="blas"):
        if workers <= 1:
            for index in range(count):
                job(index)
            return
        with ThreadPoolExecutor(workers) as pool:
            for _ in pool.map(one, range(count)):
                pass


def run_all(
    jobs: Sequence[Callable[[], object]],
    stop: Event,
    meanwhile: Callable[[], object] = lambda: None,
    every: float | None = None,
) -> None:
    """Run each job in a thread, and `meanwhile` here, `every` few seconds.

    After an error, or Ctrl-C, `stop` is set: jobs that ask for it end, all are waited for, and the error is raised.
    """

    def guarded(job: Callable[[], object]) -> None:
        try:
            job()
        except BaseException:
            stop.set()
            raise

    with ThreadPoolExecutor(len(jobs)) as pool:
        running = {pool.submit(guarded, job) for job in jobs}
        try:
            while running:
                done, running = wait(running, every, FIRST_COMPLETED)
                for one in done:
                    one.result()
                meanwhile()
        except BaseException:
            stop.set()
            raise


def tiles(rows: slice, cols: slice, size: int) -> list[tuple[slice, slice]]:
    """Tiles of a block, of about equal size; of a block on the diagonal the upper ones only."""
    down, across = (
        [slice(int(a), int(b)) for a, b in pairwise(np.linspace(s.start, s.stop, -(-(s.stop - s.start) // size) + 1))]
        for s in (rows, cols)
    )
    if rows != cols:
        return [(a, b) for a in down for b in across]
    first, *others = zip(down, down, strict=True)
    # One short job comes first, so that threads are not all in the same phase of theirs; the others fill up the end.
    return [first, *((a, b) for a in down for b in across if b.start > a.start), *others]


@contextmanager
def torch_threads(count: int | None = None) -> Generator[None]:
    """Set the number of threads inside torch (None: what is set within it); the one before comes back at the end."""
    import torch

    before = torch.get_num_threads()
    if count is not None:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@lru_cache(maxsize=1)
def _libraries() -> ThreadpoolController:
    return ThreadpoolController()  # looking for them takes milliseconds: once
