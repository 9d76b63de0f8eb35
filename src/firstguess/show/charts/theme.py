"""The one look of all figures: colours, type, titles, and how numbers are written."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import altair as alt
import numpy as np
from numpy.typing import NDArray

from firstguess.base.text import percent, percents, spaced
from firstguess.base.text import short as number

__all__ = ["number", "percent", "percents", "spaced"]  # next to what is defined here

Chart: TypeAlias = alt.Chart | alt.LayerChart | alt.HConcatChart | alt.VConcatChart
Row: TypeAlias = Mapping[str, Any]
Numbers: TypeAlias = Sequence[float] | NDArray[Any]

# Okabe & Ito (2008), told apart by all common kinds of colour vision; its yellow is too pale for lines.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#4D4D4D")
DASHES = ([1, 0], [7, 4], [2, 3], [10, 3, 2, 3])  # beyond seven series colours repeat, with another dash
INK, SOFT, FAINT = "#222222", "#5F5F5F", "#E4E4E4"
PALE_BLUE = "#9CC7E3"  # fills next to the first colour

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


_LEGENDS = ("stroke", "fill", "shape", "strokeDash")  # what `key` is made of
NARROW = 290  # pixels of a figure on a phone: with its axis it fits 360


def stacked(layers: Sequence[alt.Chart], width: int, height: int, **properties: Any) -> alt.LayerChart:
    """Layers in one frame, the first at the bottom."""
    own: dict[str, Any] = dict.fromkeys(_LEGENDS, "independent")  # a legend is one layer's
    frame: Any = alt.layer(*layers).resolve_scale(**own)
    return frame.properties(width=width, height=height, **properties)


def house(chart: Chart, title: str, subtitle: Sequence[str], *, wide: bool = False, narrow: bool = False) -> Chart:
    """The chart with a title that states the finding, a subtitle that states the setting, and the house look."""
    long, most = (180, 2) if wide else (60, 4) if narrow else (112, 2)
    lines = [line for text in subtitle if text for line in wrapped(text, long, most)]
    if not isinstance(chart, alt.Chart | alt.LayerChart):  # and a panel's
        chart = cast("Any", chart).resolve_scale(**dict.fromkeys(_LEGENDS, "independent"))
    styled: Any = chart.properties(
        title=alt.TitleParams(wrapped(title, 120 if wide else 44 if narrow else 78, 2), subtitle=lines)
    )
    return styled.configure(**_CONFIG)


def data(rows: Sequence[Row]) -> Any:
    """Rows as inline data: no data frame library is needed.

    A plain dict, which altair moves to the top of the chart and does not check row by row against its schema: that
    takes seconds for a phase diagram.
    """
    return {"values": [dict(row) for row in rows]}


def chart(rows: Sequence[Row], **channels: Any) -> alt.Chart:
    """What these channels draw of the rows."""
    return alt.Chart(data(rows)).encode(**channels)


PERCENT = "format(100 * datum.value, '~g') + ' %'"  # labels of an axis of shares
THOUSANDS = "replace(format(datum.value, ','), /,/g, ' ')"  # labels of an axis of counts


_OF_SCALES = ("clamp", "constant", "type", "zero")


def axis(domain: Sequence[float], /, **options: Any) -> dict[str, Any]:
    """Scale and axis of numbers: the scale ends where `domain` does; options are those of Vega's scales and axes."""
    own = {name: options.pop(name) for name in _OF_SCALES if name in options}
    return {"scale": alt.Scale(domain=list(domain), nice=False, **own), "axis": alt.Axis(**options)}


def steps_axis(steps: NDArray[np.int64]) -> alt.X:
    """Steps of training, logarithmic from 0 on; linear where training was resumed and has no start to look at."""
    first, last = int(steps.min()), max(int(steps.max()), int(steps.min()) + 1)
    look: dict[str, Any] = {"tickCount": 6}
    if first == 0:
        ticks = [0, *(10**k for k in range(9) if 10**k <= last)]
        look = {"type": "symlog", "constant": 1, "values": ticks, "labelFlush": False}
    return alt.X("step:Q", title="Step of training", **axis([first, last], labelExpr=THOUSANDS, **look))


def round_step(last: float, most: int) -> int:
    """The least of 1, 2, 5, 10, 20, … of which at most `most` steps lead to `last`."""
    return next(m * 10**k for k in range(9) for m in (1, 2, 5) if last / (m * 10**k) <= most)


def tooltip(*fields: str) -> list[alt.Tooltip]:
    """Fields of a tooltip, each "field", "field|title" or, of a number, "field|title|format"."""
    found: list[alt.Tooltip] = []
    for field in fields:
        name, title, form = (*field.split("|"), "", "")[:3]
        look: Any = {"format": form} if form else {}
        found.append(alt.Tooltip(f"{name}:{'Q' if form else 'N'}", title=title or name, **look))
    return found


