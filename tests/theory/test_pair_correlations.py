"""The distribution of many classes where overlaps of pairs differ: traces, limits, plain NumPy networks."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import firstguess as fg
from firstguess.theory.finite.expansion import expanded
from firstguess.theory.shares.gaussian_argmax import agreement_probability
from firstguess.theory.shares.many_classes import PairMoments, pair_moments, spectrum, strength, unit_traces
from firstguess.theory.shares.mixture import share_distribution

FAR = 5.5  # standard errors: 4e-8 a comparison


def test_sums_over_pairs_paths_and_triangles() -> None:
    """Against loops over all distinct points."""
    x = np.random.default_rng(1).standard_normal((1, 6, 4))
    k = x @ x.transpose(0, 2, 1)
    c = k[0] / np.sqrt(np.outer(np.diagonal(k[0]), np.diagonal(k[0])))
    two, three, four = (list(itertools.permutations(range(6), r)) for r in (2, 3, 4))
    want = [
        np.mean([c[a, b] for a, b in two]),
        np.mean([c[a, b] ** 2 for a, b in two]),
        np.mean([c[a, b] * c[a, d] for a, b, d in three]),
        np.mean([c[a, b] * c[d, e] for a, b, d, e in four]),
        np.mean([c[a, b] * c[b, d] * c[d, e] for a, b, d, e in four]),
        np.mean([c[a, b] * c[b, d] * c[d, a] for a, b, d in three]),
    ]
    assert np.allclose(pair_moments(c[None])[0], want, rtol=0, atol=1e-12)


def test_moments_of_a_known_covariance() -> None:
    """Points on a sphere in 9 dimensions about no center: spread 1/9, all directions alike."""
    x = np.random.default_rng(2).standard_normal((4000, 16, 9))
    x /= np.linalg.norm(x, axis=2, keepdims=True)
    found = PairMoments.of(pair_moments(x @ x.transpose(0, 2, 1)))
    assert abs(found.e) < 0.002
    assert abs(found.spread * 9 - 1) < 0.02
    assert abs(found.third - 1) < 0.05


def test_unit_traces() -> None:
    values = np.array([0.5, 0.3, 0.15, 0.05])
    g = np.random.default_rng(3).standard_normal((200_000, 4)) * np.sqrt(values)
    u = g**2 / (g**2).sum(1, keepdims=True)
    assert np.all(np.abs(u.mean(0) - unit_traces(values)) < FAR * u.std(0) / math.sqrt(len(u)))


@pytest.mark.parametrize(("spread", "third"), [(0.08, 1.25), (0.02, 1.5), (0.3, 1.1), (0.05, 1.0)])
def test_spectrum_has_these_traces(spread: float, third: float) -> None:
    shape = spectrum(spread, third, 0.5 * spread)
    s = unit_traces(np.array(shape.values))
    assert abs(float((s**2).sum()) / spread - 1) < 0.02 + 0.3 * spread
    assert abs(float((s**3).sum()) / float((s**2).sum()) ** 2 - third) < 0.06
    assert float(np.dot(shape.along, shape.values)) == pytest.approx(0.5 * spread, rel=1e-6)


def test_strength() -> None:
    """E A(c) at the strength that is found is the one asked for: pairs drawn again."""
    shape = spectrum(0.07, 1.3, 0.05)
    e = strength(shape, 0.02, 10, 0.02)
    rng = np.random.default_rng(8)
    values, inside = np.array(shape.values), np.array(shape.along)
    outside = math.sqrt(max(1.0 - inside.sum(), 0.0))
    g = rng.standard_normal((2, 60_000, len(values))) * np.sqrt(values * (1 - e)) + math.sqrt(e) * np.sqrt(inside)
    dot = (g[0] * g[1]).sum(1) + e * outside**2
    norm = np.sqrt(((g[0] ** 2).sum(1) + e * outside**2) * ((g[1] ** 2).sum(1) + e * outside**2))
    a = agreement_probability(10)(dot / norm)
    assert abs(a.mean() - 0.02) < FAR * a.std() / math.sqrt(len(a)) + 1e-4


def networks(rng: np.random.Generator, phi: str, depth: int, width: int, d: int, n: int, count: int) -> np.ndarray:
    """Shares of ten classes: plain NumPy, LayerNorm after the activation; one output layer a network."""
    shares = []
    for _ in range(count):
        x = rng.standard_normal((n, d), dtype=np.float32)
        for _ in range(depth):
            x = x @ rng.standard_normal((x.shape[1], width), dtype=np.float32) * np.float32(math.sqrt(2 / x.shape[1]))
            x = np.tanh(x) if phi == "tanh" else np.maximum(x, 0)
            x = x - x.mean(1, keepdims=True)
            x = x / np.sqrt((x * x).mean(1, keepdims=True))
        best = (x @ rng.standard_normal((width, 10), dtype=np.float32)).argmax(1)
        shares.append(np.bincount(best, minlength=10) / n)
    return np.array(shares)


@pytest.mark.parametrize(("phi", "depth", "width", "d"), [("tanh", 1, 30, 20), ("relu", 4, 30, 100)])
def test_largest_share(phi: str, depth: int, width: int, d: int) -> None:
    """Ten classes, 300 points: where law (8) says .1815 for tanh, far from what networks show (.176)."""
    text = f"{depth} x [dense(weight_var=2) > {phi} > layernorm] > dense"
    p = fg.predict(text, classes=10, width=width, inputs=fg.Inputs(dimension=d), points=300)
    assert isinstance(p.guesses, fg.MixedGuesses)
    assert p.guesses.pairs is not None
    shares = networks(np.random.default_rng(12), phi, depth, width, d, 300, 1000)
    largest = shares.max(1)
    error = math.hypot(largest.std() / math.sqrt(len(largest)), p.guesses.expected_max_error())
    assert abs(largest.mean() - p.guesses.expected_max()) < FAR * error
    old = share_distribution(10 * fg.MixedGuesses(p.guesses.gammas, (1.0,), 10).var(), 0.0, 10, 300).expected_max()
    assert old > p.guesses.expected_max() + 0.003  # what one overlap for all pairs would say
    above = float(np.mean(largest > 0.18))
    room = math.hypot(math.sqrt(above * (1 - above) / 1000), p.guesses.prob_max_above_error(0.18))
    assert abs(above - p.guesses.prob_max_above(0.18)) < FAR * room
    quarter = p.guesses.quantile(0.25)
    below = (shares <= quarter + 1e-9).mean(axis=1)
    assert abs(below.mean() - p.guesses.cdf(quarter)) < FAR * math.hypot(
        below.std() / math.sqrt(1000), p.guesses.cdf_error(quarter)
    )


def test_pairs_by_expansion_and_by_chain() -> None:
    """Leading orders of the triangle and of overlaps with a common point, at width 300."""
    from firstguess.theory.finite.monte_carlo import sample_points

    net = fg.Network.parse("4 x [dense(weight_var=2) > relu > layernorm] > dense", classes=10)
    found, why = expanded(fg.predict(net), fg.Inputs(dimension=500), 300, 0.0)
    assert found is not None, why
    assert found.pairs is not None
    few = sample_points(net, fg.Inputs(dimension=500), 300, networks=1500).pairs
    assert abs(found.pairs.spread / few.spread - 1) < 0.05
    assert abs(found.pairs.third / few.third - 1) < 0.15
    assert abs(found.pairs.along / few.along - 1) < 0.25


def test_methods_of_the_drawn_law() -> None:
    distribution = share_distribution(0.012, 0.0, 10, 200, PairMoments(0.01, 0.05, 1.3, 3e-4))
    assert isinstance(distribution, fg.MixedGuesses)
    infinite = 0.012 / 10
    assert distribution.var() == pytest.approx(infinite + (0.09 - infinite) / 200, rel=1e-6)
    drawn = distribution.sample(1500, seed=3)
    assert np.allclose(drawn.sum(1), 1.0)
    assert np.array_equal(drawn[:40], distribution.sample(40, seed=3))
    assert abs(drawn.max(1).mean() - distribution.expected_max()) < FAR * math.hypot(
        drawn.max(1).std() / math.sqrt(1500), distribution.expected_max_error()
    )
    assert distribution.pmf().sum() == pytest.approx(1.0, abs=1e-9)
    assert float(distribution.pmf() @ np.arange(201)) / 200 == pytest.approx(0.1, abs=2e-3)
    assert distribution.cdf(distribution.quantile(0.3)) >= 0.3
    assert fg.MixedGuesses.from_dict(distribution.to_dict()) == distribution
    open_law = share_distribution(0.012, 0.0, 10, None, PairMoments(0.01, 0.05, 1.3, 3e-4))
    grid = np.linspace(0.0, 0.4, 401)
    assert float(np.trapezoid(open_law.pdf(grid), grid)) == pytest.approx(1.0, abs=0.01)
    assert open_law.expected_max() < distribution.expected_max()


def test_limit_of_one_overlap() -> None:
    """No spread over pairs: law (8) itself; a little: next to it."""
    assert share_distribution(0.02, 0.0, 10, None, PairMoments(0.06, 0.0, 1.0, 0.0)) == share_distribution(
        0.02, 0.0, 10, None
    )
    c = agreement_probability(10).overlap(0.02)
    near = share_distribution(0.02, 0.0, 10, None, PairMoments(c, 2e-3, 1.2, 0.0))
    assert isinstance(near, fg.MixedGuesses)
    plain = share_distribution(0.02, 0.0, 10, None)
    assert (
        abs(near.expected_max() - plain.expected_max()) < FAR * near.expected_max_error() + 3e-3 * plain.expected_max()
    )
