"""HTML that cannot be forgotten to escape: what is not `Html` already is escaped when it is put into a tag."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence


class Html(str):
    """Markup: text that is put into a page as it is."""

    __slots__ = ()


def escaped(text: str) -> Html:
    """The text as markup.

    >>> escaped("a < b"), escaped(Html("<b>"))
    ('a &lt; b', '<b>')
    """
    return text if isinstance(text, Html) else Html(html.escape(text, quote=True))


def tag(name: str, *children: str, **attributes: str) -> Html:
    """An element. Attributes in Python's spelling: `class_`, `aria_label`; an empty text is an attribute without value.

    >>> tag("p", "a < b & ", tag("b", "c"), class_="x")
    '<p class="x">a &lt; b &amp; <b>c</b></p>'
    """
    words = [name]
    for key, value in attributes.items():
        spelled = key.rstrip("_").replace("_", "-")
        words.append(f'{spelled}="{html.escape(value, quote=True)}"' if value else spelled)
    return Html(f"<{' '.join(words)}>{joined(children)}</{name}>")


def joined(parts: Iterable[str]) -> Html:
    """Parts one after the other."""
    return Html("".join(escaped(part) for part in parts))


def table(
    head: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: Sequence[int] = (), caption: str = ""
) -> Html:
    """A table in a box of its own that scrolls where the page is narrow; the first cell of a row is its header.

    `numbers`: columns set to the right. `caption` is read out, not shown: the heading above says the same.
    """

    def cell(kind: str, column: int, text: str, scope: str = "") -> Html:
        look = {"class_": "number"} if column in numbers else {}
        return tag(kind, text, **look, **({"scope": scope} if scope else {}))

    top = tag("tr", *(cell("th", i, text, "col") for i, text in enumerate(head)))
    body = [
        tag("tr", *(cell("td" if i else "th", i, text, "" if i else "row") for i, text in enumerate(row)))
        for row in rows
    ]
    words = [tag("caption", caption)] if caption else []
    whole = tag("table", *words, tag("thead", top), tag("tbody", *body))
    return tag("div", whole, class_="scroll", tabindex="0", role="region", aria_label=caption or head[0])
