"""One walk over layers: all of them, those within others included; and the fold of their shapes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from firstguess.base.checks import float_range
from firstguess.base.errors import FirstguessError, InvalidInput, NotCovered
from firstguess.network.finite_sample import PointSample
from firstguess.network.finite_signal import FiniteSignal
from firstguess.network.layer import Layer, Mix, Symmetry, text
from firstguess.network.shapes import PositionGrid, Shape
from firstguess.network.signal import Signal


def every(layers: Iterable[Layer]) -> Iterator[Layer]:
    """All layers in order; a layer with paths comes before those within."""
    for layer in layers:
        yield layer
        for path in layer.paths:
            yield from every(path)


def changed(layers: Iterable[Layer], change: Callable[[Layer], Iterable[Layer]]) -> tuple[Layer, ...]:
    """Every layer replaced by what `change` makes of it, inside paths first."""
    return tuple(new for layer in layers for new in change(layer.with_paths(lambda path: changed(path, change))))


def needs_images(layers: Iterable[Layer]) -> bool:
    """Whether weights act by position (convolutions): then a data point has to be an image."""
    return any(Mix.POSITIONS in layer.mixes and layer.draws for layer in every(layers))


def needs_tokens(layers: Iterable[Layer]) -> bool:
    """Whether layers are about the tokens of a sequence: then a data point has to be one, or an image in patches."""
    return any(Mix.TOKENS in layer.mixes for layer in every(layers))


def wants_all_pairs(block: Layer, grid: PositionGrid) -> bool:
    """Whether a layer within mixes data points or tokens or, on images, wants the covariances within one (pools)."""
    images = not grid.flat and not grid.apart
    return any(
        layer.mixes & (Mix.POINTS | Mix.TOKENS) or (images and Mix.POSITIONS in layer.mixes and not layer.draws)
        for path in block.paths
        for layer in every(path)
    )


def unsigned(path: Sequence[Layer]) -> str:
    """Why a path does not change sign with its last weights (up to a constant), in words; "" if it does."""
    last = max((i for i, layer in enumerate(path) if layer.symmetry is Symmetry.WEIGHTS), default=None)
    if last is None:
        return f"one without weights ({text(path[-1])})" if path else "one without layers"
    ends = f"one that ends in {text(path[-1])}"
    shifted = False
    for layer in path[last + 1 :]:
        if layer.symmetry is Symmetry.SHIFTS:
            shifted = True
        elif layer.symmetry is Symmetry.REMOVES_MEAN:
            shifted = False
        elif layer.symmetry is not Symmetry.LINEAR and (shifted or layer.symmetry is not Symmetry.ODD):
            return ends
    return ""


def last_weights(layers: Sequence[Layer]) -> int:
    """The place of the last layer with weights of its own; −1: there is none."""
    return max((i for i, layer in enumerate(layers) if layer.draws), default=-1)


def shapes(
    layers: Sequence[Layer],
    before: Shape,
    units: int | None,
    *,
    last: int | None = None,
    prefix: str = "",
    first: int = 1,
) -> list[Shape]:
    """The shape before every layer, and after the last one.

    Weights that name no width get `units`; the last ones, if `last` is given, as many as make `last` units (channels)
    come out after the pools that follow. An error names the layer that it came from, `first` being the first's number.
    """
    found = [before]
    head = last_weights(layers) if last is not None else -1
    for index, layer in enumerate(layers):
        try:
            grid = found[-1].grid
            if grid is not None and grid.apart and not layer.by_token:
                hint = "put it after pool_tokens, or use fg.measure(model, ...) on a torch module"
                raise NotCovered(f"a meaning on tokens of {layer.kind}", got=f"a sequence of {grid} tokens", hint=hint)
            after = layer.shape(found[-1], units)
            if index == head and last is not None:
                pools = math.prod(x.pools for x in layers[index + 1 :]) if not after.images else 1
                after = layer.shape(found[-1], last * pools)
            found.append(after)
        except FirstguessError as error:
            raise error.within(f"{prefix}layer {first + index} ({text(layer)})") from None
    return found


# Shapes of sequences: what token layers ask of the one before them.


def sequence(tokens: int) -> PositionGrid:
    """The grid of a sequence: dense layers and norms act at each of its positions."""
    return PositionGrid((tokens,), apart=True)


def no_output(layers: Sequence[Layer], hint: str = "add '> dense'") -> NotCovered:
    """The error of a network that does not end in random weights."""
    expected = "a network that ends in its output layer (random weights)"
    return NotCovered(expected, got=f"one that ends in {text(layers[-1])}", where=f"layer {len(layers)}", hint=hint)


def all_zero(layers: Sequence[Layer]) -> NotCovered:
    """The error of a network whose outputs are 0."""
    got = "a network that is 0 for every input: all classes tie"
    hint = "a scale other than 0, or a bias_var above 0"
    return NotCovered("outputs that are not all zero", got=got, where=f"layer {len(layers)}", hint=hint)


def check_tokens(before: Shape, kind: str) -> None:
    """Raise InvalidInput where there is no sequence of tokens before a layer that wants one."""
    if before.grid is not None and not before.grid.apart:
        hint = "embed(0.02) or patches(16) before it"
        raise InvalidInput(f"tokens before {kind}", got="images" if before.images else f"{before.grid}", hint=hint)


def keeps_tokens(self: Layer, before: Shape, units: int | None) -> Shape:
    """The `shape` of a layer that wants tokens and changes no size."""
    check_tokens(before, self.kind)
    return before


def check_vocabulary(layers: Sequence[Layer], classes: int) -> None:
    """Raise InvalidInput unless the classes of a language model are the tokens of its embedding."""
    first, last = layers[0], layers[-1]
    size: int | None = getattr(first, "vocabulary", None)
    if size != classes and (size is not None or getattr(last, "tied", False)):
        got = f"{classes} classes, and {'no vocabulary' if size is None else f'{size} tokens'}"
        hint = f"embed(…, vocabulary={classes})" if size is None else f"classes={size}"
        raise InvalidInput("as many classes as the vocabulary has tokens, for a language model", got=got, hint=hint)


# Folds over layers of finite width: the expansion in 1/width, and a Monte Carlo sample of points.


def finite_steps(layers: Sequence[Layer], state: FiniteSignal) -> list[FiniteSignal]:
    """Fold a finite signal through layers: what is after each; an error names the layer it came from."""
    found: list[FiniteSignal] = []
    try:
        with float_range():
            for layer in layers:
                state = layer.finite(state, layer.moments(state.signal))
                found.append(state)
    except FirstguessError as error:
        raise error.at(f"layer {len(found) + 1} ({text(layers[len(found)])})") from None
    return found


def through(
    layers: Sequence[Layer], sample: PointSample, *, last: int | None = None
) -> Iterator[tuple[Layer, PointSample]]:
    """Fold a sample through layers, yielding what is after each; the last weights make `last` units, if given.

    An error names the layer it came from. The closed form goes along, for what layers take from it (the constant of a
    centred activation); where it refuses, those refuse that want it.
    """
    width, head = sample.width, last_weights(layers)
    for index, layer in enumerate(layers):
        try:
            before = sample.signal
            units = last if index == head and last is not None else width
            sample = layer.point_sample(replace(sample, width=units) if units != sample.width else sample)
            sample = replace(sample, width=width, signal=_moved(layer, before))
        except FirstguessError as error:
            raise error.at(f"layer {index + 1} ({text(layer)})") from None
        yield layer, sample


def _moved(layer: Layer, signal: Signal | None) -> Signal | None:
    try:
        return None if signal is None else layer.moments(signal)
    except FirstguessError:
        return None
