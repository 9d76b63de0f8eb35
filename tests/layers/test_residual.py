"""Residual blocks: branch scale, the norm before the branch or after the sum, nesting."""

from __future__ import annotations

import math

import numpy as np
import pytest
from simulated import agrees, forward, moments

import firstguess as fg
from firstguess.layers import Dense, Residual, parse_layers


@pytest.mark.parametrize(
    "source",
    [
        "dense > 3 x [residual(scale=0.5)[relu > dense(weight_var=2, bias_var=0.1)]] > dense",
        "dense > 3 x [residual(scale=0.7)[layernorm > relu > dense(weight_var=2)]] > dense",
        "dense > 3 x [residual[relu > dense(weight_var=2)] > layernorm] > dense",
        "dense > 2 x [residual[tanh > dense > relu > dense(weight_var=2)] > rmsnorm] > dense",
        "dense > residual[relu > dense > residual(scale=-0.5)[tanh > dense] > relu > dense] > dense",
        "dense > relu > residual[dense(weight_var=0.5)] > dense",
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
    with pytest.raises(fg.NotCovered, match="a residual sum whose input is not Gaussian"):
        fg.predict("dense > relu > residual[dense] > relu > dense")


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
    ):
        with pytest.raises(fg.ParseError):
            fg.Network.parse(f"dense > {text}")
