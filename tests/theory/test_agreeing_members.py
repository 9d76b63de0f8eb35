"""Intervals where all initializations agree: nothing varies, yet nothing is certain."""

from __future__ import annotations

import math

import numpy as np
import pytest

from firstguess.theory.shares.empirical import EmpiricalGuesses


def agreeing(largest: float, inits: int, classes: int) -> EmpiricalGuesses:
    """All in one class, but for what is left to another; the favourite changes from member to member."""
    fractions = np.zeros((inits, classes))
    rows = np.arange(inits)
    fractions[rows, rows % classes] = largest
    fractions[rows, (rows + 1) % classes] = 1.0 - largest
    return EmpiricalGuesses(fractions, points=100)


@pytest.mark.parametrize("inits", [2, 20, 100])
@pytest.mark.parametrize(("largest", "classes"), [(1.0, 2), (1.0, 10), (0.97, 10)])
@pytest.mark.parametrize("level", [0.9, 0.95])
def test_coverage_is_exact(inits: int, largest: float, classes: int, level: float) -> None:
    """A distribution with a share p of members elsewhere, at most: the truth is missed only with chance (1 − p)^R, the
    chance to see none of them, wherever that is at most half of 1 − level; and the interval is no wider than needed."""
    low, high = agreeing(largest, inits, classes).interval("expected_max", level=level)
    assert low < largest <= high
    for share in np.linspace(0.001, 0.999, 999):
        missed = (1.0 - share) ** inits
        for elsewhere in (1.0 / classes, 1.0):
            truth = (1.0 - share) * largest + share * elsewhere
            if not low - 1e-12 <= truth <= high + 1e-12:
                assert missed <= 0.5 * (1.0 - level) * (1.0 + 1e-9)
    bound = (largest - low) / (largest - 1.0 / classes)
    assert (1.0 - bound) ** inits == pytest.approx(0.5 * (1.0 - level), rel=1e-9)


@pytest.mark.parametrize("classes", [2, 10])
def test_a_spread_of_zero_is_not_certain(classes: int) -> None:
    """Members that are all alike: a share of others makes a standard deviation, by its own formula."""
    fractions = np.tile(np.eye(classes)[0], (20, 1))
    low, high = EmpiricalGuesses(fractions, points=100).interval("std")
    assert low == 0.0
    share = 1.0 - 0.025 ** (1.0 / 20)
    distribution = np.array([np.eye(classes)[0], np.eye(classes)[1]])
    weights = np.array([1.0 - share, share])
    mean = weights @ distribution
    assert high == pytest.approx(math.sqrt(float((weights @ (distribution - mean) ** 2).mean())), rel=1e-9)


def test_one_initialization_has_no_interval() -> None:
    one = agreeing(1.0, 1, 3)
    assert all(math.isnan(end) for end in one.interval("expected_max"))
