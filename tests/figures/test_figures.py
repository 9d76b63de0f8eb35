"""Charts are valid Vega-Lite, show the results' own numbers, say in words what they show, and become files."""

from __future__ import annotations

import math
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import vl_convert

import firstguess as fg
from firstguess.empirical import EmpiricalGuesses
from firstguess.ensemble.measurement import LayerMeasurement, Measurement
from firstguess.errors import InvalidInput
from firstguess.figures import (
    check_path,
    compare_chart,
    gamma_by_depth_chart,
    guesses_chart,
    phase_diagram_chart,
    save,
    theme,
)
from firstguess.figures.gamma_by_depth import GammaScale, _apart, _differences
from firstguess.guesses import Guesses
from firstguess.prediction import DEEPLY_BIASED


def diagram(what: str, weights: int = 24, biases: int = 16) -> Any:
    make: Any = fg.phase_diagram
    make = getattr(make, "phase_diagram", make)  # the module of that name, if something imported it
    return make(what, weight_vars=np.linspace(4 / weights, 4, weights), bias_vars=np.linspace(0, 0.5, biases))


def rows(chart: Any) -> list[dict[str, Any]]:
    """All data of a chart; `to_dict` validates it against the schema of Vega-Lite."""
    spec = chart.to_dict(validate=True)
    return [row for values in spec["datasets"].values() for row in values]


def svg_text(chart: Any) -> str:
    """What the rendered figure says."""
    svg = vl_convert.vegalite_to_svg(chart.to_dict())
    assert "NaN" not in svg
    found = re.findall(r"<text[^>]*>(.*?)</text>|<tspan[^>]*>(.*?)</tspan>", svg, re.DOTALL)
    return re.sub(r"\s+", " ", re.sub("<[^>]*>", " ", " | ".join(a or b for a, b in found))).replace("\xa0", " ")


def norms(depth: int = 20) -> dict[str, fg.Prediction]:
    named = {"none": fg.predict(fg.mlp(depth=depth))}
    for norm, word in (("batchnorm", "BatchNorm"), ("layernorm", "LayerNorm"), ("rmsnorm", "RMSNorm")):
        for placement in ("before", "after"):
            net = fg.mlp(depth=depth, norm=norm, placement=placement)
            named[f"{word} {placement}"] = fg.predict(net)
    return named


def layer(gamma: float, error: float, name: str = "dense", **other: Any) -> LayerMeasurement:
    numbers: dict[str, Any] = {
        "name": name, "kind": "dense", "nodes": 100, "weights": True, "center": gamma, "center_se": error,
        "spread": 1.0, "spread_se": error, "gamma": gamma, "gamma_se": error, "low": gamma - 2 * error,
        "high": gamma + 2 * error, "skew": 0.0, "correlation": 0.0, "correlation_se": error, "dead": 0.0,
        "dead_se": 0.0,
    }  # fmt: skip
    return LayerMeasurement(**{**numbers, **other})


def measurement(prediction: fg.Prediction, *, inits: int = 200, points: int = 100, layers: bool = True) -> Measurement:
    law = Guesses(prediction.guesses.gamma, prediction.guesses.classes, points)
    probed = tuple(layer(float(g) + 0.01, 0.02, f"dense {i}") for i, g in enumerate(prediction.gamma))
    return Measurement(EmpiricalGuesses(law.sample(inits), points), probed if layers else ())


# -- The law of the guesses --------------------------------------------------------------------------------------


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
    from firstguess.figures.guesses import _Law, _mass_above

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
    top = chart.to_dict()["layer"][2]["encoding"]["y"]["scale"]["domain"][1]
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
    assert "Probability density" not in svg_text(only)


def test_many_classes_mark_the_average_largest_fraction() -> None:
    law = Guesses(2.8, 10)
    chart = guesses_chart(law)
    marks = [row for row in rows(chart) if str(row.get("text", "")).startswith("average largest")]
    assert {row["fraction"] for row in marks} == {law.expected_max()}
    text = svg_text(chart)
    assert "average largest fraction: 59 %" in text
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


