"""Prediction against measurement: the law of the guesses, and γ by layer with error bars."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

import altair as alt

from firstguess.comparison import predicted_law
from firstguess.empirical import EmpiricalGuesses
from firstguess.ensemble.measurement import LayerMeasurement, Measurement
from firstguess.errors import InvalidInput
from firstguess.figures import gamma_by_depth, theme
from firstguess.figures.gamma_by_depth import GammaScale
from firstguess.guesses import Guesses
from firstguess.prediction import Prediction

_WIDTH = 520
_PREDICTED, _MEASURED = theme.PALETTE[1], theme.PALETTE[0]
_BARS = "#9CC7E3"  # the measured blue, lighter


def compare_chart(prediction: Prediction, measurement: Measurement, *, title: str | None = None) -> theme.Chart:
    """What was predicted beside what was measured: guess fractions at the left, γ by layer at the right.

    Left: the measured histogram of all guess fractions, and the predicted probability of the same bins for as many data
    points, theory.md (7). Right: predicted γ, and measured γ with 95 % intervals; only the output's where the two do
    not have the same number of layers with weights, and no right half where no such layer was probed.
    """
    _check(prediction, measurement)
    seen = measurement.guesses
    law = predicted_law(prediction, seen.points)
    chart: Any = _fractions(law, measurement)
    theory, measured = _layers(prediction, measurement)
    if measured:
        chart = alt.hconcat(chart, _gammas(theory, measured), spacing=48)
    lines = _subtitle(prediction, measurement)
    return theme.house(chart, title or _title(law, measurement), lines, wide=bool(measured))


def _check(prediction: Prediction, measurement: Measurement) -> None:
    given = cast("tuple[object, object]", (prediction, measurement))
    if not isinstance(given[0], Prediction) or not isinstance(given[1], Measurement):
        raise InvalidInput(
            "a Prediction and a Measurement",
            got=f"{type(prediction).__name__} and {type(measurement).__name__}",
            where="compare_chart",
            hint="compare_chart(fg.predict(net), fg.measure(net, x))",
        )
    if prediction.guesses.classes != measurement.classes:
        raise InvalidInput(
            f"a measurement with {prediction.guesses.classes} classes, like the prediction",
            got=f"{measurement.classes} classes",
            where="compare_chart",
            hint=f"fg.predict(…, classes={measurement.classes})",
        )


def _layers(prediction: Prediction, measurement: Measurement) -> tuple[list[float], list[LayerMeasurement]]:
    theory, measured = prediction.gamma.tolist(), list(measurement.weights_layers)
    if len(theory) != len(measured):
        measured = measured[-1:]
    return theory, [layer for layer in measured if math.isfinite(layer.gamma)]


def _fractions(law: Guesses | EmpiricalGuesses, measurement: Measurement) -> alt.LayerChart:
    edges, density = measurement.guesses.histogram()
    below = law.cdf(edges)
    rows = [
        {
            "from": float(low),
            "to": float(high),
            "measured": float(share),
            "predicted": float((b - a) / (high - low)),
            "zero": 0.0,
        }
        for low, high, share, a, b in zip(edges, edges[1:], density, below, below[1:], strict=False)
    ]
    # A step for each bin, closed at both ends: a line that goes through its corners.
    corners = [
        {"fraction": x, "density": y, "order": k}
        for k, (x, y) in enumerate(
            [
                (rows[0]["from"], 0.0),
                *((row[end], row["predicted"]) for row in rows for end in ("from", "to")),
                (rows[-1]["to"], 0.0),
            ]
        )
    ]
    top = 1.06 * max(max(row["measured"], row["predicted"]) for row in rows)
    x = alt.X(
        "from:Q",
        title="Fraction of the data guessed to be of one class",
        scale=alt.Scale(domain=[float(edges[0]), float(edges[-1])], nice=False),
        axis=alt.Axis(labelExpr=theme.PERCENT, values=[0, 0.25, 0.5, 0.75, 1], labelFlush=False),
    )
    y = alt.Y(
        "measured:Q",
        title="Probability density",
        scale=alt.Scale(domain=[0, top], nice=False),
        axis=alt.Axis(tickCount=5),
    )
    tooltip = [
        alt.Tooltip("from:Q", title="from", format=".3f"),
        alt.Tooltip("to:Q", title="to", format=".3f"),
        alt.Tooltip("measured:Q", title="measured density", format=".4~g"),
        alt.Tooltip("predicted:Q", title="predicted density", format=".4~g"),
    ]
    bars = (
        alt.Chart(theme.data(rows))
        .mark_rect(color=_BARS, stroke="white", strokeWidth=1)
        .encode(x=x, x2="to:Q", y=y, y2="zero:Q", tooltip=tooltip)
    )
    steps = (
        alt.Chart(theme.data(corners))
        .mark_line(color=_PREDICTED, strokeWidth=2.5, strokeJoin="miter")
        .encode(x="fraction:Q", y="density:Q", order="order:Q")
    )
    layers = [bars, steps, *_key("square", _BARS, "measured")]
    heading = _heading("The law of the guess fractions")
    return theme.stacked(layers, _WIDTH, gamma_by_depth.HEIGHT, title=heading)


def _heading(text: str) -> alt.TitleParams:
    return alt.TitleParams(text, fontSize=17, fontWeight="normal", frame="group", offset=14)


def _key(shape: str, colour: str, measured: str) -> list[alt.Chart]:
    """Which mark is which, above the figure."""
    top = alt.value(-18)

    def word(text: str, at: float) -> alt.Chart:
        base = alt.Chart(theme.data([{"text": text}])).mark_text(align="left", fontSize=15)
        return base.encode(x=alt.value(at), y=top, text="text:N")

    nothing = alt.Chart(theme.data([{}])).encode(y=top)
    second = 74.0 + 7.6 * len(measured)
    mark: Any = {"shape": shape, "filled": True, "size": 130, "opacity": 1}
    return [
        nothing.mark_point(**mark, color=colour).encode(x=alt.value(8)),
        word(measured, 22),
        nothing.mark_rule(color=_PREDICTED, strokeWidth=3).encode(x=alt.value(second - 30), x2=alt.value(second - 8)),
        word("predicted", second),
    ]


def _gammas(theory: Sequence[float], measured: Sequence[LayerMeasurement]) -> alt.LayerChart:
    last = len(theory)
    offset = last - len(measured)
    sure = [layer.gamma for layer in measured if layer.low > 0]
    scale = GammaScale.of([*theory, *sure], noise=[v for m in measured for v in (m.gamma, m.low, m.high)])
    x, y = gamma_by_depth.layer_axis(last, last), scale.axis()
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
    ticks = [base.mark_tick(color=_MEASURED, thickness=2, width=9, orient="horizontal").encode(y=f"{end}:Q")
             for end in ("low", "high")]  # fmt: skip
    layers = [
        *gamma_by_depth.bands(scale),
        *gamma_by_depth.curve(theory, "predicted", _PREDICTED, [1, 0], scale, x, y),
        alt.Chart(theme.data(rows)).mark_rule(color=_MEASURED, strokeWidth=2).encode(x=x, y="low:Q", y2="high:Q"),
        *ticks,
        base.mark_point(filled=True, color=_MEASURED, size=64, opacity=1, stroke="white", strokeWidth=1),
        *_key("circle", _MEASURED, "measured, 95 % intervals"),
    ]
    heading = _heading("The drift ratio by layer")
    return theme.stacked(layers, gamma_by_depth.WIDTH - 60, gamma_by_depth.HEIGHT, title=heading)


def _title(law: Guesses | EmpiricalGuesses, measurement: Measurement) -> str:
    seen, error = measurement.guesses.expected_max(), measurement.guesses.standard_error("expected_max")
    known = math.isfinite(error) and error > 0
    digits = min(4, max(1, math.ceil(-math.log10(100 * error)))) if known else 1
    room = f" ± {100 * error:.{digits}f}" if known else ""
    predicted = f"The favoured class gets {100 * law.expected_max():.{digits}f} % of the data by prediction"
    return f"{predicted}, {100 * seen:.{digits}f}{room} % by measurement"


def _subtitle(prediction: Prediction, measurement: Measurement) -> list[str]:
    return [
        f"Average over {measurement.inits:,} initializations ± one standard error; {theme.count(measurement.classes)} "
        f"classes, {measurement.points:,} data points. Prediction: {prediction.reading}, assumes "
        f"{', '.join(prediction.assumptions) or 'nothing else'}.",
        f"Network: {prediction.network}",
        *(f"Note: {finding.kind}" for finding in measurement.findings[:2]),
    ]
