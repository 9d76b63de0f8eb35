"""The distribution of the guesses as a chart: the distribution's own numbers, and in words what it shows."""

from __future__ import annotations

import math

import numpy as np
import pytest
from charts import rows, svg_text

import firstguess as fg
from firstguess.base.errors import InvalidInput
from firstguess.show.charts import guesses_chart
from firstguess.theory.shares.gaussian import Guesses


def test_two_class_laws_are_drawn_as_they_are() -> None:
    laws = [Guesses(0.47), Guesses(2.8), Guesses(18.4)]
    chart = guesses_chart(*laws)
    drawn = [row for row in rows(chart) if "exact" in row]
    for law in laws:
        mine = [row for row in drawn if f"γ = {law.gamma:g}:" in row["law"]]
        at = np.array([row["fraction"] for row in mine])
        assert len(at) > 200
        np.testing.assert_allclose([row["exact"] for row in mine], law.pdf(at), rtol=1e-12)
        assert np.all(np.diff(at) > 0)
        assert at[0] < 1e-3 < 0.999 < at[-1]
    text = svg_text(chart)
    for words in ("69 % to 93 %", "drift ratio γ = 2.8: 83 % in the favoured class", "even split", "Two classes"):
        assert words in text
    assert "cut off: up to 60 % of the networks" in text  # 18.4: P(density beyond the axis)


def test_mass_beyond_the_axis_is_stated_right() -> None:
    from firstguess.show.charts.guesses import _Law, _mass_above

    law = Guesses(18.4)
    curve = _Law("", law).curve(1.0)
    top = 2.0
    # two classes: the density rises monotonously away from ½, so the cut starts where pdf(g) = top
    at = np.linspace(1e-4, 0.5, 200_001)
    first = at[np.argmax(law.pdf(at) < top)]
    assert _mass_above(_Law("", law), curve, top) == pytest.approx(2 * law.cdf(first), abs=0.01)
    assert _mass_above(_Law("", Guesses(0.3)), _Law("", Guesses(0.3)).curve(1.0), 5.0) == 0.0


def test_bounded_peaks_are_not_cut() -> None:
    chart = guesses_chart(Guesses(0.01), Guesses(0.2))
    assert "cut off" not in svg_text(chart)
    line = next(layer for layer in chart.to_dict()["layer"] if layer["mark"]["type"] == "line")
    top = line["encoding"]["y"]["scale"]["domain"][1]
    assert top > Guesses(0.01).pdf(0.5)


def test_point_masses_are_arrows_with_their_probability() -> None:
    chart = guesses_chart(Guesses(0.0), Guesses(1.0), Guesses(math.inf), labels=["after", "between", "constant"])
    arrows = [(row["fraction"], row["probability"]) for row in rows(chart) if "probability" in row]
    assert set(arrows) == {(0.5, 1.0), (0.0, 0.5), (1.0, 0.5)}
    text = svg_text(chart)
    for words in ("100 % of all networks: exactly 50 %", "50 % of all networks: exactly 0 %", "after, γ = 0", "γ = ∞"):
        assert words in text
    only = guesses_chart(Guesses(math.inf, 10))
    masses = sorted((row["fraction"], round(row["probability"], 12)) for row in rows(only) if "probability" in row)
    assert sorted(set(masses)) == [(0.0, 0.9), (1.0, 0.1)]
    assert "per 1 % of share" not in svg_text(only)


def test_many_classes_mark_the_average_largest_fraction() -> None:
    law = Guesses(2.8, 10)
    chart = guesses_chart(law)
    marks = [row for row in rows(chart) if str(row.get("text", "")).startswith("average largest")]
    assert {row["fraction"] for row in marks} == {law.expected_max()}
    text = svg_text(chart)
    assert "average largest share: 59 %" in text
    assert "10 classes" in text


def test_finite_data_are_steps_at_the_counts() -> None:
    law = Guesses(0.0, points=20)
    chart = guesses_chart(law)
    drawn = {row["fraction"]: row["exact"] for row in rows(chart) if "exact" in row}
    np.testing.assert_allclose([drawn[k / 20] / 20 for k in range(21)], law.pmf(), rtol=1e-12)
    assert "20 data points" in svg_text(chart)


def test_a_prediction_names_its_network_and_assumptions() -> None:
    text = svg_text(guesses_chart(fg.predict("dense(weight_var=2) > relu > dense(weight_var=2)")))
    assert "The favoured class gets 69 % of the data on average" in text
    assert "Network: dense(weight_var=2) &gt; relu" in text
    assert "i.i.d. inputs" in text


@pytest.mark.parametrize(
    ("law", "words"),
    [
        (Guesses(0.0), "No class is favoured: each gets 50 % of the data on average |"),
        (Guesses(1e-6, 10), "No class is favoured: each gets 10 % of the data on average |"),
        (Guesses(0.0, points=100), "each gets 50 % of the data on average, the largest 54 % by chance"),
        (Guesses(0.3), "The favoured class gets 66 % of the data on average"),
    ],
)
def test_the_title_fits_the_regime(law: Guesses, words: str) -> None:
    text = svg_text(guesses_chart(law))
    assert words in text
    assert ("favoured class" in text) == (law.gamma == 0.3)


@pytest.mark.parametrize("gamma", [1e-12, 1e-6, 1e6, 1e12])
def test_extreme_laws_render(gamma: float) -> None:
    assert "favoured class" in svg_text(guesses_chart(Guesses(gamma), Guesses(1.0)))


def test_equal_laws_keep_their_own_labels() -> None:
    spec = guesses_chart(Guesses(1.0), Guesses(1.0)).to_dict()
    line = next(layer for layer in spec["layer"] if layer["mark"]["type"] == "line")
    domain = line["encoding"]["color"]["scale"]["domain"]
    assert len(set(domain)) == 2


def test_guesses_chart_refuses_what_has_no_law() -> None:
    with pytest.raises(InvalidInput, match="at least one distribution"):
        guesses_chart()
    with pytest.raises(InvalidInput, match="as many labels as distributions, 1"):
        guesses_chart(Guesses(1.0), labels=["a", "b"])
    with pytest.raises(InvalidInput, match="Guesses or a Prediction"):
        guesses_chart(0.47)  # type: ignore[arg-type]
