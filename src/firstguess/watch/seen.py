"""What a watch has seen, in numbers: one network's guesses over its training, with one sentence about them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from firstguess.base.gaussian import Array
from firstguess.base.text import spaced
from firstguess.theory.training.curves import Absorption, Accuracy, Curve, CurveRecorder, Curves, absorption
from firstguess.theory.training.result import PredictedTraining
from firstguess.watch.evaluation import Look, reached, share

FIRST = 100  # steps of a watch in which looks are made whatever they cost: 20 of them


@dataclass(frozen=True)
class Cost:
    """What looking took, beside the training itself."""

    looks: int
    seconds: float  # of all looks, with logging
    training: float  # seconds between looks
    steps: int  # that this time was for
    later: float = math.nan  # share of the training's time that looks took since the first steps

    @property
    def share(self) -> float:
        """Of the training's own time."""
        return self.seconds / self.training if self.training > 0 else math.nan

    def __str__(self) -> str:
        if not self.looks:
            return "nothing was looked at"
        words = f"{self.looks} look{'s' if self.looks > 1 else ''} of {1e3 * self.seconds / self.looks:.2g} ms"
        if not self.steps or math.isnan(self.share):
            return words
        words = (
            f"{self.share:.1%} of the training's time ({words}; a step takes {1e3 * self.training / self.steps:.2g} ms"
        )
        return f"{words})" if math.isnan(self.later) else f"{words}; {self.later:.1%} since the first {FIRST} steps)"


