"""What a watch has seen: one network's guesses over its training, in the words of predicted and of real training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from firstguess.base.record import Record, Shown
from firstguess.base.text import page, plain
from firstguess.theory.training.curves import Curves
from firstguess.watch.seen import WatchRecord, summary


class EarlyEvaluation(UserWarning):
    """A model was evaluated before the bias of its start was absorbed: scores by class favour the classes that the
    untrained network favoured (claim M12 of docs/claims.md)."""


EarlyEvaluation.__module__ = "firstguess"


@dataclass(frozen=True, eq=False, repr=False)
class WatchedTraining(WatchRecord, Record, Shown):
    """One network's guesses over its training. Print it, or `save` it as a page.

    Curves have one network, `.draws[0]`. The favourite is the class with most guesses at the first look.
    """

    _also = (
        "finding", "steps", "favourite", "start_known", "shares", "recall", "gamma", "left", "absorbed_at", "relapses",
        "diverged", "collapse", "predicted", "unpredicted",
    )  # fmt: skip
    _apart = ("looks", "labels", "early", "names", "prediction", "named")

    def summary(self) -> list[tuple[str, str]]:
        """Label and value of every headline number."""
        return summary(self)

    def __repr__(self) -> str:
        return f"WatchedTraining({len(self.looks)} looks, {self.points} points, {self.classes} classes: {self.finding})"

    def __str__(self) -> str:
        what = f"Watched training ({len(self.looks)} looks, {self.points} points, {self.classes} classes)"
        remarks = [f"note: {note}" for note in self.notes]
        return page(what, [("finding", self.finding), *self.summary()], remarks=remarks)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, with NaN and inf as text."""
        cost = {**asdict(self.full_cost), "share": self.cost.share}
        return super().to_dict() | plain({**_of_one(self.curves), "early_evaluations": list(self.early), "cost": cost})

    def save(self, path: str | Path) -> Path:
        """Write it as one HTML file that opens offline; gives the path back."""
        from firstguess.watch.document import write  # which draws, and loads altair

        return write(self, path)


def _of_one(curves: Curves) -> Mapping[str, Any]:
    """Curves of one network as plain lists."""
    groups = {str(which): values[0].tolist() for which, values in curves.accuracy.groups.items()}
    return {
        "largest": curves.largest.draws[0].tolist(),
        "accuracy": {"all": curves.accuracy.draws[0].tolist(), **groups},
        "loss": curves.loss.draws[0].tolist(),
    }
