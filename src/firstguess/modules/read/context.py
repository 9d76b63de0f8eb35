"""Modules with parameters: random weights as their variances, parameters of norms as constants."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import torch
from torch import nn
from torch.nn.utils import parametrize

from firstguess.ensemble.seeds import member_seeds
from firstguess.modules.members.initializers import Init
from firstguess.modules.members.sources import Source
from firstguess.modules.members.weight_statistics import TORCH_DEFAULT, Numbers, bounded, fitting, of_size
from firstguess.modules.read.dispatch import claim, refusal
from firstguess.network.layer import Layer, RandomWeights, ReadContext, ReadResult, Variances
from firstguess.network.layers import Scale, Shift

# Variances of weights, from the initializers themselves: draw, estimate, and recognise the rule where there is one.

ENOUGH = 20_000  # weights of a layer from which σw² is known to 1 %
_FEW = 2_000  # biases of a layer
_BUDGET = 20_000_000  # numbers that are drawn beyond the least of 16 initializations
_LEAST, _MOST = 16, 256
_PATIENCE = 160_000_000  # numbers that are drawn for these 16: a second or two; of larger models, two initializations


@dataclass(frozen=True)
class ParameterDraws:
    """Statistics of every parameter that the reading asks for, by name, over `count` initializations."""

    numbers: dict[str, Numbers]
    count: int


def tensor_at(model: nn.Module, name: str) -> torch.Tensor | None:
    """The parameter (or what a parametrization makes of it) under a dotted name."""
    owner, _, last = name.rpartition(".")
    value = getattr(model.get_submodule(owner), last, None)
    return value if isinstance(value, torch.Tensor) else None


def draw(source: Source, names: Iterable[str], seed: int) -> ParameterDraws:
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
    return ParameterDraws(numbers, done)


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

    def variances(self, rule: str, draws: int, distribution: str = "") -> Variances:
        """What was measured, and the rule that it was recognised as."""
        random = None if self.bias is None or self.bias.constant is not None else self.bias
        bias = (0.0, 0.0) if random is None else (random.mean_square, random.standard_error)
        return Variances(self.measured, self.standard_error, *bias, rule, draws, distribution)


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


_ZERO = "weights and biases start at zero: its output is the same on all inputs, and guesses are ties"


def parameter_names(model: nn.Module) -> Iterator[str]:
    """Every weight and bias that the reading may want, by its first name."""
    for path, module in model.named_modules():
        if claim(module) is not None:
            for name in ("weight", "bias"):
                if isinstance(getattr(module, name, None), torch.Tensor):
                    yield f"{path}.{name}" if path else name


@dataclass
class Modules:
    """The meaning of every module of `model`, with what is known of its parameters' distributions."""

    model: nn.Module
    draws: ParameterDraws
    init: Init = None
    used: dict[int, str] = field(default_factory=dict[int, str])  # what some layer has its weights from already, by id
    estimates: dict[str, Estimate] = field(default_factory=dict[str, Estimate])  # by name of the weight

    def __post_init__(self) -> None:
        for path, module in self.model.named_modules():
            weight, bias = self._name(path, "weight"), self._name(path, "bias")
            claimed = claim(module)
            if claimed is not None and _weighted(claimed.kind) and weight in self.draws.numbers:
                tensor = tensor_at(self.model, weight)
                if tensor is not None:
                    numbers = self.draws.numbers
                    self.estimates[weight] = estimate(numbers[weight], numbers.get(bias), tensor.shape, self.init)
        self.favourites = favourites(self.estimates.values())

    @staticmethod
    def _name(path: str, what: str) -> str:
        return f"{path}.{what}" if path else what

    def meaning(self, path: str, axes: int | None, shape: tuple[int, ...] | None = None) -> ReadResult:
        """What a module is that gets a batch with this many axes, or (where an example was run) of this shape."""
        module = self.model.get_submodule(path)
        claimed = claim(module)
        if vars(module).get("_forward_hooks") or vars(module).get("_forward_pre_hooks"):
            return ReadResult(why="has forward hooks, which may change what it does")
        if claimed is None:
            return ReadResult(why=refusal(module))
        numbers = {what: self.draws.numbers.get(self._name(path, what)) for what in ("weight", "bias")}
        constants = {what: found.constant for what, found in numbers.items() if found is not None}
        context = ReadContext(axes, shape, path, claimed.name, constants=constants)
        if _weighted(claimed.kind):
            return self._random(path, module, claimed.meaning, context)
        found = claimed.meaning(module, context)
        return _with_constants(found, f"{path} ({type(module).__name__})", context) if found.affine else found

    def _random(
        self, path: str, module: nn.Module, say: Callable[[Any, ReadContext], ReadResult], context: ReadContext
    ) -> ReadResult:
        """A module whose weights are drawn: its kind gets their distribution; biases of one constant are a shift."""
        found = self.estimates.get(self._name(path, "weight"))
        weight = tensor_at(self.model, self._name(path, "weight"))
        if found is None or weight is None:
            return ReadResult(why="its weights could not be drawn")
        sources = _sources(module, weight)
        shared = next((self.used[key] for key in sources if key in self.used), None)
        if shared is not None:
            what = "is called more than once" if shared == path else f"shares its weights with {shared}"
            return ReadResult(why=f"{what}; a description has new weights in every layer")
        self.used.update(dict.fromkeys(sources, path))
        constant = None if found.bias is None else found.bias.constant
        rule, weight_var = found.choose(self.favourites) if found.weight.constant is None else ("zero", 0.0)
        bias_var = found.bias_var()
        units, orthogonal = int(weight.shape[0]), found.weight.gain is not None
        weights = RandomWeights(weight_var, bias_var, units, orthogonal, _odd_distribution(found, weight_var, bias_var))
        meaning = say(module, replace(context, weights=weights))
        if meaning.why:
            return replace(meaning, zero=meaning.why == _ZERO and not constant)
        if rule == TORCH_DEFAULT and found.bias is not None and bias_var != found.default_bias:
            rule = f"{TORCH_DEFAULT} for weights, not for biases"
        variances = found.variances(rule, self.draws.count, found.weight.law)
        after: tuple[Layer, ...] = (Shift(constant),) if constant else ()
        notes = (f"{path} starts with biases of {constant:g}",) if constant else ()
        if weight_var == 0.0:
            notes = (*notes, f"{path} starts with weights of 0: its output is its bias on all inputs")
        return replace(meaning, layers=(*meaning.layers, *after), notes=(*notes, *meaning.notes), variances=variances)


