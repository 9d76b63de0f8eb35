"""What a fault is, and what its test may look at."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np

from firstguess.base.record import StoredRecord
from firstguess.base.statistics import FloatArray
from firstguess.diagnosis.faults.doctor import Doctor
from firstguess.diagnosis.faults.patient import NotApplicable
from firstguess.ensemble.measurement import Measurement
from firstguess.modules.hooks.examination import Examination
from firstguess.modules.hooks.session import Snapshot

FaultName: TypeAlias = Literal[
    "labels out of range", "identical inputs", "inputs replaced by their mean", "points of a batch are mixed",
    "one class of labels", "frozen parameters", "parameters missing from the optimizer", "weights never initialized",
    "checkpoint not loaded", "mask that hides everything", "log(0)", "Dropout(1)", "softmax over one unit",
    "softmax over the batch", "loss does not depend on the outputs", "ReLU after the head",
    "head cannot reach the targets", "targets broadcast", "outputs and labels not paired",
    "loss wants probabilities", "loss wants log-probabilities", "sigmoid with a softmax loss", "softmax twice",
    "regression loss for classes", "unscaled inputs", "inputs unlike the reference", "last token is padding",
    "labels come in blocks", "labels do not go with inputs", "augmentation drowns the signal", "running statistics",
    "spectral norm before its first step", "batchnorm in eval mode before training", "targets not scaled",
    "weight decay too strong", "learning rate too high", "class weights", "gradients left over", "NaN or Inf",
    "gradients explode", "dead layer", "identical units", "dead units", "vanishing logits", "gradients vanish",
    "saturated outputs", "head bias", "zero head", "learning rate too small", "too few steps",
    "same output for all inputs", "class imbalance", "rare labels",
]  # fmt: skip


@dataclass(frozen=True)
class Fault(StoredRecord):
    """A fault with a name: one sentence, the place, one line of evidence, what to change, and the numbers.

    `symptoms` are faults that this one explains: they stand under it.
    """

    name: str
    message: str
    where: str = ""
    evidence: str = ""
    fix: str = ""
    numbers: dict[str, Any] = field(default_factory=dict[str, Any])
    symptoms: tuple[Fault, ...] = ()

    @property
    def kind(self) -> str:
        """The name."""
        return self.name

    @property
    def do(self) -> str:
        """The fix."""
        return self.fix

    @property
    def layer(self) -> str:
        """The path of the layer, where there is one."""
        return str(self.numbers.get("layer", ""))

    @property
    def words(self) -> str:
        """The message with its evidence, what to do, and what it explains."""
        parts = [f"{self.message} ({self.evidence})" if self.evidence else self.message]
        parts += [f"What to do: {self.fix}"] if self.fix else []
        parts += [f"It explains: {', '.join(one.name for one in self.symptoms)}"] if self.symptoms else []
        return ". ".join(parts)

    def __str__(self) -> str:
        return f"! {self.name}{f' at {self.where}' if self.where else ''}: {self.words}"


def named(layer: str) -> str:
    """A layer's path, or the code of the model itself.

    >>> named("body.2"), named("(model)")
    ('`body.2`', "the model's own code")
    """
    return "the model's own code" if layer == "(model)" else f"`{layer}`"


@dataclass(frozen=True)
class Seen:
    """What was seen of a model as it is, and of its initializations where these were drawn."""

    examination: Examination
    measurement: Measurement | None = None
    notable: bool = False  # whether the guess is far from an even split
    trained: Snapshot | None = None  # with BatchNorms that have seen no data in train mode
    found: Sequence[str] = ()  # named before this one
    asker: Doctor | None = None  # who asks loss, optimizer and data, where these are given

    @property
    def now(self) -> Snapshot:
        return self.examination.now

    @property
    def doctor(self) -> Doctor:
        """The asker; a question that needs one is not asked without."""
        if self.asker is None:
            raise NotApplicable("")
        return self.asker

    def fault(
        self, name: FaultName, message: str, fix: str, layer: str = "", evidence: str = "", **numbers: Any
    ) -> Fault:
        """A fault at a layer, whose type is said with its path."""
        kind = self.examination.types.get(layer, "")
        where = f"{named(layer)}{f' ({kind})' if kind else ''}" if layer else ""
        return Fault(name, message, where, evidence, fix, {"layer": layer, **numbers} if layer else numbers)

    @staticmethod
    def code(layer: str) -> str:
        """How a layer is written: body.2 is model.body[2]."""
        return "model" + "".join(f"[{part}]" if part.isdigit() else f".{part}" for part in layer.split(".") if part)

    @property
    def words_of_loss(self) -> str:
        """The loss of the first guess against log M, with the labels where they are given."""
        x, classes = self.examination, len(self.now.fractions)
        loss, of = (x.loss, "your labels") if not math.isnan(x.loss) else (x.loss_even, "labels drawn evenly")
        if math.isnan(loss):
            return ""
        even = f"log {classes} = {math.log(classes):.3g}"
        return f"the first loss (cross-entropy with {of}) is {loss:.3g}, where an even guess has {even}"


# Whether a guess is far from an even split.

NOTABLE = 0.3  # of the way from an even split to one class for all: 65 % of two classes, 37 % of ten
_COINS = 5.0  # standard deviations of fair coins that an even split may be off


def excess(fractions: FloatArray) -> FloatArray:
    """How far the largest fraction is on the way from an even split (0) to all points in one class (1)."""
    even = 1 / fractions.shape[-1]
    return np.asarray((fractions.max(axis=-1) - even) / (1 - even))


def is_notable(fractions: FloatArray, points: int) -> bool:
    """Whether there is anything to explain: a largest fraction far from an even split, and no play of chance.

    >>> is_notable(np.array([0.7, 0.3]), 1000), is_notable(np.array([0.7, 0.3]), 50), is_notable(np.eye(2)[0], 50)
    (True, False, True)
    """
    even = 1 / len(fractions)
    chance = _COINS * math.sqrt(even * (1 - even) / max(points, 1))
    return float(excess(fractions)) >= NOTABLE and float(fractions.max()) > even + chance
