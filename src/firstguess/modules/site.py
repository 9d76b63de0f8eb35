"""Modules with parameters: random weights as their variances, parameters of norms as constants."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, cast

import torch
from torch import nn
from torch.nn.utils import parametrize

from firstguess.modules.initializers import Init
from firstguess.modules.kinds import (
    FLAT,
    IMAGE,
    Meaning,
    Place,
    affine,
    is_rms_norm,
    known_class,
    plain_module,
    refusal,
    tried_rms_norm,
)
from firstguess.modules.structure import Variances
from firstguess.modules.variances import TORCH_DEFAULT, Draws, Estimate, estimate, favourites, tensor_at
from firstguess.network.activations import lookup
from firstguess.network.layers import Activate, BatchNorm, Conv, Dense, Layer, Shift

_ZERO = "weights and biases start at zero: its output is the same on all inputs, and guesses are ties"

_VECTORS = (
    "inputs are taken to be vectors: with an example of them, a dense layer that acts on every position alike would be "
    "noticed"
)


def parameter_names(model: nn.Module) -> Iterator[str]:
    """Every weight and bias that the reading may want, by its first name."""
    for path, module in model.named_modules():
        if known_class(module) is not None or is_rms_norm(module):
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
            if isinstance(module, (nn.Linear, nn.Conv2d)) and weight in self.draws.numbers:
                tensor = tensor_at(self.model, weight)
                if tensor is not None:
                    numbers = self.draws.numbers
                    self.estimates[path] = estimate(numbers[weight], numbers.get(bias), tensor.shape, self.init)
        self.favourites = favourites(self.estimates.values())

    @staticmethod
    def _name(path: str, what: str) -> str:
        return f"{path}.{what}" if path else what

    def meaning(self, path: str, place: Place) -> Meaning:
        module = self.model.get_submodule(path)
        kind = known_class(module)
        if vars(module).get("_forward_hooks") or vars(module).get("_forward_pre_hooks"):
            return Meaning(why="has forward hooks, which may change what it does")
        if is_rms_norm(module) and kind is None:
            return tried_rms_norm(module, place)
        if kind is None:
            return Meaning(why=refusal(module))
        if issubclass(kind, (nn.Linear, nn.Conv2d)):
            return self._random(path, module, place)
        if issubclass(kind, nn.PReLU):
            return self._prelu(path)
        plain = plain_module(module, kind, place)
        return plain if plain.why else self._with_parameters(path, module, plain)

    def _prelu(self, path: str) -> Meaning:
        numbers = self.draws.numbers.get(self._name(path, "weight"))
        slope = None if numbers is None else numbers.constant
        if slope is None:
            return Meaning(why="its slopes differ")
        return Meaning((Activate(lookup.activation("prelu", slope=slope)),))

    def _with_parameters(self, path: str, module: nn.Module, plain: Meaning) -> Meaning:
        values: list[float | None] = []
        for what in ("weight", "bias"):
            numbers = self.draws.numbers.get(self._name(path, what))
            if numbers is not None and numbers.constant is None:
                return Meaning(why=f"its {what} differs from node to node at initialization")
            values.append(None if numbers is None else numbers.constant)
        notes = plain.notes
        if any(isinstance(layer, BatchNorm) for layer in plain.layers):
            notes = (
                *notes,
                "BatchNorm is described with all data as one batch, as in training; the batch size matters (theory.md "
                "(5)), and in evaluation mode an untrained BatchNorm does nothing",
            )
        more = affine(plain.layers, values[0], values[1], f"{path} ({type(module).__name__})")
        return replace(plain, layers=more.layers, notes=(*notes, *more.notes))

    def _random(self, path: str, module: nn.Module, place: Place) -> Meaning:
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
        is_conv = isinstance(module, nn.Conv2d)
        if why := _conv_refusal(module) if is_conv else _dense_refusal(place):
            return Meaning(why=why)
        if found.weight.off_centre and found.weight.constant != 0.0:
            return Meaning(why="its weights have a mean other than 0, which the theory does not cover")
        constant = None if found.bias is None else found.bias.constant
        if found.bias is not None and constant is None and found.bias.off_centre:
            return Meaning(why="its biases have a mean other than 0 and differ, which the theory does not cover")
        rule, weight_var = found.choose(self.favourites) if found.weight.constant is None else ("zero", 0.0)
        bias_var = found.bias_var()
        if rule == TORCH_DEFAULT and found.bias is not None and bias_var != found.default_bias:
            rule = f"{TORCH_DEFAULT} for weights, not for biases"
        variances = Variances(
            found.measured,
            found.standard_error,
            bias_var if found.bias is None or constant is not None else found.bias.mean_square,
            0.0 if found.bias is None or constant is not None else found.bias.standard_error,
            rule,
            self.draws.count,
        )
        after: tuple[Layer, ...] = (Shift(constant),) if constant else ()
        notes = (f"{path} starts with biases of {constant:g}",) if constant else ()
        if weight_var == 0.0 == bias_var:
            return Meaning(why=_ZERO, variances=variances, zero=not constant)
        if weight_var == 0.0:
            notes = (*notes, f"{path} starts with weights of 0: its output is its bias on all inputs")
        if not is_conv and place.axes is None:
            notes = (*notes, _VECTORS)
        orthogonal = found.weight.gain is not None
        layer: Layer
        if is_conv:
            m = cast(Any, module)
            padding = m.padding if not isinstance(m.padding, str) else (m.kernel_size[0] // 2,) * 2
            padding = (0, 0) if m.padding == "valid" else padding
            layer = Conv(weight_var, bias_var, m.out_channels, m.kernel_size[0], m.stride[0], padding[0])
            if orthogonal:
                notes = (*notes, f"{path} is orthogonal: its description has the variance only")
        else:
            init = "orthogonal" if orthogonal else "normal"
            layer = Dense(weight_var, bias_var, int(weight.shape[0]), init)
        axes = IMAGE if is_conv else FLAT
        return Meaning((layer, *after), axes=axes, notes=notes, variances=variances)


def _sources(module: nn.Module, weight: torch.Tensor) -> list[int]:
    """The ids of a module and of what its weights are made from: a parametrization makes new tensors at every look."""
    if not parametrize.is_parametrized(module, "weight"):
        return [id(module), id(weight)]
    made = cast(nn.Module, cast(Any, module).parametrizations["weight"])
    return [id(module), *(id(p) for name, p in made.named_parameters(recurse=False) if name.startswith("original"))]


def _dense_refusal(place: Place) -> str:
    if place.axes in (None, FLAT):
        return ""
    return (
        f"acts on the last axis of a batch with {place.axes} axes, with the same weights at every position; a "
        "description's dense layer is over all nodes of a sample"
    )


def _conv_refusal(module: nn.Module) -> str:
    m = cast(Any, module)
    if m.groups != 1:
        return f"groups = {m.groups}: a description's convolution sees all channels"
    if m.dilation != (1, 1):
        return f"dilation = {m.dilation[0]}: a description's convolution has none"
    if m.padding_mode != "zeros":
        return f"padding_mode = {m.padding_mode}: a description's convolution pads with zeros"
    (high, wide), stride = m.kernel_size, m.stride
    if high != wide or stride[0] != stride[1]:
        return f"a kernel of {high}×{wide} at a stride of {stride[0]}×{stride[1]}: a description's are square"
    if m.padding == "same":
        return "" if high % 2 else f"padding to the same size with an even kernel ({high}) is lopsided"
    if not isinstance(m.padding, str) and m.padding[0] != m.padding[1]:
        return f"padding of {m.padding[0]}×{m.padding[1]}: a description's is the same on all sides"
    return ""
