"""E over heads of A K Aᵀ, against plain loops and drawn logits."""

from __future__ import annotations

import math

import numpy as np
import pytest

from firstguess.network.attention_theory import Heads, annealed, participation, renormalized, sampled, uniform

N, T = 3, 6


def covariance(seed: int = 0) -> np.ndarray:
    """A common diagonal of 1, and correlations of both signs."""
    x = np.random.default_rng(seed).normal(size=(N * T, 30)) + 0.5
    k = x @ x.T
    d = np.sqrt(k.diagonal())
    return k / d[:, None] / d


def heads(tau: float, *, causal: bool, bias: float = 0.0, size: int = 4096) -> Heads:
    return Heads(N, T, tau, causal, bias, size)


@pytest.mark.parametrize("causal", [False, True])
def test_uniform_is_the_mean_over_windows(causal: bool) -> None:
    k, found = covariance(), uniform(covariance(), heads(1.0, causal=causal))
    for a in range(N):
        for b in range(N):
            for s in range(T):
                for t in range(T):
                    block = k[a * T : a * T + (s + 1 if causal else T), b * T : b * T + (t + 1 if causal else T)]
                    assert found[a * T + s, b * T + t] == pytest.approx(block.mean(), rel=1e-12)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("tau", "bias"), [(0.5, 0.0), (4.0, 0.3), (30.0, 0.0)])
def test_annealed_is_its_formula_entry_by_entry(causal: bool, tau: float, bias: float) -> None:
    k, found = covariance(), annealed(covariance(), heads(tau, causal=causal, bias=bias))
    for a in range(N):
        for b in range(N):
            for s in range(T):
                for t in range(T):
                    block = k[a * T : a * T + (s + 1 if causal else T), b * T : b * T + (t + 1 if causal else T)]
                    weights = np.exp(tau * (k[a * T + s, b * T + t] + bias) * block)
                    wanted = float((weights * block).sum() / weights.sum())
                    assert found[a * T + s, b * T + t] == pytest.approx(wanted, abs=1e-7)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("bias", [0.0, 0.5])
def test_sampled_heads_are_drawn_logits(causal: bool, bias: float) -> None:
    """Logits drawn from their covariance, (23), without queries or keys; entries within 5.6 standard errors of both."""
    k, tau, draws = covariance(), 2.0, 4000
    found = sampled(k, heads(tau, causal=causal, bias=bias))
    rng = np.random.default_rng(1)
    own = [np.kron(k[i * T : (i + 1) * T, j * T : (j + 1) * T] + bias, k[i * T : (i + 1) * T, j * T : (j + 1) * T])
           for i in range(N) for j in range(N)]  # fmt: skip
    joint = tau * np.block([[own[i * N + j] for j in range(N)] for i in range(N)])
    root = np.linalg.cholesky(joint + 1e-9 * np.eye(len(joint)))
    logits = (rng.normal(size=(draws, len(joint))) @ root.T).reshape(draws, N, T, T)
    if causal:
        logits[:, :, np.triu(np.ones((T, T), dtype=bool), 1)] = -np.inf
    a = np.exp(logits - logits.max(-1, keepdims=True))
    a /= a.sum(-1, keepdims=True)
    blocks = k.reshape(N, T, N, T)
    each = np.einsum("hast,atbu,hbvu->hasbv", a, blocks, a, optimize=True).reshape(draws, N * T, N * T)
    error = math.sqrt(float(each.var(axis=0).mean()) / draws)
    apart = math.sqrt(float(np.mean((each.mean(axis=0) - found.k) ** 2)))
    assert apart < 5.6 * math.hypot(error, found.error * float(found.k.diagonal().mean()))


@pytest.mark.parametrize("causal", [False, True])
def test_formulas_tend_to_the_sampled_weights(causal: bool) -> None:
    """At small β² all agree, to β⁴ (renormalized) and to sampling; uniform ones are off by β²."""
    k = covariance()
    for tau in (0.05, 0.2):
        one = heads(tau, causal=causal)
        exact = sampled(k, one)
        beta = float(one.logit_variance(k).max())
        room = 5.6 * exact.error + beta**2
        for found in (annealed(k, one), annealed(k, one, renormalize=True)):
            assert math.sqrt(float(np.mean((found - exact.k) ** 2))) < room
        assert np.abs(uniform(k, one) - exact.k).max() < 5.6 * 3 * exact.error + beta


def test_the_variance_of_logits_is_that_over_tokens() -> None:
    k = covariance()
    for causal in (False, True):
        found = heads(1.7, causal=causal, bias=0.4).logit_variance(k)
        for a in range(N):
            for s in range(T):
                own = k[a * T : (a + 1) * T, a * T : (a + 1) * T][: s + 1 if causal else T, : s + 1 if causal else T]
                size = len(own)
                spread = (own.trace() / size - own.mean()) * size / max(size - 1, 1)
                assert found[a, s] == pytest.approx(1.7 * 1.4 * spread, rel=1e-12, abs=1e-15)


def test_participation() -> None:
    """Golden: theory.md §9; and drawn weights, within 5.5 standard errors."""
    assert participation(16, 1.0) == pytest.approx(0.132452, abs=5.1e-7)
    assert participation(64, 1.0) == pytest.approx(0.038804, abs=5.1e-7)
    assert participation(5, 0.0) == 0.2
    rng = np.random.default_rng(0)
    for tokens, beta in ((2, 0.3), (16, 3.0), (64, 8.0)):
        e = np.exp(beta * rng.normal(size=(20_000, tokens)))
        y = ((e / e.sum(1, keepdims=True)) ** 2).sum(1)
        assert abs(y.mean() - participation(tokens, beta)) < 5.5 * y.std() / math.sqrt(len(y))


def test_renormalized_is_interpolated_well() -> None:
    counts = np.array([1, 2, 17, 128])
    for beta in (0.01, 0.4, 1.1, 5.3, 30.0):
        found = renormalized(counts, np.full((2, 4), beta**2))
        assert found[0, 0] == 1.0
        for index, count in enumerate(counts[1:], start=1):
            y = participation(int(count), beta)
            assert found[1, index] == pytest.approx(math.log(y * (count - 1) / (1 - y)) / beta**2, abs=2e-5)
