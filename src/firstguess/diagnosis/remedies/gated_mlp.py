"""A gate in place of an activation: two independent factors, of which the second has mean 0 (theory.md (22))."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from firstguess.diagnosis.remedies.base import Case, Variant
from firstguess.network.layers import Activate, Dense, Gated, Layer, Residual
from firstguess.network.network import Network
from firstguess.network.walk import needs_tokens

TITLE = "gate the MLPs"


def variants(case: Case) -> Iterator[Variant]:
    """A network of tokens with φ(gate)·up where its blocks have φ between two dense layers."""
    if case.network is not None:
        yield from variants_of(case.network)


def variants_of(network: Network) -> Iterator[Variant]:
    """The same, of a description."""
    if not needs_tokens(network.layers):
        return
    layers = tuple(_gated(layer) for layer in network.layers)
    if layers != network.layers:
        new = Network(layers, network.classes)
        price = "half as many weights again in the MLPs, at the same width"
        yield Variant(TITLE, str(new), network=new, price=price)


def _gated(layer: Layer) -> Layer:
    if not isinstance(layer, Residual) or layer.shortcut:
        return layer
    branch = list(layer.branch)
    for i in range(len(branch) - 2):
        first, phi, last = branch[i : i + 3]
        if not (isinstance(first, Dense) and isinstance(phi, Activate) and isinstance(last, Dense)):
            continue
        if first.width is not None and not phi.phi.centered:
            branch[i : i + 2] = [replace(first, width=2 * first.width), Gated(phi.phi)]
    return replace(layer, branch=tuple(branch))
