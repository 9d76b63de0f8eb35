"""Drawing guesses from a Gaussian process: the right law, reproducible draw by draw, honest about repairs."""

from __future__ import annotations

import math

import numpy as np
import pytest

import firstguess as fg
from firstguess.base.errors import NotConverged
from firstguess.theory.shares import argmax_sampling as sampling
from firstguess.theory.shares.argmax_sampling import draw_guesses, factor


def equicorrelated(n: int, c: float) -> np.ndarray:
    return (1.0 - c) * np.eye(n) + c


@pytest.mark.parametrize("classes", [2, 3, 10])
def test_law_of_the_guesses(classes: int) -> None:
    """Equal correlations are the i.i.d. case, whose law is known (theory.md (8)): E max within 5.5 standard errors."""
    n, c, draws = 60, 0.5, 20_000
    drawn = draw_guesses(
        equicorrelated(n, c), classes, draws=draws, seed=int(np.random.default_rng(20261115).integers(2**31))
    )
    largest = drawn.fractions.max(axis=1)
    exact = fg.Guesses(c / (1 - c), classes, n).expected_max()
    assert abs(largest.mean() - exact) <= 5.5 * largest.std() / math.sqrt(draws)
    each = drawn.fractions.mean(axis=0)
    assert np.all(np.abs(each - 1 / classes) <= 5.5 * drawn.fractions.std(axis=0) / math.sqrt(draws))
    assert np.allclose(drawn.fractions.sum(axis=1), 1.0)


def test_variance_of_two_classes() -> None:
    """Var G₀ over a data set: mean over pairs of arcsin(c_ab)/2π."""
    rng = np.random.default_rng(20261115)
    x = rng.normal(size=(50, 20)) + 0.7
    k = x @ x.T / 20
    root = np.sqrt(k.diagonal())
    exact = float(np.mean(np.arcsin(np.clip(k / np.outer(root, root), -1.0, 1.0)))) / (2.0 * math.pi)
    fractions = draw_guesses(k, 2, draws=20_000, seed=int(rng.integers(2**31))).fractions[:, 0]
    squares = (fractions - 0.5) ** 2
    assert abs(squares.mean() - exact) <= 5.5 * squares.std() / math.sqrt(20_000)


def test_agreement() -> None:
    """Points that all go together agree always; a point on its own agrees by chance."""
    k = np.eye(31)
    k[:30, :30] = 1.0 - 1e-9
    k[np.diag_indices(31)] = 1.0
    agreement = draw_guesses(k, 2, draws=4000, seed=int(np.random.default_rng(20261115).integers(2**31))).agreement
    assert np.all(agreement[:30] > 0.999)
    assert abs(agreement[30] - 0.5) <= 5.5 * 0.5 / math.sqrt(4000)


@pytest.mark.parametrize("draws", [1, 3, 700])
def test_agreement_is_the_largest_fraction(draws: int) -> None:
    """Two ways to count the guesses for each draw's favourite: over draws for every point, and over points."""
    drawn = draw_guesses(equicorrelated(37, 0.9), 3, draws=draws)
    assert drawn.agreement.mean() == pytest.approx(drawn.fractions.max(axis=1).mean(), rel=1e-12)
    assert drawn.agreement * draws == pytest.approx(np.round(drawn.agreement * draws), abs=1e-9)


@pytest.mark.parametrize("classes", [2, 7])
def test_draws_depend_on_seed_and_number_only(classes: int) -> None:
    k = equicorrelated(37, 0.3)
    many = draw_guesses(k, classes, draws=3000, seed=5).fractions
    few = draw_guesses(k, classes, draws=700, seed=5).fractions
    # products of another shape may round differently: a tie of two logits to 1e-7 may fall the other way
    assert np.mean(np.any(many[:700] != few, axis=1)) <= 1e-2
    assert np.abs(many[:700] - few).max() <= 1.001 / 37
    assert np.array_equal(many, draw_guesses(k, classes, draws=3000, seed=5).fractions)
    assert not np.array_equal(many, draw_guesses(k, classes, draws=3000, seed=6).fractions)


def test_counting_by_words() -> None:
    for n in (1, 7, 8, 1003, 5000):
        won = np.random.default_rng(20261115).random((9, n)) < 0.9
        assert np.array_equal(sampling._row_sums(won), won.sum(axis=1))


def test_jitter_is_the_least_that_works() -> None:
    x = np.random.default_rng(20261115).normal(size=(40, 5))
    lower, jitter = factor(x @ x.T)  # rank 5
    assert 0.0 < jitter <= 1e-10
    assert np.allclose(lower @ lower.T, x @ x.T, atol=1e-6)
    assert factor(np.eye(3))[1] == 0.0
    with pytest.raises(NotConverged, match="positive"):
        factor(np.diag([1.0, 1.0, -0.5]))
    with pytest.raises(NotConverged, match="finite"):
        factor(np.array([[1.0, np.nan], [np.nan, 1.0]]))


def test_progress_and_one_draw() -> None:
    seen: list[tuple[int, int]] = []
    drawn = draw_guesses(np.eye(4), 2, draws=1, seed=1, progress=lambda i, n: seen.append((i, n)))
    assert drawn.fractions.shape == (1, 2)
    assert seen[-1] == (1, 1)


@pytest.mark.parametrize("classes", [2, 5])
def test_ties_are_broken_at_random_and_counted(classes: int) -> None:
    """A point whose logits are all 0 (its variance is below float32) goes to any class, and with none in particular."""
    draws, n = 4000, 11
    k = np.diag([*[1.0] * (n - 1), 1e-100])
    seed = int(np.random.default_rng(20261115).integers(2**31))
    drawn = draw_guesses(k, classes, draws=draws, seed=seed)
    assert abs(drawn.ties - 1 / n) < 1e-3  # and a few to rounding
    counts = drawn.fractions * n
    assert np.abs(counts - counts.round()).max() < 1e-9
    assert np.allclose(counts.sum(axis=1), n)
    # It agrees with the favourite class as often as any other point on its own.
    agree = draw_guesses(np.diag([1.0] * n), classes, draws=draws, seed=seed).agreement[-1]
    assert abs(drawn.agreement[-1] - agree) <= 5.5 * math.sqrt(0.5 / draws)
    again = draw_guesses(k, classes, draws=draws // 2, seed=seed)
    assert np.array_equal(again.fractions, drawn.fractions[: draws // 2])
