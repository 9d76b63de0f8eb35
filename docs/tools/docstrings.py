"""Docstrings as the site shows them: examples (`>>> …`) are code, and so are indented formulae and equation numbers."""

from __future__ import annotations

import re
from typing import Any

import griffe


def fenced(text: str) -> str:
    """Put every run of doctest lines, with what they print, into a fence."""
    out: list[str] = []
    inside, indent = False, ""
    for line in text.split("\n"):
        if not inside and line.lstrip().startswith(">>> "):
            indent = line[: len(line) - len(line.lstrip())]
            if out and out[-1].strip():
                out.append("")
            out.append(f"{indent}```pycon")
            inside = True
        elif inside and not line.strip():
            out.append(f"{indent}```")
            inside = False
        out.append(line)
    if inside:
        out.append(f"{indent}```")
    return "\n".join(out)


class Examples(griffe.Extension):
    """Fences the examples of every docstring that is read."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring is not None:
            text = re.sub(r"# doctest: .*$", "", obj.docstring.value, flags=re.MULTILINE)
            obj.docstring.value = fenced(text)
