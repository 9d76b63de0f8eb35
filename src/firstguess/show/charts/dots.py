"""Values with error bars by name, one row a name: for things that have no number to stand on an axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt

from firstguess.base.errors import InvalidInput
from firstguess.show.charts import theme

_WIDTH, _ROW = 420, 40
_STEP = 9  # pixels from one series to the next below it
_SHAPES = ("circle", "diamond", "square", "triangle-up")


@dataclass(frozen=True)
class Dot:
    """One value: in which row it stands, of which series it is, and its standard error (0: none is drawn)."""

    row: str
    series: str
    value: float
    error: float = 0.0


def dots_chart(
    panels: Mapping[str, Sequence[Dot]],
    *,
    title: str,
    x_title: str,
    subtitle: Sequence[str] = (),
    x_domain: tuple[float, float] | None = None,
    percent: bool = False,
    columns: int = 3,
    width: int = _WIDTH,
) -> theme.Chart:
    """Rows by name, series by colour and shape a little below each other, bars ± 2 standard errors; panels by heading.

    >>> chart = dots_chart({"": [Dot("ReLU", "measured", 0.3, 0.02)]}, title="A split", x_title="std")
    >>> type(chart).__name__
    'VConcatChart'
    """
    every = [dot for dots in panels.values() for dot in dots]
    if not every:
        raise InvalidInput("at least one value", got="none", where="dots_chart")
    names = list(dict.fromkeys(dot.series for dot in every))
    rows = list(dict.fromkeys(dot.row for dot in every))  # all panels have all rows: only the first names them
    top = max(dot.value + 2 * dot.error for dot in every)
    low = min(0.0, *(dot.value - 2 * dot.error for dot in every))
    scale = alt.Scale(domain=list(x_domain or (low, 1.05 * top)), nice=False)
    axis: Any = (
        alt.Axis(grid=True, tickCount=5, labelExpr=theme.PERCENT) if percent else alt.Axis(grid=True, tickCount=5)
    )
    row = max(_ROW, _STEP * len(names) + 10)  # many series of one row do not reach into the next
    charts: list[Any] = []
    for index, (heading, dots) in enumerate(panels.items()):
        y_axis: Any = alt.Axis(labelLimit=0, grid=False, labelColor=theme.INK) if index % columns == 0 else None
        y = alt.Y("row:N", sort=rows, title=None, axis=y_axis, scale=alt.Scale(domain=rows, padding=0.2))
        x = {at: alt.X(f"{at}:Q", title=x_title, scale=scale, axis=axis) for at in ("value", "low")}
        layers = [layer for name in names for layer in _layers(dots, name, names, x, y)]
        head: Any = alt.TitleParams(heading, anchor="start", frame="group", fontSize=16, fontWeight="normal", offset=8)
        charts.append(theme.stacked(layers, width, row * len(rows), **({"title": head} if heading else {})))
    grid: Any = alt.vconcat(_key(names), alt.concat(*charts, columns=columns, spacing=26), spacing=14)
    return theme.house(grid, title, subtitle, wide=min(columns, len(charts)) * width > 640)


def _layers(dots: Sequence[Dot], name: str, names: list[str], x: Mapping[str, alt.X], y: alt.Y) -> list[alt.Chart]:
    place = names.index(name)
    shift = _STEP * (place - (len(names) - 1) / 2)
    rows = [
        {
            "row": d.row,
            "series": d.series,
            "value": d.value,
            "low": d.value - 2 * d.error,
            "high": d.value + 2 * d.error,
        }
        for d in dots
        if d.series == name
    ]
    if not rows:
        return []
    base = alt.Chart(theme.data(rows))
    bars = base.mark_rule(color=theme.colour(place), strokeWidth=2, yOffset=shift, y2Offset=shift, clip=True)
    points = base.mark_point(
        filled=True, opacity=1, size=85, color=theme.colour(place), shape=_SHAPES[place % len(_SHAPES)], stroke="white",
        strokeWidth=0.8, yOffset=shift,
    )  # fmt: skip
    tooltip = [alt.Tooltip("row:N"), alt.Tooltip("series:N"), alt.Tooltip("value:Q", format=".4~g")]
    return [bars.encode(x=x["low"], x2="high:Q", y=y), points.encode(x=x["value"], y=y, tooltip=tooltip)]


def _key(names: list[str]) -> alt.LayerChart:
    """Names beside their marks, in one line."""
    layers: list[alt.Chart] = []
    at = 0.0
    for index, name in enumerate(names):
        base: Any = alt.Chart(theme.data([{"text": name}])).encode(y=alt.value(8))
        mark = base.mark_point(
            filled=True, size=110, opacity=1, color=theme.colour(index), shape=_SHAPES[index % len(_SHAPES)]
        )
        layers.append(mark.encode(x=alt.value(at + 8)))
        layers.append(base.mark_text(align="left", fontSize=15).encode(x=alt.value(at + 20), text="text:N"))
        at += 20 + 7.8 * len(name) + 26
    return theme.stacked(layers, int(at), 16)
