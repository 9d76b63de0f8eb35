"""Points whose largest logit several classes share: one of these gets the point, at random; such points are counted.

The one rule of all readings. Sharing a point between classes, or giving it to the first, would make a network that
guesses nothing (a zero head) look even, or all of one class.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_BLOCK = 1 << 22  # entries looked at together


def settle(top: NDArray[np.bool_], stream: np.random.Generator) -> int:
    """Of the classes that have a point's largest logit, leave one: `top` is (classes, points), and written to.

    Takes one number of the stream for each point that has several; returns how many have.

    >>> top = np.array([[True, False, True], [True, True, True]])
    >>> settle(top, np.random.default_rng(0)), top.sum(axis=0).tolist()
    (2, [1, 1, 1])
    """
    shared = top.sum(axis=0)
    several = np.flatnonzero(shared > 1)
    size = max(1, _BLOCK // len(top))
    for start in range(0, len(several), size):
        points = several[start : start + size]
        choice = np.floor(stream.random(len(points)) * shared[points])  # which of them, from 0
        tied = top[:, points]
        top[:, points] = tied & (np.cumsum(tied, axis=0, dtype=np.int32) - 1 == choice)
    return len(several)
