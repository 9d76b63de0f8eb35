"""The measured distribution of class shares, the predicted one over it: of one of two classes, or of the largest."""

from __future__ import annotations

import math

from firstguess.diagnosis.comparison import predicted_law
from firstguess.ensemble.measurement import Measurement
from firstguess.show.charts import parts, theme
from firstguess.theory.prediction import Prediction
from firstguess.theory.shares import histograms
from firstguess.theory.shares.base import ClassShares

_WIDTH, _HEIGHT = 760, 340
_SHORT = 40  # characters of an assumption that fits below a chart
_LATE = 0.75  # from here on a line's name is on its left, as in `parts.mark`
_LETTER = 7.5  # pixels of 14 points' type, on average


def law_chart(
    measurement: Measurement, prediction: Prediction | None = None, *, title: str | None = None, narrow: bool = False
) -> theme.Chart:
    """The histogram over initializations of G₀ (two classes) or of max_c G_c (more), and the predicted law of it.

    The prediction is for as many data points as were measured, in the same bins: theory.md (7), (8). `narrow` is for
    a phone.
    """
    seen = measurement.guesses
    laws = {} if prediction is None else {"predicted": predicted_law(prediction, seen.points)}
    two = seen.classes == 2
    histogram = histograms.of_one_class(laws, seen) if two else histograms.of_largest(laws, seen)
    words = "Share of the data guessed to be of the first class" if two else "Share of the data in the largest class"
    width = theme.NARROW if narrow else _WIDTH
    layers = parts.histogram_layers(histogram, words, ticks=[0, 0.25, 0.5, 0.75, 1] if narrow else None)
    even, average = 1 / seen.classes, seen.expected_max()
    at = _beside(even, "even split", 10, histogram, width)
    layers += parts.mark(even, "even split", theme.SOFT, [2, 3], 10, beside=at)
    if not two:
        at = _beside(average, "average", 30, histogram, width)
        layers += parts.mark(average, "average", parts.MEASURED, [7, 4], 30, beside=at)
    chart = theme.stacked(layers, width, _HEIGHT)
    return theme.house(
        chart, title or theme.unbroken(_title(measurement, laws)), _subtitle(measurement, prediction, histogram)
    )


def _beside(at: float, text: str, height: int, histogram: histograms.Histogram, width: int) -> float:
    """Where a line's name begins: at the line, or past the bars that reach up to the name and would be under it."""
    edges, low, high = histogram.edges, float(histogram.edges[0]), float(histogram.edges[-1])
    wide = (_LETTER * len(text) + 7) / width * (high - low)
    reach = (1 - (height + 12) / _HEIGHT) * histogram.top
    tall = [i for i in range(len(edges) - 1) if max(float(h[i]) for h in histogram.heights.values()) > reach]
    place, left = at, at >= _LATE
    for i in reversed(tall) if left else tall:
        if left and place - wide < edges[i + 1] and edges[i] < place:
            place = float(edges[i])
        elif not left and edges[i] < place + wide and place < edges[i + 1]:
            place = float(edges[i + 1])
    return place if low <= place - wide * left and place + wide * (not left) <= high else at


def _title(measurement: Measurement, laws: dict[str, ClassShares]) -> str:
    seen, *rest = theme.percents(measurement.guesses.expected_max(), *(law.expected_max() for law in laws.values()))
    text = f"Before training, {seen} of the data end up in one class on average"
    if measurement.verdict in ("even", "leaning"):
        even = theme.percent(1 / measurement.classes)
        text = f"Before training, the largest class gets {seen} of the data on average (an even split: {even})"
    return f"{text}; theory predicts {rest[0]}" if rest else text


def _subtitle(measurement: Measurement, prediction: Prediction | None, histogram: histograms.Histogram) -> list[str]:
    seen = measurement.guesses
    error = seen.standard_error("expected_max")
    room = f" (standard error of that average: {100 * error:.2g} %)" if math.isfinite(error) and error > 0 else ""
    inits, points = theme.spaced(seen.inits), theme.spaced(seen.points)
    text = f"{inits} initializations, {theme.count(seen.classes)} classes, {points} data points{room}."
    if prediction is not None:
        short = [said for said in prediction.assumptions if len(said) <= _SHORT]  # the page has the others
        assumed = theme.assumed(short) + (", and more" if len(short) < len(prediction.assumptions) else "")
        known = "on your data" if prediction.reading == "kernel" else "for random data"
        text += f" Predicted {known}{f'; assumed: {assumed}' if assumed else ''}."
    if histogram.cut:
        text += f" The {histogram.cut} distribution goes on above the figure."
    return [text]
