"""A description with every size filled in: what each layer does to a shape, checked before any long work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from firstguess.base.checks import float_range
from firstguess.base.errors import FirstguessError, InvalidInput
from firstguess.network.inputs import Inputs
from firstguess.network.layer import Layer, text
from firstguess.network.network import Network
from firstguess.network.shapes import UNKNOWN, PositionGrid, Shape
from firstguess.network.signal import Signal
from firstguess.network.tensors import Place
from firstguess.network.walk import check_vocabulary, needs_images, needs_tokens, sequence, shapes


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
        first = _of_tokens(sizes, vocabulary)
    elif needs_images(network.layers):
        if len(sizes) != 3:
            raise InvalidInput(
                "images (n, channels, height, width) for a network with convolutions",
                got=f"points of shape {sizes}",
                where="data",
                hint="x.reshape(n, 1, 28, 28)",
            )
        first = Shape(sizes[0], PositionGrid(sizes[1:]), drawn=True)
    else:
        first = Shape(Shape(sizes[0], PositionGrid(sizes[1:])).nodes, drawn=True)
    head = _head(network)
    found = shapes(network.layers[:head], first, width)
    found += shapes(network.layers[head:], found.pop(), network.classes, first=head + 1)

    def start() -> Signal | None:
        given = inputs()
        return None if given is None else given.signal()

    places = _Fold(width, points, batch).through(network.layers, found, _Signals(network.layers, start))
    last = places[-1]
    if last.layer.each_token:
        check_vocabulary(network.layers, network.classes)
    elif last.after.sizes != (network.classes,):
        raise InvalidInput(
            f"{network.classes} outputs, one a class",
            got=f"{last.after.sizes} after {last.name}",
            where=last.where,
            hint="put pools before the output layer",
        )
    return places


def _of_tokens(sizes: tuple[int, ...], vocabulary: int | None) -> Shape:
    if len(sizes) == 3:
        return Shape(sizes[0], PositionGrid(sizes[1:]), drawn=True)
    if len(sizes) == 1:
        return Shape(vocabulary, sequence(sizes[0]), drawn=True)
    raise InvalidInput(
        "token ids (n, tokens) behind embed, or images (n, channels, height, width) behind patches",
        got=f"points of shape {sizes}",
        where="data",
        hint="embed(0.02) or patches(16) as the first layer",
    )


def _head(network: Network) -> int:
    """The place of the last weights, whose units are the classes."""
    layers = network.layers
    head = max((i for i, layer in enumerate(layers) if layer.weighted), default=-1)
    if head < 0 or not layers[head].draws or needs_images(layers[head : head + 1]):
        raise InvalidInput(
            "a network whose last weights are a dense layer: its units are the classes",
            got=f"one that ends in {text(layers[-1])}",
            where=f"layer {len(layers)}",
            hint="add '> dense' at the end",
        )
    if (given := layers[head].shape(UNKNOWN, network.classes).width) != network.classes:
        raise InvalidInput(
            f"an output layer of {network.classes} units, the number of classes",
            got=given,
            where=f"layer {head + 1} ({text(layers[head])})",
            hint="leave its width out, or set classes",
        )
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


@dataclass(frozen=True)
class _Fold:
    """What all places have in common."""

    width: int
    points: int | None
    batch: int | None

    def through(
        self, layers: Sequence[Layer], found: Sequence[Shape], signals: _Signals, *, prefix: str = ""
    ) -> tuple[Place, ...]:
        """Places of these layers, whose shapes are known."""
        return tuple(
            self._place(index, layer, found, signals, f"{prefix}layer {index + 1} ({text(layer)})")
            for index, layer in enumerate(layers)
        )

    def _place(self, index: int, layer: Layer, found: Sequence[Shape], signals: _Signals, where: str) -> Place:
        before, after = found[index : index + 2]
        try:
            inside = layer.inside(before, self.width)
        except FirstguessError as error:
            raise error.at(where) from None
        paths = tuple(
            self.through(path, sizes, _Signals(path, lambda: signals.before(index)), prefix=f"{where}, {name} ")
            for path, sizes, name in zip(layer.paths, inside, layer.brackets, strict=True)
        )
        return Place(
            layer,
            text(layer),
            where,
            before,
            after,
            lambda: signals.covered(index),
            self.points,
            self.batch,
            paths,
        )
