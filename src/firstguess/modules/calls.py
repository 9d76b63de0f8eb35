"""What functions and methods of tensors are in a description, where one signal goes in."""

from __future__ import annotations

import math
import operator
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx

from firstguess.modules.kinds import (
    FLAT,
    IMAGE,
    Meaning,
    Place,
    activate,
    global_pool,
    pair,
    pool,
)
from firstguess.network.activations import lookup
from firstguess.network.activations.tensors import by_call
from firstguess.network.layers import Scale, Shift

_NOTHING = (torch.clone, torch.detach, operator.pos)
_DROPOUTS = (
    F.dropout, torch.dropout, F.dropout1d, F.dropout2d, F.dropout3d, F.alpha_dropout, F.feature_alpha_dropout,
)  # fmt: skip
_NOTHING_METHODS = (
    "contiguous",
    "clone",
    "detach",
    "float",
    "double",
    "half",
    "bfloat16",
    "to",
    "type",
    "requires_grad_",
)
_SOFTMAX = (F.softmax, F.log_softmax, torch.softmax, torch.log_softmax)
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


def function(node: fx.Node, place: Place, after: tuple[int, ...] | None) -> Meaning:
    """The meaning of a call with one signal in it; `after` is the shape of its result where an example was run."""
    target: Any = node.target
    name = function_name(node)
    method = node.op == "call_method"
    if (spelling := by_call().get(target)) is not None:
        return activate(spelling.meaning(lambda *place: _argument(node, *place)))
    if (method and name in _NOTHING_METHODS) or target in _NOTHING:
        return Meaning()
    if target in _DROPOUTS:
        return _dropout(node)
    if target in _SOFTMAX or (method and name in ("softmax", "log_softmax")):
        text = "softmax does not change which class is guessed, and is left out at the end"
        return Meaning(why="a softmax within the network has no closed form here", last=text)
    if target in _SHAPING or (method and name in _SHAPING_METHODS):
        return _shaping(node, name, place, after)
    if target is F.adaptive_avg_pool2d:
        return global_pool(_argument(node, 1, "output_size", None), place)
    if target in (F.avg_pool2d, F.max_pool2d):
        return _pool(node, place, largest=target is F.max_pool2d)
    if target is torch.mean or (method and name == "mean"):
        return _mean(node, place, after)
    if (arithmetic := _arithmetic(node, name)) is not None:
        return arithmetic
    if target in _ATTENTION or (method and name in ("matmul", "bmm")):
        return Meaning(why="a product of signals, as in attention, has no closed form here")
    if target is operator.getitem:
        return Meaning(why="takes a part of the signal")
    if target in (F.linear, F.conv2d, F.layer_norm, F.batch_norm, F.group_norm, F.rms_norm):
        return Meaning(why="its parameters are not those of a module: write nn.Linear, nn.LayerNorm, …")
    return Meaning(why="a description has no such function")


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


def _argument(node: fx.Node, index: int, name: str, default: Any) -> Any:
    return node.args[index] if len(node.args) > index else node.kwargs.get(name, default)


def _dropout(node: fx.Node) -> Meaning:
    on = _argument(node, 2, "train" if node.target is torch.dropout else "training", True)
    if on is False or _argument(node, 1, "p", 0.5) == 0:
        return Meaning(notes=("dropout is off at initialization, and left out",))
    return Meaning(why="this dropout is on in evaluation as well; write training=self.training, or nn.Dropout")


def _shaping(node: fx.Node, name: str, place: Place, after: tuple[int, ...] | None) -> Meaning:
    if place.shape is not None and after is not None:
        same = after[:1] == place.shape[:1] and math.prod(after) == math.prod(place.shape)
        if same and (len(after) <= FLAT or after == place.shape):
            return Meaning(axes=len(after) if len(after) > FLAT else FLAT)
        return Meaning(why=f"makes {place.shape[1:]} of a sample into {after[1:]}; a description can flatten only")
    if name == "flatten" and _argument(node, 1, "start_dim", 0) == 1 and _argument(node, 2, "end_dim", -1) == -1:
        return Meaning(axes=FLAT)
    sizes = node.args[1:]
    if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)):
        sizes = tuple(sizes[0])
    if name in ("view", "reshape") and len(sizes) == FLAT and -1 in sizes and (sizes[0] == -1 or _is_batch(sizes[0])):
        note = f"{name} to two axes is taken for a flattening: give an example of the inputs to check it"
        return Meaning(axes=FLAT, notes=() if isinstance(sizes[0], fx.Node) else (note,))
    if name == "squeeze" and place.axes == FLAT:
        return Meaning()
    return Meaning(why="what it does depends on the shape: give an example of the inputs")


