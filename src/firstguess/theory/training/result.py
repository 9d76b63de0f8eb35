"""What a prediction of training says: curves over steps, and the numbers that explain them (theory.md (12)-(19))."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np

from firstguess.base.record import Shown
from firstguess.base.text import plain, spaced
from firstguess.network.network import Network
from firstguess.theory.training.curves import Curves, Followed
from firstguess.theory.training.problem import Modes


@dataclass(frozen=True)
class Trust:
    """Whether the wide limit describes this network: `word`, and the numbers after it (theory.md §7).

    `spread` and `ratio` are the relative spread and the mean, over a few initializations, of ‖∇ mean g‖² by its limit.
    """

    word: Literal["good", "with a random factor", "rough", "not lazy"]
    why: str
    ratio: float
    spread: float
    inits: int

    def __str__(self) -> str:
        return f"{self.word}: {self.why}"


@dataclass(frozen=True, eq=False)
class PredictedTraining(Followed, Shown):
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
    def diverged(self) -> tuple[tuple[int, int], ...]:
        """(network, the first step at which its loss is not finite), of those that leave all numbers after."""
        bad = ~np.isfinite(self.loss.draws)
        return tuple((int(i), int(self.steps[bad[i].argmax()])) for i in np.flatnonzero(bad.any(axis=1)))

    def summary(self) -> list[tuple[str, str]]:
        """Label and value of every headline number."""
        found, modes = self.absorption, self.modes
        start, end = (float(v) for v in self.largest.mean[[0, -1]])
        rows = [
            ("network", str(self.network)),
            ("largest share", f"{start:.3f} at the start, {end:.3f} after {spaced(float(self.steps[-1]))} steps"),
            (found.label, found.words(int(self.steps[-1]))),
            ("accuracy at the end", f"{float(self.accuracy.mean[-1]):.3f}"),
            (
                "bias is faster than signal by",
                f"{modes.ratio:.3g} (λ {modes.bias:.4g} and {modes.signal:.4g})"
                if modes.has_bias
                else "nothing moves the bias: a norm takes it off",
            ),
            (
                "learning rates",
                f"{'classes hand over to each other' if modes.has_bias else 'the fastest mode overshoots'} from "
                f"{self.overshoot:.3g} on, for ever from {self.lr_limit:.3g}",
            ),
        ]
        if self.test is not None:
            rows.insert(4, ("accuracy on held-out points", f"{float(self.test.accuracy.mean[-1]):.3f}"))
        if not math.isnan(self.floor):
            rows.append(("mini-batches leave", f"a largest share of {self.floor:.3f} on average"))
        if self.diverged:
            count, first = len(self.diverged), min(step for _, step in self.diverged)
            rows.append(("diverged", f"{count} of {len(self.loss.draws)} networks, the first by step {spaced(first)}"))
        if self.trust is not None:
            rows.append(("trust", str(self.trust)))
        return rows

    def __repr__(self) -> str:
        draws, last = len(self.largest.draws), int(self.steps[-1])
        return f"PredictedTraining({draws} networks, {last} steps, {self.network.classes} classes)"

    def __str__(self) -> str:
        rows = self.summary()
        width = max(len(label) for label, _ in rows)
        optimizer, draws = self.provenance.get("optimizer"), len(self.largest.draws)
        lines = [f"Predicted training ({optimizer}, {draws} networks, {self.network.classes} classes)"]
        lines += [f"  {label:<{width}}  {value}" for label, value in rows]
        lines += [f"  assumes: {a}" for a in self.assumptions]
        return "\n".join(lines)

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
                "diverged": [list(pair) for pair in self.diverged],
                "trust": None if self.trust is None else asdict(self.trust),
                "assumptions": list(self.assumptions),
                "provenance": self.provenance,
                "seconds": self.seconds,
            }
        )
