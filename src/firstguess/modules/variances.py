"""Variances of weights, from the initializers themselves: draw, estimate, and recognise the rule where there is one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from firstguess.ensemble.seeds import member_seeds
from firstguess.modules.initializers import Init
from firstguess.modules.sources import Source
from firstguess.modules.weight_statistics import TORCH_DEFAULT as TORCH_DEFAULT
from firstguess.modules.weight_statistics import Numbers, bounded, fitting, of_size

ENOUGH = 20_000  # weights of a layer from which σw² is known to 1 %
_FEW = 2_000  # biases of a layer
_BUDGET = 20_000_000  # numbers that are drawn beyond the least of 16 initializations
_LEAST, _MOST = 16, 256
_PATIENCE = 160_000_000  # numbers that are drawn for these 16: a second or two; of larger models, two initializations


@dataclass(frozen=True)
class Draws:
    """Statistics of every parameter that the reading asks for, by name, over `count` initializations."""

    numbers: dict[str, Numbers]
    count: int


def tensor_at(model: nn.Module, name: str) -> torch.Tensor | None:
    """The parameter (or what a parametrization makes of it) under a dotted name."""
    owner, _, last = name.rpartition(".")
    value = getattr(model.get_submodule(owner), last, None)
    return value if isinstance(value, torch.Tensor) else None


def draw(source: Source, names: Iterable[str], seed: int) -> Draws:
    """Initialize until every weight has 20 000 entries and every bias 2 000, or 16 times (small models: up to
    256, very large ones: twice)."""
    numbers = {name: Numbers() for name in names}
    done, most = 0, _LEAST
    while numbers and done < most:
        with source.member(int(member_seeds(seed, done, done + 1)[0])) as model:
            for name, sums in list(numbers.items()):
                value = tensor_at(model, name)
                if value is None or not value.numel() or not value.is_floating_point():
                    del numbers[name]
                else:
                    sums.add(value)
        done += 1
        if done == 1:
            size = max(1, sum(parameter.numel() for parameter in model.parameters()))
            most = min(_MOST, max(min(_LEAST, max(2, _PATIENCE // size)), _BUDGET // size))
        if done > 1 and all(_known(name, sums) for name, sums in numbers.items()):
            break
    return Draws(numbers, done)


def _known(name: str, sums: Numbers) -> bool:
    if sums.constant is not None:
        return True
    return sums.count >= (_FEW if name.endswith("bias") else ENOUGH)


@dataclass(frozen=True)
class Estimate:
    """What is known of a layer's variances, and the rules that they fit: (name, σw²)."""

    weight: Numbers
    bias: Numbers | None
    fan_in: int
    rules: tuple[tuple[str, float], ...]
    asked: float | None = None  # σb², where the user's init= says it

    @property
    def measured(self) -> float:
        """σw² = fan-in · E W²."""
        return self.fan_in * self.weight.mean_square

    @property
    def standard_error(self) -> float:
        return 0.0 if self.weight.gain is not None else self.fan_in * self.weight.standard_error

    def choose(self, favourites: Sequence[str]) -> tuple[str, float]:
        """(rule, σw²): the one value that all fitting rules share, else that of the favourite, else the estimate."""
        values = {value for _, value in self.rules}
        if len(values) > 1:
            liked = next((name for name in favourites if any(name == rule for rule, _ in self.rules)), None)
            values = {value for name, value in self.rules if name == liked}
        if len(values) != 1:
            return "measured", self.measured
        value = values.pop()
        same = [name for name, other in self.rules if other == value]
        liked = [name for name in favourites if name in same]
        return (liked or same)[0], value

    def bias_var(self) -> float:
        """σb²: exact for PyTorch's default (uniform up to 1/√fan-in), init=(…, σb²) and constants, else E b²."""
        if self.bias is None or self.bias.constant is not None:
            return 0.0
        if self.asked is not None and of_size(self.bias, self.asked):
            return self.asked
        return self.default_bias if bounded(self.bias, 1.0 / math.sqrt(self.fan_in)) else self.bias.mean_square

    @property
    def default_bias(self) -> float:
        """σb² of PyTorch's default."""
        return 1.0 / (3.0 * self.fan_in)


def estimate(weight: Numbers, bias: Numbers | None, shape: torch.Size, init: Init) -> Estimate:
    """From the statistics of a weight of shape (units, inputs, …) and of its bias."""
    asked = (float(init[0]), float(init[1])) if isinstance(init, tuple) else (None, None)
    rules = tuple(fitting(weight, tuple(shape), asked[0]))
    return Estimate(weight, bias, math.prod(shape[1:]), rules, asked[1])


def favourites(estimates: Iterable[Estimate]) -> list[str]:
    """Rules by how many layers each fits: a model is mostly initialized by one."""
    votes: dict[str, int] = {}
    for one in estimates:
        for name, _ in one.rules:
            votes[name] = votes.get(name, 0) + 1
    return sorted(votes, key=lambda name: -votes[name])
