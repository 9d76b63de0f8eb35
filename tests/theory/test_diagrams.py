"""The grid against the scalar route, its lines, its names, its plain data."""

from __future__ import annotations

import json
import math
import time

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from properties import examples

import firstguess as fg
from firstguess.theory.phases.phase_diagram import PhaseDiagram

BLOCKS = {
    "tanh": 4.0,
    "relu": 4.0,
    "gelu": 2.0,
    "hardtanh": 4.0,
    "sin": 4.0,
    "selu": 1.5,
    "erf": 4.0,
    "elu": 1.6,
    "centered(relu)": 3.0,
    "relu > maxpool(2)": 2.0,
    "tanh > avgpool(2)": 8.0,
    "tanh > layernorm": 4.0,
}


@pytest.mark.parametrize("block", BLOCKS)
def test_grid_agrees_with_scalar(block: str) -> None:
    """Random points, q and c and χ̃ within 1e-6, the same phase unless χ̃ is that close to 1."""
    rng = np.random.default_rng(2024)
    w = np.sort(rng.uniform(0.05, BLOCKS[block], 9))
    b = np.sort(np.concatenate([[0.0], rng.uniform(0.0, 0.5, 3)]))
    d = fg.phase_diagram(block, weight_vars=w, bias_vars=b, lines=False)
    assert d.error < 1e-6
    for i, bias_var in enumerate(b):
        for j, weight_var in enumerate(w):
            fp = fg.fixed_point(block, weight_var=float(weight_var), bias_var=float(bias_var))
            where = f"{block} at {weight_var}, {bias_var}"
            assert d.q[i, j] == pytest.approx(fp.q, rel=1e-6), where
            assert d.chi[i, j] == pytest.approx(fp.chi, rel=1e-6), where
            if abs(fp.chi - 1.0) > 1e-3:  # at the edge c has a slope of its own; see below
                assert d.c[i, j] == pytest.approx(fp.c, abs=1e-6), where
                assert d.phase[i, j] == fp.phase, where
                assert d.regime[i, j] == fp.regime, where


def test_near_the_edge_the_angle_is_right() -> None:
    """c* leaves 1 linearly beyond the edge; the grid follows to 1e-5 of 1 − c."""
    edge = fg.edge_of_chaos("tanh", bias_var=0.1)
    w = edge * np.array([1.0005, 1.002, 1.01])
    d = fg.phase_diagram("tanh", weight_vars=w, bias_vars=[0.1], lines=False)
    want = [fg.fixed_point("tanh", weight_var=float(x), bias_var=0.1) for x in w]
    assert d.c[0] == pytest.approx([p.c for p in want], abs=1e-6)


def test_lines_and_names() -> None:
    d = fg.phase_diagram("tanh", weight_vars=[1.0, 2.0, 4.0], bias_vars=[0.05, 0.1])
    assert d.edge == pytest.approx([1.760955, 1.986073], abs=1e-6)
    assert d.neutrality == pytest.approx([2.37827, 2.92477], abs=1e-5)
    assert np.all(np.isnan(d.variance_edge))
    assert d.names.shape == (2, 3)
    assert d.names[0].tolist() == [
        "ordered, deeply and persistently biased",
        "chaotic, biased",
        "chaotic, neutral",
    ]
    pooled = fg.phase_diagram("relu > maxpool(2)", weight_vars=[1.0], bias_vars=[0.0, 0.1])
    assert pooled.edge == pytest.approx([4 / 3] * 2)
    assert pooled.variance_edge == pytest.approx([4 * math.pi / (3 * math.pi + 2)] * 2)
    assert np.all(np.isnan(pooled.neutrality))
    assert "33.3 %" in str(d) or "%" in str(d)


def test_the_grid_changes_phase_at_its_lines() -> None:
    d = fg.phase_diagram("tanh", weight_vars=np.linspace(0.5, 4.0, 60), bias_vars=[0.05, 0.2, 0.4])
    for i in range(3):
        assert np.array_equal(d.phase[i] == "chaotic", d.weight_vars > d.edge[i])
        assert np.array_equal(d.regime[i] == "neutral", d.weight_vars > d.neutrality[i])


def test_relu_is_deeply_biased_everywhere() -> None:
    d = fg.phase_diagram("relu", weight_vars=[0.5, 1.0, 2.0, 3.0], bias_vars=[0.0, 0.3])
    assert np.all(d.c == 1.0)
    assert np.all(d.regime == "deeply biased")
    assert d.phase[0].tolist() == ["ordered", "ordered", "edge of chaos", "chaotic"]
    assert d.q[1, 1] == pytest.approx(0.3 / (1 - 0.5), rel=1e-9)
    assert np.isinf(d.q[1, 3])


def test_defaults_are_a_square_of_ten_thousand_in_time() -> None:
    started = time.perf_counter()
    d = fg.phase_diagram("tanh")
    seconds = time.perf_counter() - started
    assert d.c.shape == (100, 100)
    assert d.error < 1e-6
    assert seconds < 10.0  # 2 s alone on a machine; benchmarks/theory.py measures it


@pytest.mark.parametrize("block", ["tanh", "relu", "gelu"])
def test_plain_data_reads_back(block: str) -> None:
    d = fg.phase_diagram(block, weight_vars=[0.5, 2.0, 3.0], bias_vars=[0.0, 0.1])
    again = PhaseDiagram.from_dict(json.loads(json.dumps(d.to_dict(), allow_nan=False)))
    for name in ("weight_vars", "bias_vars", "q", "c", "gamma", "chi", "edge", "variance_edge", "neutrality"):
        assert np.array_equal(getattr(again, name), getattr(d, name), equal_nan=True), name
    assert np.array_equal(again.names, d.names)
    assert (again.block, again.error) == (d.block, d.error)


@pytest.mark.parametrize(
    "options",
    [
        {"weight_vars": []},
        {"weight_vars": [0.0, 1.0]},
        {"weight_vars": [-1.0]},
        {"weight_vars": [math.nan]},
        {"weight_vars": [math.inf]},
        {"weight_vars": [[1.0, 2.0], [3.0, 4.0]]},
        {"weight_vars": "abc"},
        {"weight_vars": ["a", "b"]},
        {"bias_vars": [-0.1]},
        {"bias_vars": []},
        {"tolerance": 0.0},
        {"tolerance": math.nan},
    ],
)
def test_bad_axes(options: dict[str, object]) -> None:
    with pytest.raises(fg.InvalidInput) as caught:
        fg.phase_diagram("tanh", **options)  # type: ignore[arg-type]
    assert caught.value.hint


def test_unknown_blocks() -> None:
    with pytest.raises(fg.InvalidInput):
        fg.phase_diagram("tanhh")
    with pytest.raises(fg.NotCovered):
        fg.phase_diagram("batchnorm(batch=8) > relu")


@given(st.floats(0.05, 6.0), st.floats(0.0, 1.0))
@example(0.5, 1e-14)  # q* below what a grid tells from 0, where erf is linear: γ is infinite, and γ(1 − c) was ∞·0
@examples(25)
def test_single_points(weight_var: float, bias_var: float) -> None:
    """A grid of one point is the scalar answer."""
    d = fg.phase_diagram("erf", weight_vars=[weight_var], bias_vars=[bias_var], lines=False)
    fp = fg.fixed_point("erf", weight_var=weight_var, bias_var=bias_var)
    assert d.q[0, 0] == pytest.approx(fp.q, rel=1e-6, abs=1e-12)
    if abs(fp.chi - 1) > 1e-3:
        assert d.c[0, 0] == pytest.approx(fp.c, abs=1e-6)
