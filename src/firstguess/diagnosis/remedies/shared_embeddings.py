"""Smaller positions, types and class tokens: what all sequences share makes their guesses alike (theory.md (20))."""

from __future__ import annotations

from collections.abc import Iterator

from firstguess.diagnosis.remedies.base import Case, Variant, described
from firstguess.network.layers import Layer
from firstguess.network.network import Network
from firstguess.network.walk import needs_tokens

_SMALLER = 0.1
TITLE = "positions, types and class token ten times smaller"


def variants(case: Case) -> Iterator[Variant]:
    """A network of tokens whose shared vectors start smaller."""
    if case.network is not None:
        yield from variants_of(case.network)


def variants_of(network: Network) -> Iterator[Variant]:
    """The same, of a description."""
    if needs_tokens(network.layers):
        yield from described(network, TITLE, _smaller, price="what positions tell the network starts smaller too")


def _smaller(layer: Layer, before: Layer | None) -> Layer | None:
    smaller = layer.with_shared(_SMALLER)
    return None if smaller == layer else smaller
