"""Gradients by layer, or along the stream: of all points, of the favoured class, of the others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import altair as alt

from firstguess.base.errors import InvalidInput
from firstguess.base.text import power_of_ten, size_change
from firstguess.show.charts import parts, theme

if TYPE_CHECKING:
    from firstguess.ensemble.gradient_statistics import Gradients, Level

_WIDTH, _HEIGHT = 760, 340
_MARKED = 40  # layers up to which each is marked
_ENTRIES = {
    "all": parts.Entry("all points", theme.PALETTE[6]),
    "favoured": parts.Entry("points of the favoured class", theme.PALETTE[1], (7, 4)),
    "others": parts.Entry("points of the other classes", theme.PALETTE[0], (2, 3)),
}


def gradients_chart(gradients: Gradients, *, title: str | None = None, narrow: bool = False) -> theme.Chart:
    """Mean square of weights' gradients at every layer, from the input to the output, with 95 % bands; of a residual
    network that of the stream between its blocks (`GradientLayer`).

    Geometric means over initializations, on a logarithmic axis: a straight line is growth by a factor a layer, χ̃ of
    theory.md (10). Layers whose gradients are all zero leave a gap. `narrow` is for a phone.
    """
    if not gradients.layers:
        raise InvalidInput("gradients of at least one layer", got="none", where="gradients_chart")
    series = {name: _rows(gradients, name) for name in _ENTRIES}
    known = {name: rows for name, rows in series.items() if any(row["position"] is not None for row in rows)}
    followed = gradients.followed
    x, y = _x(len(followed), stream=bool(gradients.stream)), _y([row for rows in known.values() for row in rows])
    layers: list[alt.Chart] = []
    for name, rows in known.items():
        layers += _series(rows, _ENTRIES[name], x, y, dots=len(followed) <= _MARKED)
    layers += parts.key([_ENTRIES[name] for name in known], stacked=narrow)
    chart = theme.stacked(layers, theme.NARROW if narrow else _WIDTH, _HEIGHT)
    return theme.house(chart, title or _title(gradients), _subtitle(gradients))


def _rows(gradients: Gradients, group: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for number, layer in enumerate(gradients.followed, start=1):
        level: Level = getattr(layer, group)
        value = level.value if math.isfinite(level.value) else None
        half = 1.96 * level.error if math.isfinite(level.error) else 0.0
        rows.append(
            {
                "layer": number,
                "name": layer.name,
                "group": _ENTRIES[group].name,
                "position": value,
                "low": None if value is None else value - half,
                "high": None if value is None else value + half,
                "size": "" if value is None else f"{level.mean_square:.3g}",
            }
        )
    return rows


def _x(last: int, *, stream: bool) -> alt.X:
    step = next(s for k in range(9) for s in (10**k, 2 * 10**k, 5 * 10**k) if last / s <= 10)
    ticks = sorted({1, *(t for t in range(step, last + 1, step) if last - t >= 0.06 * last), last})
    room = max(0.5, 0.03 * last)
    labels = "datum.label" if stream else f"datum.value == {last} ? 'output' : datum.label"
    return alt.X(
        "layer:Q",
        title="Place between residual blocks, from the input" if stream else "Layer with weights, from the input",
        scale=alt.Scale(domain=[1 - room, last + room], nice=False),
        axis=alt.Axis(values=ticks, labelExpr=labels, labelFlush=False),
    )


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
    return alt.Y(
        "position:Q",
        title="Mean square of gradients",
        scale=alt.Scale(domain=[low, high], nice=False, zero=False),
        axis=alt.Axis(values=ticks, labelExpr=f"{names} : ''" if names else "''"),
    )


def _series(rows: Sequence[theme.Row], entry: parts.Entry, x: alt.X, y: alt.Y, *, dots: bool) -> list[alt.Chart]:
    tooltip = [
        alt.Tooltip("name:N", title="layer"),
        alt.Tooltip("group:N", title="of"),
        alt.Tooltip("size:N", title="mean square"),
        alt.Tooltip("low:Q", title="log10, 95 % from", format=".3f"),
        alt.Tooltip("high:Q", title="log10, 95 % to", format=".3f"),
    ]
    base = alt.Chart(theme.data(rows)).encode(x=x, y=y)
    mark: Any = {"filled": True, "size": 46 if dots else 24, "opacity": 1 if dots else 0}
    line: Any = {"strokeWidth": 2.5, "strokeDash": list(entry.dash)}
    return [
        base.mark_area(color=entry.colour, opacity=0.18).encode(y="low:Q", y2="high:Q"),
        base.mark_line(color=entry.colour, **line),
        base.mark_point(color=entry.colour, **mark).encode(tooltip=tooltip),
    ]


def _title(gradients: Gradients) -> str:
    growth, word = gradients.growth, gradients.word
    if word in ("zero", "not finite"):
        return f"Gradients are {word}"
    if word == "not known":
        return "Gradients by layer"
    if math.isnan(growth.value):
        return f"Towards the input gradients {word}, by no one factor"
    step = "block" if gradients.stream else "layer"
    return f"Towards the input gradients {word}: {size_change(growth.value)} a {step}"


def _subtitle(gradients: Gradients) -> list[str]:
    first = f"First step of training, {gradients.inits} initializations, {gradients.points} data points, 95 % bands."
    share = theme.percent(gradients.favoured_fraction)
    who = f"The favoured class is the one that an initialization puts most points in ({share})"
    if math.isfinite(gradients.contrast):
        ratio = theme.number(10.0**gradients.contrast)
        who += f": at the output its gradients' mean square is × {ratio} that of the others"
    return [first, f"{who}."]
