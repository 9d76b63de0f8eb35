"""The correlation of two inputs through the network, and the steps that add it."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import altair as alt

from firstguess.base.errors import InvalidInput
from firstguess.show.charts import gamma_by_depth, theme
from firstguess.show.charts.theme import Row
from firstguess.theory.bias_levels import EDGES

if TYPE_CHECKING:
    from firstguess.diagnosis.result import Cause, Diagnosis
    from firstguess.ensemble.measurement import Measurement

_WIDTH, _HEIGHT = 620, 360
_GUTTER = 118  # pixels at the left for the words
_NAMED = 16  # steps up to which every step has its kind on the axis
_MARKED = 60  # steps up to which every step has a dot
_CAUSES = 6
_CAUSE = theme.PALETTE[1]


@dataclass(frozen=True)
class _Marked:
    rank: int
    cause: Cause
    at: float | None  # where on the axis, if it has a place


def correlation_chart(diagnosis: Diagnosis, *, title: str | None = None, narrow: bool = False) -> theme.Chart:
    """c of two inputs after every layer in call order, with 95 % intervals; causes are numbered by their effect.

    c = γ/(1+γ), theory.md (2): the share of a signal that all inputs have in common. A cause is drawn from c before
    it to c after it, both measured at that step; its rank is by what the guesses are without it. All steps of a kind
    together are named at the right only (below, where `narrow` is for a phone). Code between modules stands
    just before the module that it feeds.
    """
    measurement = diagnosis.measurement
    if measurement is None or not measurement.layers:
        raise InvalidInput(
            "a diagnosis with measured layers",
            got="none",
            where="correlation_chart",
            hint="a model whose outputs are finite",
        )
    rows, data = _rows(measurement), next((c for c in diagnosis.causes if c.kind == "data"), None)
    if data is not None:
        start: dict[str, Any] = {"name": "the data", "kind": "data", "step": 0}
        start |= {end: data.after for end in ("position", "low", "high")}
        rows = [start, *rows]
    marked = _marked(diagnosis.causes, measurement)
    first, last = 0 if data is not None else 1, len(measurement.layers)
    lowest = min([0.0, *(row["low"] for row in rows if row["low"] is not None)])
    width = theme.NARROW if narrow else _WIDTH
    x, y = _axes(first, last, measurement, lowest, width)
    layers = gamma_by_depth.fills([lowest, *(edge / (1 + edge) for edge in EDGES), 1.0])
    layers += _curve(rows, x, y, dots=last <= _MARKED)
    layers += [
        *_jumps([m for m in marked if m.at is not None], x, y),
        *_names(marked, 0 if narrow else _WIDTH, _HEIGHT + 78 if narrow else 0),
    ]
    chart = theme.stacked(layers, width, _HEIGHT)
    return theme.house(chart, title or theme.unbroken(_title(diagnosis.causes)), _subtitle(measurement, bool(marked)))


def _rows(measurement: Measurement) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for step, layer in enumerate(measurement.layers, start=1):
        c = layer.correlation if math.isfinite(layer.correlation) else None  # the line breaks there
        low, high = (v if math.isfinite(v) else c for v in layer.correlation_interval)
        rows.append({"name": layer.name, "kind": layer.kind, "step": step, "position": c, "low": low, "high": high})
    return rows


def _marked(causes: Sequence[Cause], measurement: Measurement) -> list[_Marked]:
    """The first causes in the order of the page, with their places."""
    places = {layer.name: step for step, layer in enumerate(measurement.layers, start=1)}
    found: list[_Marked] = []
    for rank, cause in enumerate([c for c in causes if c.added >= 0][:_CAUSES], start=1):
        code = cause.kind.startswith("code: ")
        reader = cause.name.removeprefix("code before ")
        at: float | None = 0 if cause.kind == "data" else places.get(reader if code else cause.name)
        found.append(_Marked(rank, cause, at - 0.5 if code and at is not None else at))
    return found


def _axes(first: int, last: int, measurement: Measurement, lowest: float, width: int) -> tuple[alt.X, alt.Y]:
    few = last - first < _NAMED and width == _WIDTH
    step = (
        1
        if few
        else next(
            s for k in range(9) for s in (10**k, 2 * 10**k, 5 * 10**k) if last / s <= (10 if width == _WIDTH else 5)
        )
    )
    ticks = [*([0] if first == 0 else []), *range(1 if few else step, last + 1, step)]
    kinds = json.dumps(["data", *(layer.kind for layer in measurement.layers)], ensure_ascii=False)
    words = f"{kinds}[datum.value]" if few else "datum.value == 0 ? 'data' : datum.label"
    room = _GUTTER * max(last - first, 1) / (width - _GUTTER - 14)
    look: Any = {"labelAngle": -40, "labelAlign": "right", "labelLimit": 110, "labelOverlap": False} if few else {}
    x = alt.X(
        "step:Q",
        title="Layer, in the order of the calls",
        scale=alt.Scale(domain=[first - room, last + 14 / _GUTTER * room], nice=False),
        axis=alt.Axis(values=ticks, labelExpr=words, labelFlush=False, **look),
    )
    y = alt.Y(
        "position:Q",
        title="Correlation c of two inputs",
        scale=alt.Scale(domain=[lowest, 1.0], nice=False, zero=False),
        axis=alt.Axis(values=[0, 0.25, 0.5, 0.75, 1], format=".2~f", grid=False),
    )
    return x, y


def _curve(rows: Sequence[Row], x: alt.X, y: alt.Y, *, dots: bool) -> list[alt.Chart]:
    tooltip = [
        alt.Tooltip("name:N", title="layer"),
        alt.Tooltip("kind:N", title="kind"),
        alt.Tooltip("position:Q", title="correlation c after it", format=".4f"),
        alt.Tooltip("low:Q", title="95 % from", format=".4f"),
        alt.Tooltip("high:Q", title="95 % to", format=".4f"),
    ]
    ink = theme.PALETTE[0]
    base = alt.Chart(theme.data(rows)).encode(x=x, y=y)
    mark: Any = {"filled": True, "color": ink, "size": 46 if dots else 24, "opacity": 1 if dots else 0}
    return [
        base.mark_area(color=ink, opacity=0.2).encode(y="low:Q", y2="high:Q"),
        base.mark_line(color=ink, strokeWidth=2.5),
        base.mark_point(**mark).encode(tooltip=tooltip),
    ]


def _jumps(marked: Sequence[_Marked], x: alt.X, y: alt.Y) -> list[alt.Chart]:
    rows = [
        {"step": m.at, "position": m.cause.after, "before": m.cause.before, "added": m.cause.added, "se": m.cause.se,
         "rank": str(m.rank), "cause": m.cause.words, "effect": m.cause.change or "not tried"}
        for m in marked
    ]  # fmt: skip
    tooltip = [
        alt.Tooltip("cause:N", title="cause"),
        alt.Tooltip("before:Q", title="c before it", format=".4f"),
        alt.Tooltip("position:Q", title="c after it", format=".4f"),
        alt.Tooltip("added:Q", title="added", format="+.4f"),
        alt.Tooltip("se:Q", title="standard error", format=".2~g"),
        alt.Tooltip("effect:N", title="largest share, without it"),
    ]
    base = alt.Chart(theme.data(rows)).encode(x=x, y=y)
    return [
        base.mark_rule(color=_CAUSE, strokeWidth=3).encode(y2="before:Q"),
        base.mark_point(shape="circle", filled=True, size=300, opacity=1, color=_CAUSE, stroke="white").encode(
            tooltip=tooltip
        ),
        base.mark_text(color="white", fontWeight="bold", fontSize=13, baseline="middle", dy=1).encode(text="rank:N"),
    ]


def _names(marked: Sequence[_Marked], left: int, top: int) -> list[alt.Chart]:
    """The causes in words, beside the figure: numbers on the figure never collide, names would."""
    layers: list[alt.Chart] = []
    if marked:
        head = alt.Chart(theme.data([{"text": "Largest share, without it"}])).mark_text(align="left", fontSize=15)
        layers.append(head.encode(x=alt.value(left + 24 if left else 0), y=alt.value(top + 8), text="text:N"))
    for place, m in enumerate(marked):
        at = top + 40 + 52 * place
        lines = f"{m.cause.short(34)}\n{m.cause.change or 'not tried'}"
        dot = alt.Chart(theme.data([{"text": str(m.rank)}])).encode(
            x=alt.value(left + 34 if left else 12), y=alt.value(at + 2)
        )
        text = alt.Chart(theme.data([{"text": lines}])).mark_text(
            align="left", baseline="middle", lineBreak="\n", lineHeight=18, dy=-6
        )
        layers += [
            dot.mark_point(shape="circle", filled=True, size=300, opacity=1, color=_CAUSE),
            dot.mark_text(color="white", fontWeight="bold", fontSize=13, baseline="middle", dy=1).encode(text="text:N"),
            text.encode(x=alt.value(left + 52 if left else 34), y=alt.value(at), text="text:N"),
        ]
    return layers


def _title(causes: Sequence[Cause]) -> str:
    raising = [c for c in causes if c.added >= 0]
    if not raising:
        return "No step adds correlation between inputs"
    top = raising[0]
    name = top.short(44)
    if not top.tried:
        return f"Correlation between inputs, and where it rises most: {name}"
    if not top.matters:
        return "No step changes the guesses by itself"
    return f"Without {name}, the largest share goes from {top.change.replace(' → ', ' to ')}"


def _subtitle(measurement: Measurement, marked: bool) -> list[str]:
    first = f"Measured after every layer, {theme.spaced(measurement.inits)} initializations, with 95 % intervals"
    numbers = "; numbered: steps by what the guesses are without them, from c before to c after" if marked else ""
    return [
        f"{first}{numbers}.",
        "c = 0: inputs look unrelated; c = 1: all look the same. Words are those for the output.",
    ]
