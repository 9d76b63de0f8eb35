"""What several figures are made of: a histogram with laws over it, γ by layer with intervals, the key above them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import altair as alt
import numpy as np
import numpy.typing as npt

from firstguess.empirical import EmpiricalGuesses
from firstguess.ensemble.measurement import LayerMeasurement, Measurement
from firstguess.figures import gamma_by_depth, theme
from firstguess.figures.gamma_by_depth import GammaScale
from firstguess.guesses import Guesses

Law: TypeAlias = Guesses | EmpiricalGuesses
FloatArray: TypeAlias = npt.NDArray[np.float64]

WIDTH = 520
MEASURED = theme.PALETTE[0]
BARS = theme.PALE_BLUE  # the measured blue, lighter
COLOURS = {"closed form": theme.PALETTE[1], "kernel": theme.PALETTE[2], "predicted": theme.PALETTE[1]}
DASHES = {"closed form": [7, 4], "kernel": [1, 0], "predicted": [1, 0]}

_CHARACTER = 7.6  # pixels of 15 points' type, on average
_MOST_BINS = 40
_HIGHEST = 6.0  # a bin may be this many times higher than the flat law's before its top is cut off


# -- The law of the guesses ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Histogram:
    """Bins, the measured density in each, and that of every law by its name."""

    edges: FloatArray
    measured: FloatArray | None
    laws: Mapping[str, FloatArray] = field(default_factory=dict)

    @property
    def heights(self) -> dict[str, FloatArray]:
        """All densities by name."""
        return {**self.laws, **({} if self.measured is None else {"measured": self.measured})}

    @property
    def top(self) -> float:
        """Where the axis ends. A law that is all in one bin would flatten the others: its top is cut off."""
        peaks = sorted(float(h.max()) for h in self.heights.values())
        second = peaks[-2] if len(peaks) > 1 else peaks[-1]
        flat = 1.0 / float(self.edges[-1] - self.edges[0])
        return 1.06 * min(peaks[-1], max(1.5 * second, _HIGHEST * flat))

    @property
    def cut(self) -> str:
        """The name of what goes on above the axis, or nothing."""
        heights = self.heights
        tallest = max(heights, key=lambda name: float(heights[name].max()))
        return tallest if float(heights[tallest].max()) > self.top else ""


def pooled(laws: Mapping[str, Law], measured: EmpiricalGuesses | None) -> Histogram:
    """The law of a class's fraction, all classes together."""
    if measured is not None:
        edges = measured.histogram()[0]
    else:  # half a count beside a count, or else some forty bins
        points = next(iter(laws.values())).points
        bins = 40 if points is None else min(40, points + 1)
        counts = np.linspace(0.0, 1.0, bins + 1) if points is None else np.round(np.linspace(0, points + 1, bins + 1))
        edges = counts if points is None else (counts - 0.5) / points
    seen = None if measured is None else _density(measured.cdf(edges[1:-1]), edges)
    return Histogram(edges, seen, {name: _density(law.cdf(edges[1:-1]), edges) for name, law in laws.items()})


def of_one_class(laws: Mapping[str, Law], measured: EmpiricalGuesses) -> Histogram:
    """The law of the first class's fraction G₀."""
    edges = measured.histogram()[0]
    seen = np.histogram(measured.fractions[:, 0], edges)[0] / measured.inits / np.diff(edges)
    return Histogram(edges, seen, {name: _density(law.cdf(edges[1:-1]), edges) for name, law in laws.items()})


def of_largest(laws: Mapping[str, Law], measured: EmpiricalGuesses) -> Histogram:
    """The law of the largest fraction, from 0 to 1 or to where all laws have ended.

    Bins are runs of counts, as fine as the measured fractions allow; `prob_max_above` is what a law knows of max_c G_c.
    """
    points, seen = measured.points, np.round(measured.largest * measured.points)
    ends = [t for t in (0.05, 0.1, 0.2, 0.4, 0.6, 0.8) if seen.max() / points < t]
    end = next((t for t in ends if all(law.prob_max_above(t) < 1e-3 for law in laws.values())), 1.0)
    last = math.ceil(end * points)
    step = max(1.0, (seen.max() - seen.min()) / (2 * measured.inits ** (1 / 3)), last / _MOST_BINS)
    edges = (np.round(np.linspace(0, last + 1, math.ceil((last + 1) / step) + 1)) - 0.5) / points
    counts = np.histogram(seen / points, edges)[0] / measured.inits / np.diff(edges)
    inner = np.clip(edges[1:-1], 0.0, 1.0)
    return Histogram(
        edges, counts, {name: _density(1 - law.prob_max_above(inner), edges) for name, law in laws.items()}
    )


def _density(inner: FloatArray, edges: FloatArray) -> FloatArray:
    """Of bins whose first and last take all that is beyond them; `inner`: the cdf at the edges between bins."""
    return np.diff(np.concatenate([[0.0], np.asarray(inner), [1.0]])) / np.diff(edges)


