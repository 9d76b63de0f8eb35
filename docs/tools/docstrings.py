"""Docstrings as the site shows them: examples (`>>> …`) are code, and so are indented formulae and equation numbers."""

from __future__ import annotations

import re
from pathlib import Path
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


_THEORY = (Path(__file__).resolve().parents[1] / "theory.md").read_text(encoding="utf-8")
_EQUATIONS = set(re.findall(r"\\tag\{(\d+)\}", _THEORY))  # those with an anchor of their own
_SECTIONS = dict(re.findall(r"^## (\d+)\. (.+)$", _THEORY, re.M))
_CITED = re.compile(r"\btheory\.md(?: (?:§(\d+)|\((\d+)\)))?")


def linked(text: str) -> str:
    """Every mention of theory.md as a link to the equation or section (pages of the API are one folder down)."""

    def link(found: re.Match[str]) -> str:
        section, equation = found.groups()
        if section:
            anchor = "#" + re.sub(r"[^\w -]", "", f"{section}. {_SECTIONS[section]}").lower().replace(" ", "-")
            return f"[theory §{section}](../theory.html{anchor})"
        anchor = f"#eq-{equation}" if equation in _EQUATIONS else ""
        return f"[theory{f' ({equation})' if equation else ''}](../theory.html{anchor})"

    lines = text.split("\n")
    return "\n".join(line if line.lstrip().startswith((">>>", "...")) else _CITED.sub(link, line) for line in lines)


class Examples(griffe.Extension):
    """Fences the examples of every docstring that is read, and links what it cites."""

    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring is not None:
            text = re.sub(r"# doctest: .*$", "", obj.docstring.value, flags=re.MULTILINE)
            obj.docstring.value = linked(fenced(text))
