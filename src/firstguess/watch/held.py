"""The points that a watch looks at, a few of the training's own, chosen once: loader and randomness stay so."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sized
from itertools import islice
from typing import Any, cast

import numpy as np

from firstguess.data import Batch, collect, load
from firstguess.data.dataset import whole_number
from firstguess.modules.guard import PrivateRandomness

_LEAST, _MOST = 64, 256  # points, unless told
_READ = 1_000_000  # indices of a sampler from which points are drawn


def held(data: object, points: int | None, seed: int) -> list[Batch]:
    """At most `points` points in batches of the loader's size; by default two batches' worth, from 64 to 256.

    Two batches take about as long as two thirds of a step forward and back: a look every 50 steps is 1.3 % of them.

    Of a `DataLoader` they are drawn from what its sampler gives (data sorted by class would else give one class); what
    cannot be indexed is read from its beginning.
    """
    from torch.utils.data import DataLoader

    if isinstance(data, str):
        data = load(data)
    loader = cast("DataLoader[Any]", data) if isinstance(data, DataLoader) else None
    size = None if loader is None else _batch_size(loader)
    if points is None:
        points = _MOST if size is None else min(_MOST, max(_LEAST, 2 * size))
    points = whole_number(points, "points")
    rows = None if loader is None or size is None else _rows(loader, points, seed)
    if loader is None or rows is None:
        return collect(data, points, seed=seed)
    from torch.utils.data import Subset

    dataset: Any = Subset(cast("Any", loader.dataset), rows)
    return collect(DataLoader(dataset, batch_size=size, collate_fn=loader.collate_fn), points, seed=seed)


def _batch_size(loader: Any) -> int | None:
    """None: the dataset's items are batches themselves, or it has no end that is known."""
    if not (hasattr(loader.dataset, "__getitem__") and isinstance(loader.dataset, Sized)):
        return None
    size = loader.batch_size or getattr(loader.batch_sampler, "batch_size", None)
    if isinstance(size, int):
        return size
    return None if loader.batch_sampler is None else _LEAST // 2


def _rows(loader: Any, points: int, seed: int) -> list[Any] | None:
    """Indices that the loader's own sampler gives, a few of them drawn at random; None where it cannot be asked.

    A copy is asked: samplers count epochs, and have generators.
    """
    dataset = loader.dataset
    try:
        with PrivateRandomness(seed):
            sampler: Iterable[Any] = copy.deepcopy(loader.batch_sampler, {id(dataset): dataset})
            every = (index for batch in sampler for index in cast("Iterable[Any]", batch))
            found = list(islice(every, _READ))
    except Exception:  # a user's sampler that cannot be copied, or not be asked before training
        return None
    if not found:
        return None
    chosen = np.random.default_rng(seed).permutation(len(found))[:points]
    return [found[int(i)] for i in np.sort(chosen)]
