"""The guard of a reading of tokens: the description, filled with the model's own weights, gives the model's outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
from torch import nn

from firstguess.base.errors import FirstguessError
from firstguess.data.streams import IsolatedRandomness
from firstguess.ensemble.member_module import resolve
from firstguess.modules.guard import own_copy
from firstguess.network.layer import Layer
from firstguess.network.layers import Dense, PoolTokens
from firstguess.network.network import Network
from firstguess.network.tensors import Place, Weights
from firstguess.network.torch_ops import join

Tensors: TypeAlias = Callable[[str], torch.Tensor]  # a parameter by its name in the model


@dataclass(frozen=True)
class ModelTensor:
    """A parameter of the model or some of its rows, as (units, inputs)."""

    name: str
    transposed: bool = False  # GPT-2's Conv1D: (inputs, units)
    rows: tuple[int, int | None] = (0, None)  # from, to

    def of(self, tensors: Tensors) -> torch.Tensor:
        value = tensors(self.name)
        value = value.T if self.transposed else value
        value = value.reshape(-1, value.shape[-1]) if value.ndim == 3 and len(value) == 1 else value  # (1, tokens, D)
        return value[slice(*self.rows)]


@dataclass(frozen=True)
class Fill:
    """What a module of a layer is filled with where it would draw: rows of these, one below the other."""

    weights: tuple[ModelTensor, ...]
    biases: tuple[ModelTensor | None, ...] = ()

    def weight(self, tensors: Tensors) -> torch.Tensor:
        return torch.cat([own.of(tensors) for own in self.weights])

    def bias(self, tensors: Tensors) -> torch.Tensor:
        """Zeros where the model has none."""
        weights = [own.of(tensors) for own in self.weights]
        pairs = zip(weights, self.biases, strict=True)
        return torch.cat([w.new_zeros(len(w)) if own is None else own.of(tensors) for w, own in pairs])


@dataclass
class Filled:
    """How layers that were read are filled: by identity, since layers that are equal have weights of their own."""

    own: dict[int, tuple[Layer, Layer, tuple[Fill, ...]]] = field(
        default_factory=dict[int, "tuple[Layer, Layer, tuple[Fill, ...]]"]
    )
    kept: set[str] = field(default_factory=set[str])  # parameters of norms: one constant each

    def add(self, layer: Layer, check: Layer, *fills: Fill) -> None:
        """`check`: the layer with biases wherever the model has them; its module draws `fills` in this order."""
        self.own[id(layer)] = layer, check, fills

    def checks(self, layers: Sequence[Layer]) -> tuple[Layer, ...]:
        """The layers as they are compared."""
        found = (self.own[id(x)][1] if id(x) in self.own else x for x in layers)
        return tuple(x.with_paths(self.checks) if x.paths else x for x in found)

    def fills(self, layers: Sequence[Layer]) -> Iterator[Fill]:
        """What they are filled with, in the order of drawing."""
        for layer in layers:
            for path in layer.paths:
                yield from self.fills(path)
            yield from self.own[id(layer)][2] if id(layer) in self.own else ()


@dataclass
class _Weights:
    """Stand in for a member's draws: the model's own parameters, one after another; at last the identity."""

    fills: list[Fill]
    tensors: Tensors
    used: int = field(default=0)

    def fill(self, module: nn.Module, weights: Weights) -> nn.Module:
        parameter = module.get_parameter("weight")
        with torch.no_grad():
            if self.used >= len(self.fills):
                parameter.copy_(torch.eye(*parameter.shape))
                return module
            one = self.fills[self.used]
            self.used += 1
            value = one.weight(self.tensors)
            value = value[: len(parameter)] if parameter.ndim == 2 and value.ndim == 2 else value  # places of the table
            module.to(value.dtype)
            parameter = module.get_parameter("weight")
            parameter.copy_(value.reshape(parameter.shape))
            if weights.bias_var > 0.0:
                module.get_parameter("bias").copy_(one.bias(self.tensors))
        return module

    def path(self, places: Sequence[Place]) -> nn.Sequential:
        return nn.Sequential(*(place.layer.module(place, self) for place in places))


_TOLERANCE = {torch.float64: 1e-4, torch.float32: 1e-3}  # of the outputs' own size
_LARGE = 3_000_000  # parameters from which on there is no copy in double precision
_BIASES = 0.3


def difference(
    model: nn.Module,
    layers: Sequence[Layer],
    filled: Filled,
    inputs: torch.Tensor,
    call: Callable[[nn.Module, torch.Tensor], torch.Tensor],
    *,
    head: bool,
    ending: Callable[[torch.Tensor], torch.Tensor] = lambda x: x,
) -> str:
    """Why the description with the model's weights does not give the model's outputs; "": it does.

    `call` gives the model's outputs (1, …, classes) for one input; without a `head` they are tokens or nodes. Twice:
    with the weights as they are drawn, where ε counts, and with larger ones and all biases, where attention is far from
    uniform. `ending`: what the model does to logits. Nothing of the model is changed.
    """
    one = own_copy(model)
    if one is None:
        return "the model cannot be copied, so it could not be compared with its description"
    one = one.eval().requires_grad_(False)
    one = one.double() if sum(p.numel() for p in one.parameters()) < _LARGE else one.float()
    given = inputs.to(next(one.parameters()).dtype) if inputs.is_floating_point() else inputs
    why = ""
    with IsolatedRandomness(0), torch.no_grad():
        for larger in (False, True):
            if larger:
                _enlarge(one, filled.kept)
            try:
                why = why or _apart(one, layers, filled, given, call, head, ending)
            except FirstguessError as error:
                why = f"the description does not fit the model: {error}"
            except Exception as error:  # of a model that does not take these inputs, or a shape that does not fit
                why = f"it could not be compared with its description ({type(error).__name__}: {error})"
    return why.partition("\n")[0] or _shared(model, list(filled.fills(layers)))


def _enlarge(model: nn.Module, kept: set[str]) -> None:
    """Weights that make logits of attention differ by about 1, and biases; norms stay as they are."""
    for name, parameter in model.named_parameters():
        if name in kept:
            continue
        size = parameter[0].numel() ** -0.5 if parameter.ndim > 1 else _BIASES
        parameter.add_(torch.randn_like(parameter) * min(size, 1.0))


def _apart(
    model: nn.Module,
    layers: Sequence[Layer],
    filled: Filled,
    inputs: torch.Tensor,
    call: Callable[..., Any],
    head: bool,
    ending: Callable[[torch.Tensor], torch.Tensor],
) -> str:
    wanted = torch.cat([call(model, x[None]) for x in inputs])
    checks = [*filled.checks(layers)]
    padding = getattr(checks[0], "padding", None)
    real = torch.ones(wanted.shape[:2]) if padding is None or wanted.ndim < 3 else (inputs != padding)
    if not head:  # the mean over tokens, through an identity
        if wanted.ndim == 3:
            wanted = (wanted * real.unsqueeze(2)).sum(1) / real.sum(1, keepdim=True)
            checks.append(PoolTokens("mean"))
        checks.append(Dense())
    network = Network(tuple(checks), wanted.shape[-1])
    vocabulary = getattr(checks[0], "vocabulary", None)
    places = resolve(network, tuple(inputs.shape[1:]), width=2, inputs=lambda: None, vocabulary=vocabulary)
    weights = _Weights(list(filled.fills(layers)), model.get_parameter)
    twin = weights.path(places).to(wanted.dtype)
    join(twin)
    if weights.used != len(weights.fills):
        return "the description has no place for some of the model's weights"
    found = ending(twin(inputs))
    if wanted.ndim == 3:  # a guess at every token: those of padding are nobody's
        found, wanted = (x[real.bool()] for x in (found, wanted))
    size = max(float(wanted.double().pow(2).mean().sqrt()), 1e-30)
    worst = float((found - wanted).abs().max()) / size
    if worst <= _TOLERANCE[wanted.dtype]:
        return ""
    return f"its description, with the same weights, gives other outputs (by {worst:.1e} of their size)"


def _shared(model: nn.Module, fills: Sequence[Fill]) -> str:
    """Why weights that are used twice have no description; "": none are."""
    used = [(id(model.get_parameter(own.name)), own.rows, own.name) for one in fills for own in one.weights]
    seen = {one[:2] for one in used}
    if len(seen) == len(used):
        return ""
    name = next(name for *key, name in used if sum(other[:2] == tuple(key) for other in used) > 1)
    return f"{name} is used more than once; a description has new weights in every layer"
