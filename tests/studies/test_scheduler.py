"""Which tasks run, and what is kept of them: here in one process, whose faults are made by hand."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from in_process import InProcess
from study_functions import counted, numbers, times, troubled

import firstguess as fg
from firstguess.studies import pools, scheduler, store, study
from firstguess.studies.store import Results
from firstguess.studies.study_files import StudyFiles


@pytest.fixture(autouse=True)
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "LocalPool", InProcess)
    monkeypatch.setattr(scheduler, "MOST", 1)  # a file a result: test_batches.py has several


def marks(tmp_path: Path) -> Path:
    folder = tmp_path / "marks"
    folder.mkdir(exist_ok=True)
    return folder


def seeds(tmp_path: Path, count: int) -> fg.Grid:
    return fg.grid(seed=range(count), marks=[str(marks(tmp_path))])


def plain(table: Any) -> Any:
    return table.drop_columns(["seconds"])


def test_rows_are_what_the_function_returned(tmp_path: Path) -> None:
    s = fg.study("a", fg.grid(seed=[3, 1, 2]), numbers, store=tmp_path).run()
    t = s.table()
    assert t["seed"].to_pylist() == [3, 1, 2]
    for row in t.to_pylist():
        want = numbers({"seed": row["seed"]})
        assert (row["mean"], row["word"], row["draws"]) == (want["mean"], want["word"], want["draws"].tolist())
    assert s.counts() == {"tasks": 3, "done": 3, "failed": 0, "missing": 0}
    assert s.failures()["reason"].to_pylist() == []


def test_nothing_is_done_twice_also_across_studies(tmp_path: Path) -> None:
    fg.study("a", seeds(tmp_path, 4), counted, store=tmp_path / "runs").run().run()
    again = fg.study("b", seeds(tmp_path, 6)[::-1] + seeds(tmp_path, 2)[:], counted, store=tmp_path / "runs").run()
    assert times(marks(tmp_path)) == dict.fromkeys(range(6), 1)
    assert again.ran is not None
    assert (again.ran.total, again.ran.found, again.ran.done) == (6, 4, 2)
    assert again.table()["seed"].to_pylist() == [5, 4, 3, 2, 1, 0, 0, 1]


def test_configurations_that_are_equal_are_computed_once(tmp_path: Path) -> None:
    s = fg.study("a", fg.grid(k=[1, 1.0, 2, np.float64(2.0), 2.5, True]), lambda p: {"v": 2 * p["k"]}, store=tmp_path)
    ran = s.run().ran
    assert ran is not None
    assert ran.done == 4  # 1, 2, 2.5 and True, which is no number of layers
    assert s.table()["v"].to_pylist() == [2, 2, 4, 4, 5, 2]


def test_another_function_data_or_version_is_another_task(tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((3, 2))

    def ran(function: Callable[..., Any], **options: Any) -> int:
        s = fg.study("a", fg.grid(k=[1, 2]), function, store=tmp_path, **options).run()
        assert s.ran is not None
        assert s.table().num_rows == 2
        return s.ran.done

    assert [ran(lambda p: {"v": p["k"]}), ran(lambda p: {"v": p["k"]}), ran(lambda p: {"v": -p["k"]})] == [2, 0, 2]
    assert ran(lambda p: {"v": p["k"]}, version=2) == 2
    sums = [ran(lambda p, data: {"v": p["k"] * float(data.x.sum())}, data=points) for points in (x, x, x + 1)]
    assert sums == [2, 0, 2]


def test_a_task_that_raises_is_a_row_and_the_rest_goes_on(tmp_path: Path) -> None:
    s = fg.study("a", fg.grid(seed=[0, 1, 5, 6, 7]), troubled, store=tmp_path).run()
    assert s.table()["seed"].to_pylist() == [0, 7]
    failures = {row["seed"]: row for row in s.failures().to_pylist()}
    assert failures[1]["reason"] == "ValueError: a seed that does not grow"
    assert "troubled" in failures[1]["trace"]
    assert failures[5]["reason"] == "SystemExit: 3"
    assert "a result with numbers" in failures[6]["reason"]
    assert s.counts() == {"tasks": 5, "done": 2, "failed": 3, "missing": 0}


def test_a_failure_is_tried_again_and_then_forgotten(tmp_path: Path) -> None:
    flag = tmp_path / "fine"

    def function(p: dict[str, Any]) -> dict[str, float]:
        if not flag.exists():
            raise OSError("the network is down")
        return {"v": p["k"]}

    s = fg.study("a", fg.grid(k=[1]), function, store=tmp_path / "runs").run()
    assert s.failures()["reason"].to_pylist() == ["OSError: the network is down"]
    flag.touch()
    s.run()
    assert s.failures().num_rows == 0
    assert s.table()["v"].to_pylist() == [1]


@pytest.mark.parametrize("how", ["empty", "half", "flipped", "text"])
def test_a_damaged_result_is_missing_and_said(tmp_path: Path, how: str, capsys: pytest.CaptureFixture[str]) -> None:
    s = fg.study("a", seeds(tmp_path, 3), counted, store=tmp_path / "runs").run()
    before = s.table()
    file = sorted((tmp_path / "runs" / "tasks").rglob("*.parquet"))[1]
    whole = file.read_bytes()
    middle = whole.index(b"PAR1", 1) if b"PAR1" in whole[1:-4] else 20
    flipped = whole[:middle] + bytes([whole[middle] ^ 0xFF]) + whole[middle + 1 :]
    file.write_bytes({"empty": b"", "half": whole[: len(whole) // 2], "flipped": flipped, "text": b"hello"}[how])
    (tmp_path / "runs" / "studies" / "a.table.parquet").unlink()  # the table that was kept has all of it
    if how == "flipped":  # its ends are fine: only reading it shows the damage
        assert s.table().num_rows == 2
        assert "1 damaged result" in capsys.readouterr().err
    s.run()
    assert s.ran is not None
    assert s.ran.done == 1
    assert s.ran.damaged == (how != "flipped")
    assert plain(s.table()).equals(plain(before))
    assert sorted(times(marks(tmp_path)).values()) == [1, 1, 2]


def test_a_full_disk_ends_the_run_in_one_line_and_keeps_what_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    s = fg.study("a", seeds(tmp_path, 6), counted, store=tmp_path / "runs")
    written: list[Path] = []
    real = store.write_parquet

    def full(path: Path, table: Any, **options: Any) -> None:
        if len(written) == 2:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        real(path, table, **options)
        if "studies" not in path.parts:  # results, not the plan
            written.append(path)

    s.counts()  # the plan is there
    monkeypatch.setattr(store, "write_parquet", full)
    with pytest.raises(fg.InvalidInput, match="No space left on device"):
        s.run()
    assert s.counts()["done"] == 2
    monkeypatch.setattr(store, "write_parquet", real)
    assert plain(s.run().table()).equals(plain(_uninterrupted(tmp_path, 6)))
    assert s.ran is not None
    assert (s.ran.found, s.ran.done) == (2, 4)
    assert not list((tmp_path / "runs").rglob("*.part"))


def test_half_a_file_is_not_left_where_the_disk_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pyarrow.parquet as pq

    def half(table: Any, where: Path, **_: Any) -> None:
        Path(where).write_bytes(b"PAR1")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(pq, "write_table", half)
    with pytest.raises(OSError, match="No space"):
        store.Store(tmp_path).write("k", {"x": 1.0}, 0.0)
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_keeps_what_is_done(tmp_path: Path) -> None:
    s = fg.study("a", seeds(tmp_path, 6), counted, store=tmp_path / "runs")

    def stop(ran: Any) -> None:
        if ran.done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        s.run(progress=stop)
    assert s.table().num_rows == 2
    assert plain(s.run().table()).equals(plain(_uninterrupted(tmp_path, 6)))
    assert times(marks(tmp_path)) == dict.fromkeys(range(6), 2)  # once each, and once in the other store


def _uninterrupted(tmp_path: Path, count: int) -> Any:
    return fg.study("a", seeds(tmp_path, count), counted, store=tmp_path / "others").run().table()


def test_a_second_run_at_the_same_time_begins_elsewhere(tmp_path: Path) -> None:
    order: list[int] = []

    def function(p: dict[str, Any]) -> dict[str, int]:
        order.append(p["k"])
        return {"v": p["k"]}

    s = fg.study("a", fg.grid(k=range(9)), function, store=tmp_path, version="one")
    s.counts()
    with StudyFiles(Results(tmp_path), "a").alone() as alone:  # the first run
        assert alone
        one_by_one(s)
    assert sorted(order) == list(range(9))
    assert order == [*range(order[0], 9), *range(order[0])]
    assert order[0] != 0
    assert s.table()["v"].to_pylist() == list(range(9))  # the table's order is that of the configurations
    order.clear()
    one_by_one(fg.study("a", fg.grid(k=range(9)), function, store=tmp_path, version="two"))
    assert order == list(range(9))


def one_by_one(s: fg.Study) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(InProcess, "capacity", 1)
        s.run()


def test_two_studies_of_one_name_never_get_each_others_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = fg.study("a", fg.grid(k=[1, 2]), lambda p: {"v": p["k"]}, store=tmp_path)
    other = fg.study("a", fg.grid(k=[1, 2]), lambda p: {"v": -p["k"]}, store=tmp_path)
    assert other.run().table()["v"].to_pylist() == [-1, -2]
    assert one.run().table()["v"].to_pylist() == [1, 2]  # one after the other: the last one has the name
    monkeypatch.setattr(one, "_plan", lambda: None)  # and in the middle of one run the other begins
    other.run()
    with pytest.raises(fg.InvalidInput, match="a name of its own"):
        one.run()


def test_a_worker_with_another_firstguess_computes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An old image on a node: its numbers would stand under the driver's address."""
    from firstguess.studies import tasks

    monkeypatch.setattr(tasks, "code_version", lambda: "0.0.1+0123456789")
    s = fg.study("a", fg.grid(seed=[0]), numbers, store=tmp_path).run()
    assert s.table().num_rows == 0
    assert "as the driver has it, but got 0.0.1+0123456789" in s.failures()["reason"].to_pylist()[0]


