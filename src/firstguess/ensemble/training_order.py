"""The order in which a member sees the data: it depends on (seed, member) only, whatever trains it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

_STREAM = 0x0DA7A  # apart from the streams of weights and of ties


def orders(seed: int, member: int, n: int, batch: int | None) -> Iterator[NDArray[np.int64]]:
    """The points of every mini-batch, without end: epochs are reshuffled, the last batch of one may be smaller.

    Without a batch size, or from n on, every batch is all points in their own order.

    >>> steps = orders(0, member=3, n=5, batch=2)
    >>> epoch = [next(steps) for _ in range(3)]
    >>> [len(part) for part in epoch], sorted(np.concatenate(epoch).tolist())
    ([2, 2, 1], [0, 1, 2, 3, 4])
    """
    if batch is None or batch >= n:
        whole = np.arange(n)
        while True:
            yield whole
    rng = np.random.default_rng((seed, member, _STREAM))
    while True:
        order = rng.permutation(n)
        for first in range(0, n, batch):
            yield order[first : first + batch]