def histogram_layers(histogram: Histogram, x_title: str, *, ticks: Sequence[float] | None = None) -> list[alt.Chart]:
    """Measured bars, laws as outlines over them, and the key."""
    edges = histogram.edges
    marks: Any = {"tickCount": 6} if ticks is None else {"values": list(ticks)}
    x = alt.X(
        "from:Q",
        title=x_title,
        scale=alt.Scale(domain=[float(edges[0]), float(edges[-1])], nice=False),
        axis=alt.Axis(labelExpr=theme.PERCENT, labelFlush=False, **marks),
    )
    y = alt.Y(
        "density:Q",
        title="Probability density",
        scale=alt.Scale(domain=[0, histogram.top], nice=False),
        axis=alt.Axis(tickCount=5),
    )
    layers: list[alt.Chart] = []
    if histogram.measured is not None:
        layers.append(_bars(histogram, x, y))
    layers += [_outline(name, edges, height, x, y) for name, height in histogram.laws.items()]
    seen = [Entry("measured", BARS, shape="square")] if histogram.measured is not None else []
    return [*layers, *key([*_lines(list(histogram.laws)), *seen])]


def law_panel(laws: Mapping[str, Law], measured: EmpiricalGuesses | None) -> alt.LayerChart:
    """The law of the guess fractions, all classes together."""
    histogram = pooled(laws, measured)
    words = "Fraction of the data guessed to be of one class"
    title = "The law of the guess fractions"
    if histogram.cut:
        title += f" (the {histogram.cut} goes on above)"
    layers = histogram_layers(histogram, words, ticks=[0, 0.25, 0.5, 0.75, 1])
    return theme.stacked(layers, WIDTH, gamma_by_depth.HEIGHT, title=heading(title))


def _bars(histogram: Histogram, x: alt.X, y: alt.Y) -> alt.Chart:
    edges, heights = histogram.edges, histogram.heights
    rows = [
        {
            "from": float(edges[i]),
            "to": float(edges[i + 1]),
            "density": float(heights["measured"][i]),
            "zero": 0.0,
            **{name: float(height[i]) for name, height in heights.items()},
        }
        for i in range(len(edges) - 1)
    ]
    tooltip = [
        alt.Tooltip("from:Q", title="from", format=".3f"),
        alt.Tooltip("to:Q", title="to", format=".3f"),
        *(alt.Tooltip(f"{name}:Q", title=f"{name} density", format=".4~g") for name in ["measured", *histogram.laws]),
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
    mark: Any = {"strokeDash": DASHES[name], "strokeJoin": "miter", "clip": True}
    return (
        alt.Chart(theme.data(rows))
        .mark_line(color=COLOURS[name], strokeWidth=2.5, **mark)
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


def gamma_panel(gammas: Mapping[str, Sequence[float]], measured: Sequence[LayerMeasurement]) -> alt.LayerChart:
    """Predicted γ as lines, measured γ with 95 % intervals."""
    last = max([len(measured), *(len(g) for g in gammas.values())])
    theory = [g for values in gammas.values() for g in values if not math.isnan(g)]
    sure = [layer.gamma for layer in measured if layer.low > 0]
    noise = [v for m in measured for v in (m.gamma, m.low, m.high)]
    scale = GammaScale.of([*(g for g in theory if g >= 0), *sure], noise=[*noise, *theory])
    x, y = gamma_by_depth.layer_axis(last, last), scale.axis()
    layers = gamma_by_depth.bands(scale)
    for name, values in gammas.items():
        layers += gamma_by_depth.curve(values, name, COLOURS[name], DASHES[name], scale, x, y)
    if measured:
        layers += _intervals(measured, last - len(measured), x, y)
    seen = [Entry("measured, 95 % intervals", MEASURED, shape="circle")] if measured else []
    layers += key([*_lines(list(gammas)), *seen])
    title = heading("The drift ratio by layer")
    return theme.stacked(layers, gamma_by_depth.WIDTH - 60, gamma_by_depth.HEIGHT, title=title)


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
    """A line of this dash, or a mark of this shape (filled, or hollow), and its name."""

    name: str
    colour: str
    dash: Sequence[int] = (1, 0)
    shape: str = ""
    filled: bool = True


def key(entries: Sequence[Entry]) -> list[alt.Chart]:
    """Which mark is which, in a row above the figure."""
    top = alt.value(-18)
    layers: list[alt.Chart] = []
    at = 0.0
    for entry in entries:
        nothing = alt.Chart(theme.data([{}])).encode(y=top)
        ink: Any = {"color": entry.colour}
        if entry.shape:
            mark: Any = {"shape": entry.shape, "filled": entry.filled, "size": 130, "opacity": 1, "strokeWidth": 2}
            layers.append(nothing.mark_point(**mark, **ink).encode(x=alt.value(at + 13)))
        else:
            line: Any = {"strokeWidth": 3, "strokeDash": list(entry.dash)}
            layers.append(nothing.mark_rule(**line, **ink).encode(x=alt.value(at), x2=alt.value(at + 24)))
        word = alt.Chart(theme.data([{"text": entry.name}])).mark_text(align="left", fontSize=15)
        layers.append(word.encode(x=alt.value(at + 31), y=top, text="text:N"))
        at += 31 + _CHARACTER * len(entry.name) + 26
    return layers


def _lines(names: Sequence[str]) -> list[Entry]:
    return [Entry(name, COLOURS[name], DASHES[name]) for name in names]


def data_name(measurement: Measurement) -> str:
    """What was measured on, where that is known."""
    data: Any = measurement.provenance.get("data", {})
    return str(data.get("name", "")) if isinstance(data, dict) else str(data)
