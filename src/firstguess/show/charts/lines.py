"""Lines and points by series, with error bars or bands; several panels side by side."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import altair as alt
import numpy as np

from firstguess.base.errors import InvalidInput
from firstguess.show.charts import theme
from firstguess.show.charts.theme import LINE, Entry, Numbers

_WIDTH, _HEIGHT = 420, 300
_STEP = 6.0  # pixels between the points of two series that step aside
_SYMLOG = "nearly linear up to 1, then logarithmic"  # Vega's symlog: log(1 + |x|), with the sign
Scale = Literal["linear", "log", "symlog"]


@dataclass(frozen=True)
class Series:
    """One series: measured `points` (with standard errors), or a predicted `line`; `both` joins its points.

    Series of one `label` have one colour, so a theory and its measurement are told apart by the mark.
    """

    label: str
    x: Numbers
    y: Numbers
    error: Numbers | None = None
    mark: Literal["points", "line", "both", "dashed"] = "both"


def lines_chart(
    panels: Mapping[str, Sequence[Series]] | Sequence[Series],
    *,
    title: str,
    x_title: str,
    y_title: str,
    subtitle: Sequence[str] = (),
    x_scale: Scale = "linear",
    y_scale: Scale = "linear",
    x_domain: tuple[float, float] | None = None,
    y_domain: tuple[float, float] | None = None,
    rules: Mapping[str, float] | None = None,
    percent: bool = False,
    dodge: bool = False,
    columns: int = 3,
    width: int = _WIDTH,
    height: int = _HEIGHT,
) -> theme.Chart:
    """Series over one axis, one panel or several by heading; error bars are ± 2 standard errors.

    `rules` are horizontal lines with a name (a limit known on paper), next to the panel so that no curve crosses it.
    Values that a logarithmic axis cannot show (zero and below) are left out, and error bars are cut there; a "symlog"
    axis says what it is. `percent` writes the y axis in percent. `dodge` is for series that coincide: points step
    aside a few pixels, and lines under others are broader.

    >>> chart = lines_chart([Series("ReLU", [1, 2], [0.5, 1.0], [0.1, 0.1])], title="γ", x_title="depth", y_title="γ")
    >>> type(chart).__name__
    'VConcatChart'
    """
    named: dict[str, Sequence[Series]] = dict(panels) if isinstance(panels, Mapping) else {"": panels}
    everything = [s for series in named.values() for s in series]
    if not everything:
        raise InvalidInput("at least one series", got="none", where="lines_chart")
    for s in everything:
        if len(s.x) != len(s.y) or (s.error is not None and len(s.error) != len(s.y)):
            raise InvalidInput("as many x, y and errors", got=f"{len(s.x)}, {len(s.y)}", where=f"series {s.label!r}")
    labels = list(dict.fromkeys(s.label for s in everything))
    y_range = y_domain or _range(everything, rules or {}, y_scale)
    y_axis = alt.Axis(labelExpr=theme.PERCENT, tickCount=5) if percent else _axis(y_scale, everything, along="y")
    y_words: Any = [y_title, _SYMLOG] if y_scale == "symlog" else y_title
    scale = alt.Scale(type=x_scale, domain=list(x_domain or _ends(everything, x_scale)), nice=False)
    axis = _axis(x_scale, everything, along="x")
    x = alt.X("x:Q", title=f"{x_title} ({_SYMLOG})" if x_scale == "symlog" else x_title, scale=scale, axis=axis)
    places = _places(everything, labels) if dodge else {}
    charts: list[Any] = []
    for index, (heading, series) in enumerate(named.items()):
        scale_y = alt.Scale(type=y_scale, domain=list(y_range), nice=False)
        y = alt.Y("y:Q", title=y_words if index % columns == 0 else None, scale=scale_y, axis=y_axis)
        last = index % columns == columns - 1 or index == len(named) - 1
        layers = _rules(rules or {}, y, width if last else None)
        drawn = sorted(series, key=lambda s: s.mark == "points") if dodge else series
        layers += [layer for s in drawn for layer in _layers(s, labels, x, y, x_scale, y_scale, y_range, places)]
        head = {"title": theme.heading(heading, size=16)} if heading else {}
        charts.append(theme.stacked(layers, width, height, **head))
    chart = theme.grid(charts, _entries(everything, labels), columns, spacing=30)
    return theme.house(chart, title, subtitle, wide=min(columns, len(charts)) * width > 640)


def _ends(series: Sequence[Series], scale: Scale) -> tuple[float, float]:
    """The x axis, a little longer than the series: a mark at its end is not cut."""
    values = [float(v) for s in series for v in s.x if math.isfinite(v) and (scale != "log" or v > 0)]
    low, high = min(values), max(values)
    if scale == "log":
        room = (high / low) ** 0.03 if high > low else 1.5
        return low / room, high * room
    room = 0.03 * (high - low or 1.0)
    return low - room, high + room


def _range(series: Sequence[Series], rules: Mapping[str, float], scale: Scale) -> tuple[float, float]:
    values: list[float] = [*rules.values()]
    for s in series:
        room = [0.0] * len(s.y) if s.error is None else [2 * float(e) if math.isfinite(e) else 0.0 for e in s.error]
        for v, e in zip(s.y, room, strict=True):
            ends = [v] if scale == "log" else [v - e, v + e]
            values += [float(end) for end in ends]
    fine = [v for v in values if math.isfinite(v) and (scale != "log" or v > 0)]
    if not fine:
        return (0.0, 1.0) if scale != "log" else (0.1, 1.0)
    low, high = min(fine), max(fine)
    if scale == "log":
        return low / 1.3, high * 1.3
    room = 0.05 * (high - low or abs(high) or 1.0)
    return (0.0 if 0 <= low < 0.5 * high else low - room), high + room


def _axis(kind: Scale, series: Sequence[Series], *, along: Literal["x", "y"]) -> alt.Axis:
    if kind == "symlog":
        size = max((abs(float(v)) for s in series for v in getattr(s, along) if math.isfinite(v)), default=1.0)
        ticks = [0.0, 0.5, *(m * 10.0**k for k in range(9) for m in (1, 2, 5) if m * 10.0**k <= 1.2 * size)]
        decades = [0.0, *(10.0**k for k in range(9) if 10.0**k <= 1.2 * size)]
        return alt.Axis(values=ticks if size < 200 else decades, format=",~g")
    if kind != "log":
        own = np.unique([float(v) for s in series for v in getattr(s, along)])
        few = along == "x" and 1 < len(own) <= 8 and bool((own == np.round(own)).all())
        if few and np.diff(own).min() >= 0.1 * (own[-1] - own[0]):
            # There is no layer 1.5 between layers 1 and 2. Not format=: Vega then rounds 20 layers to "2e+1".
            return alt.Axis(values=own.tolist(), labelExpr="format(datum.value, ',~g')")
        return alt.Axis(tickCount=6 if along == "x" else 5)
    values = np.array([float(v) for s in series for v in getattr(s, along) if float(v) > 0 and math.isfinite(v)])
    if not len(values):
        return alt.Axis()
    low, high = math.floor(math.log10(values.min())), math.ceil(math.log10(values.max()))
    own = np.unique(values)
    step = max(1, math.ceil((high - low) / 6))
    ticks = [10.0**k for k in range(low - 1, high + 2) if k % step == 0]
    if high - low <= 2:
        ticks = [m * 10.0**k for k in range(low - 1, high + 2) for m in (1, 2, 5)]
    whole = bool((own == np.round(own)).all())
    if along == "x" and whole and 1 < len(own) <= 6 and (own[1:] / own[:-1]).min() > 1.3:
        ticks = own.tolist()  # a few sizes: they are their own best labels
    return alt.Axis(values=ticks, labelExpr="datum.value >= 0.001 && datum.value < 1e5 ? format(datum.value, ',~g') : "
                    "format(datum.value, '.0e')")  # fmt: skip


def _places(series: Sequence[Series], labels: list[str]) -> dict[str, tuple[float, float]]:
    """Places of series that coincide: pixels that each one's points step aside, and what its line is broader by."""
    dotted = [label for label in labels if any(s.label == label and s.mark in ("points", "both") for s in series)]
    lined = [label for label in labels if any(s.label == label and s.mark != "points" for s in series)]
    return {
        label: (
            _STEP * (dotted.index(label) - (len(dotted) - 1) / 2) if label in dotted else 0.0,
            min(1.5 * (len(lined) - 1 - lined.index(label)), 3.0) if label in lined else 0.0,
        )
        for label in labels
    }


