"""What the explorer shows, computed another way: by `fg.predict` and by hand."""

import math
import re

import numpy as np
import pytest

import firstguess as fg
from firstguess.base.text import percent
from firstguess.explore import panels
from firstguess.explore.choice import NORMS, Choice, phases_of, see, with_the_rest
from firstguess.explore.panels import AxisScale, SvgChart, number
from firstguess.theory.shares.gaussian import average_kth


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("classes", [2, 10])
def test_the_numbers_of_the_page_are_those_of_predict(norm, after, classes):
    choice = Choice("plain", "relu", 5, norm, after, classes=classes)
    page = panels.live(see(choice))
    p = fg.predict(
        fg.mlp(5, norm=None if norm == "none" else norm, placement=("before", "after")[after], classes=classes)
    )
    assert float(re.search(r'data-gamma="([^"]*)"', page)[1]) == pytest.approx(p.gamma[-1], rel=1e-5, abs=1e-12)
    assert float(re.search(r'data-largest="([^"]*)"', page)[1]) == pytest.approx(p.guesses.expected_max(), rel=1e-5)
    assert percent(p.guesses.expected_max()) in page


def test_gradients_are_the_product_of_the_layers_factors():
    seen = see(Choice("plain", "tanh", 4, weight_var=1.5))
    growth = fg.predict("4 x [dense(weight_var=1.5) > tanh] > dense(weight_var=1.5)").gradient_growth
    at_first = dict(seen.gradients)[1]
    product = 1.0
    for factor in growth:
        product *= float(factor)
    assert at_first == pytest.approx(product, rel=1e-12)
    assert dict(seen.gradients)[5] == 1.0


def test_the_table_of_changes_holds_what_predict_says_of_them():
    seen = see(Choice("plain", "relu", 20))
    row = next(m for m in seen.frontier.remedies if m.name == "LayerNorm after φ")
    assert row.gamma == fg.predict(fg.mlp(20, norm="layernorm", placement="after")).gamma[-1]
    assert f"{percent(0.5)}" in panels.live(seen)


def test_only_a_centred_head_lies_below_the_line_that_nothing_else_crosses():
    for choice in (Choice(activation="tanh", weight_var=1.5, bias_var=0.1, depth=30), Choice(depth=20)):
        f = see(choice).frontier
        below = {m.name for m in f.remedies if (1 + m.gamma) * m.gradients < (1 + f.data_gamma) * (1 - 1e-9)}
        assert below <= {"head centred"}


def test_the_phase_is_that_of_the_point_itself_not_of_a_grid_point_near_it():
    """ReLU at weight variance 2 is on the edge; the nearest place of the grid is not."""
    diagram, here = phases_of(Choice())
    assert 2.0 not in diagram.weight_vars
    assert here.phase == "edge of chaos"
    assert "edge of chaos" in panels.phases(Choice(), diagram, here)


@pytest.mark.parametrize("depth", [1, 2, 7])
def test_the_block_of_the_phase_diagram(depth):
    assert phases_of(Choice(depth=depth, norm="layernorm", after=True))[0].block == "relu > layernorm"


def test_the_line_of_the_phase_diagram_is_the_edge():
    """Between grid points of 0.12 the line is good to a tenth of that."""
    diagram, _ = phases_of(Choice(activation="tanh", bias_var=0.5))
    (line,) = panels._level_lines(diagram)
    for weight_var, bias_var in line[1::8]:
        assert weight_var == pytest.approx(fg.edge_of_chaos("tanh", bias_var=bias_var), abs=0.012)


def test_absorption_is_that_of_the_prediction():
    choice = Choice("plain", "relu", 3, lr=1e-6)
    steps = fg.predict(fg.mlp(3)).absorption(lr=1e-6, dimension=1000, width=1000).median
    assert panels._steps(steps) in panels.live(see(choice))
    assert "1 step " in panels.live(see(Choice("plain", "relu", 3, lr=1e-6))) or steps > 1


