"""The correlation of two inputs through the network, and the steps that add it."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import altair as alt

from firstguess.base.errors import InvalidInput
from firstguess.base.text import capital, power_of_ten, size_change
from firstguess.show.charts import gamma_by_depth, theme
from firstguess.show.charts.gamma_by_depth import GammaScale
from firstguess.theory.prediction import EDGES

if TYPE_CHECKING:
    from firstguess.diagnosis.result import Advice, Cause, Diagnosis
    from firstguess.ensemble.gradient_statistics import Gradients, Level
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
        hint = "a model whose outputs are finite"
        raise InvalidInput("a diagnosis with measured layers", got="none", where="correlation_chart", hint=hint)
    rows, data = _rows(measurement), next((c for c in diagnosis.causes if c.kind == "data"), None)
    if data is not None:
        start: dict[str, Any] = {"name": "the data", "kind": "data", "step": 0}
        start |= {end: data.after for end in ("position", "low", "high")}
        rows = [start, *rows]
    marked = _marked(diagnosis.main_causes, measurement)
    first, last = 0 if data is not None else 1, len(measurement.layers)
    lowest = min([0.0, *(row["low"] for row in rows if row["low"] is not None)])
    width = theme.NARROW if narrow else _WIDTH
    x, y = _axes(first, last, measurement, lowest, width)
    layers = gamma_by_depth.fills([lowest, *(edge / (1 + edge) for edge in EDGES), 1.0])
    dots = 46 if last <= _MARKED else 0
    layers += theme.line(rows, x, y, theme.PALETTE[0], theme.tooltip(*_CURVE), band=0.2, dots=dots)
    layers += _jumps([m for m in marked if m.at is not None], x, y)
    layers += _names(marked, 0 if narrow else _WIDTH, _HEIGHT + 78 if narrow else 0)
    chart = theme.stacked(layers, width, _HEIGHT)
    return theme.house(chart, title or theme.unbroken(_title(diagnosis)), _subtitle(measurement, bool(marked)))


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
    for rank, cause in enumerate(causes[:_CAUSES], start=1):
        code = cause.kind.startswith("code: ")
        reader = cause.name.removeprefix("code before ")
        at: float | None = 0 if cause.kind == "data" else places.get(reader if code else cause.name)
        found.append(_Marked(rank, cause, at - 0.5 if code and at is not None else at))
    return found


def _axes(first: int, last: int, measurement: Measurement, lowest: float, width: int) -> tuple[alt.X, alt.Y]:
    few = last - first < _NAMED and width == _WIDTH
    step = 1 if few else theme.round_step(last, 10 if width == _WIDTH else 5)
    ticks = [*([0] if first == 0 else []), *range(1 if few else step, last + 1, step)]
    kinds = json.dumps(["data", *(layer.kind for layer in measurement.layers)], ensure_ascii=False)
    words = f"{kinds}[datum.value]" if few else "datum.value == 0 ? 'data' : datum.label"
    room = _GUTTER * max(last - first, 1) / (width - _GUTTER - 14)
    look: Any = {"labelAngle": -40, "labelAlign": "right", "labelLimit": 110, "labelOverlap": False} if few else {}
    ends = [first - room, last + 14 / _GUTTER * room]
    look = theme.axis(ends, values=ticks, labelExpr=words, labelFlush=False, **look)
    x = alt.X("step:Q", title="Layer, in the order of the calls", **look)
    marks = theme.axis([lowest, 1.0], zero=False, values=[0, 0.25, 0.5, 0.75, 1], format=".2~f", grid=False)
    return x, alt.Y("position:Q", title="Correlation c of two inputs", **marks)


_CURVE = ("name|layer", "kind", "position|correlation c after it|.4f", "low|95 % from|.4f", "high|95 % to|.4f")


def _jumps(marked: Sequence[_Marked], x: alt.X, y: alt.Y) -> list[alt.Chart]:
    rows = [
        {"step": m.at, "position": m.cause.after, "before": m.cause.before, "added": m.cause.added, "se": m.cause.se,
         "rank": str(m.rank), "number": str(m.rank), "cause": _drawn(m.cause.words),
         "effect": m.cause.change or "not tried"}
        for m in marked
    ]  # fmt: skip
    tooltip = theme.tooltip(
        "cause", "before|c before it|.4f", "position|c after it|.4f", "added|added|+.4f", "se|standard error|.2~g",
        "effect|largest share, without it",
    )  # fmt: skip
    base = theme.chart(rows, x=x, y=y, tooltip=tooltip)
    return [base.mark_rule(color=_CAUSE, strokeWidth=3).encode(y2="before:Q"), *theme.numbered(base, _CAUSE)]


def _names(marked: Sequence[_Marked], left: int, top: int) -> list[alt.Chart]:
    """The causes in words, next to the figure."""
    x = left + 24 if left else 0
    layers = [theme.text_at("Largest share, without it", x, top + 8, fontSize=15)] if marked else []
    for place, m in enumerate(marked):
        x, y = left + 34 if left else 12, top + 40 + 52 * place
        dot = theme.chart([{"number": str(m.rank)}], x=alt.value(x), y=alt.value(y + 2))
        words = theme.text_at(f"{_drawn(m.cause.short(34))}\n{m.cause.change or 'not tried'}", x + 20, y - 6)
        layers += [*theme.numbered(dot, _CAUSE), words]
    return layers


def _drawn(words: str) -> str:
    """A cause without the marks that pages turn into code: a chart would show them."""
    return words.replace("`", "")


def _title(diagnosis: Diagnosis) -> str:
    found = diagnosis.main_causes
    if not found:
        tried = any(c.tried for c in diagnosis.causes)
        return "No single step changes the guesses" if tried else "No step adds correlation between inputs"
    top = found[0]
    name = _drawn(top.short(44))
    if not top.tried:
        return f"Correlation between inputs, and where it rises most: {name}"
    return f"Without {name}, the largest share goes from {top.change.replace(' → ', ' to ')}"


def _subtitle(measurement: Measurement, marked: bool) -> list[str]:
    first = f"Measured after every layer, {theme.spaced(measurement.inits)} initializations, with 95 % intervals"
    numbers = "; numbers rank layers by how much the bias drops without them" if marked else ""
    return [
        f"{first}{numbers}.",
        "c = 0: inputs look unrelated; c = 1: all look the same. The words in the chart are for the output.",
    ]


# What each change does: the share of the largest class and the drift ratio, before and after.

_ADVICE_WIDTH, _ROW = 300, 58
_MOST = 8
_BEFORE, _HELPS, _SAME = theme.SOFT, theme.PALETTE[0], theme.PALETTE[4]


def advice_chart(advice: Sequence[Advice], *, title: str | None = None, narrow: bool = False) -> theme.Chart:
    """Every change that was tried, as a line from before (hollow) to after (filled).

    Left: the average share of the largest class. Right: γ of the output, logarithmic with a place for 0 and ∞; left out
    where no γ is known; `narrow`, for a phone, one below the other. Changes after which guesses are not more even,
    beyond the error, are orange.
    """
    shown = list(advice)[:_MOST]
    if not shown:
        raise InvalidInput("at least one piece of advice", got="none", where="advice_chart")
    rows = [_row(place, one) for place, one in enumerate(shown)]
    names = [theme.wrapped(capital(one.title), 18 if narrow else 34, 3) for one in shown]
    width = theme.NARROW - 110 if narrow else _ADVICE_WIDTH
    shares = [0, 0.25, 0.5, 0.75, 1]
    largest = theme.axis([0, 1], values=shares, labelExpr=theme.PERCENT, grid=True, labelFlush=False)
    gamma = _gamma(rows)  # first: it finds ∞ a place
    chart: Any = _panel(largest, rows, names, "Largest share, average", "largest", width, stacked=narrow)
    if any(row["gamma_from"] is not None for row in rows):
        other = _panel(gamma, rows, names if narrow else None, "Drift ratio γ", "gamma", width, stacked=narrow)
        beside = (alt.vconcat, 96) if narrow else (alt.hconcat, 56)
        chart = beside[0](chart, other, spacing=beside[1], bounds="flush")
    words = "Average over initializations of the share of the data in the largest class, and γ of the output"
    left = f" The first {len(shown)} of {len(advice)} changes." if len(advice) > len(shown) else ""
    said = title or theme.unbroken(_advice_title(shown))
    return theme.house(chart, said, [f"{words}, before and after each change.{left}"])


def _row(place: int, one: Advice) -> dict[str, Any]:
    known = not (math.isnan(one.gamma_before) or math.isnan(one.gamma_after))
    return {
        "place": place,
        "title": one.title,
        "how": one.how,
        "shape": "diamond" if one.how == "predicted" else "circle",
        "fill": _HELPS if one.helps else _SAME,
        "verdict": "less bias" if one.helps else "guesses not more even",
        "largest_from": one.largest_before,
        "largest_to": one.largest_after,
        "gamma_from": one.gamma_before if known else None,
        "gamma_to": one.gamma_after if known else None,
        "words": f"γ {theme.number(one.gamma_before)} → {theme.number(one.gamma_after)}" if known else "γ not known",
    }


def _gamma(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The axis of γ; positions of ∞ are put where the axis has them."""
    values = [row[end] for row in rows for end in ("gamma_from", "gamma_to") if row[end] is not None]
    scale = GammaScale.of([v for v in values if v >= 0], noise=values)
    for row in rows:
        for end in ("gamma_from", "gamma_to"):
            row[end] = None if row[end] is None else scale(row[end])
    return scale.marks()


