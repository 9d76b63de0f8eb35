"""What a fault is, and what its test may look at."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeAlias

from firstguess.ensemble.measurement import Measurement
from firstguess.modules.examination import Examination
from firstguess.modules.snapshot import Snapshot

FaultName: TypeAlias = Literal[
    "labels out of range",
    "identical inputs",
    "inputs replaced by their mean",
    "mask that hides everything",
    "log(0)",
    "NaN or Inf",
    "Dropout(1)",
    "unscaled inputs",
    "softmax over the batch",
    "softmax twice",
    "ReLU after the head",
    "zero head",
    "dead units",
    "saturated outputs",
    "batchnorm in eval mode before training",
    "head bias",
    "vanishing logits",
    "same output for all inputs",
]


@dataclass(frozen=True)
class Fault:
    """A fault with a name: one sentence on what was seen, what to do, and the numbers behind it."""

    name: FaultName
    message: str
    do: str
    layer: str = ""
    evidence: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)

    def __str__(self) -> str:
        return f"! {self.name}{f' at {self.layer}' if self.layer else ''}: {self.message}. What to do: {self.do}"


@dataclass(frozen=True)
class Seen:
    """What was seen of a model as it is, and of its initializations where these were drawn."""

    examination: Examination
    measurement: Measurement | None = None
    notable: bool = False  # whether the guess is far from an even split
    trained: Snapshot | None = None  # with BatchNorms that have seen no data in train mode
    found: Sequence[FaultName] = ()  # named before this one

    @property
    def now(self) -> Snapshot:
        return self.examination.now

    @property
    def words_of_loss(self) -> str:
        """The loss of the first guess against log M, with the labels where they are given."""
        x, classes = self.examination, len(self.now.fractions)
        loss, of = (x.loss, "your labels") if not math.isnan(x.loss) else (x.loss_even, "labels drawn evenly")
        if math.isnan(loss):
            return ""
        even = f"log {classes} = {math.log(classes):.3g}"
        return f"the first loss (cross-entropy with {of}) is {loss:.3g}, where an even guess has {even}"
