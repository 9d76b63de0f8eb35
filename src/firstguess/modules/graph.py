"""The nodes of a graph that carry the signal, and the trail that it takes through them."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, cast

from torch import fx

from firstguess.modules.tracing import Traced, path_of
from firstguess.network.layer import Meaning

_SHAPE_METHODS = ("size", "dim", "numel", "ndimension")
_SHAPE_ATTRIBUTES = ("shape", "dtype", "device", "ndim", "is_cuda")
_LOGITS = "logits"


@dataclass
class Carrier:
    """A node that carries the signal: what it means, and where the signal came from."""

    path: str
    kind: str
    meaning: Meaning
    before: fx.Node | None  # None: the input
    axes: int | None
    module: bool = False
    width: int | None = None  # nodes or channels, where layers around it say so
    broken: bool = False  # a sum whose branch has unread parts, which are listed by themselves

    @property
    def unread(self) -> bool:
        return self.broken or bool(self.meaning.why)

    @property
    def draws(self) -> bool:
        """Whether it has weights of its own."""
        return any(layer.draws for layer in self.meaning.layers)


@dataclass
class Trail:
    """All carriers of a graph, in the order of their calls."""

    traced: Traced
    carriers: dict[fx.Node, Carrier] = field(default_factory=dict[fx.Node, Carrier])
    passed: dict[fx.Node, fx.Node] = field(default_factory=dict[fx.Node, fx.Node])
    """Sums with a branch that adds nothing: what they hand on."""
    idle: set[fx.Node] = field(default_factory=set[fx.Node])  # in a branch that adds nothing, or after the last weights

    def shape(self, node: fx.Node) -> tuple[int, ...] | None:
        """Of a node's result, where an example was run."""
        return self.traced.shapes.get(node.name)

    def back(self, node: fx.Node | None) -> list[fx.Node]:
        """The nodes that the signal came through, backwards to the input; sums are passed by as one."""
        found: list[fx.Node] = []
        while node is not None:
            found.append(node)
            node = self.carriers[node].before
        return found

    def terms(self, node: fx.Node) -> list[fx.Node]:
        """The signals that a node is made from: both of a sum, unless one adds nothing."""
        if node in self.passed:
            return [self.passed[node]]
        return [n for n in node.all_input_nodes if n in self.carriers]

    def sources(self, nodes: Iterable[fx.Node]) -> set[fx.Node]:
        """All nodes that signals come from, themselves included."""
        found, todo = set[fx.Node](), list(nodes)
        while todo:
            one = todo.pop()
            if one not in found:
                found.add(one)
                todo += self.terms(one)
        return found


def is_input(node: fx.Node) -> bool:
    """An argument taken out of the one input (see `tracing.OneInput`)."""
    source = node.args[0] if node.target is operator.getitem else None
    return isinstance(source, fx.Node) and source.op == "placeholder" and isinstance(node.args[1], (int, str))


def is_aside(node: fx.Node) -> bool:
    """Whether a node asks for a shape or a device, not for the signal."""
    if node.op == "call_method":
        return node.target in _SHAPE_METHODS
    return node.target is getattr and node.args[1] in _SHAPE_ATTRIBUTES


def owner(node: fx.Node) -> str:
    """The module in whose forward a function is called."""
    stack = cast("dict[str, Any]", node.meta.get("nn_module_stack") or {})
    last = next(reversed(stack.values()), None)
    return path_of(last[0] if isinstance(last, tuple) else "model")


def ancestors(node: fx.Node) -> set[fx.Node]:
    """All nodes that a node is computed from, itself included."""
    found: set[fx.Node] = set()
    todo = [node]
    while todo:
        one = todo.pop()
        if one not in found:
            found.add(one)
            todo += one.all_input_nodes
    return found


def output(graph: fx.Graph) -> tuple[fx.Node | None, str]:
    """The node of the logits, and a problem if it is not clear which one that is."""
    out: Any = next(node for node in reversed(graph.nodes) if node.op == "output").args[0]
    if isinstance(out, dict) and isinstance(out.get(_LOGITS), fx.Node):
        return out[_LOGITS], ""
    values = out.values() if isinstance(out, dict) else out if isinstance(out, (tuple, list)) else [out]
    nodes = [value for value in values if isinstance(value, fx.Node)]
    if len(nodes) == 1:
        return nodes[0], ""
    problem = f"the model returns {len(nodes)} tensors, and none of them is called {_LOGITS!r}"
    return (nodes[0] if nodes else None), problem
