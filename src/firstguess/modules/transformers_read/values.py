"""What flows through the graph of a model of tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from firstguess.modules.transformers_read.pieces import Matrix, Piece
from firstguess.network.activations.record import Activation

Form: TypeAlias = Literal["ids", "image", "grid", "grid, nodes last", "nodes first", "tokens", "vector"]


@dataclass(frozen=True, eq=False)
class Stream:
    """The signal behind some pieces: ids (n, T), an image, tokens (n, T, D) or, nodes first, (n, D, T), or a vector.

    `matrix` and `base`: the dense layer that it has just come through, and the signal in front; `phi`: then this.
    """

    pieces: tuple[Piece, ...]
    form: Form
    base: Stream | None = None
    matrix: Matrix | None = None
    phi: Activation | None = None


@dataclass(frozen=True, eq=False)
class View:
    """What a dense layer makes of tokens, reshaped or in part: queries, keys, values, or the halves of a gate."""

    base: Stream
    matrix: Matrix
    phi: Activation | None = None


@dataclass(frozen=True, eq=False)
class Several:
    """A tuple of signals."""

    items: tuple[Value | None, ...]


@dataclass(frozen=True, eq=False)
class Scores:
    """Logits of attention, or its weights."""

    query: View
    key: View
    heads: int
    causal: bool = False
    weights: bool = False


@dataclass(frozen=True, eq=False)
class Attended:
    """What heads take of the values; an output layer follows."""

    views: tuple[View, View, View]
    heads: int
    causal: bool


@dataclass(frozen=True, eq=False)
class Mixing:
    """Dense layers over the tokens of every node, between two transpositions."""

    base: Stream
    first: Matrix
    phi: Activation | None = None
    second: Matrix | None = None


Value: TypeAlias = Stream | View | Several | Scores | Attended | Mixing
