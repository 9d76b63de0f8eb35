"""Pages of the house: templates with their style, charts, scripts, and what a page may do. All text is escaped.

A page is one file that loads nothing. Reports, studies and watched trainings have a template each in `templates/`.
"""

from __future__ import annotations

import base64
import copy
import hashlib
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import jinja2
import vl_convert
from markupsafe import Markup, escape

from firstguess._version import __version__
from firstguess.show.charts import theme
from firstguess.show.charts.theme import number, unbroken
from firstguess.theory.references import PAPERS

_GLOBAL = "window.vegaEmbed = vegaEmbed;"
_CARD = "#1d2025"
_DARK_SCREEN = Markup("\n@media screen and (prefers-color-scheme: dark) {{\n{}\n}}\n")

# In the dark a chart is the same picture, its colours exchanged by the style sheet: prints and files stay light.
# By the colour a chart is made with. Okabe and Ito's colours, lighter; fills darker; what was white is the card.
DARK = {
    "white": _CARD,
    "#FFFFFF": _CARD,
    theme.INK: "#e8e8e8",
    theme.SOFT: "#b4b4b4",
    theme.FAINT: "#3a3e44",
    theme.PALE_BLUE: "#31617f",
    "#999999": "#777d85",
    "#000000": "#e8e8e8",
    "#000": "#e8e8e8",
    "black": "#e8e8e8",
    theme.PALETTE[0]: "#4aa9e3",
    theme.PALETTE[1]: "#f0883e",
    theme.PALETTE[2]: "#2fc296",
    theme.PALETTE[3]: "#dd93ba",
    theme.PALETTE[4]: "#f0b436",
    theme.PALETTE[5]: "#7cc6f0",
    theme.PALETTE[6]: "#c4c4c4",
    # words for γ
    "#FBF9F4": "#23241f",
    "#F7F3EA": "#292820",
    "#EFE6D3": "#363122",
    "#BDB08E": "#6f6648",
    "#7A6A3F": "#cbb980",
    # ranks of many classes: there the darkest is the largest, here the brightest
    "#0B4F7A": "#7cc6f0",
    "#4A9CCB": "#3b86b3",
    "#A9D0E8": "#2a536d",
}


def page(
    template: str,
    title: str,
    context: Mapping[str, Any],
    *,
    live: bool = True,
    own: Sequence[str] = (),
    tips: Mapping[str, str] | None = None,
) -> str:
    """The text of one file: a template, filled, with the style and what draws the charts.

    `own` are files of further scripts, `tips` patterns of words and their meaning. Not `live`: without scripts, charts
    are pictures.
    """
    body = explained(render(template, **context), tips or {})
    scripts: list[str] = []
    if live and "<figure" in body:
        scripts.append(vl_convert.javascript_bundle(_GLOBAL).replace("</script", "<\\/script"))
    if live and ("<figure" in body or 'class="code"' in body):
        scripts.append(resource("script.js"))
    scripts += map(resource, own)
    page = render(
        "page.html",
        title=title,
        body=body,
        policy=Markup(_policy(scripts)),
        style=Markup(resource("style.css")) + _DARK_SCREEN.format(dark_style(".chart ")),
        scripts=[Markup(script) for script in scripts],
        version=__version__,
    )  # fmt: skip
    return str(page)


_VERBATIM = frozenset({"button", "code", "pre", "script", "style", "svg"})
_NO_TIPS = _VERBATIM | {"a", "dl", "figure", "h1", "h2", "summary", "th"}


def explained(body: Markup, tips: Mapping[str, str]) -> Markup:
    """Paths set as code, and the first mention of each word in running text with its meaning as a tooltip."""
    left = dict(tips)

    def with_tip(text: str) -> str:
        for pattern in list(left):
            if (found := re.search(pattern, text)) and len(found[0]) < 40:
                tip = Markup('<abbr title="{}">').format(left.pop(pattern)) + Markup(found[0]) + Markup("</abbr>")
                return f"{text[: found.start()]}{tip}{text[found.end() :]}"  # one: what stands between tags is short
        return text

    coded = _texts_changed(body, _VERBATIM, lambda text: re.sub("`([^`]+)`", r"<code>\1</code>", text))
    return Markup(_texts_changed(coded, _NO_TIPS, with_tip))


def _texts_changed(body: str, without: frozenset[str], change: Callable[[str], str]) -> str:
    """What stands between tags, changed, but for what is inside of some of them."""
    parts, inside = re.split(r"(<[^>]*>)", body), list[str]()
    for k, part in enumerate(parts):
        if tag := re.match(r"<(/?)(\w+)", part):
            if tag[2] in without:
                inside = inside[:-1] if tag[1] else [*inside, tag[2]]
        elif not inside and part.strip():
            parts[k] = change(part)
    return "".join(parts)


