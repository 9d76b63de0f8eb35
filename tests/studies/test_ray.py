"""Studies on Ray: the same numbers as on this machine, and faults of real workers, nodes and drivers."""

from __future__ import annotations

import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
import ray_cluster
from study_functions import counted, dies_once, numbers, times, troubled

import firstguess as fg
from firstguess.studies import pools

ray: Any = pytest.importorskip("ray")

# Ray's own: sockets and subprocesses that it leaves to the collector, and what it says of its versions.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module")
def small_cluster() -> Generator[None]:
    """Ray on this machine, with two workers that find the helpers of these tests."""
    cluster = ray_cluster.started(2)
    yield
    ray_cluster.stopped(cluster)


def plain(table: Any) -> Any:
    return table.drop_columns(["seconds"])


def test_without_ray_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(fg.InvalidInput, match=r"pip install 'firstguess\[ray\]'"):
        fg.study("a", [{"seed": 0}], numbers, store=tmp_path).run(engine="ray")


def test_results_are_those_of_this_machine_and_nothing_is_done_twice(small_cluster: None, tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    grid = fg.grid(seed=range(6), marks=[str(marks)])
    s = fg.study("a", grid, counted, store=tmp_path / "runs").run(engine="ray")
    assert s.table()["mean"].to_pylist() == [numbers(p)["mean"] for p in grid]
    s.run(engine="ray")
    assert s.ran is not None
    assert (s.ran.found, s.ran.done) == (6, 0)
    assert times(marks) == dict.fromkeys(range(6), 1)


@pytest.mark.slow
def test_tasks_in_trouble_are_rows_and_the_rest_goes_on(small_cluster: None, tmp_path: Path) -> None:
    s = fg.study("a", fg.grid(seed=range(8)), troubled, store=tmp_path)
    s.run(engine="ray", seconds=4.0, memory=6e9, retries=1)
    assert s.table()["seed"].to_pylist() == [0, 7]
    reasons = {row["seed"]: row["reason"] for row in s.failures().to_pylist()}
    assert reasons[1] == "ValueError: a seed that does not grow"
    assert reasons[2] == "it took longer than 4 s"
    assert "llocate" in reasons[3]
    assert reasons[4].startswith("Ray lost it: WorkerCrashedError")
    assert reasons[5] == "SystemExit: 3"
    assert "a result with numbers" in reasons[6]


@pytest.mark.slow
def test_a_task_whose_worker_was_killed_runs_in_another(small_cluster: None, tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()
    grid = fg.grid(seed=range(3), marks=[str(marks)])
    s = fg.study("a", grid, dies_once, store=tmp_path / "runs").run(engine="ray")
    assert s.table()["mean"].to_pylist() == [numbers(p)["mean"] for p in grid]


@pytest.mark.slow
def test_ensembles_in_blocks_join_to_the_numbers_of_this_machine(small_cluster: None, tmp_path: Path) -> None:
    x = fg.data.load("blob:n=50,d=10")
    grid = fg.grid(depth=[1, 2])

    def function(p: dict[str, Any], data: Any) -> Any:
        return fg.measure(fg.mlp(**p), data, inits=200, width=24)

    s = fg.study("a", grid, function, data=x, store=tmp_path, block=64).run(engine="ray")
    for row, p in zip(s.table().to_pylist(), grid, strict=True):
        one = fg.measure(fg.mlp(**p), x, inits=200, width=24)
        assert row["gamma_by_layer"] == one.gamma.tolist()
        assert row["expected_max"] == one.guesses.expected_max()


@pytest.mark.slow
def test_no_more_tasks_are_handed_over_than_allowed(
    small_cluster: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flying: list[int] = []
    real = pools.RayPool.start

    def start(self: Any, job: Any) -> None:
        real(self, job)
        flying.append(len(self._jobs))

    monkeypatch.setattr(pools.RayPool, "start", start)
    s = fg.study("a", fg.grid(seed=range(100)), numbers, store=tmp_path).run(engine="ray")
    assert s.table().num_rows == 100
    assert max(flying) <= 16


def dies_at_150(p: dict[str, Any]) -> dict[str, Any]:
    import os
    import signal

    if p["seed"] == 150:
        os.kill(os.getpid(), signal.SIGKILL)
    return numbers(p)


@pytest.mark.slow
def test_one_of_many_small_tasks_that_ends_its_process_fails_alone(small_cluster: None, tmp_path: Path) -> None:
    s = fg.study("a", fg.grid(seed=range(300)), dies_at_150, store=tmp_path).run(engine="ray", retries=1)
    (failure,) = s.failures().to_pylist()
    assert failure["seed"] == 150
    assert failure["reason"].startswith("Ray lost it: WorkerCrashedError")
    assert s.table()["seed"].to_pylist() == [seed for seed in range(300) if seed != 150]
    assert list((tmp_path / "batches").glob("*.parquet"))
