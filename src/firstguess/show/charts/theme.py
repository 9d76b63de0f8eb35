"""The one look of all figures: colours, type, titles, and how numbers are written."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, cast

import altair as alt

from firstguess.base.text import percent, percents, spaced

__all__ = ["percent", "percents", "spaced"]  # beside what is defined here

Chart: TypeAlias = alt.Chart | alt.LayerChart | alt.HConcatChart | alt.VConcatChart
Row: TypeAlias = Mapping[str, Any]

# Okabe & Ito (2008), told apart by all common kinds of colour vision; its yellow is too pale for lines.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#4D4D4D")
DASHES = ([1, 0], [7, 4], [2, 3], [10, 3, 2, 3])  # beyond seven series colours repeat, with another dash
INK, SOFT, FAINT = "#222222", "#5F5F5F", "#E4E4E4"
PALE_BLUE = "#9CC7E3"  # fills beside the first colour

# All of one width: a text measured where the figure is made fits where it is read. vl-convert brings Liberation Sans.
_FONT = "Helvetica, Arial, Liberation Sans, sans-serif"

_CONFIG: dict[str, Any] = {
    "font": _FONT,
    "background": "white",
    "padding": 20,
    "view": {"stroke": None},
    "title": {
        "anchor": "start",
        "frame": "bounds",
        "fontSize": 21,
        "fontWeight": "bold",
        "color": INK,
        "subtitleFontSize": 14,
        "subtitleColor": SOFT,
        "subtitleLineHeight": 20,
        "subtitlePadding": 8,
        "offset": 20,
    },
    "axis": {
        "labelFontSize": 14,
        "labelColor": SOFT,
        "labelPadding": 6,
        "titleFontSize": 15,
        "titleFontWeight": "normal",
        "titleColor": INK,
        "titlePadding": 12,
        "gridColor": FAINT,
        "domainColor": "#999999",
        "tickColor": "#999999",
        "tickSize": 4,
    },
    "axisX": {"grid": False},
    "axisY": {"domain": False, "ticks": False},
    "legend": {
        "labelFontSize": 15,
        "labelColor": INK,
        "labelLimit": 0,
        "titleFontSize": 14,
        "titleFontWeight": "normal",
        "titleColor": INK,
        "titleLimit": 0,
        "symbolStrokeWidth": 3,
        "symbolOpacity": 1,
        "symbolSize": 260,
        "rowPadding": 6,
    },
    "text": {"fontSize": 14, "color": INK},
}


_LEGENDS = ("stroke", "fill", "shape", "strokeDash")  # what `marks.key` is made of
NARROW = 290  # pixels of a figure on a phone: with its axis it fits 360


def stacked(layers: Sequence[alt.Chart], width: int, height: int, **properties: Any) -> alt.LayerChart:
    """Layers in one frame, the first at the bottom."""
    own: dict[str, Any] = dict.fromkeys(_LEGENDS, "independent")  # a legend is one layer's
    frame: Any = alt.layer(*layers).resolve_scale(**own)
    return frame.properties(width=width, height=height, **properties)


def house(chart: Chart, title: str, subtitle: Sequence[str], *, wide: bool = False) -> Chart:
    """The chart with a title that states the finding, a subtitle that states the setting, and the house look."""
    lines = [line for text in subtitle if text for line in wrapped(text, 180 if wide else 112, 2)]
    if not isinstance(chart, alt.Chart | alt.LayerChart):  # and a panel's
        chart = cast("Any", chart).resolve_scale(**dict.fromkeys(_LEGENDS, "independent"))
    styled: Any = chart.properties(title=alt.TitleParams(wrapped(title, 120 if wide else 78, 2), subtitle=lines))
    return styled.configure(**_CONFIG)


def data(rows: Sequence[Row]) -> Any:
    """Rows as inline data: no data frame library is needed.

    A plain dict, which altair moves to the top of the chart and does not check row by row against its schema: that
    takes seconds for a phase diagram.
    """
    return {"values": [dict(row) for row in rows]}


PERCENT = "format(100 * datum.value, '~g') + ' %'"  # labels of an axis of shares


def halo(text: alt.Chart, **mark: Any) -> list[alt.Chart]:
    """A text mark that stays legible on lines and fills: once as a white outline, once as it is."""
    outline: dict[str, Any] = {**mark, "color": "white", "stroke": "white", "strokeWidth": 4, "strokeJoin": "round"}
    return [text.mark_text(**outline), text.mark_text(**mark)]


def colour(index: int) -> str:
    """Colour of the series with this index."""
    return PALETTE[index % len(PALETTE)]


def dash(index: int) -> list[int]:
    """Dash of the series with this index."""
    return DASHES[index // len(PALETTE) % len(DASHES)]


def text_width(text: str, size: float = 14) -> float:
    """Pixels that a text of this size takes, about: letters are half as wide as they are high."""
    return 0.52 * size * len(text)


def wrapped(text: str, width: int, lines: int) -> list[str]:
    """The text in at most so many lines, the end left out where it is too long."""
    return textwrap.wrap(text, width, max_lines=lines, placeholder=" …", break_on_hyphens=False) or [""]


def unbroken(text: str) -> str:
    """The text, with no line break between a number and its %."""
    return text.replace(" %", "\N{NO-BREAK SPACE}%")


def shortened(text: str, width: int) -> str:
    """The text, with its middle left out where it is too long: the ends of a network tell it from others."""
    if len(text) <= width:
        return text
    return f"{text[: width // 2].rstrip()} … {text[-(width - width // 2 - 3) :].lstrip()}"


def number(value: float) -> str:
    """Three digits, and ∞ as such.

    >>> number(18.390547), number(float("inf")), number(0.0), number(123456.0), number(1e12), number(-2.5e-7)
    ('18.4', '∞', '0', '123 456', '1e12', '−2.5e−7')
    """
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if 1000 <= abs(value) < 1e6:
        return spaced(value).replace("-", "−")
    mantissa, _, exponent = f"{value:.3g}".replace("-", "−").partition("e")
    return f"{mantissa}e{exponent[0].strip('+')}{exponent[1:].lstrip('0')}" if exponent else mantissa


def assumed(assumptions: Sequence[str]) -> str:
    """What a prediction assumes, in the words of a page.

    >>> assumed(["wide layers", "the law is sampled: 2000 draws"])
    'wide layers, the distribution is sampled (2 000 draws)'
    """
    return ", ".join(re.sub(r"^the law is sampled: (\d+) draws$", _sampled, one) for one in assumptions)


def _sampled(match: re.Match[str]) -> str:
    return f"the distribution is sampled ({spaced(int(match[1]))} draws)"


def count(many: int) -> str:
    """Small numbers as words.

    >>> count(2), count(10)
    ('two', '10')
    """
    return {2: "two", 3: "three", 4: "four", 5: "five"}.get(many, spaced(many))