def _layers(
    s: Series,
    labels: list[str],
    x: alt.X,
    y: alt.Y,
    x_scale: Scale,
    y_scale: Scale,
    y_range: tuple[float, float],
    places: Mapping[str, tuple[float, float]],
) -> list[alt.Chart]:
    aside, broader = places.get(s.label, (0.0, 0.0))
    moved: Any = {"xOffset": aside} if aside else {}
    index = labels.index(s.label)
    colour: Any = theme.colour(index)
    errors = [math.nan] * len(s.y) if s.error is None else s.error
    rows: list[dict[str, Any]] = []
    for a, b, e in zip(s.x, s.y, errors, strict=True):
        a, b, e = float(a), float(b), float(e)
        if not math.isfinite(b) or (y_scale == "log" and b <= 0) or (x_scale == "log" and a <= 0):
            continue
        low, high = (b - 2 * e, b + 2 * e) if math.isfinite(e) else (b, b)
        rows.append({"x": a, "y": b, "low": max(low, y_range[0]), "high": min(high, y_range[1]), "series": s.label})
    base = theme.chart(rows, x=x, y=y)
    tooltip = theme.tooltip("series", "x|x|.4~g", "y|y|.4~g")
    found: list[alt.Chart] = []
    if s.mark != "points":
        dash = theme.DASHES[1] if s.mark == "dashed" else theme.dash(index)
        width = (1.5 if s.mark == "both" else 2.5) + broader
        found.append(base.mark_line(color=colour, strokeWidth=width, strokeDash=dash, clip=True))
    if s.mark in ("points", "both"):
        if s.error is not None:
            bars = theme.chart(rows).mark_rule(color=colour, strokeWidth=1.8, clip=True, **moved)
            found.append(bars.encode(x=x, y="low:Q", y2="high:Q"))
        inside = [row for row in rows if y_range[0] <= row["y"] <= y_range[1]]  # a clipped line leaves, no point would
        look: Any = {"filled": True, "size": 58, "opacity": 1, "stroke": "white", "strokeWidth": 0.8, **moved}
        found.append(theme.chart(inside, x=x, y=y, tooltip=tooltip).mark_point(color=colour, **look))
    return found


