"""Norms in front of branches, not behind sums: post-norm is more biased, increasingly with depth (theory.md §9)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from firstguess.diagnosis.remedies.base import Case, Variant
from firstguess.network.layers import Layer, LayerNorm, Residual, RMSNorm
from firstguess.network.network import Network
from firstguess.network.walk import needs_tokens

TITLE = "norms in front of branches (pre-norm), one more at the end"


def variants(case: Case) -> Iterator[Variant]:
    """A network of tokens with pre-norm blocks where it has post-norm ones."""
    if case.network is not None:
        yield from variants_of(case.network)


def variants_of(network: Network) -> Iterator[Variant]:
    """The same, of a description."""
    if not needs_tokens(network.layers):
        return
    layers = _pre_norm(network.layers)
    if layers is not None:
        new = Network(layers, network.classes)
        yield Variant(TITLE, str(new), network=new, price="another architecture: trained weights do not carry over")


def _pre_norm(layers: tuple[Layer, ...]) -> tuple[Layer, ...] | None:
    found, last, norm = list[Layer](), 0, None
    skip = False
    for layer, after in zip(layers, (*layers[1:], None), strict=True):
        if skip:
            skip = False
        elif isinstance(layer, Residual) and not layer.shortcut and isinstance(after, (LayerNorm, RMSNorm)):
            if isinstance(layer.branch[0], (LayerNorm, RMSNorm)):
                return None  # the norm at the end of pre-norm blocks
            found.append(replace(layer, branch=(after, *layer.branch)))
            last, norm, skip = len(found), after, True
        else:
            found.append(layer)
    return None if norm is None else (*found[:last], norm, *found[last:])
