"""A piece of a model of tokens: a layer, and the model's own parameters that the layer's module would hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch

from firstguess.modules.structure import Part
from firstguess.network.layer import Layer
from firstguess.network.layers import Residual

Tensors: TypeAlias = Callable[[str], torch.Tensor]  # a parameter by its name in the model


class Stop(Exception):
    """What cannot be read: where, which kind of module, and why."""

    def __init__(self, path: str, kind: str, why: str, before: Sequence[Piece] = ()) -> None:
        super().__init__(why)
        self.path, self.kind, self.why = path, kind, why
        self.before = tuple(before)  # what was read in front of it


@dataclass(frozen=True)
class Own:
    """A parameter of the model or some of its rows, as (units, inputs)."""

    name: str
    transposed: bool = False  # GPT-2's Conv1D: (inputs, units)
    rows: tuple[int, int | None] = (0, None)  # from, to

    def of(self, tensors: Tensors) -> torch.Tensor:
        value = tensors(self.name)
        value = value.T if self.transposed else value
        value = value.reshape(-1, value.shape[-1]) if value.ndim == 3 and len(value) == 1 else value  # (1, tokens, D)
        return value[slice(*self.rows)]


@dataclass(frozen=True)
class Matrix:
    """A dense layer's weight and bias, wherever the model keeps them."""

    path: str
    kind: str
    weight: Own
    bias: Own | None
    units: int
    inputs: int

    def part(self, start: int, stop: int) -> Matrix:
        """Some of its units: queries, keys or values of a fused layer."""
        bias = None if self.bias is None else Own(self.bias.name, rows=(start, stop))
        weight = Own(self.weight.name, self.weight.transposed, (start, stop))
        return Matrix(self.path, self.kind, weight, bias, stop - start, self.inputs)


@dataclass(frozen=True)
class Fill:
    """What a module of a layer is filled with where it would draw: rows of these, one below the other."""

    weights: tuple[Own, ...]
    biases: tuple[Own | None, ...] = ()

    def weight(self, tensors: Tensors) -> torch.Tensor:
        return torch.cat([own.of(tensors) for own in self.weights])

    def bias(self, tensors: Tensors) -> torch.Tensor:
        """Zeros where the model has none."""
        weights = [own.of(tensors) for own in self.weights]
        pairs = zip(weights, self.biases, strict=True)
        return torch.cat([w.new_zeros(len(w)) if own is None else own.of(tensors) for w, own in pairs])


@dataclass(frozen=True, eq=False)
class Piece:
    """A layer as the model initializes it; `check`: the same with biases wherever the model has them, zero or not.

    `fills` come in the order in which the module of `check` draws.
    """

    layer: Layer
    check: Layer
    fills: tuple[Fill, ...] = ()
    parts: tuple[Part, ...] = ()


def plain(layer: Layer, *parts: Part) -> Piece:
    """A piece without weights."""
    return Piece(layer, layer, (), parts)


def residual(branch: Sequence[Piece], scale: float = 1.0) -> Piece:
    """x plus a branch."""
    return Piece(
        Residual(tuple(piece.layer for piece in branch), scale),
        Residual(tuple(piece.check for piece in branch), scale),
        tuple(fill for piece in branch for fill in piece.fills),
        tuple(part for piece in branch for part in piece.parts),
    )