def _panel(
    axis: dict[str, Any], rows: Sequence[theme.Row], names: Sequence[Sequence[str]] | None, words: str, field: str,
    width: int, *, stacked: bool,
) -> alt.LayerChart:  # fmt: skip
    labels = json.dumps(list(names or ()), ensure_ascii=False)
    x = alt.X(f"{field}_from:Q", title=words, **axis)
    look: Any = {"labelExpr": f"{labels}[datum.value]", "labelLimit": 0} if names is not None else {"labels": False}
    look |= {"values": list(range(len(rows))), "grid": True, "labelColor": theme.INK, "labelLineHeight": 17}
    y = alt.Y("place:Q", title=None, **theme.axis([len(rows) - 0.5, -0.5], **look))
    tooltip = theme.tooltip(
        "title|change", "how|known by", "largest_from|largest share before|.1%", "largest_to|largest share after|.1%",
        "words|drift ratio", "verdict|result",
    )  # fmt: skip
    colour = alt.Color("fill:N", scale=None, legend=None)
    shape = alt.Shape("shape:N", scale=None, legend=None)
    base = theme.chart(rows, x=x, y=y)
    hollow = base.encode(tooltip=tooltip)
    after = theme.chart(rows, x=f"{field}_to:Q", y=y, color=colour, shape=shape, tooltip=tooltip)
    layers = [
        base.mark_rule(strokeWidth=3).encode(x2=f"{field}_to:Q", color=colour),
        hollow.mark_point(filled=True, fill="white", stroke=_BEFORE, strokeWidth=2, size=120, opacity=1),
        after.mark_point(filled=True, size=190, opacity=1, stroke="white", strokeWidth=1),
    ]
    if field == "largest":
        layers += theme.key(_entries(rows), stacked=stacked)
    return theme.stacked(layers, width, _ROW * len(rows))


