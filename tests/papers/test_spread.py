"""Items as tasks: side by side, the same records as one by one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from firstguess_papers import execute, registry, running
from firstguess_papers.execute import run_item
from firstguess_papers.items import Entry, Item, Outcome
from firstguess_papers.running import Run
from in_process import InProcess

from firstguess.base.errors import FirstguessError


def _toy(id: str) -> Item:
    def function(run: Run) -> Outcome:
        x = run.piece({"k": id}, lambda: {"x": np.random.default_rng([run.seed, len(id)]).standard_normal(3)})["x"]
        return Outcome([Entry("I4", "s", " ".join(map(repr, x.tolist())), "holds")], {"values": {"x": x}})

    return Item(id, "A toy", "§0", claims=("I4",), about="", quick={}, full={}, seconds=(1, 2), function=function)


def test_records_are_those_of_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    toys = {id: _toy(id) for id in ("beyond/toy", "beyond/other", "beyond/third-one")}
    monkeypatch.setattr(registry, "items", lambda: toys)
    monkeypatch.setattr(execute, "LocalPool", InProcess)
    options: dict[str, Any] = {"quick": True, "seed": 3}
    found = list(execute.run_items(list(toys.values()), tmp_path / "a", engine="local", **options))
    alone = [run_item(toys[record.id], tmp_path / "b", **options) for record in found]
    assert sorted(record.id for record in found) == sorted(toys)
    assert [replace(r, seconds=0.0) for r in found] == [replace(r, seconds=0.0) for r in alone]
    for id in toys:
        one, two = ((tmp_path / n / "quick" / id / "values.parquet").read_bytes() for n in "ab")
        assert one == two


def test_files_that_did_not_arrive_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a cluster whose nodes do not share the folder."""
    toys = {id: _toy(id) for id in ("beyond/toy", "beyond/other")}
    monkeypatch.setattr(registry, "items", lambda: toys)

    class Elsewhere(InProcess):
        def wait(self) -> Any:
            outcomes = super().wait()
            for id in toys:
                (tmp_path / "quick" / id / "values.parquet").unlink(missing_ok=True)
            return outcomes

    monkeypatch.setattr(execute, "LocalPool", Elsewhere)
    with pytest.raises(FirstguessError, match="all nodes share"):
        list(execute.run_items(list(toys.values()), tmp_path, engine="local", quick=True))


def test_the_command_runs_items_in_processes(tmp_path: Path) -> None:
    """Items without their data: skipped, which takes no time, and comes back from a worker."""
    names = ["igb/fig10", "norm/fig1"] if "norm/fig1" in registry.items() else ["igb/fig10", "igb/fig1"]
    command = [sys.executable, "-c", "from firstguess.cli import main; main()", "reproduce", *names, "--quick"]
    command += ["--data-dir", str(tmp_path), "--out", str(tmp_path / "out"), "--engine", "local", "--json"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=1200, check=False)
    assert result.returncode == 1, result.stderr
    assert [(row["id"], row["status"]) for row in json.loads(result.stdout)] == [(name, "skipped") for name in names]


# -- The pieces of one item

NETS = {f"{depth} layers": f"{depth} x [dense > relu] > dense" for depth in (1, 2, 3, 4)}


def doubled(x: Any) -> dict[str, float]:
    return {"sum": 2.0 * float(x.x.sum())}


def _measures(run: Run) -> Outcome:
    """Collects measurements first and looks at them afterwards; then one that it needs at once, and one by hand."""
    import firstguess as fg

    x = fg.data.blob(60, 8, seed=run.seed)
    inits, width = (run.sizes[0][name] for name in ("inits", "width"))
    found = {name: run.measure(net, x, inits=inits, width=width, label=name) for name, net in NETS.items()}
    stds = {name: m.guesses.std() for name, m in found.items()}
    again = run.measure(NETS["1 layers"], x, inits=inits + 1, width=width, label="again").guesses.std()
    own = run.piece({"own": 1}, lambda: {"x": 2.5}, label="own")["x"]
    kept = run.keep(doubled, label="kept", x=x)["sum"]
    return Outcome(
        [Entry("I4", "s", f"{stds!r} {again!r} {own!r} {kept!r}", "holds")], {"values": {"std": list(stds.values())}}
    )


MEASURES = Item(
    "beyond/measures", "Four networks", "§0", claims=("I4",), about="{inits} networks of {width}.",
    quick=dict(inits=20, width=10), full=dict(inits=3000, width=60), seconds=(1, 2), function=_measures,
)  # fmt: skip


