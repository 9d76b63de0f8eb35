"""Gradients along the stream of token networks, against autograd on drawn networks."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import firstguess as fg
from firstguess.ensemble.member_module import build
from firstguess.network.attention_theory import Heads, attention_back
from firstguess.network.network import Network
from firstguess.theory.prediction import stream_growth

WIDTH, INITS, T = 192, 30, 10
NETWORKS = [
    "embed(1) > 2 x [residual[layernorm > attention(3, weight_var={})] > residual[layernorm > dense > gelu > dense]] > "
    "layernorm > pool_tokens(last) > dense > tanh > dense",
    "embed(1) > positions(0.5) > 2 x [residual[attention(3, causal, weight_var={})] > layernorm > "
    "residual(scale=0.7)[dense(width=384) > relu > dense] > layernorm] > pool_tokens(mean) > dense",
]
ROTARY = (
    "embed(1) > 2 x [residual[rmsnorm > attention(3, causal, rotary, weight_var=0.1)] > "
    "residual[rmsnorm > dense > gated(silu) > dense]] > rmsnorm > pool_tokens(cls) > dense"
)
WINDOWS = NETWORKS[1].format(0.3).replace("attention(3, causal,", "attention(3, causal, groups=1, window=4,")


def drawn(net: Network) -> np.ndarray:
    """(inits, layers): Σ (∂ logit/∂x)² after every layer, a sequence."""
    ids = np.arange(5 * T).reshape(5, T)
    found = []
    for i in range(INITS):
        x, kept = torch.from_numpy(ids), []
        for module in build(net, ids, width=WIDTH, seed=2, member=i):
            x = module(x)
            x.retain_grad()
            kept.append(x)
        x[:, 0].sum().backward()
        found.append([float(y.grad.double().square().sum()) for y in kept])
    return np.array(found)


@pytest.mark.parametrize("text", [*(t.format(v) for t in NETWORKS for v in (0.04, 0.3, 1.0)), ROTARY, WINDOWS])
def test_gradients_are_those_of_autograd(text: str) -> None:
    """Every layer's factor, 5.6 standard errors of a ratio of averages (jackknife), and 4/width of it for the width."""
    net = Network.parse(text)
    found = fg.predict(net, inputs=fg.Tokens(length=T))
    squares = drawn(net)
    for place in range(1, len(net.layers)):
        pair = squares[:, place - 1 : place + 1]
        ratio = pair[:, 0].mean() / pair[:, 1].mean()
        left = [np.delete(pair, i, axis=0).mean(axis=0) for i in range(INITS)]
        error = math.sqrt((INITS - 1) * float(np.var([a / b for a, b in left])))
        factor = found.layers[place].gradient
        assert factor is not None
        assert abs(ratio - factor) <= 5.6 * error + 4.0 / WIDTH * factor, (
            found.layers[place].layer,
            ratio,
            factor,
            error,
        )
    assert np.isfinite(found.gradient_growth).all()
    assert "gradients along the stream" in str(found)


@pytest.mark.parametrize("causal", [False, True])
def test_values_alone_are_a_plain_loop(causal: bool) -> None:
    """τ = 0: G'_tt' = Σ_ss' A_st A_s't' G_ss' with uniform A."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4, 9))
    k, g = x @ x.T, (y := rng.normal(size=(4, 7))) @ y.T
    found = attention_back(k, g, Heads(1, 4, 0.0, causal), uniform=True)
    share = [[1.0 / (s + 1 if causal else 4) if t <= s or not causal else 0.0 for t in range(4)] for s in range(4)]
    for t in range(4):
        for u in range(4):
            want = sum(share[s][t] * share[r][u] * g[s, r] for s in range(4) for r in range(4))
            assert found[t, u] == pytest.approx(want, rel=1e-12)


def test_queries_and_keys_are_plain_loops() -> None:
    """Jacobians of the logits by their definition, with uniform weights: Σ Cov(∂ℓ_st, ∂ℓ_s't') τ K."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(3, 9))
    k, g, tau = x @ x.T / 9, (y := rng.normal(size=(3, 7))) @ y.T, 0.7
    found = attention_back(k, g, Heads(1, 3, tau), uniform=True) - attention_back(k, g, Heads(1, 3, 0.0), uniform=True)
    centre = np.eye(3) - 1.0 / 3.0
    spread = centre @ k @ centre / 9.0  # A_st A_s't' (v_t − v̄)·(v_t' − v̄)
    want = tau * g * np.sum(spread * k) + tau * spread * np.sum(g * k)
    np.testing.assert_allclose(found, want, rtol=1e-12, atol=1e-14)


def test_what_has_no_formula_is_not_known() -> None:
    for text in (
        "embed(1) > residual[tokenmix(8)] > pool_tokens(mean) > dense",
        ROTARY.replace("weight_var=0.1", "weight_var=1"),
    ):
        found = fg.predict(text, inputs=fg.Tokens(length=8))
        assert all(layer.gradient is None for layer in found.layers)
        assert "gradients" not in str(found)


def test_growth_is_a_block() -> None:
    factors = [("embed", 1.0), ("residual[a]", 3.0), ("layernorm", 0.5), ("residual[b]", 4.0), ("dense", 9.0)]
    assert stream_growth(factors) == pytest.approx((2.0, 2))
    assert stream_growth(factors[:2]) is None
    assert stream_growth([("residual[a]", 1.0), ("residual[b]", None)]) is None
