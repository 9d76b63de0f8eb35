"""Ranges of arguments are checked in one place, `base.checks`."""

from __future__ import annotations

import ast
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import firstguess as fg
from firstguess.base import checks

ROOT = Path(fg.__file__).parent
ELSEWHERE = {"diagnosis/rehearsal.py"}  # its error quotes what was given


def test_no_other_file_compares_what_was_given_as_a_number_and_raises() -> None:
    found: list[str] = []
    for path in ROOT.rglob("*.py"):
        name = path.relative_to(ROOT).as_posix()
        if name == "base/checks.py" or name in ELSEWHERE:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.If) and isinstance(node.body[0], ast.Raise):
                compared = [ast.unparse(one) for one in ast.walk(node.test) if isinstance(one, ast.Compare)]
                found += [f"{name}:{node.lineno}" for text in compared if "checks.number(" in text]
    assert not found


def test_the_sentence_about_two_classes_is_written_once() -> None:
    written = [path.name for path in ROOT.rglob("*.py") if "two classes at least" in path.read_text(encoding="utf-8")]
    assert written == ["checks.py"]
    checks.two_classes(np.array([0, 3, 3]))
    with pytest.raises(fg.InvalidInput, match="points of two classes at least, but got one class only, at spectrum"):
        checks.two_classes(np.array([2, 2]), "spectrum")


@pytest.mark.parametrize("value", [-1, -0.5, math.nan, math.inf, "2", None, True])
def test_what_is_no_number_in_the_range_is_refused(value: Any) -> None:
    with pytest.raises(fg.InvalidInput, match="a number from 0 on"):
        checks.within(value, "a number from 0 on", "here", closed=True)
    checks.within(0, "a number from 0 on", "here", closed=True)
