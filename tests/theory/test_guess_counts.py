"""Counts one by one, for data sets too large to list them all: the same distribution as the list, at any size."""

from __future__ import annotations

import math

import numpy as np
import pytest

from firstguess.base.errors import InvalidInput
from firstguess.theory.shares import counts, gaussian_argmax
from firstguess.theory.shares.gaussian import Guesses


@pytest.mark.parametrize("classes", [2, 10])
@pytest.mark.parametrize("points", [1000, 10_000, 100_000])
def test_one_by_one_is_the_list(points: int, classes: int) -> None:
    """The list itself is good to about 1e-11 (n = 10⁴) and 1e-10 (n = 10⁵): log-Gamma."""
    for gamma in (1e-8, 0.47, 18.0) if points < 100_000 else (2.0,):
        curve = counts.curve_of(gamma, classes)
        listed = counts.Listed(gaussian_argmax.binomial_mixture(curve, points))
        single = counts.Counts(curve, points)
        k = np.unique([0, 1, 2, points // 100, points // 10, points // 2, 9 * points // 10 + 1, points - 1, points])
        np.testing.assert_allclose(single.at(k), listed.at(k), atol=1e-11)
        np.testing.assert_allclose(single.at_most(k), listed.at_most(k), atol=1e-11)
        np.testing.assert_allclose([single.at_least(i) for i in k], [listed.at_least(i) for i in k], atol=1e-11)
        u = np.array([1e-6, 0.1, 0.3, 0.77, 0.999])
        assert np.abs(single.first(u) - listed.first(u)).max() <= 1  # where a sum is u to rounding
        if classes == 2:
            every = np.arange(points + 1)
            expected = (np.maximum(every, points - every) / points) @ listed.pmf
            assert Guesses(gamma).expected_max() + single.larger_of_two() == pytest.approx(expected, abs=1e-11)


@pytest.mark.parametrize("points", [10**6 + 1, 10**9, 10**12])
def test_uniform_counts_of_any_number_of_points(points: int) -> None:
    """γ = 1, two classes: every count has probability 1/(n + 1), whatever n is."""
    distribution = Guesses(1.0, points=points)
    first = math.floor(0.9 * points + 1e-9) + 1
    assert distribution.prob_max_above(0.9) == pytest.approx(2 * (points + 1 - first) / (points + 1), abs=1e-12)
    assert distribution.cdf(0.25) == pytest.approx((points // 4 + 1) / (points + 1), abs=1e-12)
    np.testing.assert_allclose(distribution.pdf([0.0, 0.3, 0.5, 1.0]), points / (points + 1), rtol=1e-9)
    np.testing.assert_allclose(distribution.quantile([0.2, 0.5, 0.9]), [0.2, 0.5, 0.9], atol=2 / points + 1e-12)
    # the mean of the larger of k and n − k over all k
    larger = (3 * points + 1) / 4 if points % 2 else (points / 2 + points * (3 * points / 2 + 1) / 2) / (points + 1)
    assert distribution.expected_max() == pytest.approx(larger / points, abs=1e-12)


@pytest.mark.parametrize("classes", [2, 10])
def test_a_billion_points_are_nearly_infinitely_many(classes: int) -> None:
    """The first correction is of order 1/n: 1e-9 times the slope of the density, which is far below 1e-7 here."""
    finite, limit = Guesses(2.0, classes, points=10**9), Guesses(2.0, classes)
    for t in (0.6, 0.9):
        at = 1e-4 if classes > 2 else 1e-8  # many classes: by another formula, with errors of its own
        assert finite.prob_max_above(t) == pytest.approx(limit.prob_max_above(t), abs=at)
    assert finite.prob_max_above(0.3) == pytest.approx(limit.prob_max_above(0.3), abs=1e-3)
    g = np.array([0.05, 0.3, 0.8])
    np.testing.assert_allclose(finite.cdf(g), limit.cdf(g), atol=1e-7)
    np.testing.assert_allclose(finite.quantile(g), limit.quantile(g), atol=1e-7)
    np.testing.assert_allclose(finite.pdf(g), limit.pdf(g), rtol=1e-6)


def test_laws_without_a_density() -> None:
    even, one = Guesses(0.0, points=10**9), Guesses(math.inf, 4, points=10**9)
    assert even.prob_max_above(0.6) == 0.0
    assert even.expected_max() == pytest.approx(0.5 + math.sqrt(1 / (2 * math.pi * 10**9)), abs=1e-9)  # E|Z|·σ
    assert even.quantile(0.5) == 0.5
    assert one.prob_max_above(0.9) == 1.0
    assert (one.cdf(0.5), one.quantile(0.7), one.quantile(0.8), one.pdf(1.0)) == (0.75, 0.0, 1.0, 0.25e9)
    narrow = Guesses(1e-30, points=10**6)  # narrower than float64 can divide
    assert narrow.cdf(0.5) == pytest.approx(0.5 + 0.5 * 0.000797885, abs=1e-7)  # ½ and half of P(k = n/2)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.7])
def test_counts_of_one_fraction_are_binomial(share: float) -> None:
    distribution, n = counts.Counts(share, 12), 12
    pmf = [math.comb(n, k) * share**k * (1 - share) ** (n - k) for k in range(n + 1)]
    np.testing.assert_allclose(distribution.at(np.arange(-1, n + 2)), [0.0, *pmf, 0.0], rtol=1e-12)
    np.testing.assert_allclose(
        distribution.at_most(np.arange(n + 1)), np.cumsum(pmf), rtol=0.0, atol=1e-14
    )  # 1 − at_least
    np.testing.assert_allclose([distribution.at_least(k) for k in range(n + 1)], np.cumsum(pmf[::-1])[::-1], rtol=1e-12)


@pytest.mark.parametrize(("gamma", "points"), [(1e-12, 10**12), (1e-9, 10**15), (0.0, 10**12)])
def test_the_larger_of_two_nearly_even_counts(gamma: float, points: int) -> None:
    """A count is normal there, and so is its fraction: E|G − ½| = √(2/π)·std, up to γ."""
    distribution = Guesses(gamma, points=points)
    assert distribution.expected_max() - 0.5 == pytest.approx(math.sqrt(2 / math.pi) * distribution.std(), rel=1e-6)


@pytest.mark.parametrize("gamma", [1e-7, 0.01, 2.0])
def test_normal_counts_are_the_counts(gamma: float, monkeypatch: pytest.MonkeyPatch) -> None:
    exact = Guesses(gamma, points=10**7).expected_max()
    monkeypatch.setattr(counts, "_NORMAL", 10)
    assert Guesses(gamma, points=10**7).expected_max() == pytest.approx(exact, abs=1e-11)


def test_limits_of_the_number_of_points() -> None:
    with pytest.raises(InvalidInput, match="points=None for infinitely many"):
        Guesses(1.0, points=10**19)
    assert Guesses(1.0, 10, 1).expected_max() <= 1.0
