"""γ by depth: one line a network, named above it, on an axis that has a place for 0 and ∞."""

from __future__ import annotations

import math

import numpy as np
import pytest
from charts import rows, svg_text

import firstguess as fg
from firstguess.base.errors import InvalidInput
from firstguess.show.charts import gamma_by_depth_chart
from firstguess.show.charts.gamma_by_depth import GammaScale, _differences
from firstguess.theory.prediction import DEEPLY_BIASED
from firstguess.theory.shares.gaussian import Guesses


def norms(depth: int = 20) -> dict[str, fg.Prediction]:
    named = {"none": fg.predict(fg.mlp(depth=depth))}
    for norm, word in (("batchnorm", "BatchNorm"), ("layernorm", "LayerNorm"), ("rmsnorm", "RMSNorm")):
        for placement in ("before", "after"):
            net = fg.mlp(depth=depth, norm=norm, placement=placement)
            named[f"{word} {placement}"] = fg.predict(net)
    return named


def test_norm_placements_are_three_lines_with_seven_names() -> None:
    predictions = norms()
    chart = gamma_by_depth_chart(predictions)
    drawn: dict[str, dict[int, float]] = {}
    for row in rows(chart):
        if "curve" in row:
            drawn.setdefault(row["curve"], {})[row["layer"]] = row["gamma"]
    assert len(drawn) == 3
    for name, prediction in predictions.items():
        (curve,) = (values for names, values in drawn.items() if name in names.split(", "))
        np.testing.assert_allclose([curve[i] for i in range(1, 22)], prediction.gamma, rtol=1e-6)
    text = svg_text(chart)
    for words in ("BatchNorm after, LayerNorm after", "γ = 18.4", "γ = 0.467", "γ = 0", "output"):
        assert words in text
    for word in ("even", "leaning", "biased", "deeply biased"):
        assert f"| {word} |" in text
    assert "lies between 0 and 18.4" in text


def test_zero_has_a_place_on_the_axis() -> None:
    spec = gamma_by_depth_chart({"after": fg.predict(fg.mlp(depth=3, norm="layernorm", placement="after"))}).to_dict()
    line = next(part for part in spec["layer"] if part["mark"]["type"] == "line")
    scale, axis = line["encoding"]["y"]["scale"], line["encoding"]["y"]["axis"]
    assert scale["type"] == "symlog"
    assert scale["domain"][0] < 0 < DEEPLY_BIASED < scale["domain"][1]
    assert axis["values"][0] == 0


def test_words_meet_where_the_prediction_says() -> None:
    bands = {row["word"]: row for row in rows(gamma_by_depth_chart(norms(2))) if "word" in row}
    assert bands["even"]["position"] == 0.05 == bands["leaning"]["low"]
    assert bands["leaning"]["position"] == 1.0 == bands["biased"]["low"]
    assert bands["biased"]["position"] == DEEPLY_BIASED == bands["deeply biased"]["low"]


def test_very_deep_and_infinite_ratios_render() -> None:
    deep = gamma_by_depth_chart(fg.predict(fg.mlp(depth=3000)))  # type: ignore[arg-type]
    curve = [row for row in rows(deep) if "curve" in row]
    assert len(curve) < 600
    assert curve[-1]["layer"] == 3001
    gone = gamma_by_depth_chart([fg.predict("2 x [dense > scale(0) > relu] > dense(bias_var=1)")])
    assert "γ = ∞" in svg_text(gone)
    unknown = [row for row in rows(gone) if row.get("text") == "nan"]
    assert all(row["position"] is None for row in unknown)


def test_a_list_is_named_by_what_differs() -> None:
    nets = [fg.mlp(depth=3, activation=phi) for phi in ("relu", "tanh")]
    text = svg_text(gamma_by_depth_chart([fg.predict(net) for net in nets]))
    assert "| relu: γ" in text
    assert "| tanh: γ" in text
    assert _differences(["dense > relu > dense", "dense > dense"]) == ["dense > relu > dense", "dense > dense"]


@pytest.mark.parametrize("gammas", [[0.0, 0.467, 18.4], [1e-12, 1e12], [0.0], [math.inf, 3.0], [-0.01, 2.0]])
def test_every_ratio_is_inside_the_axis(gammas: list[float]) -> None:
    scale = GammaScale.of(gammas)
    low, top = scale.marks()["scale"].domain
    assert all(low < gamma < top for gamma in gammas if math.isfinite(gamma))
    assert scale(math.inf) == top
    assert (top in scale.marks()["axis"]["values"]) == (math.inf in gammas)


def test_gamma_chart_refuses_nothing_and_other_things() -> None:
    with pytest.raises(InvalidInput, match="at least one prediction"):
        gamma_by_depth_chart([])
    with pytest.raises(InvalidInput, match="but got Guesses"):
        gamma_by_depth_chart({"law": Guesses(1.0)})  # type: ignore[dict-item]
