"""The distribution of guess fractions against closed forms, independent quadrature and plain simulation.

Random comparisons allow 5 standard errors (two-sided false alarm 5.7e-7 each). Seeds are arbitrary and fixed.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from itertools import pairwise

import mpmath
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from properties import examples
from races import agree, phi, race
from scipy import integrate, special

from firstguess.base.errors import InvalidInput
from firstguess.theory.shares.gaussian import Guesses

RELU = 1 / (math.pi - 1)  # γ after one ReLU layer, theory.md §2
GAMMAS = st.one_of(
    st.floats(1e-12, 1e12), st.floats(-12, 12).map(lambda e: 10.0**e), st.sampled_from([0.0, 1.0, math.inf])
)


# -- Golden ------------------------------------------------------------------------------------------------------


def test_one_relu_layer():
    g = Guesses(RELU)
    assert g.var() == pytest.approx(0.05155762, abs=5e-9)
    assert g.expected_max() == pytest.approx(0.69081130, abs=5e-9)
    assert g.error == g.cdf_error(0.3) == g.prob_max_above_error(0.9) == g.expected_max_error() == 0.0


def test_gamma_one_is_uniform_for_two_classes():
    grid = np.linspace(0, 1, 101)
    g = Guesses(1.0)
    np.testing.assert_allclose(g.cdf(grid), grid, atol=1e-15)
    np.testing.assert_allclose(g.pdf(grid), 1.0, atol=1e-12)
    np.testing.assert_allclose(g.quantile(grid), grid, atol=1e-15)
    np.testing.assert_allclose(Guesses(1.0, points=37).pmf(), 1 / 38, atol=1e-14)


@pytest.mark.parametrize("gamma", [1e-12, 1e-3, RELU, 1.0, 7.0, 1e6, 1e12])
def test_two_classes_against_high_precision(gamma):
    """mpmath at 40 digits, from G = Φ(√γ z) and nothing else."""
    with mpmath.workdps(40):
        root = mpmath.sqrt(mpmath.mpf(gamma))
        for z in (-0.7, 0.3, 1.1):
            x = float(root) * z
            if abs(x) > 6:
                continue
            g = float(mpmath.ncdf(x))
            inverse = mpmath.findroot(lambda v, g=g: mpmath.ncdf(v) - mpmath.mpf(g), x)
            assert Guesses(gamma).cdf(g) == pytest.approx(float(mpmath.ncdf(inverse / root)), abs=1e-9)
            density = mpmath.npdf(inverse / root) / root / mpmath.npdf(inverse)
            assert Guesses(gamma).pdf(g) == pytest.approx(float(density), rel=1e-8)
        if gamma > 1e-6:  # Var as an integral over z, split at the width of the step Φ(√γ z)
            marks = sorted({0, 10, *(mpmath.mpf(m) / root for m in (1, 4, 10) if m / root < 10)})
            second = 2 * mpmath.quad(lambda z: (mpmath.ncdf(root * z) - 0.5) ** 2 * mpmath.npdf(z), marks)
            assert Guesses(gamma).var() == pytest.approx(float(second), rel=1e-10)
            first = 2 * mpmath.quad(lambda z: mpmath.ncdf(root * z) * mpmath.npdf(z), marks)
            assert Guesses(gamma).expected_max() == pytest.approx(float(first), rel=1e-10)


# -- Finite data -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("points", [1, 2, 9, 100])
@pytest.mark.parametrize("gamma", [1e-12, 0.03, RELU, 40.0])
def test_counts_against_quad(points, gamma):
    pmf = Guesses(gamma, points=points).pmf()
    root = math.sqrt(gamma)
    for k in {0, points // 3, points // 2, points}:

        def integrand(z, k=k):
            log = k * special.log_ndtr(root * z) + (points - k) * special.log_ndtr(-root * z)
            return math.comb(points, k) * np.exp(log) * phi(z)

        marks = np.linspace(-9, 9, 37)
        expected = sum(integrate.quad(integrand, a, b, epsabs=1e-14)[0] for a, b in pairwise(marks))
        assert pmf[k] == pytest.approx(expected, abs=1e-11)


@pytest.mark.parametrize("gamma", [1e-12, 1e-4, 1.0, 1e4, 1e12])
def test_ten_thousand_points(gamma):
    distribution = Guesses(gamma, points=10_000)
    pmf = distribution.pmf()
    k = np.arange(10_001) / 10_000
    assert pmf.min() >= 0
    assert pmf.sum() == pytest.approx(1, abs=1e-12)
    np.testing.assert_allclose(pmf, pmf[::-1], atol=1e-13)
    assert pmf @ (k - 0.5) ** 2 == pytest.approx(distribution.var(), abs=1e-11)  # arcsin(c)/2π + E[G(1−G)]/n
    if gamma == 1:
        np.testing.assert_allclose(pmf, 1 / 10_001, atol=1e-13)


def test_no_bias_is_the_binomial():
    exact = np.array([math.comb(60, k) for k in range(61)]) / 2.0**60
    np.testing.assert_allclose(Guesses(0.0, points=60).pmf(), exact, rtol=1e-12)
    np.testing.assert_allclose(Guesses(1e-12, points=60).pmf(), exact, atol=1e-10)
    three = np.array([math.comb(60, k) * (1 / 3) ** k * (2 / 3) ** (60 - k) for k in range(61)])
    np.testing.assert_allclose(Guesses(0.0, 3, points=60).pmf(), three, rtol=1e-11)


def test_two_class_summaries_from_brute_force():
    distribution = Guesses(2.0, points=8)
    pmf = distribution.pmf()
    largest = np.maximum(np.arange(9), 8 - np.arange(9)) / 8
    assert distribution.expected_max() == pytest.approx(pmf @ largest, abs=1e-15)
    for t in (0.0, 0.3, 0.49, 0.5, 0.55, 0.625, 0.9, 1.0):
        assert distribution.prob_max_above(t) == pytest.approx(pmf[largest > t].sum(), abs=1e-14)


@pytest.mark.parametrize(("classes", "gamma", "points"), [(2, 1.5, 7), (3, 1.0, 7), (5, 4.0, 12)])
def test_counts_against_plain_simulation(classes, gamma, points):
    inits = 30_000
    guess, _ = race(gamma, classes, points, inits, seed=23)
    counts = np.stack([(guess == c).sum(axis=1) for c in range(classes)], axis=1)
    distribution = Guesses(gamma, classes, points=points)
    for k in range(points + 1):
        agree(counts[:, 0] == k, distribution.pmf()[k], error=distribution.error + 0.5 / inits)
    agree(((counts / points - 1 / classes) ** 2).mean(axis=1), distribution.var())
    agree(counts.max(axis=1) / points, distribution.expected_max(), error=distribution.expected_max_error())
    for t in (0.3, 0.45, 0.6, 0.9):
        agree(
            counts.max(axis=1) > t * points + 1e-9,
            distribution.prob_max_above(t),
            error=distribution.prob_max_above_error(t),
        )


def test_finite_points_approach_the_limit():
    far, limit = Guesses(0.7, points=20_000), Guesses(0.7)
    g = np.linspace(0.05, 0.95, 19) + 1e-6
    np.testing.assert_allclose(far.cdf(g), limit.cdf(g), atol=1e-4)
    np.testing.assert_allclose(far.pdf(g), limit.pdf(g), rtol=1e-3)
    np.testing.assert_allclose(far.quantile(g), limit.quantile(g), atol=1e-4)
    many, limit = Guesses(0.7, 10, points=20_000), Guesses(0.7, 10)
    np.testing.assert_allclose(many.cdf(g), limit.cdf(g), atol=5e-4)
    assert many.expected_max() == pytest.approx(limit.expected_max(), abs=1e-3)


def test_step_function_and_lattice():
    distribution = Guesses(3.0, points=7)
    k = np.arange(8)
    sums = np.cumsum(distribution.pmf())
    np.testing.assert_allclose(distribution.cdf(k / 7), sums, atol=1e-15)
    np.testing.assert_allclose(distribution.cdf(k / 7 + 0.1), np.append(sums[:-1], 1.0), atol=1e-15)
    assert distribution.cdf(-1e-6) == 0.0
    np.testing.assert_allclose(distribution.quantile(distribution.cdf(k / 7)), k / 7)
    np.testing.assert_allclose(distribution.pdf(k / 7 + 0.05), np.append(7 * distribution.pmf()[:-1], 0.0))


# -- Limits ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("classes", [2, 3, 10])
def test_no_drift_and_infinite_drift(classes):
    even = 1 / classes
    none, full = Guesses(0.0, classes), Guesses(math.inf, classes)
    assert (none.var(), none.expected_max(), none.prob_max_above(0.6)) == (0.0, even, 0.0)
    assert none.cdf([even - 1e-9, even]).tolist() == [0.0, 1.0]
    assert none.quantile(0.3) == even
    assert full.var() == pytest.approx(even * (1 - even), rel=1e-14)
    assert full.expected_max() == pytest.approx(1.0, rel=1e-14)
    assert (full.prob_max_above(0.99), full.prob_max_above(1.0)) == (1.0, 0.0)
    np.testing.assert_allclose(full.cdf([-0.1, 0.0, 0.99, 1.0]), [0, 1 - even, 1 - even, 1])
    assert full.quantile([0.01, 0.999]).tolist() == [0.0, 1.0]
    assert set(np.unique(full.sample(50))) == {0.0, 1.0}
    huge, small = Guesses(1e12, classes), Guesses(1e-12, classes)
    assert huge.expected_max() == pytest.approx(1, abs=1e-5)
    assert huge.prob_max_above(0.9) == pytest.approx(1, abs=1e-5)
    assert small.expected_max() == pytest.approx(even, abs=1e-5)
    assert small.cdf([even - 1e-4, even + 1e-4]).tolist() == [0.0, 1.0]


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("gamma", [5e-324, 1e-300, 1e-30, 1e-12, 1e12, 1e30, 1e308])
@pytest.mark.parametrize("points", [None, 1000])
def test_extremes_have_no_nan(classes, gamma, points):
    distribution = Guesses(gamma, classes, points)
    g = np.array([-1, 0, 5e-324, 1e-300, 1e-9, 1 / 3, 0.5, 1 - 1e-16, 1, 2])
    assert not np.isnan(distribution.pdf(g)).any()
    assert (np.diff(distribution.cdf(g)) >= 0).all()
    assert (np.diff(distribution.quantile([0, 1e-300, 0.2, 0.5, 1])) >= 0).all()
    assert math.isfinite(
        distribution.expected_max() + distribution.std() + distribution.prob_max_above(0.9) + distribution.error
    )
    assert np.isfinite(distribution.sample(5)).all()


# -- Properties --------------------------------------------------------------------------------------------------------


@given(GAMMAS, st.sampled_from([None, 1, 4, 300]), st.lists(st.floats(0, 1), min_size=2, max_size=8))
@example(16.0, None, [0.0, 0.953125])  # a quantile of 1 − 1e-11
@examples(60)
def test_two_class_properties(gamma, points, levels):
    distribution = Guesses(gamma, points=points)
    g = np.sort(levels)
    cdf = distribution.cdf(g)
    assert ((cdf >= 0) & (cdf <= 1)).all()
    assert (np.diff(cdf) >= 0).all()
    assert (distribution.pdf(g) >= 0).all()
    clear = cdf < 1 - 1e-8  # closer to 1 a cdf in float64 no longer says where it came from
    assert (distribution.quantile(cdf[clear]) <= g[clear] + 1e-9).all()  # the smallest fraction with that cdf
    back = distribution.quantile(g)
    kept = (back > 1e-300) if points is None else slice(None)  # smaller fractions than float64 has become 0
    # near 1 fractions are 1e-16 apart and the distribution is steep: two of them up is as near as rounding comes
    up = np.nextafter(np.nextafter(back, 2.0), 2.0)
    assert (distribution.cdf(up) >= g - 1e-9)[kept].all()
    assert 0 <= distribution.var() <= 0.25 + 1e-12
    assert 0.5 <= distribution.expected_max() + 1e-12 <= 1 + 2e-12
    above = distribution.prob_max_above(g)
    assert ((above >= 0) & (above <= 1)).all()
    assert (np.diff(above) <= 1e-12).all()
    if points is None and 1e-9 < gamma < 1e9:
        np.testing.assert_allclose(
            distribution.cdf(np.clip(g, 0.01, 0.99)), 1 - distribution.cdf(1 - np.clip(g, 0.01, 0.99)), atol=1e-9
        )


@given(st.floats(-9, 1).map(lambda e: 10.0**e), st.sampled_from([2, 3]))
@examples(15)
def test_density_integrates_to_the_cdf(gamma, classes):
    distribution = Guesses(gamma, classes)
    nodes, weights = np.polynomial.legendre.leggauss(12)
    edges = distribution.quantile(special.ndtr(np.linspace(-2, 2, 81)))
    half = np.diff(edges) / 2
    mass = (distribution.pdf(edges[:-1, None] + half[:, None] * (nodes + 1)) @ weights) * half
    np.testing.assert_allclose(mass, np.diff(distribution.cdf(edges)), atol=1e-7)


@pytest.mark.parametrize("points", [None, 20])
@pytest.mark.parametrize("classes", [2, 4])
def test_samples(classes, points):
    distribution = Guesses(2.0, classes, points)
    rows = distribution.sample(20_000, seed=9)
    assert rows.shape == (20_000, classes)
    np.testing.assert_allclose(rows.sum(axis=1), 1, atol=1e-12)
    assert rows.min() >= 0
    for c in range(classes):  # no class is special
        agree(rows[:, c], 1 / classes)
        agree((rows[:, c] - 1 / classes) ** 2, distribution.var())
        if points is None:  # counts can tie, and arg-max then favours the first
            agree(rows.argmax(axis=1) == c, 1 / classes)
    agree(rows.max(axis=1), distribution.expected_max(), error=distribution.expected_max_error())
    np.testing.assert_allclose(distribution.sample(7, seed=9), rows[:7], atol=1e-12)
    assert not np.array_equal(distribution.sample(7, seed=10), rows[:7])


def test_global_random_state_is_left_alone():
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    Guesses(0.77, 5, points=9).sample(3)
    Guesses(0.77, 5, points=9).prob_max_above(0.4)
    assert np.array_equal(before, np.random.get_state()[1])  # noqa: NPY002


# -- The object --------------------------------------------------------------------------------------------------------


def test_scalars_arrays_and_shapes():
    for distribution in (Guesses(2.0), Guesses(2.0, 3), Guesses(2.0, points=5), Guesses(0.0), Guesses(math.inf, 3)):
        for method in (
            distribution.cdf,
            distribution.pdf,
            distribution.quantile,
            distribution.prob_max_above,
            distribution.cdf_error,
            distribution.prob_max_above_error,
        ):
            assert type(method(0.3)) is float
            assert method(np.full((2, 3), 0.3)).shape == (2, 3)
            assert method([0.3])[0] == method(0.3)


@pytest.mark.parametrize(
    "distribution", [Guesses(2.0), Guesses(math.inf, 7, 100), Guesses(np.float64(0.5), np.int64(3))]
)
def test_exchange_and_text(distribution):
    assert Guesses.from_dict(json.loads(json.dumps(distribution.to_dict()))) == distribution
    assert eval(repr(distribution), {"Guesses": Guesses, "inf": math.inf}) == distribution
    assert "largest share" in str(distribution)
    assert "largest share" in distribution._repr_html_()
    assert hash(distribution) == hash(Guesses(distribution.gamma, distribution.classes, distribution.points))


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Guesses(-1.0), "drift ratio"),
        (lambda: Guesses(math.nan), "drift ratio"),
        (lambda: Guesses("1"), "drift ratio"),
        (lambda: Guesses(None), "drift ratio"),
        (lambda: Guesses(1.0, 1), "classes"),
        (lambda: Guesses(1.0, 2.5), "classes"),
        (lambda: Guesses(1.0, True), "classes"),
        (lambda: Guesses(1.0, points=0), "points"),
        (lambda: Guesses(1.0, points=1.5), "points"),
        (lambda: Guesses(1.0).prob_max_above(1.1), "fraction t"),
        (lambda: Guesses(1.0).prob_max_above(math.nan), "fraction t"),
        (lambda: Guesses(1.0, 3).prob_max_above([0.5, -0.1]), "fraction t"),
        (lambda: Guesses(1.0).quantile(-0.1), "probability u"),
        (lambda: Guesses(1.0).quantile([0.2, 2]), "probability u"),
        (lambda: Guesses(1.0).cdf(math.nan), "class share g"),
        (lambda: Guesses(1.0).pdf("half"), "class share g"),
        (lambda: Guesses(1.0).sample(0), "samples"),
        (lambda: Guesses(1.0).sample(2.0), "samples"),
        (lambda: Guesses(1.0).sample(2, seed=-1), "seed"),
        (lambda: Guesses(1.0).pmf(), "finite number of points"),
        (lambda: Guesses.from_dict({"classes": 2}), "keys"),
        (lambda: Guesses.from_dict({"gamma": 1, "gama": 2}), "keys"),
    ],
)
def test_bad_input_is_explained(make, text):
    with pytest.raises(InvalidInput, match=text) as caught:
        make()
    assert "Try: " in str(caught.value)


def test_loads_no_torch_and_no_scipy_stats():
    code = (
        "import sys, firstguess.theory.shares.gaussian; "
        "print([m for m in ('torch', 'scipy.stats') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
