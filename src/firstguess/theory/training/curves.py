"""What training does over time, predicted or seen: shares, accuracies and losses of many networks, step by step."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from firstguess.base.errors import InvalidInput
from firstguess.base.gaussian import Array
from firstguess.base.record import Record
from firstguess.base.text import spaced

LOW, HIGH = 0.05, 0.95  # of networks, between `low` and `high`
_FIRST, _A_DECADE = 8, 10
FAVOURED, OTHERS = "favoured", "others"


def looked_at(steps: int) -> NDArray[np.int64]:
    """Steps 0–7, then ten per decade, and the last.

    >>> looked_at(100).tolist()
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 13, 16, 20, 25, 32, 40, 50, 63, 79, 100]
    """
    first = min(_FIRST, steps + 1)
    decades = math.log10(max(steps, 1))
    later = np.rint(10.0 ** np.arange(0.0, decades, 1.0 / _A_DECADE))
    return np.unique(np.concatenate([np.arange(first), later, [steps]])).astype(np.int64)


@dataclass(frozen=True, eq=False)
class Curve:
    """One number of every network at every step that was looked at."""

    steps: NDArray[np.int64]
    draws: Array  # (networks, steps); NaN where there is none (no such point, or training has diverged)

    @property
    def mean(self) -> Array:
        """The mean over networks."""
        return _over(self.draws, np.nanmean)

    @property
    def low(self) -> Array:
        """5 % of networks are below."""
        return _over(self.draws, lambda x, axis: np.nanquantile(x, LOW, axis=axis))

    @property
    def high(self) -> Array:
        """5 % of networks are above."""
        return _over(self.draws, lambda x, axis: np.nanquantile(x, HIGH, axis=axis))

    @property
    def se(self) -> Array:
        """The standard error of the mean; NaN for one network."""
        count = np.isfinite(self.draws).sum(axis=0)
        wide = np.full(len(self.steps), math.nan)
        some = count > 1
        if some.any():
            with np.errstate(over="ignore", invalid="ignore"):  # losses may be on their way to infinity
                wide[some] = np.nanstd(self.draws[:, some], axis=0, ddof=1) / np.sqrt(count[some])
        return wide

    def to_dict(self) -> dict[str, list[float]]:
        """Plain data: mean, band and standard error."""
        return {name: getattr(self, name).tolist() for name in ("mean", "low", "high", "se")}


def _over(draws: Array, what: Any) -> Array:
    """A statistic over networks; NaN at steps that none has."""
    found = np.full(draws.shape[1], math.nan)
    some = np.isfinite(draws).any(axis=0)
    if some.any():
        with np.errstate(over="ignore", invalid="ignore"):
            found[some] = what(np.where(np.isfinite(draws[:, some]), draws[:, some], math.nan), axis=0)
    return found


@dataclass(frozen=True, eq=False)
class Accuracy(Curve):
    """The accuracy over all points; `accuracy[c]` on those of class c, `accuracy["favoured"]` on those of the class
    that a network favours at the start, `accuracy["others"]` on the rest."""

    groups: Mapping[str | int, Array] = field(default_factory=dict[str | int, Array])

    def __getitem__(self, which: str | int) -> Curve:
        if which not in self.groups:
            hint = "accuracy['favoured']"
            raise InvalidInput("a class, 'favoured' or 'others'", got=which, where="accuracy[…]", hint=hint)
        return Curve(self.steps, self.groups[which])

    def to_dict(self) -> dict[str, Any]:
        """All points, and each group."""
        return {"all": super().to_dict()} | {str(which): self[which].to_dict() for which in self.groups}


@dataclass(frozen=True, eq=False)
class Curves(Record):
    """Curves over one set of points."""

    largest: Curve  # the share of the class that gets most
    accuracy: Accuracy
    loss: Curve


class CurveRecorder:
    """Fills curves from logits, step by step. The favourite is that of the training points at the first step."""

    def __init__(self, steps: NDArray[np.int64], labels: NDArray[np.int64], classes: int, networks: int) -> None:
        self.steps, self.labels, self.classes = steps, labels, classes
        self._largest, self._loss, self._all = (np.full((networks, len(steps)), math.nan) for _ in range(3))
        self._own = np.full((classes, networks, len(steps)), math.nan)
        self._sizes = np.bincount(labels, minlength=classes)

    def add(self, index: int, shares: Array, right: Array, loss: Array) -> None:
        """Add one step: shares (networks, classes), right points of each class, every network's loss."""
        fine = np.isfinite(loss)
        self._largest[fine, index] = shares.max(axis=1)[fine]
        self._loss[:, index] = np.where(fine, loss, math.nan)
        self._all[fine, index] = right.sum(axis=1)[fine] / len(self.labels)
        for c in np.flatnonzero(self._sizes):
            self._own[c, fine, index] = right[fine, c] / self._sizes[c]

    def curves(self, favourites: NDArray[np.int64]) -> Curves:
        """The curves, with each network's favourite class at the start."""
        each = np.arange(len(favourites))
        favoured = self._own[favourites, each]
        sizes = self._sizes.astype(float)
        rest = sizes.sum() - sizes[favourites]
        counts = (
            np.nansum(self._own * sizes[:, None, None], axis=0) - np.nan_to_num(favoured) * sizes[favourites][:, None]
        )
        others = np.where(np.isnan(self._all), math.nan, counts / np.where(rest > 0, rest, math.nan)[:, None])
        groups: dict[str | int, Array] = {FAVOURED: favoured, OTHERS: others}
        groups |= {int(c): self._own[c] for c in np.flatnonzero(self._sizes)}
        return Curves(
            Curve(self.steps, self._largest), Accuracy(self.steps, self._all, groups), Curve(self.steps, self._loss)
        )


