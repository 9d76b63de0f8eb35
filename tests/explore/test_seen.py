"""What the explorer shows, computed another way: by `fg.predict` and by hand."""

import re

import numpy as np
import pytest

import firstguess as fg
from firstguess.base.shares import percent
from firstguess.explore import panels
from firstguess.explore.choice import NORMS, Choice
from firstguess.explore.drawing import Drawing, Scale, short
from firstguess.explore.seen import phases_of, see


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


def test_tokens_and_text_have_pages():
    assert "data-gamma" in panels.live(see(Choice("transformer", depth=2, length=8)))
    assert "data-gamma" in panels.live(see(Choice("text")))


def test_scales_and_ticks():
    assert Scale(1.0, 100.0, True)(10.0) == pytest.approx(0.5)
    assert Scale(0.0, 10.0).ticks() == [0, 2, 4, 6, 8, 10]
    assert 1.0 in Scale(1e-7, 1e5, True).ticks()
    assert [short(v) for v in (0.0, 0.25, 1e-5, 3e6)] == ["0", "0.25", "10⁻⁵", "3·10⁶"]


def test_a_drawing_breaks_where_a_number_is_missing():
    drawing = Drawing(Scale(0, 4), Scale(0, 1), "x", "y")
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
