"""Residual blocks: branch scale, norms before the branch, before and after the sum, shortcuts with layers, nesting."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import integrate, special
from simulated import agrees, forward, moments

import firstguess as fg
from firstguess.network.grammar import parse_layers
from firstguess.network.layers import Dense, Residual


@pytest.mark.parametrize(
    "source",
    [
        "dense > 3 x [residual(scale=0.5)[relu > dense(weight_var=2, bias_var=0.1)]] > dense",
        "dense > 3 x [residual(scale=0.7)[layernorm > relu > dense(weight_var=2)]] > dense",
        "dense > 3 x [residual[relu > dense(weight_var=2)] > layernorm] > dense",
        "dense > 2 x [residual[tanh > dense > relu > dense(weight_var=2)] > rmsnorm] > dense",
        "dense > residual[relu > dense > residual(scale=-0.5)[tanh > dense] > relu > dense] > dense",
        "dense > relu > residual[dense(weight_var=0.5)] > dense",
        "dense > 2 x [residual[relu > dense > layernorm] > relu > dense] > dense",
        "dense > relu > residual(scale=0.5)[dense(weight_var=2) > rmsnorm | layernorm > dense] > relu > dense",
        "dense > residual(scale=-2)[relu > dense(weight_var=2) > shift(0.5) | relu > shift(0.5)] > dense",
        "dense > residual[dense > tanh > groupnorm(2) > scale(3) | relu] > dense",
        "dense > residual[relu > dense > avgpool(2) | tanh > avgpool(2)] > layernorm > dense",
        "dense > residual[dense > relu | dense] > dense",
    ],
)
def test_networks_of_real_weights(source: str) -> None:
    """200 networks of width 200; 5.5 standard errors, false alarm < 2e-7 a number."""
    want = fg.predict(source)
    layers = parse_layers(source)
    rng = np.random.default_rng(51)
    got = np.array([moments(forward(layers, rng.standard_normal((5, 200)), rng, 200)) for _ in range(200)])
    agrees(got[:, 1], float(want.correlation[-1] * want.q[-1]), what="center")
    agrees(got[:, 2], float(want.q[-1]), what="total")


@pytest.mark.parametrize(
    "source",
    [
        "dense > relu > residual[dense > batchnorm > relu > dense > batchnorm | dense > batchnorm] > relu > dense",
        "dense > batchnorm > relu > 2 x [residual[dense > batchnorm > relu > dense > batchnorm] > relu] > dense",
        "dense > layernorm > relu > 2 x [residual[dense > relu > dense > layernorm] > relu] > dense",
        "dense > relu > maxpool(2) > residual[dense > batchnorm] > relu > dense",
        "dense > batchnorm > relu > batchnorm > scale(-2) > shift(0.5) > residual[dense > batchnorm] > relu > dense",
        "dense > relu > layernorm > residual[dense > layernorm] > relu > residual[dense | rmsnorm] > relu > dense",
        "dense > tanh > residual(scale=-0.5)[dense > rmsnorm] > gelu > residual[dense > batchnorm] > tanh > dense",
    ],
)
def test_blocks_of_resnets(source: str) -> None:
    """Also where the sum is not Gaussian: 5.5 standard errors over 200 networks of width 64, false alarm < 2e-7.

    200 points leave 1/200 of the signal in what BatchNorm takes off, and sampled nodes 1e-3.
    """
    want = fg.predict(source)
    q, center = float(want.q[-1]), float(want.correlation[-1] * want.q[-1])
    layers = parse_layers(source)
    rng = np.random.default_rng(52)
    got = np.array([moments(forward(layers, rng.standard_normal((200, 64)), rng, 64)) for _ in range(200)])
    for column, expected in ((1, center), (2, q)):
        error = float(got[:, column].std(ddof=1)) / math.sqrt(200)
        assert abs(float(got[:, column].mean()) - expected) <= 5.5 * error + (1 / 200 + 1e-3) * q


def test_a_sum_that_is_not_gaussian_by_an_independent_integral() -> None:
    """relu(relu(u) + v), u and v independent and N(0, 1) on every point: E over v on paper, over u by quadrature."""

    def phi(x: float) -> float:
        return math.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)

    first = integrate.quad(lambda x: phi(x) * (x * special.ndtr(x) + phi(x)), 0, 12)[0] + 0.5 * phi(0.0)
    second = integrate.quad(lambda x: phi(x) * ((1 + x * x) * special.ndtr(x) + x * phi(x)), 0, 12)[0] + 0.25
    p = fg.predict("dense > batchnorm > relu > residual[dense > batchnorm] > relu > dense")
    assert p.q[-1] == pytest.approx(second, rel=1e-3)
    assert p.gamma[-1] == pytest.approx(first**2 / (second - first**2), rel=1e-3)
    assert any("sampled nodes" in said for said in p.assumptions)
    again = fg.predict("dense > batchnorm > relu > residual[dense > batchnorm] > relu > dense")
    assert np.array_equal(again.gamma, p.gamma)


def test_deep_networks_of_sums_that_are_not_gaussian_stay_in_range() -> None:
    p = fg.predict("dense > relu > 150 x [residual[dense(weight_var=30) > relu > dense(weight_var=30)] > relu] > dense")
    assert np.all(np.isfinite(p.gamma))
    assert p.log_q[-1] > 800.0  # far beyond float64


def test_moments_of_shortcut_and_branch_add() -> None:
    """One block on paper: both paths of unit variance after a BatchNorm, so q' = 1 + s² and no center is left."""
    p = fg.predict("dense > relu > residual(scale=0.5)[dense > batchnorm | dense(weight_var=9) > batchnorm] > dense")
    assert p.q[1] == pytest.approx(1.25, rel=1e-14)
    assert p.gamma[1] == 0.0
    gradient = fg.predict("dense > residual(scale=0.5)[dense(weight_var=3) > batchnorm | dense(weight_var=4)] > dense")
    assert gradient.gradient_growth[0] == pytest.approx(4 + 0.25 * 3 / 3, rel=1e-14)  # BatchNorm undoes its weights


