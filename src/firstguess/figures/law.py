"""The measured law of the guesses with the predicted one over it: of one of two classes, or of the largest fraction."""

from __future__ import annotations

import math

import altair as alt

from firstguess.comparison import predicted_law
from firstguess.ensemble.measurement import Measurement
from firstguess.figures import parts, theme
from firstguess.prediction import Prediction

_WIDTH, _HEIGHT = 760, 340


def law_chart(
    measurement: Measurement, prediction: Prediction | None = None, *, title: str | None = None
) -> theme.Chart:
    """The histogram over initializations of G₀ (two classes) or of max_c G_c (more), and the predicted law of it.

    The prediction is for as many data points as were measured, in the same bins: theory.md (7), (8).
    """
    seen = measurement.guesses
    laws = {} if prediction is None else {"predicted": predicted_law(prediction, seen.points)}
    two = seen.classes == 2
    histogram = parts.of_one_class(laws, seen) if two else parts.of_largest(laws, seen)
    words = (
        "Fraction of the data guessed to be of the first class" if two else "Fraction of the data in the largest class"
    )
    layers = parts.histogram_layers(histogram, words)
    layers += _mark(1 / seen.classes, "even split", theme.SOFT, [2, 3], 10)
    if not two:
        words = f"average {theme.percent(seen.expected_max())}"
        layers += _mark(seen.expected_max(), words, parts.MEASURED, [7, 4], 30)
    chart = theme.stacked(layers, _WIDTH, _HEIGHT)
    return theme.house(
        chart, title or theme.unbroken(_title(measurement, laws)), _subtitle(measurement, prediction, histogram)
    )


def _mark(at: float, text: str, ink: str, dash: list[int], height: int) -> list[alt.Chart]:
    base = alt.Chart(theme.data([{"from": at, "text": text}])).encode(x="from:Q")
    word = base.encode(text="text:N", y=alt.value(height))
    near = at < 0.75
    return [
        base.mark_rule(color=ink, strokeDash=dash, strokeWidth=2),
        *theme.halo(word, align="left" if near else "right", dx=7 if near else -7, color=ink),
    ]


def _title(measurement: Measurement, laws: dict[str, parts.Law]) -> str:
    share = theme.percent(measurement.guesses.expected_max())
    text = f"Before training, {share} of the data end up in one class on average"
    if laws:
        text += f"; theory predicts {theme.percent(laws['predicted'].expected_max())}"
    return text


def _subtitle(measurement: Measurement, prediction: Prediction | None, histogram: parts.Histogram) -> list[str]:
    seen = measurement.guesses
    error = seen.standard_error("expected_max")
    room = f" (standard error of that average: {100 * error:.2g} %)" if math.isfinite(error) and error > 0 else ""
    text = f"{seen.inits:,} initializations, {theme.count(seen.classes)} classes, {seen.points:,} data points{room}."
    if prediction is not None:
        assumed = ", ".join(prediction.assumptions)
        text += f" Prediction: {prediction.reading}{f', assumes {assumed}' if assumed else ''}."
    if histogram.cut:
        text += f" The {histogram.cut} law goes on above the figure."
    return [text]
