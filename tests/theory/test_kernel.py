"""The kernel reading: equal to the closed form on i.i.d. data; accurate in float32 too; clear on bad input."""

from __future__ import annotations

import math
import re
from contextlib import nullcontext

import numpy as np
import pytest

import firstguess as fg
import firstguess.network.layers
from firstguess.base.errors import FirstguessError, InvalidInput, NotCovered
from firstguess.network.inputs import Inputs
from firstguess.network.layers import BatchNorm, Layer, Residual, steps
from firstguess.network.network import Network
from firstguess.theory.kernel import propagation as kernel_module
from firstguess.theory.kernel.propagation import kernel

ORTHOGONAL = 40
LAYERS = [
    "dense(weight_var=2) > relu > dense(weight_var=2)",
    "5 x [dense(weight_var=2) > relu] > dense(weight_var=2)",
    "3 x [dense(weight_var=1.7, bias_var=0.1) > tanh] > dense",
    "3 x [dense(weight_var=2) > gelu] > dense",
    "2 x [dense > erf] > dense(bias_var=0.3)",
    "2 x [dense(weight_var=3) > sin] > dense",
    "dense > square > dense",
    "dense > sign > dense > relu > dense",
    "dense > abs > dense > leaky_relu(slope=0.2) > dense",
    "2 x [dense(weight_var=4) > hardtanh] > dense",
    "2 x [dense(weight_var=9) > hardswish] > dense > relu6 > dense",
    "dense > silu > dense > mish > dense > softplus > dense",
    "dense > sigmoid > dense > elu > dense > selu > dense > gelu_tanh > dense",
    "3 x [dense > layernorm > tanh] > dense",
    "3 x [dense > relu > layernorm] > dense(bias_var=0.1) > relu > layernorm > dense",
    "3 x [dense > groupnorm(2) > gelu] > dense",
    "3 x [dense > rmsnorm > gelu] > dense",
    "3 x [dense > relu > rmsnorm] > dense",
    "dense > residual(scale=0.7)[layernorm > relu > dense(weight_var=2)] > rmsnorm > gelu > dense",
    "dense > 3 x [residual[relu > dense]] > layernorm > dense",
    "dense > residual[relu > dense(weight_var=2) > layernorm | dense > rmsnorm] > relu > dense",
    "dense > relu > residual(scale=-0.5)[dense > tanh > avgpool(2) | avgpool(2) > shift(0.3)] > layernorm > dense",
    "dense > residual(scale=2)[relu > dense > shift(0.4) | relu > layernorm > shift(0.2) > scale(-1)] > dense",
    "dense > 4 x [residual[relu > dense > groupnorm(2) | scale(0.5)]] > relu > dense",
    "dense > residual[dense > relu | dense > rmsnorm] > dense",
    "dense > relu > residual[maxpool(2) > dense] > dense",
    "dense > relu > residual[dense > avgpool(2) | maxpool(2)] > dense",
    "dense > relu > avgpool(3) > dense > tanh > avgpool(2) > dense",
    "dense(weight_var=2) > relu > maxpool(3) > dense > maxpool(2) > dense",
    "dense > layernorm > tanh > maxpool(4) > dense",
    "dense > scale(-0.3) > relu > scale(2) > dense",
    "dense > shift(0.5) > relu > dense > shift(-0.4) > tanh > shift(1) > dense",
    "dense(bias_var=0.3) > centered(gelu) > dense > centered(relu) > dense",
]


def orthogonal(mean: float = 0.0) -> np.ndarray:
    """Points of unit variance whose overlaps are exactly those of i.i.d. inputs in very many dimensions."""
    x = math.sqrt(2 * ORTHOGONAL) * np.eye(ORTHOGONAL, 2 * ORTHOGONAL)
    if mean:
        x[:, -1] = math.sqrt(2 * ORTHOGONAL * mean)
    return x


def test_every_layer_kind_is_covered() -> None:
    def kinds(layers: tuple[Layer, ...]) -> set[str]:
        inner = [kinds(path) for x in layers if isinstance(x, Residual) for path in x.paths]
        return {x.kind for x in layers}.union(*inner)

    seen = set[str]().union(*(kinds(Network.parse(text).layers) for text in LAYERS))
    exported = {
        made.kind
        for made in vars(firstguess.network.layers).values()
        if hasattr(made, "moments") and hasattr(made, "kind")
    }
    # what mixes the points has its own tests; convolutions and instancenorm live in image_kernel
    elsewhere = {"batchnorm", "batchcenter", "conv", "instancenorm"}
    tokens = {"attention", "cls", "embed", "gated", "patches", "pool_tokens", "positions", "tokenmix", "unembed"}
    assert exported - seen == elsewhere | tokens


