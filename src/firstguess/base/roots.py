"""Roots of covariances that are positive up to rounding or sampling."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

import numpy as np

from firstguess.base.errors import NotConverged
from firstguess.base.gaussian import Array

Factor = TypeVar("Factor")


def least_jitter(attempt: Callable[[float], Factor | None], ladder: Iterable[float]) -> tuple[Factor, float] | None:
    """The factor of a matrix whose diagonal is raised by the first step of a ladder for which there is one.

    `attempt` raises the diagonal by a share of its mean and factorizes, in NumPy or torch; None: not positive.
    """
    for jitter in ladder:
        found = attempt(jitter)
        if found is not None:
            return found, jitter
    return None


def lower_factor(k: Array, jitter: float) -> Array | None:
    """The lower triangular factor in float64 of a covariance whose diagonal is raised by a share of its mean."""
    from scipy.linalg import cholesky

    work = np.array(k, dtype=np.float64, order="F")  # overwritten: no third matrix
    work[np.diag_indices_from(work)] += jitter * float(k.diagonal().mean(dtype=np.float64))
    try:
        return np.asarray(cholesky(work, lower=True, overwrite_a=True, check_finite=False), dtype=np.float64)
    except np.linalg.LinAlgError:
        return None


def root(k: Array, share: float = 1.0, *, negative: float = 1e-3) -> Array:
    """R with R Rᵀ = K, up to rounding and 1e-5.

    A raised diagonal would be a signal to a BatchNorm that leaves only a small `share` of the variance. Directions that
    are `negative` by up to this share of the mean diagonal are left out: a covariance by a formula that is not exact
    has some.
    """
    mean = float(k.diagonal().mean())
    steps = [raised for raised in (1e-12, 1e-8, 1e-5) if raised <= max(1e-12, 1e-3 * share)]
    if (made := least_jitter(lambda jitter: lower_factor(k, jitter), steps)) is not None:
        return made[0]
    found = np.linalg.eigh(k.astype(np.float64))
    values, vectors = np.asarray(found[0], dtype=np.float64), np.asarray(found[1], dtype=np.float64)
    if values[0] < -negative * mean:
        raise NotConverged(
            "a covariance that is positive up to rounding",
            got="one with clearly negative directions",
            hint="float64 instead of float32",
        )
    vectors *= np.sqrt(np.maximum(values, 0.0))
    return vectors


def positive(k: Array) -> bool:
    """Up to the rounding of float32; `k` is overwritten."""
    from scipy.linalg import cholesky

    k[np.diag_indices_from(k)] += 1e-5 * float(k.diagonal().mean())
    try:
        cholesky(k, overwrite_a=True, check_finite=False)
    except np.linalg.LinAlgError:
        return False
    return True
