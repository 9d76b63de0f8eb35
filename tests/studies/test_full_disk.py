"""A disk that is really full: a small file system where root may make one; and a limit on the size of files."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from study_functions import numbers

import firstguess as fg

_SCRIPT = """
import resource, signal, sys
import firstguess as fg
from study_functions import long_words, numbers
if len(sys.argv) > 3:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[3]),) * 2)
function = {"numbers": numbers, "long_words": long_words}[sys.argv[2]]
s = fg.study("a", fg.grid(seed=range(400)), function, store=sys.argv[1])
try:
    s.run(workers=2)
except fg.InvalidInput as error:
    print("\\n" not in str(error), error)
    sys.exit(7)
"""


def driven(store: Path, function: str, *limit: int) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}
    command = [sys.executable, "-c", _SCRIPT, str(store), function, *map(str, limit)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=600)


@pytest.fixture
def small_disk(tmp_path: Path) -> Any:
    """A file system of 700 kB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=700k", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("only root may mount, and not everywhere")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_file_system_ends_the_run_in_one_line_and_keeps_what_is_done(small_disk: Path, tmp_path: Path) -> None:
    ended = driven(small_disk / "runs", "long_words")
    assert ended.returncode == 7, ended.stderr
    assert ended.stdout.startswith("True")
    assert "No space left on device" in ended.stdout
    assert "make room and run again" in ended.stdout
    assert not list(small_disk.rglob("*.part"))
    shutil.copytree(small_disk / "runs", tmp_path / "runs")  # a larger disk
    s = fg.study("a", fg.grid(seed=range(400)), _long_words(), store=tmp_path / "runs")
    done = s.counts()["done"]
    assert 0 < done < 400
    assert s.run(workers=2).ran is not None
    assert s.ran is not None
    assert (s.ran.found, s.ran.done, s.ran.damaged) == (done, 400 - done, 0)
    assert s.table()["mean"].to_pylist() == [numbers({"seed": seed})["mean"] for seed in range(400)]


def test_a_limit_on_files_sizes_ends_the_run_in_one_line(tmp_path: Path) -> None:
    """Where nobody can mount: the plan fits, files with results do not."""
    fine = fg.study("a", fg.grid(seed=range(400)), _long_words(), store=tmp_path)
    fine.counts()
    size = (tmp_path / "studies" / "a.parquet").stat().st_size
    ended = driven(tmp_path, "long_words", size + 1000)
    assert ended.returncode == 7, ended.stderr
    assert "File too large" in ended.stdout
    assert not list(tmp_path.rglob("*.part"))
    found = fine.counts()["done"]
    fine.run(workers=2)
    assert fine.ran is not None
    assert (fine.ran.found, fine.ran.done) == (found, 400 - found)
    assert fine.table().num_rows == 400


def _long_words() -> Any:
    from study_functions import long_words

    return long_words
