"""Remedies of networks of tokens, by their description: pre-norm, gated MLPs, smaller shared embeddings (theory.md §9).

Each gives the changed network, if there is anything to change.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from firstguess.diagnosis.remedies.base import Variant, described
from firstguess.network.layers import Activate, Dense, Gated, Layer, LayerNorm, Residual, RMSNorm
from firstguess.network.network import Network

_SMALLER = 0.1


def pre_norm(network: Network) -> Iterator[Variant]:
    """Norms before branches, not after sums: post-norm is more biased, increasingly with depth."""
    found, last, norm = list[Layer](), 0, None
    skip = False
    for layer, after in zip(network.layers, (*network.layers[1:], None), strict=True):
        if skip:
            skip = False
        elif isinstance(layer, Residual) and not layer.shortcut and isinstance(after, (LayerNorm, RMSNorm)):
            if isinstance(layer.branch[0], (LayerNorm, RMSNorm)):
                return  # the norm at the end of pre-norm blocks
            found.append(replace(layer, branch=(after, *layer.branch)))
            last, norm, skip = len(found), after, True
        else:
            found.append(layer)
    if norm is not None:
        new = Network((*found[:last], norm, *found[last:]), network.classes)
        title = "norms before branches (pre-norm), one more at the end"
        yield Variant(title, str(new), network=new, price="another architecture: trained weights do not carry over")


def gated_mlps(network: Network) -> Iterator[Variant]:
    """φ(gate)·up where blocks have φ between two dense layers: of the two factors the second has mean 0 (22)."""
    return described(network, "gate the MLPs", _gated, "half as many weights again in the MLPs, at the same width")


def smaller_embeddings(network: Network) -> Iterator[Variant]:
    """Smaller positions, types and class tokens: what all sequences share makes their guesses alike (20)."""

    def smaller(layer: Layer, _: Layer | None) -> Layer | None:
        new = layer.with_shared(_SMALLER)
        return None if new == layer else new

    title = "positions, types and class token ten times smaller"
    return described(network, title, smaller, "what the network knows of positions starts smaller, too")


def _gated(layer: Layer, _: Layer | None) -> Layer | None:
    if not isinstance(layer, Residual) or layer.shortcut:
        return None
    branch = list(layer.branch)
    for i in range(len(branch) - 2):
        first, phi, last = branch[i : i + 3]
        if not (isinstance(first, Dense) and isinstance(phi, Activate) and isinstance(last, Dense)):
            continue
        if first.width is not None and not phi.phi.centered:
            branch[i : i + 2] = [replace(first, width=2 * first.width), Gated(phi.phi)]
    new = replace(layer, branch=tuple(branch))
    return None if new == layer else new