@pytest.mark.parametrize("gamma", [1e-12, 1e-6, 1e6, 1e12])
def test_extreme_laws_render(gamma: float) -> None:
    assert "favoured class" in svg_text(guesses_chart(Guesses(gamma), Guesses(1.0)))


def test_equal_laws_keep_their_own_labels() -> None:
    spec = guesses_chart(Guesses(1.0), Guesses(1.0)).to_dict()
    domain = spec["layer"][2]["encoding"]["color"]["scale"]["domain"]
    assert len(set(domain)) == 2


def test_guesses_chart_refuses_what_has_no_law() -> None:
    with pytest.raises(InvalidInput, match="at least one law"):
        guesses_chart()
    with pytest.raises(InvalidInput, match="as many labels as laws, 1"):
        guesses_chart(Guesses(1.0), labels=["a", "b"])
    with pytest.raises(InvalidInput, match="Guesses or a Prediction"):
        guesses_chart(0.47)  # type: ignore[arg-type]


# -- γ by depth --------------------------------------------------------------------------------------------------


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
    for regime in ("neutral", "biased", "deeply biased"):
        assert f"| {regime} |" in text
    assert "lies between 0 and 18.4" in text


def test_zero_has_a_place_on_the_axis() -> None:
    spec = gamma_by_depth_chart({"after": fg.predict(fg.mlp(depth=3, norm="layernorm", placement="after"))}).to_dict()
    line = next(part for part in spec["layer"] if part["mark"]["type"] == "line")
    scale, axis = line["encoding"]["y"]["scale"], line["encoding"]["y"]["axis"]
    assert scale["type"] == "symlog"
    assert scale["domain"][0] < 0 < DEEPLY_BIASED < scale["domain"][1]
    assert axis["values"][0] == 0


def test_regimes_meet_where_the_prediction_says() -> None:
    bands = {row["regime"]: row for row in rows(gamma_by_depth_chart(norms(2))) if "regime" in row}
    assert bands["neutral"]["position"] == 1.0 == bands["biased"]["low"]
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
    assert "| relu γ" in text
    assert "| tanh γ" in text
    assert _differences(["dense > relu > dense", "dense > dense"]) == ["dense > relu > dense", "dense > dense"]


def test_labels_are_moved_apart_and_no_further() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        wanted, heights = rng.uniform(0, 300, 7).tolist(), rng.uniform(10, 40, 7).tolist()
        got = _apart(wanted, heights)
        order = np.argsort(wanted)
        for a, b in pairwise(order):
            assert got[b] - got[a] >= (heights[a] + heights[b]) / 2 - 1e-9
    assert _apart([10.0, 200.0], [20.0, 20.0]) == [10.0, 200.0]


@pytest.mark.parametrize("gammas", [[0.0, 0.467, 18.4], [1e-12, 1e12], [0.0], [math.inf, 3.0], [-0.01, 2.0]])
def test_scale_goes_there_and_back(gammas: list[float]) -> None:
    scale = GammaScale.of(gammas)
    for gamma in gammas:
        at = scale.pixel(scale(gamma))
        assert -1e-9 <= at <= 440 + 1e-9
        assert scale.gamma(at) == pytest.approx(scale(gamma), rel=1e-6, abs=1e-9)


def test_gamma_chart_refuses_nothing_and_other_things() -> None:
    with pytest.raises(InvalidInput, match="at least one prediction"):
        gamma_by_depth_chart([])
    with pytest.raises(InvalidInput, match="but got Guesses"):
        gamma_by_depth_chart({"law": Guesses(1.0)})  # type: ignore[dict-item]


# -- Phases ------------------------------------------------------------------------------------------------------


