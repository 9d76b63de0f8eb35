"""Formulae as MathML: `$…$` within a line, `$$…$$` as a block, `\\tag{n}` as its number and anchor.

Every present browser typesets MathML by itself, so pages need no script; GitHub typesets the same source. The font,
STIX Two Math (SIL Open Font License), comes with the package ziamath, cut down to the letters that pages use.
"""

from __future__ import annotations

import html
import re
import unicodedata
from pathlib import Path

_BLOCK = re.compile(r"^( *)\$\$\n?(.+?)\n?\s*\$\$ *$", re.DOTALL | re.MULTILINE)
_INLINE = re.compile(r"(\(?)(?<![\\$\w])\$(?![\s$])([^$\n]+?)(?<![\s\\])\$(?![\w$])([.,;:)]*)")
_TAG = re.compile(r"\s*\\tag\{(\d+)\}")
_CODE = re.compile(r"(^ *```.*?^ *```$|`[^`\n]*`)", re.DOTALL | re.MULTILINE)


def as_mathml(text: str) -> str:
    """Replace every formula outside of code; in a span, since <math> at the start of a line ends a paragraph."""
    if "$" not in text:
        return text
    parts = _CODE.split(text)
    for k in range(0, len(parts), 2):
        parts[k] = _INLINE.sub(_in_line, _BLOCK.sub(_block, parts[k]))
    return "".join(parts)


def _in_line(found: re.Match[str]) -> str:
    """A formula with the bracket before it and the marks after it, which no line break comes between."""
    return f'<span class="formula">{found[1]}{_converted(found[2])}{found[3]}</span>'


def _block(found: re.Match[str]) -> str:
    tag = _TAG.search(found[2])
    formula = _converted(_TAG.sub("", found[2]), display="block")
    number = f'<span class="number">({tag[1]})</span>' if tag else ""
    place = f' id="eq-{tag[1]}"' if tag else ""
    return f'{found[1]}<div class="equation"{place}><div>{formula}</div>{number}</div>'


def _converted(formula: str, display: str = "inline") -> str:
    from latex2mathml.converter import convert

    text = convert(" ".join(formula.split()), display=display)
    text = text.replace("<mi>&#x0007E;</mi>", "<mo>&#x223C;</mo>")  # ∼ is a relation, with room on both sides
    text = text.replace(
        "<mo>&#x02016;</mo>", '<mo stretchy="false">&#x02016;</mo>'
    )  # both bars of a norm are of one height
    # \mathrm of one letter, which browsers would set in italics.
    text = re.sub(
        r"<mi>(&#x000(?:4[1-9A-F]|5[0-9A]|6[1-9A-F]|7[0-9A]);)</mi>", r'<mi mathvariant="normal">\1</mi>', text
    )
    # What Markdown would take for its own marks.
    return re.sub(r"(?<=>)[*_|\\](?=<)", lambda found: f"&#{ord(found[0])};", text).replace("\n", " ")


def write_font(target: Path, letters: set[str]) -> None:
    """The mathematical font with these letters and digits, and the sizes of brackets and signs that go with them."""
    import ziamath
    from fontTools import subset

    source = Path(ziamath.__file__).parent / "fonts" / "STIXTwoMath-Regular.ttf"
    options = subset.Options(flavor="woff", layout_features=["*"], notdef_outline=True)
    font = subset.load_font(str(source), options)
    chosen = subset.Subsetter(options)
    chosen.populate(text="".join(sorted(letters | set("()[]{}|‖′″√0123456789"))))
    chosen.subset(font)
    target.parent.mkdir(parents=True, exist_ok=True)
    subset.save_font(font, str(target), options)
    font.close()


def letters_of(pages: list[str]) -> set[str]:
    """Every letter within a formula, and its italic form, which browsers put for single letters."""
    shown = {letter for page in pages for formula in re.findall(r"<math.*?</math>", page, re.DOTALL)
             for letter in html.unescape(re.sub(r"<[^>]*>", "", formula))}  # fmt: skip
    italic = {chr(code) for code in range(0x1D400, 0x1D7D8) if unicodedata.normalize("NFKC", chr(code)) in shown}
    return shown | italic | {"ℎ", "ℰ", "ℋ"}
