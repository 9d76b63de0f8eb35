"""One member of an ensemble as a plain nn.Module, to take away, look at or train."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from firstguess.base.checks import count, float_range
from firstguess.base.errors import FirstguessError, InvalidInput
from firstguess.ensemble.seeds import fill_biases, fill_weights, member_seeds
from firstguess.network.inputs import Inputs
from firstguess.network.layer import Layer, text
from firstguess.network.network import Network
from firstguess.network.shapes import UNKNOWN, PositionGrid, Shape
from firstguess.network.signal import Signal
from firstguess.network.tensors import Place, Weights
from firstguess.network.torch_ops import join
from firstguess.network.walk import check_vocabulary, needs_images, needs_tokens, sequence, shapes

# A description with every size filled in: what each layer does to a shape, checked before any long work.


def resolve(
    network: Network,
    sizes: tuple[int, ...],
    *,
    width: int,
    inputs: Callable[[], Inputs | None],
    points: int | None = None,
    batch: int | None = None,
    vocabulary: int | None = None,
) -> tuple[Place, ...]:
    """Fill in the sizes of a network for points of these sizes; the last dense layer has `network.classes` units.

    Where layers are about tokens, points are ids (tokens,) of a `vocabulary`, or images to be cut into patches.

    `inputs` gives the data's moments, if a layer asks for the closed form in its place (a `centered(φ)` does); None:
    there are none.
    """
    if needs_tokens(network.layers):
        if len(sizes) not in (1, 3):
            expected = "token ids (n, tokens) for embed, or images (n, channels, height, width) for patches"
            hint = "embed(0.02) or patches(16) as the first layer"
            raise InvalidInput(expected, got=f"points of shape {sizes}", where="data", hint=hint)
        grid = PositionGrid(sizes[1:]) if len(sizes) == 3 else sequence(sizes[0])
        first = Shape(sizes[0] if len(sizes) == 3 else vocabulary, grid, drawn=True)
    elif needs_images(network.layers):
        if len(sizes) != 3:
            expected = "images (n, channels, height, width) for a network with convolutions"
            raise InvalidInput(expected, got=f"points of shape {sizes}", where="data", hint="x.reshape(n, 1, 28, 28)")
        first = Shape(sizes[0], PositionGrid(sizes[1:]), drawn=True)
    else:
        first = Shape(Shape(sizes[0], PositionGrid(sizes[1:])).nodes, drawn=True)
    head = _head(network)
    found = shapes(network.layers[:head], first, width)
    found += shapes(network.layers[head:], found.pop(), network.classes, first=head + 1)

    def start() -> Signal | None:
        given = inputs()
        return None if given is None else given.signal()

    places = tuple(_placed(network.layers, found, _Signals(network.layers, start), width, (points, batch)))
    last = places[-1]
    if last.layer.each_token:
        check_vocabulary(network.layers, network.classes)
    elif last.after.sizes != (network.classes,):
        expected = f"{network.classes} outputs, one per class"
        hint = "put pools before the output layer"
        raise InvalidInput(expected, got=f"{last.after.sizes} after {last.name}", where=last.where, hint=hint)
    return places


def _head(network: Network) -> int:
    """The place of the last weights, whose units are the classes."""
    layers = network.layers
    head = max((i for i, layer in enumerate(layers) if layer.weighted), default=-1)
    if head < 0 or not layers[head].draws or needs_images(layers[head : head + 1]):
        expected = "a network whose last weights are a dense layer: its units are the classes"
        got = f"one that ends in {text(layers[-1])}"
        raise InvalidInput(expected, got=got, where=f"layer {len(layers)}", hint="add '> dense' at the end")
    if (given := layers[head].shape(UNKNOWN, network.classes).width) != network.classes:
        expected = f"an output layer of {network.classes} units, the number of classes"
        hint = "leave its width out, or set classes"
        raise InvalidInput(expected, got=given, where=f"layer {head + 1} ({text(layers[head])})", hint=hint)
    return head


@dataclass
class _Signals:
    """The closed-form signal before every layer, computed as far as somebody asks."""

    layers: Sequence[Layer]
    start: Callable[[], Signal | None]
    _known: list[Signal | None] = field(default_factory=list["Signal | None"])

    def before(self, index: int) -> Signal | None:
        """Return the signal before this layer; None from where on there is no closed form."""
        if not self._known:
            self._known.append(self.start())
        while len(self._known) <= index:
            self._known.append(self._after(self.layers[len(self._known) - 1], self._known[-1]))
        return self._known[index]

    def covered(self, index: int) -> Signal | None:
        """Return the signal before this layer, if the closed form covers this one too."""
        return self.before(index) if self.before(index + 1) is not None else None

    @staticmethod
    def _after(layer: Layer, signal: Signal | None) -> Signal | None:
        if signal is None:
            return None
        try:
            with float_range():
                after = layer.moments(signal)
                after.rescaled()
                return after
        except FirstguessError:
            return None


def _placed(
    layers: Sequence[Layer],
    found: Sequence[Shape],
    signals: _Signals,
    width: int,
    of_data: tuple[int | None, int | None],
    prefix: str = "",
) -> Iterator[Place]:
    """Places of these layers, whose shapes are known; `of_data`: how many points there are, and in a batch."""
    for index, (layer, before, after) in enumerate(zip(layers, found, found[1:], strict=False)):
        where = f"{prefix}layer {index + 1} ({text(layer)})"
        try:
            inside = layer.inside(before, width)
        except FirstguessError as error:
            raise error.at(where) from None
        start = partial(signals.before, index)
        paths = tuple(
            tuple(_placed(path, sizes, _Signals(path, start), width, of_data, f"{where}, {name} "))
            for path, sizes, name in zip(layer.paths, inside, layer.brackets, strict=True)
        )
        yield Place(layer, text(layer), where, before, after, partial(signals.covered, index), *of_data, paths)


def check_data(x: NDArray[Any]) -> NDArray[np.float32]:
    """The data as contiguous float32 (n, d) or (n, channels, height, width), or one clear error."""
    if not hasattr(x, "ndim") or x.ndim not in (2, 4) or x.dtype.kind not in "fiub":
        got = f"shape {x.shape}, {x.dtype}" if hasattr(x, "ndim") else type(x).__name__
        hint = "x.reshape(n, -1)"
        raise InvalidInput("numbers of shape (n, d) or (n, channels, height, width)", got=got, where="data", hint=hint)
    if x.shape[0] < 2 or 0 in x.shape:
        expected = "at least 2 data points of at least 1 dimension"
        hint = "more points: class shares are shares of a data set"
        raise InvalidInput(expected, got=f"shape {x.shape}", where="data", hint=hint)
    data = np.ascontiguousarray(x, dtype=np.float32)
    for first in range(0, len(data), 4096):
        finite = np.isfinite(data[first : first + 4096]).reshape(len(data[first : first + 4096]), -1).all(1)
        if not finite.all():
            got = f"NaN or Inf in point {first + int(np.argmin(finite))}"
            raise InvalidInput("finite data", got=got, where="data", hint="x[np.isfinite(x).all(axis=1)]")
    return data


def moments_of(data: NDArray[np.float32]) -> Inputs | None:
    """m0, v0 and the mean of theory.md (2), first row; None for points that all coincide."""
    flat = data.reshape(len(data), -1)
    mean = flat.mean(0, dtype=np.float64)
    variance = float(flat.var(0, dtype=np.float64).mean()) * len(flat) / (len(flat) - 1)
    return None if variance == 0.0 else Inputs(float(np.mean(mean**2)), variance, float(mean.mean()))


def build(
    network: Network, inputs: NDArray[Any] | Sequence[int] | int, *, width: int = 1000, seed: int = 0, member: int = 0
) -> nn.Sequential:
    """The member (seed, member) of a description's ensemble as an nn.Sequential with the same weights.

    `inputs` is the data (n, d) or (n, channels, height, width), or the shape of one data point; a `centered` activation
    subtracts the mean predicted for these data, or for the blob where only a shape is given. The weights are those of
    `DescriptionEngine(…, reduce=False)`: an exact reduction draws other numbers of the same distribution. BatchNorm
    uses the batch that it is given, or consecutive batches where the description says their size. Untrained norms have
    no parameters here.

    >>> model = build(Network.parse("dense(weight_var=2) > relu > dense"), 10, width=32)
    >>> [type(module).__name__ for module in model], tuple(model[0].weight.shape)
    (['Linear', 'ReLU', 'Linear'], (32, 10))
    """
    if isinstance(inputs, np.ndarray):
        data = check_data(inputs)
        sizes = data.shape[1:]

        def moments() -> Inputs | None:
            return moments_of(data)
    else:
        given = (inputs,) if isinstance(inputs, int) else tuple(inputs)
        sizes = tuple(count(size, 1, "size of a data point", "build", "build(net, 784)") for size in given)
        moments = Inputs
    ids = isinstance(inputs, np.ndarray) and len(sizes) == 1 and needs_tokens(network.layers)
    vocabulary = int(np.max(inputs)) + 1 if ids else None
    places = resolve(
        network, sizes, width=count(width, 1, "width", "build", "width=1000"), inputs=moments, vocabulary=vocabulary
    )
    member = count(member, 0, "member", "build", "member=0")
    return drawn(places, int(member_seeds(seed, member, member + 1)[0]), flat=len(sizes) == 1)


def drawn(places: Sequence[Place], seed: int, *, flat: bool | None = None) -> nn.Sequential:
    """The modules of these layers, with weights of a generator seeded so; `flat`: whether vectors come in."""
    found = _Drawn(torch.Generator().manual_seed(seed)).path(places, flat=flat)
    join(found)
    return found


@dataclass(frozen=True)
class _Drawn:
    """One member's draws, from its own generator, in the order of the engine."""

    generator: torch.Generator

    def fill(self, module: nn.Module, weights: Weights) -> nn.Module:
        """The module with its `weight`, and its `bias` if there are biases, drawn; frozen ones want no gradient."""
        module.requires_grad_(weights.trained)
        with torch.no_grad():
            fill_weights(module.get_parameter("weight"), self.generator, weights)
            if weights.bias_var > 0.0:
                fill_biases(module.get_parameter("bias"), self.generator, weights)
        return module

    def path(self, places: Sequence[Place], *, flat: bool | None = None) -> nn.Sequential:
        """Modules one after another; `flat`: whether vectors come in, if not what the first layer wants."""
        modules: OrderedDict[str, nn.Module] = OrderedDict()
        if flat is False and not places[0].before.images:
            modules["flatten"] = nn.Flatten()
        for index, place in enumerate(places):
            if place.layer.draws and place.before.images and len(place.after.sizes) == 1:
                modules[f"flatten{index}"] = nn.Flatten()
            try:
                modules[str(index)] = place.layer.module(place, self)
            except FirstguessError as error:
                raise error.at(place.where) from None
        return nn.Sequential(modules)
