"""The guard of a reading: the description, filled with the model's own weights, has to give the model's own outputs."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from firstguess.base.errors import FirstguessError
from firstguess.ensemble.places import resolve
from firstguess.modules.guard import PrivateRandomness
from firstguess.modules.transformers_read.pieces import Fill, Piece, Tensors
from firstguess.network.layers import Dense, PoolTokens
from firstguess.network.network import Network
from firstguess.network.tensors import Place, Weights
from firstguess.network.token_modules import join

_TOLERANCE = {torch.float64: 1e-4, torch.float32: 1e-3}  # of the outputs' own size
_LARGE = 3_000_000  # parameters from which on there is no copy in double precision
_BIASES = 0.3


@dataclass
class _Filled:
    """In the place of a member's draws: the model's own parameters, one after another; at last the identity."""

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


def disagreement(
    model: nn.Module,
    pieces: Sequence[Piece],
    inputs: torch.Tensor,
    call: Callable[[nn.Module, torch.Tensor], Any],
    *,
    classes: int | None,
    norms: set[str],
    ending: Callable[[torch.Tensor], torch.Tensor] | None = None,
    seed: int = 0,
) -> str:
    """Where the description with the model's weights gives other outputs than the model, in words; "": nowhere.

    `call` gives the model's outputs (1, …, classes) for one input; `classes` None: they are tokens or nodes, without a
    head. Twice: with the weights as they are drawn, where ε counts, and with larger ones and all biases, where
    attention is far from uniform. `ending`: what the model does to logits. Nothing of the model is changed.
    """
    one = copy.deepcopy(model).eval().requires_grad_(False)
    small = sum(p.numel() for p in one.parameters()) < _LARGE
    one = one.double() if small else one.float()
    given = inputs.to(next(one.parameters()).dtype) if inputs.is_floating_point() else inputs
    with PrivateRandomness(seed), torch.no_grad():
        for larger in (False, True):
            if larger:
                _enlarge(one, norms)
            try:
                said = _apart(one, pieces, given, call, classes, ending)
            except FirstguessError as error:
                said = f"the description does not fit the model: {error}"
            except Exception as error:  # of a model that does not take these inputs, or a shape that does not fit
                said = f"it could not be compared with its description ({type(error).__name__}: {error})"
            if said:
                return said.splitlines()[0]
    return ""


def _enlarge(model: nn.Module, norms: set[str]) -> None:
    """Weights that make logits of attention differ by about 1, and biases; norms stay as they are."""
    for name, parameter in model.named_parameters():
        if name in norms:
            continue
        size = parameter[0].numel() ** -0.5 if parameter.ndim > 1 else _BIASES
        parameter.add_(torch.randn_like(parameter) * min(size, 1.0))


def _apart(
    model: nn.Module,
    pieces: Sequence[Piece],
    inputs: torch.Tensor,
    call: Callable[..., Any],
    classes: int | None,
    ending: Callable[[torch.Tensor], torch.Tensor] | None,
) -> str:
    rows = [call(model, x[None]) for x in inputs]
    wanted = torch.cat(rows)
    checks = [piece.check for piece in pieces]
    padding = getattr(checks[0], "padding", None)
    real = torch.ones(wanted.shape[:2]) if padding is None or wanted.ndim < 3 else (inputs != padding)
    if classes is None:  # no head: the mean over tokens, through an identity
        if wanted.ndim == 3:
            wanted = (wanted * real.unsqueeze(2)).sum(1) / real.sum(1, keepdim=True)
            checks.append(PoolTokens("mean"))
        checks.append(Dense())
    network = Network(tuple(checks), wanted.shape[-1])
    vocabulary = getattr(checks[0], "vocabulary", None)
    places = resolve(network, tuple(inputs.shape[1:]), width=2, inputs=lambda: None, vocabulary=vocabulary)
    filled = _Filled([fill for piece in pieces for fill in piece.fills], model.get_parameter)
    twin = filled.path(places).to(wanted.dtype)
    join(twin)
    if filled.used != len(filled.fills):
        return "the description has no place for some of the model's weights"
    found = twin(inputs)
    found = found if ending is None else ending(found)
    if wanted.ndim == 3:  # a guess at every token: those of padding are nobody's
        found, wanted = (x[real.bool()] for x in (found, wanted))
    size = max(float(wanted.double().pow(2).mean().sqrt()), 1e-30)
    worst = float((found - wanted).abs().max()) / size
    if worst <= _TOLERANCE[wanted.dtype]:
        return ""
    return f"its description, with the same weights, gives other outputs (by {worst:.1e} of their size)"
