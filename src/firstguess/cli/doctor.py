"""`firstguess doctor`: what is here, for a bug report or a first look."""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
from pathlib import Path

from firstguess._version import __version__
from firstguess.cli import subjects
from firstguess.cli.output import Json, print_json, print_pairs

EXAMPLES = """Examples:

firstguess doctor

firstguess doctor --data-dir ~/data --json
"""

_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def doctor(data_dir: subjects.DataDir = None, json: Json = False) -> None:
    """Show versions, cores, optional packages, the data sets that are found, and the browser.

    Nothing is computed and nothing changed; torch is not loaded.
    """
    found = report(None if data_dir is None else str(data_dir))
    if json:
        print_json(found)
        return
    print_pairs(f"firstguess {__version__}", [(label, _words(value)) for label, value in found.items()])


def report(data_dir: str | None) -> dict[str, object]:
    """Everything by name; a dict of versions, or of folders, has None for what is not there."""
    from firstguess.base.threads import cores

    return {
        "firstguess": __version__,
        "python": f"{platform.python_version()} at {sys.executable}",
        "system": f"{platform.system()} {platform.machine()}",
        "cores": cores(),
        "needs": {name: _version(name) for name in _required()},
        "extras": {name: _version(name) for name in _optional()},
        "data": data_sets(data_dir),
        "browser": next((path for path in map(shutil.which, _BROWSERS) if path), None),
    }


def data_sets(data_dir: str | None) -> dict[str, str | None]:
    """The folder of each data set that has a name, as `--data NAME` looks for it."""
    from firstguess.data.files import DATA_DIR_VARIABLE
    from firstguess.data.sources import KNOWN

    root = data_dir or os.environ.get(DATA_DIR_VARIABLE)
    found: dict[str, str | None] = {}
    for name, known in KNOWN.items():
        folders = [Path(root).expanduser() / folder for folder in known.folders] if root else []
        found[name] = next((str(folder) for folder in folders if folder.is_dir()), None)
    return found


def _requirements(optional: bool) -> list[str]:
    from importlib import metadata  # here: every command loads this file

    try:
        lines = metadata.requires("firstguess") or []
    except metadata.PackageNotFoundError:  # run from its source, without being installed
        return []
    extra = re.compile(r"extra == ['\"](?!dev)")
    chosen = [line for line in lines if (extra.search(line) if optional else "extra ==" not in line)]
    return list(dict.fromkeys(re.split(r"[^\w.-]", line)[0] for line in chosen))


def _required() -> list[str]:
    return _requirements(optional=False)


def _optional() -> list[str]:
    return _requirements(optional=True)


def _version(package: str) -> str | None:
    from importlib import metadata

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _words(value: object) -> str:
    if isinstance(value, dict):
        there = ", ".join(f"{name} {what}" for name, what in value.items() if what is not None)
        absent = ", ".join(name for name, what in value.items() if what is None)
        return "; ".join(part for part in (there, f"not here: {absent}" if absent else "") if part) or "–"
    return "not found" if value is None else str(value)