def test_tanh_diagram_has_its_lines_in_words_and_its_numbers() -> None:
    d = diagram("tanh")
    chart = phase_diagram_chart(d)
    cells = {(row["weight_var"], row["bias_var"]): row for row in rows(chart) if "chi" in row}
    assert len(cells) == d.c.size
    for j, b in enumerate(d.bias_vars):
        for i, w in enumerate(d.weight_vars):
            cell = cells[w, b]
            assert (cell["c"], cell["chi"], cell["phase"]) == (d.c[j, i], d.chi[j, i], d.names[j, i])
    edge = [(row["weight_var"], row["bias_var"]) for row in rows(chart) if "edge of chaos" in row.get("line", "")]
    assert set(edge) == set(zip(d.edge.tolist(), d.bias_vars.tolist(), strict=True))
    text = svg_text(chart)
    for words in (
        "gradients keep their size (edge of chaos)",
        "neutrality: c* = ½",
        "chaotic, neutral",
        "Weight variance",
        "Correlation c* of two inputs",
    ):
        assert words in text
    assert "variance keeps its size" not in text


def test_relu_is_coloured_by_gradients_and_has_one_edge() -> None:
    text = svg_text(phase_diagram_chart(diagram("relu")))
    assert "gradients and variance keep their size (edge of chaos)" in text
    assert "deeply biased at every variance" in text
    assert "Change χ of gradients'" in text.replace("&#39;", "'")
    assert "neutrality: c*" not in text


def test_pooling_has_two_edges() -> None:
    chart = phase_diagram_chart(diagram("relu > maxpool(2)"))
    lines = {row["line"]: row["weight_var"] for row in rows(chart) if "line" in row}
    assert lines["gradients keep their size (edge of chaos)"] == pytest.approx(4 / 3)
    assert lines["variance keeps its size"] == pytest.approx(4 * math.pi / (3 * math.pi + 2))
    text = svg_text(chart)
    assert "variance keeps its size" in text
    assert "| gradients keep their size (edge of chaos)" in text


def test_small_unsorted_and_lineless_diagrams_render() -> None:
    make: Any = fg.phase_diagram
    make = getattr(make, "phase_diagram", make)
    one = make("tanh", weight_vars=[2.0], bias_vars=[0.05])
    assert len([row for row in rows(phase_diagram_chart(one)) if "chi" in row]) == 1
    mixed = make("tanh", weight_vars=[3.0, 1.0, 2.0], bias_vars=[0.2, 0.0], lines=False)
    cells = [row for row in rows(phase_diagram_chart(mixed, color="gradients")) if "chi" in row]
    assert [row["weight_var"] for row in cells[:3]] == [1.0, 2.0, 3.0]
    assert all(row["x"] < row["weight_var"] < row["x2"] for row in cells)
    assert "edge of chaos)" not in svg_text(phase_diagram_chart(mixed))
    assert "edge of chaos is outside" in svg_text(phase_diagram_chart(make("relu", weight_vars=[0.5, 1.0])))


def test_phase_chart_refuses_other_things() -> None:
    with pytest.raises(InvalidInput, match="a PhaseDiagram, but got str"):
        phase_diagram_chart("tanh")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="'correlation' or 'gradients'"):
        phase_diagram_chart(diagram("relu", 4, 3), color="hue")  # type: ignore[arg-type]


# -- Prediction against measurement ------------------------------------------------------------------------------


def test_compare_shows_both_sides_with_intervals() -> None:
    prediction = fg.predict(fg.mlp(depth=3))
    seen = measurement(prediction)
    chart = compare_chart(prediction, seen)
    data = rows(chart)
    edges, density = seen.guesses.histogram()
    bins = [row for row in data if "measured" in row]
    np.testing.assert_allclose([row["measured"] for row in bins], density)
    law = Guesses(prediction.guesses.gamma, 2, 100)
    np.testing.assert_allclose([row["predicted"] for row in bins], np.diff(law.cdf(edges)) / np.diff(edges))
    points = {row["layer"]: row for row in data if "gamma_se" in row}
    np.testing.assert_allclose([points[i]["position"] for i in range(1, 5)], seen.gamma)
    np.testing.assert_allclose([[points[i]["low"], points[i]["high"]] for i in range(1, 5)], seen.gamma_interval)
    text = svg_text(chart)
    for words in ("by prediction", "by measurement", "200 initializations", "The drift ratio by layer", "measured"):
        assert words in text


