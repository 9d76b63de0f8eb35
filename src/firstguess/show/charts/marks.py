"""What several figures are made of: a histogram with curves over it, γ by layer with intervals, the key above them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt

from firstguess.ensemble.measurement import LayerMeasurement, Measurement
from firstguess.show.charts import gamma_by_depth, theme
from firstguess.show.charts.gamma_by_depth import GammaScale
from firstguess.theory.shares.base import ClassShares
from firstguess.theory.shares.empirical import EmpiricalGuesses
from firstguess.theory.shares.histograms import FloatArray, Histogram, pooled

WIDTH = 520
LATE = 0.75  # from here on a line's name is on its left
MEASURED = theme.PALETTE[0]
BARS = theme.PALE_BLUE  # the measured blue, lighter
COLOURS = {"closed form": theme.PALETTE[1], "kernel": theme.PALETTE[2], "predicted": theme.PALETTE[1]}
DASHES = {"closed form": [7, 4], "kernel": [1, 0], "predicted": [1, 0]}
WIDTHS = {"closed form": 2.5, "kernel": 3.5, "predicted": 2.5}  # a solid line looks out from under dashes

LINE = "M-2.2,0L2.2,0"  # the symbol of a line in a legend: longer than Vega's own, so that a dash can be seen
_PALE = "#F2CFB3"  # the prediction's orange, as faint as the bars of what is allowed


# -- The distribution of class shares ----------------------------------------------------------------------------------


def histogram_layers(
    histogram: Histogram, x_title: str, *, ticks: Sequence[float] | None = None, bars: str = "measured"
) -> list[alt.Chart]:
    """Measured bars, laws as outlines over them, and the key."""
    edges = histogram.edges
    marks: Any = {"tickCount": 6} if ticks is None else {"values": list(ticks)}
    x = alt.X(
        "from:Q",
        title=x_title,
        scale=alt.Scale(domain=[float(edges[0]), float(edges[-1])], nice=False),
        axis=alt.Axis(labelExpr=theme.PERCENT, labelFlush=False, **marks),
    )
    unit = 10.0 ** round(math.log10(float(edges[-1] - edges[0]) / (len(edges) - 1)))  # bars may differ by a data point
    y = alt.Y(
        "density:Q",
        title=f"Of the initializations, per {theme.percent(unit)} of the data",
        scale=alt.Scale(domain=[0, histogram.top], nice=False),
        axis=alt.Axis(
            values=_ticks(histogram.top, unit), labelExpr=f"format({100 * unit} * datum.value, '.3~g') + ' %'"
        ),
    )
    layers: list[alt.Chart] = []
    if histogram.measured is not None:
        layers.append(_bars(histogram, x, y, bars))
    # The first law on top: its dashes leave the solid ones below in sight where the two coincide.
    layers += [_outline(name, edges, height, x, y) for name, height in reversed(list(histogram.laws.items()))]
    seen = [Entry(bars, BARS, shape="square")] if histogram.measured is not None else []
    return [*layers, *key([*_lines(list(histogram.laws)), *seen])]


def law_panel(
    laws: Mapping[str, ClassShares], measured: EmpiricalGuesses | None, *, bars: str = "measured"
) -> alt.LayerChart:
    """The distribution of class shares, all classes together."""
    histogram = pooled(laws, measured)
    words = "Share of the data guessed to be of one class"
    title = "The distribution of class shares"
    if histogram.cut:
        title += f" (the {histogram.cut} continues above)"
    classes = next(law.classes for law in (*laws.values(), measured) if law is not None)
    whole = histogram.edges[-1] >= 1
    layers = histogram_layers(histogram, words, ticks=[0, 0.25, 0.5, 0.75, 1] if whole else None, bars=bars)
    layers += mark(1 / classes, "even split", theme.SOFT, [2, 3], 12, width=1.5)
    return theme.stacked(layers, WIDTH, gamma_by_depth.HEIGHT, title=heading(title))


def _ticks(top: float, unit: float) -> list[float]:
    """Densities up to `top` at which a `unit` of the axis holds a round part of the initializations."""
    step = next(s for k in range(-6, 9) for s in (10.0**k, 2 * 10.0**k, 5 * 10.0**k) if top * unit / s <= 6)
    return [k * step / unit for k in range(int(top * unit / step) + 1)]


def mark(
    at: float,
    text: str,
    ink: str,
    dash: list[int],
    height: int,
    *,
    width: float = 2,
    beside: float | None = None,
    left: bool | None = None,
) -> list[alt.Chart]:
    """A line at this fraction, with its name `beside` it, `height` pixels below the top; `left` of it, or right."""
    row = {"from": at, "beside": at if beside is None else beside, "text": text}
    base = alt.Chart(theme.data([row])).encode(x="from:Q")
    word = base.encode(x="beside:Q", text="text:N", y=alt.value(height))
    near = at < LATE if left is None else not left
    return [
        base.mark_rule(color=ink, strokeDash=dash, strokeWidth=width),
        *theme.halo(word, align="left" if near else "right", dx=7 if near else -7, color=ink),
    ]


def _bars(histogram: Histogram, x: alt.X, y: alt.Y, name: str) -> alt.Chart:
    edges, heights = histogram.edges, histogram.heights
    rows = [
        {
            "from": float(edges[i]),
            "to": float(edges[i + 1]),
            "density": float(heights["measured"][i]),
            "zero": 0.0,
            "part": float(heights["measured"][i] * (edges[i + 1] - edges[i])),
            **{law: float(heights[law][i]) for law in histogram.laws},
            **{f"{law} part": float(heights[law][i] * (edges[i + 1] - edges[i])) for law in histogram.laws},
        }
        for i in range(len(edges) - 1)
    ]
    tooltip = [
        alt.Tooltip("from:Q", title="from", format=".3f"),
        alt.Tooltip("to:Q", title="to", format=".3f"),
        alt.Tooltip("part:Q", title=f"{name}, of the initializations", format=".3~%"),
        *(alt.Tooltip(f"{law} part:Q", title=law, format=".3~%") for law in histogram.laws),
    ]
    return (
        alt.Chart(theme.data(rows))
        .mark_rect(color=BARS, stroke="white", strokeWidth=1, clip=True)
        .encode(x=x, x2="to:Q", y=y, y2="zero:Q", tooltip=tooltip)
    )


def _outline(name: str, edges: FloatArray, height: FloatArray, x: alt.X, y: alt.Y) -> alt.Chart:
    """A step for each bin, closed at both ends: a line that goes through its corners."""
    corners = [(float(edges[0]), 0.0)]
    for a, b, h in zip(edges, edges[1:], height, strict=False):
        corners += [(float(a), float(h)), (float(b), float(h))]
    corners.append((float(edges[-1]), 0.0))
    rows = [{"from": a, "density": b, "order": k, "reading": name} for k, (a, b) in enumerate(corners)]
    mark: Any = {"strokeDash": DASHES[name], "strokeJoin": "miter", "strokeCap": "butt", "clip": True}
    return (
        alt.Chart(theme.data(rows))
        .mark_line(color=COLOURS[name], strokeWidth=WIDTHS[name], **mark)
        .encode(x=x, y=y, order="order:Q")
    )


# -- γ by layer ----------------------------------------------------------------------------------------------------


def measured_layers(measurement: Measurement | None, lengths: set[int]) -> list[LayerMeasurement]:
    """The layers with weights whose γ is known; only the output where predictions have another number of layers."""
    if measurement is None:
        return []
    layers = list(measurement.weights_layers)
    if lengths and lengths != {len(layers)}:
        layers = layers[-1:]
    return [layer for layer in layers if math.isfinite(layer.gamma)]


def gamma_panel(
    gammas: Mapping[str, Sequence[float]], measured: Sequence[LayerMeasurement], *, points: int | None = None
) -> alt.LayerChart:
    """Predicted γ as lines, measured γ with 95 % intervals.

    With `points`, the difference that `fg.compare` allows on so many data, (1 + γ)/n, is a pale bar about each γ.
    """
    last = max([len(measured), *(len(g) for g in gammas.values())])
    theory = [g for values in gammas.values() for g in values if not math.isnan(g)]
    sure = [layer.gamma for layer in measured if layer.low > 0]
    noise = [v for m in measured for v in (m.gamma, m.low, m.high)]
    scale = GammaScale.of([*(g for g in theory if g >= 0), *sure], noise=[*noise, *theory])
    x, y = gamma_by_depth.layer_axis(last, last), scale.axis()
    layers = gamma_by_depth.bands(scale)
    if points is not None:
        layers += [bar for name, g in gammas.items() for bar in _rooms(g, COLOURS[name], points, scale, x, y)]
    for name, values in reversed(list(gammas.items())):  # dashes over solid lines, as in the law
        layers += gamma_by_depth.curve(values, name, COLOURS[name], DASHES[name], scale, x, y)
    if measured:
        layers += _intervals(measured, last - len(measured), x, y)
    seen = [Entry("measured, 95 % intervals", MEASURED, shape="circle")] if measured else []
    rooms = [Entry("allowed", _PALE, shape="square")] if points is not None else []
    layers += key([*_lines(list(gammas)), *rooms, *seen])
    title = heading("The drift ratio by layer")
    return theme.stacked(layers, gamma_by_depth.WIDTH - 60, gamma_by_depth.HEIGHT, title=title)


def _rooms(gammas: Sequence[float], colour: str, points: int, scale: GammaScale, x: alt.X, y: alt.Y) -> list[alt.Chart]:
    rows = [
        {"layer": k, "position": max(g - (1 + g) / points, scale.low), "room": min(g + (1 + g) / points, scale.top)}
        for k, g in enumerate(gammas, start=1)
        if math.isfinite(g)
    ]
    base = alt.Chart(theme.data(rows)).mark_rule(color=colour, strokeWidth=14, opacity=0.3)
    return [base.encode(x=x, y=y, y2="room:Q")]


def _intervals(measured: Sequence[LayerMeasurement], offset: int, x: alt.X, y: alt.Y) -> list[alt.Chart]:
    rows = [
        {
            "layer": offset + k,
            "position": layer.gamma,
            "low": layer.low if math.isfinite(layer.low) else layer.gamma,
            "high": layer.high if math.isfinite(layer.high) else layer.gamma,
            "name": layer.name,
            "gamma_se": layer.gamma_se if math.isfinite(layer.gamma_se) else None,
        }
        for k, layer in enumerate(measured, start=1)
    ]
    tooltip = [
        alt.Tooltip("name:N", title="layer"),
        alt.Tooltip("position:Q", title="measured γ", format=".4~g"),
        alt.Tooltip("low:Q", title="95 % from", format=".4~g"),
        alt.Tooltip("high:Q", title="95 % to", format=".4~g"),
    ]
    base = alt.Chart(theme.data(rows)).encode(x=x, y=y, tooltip=tooltip)
    return [
        alt.Chart(theme.data(rows)).mark_rule(color=MEASURED, strokeWidth=2).encode(x=x, y="low:Q", y2="high:Q"),
        *(
            base.mark_tick(color=MEASURED, thickness=2, width=9, orient="horizontal").encode(y=f"{end}:Q")
            for end in ("low", "high")
        ),
        base.mark_point(filled=True, color=MEASURED, size=64, opacity=1, stroke="white", strokeWidth=1),
    ]


# -- Words ---------------------------------------------------------------------------------------------------------


def heading(text: str) -> alt.TitleParams:
    """The title of a panel."""
    return alt.TitleParams(text, fontSize=17, fontWeight="normal", frame="group", offset=14)


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
    longest = max((theme.text_width(name, 15) for name in names), default=0.0)
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
    nothing = alt.Chart(theme.data([{"name": name} for name in names])).mark_point(size=0, opacity=1)
    return [nothing.encode(x=alt.value(0), y=alt.value(0), **shown)]


def key_above(entries: Sequence[Entry], *, width: float = 900) -> alt.LayerChart:
    """The legend of several panels, to stand above them."""
    return theme.stacked(key(entries, width=width), 1, 1)


def _lines(names: Sequence[str]) -> list[Entry]:
    return [Entry(name, COLOURS[name], DASHES[name]) for name in names]


def data_name(measurement: Measurement) -> str:
    """What was measured on, where that is known."""
    data: Any = measurement.provenance.get("data", {})
    return str(data.get("name", "")) if isinstance(data, dict) else str(data)
