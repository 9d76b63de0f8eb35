"""The k-th largest fraction and the entropy: by an independent quadrature, by sampling, and where they are known."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import integrate, special

import firstguess as fg
from firstguess.theory.shares.gaussian import Guesses, entropies, expected_kth, kth_values
from firstguess.theory.shares.gaussian_argmax import fractions

GAMMAS = [1e-6, 0.05, 1 / (math.pi - 1), 4.0, 60.0]


def cube(gamma: float, nodes: int = 48) -> tuple[np.ndarray, np.ndarray]:
    """Fractions of three classes on a Gauss–Hermite grid of their three centers, and its weights."""
    z, w = np.polynomial.hermite_e.hermegauss(nodes)
    w = w / w.sum()
    centers = np.stack([m.ravel() for m in np.meshgrid(z, z, z, indexing="ij")], axis=1)
    weights = np.einsum("i,j,k->ijk", w, w, w).ravel()
    return fractions(centers, gamma), weights


@pytest.mark.parametrize("gamma", [0.05, 0.467, 2.0])
def test_entropy_of_three_classes_by_another_quadrature(gamma: float) -> None:
    """Within 20 of its standard errors (of 8 replicates: Student's t with 7 degrees, 2e-7) and 2e-6 of the grid."""
    share, weights = cube(gamma)
    found = Guesses(gamma, 3).entropy()
    assert 0.0 < found.error < 1e-4
    assert abs(found.mean - float(entropies(share) @ weights)) <= 20.0 * found.error + 2e-6


@pytest.mark.parametrize("gamma", GAMMAS)
def test_two_classes_by_scipy(gamma: float) -> None:
    def of(f: object) -> float:
        root = math.sqrt(gamma)
        value = integrate.quad(
            lambda z: f(float(special.ndtr(root * z))) * math.exp(-0.5 * z * z),  # type: ignore[operator]
            0.0, 12.0, epsabs=1e-13, epsrel=1e-12, limit=400, points=[1.0 / root] if 1.0 / root < 12.0 else None,
        )[0]  # fmt: skip
        return 2.0 * value / math.sqrt(2.0 * math.pi)

    distribution = Guesses(gamma)
    assert distribution.kth_largest(1).mean == pytest.approx(of(lambda g: g), abs=1e-11)
    assert distribution.kth_largest(2).mean == pytest.approx(of(lambda g: 1.0 - g), abs=1e-11)
    assert distribution.entropy().mean == pytest.approx(
        of(lambda g: special.entr(g) + special.entr(1.0 - g)), abs=1e-11
    )
    assert (distribution.kth_largest(1).error, distribution.entropy().error) == (0.0, 0.0)
    assert distribution.kth_largest(1).cdf(0.9) == pytest.approx(1.0 - distribution.prob_max_above(0.9), abs=1e-4)


def test_one_is_half_a_nat() -> None:
    """γ = 1: G is uniform, and ∫ −2g ln g dg = ½."""
    assert Guesses(1.0).entropy().mean == pytest.approx(0.5, abs=1e-13)


@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize("classes", [2, 3, 10, 37])
def test_ranks_sum_to_one_and_begin_with_the_largest(gamma: float, classes: int) -> None:
    means = [expected_kth(classes, k, gamma) for k in range(1, classes + 1)]
    assert sum(means) == pytest.approx(1.0, abs=1e-11)
    assert means[0] == pytest.approx(Guesses(gamma, classes).expected_max(), abs=1e-11)
    assert all(a >= b - 1e-12 for a, b in itertools.pairwise(means))


@pytest.mark.parametrize("points", [None, 50])
@pytest.mark.parametrize("classes", [2, 5, 100])
@pytest.mark.parametrize("gamma", [0.0, 0.3, 5.0])
def test_against_samples(gamma: float, classes: int, points: int | None) -> None:
    """Other seeds, 5.5 standard errors of both."""
    distribution = Guesses(gamma, classes, points)
    rows = distribution.sample(20_000 if classes < 100 else 4000, seed=77)
    for found, values in (
        (distribution.kth_largest(1), kth_values(rows, 1)),
        (distribution.kth_largest(2), kth_values(rows, 2)),
        (distribution.kth_largest(classes), kth_values(rows, classes)),
        (distribution.entropy(), entropies(rows)),
    ):
        error = math.hypot(float(values.std(ddof=1)) / math.sqrt(len(values)), found.error)
        assert abs(float(values.mean()) - found.mean) <= 5.5 * error + 1e-9
        # Kolmogorov–Smirnov between two samples: 3.1·√(1/n + 1/m) has probability 9e-9
        at = np.quantile(values, [0.1, 0.5, 0.9])
        room = 3.1 * math.sqrt(1 / len(values) + 1 / len(found.values))
        empirical = np.searchsorted(np.sort(values), at + 1e-12, side="right") / len(values)
        assert np.all(np.abs(found.cdf(at) - empirical) <= room)


def test_sorting_by_hand() -> None:
    rows = np.array([[0.1, 0.6, 0.3], [0.0, 0.0, 1.0], [0.5, 0.25, 0.25]])
    for k in (1, 2, 3):
        np.testing.assert_array_equal(kth_values(rows, k), [sorted(row, reverse=True)[k - 1] for row in rows])
    by_hand = [-sum(g * math.log(g) for g in row if g > 0.0) for row in rows]
    np.testing.assert_allclose(entropies(rows), by_hand, rtol=1e-14)


def test_the_ends() -> None:
    for classes in (2, 7):
        even, all_in_one = Guesses(0.0, classes), Guesses(math.inf, classes)
        assert even.kth_largest(classes).mean == pytest.approx(1 / classes)
        assert even.entropy().mean == pytest.approx(math.log(classes))
        assert [all_in_one.kth_largest(k).mean for k in (1, 2)] == [1.0, 0.0]
        assert all_in_one.entropy().mean == 0.0
        assert Guesses(1e-20, classes).entropy().mean == pytest.approx(math.log(classes), abs=1e-12)


def test_finite_counts_of_two_classes_are_exact() -> None:
    """n = 2, γ = 0: counts 0, 1, 2 with ¼, ½, ¼: E max = ¾, E H = ½ ln 2."""
    distribution = Guesses(0.0, 2, 2)
    assert distribution.kth_largest(1).mean == pytest.approx(0.75)
    assert distribution.kth_largest(2).mean == pytest.approx(0.25)
    assert distribution.entropy().mean == pytest.approx(0.5 * math.log(2.0))
    assert distribution.entropy().error == 0.0
    assert distribution.entropy().cdf([0.0, 0.7]).tolist() == [0.5, 1.0]
    many = Guesses(1.0, 2, 10**7).entropy()
    assert many.mean == pytest.approx(0.5, abs=5.5 * many.error + 1e-6)


def test_measured_ones() -> None:
    rows = Guesses(1.0, 4, 200).sample(500, seed=3)
    seen = fg.EmpiricalGuesses(rows, 200)
    for k in (1, 4):
        found = seen.kth_largest(k)
        assert found.mean == pytest.approx(float(np.sort(rows, axis=1)[:, 4 - k].mean()))
        assert abs(found.mean - Guesses(1.0, 4, 200).kth_largest(k).mean) <= 5.5 * found.error
    entropy = seen.entropy()
    assert entropy.error == pytest.approx(entropy.std() / math.sqrt(500))
    assert float(entropy) == entropy.mean
    assert entropy.quantile(0.0) == entropy.values[0]
    assert "on average" in str(entropy)
    assert math.isnan(fg.EmpiricalGuesses(rows[:1], 200).entropy().error)


@pytest.mark.parametrize("k", [0, 4, 1.5, "1", True, None])
def test_bad_ranks(k: object) -> None:
    for distribution in (Guesses(1.0, 3), fg.EmpiricalGuesses(np.full((2, 3), 1 / 3), 9)):
        with pytest.raises(fg.InvalidInput, match="rank k"):
            distribution.kth_largest(k)  # type: ignore[arg-type]
