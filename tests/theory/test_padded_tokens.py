"""Padding, windows and grouped queries: what must not change, and what language models make of padding."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from simulated_tokens import token_member

import firstguess as fg
from firstguess.ensemble.engine import DescriptionEngine
from firstguess.ensemble.member_module import build
from firstguess.network.attention_theory import Heads, annealed, uniform
from firstguess.network.network import Network

IDS = np.random.default_rng(7).integers(1, 12, (6, 7))
BLOCK = (
    "2 x [residual[layernorm > attention(4, {})] > residual[layernorm > dense > gelu > dense]] > layernorm > "
    "pool_tokens({}) > dense"
)


def gammas(text: str, x: np.ndarray) -> np.ndarray:
    return fg.predict(text, data=x, draws=10).gamma


@pytest.mark.parametrize("way", ["by=uniform", "causal, by=uniform", "causal, by=annealed", "causal, by=renormalized"])
@pytest.mark.parametrize("pool", ["mean", "last", "cls"])
@pytest.mark.parametrize("side", ["behind", "before"])
def test_padding_changes_nothing(way: str, pool: str, side: str) -> None:
    """The same sequences, filled up to 10 tokens: γ of every layer is that without, where there are no positions."""
    if (pool, side) == ("cls", "before"):
        return  # refused: tests/theory/test_bad_tokens.py
    text = f"embed(1, padding=0) > {BLOCK.format(way, pool)}"
    filled = np.pad(IDS, ((0, 0), (0, 3) if side == "behind" else (3, 0)))
    np.testing.assert_allclose(gammas(text, filled), gammas(text, IDS), rtol=1e-9, atol=1e-12)
    behind = text.replace("padding=0) >", "padding=0) > positions(0.4) >")
    if side == "behind":
        np.testing.assert_allclose(gammas(behind, filled), gammas(behind, IDS), rtol=1e-9, atol=1e-12)


def test_sequences_of_two_lengths_are_those_of_one_each() -> None:
    """The covariance within the short ones, and within the long ones, is that without the others."""
    text = f"embed(1, padding=0) > positions(0.3) > {BLOCK.format('causal, by=annealed', 'last')}"
    both = IDS.copy()
    both[3:, 4:] = 0
    k = fg.predict(text, data=both, draws=10).covariance
    long, short = (fg.predict(text, data=x, draws=10).covariance for x in (IDS[:3], IDS[3:, :4]))
    assert k is not None
    assert long is not None
    assert short is not None
    np.testing.assert_allclose(k[:3, :3], long, rtol=1e-9)
    np.testing.assert_allclose(k[3:, 3:], short, rtol=1e-9)


@pytest.mark.parametrize("by", ["uniform", "annealed", "renormalized", "sampled"])
def test_groups_and_windows_that_change_nothing(by: str) -> None:
    plain = gammas(f"embed(1) > {BLOCK.format(f'causal, by={by}', 'last')}", IDS)
    for same in ("groups=2", "groups=1", "window=7", "window=4096"):
        np.testing.assert_array_equal(
            gammas(f"embed(1) > {BLOCK.format(f'causal, by={by}, {same}', 'last')}", IDS), plain
        )
    inside = gammas(f"embed(1) > {BLOCK.format(f'causal, by={by}, window=6', 'last')}", IDS)
    assert np.abs(inside - plain).max() > 1e-4


def test_a_window_of_one_is_each_token_alone() -> None:
    k = np.array(np.random.default_rng(0).normal(size=(8, 20)))
    k = k @ k.T / 20.0
    for causal in (False, True):
        alone = Heads(2, 4, 1.0, causal, window=1)
        np.testing.assert_allclose(uniform(k, alone), k, rtol=1e-12)
        np.testing.assert_allclose(annealed(k, alone), k, rtol=1e-12)
        assert not alone.logit_variance(k).any()


@pytest.mark.parametrize("causal", [False, True])
def test_windows_and_padding_entry_by_entry(causal: bool) -> None:
    """Uniform and annealed weights and β² against plain loops over the tokens that two tokens attend to."""
    n, tokens, tau = 3, 6, 3.0
    x = np.random.default_rng(1).normal(size=(n * tokens, 30)) + 0.5
    k = x @ x.T
    k /= np.sqrt(np.outer(k.diagonal(), k.diagonal()))
    real = np.ones((n, tokens), dtype=bool)
    real[1, 4:], real[2, :2] = False, False
    heads = Heads(n, tokens, tau, causal, 0.2, window=3, real=real)

    def seen(a: int, s: int) -> list[int]:
        near = [t for t in range(tokens) if abs(s - t) < 3 and real[a, t] and (t <= s or not causal)]
        return [a * tokens + t for t in near] or [a * tokens + s]

    flat, tilted, beta = uniform(k, heads), annealed(k, heads), heads.logit_variance(k)
    for a in range(n):
        for s in range(tokens):
            own = k[np.ix_(seen(a, s), seen(a, s))]
            size = len(own)
            spread = (own.trace() / size - own.mean()) * size / max(size - 1, 1)
            assert beta[a, s] == pytest.approx(tau * 1.2 * spread * real[a, s], rel=1e-12, abs=1e-14)
            for b in range(n):
                for t in range(tokens):
                    block = k[np.ix_(seen(a, s), seen(b, t))]
                    weights = np.exp(tau * (k[a * tokens + s, b * tokens + t] + 0.2) * block)
                    at = a * tokens + s, b * tokens + t
                    assert flat[at] == pytest.approx(block.mean(), rel=1e-12)
                    assert tilted[at] == pytest.approx(float((weights * block).sum() / weights.sum()), abs=1e-7)


PADDED = np.where(np.arange(7) < np.array([7, 4, 2, 6, 5, 3])[:, None], IDS, 0)


@pytest.mark.parametrize("head", ["unembed(tied)", "unembed"])
def test_language_models_guess_at_real_tokens_only(head: str) -> None:
    """The ensemble against plain forwards; predicted shares and own guesses against drawn ones, 5.6 standard errors."""
    source = (
        f"embed(0.3, vocabulary=12, padding=0) > positions(0.2) > residual[layernorm > attention(2, causal)] > {head}"
    )
    net, real = Network.parse(source, classes=12), PADDED != 0
    engine = DescriptionEngine(net, PADDED, width=16, seed=3, dtype=torch.float64, chunk=2)
    assert engine.points == real.sum()
    members = engine.run(0, 4)
    assert members.own is not None
    for i in range(4):
        model = build(net, PADDED, width=16, seed=3, member=i).double()
        logits = token_member(net.layers, PADDED, iter([p.detach().numpy() for p in model.parameters()]))
        guess = logits.argmax(2)[real]
        np.testing.assert_allclose(members.fractions[i], np.bincount(guess, minlength=12) / guess.size)
        assert members.own[i] == pytest.approx(np.mean(guess == PADDED[real]))
    p, m = fg.predict(net, data=PADDED, width=192), fg.measure(net, PADDED, inits=60, width=192)
    assert p.guesses.points == m.points == real.sum()
    assert isinstance(p.guesses, fg.EmpiricalGuesses)
    one, other = (x.fractions.max(axis=1) for x in (p.guesses, m.guesses))
    error = math.hypot(*(float(x.std(ddof=1)) / math.sqrt(len(x)) for x in (one, other)))
    assert abs(one.mean() - other.mean()) < 5.6 * error
    assert p.own_guess is not None
    assert m.own_guess is not None
    assert abs(p.own_guess - m.own_guess[0]) < 5.6 * m.own_guess[1] * math.sqrt(2.0)


def test_negative_directions_of_a_formula_are_left_out_and_said() -> None:
    """Renormalized weights of repeated tokens give a covariance that is a little negative."""
    source = "embed(0.3, vocabulary=12) > positions(0.2) > residual[layernorm > attention(2, causal, by={})] > unembed"
    for by, some in (("renormalized", True), ("sampled", False)):
        found = fg.predict(source.format(by), data=IDS, width=16, classes=12, draws=8)
        assert any("count as 0" in said for said in found.assumptions) == some