def halo(text: alt.Chart, **mark: Any) -> list[alt.Chart]:
    """A text mark that stays legible on lines and fills: once as a white outline, once as it is."""
    outline: dict[str, Any] = {**mark, "color": "white", "stroke": "white", "strokeWidth": 4, "strokeJoin": "round"}
    return [text.mark_text(**outline), text.mark_text(**mark)]


def text_at(text: str, x: float, y: float, **mark: Any) -> alt.Chart:
    """Lines of text at these pixels, the first one there."""
    look: dict[str, Any] = {"align": "left", "baseline": "middle", "lineBreak": "\n", "lineHeight": 18, **mark}
    word = chart([{"text": text}]).mark_text(**look)
    return word.encode(x=alt.value(x), y=alt.value(y), text="text:N")


def numbered(base: alt.Chart, ink: str, *, hollow: bool = False) -> list[alt.Chart]:
    """A disc at each row, with its "number" in it: numbers on a figure never collide, names would."""
    disc: Any = {"stroke": ink, "strokeWidth": 2} if hollow else {"stroke": "white"}
    text = base.mark_text(color=ink if hollow else "white", fontWeight="bold", fontSize=13, baseline="middle", dy=1)
    fill = base.mark_point(shape="circle", filled=True, size=300, opacity=1, fill="white" if hollow else ink, **disc)
    return [fill, text.encode(text="number:N")]


def named_rule(
    axis: alt.X | alt.Y, at: float, text: str, along: float, *, dash: Sequence[int] = (2, 3), width: float = 1.5,
    rule: str = "#8A8A8A", **mark: Any,
) -> list[alt.Chart]:  # fmt: skip
    """A line across the figure at a value of an axis, and its name `along` pixels from the line's beginning."""
    own, other = ("x", "y") if isinstance(axis, alt.X) else ("y", "x")
    field = str(cast("Any", axis).shorthand).partition(":")[0]
    place: dict[str, Any] = {own: axis}
    base = chart([{field: at, "text": text}], **place)
    word = base.encode(text="text:N", **{other: alt.value(along)})
    return [base.mark_rule(color=rule, strokeDash=list(dash), strokeWidth=width), *halo(word, **mark)]


def line(
    rows: Sequence[Row], x: alt.X, y: alt.Y, ink: str, tips: Sequence[alt.Tooltip], *, band: float = 0.0,
    dots: float = 46, width: float = 2.5, dash: Sequence[int] = (1, 0),
) -> list[alt.Chart]:  # fmt: skip
    """A line through the rows, over a band from "low" to "high" of this opacity, with dots of this size (0: unseen)."""
    base = chart(rows, x=x, y=y)
    area = [base.mark_area(color=ink, opacity=band, clip=True).encode(y="low:Q", y2="high:Q")] if band else []
    point: Any = {"filled": True, "color": ink, "size": dots or 24, "opacity": 1 if dots else 0}
    curve = base.mark_line(color=ink, strokeWidth=width, strokeDash=list(dash), clip=True)
    return [*area, curve, base.mark_point(**point).encode(tooltip=list(tips))]


LINE = "M-2.2,0L2.2,0"  # the symbol of a line in a legend: longer than Vega's own, so that a dash can be seen


@dataclass(frozen=True)
class Entry:
    """One line of a legend: a name with a line of this dash, or with a symbol of this shape, filled or hollow."""

    name: str
    colour: str
    dash: Sequence[int] = (1, 0)
    shape: str = LINE
    filled: bool = True


def key(entries: Sequence[Entry], *, stacked: bool = False, width: float = 700) -> list[alt.Chart]:
    """Vega's legend above the figure, in as many columns as fit into `width` pixels; `stacked`, in one.

    A layer that draws nothing: the other layers keep their colours, whatever they are made of.
    """
    names = [entry.name for entry in entries]
    longest = max((0.52 * 15 * len(name) for name in names), default=0.0)  # letters are half as wide as they are high
    columns = 1 if stacked else max(1, min(len(names), int(width / (longest + 40))))
    legend = alt.Legend(
        title=None,
        orient="top",
        direction="horizontal",
        columns=columns,
        columnPadding=26,
        padding=0,
        symbolSize=120,
        symbolStrokeWidth=2.5,
        labelOffset=12,
    )
    of_entry: dict[str, list[Any]] = {
        "stroke": [entry.colour for entry in entries],
        "fill": [entry.colour if entry.filled else "white" for entry in entries],
        "shape": [entry.shape for entry in entries],
        "strokeDash": [list(entry.dash) for entry in entries],
    }
    channels: Any = zip(of_entry, (alt.Stroke, alt.Fill, alt.Shape, alt.StrokeDash), strict=True)
    shown: Any = {
        name: channel("name:N", scale=alt.Scale(domain=names, range=of_entry[name]), legend=legend)
        for name, channel in channels
    }
    nothing = chart([{"name": name} for name in names]).mark_point(size=0, opacity=1)
    return [nothing.encode(x=alt.value(0), y=alt.value(0), **shown)]


