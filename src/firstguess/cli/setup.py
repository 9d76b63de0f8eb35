"""`firstguess data`, `doctor` and `explore`: what is here, what data bring, and the web explorer."""

from __future__ import annotations

import os
import platform
import re
import shutil
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

import firstguess as fg
from firstguess._version import __version__
from firstguess.cli import subjects
from firstguess.cli.output import Json, examples, print_json, print_pairs

# -- Data before any network is chosen --------------------------------------------------------------------------------


@subjects.takes("source", {**subjects.SOME_DATA, "points": subjects.AllPoints}, seed=0)
@examples("""Examples:

firstguess data digits

firstguess data mnist:even-odd --data-dir ~/data --points 5000 --json
""")
def data(
    name: Annotated[str, typer.Argument(metavar="DATA", autocompletion=subjects.data_sets, help=subjects.DATA_HELP)],
    source: dict[str, Any],
    json: Json = False,
) -> None:
    """Show the bias that data alone cause: γ₀, how low-dimensional the data are, and which standardization helps.

    γ₀ is the drift ratio of the points: how far their common mean outweighs their differences. Every network starts
    from it. Points are prepared as in every command; --standardize none leaves them raw.
    """
    bias = fg.data_bias(subjects.DataOptions(name, **source).load(), seed=source["seed"])
    if json:
        print_json(bias.to_dict())
    else:
        print_pairs("Data bias", bias.summary())


# -- For a bug report or a first look ---------------------------------------------------------------------------------


_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@examples("""Examples:

firstguess doctor

firstguess doctor --data-dir ~/data --json
""")
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
        "needs": {name: _version(name) for name in _requirements(optional=False)},
        "extras": {name: _version(name) for name in _requirements(optional=True)},
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


def _requirements(*, optional: bool) -> list[str]:
    from importlib import metadata  # here: every command loads this file

    try:
        lines = metadata.requires("firstguess") or []
    except metadata.PackageNotFoundError:  # run from its source, without being installed
        return []
    extra = re.compile(r"extra == ['\"](?!dev)")
    chosen = [line for line in lines if (extra.search(line) if optional else "extra ==" not in line)]
    return list(dict.fromkeys(re.split(r"[^\w.-]", line)[0] for line in chosen))


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


# -- The web explorer -------------------------------------------------------------------------------------------------


@examples("""Examples:

firstguess explore

firstguess explore --port 8765 --headless
""")
def explore(
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="Where to serve; 0: any port that is free.")
    ] = 0,
    headless: Annotated[bool, typer.Option("--headless", help="Open no browser; only print the address.")] = False,
) -> None:
    """Compose a network in the browser and see at once what it believes.

    Class shares, γ through the layers, phases, gradients, how long the bias lasts and what each change does follow the
    sliders. Served on this machine only (127.0.0.1), with a token that is part of the printed address. Stop it with
    Ctrl-C.
    """
    from firstguess.explore.server import serve

    def said(address: str) -> None:
        typer.echo(f"firstguess explore: {address}\nCtrl-C stops it.")
        if not headless:
            import webbrowser

            webbrowser.open(address)

    try:
        serve(port or None, said=said)
    except KeyboardInterrupt:
        sys.stderr.write("firstguess explore: stopped\n")
        sys.stderr.flush()
        sys.stdout.flush()
        os._exit(0)  # marimo's kernels are threads that wait for ever; there is nothing to keep
