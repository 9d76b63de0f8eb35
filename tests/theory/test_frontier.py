"""The frontier: every mark is what `fg.predict` and `fg.tune` say of its network, and lies on (1 + γ)·g = P."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from charts import svg_text

import firstguess as fg

NETS = [fg.mlp(20), fg.residual_mlp(10), fg.mlp(6, "tanh", weight_var=1.3, bias_var=0.1)]


@pytest.mark.parametrize("net", NETS, ids=str)
def test_marks_are_what_their_networks_are(net: fg.Network) -> None:
    f = fg.frontier(net, targets=(0.5, 3.0))
    assert f.here.gamma == pytest.approx(float(fg.predict(net).gamma[-1]))
    for mark in (f.here, *f.remedies, *f.reached):
        p = fg.predict(mark.network)
        if not mark.note:
            assert mark.gamma == pytest.approx(float(p.gamma[-1]), abs=1e-12)
            assert (1 + mark.gamma) * mark.gradients == pytest.approx(mark.nonlinearity)
            # the same by the layers' own factors: a signal of constant size has both gradients as they are
            # (and biases of the first layer subtract their part)
            size = math.exp(p.log_q[0] - p.log_q[-1]) / (1 + p.gamma[0])
            assert mark.gradients == pytest.approx(float(np.prod(p.gradient_growth)) * size, rel=1e-6)
    for mark in f.reached:
        assert min(abs(mark.gamma - target) for target in (0.5, 3.0)) < 1e-5
        assert min(abs(math.log(mark.gradients / g)) for g in (0.1, 1.0, 10.0)) < 1e-4
    (head,) = [m for m in f.remedies if m.note]
    assert (head.gamma, head.gradients, head.nonlinearity) == (0.0, f.here.gradients, f.here.nonlinearity)


def test_known_places_of_relu() -> None:
    """theory.md §10: plain is (.467, 1), a norm after is (0, 1.467), per layer."""
    f = fg.frontier(fg.mlp(20), targets=(0.5,))
    by = {m.name: m for m in f.remedies}
    assert by["LayerNorm after φ"].gamma == 0.0
    assert by["LayerNorm after φ"].gradients == pytest.approx((math.pi / (math.pi - 1)) ** 20)
    assert by["centred φ"].nonlinearity == pytest.approx((math.pi / (math.pi - 1)) ** 20)
    assert by["LayerNorm before φ"].gamma == pytest.approx(f.here.gamma)
    assert "edge of chaos" not in by  # it stands there
    assert "edge of chaos" in {m.name for m in fg.frontier(fg.mlp(3, weight_var=1.0), targets=(0.5,)).remedies}
    assert [m.name for m in f.reached] == ["slope 0.679"]
    assert "not better" in str(f)
    assert f.to_dict()["here"]["gamma"] == f.here.gamma


def test_data_raise_the_floor_and_tokens_are_refused() -> None:
    f = fg.frontier(fg.mlp(5), targets=(0.1, 0.5), inputs=fg.Inputs(mean_square=0.2))
    assert f.data_gamma == pytest.approx(0.2)
    assert [round(m.gamma, 6) for m in f.reached] == [0.5]  # 0.1 is below the data's own
    for net, why in (
        (fg.transformer("gpt2", depth=1), "tokens"),
        (fg.cnn(2), "without pools"),
        ("dense > relu > dense > tanh > dense", "one activation"),
    ):
        with pytest.raises(fg.NotCovered, match=why):
            fg.frontier(net)
    flat = fg.frontier(fg.mlp(5, norm="layernorm", placement="after"), targets=(0.5,))
    assert flat.reached == ()
    assert "from 0 to 0" in str(flat)
    assert "γ 0 at 5 hidden layers" in " ".join(fg.figures.frontier_chart(flat).to_dict()["title"]["text"])


def test_the_chart_says_where_it_stands(tmp_path: Path) -> None:
    f = fg.frontier(fg.mlp(20), targets=(0.5, 10.0))
    chart = fg.figures.frontier_chart(f)
    words = svg_text(chart)
    for said in ("this network: γ 18.4, P 19.4", "slope 0.679", "LayerNorm after φ, centred φ", "head centred"):
        assert said in words
    spec: Any = chart.to_dict()
    assert "not better" in " ".join(spec["title"]["subtitle"])
    assert fg.figures.save(chart, tmp_path / "frontier.png").stat().st_size > 20_000
    with pytest.raises(fg.InvalidInput, match="Frontier"):
        fg.figures.frontier_chart(fg.mlp(3))  # type: ignore[arg-type]


def test_bias_at_the_edge_lies_between_the_bounds_of_random_maps() -> None:
    """theory.md (32), which is not proven: 300 maps C(c) = Σ p_k c^k with C(1) = C'(1) = 1, up to 200 layers."""
    rng = np.random.default_rng(32)
    for _ in range(300):
        k = np.arange(2, int(rng.integers(3, 30)))
        p = rng.dirichlet(np.full(len(k), rng.choice([0.1, 1.0])))
        p *= rng.uniform(0.001, 1.0) / (k * p).sum()
        first = float(((k - 1) * p).sum())  # p_0, so that C'(1) = 1
        nonlinearity, bend = 1 / (1 - first), float((k * (k - 1) * p).sum())
        c = 0.0
        for layers in range(1, 201):
            c = first + (1 - first - p.sum()) * c + float((p * c**k).sum())
            assert 0.5 * layers * (nonlinearity - 1) <= c / (1 - c) <= layers * bend * (1 + 1e-12)


@pytest.mark.parametrize("slope", [0.0, 0.3, 0.9])
@pytest.mark.parametrize("layers", [1, 5, 100])
def test_networks_at_the_edge_keep_the_lower_bound(slope: float, layers: int) -> None:
    """The same for leaky ReLU, (33), whose P follows from one layer by (31)."""
    variance = 2 / (1 + slope**2)
    one, deep = (
        fg.predict(f"{n} x [dense(weight_var={variance!r}) > leaky_relu({slope})] > dense(weight_var={variance!r})")
        for n in (1, layers)
    )
    assert one.gamma[-1] > 0
    assert deep.gamma[-1] >= 0.5 * layers * one.gamma[-1] * (1 - 1e-9)
