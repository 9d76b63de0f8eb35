"""A residual block: the input plus a branch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import ClassVar

from firstguess.errors import InvalidInput, NotCovered
from firstguess.layers.base import Layer, check_number, steps, text
from firstguess.signal import Gaussian, Signal, Unknown
from firstguess.text import number


@dataclass(frozen=True)
class Residual:
    """x + scale · f(x), f ending in random weights: the branch is uncorrelated with x, so moments add (theory.md §2).

    A norm at the head of the branch is "before the branch", one that follows this layer "after the sum".
    """

    kind: ClassVar[str] = "residual"
    branch: tuple[Layer, ...]
    scale: float = 1.0

    def __post_init__(self) -> None:
        check_number(self.scale, "scale", "residual", low=float("-inf"), hint="residual(scale=0.5)[relu > dense]")
        if not self.branch:
            raise InvalidInput("a branch with at least one layer", got="residual[]", hint="residual[relu > dense]")

    def text(self) -> str:
        from firstguess.layers.grammar import sequence_text

        head = "residual" + (f"(scale={number(self.scale)})" if self.scale != 1.0 else "")
        return f"{head}[{sequence_text(self.branch)}]"

    def moments(self, signal: Signal) -> Signal:
        if self.branch[-1].kind not in ("dense", "conv"):
            raise NotCovered(
                "a residual branch that ends in random weights (dense or conv)",
                got=f"one that ends in {text(self.branch[-1])}",
                hint="move the last layers in front of the weights, or use the ensemble reading: fg.measure(...)",
            )
        *_, (_, _, branch) = steps(self.branch, signal, prefix="branch ")
        branch = branch.times(self.scale)
        scale = max(signal.log_scale, branch.log_scale)
        x, f = signal.at_scale(scale), branch.at_scale(scale)
        law = Gaussian() if isinstance(signal.law, Gaussian) else Unknown("a residual sum whose input is not Gaussian")
        return replace(x, between=x.between + f.between, spread=x.spread + f.spread, law=law).rescaled()

    def gradient(self, signal: Signal) -> float | None:
        product = self.scale * self.scale
        for layer, before, _ in steps(self.branch, signal, prefix="branch "):
            factor = layer.gradient(before)
            if factor is None:
                return None
            product *= factor
        return 1.0 + product

    def assumptions(self) -> Iterable[str]:
        for layer in self.branch:
            yield from layer.assumptions()
