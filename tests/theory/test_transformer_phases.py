"""Rank and entropy collapse of transformers: on paper, against plain soft-max and plain networks, refused by name."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import firstguess as fg
from firstguess.network.attention_theory import Heads, annealed, participation, sampled
from firstguess.theory.phases.transformer_phases import energy_limit, transformer_phases

pytestmark = pytest.mark.usefixtures("one_thread")


def test_one_linear_block_on_paper() -> None:
    """Even attention over T unrelated tokens adds u = 1/(α²T) to all pairs; a linear MLP keeps correlations."""
    alphas = [0.5, 2.0]
    d = transformer_phases("linear", strengths=[1e-4], residuals=alphas, length=16, depth=1)
    u = 1.0 / (np.square(alphas) * 16)
    np.testing.assert_allclose(d.similarity[:, 0], u / (1.0 + u), rtol=1e-4)
    np.testing.assert_allclose(d.gamma[:, 0], 0.0, atol=1e-6)  # two sequences share nothing
    np.testing.assert_allclose(d.entropy[:, 0], 1.0, atol=1e-6)
    strong = transformer_phases("gelu", strengths=[0.1], residuals=[1e4], length=8, depth=3)  # residuals alone
    assert strong.similarity[0, 0] == pytest.approx(0.0, abs=1e-6)
    assert strong.gradients[0, 0] == pytest.approx(1.0, abs=1e-6)


def test_the_random_energy_limit_is_reached_slowly() -> None:
    """Exact participation (26) comes to 1 − β_c/β from above, and to 0 below β_c, as T grows."""
    for ratio, bound in ((0.5, 1e-4), (1.5, 0.06), (3.0, 0.03)):
        tokens = (32, 10**4, 10**9)
        limits = [energy_limit(ratio * math.sqrt(2.0 * math.log(t)), t)[1] for t in tokens]
        apart = [
            participation(t, ratio * math.sqrt(2.0 * math.log(t))) - x for t, x in zip(tokens, limits, strict=True)
        ]
        assert apart[0] > apart[1] > apart[2] > 0.0
        assert apart[2] < bound
    assert energy_limit(0.0, 32) == (1.0, 0.0)


@pytest.mark.parametrize("beta", [0.3, 1.0, 4.0])
def test_weights_are_those_of_a_plain_soft_max(beta: float) -> None:
    """Of 32 unrelated tokens: entropy and Σ A² of 20 000 rows; annealed weights hold at small β only, the limit too."""
    d = transformer_phases("linear", strengths=[beta], residuals=[1e4], length=32, depth=1)
    logits = beta * np.random.default_rng(1).normal(size=(20_000, 32))
    a = np.exp(logits - logits.max(1, keepdims=True))
    a /= a.sum(1, keepdims=True)
    entropy = -(a * np.log(a)).sum(1) / math.log(32)
    # 64 drawn heads of 32 rows each, which share keys: by a head about 0.1 of the spread between rows
    error = float(entropy.std()) * (1 / math.sqrt(64) + 1 / math.sqrt(20_000))
    assert abs(d.entropy[0, 0] - entropy.mean()) <= 5.6 * error
    heads, k, y = Heads(1, 32, beta**2), np.eye(32), float(np.square(a).sum(1).mean())
    assert float(np.diag(sampled(k, heads).k).mean()) == pytest.approx(y, rel=0.03)
    assert annealed(k, heads, renormalize=True)[0, 0] == pytest.approx(y, rel=0.03)
    tilted = annealed(k, heads)[0, 0]
    assert (abs(tilted / y - 1) < 0.03) == (beta < 0.5)
    limit = energy_limit(beta, 32)[0]
    assert (abs(limit - entropy.mean()) < 0.02) == (beta <= 1.0)


@pytest.mark.parametrize(("strength", "alpha"), [(0.3, 0.7), (4.0, 1.5), (0.2, 3.0), (8.0, 0.4)])
def test_all_that_is_shown_is_that_of_networks(strength: float, alpha: float) -> None:
    """Plain networks of width 256, 8 heads of 32, 3 blocks, 12 tokens: 5.6 standard errors, and 3 blocks · 2/width.

    Of similarity, γ, the entropy of the last block's weights, and by autograd of gradients per block; β from logits.
    """
    tokens, width, depth, heads = 12, 256, 3, 8
    d = transformer_phases("relu", strengths=[strength], residuals=[alpha], length=tokens, depth=depth)
    found = []
    for seed in range(24):
        rng = np.random.default_rng(seed)

        def drawn(out: int, variance: float, rng: np.random.Generator = rng) -> torch.Tensor:
            return torch.from_numpy(rng.normal(size=(width, out)) * math.sqrt(variance / width))

        def norm(h: torch.Tensor) -> torch.Tensor:
            return (h - h.mean(-1, keepdim=True)) / h.std(-1, keepdim=True, correction=0)

        first = h = torch.from_numpy(rng.normal(size=(2, tokens, width))).requires_grad_()
        logits = a = torch.zeros(())
        for _ in range(depth):
            x = norm(h)
            q, k, v = ((x @ drawn(width, strength)).reshape(2, tokens, heads, -1).swapaxes(1, 2) for _ in range(3))
            logits = q @ k.swapaxes(2, 3) / math.sqrt(width / heads)
            a = torch.softmax(logits, -1)
            h = h + (a @ v).swapaxes(1, 2).reshape(h.shape) @ drawn(width, 1 / strength) / alpha
            h = h + torch.relu(norm(h) @ drawn(width, 1.0)) @ drawn(width, 2.0) / alpha
        out = (norm(h).mean(1) @ drawn(1, 1.0)).sum()
        start, end = torch.autograd.grad(out, (first, h))
        unit = torch.nn.functional.normalize(h, dim=-1).reshape(2 * tokens, width)
        c = unit @ unit.T
        inside = (c[:tokens, :tokens].sum() - tokens) / (tokens * (tokens - 1))
        entropy = torch.special.entr(a).sum(-1).mean() / math.log(tokens)
        beta = logits.var(-1).mean().sqrt()
        growth = torch.log(start.square().mean() / end.square().mean()) / depth
        found.append(
            [float(z.detach()) for z in (inside, c[:tokens, tokens:].diagonal().mean(), entropy, beta, growth)]
        )
    mean, error = np.mean(found, axis=0), np.std(found, axis=0, ddof=1) / math.sqrt(24)
    names = ("similarity", "gamma", "entropy", "beta", "gradients")
    shown = np.array([getattr(d, name)[0, 0] for name in names])
    shown[1], shown[4] = shown[1] / (1 + shown[1]), math.log(shown[4])
    drawn_heads = np.array([0.0, 0.0, 0.02, 0.0, 0.0])  # the entropy's own 64 heads
    room = 2 * depth / width * np.maximum(1.0, shown) + drawn_heads
    assert np.all(np.abs(mean - shown) <= 5.6 * error + room), (mean, error, shown)


def test_words_and_bad_input() -> None:
    d = transformer_phases("relu", strengths=[0.1, 10.0], residuals=[0.05], length=16, depth=6)
    assert d.phase.tolist() == [["rank collapse", "entropy collapse"]]
    assert "50.0 %  rank collapse" in str(d)
    assert np.isnan(transformer_phases("relu", strengths=[0.1], residuals=[1.0], length=300, depth=1).gradients).all()
    for options, words in (
        ({"strengths": [0.0]}, "strengths as finite numbers above 0"),
        ({"residuals": []}, "residuals as finite numbers above 0"),
        ({"length": 1}, "length"),
        ({"length": 10**6}, "at most 2048 tokens"),
        ({"depth": 0}, "depth"),
    ):
        with pytest.raises(fg.FirstguessError, match=words) as caught:
            transformer_phases("relu", **options)  # type: ignore[arg-type]
        assert "\n" not in str(caught.value)
