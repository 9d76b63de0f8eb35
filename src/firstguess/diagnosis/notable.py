"""Whether a guess is far from an even split."""

from __future__ import annotations

import math

import numpy as np

from firstguess.base.statistics import FloatArray

NOTABLE = 0.3  # of the way from an even split to one class for all: 65 % of two classes, 37 % of ten
_COINS = 5.0  # standard deviations of fair coins that an even split may be off


def excess(fractions: FloatArray) -> FloatArray:
    """How far the largest fraction is on the way from an even split (0) to all points in one class (1)."""
    even = 1 / fractions.shape[-1]
    return np.asarray((fractions.max(axis=-1) - even) / (1 - even))


def is_notable(fractions: FloatArray, points: int) -> bool:
    """Whether there is anything to explain: a largest fraction far from an even split, and no play of chance.

    >>> is_notable(np.array([0.7, 0.3]), 1000), is_notable(np.array([0.7, 0.3]), 50), is_notable(np.eye(2)[0], 50)
    (True, False, True)
    """
    even = 1 / len(fractions)
    chance = _COINS * math.sqrt(even * (1 - even) / max(points, 1))
    return float(excess(fractions)) >= NOTABLE and float(fractions.max()) > even + chance
