"""The ensemble reading of descriptions: against plain modules run one by one, against theory, and its promises."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from firstguess.base.errors import InvalidInput
from firstguess.ensemble import engine as description
from firstguess.ensemble.engine import DescriptionEngine
from firstguess.ensemble.member_module import build
from firstguess.ensemble.member_statistics import BETWEEN, DEAD, MEAN, SPREAD
from firstguess.network.activations import registry
from firstguess.network.builders import cnn, mlp, residual_mlp
from firstguess.network.layers import Activate, Dense
from firstguess.network.network import Network
from firstguess.theory.closed_form import predict


def blob(n: int, d: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((n, d), dtype=np.float32)


def images(n: int, side: int = 8, channels: int = 2) -> np.ndarray:
    return blob(n, channels * side * side, 5).reshape(n, channels, side, side)


def expected(network: Network, x: np.ndarray, members: range, *, width: int, seed: int = 0):
    """What raw.Members asks for, by its definition, from plain modules run one by one in float64 statistics."""
    fractions, stats = [], []
    for member in members:
        model = build(network, x, width=width, seed=seed, member=member)
        outputs: list[torch.Tensor] = []
        images = any(isinstance(m, torch.nn.Conv2d) for m in model.modules())
        h = torch.from_numpy(x) if images else torch.from_numpy(x).flatten(1)
        with torch.no_grad():
            for module in model:
                h = module(h)
                if not isinstance(module, torch.nn.Flatten):
                    outputs.append(h)
        fractions.append(np.bincount(h.argmax(1).numpy(), minlength=network.classes) / len(x))
        rows = []
        for out in outputs:
            values = out.flatten(1).double().numpy()
            mean, spread = values.mean(0), values.var(0, ddof=1).mean()
            dead = (values == values[0]).all(0).mean()
            rows.append([mean.mean(), mean.var() - spread / len(x), spread, dead])
        stats.append(rows)
    return np.array(fractions), np.array(stats)


def agree(network: Network, x: np.ndarray, *, width: int = 24, inits: int = 5, points: int = 2) -> None:
    engine = DescriptionEngine(network, x, width=width, reduce=False, seed=3)
    members = engine.run(0, inits)
    fractions, stats = expected(network, x, range(inits), width=width, seed=3)
    assert members.stats.shape == (inits, len(engine.layers), 4)
    assert [layer.nodes for layer in engine.layers][-1] == network.classes
    np.testing.assert_allclose(members.fractions, fractions, atol=points / len(x))  # logits that tie to rounding
    scale = (stats[..., SPREAD] + stats[..., BETWEEN] + stats[..., MEAN] ** 2)[..., None]
    weights = np.array([1.0, 1.0, 1.0, 0.0])
    assert np.all(np.abs(members.stats - stats) * weights <= 1e-4 * np.maximum(scale, np.sqrt(scale)))
    np.testing.assert_allclose(members.stats[..., DEAD], stats[..., DEAD], atol=1e-9)
    assert not members.findings


LAYERS = [
    "dense(weight_var=2) > relu > dense",
    "dense(weight_var=2, bias_var=0.5) > relu > dense(bias_var=0.1)",
    "dense(init=uniform, bias_var=0.2) > tanh > dense(init=uniform)",
    "dense(init=orthogonal) > tanh > dense(init=orthogonal) > tanh > dense(init=orthogonal)",
    "dense(width=30) > relu > dense(width=12) > relu > dense",
    "dense > batchnorm > relu > dense > relu > batchnorm > dense",
    "dense > batchnorm(batch=16) > relu > dense",
    "dense > batchnorm(batch=50) > relu > dense > batchnorm(batch=20) > relu > dense",
    "dense > batchnorm(batch=20, estimator=leave_one_out) > relu > dense",
    "dense > layernorm > relu > layernorm > dense",
    "dense > rmsnorm > relu > rmsnorm > dense",
    "dense > groupnorm(groups=4) > relu > groupnorm(groups=3) > dense",
    "dense > relu > maxpool(4) > dense > relu > avgpool(3) > dense",
    "dense > relu > scale(-0.5) > shift(0.3) > dense",
    "dense > residual(scale=0.5)[layernorm > relu > dense] > relu > dense",
    "dense > residual[batchnorm > relu > dense(width=10) > relu > dense] > batchnorm > dense",
    "dense > residual[relu > dense > maxpool(2)] > dense",
    "dense > residual[residual[relu > dense] > dense] > dense",
    "residual[relu > dense] > dense",
    "dense > relu > residual[dense > relu > dense(width=21) > batchnorm | dense > layernorm] > relu > dense",
    "dense > residual(scale=-2)[batchnorm > relu > dense > groupnorm(3) | batchnorm > scale(0.5)] > tanh > dense",
    "residual[dense(width=8) > rmsnorm | dense > tanh] > residual[dense > avgpool(2) | avgpool(2)] > dense",
    "dense > residual[residual[dense > batchnorm | dense] > dense | residual[dense] > dense > batchnorm] > dense",
    "layernorm > relu > dense > relu > dense",
    "batchnorm > dense > relu > dense",
    "dense > centered(relu) > dense > centered(gelu) > dense",
    "dense > relu > centered(softplus) > dense > relu > dense",  # refused by the closed form: its own mean
    "dense",
]


@pytest.mark.parametrize("source", LAYERS)
def test_every_layer_means_what_the_plain_module_does(source: str) -> None:
    agree(Network.parse(source, classes=3), blob(130, 30))


@pytest.mark.parametrize("name", registry.names())
def test_every_activation(name: str) -> None:
    agree(mlp(2, name, norm="layernorm"), blob(100, 10), inits=2)


def test_an_activation_of_your_own() -> None:
    agree(mlp(2, registry.activation(lambda x: np.maximum(x, 0.1 * x) + 0.2, name="mine")), blob(100, 10), inits=2)


CONVS = [
    cnn(2, "relu", weight_var=2, width=6),
    cnn(1, "tanh", norm="batchnorm", pool="avgpool(4)", width=4),
    cnn(1, "relu", norm="batchnorm(batch=16)", placement="after", width=4),
    Network.parse("conv(bias_var=0.1, stride=2) > layernorm > relu > groupnorm(groups=2) > dense > relu > dense"),
    Network.parse("conv(padding=1) > residual[batchnorm > relu > conv(padding=1)] > rmsnorm > relu > dense"),
    Network.parse("residual[relu > conv(padding=1)] > centered(relu) > centered(gelu) > dense", classes=4),
    Network.parse("batchnorm > conv > relu > dense"),
    Network.parse(
        "conv(padding=1) > batchnorm > relu > residual[conv(stride=2, padding=1, width=8) > batchnorm > relu > "
        "conv(padding=1) > batchnorm | conv(kernel=1, stride=2) > batchnorm] > relu > "
        "residual[conv(padding=1) > groupnorm(groups=2)] > relu > avgpool(4) > dense"
    ),
    Network.parse("conv(padding=1) > relu > maxpool(9, stride=2, padding=1) > conv > maxpool(4, stride=1) > dense"),
    Network.parse("residual[conv(padding=1) > avgpool(4) | avgpool(4) > conv(kernel=1)] > relu > dense", classes=4),
    Network.parse("conv > residual[relu > dense(width=9) > batchnorm | layernorm > dense] > relu > dense"),
]


@pytest.mark.parametrize("network", CONVS, ids=str)
def test_convolutions(network: Network) -> None:
    agree(network, images(60), width=6, inits=3)


def test_images_are_flattened_for_dense_networks() -> None:
    agree(mlp(1), images(50), inits=2)


def test_batch_option_and_float64() -> None:
    network = Network.parse("dense > batchnorm > relu > dense")
    x = blob(130, 8)
    by_option = DescriptionEngine(network, x, width=20, batch=16).run(0, 4)
    by_layer = DescriptionEngine(Network.parse("dense > batchnorm(batch=16) > relu > dense"), x, width=20).run(0, 4)
    np.testing.assert_array_equal(by_option.fractions, by_layer.fractions)
    double = DescriptionEngine(network, x, width=20, batch=16, dtype=torch.float64).run(0, 4)
    np.testing.assert_allclose(by_option.stats, double.stats, atol=1e-5)  # the same weights, drawn in float32


INVARIANT = [
    mlp(3),
    mlp(2, norm="batchnorm", placement="after", bias_var=0.1, classes=5),
    mlp(2, "tanh", norm="layernorm"),
    residual_mlp(2, norm="batchnorm"),
    Network.parse("dense > relu > residual[dense > batchnorm > relu > dense > batchnorm | dense] > relu > dense"),
    Network.parse("dense(init=orthogonal) > batchnorm(batch=25) > relu > maxpool(2) > dense", classes=4),
]


def same(a: object, b: object, points: int) -> None:
    """Guess fractions up to 1 point in 10 000, γ (its two parts relative to the total) to 1e-5."""
    assert np.abs(a.fractions - b.fractions).sum() / 2 * points <= max(1.0, 1e-4 * points * a.inits)  # type: ignore[attr-defined]
    sa, sb = a.stats, b.stats  # type: ignore[attr-defined]
    scale = sa[..., MEAN] ** 2 + np.abs(sa[..., BETWEEN]) + sa[..., SPREAD]
    assert np.all(np.abs(sa - sb)[..., 1:3] <= 1e-5 * scale[..., None])
    np.testing.assert_array_equal(sa[..., DEAD], sb[..., DEAD])


@pytest.mark.parametrize("reduce", [True, False])
@pytest.mark.parametrize("network", INVARIANT, ids=str)
def test_members_do_not_depend_on_how_they_are_computed(network: Network, reduce: bool) -> None:
    x = blob(400, 40)
    reference = DescriptionEngine(network, x, width=50, threads=1, reduce=reduce).run(0, 12)
    ways = [{"threads": 2, "group": 1}, {"group": 5, "chunk": 400}, {"chunk": 75, "threads": 3}, {"memory": 3e5}]
    for options in ways:
        engine = DescriptionEngine(network, x, width=50, reduce=reduce, **options)  # type: ignore[arg-type]
        same(reference, engine.run(0, 12), 400)
    alone = DescriptionEngine(network, x, width=50, reduce=reduce).run(7, 8)
    assert alone.start == 7
    np.testing.assert_allclose(alone.fractions[0], reference.fractions[7], atol=1 / 400)
    np.testing.assert_allclose(alone.stats[0], reference.stats[7], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("n", "d", "width"), [(60, 200, 50), (40, 30, 200), (40, 90, 200)])
def test_reduced_members_do_not_depend_on_how_they_are_computed(n: int, d: int, width: int) -> None:
    x = blob(n, d)
    reference = DescriptionEngine(mlp(3, bias_var=0.1), x, width=width, threads=1)
    assert reference.notes
    for options in ({"group": 1}, {"group": 3, "threads": 2}, {"chunk": 17}):
        same(reference.run(0, 9), DescriptionEngine(mlp(3, bias_var=0.1), x, width=width, **options).run(0, 9), n)  # type: ignore[arg-type]


def test_nothing_global_is_touched() -> None:
    torch.manual_seed(1)
    np.random.seed(1)  # noqa: NPY002
    before, legacy, threads = torch.get_rng_state(), np.random.get_state()[1], torch.get_num_threads()  # noqa: NPY002
    DescriptionEngine(mlp(2, norm="batchnorm"), blob(100, 5), width=16).run(0, 9)
    assert torch.equal(before, torch.get_rng_state())
    assert np.array_equal(legacy, np.random.get_state()[1])  # noqa: NPY002
    assert torch.get_num_threads() == threads
    assert not torch.is_inference_mode_enabled()


def test_an_exception_in_a_thread_reaches_the_caller_and_restores_threads() -> None:
    running = False  # the registry tries a function before the engine does

    def breaks(x: np.ndarray) -> np.ndarray:
        if running:
            raise RuntimeError("broken activation")
        return x

    x = blob(50, 5)
    engine = DescriptionEngine(mlp(1, registry.activation(breaks, name="breaks")), x, width=8, threads=2, group=1)
    threads = torch.get_num_threads()
    running = True
    with pytest.raises(RuntimeError, match="broken activation"):
        engine.run(0, 64)
    assert torch.get_num_threads() == threads


@pytest.mark.parametrize(
    "source",
    [
        "dense > relu > dense",
        "dense > batchnorm > relu > dense",
        "dense > relu > layernorm > dense(bias_var=0.3)",
        "dense > maxpool(4) > dense",
    ],
)
def test_wide_networks_agree_with_the_closed_form(source: str) -> None:
    """γ of the output at width 400: within 5 standard errors (false alarm 6e-7 a number) and 2 % for width."""
    network = Network.parse(source, classes=10)
    members = DescriptionEngine(network, blob(500, 400), width=400, reduce=False).run(0, 200)
    for place, layer in enumerate(predict(network).layers):
        center = members.stats[:, place, MEAN] ** 2 + members.stats[:, place, BETWEEN]
        spread = members.stats[:, place, SPREAD]
        share = center - layer.correlation * (center + spread)  # has expectation 0
        error = 5 * share.std() / math.sqrt(len(share)) + 0.02 * np.mean(center + spread)
        assert abs(share.mean()) < error, layer


def test_guess_law_agrees_with_theory() -> None:
    """Var G₀ = arcsin(c)/2π (theory.md §3): within 5 standard errors, false alarm 6e-7."""
    fractions = DescriptionEngine(mlp(1), blob(2000, 300), width=300, probe="output").run(0, 600).fractions[:, 0]
    squares = (fractions - 0.5) ** 2
    assert abs(squares.mean() - 0.05155762) < 5 * squares.std() / math.sqrt(600) + 0.001


def test_probes() -> None:
    x = blob(60, 8)
    network = residual_mlp(1, norm="layernorm")
    every = DescriptionEngine(network, x, width=8)
    assert [layer.kind for layer in every.layers] == ["dense", "residual", "dense"]
    assert all(layer.weights for layer in every.layers)
    network = mlp(1)
    names = {
        p: [layer.name for layer in DescriptionEngine(network, x, width=8, probe=p).layers]  # type: ignore[arg-type]
        for p in ("all", "weights", "output")
    }
    assert names["all"] == ["dense(weight_var=2)", "relu", "dense(weight_var=2)"]
    assert names["weights"] == ["dense(weight_var=2)"] * 2
    assert names["output"] == ["dense(weight_var=2)"]
    assert DescriptionEngine(network, x, width=8).batch_hint >= 1


def test_large_gamma_keeps_its_digits() -> None:
    """Data on a large constant: γ ≈ 1e6, where Σx² − n·m² in float32 would have no digit left."""
    x = blob(1000, 20) + 1000.0
    stats = DescriptionEngine(Network.parse("dense > relu > dense"), x, width=30).run(0, 3).stats
    _, exact = expected(Network.parse("dense > relu > dense"), x, range(3), width=30)
    np.testing.assert_allclose(stats[:, 0, SPREAD], exact[:, 0, SPREAD], rtol=2e-3)  # rounding of x itself
    np.testing.assert_allclose(stats[:, 0, BETWEEN], exact[:, 0, BETWEEN], rtol=1e-5)


def test_dead_nodes_and_ties() -> None:
    x = blob(200, 10)
    dead = DescriptionEngine(Network.parse("dense > shift(-100) > relu > dense", classes=4), x, width=16).run(0, 50)
    assert np.all(dead.stats[:, 2, DEAD] == 1.0)
    assert np.all(dead.ties == 200)  # all logits are 0
    np.testing.assert_allclose(dead.fractions.sum(1), 1.0)
    assert abs(dead.fractions.mean() - 0.25) < 1e-12
    # each fraction is a mean of 200·50 fair draws: 6 standard errors, false alarm 1e-8 after 4 tries
    assert np.all(np.abs(dead.fractions.mean(0) - 0.25) < 6 * math.sqrt(0.25 * 0.75 / 10_000))
    again = DescriptionEngine(
        Network.parse("dense > shift(-100) > relu > dense", classes=4), x, width=16, chunk=30, group=7
    ).run(0, 50)
    np.testing.assert_array_equal(dead.fractions, again.fractions)
    signs = DescriptionEngine(Network.parse("dense > relu > dense > sign", classes=3), x, width=16).run(0, 20)
    assert signs.ties.sum() > 0
    np.testing.assert_allclose(signs.fractions.sum(1), 1.0)


@pytest.mark.parametrize(
    "source",
    [
        "40 x [dense(weight_var=1e6) > relu] > dense",
        "dense > square > square > square > square > square > square > square > square > batchnorm > dense",
    ],
)
def test_overflow_names_the_layer(source: str) -> None:
    network = Network.parse(source)
    for reduce in (True, False):
        members = DescriptionEngine(network, 10 * blob(30, 10), width=64, reduce=reduce).run(0, 4)
        (finding,) = members.findings
        assert finding.kind == "nonfinite"
        assert finding.layer in ("dense(weight_var=1000000)", "square")
        assert "layer" in finding.message
        assert "4 of 4" in finding.message
    assert DescriptionEngine(mlp(2), blob(30, 10), width=8).run(0, 4).findings == ()


def test_memory_budget_cuts_the_work_not_the_result() -> None:
    """A budget below one member's weights: layer after layer instead of chunk after chunk."""
    x = blob(300, 20)
    network = mlp(30)
    small = DescriptionEngine(network, x, width=60, memory=6e5, reduce=False)
    assert len(small._program.cuts) > 20
    same(DescriptionEngine(network, x, width=60, reduce=False).run(0, 4), small.run(0, 4), 300)
    with pytest.raises(InvalidInput, match="memory for one initialization"):
        DescriptionEngine(network, x, width=60, memory=1e4)