def test_of_max_pools_it_says_that_it_takes_too_long():
    seen = see(Choice("plain", "tanh", 2, pool="maxpool(2)"))
    assert seen.absorption is None
    assert "too long" in panels.live(seen)
    assert see(Choice("plain", "tanh", 2, pool="avgpool(2)")).absorption is not None


@pytest.mark.parametrize("kind", ["transformer", "residual"])
def test_gradients_of_the_stream_are_the_product_over_its_blocks(kind):
    seen = see(Choice(kind, depth=3, length=8))
    at = dict(seen.stream)
    layers = seen.prediction.layers
    blocks = [k for k, layer in enumerate(layers) if layer.layer.startswith("residual")]
    assert sorted(at) == list(range(1, len(blocks) + 1))
    assert at[len(blocks)] == 1.0
    assert at[1] == pytest.approx(math.prod(layer.gradient for layer in layers[blocks[0] + 1 : blocks[-1] + 1]))
    assert f"change by {panels.signed(at[1] ** (1 / (len(blocks) - 1)))} per residual block" in panels.live(seen)


@pytest.mark.parametrize("style", ["bert", "gpt2"])
def test_changes_of_a_transformer_are_predictions_of_their_own(style):
    from firstguess.explore.on_data import changes, changes_table

    found = changes(Choice("transformer", depth=2, length=8, style=style, classes=3))
    by_name = {change.name: change for change in found}
    net = fg.transformer(style, depth=2, classes=3)
    assert by_name["this network"].gamma == fg.predict(net, inputs=fg.Tokens(8)).gamma[-1]
    phi = {"bert": "gelu", "gpt2": "gelu_tanh"}[style]
    gated = fg.Network.parse(str(net).replace(f"width=3072) > {phi}", f"width=6144) > gated({phi})"), classes=3)
    assert by_name["gate the MLPs"].gamma == fg.predict(gated, inputs=fg.Tokens(8)).gamma[-1]
    assert any("pre-norm" in name for name in by_name) == (style == "bert")
    assert by_name["head centred"].gamma == 0.0
    page = changes_table(found, 3)
    assert page.count("<tr>") == len(found) + 1
    assert percent(1 / 3) in page


def test_an_axis_shows_that_there_is_no_bias():
    even = see(Choice(norm="layernorm", after=True))
    assert even.prediction.gamma[-1] == 0.0
    assert ">0</text>" in panels._gamma(even, None)
    assert ">0</text>" not in panels._gamma(see(Choice(bias_var=0.5)), None)


def test_before_is_drawn_and_named_with_the_way_back():
    before, now = see(Choice(depth=5)), see(Choice(depth=6))
    assert 'id="fg-before"' not in panels.live(now)
    page = panels.live(now, before)
    assert page.count("<title>before</title>") == 2
    assert 'href="?depth=5"' in page
    assert 'id="fg-link" class="fg-share" href="?depth=6"' in page


def test_dots_of_the_frontier_have_names():
    page = panels._frontier(see(Choice()))
    for name in ("here", "LayerNorm after φ", "head centred"):
        assert re.search(f"<text[^>]*>[^<]*{name}", page)


def test_a_phase_diagram_of_one_colour_is_a_sentence():
    choice = Choice()
    page = panels.phases(choice, *phases_of(choice))
    assert "γ at large depth is ∞ for all variances" in page
    assert "<svg" not in page
    tanh = Choice(activation="tanh", bias_var=0.1)
    assert "<svg" in panels.phases(tanh, *phases_of(tanh))


def test_a_change_in_words():
    assert [panels.signed(v) for v in (1.0, 1.86, 0.9, 2.19, 47.16)] == [
        "0 %", "+86 %", "−10 %", "a factor of 2.19", "a factor of 47.2"
    ]  # fmt: skip


