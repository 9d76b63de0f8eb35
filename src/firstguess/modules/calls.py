"""What functions and methods of tensors are in a description, where one signal goes in."""

from __future__ import annotations

import math
import operator
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx

from firstguess.modules.claims import call_claim
from firstguess.modules.passive import passive_call
from firstguess.network.activations.lookup import activation
from firstguess.network.layer import Meaning
from firstguess.network.layers import Activate, Scale, Shift
from firstguess.network.meaning import FLAT, Call, Site

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


def function(node: fx.Node, site: Site, after: tuple[int, ...] | None) -> Meaning:
    """The meaning of a call with one signal in it; `after` is the shape of its result where an example was run."""
    call = Call(node.target, node.args, node.kwargs)
    if (claimed := call_claim(call.target)) is not None:
        name, kind = claimed
        return kind.from_call(call, replace(site, claim=name))
    if (passive := passive_call(call)) is not None:
        return passive
    target: Any = node.target
    name = function_name(node)
    method = node.op == "call_method"
    if target in _SHAPING or (method and name in _SHAPING_METHODS):
        return _shaping(call, name, site, after)
    if (arithmetic := _arithmetic(call, name)) is not None:
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


def _shaping(call: Call, name: str, site: Site, after: tuple[int, ...] | None) -> Meaning:
    if site.shape is not None and after is not None:
        same = after[:1] == site.shape[:1] and math.prod(after) == math.prod(site.shape)
        if same and (len(after) <= FLAT or after == site.shape):
            return Meaning(axes=len(after) if len(after) > FLAT else FLAT)
        return Meaning(why=f"makes {site.shape[1:]} of a sample into {after[1:]}; a description can flatten only")
    if name == "flatten" and call.argument(1, "start_dim", 0) == 1 and call.argument(2, "end_dim", -1) == -1:
        return Meaning(axes=FLAT)
    sizes = call.args[1:]
    if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)):
        sizes = tuple(sizes[0])
    if name in ("view", "reshape") and len(sizes) == FLAT and -1 in sizes and (sizes[0] == -1 or _is_batch(sizes[0])):
        note = f"{name} to two axes is taken for a flattening: give an example of the inputs to check it"
        return Meaning(axes=FLAT, notes=() if isinstance(sizes[0], fx.Node) else (note,))
    if name == "squeeze" and site.axes == FLAT:
        return Meaning()
    return Meaning(why="what it does depends on the shape: give an example of the inputs")


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


def _arithmetic(call: Call, name: str) -> Meaning | None:
    """Scalars times and plus the signal."""
    target: Any = call.target
    if target in (operator.neg, torch.neg) or name == "neg":
        return Meaning((Scale(-1.0),))
    if (target in (torch.pow, operator.pow) or name == "pow") and call.argument(1, "exponent", None) == 2:
        return Meaning((Activate(activation("square")),))
    if len(call.args) != 2 or call.kwargs:
        return None
    left, right = call.args
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
