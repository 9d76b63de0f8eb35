"""ModuleEngine: any nn.Module, whatever it takes and returns, with numbers equal to those of a hand-written loop."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from small_models import kinds, mlp, points, unshared
from torch import nn

from firstguess.base.errors import InvalidInput
from firstguess.data import collect
from firstguess.ensemble.member_statistics import BETWEEN, DEAD, MEAN, SPREAD
from firstguess.ensemble.seeds import member_seeds
from firstguess.modules.engine import ModuleEngine
from firstguess.theory.closed_form import predict

pytestmark = pytest.mark.usefixtures("one_thread")


class ConvNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 6, 3, padding=1)
        self.norm = nn.BatchNorm2d(6)
        self.act = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(6, 8, 3, stride=2)
        self.drop = nn.Dropout(0.5)
        self.head = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.act(self.norm(self.conv(x)))
        x = self.act(self.conv2(x))
        return self.head(self.drop(x).mean((2, 3)))


def by_hand(x: torch.Tensor, nodes: torch.Tensor) -> np.ndarray:
    """MEAN, BETWEEN, SPREAD, DEAD from their definitions, in float64; nodes (n, …)."""
    values = nodes.double().reshape(len(x), -1)
    m, v = values.mean(0), values.var(0)
    dead = (values == values[0]).all(0).double().mean()
    return np.array([m.mean(), m.var(unbiased=False) - (v / len(x)).mean(), v.mean(), dead])


def test_equals_a_hand_written_loop() -> None:
    x = points(64, 10)
    engine = ModuleEngine(mlp, collect(x, batch_size=64), seed=3)
    members = engine.run(0, 12)
    for i in range(12):
        with torch.random.fork_rng(), torch.no_grad():
            torch.manual_seed(int(member_seeds(3, i, i + 1)[0]))
            model = mlp()
            h, stats = x, []
            for layer in model:
                h = layer(h)
                stats.append(by_hand(x, h))
            stats[-1] = by_hand(x, unshared(h))
        assert np.array_equal(np.bincount(h.argmax(1), minlength=3) / 64, members.fractions[i])
        np.testing.assert_allclose(members.stats[i], stats, rtol=1e-5, atol=1e-6)
    assert [(layer.name, layer.kind, layer.nodes, layer.weights) for layer in engine.layers] == [
        ("0", "Linear", 30, True), ("1", "ReLU", 30, False), ("2", "Linear", 20, True), ("3", "Tanh", 20, False),
        ("4", "Linear", 3, True),
    ]  # fmt: skip
    assert engine.points == 64
    assert engine.classes == 3


def test_batches_are_streamed_to_the_same_numbers() -> None:
    x = points(50, 10)
    whole = ModuleEngine(mlp, collect(x, batch_size=50)).run(0, 3)
    parts = ModuleEngine(mlp, collect(x, batch_size=7)).run(0, 3)
    assert np.array_equal(whole.fractions, parts.fractions)
    np.testing.assert_allclose(whole.stats, parts.stats, rtol=1e-5, atol=1e-7)
    split = ModuleEngine(mlp, collect(x, batch_size=50), memory=2 * 4 * 4 * 30 * 9).run(0, 3)  # nine points at a time
    np.testing.assert_allclose(whole.stats, split.stats, rtol=1e-5, atol=1e-7)


def test_agrees_with_the_closed_form() -> None:
    """Binary ReLU network at σw² = 2: std of G₀ and γ of hidden layers, each within 6 standard errors (1 in 5e8)."""
    members_ = 200
    model = nn.Sequential(nn.Linear(40, 300), nn.ReLU(), nn.Linear(300, 300), nn.ReLU(), nn.Linear(300, 2))
    x = points(1000, 40, seed=1)
    engine = ModuleEngine(model, collect(x, batch_size=1000), init=(2.0, 0.0))
    members = engine.run(0, members_)
    want = predict("2 x [dense(weight_var=2) > relu] > dense(weight_var=2)", points=1000)
    g = members.fractions[:, 0]
    second = (g - 0.5) ** 2  # its expectation is Var G₀
    n = members_
    # the data themselves are a draw, with overlaps of order 1/√40 between points: 0.005 on the variance of G
    assert abs(second.mean() - want.guesses.std() ** 2) < 6 * second.std() / math.sqrt(n) + 0.005
    center = members.stats[:, 2, MEAN] ** 2 + members.stats[:, 2, BETWEEN]
    spread = members.stats[:, 2, SPREAD]
    gamma = center.mean() / spread.mean()
    error = np.std(center - gamma * spread) / spread.mean() / math.sqrt(n)
    assert abs(gamma - want.gamma[1]) < 6 * error + 0.02  # 1/width and 1/dimension


@pytest.mark.parametrize("make", [mlp, ConvNet])
def test_loop_and_vmap_agree(make) -> None:
    x = points(40, 10) if make is mlp else points(40, 3, 8, 8)
    model = make()
    loop = ModuleEngine(model, collect(x, batch_size=25), strategy="loop").run(0, 6)
    engine = ModuleEngine(model, collect(x, batch_size=25), strategy="vmap", memory=4e7)
    stacked = engine.run(0, 6)
    assert np.abs(loop.fractions - stacked.fractions).max() <= 1 / 40  # one tie to rounding
    np.testing.assert_allclose(loop.stats, stacked.stats, rtol=1e-5, atol=1e-6)


def test_auto_measures_and_says_so() -> None:
    engine = ModuleEngine(mlp(), collect(points(30, 10)))
    first = engine.run(0, 4)
    rest = engine.run(4, 24)
    assert "vmap" in engine.notes[0]
    assert "one by one" in engine.notes[0]
    loop = ModuleEngine(mlp(), collect(points(30, 10)), strategy="loop").run(0, 24)
    np.testing.assert_allclose(np.concatenate([first.stats, rest.stats]), loop.stats, rtol=1e-5, atol=1e-6)
    assert engine.batch_hint >= 1


def test_vmap_refused_with_its_reason() -> None:
    class Branch(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) if float(self.weight.sum()) > 0 else -super().forward(x)

    with pytest.raises(InvalidInput, match="vmap"):
        ModuleEngine(Branch(10, 2), collect(points(8, 10)), strategy="vmap")
    engine = ModuleEngine(Branch(10, 2), collect(points(8, 10)))
    engine.run(0, 8)
    assert "not possible" in engine.notes[0]


@pytest.mark.parametrize("strategy", ["loop", "vmap"])
def test_a_member_is_the_same_alone_and_among_many(strategy) -> None:
    batches = collect(points(30, 10))
    many = ModuleEngine(mlp(), batches, seed=5, strategy=strategy).run(0, 20)
    alone = ModuleEngine(mlp(), batches, seed=5, strategy=strategy).run(13, 14)
    np.testing.assert_allclose(many.stats[13], alone.stats[0], rtol=1e-5)
    assert np.array_equal(many.fractions[13], alone.fractions[0])
    other = ModuleEngine(mlp(), batches, seed=6, strategy=strategy).run(13, 14)
    assert not np.allclose(other.stats, alone.stats)


def test_conv_net_with_batchnorm_and_in_place_relu() -> None:
    """Each probe sees what its layer returned, not what a later in-place operation made of it."""
    x = points(32, 3, 8, 8)
    model = ConvNet()
    engine = ModuleEngine(model, collect(x, batch_size=16))
    members = engine.run(0, 3)
    assert [layer.name for layer in engine.layers] == ["conv", "norm", "act", "conv2", "act#2", "head"]
    assert engine.layers[0].nodes == 6 * 64
    private = engine._source.shared_copy
    for i in range(3):
        with engine._source.member(int(member_seeds(0, i, i + 1)[0])), torch.no_grad():
            h1 = private.conv(x)
            h2 = torch.cat([nn.functional.batch_norm(h, None, None, training=True) for h in h1.split(16)])
            h3 = h2.relu()
            h4 = private.conv2(h3)
            h5 = h4.relu()
            h6 = private.head(h5.mean((2, 3)))
        want = [by_hand(x, h) for h in (h1, h2, h3, h4, h5, unshared(h6))]
        np.testing.assert_allclose(members.stats[i], want, rtol=2e-5, atol=1e-6)
    assert any(f.kind == "batchnorm" and "16 points" in f.message for f in members.findings)


def test_node_channel_counts_positions_as_points() -> None:
    x = points(16, 3, 8, 8)
    engine = ModuleEngine(ConvNet(), collect(x), node="channel")
    members = engine.run(0, 1)
    assert [layer.nodes for layer in engine.layers] == [6, 6, 6, 8, 8, 4]
    with engine._source.member(int(member_seeds(0, 0, 1)[0])), torch.no_grad():
        flat = engine._source.shared_copy.conv(x).movedim(1, -1).reshape(-1, 6)
    np.testing.assert_allclose(members.stats[0, 0], by_hand(flat, flat), rtol=1e-5, atol=1e-7)


def test_eval_batchnorm_is_a_finding() -> None:
    model = ConvNet()
    model(points(8, 3, 8, 8))  # running statistics that are not the initial ones any more
    engine = ModuleEngine(model, collect(points(8, 3, 8, 8)), mode="eval")
    members = engine.run(0, 2)
    assert "eval batchnorm" in kinds(members)
    np.testing.assert_allclose(members.stats[:, 0], members.stats[:, 1], rtol=1e-4, atol=1e-6)  # the norm does nothing


def test_batch_of_one_with_batchnorm() -> None:
    members = ModuleEngine(ConvNet(), collect(points(9, 3, 8, 8), batch_size=8)).run(0, 1)
    assert "batch of one" in kinds(members)


def test_zero_head_is_no_guess() -> None:
    class Zero(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.head = nn.Linear(10, 8), nn.Linear(8, 4)
            nn.init.zeros_(self.head.weight)
            nn.init.zeros_(self.head.bias)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.body(x).relu())

    members = ModuleEngine(Zero, collect(points(400, 10))).run(0, 5)
    found = [f for f in members.findings if f.kind == "zero head"]
    assert [f.layer for f in found] == ["head"]
    assert members.ties.tolist() == [400] * 5
    # Broken at random: each fraction is Binomial(400, 1/4)/400; 6 standard deviations for 20 of them: 4e-8
    assert np.abs(members.fractions - 0.25).max() < 6 * math.sqrt(0.25 * 0.75 / 400)
    assert "dead" not in kinds(members)
    again = ModuleEngine(Zero(), collect(points(400, 10))).run(0, 1)  # Linear's own initializer would draw the head
    assert kinds(again) == {"constants", "zero head"}


def test_what_is_not_as_initializers_draw_it_is_told() -> None:
    model = nn.Sequential(nn.Linear(10, 50), nn.ReLU(), nn.Linear(50, 10))
    nn.init.zeros_(model[2].weight)
    nn.init.normal_(model[0].weight)
    found = ModuleEngine(model, collect(points(20, 10))).run(0, 1).findings
    assert {(f.kind, f.layer) for f in found} >= {("constants", "2.weight"), ("other scale", "0.weight")}
    assert not kinds(ModuleEngine(mlp(), collect(points(20, 10))).run(0, 1))


def test_some_ties() -> None:
    class Coarse(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x).round()

    members = ModuleEngine(Coarse(10, 3), collect(points(500, 10))).run(0, 3)
    assert "ties" in kinds(members)
    assert (members.ties > 0).all()
    np.testing.assert_allclose(members.fractions.sum(1), 1)


def test_not_finite_names_the_first_layer() -> None:
    class Bad(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.log, self.head = nn.Linear(10, 8), Log(), nn.Linear(8, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(self.log(self.one(x)))

    class Log(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.log()

    for strategy in ("loop", "vmap"):
        members = ModuleEngine(Bad(), collect(points(20, 10)), strategy=strategy).run(0, 3)
        assert [f.layer for f in members.findings if f.kind == "nonfinite"] == ["log"]
        assert np.isnan(members.fractions).all()
        assert np.isfinite(members.stats[:, 0]).all()
        assert np.isnan(members.stats[:, 1]).all()


def test_deep_layers_neither_under_nor_overflow() -> None:
    """Variances of 1e±56: beyond float32 squares, and still exact."""
    x = points(20, 10)
    for scale in (1e-14, 1e14):
        model = nn.Sequential(nn.Linear(10, 6, bias=False), nn.Linear(6, 6, bias=False), nn.Linear(6, 2, bias=False))
        engine = ModuleEngine(model, collect(x), init=(scale**2, 0.0))
        members = engine.run(0, 1)
        with engine._source.member(int(member_seeds(0, 0, 1)[0])), torch.no_grad():
            h = engine._source.shared_copy[:2](x)
        np.testing.assert_allclose(members.stats[0, 1], by_hand(x, h), rtol=1e-5)
        assert members.stats[0, 1, DEAD] == 0


def test_dead_layers() -> None:
    model = nn.Sequential(nn.Linear(10, 6), nn.Hardshrink(1e6), nn.Linear(6, 3))
    members = ModuleEngine(model, collect(points(20, 10))).run(0, 2)
    assert {f.layer for f in members.findings if f.kind == "dead"} == {"1", "2"}
    assert (members.stats[:, 1, DEAD] == 1).all()


def test_probe_says_which_layers_are_measured() -> None:
    model = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3))
    batches = collect(torch.randn(20, 6, generator=torch.Generator().manual_seed(3)))
    all_layers, weights, output = (
        ModuleEngine(model, batches, probe=p, strategy="loop") for p in ("all", "weights", "output")
    )
    assert [layer.name for layer in all_layers.layers] == ["0", "1", "2"]
    assert [layer.name for layer in weights.layers] == ["0", "2"]
    assert [layer.name for layer in output.layers] == ["2"]
    everything, last = all_layers.run(0, 3), output.run(0, 3)
    assert (everything.fractions == last.fractions).all()
    assert (everything.stats[:, -1] == last.stats[:, 0]).all()
    assert not last.findings
    with pytest.raises(InvalidInput, match="probe"):
        ModuleEngine(model, batches, probe="some")  # pyright: ignore
