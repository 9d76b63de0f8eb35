"""Formulae as MathML: `$…$` within a line, `$$…$$` as a block, `\\tag{n}` as its number and anchor.

Every present browser typesets MathML by itself, so pages need no script and no fonts from elsewhere; GitHub typesets
the same source.
"""

from __future__ import annotations

import re

_BLOCK = re.compile(r"^( *)\$\$\n?(.+?)\n?\s*\$\$ *$", re.DOTALL | re.MULTILINE)
_INLINE = re.compile(r"(?<![\\$\w])\$(?![\s$])([^$\n]+?)(?<![\s\\])\$(?![\w$])")
_TAG = re.compile(r"\s*\\tag\{(\d+)\}")
_CODE = re.compile(r"(^ *```.*?^ *```$|`[^`\n]*`)", re.DOTALL | re.MULTILINE)


def as_mathml(text: str) -> str:
    """Replace every formula outside of code."""
    if "$" not in text:
        return text
    parts = _CODE.split(text)
    for k in range(0, len(parts), 2):
        parts[k] = _INLINE.sub(lambda found: _converted(found[1]), _BLOCK.sub(_block, parts[k]))
    return "".join(parts)


def _block(found: re.Match[str]) -> str:
    tag = _TAG.search(found[2])
    formula = _converted(_TAG.sub("", found[2]), display="block")
    number = f'<span class="number">({tag[1]})</span>' if tag else ""
    place = f' id="eq-{tag[1]}"' if tag else ""
    return f'{found[1]}<div class="equation"{place}><div>{formula}</div>{number}</div>'


def _converted(formula: str, display: str = "inline") -> str:
    from latex2mathml.converter import convert

    text = convert(" ".join(formula.split()), display=display)
    # What Markdown would take for its own marks.
    return re.sub(r"(?<=>)[*_|\\](?=<)", lambda found: f"&#{ord(found[0])};", text).replace("\n", " ")
