"""Faults of a Ray cluster: a node that is killed, a driver that is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import ray_cluster
from study_functions import numbers, slow

import firstguess as fg

ray: Any = pytest.importorskip("ray")

# Ray's own: sockets and subprocesses that it leaves to the collector, and what it says of its versions.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.mark.slow
def test_a_node_that_is_killed_loses_nothing(tmp_path: Path) -> None:
    """Two nodes on this machine; one is killed in the middle of its tasks."""
    ray.shutdown()
    marks = tmp_path / "marks"
    marks.mkdir()
    grid = fg.grid(seed=range(8), marks=[str(marks)], seconds=[3.0])
    cluster = ray_cluster.started(1, 1)
    node = next(one for one in cluster.list_all_nodes() if one is not cluster.head_node)

    def kill() -> None:
        deadline = time.monotonic() + 600
        while len(list(marks.glob("done-*"))) < 2 and time.monotonic() < deadline:
            time.sleep(0.1)
        cluster.remove_node(node, allow_graceful=False)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        s = fg.study("a", grid, slow, store=tmp_path / "runs").run(engine="ray", retries=3)
    finally:
        killer.join()
        ray_cluster.stopped(cluster)
    assert s.ran is not None
    assert (s.ran.done, s.ran.failed) == (8, 0)
    assert s.table()["mean"].to_pylist() == [numbers(p)["mean"] for p in grid]


_SCRIPT = """
import sys
import ray_cluster
import firstguess as fg
from study_functions import slow
cluster = ray_cluster.started(2, connect=False)
grid = fg.grid(seed=range(6), marks=[sys.argv[2]], seconds=[1.0])
fg.study("a", grid, slow, store=sys.argv[1]).run(engine="ray", address=cluster.address)
"""


@pytest.mark.slow
def test_a_driver_that_is_killed_loses_nothing_that_was_finished(tmp_path: Path) -> None:
    ray.shutdown()
    marks, store = tmp_path / "marks", tmp_path / "runs"
    marks.mkdir()
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}
    command = [sys.executable, "-c", _SCRIPT, str(store), str(marks)]
    driver = subprocess.Popen(command, env=environment)
    deadline = time.monotonic() + 900
    while len(list((store / "tasks").rglob("*.parquet"))) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    ray_cluster.forgotten()
    finished = len(list((store / "tasks").rglob("*.parquet")))
    assert finished < 6
    grid = fg.grid(seed=range(6), marks=[str(marks)], seconds=[1.0])
    s = fg.study("a", grid, slow, store=store).run(workers=2)  # another engine continues with it
    assert s.ran is not None
    assert (s.ran.found, s.ran.done) == (finished, 6 - finished)
    assert s.table()["mean"].to_pylist() == [numbers(p)["mean"] for p in grid]
