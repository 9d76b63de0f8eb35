"""Elements of the page. What is not `Markup` already is escaped when it is put into one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from markupsafe import Markup, escape


def tag(name: str, *children: str, **attributes: str) -> Markup:
    """An element. Attributes in Python's spelling: `class_`, `aria_label`; an empty text is an attribute without value.

    >>> print(tag("p", "a < b & ", tag("b", "c"), class_="x"))
    <p class="x">a &lt; b &amp; <b>c</b></p>
    """
    words = [Markup(name)]
    for key, value in attributes.items():
        spelled = Markup(key.rstrip("_").replace("_", "-"))
        words.append(Markup('{}="{}"').format(spelled, escape(str(value))) if value else spelled)
    return Markup("<{}>{}</{}>").format(Markup(" ").join(words), Markup("").join(children), Markup(name))


def table(
    head: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: Sequence[int] = (), caption: str = ""
) -> Markup:
    """A table in a box of its own that scrolls where the page is narrow; the first cell of a row is its header.

    `numbers`: columns set to the right. `caption` is read out, not shown: the heading above says the same.
    """

    def cell(kind: str, column: int, text: str, scope: str = "") -> Markup:
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


def section(key: str, title: str, *content: str | None) -> Markup:
    """A part with its heading; nothing where it has no content."""
    parts = [part for part in content if part]
    return tag("section", tag("h2", title, id=key), *parts, aria_labelledby=key) if parts else Markup("")


def folded(summary: str, *content: str) -> Markup:
    """Details that a reader unfolds; what is folded is not printed."""
    parts = [part for part in content if part]
    return tag("details", tag("summary", summary), *parts) if parts else tag("p", summary)
