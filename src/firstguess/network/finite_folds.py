"""Two folds over layers of finite width: an expansion in 1/width, and a Monte Carlo sample of points unit by unit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from firstguess.base.checks import float_range
from firstguess.base.errors import FirstguessError
from firstguess.network.finite_sample import PointSample
from firstguess.network.finite_signal import FiniteSignal
from firstguess.network.layer import Layer, text
from firstguess.network.signal import Signal
from firstguess.network.walk import last_weights


def finite_steps(layers: Iterable[Layer], state: FiniteSignal) -> Iterator[tuple[Layer, FiniteSignal]]:
    """Fold a finite signal through layers, yielding what is after each; an error names the layer it came from."""
    for index, layer in enumerate(layers, start=1):
        try:
            with float_range():
                state = layer.finite(state, layer.moments(state.signal))
        except FirstguessError as error:
            raise error.at(f"layer {index} ({text(layer)})") from None
        yield layer, state


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
