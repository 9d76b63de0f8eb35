"""Write the explorer as a static page: python docs/tools/export_explorer.py FOLDER. Needs uv on PATH, for marimo."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from firstguess.explore.server import export

ROOT = Path(__file__).parents[2]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        wheel = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--quiet", "--no-deps"]
        subprocess.run([*wheel, "--no-build-isolation", "--wheel-dir", folder, str(ROOT)], check=True)
        (built,) = Path(folder).glob("firstguess-*.whl")
        print(f"explorer: {export(built, Path(sys.argv[1]))}")


if __name__ == "__main__":
    main()
