"""What a reader of models tells a kind of layer about a module or function of torch: records, without torch.

A kind answers with a `ReadResult` (network/layer.py, which imports this file).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

FLAT, IMAGE = 2, 4  # axes of a batch


@dataclass(frozen=True)
class Variances:
    """σw² and σb² of a layer with random weights, estimated over `draws` initializations.

    `rule` names the initializer that they were recognised as ("measured" if none was): then the description has that
    rule's exact numbers, else these estimates. `weight_var` and `bias_var` here are always the estimates.
    `distribution` is what the weights look drawn from: normal, uniform, orthogonal, or "" (none of these, or not looked
    at). The wide limit knows variances only; finite width knows more (theory.md §12).
    """

    weight_var: float
    weight_se: float
    bias_var: float
    bias_se: float
    rule: str
    draws: int
    distribution: str = ""

    def __str__(self) -> str:
        text = f"σw² = {self.weight_var:.4g} ± {self.weight_se:.1g}"
        if self.bias_var > 0.0:
            text += f", σb² = {self.bias_var:.3g} ± {self.bias_se:.1g}"
        return f"{text}: {self.rule}"


@dataclass(frozen=True)
class RandomWeights:
    """What a module's weights and biases are drawn from; `why` (not empty): from nothing that a description has."""

    weight_var: float = 0.0
    bias_var: float = 0.0
    units: int = 0
    orthogonal: bool = False
    why: str = "its weights could not be drawn"


@dataclass(frozen=True)
class ReadContext:
    """Where a module or a call stands: what comes in, and what its parameters start as."""

    axes: int | None = None  # of the batch that comes in, where that is known
    shape: tuple[int, ...] | None = None  # all of it, where an example was run
    path: str = ""  # of the module in the model
    claim: str = ""  # the name in `modules` or `calls` that it was found by
    weights: RandomWeights = field(default_factory=RandomWeights)  # of a kind whose output is sums over weights
    # The value that all numbers of `weight` (`bias`) start with, None where they differ; not there: no such parameter.
    constants: Mapping[str, float | None] = field(default_factory=dict[str, "float | None"])

    def whole_sample(self, axes: int) -> str:
        """Why a norm over the last `axes` axes is not over all units of a sample, as a description's; "": it is."""
        if self.axes is not None and axes != self.axes - 1:
            return "normalizes every position by itself; the description's norm is over all nodes of a sample"
        return "" if axes in (FLAT - 1, IMAGE - 1) or self.axes is not None else f"normalizes over {axes} axes"


@dataclass(frozen=True)
class Call:
    """A function of torch, or a method of a tensor by its name, that is called with one signal in it, its first."""

    target: Any
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def argument(self, index: int, name: str, default: Any) -> Any:
        """An argument by its place (the signal is 0) or name."""
        return self.args[index] if len(self.args) > index else self.kwargs.get(name, default)
