"""A description with every size filled in: what each layer does to a shape, checked before any long work."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from firstguess.base.errors import FirstguessError, InvalidInput
from firstguess.network.grid import Grid
from firstguess.network.grid import Shape as Grown
from firstguess.network.inputs import Inputs
from firstguess.network.layers import (
    Activate,
    Conv,
    Dense,
    Layer,
    Residual,
    text,
)
from firstguess.network.network import Network
from firstguess.network.signal import Signal
from firstguess.network.walk import every, needs_images, shapes

Shape = tuple[int, ...]  # (nodes,) or (channels, height, width)


@dataclass(frozen=True)
class Step:
    """A layer in its place: the shapes of one data point before and after it, and what else its place decides."""

    layer: Layer
    name: str  # its text
    where: str  # "layer 3 (relu)"
    before: Shape
    after: Shape
    fan_in: int = 0
    constant: float | None = 0.0  # what a centered activation takes off; None: its own mean over data and nodes
    branch: tuple[Step, ...] = ()
    shortcut: tuple[Step, ...] = ()

    @property
    def weights(self) -> bool:
        """Whether its output is a pre-activation."""
        return self.layer.weighted


def nodes(shape: Shape) -> int:
    """How many numbers one data point has."""
    return math.prod(shape)


def resolve(network: Network, shape: Shape, *, width: int, inputs: Inputs | None) -> tuple[Step, ...]:
    """Fill in the sizes of a network for data of this shape; the last dense layer has `network.classes` units.

    `inputs` are the data's moments: a `centered(φ)` takes off E φ at the variance that the closed form predicts in its
    place for such inputs (theory.md §4); where the closed form has no answer, or `inputs` is None, its own mean over
    data and nodes in each initialization.
    """
    last = network.layers[-1]
    if needs_images(network.layers):
        if len(shape) != 3:
            raise InvalidInput(
                "images (n, channels, height, width) for a network with convolutions",
                got=f"points of shape {shape}",
                where="data",
                hint="x.reshape(n, 1, 28, 28)",
            )
    else:
        shape = (nodes(shape),)
    head = max((i for i, x in enumerate(network.layers) if x.weighted), default=-1)
    if head < 0 or not isinstance(network.layers[head], Dense):
        raise InvalidInput(
            "a network whose last weights are a dense layer: its units are the classes",
            got=f"one that ends in {text(last)}",
            where=f"layer {len(network.layers)}",
            hint="add '> dense' at the end",
        )
    if (given := network.layers[head].width) not in (None, network.classes):  # type: ignore[attr-defined]
        raise InvalidInput(
            f"an output layer of {network.classes} units, the number of classes",
            got=given,
            where=f"layer {head + 1} ({text(network.layers[head])})",
            hint="leave its width out, or set classes",
        )
    wanted = _Fold(width, inputs.signal() if inputs is not None and has_centered(network.layers) else None)
    first = Grown(shape[0], Grid(shape[1:]), drawn=True)
    found = shapes(network.layers[:head], first, width)
    found += shapes(network.layers[head:], found.pop(), network.classes, first=head + 1)
    steps = wanted.through(network.layers, found)
    if steps[-1].after != (network.classes,):
        raise InvalidInput(
            f"{network.classes} outputs, one a class",
            got=f"{steps[-1].after} after {steps[-1].name}",
            where=steps[-1].where,
            hint="put pools before the output layer",
        )
    return steps


@dataclass
class _Fold:
    """The sizes and, where a centered activation needs it, the closed-form signal so far."""

    width: int
    signal: Signal | None

    def through(self, layers: Sequence[Layer], found: Sequence[Grown], *, prefix: str = "") -> tuple[Step, ...]:
        """Steps of these layers, whose shapes are known."""
        steps: list[Step] = []
        for index, (layer, before, after) in enumerate(zip(layers, found[:-1], found[1:], strict=True)):
            where = f"{prefix}layer {index + 1} ({text(layer)})"
            step = Step(layer, text(layer), where, before.sizes, after.sizes, fan_in=_fan_in(layer, before))
            if layer.paths:
                step = self._residual(step, before)
            was, self.signal = self.signal, self._after(layer)
            if isinstance(layer, Activate) and layer.phi.centered:
                step = replace(step, constant=_mean(layer, was) if self.signal is not None else None)
            steps.append(step)
        return tuple(steps)

    def _residual(self, step: Step, before: Grown) -> Step:
        assert isinstance(step.layer, Residual)
        branch, shortcut = (
            _Fold(self.width, self.signal).through(path, found, prefix=f"{step.where}, {name} ")
            for path, found, name in zip(
                step.layer.paths, step.layer.inside(before, self.width), ("branch", "shortcut"), strict=True
            )
        )
        return replace(step, branch=branch, shortcut=shortcut)

    def _after(self, layer: Layer) -> Signal | None:
        if self.signal is None:
            return None
        try:
            return layer.moments(self.signal)
        except FirstguessError:
            return None


def _fan_in(layer: Layer, before: Grown) -> int:
    if isinstance(layer, Conv):
        return (before.width or 0) * layer.kernel**2
    return before.nodes if layer.draws else 0


def _mean(layer: Activate, before: Signal | None) -> float:
    assert before is not None
    unit = before.at_scale(0.0)
    return replace(layer.phi, centered=False).moments(unit.between, unit.spread, mean=unit.mean).mean


def has_centered(layers: Sequence[Layer]) -> bool:
    return any(isinstance(x, Activate) and x.phi.centered for x in every(layers))
