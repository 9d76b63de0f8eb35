"""Initializers: rules by name or variances, those that a model has, and what of a model they re-draw."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import accumulate
from typing import Any, TypeAlias, cast

import torch
from torch import nn
from torch.nn.utils import parametrize
from torch.nn.utils.parametrizations import _SpectralNorm  # pyright: ignore[reportPrivateUsage]  # it has no other name
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from firstguess.base.errors import InvalidInput
from firstguess.ensemble.member_statistics import Finding, FindingKind
from firstguess.modules.guard import differentiable, hooked

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

        def weight(w: torch.Tensor, fan_in: float) -> object:
            return w.normal_(0.0, math.sqrt(weight_var / fan_in))

        def bias(b: torch.Tensor) -> object:
            return b.normal_(0.0, math.sqrt(bias_var)) if bias_var > 0 else b.zero_()

        return lambda module: _fill(module, weight, bias)
    expected = f"init as one of {', '.join(_NAMED)}, a pair (weight_var, bias_var) or a function of a module"
    raise InvalidInput(expected, got=repr(init), where="init", hint="init=(2.0, 0.0)")


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
            in_float(tensor, lambda t, f=fan_in: weight(t, f))
        if weights:
            for name, parameter in own.items():
                if "bias" in name:
                    bias(parameter)
        if parametrized and weights:
            module.weight = own["weight"].detach()


def in_float(tensor: torch.Tensor, draw: Callable[[torch.Tensor], Any]) -> None:
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
    """Whether it is a dense or convolution layer, or like one: with a weight of two or more axes, no norm or lookup."""
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
        # `init_weights` of Hugging Face's skips whatever it has done before; `_init_weights(module)` does not.
        known = hasattr(module, "_init_weights") and hasattr(module, "config")
        method = next((m for m in _OWN if _takes(getattr(module, m, None), 0) and not known), None)
        if method is not None:
            yield Initializer(name, module, on_plain(module, lambda m, method=method: getattr(m, method)()))
    owners = {name: module for name, module in order if _takes(getattr(module, "_init_weights", None), 1)}
    for name, module in order:
        if not owners:
            break
        for item in (module, *module.parameters(recurse=False), *module.buffers(recurse=False)):
            if getattr(item, "_is_hf_initialized", False):  # Hugging Face's initializers leave what is marked as it is
                cast("Any", item)._is_hf_initialized = False
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
        before = {
            hook.name: hook.compute_weight(module).detach()
            if isinstance(hook, WeightNorm)
            else getattr(module, f"{hook.name}_orig").detach()
            for hook in hooks
        }
        own = {name: nn.Parameter(value.clone()) for name, value in before.items()}
        twin._parameters = dict(module.named_parameters(recurse=False)) | own
        draw(twin)
        for hook in hooks:
            weight = getattr(twin, hook.name).detach()
            if torch.equal(weight, before[hook.name]):
                continue
            if isinstance(hook, WeightNorm):
                getattr(module, f"{hook.name}_g").copy_(torch.norm_except_dim(weight, 2, hook.dim))
                getattr(module, f"{hook.name}_v").copy_(weight)
            else:
                getattr(module, f"{hook.name}_orig").copy_(weight)
                new_hook_vectors(module, hook)

    return run


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


# What of a model is re-initialized: named by `redraw=`, or found by a test of its weights.
#
# By default weights that look trained (weight_statistics.py) keep their values, and with them what belongs to them:
# the other parameters of the same layer and, if most weights look trained, every parameter whose values its initializer
# would not give. What is as its initializer draws it is fresh. A model without a weight that looks trained is drawn
# as a whole.

Redrawn: TypeAlias = "str | nn.Module | Sequence[str | nn.Module] | None"

HEAD, ALL = "head", "all"
_LISTED = 4  # names that a finding has room for
_MADE = ".parametrizations."


@dataclass(frozen=True)
class RedrawnPart:
    """What of an instance is drawn: `names`, or (None) all of it but what looks trained, if that is asked."""

    names: frozenset[str] | None = None
    look: bool = False
    head: Callable[[], Collection[str]] = tuple[str, ...]  # the parameters that make the logits


def chosen(model: nn.Module, redraw: Redrawn, head: Callable[[], Collection[str]] = tuple[str, ...]) -> set[str]:
    """Names of the parameters that `redraw` means: a pattern for names of parameters or modules, a module, several.

    >>> model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    >>> sorted(chosen(model, "1*")), sorted(chosen(model, model[0])), len(chosen(model, ["0", "*.bias"]))
    (['1.bias', '1.weight'], ['0.bias', '0.weight'], 3)
    """
    if isinstance(redraw, nn.Module):
        names = _names(model)
        return {names[id(p)] for p in redraw.parameters() if id(p) in names} or _nothing(model, type(redraw).__name__)
    if isinstance(redraw, str):
        if redraw == HEAD:
            found = set(head())
            return found or _nothing(model, "'head', and no layer that makes the logits was found")
        first = _names(model)
        matched = {
            first[id(parameter)]
            for name, parameter in model.named_parameters(remove_duplicate=False)
            if any(fnmatchcase(place, redraw) for place in accumulate(name.split("."), "{}.{}".format))
        }
        return matched or _nothing(model, repr(redraw))
    if isinstance(redraw, Iterable) and (several := list(redraw)):
        return set[str]().union(*(chosen(model, one, head) for one in several))
    expected = "redraw as a name (with * for the rest), a module, a list of these, 'head' or 'all'"
    raise InvalidInput(expected, got=repr(redraw), where="redraw", hint='redraw="classifier*"')


def _names(model: nn.Module) -> dict[int, str]:
    return {id(parameter): name for name, parameter in model.named_parameters()}


def _nothing(model: nn.Module, got: str) -> set[str]:
    there = ", ".join(name for name, _ in model.named_children()) or "none"
    expected = "redraw as names of parameters or modules of the model, or a module in it"
    raise InvalidInput(expected, got=got, where="redraw", hint=f"one of {there}")


def layer_of(name: str) -> str:
    """The module whose weight, bias or parametrization a parameter is."""
    return name.split(_MADE)[0] if _MADE in name else name.rpartition(".")[0]


def trained_findings(
    model: nn.Module, kept: Collection[str], fresh: Collection[str], unsure: set[str], largest: float
) -> list[Finding]:
    """What is kept because it looks trained, what is re-initialized, and how sure that is."""
    what = brief(model, kept)
    why = f"singular values up to {largest:.0f} standard deviations beyond those of any draw (chance below 1e-6), or "
    why += "not as its initializers give it"
    nothing = (
        f"every weight looks trained ({why}): these are the guesses of exactly these weights, one model without "
        'an interval. redraw="head" draws its last layer, redraw="all" every weight'
    )
    doubt = f" ({brief(model, unsure)}: uncertain)" if unsure else ""
    message = (
        f"looks trained and was kept; {brief(model, fresh)} looks fresh and was re-initialized{doubt}. Wrong? "
        'Pass redraw=names, "head" or "all"'
    )
    evidence = f"{len(kept)} parameters were kept: {why}"
    findings = [Finding(FindingKind.TRAINED, message, what, evidence)]
    if not fresh:
        findings = [Finding(FindingKind.NOTHING_FRESH, nothing, what)]
    for which, word in ((fresh, "re-initialized"), (kept, "kept")):
        if doubtful := unsure.intersection(which):
            why = "it may be otherwise: too few values to tell, or not as its initializer draws them; redraw= decides"
            findings.append(Finding(FindingKind.MAYBE_TRAINED, f"{word}, but {why}", brief(model, doubtful)))
    return findings


def named_finding(model: nn.Module, fresh: Collection[str], kept: Collection[str]) -> Finding:
    """A finding for what `redraw=` names."""
    message = f"re-initialized, as redraw= says; the other {len(kept)} parameters keep the model's own values"
    return Finding(FindingKind.PART, message, brief(model, fresh))


def brief(model: nn.Module, names: Collection[str]) -> str:
    """The largest modules all of whose parameters are among `names`, else parameters, the first few of them."""
    found: list[str] = []
    first = _names(model)

    def visit(path: str, module: nn.Module) -> None:
        all_ = {first[id(p)] for p in module.parameters()}
        if all_ and all_.issubset(names):
            found.append(path or type(model).__name__)
            return
        own = (first[id(p)] for p in module.parameters(recurse=False))
        found.extend(name for name in own if name in names and name not in found)
        for name, child in module.named_children():
            visit(f"{path}.{name}" if path else name, child)

    visit("", model)
    more = f" and {len(found) - _LISTED} more" if len(found) > _LISTED else ""
    return ", ".join(found[:_LISTED]) + more


def head_of(model: nn.Module, logits: Callable[[nn.Module], torch.Tensor]) -> set[str]:
    """Parameters of the last layers with weights before the logits: none lies between them and the logits.

    Back from the logits along autograd's graph, as far as the first weight on every way; biases, gains and temperatures
    after it belong to it. Of a module that is called, all its parameters. Empty where the logits have no graph.

    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2), nn.Softplus())
    >>> sorted(head_of(model, lambda m: m(torch.ones(1, 4))))
    ['2.bias', '2.weight']
    """
    names = _names(model)
    marks: dict[object, nn.Module] = {}

    def mark(module: nn.Module, _: object, output: object) -> None:
        node = output.grad_fn if isinstance(output, torch.Tensor) else None
        if node is not None:
            marks.setdefault(node, module)

    plain = [m for m in model.modules() if all(name == "parametrizations" for name, _ in m.named_children())]
    layers = (m for m in plain if not is_norm(m) and any(p.ndim > 1 for p in m.parameters()))
    with hooked([m.register_forward_hook(mark) for m in layers]), differentiable(model):
        return _walk(logits(model).grad_fn, marks, names)


def _walk(start: object, marks: Mapping[object, nn.Module], names: Mapping[int, str]) -> set[str]:
    found, seen, todo = set[str](), set[object](), [start]
    while todo:
        node = todo.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if node in marks:
            found |= {names[id(p)] for p in marks[node].parameters() if id(p) in names}
            continue
        following = [before for before, _ in getattr(node, "next_functions", ())]
        leaves = [leaf for before in following if (leaf := _leaf(before)) is not None and id(leaf) in names]
        found |= {names[id(leaf)] for leaf in leaves}
        if not any(leaf.ndim > 1 for leaf in leaves):
            todo += following
    return found


def _leaf(node: object) -> torch.Tensor | None:
    """The parameter that a unit is, also seen through transposing and reshaping."""
    while node is not None and not hasattr(node, "variable"):
        following = [before for before, _ in getattr(node, "next_functions", ()) if before is not None]
        if len(following) != 1 or not any(word in type(node).__name__ for word in _VIEWS):
            return None
        node = following[0]
    return getattr(node, "variable", None)


_VIEWS = ("TBackward", "Transpose", "Permute", "View", "Reshape", "ToCopy", "Expand", "Unsqueeze")


def weights_of(model: nn.Module) -> list[str]:
    """What `scale=` multiplies: parameters of two or more axes, but for those of norms and those named a bias."""
    aside = {id(p) for module in model.modules() if is_norm(module) for p in module.parameters(recurse=False)}
    own = [(name, p) for name, p in model.named_parameters() if p.ndim > 1 and p.is_floating_point()]
    return [name for name, p in own if id(p) not in aside and "bias" not in name.rpartition(".")[2]]


def scale_finding(scale: float, weights: Collection[str]) -> Finding:
    what = f"{len(weights)} weights (parameters of two or more axes, not norms and biases)"
    return Finding(FindingKind.SCALED, f"{what} are multiplied by {scale:g}")
