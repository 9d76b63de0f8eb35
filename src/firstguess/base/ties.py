"""Points whose largest logit several classes share: one of these gets the point, at random; such points are counted.

The one rule of all readings. Sharing a point between classes, or giving it to the first, would make a network that
guesses nothing (a zero head) look even, or all of one class.
"""

from __future__ import annotations

from typing import Any

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


def guesses(logits: NDArray[Any], stream: np.random.Generator) -> NDArray[np.intp]:
    """The class, along the last axis, of the largest logit; where several share it, one of them at random.

    >>> guesses(np.array([[1.0, 3.0, 2.0], [0.0, 1.0, 1.0]]), np.random.default_rng(0)).tolist()
    [1, 2]
    """
    best = logits.argmax(axis=-1)
    top = logits == np.take_along_axis(logits, best[..., None], axis=-1)  # False throughout where the largest is NaN
    tied = np.count_nonzero(top, axis=-1) > 1
    if tied.any():
        of_tied = np.ascontiguousarray(top[tied].T)
        settle(of_tied, stream)
        best[tied] = of_tied.argmax(axis=0)
    return best
