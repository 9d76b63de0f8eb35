"""CONTRIBUTING.md names rooms, modules and files that exist, and every room."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
PACKAGE = ROOT / "src" / "firstguess"
ROOMS = sorted(path.name for path in PACKAGE.iterdir() if (path / "__init__.py").is_file())


@pytest.mark.parametrize("room", ROOMS)
def test_every_room_is_on_the_map(room: str) -> None:
    assert f"| `{room}/` |" in TEXT


def test_the_map_has_no_other_rooms() -> None:
    assert sorted(re.findall(r"^\| `(\w+)/` \|", TEXT, re.M)) == ROOMS


@pytest.mark.parametrize("module", re.findall(r"^\| .+ \| `(firstguess[\w.]+)` \|$", TEXT, re.M))
def test_where_is(module: str) -> None:
    importlib.import_module(module)


def test_ten_questions_are_answered() -> None:
    assert len(re.findall(r"^\| .+ \| `firstguess[\w.]+` \|$", TEXT, re.M)) >= 10


@pytest.mark.parametrize("file", sorted(set(re.findall(r"`([\w/]+\.(?:py|txt|toml|yml|md))`", TEXT))))
def test_files_that_are_named_exist(file: str) -> None:
    named = [
        path
        for path in ROOT.rglob(Path(file).name)
        if path.as_posix().endswith("/" + file) and ".venv" not in path.parts
    ]
    assert named or file in NEW_FILES


NEW_FILES = {"network/layers/mine.py"}  # what a reader is told to write
