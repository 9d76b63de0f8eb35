"""Figures of absorption by depth, and of modes: what is drawn is what was computed."""

import math

import numpy as np
import pytest
from charts import rows, svg_text

import firstguess as fg
from firstguess.data import two_blobs
from firstguess.theory.training.curves import Absorption
from firstguess.theory.training.runs import spectrum

NET = "dense(weight_var=2) > relu > dense(weight_var=2)"


def law(*draws, level=0.6):
    return Absorption(level, np.array(draws, float))


def drawn(chart, name):
    return {row["depth"]: row for row in rows(chart) if row.get("network") == name}


def test_one_family_has_its_band():
    times = {"ReLU": {d: fg.predict(f"{d} x [dense(weight_var=2) > relu] > dense").absorption(lr=1e-5) for d in (1, 4)}}
    chart = fg.figures.absorption_chart(times)
    found = drawn(chart, "ReLU")
    assert sorted(found) == [1, 4]
    for depth, row in found.items():
        assert row["median"] == pytest.approx(times["ReLU"][depth].median)
        assert row["high"] == pytest.approx(times["ReLU"][depth].quantile(0.95))
    marks = [layer["mark"]["type"] for layer in chart.to_dict()["layer"]]
    assert "area" in marks
    words = svg_text(chart)
    assert "Until the largest share falls to 60 %" in words
    assert "with 1 hidden layer," in words
    assert f"{times['ReLU'][4].median:.0f} with 4 hidden layers" in words
    assert "kernel" not in words


def test_the_kernels_points_are_beside_it():
    times, kernel = {"A": {1: law(10, 20, 30), 2: law(40, 50, 60)}}, {"A": {2: law(44, 55, 66)}}
    chart = fg.figures.absorption_chart(times, kernel=kernel)
    medians = sorted(row["median"] for row in rows(chart) if row.get("network") == "A")
    assert medians == [20, 50, 55]
    assert "point" in [layer["mark"]["type"] for layer in chart.to_dict()["layer"]]
    assert "kernel of data" in svg_text(chart)


def test_families_are_compared_at_a_depth_that_all_have():
    """The slowest at its own greatest depth would be B, which is shallower there than A."""
    times = {"A": {1: law(30), 8: law(100)}, "B": {1: law(200)}, "C": {1: law(0), 5: law(0)}}
    chart = fg.figures.absorption_chart(times)
    words = svg_text(chart)
    assert "At 1 hidden layer bias lasts longest in B: 200 steps in the median; C has none" in words.replace(" | ", " ")
    assert "area" not in [layer["mark"]["type"] for layer in chart.to_dict()["layer"]]
    apart = fg.figures.absorption_chart({"A": {1: law(30)}, "B": {2: law(20)}})
    assert "longest" not in svg_text(apart)


def test_what_is_never_absorbed_is_said_and_drawn_inside():
    chart = fg.figures.absorption_chart({"A": {1: law(30), 2: law(math.inf)}, "B": {1: law(50), 2: law(60)}})
    assert "longest in A: never absorbed" in svg_text(chart).replace(" | ", " ")
    assert drawn(chart, "A")[2]["text"] == "never"
    assert math.isfinite(drawn(chart, "A")[2]["median"])
    for empty in ({}, {"A": {}}):
        with pytest.raises(fg.InvalidInput, match="families"):
            fg.figures.absorption_chart(empty)


def test_modes_are_those_of_the_tangent_kernel():
    data = two_blobs(20, 15)
    p = fg.predict(NET, data=data, tangent=True, width=100, draws=1)
    chart = fg.figures.modes_chart(p, data.y)
    values = np.linalg.eigvalsh(p.tangent / 40)[::-1]
    found = [row for row in rows(chart) if "rank" in row]
    assert {row["rank"] for row in found} == set(range(1, 41))
    for row in found:
        assert row["value"] == pytest.approx(values[row["rank"] - 1], rel=1e-9)
    first = next(row for row in found if row["rank"] == 1)
    u = np.linalg.eigh(p.tangent)[1][:, -1]
    assert first["bias"] == pytest.approx(u.sum() ** 2 / 40)
    y = 2.0 * np.asarray(data.y) - 1
    bias, signal = p.tangent.sum() / 40**2, y @ p.tangent @ y / 40**2
    rules = sorted(row["value"] for row in rows(chart) if str(row.get("text", "")).startswith("λ of"))
    assert sorted(set(np.round(rules, 9))) == pytest.approx(sorted([bias, signal]))
    words = svg_text(chart)
    assert "times as fast as the labels are learned" in words
    assert f"{100 * first['bias']:.0f} % of the bias is mode 1" in words
    again = fg.figures.modes_chart(spectrum(p.tangent, np.asarray(data.y)))
    assert again.to_dict()["datasets"] == chart.to_dict()["datasets"]


def test_modes_without_a_tangent_or_labels_are_refused():
    data = two_blobs(5, 4)
    with pytest.raises(fg.InvalidInput, match="no tangent"):
        fg.figures.modes_chart(fg.predict(NET, data=data, draws=1), data.y)
    with pytest.raises(fg.InvalidInput, match="no labels"):
        fg.figures.modes_chart(fg.predict(NET, data=data, tangent=True, draws=1))
