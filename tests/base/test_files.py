"""Files are written next to their place and moved there: a disk that is full leaves the old file, or none."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import firstguess as fg
from firstguess.base import files
from firstguess.base.files import FolderStore
from firstguess.ensemble.training_loop import member_store
from firstguess.studies.store import Store


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


def test_weights_that_a_disk_refuses_are_one_clear_error(tmp_path: Path) -> None:
    """What safetensors raises is no OSError. The old file stays."""
    target = tmp_path / "weights.safetensors"
    target.write_bytes(b"the old ones")
    script = (
        "import resource, signal, sys, torch, firstguess as fg\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "fixed = fg.repair(torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3)), "
        "torch.randn(20, 6))\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))\n"
        "try: fixed.save(sys.argv[1])\n"
        "except fg.InvalidInput as error: sys.exit(str(error))\n"
    )
    done = subprocess.run([sys.executable, "-c", script, str(target)], capture_output=True, text=True, check=False)
    assert "Expected a file that can be written" in done.stderr
    assert "Traceback" not in done.stderr
    assert target.read_bytes() == b"the old ones"
    assert len(list(tmp_path.iterdir())) == 1


def test_a_pipe_is_no_data(tmp_path: Path) -> None:
    pipe = tmp_path / "data.npz"
    os.mkfifo(pipe)
    with pytest.raises(fg.InvalidInput, match="a pipe or a device"):
        fg.measure("dense > relu > dense", str(pipe))


def test_a_pipe_or_a_device_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    """As root `--code /dev/full` wrote a file in the place of the device."""
    pipe = tmp_path / "code.py"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        files.write(pipe, b"import torch\n")
        assert os.read(reader, 100) == b"import torch\n"
        fg.repair(torch.nn.Linear(6, 3), torch.randn(20, 6)).save(pipe)  # safetensors replaces what it writes to
        assert b'"dtype":"F32"' in os.read(reader, 10_000)
        assert stat.S_ISFIFO(pipe.stat().st_mode)
    finally:
        os.close(reader)
    assert [path.name for path in tmp_path.iterdir()] == ["code.py"]


def test_the_stores_of_studies_and_of_trainings_are_one_class(tmp_path: Path) -> None:
    """Files of NumPy and of Parquet: what is kept comes back, what is damaged is missing, and no half file stays."""
    members, pieces = member_store(tmp_path / "members", of="a test"), Store(tmp_path / "pieces")
    assert isinstance(pieces, FolderStore)
    assert type(members) is FolderStore
    pieces.write("3f/3f09", {"x": np.arange(3.0)}, 1.5)
    members.keep("7", {"x": np.arange(3.0)})
    piece, arrays = pieces.read("3f/3f09"), members.read("7")
    assert piece is not None
    assert arrays is not None
    assert piece[1] == 1.5
    assert piece[0]["x"].tolist() == arrays["x"].tolist() == [0.0, 1.0, 2.0]
    stores: list[tuple[FolderStore[Any], str]] = [(members, "7"), (pieces, "3f/3f09")]
    for store, key in stores:
        path = store.path(key)
        path.write_bytes(path.read_bytes()[:-9])
        assert store.read(key) is None
        assert store.set_aside(key)
        assert not store.set_aside(key)
    assert sorted(path.suffix for path in tmp_path.rglob("*.*")) == [".corrupt", ".corrupt"]
