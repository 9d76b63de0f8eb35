"""Which layers ahead go together, by sampled nodes: decided by what they are, before any covariance is looked at."""

from __future__ import annotations

from collections.abc import Sequence

from firstguess.network.grid import Grid
from firstguess.network.layer import Layer, has_meaning
from firstguess.network.walk import unsigned


def nodewise(layer: Layer) -> bool:
    """Whether a layer is arithmetic on nodes, without weights."""
    return has_meaning(type(layer), "nodes")


def stretch(layers: Sequence[Layer], grid: Grid) -> int:
    """How many layers in front have no weights, if sampled nodes serve one of them better than a formula; else 0."""
    length = next((i for i, layer in enumerate(layers) if not nodewise(layer)), len(layers))
    if length and layers[0].exact(layers[1:length]):
        return 0
    return length if any(layer.sampled(grid) for layer in layers[:length]) else 0


def sums_ahead(layers: Sequence[Layer]) -> int:
    """How many layers in front, up to the next weights, have a sum of activated nodes under an activation; else 0."""
    if not layers or layers[0].paths:
        return 0
    length, bent, summed, needed = 0, False, False, False
    for layer in layers:
        if layer.paths:
            branch, *shortcut = layer.paths
            if unsigned(branch) or not all(nodewise(x) for path in shortcut for x in path):
                break
            summed = summed or bent
        elif not nodewise(layer):
            break
        bent, needed = bent or layer.bends, needed or (layer.bends and summed)
        length += 1
    return length if needed else 0
