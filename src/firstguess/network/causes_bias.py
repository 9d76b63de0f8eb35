"""Does an activation, or a block of layers, cause initial guessing bias? theory.md §4; IGB App. G and eq. 16.

A block causes it iff its units have a mean over centred data: then two data points are correlated after it that were
not before. Odd blocks never do, which needs no number; else the closed form says, or sampled units where it has none.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from firstguess.base.errors import InvalidInput, NotCovered
from firstguess.base.gaussian import Function
from firstguess.network.activations.record import Activation
from firstguess.network.activations.registry import activation, check_variance
from firstguess.network.grammar import parse_layers
from firstguess.network.layer import Layer, Symmetry, has_reading, steps, text
from firstguess.network.layers import Activate
from firstguess.network.points import Points
from firstguess.network.shapes import PositionGrid, Shape
from firstguess.network.signal import Gaussian, Pairs, Signal

_ROUNDING = 1e-9  # of the root mean square: a mean below is 0
_SAMPLED = 5e-3  # the same where residual sums were sampled, good to 1e-3 of a signal's mean square
_NODES, _POINTS = 1 << 15, 32  # pairs ±u, and data points of each
_SURE = 6.0  # standard errors


class BiasCriterion(int):
    """Yes or no, with the `reason`; it counts as True or False.

    `correlation` is what two uncorrelated data points have in common after the block: mean²/mean square.
    """

    reason: str
    correlation: float

    def __new__(cls, yes: bool, reason: str, correlation: float) -> BiasCriterion:
        self = super().__new__(cls, yes)
        self.reason, self.correlation = reason, correlation
        return self

    def __repr__(self) -> str:
        return f"{bool(self)}: {self.reason}"

    __str__ = __repr__


def causes_bias(what: str | Activation | Function, /, *, q: float = 1.0) -> BiasCriterion:
    """Whether an activation, or a text of several layers, causes initial guessing bias, and why.

    It does iff the mean of its nodes over data is not 0 for centred Gaussian nodes of variance `q` before: that is
    E φ(√q z) for an activation (theory.md §4; IGB App. G), with pooling the mean of the pooled units (IGB eq. 16).
    Weights may be among the layers; their biases are common to all data points, and count.

    >>> [bool(causes_bias(x)) for x in ("gelu", "tanh", "centered(gelu)", "tanh > maxpool(2)", "relu > layernorm")]
    [True, False, False, True, False]
    >>> causes_bias("tanh > maxpool(2)")
    True: maxpool(2) gives nodes a mean over centred data: 0.362 (57.6% of their root mean square)
    """
    check_variance(q, "causes_bias(q)", "q=1")
    layers = layers_of(what)
    if _odd(layers):
        return BiasCriterion(False, "odd in every layer, so that no node has a mean over centred data", 0.0)
    try:
        return _by_closed_form(layers, q)
    except NotCovered as error:
        if not all(has_reading(type(layer), "sampled_units") for layer in layers):
            raise
        if layers[-1].symmetry is Symmetry.REMOVES_MEAN or getattr(getattr(layers[-1], "phi", None), "centered", False):
            return BiasCriterion(False, f"{text(layers[-1])} subtracts the mean that nodes had before it", 0.0)
        return _by_sampled_units(layers, q, error)


def layers_of(what: str | Activation | Function) -> tuple[Layer, ...]:
    """The layers of a text, or an activation or a function as the only one."""
    if not isinstance(what, str):
        return (Activate(activation(what)),)
    try:
        return parse_layers(what)
    except InvalidInput:
        if what.strip().isidentifier():  # a single wrong word is most likely a wrong activation
            activation(what)
        raise


def _odd(layers: Sequence[Layer]) -> bool:
    """Whether −x gives −y for these weights: x and −x being alike, every unit's mean over data is then 0."""
    return all(_odd_layer(layer) for layer in layers)