@dataclass(frozen=True, eq=False, repr=False)
class Seen:
    """The numbers of `WatchedTraining`, which is for the public: its words and its page are made of these."""

    looks: tuple[Look, ...]
    points: int  # guesses that are counted at each look: inputs, or tokens
    classes: int
    labels: NDArray[np.int64] | None  # of the points that have one
    level: float
    early: tuple[int, ...] = ()  # steps at which it was evaluated before absorption
    notes: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    cost: Cost = field(default_factory=lambda: Cost(0, 0.0, 0.0, 0))
    predicted: PredictedTraining | None = None
    unpredicted: str = ""  # why there is no prediction
    provenance: dict[str, Any] = field(default_factory=dict[str, Any])

    # -- Over steps ----------------------------------------------------------------------------------------------------

    @property
    def steps(self) -> NDArray[np.int64]:
        """The steps that were looked at: updates done."""
        return np.array([look.step for look in self.looks], np.int64)

    @property
    def shares(self) -> Array:
        """(steps, classes): of the points, by guessed class; NaN where logits are not finite."""
        return np.array([look.shares for look in self.looks]).reshape(len(self.looks), self.classes)

    @property
    def recall(self) -> Array:
        """(steps, classes): the share of each class's points that are guessed rightly; NaN where there is none."""
        found = np.full((len(self.looks), self.classes), math.nan)
        if self.labels is not None:
            sizes = np.bincount(self.labels, minlength=self.classes)
            for i, look in enumerate(self.looks):
                if look.right is not None and not look.lost:
                    found[i, sizes > 0] = look.right[sizes > 0] / sizes[sizes > 0]
        return found

    @property
    def gamma(self) -> Array:
        """γ of this network's output at each look: center over spread, over points and classes (theory.md (2), (38)).

        An ensemble's γ is a ratio of averages over initializations, of which this network is one: `fg.measure` with
        one initialization gives this number.
        """
        return np.array([look.gamma for look in self.looks])

    @property
    def curves(self) -> Curves:
        """Largest share, accuracy and loss, as predicted and real training have them."""
        if self.labels is None:
            largest = Curve(self.steps, self.shares.max(axis=1)[None])
            none = np.full((1, len(self.looks)), math.nan)
            return Curves(largest, Accuracy(self.steps, none), Curve(self.steps, none))
        recorder = CurveRecorder(self.steps, self.labels, self.classes, 1)
        for i, look in enumerate(self.looks):
            right = np.zeros(self.classes) if look.right is None else look.right.astype(np.float64)
            recorder.add(i, look.shares[None], right[None], np.array([look.loss]))
        return recorder.curves(np.array([self.favourite]))

    @property
    def largest(self) -> Curve:
        """The share of the class that gets most."""
        return self.curves.largest

    @property
    def accuracy(self) -> Accuracy:
        """Over all points; by group with [class], ["favoured"], ["others"]; NaN without labels."""
        return self.curves.accuracy

    @property
    def loss(self) -> Curve:
        """The cross-entropy with the labels; NaN without."""
        return self.curves.loss

    # -- The start, and what is left of it -----------------------------------------------------------------------------

    @property
    def start_known(self) -> bool:
        """Whether the first look was at step 0, before any update; not so where a training was resumed."""
        return bool(self.looks) and self.looks[0].step == 0

    @property
    def favourite(self) -> int:
        """The class with most guesses at the first look (the first of those that share it)."""
        first = next((look for look in self.looks if not look.lost), None)
        return 0 if first is None else int(np.argmax(first.shares))

    @property
    def due(self) -> float:
        """The share that the favourite has among the labels; without labels, an even one."""
        if self.labels is None:
            return 1.0 / self.classes
        return float(np.mean(self.labels == self.favourite))

    @property
    def left(self) -> Array:
        """The share of the starting bias that is left: (G_f(t) − p_f) / (G_f(0) − p_f).

        G_f is the share of guesses for the favourite of the start, p_f its share among the labels (1/classes without
        them): 1 at the start, 0 where it is guessed as often as it occurs, below 0 where it is guessed less often. NaN
        where the start is not known, or had hardly any bias (a largest share at `level` or below).
        """
        if not self.start_known or not self.looks[0].largest > self.level:
            return np.full(len(self.looks), math.nan)
        own = self.shares[:, self.favourite]
        return (own - self.due) / (own[0] - self.due)

    @property
    def absorption(self) -> Absorption:
        """The step at which the largest share has fallen to `level`, linear between looks; inf: not yet.

        NaN where the watch began later than step 0, and found it there already.
        """
        return self.absorbed(self.level)

    def absorbed(self, level: float) -> Absorption:
        """The same for another level."""
        kept = [look for look in self.looks if not look.lost]
        if not kept:
            return Absorption(level, np.array([math.inf]))
        if kept[0].largest <= level and kept[0].step > 0:
            return Absorption(level, np.array([math.nan]))
        steps = np.array([look.step for look in kept], np.int64)
        return absorption(Curve(steps, np.array([[look.largest for look in kept]])), level)

    @property
    def absorbed_at(self) -> float:
        """`absorption` of this one network: a step, inf or NaN."""
        return float(self.absorption.draws[0])

    @property
    def diverged(self) -> int | None:
        """The first step with NaN or Inf among the logits."""
        return next((look.step for look in self.looks if look.lost), None)

    @property
    def difference(self) -> float:
        """The largest difference between predicted and seen largest share, over the steps that both have."""
        if self.predicted is None:
            return math.nan
        both, mine, its = np.intersect1d(self.steps, self.predicted.steps, return_indices=True)
        off = np.abs(self.largest.draws[0][mine] - self.predicted.largest.mean[its])
        return float(np.nanmax(off)) if len(both) and np.isfinite(off).any() else math.nan

    def name(self, c: int) -> str:
        """Of a class."""
        return self.names[c] if c < len(self.names) else f"class {c}"

    # -- In words ------------------------------------------------------------------------------------------------------

    @property
    def finding(self) -> str:
        """What became of the starting bias, in one sentence."""
        if not self.looks:
            return "nothing was looked at yet"
        if self.looks[0].lost:
            return f"at step {spaced(self.looks[0].step)}, the first look, logits are NaN or Inf already"
        broken = "" if self.diverged is None else f"; logits are NaN or Inf from step {spaced(self.diverged)} on"
        fine = [look for look in self.looks if not look.lost]
        first, last = fine[0], fine[-1]
        favoured = self.name(self.favourite)
        at, when = self.absorbed_at, spaced(last.step)
        if not self.start_known:
            since = f"watched from step {spaced(first.step)} on, so the starting bias is not known: the largest class"
            got = f"{since} got {share(first.largest)} there"
            if math.isfinite(at):
                return f"{got} ({favoured}), and {share(self.level)} at step {reached(at)}{broken}"
            still = "still " if math.isinf(at) else ""
            return f"{got}, and {still}gets {share(last.largest)} at step {when}{broken}"
        start = f"{share(first.largest)} of all guesses for {favoured}"
        if at == 0.0:
            return f"hardly any bias to absorb: {start} at the start{broken}"
        if math.isfinite(at):
            return f"the starting bias, {start}, was absorbed at step {reached(at)}{broken}"
        if last is first:
            return f"the network starts with {start}{broken}"
        now = self.name(int(np.argmax(last.shares)))
        same = "" if now == favoured else f", now {now}"
        return (
            f"the starting bias, {start}, is not absorbed at step {when}: the largest class{same} still gets "
            f"{share(last.largest)}{broken}"
        )


def thinned(looks: Sequence[Look], most: int) -> list[int]:
    """Indices of at most `most` looks, about evenly over the logarithm of steps, both ends included."""
    if len(looks) <= most:
        return list(range(len(looks)))
    place = np.log1p([look.step for look in looks])
    wanted = np.linspace(place[0], place[-1], most)
    return np.unique([int(np.abs(place - at).argmin()) for at in wanted]).tolist()