def _rules(rules: Mapping[str, float], y: alt.Y, beside: int | None) -> list[alt.Chart]:
    """Lines across a panel; `beside` it, at this many pixels, their names."""
    layers: list[alt.Chart] = []
    for text, value in rules.items():
        base = theme.chart([{"y": value, "text": text}], y=y)
        layers.append(base.mark_rule(color="#8A8A8A", strokeDash=[2, 3], strokeWidth=1.5))
        if beside is not None:
            lines: Any = theme.wrapped(text, 18, 3)
            word = theme.chart([{"y": value, "text": lines}], y=y, x=alt.value(beside + 8))
            mark: Any = {"align": "left", "baseline": "middle", "dy": -8 * (len(lines) - 1), "lineHeight": 16}
            layers.append(word.mark_text(color=theme.SOFT, fontSize=13, **mark).encode(text="text:N"))
    return layers


def _entries(series: Sequence[Series], labels: list[str]) -> list[Entry]:
    """Names in their colours; a line where one is drawn, else a point."""
    found: list[Entry] = []
    for index, label in enumerate(labels):
        marks = {s.mark for s in series if s.label == label}
        dash = theme.DASHES[1] if marks == {"dashed"} else theme.dash(index)
        found.append(Entry(label, theme.colour(index), dash, "circle" if marks == {"points"} else LINE))
    return found


# Panels of histograms, with the predicted probability of every bin drawn over them.

_PANELS_WIDTH, _PANELS_HEIGHT = 250, 170
_STEPS = (theme.PALETTE[1], theme.PALETTE[2], theme.PALETTE[3], theme.PALETTE[6])