@pytest.mark.parametrize("style", ["gpt2", "llama"])
def test_what_is_never_known_of_tokens_has_no_panel(style):
    choice = Choice("transformer", depth=2, length=8, style=style)
    seen = see(choice)
    page = panels.live(seen)
    for title, part, why in (
        ("Bias against gradients", "frontier", "nonlinearity"),
        ("How long the bias lasts", "absorption", "tangent kernel"),
    ):
        assert why in seen.why[part]
        assert title not in page
    assert "attention" in phases_of(choice)
    assert "<h3>" not in panels.no_phases(phases_of(choice))
    assert ("rotary" in re.search(r"<h3>Gradients</h3>(.*?)</div>", page)[1]) == (style == "llama")


def test_and_the_theory_does_refuse_it():
    """The sentences are true as long as these refuse."""
    choice = Choice("transformer", depth=2, length=8)
    with pytest.raises(fg.NotCovered):
        fg.predict(choice.network, inputs=choice.inputs).absorption(lr=1e-4)
    with pytest.raises(fg.NotCovered):
        fg.frontier(choice.network)


def test_every_kind_without_a_phase_diagram_says_why():
    for choice in (
        Choice("residual"),
        Choice("text"),
        Choice("text", text="embed(1) > dense > pool_tokens(mean) > dense"),
    ):
        assert isinstance(phases_of(choice), str)


def test_bars_of_many_classes_are_the_average_shares():
    """Quick ones against those of the distribution itself."""
    seen = see(Choice("plain", "relu", 4, classes=10))
    law = seen.prediction.guesses
    page = panels.live(seen)
    for k in (1, 2, 10):
        quick = average_kth(10, k, law.gamma, quick=True)
        assert quick == pytest.approx(law.kth_largest(k).mean, abs=1e-7)
        assert f"number {k}: {percent(quick)}" in page


def test_long_numbers_of_a_network_are_cut_for_the_eye():
    assert panels._brief("dense(weight_var=0.30720000000000003)") == "dense(weight_var=0.3072)"
    assert panels._brief("dense(weight_var=1.228)") == "dense(weight_var=1.228)"


def test_gradients_that_waited_are_the_same():
    choice = Choice("transformer", depth=2, length=8)
    at_once, later = see(choice), see(choice, whole=False)
    assert "<h3>Gradients</h3>" in panels.live(at_once)
    assert "<h3>Gradients</h3>" not in panels.live(later)
    assert later.prediction.gamma.tolist() == at_once.prediction.gamma.tolist()
    assert with_the_rest(later).stream == at_once.stream
    told = panels.rest(with_the_rest(later), later.later)
    assert "per residual block towards the input" in told
    assert told in panels.no_phases("none", told)


def test_absorption_of_many_classes_that_waited_is_the_same():
    choice = Choice("plain", "relu", 4, classes=10)
    at_once, later = see(choice), see(choice, whole=False)
    assert "How long the bias lasts" not in panels.live(later)
    assert later.later == ("absorption",)
    assert see(Choice("plain", "relu", 4), whole=False).later == ()  # two classes have a formula
    told = panels.rest(with_the_rest(later), later.later)
    assert told in panels.live(at_once)
    assert "in the median" in told
    assert told in panels.phases(choice, *phases_of(choice), told)


def test_tokens_and_text_have_pages():
    assert "data-gamma" in panels.live(see(Choice("transformer", depth=2, length=8)))
    assert "data-gamma" in panels.live(see(Choice("text")))


def test_scales_and_ticks():
    assert AxisScale(1.0, 100.0, True)(10.0) == pytest.approx(0.5)
    assert AxisScale(0.0, 10.0).ticks() == [0, 2, 4, 6, 8, 10]
    assert 1.0 in AxisScale(1e-7, 1e5, True).ticks()
    assert [number(v) for v in (0.0, 0.25, 1e-5, 3e6)] == ["0", "0.25", "10⁻⁵", "3·10⁶"]


def test_a_drawing_breaks_where_a_number_is_missing():
    drawing = SvgChart(AxisScale(0, 4), AxisScale(0, 1), "x", "y")
    drawing.line([(0, 0.1), (1, 0.2), (2, float("nan")), (3, 0.3), (4, 0.4)])
    assert drawing.svg("a line").count("<polyline") == 2
    assert "nan" not in drawing.svg("a line")


