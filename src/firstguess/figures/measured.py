"""Prediction against measurement: the law of the guesses, and γ by layer with error bars."""

from __future__ import annotations

import math
from typing import Any, cast

import altair as alt

from firstguess.comparison import predicted_law
from firstguess.ensemble.measurement import Measurement
from firstguess.errors import InvalidInput
from firstguess.figures import parts, theme
from firstguess.prediction import Prediction


def compare_chart(prediction: Prediction, measurement: Measurement, *, title: str | None = None) -> theme.Chart:
    """What was predicted beside what was measured: guess fractions at the left, γ by layer at the right.

    Left: the measured histogram of all guess fractions, and the predicted probability of the same bins for as many data
    points, theory.md (7). Right: predicted γ, and measured γ with 95 % intervals; only the output's where the two do
    not have the same number of layers with weights, and no right half where no such layer was probed.
    """
    _check(prediction, measurement)
    law = predicted_law(prediction, measurement.points)
    chart: Any = parts.law_panel({"predicted": law}, measurement.guesses)
    theory = prediction.gamma.tolist()
    measured = parts.measured_layers(measurement, {len(theory)})
    if measured:
        chart = alt.hconcat(chart, parts.gamma_panel({"predicted": theory}, measured), spacing=48)
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


def _title(law: parts.Law, measurement: Measurement) -> str:
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
