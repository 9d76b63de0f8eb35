"""`firstguess doctor`: what it says is there, is there."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from firstguess.cli.setup import data_sets, report


def test_the_report_says_what_is_installed(tmp_path: Path) -> None:
    (tmp_path / "MNIST" / "raw").mkdir(parents=True)
    command = [sys.executable, "-m", "firstguess", "doctor", "--data-dir", str(tmp_path), "--json"]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert found["needs"]["torch"] == metadata.version("torch")
    assert {"numpy", "scipy", "typer"} <= set(found["needs"])
    assert "transformers" in found["extras"]
    assert "pytest" not in found["extras"]  # contributors' tools are nobody's extras
    assert found["data"]["mnist"] == str(tmp_path / "MNIST" / "raw")
    assert found["data"]["cifar10"] is None


def test_nothing_is_found_where_nothing_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FIRSTGUESS_DATA", raising=False)
    monkeypatch.setattr("shutil.which", lambda _name: None)
    assert set(data_sets(None).values()) == {None}
    assert report(None)["browser"] is None
