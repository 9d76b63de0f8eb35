"""Which kind of layer says what a module or function of torch is: by the class whose forward a module really runs."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import fx, nn

from firstguess.modules.members.initializers import BATCH_NORMS, CONVOLUTIONS, is_lookup
from firstguess.network.activations.registry import activation
from firstguess.network.activations.tensors import targets
from firstguess.network.layer import FLAT, Call, ReadContext, ReadResult, by_call, by_module
from firstguess.network.layers import (
    Activate,
    Layer,  # from here: so that every kind is registered
    Scale,
    Shift,
)

# Modules and functions that are nothing to a description: dropout, flattening, softmax at the end, copies.

_DROPOUT = "dropout is off at initialization, and left out"
_SOFTMAX = ReadResult(
    why="a softmax within the network has no closed form here",
    last="softmax does not change which class is guessed, and is left out at the end",
)


def _nothing(module: Any, context: ReadContext) -> ReadResult:
    return ReadResult()


def _dropout(module: Any, context: ReadContext) -> ReadResult:
    return ReadResult(notes=(_DROPOUT,))


def _softmax(module: Any, context: ReadContext) -> ReadResult:
    return _SOFTMAX


def _flatten(module: Any, context: ReadContext) -> ReadResult:
    whole = module.start_dim == 1 and module.end_dim == -1
    return ReadResult(axes=FLAT) if whole else ReadResult(why="flattens some axes only")


PASSIVE: dict[type[nn.Module], Callable[[Any, ReadContext], ReadResult]] = {
    nn.Identity: _nothing,
    nn.Dropout: _dropout,
    nn.Dropout1d: _dropout,
    nn.Dropout2d: _dropout,
    nn.Dropout3d: _dropout,
    nn.AlphaDropout: _dropout,
    nn.FeatureAlphaDropout: _dropout,
    nn.Softmax: _softmax,
    nn.LogSoftmax: _softmax,
    nn.Softmax2d: _softmax,
    nn.Flatten: _flatten,
}


def _dropout_call(call: Call) -> ReadResult:
    on = call.argument(2, "train" if call.target is torch.dropout else "training", True)
    if on is False or call.argument(1, "p", 0.5) == 0:
        return ReadResult(notes=(_DROPOUT,))
    return ReadResult(why="this dropout is on in evaluation as well; write training=self.training, or nn.Dropout")


_COPIES = (torch.clone, torch.detach, operator.pos)
_COPYING = (  # methods
    "contiguous", "clone", "detach", "float", "double", "half", "bfloat16", "to", "type", "requires_grad_",
)  # fmt: skip
_DROPOUTS = (
    F.dropout, torch.dropout, F.dropout1d, F.dropout2d, F.dropout3d, F.alpha_dropout, F.feature_alpha_dropout,
)  # fmt: skip
_SOFTMAXES = (F.softmax, F.log_softmax, torch.softmax, torch.log_softmax, "softmax", "log_softmax")


def identity_call(call: Call) -> ReadResult | None:
    """The meaning of a function or method (by its name) that is none of a layer's, None if this is no such one."""
    if call.target in _COPIES or call.target in _COPYING:
        return ReadResult()
    if call.target in _DROPOUTS:
        return _dropout_call(call)
    return _SOFTMAX if call.target in _SOFTMAXES else None


_Names = tuple[tuple["str | type", type[Layer]], ...]


class Claim(NamedTuple):
    """Who says what a module is; a kind of None: it is no layer (dropout, flattening)."""

    name: str  # the one in the kind's `modules`
    kind: type[Layer] | None
    meaning: Callable[[Any, ReadContext], ReadResult]


def claim(module: nn.Module) -> Claim | None:
    """Who says what a module is; None: nobody, as where a known class has a forward of its own."""
    known, endings = _module_table(tuple(by_module().items()))
    if "forward" not in vars(module):
        forward = type(module).forward
        for kind, found in known.items():
            if isinstance(module, kind) and forward is kind.forward:
                return found
    name = type(module).__name__
    found = next((found for ending, found in endings.items() if name.endswith(ending)), None)
    # Not by module.weight: while a graph is traced, that is a proxy, and asking for it is part of the graph.
    return found if found is not None and "weight" in dict(module.named_parameters(recurse=False)) else None


def call_claim(target: Any) -> tuple[str, type[Layer]] | None:
    """Who says what a function (or a method, by its name) is, and by which name in its `calls`."""
    try:
        return _call_table(tuple(by_call().items())).get(target)
    except TypeError:  # someone's callable that has no hash
        return None