@pytest.mark.parametrize("text", LAYERS)
@pytest.mark.parametrize("mean", [0.0, 0.25])
def test_contract_with_the_closed_form(text: str, mean: float) -> None:
    """Where overlaps are exactly those of i.i.d. data there is no sampling error: every layer agrees to 1e-8."""
    net = Network.parse(text)
    got = kernel(net, orthogonal(mean)).layers
    signal = Inputs(mean_square=mean).signal()
    for (_, _, after), layer in zip(steps(net.layers, signal), got, strict=True):
        assert layer.q == pytest.approx(after.q, rel=1e-8), layer
        assert layer.q_ab == pytest.approx(after.center * math.exp(after.log_scale), abs=1e-8 * after.q), layer


def test_on_the_blob() -> None:
    """2 000 points N(0, 1) in 3 072 dimensions.

    A pair's overlap is N(0, 1/d), different pairs are uncorrelated, so the off-diagonal mean of K⁰ has the standard
    error √(2/(n(n−1)d)) = 1.3e-5; a layer's slope there is at most σw²/4·… ≤ 1. Curvature and unequal sizes move the
    mean by at most 3/d a layer. Six standard errors: false alarm 2e-9 a number.
    """
    n, d = 2000, 3072
    x = np.random.default_rng(20261115).standard_normal((n, d), dtype=np.float32)
    for text in ("5 x [dense(weight_var=2) > relu] > dense(weight_var=2)", "3 x [dense > layernorm > tanh] > dense"):
        net = Network.parse(text)
        closed = fg.predict(net)
        got = kernel(net, x, dtype=np.float32).layers
        for index, (mine, theirs) in enumerate(zip(got, closed.layers, strict=True), start=1):
            c = mine.q_ab / mine.q
            assert abs(c - theirs.correlation) <= index * (3.0 / d + 6.0 * math.sqrt(2.0 / (n * (n - 1) * d)))


@pytest.mark.parametrize("depth", [1, 4])
def test_batchnorm_over_the_data(depth: int) -> None:
    """On i.i.d. data BatchNorm leaves correlations of −1/(n−1); ReLU makes 1/(π−1) of 0 (theory.md §2).

    All directions are alike, so a node's scale and direction are independent and, φ being scale-free, the formula is
    exact, and so is the integral over node scales. Behind ReLU a BatchNorm meets sampled nodes.
    """
    x = orthogonal()
    n = ORTHOGONAL
    before = kernel(Network.parse(f"{depth} x [dense > batchnorm > relu] > dense"), x)
    c = -1.0 / (n - 1)
    f = (math.sqrt(1 - c * c) + c * (math.pi - math.acos(c))) / math.pi
    assert before.error == 0.0
    assert before.layers[-1].q_ab / before.layers[-1].q == pytest.approx(f, rel=1e-9)
    after = kernel(Network.parse(f"{depth} x [dense > relu > batchnorm] > dense"), x)
    assert after.layers[-1].q_ab == pytest.approx(c, rel=1e-5)  # whatever nodes do: they sum to 0, in float32
    assert after.layers[-1].q == pytest.approx(1.0, rel=1e-5)
    for result in (before, after):
        (said,) = (r for r in result.remarks if "batchnorm" in r)
        assert "39 effective directions" in said
        assert ("worst of 4 layers" in said) == (depth == 4)


def test_batchnorm_in_batches() -> None:
    """Batches of B consecutive points: each batch's rows sum to 0, in the float32 of sampled nodes."""
    x = np.random.default_rng(20261115).normal(size=(60, 200)) + 1.0
    result = kernel(Network.parse("dense > batchnorm(batch=20) > dense"), x)
    k = result.covariance
    for start in (0, 20, 40):
        assert np.abs(k[start : start + 20].sum(axis=0)).max() <= 1e-5
        assert k[start : start + 20, start : start + 20].diagonal().mean() == pytest.approx(1.0)
    assert "sampled nodes" in result.remarks[0]
    assert "effective directions" in result.remarks[0]
    inputs = kernel(Network.parse("batchnorm(batch=20) > dense > relu > dense"), x)
    assert "the kernel ignores it" in inputs.remarks[0]  # inputs are not Gaussian: no nodes to draw
    with pytest.raises(NotCovered, match="a last batch of 1"):
        kernel(Network.parse("dense > batchnorm(batch=59) > dense"), x)


