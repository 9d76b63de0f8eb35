"""Initialization rules for the weights of any module: by name, by (weight_var, bias_var), or a user's function."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeAlias, cast

import torch
from torch import nn
from torch.nn.utils import parametrize
from torch.nn.utils.parametrizations import _SpectralNorm  # pyright: ignore[reportPrivateUsage]  # it has no other name
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

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


# The initializers that a model has: which calls there are, what each draws, which of them are needed.
#
# In this order, children before parents: every module's own method without arguments (`reset_parameters`,
# `_reset_parameters`, …); then `_init_weights(module)` of the model around it (Hugging Face, timm, nanoGPT).
# Weights that hooks or parametrizations make (weight norm, spectral norm) are drawn on a plain twin, and put where
# they are made from.

_OWN = ("reset_parameters", "_reset_parameters", "init_weights", "initialize_weights", "_initialize_weights")
_ITERATIONS = 15  # of spectral norm's power method: torch's own number at construction


@dataclass
class Initializer:
    """One initializer, and what it does to which parameters."""

    name: str
    module: nn.Module
    run: Callable[[], Any]
    given: bool = False  # by the user as init=
    writes: set[str] = field(default_factory=set[str])  # replaced in full
    changes: set[str] = field(default_factory=set[str])  # depends on what was there


def post_order(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """Every module once, children before parents: the order of `nn.Module.apply` and of constructors."""
    found: dict[int, tuple[str, nn.Module]] = {}

    def visit(name: str, module: nn.Module) -> None:
        if id(module) in found:
            return
        for child, inner in module.named_children():
            visit(f"{name}.{child}" if name else child, inner)
        found.setdefault(id(module), (name, module))

    visit("", model)
    return list(found.values())


def own_calls(model: nn.Module) -> Iterator[Initializer]:
    order = post_order(model)
    for name, module in order:
        if parametrize.is_parametrized(module):
            yield from _parametrized(name, module)
            continue
        method = next((m for m in _OWN if _takes(getattr(module, m, None), 0) and not _is_hugging_face(module)), None)
        if method is not None:
            yield Initializer(name, module, on_plain(module, lambda m, method=method: getattr(m, method)()))
    owners = {name: module for name, module in order if _takes(getattr(module, "_init_weights", None), 1)}
    for name, module in order:
        if not owners:
            break
        _clear_flags(module)
        around = [path for path in owners if path in ("", name) or name.startswith(f"{path}.")]
        if around:
            owner: Any = owners[max(around, key=len)]
            yield Initializer(name, module, on_plain(module, lambda m, o=owner: o._init_weights(m)))


def _takes(method: object, arguments: int) -> bool:
    """Whether `method` can be called with this many positional arguments and needs no other."""
    if not callable(method):
        return False
    try:
        needed = [p for p in inspect.signature(method).parameters.values() if p.default is p.empty]
    except (TypeError, ValueError):
        return False
    plain = [p for p in needed if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return len(plain) == arguments and not any(p.kind == p.KEYWORD_ONLY for p in needed)


def _is_hugging_face(module: nn.Module) -> bool:
    # `init_weights` of these skips whatever it has done before; `_init_weights(module)` does not.
    return hasattr(module, "_init_weights") and hasattr(module, "config")


def _clear_flags(module: Any) -> None:
    """Hugging Face's initializers leave a marked tensor as it is."""
    for item in (module, *module.parameters(recurse=False), *module.buffers(recurse=False)):
        if getattr(item, "_is_hf_initialized", False):
            item._is_hf_initialized = False


def _parametrized(name: str, module: nn.Module) -> Iterator[Initializer]:
    """A module with `torch.nn.utils.parametrize` (weight norm, orthogonal, …): a plain twin is drawn and assigned, so
    that each parametrization inverts what it can."""
    # Not by remove_parametrizations on a copy: a copy shares the class that torch has made for it, and that changes.
    names = list(cast("nn.ModuleDict", module.parametrizations))
    plain: Any = type(module).__bases__[0]
    twin: Any = plain.__new__(plain)
    vars(twin).update(vars(module))
    twin._modules = {name: child for name, child in module.named_children() if name != "parametrizations"}
    own = dict(module.named_parameters(recurse=False)) | {name: getattr(module, name) for name in names}
    twin._parameters = {name: nn.Parameter(value.detach().clone()) for name, value in own.items()}
    if not _takes(getattr(twin, "reset_parameters", None), 0):
        return

    def run() -> None:
        twin.reset_parameters()
        for tensor in names:
            setattr(module, tensor, getattr(twin, tensor).detach())
            new_vectors(cast("Any", module.parametrizations)[tensor], getattr(twin, tensor).detach())
        for tensor, parameter in module.named_parameters(recurse=False):
            parameter.copy_(getattr(twin, tensor))

    yield Initializer(name, module, run)