@lru_cache(maxsize=4)
def _module_table(names: _Names) -> tuple[dict[type[nn.Module], Claim], dict[str, Claim]]:
    """By class, subclasses before what they derive from; and by the ending of a class's name."""
    known = {cls: Claim(cls.__name__, None, meaning) for cls, meaning in PASSIVE.items()}
    endings: dict[str, Claim] = {}
    for name, kind in names:
        if isinstance(name, str) and name.startswith("*"):
            endings[name[1:]] = Claim(name, kind, kind.from_module)
            continue
        cls = cast("type[nn.Module]", getattr(nn, name) if isinstance(name, str) else name)
        known[cls] = Claim(cls.__name__, kind, kind.from_module)
    return {cls: known[cls] for cls in sorted(known, key=lambda cls: -len(cls.mro()))}, endings


@lru_cache(maxsize=4)
def _call_table(names: tuple[tuple[str, type[Layer]], ...]) -> dict[Any, tuple[str, type[Layer]]]:
    return {target: (name, kind) for name, kind in names for target in targets(name)}


def is_attention(module: nn.Module) -> bool:
    return "attention" in type(module).__name__.lower() or isinstance(
        module, (nn.MultiheadAttention, nn.Transformer, nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)
    )


def is_whole(module: nn.Module) -> bool:
    """Whether a module is looked at as one, not into."""
    return claim(module) is not None or is_attention(module)


def refusal(module: nn.Module) -> str:
    """Why a module that nobody claims has no description."""
    if is_attention(module):
        return "attention is read in models of known classes, and in others with an example: fg.read(model, ids)"
    if isinstance(module, (nn.RNNBase, nn.RNNCellBase)):
        return "recurrence has no closed form here: its weights are used again at every step"
    if is_lookup(module):
        return "looked-up tokens are read with an example, in a model that is read as a whole: fg.read(model, ids)"
    if isinstance(module, CONVOLUTIONS):
        return "a description has two-dimensional convolutions only, and no transposed ones"
    if isinstance(module, (*BATCH_NORMS, nn.InstanceNorm1d, nn.InstanceNorm3d)):
        return "a description has BatchNorm (1d, 2d), InstanceNorm2d, LayerNorm, RMSNorm and GroupNorm only"
    known, _ = _module_table(tuple(by_module().items()))
    base = next((cls.__name__ for cls in known if isinstance(module, cls)), None)
    return f"a {base} with a forward of its own" if base is not None else "a description has no such layer"


# What functions and methods of tensors are in a description, where one signal goes in.

_SHAPING = (torch.flatten, torch.reshape, torch.squeeze)
_SHAPING_METHODS = ("flatten", "view", "reshape", "squeeze")
SUMS = (operator.add, operator.iadd, torch.add)
DIFFERENCES = (operator.sub, operator.isub, torch.sub, torch.subtract)
_IN_PLACE = (operator.iadd, operator.isub, operator.imul, operator.itruediv, operator.setitem)
_PRODUCTS = (operator.mul, operator.imul, torch.mul, torch.multiply)
_QUOTIENTS = (operator.truediv, operator.itruediv, torch.div, torch.true_divide)
_ATTENTION = (F.scaled_dot_product_attention, torch.matmul, operator.matmul, torch.bmm, torch.einsum)
_JOINS = (torch.cat, torch.concat, torch.stack, torch.hstack, torch.vstack)


def function_name(node: fx.Node) -> str:
    """`relu` for torch.relu, F.relu and x.relu() alike."""
    target: Any = node.target
    return target if isinstance(target, str) else getattr(target, "__name__", str(target))


def is_sum(node: fx.Node) -> bool:
    """Whether a node adds (or subtracts) two things, one as it is."""
    target = node.target
    named = node.op == "call_method" and target in ("add", "add_", "sub", "sub_")
    plain = node.kwargs.get("alpha", 1) == 1 and len(node.args) == 2
    return bool((named or target in (*SUMS, *DIFFERENCES)) and plain)


def in_place(node: fx.Node) -> bool:
    """Whether a call writes into what it gets."""
    name = function_name(node)
    writes = name.endswith("_") and not name.endswith("__") and name != "requires_grad_"
    return bool(writes or node.target in _IN_PLACE or node.kwargs.get("inplace") or "out" in node.kwargs)


def is_difference(node: fx.Node) -> bool:
    return node.target in DIFFERENCES or node.target in ("sub", "sub_")


