"""What flows through the graph of a model of tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast

import numpy as np
import torch
from torch import fx, nn

from firstguess.modules.read import dispatch
from firstguess.modules.read.graph import ancestors, owner
from firstguess.modules.read.token_parts import Builder, Matrix, Piece, Stop, plain
from firstguess.modules.read.tracing import OneInput, path_of
from firstguess.network.activations.record import Activation
from firstguess.network.layers import Positions
from firstguess.network.layers.positions import waves

Form: TypeAlias = Literal["ids", "image", "grid", "grid, nodes last", "nodes first", "tokens", "vector"]


@dataclass(frozen=True, eq=False)
class TokenSignal:
    """The signal after some pieces: ids (n, T), an image, tokens (n, T, D) or, nodes first, (n, D, T), or a vector.

    `matrix` and `base`: the dense layer that it has just come through, and the signal in front; `phi`: then this.
    """

    pieces: tuple[Piece, ...]
    form: Form
    base: TokenSignal | None = None
    matrix: Matrix | None = None
    phi: Activation | None = None


@dataclass(frozen=True, eq=False)
class DenseView:
    """What a dense layer makes of tokens, reshaped or in part: queries, keys, values, or the halves of a gate."""

    base: TokenSignal
    matrix: Matrix
    phi: Activation | None = None


@dataclass(frozen=True, eq=False)
class Several:
    """A tuple of signals."""

    items: tuple[Value | None, ...]


@dataclass(frozen=True, eq=False)
class Scores:
    """Logits of attention, or its weights."""

    query: DenseView
    key: DenseView
    heads: int
    causal: bool = False
    weights: bool = False


@dataclass(frozen=True, eq=False)
class Attended:
    """What heads take of the values; an output layer follows."""

    views: tuple[DenseView, DenseView, DenseView]
    heads: int
    causal: bool


@dataclass(frozen=True, eq=False)
class Mixing:
    """Dense layers over the tokens of every node, between two transpositions."""

    base: TokenSignal
    first: Matrix
    phi: Activation | None = None
    second: Matrix | None = None


Value: TypeAlias = TokenSignal | DenseView | Several | Scores | Attended | Mixing


# What a graph computes without its input: positions, class tokens, masks; by value, and by the parameter behind.


class _Values(fx.Interpreter):
    def __init__(self, call: OneInput, graph: fx.Graph) -> None:
        super().__init__(call, graph=graph, garbage_collect_values=False)
        self.found: dict[fx.Node, Any] = {}

    def run_node(self, n: fx.Node) -> Any:
        self.found[n] = super().run_node(n)
        return self.found[n]


class Constants:
    """Values of all nodes on a few inputs."""

    def __init__(self, builder: Builder, call: OneInput, graph: fx.Graph, inputs: torch.Tensor) -> None:
        self.builder = builder
        values = _Values(call, graph)
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
            raise Stop(name.rpartition(".")[0], name, "is put in front of tokens, but not as it is")
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
