"""Variances of weights, from the initializers themselves: draw, estimate, and recognise the rule where there is one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from firstguess.ensemble.rules import Init
from firstguess.ensemble.seeds import member_seeds
from firstguess.ensemble.sources import Source

ENOUGH = 20_000  # weights of a layer from which σw² is known to 1 %
_FEW = 2_000  # biases of a layer
_BUDGET = 20_000_000  # numbers that are drawn beyond the least of 16 initializations
_LEAST, _MOST = 16, 256
_FALSE_ALARM = 1e-6  # how often a rule that holds is not recognised by its bound
_SIGMAS = 5.0  # two-sided 6e-7
TORCH_DEFAULT = "PyTorch's default"


@dataclass
class Numbers:
    """Sums over all entries of one parameter in all draws."""

    count: int = 0
    total: float = 0.0
    square: float = 0.0
    fourth: float = 0.0
    low: float = math.inf
    high: float = -math.inf
    gain: float | None = None  # W Wᵀ = gain²·I in every draw

    def add(self, value: torch.Tensor) -> None:
        w = value.detach().double()
        squares = w * w
        gain = _orthogonal_gain(w) if self.count == 0 or self.gain is not None else None
        self.gain = gain if self.count == 0 or (gain and self.gain and abs(gain / self.gain - 1) < 1e-3) else None
        self.count += w.numel()
        self.total += float(w.sum())
        self.square += float(squares.sum())
        self.fourth += float((squares * squares).sum())
        self.low, self.high = min(self.low, float(w.min())), max(self.high, float(w.max()))

    @property
    def constant(self) -> float | None:
        """The one value that all entries have in all draws, or None."""
        return self.low if self.low == self.high else None

    @property
    def reach(self) -> float:
        return max(abs(self.low), abs(self.high))

    @property
    def mean_square(self) -> float:
        return self.square / self.count

    @property
    def standard_error(self) -> float:
        return math.sqrt(max(self.fourth / self.count - self.mean_square**2, 0.0) / self.count)

    @property
    def off_centre(self) -> bool:
        """Whether the mean is not 0: by a hundredth of the size at least, and beyond chance."""
        mean, rms = self.total / self.count, math.sqrt(self.mean_square)
        return abs(mean) > 0.01 * rms + _SIGMAS * rms / math.sqrt(self.count)

    @property
    def uniform(self) -> bool:
        """Whether no entry lies beyond √3 standard deviations, where a uniform law ends and a normal one does not."""
        room = 1.0 + _SIGMAS * self.standard_error / self.mean_square if self.mean_square > 0.0 else 1.0
        return self.reach**2 <= 3.0 * self.mean_square * room


def _orthogonal_gain(w: torch.Tensor) -> float | None:
    matrix = w.flatten(1) if w.ndim > 1 else w[None]
    matrix = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
    if matrix.shape[0] < 2:
        return None
    gram = matrix @ matrix.T
    size = float(gram.diagonal().mean())
    if size <= 0.0:
        return None
    gram = gram / size
    gram.diagonal().sub_(1.0)
    return math.sqrt(size) if float(gram.abs().max()) < 1e-4 else None


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
    """Initialize until every weight has 20 000 entries and every bias 2 000, or 16 times (small models: up to 256)."""
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
            most = min(_MOST, max(_LEAST, _BUDGET // max(1, sum(s.count for s in numbers.values()))))
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
        if self.asked is not None and _of_size(self.bias, self.asked):
            return self.asked
        return self.default_bias if _bounded(self.bias, 1.0 / math.sqrt(self.fan_in)) else self.bias.mean_square

    @property
    def default_bias(self) -> float:
        """σb² of PyTorch's default."""
        return 1.0 / (3.0 * self.fan_in)


def estimate(weight: Numbers, bias: Numbers | None, shape: torch.Size, init: Init) -> Estimate:
    """From the statistics of a weight of shape (units, inputs, …) and of its bias."""
    units, fan_in = shape[0], math.prod(shape[1:])
    rules = tuple(_fitting(weight, fan_in, units * math.prod(shape[2:]), units, init))
    return Estimate(weight, bias, fan_in, rules, float(init[1]) if isinstance(init, tuple) else None)


def favourites(estimates: Iterable[Estimate]) -> list[str]:
    """Rules by how many layers each fits: a model is mostly initialized by one."""
    votes: dict[str, int] = {}
    for one in estimates:
        for name, _ in one.rules:
            votes[name] = votes.get(name, 0) + 1
    return sorted(votes, key=lambda name: -votes[name])


def _rules(fan_in: int, fan_out: int) -> Iterator[tuple[str, float]]:
    both = fan_in + fan_out
    yield "Kaiming", 2.0
    yield "LeCun", 1.0
    yield "Xavier", 2.0 * fan_in / both
    yield "Kaiming by fan-out", 2.0 * fan_in / fan_out
    yield "Xavier with ReLU's gain", 4.0 * fan_in / both
    yield "Xavier with tanh's gain", 50.0 / 9.0 * fan_in / both
    yield "Kaiming with tanh's gain", 25.0 / 9.0


def _fitting(weight: Numbers, fan_in: int, fan_out: int, units: int, init: Init) -> Iterator[tuple[str, float]]:
    if weight.constant is not None:
        return
    if weight.gain is not None:  # no sampling error: all rows, or all columns, have the length `gain`
        for square, name in ((1.0, "orthogonal"), (2.0, "orthogonal with ReLU's gain")):
            if abs(weight.gain**2 / square - 1.0) < 1e-4:
                yield name, square * fan_in / max(fan_in, units)
        return
    if weight.uniform:
        if _bounded(weight, 1.0 / math.sqrt(fan_in)):
            yield TORCH_DEFAULT, 1.0 / 3.0
        for name, value in _rules(fan_in, fan_out):
            if _bounded(weight, math.sqrt(3.0 * value / fan_in)):
                yield f"{name} uniform", value
        return
    known = list(_rules(fan_in, fan_out))
    if isinstance(init, tuple):
        known = [("init", float(init[0]))]
    for name, value in known:
        if _of_size(weight, value / fan_in):
            yield f"{name} normal" if name != "init" else "init=", value
    for std in (0.02, 0.01):
        if not isinstance(init, tuple) and _of_size(weight, std * std):
            yield f"normal, standard deviation {std}", std * std * fan_in


def _bounded(numbers: Numbers, bound: float) -> bool:
    """Whether the entries fill [−bound, bound]: the largest of n misses it by t·bound with probability (1 − t)ⁿ."""
    if not numbers.uniform or numbers.reach > bound * (1.0 + 1e-5):
        return False
    return numbers.count * math.log(max(numbers.reach / bound, 1e-300)) >= math.log(_FALSE_ALARM)


def _of_size(numbers: Numbers, square: float) -> bool:
    """Whether normal entries of this variance would have this mean square."""
    return abs(numbers.mean_square / square - 1.0) <= _SIGMAS * math.sqrt(2.0 / numbers.count) if square > 0 else False
