"""Closed form, kernel and ensemble side by side: the law of the guesses, and γ by layer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

import altair as alt
import numpy as np
import numpy.typing as npt

from firstguess.empirical import EmpiricalGuesses
from firstguess.ensemble.measurement import LayerMeasurement, Measurement
from firstguess.errors import InvalidInput
from firstguess.figures import gamma_by_depth, theme
from firstguess.figures.gamma_by_depth import GammaScale
from firstguess.guesses import Guesses
from firstguess.prediction import Prediction

_WIDTH = 520
_COLOURS = {"closed form": theme.PALETTE[1], "kernel": theme.PALETTE[2], "measured": theme.PALETTE[0]}
_DASHES = {"closed form": [7, 4], "kernel": [1, 0]}
_BARS = "#9CC7E3"  # the measured blue, lighter
_CHARACTER = 7.6  # pixels of 15 points' type, on average
_HIGHEST = 6.0  # a bin may be this many times higher than the flat law's before its top is cut off


def readings_chart(
    closed_form: Prediction | None,
    kernel: Prediction | None = None,
    measurement: Measurement | None = None,
    *,
    title: str | None = None,
) -> theme.Chart:
    """The readings of one network on one data set; any may be left out, but not all.

    Left: the law of a class's guess fraction, all readings in the same bins; the measured one is filled. Right: γ of
    the pre-activations by layer, measured with 95 % intervals (only the output's where it has other layers).
    """
    predictions = _check(closed_form, kernel, measurement)
    points = measurement.points if measurement is not None else _points(predictions)
    laws = {name: _law(p, points) for name, p in predictions.items()}
    chart: Any = _fractions(laws, measurement)
    measured = _measured(predictions, measurement)
    if predictions or measured:
        gammas = {name: p.gamma.tolist() for name, p in predictions.items()}
        chart = alt.hconcat(chart, _gammas(gammas, measured), spacing=48)
    lines = _subtitle(predictions, measurement, points)
    return theme.house(chart, title or _title(laws, measurement), lines, wide=True)


def _check(
    closed_form: Prediction | None, kernel: Prediction | None, measurement: Measurement | None
) -> dict[str, Prediction]:
    given: dict[str, object] = {"closed form": closed_form, "kernel": kernel}
    for name, one in given.items():
        if one is not None and (not isinstance(one, Prediction) or one.reading != name):
            got = f"a {one.reading} prediction" if isinstance(one, Prediction) else type(one).__name__
            raise InvalidInput(
                f"a {name} prediction, or None",
                got=got,
                where="readings_chart",
                hint="readings_chart(fg.predict(net), fg.predict(net, data=x), fg.measure(net, x))",
            )
    last = cast("object", measurement)
    if last is not None and not isinstance(last, Measurement):
        raise InvalidInput(
            "a Measurement, or None", got=type(last).__name__, where="readings_chart", hint="fg.measure(net, x)"
        )
    found = {name: one for name, one in given.items() if isinstance(one, Prediction)}
    classes = {p.guesses.classes for p in found.values()} | ({measurement.classes} if measurement else set[int]())
    if len(classes) != 1:
        raise InvalidInput(
            "at least one reading, all with the same number of classes",
            got="none" if not classes else f"{' and '.join(map(str, sorted(classes)))} classes",
            where="readings_chart",
            hint="fg.predict(net, classes=…)",
        )
    return found


def _points(predictions: dict[str, Prediction]) -> int | None:
    if "kernel" in predictions:
        return predictions["kernel"].guesses.points
    return predictions["closed form"].guesses.points


def _law(prediction: Prediction, points: int | None) -> Guesses | EmpiricalGuesses:
    """The closed form's law for as many data points as the others have."""
    law = prediction.guesses
    return Guesses(law.gamma, law.classes, points) if isinstance(law, Guesses) else law


# -- The law of the guesses ----------------------------------------------------------------------------------------


def _fractions(laws: dict[str, Guesses | EmpiricalGuesses], measurement: Measurement | None) -> alt.LayerChart:
    edges = _edges(laws, measurement)
    widths = np.diff(edges)
    heights = {name: _shares(law, edges) / widths for name, law in laws.items()}
    if measurement is not None:
        heights["measured"] = _shares(measurement.guesses, edges) / widths
    tallest = max(float(h.max()) for h in heights.values())
    span = float(edges[-1] - edges[0])
    # A law that is all in one bin would flatten the others: its top is cut off where it says nothing more.
    second = sorted(float(h.max()) for h in heights.values())[-2] if len(heights) > 1 else tallest
    top = 1.06 * min(tallest, max(1.5 * second, _HIGHEST / span))
    x = alt.X(
        "from:Q",
        title="Fraction of the data guessed to be of one class",
        scale=alt.Scale(domain=[float(edges[0]), float(edges[-1])], nice=False),
        axis=alt.Axis(labelExpr=theme.PERCENT, values=[0, 0.25, 0.5, 0.75, 1], labelFlush=False),
    )
    y = alt.Y(
        "density:Q",
        title="Probability density",
        scale=alt.Scale(domain=[0, top], nice=False),
        axis=alt.Axis(tickCount=5),
    )
    layers: list[alt.Chart] = []
    if "measured" in heights:
        layers.append(_bars(edges, heights["measured"], x, y))
    layers += [_outline(name, edges, heights[name], x, y) for name in laws]
    layers += _key([*laws, *(["measured"] if measurement is not None else [])], square=True)
    title = "The law of the guess fractions"
    if tallest > top:
        title += f" (the {max(heights, key=lambda name: float(heights[name].max()))} goes on above)"
    return theme.stacked(layers, _WIDTH, gamma_by_depth.HEIGHT, title=_heading(title))


def _edges(laws: dict[str, Guesses | EmpiricalGuesses], measurement: Measurement | None) -> npt.NDArray[np.float64]:
    """Edges half a count beside a count: those of the measured histogram, or else some forty bins."""
    if measurement is not None:
        return measurement.guesses.histogram()[0]
    points = next(iter(laws.values())).points
    bins = 40 if points is None else min(40, points + 1)
    if points is None:
        return np.linspace(0.0, 1.0, bins + 1)
    return (np.round(np.linspace(0, points + 1, bins + 1)) - 0.5) / points


def _shares(law: Guesses | EmpiricalGuesses, edges: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Probabilities of the bins; the first and the last take all that is beyond them."""
    inner = np.asarray(law.cdf(edges[1:-1]))
    return np.diff(np.concatenate([[0.0], inner, [1.0]]))


def _bars(edges: npt.NDArray[np.float64], height: npt.NDArray[np.float64], x: alt.X, y: alt.Y) -> alt.Chart:
    rows = [
        {"from": float(a), "to": float(b), "density": float(h), "zero": 0.0}
        for a, b, h in zip(edges, edges[1:], height, strict=False)
    ]
    tooltip = [
        alt.Tooltip("from:Q", title="from", format=".3f"),
        alt.Tooltip("to:Q", title="to", format=".3f"),
        alt.Tooltip("density:Q", title="measured density", format=".4~g"),
    ]
    return (
        alt.Chart(theme.data(rows))
        .mark_rect(color=_BARS, stroke="white", strokeWidth=1, clip=True)
        .encode(x=x, x2="to:Q", y=y, y2="zero:Q", tooltip=tooltip)
    )


def _outline(
    name: str, edges: npt.NDArray[np.float64], height: npt.NDArray[np.float64], x: alt.X, y: alt.Y
) -> alt.Chart:
    """A step for each bin, closed at both ends: a line that goes through its corners."""
    corners = [(float(edges[0]), 0.0)]
    for a, b, h in zip(edges, edges[1:], height, strict=False):
        corners += [(float(a), float(h)), (float(b), float(h))]
    corners.append((float(edges[-1]), 0.0))
    rows = [{"from": a, "density": b, "order": k, "reading": name} for k, (a, b) in enumerate(corners)]
    mark: Any = {"strokeDash": _DASHES[name], "strokeJoin": "miter", "clip": True}
    return (
        alt.Chart(theme.data(rows))
        .mark_line(color=_COLOURS[name], strokeWidth=2.5, **mark)
        .encode(x=x, y=y, order="order:Q")
    )


# -- γ by layer ----------------------------------------------------------------------------------------------------


def _measured(predictions: dict[str, Prediction], measurement: Measurement | None) -> list[LayerMeasurement]:
    if measurement is None:
        return []
    layers = list(measurement.weights_layers)
    lengths = {p.gamma.size for p in predictions.values()}
    if lengths and lengths != {len(layers)}:
        layers = layers[-1:]
    return [layer for layer in layers if math.isfinite(layer.gamma)]


def _gammas(gammas: dict[str, list[float]], measured: Sequence[LayerMeasurement]) -> alt.LayerChart:
    last = max([len(measured), *(len(g) for g in gammas.values())])
    theory = [g for values in gammas.values() for g in values if not math.isnan(g)]
    sure = [layer.gamma for layer in measured if layer.low > 0]
    noise = [v for m in measured for v in (m.gamma, m.low, m.high)]
    scale = GammaScale.of([*(g for g in theory if g >= 0), *sure], noise=[*noise, *theory])
    x, y = gamma_by_depth.layer_axis(last, last), scale.axis()
    layers = gamma_by_depth.bands(scale)
    for name, values in gammas.items():
        layers += gamma_by_depth.curve(values, name, _COLOURS[name], _DASHES[name], scale, x, y)
    offset = last - len(measured)
    rows = [
        {
            "layer": offset + k,
            "position": layer.gamma,
            "low": layer.low if math.isfinite(layer.low) else layer.gamma,
            "high": layer.high if math.isfinite(layer.high) else layer.gamma,
            "name": layer.name,
        }
        for k, layer in enumerate(measured, start=1)
    ]
    if rows:
        layers += _intervals(rows, x, y)
    names = [*gammas, *(["measured, 95 % intervals"] if rows else [])]
    heading = _heading("The drift ratio by layer")
    layers += _key(names, square=False)
    return theme.stacked(layers, gamma_by_depth.WIDTH - 60, gamma_by_depth.HEIGHT, title=heading)


def _intervals(rows: Sequence[theme.Row], x: alt.X, y: alt.Y) -> list[alt.Chart]:
    ink: Any = _COLOURS["measured"]
    tooltip = [
        alt.Tooltip("name:N", title="layer"),
        alt.Tooltip("position:Q", title="measured γ", format=".4~g"),
        alt.Tooltip("low:Q", title="95 % from", format=".4~g"),
        alt.Tooltip("high:Q", title="95 % to", format=".4~g"),
    ]
    base = alt.Chart(theme.data(rows)).encode(x=x, y=y, tooltip=tooltip)
    return [
        alt.Chart(theme.data(rows)).mark_rule(color=ink, strokeWidth=2).encode(x=x, y="low:Q", y2="high:Q"),
        *(base.mark_tick(color=ink, thickness=2, width=9, orient="horizontal").encode(y=f"{end}:Q")
          for end in ("low", "high")),
        base.mark_point(filled=True, color=ink, size=64, opacity=1, stroke="white", strokeWidth=1),
    ]  # fmt: skip


# -- Words ---------------------------------------------------------------------------------------------------------


def _heading(text: str) -> alt.TitleParams:
    return alt.TitleParams(text, fontSize=17, fontWeight="normal", frame="group", offset=14)


def _key(names: Sequence[str], *, square: bool) -> list[alt.Chart]:
    """Which mark is which, in a row above the figure."""
    top = alt.value(-18)
    layers: list[alt.Chart] = []
    at = 0.0
    for name in names:
        nothing = alt.Chart(theme.data([{}])).encode(y=top)
        if name.startswith("measured"):
            mark: Any = {"shape": "square" if square else "circle", "filled": True, "size": 130, "opacity": 1}
            colour: Any = _BARS if square else _COLOURS["measured"]
            layers.append(nothing.mark_point(**mark, color=colour).encode(x=alt.value(at + 13)))
        else:
            ink: Any = _COLOURS[name]
            layers.append(
                nothing.mark_rule(color=ink, strokeWidth=3, strokeDash=_DASHES[name]).encode(
                    x=alt.value(at), x2=alt.value(at + 24)
                )
            )
        word = alt.Chart(theme.data([{"text": name}])).mark_text(align="left", fontSize=15)
        layers.append(word.encode(x=alt.value(at + 31), y=top, text="text:N"))
        at += 31 + _CHARACTER * len(name) + 26
    return layers


def _title(laws: dict[str, Guesses | EmpiricalGuesses], measurement: Measurement | None) -> str:
    digits = 1
    parts = [f"{100 * law.expected_max():.{digits}f} % by {name}" for name, law in laws.items()]
    if measurement is not None:
        error = measurement.guesses.standard_error("expected_max")
        room = f" ± {100 * error:.{digits}f}" if math.isfinite(error) and error > 0 else ""
        parts.append(f"{100 * measurement.guesses.expected_max():.{digits}f}{room} % by measurement")
    parts[0] = parts[0].replace(" % by", " % of the data by", 1)
    return f"The favoured class gets {', '.join(parts)}"


def _subtitle(predictions: dict[str, Prediction], measurement: Measurement | None, points: int | None) -> list[str]:
    classes = [p.guesses.classes for p in predictions.values()] or [measurement.classes if measurement else 2]
    origin = predictions["kernel"].provenance if "kernel" in predictions else {}
    data = str(origin.get("data", "")) or (_data_name(measurement) if measurement is not None else "")
    amount = "infinitely many data points" if points is None else f"{points:,} data points"
    lines = [f"{theme.count(classes[0]).capitalize()} classes, {amount}{f': {data}' if data else ''}."]
    said: list[str] = []
    if "closed form" in predictions:
        said.append("closed form: i.i.d. inputs, infinitely wide")
    if "kernel" in predictions:
        law = predictions["kernel"].guesses
        drawn = f", {law.inits:,} draws" if isinstance(law, EmpiricalGuesses) else ""
        said.append(f"kernel: these data, infinitely wide{drawn}")
    if measurement is not None:
        width = measurement.provenance.get("width")
        wide = f" of width {width}" if width else ""
        said.append(f"measured: {measurement.inits:,} initializations{wide} (± one s.e.)")
    text = "; ".join(said)
    lines.append(f"{text[:1].upper()}{text[1:]}.")
    network = next((str(p.network) for p in predictions.values()), "")
    return [*lines, *([f"Network: {network}"] if network else [])]


def _data_name(measurement: Measurement) -> str:
    data: Any = measurement.provenance.get("data", {})
    return str(data.get("name", "")) if isinstance(data, dict) else str(data)
