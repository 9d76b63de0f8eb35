"""Prediction against measurement: the distribution of class shares, and γ by layer with error bars."""

from __future__ import annotations

import math
from typing import Any

import altair as alt

from firstguess.diagnosis.comparison import check_pair, predicted_law
from firstguess.ensemble.measurement import Measurement
from firstguess.show.charts import parts, theme
from firstguess.theory.prediction import Prediction
from firstguess.theory.shares.base import ClassShares


def compare_chart(prediction: Prediction, measurement: Measurement, *, title: str | None = None) -> theme.Chart:
    """What was predicted beside what was measured: class shares at the left, γ by layer at the right.

    Left: the measured histogram of all class shares, and the predicted probability of the same bins for as many data
    points, theory.md (7). Right: predicted γ with the difference that `fg.compare` allows on so many points, and
    measured γ with 95 % intervals; only the output's where the two do not have the same number of layers with weights,
    and no right half where no such layer was probed.
    """
    check_pair(prediction, measurement, "compare_chart")
    law = predicted_law(prediction, measurement.points)
    chart: Any = parts.law_panel({"predicted": law}, measurement.guesses)
    theory = prediction.gamma.tolist()
    measured = parts.measured_layers(measurement, {len(theory)})
    if measured:
        chart = alt.hconcat(
            chart, parts.gamma_panel({"predicted": theory}, measured, points=measurement.points), spacing=48
        )
    lines = _subtitle(prediction, measurement, rooms=bool(measured))
    return theme.house(chart, title or _title(law, measurement), lines, wide=bool(measured))


def _title(law: ClassShares, measurement: Measurement) -> str:
    seen, error = measurement.guesses.expected_max(), measurement.guesses.standard_error("expected_max")
    known = math.isfinite(error) and error > 0
    digits = min(4, max(1, math.ceil(-math.log10(100 * error)))) if known else 1
    room = f" ± {100 * error:.{digits}f}" if known else ""
    predicted = f"The largest class gets {100 * law.expected_max():.{digits}f} % of the data by prediction"
    return f"{predicted}, {100 * seen:.{digits}f}{room} % by measurement"


def _subtitle(prediction: Prediction, measurement: Measurement, *, rooms: bool) -> list[str]:
    inits, points = theme.spaced(measurement.inits), theme.spaced(measurement.points)
    words = f"Allowed: a difference of up to (1 + γ)/{points}, as these points have a mean of their own."
    return [
        f"Average over {inits} initializations ± one standard error; {theme.count(measurement.classes)} "
        f"classes, {points} data points. Prediction: {prediction.reading}, assumes "
        f"{', '.join(prediction.assumptions) or 'nothing else'}.",
        f"Network: {prediction.network}",
        *([words] * rooms),
        *(f"Note: {finding.kind}" for finding in measurement.findings[:2]),
    ]
