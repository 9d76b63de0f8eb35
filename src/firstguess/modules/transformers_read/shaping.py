"""Reshaping and taking parts of what flows, by what it is: tokens, heads, patches."""

from __future__ import annotations

from typing import Any, Protocol, cast

import torch
from torch import fx

from firstguess.modules import calls
from firstguess.modules.graph import owner
from firstguess.modules.transformers_read.constants import Constants
from firstguess.modules.transformers_read.kit import Kit
from firstguess.modules.transformers_read.pieces import Stop
from firstguess.modules.transformers_read.values import Attended, Form, Mixing, Several, Stream, Value, View

_PARTS = ("chunk", "split", "unbind", "tensor_split")
SHAPING = (
    "view", "reshape", "flatten", "transpose", "permute", "swapaxes", "unflatten", "squeeze", "unsqueeze", "mean",
    "getitem", "select", *_PARTS,
)  # fmt: skip


class Walk(Protocol):
    """What the walk over a graph has at hand (`graph.py`)."""

    kit: Kit
    constants: Constants
    begun: bool

    def item(self, node: fx.Node, v: Several) -> Value: ...


def reshaped(graph: Walk, node: fx.Node, v: Value) -> Value:
    """What a value is behind a call that reshapes it, averages tokens or takes a part."""
    name = calls.function_name(node) if node.op != "call_module" else "flatten"
    after = graph.constants.shape(node)
    if isinstance(v, Several):
        return graph.item(node, v)
    if isinstance(v, Attended):
        if name in ("mean", "getitem", "select", *_PARTS):
            raise _stop(node, "takes a part of the heads")
        return v
    if isinstance(v, View):
        return _view(graph, node, name, v, after)
    before = graph.constants.shape(node.all_input_nodes[0])
    if isinstance(v, Mixing):
        if v.second is None or v.phi is None or not _swaps(node, name):
            raise _stop(node, "reshapes what dense layers over tokens make")
        graph.begun = True
        return Stream((*v.base.pieces, graph.kit.tokenmix(v.first, v.phi, v.second)), "tokens")
    if not isinstance(v, Stream):
        raise _stop(node, "reshapes logits of attention")
    if name in ("getitem", "select", "mean"):
        return _pooled(graph, node, name, v, before)
    if v.form in ("grid", "grid, nodes last", "nodes first"):
        return _of_grid(graph, node, name, v, before, after)
    if v.form == "tokens" and _swaps(node, name) and v.matrix is None:
        return Stream(v.pieces, "nodes first")
    if v.form == "tokens" and v.matrix is not None and v.base is not None:
        return _view(graph, node, name, View(v.base, v.matrix, v.phi), after)
    if before == after:
        return v
    raise _stop(node, f"makes {before[1:]} of a sample into {after[1:]}")


def _stop(node: fx.Node, why: str) -> Stop:
    return Stop(owner(node), calls.function_name(node), why)


def _numbers(node: fx.Node) -> list[Any]:
    """The arguments of a permutation or transposition."""
    given = [a for a in node.args[1:]]
    return list(given[0]) if len(given) == 1 and isinstance(given[0], (tuple, list)) else given


def _swaps(node: fx.Node, name: str) -> bool:
    """(n, a, b) to (n, b, a)."""
    axes = _numbers(node)
    if name in ("transpose", "swapaxes"):
        return sorted(a % 3 for a in axes) == [1, 2]
    return name == "permute" and [a % 3 for a in axes] == [0, 2, 1]


def _of_grid(
    graph: Walk, node: fx.Node, name: str, v: Stream, before: tuple[int, ...], after: tuple[int, ...]
) -> Value:
    """From (n, D, h, w) to tokens, by way of (n, D, T) or of (n, h, w, D)."""
    form: Form | None = None
    if v.form == "grid" and name in ("flatten", "view", "reshape") and after == (*before[:2], before[2] * before[3]):
        form = "nodes first"
    elif v.form == "grid" and name == "permute" and [a % 4 for a in _numbers(node)] == [0, 2, 3, 1]:
        form = "grid, nodes last"
    elif v.form == "grid, nodes last":
        form = "tokens" if after == (before[0], before[1] * before[2], before[3]) else None
    elif v.form == "nodes first" and _swaps(node, name):
        form = "tokens"
    if form is None:
        raise _stop(node, f"makes {before[1:]} of a sample into {after[1:]}, which are no tokens in order")
    graph.begun = graph.begun or form == "tokens"
    return Stream(v.pieces, form)


def _view(graph: Walk, node: fx.Node, name: str, v: View, after: tuple[int, ...]) -> Value:
    units = v.matrix.units
    if name in _PARTS:
        parts = graph.constants.value(node)
        count = len(cast("tuple[torch.Tensor, ...]", parts))
        if units % count or len({p.shape for p in parts}) > 1:
            raise _stop(node, "parts of different sizes")
        size = units // count
        return Several(tuple(View(v.base, v.matrix.part(i * size, (i + 1) * size), v.phi) for i in range(count)))
    if name in ("getitem", "select"):
        source = graph.constants.shape(node.all_input_nodes[0])
        index: Any = node.args[1]
        if isinstance(index, int) and source[0] in (2, 3) and units % source[0] == 0 and name == "getitem":
            size = units // source[0]
            return View(v.base, v.matrix.part(index * size, (index + 1) * size), v.phi)
        raise _stop(node, "takes a part of queries, keys and values that is not one of them")
    if name == "mean":
        raise _stop(node, "averages something else than tokens")
    return v


def _pooled(graph: Walk, node: fx.Node, name: str, v: Stream, before: tuple[int, ...]) -> Value:
    """One token, or the mean of all."""
    axis = {"tokens": 1, "nodes first": 2}.get(v.form)
    if axis is None:
        if name == "getitem" and graph.constants.shape(node) == before:
            return v
        raise _stop(node, "takes a part of the signal")
    if name == "mean":
        dims = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim")
        dims = [dims] if isinstance(dims, int) else list(cast(Any, dims) or [])
        if [d % 3 for d in dims] == [axis] and not node.kwargs.get("keepdim"):
            return Stream((*v.pieces, graph.kit.pool("mean")), "vector")
        raise _stop(node, "averages something else than tokens")
    index = _token(node, name, axis)
    at = {0: "cls", -1: "last", before[axis] - 1: "last"}.get(index) if index is not None else None
    if at is None:
        raise _stop(node, "takes a part of the tokens that is neither the first nor the last")
    graph.begun = True
    return Stream((*v.pieces, graph.kit.pool(at)), "vector")


def _token(node: fx.Node, name: str, axis: int) -> int | None:
    """x[:, i] or x.select(1, i)."""
    if name == "select":
        axes = list(node.args[1:])
        return cast(int, axes[1]) if len(axes) == 2 and axes[0] == axis else None
    index = list(cast(Any, node.args[1])) if isinstance(node.args[1], tuple) else [node.args[1]]
    if len(index) <= axis or not isinstance(index[axis], int):
        return None
    rest = [one for i, one in enumerate(index) if i != axis]
    return cast(int, index[axis]) if all(one == slice(None) for one in rest) else None