def function(node: fx.Node, context: ReadContext, after: tuple[int, ...] | None) -> ReadResult:
    """The meaning of a call with one signal in it; `after` is the shape of its result where an example was run."""
    call = Call(node.target, node.args, node.kwargs)
    if (claimed := call_claim(call.target)) is not None:
        name, kind = claimed
        return kind.from_call(call, replace(context, claim=name))
    if (passive := identity_call(call)) is not None:
        return passive
    target: Any = node.target
    name = function_name(node)
    method = node.op == "call_method"
    if target in _SHAPING or (method and name in _SHAPING_METHODS):
        return _shaping(call, name, context, after)
    if (arithmetic := _arithmetic(call, name)) is not None:
        return arithmetic
    if target in _ATTENTION or (method and name in ("matmul", "bmm")):
        return ReadResult(why="a product of signals, as in attention, has no closed form here")
    if target is operator.getitem:
        return ReadResult(why="takes a part of the signal")
    if target in (F.linear, F.conv2d, F.layer_norm, F.batch_norm, F.group_norm, F.rms_norm):
        return ReadResult(why="its parameters are not those of a module: write nn.Linear, nn.LayerNorm, …")
    return ReadResult(why="a description has no such function")


def of_several(node: fx.Node) -> str:
    """Why a call with several signals in it has no description."""
    target: Any = node.target
    name = function_name(node)
    if target in _JOINS:
        return "joins several signals; a description has one, and residual sums"
    if target in _ATTENTION or name in ("matmul", "bmm", "baddbmm"):
        return "a product of signals, as in attention, has no closed form here"
    if target in _PRODUCTS or name in ("mul", "mul_"):
        return "a product of two signals (a gate) has no closed form here"
    if is_sum(node):
        return "a sum of two signals of which neither is the input of the other"
    return "several signals go in"


def _shaping(call: Call, name: str, context: ReadContext, after: tuple[int, ...] | None) -> ReadResult:
    if context.shape is not None and after is not None:
        same = after[:1] == context.shape[:1] and math.prod(after) == math.prod(context.shape)
        if same and (len(after) <= FLAT or after == context.shape):
            return ReadResult(axes=len(after) if len(after) > FLAT else FLAT)
        return ReadResult(why=f"makes {context.shape[1:]} of a sample into {after[1:]}; a description can flatten only")
    if name == "flatten" and call.argument(1, "start_dim", 0) == 1 and call.argument(2, "end_dim", -1) == -1:
        return ReadResult(axes=FLAT)
    sizes = call.args[1:]
    if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)):
        sizes = tuple(sizes[0])
    if name in ("view", "reshape") and len(sizes) == FLAT and -1 in sizes and (sizes[0] == -1 or _is_batch(sizes[0])):
        note = f"{name} to two axes is taken for a flattening: give an example of the inputs to check it"
        return ReadResult(axes=FLAT, notes=() if isinstance(sizes[0], fx.Node) else (note,))
    if name == "squeeze" and context.axes == FLAT:
        return ReadResult()
    return ReadResult(why="what it does depends on the shape: give an example of the inputs")


def _is_batch(size: Any) -> bool:
    """Whether a size is x.size(0) or x.shape[0] of some signal: they all have the batch as their first axis."""
    if not isinstance(size, fx.Node):
        return False
    if size.target == "size":
        return Call("size", size.args, size.kwargs).argument(1, "dim", None) == 0
    if size.target is not operator.getitem or size.args[1] != 0:
        return False
    whole = size.args[0]
    if not isinstance(whole, fx.Node) or whole.kwargs:
        return False
    return whole.args[1:] == (("shape",) if whole.target is getattr else ()) and whole.target in (getattr, "size")


def _arithmetic(call: Call, name: str) -> ReadResult | None:
    """Scalars times and plus the signal."""
    target: Any = call.target
    if target in (operator.neg, torch.neg) or name == "neg":
        return ReadResult((Scale(-1.0),))
    if (target in (torch.pow, operator.pow) or name == "pow") and call.argument(1, "exponent", None) == 2:
        return ReadResult((Activate(activation("square")),))
    if len(call.args) != 2 or call.kwargs:
        return None
    left, right = call.args
    number = right if isinstance(left, fx.Node) else left
    if isinstance(number, bool) or not isinstance(number, (int, float)) or not math.isfinite(number):
        return None
    if _changes_nothing(target, name, number):
        return ReadResult()
    if target in SUMS or name in ("add", "add_"):
        return ReadResult((Shift(float(number)),))
    if target in DIFFERENCES or name in ("sub", "sub_"):
        first = isinstance(left, fx.Node)
        return ReadResult((Shift(-float(number)),) if first else (Scale(-1.0), Shift(float(number))))
    if target in _PRODUCTS or name in ("mul", "mul_"):
        return ReadResult((Scale(float(number)),))
    if (target in _QUOTIENTS or name in ("div", "div_")) and isinstance(left, fx.Node) and number:
        return ReadResult((Scale(1.0 / number),))
    return None


def _changes_nothing(target: Any, name: str, number: float) -> bool:
    adds, multiplies = target in SUMS or name in ("add", "add_"), target in _PRODUCTS or name in ("mul", "mul_")
    return (adds and number == 0) or (multiplies and number == 1)