def render(template: str, **context: Any) -> Markup:
    """A template, filled; what is not markup already is escaped."""
    return Markup(_templates().get_template(template).render(context))


@cache
def _templates() -> jinja2.Environment:
    loader = jinja2.PackageLoader("firstguess.show.report")
    environment = jinja2.Environment(
        loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"sentence": sentence, "unbroken": unbroken, "cited": cited}
    return environment


def resource(name: str) -> str:
    """The text of a file next to the templates."""
    return resources.files("firstguess.show.report").joinpath("templates", name).read_text("utf-8")


def _policy(scripts: Iterable[str]) -> str:
    """What the page may do: run its own scripts, by their hashes, and nothing else; no request leaves it.

    Styles may be inline: Vega's pictures have them as attributes. Charts are saved by way of data: and blob: links.
    """
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in scripts]
    allowed = " ".join(f"'sha256-{one}'" for one in hashes) or "'none'"
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:; base-uri 'none'; "
        "form-action 'none'"
    )


def dark_style(within: str) -> Markup:
    """Rules that beat the colours written into a picture `within` what these selectors name."""
    rules = [
        f'{within}[{what}="{light}"]{{{what}:{dark}}}' for light, dark in DARK.items() for what in ("fill", "stroke")
    ]
    return Markup("\n".join(rules))


# -- Charts ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ChartView:
    """A chart at one size: a picture, for readers without scripts, and what the script draws."""

    size: str
    svg: Markup
    spec: Markup | None


@dataclass(frozen=True)
class Figure:
    """A chart of a page."""

    name: str
    title: str
    setting: str
    views: tuple[ChartView, ...]


def figure(name: str, spec: dict[str, Any], narrow: dict[str, Any] | None = None, *, live: bool = True) -> Figure:
    """The chart for a wide page and, where it is given, for a phone; not `live`: as pictures only."""
    title, setting = (" ".join(spec["title"].get(part, "")) for part in ("text", "subtitle"))
    sizes = {"": spec} if narrow is None else {"wide": spec, "narrow": narrow}
    views = [
        ChartView(size, picture(f"{name}{size}", one), _json(one) if live else None) for size, one in sizes.items()
    ]
    return Figure(name, title, setting, tuple(views))


def picture(name: str, spec: dict[str, Any]) -> Markup:
    """A chart as the page shows it: its title is text next to it, its background the page's (as in the script)."""
    spec = copy.deepcopy(spec)
    del spec["title"]
    spec["config"] |= {"background": None, "padding": 4, "aria": False}
    return own_ids(vl_convert.vegalite_to_svg(spec), name)


def own_ids(svg: str, name: str) -> Markup:
    """A picture whose clips have names of their own: all call them clip0, clip1, …, and the first would clip all."""
    return Markup(re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", svg))


def _json(spec: dict[str, Any]) -> Markup:
    """Users' texts are in it: no "</script>" in a name ends the script."""
    return Markup(json.dumps(spec, ensure_ascii=False, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c"))


# -- Words -------------------------------------------------------------------------------------------------------------


def sentence(text: str) -> str:
    """A sentence with a capital and an end, and no line break between a word and its number."""
    text = text.strip()
    first = text[:1].upper() if text[:1].isascii() else text[:1]  # γ stays γ
    whole = unbroken(f"{first}{text[1:]}{'' if text.endswith(('.', '!', '?')) else '.'}")
    return re.sub(r"\b(step|class) (?=\d)", "\\1\N{NO-BREAK SPACE}", whole)


def cited(text: str) -> Markup:
    """The text, with papers that it names as links."""
    found = escape(text)
    for p in PAPERS:
        link = Markup('<a href="{}" rel="noreferrer">{}</a>').format(p.link, p.name)
        found = found.replace(escape(p.name), link)
    return found


def with_error(x: float, error: float) -> str:
    """A number and its standard error where it has one, or a dash."""
    if not math.isfinite(x):
        return "–"
    return number(x) if math.isnan(error) else f"{number(x)} ± {error:.2g}"


def value(x: float, digits: int = 3) -> str:
    """A number with this number of decimals, or a dash."""
    if math.isnan(x):
        return "–"
    return f"{x:.{digits}f}".replace("-", "−") if math.isfinite(x) else number(x)


def plain(x: Any) -> str:
    """A recorded setting as text."""
    if isinstance(x, str):
        return x
    if isinstance(x, list | tuple):
        return ", ".join(map(str, x))  # pyright: ignore[reportUnknownArgumentType]
    return json.dumps(x, ensure_ascii=False, default=str)
