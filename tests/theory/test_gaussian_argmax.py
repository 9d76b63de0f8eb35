"""Many classes: exact moments, the integral (8), and the estimated laws, against independent numbers.

Random comparisons allow 5 standard errors (two-sided false alarm 5.7e-7 each). Seeds are arbitrary and fixed.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from races import agree, phi, race
from scipy import integrate, special

from firstguess.theory.shares import gaussian_argmax
from firstguess.theory.shares.gaussian import Guesses
from firstguess.theory.shares.gaussian_argmax import ShareCurve, binomial_mixture

# -- Exact moments of many classes ---------------------------------------------------------------------------------


@pytest.mark.parametrize("rho", [1e-12, 1e-4, 0.3, 0.5, 0.50001, 0.9, 0.999, 1 - 1e-10])
def test_agreement_of_two_classes_is_the_arcsine(rho):
    gap = 1 - rho
    expected = math.atan2(rho, math.sqrt(gap * (2 - gap))) / math.pi
    assert gaussian_argmax.excess_agreement(2, rho, gap) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("classes", "rho"), [(3, 0.2), (3, 0.7), (10, 0.4), (10, 0.95), (1000, 0.3), (1000, 0.8)])
def test_agreement_against_a_conditional_integral(classes, rho):
    """Independent of Owen's T and of the rotated grid: Φ₂(x, y) = ∫ φ(t) Φ((y − ρt)/√(1−ρ²)) dt up to x, on panels."""
    nodes, weights = np.polynomial.legendre.leggauss(24)
    edges = np.linspace(-9, 9, 13)
    u = np.concatenate([(a + b) / 2 + (b - a) / 2 * nodes for a, b in pairwise(edges)])
    wu = np.tile(weights * (edges[1] - edges[0]) / 2, len(edges) - 1)
    across = math.sqrt(1 - rho * rho)
    total = 0.0
    inner_x, inner_w = np.polynomial.legendre.leggauss(64)
    for x, w in zip(u, wu, strict=True):
        t = -9 + (x + 9) * (inner_x + 1) / 2  # (64,) from −9 to x
        kernel = phi(t) * inner_w * (x + 9) / 2
        y = u[:, None]
        joint = special.ndtr((y - rho * t) / across) @ kernel  # Φ₂(x, y)
        total += w * (wu * phi(x) * phi((u - rho * x) / across) / across * joint ** (classes - 1)).sum()
    assert gaussian_argmax.excess_agreement(classes, rho, 1 - rho) == pytest.approx(
        classes * total - 1 / classes, rel=1e-8
    )


@pytest.mark.parametrize("classes", [3, 10, 1000])
def test_small_gamma_is_linear_with_the_known_coefficient(classes):
    """T − 1/M ≈ ρ·(E max z)²/(M−1), to all digits as ρ → 0."""
    top = integrate.quad(lambda x: x * classes * phi(x) * special.ndtr(x) ** (classes - 1), -9, 9, points=[0, 2, 4])[0]
    slope = top**2 / (classes - 1)
    assert Guesses(1e-12, classes).var() == pytest.approx(1e-12 * slope / classes, rel=1e-9)
    assert Guesses(1e-12, classes).expected_max() - 1 / classes == pytest.approx(1e-6 * slope, rel=1e-5, abs=1e-15)


@pytest.mark.parametrize(("classes", "gamma"), [(3, 0.3), (10, 2.0), (100, 1.0)])
def test_moments_against_plain_simulation(classes, gamma):
    guess, leader = race(gamma, classes, 2, 40_000, seed=11)
    same = (guess[:, 0] == guess[:, 1]).astype(float)
    agree(same, classes * (Guesses(gamma, classes).var() + 1 / classes**2))
    agree(guess[:, 0] == leader, Guesses(gamma, classes).expected_max())


# -- The distribution of many classes ----------------------------------------------------------------------------------