def test_the_plan_for_ten_thousand_inits_of_fifty_thousand_points_fits() -> None:
    x = np.zeros((50_000, 4), np.float32)
    x[:, 0] = 1.0
    for network in (mlp(20), mlp(20, norm="batchnorm"), mlp(100)):
        engine = DescriptionEngine(network, x, width=1000, memory=2e9)
        assert engine.batch_hint < 10_000
        assert engine._program.capacity * 4 < 2e9


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: DescriptionEngine(mlp(1), np.full((5, 3), np.nan, np.float32)), "NaN or Inf in point 0"),
        (lambda: DescriptionEngine(mlp(1), np.zeros((5,), np.float32)), "shape"),
        (lambda: DescriptionEngine(mlp(1), np.zeros((1, 5), np.float32)), "at least 2 data points"),
        (lambda: DescriptionEngine(mlp(1), np.array([["a", "b"], ["c", "d"]])), "numbers"),
        (lambda: DescriptionEngine(mlp(1), blob(9, 3), width=0), "whole width"),
        (lambda: DescriptionEngine(mlp(1), blob(9, 3), seed=-1), "seed"),
        (lambda: DescriptionEngine(mlp(1), blob(9, 3), memory=0), "memory"),
        (lambda: DescriptionEngine(mlp(1), blob(9, 3), dtype=torch.float16), "float32 or float64"),
        (lambda: DescriptionEngine(mlp(1), blob(9, 3), probe="some"), "probe"),  # type: ignore[arg-type]
        (lambda: DescriptionEngine(mlp(1, pool="maxpool(3)"), blob(9, 3), width=100), "Try: width=99"),
        (lambda: DescriptionEngine(mlp(1, norm="groupnorm(groups=3)"), blob(9, 3), width=100), "Try: groupnorm"),
        (lambda: DescriptionEngine(mlp(1, norm="batchnorm(batch=4)"), blob(9, 3), width=10), "last batch"),
        (lambda: DescriptionEngine(cnn(1, pool="maxpool(3)"), images(9), width=4), "square number"),
        (lambda: DescriptionEngine(cnn(9), images(9), width=4), "at least 2×2"),
        (lambda: DescriptionEngine(cnn(1), blob(9, 3)), "images"),
        (lambda: DescriptionEngine(Network.parse("dense > conv > dense"), images(9)), "images before"),
        (lambda: DescriptionEngine(Network.parse("conv(kernel=9) > dense"), images(9)), "kernel"),
        (lambda: DescriptionEngine(Network.parse("relu"), blob(9, 3)), "add '> dense'"),
        (lambda: DescriptionEngine(Network.parse("dense > residual[relu > dense]"), blob(9, 3)), "add '> dense'"),
        (lambda: DescriptionEngine(Network.parse("dense > residual[dense(width=3)] > dense"), blob(9, 3)), "gives"),
        (lambda: DescriptionEngine(Network.parse("dense > maxpool(4, stride=1) > dense"), blob(9, 3)), "side by side"),
        (
            lambda: DescriptionEngine(Network.parse("residual[dense(width=3) | dense(width=4)] > dense"), blob(9, 3)),
            "as its shortcut",
        ),
        (lambda: DescriptionEngine(Network.parse("dense(width=7)"), blob(9, 3)), "number of classes"),
        (lambda: DescriptionEngine(Network.parse("dense > maxpool(2)"), blob(9, 3)), "one per class"),
        (lambda: DescriptionEngine(mlp(1), blob(9, 3)).run(3, 3), "start < stop"),
        (lambda: build(mlp(1), (0,)), "whole size"),
    ],
)
def test_bad_input_is_one_clear_error(make: object, words: str) -> None:
    with pytest.raises(InvalidInput, match=words.replace("(", r"\(").replace("×", "×").replace("?", r"\?")) as caught:
        make()  # type: ignore[operator]
    assert caught.value.hint


def test_build_gives_a_module_of_your_own() -> None:
    network = Network.parse("dense(weight_var=2, bias_var=0.1) > relu > dense", classes=3)
    model = build(network, 12, width=16, seed=4, member=2)
    assert isinstance(model, torch.nn.Sequential)
    other = build(network, (12,), width=16, seed=4, member=3)
    assert not torch.equal(model[0].weight, other[0].weight)
    assert all(p.requires_grad for p in model.parameters())
    model(torch.zeros(2, 12)).sum().backward()
    assert isinstance(network.layers[0], Dense)
    assert isinstance(network.layers[1], Activate)
    assert description.moments_of(np.ones((4, 2), np.float32)) is None


def test_members_are_asked_for_in_whole_groups_for_every_thread() -> None:
    engine = DescriptionEngine(mlp(1), blob(60, 8), width=8)
    whole = engine._program.group * engine._program.threads
    assert isinstance(engine.batch_hint, int)
    assert engine.batch_hint % whole == 0
