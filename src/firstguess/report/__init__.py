"""A diagnosis as one HTML file that opens offline, in light and dark, and prints: `write(diagnosis, path)`.

Importing this loads no altair; `page` does.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from firstguess.errors import InvalidInput

if TYPE_CHECKING:
    from firstguess.diagnosis.result import Diagnosis

__all__ = ["page", "write"]


def page(diagnosis: Diagnosis) -> str:
    """The report as the text of one HTML file with everything in it: charts, their libraries, style."""
    from firstguess.report.document import document

    return document(diagnosis)


def write(diagnosis: Diagnosis, path: str | Path) -> Path:
    """Write the report to `path`, which ends in .html; gives the path back.

    >>> write(None, "report.txt")
    Traceback (most recent call last):
    ...
    firstguess.errors.InvalidInput: Expected a file name that ends in .html, but got 'report.txt', at save(path). Try:
    report.html
    """
    target = _checked(path)
    content = page(diagnosis)
    try:
        target.write_text(content, encoding="utf-8")
    except OSError as error:
        raise InvalidInput(
            "a file that can be written", got=f"{target} ({error.strerror})", where="save(path)", hint="another folder"
        ) from error
    return target


def _checked(path: str | Path) -> Path:
    target = Path(path)
    if target.suffix.lower() not in (".html", ".htm"):
        raise InvalidInput(
            "a file name that ends in .html",
            got=repr(str(path)),
            where="save(path)",
            hint=f"{target.stem or 'report'}.html",
        )
    if not target.parent.is_dir():
        raise InvalidInput(
            "a folder that exists", got=repr(str(target.parent)), where="save(path)", hint=f"mkdir -p {target.parent}"
        )
    if target.is_dir():
        raise InvalidInput(
            "a file", got=f"{str(path)!r}, a folder", where="save(path)", hint=str(target / "report.html")
        )
    return target
