"""What real trainings of many networks show: curves over steps, in the words of the predicted ones."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from firstguess.base.errors import InvalidInput
from firstguess.base.gaussian import Array
from firstguess.base.record import Record, Shown
from firstguess.base.text import page, spaced, with_error
from firstguess.theory.shares.empirical import EmpiricalGuesses
from firstguess.theory.training.curves import Curve, Curves, Followed


@dataclass(frozen=True, eq=False, repr=False)
class TrainedMembers(Followed, Record, Shown):
    """Curves of networks that were trained, over the steps that were looked at. Made by `fg.train`.

    Rows of every curve's `draws` are the networks `members`; NaN: not looked at, because it had diverged or the
    training was interrupted.
    """

    _also = ("steps", "largest", "accuracy", "loss", "absorption")
    _apart = ("curves", "level")

    what: str  # the network's text, or the model's name
    classes: int
    curves: Curves
    test: Curves | None
    gradients: Curve  # the norm of the gradient that the next step takes: of the loss on its batch
    shares: Array  # (members, steps, classes): the share of the training points that gets each class
    favourites: NDArray[np.int64]  # the class that each network favours at the start
    members: tuple[int, ...]  # their numbers: member i depends on (seed, i) only
    level: float
    start: str = "any"
    drawn: int = 0  # starts that were looked at, of which `members` were kept
    diverged: tuple[tuple[int, int], ...] = ()  # (member, the step at which NaN or Inf was seen)
    notes: tuple[str, ...] = ()
    provenance: dict[str, Any] = field(default_factory=dict[str, Any])
    seconds: float = 0.0
    interrupted: bool = False

    def guesses(self, step: int, *, relabelled: bool = False) -> EmpiricalGuesses:
        """The distribution of class shares at a step that was looked at, over networks that have not diverged.

        `relabelled`: the class that a network favours at the start comes first.
        """
        found = np.flatnonzero(self.steps == step)
        if not len(found):
            near = int(self.steps[np.abs(self.steps - step).argmin()])
            raise InvalidInput("a step that was looked at", got=step, where="guesses(step)", hint=f"guesses({near})")
        shares = self.shares[:, int(found[0])]
        if relabelled:
            each = np.arange(len(shares))
            shares = shares.copy()
            first = shares[each, self.favourites]
            shares[each, self.favourites], shares[:, 0] = shares[:, 0].copy(), first
        fine = np.isfinite(shares).all(axis=1)
        if not fine.any():
            raise InvalidInput("a step that a network has reached", got=step, where="guesses(step)", hint="guesses(0)")
        points = int(self.provenance.get("points", 1))
        return EmpiricalGuesses(shares[fine], points, seed=int(self.provenance.get("seed", 0)))

    def summary(self) -> list[tuple[str, str]]:
        """Label and value of every headline number, ± standard error over networks."""
        last = int(self.steps[-1])
        found = self.absorption
        share = f"{_at(self.largest, 0)} at the start, {_at(self.largest, -1)} after {spaced(last)} steps"
        rows = [("network", self.what), ("largest share", share), (found.label, found.words(last))]
        rows.append(("accuracy at the end", _at(self.accuracy, -1)))
        favoured, others = self.accuracy["favoured"], self.accuracy["others"]
        rows.append(("  of the favoured class", f"{_at(favoured, 0)} at the start, {_at(favoured, -1)} at the end"))
        rows.append(("  of the others", f"{_at(others, 0)} at the start, {_at(others, -1)} at the end"))
        if self.test is not None:
            rows.append(("accuracy on held-out points", _at(self.test.accuracy, -1)))
        rows.append(("loss", f"{_at(self.loss, 0)} at the start, {_at(self.loss, -1)} at the end"))
        if self.start != "any":
            rows.append(("starts", f"{len(self.members)} {self.start} ones, of {spaced(self.drawn)} drawn"))
        if self.diverged:
            member, step = min(self.diverged, key=lambda one: one[1])
            count = f"{len(self.diverged)} of {len(self.members)} networks"
            rows.append(("diverged (NaN or Inf)", f"{count}, first member {member}, seen at step {spaced(step)}"))
        return rows

    def __repr__(self) -> str:
        return f"TrainedMembers({len(self.members)} networks, {self.classes} classes, {int(self.steps[-1])} steps)"

    def __str__(self) -> str:
        optimizer = self.provenance.get("optimizer")
        title = f"Training ({optimizer}, {len(self.members)} networks, {self.classes} classes)"
        remarks = ["interrupted: curves are what was seen until then"] if self.interrupted else []
        return page(title, self.summary(), remarks=[*remarks, *(f"note: {note}" for note in self.notes)])

    def to_dict(self) -> dict[str, Any]:
        """Plain data, NaN and ∞ as text."""
        diverged = [{"member": member, "step": step} for member, step in self.diverged]
        return super().to_dict() | {"diverged": diverged}


def _at(curve: Curve, index: int) -> str:
    value = float(curve.mean[index])
    return "none" if math.isnan(value) else with_error(float(f"{value:.3g}"), float(curve.se[index]))
