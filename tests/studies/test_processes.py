"""Faults of real processes: workers that raise, hang, eat memory or are killed, and a driver that is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from multiprocessing.connection import Pipe
from pathlib import Path
from typing import Any

import pytest
from study_functions import DiesOnLoading, dies_once, numbers, slow, times, troubled

import firstguess as fg
from firstguess.studies.pools import READY, LocalPool, sendable
from firstguess.studies.tasks import Job, Work


def plain(table: Any) -> Any:
    return table.drop_columns(["seconds"])


def test_workers_in_trouble_are_rows_and_the_rest_goes_on(tmp_path: Path) -> None:
    s = fg.study("a", fg.grid(seed=range(8)), troubled, store=tmp_path)
    s.run(workers=2, seconds=4.0, memory=4e9, retries=1)
    t = s.table()
    assert t["seed"].to_pylist() == [0, 7]
    assert t["mean"].to_pylist() == [numbers({"seed": seed})["mean"] for seed in (0, 7)]
    reasons = {row["seed"]: row["reason"] for row in s.failures().to_pylist()}
    assert reasons[1] == "ValueError: a seed that does not grow"
    assert reasons[2] == "it took longer than 4 s"
    assert "llocate" in reasons[3]  # NumPy's MemoryError: the machine has not swapped
    assert reasons[4] == "its process ended by signal 9, 2 times; was memory short?"
    assert reasons[5] == "SystemExit: 3"
    assert "a result with numbers" in reasons[6]


def test_a_task_whose_worker_was_killed_runs_in_another(tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    grid = fg.grid(seed=range(2), marks=[str(marks)])
    s = fg.study("a", grid, dies_once, store=tmp_path / "runs").run(workers=2)
    assert s.ran is not None
    assert (s.ran.done, s.ran.failed) == (2, 0)
    assert s.table()["mean"].to_pylist() == [numbers(p)["mean"] for p in grid]


def test_workers_have_one_thread_and_find_the_callers_modules() -> None:
    from firstguess.base.threads import cores

    pool = LocalPool(Work(lambda p: {"cores": cores(), "omp": os.environ["OMP_NUM_THREADS"], "p": p["p"]}), workers=1)
    try:
        pool.start((Job("k", {"p": 5}),))
        ((_, (outcome,)),) = pool.wait()
        process = pool.workers[0].process
    finally:
        pool.close()
    assert outcome.piece == {"cores": 1, "omp": "1", "p": 5}
    assert process.returncode is not None


@pytest.mark.parametrize("times", [2, 99])
def test_a_worker_that_is_killed_while_it_starts_is_started_again(tmp_path: Path, times: int) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    thing = DiesOnLoading(str(marks), times)
    s = fg.study("a", fg.grid(seed=range(3)), lambda p: numbers(p) | {"times": thing.times}, store=tmp_path / "runs")
    if times > 2:  # nothing can start here: that is said, and does not continue for ever
        with pytest.raises(fg.FirstguessError, match="a worker process that starts"):
            s.run(workers=1)
        return
    s.run(workers=1)
    assert s.table()["mean"].to_pylist() == [numbers({"seed": seed})["mean"] for seed in range(3)]


_SCRIPT = """
import sys
import firstguess as fg
from study_functions import slow
grid = fg.grid(seed=range(6), marks=[sys.argv[2]], seconds=[float(sys.argv[3])])
fg.study("a", grid, slow, store=sys.argv[1]).run(workers=2)
"""


def _driver(store: Path, marks: Path, seconds: float) -> subprocess.Popen[bytes]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen([sys.executable, "-c", _SCRIPT, str(store), str(marks), str(seconds)], env=environment)


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_driver_that_is_killed_loses_nothing_that_was_finished(tmp_path: Path, how: signal.Signals) -> None:
    marks, store = tmp_path / "marks", tmp_path / "runs"
    marks.mkdir()
    driver = _driver(store, marks, 1.0)
    deadline = time.monotonic() + 900
    while len(list((store / "tasks").rglob("*.parquet"))) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    driver.send_signal(how)
    driver.wait()
    finished = len(list((store / "tasks").rglob("*.parquet")))
    time.sleep(3)  # workers end with it
    begun = times(marks)
    time.sleep(3)
    assert times(marks) == begun
    assert finished < 6
    assert _driver(store, marks, 1.0).wait() == 0
    again = times(marks)
    assert sum(again.values()) - sum(begun.values()) == 6 - finished  # only what was missing
    grid = fg.grid(seed=range(6), marks=[str(marks)], seconds=[1.0])
    s = fg.study("a", grid, slow, store=store)
    assert s.table()["mean"].to_pylist() == [numbers(p)["mean"] for p in grid]


@pytest.mark.slow
def test_two_runs_on_one_store_at_once_are_safe(tmp_path: Path) -> None:
    marks, store = tmp_path / "marks", tmp_path / "runs"
    marks.mkdir()
    drivers = [_driver(store, marks, 0.2) for _ in range(2)]
    assert [driver.wait() for driver in drivers] == [0, 0]
    files = list((store / "tasks").rglob("*.parquet"))
    assert len(files) == 6
    grid = fg.grid(seed=range(6), marks=[str(marks)], seconds=[0.2])
    s = fg.study("a", grid, slow, store=store)
    assert s.table()["mean"].to_pylist() == [numbers(p)["mean"] for p in grid]
    assert not list(store.rglob("*.part"))


@pytest.mark.slow
def test_results_are_the_same_whatever_the_number_of_workers(tmp_path: Path) -> None:
    tables = [
        fg.study("a", fg.grid(seed=range(20)), numbers, store=tmp_path / str(w)).run(workers=w).table() for w in (1, 2)
    ]
    assert plain(tables[0]).equals(plain(tables[1]))


def test_a_worker_whose_driver_is_gone_says_nothing() -> None:
    """It was killed while a task ran: the answer goes into a pipe that nobody reads any more."""
    ours, theirs = Pipe()
    program = f"from firstguess.studies.pools import worker; worker({theirs.fileno()}, {os.getpid()})"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(
        [sys.executable, "-c", program], env=environment, pass_fds=[theirs.fileno()], stderr=subprocess.PIPE, text=True
    )
    theirs.close()
    ours.send_bytes(sendable(Work(numbers)))
    assert ours.recv() == READY
    ours.send_bytes(sendable((Job("a", {"seed": 1}),)))
    ours.close()
    assert process.communicate(timeout=60)[1] == ""
    assert process.returncode == 0