def test_compare_copes_with_missing_layers_and_unknown_numbers() -> None:
    prediction = fg.predict(fg.mlp(depth=3))
    seen = measurement(prediction, layers=False)
    assert "drift ratio by layer" not in svg_text(compare_chart(prediction, seen))
    some = Measurement(seen.guesses, (layer(0.3, 0.1), layer(2.0, math.nan, "head", low=math.nan, high=math.inf)))
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


# -- Files -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ending", "start"), [(".png", b"\x89PNG"), (".svg", b"<svg"), (".pdf", b"%PDF"), (".PNG", b"\x89PNG")]
)
def test_save_by_ending(tmp_path: Path, ending: str, start: bytes) -> None:
    target = save(guesses_chart(Guesses(1.0)), tmp_path / f"law{ending}")
    assert target == tmp_path / f"law{ending}"
    assert target.read_bytes().startswith(start)


def test_html_needs_no_network(tmp_path: Path) -> None:
    page = save(guesses_chart(Guesses(1.0), labels=["</script> & γ"]), str(tmp_path / "law.html")).read_text("utf-8")
    assert not re.search(r"<script[^>]*\ssrc\s*=", page)
    assert not re.search(r"<link\b[^>]*href\s*=", page)
    assert not re.search(
        r"\bimport\s*\(?\s*[\"']https?://|\bfrom\s*[\"']https?://|@import|url\(\s*[\"']?https?://", page
    )
    assert "cdn.jsdelivr" not in page
    assert "unpkg" not in page
    assert len(page) > 300_000  # the libraries are inside
    assert page.count("</script>") == page.count("<script")  # the label's does not end the page's
    assert "\\u003c/script> & γ, γ = 1" in page


def test_bad_paths_say_what_to_do(tmp_path: Path) -> None:
    chart = guesses_chart(Guesses(1.0))
    with pytest.raises(InvalidInput, match=r"ends in \.html, \.pdf, \.png or \.svg.*Try: law\.png"):
        save(chart, tmp_path / "law.gif")
    with pytest.raises(InvalidInput, match=r"Try: law\.png"):
        save(chart, tmp_path / "law")
    with pytest.raises(InvalidInput, match="a folder that exists"):
        save(chart, tmp_path / "nowhere" / "law.png")
    (tmp_path / "law.svg").mkdir()
    with pytest.raises(InvalidInput, match="a folder"):
        check_path(tmp_path / "law.svg")
    with pytest.raises(InvalidInput, match="a chart, but got str"):
        save("chart", tmp_path / "law.png")  # type: ignore[arg-type]
    assert not (tmp_path / "law.png").exists()


# -- The look ----------------------------------------------------------------------------------------------------


def test_titles_are_wrapped_and_the_user_may_choose_one() -> None:
    spec = guesses_chart(Guesses(1.0), title="A long title " * 20).to_dict()
    assert len(spec["title"]["text"]) == 2
    assert all(len(line) <= 78 for line in spec["title"]["text"])
    assert theme.shortened("a" * 50, 20).count("…") == 1


def test_colours_are_told_apart() -> None:
    assert len({(theme.colour(i), tuple(theme.dash(i))) for i in range(28)}) == 28


def test_importing_firstguess_and_figures_loads_no_altair() -> None:
    code = (
        "import sys, firstguess, firstguess.figures as f; "
        "assert not {'altair', 'vl_convert', 'torch'} & set(sys.modules); f.guesses_chart; "
        "import firstguess.figures.phases, firstguess.figures.measured; "
        "assert 'altair' in sys.modules and 'torch' not in sys.modules; "
        "assert firstguess.phase_diagram('relu', weight_vars=[1.0], bias_vars=[0.0]).block == 'relu'"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
