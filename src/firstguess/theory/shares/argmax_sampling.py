"""Drawing guesses from a Gaussian process: logits of many initializations over one data set, arg-max, counts."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from firstguess.base.errors import NotConverged
from firstguess.base.gaussian import Array
from firstguess.base.numerics import least_jitter, lower_factor
from firstguess.base.statistics import settle

_COLUMNS = 2560  # logit vectors drawn at once: products large enough that BLAS threads seldom wait for each other
_ROWS = 256
_LADDER = (0.0, *itertools.accumulate([1e-13] + [10.0] * 9, operator.mul))  # shares of the diagonal: up to 1e-4
_TIES = 0x7135  # keeps the streams that break ties apart from those that draw logits


@dataclass(frozen=True)
class GuessDraws:
    """Guess fractions of every draw, and how often each point goes along with its draw's favourite class."""

    fractions: Array  # (draws, classes)
    agreement: Array  # (n,)
    ties: float  # share of all guesses whose largest logit was shared, broken at random
    jitter: float  # what was added to the diagonal, relative to its mean


def factor(covariance: Array) -> tuple[Array, float]:
    """A lower triangular factor in float64; the diagonal is raised by the least power of ten that makes it positive."""
    if not np.isfinite(covariance).all():
        raise NotConverged("a finite covariance", got="NaN or Inf", hint="check the data and the variances")
    found = least_jitter(lambda jitter: lower_factor(covariance, jitter), _LADDER)
    if found is not None:
        return found
    expected = "a covariance that is positive up to rounding"
    hint = "float64 instead of float32, or fewer duplicate points"
    raise NotConverged(expected, got="one with clearly negative directions", hint=hint)


def draw_guesses(
    covariance: Array,
    classes: int,
    *,
    draws: int = 10_000,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
    known: tuple[Array, float] | None = None,
) -> GuessDraws:
    """Draw `draws` initializations, each `classes` independent vectors N(0, covariance), and count their arg-maxima.

    Products in float32 (they only have to decide which logit is largest), the factor in float64. Draw i depends on the
    seed and the number of classes only, not on how many are drawn or on how many cores.
    `known`: the covariance's factor and its jitter, where they are at hand; overwritten.
    """
    lower, jitter = factor(covariance) if known is None else known
    n = lower.shape[0]
    # The power of two that brings logits near 1: float32 ends at 1e-38 and 1e38, a deep network's logits do not. Which
    # is largest does not depend on it, and multiplying by a power of two rounds nothing.
    lower *= math.ldexp(1.0, max(-1000, min(1000, -math.frexp(float(np.abs(lower).max()))[1])))
    upper = np.ascontiguousarray(lower.T, dtype=np.float32)
    del lower
    block = max(1, _COLUMNS // classes)  # draws at once
    starts = list(range(0, draws, block))
    fractions = np.empty((draws, classes))
    agreement = np.zeros(n)
    ties = [0] * len(starts)

    def normals(index: int) -> np.ndarray:
        return np.random.default_rng((seed, index)).standard_normal((classes * block, n), dtype=np.float32)

    def count(index: int, logits: np.ndarray) -> None:
        start, used = starts[index], min(block, draws - starts[index])
        shaped = logits.reshape(classes, used, n)
        best = shaped[0].copy()
        for c in range(1, classes):
            np.maximum(best, shaped[c], out=best)
        won = np.empty((classes, used, n), dtype=bool)
        np.equal(shaped, best, out=won)
        counts = _row_sums(won.reshape(classes * used, n)).reshape(classes, used)
        for i in np.flatnonzero(counts.sum(axis=0) > n):
            ties[index] += settle(won[:, i], np.random.default_rng((seed, start + int(i), _TIES)))
            counts[:, i] = won[:, i].sum(axis=1)
        fractions[start : start + used] = counts.T / n
        favourite = won[counts.argmax(axis=0), np.arange(used)]  # (used, n)
        agreement[:] += np.add.reduce(favourite, axis=0, dtype=np.int32)

    # Three hands: normals of the next block are drawn and the last one is counted while this one is multiplied.
    with ThreadPoolExecutor(1) as drawing, ThreadPoolExecutor(1) as counting:
        ahead, waiting = drawing.submit(normals, 0), None
        for index, start in enumerate(starts):
            z = ahead.result()
            if index + 1 < len(starts):
                ahead = drawing.submit(normals, index + 1)
            elif start + block > draws:  # the last draws are those of a full block
                z = z.reshape(classes, block, n)[:, : draws - start].reshape(-1, n)
            logits = np.empty_like(z)
            for column in range(0, n, _ROWS):  # upper triangular: its later rows are zero
                stop = min(column + _ROWS, n)
                np.matmul(z[:, :stop], upper[:stop, column:stop], out=logits[:, column:stop])
            if waiting is not None:
                waiting.result()
            waiting = counting.submit(count, index, logits)
            if progress is not None:
                progress(min(start + block, draws), draws)
        if waiting is not None:
            waiting.result()
    return GuessDraws(fractions, agreement / draws, sum(ties) / (draws * n), jitter)


def _row_sums(won: np.ndarray) -> np.ndarray:
    """How many are true in every row: eight at a time, as the bytes of a 64-bit word, which overflow at 256 of them."""
    rows, n = won.shape
    whole = n // 8 * 8
    total = np.add.reduce(won[:, whole:], axis=1, dtype=np.int64)
    for start in range(0, whole, 8 * 255):
        part = np.ascontiguousarray(won[:, start : min(start + 8 * 255, whole)])
        words = np.add.reduce(part.view(np.uint64), axis=1)
        total += words.view(np.uint8).reshape(rows, 8).sum(axis=1, dtype=np.int64)
    return total