@dataclass(frozen=True, eq=False)
class Absorption:
    """Steps until the largest share falls to `level` for the first time, of every network; inf: not within these."""

    level: float
    draws: Array

    @property
    def median(self) -> float:
        return self.quantile(0.5)

    def quantile(self, level: float) -> float:
        """The number of steps within which this share of the networks is done; inf where they are not."""
        return float(np.quantile(self.draws, level, method="inverted_cdf"))

    def words(self, last: int) -> str:
        """The median and where 90 % of networks are; `last` is the last step that was looked at."""

        said = partial(spaced, beyond=f"more than {spaced(last)}")
        low, high = self.quantile(LOW), self.quantile(HIGH)
        if high == 0.0:
            return "0: already so at the start"
        if self.median == 0.0:  # a median over networks with nothing to absorb says nothing of the others
            late = self.draws[self.draws > 0.0]
            begun = f"{100 * (1 - len(late) / len(self.draws)):.0f} % of networks start below it"
            middle = float(np.quantile(late, 0.5, method="inverted_cdf"))
            return f"{begun}; the others take {said(middle)} in the median"
        return f"{said(self.median)} in the median, 90 % of networks {said(low)} to {said(high)}"

    @property
    def label(self) -> str:
        """What the steps are counted to."""
        return f"steps until the largest share is {self.level:.3g} (absorbed)"

    @property
    def within(self) -> float:
        """The share of networks that get there."""
        return float(np.isfinite(self.draws).mean())

    @property
    def mean(self) -> float:
        """inf if a network does not get there."""
        return float(self.draws.mean())

    def to_dict(self) -> dict[str, float]:
        """Plain data."""
        return {
            "level": self.level,
            "median": self.median,
            "low": self.quantile(LOW),
            "high": self.quantile(HIGH),
            "within": self.within,
        }


def absorption(largest: Curve, level: float) -> Absorption:
    """The absorption that curves show: linear between the steps that were looked at."""
    x, t = largest.draws, largest.steps.astype(float)
    found = np.full(len(x), math.inf)
    for i, row in enumerate(x):
        below = np.flatnonzero(row <= level)
        if not len(below):
            continue
        k = int(below[0])
        if k == 0:
            found[i] = 0.0
            continue
        part = (row[k - 1] - level) / (row[k - 1] - row[k])
        found[i] = t[k - 1] + part * (t[k] - t[k - 1])
    return Absorption(level, found)


class Followed:
    """What networks did over training, predicted or seen: the words that both have."""

    curves: Curves
    level: float

    @property
    def steps(self) -> NDArray[np.int64]:
        """The steps that were looked at."""
        return self.curves.largest.steps

    @property
    def largest(self) -> Curve:
        """The share of the class that gets most."""
        return self.curves.largest

    @property
    def accuracy(self) -> Accuracy:
        """The accuracy over all training points; by group with [class], ["favoured"], ["others"]."""
        return self.curves.accuracy

    @property
    def loss(self) -> Curve:
        """Averaged over the training points."""
        return self.curves.loss

    @property
    def absorption(self) -> Absorption:
        """Steps until the largest share falls to `level`."""
        return self.absorbed(self.level)

    def absorbed(self, level: float) -> Absorption:
        """The same for another level."""
        return absorption(self.curves.largest, level)
