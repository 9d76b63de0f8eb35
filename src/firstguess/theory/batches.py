"""Mini-batches: epochs of the data in a random order, drawn anew each time; their last batch may be smaller."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class Batches:
    """Rows of the next batch, for ever; without a size all of them."""

    def __init__(self, n: int, size: int | None, rng: np.random.Generator) -> None:
        self._n, self._size, self._rng = n, size, rng
        self._queue: list[NDArray[np.int64]] = []

    def next(self) -> NDArray[np.int64] | slice:
        if self._size is None:
            return slice(0, self._n)
        if not self._queue:
            order = self._rng.permutation(self._n)
            self._queue = [order[i : i + self._size] for i in range(0, self._n, self._size)]
        return self._queue.pop(0)
