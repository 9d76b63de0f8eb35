"""The lint of words finds what went, in pages and strings, and leaves code alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs" / "tools"))

import words  # noqa: E402


@pytest.mark.parametrize(
    ("line", "instead"),
    [
        ("a norm behind the activation", "after"),
        ("a layer in front of it", "before"),
        ("five values a layer", "per"),
        ("surely biased", "clearly"),
        ("the law of the shares", "distribution"),
        ("the mean is taken off", "subtracts"),
        ("mended", "fix"),
        ("in so many columns", "this many, as many"),
        ("a signal of unknown law", "distribution"),
        ("a prediction beside a measurement", "next to, compared with, besides"),
        ("gradients a layer", "per"),
    ],
)
def test_words_that_went_are_found(line: str, instead: str) -> None:
    (said,) = words.complaints(line)
    assert said.endswith(instead)


@pytest.mark.parametrize(
    "line", ["the numbers behind a figure", "`in front of`", "add a layer", "amendment", "by law", "colours behind all"]
)
def test_other_words_are_left_alone(line: str) -> None:
    assert list(words.complaints(line)) == []


def test_no_word_that_went_is_back() -> None:
    """As `make lint` runs it."""
    done = subprocess.run([sys.executable, str(ROOT / "docs" / "tools" / "words.py")], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
