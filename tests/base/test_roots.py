"""Roots of covariances."""

from __future__ import annotations

import numpy as np
import pytest

from firstguess.base.errors import NotConverged
from firstguess.base.gaussian import Array
from firstguess.base.numerics import positive, root


def covariance(least: float) -> Array:
    """20 × 20, with eigenvalues 1 and one `least`."""
    turn = np.linalg.qr(np.random.default_rng(20261116).normal(size=(20, 20)))[0]
    return (turn * np.array([1.0] * 19 + [least])) @ turn.T


@pytest.mark.parametrize(
    ("least", "share", "error"),
    [(0.5, 1.0, 2e-12), (0.0, 1.0, 2e-12), (-1e-9, 1.0, 2e-8), (-1e-6, 1.0, 2e-5), (-1e-6, 1e-9, 2e-6)],
)
def test_roots_are_as_near_as_they_can(least: float, share: float, error: float) -> None:
    """What is raised is as little as makes K positive; nothing where little is left of a signal."""
    k = covariance(least)
    r = root(k, share)
    assert np.abs(r @ r.T - k).max() <= error


def test_what_is_not_positive_is_refused() -> None:
    with pytest.raises(NotConverged, match="clearly negative directions"):
        root(covariance(-0.1))
    assert not positive(covariance(-0.1))
    assert positive(covariance(-1e-6))
