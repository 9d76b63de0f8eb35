"""The page as files: what the export writes. It cannot be run here: NumPy for Pyodide is fetched from the web."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import firstguess as fg

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_export_brings_its_wheel(tmp_path):
    pytest.importorskip("marimo")
    if shutil.which("uv") is None:
        pytest.skip("marimo's export needs uv: make docs installs it")
    from firstguess.explore.server import export

    wheel = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", str(tmp_path)]
    subprocess.run([*wheel, str(ROOT)], check=True)
    (built,) = tmp_path.glob("*.whl")
    out = export(built, tmp_path / "page")
    assert built.name in (out / "index.html").read_text()
    assert (out / "public" / built.name).read_bytes() == built.read_bytes()
    assert not list(out.glob("*.md"))


def test_another_file_is_refused(tmp_path):
    from firstguess.explore.server import export

    with pytest.raises(fg.InvalidInput, match="a wheel of firstguess"):
        export(tmp_path / "numpy-2.0-py3-none-any.whl", tmp_path)
