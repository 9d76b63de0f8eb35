"""Tokens in the graph of a forward: where sequences are embedded, attended to, mixed and pooled."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, cast

import numpy as np
import torch
from torch import fx, nn

from firstguess.modules.members.initializers import is_lookup
from firstguess.modules.read import dispatch
from firstguess.modules.read.graph import Carrier, Trail, ancestors, owner, sum_of
from firstguess.modules.read.huggingface import encoder, is_causal, is_trunk, multihead, pooled, trunk
from firstguess.modules.read.token_parts import Builder, Matrix, Piece, Stop
from firstguess.modules.read.tracing import Traced, path_of
from firstguess.network.activations.record import Activation
from firstguess.network.layer import IMAGE, Call, ReadResult
from firstguess.network.layers import FirstToken, Gated, Positions
from firstguess.network.layers.embed import waves

# What a node of the graph carries, where that is more than vectors or images.

Form: TypeAlias = Literal["ids", "grid, nodes last", "nodes first", "tokens", "vector", "lost"]


@dataclass(frozen=True, eq=False)
class TokenView:
    """What a dense layer makes of the signal at `base`, whole, reshaped or in part: queries, keys, values, half a gate.

    `phi`: then this. The nodes that `made` it are parts of what it goes into.
    """

    base: fx.Node
    matrix: Matrix
    made: tuple[fx.Node, ...]
    phi: Activation | None = None


@dataclass(frozen=True, eq=False)
class TokenSignal:
    """Ids (n, T), images (n, h, w, D) on their way to tokens, tokens (n, T, D) or, nodes first, (n, D, T), or a vector.

    `view`: the dense layer that it has just come through.
    """

    form: Form
    view: TokenView | None = None


@dataclass(frozen=True, eq=False)
class Several:
    """A tuple of signals, each with what is done to get it."""

    items: tuple[tuple[Flow, tuple[Piece, ...]] | None, ...]


@dataclass(frozen=True, eq=False)
class HeadViews:
    """Logits of attention; or its `weights`; or what they take of the values (`value`), and an output layer follows."""

    query: TokenView
    key: TokenView
    count: int
    causal: bool = False
    weights: bool = False
    value: TokenView | None = None


@dataclass(frozen=True, eq=False)
class Mixing:
    """Dense layers over the tokens of every node, between two transpositions."""

    first: TokenView
    second: TokenView | None = None


Flow: TypeAlias = TokenSignal | TokenView | Several | HeadViews | Mixing
_LOST = TokenSignal("lost")  # what comes from something that was not read

# Functions and modules, by what they do to tokens.

_PARTS = ("chunk", "split", "unbind", "tensor_split")
_SHAPING = (
    "view", "reshape", "flatten", "transpose", "permute", "swapaxes", "unflatten", "squeeze", "unsqueeze", "mean",
    "getitem", "select", *_PARTS,
)  # fmt: skip
_TORCH = (nn.MultiheadAttention, nn.TransformerEncoder, nn.TransformerEncoderLayer)
_NOT_CAUSAL = "a mask that is not causal; a description has causal attention, or none masked"
_MASKED = "a padding mask by hand: padding is read of Hugging Face's own models only"


def is_leaf(module: nn.Module) -> bool:
    """What the tracing does not look into, in a model that may be one of tokens."""
    return dispatch.claim(module) is not None or isinstance(module, _TORCH) or is_trunk(module)


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


class TokenWalk:
    """What the nodes of a graph carry, with the values of its constants at hand."""

    def __init__(self, builder: Builder, traced: Traced) -> None:
        self.builder, self.traced = builder, traced
        self.trail: Trail
        self.embeds = any(is_lookup(m) or is_trunk(m) for m in builder.model.modules())

    def visit(self, trail: Trail, node: fx.Node, signals: Sequence[fx.Node]) -> Carrier | None:
        """What a node carries; None: nothing of tokens."""
        self.trail = trail
        if not signals:
            x = self._value(node)
            ids = self.embeds and isinstance(x, torch.Tensor) and x.ndim == 2 and not x.is_floating_point()
            return Carrier("", "input", ReadResult(), None, 2, flow=TokenSignal("ids")) if ids else None
        given = [n for n in signals if self._flow(n) is not None]
        if any(self._flow(n) is _LOST for n in given):
            return Carrier(owner(node), "", ReadResult(), signals[0], None, broken=True, flow=_LOST)
        try:
            if not given:
                return self._entering(node, signals[0])
            if node.op == "call_module":
                return self._module(node, path_of(cast(str, node.target)), given[0])
            return self._call(node, given)
        except Stop as stop:
            return Carrier(stop.path, stop.kind, ReadResult(why=stop.why), signals[0], None, flow=_LOST)

    def signal(self, node: fx.Node | None) -> TokenSignal | None:
        """What is known of the output, if it is tokens or a vector of them."""
        flow = None if node is None else self._flow(node)
        return flow if isinstance(flow, TokenSignal) and flow.form in ("tokens", "vector") else None

    def run(self, node: fx.Node, x: torch.Tensor) -> torch.Tensor:
        """A module or function of one tensor, on another one."""
        if node.op == "call_module":
            return self.builder.model.get_submodule(path_of(cast(str, node.target)))(x)
        args, kwargs = fx.map_arg((node.args[1:], node.kwargs), self._of)
        target: Any = node.target
        return getattr(x, target)(*args, **kwargs) if node.op == "call_method" else target(x, *args, **kwargs)

    # Nodes, values, carriers

    def _flow(self, node: Any) -> Flow | None:
        carrier = self.trail.carriers.get(node) if isinstance(node, fx.Node) else None
        return None if carrier is None else cast("Flow | None", carrier.flow)

    def _value(self, node: fx.Node) -> Any:
        return self.traced.values.get(node)

    def _of(self, argument: Any) -> Any:
        """An argument of a call as a value."""
        return self._value(argument) if isinstance(argument, fx.Node) else argument

    def _shape(self, node: fx.Node) -> tuple[int, ...]:
        return self.trail.shape(node) or ()

    def _passed(
        self, node: fx.Node, before: fx.Node, flow: Flow, *pieces: Piece, made: Sequence[fx.Node] = ()
    ) -> Carrier:
        """The carrier of a node that adds these pieces to the signal `before`."""
        for one in made:
            self.trail.carriers[one].parts = ()
        meaning = ReadResult(tuple(piece.layer for piece in pieces))
        parts = tuple(part for piece in pieces for part in piece.parts)
        if node.op == "call_module":
            path = path_of(cast(str, node.target))
            return Carrier(path, self.builder.kind(path), meaning, before, None, parts=parts, flow=flow)
        return Carrier(owner(node), dispatch.function_name(node), meaning, before, None, parts=parts, flow=flow)

    def _entering(self, node: fx.Node, source: fx.Node) -> Carrier | None:
        """Where images become tokens: in a known trunk, or where the positions of patches become one axis."""
        image = self.trail.carriers[source]
        path = path_of(cast(str, node.target)) if node.op == "call_module" else ""
        module = self.builder.model.get_submodule(path) if path else None
        if module is not None and is_trunk(module) and image.kind == "input":
            return self._trunk(node, path, source)
        conv = self.builder.model.get_submodule(image.path) if image.module else None
        ahead = (self.trail.carriers[one] for one in self.trail.back(image.before))
        first = isinstance(conv, nn.Conv2d) and not any(one.unread or one.meaning.layers for one in ahead)
        before, after = self._shape(source), self._shape(node)
        if not first or len(before) != IMAGE or image.unread:
            return None
        form: Form | None = None
        name = "flatten" if isinstance(module, nn.Flatten) else dispatch.function_name(node) if module is None else ""
        if name in ("flatten", "view", "reshape") and after == (*before[:2], before[2] * before[3]):
            form = "nodes first"
        elif name == "permute" and [a % IMAGE for a in _numbers(node)] == [0, 2, 3, 1]:
            form = "grid, nodes last"
        if form is None:
            return None
        piece = self.builder.patches(image.path)
        image.meaning, image.parts = ReadResult((piece.layer,)), piece.parts
        return self._passed(node, source, TokenSignal(form))

    # Constants: what a graph computes without its input, by value, and by the parameter that it comes from.

    def _positions(self, node: fx.Node, argument: Any) -> Piece:
        """What is added to all sequences alike, a vector for every place."""
        added = self._of(argument)
        if not isinstance(added, torch.Tensor) or added.ndim < 2 or added.numel() != added.shape[-2] * added.shape[-1]:
            raise _stop(node, "adds something else than a vector for every place")
        added = added.reshape(added.shape[-2:])
        name = self._parameter(argument)
        if name is None:
            fixed = torch.from_numpy(np.asarray(waves(*added.shape)))
            if float((added.double() - fixed).abs().max()) < 1e-4:
                return Piece(Positions(sinusoidal=True))
            raise _stop(node, "adds fixed positions that are not sines and cosines side by side")
        table = self.builder.model.get_parameter(name).detach()
        rows = table.reshape(-1, table.shape[-1])
        first = (rows == added[0]).all(dim=1).nonzero().flatten().tolist()
        start = next((i for i in first if torch.equal(rows[i : i + len(added)], added.to(rows))), None)
        if start is None:
            raise Stop(name.rpartition(".")[0], name, "is added to tokens, but not row by row as positions")
        return self.builder.shared(Positions, name, start=start)

    def _first_token(self, node: fx.Node, argument: Any) -> Piece:
        """A learned token that comes before all others."""
        name, token = self._parameter(argument), self._of(argument)
        if name is None or not isinstance(token, torch.Tensor) or token.ndim != 3 or token.shape[1] != 1:
            raise _stop(node, "joins something else than one learned token")
        own = self.builder.model.get_parameter(name).detach()
        if own.numel() != token.shape[-1] or not torch.equal(token, own.reshape(1, 1, -1).expand_as(token)):
            raise Stop(name.rpartition(".")[0], name, "is put before tokens, but not as it is")
        return self.builder.shared(FirstToken, name)

    def _parameter(self, argument: Any) -> str | None:
        """The one parameter that a constant comes from."""
        if not isinstance(argument, fx.Node):
            return None
        found: list[str] = []
        parameters = dict(self.builder.model.named_parameters())
        for node in ancestors([argument]):
            path = path_of(cast(str, node.target)) if node.op in ("get_attr", "call_module") else ""
            if node.op == "get_attr" and path in parameters:
                found.append(path)
            elif node.op == "call_module" and isinstance(self.builder.model.get_submodule(path), nn.Embedding):
                found.append(f"{path}.weight")
        return found[0] if len(found) == 1 else None

    # Reshaping, averaging tokens, taking parts

    def _reshaped(self, node: fx.Node, at: fx.Node) -> Carrier:
        name = dispatch.function_name(node) if node.op != "call_module" else "flatten"
        v, before, after = self._flow(at), self._shape(at), self._shape(node)
        if isinstance(v, Several):
            return self._item(node, at, v)
        if isinstance(v, HeadViews) and v.value is not None:
            if name in ("mean", "getitem", "select", *_PARTS):
                raise _stop(node, "takes a part of the heads")
            return self._passed(node, at, v)
        if isinstance(v, TokenView):
            return self._passed(node, at, self._viewed(node, name, v, before))
        if isinstance(v, Mixing):
            one, two = v.first, v.second
            if two is None or one.phi is None or not _swaps(node, name):
                raise _stop(node, "reshapes what dense layers over tokens make")
            mixed = self.builder.tokenmix(one.matrix, one.phi, two.matrix)
            return self._passed(node, one.base, TokenSignal("tokens"), mixed, made=(*one.made, *two.made))
        if not isinstance(v, TokenSignal):
            raise _stop(node, "reshapes logits of attention")
        if name in ("getitem", "select", "mean"):
            return self._pooled(node, name, at, v, before)
        if v.form == "grid, nodes last" and after == (before[0], before[1] * before[2], before[3]):
            return self._passed(node, at, TokenSignal("tokens"))
        if v.form in ("nodes first", "tokens") and _swaps(node, name) and (v.form != "tokens" or v.view is None):
            return self._passed(node, at, TokenSignal("nodes first" if v.form == "tokens" else "tokens"))
        if v.form == "tokens" and v.view is not None:
            return self._passed(node, at, self._viewed(node, name, v.view, before))
        if before == after:
            return self._passed(node, at, v)
        raise _stop(node, f"makes {before[1:]} of a sample into {after[1:]}")

    def _viewed(self, node: fx.Node, name: str, v: TokenView, source: tuple[int, ...]) -> Flow:
        units = v.matrix.units
        if name in _PARTS:
            parts = cast("tuple[torch.Tensor, ...]", self._value(node))
            if units % len(parts) or len({p.shape for p in parts}) > 1:
                raise _stop(node, "parts of different sizes")
            size = units // len(parts)
            cut = (replace(v, matrix=v.matrix.part(i * size, (i + 1) * size)) for i in range(len(parts)))
            return Several(tuple((one, ()) for one in cut))
        if name in ("getitem", "select"):
            index: Any = node.args[1]
            if isinstance(index, int) and source[0] in (2, 3) and units % source[0] == 0 and name == "getitem":
                size = units // source[0]
                return replace(v, matrix=v.matrix.part(index * size, (index + 1) * size))
            raise _stop(node, "takes a part of queries, keys and values that is not one of them")
        if name == "mean":
            raise _stop(node, "averages something else than tokens")
        return v

    def _pooled(self, node: fx.Node, name: str, at: fx.Node, v: TokenSignal, before: tuple[int, ...]) -> Carrier:
        """One token, or the mean of all."""
        axis = {"tokens": 1, "nodes first": 2}.get(v.form)
        if axis is None:
            if name == "getitem" and self._shape(node) == before:
                return self._passed(node, at, v)
            raise _stop(node, "takes a part of the signal")
        if name == "mean":
            dims = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim")
            dims = [dims] if isinstance(dims, int) else list(cast(Any, dims) or [])
            if [d % 3 for d in dims] == [axis] and not node.kwargs.get("keepdim"):
                return self._passed(node, at, TokenSignal("vector"), self.builder.pool("mean"))
            raise _stop(node, "averages something else than tokens")
        index = _token(node, name, axis)
        which = {0: "cls", -1: "last", before[axis] - 1: "last"}.get(index) if index is not None else None
        if which is None:
            raise _stop(node, "takes a part of the tokens that is neither the first nor the last")
        return self._passed(node, at, TokenSignal("vector"), self.builder.pool(which))

    def _item(self, node: fx.Node, at: fx.Node, v: Several) -> Carrier:
        index: Any = node.args[1]
        places = {"last_hidden_state": 0, "pooler_output": 1}
        index = places.get(index, index)
        found = v.items[index] if isinstance(index, int) and -len(v.items) <= index < len(v.items) else None
        if found is None:
            raise _stop(node, f"takes {index!r} of an output, which is not read")
        return self._passed(node, at, found[0], *found[1])

    # Modules

    def _module(self, node: fx.Node, path: str, at: fx.Node) -> Carrier | None:
        builder, v = self.builder, self._flow(at)
        module: Any = builder.model.get_submodule(path)
        if vars(module).get("_forward_hooks") or vars(module).get("_forward_pre_hooks"):
            raise builder.stop(path, "has forward hooks, which may change what it does")
        if path in self.traced.opaque:
            raise builder.stop(path, self.traced.opaque[path])
        if is_trunk(module):
            return self._trunk(node, path, at)
        if isinstance(v, TokenSignal) and v.form == "ids":
            return self._passed(node, at, TokenSignal("tokens"), builder.embed(path)) if is_lookup(module) else None
        if isinstance(module, nn.Flatten):
            return self._reshaped(node, at)
        if isinstance(module, _TORCH):
            return self._torch(node, path, module, at)
        if isinstance(module, nn.Linear):
            return self._linear(node, path, at)
        found = dispatch.PASSIVE.get(type(module))
        if found is not None and (passive := self.builder.modules.meaning(path, None)).why == "":
            return replace(self._passed(node, at, cast(Flow, v)), meaning=passive)
        if isinstance(v, TokenSignal) and v.form in ("tokens", "vector"):
            if found is not None:
                return self._end(node, at, v)
            pieces = builder.module(path, len(self._shape(at)))
            phi = pieces[0].layer.function
            view = None if v.view is None or phi is None else replace(v.view, phi=phi, made=(*v.view.made, node))
            return self._passed(node, at, TokenSignal(v.form, view), *pieces)
        if any(True for _ in module.parameters()) or any(True for _ in module.children()):
            raise builder.stop(path, dispatch.refusal(module))
        return self._bend(node, at, module, path, type(module).__name__)

    def _trunk(self, node: fx.Node, path: str, at: fx.Node) -> Carrier:
        if self.trail.carriers[at].kind != "input":
            raise self.builder.stop(path, "gets something else than ids or images")
        pieces, more = trunk(self.builder, path), pooled(self.builder, path)
        vector = (TokenSignal("vector"), tuple(more)) if more else None
        return self._passed(node, at, Several(((TokenSignal("tokens"), ()), vector)), *pieces)

    def _torch(self, node: fx.Node, path: str, module: nn.Module, at: fx.Node) -> Carrier:
        v = self._flow(at)
        if not isinstance(v, TokenSignal) or v.form != "tokens":
            raise self.builder.stop(path, "gets something else than tokens (n, tokens, nodes)")
        attention = isinstance(module, nn.MultiheadAttention)
        if attention and any(n is not at for n in node.args[:3] if isinstance(n, fx.Node)):
            why = "queries, keys and values come from different signals; a description has self-attention"
            raise self.builder.stop(path, why)
        given = inspect.signature(module.forward).bind(*node.args, **node.kwargs).arguments
        if any(value is not None for name, value in given.items() if "padding" in name):
            raise self.builder.stop(path, _MASKED)
        causal = is_causal(self._of(next((given[n] for n in ("attn_mask", "mask", "src_mask") if n in given), None)))
        if causal is None:
            raise self.builder.stop(path, _NOT_CAUSAL)
        if attention:
            piece = multihead(self.builder, path, causal=causal)
            return self._passed(node, at, Several(((TokenSignal("tokens"), ()), None)), piece)
        return self._passed(node, at, TokenSignal("tokens"), *encoder(self.builder, path, causal=causal))

    def _linear(self, node: fx.Node, path: str, at: fx.Node) -> Carrier:
        builder, matrix, v = self.builder, self.builder.matrix(path), self._flow(at)
        if isinstance(v, HeadViews) and v.value is not None:
            three = (v.query.matrix, v.key.matrix, v.value.matrix)
            piece = builder.attention(path.rpartition(".")[0], three, matrix, v.count, causal=v.causal)
            made = [*v.query.made, *v.key.made, *v.value.made]
            return self._passed(node, v.query.base, TokenSignal("tokens"), piece, made=made)
        if isinstance(v, TokenSignal) and v.form in ("tokens", "vector"):
            return self._passed(node, at, TokenSignal(v.form, TokenView(at, matrix, (node,))), builder.dense(matrix))
        if isinstance(v, TokenSignal) and v.form == "nodes first":
            return self._passed(node, at, Mixing(TokenView(at, matrix, (node,))))
        if isinstance(v, Mixing) and v.first.phi is not None and v.second is None:
            return self._passed(node, at, replace(v, second=TokenView(at, matrix, (node,))))
        raise builder.stop(path, "a dense layer on something that a description does not have there")

    def _bend(
        self, node: fx.Node, at: fx.Node, function: Callable[[torch.Tensor], torch.Tensor], path: str, kind: str
    ) -> Carrier:
        """A function by its values."""
        phi, v = self.builder.phi(function, path, kind), self._flow(at)
        view = v.first if isinstance(v, Mixing) and v.second is None else v.view if isinstance(v, TokenSignal) else v
        bent = None
        if isinstance(view, TokenView) and view.phi is None:
            bent = replace(view, phi=phi, made=(*view.made, node))
        if isinstance(v, TokenSignal) and v.form in ("tokens", "vector"):
            return self._passed(node, at, TokenSignal(v.form, bent), self.builder.activate(function, path, kind))
        if bent is not None and isinstance(v, TokenView | Mixing):
            return self._passed(node, at, bent if isinstance(v, TokenView) else Mixing(bent))
        raise Stop(path, kind, "an activation on something that a description does not have there")

    # Functions and methods

    def _call(self, node: fx.Node, given: Sequence[fx.Node]) -> Carrier:
        name, at = dispatch.function_name(node), given[0]
        v = cast(Flow, self._flow(at))
        passive = dispatch.identity_call(Call(node.target, node.args, node.kwargs))
        if passive is not None and not passive.last:
            if passive.why:
                raise _stop(node, passive.why)
            return replace(self._passed(node, at, v), meaning=passive)
        if name == "scaled_dot_product_attention":
            return self._sdpa(node)
        if name in _SHAPING:
            return self._reshaped(node, at)
        if isinstance(v, Several) and name == "getattr":
            return self._item(node, at, v)
        if dispatch.is_sum(node):
            return self._sum(node, given)
        if name in ("cat", "concat"):
            return self._joined(node)
        if node.target in dispatch.MATMULS:
            return self._product(node, given)
        if node.target in (*dispatch.PRODUCTS, *dispatch.QUOTIENTS):
            return self._scaled(node, given)
        if isinstance(v, HeadViews):
            return self._scores(node, name, at, v)
        if "softmax" in name:
            return self._end(node, at, v)
        if isinstance(v, TokenSignal) and v.form == "ids":
            raise _stop(node, _MASKED if name in ("eq", "ne") else "a description has no such function")
        return self._bend(node, at, lambda x: self.run(node, x), owner(node), name)

    def _sum(self, node: fx.Node, given: Sequence[fx.Node]) -> Carrier:
        one, other = (self._flow(n) for n in node.args[:2])
        if isinstance(one, TokenSignal) and isinstance(other, TokenSignal):
            left, right = (cast(fx.Node, n) for n in node.args[:2])
            carrier = sum_of(self.trail, node, owner(node), left, right)
            branch, shortcut = (carrier.meaning.layers[0].paths if carrier.meaning.layers else ()) or ((), ())
            if one.form != other.form or not branch or shortcut:
                neither = "a sum of two signals of which neither is the input of the other"
                raise _stop(node, carrier.meaning.why or neither)
            carrier.flow = TokenSignal(one.form)
            return carrier
        at = given[0]
        v, rest = self._flow(at), node.args[1] if node.args[0] is at else node.args[0]
        if isinstance(v, HeadViews):
            return self._masked(node, at, v, is_causal(self._of(rest)))
        if isinstance(v, TokenSignal) and v.form == "tokens" and not dispatch.is_difference(node):
            return self._passed(node, at, TokenSignal("tokens"), self._positions(node, rest))
        raise _stop(node, "adds something that a description does not have there")

    def _joined(self, node: fx.Node) -> Carrier:
        items: Any = node.args[0]
        axis = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim", 0)
        flows = [self._flow(n) for n in items]
        if axis not in (1, -2) or any(f is not None for f in flows[:-1]) or not isinstance(flows[-1], TokenSignal):
            raise _stop(node, "joins several signals; a description has one, and residual sums")
        pieces = [self._first_token(node, n) for n in reversed(items[:-1])]
        return self._passed(node, items[-1], TokenSignal("tokens"), *pieces)

    # Attention written out

    def _sdpa(self, node: fx.Node) -> Carrier:
        names = ["query", "key", "value", "attn_mask", "dropout_p", "is_causal"]
        given: dict[str, Any] = dict(zip(names, node.args, strict=False)) | dict(node.kwargs)
        causal = is_causal(self._of(given.get("attn_mask")), taken=True)
        if causal is None:
            raise _stop(node, _NOT_CAUSAL)
        found = self._heads(node, [self._flow(given[n]) for n in names[:3]], self._shape(given["query"])[1])
        causal = causal or bool(given.get("is_causal", False))
        return self._passed(node, given["query"], replace(found, causal=causal, weights=True))

    def _heads(self, node: fx.Node, views: Sequence[Flow | None], count: int) -> HeadViews:
        """Queries, keys and, if there are three, values."""
        known = [v for v in views if isinstance(v, TokenView) and v.phi is None]
        if len(known) != len(views) or len({v.base for v in known}) > 1:
            raise _stop(node, "queries, keys and values that are not dense layers on one signal")
        return HeadViews(known[0], known[1], count, value=known[2] if len(known) > 2 else None)

    def _product(self, node: fx.Node, given: Sequence[fx.Node]) -> Carrier:
        one, other = (self._flow(n) for n in given) if len(given) == 2 else (None, None)
        sizes = self._shape(node)
        if isinstance(one, TokenView) and isinstance(other, TokenView) and len(sizes) == 4:
            return self._passed(node, given[0], self._heads(node, [one, other], sizes[1]))
        if isinstance(one, HeadViews) and one.weights and isinstance(other, TokenView):
            found = self._heads(node, [one.query, one.key, other], one.count)
            return self._passed(node, given[0], replace(found, causal=one.causal, weights=True))
        raise _stop(node, "a product of signals that is not attention of one signal, head by head")

    def _scores(self, node: fx.Node, name: str, at: fx.Node, v: HeadViews) -> Carrier:
        if name == "softmax" and not v.weights:
            return self._passed(node, at, replace(v, weights=True))
        if name in ("masked_fill", "masked_fill_"):
            return self._masked(node, at, v, is_causal(self._of(node.args[1])))
        raise _stop(node, "logits of attention that a description does not have")

    def _masked(self, node: fx.Node, at: fx.Node, v: HeadViews, causal: bool | None) -> Carrier:
        if causal is None or v.weights:
            raise _stop(node, _NOT_CAUSAL)
        return self._passed(node, at, replace(v, causal=v.causal or causal))

    # The rest

    def _scaled(self, node: fx.Node, given: Sequence[fx.Node]) -> Carrier:
        if len(given) == 2:
            return self._gated(node, *given)
        at, v = given[0], self._flow(given[0])
        number = next((a for a in node.args if not isinstance(a, fx.Node)), None)
        if isinstance(v, (HeadViews, TokenView)) and isinstance(number, (int, float)):
            return self._passed(node, at, v)  # of the logits: the comparison with the model says whether it is right
        found = dispatch.arithmetic(Call(node.target, node.args, node.kwargs))
        if isinstance(v, TokenSignal) and v.form in ("tokens", "vector") and found is not None:
            return self._passed(node, at, TokenSignal(v.form), *map(Piece, found.layers))
        raise _stop(node, "a product with something that a description does not have there")

    def _gated(self, node: fx.Node, one: fx.Node, other: fx.Node) -> Carrier:
        views = [v.view if isinstance(v, TokenSignal) else v for v in map(self._flow, (one, other))]
        for gate, up in (views, views[::-1]):
            if not isinstance(gate, TokenView) or not isinstance(up, TokenView):
                continue
            if gate.base is up.base and gate.phi and not up.phi:
                pieces = self.builder.dense(gate.matrix, up.matrix), Piece(Gated(gate.phi))
                base = cast(TokenSignal, self._flow(gate.base))
                made = (*gate.made, *up.made)
                return self._passed(node, gate.base, TokenSignal(base.form), *pieces, made=made)
        raise _stop(node, "a product of two signals that is not a gate on one signal")

    def _end(self, node: fx.Node, at: fx.Node, v: Flow) -> Carrier:
        """A softmax, which is left out at the end."""
        if not isinstance(v, TokenSignal) or v.form != "vector":
            raise _stop(node, "a softmax within the network")
        return replace(self._passed(node, at, v), meaning=dispatch.SOFTMAX)


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
