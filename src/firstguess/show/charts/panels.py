"""Panels of histograms, with the predicted probability of every bin drawn over them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import altair as alt
import numpy as np
import numpy.typing as npt

from firstguess.base.errors import InvalidInput
from firstguess.show.charts import theme

_WIDTH, _HEIGHT = 250, 170
_BARS = "#9CC7E3"
_STEPS = (theme.PALETTE[1], theme.PALETTE[2], theme.PALETTE[3], theme.PALETTE[6])
Numbers = Sequence[float] | npt.NDArray[Any]


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
    width: int = _WIDTH,
    height: int = _HEIGHT,
) -> theme.Chart:
    """A grid of histograms, `columns` wide: bars are measured, lines predicted, one colour a name.

    `percent` writes the x axis in percent from 0 to 100; `common` gives all panels one density axis.

    >>> chart = panels_chart([Panel("ReLU", [0, 0.5, 1], [1.2, 0.8], {"theory": [1, 1]})], title="A split")
    >>> type(chart).__name__
    'VConcatChart'
    """
    _check(panels)
    names = list(dict.fromkeys(name for panel in panels for name in panel.curves))
    tops = [panel.top or 1.06 * _highest(panel) for panel in panels]
    if common:
        tops = [max(tops)] * len(tops)
    charts: list[Any] = []
    for i, (panel, top) in enumerate(zip(panels, tops, strict=True)):
        x = _x(panel, x_title if i + columns >= len(panels) else None, percent)
        y = alt.Y(
            "density:Q",
            title="Probability density" if i % columns == 0 else None,
            scale=alt.Scale(domain=[0, top], nice=False, clamp=True),
            axis=alt.Axis(tickCount=3),
        )
        charts.append(theme.stacked(_layers(panel, top, names, x, y), width, height, title=_heading(panel)))
    has_bars = any(panel.density is not None for panel in panels)
    entries = [(bars, _BARS, True)] if has_bars else []
    key = _key(entries + [(name, _STEPS[i % 4], False) for i, name in enumerate(names)])
    grid: Any = alt.vconcat(key, alt.concat(*charts, columns=columns, spacing=26), spacing=14)
    return theme.house(grid, title, subtitle, wide=min(columns, len(panels)) * width > 640)


def _check(panels: Sequence[Panel]) -> None:
    if not panels:
        raise InvalidInput("at least one panel", got="none", where="panels_chart")
    for panel in panels:
        bins = len(panel.edges) - 1
        for name, values in [("density", panel.density), *panel.curves.items()]:
            if values is not None and len(values) != bins:
                raise InvalidInput(
                    f"{bins} bins", got=f"{len(values)} values of {name}", where=f"panel {panel.label!r}"
                )


def _highest(panel: Panel) -> float:
    values = [*([] if panel.density is None else panel.density), *(v for c in panel.curves.values() for v in c)]
    return max((float(v) for v in values if math.isfinite(v)), default=1.0) or 1.0


def _x(panel: Panel, title: str | None, percent: bool) -> alt.X:
    domain = [float(panel.edges[0]), float(panel.edges[-1])]
    axis: Any = alt.Axis(tickCount=5)
    if percent:
        axis = alt.Axis(labelExpr=theme.PERCENT, values=[0, 0.5, 1], labelFlush=False)
    return alt.X("from:Q", title=title, scale=alt.Scale(domain=domain, nice=False), axis=axis)


def _heading(panel: Panel) -> alt.TitleParams:
    return alt.TitleParams(
        panel.label, subtitle=[panel.note] if panel.note else [], anchor="start", frame="group", fontSize=15,
        subtitleFontSize=13, fontWeight="normal", offset=8, subtitlePadding=3,
    )  # fmt: skip


def _layers(panel: Panel, top: float, names: list[str], x: alt.X, y: alt.Y) -> list[alt.Chart]:
    edges = np.asarray(panel.edges, dtype=float)
    layers: list[alt.Chart] = []
    if panel.density is not None:
        rows = [
            {"from": a, "to": b, "density": min(float(v), 4 * top), "exact": float(v), "zero": 0.0}
            for a, b, v in zip(edges.tolist(), edges[1:].tolist(), panel.density, strict=False)
        ]
        tooltip = [
            alt.Tooltip("from:Q", format=".3~f"),
            alt.Tooltip("to:Q", format=".3~f"),
            alt.Tooltip("exact:Q", title="density", format=".4~g"),
        ]
        bars = alt.Chart(theme.data(rows)).mark_rect(color=_BARS, stroke="white", strokeWidth=0.7, clip=True)
        layers.append(bars.encode(x=x, x2="to:Q", y=y, y2="zero:Q", tooltip=tooltip))
    for index, name in enumerate(names):
        if name in panel.curves:
            rows = _corners(edges, panel.curves[name], 4 * top)
            line = alt.Chart(theme.data(rows)).mark_line(
                color=_STEPS[index % 4], strokeWidth=2.2, strokeDash=theme.DASHES[index % 4], strokeJoin="miter",
                clip=True,
            )  # fmt: skip
            layers.append(line.encode(x=x, y=y, order="order:Q"))
    return layers


def _corners(edges: npt.NDArray[np.float64], values: Numbers, most: float) -> list[dict[str, float]]:
    """A step for each bin, closed at both ends."""
    corners = [(float(edges[0]), 0.0)]
    for a, b, v in zip(edges, edges[1:], values, strict=False):
        corners += [(float(a), float(v)), (float(b), float(v))]
    corners.append((float(edges[-1]), 0.0))
    return [{"from": a, "density": min(v, most), "order": k} for k, (a, v) in enumerate(corners)]


def _key(entries: Sequence[tuple[str, str, bool]]) -> alt.LayerChart:
    """Which mark is which, in one line above the panels."""
    layers: list[alt.Chart] = []
    at, lines = 0.0, 0
    for name, colour, filled in entries:
        base: Any = alt.Chart(theme.data([{"text": name}])).encode(y=alt.value(8))
        if filled:
            mark = base.mark_point(shape="square", filled=True, size=150, opacity=1, color=colour)
            layers.append(mark.encode(x=alt.value(at + 8)))
        else:
            rule = base.mark_rule(color=colour, strokeWidth=3, strokeDash=theme.DASHES[lines % 4])
            layers.append(rule.encode(x=alt.value(at), x2=alt.value(at + 26)))
            lines += 1
        start = at + (20 if filled else 34)
        layers.append(base.mark_text(align="left", fontSize=15).encode(x=alt.value(start), text="text:N"))
        at = start + 7.8 * len(name) + 26
    if not layers:
        layers = [alt.Chart(theme.data([{}])).mark_point(opacity=0)]
    return theme.stacked(layers, max(60, int(at)), 16)
