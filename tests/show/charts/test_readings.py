"""Closed form, kernel and ensemble in one figure: their own numbers, in words, and any of them may be missing."""

from __future__ import annotations

import numpy as np
import pytest
from charts import rows, svg_text

import firstguess as fg
from firstguess.base.errors import InvalidInput
from firstguess.ensemble.measurement import LayerMeasurement, Measurement
from firstguess.show.charts import readings_chart
from firstguess.theory.shares.empirical import EmpiricalGuesses
from firstguess.theory.shares.gaussian import Guesses

NET = "2 x [dense(weight_var=2) > relu] > dense(weight_var=2)"


@pytest.fixture(scope="module")
def three() -> tuple[fg.Prediction, fg.Prediction, Measurement]:
    data = fg.data.load("digits:even-odd", points=80)
    kernel = fg.predict(NET, data=data, draws=600)
    layers = tuple(
        LayerMeasurement("dense", "dense", 100, True, g, 0.1, 1.0, 0.1, g, 0.1, g - 0.2, g + 0.2, 0.0, 0.5, 0.1, 0, 0)
        for g in kernel.gamma.tolist()
    )
    seen = Measurement(EmpiricalGuesses(Guesses(1.5, 2, 80).sample(200), 80), layers)
    return fg.predict(NET), kernel, seen


def test_every_reading_is_there_with_its_numbers(three: tuple[fg.Prediction, fg.Prediction, Measurement]) -> None:
    closed, kernel, seen = three
    chart = readings_chart(*three)
    drawn = rows(chart)
    bars = [row for row in drawn if "to" in row]
    edges = np.array([*(row["from"] for row in bars), bars[-1]["to"]])
    density = np.histogram(seen.guesses.fractions, edges, density=True)[0]
    np.testing.assert_allclose([row["density"] for row in bars], density)
    for name, law in (("closed form", Guesses(closed.guesses.gamma, 2, 80)), ("kernel", kernel.guesses)):
        line = sorted((row for row in drawn if row.get("reading") == name), key=lambda row: row["order"])
        heights = [row["density"] for row in line[1:-1:2]]
        np.testing.assert_allclose(np.sum(np.array(heights) * np.diff(edges)), 1.0)
        np.testing.assert_allclose(heights[3], (law.cdf(edges[4]) - law.cdf(edges[3])) / (edges[4] - edges[3]))
    curves = {row["curve"] for row in drawn if "curve" in row}
    assert curves == {"closed form", "kernel"}
    assert len([row for row in drawn if row.get("name") == "dense"]) == 3
    text = svg_text(chart)
    for words in (
        f"{100 * kernel.guesses.expected_max():.1f} % by kernel",
        "% of the data by closed form",
        "% by measurement",
        "600 draws",
        "200 initializations",
        "80 data points: digits, even vs odd, standardized (global), 80 points",
        "measured, 95 % intervals",
        "The drift ratio by layer",
    ):
        assert words in text


def test_lines_that_coincide_are_told_apart(three: tuple[fg.Prediction, fg.Prediction, Measurement]) -> None:
    """The closed form's dashes lie over the kernel's solid line, which would hide them."""
    spec = readings_chart(*three).to_dict()
    for panel in spec["hconcat"]:
        lines = [one for one in panel["layer"] if one["mark"]["type"] == "line"]
        solid = [one["mark"]["strokeDash"] == [1, 0] for one in lines]
        assert solid == [True, False]


def test_any_reading_may_be_missing(three: tuple[fg.Prediction, fg.Prediction, Measurement]) -> None:
    closed, kernel, seen = three
    assert "by measurement" not in svg_text(readings_chart(closed, kernel))
    assert "closed form" not in svg_text(readings_chart(None, kernel, seen))
    assert "kernel" not in svg_text(readings_chart(closed, None, seen))
    assert "by measurement" in svg_text(readings_chart(None, None, seen))
    assert "infinitely many data points" in svg_text(readings_chart(closed))
    assert "My title" in svg_text(readings_chart(closed, kernel, title="My title"))


def test_layers_that_do_not_match_and_laws_of_one_bin(
    three: tuple[fg.Prediction, fg.Prediction, Measurement],
) -> None:
    closed, kernel, seen = three
    other = Measurement(seen.guesses, seen.layers[:2])
    assert len([row for row in rows(readings_chart(closed, kernel, other)) if row.get("name") == "dense"]) == 1
    even = fg.predict("dense(weight_var=2) > tanh > dense")  # γ = 0: every fraction is ½
    chart = readings_chart(even, None, seen)
    assert "the closed form continues above" not in svg_text(readings_chart(closed, None, seen))
    assert "by closed form" in svg_text(chart)
    same = fg.predict("dense(weight_var=0, bias_var=1)", points=80)  # γ = ∞: one class gets all
    assert "100.0 % of the data by closed form" in svg_text(readings_chart(same, None, seen))


def test_other_things_are_refused(three: tuple[fg.Prediction, fg.Prediction, Measurement]) -> None:
    closed, kernel, seen = three
    with pytest.raises(InvalidInput, match="a closed form prediction, or None, but got a kernel prediction"):
        readings_chart(kernel, closed)
    with pytest.raises(InvalidInput, match="a kernel prediction, or None, but got Measurement"):
        readings_chart(closed, seen)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="a Measurement, or None, but got str"):
        readings_chart(closed, kernel, "seen")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="2 and 10 classes"):
        readings_chart(fg.predict(NET, classes=10), kernel)
    with pytest.raises(InvalidInput, match="at least one reading"):
        readings_chart(None)