# -- Blocks of members ------------------------------------------------------------------------------------------------


def measured(p: dict[str, Any], data: Any) -> Any:
    return fg.measure(fg.mlp(**p), data, inits=150, width=24, threads=1)


@pytest.fixture(scope="module")
def points() -> Any:
    return np.random.default_rng(5).standard_normal((40, 10), dtype=np.float32)


def test_blocks_join_to_the_very_numbers_of_one_machine(tmp_path: Path, points: Any) -> None:
    configurations = fg.grid(depth=[1, 2], norm=[None, "batchnorm"])
    whole = fg.study("a", configurations, measured, data=points, store=tmp_path / "whole").run().table()
    s = fg.study("a", configurations, measured, data=points, store=tmp_path / "cut", block=10).run()
    assert plain(s.table()).equals(plain(whole))
    one = fg.measure(fg.mlp(depth=2), points, inits=150, width=24)
    assert whole["gamma_by_layer"].to_pylist()[2] == one.gamma.tolist()
    assert whole["expected_max"].to_pylist()[2] == one.guesses.expected_max()
    assert list((tmp_path / "cut" / "blocks").iterdir()) == []  # there were some, and they have been joined


def test_blocks_that_are_there_are_not_computed_again(tmp_path: Path, points: Any) -> None:
    calls: list[int] = []

    def function(p: dict[str, Any], data: Any) -> Any:
        calls.append(1)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return fg.measure(fg.mlp(**p), data, inits=300, width=4, threads=1)

    s = fg.study("a", fg.grid(depth=[1]), function, data=points, store=tmp_path, block=64)
    with pytest.raises(KeyboardInterrupt):
        s.run()
    kept = len(list((tmp_path / "blocks").rglob("*.parquet")))
    assert kept == 3
    s.run()  # two blocks more (of 64, 300 members are five), and the join
    assert len(calls) == 4 + 2 + 1
    assert s.table()["inits"].to_pylist() == [300]