@dataclass(frozen=True)
class Panel:
    """One histogram: `edges` of the bins (bins + 1), measured `density` in each, and curves by name on the same bins.

    `label` stands above it, `note` (a number or two) below the label. A curve is a density in every bin; it may be
    missing in some panels. `top` cuts the density axis.
    """

    label: str
    edges: Numbers
    density: Numbers | None
    curves: Mapping[str, Numbers] = field(default_factory=dict[str, Numbers])
    note: str = ""
    top: float | None = None


def panels_chart(
    panels: Sequence[Panel],
    *,
    title: str,
    subtitle: Sequence[str] = (),
    columns: int = 3,
    x_title: str = "Fraction guessed to be of one class",
    percent: bool = True,
    common: bool = False,
    bars: str = "measured",
    width: int = _PANELS_WIDTH,
    height: int = _PANELS_HEIGHT,
) -> theme.Chart:
    """A grid of histograms, `columns` wide: bars are measured, lines predicted, one colour a name.

    `percent` writes the x axis in percent from 0 to 100; `common` gives all panels one density axis.

    >>> chart = panels_chart([Panel("ReLU", [0, 0.5, 1], [1.2, 0.8], {"theory": [1, 1]})], title="A split")
    >>> type(chart).__name__
    'VConcatChart'
    """
    _check(panels)
    names = list(dict.fromkeys(name for panel in panels for name in panel.curves))
    every = [np.concatenate([[], *([] if p.density is None else [p.density]), *p.curves.values()]) for p in panels]
    tops = [
        p.top or 1.06 * (max(v[np.isfinite(v)].tolist(), default=1.0) or 1.0)
        for p, v in zip(panels, every, strict=True)
    ]
    if common:
        tops = [max(tops)] * len(tops)
    charts: list[Any] = []
    for i, (panel, top) in enumerate(zip(panels, tops, strict=True)):
        ends = [float(panel.edges[0]), float(panel.edges[-1])]
        shares: Any = {"labelExpr": theme.PERCENT, "values": [0, 0.5, 1], "labelFlush": False}
        look = theme.axis(ends, **(shares if percent else {"tickCount": 5}))
        x = alt.X("from:Q", title=x_title if i + columns >= len(panels) else None, **look)
        words = "Probability density" if i % columns == 0 else None
        y = alt.Y("density:Q", title=words, **theme.axis([0, top], clamp=True, tickCount=3))
        head = theme.heading(panel.label, panel.note, size=15)
        charts.append(theme.stacked(_panels_layers(panel, top, names, x, y), width, height, title=head))
    has_bars = any(panel.density is not None for panel in panels)
    entries = [Entry(bars, theme.PALE_BLUE, shape="square")] if has_bars else []
    entries += [Entry(name, _STEPS[i % 4], theme.DASHES[i % 4]) for i, name in enumerate(names)]
    grid = theme.grid(charts, entries, columns)
    return theme.house(grid, title, subtitle, wide=min(columns, len(panels)) * width > 640)


def _check(panels: Sequence[Panel]) -> None:
    if not panels:
        raise InvalidInput("at least one panel", got="none", where="panels_chart")
    for panel in panels:
        bins = len(panel.edges) - 1
        for name, values in [("density", panel.density), *panel.curves.items()]:
            if values is not None and len(values) != bins:
                expected = f"{bins} bins"
                raise InvalidInput(expected, got=f"{len(values)} values of {name}", where=f"panel {panel.label!r}")


def _panels_layers(panel: Panel, top: float, names: list[str], x: alt.X, y: alt.Y) -> list[alt.Chart]:
    layers: list[alt.Chart] = []
    if panel.density is not None:
        shown = np.minimum(panel.density, 4 * top)
        layers.append(theme.bars(panel.edges, shown, x, y, {"exact": panel.density}, ["exact|density|.4~g"]))
    for index, name in enumerate(names):
        if name in panel.curves:
            shown = np.minimum(panel.curves[name], 4 * top)
            layers.append(theme.outline(panel.edges, shown, x, y, _STEPS[index % 4], theme.DASHES[index % 4], 2.2))
    return layers
