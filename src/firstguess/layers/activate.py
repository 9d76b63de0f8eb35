"""An activation, applied to every node."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from firstguess.activations import Activation
from firstguess.signal import Signal, Unknown


@dataclass(frozen=True)
class Activate:
    """φ on every node: theory.md (4). Needs a signal whose law is known."""

    kind: ClassVar[str] = "activation"
    phi: Activation

    def text(self) -> str:
        return str(self.phi)

    def moments(self, signal: Signal) -> Signal:
        return (signal.law or Unknown("a signal of unknown law")).activate(signal, self.phi)

    def gradient(self, signal: Signal) -> float | None:
        return signal.law.mean_square_slope(signal, self.phi) if signal.law is not None else None

    def assumptions(self) -> Iterable[str]:
        if self.phi.centered:
            yield f"{self.phi}: its mean is taken off exactly, at the variance it meets"