def test_the_pieces_of_one_item_are_spread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    most: list[int] = []

    class Counted(InProcess):
        def wait(self) -> Any:
            most.append(len(vars(self)["_jobs"]))
            return super().wait()

    monkeypatch.setattr(execute, "LocalPool", Counted)
    (found,) = execute.run_items([MEASURES], tmp_path / "a", engine="local", quick=True)
    assert found.status == "done", found.reason
    assert max(most) == InProcess.capacity  # as many at once as there are workers
    alone = run_item(MEASURES, tmp_path / "b", quick=True)
    assert found.entries == alone.entries
    one, two = (sorted(p.name for p in (tmp_path / n / "quick/beyond/measures/pieces").iterdir()) for n in "ab")
    assert one == two  # the same addresses: each can continue with what the other has kept
    most.clear()
    (again,) = execute.run_items([MEASURES], tmp_path / "a", engine="local", quick=True)
    assert (again.entries, most) == (found.entries, [])


def _keeps(run: Run) -> Outcome:
    import firstguess as fg

    kept = [run.keep(doubled, label=f"{k} points", x=fg.data.blob(k, 8, seed=run.seed)) for k in (5, 6, 7, 8)]
    return Outcome([Entry("I4", "s", str([one["sum"] for one in kept]), "holds")])


def test_kept_pieces_are_spread_if_they_are_asked_for_before_one_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    most: list[int] = []

    class Counted(InProcess):
        def wait(self) -> Any:
            most.append(len(vars(self)["_jobs"]))
            return super().wait()

    monkeypatch.setattr(execute, "LocalPool", Counted)
    keeps = replace(MEASURES, id="beyond/keeps", function=_keeps)
    (found,) = execute.run_items([keeps], tmp_path / "a", engine="local", quick=True)
    assert found.status == "done", found.reason
    assert max(most) == InProcess.capacity
    assert found.entries == run_item(keeps, tmp_path / "b", quick=True).entries


def _fails(**given: Any) -> Any:
    raise FirstguessError("networks", got="none", where="inits")


def test_a_piece_that_fails_fails_its_item(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execute, "LocalPool", InProcess)
    monkeypatch.setattr(running, "measured", _fails)
    (found,) = execute.run_items([MEASURES], tmp_path, engine="local", quick=True)
    assert found.status == "failed"
    assert "inits" in found.reason


DRIVER = """
import sys
import time
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from firstguess_papers import execute
import test_spread

(record,) = execute.run_items([test_spread.MEASURES], Path(sys.argv[1]), engine="local", workers=2)
print(record.entries[0].measured)
"""


def test_nothing_is_lost_when_the_driver_is_killed(tmp_path: Path) -> None:
    """SIGKILL once a worker has kept a piece; what is kept is not computed again, and the numbers are the same."""
    pieces = tmp_path / "full/beyond/measures/pieces"
    here = Path(__file__).parent
    command = [sys.executable, "-c", DRIVER, str(tmp_path), str(here)]
    path = os.pathsep.join([str(here), str(here.parent), *sys.path])
    with subprocess.Popen(command, env=os.environ | {"PYTHONPATH": path}, stdout=subprocess.DEVNULL) as driver:
        until = time.monotonic() + 300
        while time.monotonic() < until and not list(pieces.glob("*.parquet")) and driver.poll() is None:
            time.sleep(0.02)
        driver.kill()
    kept = {p.name: p.stat().st_mtime_ns for p in pieces.glob("*.parquet")}
    assert kept
    resumed = run_item(MEASURES, tmp_path)
    assert resumed.status == "done", resumed.reason
    assert {name: (pieces / name).stat().st_mtime_ns for name in kept} == kept
    assert resumed.entries == run_item(MEASURES, tmp_path / "whole").entries


@pytest.mark.slow
def test_one_item_on_a_ray_cluster_gives_the_same_record(tmp_path: Path) -> None:
    """Two nodes of this machine compute its pieces; the record, and what is kept, are those of one process."""
    pytest.importorskip("ray")
    import ray_cluster

    cluster = ray_cluster.started(1, 1)
    try:
        known = registry.items()["igb/layers"]
        (found,) = execute.run_items([known], tmp_path / "a", engine="ray", address=cluster.address, quick=True)
    finally:
        ray_cluster.stopped(cluster)
    assert found.status == "done", found.reason
    alone = run_item(known, tmp_path / "b", quick=True)
    assert found.entries == alone.entries
    one, two = (sorted(p.name for p in (tmp_path / n / "quick/igb/layers/pieces").iterdir()) for n in "ab")
    assert one == two
