"""The pytest plugin: a gate as a fixture, reports of what fails, nothing heavy at start-up."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

import firstguess

SOURCES = os.pathsep.join([str(Path(firstguess.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
TESTS = """
import firstguess as fg

X = fg.data.blob(60, 20)


def test_even(firstguess_gate):
    assert firstguess_gate("dense > tanh > dense", X, width=40, inits=50).inits == 50


def test_biased(firstguess_gate):
    firstguess_gate("9 x [dense(weight_var=2) > relu] > dense", X, width=40, max_gamma=1.0)
"""


def run(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """pytest in a process of its own, with the plugin where it is not installed as an entry point."""
    installed = any(found.name == "firstguess" for found in entry_points(group="pytest11"))
    plugin = [] if installed else ["-p", "firstguess.testing"]
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *plugin, *options],
        cwd=folder, env={**os.environ, "PYTHONPATH": SOURCES, "OMP_NUM_THREADS": "1"}, capture_output=True, text=True,
        timeout=300, check=False,
    )  # fmt: skip


def test_a_gate_that_fails_says_why_and_leaves_a_report(tmp_path: Path) -> None:
    (tmp_path / "test_start.py").write_text(TESTS, encoding="utf-8")
    done = run(tmp_path, "--firstguess-report", "pages")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "1 failed, 1 passed" in done.stdout
    assert "γ of the output is" in done.stdout
    (report,) = (tmp_path / "pages").iterdir()
    assert report.name == "test_start.py_test_biased.html"
    assert report.stat().st_size > 50_000
    assert f"pages/{report.name}" in done.stdout.partition("firstguess reports")[2]


def test_without_the_option_there_is_no_report(tmp_path: Path) -> None:
    (tmp_path / "test_start.py").write_text(TESTS, encoding="utf-8")
    done = run(tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "firstguess reports" not in done.stdout
    assert [path.name for path in tmp_path.iterdir() if path.suffix == ".html"] == []


def test_a_diagnosis_that_fails_does_not_hide_the_gate(tmp_path: Path) -> None:
    (tmp_path / "test_start.py").write_text(TESTS, encoding="utf-8")
    (tmp_path / "pages").write_text("a file, not a folder", encoding="utf-8")
    done = run(tmp_path, "--firstguess-report", "pages", "-k", "biased")
    assert "γ of the output is" in done.stdout
    assert "no report of test_start.py::test_biased" in done.stdout


def test_nothing_heavy_is_imported_at_start_up(tmp_path: Path) -> None:
    (tmp_path / "test_start.py").write_text(
        "import sys\n\n\ndef test_start():\n    assert not {'torch', 'numpy', 'scipy', 'altair'} & set(sys.modules)\n"
        "    assert 'firstguess.testing' in sys.modules\n",
        encoding="utf-8",
    )
    done = run(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_package_declares_the_plugin() -> None:
    tomllib = pytest.importorskip("tomllib")
    settings = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))
    assert settings["project"]["entry-points"]["pytest11"] == {"firstguess": "firstguess.testing"}
