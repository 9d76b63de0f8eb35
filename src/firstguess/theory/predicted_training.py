"""What a prediction of training says: curves over steps, and the numbers that explain them (theory.md (12)-(19))."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from firstguess.base.text import plain
from firstguess.network.network import Network
from firstguess.theory.curves import Absorption, Accuracy, Curve, Curves, absorption
from firstguess.theory.training_problem import Modes


@dataclass(frozen=True)
class Trust:
    """Whether the wide limit describes this network: `word`, and the numbers behind it (theory.md §7).

    `spread` and `ratio` are the relative spread and the mean, over a few initializations, of ‖∇ mean g‖² by its limit.
    """

    word: Literal["good", "with a random factor", "not lazy"]
    why: str
    ratio: float
    spread: float
    inits: int

    def __str__(self) -> str:
        return f"{self.word}: {self.why}"


@dataclass(frozen=True, eq=False)
class PredictedTraining:
    """Curves over steps, and the numbers that explain them."""

    network: Network
    curves: Curves
    test: Curves | None
    modes: Modes
    overshoot: float  # the learning rate from which on classes hand over to each other: 2κ/λ_b
    lr_limit: float  # from which on that does not end: 4κ/λ_b
    floor: float  # the largest share that mini-batches leave, on average; NaN: full batches
    level: float
    assumptions: tuple[str, ...] = ()
    provenance: dict[str, Any] = field(default_factory=dict[str, Any])
    seconds: float = 0.0
    drawn: int = 0  # starts, of which those asked for were kept
    trust: Trust | None = None

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
        """Over all points; by group with [class], ["favoured"], ["others"]."""
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

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return plain(
            {
                "network": str(self.network),
                "steps": self.steps.tolist(),
                **self.curves.to_dict(),
                "test": None if self.test is None else self.test.to_dict(),
                "absorption": self.absorption.to_dict(),
                "modes": {"bias": self.modes.bias, "signal": self.modes.signal, "ratio": self.modes.ratio},
                "overshoot": self.overshoot,
                "lr_limit": self.lr_limit,
                "floor": self.floor,
                "trust": None if self.trust is None else asdict(self.trust),
                "assumptions": list(self.assumptions),
                "provenance": self.provenance,
                "seconds": self.seconds,
            }
        )