def _is_batch(size: Any) -> bool:
    """Whether a size is x.size(0) or x.shape[0] of some signal: they all have the batch as their first axis."""
    if not isinstance(size, fx.Node):
        return False
    if size.target == "size":
        return _argument(size, 1, "dim", None) == 0
    if size.target is not operator.getitem or size.args[1] != 0:
        return False
    whole = size.args[0]
    if not isinstance(whole, fx.Node) or whole.kwargs:
        return False
    return whole.args[1:] == (("shape",) if whole.target is getattr else ()) and whole.target in (getattr, "size")


def _pool(node: fx.Node, place: Place, *, largest: bool) -> Meaning:
    plain = ("kernel_size", "stride", "padding")
    usual = (*plain, "input", "count_include_pad")
    odd = {key: value for key, value in node.kwargs.items() if key not in usual and value}
    if odd.get("dilation") in (1, (1, 1), [1, 1]):
        del odd["dilation"]
    if odd or len(node.args) > 1 + len(plain):
        return Meaning(why="a description's pools have no dilation, ceil_mode or divisor_override")
    kernel = _argument(node, 1, "kernel_size", None)
    sizes = kernel, _argument(node, 2, "stride", None) or kernel, _argument(node, 3, "padding", 0)
    if not all(isinstance(n, int) for size in sizes for n in (size if isinstance(size, (tuple, list)) else [size])):
        return Meaning(why="what it pools depends on the shape")
    return pool(pair(sizes[0]), pair(sizes[1]), pair(sizes[2]), place, largest=largest)


def _mean(node: fx.Node, place: Place, after: tuple[int, ...] | None) -> Meaning:
    axes = _argument(node, 1, "dim", None)
    axes = tuple(sorted(a % IMAGE for a in axes)) if isinstance(axes, (tuple, list)) else axes
    if axes != (2, 3) or (place.axes or IMAGE) != IMAGE:
        return Meaning(why="an average over other axes than the positions of images")
    pooled = global_pool(1, place)
    kept = _argument(node, 2, "keepdim", False)
    return pooled if pooled.why else Meaning(pooled.layers, axes=IMAGE if kept else FLAT)


def _arithmetic(node: fx.Node, name: str) -> Meaning | None:
    """Scalars times and plus the signal."""
    target: Any = node.target
    if target in (operator.neg, torch.neg) or name == "neg":
        return Meaning((Scale(-1.0),))
    if (target in (torch.pow, operator.pow) or name == "pow") and _argument(node, 1, "exponent", None) == 2:
        return activate(lookup.activation("square"))
    if len(node.args) != 2 or node.kwargs:
        return None
    left, right = node.args
    number = right if isinstance(left, fx.Node) else left
    if isinstance(number, bool) or not isinstance(number, (int, float)) or not math.isfinite(number):
        return None
    if _changes_nothing(target, name, number):
        return Meaning()
    if target in SUMS or name in ("add", "add_"):
        return Meaning((Shift(float(number)),))
    if target in DIFFERENCES or name in ("sub", "sub_"):
        first = isinstance(left, fx.Node)
        return Meaning((Shift(-float(number)),) if first else (Scale(-1.0), Shift(float(number))))
    if target in _PRODUCTS or name in ("mul", "mul_"):
        return Meaning((Scale(float(number)),))
    if (target in _QUOTIENTS or name in ("div", "div_")) and isinstance(left, fx.Node) and number:
        return Meaning((Scale(1.0 / number),))
    return None


def _changes_nothing(target: Any, name: str, number: float) -> bool:
    adds, multiplies = target in SUMS or name in ("add", "add_"), target in _PRODUCTS or name in ("mul", "mul_")
    return (adds and number == 0) or (multiplies and number == 1)