def test_the_text_of_a_shortcut_reads_back() -> None:
    text = "dense > residual(scale=0.5)[2 x [relu > dense] > batchnorm | dense(width=64) > layernorm] > relu > dense"
    net = fg.Network.parse(text)
    assert str(net) == text
    assert fg.Network.parse(str(net)) == net
    assert fg.Network.from_dict(net.to_dict()) == net
    assert net != fg.Network.parse(text.replace(" | dense(width=64) > layernorm", ""))
    assert str(net.without("layernorm")).count("layernorm") == 0
    assert str(net.where("rmsnorm after dense")).count("rmsnorm") == 4


def test_moments_add() -> None:
    """One block on paper: q' = q + s²σw²q/2, center' = center + s²σw²·E relu relu."""
    p = fg.predict("dense > residual(scale=0.3)[relu > dense(weight_var=2)] > dense")
    extra = 0.09 * 2
    assert p.q[1] == pytest.approx(1 + extra / 2, rel=1e-14)
    assert p.correlation[1] * p.q[1] == pytest.approx(extra / (2 * math.pi), rel=1e-14)
    assert p.gradient_growth[0] == pytest.approx(1 + extra / 2, rel=1e-14)


def test_a_branch_of_scale_zero_is_not_there() -> None:
    p = fg.predict("dense > residual(scale=0)[relu > dense] > dense(weight_var=2)")
    assert p.gamma == pytest.approx(np.zeros(3), abs=0.0)
    assert p.q[1] == 1.0


def test_deep_residual_networks_stay_in_range() -> None:
    p = fg.predict(fg.residual_mlp(3000))
    assert p.log_q[-2] == pytest.approx(math.log(2) + 3000 * math.log(2), rel=1e-12)
    assert np.all(np.isfinite(p.gamma))
    assert np.all(np.diff(p.gamma[1:-1]) > 0)


@pytest.mark.parametrize("scale", [1e200, 1e-200, -1e150])
def test_any_branch_scale(scale: float) -> None:
    p = fg.predict(f"dense > residual(scale={scale!r})[relu > dense(weight_var=2)] > dense")
    assert p.gamma[-1] == pytest.approx(0.0 if abs(scale) < 1 else 1 / (math.pi - 1), rel=1e-14)
    assert p.log_q[1] == pytest.approx(max(0.0, 2 * math.log(abs(scale))), rel=1e-14)


def test_what_is_not_covered_names_the_place_in_the_branch() -> None:
    with pytest.raises(fg.NotCovered, match="ends in random weights") as caught:
        fg.predict("dense > residual[dense > relu] > dense")
    assert caught.value.where == "layer 2 (residual[dense > relu])"
    with pytest.raises(fg.NotCovered, match=r"branch layer 2 \(tanh\)"):
        fg.predict("dense > residual[relu > tanh > dense] > dense")
    with pytest.raises(fg.NotCovered, match=r"shortcut layer 2 \(tanh\)"):
        fg.predict("dense > residual[dense | relu > tanh] > dense")
    with pytest.raises(fg.NotCovered, match="a residual sum whose parts are not Gaussian"):
        fg.predict("dense > relu > avgpool(2) > residual[dense] > relu > dense")
    for branch in (
        "scale(2)",
        "layernorm",
        "dense > maxpool(2)",
        "dense > relu > batchnorm",
        "dense > shift(1) > tanh",
    ):
        with pytest.raises(fg.NotCovered, match="ends in random weights"):
            fg.predict(f"dense > residual[{branch}] > dense")
        with pytest.raises(fg.NotCovered, match="ends in random weights"):
            fg.predict(f"dense > residual[{branch} | relu] > dense")


def test_bad_blocks() -> None:
    with pytest.raises(fg.InvalidInput, match="at least one layer"):
        Residual(())
    with pytest.raises(fg.InvalidInput, match="finite scale"):
        Residual((Dense(),), float("nan"))
    for text in (
        "residual",
        "residual[]",
        "residual(2, 3)[dense]",
        "residual(relu)[dense]",
        "residual(scale=1/0)[dense]",
        "residual[dense |]",
        "residual[| dense]",
        "residual[dense | dense | dense]",
        "residual(shortcut=2)[dense]",
        "2 x [dense | dense]",
    ):
        with pytest.raises(fg.ParseError):
            fg.Network.parse(f"dense > {text}")
