"""LayerNorm: one mean and one scale per sample, over the nodes."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from firstguess.errors import NotCovered
from firstguess.signal import Gaussian, Signal, Unknown, exp


def over_nodes(signal: Signal, kind: str) -> Signal:
    """(0, (center − mean²)/(total − mean²), 1): the mean over nodes goes, the centers' differences stay."""
    variance = signal.between + signal.spread
    if variance == 0.0:
        raise NotCovered(
            "nodes that differ",
            got="a signal without variance over nodes",
            hint="a larger weight variance before this layer",
        )
    law = Gaussian() if isinstance(signal.law, Gaussian) else Unknown(f"a {kind} of a signal that is not Gaussian")
    return Signal(0.0, signal.between / variance, signal.spread / variance, law=law)


def over_nodes_gradient(signal: Signal) -> float:
    """Dividing by the standard deviation over nodes; the two directions it projects out are negligible when wide."""
    return exp(-math.log(signal.between + signal.spread) - signal.log_scale)


@dataclass(frozen=True)
class LayerNorm:
    """Subtract a sample's mean over nodes, divide by its standard deviation over nodes: theory.md §2."""

    kind: ClassVar[str] = "layernorm"

    def moments(self, signal: Signal) -> Signal:
        return over_nodes(signal, "layernorm")

    def gradient(self, signal: Signal) -> float | None:
        return over_nodes_gradient(signal)

    def assumptions(self) -> Iterable[str]:
        return ()
