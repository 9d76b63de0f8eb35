"""Figures of training: what is drawn is what the curves say."""

import numpy as np
import pytest
from charts import rows, svg_text

import firstguess as fg
from firstguess.data import two_blobs

NET = "dense(weight_var=2) > relu > dense(weight_var=2)"
OPTIONS = {"data": two_blobs(40, 20), "lr": 0.01, "steps": 40, "width": 50, "optimizer": "gd"}


@pytest.fixture(scope="module")
def runs():
    return fg.predict_training(NET, **OPTIONS, draws=30, trust=False), fg.train(NET, **OPTIONS, inits=7)


def test_a_prediction_beside_training(runs):
    t, r = runs
    chart = fg.figures.training_chart({"predicted": t, "trained": r})
    found = rows(chart)
    for name, run in (("predicted", t), ("trained", r)):
        drawn = {row["step"]: row for row in found if row.get("run") == name}
        assert sorted(drawn) == run.steps.tolist()
        for k, step in enumerate(run.steps.tolist()):
            assert drawn[step]["mean"] == pytest.approx(run.largest.mean[k])
            assert drawn[step]["low"] == pytest.approx(run.largest.low[k])
            assert drawn[step]["to"] == pytest.approx(min(1.0, run.largest.mean[k] + 2 * run.largest.se[k]))
        others = [row["mean"] for row in found if row.get("run") == f"{name}: other classes"]
        np.testing.assert_allclose(others, run.accuracy["others"].mean)
    words = svg_text(chart)
    assert "means over 30 networks" in words
    assert "means over 7 trained networks ± 2 s.e." in words
    assert "(predicted)" in words
    assert "(trained)" in words
    assert "absorbed: 60 %" in words


def test_training_alone_is_lines_with_bands(runs):
    _, r = runs
    chart = fg.figures.training_chart(r)
    assert "means over 7 networks" in svg_text(chart)
    drawn = [layer["mark"] for part in chart.to_dict()["hconcat"] for layer in part["layer"]]
    assert "point" not in str([mark for mark in drawn if mark.get("size") != 0])  # a legend has one of no size


def test_nothing_absorbed_is_said(runs):
    short = {**OPTIONS, "lr": 1e-7, "start": "biased"}
    t, r = fg.predict_training(NET, **short, draws=10, trust=False), fg.train(NET, **short, inits=2)
    assert "still biased after 40 steps: predicted and trained" in svg_text(
        fg.figures.training_chart({"predicted": t, "trained": r})
    )
