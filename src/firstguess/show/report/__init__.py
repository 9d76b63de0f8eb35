"""A diagnosis as one HTML file that opens offline, in light and dark, and prints: `write(diagnosis, path)`.

Importing this loads no altair; `page` does.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from firstguess.base import files

if TYPE_CHECKING:
    from firstguess.diagnosis.result import Diagnosis

__all__ = ["page", "write"]


def page(diagnosis: Diagnosis) -> str:
    """The report as the text of one HTML file with everything in it: charts, their libraries, style."""
    from firstguess.show.report.content import document

    return document(diagnosis)


def write(diagnosis: Diagnosis, path: str | Path) -> Path:
    """Write the report to `path`, which ends in .html; gives the path back.

    >>> write(None, "report.txt")
    Traceback (most recent call last):
    ...
    firstguess.InvalidInput: Expected a file name that ends in .html, but got 'report.txt', at save(path). Try:
    report.html
    """
    target = files.checked(path, (".html", ".htm"), said=".html", example="report.html")
    return files.write(target, page(diagnosis).encode())
