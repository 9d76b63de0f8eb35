"""Items as tasks: side by side, the same records as one by one."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from firstguess_papers import registry, spread
from firstguess_papers.execute import run_item
from firstguess_papers.items import Entry, Item, Outcome, item
from firstguess_papers.running import Run
from in_process import InProcess

from firstguess.base.errors import FirstguessError


def _toy(id: str) -> Item:
    def function(run: Run) -> Outcome:
        x = run.piece({"k": id}, lambda: {"x": np.random.default_rng([run.seed, len(id)]).standard_normal(3)})["x"]
        return Outcome([Entry("I4", "s", " ".join(map(repr, x.tolist())), "holds")], {"values": {"x": x}})

    return item(id, "A toy", claims=("I4",), where="§0", about="", quick={}, full={}, seconds=(1, 2))(function)


def test_records_are_those_of_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    toys = {id: _toy(id) for id in ("beyond/toy", "beyond/other", "beyond/third-one")}
    monkeypatch.setattr(registry, "items", lambda: toys)
    monkeypatch.setattr(spread, "LocalPool", InProcess)
    options: dict[str, Any] = {"quick": True, "seed": 3}
    found = list(spread.run_items(list(toys.values()), tmp_path / "a", engine="local", **options))
    alone = [run_item(toys[record.id], tmp_path / "b", **options) for record in found]
    assert sorted(record.id for record in found) == sorted(toys)
    assert [replace(r, seconds=0.0) for r in found] == [replace(r, seconds=0.0) for r in alone]
    for id in toys:
        one, two = ((tmp_path / n / "quick" / id / "values.parquet").read_bytes() for n in "ab")
        assert one == two


def test_files_that_did_not_arrive_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a cluster whose nodes do not share the folder."""
    toys = {"beyond/toy": _toy("beyond/toy")}
    monkeypatch.setattr(registry, "items", lambda: toys)

    class Elsewhere(InProcess):
        def wait(self) -> Any:
            outcomes = super().wait()
            (tmp_path / "quick/beyond/toy/values.parquet").unlink()
            return outcomes

    monkeypatch.setattr(spread, "LocalPool", Elsewhere)
    with pytest.raises(FirstguessError, match="all nodes share"):
        list(spread.run_items(list(toys.values()), tmp_path, engine="local", quick=True))


def test_the_command_runs_items_in_processes(tmp_path: Path) -> None:
    """Items without their data: skipped, which takes no time, and comes back from a worker."""
    names = ["igb/fig10", "norm/fig1"] if "norm/fig1" in registry.items() else ["igb/fig10", "igb/fig1"]
    command = [sys.executable, "-c", "from firstguess.cli import main; main()", "reproduce", *names, "--quick"]
    command += ["--data-dir", str(tmp_path), "--out", str(tmp_path / "out"), "--engine", "local", "--json"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=1200, check=False)
    assert result.returncode == 1, result.stderr
    assert [(row["id"], row["status"]) for row in json.loads(result.stdout)] == [(name, "skipped") for name in names]
