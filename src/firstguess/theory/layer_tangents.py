"""The tangent kernel, layer by layer: Adam has another step for each (theory.md (18))."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from firstguess.base.gaussian import Array
from firstguess.network.grid import Grid, Shape
from firstguess.network.layer import Layer
from firstguess.network.network import Network
from firstguess.network.walk import changed, needs_images, shapes
from firstguess.theory.training_problem import kernel_of


def layer_tangents(network: Network, x: Array, width: int) -> Iterator[tuple[Array, int, bool]]:
    """Θ of each layer's own weights alone, their number, and whether it is the output: the sum is Θ.

    Frozen layers have none.
    """
    sizes = list(_weights(network, x, width))
    frozen = [getattr(layer, "frozen", False) for layer in _in_order(network.layers) if layer.draws]
    for index, size in enumerate(sizes):
        if frozen[index]:
            continue
        alone = kernel_of(_only(network, index), x, width).tangent
        assert alone is not None
        yield alone, size, index == len(sizes) - 1


def _in_order(layers: Sequence[Layer]) -> Iterator[Layer]:
    """Layers within others first, as `changed` has them."""
    for layer in layers:
        for path in layer.paths:
            yield from _in_order(path)
        yield layer


def _only(network: Network, index: int) -> Network:
    """The network in which only one layer is trained."""
    seen = -1

    def change(layer: Layer) -> tuple[Layer, ...]:
        nonlocal seen
        if not layer.draws:
            return (layer,)
        seen += 1
        given: Any = layer
        return (replace(given, frozen=given.frozen or seen != index),)

    return replace(network, layers=changed(network.layers, change))


def _weights(network: Network, x: Array, width: int) -> Iterator[int]:
    """How many weights each layer has, in the order of `changed`."""
    images = needs_images(network.layers)
    shape = Shape(x.shape[1], Grid(tuple(x.shape[2:]))) if images else Shape(math.prod(x.shape[1:]))
    yield from _counted(network.layers, shapes(network.layers, shape, width, last=network.classes), width)


def _counted(layers: Sequence[Layer], found: Sequence[Shape], width: int) -> Iterator[int]:
    for layer, before, after in zip(layers, found, found[1:], strict=False):
        for path, inner in zip(layer.paths, layer.inside(before, width), strict=False):
            yield from _counted(path, inner, width)
        if layer.draws:
            assert before.width is not None
            assert after.width is not None
            places = layer.kernel_side**2 if layer.kernel_side else (before.grid.places if before.grid else 1)
            yield before.width * places * after.width
