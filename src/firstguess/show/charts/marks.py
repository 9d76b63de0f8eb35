"""What several figures are made of: a histogram with curves over it, γ by layer with intervals, the key above them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from firstguess.ensemble.measurement import LayerMeasurement, Measurement
from firstguess.show.charts import gamma_by_depth, theme
from firstguess.show.charts.gamma_by_depth import GammaScale
from firstguess.show.charts.theme import Entry, heading, key
from firstguess.theory.shares.base import ClassShares
from firstguess.theory.shares.empirical import EmpiricalGuesses
from firstguess.theory.shares.histograms import Histogram, pooled

WIDTH = 520
LATE = 0.75  # from here on a line's name is on its left
MEASURED = theme.PALETTE[0]
COLOURS = {"closed form": theme.PALETTE[1], "kernel": theme.PALETTE[2], "predicted": theme.PALETTE[1]}
DASHES = {"closed form": [7, 4], "kernel": [1, 0], "predicted": [1, 0]}
WIDTHS = {"closed form": 2.5, "kernel": 3.5, "predicted": 2.5}  # a solid line looks out from under dashes

_PALE = "#F2CFB3"  # the prediction's orange, as faint as the bars of what is allowed


# -- The distribution of class shares ----------------------------------------------------------------------------------


def histogram_layers(
    histogram: Histogram, x_title: str, *, ticks: Sequence[float] | None = None, bars: str = "measured"
) -> list[alt.Chart]:
    """Measured bars, distributions as outlines over them, and the key."""
    edges = histogram.edges
    marks: Any = {"tickCount": 6} if ticks is None else {"values": list(ticks)}
    ends = theme.axis([float(edges[0]), float(edges[-1])], labelExpr=theme.PERCENT, labelFlush=False, **marks)
    x = alt.X("from:Q", title=x_title, **ends)
    unit = 10.0 ** round(math.log10(float(edges[-1] - edges[0]) / (len(edges) - 1)))  # bars may differ by a data point
    words = f"format({100 * unit} * datum.value, '.3~g') + ' %'"
    look = theme.axis([0, histogram.top], values=_ticks(histogram.top, unit), labelExpr=words)
    y = alt.Y("density:Q", title=f"Of the initializations, per {theme.percent(unit)} of the data", **look)
    layers: list[alt.Chart] = []
    if histogram.measured is not None:
        wide = edges[1:] - edges[:-1]
        parts = {f"{law} part": heights * wide for law, heights in histogram.laws.items()}
        more = {**histogram.laws, **parts, "part": histogram.heights["measured"] * wide}
        tips = [f"part|{bars}, of the initializations|.3~%", *(f"{law} part|{law}|.3~%" for law in histogram.laws)]
        layers.append(theme.bars(edges, histogram.heights["measured"], x, y, more, tips))
    # The first law on top: its dashes leave the solid ones below in sight where the two coincide.
    for name, height in reversed(list(histogram.laws.items())):
        layers.append(theme.outline(edges, height, x, y, COLOURS[name], DASHES[name], WIDTHS[name], reading=name))
    seen = [Entry(bars, theme.PALE_BLUE, shape="square")] if histogram.measured is not None else []
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

    With `points`, the difference that `fg.compare` allows on this many data points, (1 + γ)/n, is a pale bar about each
    γ.
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
    tooltip = theme.tooltip("name|layer", "position|measured γ|.4~g", "low|95 % from|.4~g", "high|95 % to|.4~g")
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


def _lines(names: Sequence[str]) -> list[Entry]:
    return [Entry(name, COLOURS[name], DASHES[name]) for name in names]


def data_name(measurement: Measurement) -> str:
    """What was measured on, where that is known."""
    data: Any = measurement.provenance.get("data", {})
    return str(data.get("name", "")) if isinstance(data, dict) else str(data)