def test_a_block_that_fails_fails_its_ensemble_once(tmp_path: Path, points: Any) -> None:
    calls: list[int] = []

    def function(p: dict[str, Any], data: Any) -> Any:
        calls.append(1)
        if len(calls) > 1 and p["depth"] == 1:
            raise ValueError("later")
        return fg.measure(fg.mlp(**p), data, inits=300, width=4, threads=1)

    s = fg.study("a", fg.grid(depth=[1, 2]), function, data=points, store=tmp_path, block=64).run()
    assert s.failures()["reason"].to_pylist() == ["ValueError: later"]
    assert s.table()["depth"].to_pylist() == [2]


def test_blocks_that_finish_after_one_has_failed_are_kept(tmp_path: Path, points: Any) -> None:
    calls: list[int] = []

    def function(p: dict[str, Any], data: Any) -> Any:
        calls.append(1)
        if len(calls) == 2 and p["fails"]:
            raise ValueError("once")
        return fg.measure(fg.mlp(depth=1), data, inits=300, width=4, threads=1)

    s = fg.study("a", fg.grid(fails=[True]), function, data=points, store=tmp_path, block=64).run()
    assert s.failures()["reason"].to_pylist() == ["ValueError: once"]
    assert len(calls) == 4  # two were under way when the second failed
    assert len(list((tmp_path / "blocks").rglob("*.parquet"))) == 3
    s.run()
    assert len(calls) == 4 + 2 + 1  # the two that were missing, and the join
    assert s.failures().num_rows == 0


