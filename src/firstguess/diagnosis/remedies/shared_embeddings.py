"""Smaller positions, types and class tokens: what all sequences share makes their guesses alike (theory.md (20))."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from firstguess.diagnosis.remedies.base import Case, Variant, described
from firstguess.network.layers import Embed, FirstToken, Layer, Positions
from firstguess.network.walk import needs_tokens

_SMALLER = 0.1
TITLE = "positions, types and class token ten times smaller"


def variants(case: Case) -> Iterator[Variant]:
    """A network of tokens whose shared vectors start smaller."""
    if case.network is not None and needs_tokens(case.network.layers):
        yield from described(case.network, TITLE, _smaller)


def _smaller(layer: Layer, before: Layer | None) -> Layer | None:
    if isinstance(layer, Embed) and layer.types:
        return replace(layer, types=_SMALLER * layer.types)
    if isinstance(layer, Positions) and layer.std and not layer.sinusoidal:
        return replace(layer, std=_SMALLER * layer.std)
    return replace(layer, std=_SMALLER * layer.std) if isinstance(layer, FirstToken) and layer.std else None