@pytest.mark.parametrize("classes", [3, 10, 30])
@pytest.mark.parametrize("gamma", [1e-4, 0.5, 20.0, 1e5])
def test_fractions_are_the_integral_8(classes, gamma):
    z = np.random.default_rng(5).standard_normal((6, classes))
    got = gaussian_argmax.fractions(z, gamma)
    t = np.linspace(-9, 9, 601)
    for row, g in zip(z, got, strict=True):
        gap = math.sqrt(gamma) * (row[:, None] - row[None, :])
        others = special.log_ndtr(t[:, None, None] + gap).sum(axis=2) - special.log_ndtr(t)[:, None]
        expected = (phi(t)[:, None] * np.exp(others)).sum(axis=0) * (t[1] - t[0])
        np.testing.assert_allclose(g, expected, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize(("classes", "gamma"), [(3, 1.0), (10, 0.05), (10, 18.4), (100, 3.0)])
def test_law_against_simulated_fractions(classes, gamma):
    distribution = Guesses(gamma, classes)
    share = distribution.sample(20_000, seed=7)
    largest = share.max(axis=1)
    for level in (0.02, 0.3, 0.7, 0.98):
        g = float(np.quantile(share[:, 0], level))
        agree(share[:, 0] <= g, distribution.cdf(g), error=distribution.cdf_error(g) + 0.5 / 20_000)
    for level in (0.1, 0.5, 0.9):
        t = float(np.quantile(largest, level))
        agree(largest > t, distribution.prob_max_above(t), error=distribution.prob_max_above_error(t) + 0.5 / 20_000)


@pytest.mark.parametrize(("classes", "gamma"), [(3, 1e-11), (3, 1.0), (10, 1e-3), (10, 5.0), (1000, 0.1), (1000, 30.0)])
def test_estimated_law_has_the_exact_moments(classes, gamma):
    """∫ g dF = 1/M and the variance is T's, though neither was used to build the curve."""
    distribution = Guesses(gamma, classes)
    w, step = np.linspace(-8.5, 8.5, 2001, retstep=True)
    weights = step * phi(w)
    g = distribution.quantile(special.ndtr(w))
    assert weights @ g == pytest.approx(1 / classes, rel=3e-3)
    assert weights @ (g - 1 / classes) ** 2 == pytest.approx(distribution.var(), rel=6e-3)


def test_conditional_law_reduces_to_two_classes():
    """The multi-class machinery at M = 2 knows one rival only: compare with the closed form."""
    for gamma in (0.01, 1.0, 50.0):
        closed, estimated = Guesses(gamma), gaussian_argmax.rivals(gamma, 2)
        for x in (-2.0, 0.1, 1.5):
            w, _, error = estimated.marginal(x)
            assert special.ndtr(w) == pytest.approx(closed.cdf(float(special.ndtr(x))), abs=8 * error + 1e-6)
            above, error = estimated.max_above(abs(x))
            assert above == pytest.approx(closed.prob_max_above(float(special.ndtr(abs(x)))), abs=8 * error + 1e-6)


def test_at_most_one_class_is_above_one_half():
    for classes in (3, 10, 1000):
        distribution = Guesses(3.0, classes)
        for t in (0.5, 0.7, 0.95):
            assert distribution.prob_max_above(t) == pytest.approx(
                classes * (1 - distribution.cdf(t)), rel=1e-5, abs=1e-12
            )


def test_scaling_below_tiny_gamma_joins_on():
    a, b = Guesses(0.999e-12, 10), Guesses(1.001e-12, 10)
    g = 0.1 + np.array([-2.0, -1.0, 0.0, 0.5, 2.0]) * a.std()
    np.testing.assert_allclose(a.cdf(g), b.cdf(g), atol=1e-3)
    np.testing.assert_allclose(a.prob_max_above(g[3:]), b.prob_max_above(g[3:]), atol=2e-3)


def test_mixture_of_a_curve_equals_that_of_its_line():
    """The general (many-node) path of the mixture gives the same as the straight one."""
    x = np.linspace(-12, 12, 49)
    curved = ShareCurve(x, x / 1.5, np.full(49, 1 / 1.5), np.zeros(49))
    np.testing.assert_allclose(
        binomial_mixture(curved, 50), binomial_mixture(ShareCurve.line(1 / 1.5, 0.0), 50), atol=1e-13
    )


@pytest.mark.parametrize("gamma", [0.2, 2.0, 50.0])
@pytest.mark.parametrize("classes", [3, 10, 200])
def test_many_class_properties(gamma, classes):
    distribution = Guesses(gamma, classes)
    g = np.linspace(0, 1, 400)
    cdf = distribution.cdf(g)
    assert (np.diff(cdf) >= 0).all()
    assert (cdf[0], cdf[-1]) == (0.0, 1.0)
    u = np.array([1e-6, 0.01, 0.3, 0.5, 0.99])
    back = distribution.quantile(u)
    kept = (back > 1e-300) & (back < 1 - 1e-6)  # what float64 fractions can tell apart
    np.testing.assert_allclose(distribution.cdf(back)[kept], u[kept], rtol=1e-9)
    above = distribution.prob_max_above(np.linspace(0, 1, 40))
    assert (np.diff(above) <= 1e-12).all()
    assert (above[0], above[-1]) == (1.0, 0.0)
    mean_of_max = integrate.trapezoid(distribution.prob_max_above(np.linspace(0, 1, 401)), dx=1 / 400)
    assert mean_of_max == pytest.approx(distribution.expected_max(), abs=1e-3)


def test_errors_are_those_of_a_mean_of_independent_lattices():
    """Lattices whose means are 0, 1, … 7 have the mean 3.5 and, each, the unbiased variance 6."""
    draws = gaussian_argmax.rivals(1.0, 3)
    plain = replace(draws, weight=np.ones_like(draws.weight))
    assert plain._average(np.repeat(np.arange(8.0), len(draws.weight) // 8)) == pytest.approx((3.5, math.sqrt(6 / 8)))


def test_thousand_classes_quickly():
    start = time.process_time()
    distribution = Guesses(1.234, 1000)
    distribution.expected_max(), distribution.std()
    moments = time.process_time() - start
    distribution.cdf(0.001), distribution.prob_max_above(0.3)
    # Targets are 0.05 s and 3 s on a free machine; processor time on a busy one may be a few times as long.
    assert moments < 0.25
    assert time.process_time() - start < 9
    assert distribution.error < 1e-3
    assert 1 / 1000 < distribution.expected_max() < Guesses(1.234, 100).expected_max()
    largest = distribution.sample(1500, seed=3).max(axis=1)
    agree(largest, distribution.expected_max())
    agree(largest > 0.15, distribution.prob_max_above(0.15), error=distribution.prob_max_above_error(0.15))
