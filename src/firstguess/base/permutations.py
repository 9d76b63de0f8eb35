"""Whether two samples are of one law: by permutations, over many columns at once."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from firstguess.base.statistics import FloatArray

_BLOCK = 1 << 22  # numbers of a block of deals: 32 MB


def dealt_anew(
    tables: Sequence[tuple[FloatArray, FloatArray]], *, deals: int = 9999, seed: int = 0
) -> tuple[list[float], float]:
    """p-values of every table, and of all together: how often rows that are dealt anew to the two samples differ as
    much in some column.

    A table is two samples of some columns, (rows, columns) each; row i of all tables is one individual, NaN where it
    has no value. In a column the difference of means is taken in standard errors of a common law: σ of all rows times
    √(1/R + 1/S). A permutation test of its largest size is exact for any law, however skewed, and for columns that go
    together.

    >>> one, other = np.arange(6.0)[:, None], np.arange(6.0)[:, None] + 10
    >>> alone, together = dealt_anew([(one, other)])
    >>> abs(together - 2 / 924) < 0.002  # two of all deals differ as much as this one
    True
    """
    one, other = (np.concatenate(part, axis=1) for part in zip(*tables, strict=True))
    both = np.concatenate([one, other])
    fine = np.isfinite(both)
    few = np.minimum(fine[: len(one)].sum(axis=0), fine[len(one) :].sum(axis=0)) == 0
    count = np.maximum(fine.sum(axis=0), 1)
    x = np.where(fine, both, 0.0)
    x = np.where(fine, x - x.sum(axis=0) / count, 0.0)
    scale = np.sqrt(np.square(x).sum(axis=0) / count)
    flat = (scale <= 1e-12) | few  # nothing varies, or one sample has nobody here
    x = x / np.where(flat, 1.0, scale)
    x[:, flat] = 0.0
    edges = np.cumsum([0, *(table[0].shape[1] for table in tables)])
    seen = _largest(x, fine, np.arange(len(both))[None] < len(one), edges)[0]
    rng = np.random.default_rng(seed)
    above, all_above, rows = np.zeros(len(tables), np.int64), 0, max(1, _BLOCK // len(both))
    for start in range(0, deals, rows):
        size = min(rows, deals - start)
        dealt = rng.random((size, len(both))).argsort(axis=1) < len(one)
        found = _largest(x, fine, dealt, edges)
        above += (found >= seen - 1e-9).sum(axis=0)
        all_above += int((found.max(axis=1) >= seen.max() - 1e-9).sum())
    return ((above + 1) / (deals + 1)).tolist(), (all_above + 1) / (deals + 1)


def _largest(
    x: FloatArray, fine: npt.NDArray[np.bool_], first: npt.NDArray[np.bool_], edges: npt.NDArray[np.int64]
) -> FloatArray:
    """Of every deal (rows of `first`), the largest difference of each table."""
    chosen, there = first.astype(np.float64), fine.astype(np.float64)
    whole = bool(fine.all())
    a = chosen.sum(axis=1, keepdims=True) if whole else chosen @ there
    b = there.sum(axis=0) - a
    sums = chosen @ x
    with np.errstate(divide="ignore", invalid="ignore"):
        z = (sums / a - (x.sum(axis=0) - sums) / b) / np.sqrt(1.0 / a + 1.0 / b)
    z = np.abs(np.where((a > 0) & (b > 0), z, 0.0))
    return np.stack([z[:, i:j].max(axis=1) for i, j in pairwise(edges.tolist())], axis=1)
