"""Class shares as histograms: bins that suit counts, the density of what was measured and of each distribution."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from firstguess.base.gaussian import Array
from firstguess.theory.shares.base import ClassShares
from firstguess.theory.shares.empirical import EmpiricalGuesses

_MOST_BINS = 40
_ENDS = (0.05, 0.1, 0.2, 0.4, 0.6, 0.8)  # of the axis, where fractions end before 1
_HIGHEST = 6.0  # a bin may be this many times higher than the flat distribution's before its top is cut off


@dataclass(frozen=True)
class Histogram:
    """Bins, the measured density in each, and that of every distribution by its name."""

    edges: Array
    measured: Array | None
    laws: Mapping[str, Array] = field(default_factory=dict)

    @property
    def heights(self) -> dict[str, Array]:
        """All densities by name."""
        return {**self.laws, **({} if self.measured is None else {"measured": self.measured})}

    @property
    def top(self) -> float:
        """Where the axis ends. A distribution that is all in one bin would flatten the others: its top is cut off."""
        peaks = sorted(float(h.max()) for h in self.heights.values())
        second = peaks[-2] if len(peaks) > 1 else peaks[-1]
        flat = 1.0 / float(self.edges[-1] - self.edges[0])
        return 1.06 * min(peaks[-1], max(1.5 * second, _HIGHEST * flat))

    @property
    def cut(self) -> str:
        """The name of what continues above the axis, or nothing."""
        heights = self.heights
        tallest = max(heights, key=lambda name: float(heights[name].max()))
        return tallest if float(heights[tallest].max()) > self.top else ""


def bins(classes: int, points: int | None, wanted: int, *, end: float = 1.0) -> Array:
    """Edges of about `wanted` equal bins from 0 to about `end`, one of which has the even share 1/M in its middle.

    A bin is 1/(M(m + ½)) wide, m bins below the even share's; m ≥ 1 where that makes no more than 40. Fractions of n
    data are counts, so edges lie half a count next to one. For hundreds of classes up to fractions of 1, forty bins.

    >>> bins(10, None, 10, end=0.4).round(3).tolist()
    [0.0, 0.04, 0.08, 0.12, 0.16, 0.2, 0.24, 0.28, 0.32, 0.36, 0.4]
    """
    most = max(0, math.floor(_MOST_BINS / (classes * end) - 0.5))
    below = min(most, max(1, round(wanted / (classes * end) - 0.5)))
    width = max(1 / (classes * (below + 0.5)), end / _MOST_BINS)
    number = max(1, math.ceil(end / width - 1e-9))
    marks = np.arange(number + 1) * width
    if marks[-1] > 1 + 1e-9:  # an odd number of classes: the last bin would be half outside, and joins the one before
        marks = np.append(marks[:-2], 1.0)
    if points is None:
        return np.minimum(marks, 1.0)
    return (np.unique(np.round(np.minimum(marks, 1.0) * (points + 1))) - 0.5) / points


def pooled(laws: Mapping[str, ClassShares], measured: EmpiricalGuesses | None) -> Histogram:
    """The distribution of a class's share, all classes together; for many classes up to where all have ended."""
    every = [*laws.values(), *([] if measured is None else [measured])]
    wanted = _MOST_BINS if measured is None else _enough(measured)
    end = 1.0
    if every[0].classes > 2:
        end = next((t for t in _ENDS if all(law.cdf(t) >= 1 - 1e-3 / law.classes for law in every)), 1.0)
    edges = bins(every[0].classes, every[0].points if measured is None else measured.points, wanted, end=end)
    seen = None if measured is None else _density(measured.cdf(edges[1:-1]), edges)
    return Histogram(edges, seen, {name: _density(law.cdf(edges[1:-1]), edges) for name, law in laws.items()})


def _enough(measured: EmpiricalGuesses) -> int:
    """2·R^⅓ bins for R initializations, as in `EmpiricalGuesses.histogram`."""
    return math.ceil(2 * measured.inits ** (1 / 3))


def of_one_class(laws: Mapping[str, ClassShares], measured: EmpiricalGuesses) -> Histogram:
    """The distribution of the first class's fraction G₀."""
    edges = bins(2, measured.points, _enough(measured))
    seen = np.histogram(measured.fractions[:, 0], edges)[0] / measured.inits / np.diff(edges)
    return Histogram(edges, seen, {name: _density(law.cdf(edges[1:-1]), edges) for name, law in laws.items()})


def of_largest(laws: Mapping[str, ClassShares], measured: EmpiricalGuesses) -> Histogram:
    """The distribution of the largest fraction, from 0 to 1 or to where all distributions have ended.

    Bins are runs of counts, as fine as the measured fractions allow; `prob_max_above` is what a distribution knows of
    max_c G_c.
    """
    points, seen = measured.points, np.round(measured.largest * measured.points)
    ends = [t for t in _ENDS if seen.max() / points < t]
    end = next((t for t in ends if all(law.prob_max_above(t) < 1e-3 for law in laws.values())), 1.0)
    last = math.ceil(end * points)
    step = max(1.0, (seen.max() - seen.min()) / (2 * measured.inits ** (1 / 3)), last / _MOST_BINS)
    edges = (np.round(np.linspace(0, last + 1, math.ceil((last + 1) / step) + 1)) - 0.5) / points
    counts = np.histogram(seen / points, edges)[0] / measured.inits / np.diff(edges)
    inner = np.clip(edges[1:-1], 0.0, 1.0)
    return Histogram(
        edges, counts, {name: _density(1 - law.prob_max_above(inner), edges) for name, law in laws.items()}
    )


def _density(inner: Array, edges: Array) -> Array:
    """The density of bins whose first and last take all beyond them; `inner`: the cdf at the edges between bins."""
    return np.diff(np.concatenate([[0.0], np.asarray(inner), [1.0]])) / np.diff(edges)
