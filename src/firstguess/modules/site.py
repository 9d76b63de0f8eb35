"""Modules with parameters: random weights as their variances, parameters of norms as constants."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, cast

import torch
from torch import nn
from torch.nn.utils import parametrize

from firstguess.modules.claims import claim, refusal
from firstguess.modules.initializers import Init
from firstguess.modules.variances import TORCH_DEFAULT, Draws, Estimate, estimate, favourites, tensor_at
from firstguess.network.layer import Layer, Meaning
from firstguess.network.layers import Scale, Shift
from firstguess.network.meaning import RandomWeights, Site, Variances

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
    """The meaning of every module of `model`, with what is known of its parameters' laws."""

    model: nn.Module
    draws: Draws
    init: Init = None
    used: dict[int, str] = field(default_factory=dict[int, str])  # what some layer has its weights from already, by id
    estimates: dict[str, Estimate] = field(default_factory=dict[str, Estimate])

    def __post_init__(self) -> None:
        for path, module in self.model.named_modules():
            weight, bias = self._name(path, "weight"), self._name(path, "bias")
            claimed = claim(module)
            if claimed is not None and _weighted(claimed.kind) and weight in self.draws.numbers:
                tensor = tensor_at(self.model, weight)
                if tensor is not None:
                    numbers = self.draws.numbers
                    self.estimates[path] = estimate(numbers[weight], numbers.get(bias), tensor.shape, self.init)
        self.favourites = favourites(self.estimates.values())

    @staticmethod
    def _name(path: str, what: str) -> str:
        return f"{path}.{what}" if path else what

    def meaning(self, path: str, axes: int | None, shape: tuple[int, ...] | None = None) -> Meaning:
        """What a module is that gets a batch with so many axes, or (where an example was run) of this shape."""
        module = self.model.get_submodule(path)
        claimed = claim(module)
        if vars(module).get("_forward_hooks") or vars(module).get("_forward_pre_hooks"):
            return Meaning(why="has forward hooks, which may change what it does")
        if claimed is None:
            return Meaning(why=refusal(module))
        numbers = {what: self.draws.numbers.get(self._name(path, what)) for what in ("weight", "bias")}
        constants = {what: found.constant for what, found in numbers.items() if found is not None}
        site = Site(axes, shape, path, claimed.name, constants=constants)
        if _weighted(claimed.kind):
            return self._random(path, module, claimed.meaning, site)
        found = claimed.meaning(module, site)
        return _with_constants(found, f"{path} ({type(module).__name__})", site) if found.affine else found

    def _random(self, path: str, module: nn.Module, say: Callable[[Any, Site], Meaning], site: Site) -> Meaning:
        """A module whose weights are drawn: their law goes to its kind; biases that are one constant are a shift."""
        found = self.estimates.get(path)
        weight = tensor_at(self.model, self._name(path, "weight"))
        if found is None or weight is None:
            return Meaning(why="its weights could not be drawn")
        sources = _sources(module, weight)
        shared = next((self.used[key] for key in sources if key in self.used), None)
        if shared is not None:
            what = "is called more than once" if shared == path else f"shares its weights with {shared}"
            return Meaning(why=f"{what}; a description has new weights in every layer")
        self.used.update(dict.fromkeys(sources, path))
        constant = None if found.bias is None else found.bias.constant
        rule, weight_var = found.choose(self.favourites) if found.weight.constant is None else ("zero", 0.0)
        bias_var = found.bias_var()
        units, orthogonal = int(weight.shape[0]), found.weight.gain is not None
        weights = RandomWeights(weight_var, bias_var, units, orthogonal, _odd_law(found, weight_var, bias_var))
        meaning = say(module, replace(site, weights=weights))
        if meaning.why:
            return replace(meaning, zero=meaning.why == _ZERO and not constant)
        if rule == TORCH_DEFAULT and found.bias is not None and bias_var != found.default_bias:
            rule = f"{TORCH_DEFAULT} for weights, not for biases"
        variances = Variances(
            found.measured,
            found.standard_error,
            bias_var if found.bias is None or constant is not None else found.bias.mean_square,
            0.0 if found.bias is None or constant is not None else found.bias.standard_error,
            rule,
            self.draws.count,
            found.weight.law,
        )
        after: tuple[Layer, ...] = (Shift(constant),) if constant else ()
        notes = (f"{path} starts with biases of {constant:g}",) if constant else ()
        if weight_var == 0.0:
            notes = (*notes, f"{path} starts with weights of 0: its output is its bias on all inputs")
        return replace(meaning, layers=(*meaning.layers, *after), notes=(*notes, *meaning.notes), variances=variances)


def _weighted(kind: type[Layer] | None) -> bool:
    return kind is not None and kind.weighted


def _odd_law(found: Estimate, weight_var: float, bias_var: float) -> str:
    """Why weights and biases have a law that a description does not say; "" if it does."""
    if found.weight.off_centre and found.weight.constant != 0.0:
        return "its weights have a mean other than 0, which the theory does not cover"
    if found.bias is not None and found.bias.constant is None and found.bias.off_centre:
        return "its biases have a mean other than 0 and differ, which the theory does not cover"
    return _ZERO if weight_var == 0.0 == bias_var else ""


def _with_constants(norm: Meaning, what: str, site: Site) -> Meaning:
    """A norm and its parameters, all equal within each: (1, 0) adds nothing, others a scale and a shift."""
    odd = next((name for name, value in site.constants.items() if value is None), None)
    if odd is not None:
        return Meaning(why=f"its {odd} differs from node to node at initialization")
    weight, bias = site.constants.get("weight"), site.constants.get("bias")
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
