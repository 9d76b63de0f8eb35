"""Small tasks that go together: one call, one file; and what is left where such a call or file is lost."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from in_process import InProcess
from study_functions import numbers

import firstguess as fg
from firstguess.studies import scheduler, study
from firstguess.studies.store import Results
from firstguess.studies.tasks import Came, Job, Work, perform_all


def plain(table: Any) -> Any:
    return table.drop_columns(["seconds"])


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "LocalPool", InProcess)


def files(folder: Path) -> list[Path]:
    return sorted((folder / "batches").glob("*.parquet"))


@pytest.mark.usefixtures("in_process")
def test_small_tasks_share_files_and_give_the_same_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    s = fg.study("a", fg.grid(seed=range(300)), numbers, store=tmp_path / "many").run()
    assert 1 <= len(files(tmp_path / "many")) < 30
    assert s.counts() == {"tasks": 300, "done": 300, "failed": 0, "missing": 0}
    for row, seed in zip(s.table().to_pylist(), range(300), strict=True):
        want = numbers({"seed": seed})
        assert (row["seed"], row["mean"], row["word"]) == (seed, want["mean"], want["word"])
        assert row["draws"] == want["draws"].tolist()
    s.run()
    assert s.ran is not None
    assert (s.ran.found, s.ran.done) == (300, 0)
    monkeypatch.setattr(scheduler, "MOST", 1)
    alone = fg.study("a", fg.grid(seed=range(300)), numbers, store=tmp_path / "one").run()
    assert files(tmp_path / "one") == []
    assert plain(alone.table()).equals(plain(s.table()))


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize("how", ["half", "text", "flipped"])
def test_a_damaged_batch_is_set_aside_and_only_it_is_computed_again(tmp_path: Path, how: str) -> None:
    s = fg.study("a", fg.grid(seed=range(400)), numbers, store=tmp_path).run()
    before = s.table()
    (tmp_path / "studies" / "a.table.parquet").unlink()
    batch = files(tmp_path)[0]
    lost = len(Results(tmp_path)._batches.read(batch.name))
    assert 1 < lost < 400
    whole = bytearray(batch.read_bytes())
    whole[len(whole) // 4] ^= 0xFF
    batch.write_bytes({"half": bytes(whole[:100]), "text": b"hello", "flipped": bytes(whole)}[how])
    again = fg.study("a", fg.grid(seed=range(400)), numbers, store=tmp_path)
    if how == "flipped":  # the addresses can be read, the results cannot: a table sees that
        assert again.table().num_rows == 400 - lost
    again.run()
    assert again.ran is not None
    assert (again.ran.found, again.ran.done) == (400 - lost, lost)
    assert plain(again.table()).equals(plain(before))
    assert len(list((tmp_path / "batches").glob("*.corrupt"))) == 1


@pytest.mark.usefixtures("in_process")
def test_another_runs_batches_are_seen_while_this_one_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from firstguess.studies import store

    monkeypatch.setattr(store, "_LOOK", 0.0)
    s = fg.study("a", fg.grid(seed=range(2000)), numbers, store=tmp_path)
    other: list[fg.Study] = []

    def tick(ran: Any) -> None:
        if ran.done == 10 and not other:
            other.append(fg.study("a", fg.grid(seed=range(2000)), numbers, store=tmp_path).run())

    s.run(progress=tick)
    assert s.ran is not None
    assert s.ran.found >= 1000
    assert s.ran.found + s.ran.done == 2000
    assert s.table()["mean"].to_pylist() == [numbers({"seed": seed})["mean"] for seed in range(2000)]


def test_long_tasks_do_not_wait_for_each_other_in_one_call() -> None:
    """What has not begun after a tenth of a second is left, and goes elsewhere."""
    import time

    jobs = [Job(str(k), {"k": k}) for k in range(50)]
    outcomes = perform_all(Work(lambda p: time.sleep(0.03) or {"v": p["k"]}), jobs)
    assert 1 <= len(outcomes) <= 5
    assert [outcome.key for outcome in outcomes] == [job.key for job in jobs[: len(outcomes)]]


@pytest.mark.usefixtures("in_process")
def test_no_more_tasks_are_under_way_than_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "UNDER_WAY", 50)
    under_way: list[int] = []
    real = InProcess.wait

    def wait(self: InProcess) -> list[Came]:
        under_way.append(sum(map(len, self._jobs)))
        return real(self)

    monkeypatch.setattr(InProcess, "wait", wait)
    s = fg.study("a", fg.grid(seed=range(500)), numbers, store=tmp_path).run()
    assert 3 < max(under_way) <= 50
    assert s.table().num_rows == 500


class Losing(InProcess):
    """Loses every call of several jobs, as a worker that dies does."""

    lost = 0

    def wait(self) -> list[Came]:
        jobs = self._jobs.pop()
        if len(jobs) > 1:
            type(self).lost += 1
            return [Came(jobs, [])]
        return [Came(jobs, perform_all(self._work, jobs))]


def test_jobs_of_a_call_that_is_lost_go_on_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "LocalPool", Losing)
    s = fg.study("a", fg.grid(seed=range(60)), numbers, store=tmp_path).run()
    assert Losing.lost > 0
    assert s.ran is not None
    assert (s.ran.done, s.ran.failed) == (60, 0)
    assert s.table()["mean"].to_pylist() == [numbers({"seed": seed})["mean"] for seed in range(60)]


def dies_at_150(p: dict[str, Any]) -> dict[str, Any]:
    if p["seed"] == 150:
        os.kill(os.getpid(), signal.SIGKILL)
    return numbers(p)


def test_one_of_many_small_tasks_that_ends_its_process_fails_alone(tmp_path: Path) -> None:
    s = fg.study("a", fg.grid(seed=range(300)), dies_at_150, store=tmp_path).run(workers=2, retries=1)
    (failure,) = s.failures().to_pylist()
    assert failure["seed"] == 150
    assert "by signal 9, 2 times" in failure["reason"]
    assert s.table()["seed"].to_pylist() == [seed for seed in range(300) if seed != 150]


@pytest.mark.usefixtures("in_process")
def test_results_that_differ_in_names_or_shapes_share_no_file_and_come_back(tmp_path: Path) -> None:
    def function(p: dict[str, Any]) -> dict[str, Any]:
        k = p["k"]
        found: dict[str, Any] = {
            "k2": k * k,
            "draws": np.arange(k % 3, dtype=np.int64),
            "flags": np.array([k > 3, True]),
        }
        return found | ({"word": ["a", "b"]} if k % 2 else {"deep": np.full((2, 2), k / 7)})

    s = fg.study("a", fg.grid(k=range(60)), function, store=tmp_path).run()
    for row in s.table().to_pylist():
        want = function(row)
        assert row["k2"] == want["k2"]
        assert row["draws"] == want["draws"].tolist()
        assert row["flags"] == want["flags"].tolist()
        assert row["word"] == want.get("word")
        assert row["deep"] == (None if "deep" not in want else want["deep"].tolist())


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize("bad", [np.array([2**64 - 1], np.uint64), "half a \ud800 letter"])
def test_a_result_that_parquet_cannot_hold_is_a_failure_and_the_rest_goes_on(tmp_path: Path, bad: Any) -> None:
    s = fg.study("a", fg.grid(k=range(30)), lambda p: {"v": bad if p["k"] == 20 else p["k"]}, store=tmp_path).run()
    (failure,) = s.failures().to_pylist()
    assert failure["k"] == 20
    assert "cannot be kept" in failure["reason"]
    assert s.table().num_rows == 29
