"""Phases of residual blocks and BatchNorm: deep networks end up there, gradients grow so; what has none is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest

import firstguess as fg

BATCHNORMS = ["batchnorm > relu", "tanh > batchnorm", "batchnorm > tanh", "relu > batchnorm"]


@pytest.mark.parametrize("block", BATCHNORMS)
@pytest.mark.parametrize(("w", "b"), [(2.0, 0.1), (0.7, 0.4), (1.5, 0.0)])
def test_batchnorm_is_there_after_a_layer(block: str, w: float, b: float) -> None:
    dense = f"dense(weight_var={w}, bias_var={b})"
    deep = fg.predict(f"100 x [{dense} > {block}] > {dense}")
    point = fg.fixed_point(block, weight_var=w, bias_var=b)
    assert point.c == pytest.approx(deep.correlation[-1], rel=1e-9, abs=1e-12)
    assert point.q == pytest.approx(deep.q[-1], rel=1e-9)
    assert point.chi == pytest.approx(deep.gradient_growth[-1], rel=1e-9)
    assert point.depth_scale == 0.0


def test_batchnorm_before_relu_has_no_edge() -> None:
    """π/(π−1) whatever the weights (theory.md §5; Yang et al., 2019)."""
    for w in (0.3, 3.0):
        assert fg.fixed_point("batchnorm > relu", weight_var=w).chi == pytest.approx(math.pi / (math.pi - 1), rel=1e-12)
    with pytest.raises(fg.NotCovered, match=r"above 1 from weight_var 0\.01 to 30"):
        fg.edge_of_chaos("batchnorm > relu", bias_var=0.1)


@pytest.mark.parametrize(
    "block",
    [
        "residual[tanh > dense{} | scale(0.7)]",
        "residual[tanh > dense{}] > layernorm",
        "residual[layernorm > dense{} > tanh | scale(0.6)]",
    ],
)
def test_streams_that_settle(block: str) -> None:
    """20 depth scales deep: c and q are those of the fixed point, and came there at its rate."""
    w, b = 2.0, 0.1
    point = fg.fixed_point(block.format(""), weight_var=w, bias_var=b)
    assert 5.0 < point.depth_scale < 60.0
    inside = block.format(f"(weight_var={w}, bias_var={b})")
    deep = fg.predict(f"dense > {int(20 * point.depth_scale)} x [{inside}] > dense")
    assert deep.layers[-2].correlation == pytest.approx(point.c, rel=1e-5)
    assert math.exp(deep.layers[-2].log_q) == pytest.approx(point.q, rel=1e-5)
    # d(1 − c')/d(1 − c) = e^(−1/ξ): how fast c came there
    c = np.array([layer.correlation for layer in deep.layers[1:-1]])
    c = c[1::2] if "layernorm" in block.rsplit("]", maxsplit=1)[-1] else c
    early = int(4 * point.depth_scale)
    rate = (c[early + 1] - point.c) / (c[early] - point.c)
    assert rate == pytest.approx(math.exp(-1.0 / point.depth_scale), rel=0.03)


@pytest.mark.parametrize(
    ("block", "plain"),
    [
        ("residual[layernorm > dense{} > tanh]", "tanh > layernorm"),
        ("residual[batchnorm > relu > dense{}]", "batchnorm > relu"),
    ],
)
def test_streams_that_grow(block: str, plain: str) -> None:
    """dc/dl = (C(c) − c)/l: the distance from c* falls like l^(C' − 1), C' that of the network without the stream.

    Gradients grow by 1 + O(1/l) a block: less than any exponential.
    """
    w, b = 2.0, 0.1
    text = block.format(f"(weight_var={w}, bias_var={b})")
    point = fg.fixed_point(block.format(""), weight_var=w, bias_var=b)
    assert (point.phase, point.chi, point.q) == ("edge of chaos", 1.0, math.inf)
    assert "more slowly than any exponential" in point.note
    away = [abs(fg.predict(f"dense > {n} x [{text}] > dense").layers[-2].correlation - point.c) for n in (50, 200, 800)]
    without = fg.fixed_point(plain, weight_var=w, bias_var=b).depth_scale
    power = 1.0 - (math.exp(-1.0 / without) if without > 0.0 else 0.0)
    for more, less in ((away[0], away[1]), (away[1], away[2])):
        assert math.log(more / less) / math.log(4.0) == pytest.approx(power, rel=0.15)
    growth = fg.predict(f"dense > 800 x [{text}] > dense").gradient_growth
    assert growth[-2] - 1.0 == pytest.approx((growth[len(growth) // 2] - 1.0) / 2, rel=0.1)  # 1 + O(1/l)


def test_relu_streams_explode_at_every_variance() -> None:
    """q' = (1 + σw²/2)q, and gradients alike; correlations go to 1."""
    for w in (0.5, 2.0):
        point = fg.fixed_point("residual[relu > dense]", weight_var=w, bias_var=0.1)
        assert point.chi == pytest.approx(1.0 + w / 2)
        assert (point.c, point.phase, point.depth_scale) == (1.0, "chaotic", math.inf)


def test_an_edge_on_paper() -> None:
    """√(1−β²)-like shortcuts: χ̃ = a² + s²σw²/2 = 1 at σw² = 2(1 − a²)/s², a = 0.9, s = 0.5."""
    edge = fg.edge_of_chaos("residual(scale=0.5)[relu > dense | scale(0.9)]")
    assert edge == pytest.approx(2.0 * (1.0 - 0.81) / 0.25, rel=1e-6)


def test_the_neutrality_line_of_batchnorm() -> None:
    """c* = (σw²/2π + σb²)/(σw²/2 + σb²) = ½ at σw² = σb²/(½ − 1/π)."""
    wanted = 0.2 / (0.5 - 1.0 / math.pi)
    assert fg.neutrality_line("batchnorm > relu", bias_var=0.2) == pytest.approx(wanted, rel=1e-9)


def test_a_diagram_of_a_residual_block() -> None:
    d = fg.phase_diagram("residual[layernorm > dense > tanh]", weight_vars=[0.5, 1.0, 4.0], bias_vars=[0.0, 0.3])
    assert set(d.phase.ravel().tolist()) == {"edge of chaos"}
    point = fg.fixed_point("residual[layernorm > dense > tanh]", weight_var=4.0, bias_var=0.3)
    assert (d.c[1, 2], d.gamma[1, 2]) == (point.c, point.gamma)
    assert "more slowly than any exponential" in str(d)
    again = fg.PhaseDiagram.from_dict(d.to_dict())
    assert again.note == d.note
    assert np.array_equal(again.c, d.c)
    between = fg.phase_diagram("batchnorm > relu", weight_vars=[0.5, 1.0, 2.0, 3.0], bias_vars=[0.2])
    assert between.neutrality[0] == pytest.approx(0.2 / (0.5 - 1.0 / math.pi), rel=1e-9)
    assert math.isnan(between.edge[0])


@pytest.mark.parametrize(
    ("block", "why"),
    [
        ("residual[relu > dense > tanh]", "the sum of activated nodes in a residual stream"),
        ("residual[dense > relu]", "ends in relu"),
        ("relu > batchnorm(batch=8)", "whose gradients are known"),
        ("dense > tanh", "outside of residual branches"),
        ("relu > batchcenter", "keeps the scale"),
        ("residual[dense]", "with an activation"),
    ],
)
def test_what_has_no_diagram_says_why(block: str, why: str) -> None:
    for call in (fg.phase_diagram, fg.edge_of_chaos, fg.neutrality_line):
        with pytest.raises(fg.FirstguessError, match=why):
            call(block)


def test_a_norm_that_divides_by_its_scale_has_no_edge_at_zero() -> None:
    """Without biases "layernorm > relu" is at the edge at every weight variance; no line at 1e-35."""
    assert math.isnan(fg.phase_diagram("layernorm > relu", weight_vars=[1.0, 2.0], bias_vars=[0.0, 0.1]).edge[0])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("block", "w", "b"),
    [
        ("batchnorm > relu", 2.0, 0.05),
        ("batchnorm > tanh", 2.0, 0.05),
        ("relu > batchnorm", 1.0, 0.0),
        ("residual[tanh > dense{} | scale(0.7)]", 0.5, 0.05),
        ("residual[tanh > dense{} | scale(0.7)]", 4.0, 0.05),
        ("residual[relu > dense{}]", 1.0, 0.05),
    ],
)
def test_drawn_networks_do_what_their_phase_says(block: str, w: float, b: float) -> None:
    """50 blocks deep, drawn networks: γ grows where γ* = ∞, stays where it is finite, dies where it is 0.

    Grows: at least twofold from 10 to 50 blocks; stays: within a factor of 2 of γ*; dies: below 0.01. Between them is
    finite size, which adds up over layers: BatchNorm before ReLU at width 300 on 300 points has lost a third by then.
    """
    depth = 50
    dense = f"(weight_var={w}, bias_var={b})"
    point = fg.fixed_point(block.format(""), weight_var=w, bias_var=b)
    inside = block.format(dense)
    text = f"{depth} x [dense{dense} > {inside}] > dense{dense}"
    if "residual" in block:
        text = f"dense{dense} > {depth} x [{inside}] > dense{dense}"
    m = fg.measure(text, fg.data.blob(300, 300, seed=5), inits=24, width=300, classes=10, seed=11)
    # γ of the stream behind 10, 20, …, 50 blocks; without residual blocks of the pre-activations
    layers = m.layers[1:-1] if "residual" in block else [layer for layer in m.layers if layer.kind == "dense"][1:-1]
    seen = np.array([layers[k - 1].gamma for k in (10, 20, 30, 40, len(layers))])
    if math.isinf(point.gamma):
        assert seen[-1] > 2 * seen[0] > 0, seen
    elif point.gamma > 0:
        assert (abs(np.log(seen[3:] / point.gamma)) < math.log(2)).all(), (point.gamma, seen)
    else:
        assert (abs(seen) < 0.01).all(), seen