def _entries(rows: Sequence[theme.Row]) -> list[theme.Entry]:
    found = [theme.Entry("before", _BEFORE, shape="circle", filled=False)]
    for how, shape in (("measured", "circle"), ("predicted", "diamond")):
        if any(row["how"] == how for row in rows):
            found.append(theme.Entry(f"after, {how}", _HELPS, shape=shape))
    if any(row["fill"] == _SAME for row in rows):
        found.append(theme.Entry("guesses not more even", _SAME, shape="circle"))
    return found


def _advice_title(shown: Sequence[Advice]) -> str:
    helpful = [one for one in shown if one.helps]
    if not helpful:
        return "None of the changes that were tried makes guesses more even"
    best = min(helpful, key=lambda one: one.largest_after)
    before, after = theme.percents(best.largest_before, best.largest_after)
    return f"{theme.shortened(capital(best.title), 60)}: the largest share goes from {before} to {after}"


# Gradients by layer, or along the stream: of all points, of the favoured class, of the others.

_GRADIENTS_WIDTH, _GRADIENTS_HEIGHT = 760, 340
_GRADIENTS_MARKED = 40  # layers up to which each is marked
_ENTRIES = {
    "all": theme.Entry("all points", theme.PALETTE[6]),
    "favoured": theme.Entry("points of the favoured class", theme.PALETTE[1], (7, 4)),
    "others": theme.Entry("points of the other classes", theme.PALETTE[0], (2, 3)),
}