def test_no_page_has_numbers_that_are_none():
    rng = np.random.default_rng(3)
    for _ in range(25):
        choice = Choice(
            "plain",
            str(rng.choice(["relu", "tanh", "gelu", "sigmoid", "abs"])),
            int(rng.integers(1, 100)),
            str(rng.choice(NORMS)),
            bool(rng.integers(2)),
            weight_var=float(rng.uniform(0.1, 6)),
            bias_var=float(rng.uniform(0, 2)),
            classes=int(rng.choice([2, 3])),
        )
        page = panels.live(see(choice))
        assert not re.search(r"\bnan\b|\binf\b", page), choice


def test_a_rounded_nothing_is_said_as_nothing():
    seen = see(Choice("transformer", depth=4, style="llama", length=16))
    assert 0.0 < abs(seen.prediction.gamma[-1]) < 1e-6  # sampled attention, in float32
    assert "drift ratio γ = 0." in panels.live(seen)


def test_where_descent_overshoots_the_page_says_so_in_words():
    """The ResNet preset at the lowest rate; 10 classes are refused as 2 are, before the flow of their means."""
    for query in ("kind=residual&depth=8", "lr=1&classes=10"):
        seen = with_the_rest(see(Choice.of(query), whole=False))
        assert seen.absorption is None
        assert "overshoots" in seen.why["absorption"]
    assert "Lower the learning rate" in see(Choice(lr=1.0)).why["absorption"]


@pytest.mark.parametrize(
    "query", ["kind=residual&depth=8&classes=10", "activation=gelu&depth=6", "activation=tanh&bias_var=0.1"]
)
def test_names_of_dots_cover_nothing(query):
    """The frontier of the ResNet preset has three dots in a row, closer than their names are long."""
    page = panels._frontier(see(Choice.of(query), whole=False))
    found = re.findall(r'<text x="([\d.]+)" y="([\d.]+)" font-size="12" text-anchor="(\w+)"[^>]*>([^<]+)</text>', page)
    assert len(found) >= 3
    assert all(0 < float(x) < panels.CHART_WIDTH for x, *_ in found)
    boxes = [(float(x), float(x) + 6 * len(said), float(y)) for x, y, anchor, said in found if anchor == "start"]
    boxes += [(float(x) - 6 * len(said), float(x), float(y)) for x, y, anchor, said in found if anchor == "end"]
    dots = [(float(x) - 4, float(x) + 4, float(y) + 4) for x, y in re.findall(r'cx="([\d.]+)" cy="([\d.]+)"', page)]
    for k, (a, b, y) in enumerate(boxes):
        assert not any(a < d and c < b and abs(y - z) < 11 for c, d, z in [*boxes[:k], *dots])


def test_an_even_network_has_no_axis_of_thousands():
    """LLaMA's γ is 0 but for rounding: a peak without a height, and a sentence."""
    page = panels.live(see(Choice.of("kind=transformer&style=llama&depth=2&length=8"), whole=False))
    assert "Every class gets 50 % in every network." in page
    assert "per 1 %" not in page


def test_ten_classes_are_compared_class_by_class():
    before, after = see(Choice(classes=10)), see(Choice(classes=10, norm="batchnorm"))
    law = before.prediction.guesses
    page = panels._shares(after, before)
    for k in (1, 2, 10):
        assert f"before, number {k}: {percent(average_kth(10, k, law.gamma, quick=True))}" in page
    assert "before, number" not in panels._shares(after, see(Choice(classes=3)))


def test_the_line_of_the_diagram_is_the_edge_of_chaos() -> None:
    """χ passes 1 there: by straight lines of log χ between points 0.1 apart, within a hundredth."""
    diagram = fg.phase_diagram("tanh", weight_vars=np.linspace(0.5, 4.0, 36), bias_vars=[0.05, 0.1])
    (line,) = panels._level_lines(diagram)
    assert [b for _, b in line] == [0.05, 0.1]
    for w, b in line:
        assert w == pytest.approx(fg.edge_of_chaos("tanh", bias_var=b), rel=0.01)
