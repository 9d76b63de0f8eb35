"""Initialization rules for the weights of any module: by name, by (weight_var, bias_var), or a user's function."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias, cast

import torch
from torch import nn
from torch.nn.utils import parametrize

from firstguess.base.errors import InvalidInput

Init: TypeAlias = "str | tuple[float, float] | Callable[[nn.Module], Any] | None"

_NAMED: dict[str, Callable[[torch.Tensor], Any]] = {
    "kaiming_normal": lambda w: nn.init.kaiming_normal_(w, nonlinearity="relu"),
    "kaiming_uniform": lambda w: nn.init.kaiming_uniform_(w, nonlinearity="relu"),
    "xavier_normal": nn.init.xavier_normal_,
    "xavier_uniform": nn.init.xavier_uniform_,
    "orthogonal": nn.init.orthogonal_,
}
_LOOKUPS = (nn.Embedding, nn.EmbeddingBag)  # rows are looked up, not summed: they have no fan-in
_TRANSPOSED = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)
CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, *_TRANSPOSED)
BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
RUNNING_NORMS = (*BATCH_NORMS, nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)


def rule(init: Init) -> Callable[[nn.Module], Any]:
    """What `init` does to one module. Names: torch's own functions, for ReLU (variance 2/fan_in) in the case of Kaiming
    and gain 1 in the case of orthogonal; biases 0. A pair is theory.md §1: W ~ N(0, weight_var/fan_in) and
    b ~ N(0, bias_var).

    Names and pairs reach dense, convolution, recurrent and attention weights; embeddings and norms keep their own
    initializers.

    >>> dense = nn.Linear(4, 2)
    >>> rule((0.0, 0.0))(dense)
    >>> dense.weight.any().item(), dense.bias.any().item()
    (False, False)
    """
    if callable(init):
        return init
    if isinstance(init, str) and init in _NAMED:
        draw = _NAMED[init]
        return lambda module: _fill(module, lambda w, _: draw(w), lambda b: nn.init.zeros_(b))
    if isinstance(init, (tuple, list)) and len(init) == 2:
        weight_var, bias_var = (_variance(value) for value in cast("tuple[object, object]", init))
        return lambda module: _fill(
            module,
            lambda w, fan_in: w.normal_(0.0, math.sqrt(weight_var / fan_in)),
            lambda b: b.normal_(0.0, math.sqrt(bias_var)) if bias_var > 0 else b.zero_(),
        )
    raise InvalidInput(
        f"init as one of {', '.join(_NAMED)}, a pair (weight_var, bias_var) or a function of a module",
        got=repr(init),
        where="init",
        hint="init=(2.0, 0.0)",
    )


def _variance(value: object) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < math.inf:
        return float(value)
    raise InvalidInput("variances of at least 0", got=repr(value), where="init", hint="init=(2.0, 0.0)")


def _fill(module: nn.Module, weight: Callable[[torch.Tensor, float], Any], bias: Callable[[torch.Tensor], Any]) -> None:
    own = dict(module.named_parameters(recurse=False))
    parametrized = parametrize.is_parametrized(module, "weight")
    if parametrized:  # drawn aside and assigned, so that the parametrization inverts it
        own["weight"] = nn.Parameter(cast("torch.Tensor", module.weight).detach().clone())
    weights = list(_weights(module, own))
    with torch.no_grad():
        for tensor, fan_in in weights:
            _in_float(tensor, lambda t, f=fan_in: weight(t, f))
        if weights:
            for name, parameter in own.items():
                if "bias" in name:
                    bias(parameter)
        if parametrized and weights:
            module.weight = own["weight"].detach()


def _in_float(tensor: torch.Tensor, draw: Callable[[torch.Tensor], Any]) -> None:
    """Draw, also where a factorization does not know the type (orthogonal weights in bfloat16)."""
    if tensor.dtype in (torch.float32, torch.float64):
        draw(tensor)
        return
    wide = torch.empty_like(tensor, dtype=torch.float32)
    draw(wide)
    tensor.copy_(wide)


def _weights(module: nn.Module, own: dict[str, nn.Parameter]) -> Iterator[tuple[torch.Tensor, float]]:
    """The weight matrices among a module's `own` parameters, as (units, inputs, …), with their fan-in."""
    if isinstance(module, nn.MultiheadAttention):
        for name, parameter in own.items():
            if name.endswith("proj_weight"):
                for part in parameter.chunk(3) if name == "in_proj_weight" else (parameter,):
                    yield part, part.shape[1]
    elif isinstance(module, nn.RNNBase):
        gates = {"LSTM": 4, "GRU": 3}.get(module.mode, 1)
        for name, parameter in own.items():
            if name.startswith("weight_"):
                for part in parameter.chunk(1 if name.startswith("weight_hr") else gates):
                    yield part, part.shape[1]
    elif isinstance(module, nn.Bilinear):
        yield module.weight, float(module.in1_features * module.in2_features)
    elif is_weighted(module) and "weight" in own:
        parameter = own["weight"]
        if isinstance(module, _TRANSPOSED):
            # Each output sums over the inputs that reach it: in/groups × kernel/stride of them.
            inputs = parameter.shape[0] / module.groups * math.prod(module.kernel_size) / math.prod(module.stride)
            yield parameter, max(inputs, 1.0)
        elif is_hugging_face_conv1d(module):
            yield parameter.T, parameter.shape[0]
        else:
            yield parameter, float(parameter[0].numel())


def is_hugging_face_conv1d(module: nn.Module) -> bool:
    """GPT-2's dense layer, whose weight is (inputs, units)."""
    return type(module).__name__ == "Conv1D" and hasattr(module, "nf")


def is_norm(module: nn.Module) -> bool:
    return "norm" in type(module).__name__.lower() or isinstance(module, (nn.LayerNorm, nn.GroupNorm, *RUNNING_NORMS))


def is_weighted(module: nn.Module) -> bool:
    """Whether a module is a dense or convolution layer, or like one: a weight of two or more axes, and not a norm or an
    embedding."""
    weight = getattr(module, "weight", None)
    return isinstance(weight, torch.Tensor) and weight.ndim >= 2 and not is_norm(module) and not is_lookup(module)


def is_lookup(module: nn.Module) -> bool:
    return isinstance(module, _LOOKUPS)
