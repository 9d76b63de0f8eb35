"""Files are written next to their place and moved there: a disk that is full leaves the old file, or none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import firstguess as fg
from firstguess.base import files


def full(half: Path) -> None:
    half.write_bytes(b"half of it")
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("before", [None, b"the old one"])
def test_half_a_file_is_never_left(tmp_path: Path, before: bytes | None) -> None:
    target = tmp_path / "figure.svg"
    if before is not None:
        target.write_bytes(before)
    with pytest.raises(OSError, match="No space"):
        files.place(target, full)
    assert [path.name for path in tmp_path.iterdir()] == ([] if before is None else ["figure.svg"])
    assert before is None or target.read_bytes() == before


def test_what_is_saved_goes_that_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A figure and a report, on a disk that takes the first bytes only."""
    p, written = fg.predict("dense > relu > dense"), Path.write_bytes
    target = tmp_path / "figure.svg"
    fg.figures.save(p.plot(), target)
    old = target.read_bytes()

    def some(path: Path, content: bytes) -> int:
        written(path, content[:100])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", some)
    with pytest.raises(fg.InvalidInput, match="No space"):
        fg.figures.save(p.plot(), target)
    assert target.read_bytes() == old
    assert len(list(tmp_path.iterdir())) == 1


def test_a_pipe_is_no_data(tmp_path: Path) -> None:
    pipe = tmp_path / "data.npz"
    os.mkfifo(pipe)
    with pytest.raises(fg.InvalidInput, match="a pipe or a device"):
        fg.measure("dense > relu > dense", str(pipe))