def key_above(entries: Sequence[Entry], *, width: float = 900) -> alt.LayerChart:
    """The legend of several panels, to stand above them."""
    return stacked(key(entries, width=width), 1, 1)


def heading(text: str, note: str = "", *, size: int = 17) -> alt.TitleParams:
    """The title of a panel, with a note below it."""
    below: Any = {"subtitle": [note], "subtitleFontSize": 13, "subtitlePadding": 3} if note else {}
    return alt.TitleParams(
        text, fontSize=size, fontWeight="normal", frame="group", offset=14 if size > 16 and not note else 8, **below
    )


def grid(panels: Sequence[Any], entries: Sequence[Entry], columns: int, *, spacing: int = 26) -> Any:
    """Panels in rows of `columns`, with one legend above them."""
    return alt.vconcat(key_above(entries), alt.concat(*panels, columns=columns, spacing=spacing), spacing=14)


def bars(
    edges: Numbers, heights: Numbers, x: alt.X, y: alt.Y, more: Mapping[str, Numbers], tips: Sequence[str]
) -> alt.Chart:
    """Bars of a histogram; `more` numbers of each bin are for the tooltip."""
    rows = [
        {"from": float(edges[i]), "to": float(edges[i + 1]), "density": float(height), "zero": 0.0}
        | {name: float(values[i]) for name, values in more.items()}
        for i, height in enumerate(heights)
    ]
    base = chart(rows).mark_rect(color=PALE_BLUE, stroke="white", strokeWidth=1, clip=True)
    return base.encode(x=x, x2="to:Q", y=y, y2="zero:Q", tooltip=tooltip("from|from|.3f", "to|to|.3f", *tips))


def outline(
    edges: Numbers, heights: Numbers, x: alt.X, y: alt.Y, ink: str, dash: Sequence[int], width: float, **more: str
) -> alt.Chart:
    """A step for each bin, closed at both ends: a line that goes through its corners."""
    corners = [(float(edges[0]), 0.0)]
    for a, b, h in zip(edges, edges[1:], heights, strict=False):
        corners += [(float(a), float(h)), (float(b), float(h))]
    corners.append((float(edges[-1]), 0.0))
    rows = [{"from": a, "density": b, "order": k, **more} for k, (a, b) in enumerate(corners)]
    mark: Any = {"strokeDash": list(dash), "strokeJoin": "miter", "strokeCap": "butt", "clip": True}
    return chart(rows).mark_line(color=ink, strokeWidth=width, **mark).encode(x=x, y=y, order="order:Q")


def colour(index: int) -> str:
    """Colour of the series with this index."""
    return PALETTE[index % len(PALETTE)]


def dash(index: int) -> list[int]:
    """Dash of the series with this index."""
    return DASHES[index // len(PALETTE) % len(DASHES)]


def wrapped(text: str, width: int, lines: int) -> list[str]:
    """The text in at most this many lines, cut at the end if it is too long."""
    return textwrap.wrap(text, width, max_lines=lines, placeholder=" …", break_on_hyphens=False) or [""]


def unbroken(text: str) -> str:
    """The text, with no line break between a number and its %."""
    return text.replace(" %", "\N{NO-BREAK SPACE}%")


def shortened(text: str, width: int) -> str:
    """The text, with its middle left out where it is too long: the ends of a network tell it from others."""
    if len(text) <= width:
        return text
    return f"{text[: width // 2].rstrip()} … {text[-(width - width // 2 - 3) :].lstrip()}"


def assumed(assumptions: Sequence[str]) -> str:
    """What a prediction assumes, in the words of a page.

    >>> assumed(["wide layers", "the distribution is sampled: 2000 draws"])
    'wide layers, the distribution is sampled (2 000 draws)'
    """

    def spelled(found: re.Match[str]) -> str:
        return f"the distribution is sampled ({spaced(int(found[1]))} draws)"

    return ", ".join(re.sub(r"^the distribution is sampled: (\d+) draws$", spelled, one) for one in assumptions)


def count(many: int) -> str:
    """Small numbers as words.

    >>> count(2), count(10)
    ('two', '10')
    """
    return {2: "two", 3: "three", 4: "four", 5: "five"}.get(many, spaced(many))