def test_another_run_that_joins_the_blocks_first_is_no_fault(tmp_path: Path, points: Any) -> None:
    """Two runs of one study: the other one has joined an ensemble and removed its blocks when this one wants to."""

    def function(p: dict[str, Any], data: Any) -> Any:
        return fg.measure(fg.mlp(depth=1), data, inits=150, width=4, threads=1)

    def one() -> fg.Study:
        return fg.study("a", fg.grid(k=[1]), function, data=points, store=tmp_path / "runs", block=64)

    whole = fg.study("a", fg.grid(k=[1]), function, data=points, store=tmp_path / "others").run().table()
    late = one()
    real = Results.blocks
    with pytest.MonkeyPatch.context() as patch:

        def blocks(self: Results, key: str, asked: int) -> Any:
            patch.setattr(Results, "blocks", real)
            one().run()  # the whole of the other run
            return real(self, key, asked)

        patch.setattr(Results, "blocks", blocks)
        late.run()
    assert late.ran is not None
    assert (late.ran.found, late.ran.done, late.ran.failed) == (1, 0, 0)
    assert plain(late.table()).equals(plain(whole))


def test_blocks_that_have_gone_are_computed_again(tmp_path: Path, points: Any) -> None:
    def function(p: dict[str, Any], data: Any) -> Any:
        return fg.measure(fg.mlp(depth=1), data, inits=150, width=4, threads=1)

    real = Results.blocks
    with pytest.MonkeyPatch.context() as patch:

        def blocks(self: Results, key: str, asked: int) -> Any:
            patch.setattr(Results, "blocks", real)
            self.drop_blocks(key, asked)
            return real(self, key, asked)

        patch.setattr(Results, "blocks", blocks)
        s = fg.study("a", fg.grid(k=[1]), function, data=points, store=tmp_path, block=64).run()
    assert s.table()["inits"].to_pylist() == [150]


def test_what_cannot_be_cut_is_one_task(tmp_path: Path, points: Any) -> None:
    def function(p: dict[str, Any], data: Any) -> Any:
        if p["how"] == "twice":  # the second ensemble is computed whole, where the first is joined
            first = fg.measure(fg.mlp(depth=1), data, inits=130, width=4)
            return {"first": first, "second": fg.measure(fg.mlp(depth=1), data, inits=130, width=4, seed=1)}
        if p["how"] == "precise":
            return fg.measure(fg.mlp(depth=1), data, inits=130, width=4, precision=0.001)
        return fg.predict(fg.mlp(depth=1))

    how = fg.grid(how=["twice", "precise", "predicted"])
    tables = [
        fg.study("a", how, function, data=points, store=tmp_path / str(block), block=block).run().table()
        for block in (None, 64)
    ]
    assert plain(tables[0]).equals(plain(tables[1]))
    assert tables[0].num_rows == 3


# -- Bad input --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "options", "words"),
    [
        (("a/b", [{}], numbers), {}, "a name that a file can have"),
        (("a", [], numbers), {}, "at least one configuration"),
        (("a", [3], numbers), {}, "a grid"),
        (("a", [{}], 3), {}, "a function"),
        (("a", [{}], numbers), {"block": 0}, "members per block"),
        (("a", [{}], numbers), {"store": "/proc/none"}, "a folder for results"),
        (("a", [{}], numbers), {"data": "no such data"}, "no such data"),
    ],
)
def test_bad_input_is_one_line(tmp_path: Path, arguments: Any, options: Any, words: str) -> None:
    with pytest.raises(fg.InvalidInput, match=words) as caught:
        fg.study(*arguments, **({"store": tmp_path} | options))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("options", [{"engine": "slurm"}, {"workers": 0}, {"seconds": -1}, {"wrokers": 2}, {"cpus": 0}])
def test_bad_options_of_run_are_one_line(tmp_path: Path, options: Any) -> None:
    with pytest.raises(fg.InvalidInput):
        fg.study("a", [{}], numbers, store=tmp_path).run(**options)


def test_a_function_that_cannot_be_sent_is_refused_before_any_work(tmp_path: Path) -> None:
    generator = (i for i in range(3))
    with pytest.raises(fg.InvalidInput, match="can be sent to another process"):
        fg.study("a", [{}], lambda p: next(generator), store=tmp_path).run()
    assert pools.sendable(lambda p: p)
