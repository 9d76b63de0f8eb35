"""The first steps of training, seen: copies of the model, with the user's own loss and optimizer."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from firstguess.base.text import plain
from firstguess.data import Batch
from firstguess.diagnosis.bias_duration import LEFT, left_of, settled
from firstguess.ensemble.trained import TrainedMembers
from firstguess.modules.train import train_module

INITS, FEWEST = 8, 4  # copies; below the second number bias is told within each, not between them
STEPS, FURTHER = 64, 4  # of the first look; how much further the next ones go
LONGEST = 256  # steps, or as long as the run is, where fewer leave it open
_SHORTEST = 16  # steps below which nothing is said
_LEARNED = 0.03  # of the label entropy that the loss must fall by, or of what balanced accuracy can gain
_SURE = 3.0  # standard errors


@dataclass(frozen=True, eq=False)
class Rehearsal:
    """What copies of the model did in their first steps, or `why` there are none.

    `left` is the part of the starting bias that is left at the steps `at` (as `Lasting.left`); `steps` the step from
    which it stays within a quarter, ∞ where it does not by the last. `accuracy` is balanced: every class counts the
    same. `learns`: the loss (cross-entropy) or that accuracy is clearly better than any guess that ignores the input.
    """

    why: str = ""
    how: str = ""  # loss and optimizer, in words
    at: tuple[int, ...] = ()
    left: tuple[float, ...] = ()
    largest: tuple[float, ...] = ()
    accuracy: tuple[float, ...] = ()
    loss: tuple[float, ...] = ()
    steps: float = math.nan
    learns: bool = False
    diverged: int = 0  # of the copies
    inits: int = 0
    classes: int = 0

    @property
    def known(self) -> bool:
        """Whether copies were trained."""
        return not self.why

    @property
    def last(self) -> int:
        """The last step that was seen."""
        return self.at[-1] if self.at else 0

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return plain(vars(self))


@dataclass(frozen=True, eq=False)
class Asked:
    """What is trained, on what and how; `words` name the loss and the optimizer."""

    model: Callable[..., Any]
    batches: Sequence[Batch]
    loss: Any
    optimizer: Any
    lr: float
    words: str
    options: dict[str, Any]  # where copies come from: init, redraw, logits, …
    seed: int = 0

    @property
    def batch(self) -> int | None:
        """Points of a step: those of the batches that the model gets."""
        return None if self.optimizer == "gd" else max(2, self.batches[0].size)


def rehearse(asked: Asked, *, enough: Callable[[Rehearsal], bool], seconds: float, most: int) -> Rehearsal:
    """Train copies for 64 steps; four times as many where these leave it open (`enough`) and there is time."""
    nothing = Rehearsal(how=asked.words)
    if any(batch.labels is None for batch in asked.batches):
        return replace(nothing, why="the data have no labels")
    began = time.perf_counter()
    trial = _trained(asked, 1, 4)
    a_step = max(trial.seconds, 1e-4) / 4

    def left() -> float:
        return seconds - (time.perf_counter() - began)

    steps = STEPS
    inits = int(min(INITS, left() / (a_step * steps)))
    if inits < 1:
        inits, steps = 1, int(left() / a_step)
        if steps < _SHORTEST:
            needed = (_SHORTEST + 8) * a_step
            return replace(nothing, why=f"{_SHORTEST} steps of a copy would take about {needed:.0f} s more")
    found = seen(_trained(asked, inits, steps), asked)
    while not enough(found) and steps < most:
        steps = min(most, FURTHER * steps)
        affordable = int(min(inits, left() / (a_step * steps)))
        if affordable < min(inits, FEWEST):
            break
        inits = affordable
        found = seen(_trained(asked, inits, steps), asked)
    return found


def _trained(asked: Asked, inits: int, steps: int) -> TrainedMembers:
    return train_module(
        asked.model,
        list(asked.batches),
        None,
        inits=inits,
        start="any",
        level=None,
        threads=1,
        store=None,
        progress=None,
        classes=None,
        more={"strategy": "loop", **asked.options},
        lr=asked.lr,
        optimizer=asked.optimizer,
        steps=steps,
        epochs=None,
        batch=asked.batch,
        loss=_fitted(asked.loss),
        weight_decay=0.0,
        seed=asked.seed,
    )


def _fitted(loss: Any) -> Any:
    """A loss of the user's that also takes labels as numbers, where one logit is compared with them."""
    if isinstance(loss, str):
        return loss

    def value(output: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        if output.numel() == labels.numel():
            return loss(output, labels.to(output.dtype).view_as(output))
        return loss(output, labels)

    return value


def seen(t: TrainedMembers, asked: Asked) -> Rehearsal:
    """The curves, summed up over copies that stayed finite."""
    labels = torch.cat([batch.labels.reshape(-1) for batch in asked.batches if batch.labels is not None]).long()
    counts = torch.bincount(labels, minlength=t.classes).double().numpy()
    lost = {member for member, _ in t.diverged}
    fine = np.array([member not in lost for member in t.members])
    found = Rehearsal(
        how=asked.words, inits=len(t.members), diverged=len(lost), classes=t.classes, at=tuple(t.steps.tolist())
    )
    if not fine.any():
        return replace(found, steps=math.inf)
    by_class = np.stack([t.accuracy.groups[c][fine] for c in np.flatnonzero(counts).tolist()])  # (class, copy, step)
    balanced, loss = by_class.mean(axis=0), t.loss.draws[fine]
    left = left_of(by_class, within=by_class.shape[1] < FEWEST)
    return replace(
        found,
        left=tuple(left.tolist()),
        largest=tuple(t.largest.draws[fine].mean(axis=0).tolist()),
        accuracy=tuple(balanced.mean(axis=0).tolist()),
        loss=tuple(loss.mean(axis=0).tolist()),
        steps=settled(t.steps, left, LEFT),
        learns=_better(balanced[:, -1], _guessing(by_class[:, :, -1], counts), 1.0 - 1.0 / len(by_class))
        or (asked.loss == "cross-entropy" and _better(-loss[:, -1], (-_entropy(counts), 0.0), _entropy(counts))),
    )


def _better(values: Any, guessing: tuple[float, float], room: float) -> bool:
    """By a part of the room, and by what copies and points differ by."""
    chance, error = guessing
    spread = float(values.std(ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else 0.0
    return float(values.mean()) - chance > max(_LEARNED * room, _SURE * math.hypot(error, spread))


def _guessing(accuracy: Any, counts: Any) -> tuple[float, float]:
    """Balanced accuracy of what ignores the input, and the error of one that so many points have."""
    p, n = accuracy.mean(axis=1), counts[counts > 0]
    return 1.0 / len(n), float(np.sqrt((np.clip(p * (1 - p), 0.01, None) / n).sum()) / len(n))


def _entropy(counts: Any) -> float:
    """Cross-entropy of the best guess that ignores the input."""
    p = counts[counts > 0] / counts.sum()
    return float(-(p * np.log(p)).sum())
