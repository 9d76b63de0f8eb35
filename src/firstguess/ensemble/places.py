"""A description with every size filled in: what each layer does to a shape, checked before any long work."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from firstguess.base.errors import FirstguessError, InvalidInput
from firstguess.network.layers import (
    Activate,
    AvgPool,
    BatchNorm,
    Conv,
    Dense,
    GroupNorm,
    Layer,
    MaxPool,
    Residual,
    text,
)
from firstguess.network.network import Network
from firstguess.network.signal import Inputs, Signal

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
        return isinstance(self.layer, (Dense, Conv, Residual))


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
    if any(isinstance(x, Conv) for x in _all(network.layers)):
        if len(shape) != 3:
            raise InvalidInput(
                "images (n, channels, height, width) for a network with convolutions",
                got=f"points of shape {shape}",
                where="data",
                hint="x.reshape(n, 1, 28, 28)",
            )
    else:
        shape = (nodes(shape),)
    head = max((i for i, x in enumerate(network.layers) if isinstance(x, (Dense, Conv, Residual))), default=-1)
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
    steps = wanted.through(network.layers, shape, head=head, units=network.classes)
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

    def through(
        self, layers: Sequence[Layer], shape: Shape, *, head: int, units: int, prefix: str = ""
    ) -> tuple[Step, ...]:
        """Steps of these layers; layer `head` has `units` units if its own width is not given."""
        steps: list[Step] = []
        for index, layer in enumerate(layers):
            where = f"{prefix}layer {index + 1} ({text(layer)})"
            step = self._step(layer, shape, where, units if index == head else self.width)
            before, self.signal = self.signal, self._after(layer)
            if isinstance(layer, Activate) and layer.phi.centered:
                step = replace(step, constant=_mean(layer, before) if self.signal is not None else None)
            steps.append(step)
            shape = step.after
        return tuple(steps)

    def _step(self, layer: Layer, shape: Shape, where: str, units: int) -> Step:
        step = Step(layer, text(layer), where, shape, shape)
        if isinstance(layer, Dense):
            return replace(step, after=(layer.width or units,), fan_in=nodes(shape))
        if isinstance(layer, Conv):
            return _conv(step, layer, units)
        if isinstance(layer, (MaxPool, AvgPool)):
            return replace(step, after=_pooled(layer, shape, where))
        if isinstance(layer, GroupNorm) and shape[0] % layer.groups:
            raise InvalidInput(
                f"groups that divide the {shape[0]} nodes (channels) before them",
                got=layer.groups,
                where=where,
                hint=f"groupnorm(groups={math.gcd(shape[0], layer.groups)})",
            )
        if isinstance(layer, BatchNorm) and layer.estimator == "leave_one_out" and len(shape) == 3:
            raise InvalidInput(
                "the usual estimator for a BatchNorm of images", got="leave_one_out", where=where, hint="batchnorm"
            )
        return self._residual(step, layer) if isinstance(layer, Residual) else step

    def _residual(self, step: Step, layer: Residual) -> Step:
        shortcut = self._path(layer.shortcut, step, _given(layer.branch) or step.before[0], "shortcut")
        after = shortcut[-1].after if shortcut else step.before
        branch = self._path(layer.branch, step, after[0], "branch")
        if branch[-1].after != after:
            what = f"as its shortcut, {after}" if shortcut else f"it gets, {after}"
            raise InvalidInput(
                f"a branch that gives {'the same' if shortcut else 'back the'} shape {what}",
                got=f"{branch[-1].after}",
                where=step.where,
                hint="leave the width of its last layer out; for conv(kernel=3) padding=1"
                + (", and one stride in all" if shortcut else ""),
            )
        return replace(step, after=after, branch=branch, shortcut=shortcut)

    def _path(self, layers: Sequence[Layer], step: Step, units: int, name: str) -> tuple[Step, ...]:
        """One path of a block, whose last weights make `units` nodes (channels) unless they say otherwise."""
        head = _last_weights(layers)
        pools = math.prod(x.size for x in layers[head + 1 :] if isinstance(x, (MaxPool, AvgPool)))
        flat = len(step.before) == 1 or (head >= 0 and isinstance(layers[head], Dense))
        inside = _Fold(self.width, self.signal)
        prefix = f"{step.where}, {name} "
        return inside.through(layers, step.before, head=head, units=units * (pools if flat else 1), prefix=prefix)

    def _after(self, layer: Layer) -> Signal | None:
        if self.signal is None:
            return None
        try:
            return layer.moments(self.signal)
        except FirstguessError:
            return None


def _last_weights(layers: Sequence[Layer]) -> int:
    return max((i for i, x in enumerate(layers) if isinstance(x, (Dense, Conv))), default=-1)


def _given(layers: Sequence[Layer]) -> int | None:
    """The nodes (channels) that the last weights of a path say they have, after the pools behind them."""
    head = _last_weights(layers)
    last = layers[head] if head >= 0 else None
    if not isinstance(last, (Dense, Conv)) or last.width is None:
        return None
    pools = math.prod(x.size for x in layers[head + 1 :] if isinstance(x, (MaxPool, AvgPool)))
    return max(last.width // pools, 1) if isinstance(last, Dense) else last.width


def _mean(layer: Activate, before: Signal | None) -> float:
    assert before is not None
    unit = before.at_scale(0.0)
    return replace(layer.phi, centered=False).moments(unit.between, unit.spread, mean=unit.mean).mean


def _conv(step: Step, layer: Conv, units: int) -> Step:
    if len(step.before) != 3:
        raise InvalidInput(
            "images before a convolution",
            got=f"{step.before}",
            where=step.where,
            hint="convolutions before dense layers",
        )
    channels, *sides = step.before
    reach = [(side + 2 * layer.padding - layer.kernel) // layer.stride + 1 for side in sides]
    if min(reach) < 1:
        raise InvalidInput(
            f"a kernel that fits into {sides[0]}×{sides[1]} images",
            got=layer.kernel,
            where=step.where,
            hint=f"conv(kernel={layer.kernel}, padding={layer.kernel // 2})",
        )
    return replace(step, after=(layer.width or units, *reach), fan_in=channels * layer.kernel**2)


def _pooled(layer: MaxPool | AvgPool, shape: Shape, where: str) -> Shape:
    size = layer.size
    if len(shape) == 1:
        if shape[0] % size:
            near = max(1, shape[0] // size) * size
            raise InvalidInput(
                f"a width that the pool of {size} divides",
                got=shape[0],
                where=where,
                hint=f"width={near}, or {layer.kind}({math.gcd(shape[0], size)})",
            )
        if isinstance(layer, MaxPool) and not layer.apart:
            raise InvalidInput(
                "pools of nodes side by side where there are no images",
                got=text(layer),
                where=where,
                hint=f"maxpool({size})",
            )
        return (shape[0] // size,)
    side = math.isqrt(size)
    if side * side != size:
        raise InvalidInput(
            "a pool of k×k positions: a square number",
            got=size,
            where=where,
            hint=f"{layer.kind}({side * side}) pools {side}×{side}",
        )
    padding = layer.padding if isinstance(layer, MaxPool) else 0
    if min(shape[1:]) + 2 * padding < side:
        raise InvalidInput(
            f"images of at least {side}×{side}",
            got=f"{shape[1]}×{shape[2]}",
            where=where,
            hint="fewer pools, or larger images",
        )
    high, wide = (layer.windows(n) if isinstance(layer, MaxPool) else n // side for n in shape[1:])
    return (shape[0], high, wide)


def _all(layers: Sequence[Layer]) -> Iterator[Layer]:
    for layer in layers:
        yield layer
        if isinstance(layer, Residual):
            yield from _all((*layer.branch, *layer.shortcut))


def has_centered(layers: Sequence[Layer]) -> bool:
    return any(isinstance(x, Activate) and x.phi.centered for x in _all(layers))
