"""Phase diagrams as charts: every cell's own numbers, and lines that say what they are."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from charts import rows, svg_text

import firstguess as fg
from firstguess.base.errors import InvalidInput
from firstguess.show.charts import phase_diagram_chart


def diagram(what: str, weights: int = 24, biases: int = 16) -> Any:
    make: Any = fg.phase_diagram
    make = getattr(make, "phase_diagram", make)  # the module of that name, if something imported it
    return make(what, weight_vars=np.linspace(4 / weights, 4, weights), bias_vars=np.linspace(0, 0.5, biases))


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
    assert set(edge) == {*zip(d.edge, d.bias_vars, strict=True), *zip(d.fine[1], d.fine[0], strict=True)}
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


def test_the_edge_has_no_kink_where_it_starts() -> None:
    """The edge of tanh starts like a cube root. Joined straight from σb² = 0 to the next of a hundred values, it turned
    by 11 degrees there; a smooth line in steps of some pixels turns by less than 7 a step.
    """
    d = diagram("tanh", 4, 100)
    drawn = sorted(
        {(row["bias_var"], row["weight_var"]) for row in rows(phase_diagram_chart(d)) if "edge" in row.get("line", "")}
    )
    steps = np.diff(np.array(drawn)[:12], axis=0) * [440 / 0.5, 680 / 4]  # in pixels
    turns = np.diff(np.degrees(np.arctan2(steps[:, 0], steps[:, 1])))
    assert 0 < turns.min() < turns.max() < 7


def test_a_networks_own_place_is_marked() -> None:
    d = diagram("tanh")
    chart = phase_diagram_chart(d, mark=fg.fixed_point("tanh", weight_var=2.5, bias_var=0.05))
    (place,) = {(row["weight_var"], row["bias_var"]) for row in rows(chart) if row.get("text") == "σw² 2.5, σb² 0.05"}
    assert place == (2.5, 0.05)
    text = svg_text(chart)
    assert "| σw² 2.5, σb² 0.05 |" in text
    assert "Marked: σw² 2.5, σb² 0.05 (chaotic, neutral)." in text
    outside = phase_diagram_chart(d, mark=fg.fixed_point("tanh", weight_var=2.5, bias_var=3.0))
    assert "Outside the figure: σw² 2.5, σb² 3" in svg_text(outside)


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
