"""Prediction against measurement: both sides with their intervals, whatever is missing."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from charts import rows, svg_text
from diagnoses import layer

import firstguess as fg
from firstguess.base.errors import InvalidInput
from firstguess.ensemble.measurement import Measurement
from firstguess.show.charts import compare_chart, readings_chart
from firstguess.theory.shares.empirical import EmpiricalGuesses
from firstguess.theory.shares.gaussian import Guesses


def measurement(prediction: fg.Prediction, *, inits: int = 200, points: int = 100, layers: bool = True) -> Measurement:
    law = Guesses(prediction.guesses.gamma, prediction.guesses.classes, points)
    probed = tuple(layer(f"dense {i}", "Linear", float(g) + 0.01, 0.02) for i, g in enumerate(prediction.gamma))
    return Measurement(EmpiricalGuesses(law.sample(inits), points), probed if layers else ())


def test_compare_shows_both_sides_with_intervals() -> None:
    prediction = fg.predict(fg.mlp(depth=3))
    seen = measurement(prediction)
    chart = compare_chart(prediction, seen)
    data = rows(chart)
    bins = [row for row in data if "zero" in row]
    edges = np.array([*(row["from"] for row in bins), bins[-1]["to"]])
    density = np.histogram(seen.guesses.fractions, edges, density=True)[0]
    np.testing.assert_allclose([row["density"] for row in bins], density)
    law = Guesses(prediction.guesses.gamma, 2, 100)
    np.testing.assert_allclose([row["predicted"] for row in bins], np.diff(law.cdf(edges)) / np.diff(edges))
    np.testing.assert_allclose([row["part"] for row in bins], density * np.diff(edges))  # of the initializations
    assert "Of the initializations, per 1 % of the data" in json.dumps(chart.to_dict(), ensure_ascii=False)
    points = {row["layer"]: row for row in data if "gamma_se" in row}
    np.testing.assert_allclose([points[i]["position"] for i in range(1, 5)], seen.gamma)
    np.testing.assert_allclose([[points[i]["low"], points[i]["high"]] for i in range(1, 5)], seen.gamma_interval)
    text = svg_text(chart)
    for words in ("by prediction", "by measurement", "200 initializations", "The drift ratio by layer", "measured"):
        assert words in text


def test_compare_shows_what_is_allowed() -> None:
    """As `fg.compare`, which does not hold (1 + γ)/n against γ: without it γ = 0 next to 0.002 ± 0.0001 looks wrong."""
    prediction = fg.predict(fg.mlp(depth=3))
    seen = measurement(prediction)
    chart = compare_chart(prediction, seen)
    bars = sorted((row for row in rows(chart) if "room" in row), key=lambda row: row["layer"])
    allowed = [row.room for row in fg.compare(prediction, seen).layers]
    np.testing.assert_allclose([row["room"] for row in bars], prediction.gamma + allowed)
    assert "Allowed: a difference of up to (1 + γ)/100" in svg_text(chart)
    assert "llowed" not in svg_text(compare_chart(prediction, measurement(prediction, layers=False)))


@pytest.mark.parametrize(("classes", "gamma"), [(2, 0.5), (3, 2.0), (10, 0.0), (10, 3.0), (1000, 0.05)])
@pytest.mark.parametrize("inits", [40, 500])
def test_the_even_split_is_in_the_middle_of_a_bin(classes: int, gamma: float, inits: int) -> None:
    points = 5000
    seen = EmpiricalGuesses(Guesses(gamma, classes, points).sample(inits), points)
    chart = readings_chart(None, None, Measurement(seen, ()))
    bins = [row for row in rows(chart) if "zero" in row]
    (own,) = (row for row in bins if row["from"] < 1 / classes < row["to"])
    assert (own["from"] + own["to"]) / 2 == pytest.approx(1 / classes, abs=1.01 / points)  # edges are between counts
    assert own["to"] - own["from"] <= 2 / classes + 1.01 / points
    assert len(bins) <= 41
    assert sum(row["density"] * (row["to"] - row["from"]) for row in bins) == pytest.approx(1.0)
    marks = {row["from"] for row in rows(chart) if row.get("text") == "even split"}
    assert marks == {1 / classes}
    assert "even split" in svg_text(chart)


def test_compare_copes_with_missing_layers_and_unknown_numbers() -> None:
    prediction = fg.predict(fg.mlp(depth=3))
    seen = measurement(prediction, layers=False)
    assert "drift ratio by layer" not in svg_text(compare_chart(prediction, seen))
    head = layer("head", "Linear", 2.0, math.nan, low=math.nan, high=math.inf)
    some = Measurement(seen.guesses, (layer("dense", "Linear", 0.3, 0.1), head))
    (point,) = (row for row in rows(compare_chart(prediction, some)) if "gamma_se" in row)
    assert (point["layer"], point["position"], point["gamma_se"]) == (4, 2.0, None)  # only the output's
    single = measurement(prediction, inits=1)
    assert "by measurement" in svg_text(compare_chart(prediction, single))


def test_compare_refuses_swapped_and_unlike_results() -> None:
    prediction = fg.predict(fg.mlp(depth=1))
    with pytest.raises(InvalidInput, match="a Prediction and a Measurement"):
        compare_chart(measurement(prediction), prediction)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="10 classes, like the prediction"):
        compare_chart(fg.predict(fg.mlp(depth=1, classes=10)), measurement(prediction))