def _weighted(kind: type[Layer] | None) -> bool:
    return kind is not None and kind.weighted


def _odd_distribution(found: Estimate, weight_var: float, bias_var: float) -> str:
    """Why weights and biases have a distribution that a description does not say; "" if it does."""
    if found.weight.off_centre and found.weight.constant != 0.0:
        return "its weights have a mean other than 0, which the theory does not cover"
    if found.bias is not None and found.bias.constant is None and found.bias.off_centre:
        return "its biases have a mean other than 0 and differ, which the theory does not cover"
    return _ZERO if weight_var == 0.0 == bias_var else ""


def _with_constants(norm: ReadResult, what: str, context: ReadContext) -> ReadResult:
    """A norm and its parameters, all equal within each: (1, 0) adds nothing, others a scale and a shift."""
    odd = next((name for name, value in context.constants.items() if value is None), None)
    if odd is not None:
        return ReadResult(why=f"its {odd} differs from node to node at initialization")
    weight, bias = context.constants.get("weight"), context.constants.get("bias")
    layers, notes = norm.layers, norm.notes
    if weight not in (None, 1.0):
        layers, notes = (*layers, Scale(weight)), (*notes, f"{what} starts with weights of {weight:g}, not 1")
    if bias not in (None, 0.0):
        layers, notes = (*layers, Shift(bias)), (*notes, f"{what} starts with biases of {bias:g}, not 0")
    return replace(norm, layers=layers, notes=notes)


def _sources(module: nn.Module, weight: torch.Tensor) -> list[int]:
    """The ids of a module and of what its weights are made from: a parametrization makes new tensors at every look."""
    if not parametrize.is_parametrized(module, "weight"):
        return [id(module), id(weight)]
    made = cast(nn.Module, cast(Any, module).parametrizations["weight"])
    return [id(module), *(id(p) for name, p in made.named_parameters(recurse=False) if name.startswith("original"))]