def _odd_layer(layer: Layer) -> bool:
    if layer.paths:
        return all(_odd(path) for path in layer.paths)
    if layer.symmetry is Symmetry.WEIGHTS:
        return getattr(layer, "bias_var", 0.0) == 0.0
    return layer.symmetry in (Symmetry.ODD, Symmetry.LINEAR, Symmetry.REMOVES_MEAN)


def _by_closed_form(layers: Sequence[Layer], q: float) -> BiasCriterion:
    signal = Signal(0.0, 0.0, 1.0, math.log(q), Gaussian())
    made, room = "", _ROUNDING
    for layer, before, after in steps(layers, signal):
        room = max(room, _SAMPLED if isinstance(after.distribution, Pairs) else 0.0)
        biased, was = _level(after) > room, _level(before) > room
        if biased and not was:
            made = _made(text(layer), after)
        elif was and not biased:
            made = f"{text(layer)} subtracts the mean that nodes had before it"
        signal = after
    share = _level(signal)
    if _ROUNDING < share <= room:
        expected = "a mean that is larger than the error of sampled nodes, or an odd block"
        hint = "weights between the layers, or the ensemble reading: fg.measure(...)"
        raise NotCovered(expected, got=f"{share:.2%} of the root mean square, good to {_SAMPLED:.1%}", hint=hint)
    yes = share > room
    return BiasCriterion(yes, made or "nodes have no mean over centred data", share * share if yes else 0.0)


def _level(signal: Signal) -> float:
    """Root of the share of the mean square that all data points have in common."""
    return math.sqrt(signal.correlation) if signal.total > 0.0 else 0.0


def _made(name: str, after: Signal) -> str:
    size, share = math.sqrt(after.center) * math.exp(min(0.5 * after.log_scale, 700.0)), _level(after)
    if after.mean == 0.0:
        return f"{name} gives nodes centers over centred data: {size:.3g} ({share:.1%} of their root mean square)"
    size = math.copysign(size, after.mean)
    return f"{name} gives nodes a mean over centred data: {size:.3g} ({share:.1%} of their root mean square)"


def _by_sampled_units(layers: Sequence[Layer], q: float, error: NotCovered) -> BiasCriterion:
    """Units drawn as they come in, pairs ±u, sent through the layers: their mean, in standard errors."""
    bunch = math.prod(layer.pools * layer.together for layer in layers)
    half = max(_NODES // (2 * bunch), 1) * bunch
    u = math.sqrt(q) * np.random.default_rng(0).standard_normal((half, _POINTS))
    y = np.concatenate([u, -u])
    points = Points(np.full(_POINTS, q), np.zeros(_POINTS), True, Shape(1 << 20, PositionGrid()), 1 << 20)
    for index, layer in enumerate(layers, start=1):
        try:
            y = layer.sampled_units(points, known=False).units(y)
            shape = layer.shape(points.shape, None)
        except InvalidInput as bad:
            raise bad.at(f"layer {index} ({text(layer)})") from None
        points = Points(points.q, points.mean, False, shape, points.default_width)
    pairs = y.reshape(2, len(y) // 2, -1).mean(axis=(0, 2))
    pairs = pairs[: len(pairs) // bunch * bunch].reshape(-1, min(bunch, len(pairs))).mean(axis=1)
    mean, own = float(pairs.mean()), float(pairs.std(ddof=1)) / math.sqrt(len(pairs))
    size = math.sqrt(float(np.mean(y * y)))
    if abs(mean) <= _SURE * own + _ROUNDING * size:
        expected = f"{error.expected}, or a mean that sampled nodes can tell from 0"
        got = f"{error.got}, and a mean of {mean:.2g} ± {own:.1g}"
        raise NotCovered(expected, got=got, where=error.where, hint=error.hint)
    share = abs(mean) / size
    reason = f"nodes have a mean over centred data: {mean:.3g} ± {own:.1g} by sampled nodes ({share:.1%} of their size)"
    return BiasCriterion(True, reason, share * share)