def hooks_of(module: Any) -> list[WeightNorm | SpectralNorm]:
    return [hook for hook in module._forward_pre_hooks.values() if isinstance(hook, (WeightNorm, SpectralNorm))]


def on_plain(module: nn.Module, draw: Callable[[Any], Any]) -> Callable[[], Any]:
    """`draw` of the module; under the hooks of nn.utils.weight_norm and nn.utils.spectral_norm, whose weight is no
    parameter, of a plain twin, and what it draws is put where the hook makes the weight from."""
    hooks = hooks_of(module)
    if not hooks:
        return lambda: draw(module)

    def run() -> None:
        twin: Any = object.__new__(type(module))
        made = {hook.name for hook in hooks}
        vars(twin).update({name: value for name, value in vars(module).items() if name not in made})
        before = {hook.name: _unhooked(module, hook) for hook in hooks}
        twin._parameters = dict(module.named_parameters(recurse=False)) | {
            name: nn.Parameter(value.clone()) for name, value in before.items()
        }
        draw(twin)
        for hook in hooks:
            weight = getattr(twin, hook.name).detach()
            if not torch.equal(weight, before[hook.name]):
                _put(module, hook, weight)

    return run


def _unhooked(module: nn.Module, hook: WeightNorm | SpectralNorm) -> torch.Tensor:
    if isinstance(hook, WeightNorm):
        return hook.compute_weight(module).detach()
    return getattr(module, f"{hook.name}_orig").detach()


def _put(module: Any, hook: WeightNorm | SpectralNorm, weight: torch.Tensor) -> None:
    if isinstance(hook, WeightNorm):
        getattr(module, f"{hook.name}_g").copy_(torch.norm_except_dim(weight, 2, hook.dim))
        getattr(module, f"{hook.name}_v").copy_(weight)
        return
    getattr(module, f"{hook.name}_orig").copy_(weight)
    new_hook_vectors(module, hook)


def new_hook_vectors(module: Any, hook: SpectralNorm) -> None:
    """Near the norm, as a first forward in training makes them; in eval mode they stay what they are."""
    u, v = (getattr(module, f"{hook.name}_{vector}") for vector in "uv")
    matrix = hook.reshape_weight_to_matrix(getattr(module, f"{hook.name}_orig").detach())
    u.copy_(nn.functional.normalize(torch.randn_like(u), dim=0, eps=hook.eps))
    for _ in range(_ITERATIONS):
        v.copy_(nn.functional.normalize(matrix.T @ u, dim=0, eps=hook.eps))
        u.copy_(nn.functional.normalize(matrix @ v, dim=0, eps=hook.eps))


def new_vectors(parametrizations: Any, weight: torch.Tensor) -> None:
    """Spectral norm: what its constructor does, for a new weight; in eval mode it keeps the vectors that it has, and
    those of another weight give any norm at all."""
    for found in parametrizations:
        if isinstance(found, _SpectralNorm) and weight.ndim > 1:
            norm: Any = found
            for vector in (norm._u, norm._v):
                vector.copy_(nn.functional.normalize(torch.randn_like(vector), dim=0, eps=norm.eps))
            norm._power_method(norm._reshape_weight_to_matrix(weight), _ITERATIONS)


def needed(calls: list[Initializer], chosen: Mapping[str, Initializer] = MappingProxyType({})) -> list[Initializer]:
    """Without calls whose every result is replaced by a later one, or by the one that is `chosen` for it. Those with
    buffers stay: what they do to them is not known."""
    kept: list[Initializer] = []
    covered: set[str] = set()
    for call in reversed(calls):
        others = {name for name, by in chosen.items() if by is not call}
        mine = {name for name, by in chosen.items() if by is call}
        if (
            mine
            or (call.writes | call.changes) - covered - others
            or any(True for _ in call.module.buffers(recurse=False))
        ):
            kept.append(call)
            covered = (covered | call.writes) - call.changes
    return kept[::-1]


def named(model: nn.Module, part: nn.Module) -> dict[str, nn.Parameter]:
    """Parameters of a part by their names in the whole; a tied one goes by its first."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    return {names[id(parameter)]: parameter for parameter in part.parameters() if id(parameter) in names}


def assign(model: nn.Module, values: dict[str, torch.Tensor]) -> None:
    for name, parameter in model.named_parameters():
        if name in values:
            parameter.copy_(values[name])
