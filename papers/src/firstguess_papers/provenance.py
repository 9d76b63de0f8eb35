"""Which code an item ran on: the checkout's commit, and the commit that fixed the item's checks."""

from __future__ import annotations

import inspect
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from firstguess_papers.items import Item

UNCOMMITTED = "uncommitted"
_NUMBERS = (":/papers/src", ":/src")  # from the top of the checkout: what numbers come from


@dataclass(frozen=True)
class Provenance:
    """`commit` and `checks` as short hashes; "" where firstguess is no git checkout.

    `commit` ends in "+ changes" if the papers or the library differ from it; `checks` is the last commit of the file
    that the item is written in, or "uncommitted" if that has changes.
    """

    commit: str = ""
    checks: str = ""


def provenance(item: Item) -> Provenance:
    """Of an item that runs now."""
    source = inspect.getsourcefile(inspect.unwrap(item.function))
    package = Path(__file__).parent
    if _git(package, "ls-files", "--error-unmatch", "__init__.py") is None:  # installed, or some other repository
        return Provenance()
    head = _git(package, "rev-parse", "--short", "HEAD")
    if head is None:
        return Provenance()
    commit = f"{head} + changes" if _git(package, "status", "--porcelain", "--", *_NUMBERS) else head
    module = Path(source) if source is not None else None
    if module is None or not module.is_file() or _git(module.parent, "status", "--porcelain", "--", module.name) != "":
        return Provenance(commit, UNCOMMITTED)
    return Provenance(commit, _git(module.parent, "log", "-1", "--format=%h", "--", module.name) or UNCOMMITTED)


def _git(folder: Path, *arguments: str) -> str | None:
    """What git says; None if it fails, or is not there."""
    try:
        said = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return said.stdout.strip() if said.returncode == 0 else None
