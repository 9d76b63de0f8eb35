"""The race of theory.md (8) in plain NumPy, sharing no code with firstguess, and when its mean agrees with a number."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

SIGMAS = 5.0


def phi(x: Any) -> Any:
    return np.exp(-0.5 * x * x) / np.sqrt(2 * np.pi)


def agree(values: Any, expected: float, error: float = 0.0) -> None:
    """The mean of i.i.d. values is `expected` within 5 standard errors."""
    values = np.asarray(values, dtype=float)
    assert len(values) > 100
    assert abs(values.mean() - expected) <= SIGMAS * math.hypot(values.std() / math.sqrt(len(values)), error) + 1e-12


def race(gamma: float, classes: int, points: int, inits: int, seed: int) -> tuple[Any, Any]:
    """Plain simulation of (8), nothing shared with the library: (inits, points) arg-maxes and the leading class."""
    rng = np.random.default_rng(seed)
    z = rng.standard_normal((inits, 1, classes))
    y = rng.standard_normal((inits, points, classes))
    return (math.sqrt(gamma) * z + y).argmax(axis=2), z[:, 0].argmax(axis=1)