def test_batchnorm_inside_a_residual_branch() -> None:
    x = np.random.default_rng(20261115).normal(size=(30, 50))
    one = kernel(Network.parse("dense > batchnorm > tanh > dense"), x)
    both = kernel(Network.parse("dense > residual(scale=0.5)[batchnorm > tanh > dense]"), x)
    first = kernel(Network.parse("dense"), x)
    # two samples of nodes, 900 entries: 6 standard errors of each
    room = 0.25 * 6.0 * (one.error + both.error) * one.covariance.diagonal().max()
    assert np.allclose(both.covariance, first.covariance + 0.25 * one.covariance, rtol=0, atol=room)
    assert "batchnorm > tanh: by 16384 sampled nodes" in both.remarks[0]
    one = kernel(Network.parse("dense > batchnorm > relu > dense"), x)
    both = kernel(Network.parse("dense > residual(scale=0.5)[batchnorm > relu > dense]"), x)
    assert np.allclose(both.covariance, first.covariance + 0.25 * one.covariance, rtol=1e-12)


def test_symmetry_diagonal_and_positivity() -> None:
    """Over tile borders (n > 256), for points of different size: K_aa exact, K symmetric, no negative direction."""
    rng = np.random.default_rng(20261115)
    x = rng.normal(size=(400, 30)) * rng.uniform(0.5, 2.0, (400, 1))
    for text in (
        "3 x [dense(weight_var=2) > relu] > dense",
        "2 x [dense > tanh] > dense",
        "dense > hardtanh > layernorm > dense",
    ):
        k = kernel(Network.parse(text), x).covariance
        assert np.array_equal(k, k.T)
        values = np.linalg.eigvalsh(k)
        assert values[0] >= -1e-10 * values[-1]
    q = np.mean(x * x, axis=1)
    k = kernel(Network.parse("3 x [dense(weight_var=2) > relu] > dense"), x).covariance
    assert np.allclose(k.diagonal(), q, rtol=1e-13)


def test_equal_points_stay_equal() -> None:
    x = np.random.default_rng(20261115).normal(size=(6, 9))
    x[3] = x[0]
    for text in (
        "10 x [dense(weight_var=2) > relu] > dense",
        "4 x [dense > tanh] > dense",
        "3 x [dense > hardswish] > dense",
    ):
        k = kernel(Network.parse(text), x).covariance
        assert k[0, 3] == pytest.approx(k[0, 0], rel=1e-8)


@pytest.mark.parametrize(
    "text",
    [
        "20 x [dense(weight_var=2) > relu] > dense",
        "20 x [dense > layernorm > relu] > dense",
        "5 x [dense(weight_var=1.5) > tanh] > dense",
    ],
)
def test_float32(text: str) -> None:
    """The stated error of the float32 path: 1e-6 of the diagonal, and 1e-7 more a layer; here within twice that."""
    x = np.random.default_rng(20261115).normal(size=(300, 500))
    net = Network.parse(text)
    double, single = (kernel(net, x, dtype=t).covariance for t in (np.float64, np.float32))
    assert single.dtype == np.float32
    assert np.abs(double - single).max() <= 2.0 * (1e-6 + 1e-7 * len(net.layers)) * double.diagonal().max()


def test_threads_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.random.default_rng(20261115).normal(size=(600, 30))
    net = Network.parse("3 x [dense(weight_var=2) > relu] > dense")
    several = kernel(net, x, tangent=True)
    monkeypatch.setattr("firstguess.base.threads.os.cpu_count", lambda: 1)
    one = kernel(net, x, tangent=True)
    assert np.array_equal(several.covariance, one.covariance)
    assert several.tangent is not None
    assert one.tangent is not None
    assert np.array_equal(several.tangent, one.tangent)
    assert several.layers == one.layers


