"""Whatever is typed ends in a result or in one line."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Iterable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from random import Random, SystemRandom
from unittest.mock import patch

import numpy as np
import pytest
from commands import refused
from random_texts import command

from firstguess.cli import main

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "bad.npy").write_bytes(b"\x93NUMPY\x01\x00\x10\x00{'descr': junk}\n")
    (tmp_path / "bad.npz").write_bytes(b"PK")
    (tmp_path / "t.txt").write_text("hello")
    x = np.random.default_rng(0).normal(size=(20, 6)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    np.savez(tmp_path / "xy.npz", x=np.eye(8), y=np.arange(8) % 2)
    np.save(tmp_path / "nan.npy", np.full((5, 3), np.nan))
    np.save(tmp_path / "text.npy", np.array(["a", "b"]))
    np.save(tmp_path / "zero.npy", np.zeros((4, 3)))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(lines: Iterable[list[str]]) -> None:
    for line in lines:
        out, err = io.StringIO(), io.StringIO()
        code: object = None
        try:
            with patch.object(sys, "argv", ["firstguess", *line]), redirect_stdout(out), redirect_stderr(err):
                main()
        except SystemExit as ended:
            code = ended.code
        except Exception as error:
            raise AssertionError(f"firstguess {line}") from error
        assert code in (0, 1, 2), line
        if code == 2:
            assert len(err.getvalue().splitlines()) == 1, (line, err.getvalue())
            assert len(err.getvalue()) < 2500, line


def test_random_command_lines(folder: Path) -> None:
    run(command(Random(seed)) for seed in range(200))


@pytest.mark.slow
def test_many_random_command_lines(folder: Path) -> None:
    r = SystemRandom()
    run(command(Random(r.getrandbits(60))) for _ in range(2000))


@pytest.mark.parametrize(
    "line",
    [
        ["activations", "--q", "1e-300"],
        ["data", "a" * 300],
        ["data", "a" * 300 + ".npy"],
        ["data", "mnist", "--data-dir", "a" * 300],
        ["predict", "mlp", "--figure", "."],
        ["predict", "mlp", "--figure", "a" * 300 + ".png"],
        ["predict", 'dense > "relu > dense'],
        ["predict", "x" * 100_000],
    ],
)
def test_named_cases(line: list[str]) -> None:
    assert len(refused(*line)) < 1500


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device that Linux has")
@pytest.mark.parametrize("line", [["predict", "mlp"], ["predict", "mlp", "--json"], ["--help"]])
def test_a_full_disk(line: list[str]) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "firstguess", *line], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 2
    assert done.stderr.splitlines() == [
        "firstguess: Expected files that can be read and written, but got No space left on device."
    ]