def gradients_chart(gradients: Gradients, *, title: str | None = None, narrow: bool = False) -> theme.Chart:
    """Mean square of weights' gradients at every layer, from the input to the output, with 95 % bands; of a residual
    network that of the stream between its blocks (`GradientLayer`).

    Geometric means over initializations, on a logarithmic axis: a straight line is growth by a factor per layer, χ̃ of
    theory.md (10). Layers whose gradients are all zero leave a gap. `narrow` is for a phone.
    """
    if not gradients.layers:
        raise InvalidInput("gradients of at least one layer", got="none", where="gradients_chart")
    series = {name: _gradients_rows(gradients, name) for name in _ENTRIES}
    known = {name: rows for name, rows in series.items() if any(row["position"] is not None for row in rows)}
    followed = gradients.followed
    x, y = _x(len(followed), stream=bool(gradients.stream)), _y([row for rows in known.values() for row in rows])
    layers: list[alt.Chart] = []
    for name, rows in known.items():
        entry, dots = _ENTRIES[name], 46 if len(followed) <= _GRADIENTS_MARKED else 0
        tips = theme.tooltip(*_GRADIENTS_TIPS)
        layers += theme.line(rows, x, y, entry.colour, tips, band=0.18, dots=dots, dash=entry.dash)
    layers += theme.key([_ENTRIES[name] for name in known], stacked=narrow)
    chart = theme.stacked(layers, theme.NARROW if narrow else _GRADIENTS_WIDTH, _GRADIENTS_HEIGHT)
    return theme.house(chart, title or _gradients_title(gradients), _gradients_subtitle(gradients))


def _gradients_rows(gradients: Gradients, group: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for number, layer in enumerate(gradients.followed, start=1):
        level: Level = getattr(layer, group)
        value = level.value if math.isfinite(level.value) else None
        half = 1.96 * level.error if math.isfinite(level.error) else 0.0
        low, high = (None, None) if value is None else (value - half, value + half)
        row = {"layer": number, "name": layer.name, "group": _ENTRIES[group].name, "position": value}
        rows.append({**row, "low": low, "high": high, "size": "" if value is None else f"{level.mean_square:.3g}"})
    return rows


def _x(last: int, *, stream: bool) -> alt.X:
    step = theme.round_step(last, 10)
    ticks = sorted({1, *(t for t in range(step, last + 1, step) if last - t >= 0.06 * last), last})
    room = max(0.5, 0.03 * last)
    labels = "datum.label" if stream else f"datum.value == {last} ? 'output' : datum.label"
    title = "Place between residual blocks, from the input" if stream else "Layer with weights, from the input"
    look = theme.axis([1 - room, last + room], values=ticks, labelExpr=labels, labelFlush=False)
    return alt.X("layer:Q", title=title, **look)


def _y(rows: Sequence[theme.Row]) -> alt.Y:
    """A linear axis of the exponents: mean squares of deep networks leave the range of numbers."""
    values = [row[end] for row in rows for end in ("low", "high") if row[end] is not None] or [0.0]
    low, high = min(values), max(values)
    room = max(0.05 * (high - low), 0.05)
    low, high = low - room, high + room
    ticks: list[float]
    if high - low > 2:
        step = max(1, math.ceil((high - low) / 7))
        ticks = [float(k) for k in range(math.ceil(low), math.floor(high) + 1) if k % step == 0]
        words = [power_of_ten(round(t)) for t in ticks]
    else:
        sizes = [m * 10.0**k for k in range(math.floor(low), math.ceil(high) + 1) for m in (1, 2, 5)]
        sizes = [size for size in sizes if low <= math.log10(size) <= high]
        ticks, words = [math.log10(size) for size in sizes], [theme.number(size) for size in sizes]
    names = " : ".join(f"abs(datum.value - {t!r}) < 1e-6 ? '{w}'" for t, w in zip(ticks, words, strict=True))
    look = theme.axis([low, high], zero=False, values=ticks, labelExpr=f"{names} : ''" if names else "''")
    return alt.Y("position:Q", title="Mean square of gradients", **look)


_GRADIENTS_TIPS = ("name|layer", "group|of", "size|mean square", "low|log10, 95 % from|.3f", "high|log10, 95 % to|.3f")


def _gradients_title(gradients: Gradients) -> str:
    growth, word = gradients.growth, gradients.word
    if word in ("zero", "not finite"):
        return f"Gradients are {word}"
    if word == "not known":
        return "Gradients by layer"
    if math.isnan(growth.value):
        return f"Towards the input gradients {word}, by no one factor"
    step = "block" if gradients.stream else "layer"
    return f"Towards the input gradients {word}: {size_change(growth.value)} per {step}"


def _gradients_subtitle(gradients: Gradients) -> list[str]:
    first = f"First step of training, {gradients.inits} initializations, {gradients.points} data points, 95 % bands."
    share = theme.percent(gradients.favoured_fraction)
    who = f"The favoured class is the one that an initialization puts most of these points in ({share})"
    if math.isfinite(gradients.contrast):
        ratio = theme.number(10.0**gradients.contrast)
        who += f": at the output its gradients' mean square is × {ratio} that of the others"
    return [first, f"{who}."]