def test_one_dimension() -> None:
    """d = 1: every pair has c = ±1. ReLU keeps one side or the other."""
    x = np.array([[1.0], [-2.0], [3.0]])
    k = kernel(Network.parse("dense(weight_var=2) > relu > dense"), x).covariance
    assert np.allclose(k, [[1.0, 0.0, 3.0], [0.0, 4.0, 0.0], [3.0, 0.0, 9.0]], atol=1e-7)
    p = fg.predict("dense(weight_var=2) > relu > dense", data=x, draws=200)
    assert np.isfinite(p.gamma[-1])


def test_bad_data() -> None:
    net = "dense > relu > dense"
    with pytest.raises(InvalidInput, match="at least 2 data points"):
        fg.predict(net, data=np.ones((1, 4)))
    with pytest.raises(InvalidInput, match="copies of one point"):
        fg.predict(net, data=np.ones((5, 4)))
    with pytest.raises(InvalidInput):
        fg.predict(net, data=np.array([[1.0, np.nan], [0.0, 1.0]]))
    with pytest.raises(InvalidInput, match="finite data"):
        kernel(Network.parse(net), np.array([[1.0, np.inf], [0.0, 1.0]]))
    with pytest.raises(NotCovered, match="points without any signal"):
        fg.predict(net, data=np.array([[1.0, 2.0], [0.0, 0.0]]))
    with pytest.raises(NotCovered, match="all alike"):
        kernel(Network.parse("dense > batchnorm > dense"), np.ones((5, 4)))


def test_duplicates_are_a_finding() -> None:
    x = np.random.default_rng(20261115).normal(size=(10, 4))
    x[7] = x[2]
    x[8] = x[2]
    p = fg.predict("dense > relu > dense", data=x, draws=500)
    assert any("2 of 10 points are duplicates" in a for a in p.assumptions)


def test_more_than_memory() -> None:
    with pytest.raises(InvalidInput, match="points=") as caught:
        kernel_module._check_memory(10_000_000, 1, 8)
    assert "GB" in str(caught.value)


@pytest.mark.parametrize(("matrices", "itemsize"), [(1, 8), (2, 8), (1, 4)])
def test_the_points_that_are_offered_take_half_of_the_memory(
    matrices: int, itemsize: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By what the same refusal says that all points need; and where memory is just enough, nothing is refused."""
    free, n = 64 * 10**9, 1_000_000
    monkeypatch.setattr(kernel_module.os, "sysconf", {"SC_PHYS_PAGES": free // 4096, "SC_PAGE_SIZE": 4096}.__getitem__)
    with pytest.raises(InvalidInput) as caught:
        kernel_module._check_memory(n, matrices, itemsize)
    needs, most = (float(re.findall(what, str(caught.value))[0]) for what in (r"points: ([\d.]+) TB", r"points=(\d+)"))
    needs *= 1e12  # three digits of it are said
    assert needs * (most / n) ** 2 == pytest.approx(0.5 * free, rel=5e-3)
    for share, fits in ((0.89, True), (0.91, False)):
        points = int(n * math.sqrt(share * free / needs))
        with nullcontext() if fits else pytest.raises(InvalidInput):
            kernel_module._check_memory(points, matrices, itemsize)


def test_an_error_names_its_layer() -> None:
    x = np.random.default_rng(20261115).normal(size=(5, 4))
    with pytest.raises(FirstguessError, match=r"layer 2 \(relu\)"):
        kernel(Network.parse("layernorm > relu > dense"), x)
    with pytest.raises(NotCovered, match="usual"):
        kernel(Network((BatchNorm(5, "leave_one_out"), *Network.parse("dense").layers)), x)


def test_layernorm_after_does_not_cure_what_the_data_bring() -> None:
    """LayerNorm after ReLU does not cure what the data bring: correlated points keep their bias (theory.md §6)."""
    rng = np.random.default_rng(20261115)
    x = rng.normal(size=(200, 1, 50)) + 3.0 * rng.normal(size=(1, 5, 50)).repeat(40, axis=0).reshape(200, 1, 50)
    p = fg.predict("dense(weight_var=2) > relu > layernorm > dense", data=x.reshape(200, 50), draws=2000)
    assert p.gamma[-1] > 0.05
    assert fg.predict("dense(weight_var=2) > relu > layernorm > dense").gamma[-1] == 0.0
