"""The page as files that any web server can hand out: Python runs in the browser (marimo's WebAssembly export).

Closed form only: there is no PyTorch there. The browser fetches Pyodide, NumPy and SciPy from Pyodide's own address.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from firstguess.base.errors import InvalidInput
from firstguess.explore.server import APP


def export(wheel: Path, out: Path) -> Path:
    """Write the page that installs this wheel of firstguess; the folder holds `index.html`."""
    if not re.fullmatch(r"firstguess-[^-]+-py3-none-any\.whl", wheel.name):
        raise InvalidInput("a wheel of firstguess", got=wheel.name, where="export(wheel)", hint="pip wheel --no-deps .")
    with tempfile.TemporaryDirectory() as folder:
        notebook = Path(folder) / "explorer.py"
        text, count = re.subn(r'wheel = ""', f'wheel = "{wheel.name}"', APP.read_text())
        assert count == 1
        notebook.write_text(text)
        public = notebook.with_name("public")
        public.mkdir()
        shutil.copy(wheel, public)
        command = [sys.executable, "-m", "marimo", "export", "html-wasm", str(notebook), "--output", str(out)]
        done = subprocess.run(
            [*command, "--mode", "run", "--force", "--no-sandbox"], capture_output=True, text=True, check=False
        )
        if done.returncode or not (out / "index.html").is_file():
            raise InvalidInput("an export by marimo", got=(done.stdout + done.stderr).strip()[-300:], where="explore")
        if not (out / "public" / wheel.name).is_file():  # marimo copies it by itself where it knows the folder
            shutil.copytree(public, out / "public", dirs_exist_ok=True)
    return out
