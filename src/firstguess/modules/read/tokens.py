"""Models of tokens that are written by hand: the graph of their forward, node by node, as pieces."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import numpy as np
import torch
from torch import fx, nn

from firstguess.modules.members.initializers import is_lookup
from firstguess.modules.read import dispatch
from firstguess.modules.read.dispatch import PASSIVE, refusal
from firstguess.modules.read.graph import ancestors, is_aside, is_input, output, owner
from firstguess.modules.read.huggingface import encoder, is_causal, is_trunk, multihead, pooled, trunk
from firstguess.modules.read.token_parts import (
    Attended,
    Builder,
    DenseView,
    Form,
    Mixing,
    Piece,
    Scores,
    Several,
    Stop,
    TokenSignal,
    Value,
    plain,
    residual,
)
from firstguess.modules.read.tracing import OneInput, Values, path_of
from firstguess.network.layer import Call
from firstguess.network.layers import Gated, Positions, Scale
from firstguess.network.layers.embed import waves

# Reshaping and taking parts of what flows, by what it is: tokens, heads, patches.

_PARTS = ("chunk", "split", "unbind", "tensor_split")
SHAPING = (
    "view", "reshape", "flatten", "transpose", "permute", "swapaxes", "unflatten", "squeeze", "unsqueeze", "mean",
    "getitem", "select", *_PARTS,
)  # fmt: skip


# What a graph computes without its input: positions, class tokens, masks; by value, and by the parameter behind.


class Constants:
    """Values of all nodes on a few inputs."""

    def __init__(self, builder: Builder, call: OneInput, graph: fx.Graph, inputs: torch.Tensor) -> None:
        self.builder = builder
        values = Values(call, graph)
        with torch.no_grad():
            values.run(inputs)
        self._values = values.found

    def value(self, node: fx.Node) -> Any:
        return self._values.get(node)

    def of(self, argument: Any) -> Any:
        """An argument of a call as a value."""
        return self._values.get(argument) if isinstance(argument, fx.Node) else argument

    def shape(self, node: fx.Node) -> tuple[int, ...]:
        value = self._values.get(node)
        return tuple(value.shape) if isinstance(value, torch.Tensor) else ()

    def run(self, node: fx.Node, x: torch.Tensor) -> torch.Tensor:
        """A function of one tensor, on another one."""
        args, kwargs = fx.map_arg((node.args[1:], node.kwargs), self.of)
        target: Any = node.target
        return getattr(x, target)(*args, **kwargs) if node.op == "call_method" else target(x, *args, **kwargs)

    def positions(self, node: fx.Node, argument: Any) -> Piece:
        """What is added to all sequences alike, a vector for every place."""
        added = self.of(argument)
        if not isinstance(added, torch.Tensor) or added.ndim < 2 or added.numel() != added.shape[-2] * added.shape[-1]:
            raise Stop(owner(node), dispatch.function_name(node), "adds something else than a vector for every place")
        added = added.reshape(added.shape[-2:])
        name = self._parameter(argument)
        if name is None:
            fixed = torch.from_numpy(np.asarray(waves(*added.shape)))
            if float((added.double() - fixed).abs().max()) < 1e-4:
                return plain(Positions(sinusoidal=True))
            raise Stop(
                owner(node),
                dispatch.function_name(node),
                "adds fixed positions that are not sines and cosines side by side",
            )
        table = self.builder.model.get_parameter(name).detach()
        rows = table.reshape(-1, table.shape[-1])
        first = (rows == added[0]).all(dim=1).nonzero().flatten().tolist()
        start = next((i for i in first if torch.equal(rows[i : i + len(added)], added.to(rows))), None)
        if start is None:
            raise Stop(name.rpartition(".")[0], name, "is added to tokens, but not row by row as positions")
        return self.builder.positions(name, name.rpartition(".")[0], start=start)

    def first_token(self, node: fx.Node, argument: Any) -> Piece:
        """A learned token that comes before all others."""
        name, token = self._parameter(argument), self.of(argument)
        if name is None or not isinstance(token, torch.Tensor) or token.ndim != 3 or token.shape[1] != 1:
            raise Stop(owner(node), dispatch.function_name(node), "joins something else than one learned token")
        own = self.builder.model.get_parameter(name).detach()
        if own.numel() != token.shape[-1] or not torch.equal(token, own.reshape(1, 1, -1).expand_as(token)):
            raise Stop(name.rpartition(".")[0], name, "is put before tokens, but not as it is")
        return self.builder.first_token(name, name.rpartition(".")[0])

    def _parameter(self, argument: Any) -> str | None:
        """The one parameter that a constant comes from."""
        if not isinstance(argument, fx.Node):
            return None
        found: list[str] = []
        parameters = dict(self.builder.model.named_parameters())
        for node in ancestors(argument):
            path = path_of(cast(str, node.target)) if node.op in ("get_attr", "call_module") else ""
            if node.op == "get_attr" and path in parameters:
                found.append(path)
            elif node.op == "call_module" and isinstance(self.builder.model.get_submodule(path), nn.Embedding):
                found.append(f"{path}.weight")
        return found[0] if len(found) == 1 else None


def reshaped(graph: TokenGraph, node: fx.Node, v: Value) -> Value:
    """What a value is after a call that reshapes it, averages tokens or takes a part."""
    name = dispatch.function_name(node) if node.op != "call_module" else "flatten"
    after = graph.constants.shape(node)
    if isinstance(v, Several):
        return graph.item(node, v)
    if isinstance(v, Attended):
        if name in ("mean", "getitem", "select", *_PARTS):
            raise _stop(node, "takes a part of the heads")
        return v
    if isinstance(v, DenseView):
        return _view(graph, node, name, v, after)
    before = graph.constants.shape(node.all_input_nodes[0])
    if isinstance(v, Mixing):
        if v.second is None or v.phi is None or not _swaps(node, name):
            raise _stop(node, "reshapes what dense layers over tokens make")
        graph.begun = True
        return TokenSignal((*v.base.pieces, graph.builder.tokenmix(v.first, v.phi, v.second)), "tokens")
    if not isinstance(v, TokenSignal):
        raise _stop(node, "reshapes logits of attention")
    if name in ("getitem", "select", "mean"):
        return _pooled(graph, node, name, v, before)
    if v.form in ("grid", "grid, nodes last", "nodes first"):
        return _of_grid(graph, node, name, v, before, after)
    if v.form == "tokens" and _swaps(node, name) and v.matrix is None:
        return TokenSignal(v.pieces, "nodes first")
    if v.form == "tokens" and v.matrix is not None and v.base is not None:
        return _view(graph, node, name, DenseView(v.base, v.matrix, v.phi), after)
    if before == after:
        return v
    raise _stop(node, f"makes {before[1:]} of a sample into {after[1:]}")


def _stop(node: fx.Node, why: str) -> Stop:
    return Stop(owner(node), dispatch.function_name(node), why)


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
    graph: TokenGraph, node: fx.Node, name: str, v: TokenSignal, before: tuple[int, ...], after: tuple[int, ...]
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
    return TokenSignal(v.pieces, form)


def _view(graph: TokenGraph, node: fx.Node, name: str, v: DenseView, after: tuple[int, ...]) -> Value:
    units = v.matrix.units
    if name in _PARTS:
        parts = graph.constants.value(node)
        count = len(cast("tuple[torch.Tensor, ...]", parts))
        if units % count or len({p.shape for p in parts}) > 1:
            raise _stop(node, "parts of different sizes")
        size = units // count
        return Several(tuple(DenseView(v.base, v.matrix.part(i * size, (i + 1) * size), v.phi) for i in range(count)))
    if name in ("getitem", "select"):
        source = graph.constants.shape(node.all_input_nodes[0])
        index: Any = node.args[1]
        if isinstance(index, int) and source[0] in (2, 3) and units % source[0] == 0 and name == "getitem":
            size = units // source[0]
            return DenseView(v.base, v.matrix.part(index * size, (index + 1) * size), v.phi)
        raise _stop(node, "takes a part of queries, keys and values that is not one of them")
    if name == "mean":
        raise _stop(node, "averages something else than tokens")
    return v


def _pooled(graph: TokenGraph, node: fx.Node, name: str, v: TokenSignal, before: tuple[int, ...]) -> Value:
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
            return TokenSignal((*v.pieces, graph.builder.pool("mean")), "vector")
        raise _stop(node, "averages something else than tokens")
    index = _token(node, name, axis)
    at = {0: "cls", -1: "last", before[axis] - 1: "last"}.get(index) if index is not None else None
    if at is None:
        raise _stop(node, "takes a part of the tokens that is neither the first nor the last")
    graph.begun = True
    return TokenSignal((*v.pieces, graph.builder.pool(at)), "vector")


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


_TORCH = (nn.MultiheadAttention, nn.TransformerEncoder, nn.TransformerEncoderLayer)
_NOT_CAUSAL = "a mask that is not causal; a description has causal attention, or none masked"
_MASKED = "a padding mask by hand: padding is read of Hugging Face's own models only"
_COPIES = ("contiguous", "clone", "detach", "float", "double", "to", "type", "type_as")
_MATMULS = ("matmul", "bmm", "__matmul__")
_PRODUCTS = ("mul", "imul", "truediv", "itruediv", "div", "multiply", "true_divide", "mul_", "div_")
_NORMALIZED = "a softmax at the end does not change which class is guessed, and is left out"


def is_leaf(module: nn.Module) -> bool:
    """What the tracing does not look into."""
    return isinstance(module, _TORCH) or is_trunk(module) or type(module).__name__.endswith("RMSNorm")


class TokenGraph:
    """Walk a graph with the values of its constants at hand."""

    def __init__(
        self, builder: Builder, call: OneInput, graph: fx.Graph, inputs: torch.Tensor, opaque: dict[str, str]
    ) -> None:
        self.builder, self.graph, self.opaque = builder, graph, opaque
        self.constants = Constants(builder, call, graph, inputs)
        self.flow: dict[fx.Node, Value] = {}
        self.begun = False  # whether something of tokens was met
        self.ending: Callable[[torch.Tensor], torch.Tensor] | None = None

    def read(self) -> tuple[list[Piece], int | None]:
        """All pieces, and the number of classes (None: no head); Stop at what is not read."""
        end, problem = output(self.graph)
        if end is None or problem:
            raise Stop("", "output", problem or "the model returns no tensor")
        for node in self.graph.nodes:
            if node.op == "output":
                break
            value = self._value(node)
            if value is not None:
                self.flow[node] = value
        last = self.flow.get(end)
        if not isinstance(last, TokenSignal) or last.form not in ("tokens", "vector"):
            raise Stop("", "output", "the output is not a vector, or tokens, of a signal that was read")
        classes = last.matrix.units if last.matrix is not None and last.form == "vector" and last.phi is None else None
        return list(last.pieces), classes

    def _value(self, node: fx.Node) -> Value | None:
        if node.op == "placeholder" or is_input(node):
            return self._input(node)
        given = [n for n in node.all_input_nodes if n in self.flow]
        if not given or is_aside(node):
            return None
        first = self.flow[given[0]]
        if self.ending is not None:
            raise _stop(node, "follows a softmax")
        if node.op == "call_module":
            return self._module(node, path_of(cast(str, node.target)), first)
        return self._call(node, first, [self.flow[n] for n in given])

    def _input(self, node: fx.Node) -> Value | None:
        x = self.constants.value(node)
        if not isinstance(x, torch.Tensor):
            return None
        if x.ndim == 2 and not x.is_floating_point():
            return TokenSignal((), "ids")
        if x.ndim == 4 and x.is_floating_point():
            return TokenSignal((), "image")
        raise Stop("", "input", "neither token ids (n, tokens) nor images")

    # Modules

    def _module(self, node: fx.Node, path: str, v: Value) -> Value:
        module: Any = self.builder.model.get_submodule(path)
        if vars(module).get("_forward_hooks") or vars(module).get("_forward_pre_hooks"):
            raise self.builder.stop(path, "has forward hooks, which may change what it does")
        if path in self.opaque:
            raise self.builder.stop(path, self.opaque[path])
        if isinstance(module, nn.Flatten):
            return reshaped(self, node, v)
        if type(module) in PASSIVE and "Softmax" not in type(module).__name__:
            return v
        if is_trunk(module):
            return self._trunk(path, v)
        if isinstance(module, _TORCH):
            return self._torch(node, path, module, v)
        if is_lookup(module) and isinstance(v, TokenSignal) and v.form == "ids":
            self.begun = True
            return TokenSignal((self.builder.embed(path),), "tokens")
        if isinstance(module, nn.Conv2d) and isinstance(v, TokenSignal) and v.form == "image":
            return TokenSignal((self.builder.patches(path),), "grid")
        if isinstance(module, nn.Linear):
            return self._linear(path, v)
        if "norm" in type(module).__name__.lower() and isinstance(v, TokenSignal) and v.form in ("tokens", "vector"):
            return TokenSignal((*v.pieces, *self.builder.norm(path)), v.form)
        if any(True for _ in module.parameters()) or any(True for _ in module.children()):
            raise self.builder.stop(path, refusal(module))
        return self._bend(v, module, path, type(module).__name__)

    def _trunk(self, path: str, v: Value) -> Value:
        if not isinstance(v, TokenSignal) or v.form not in ("ids", "image"):
            raise self.builder.stop(path, "gets something else than ids or images")
        self.begun = True
        tokens = TokenSignal(tuple(trunk(self.builder, path)), "tokens")
        more = pooled(self.builder, path)
        return Several((tokens, TokenSignal((*tokens.pieces, *more), "vector") if more else None))

    def _torch(self, node: fx.Node, path: str, module: nn.Module, v: Value) -> Value:
        self.begun = True
        if not isinstance(v, TokenSignal) or v.form != "tokens":
            raise self.builder.stop(path, "gets something else than tokens (n, tokens, nodes)")
        attention = isinstance(module, nn.MultiheadAttention)
        if attention and any(self.flow.get(n) is not v for n in node.args[:3] if isinstance(n, fx.Node)):
            raise self.builder.stop(
                path, "queries, keys and values come from different signals; a description has self-attention"
            )
        names = ["key_padding_mask", "need_weights", "attn_mask"] if attention else ["mask", "src_key_padding_mask"]
        names = ["src_mask" if n == "mask" and isinstance(module, nn.TransformerEncoderLayer) else n for n in names]
        given = dict(zip(names, node.args[3 if attention else 1 :], strict=False)) | dict(node.kwargs)
        if any(given.get(n) is not None for n in names if "padding" in n):
            raise self.builder.stop(path, _MASKED)
        mask = next((given[n] for n in names if n.endswith("mask") and "padding" not in n and n in given), None)
        causal = is_causal(self.constants.of(mask))
        if causal is None:
            raise self.builder.stop(path, _NOT_CAUSAL)
        if attention:
            return Several((TokenSignal((*v.pieces, multihead(self.builder, path, causal=causal)), "tokens"), None))
        return TokenSignal((*v.pieces, *encoder(self.builder, path, causal=causal)), "tokens")

    def _linear(self, path: str, v: Value) -> Value:
        builder, matrix = self.builder, self.builder.matrix(path)
        if isinstance(v, Attended):
            query, key, value = v.views
            self.begun = True
            piece = builder.attention(
                path.rpartition(".")[0], (query.matrix, key.matrix, value.matrix), matrix, v.heads, causal=v.causal
            )
            return TokenSignal((*query.base.pieces, piece), "tokens")
        if isinstance(v, TokenSignal) and v.form in ("tokens", "vector"):
            return TokenSignal((*v.pieces, builder.dense(matrix)), v.form, v, matrix)
        if isinstance(v, TokenSignal) and v.form == "nodes first":
            return Mixing(v, matrix)
        if isinstance(v, Mixing) and v.phi is not None and v.second is None:
            return replace(v, second=matrix)
        raise builder.stop(path, "a dense layer on something that a description does not have there")

    def _bend(self, v: Value, function: Callable[[torch.Tensor], torch.Tensor], path: str, kind: str) -> Value:
        phi = self.builder.phi(function, path, kind)
        if isinstance(v, TokenSignal) and v.form in ("tokens", "vector"):
            piece = self.builder.activate(function, path, kind)
            return TokenSignal((*v.pieces, piece), v.form, v.base, v.matrix, phi)
        if isinstance(v, DenseView) and v.phi is None:
            return replace(v, phi=phi)
        if isinstance(v, Mixing) and v.second is None and v.phi is None:
            return replace(v, phi=phi)
        raise Stop(path, kind, "an activation on something that a description does not have there")

    # Functions and methods

    def _call(self, node: fx.Node, v: Value, flows: list[Value]) -> Value:
        name = dispatch.function_name(node)
        if name in _COPIES or "dropout" in name:
            return v
        if name == "scaled_dot_product_attention":
            return self._sdpa(node)
        if name in SHAPING:
            return reshaped(self, node, v)
        if isinstance(v, Several) and name in ("getitem", "getattr"):
            return self.item(node, v)
        if dispatch.is_sum(node):
            return self._sum(node)
        if name in ("cat", "concat"):
            return self._joined(node)
        if name in _MATMULS:
            return self._product(node, flows)
        if name in _PRODUCTS:
            return self._scaled(node, flows)
        if isinstance(v, Scores):
            return self._scores(node, name, v)
        if "softmax" in name:
            return self._end(node, v)
        if isinstance(v, TokenSignal) and v.form == "ids" and name in ("eq", "ne"):
            raise Stop(owner(node), name, _MASKED)
        return self._bend(v, lambda x: self.constants.run(node, x), owner(node), name)

    def item(self, node: fx.Node, v: Several) -> Value:
        index: Any = node.args[1]
        places = {"last_hidden_state": 0, "pooler_output": 1}
        index = places.get(index, index)
        found = v.items[index] if isinstance(index, int) and -len(v.items) <= index < len(v.items) else None
        if found is None:
            raise _stop(node, f"takes {index!r} of an output, which is not read")
        return found

    def _sum(self, node: fx.Node) -> Value:
        one, other = (self.flow.get(n) if isinstance(n, fx.Node) else None for n in node.args[:2])
        if isinstance(one, TokenSignal) and isinstance(other, TokenSignal):
            return self._residual(node, one, other)
        v = one if one is not None else other
        rest = node.args[1] if one is not None else node.args[0]
        if isinstance(v, Scores):
            return self._masked(node, v, is_causal(self.constants.of(rest)))
        if isinstance(v, TokenSignal) and v.form == "tokens" and not dispatch.is_difference(node):
            return TokenSignal((*v.pieces, self.constants.positions(node, rest)), "tokens")
        raise _stop(node, "adds something that a description does not have there")

    def _residual(self, node: fx.Node, one: TokenSignal, other: TokenSignal) -> Value:
        short, long = sorted((one, other), key=lambda s: len(s.pieces))
        at = len(short.pieces)
        if one.form != other.form or long.pieces[:at] != short.pieces or len(long.pieces) == at:
            raise _stop(node, "a sum of two signals of which neither is the input of the other")
        scale = 1.0
        if dispatch.is_difference(node):
            if one is not short:
                raise _stop(node, "a branch minus the stream")
            scale = -1.0
        branch = list(long.pieces[at:])
        while len(branch) > 1 and isinstance(last := branch[-1].layer, Scale):  # a branch times a number
            scale *= last.factor
            branch.pop()
        return TokenSignal((*short.pieces, residual(branch, scale)), short.form)

    def _joined(self, node: fx.Node) -> Value:
        items: Any = node.args[0]
        axis = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim", 0)
        flows = [self.flow.get(n) for n in items]
        last = flows[-1]
        if axis not in (1, -2) or any(f is not None for f in flows[:-1]) or not isinstance(last, TokenSignal):
            raise _stop(node, "joins several signals; a description has one, and residual sums")
        pieces = [self.constants.first_token(node, n) for n in reversed(items[:-1])]
        self.begun = True
        return TokenSignal((*last.pieces, *pieces), "tokens")

    # Attention written out

    def _sdpa(self, node: fx.Node) -> Value:
        names = ["query", "key", "value", "attn_mask", "dropout_p", "is_causal"]
        given: dict[str, Any] = dict(zip(names, node.args, strict=False)) | dict(node.kwargs)
        views = [self.flow.get(given[n]) for n in names[:3]]
        self.begun = True
        causal = is_causal(self.constants.of(given.get("attn_mask")), taken=True)
        if causal is None:
            raise _stop(node, _NOT_CAUSAL)
        sizes = self.constants.shape(given["query"])
        query, key, value = self._three(node, views)
        return Attended((query, key, value), sizes[1], causal or bool(given.get("is_causal", False)))

    def _three(self, node: fx.Node, views: list[Value | None]) -> tuple[DenseView, DenseView, DenseView]:
        known = [v for v in views if isinstance(v, DenseView) and v.phi is None]
        if len(known) != 3 or len({id(v.base) for v in known}) > 1:
            raise _stop(node, "queries, keys and values that are not dense layers on one signal")
        return known[0], known[1], known[2]

    def _product(self, node: fx.Node, flows: list[Value]) -> Value:
        if len(flows) == 2 and isinstance(flows[0], DenseView) and isinstance(flows[1], DenseView):
            self.begun = True
            sizes = self.constants.shape(node)
            if len(sizes) == 4:
                return Scores(flows[0], flows[1], sizes[1])
        if len(flows) == 2 and isinstance(flows[0], Scores) and flows[0].weights and isinstance(flows[1], DenseView):
            scores = flows[0]
            return Attended(self._three(node, [scores.query, scores.key, flows[1]]), scores.heads, scores.causal)
        raise _stop(node, "a product of signals that is not attention of one signal, head by head")

    def _scores(self, node: fx.Node, name: str, v: Scores) -> Value:
        if name == "softmax" and not v.weights:
            return replace(v, weights=True)
        if name in ("masked_fill", "masked_fill_"):
            return self._masked(node, v, is_causal(self.constants.of(node.args[1])))
        raise _stop(node, "logits of attention that a description does not have")

    def _masked(self, node: fx.Node, v: Scores, causal: bool | None) -> Value:
        if causal is None or v.weights:
            raise _stop(node, _NOT_CAUSAL)
        return replace(v, causal=v.causal or causal)

    # The rest

    def _scaled(self, node: fx.Node, flows: list[Value]) -> Value:
        if len(flows) == 2:
            return self._gated(node, flows[0], flows[1])
        v = flows[0]
        number = next((a for a in node.args if not isinstance(a, fx.Node)), None)
        if isinstance(v, (Scores, DenseView)) and isinstance(number, (int, float)):
            return v  # of the logits: the comparison with the model says whether it is the right one
        found = dispatch.arithmetic(Call(node.target, node.args, node.kwargs))
        if isinstance(v, TokenSignal) and v.form in ("tokens", "vector") and found is not None:
            return TokenSignal((*v.pieces, *map(plain, found.layers)), v.form)
        raise _stop(node, "a product with something that a description does not have there")

    def _gated(self, node: fx.Node, one: Value, other: Value) -> Value:
        for gate, up in ((one, other), (other, one)):
            if not isinstance(gate, (TokenSignal, DenseView)) or not isinstance(up, (TokenSignal, DenseView)):
                continue
            base, phi, first, second = gate.base, gate.phi, gate.matrix, up.matrix
            if base is not None and base is up.base and phi and not up.phi and first is not None and second is not None:
                dense = self.builder.dense(first, second)
                return TokenSignal((*base.pieces, dense, plain(Gated(phi))), base.form)
        raise _stop(node, "a product of two signals that is not a gate on one signal")

    def _end(self, node: fx.Node, v: Value) -> Value:
        if not isinstance(v, TokenSignal) or v.form != "vector":
            raise _stop(node, "a softmax within the network")
        self.builder.notes.append(_NORMALIZED)
        self.ending = lambda x: self.constants.run(node, x)
        return v
