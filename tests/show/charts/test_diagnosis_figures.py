"""The figures of a diagnosis show its own numbers, for two classes and for a thousand, and say what they show."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from charts import rows, svg_text
from diagnoses import ADVICE, CAUSES, NASTY, bare, gradients, layer, measurement, nasty, sample

import firstguess as fg
from firstguess.base.errors import InvalidInput
from firstguess.diagnosis.compare import predicted_law
from firstguess.ensemble.gradient_statistics import Level
from firstguess.ensemble.measurement import Measurement
from firstguess.show.charts import advice_chart, correlation_chart, gradients_chart, law_chart, strip_chart
from firstguess.show.charts import class_shares as law
from firstguess.theory.shares.empirical import EmpiricalGuesses
from firstguess.theory.shares.gaussian import Guesses

# -- The distribution --------------------------------------------------------------------------------------------------


def test_law_of_two_classes_is_that_of_the_first() -> None:
    seen, prediction = measurement(2), fg.predict("dense(weight_var=2) > relu > dense")
    chart = law_chart(seen, prediction)
    bars = [row for row in rows(chart) if "zero" in row]
    counts = [
        np.mean((seen.guesses.fractions[:, 0] > row["from"]) & (seen.guesses.fractions[:, 0] < row["to"]))
        for row in bars
    ]
    np.testing.assert_allclose([row["density"] * (row["to"] - row["from"]) for row in bars], counts, atol=1e-12)
    law = predicted_law(prediction, seen.points)
    between = bars[3]
    below = law.cdf([between["from"], between["to"]])
    assert between["predicted"] * (between["to"] - between["from"]) == pytest.approx(below[1] - below[0])
    assert f"theory predicts {100 * law.expected_max():.0f} %" in svg_text(chart)
    assert "theory" not in svg_text(law_chart(seen))


@pytest.mark.parametrize(("classes", "gamma"), [(10, 3.0), (1000, 0.01)])
def test_law_of_more_is_that_of_the_largest(classes: int, gamma: float) -> None:
    seen = measurement(classes, gamma=gamma)
    prediction = fg.predict("dense(weight_var=2) > relu > dense", classes=classes) if classes == 10 else None
    chart = law_chart(seen, prediction)
    bars = [row for row in rows(chart) if "zero" in row]
    assert sum(row["density"] * (row["to"] - row["from"]) for row in bars) == pytest.approx(1.0)
    average = sum(row["density"] * (row["to"] - row["from"]) * (row["to"] + row["from"]) / 2 for row in bars)
    widest = max(row["to"] - row["from"] for row in bars)
    assert abs(average - seen.guesses.expected_max()) < widest
    assert bars[-1]["to"] <= 1 + 1 / seen.points
    if prediction is not None:
        assert sum(row["predicted"] * (row["to"] - row["from"]) for row in bars) == pytest.approx(1.0)
    said = svg_text(chart)
    assert "even split" in said
    assert "average" in said
    assert ("(an even split: 0.1 %)" in said) == (seen.verdict == "even") == (classes == 1000)


def test_shares_that_are_compared_have_as_many_digits() -> None:
    """98.99 % and 99.02 %: alone, the second would have a digit more."""
    seen = np.tile([0.9899, *[0.0101 / 9] * 9], (20, 1))
    prediction = SimpleNamespace(expected_max=lambda: 0.9902)
    title = law._law_title(Measurement(EmpiricalGuesses(seen, 1000), ()), {"predicted": prediction})  # type: ignore[dict-item]
    assert title == "Before training, 99.0 % of the data end up in one class on average; theory predicts 99.0 %"


@pytest.mark.parametrize("share", [0.99, 0.97, 0.8, 0.3, 0.02])
def test_lines_at_the_average_and_at_an_even_split(share: float) -> None:
    seen = EmpiricalGuesses(np.tile([share, *[(1 - share) / 59] * 59], (200, 1)), 1000)
    chart = law_chart(Measurement(seen, ()))
    drawn = {row["text"]: row["from"] for row in rows(chart) if "text" in row}
    assert drawn == {"even split": pytest.approx(1 / 60), "average": pytest.approx(share)}


# -- Through the network -----------------------------------------------------------------------------------------


def test_correlation_by_layer_with_numbered_causes() -> None:
    d = sample()
    assert d.measurement is not None
    drawn = rows(correlation_chart(d))
    curve = {row["step"]: row for row in drawn if "kind" in row}
    assert curve[0]["position"] == 0.02  # the data's own
    np.testing.assert_allclose(
        [curve[i]["position"] for i in range(1, 6)], [one.correlation for one in d.measurement.layers]
    )
    np.testing.assert_allclose((curve[3]["low"], curve[3]["high"]), d.measurement.layers[2].correlation_interval)
    causes = {row["rank"]: row for row in drawn if "rank" in row}
    assert "1" not in causes  # two steps together have no place of their own
    assert [(causes[k]["step"], causes[k]["before"], causes[k]["position"]) for k in "2345"] == [
        (2, 0.02, 0.33), (4, 0.375, 0.6), (4.5, 0.6, 0.7), (0, 0.0, 0.02)
    ]  # fmt: skip
    said = svg_text(correlation_chart(d))
    for words in (
        "Without the 2 ReLU layers, the largest share goes from 83 % to 56 %",
        "ReLU (3)",
        "sum and ReLU (before 4)",
        "the data themselves",
        "deeply biased",
    ):
        assert words in said


def test_correlation_of_many_or_unknown_layers() -> None:
    d = sample()
    many = Measurement(measurement().guesses, tuple(layer(str(i), "Linear", 0.01 * i) for i in range(300)))
    assert "300" in svg_text(correlation_chart(replace(d, measurement=many)))
    unknown = layer("0", "Linear", 1.0, correlation=math.nan, low=math.nan, high=math.nan)
    some = Measurement(many.guesses, (unknown, *many.layers[:3]))
    assert (
        next(row for row in rows(correlation_chart(replace(d, measurement=some))) if row.get("step") == 1)["low"]
        is None
    )
    assert "No step adds correlation" in svg_text(correlation_chart(replace(d, causes=())))
    elsewhere = replace(CAUSES[1], name="not probed")
    assert not [row for row in rows(correlation_chart(replace(d, causes=(elsewhere,)))) if "rank" in row]
    with pytest.raises(InvalidInput, match="measured layers"):
        correlation_chart(bare())
    assert NASTY[:8] in svg_text(correlation_chart(nasty())).replace("&lt;", "<")


# -- One column an initialization --------------------------------------------------------------------------------


@pytest.mark.parametrize("classes", [2, 4, 10, 1000])
def test_every_column_is_all_of_the_data(classes: int) -> None:
    seen = measurement(classes, inits=30)
    drawn = [row for row in rows(strip_chart(seen)) if "column" in row]
    members = {row["column"]: row["member"] for row in drawn}
    assert sorted(members.values()) == list(range(30))
    for column, member in members.items():
        mine = sorted((row for row in drawn if row["column"] == column), key=lambda row: row["low"])
        assert mine[0]["low"] == 0
        assert mine[-1]["high"] == pytest.approx(1.0)
        assert mine[0]["largest"] == seen.guesses.largest[member]
        if classes > 6:
            assert mine[0]["share"] == pytest.approx(seen.guesses.largest[member])  # from the largest up
        else:
            shares = {row["band"]: row["share"] for row in mine}
            expected = {f"class {c}": x for c, x in enumerate(seen.guesses.fractions[member]) if x > 0}
            assert shares == pytest.approx(expected)


def test_strip_of_many_initializations_and_of_small_classes() -> None:
    many = strip_chart(measurement(2, inits=500))
    assert len({row["column"] for row in rows(many) if "column" in row}) == 120
    assert "120 of 500 initializations" in svg_text(many)
    even = Measurement(EmpiricalGuesses(Guesses(0.0, 1000, 2000).sample(20), 2000), ())
    assert "the other 990" in svg_text(strip_chart(even))
    assert "The axis ends early" in svg_text(strip_chart(even))
    one = Measurement(EmpiricalGuesses(np.tile([1.0, 0.0], (20, 1)), 50), ())
    assert "one class gets all of the data" in svg_text(strip_chart(one))
    assert "Favoured most often: class 0, in 100 % of them" in svg_text(strip_chart(one))


# -- Gradients ---------------------------------------------------------------------------------------------------


def test_gradients_by_layer_and_group() -> None:
    g = gradients(4)
    drawn = [row for row in rows(gradients_chart(g)) if "group" in row]
    for name, words in (("all", "all points"), ("favoured", "favoured class"), ("others", "other classes")):
        mine = {row["layer"]: row for row in drawn if words in row["group"]}
        levels = [getattr(one, name) for one in g.layers]
        np.testing.assert_allclose([mine[k]["position"] for k in range(1, 5)], [level.value for level in levels])
        assert mine[1]["high"] - mine[1]["low"] == pytest.approx(2 * 1.96 * levels[0].error)
    said = svg_text(gradients_chart(g))
    assert "gradients shrink: −29 % per layer" in said
    assert "output" in said


def test_gradients_along_a_stream_and_without_one_factor() -> None:
    g = gradients(4)
    stream = tuple(replace(layer, name=f"into {layer.name}", kind="stream") for layer in g.layers[:3])
    said = svg_text(gradients_chart(replace(g, stream=stream)))
    assert "gradients shrink: −29 % per block" in said
    assert "between residual blocks" in said
    assert "output |" not in said
    uneven = replace(g.growth, value=math.nan, low=math.nan, high=math.nan, total_low=0.1, total_high=0.2)
    said = svg_text(gradients_chart(replace(g, growth=uneven)))
    assert "gradients shrink, by no one factor" in said
    assert "29 %" not in said


def test_gradients_that_are_tiny_missing_or_few() -> None:
    assert "10⁻" in svg_text(gradients_chart(gradients(200, factor=0.01)))  # 1e-398 has no float
    g = gradients(3)
    gone = replace(g.layers[0], favoured=Level(math.nan, math.nan, 0, 8))
    first = [r for r in rows(gradients_chart(replace(g, layers=(gone, *g.layers[1:])))) if r.get("layer") == 1]
    assert [r["position"] for r in first if "favoured" in r["group"]] == [None]
    assert "all points" in svg_text(gradients_chart(gradients(1)))
    with pytest.raises(InvalidInput, match="at least one layer"):
        gradients_chart(replace(g, layers=()))


# -- Before and after --------------------------------------------------------------------------------------------


def test_advice_before_and_after() -> None:
    drawn = [row for row in rows(advice_chart(ADVICE)) if "largest_from" in row]
    first = next(row for row in drawn if row["place"] == 0)
    assert (first["largest_from"], first["largest_to"], first["gamma_from"], first["gamma_to"]) == (
        0.83,
        0.55,
        3.0,
        0.0,
    )
    second = next(row for row in drawn if row["place"] == 1)
    assert second["gamma_to"] > 10  # ∞ at the end of the axis
    assert (first["fill"], second["fill"]) == ("#0072B2", "#E69F00")
    said = svg_text(advice_chart(ADVICE))
    for words in ("from 83 % to 55 %", "guesses not more even", "Drift ratio γ", "∞", "after, predicted"):
        assert words in said


def test_advice_without_gamma_without_gain_or_too_much() -> None:
    unknown = replace(ADVICE[0], gamma_before=math.nan, gamma_after=math.nan)
    assert "Drift ratio" not in svg_text(advice_chart([unknown]))
    assert "None of the changes" in svg_text(advice_chart(ADVICE[1:]))
    assert "The first 8 of 12 changes" in svg_text(advice_chart(ADVICE * 6))
    with pytest.raises(InvalidInput, match="at least one piece of advice"):
        advice_chart([])
