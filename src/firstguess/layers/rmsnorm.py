"""RMSNorm: one scale per sample, no centring."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from firstguess.errors import NotCovered
from firstguess.signal import Gaussian, Signal, Unknown, exp


@dataclass(frozen=True)
class RMSNorm:
    """Divide a sample by its root mean square over nodes: it does not centre, so after φ it does not cure."""

    kind: ClassVar[str] = "rmsnorm"

    def moments(self, signal: Signal) -> Signal:
        total = signal.total
        if total == 0.0:
            raise NotCovered("a signal that is not zero", got="zero", hint="a larger weight variance before this layer")
        law = Gaussian() if isinstance(signal.law, Gaussian) else Unknown("an rmsnorm of a signal that is not Gaussian")
        return Signal(signal.mean / math.sqrt(total), signal.between / total, signal.spread / total, law=law)

    def gradient(self, signal: Signal) -> float | None:
        return exp(-signal.log_q)

    def assumptions(self) -> Iterable[str]:
        return ()
