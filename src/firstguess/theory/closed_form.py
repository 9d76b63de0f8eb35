"""The first reading: three numbers through the layers, for i.i.d. inputs and infinitely wide networks."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from firstguess.base.checks import float_range
from firstguess.base.errors import FirstguessError, InvalidInput, NotCovered
from firstguess.base.gaussian import Array
from firstguess.network.builders import as_network
from firstguess.network.inputs import Inputs, Tokens
from firstguess.network.layer import Back, Layer, LayerReading, steps, text
from firstguess.network.network import Network
from firstguess.network.points import PairwiseMap, Points, Tile
from firstguess.network.shapes import Shape
from firstguess.network.signal import SAMPLED, Gaussian, Pairs, Signal
from firstguess.network.walk import all_zero, every, needs_tokens, no_output, sequence
from firstguess.theory.kernel.propagation import Folding, propagate
from firstguess.theory.kernel.tiles import Budget, Pending, Stored, all_pairs, segment
from firstguess.theory.prediction import Prediction, provenance
from firstguess.theory.shares.gaussian import Guesses
from firstguess.theory.tokens import prototype_kernel

# Gradients by layer of networks of tokens: back along the stream, on one prototype sequence.
#
# G_st = Σ_nodes ∂L/∂x_s ∂L/∂x_t goes back through layers as the tangent kernel of frozen weights goes forth, entry by
# entry (theory.md (12)); attention and read-outs mix tokens. As in (10), weights going back count as independent of
# those going forth, and what a branch adds is uncorrelated with its shortcut.

LONGEST = 256  # tokens up to which they are worth their time
_FAN_IN = 1000  # of layers that name no width: the factors do not depend on it


def stream_gradients(network: Network, tokens: Tokens) -> list[float | None]:
    """What every layer multiplies Σ_tokens Σ_nodes (∂L/∂x)² by, going back; None: not known."""
    unknown: list[float | None] = [None] * len(network.layers)
    if tokens.length > LONGEST:
        return unknown
    places = tokens.length
    points = Points(np.ones(places), np.zeros(places), False, Shape(places, sequence(places)), _FAN_IN, what="tokens")
    try:
        with float_range():
            backs = _through(network.layers, points, tokens.prototypes()[:places, :places].copy())
            g, found = np.ones((1, 1)), list[float | None]()
            for back in reversed(backs):
                before = float(np.trace(g))
                g = back(g)
                found.append(float(np.trace(g)) / before)
            return found[::-1]
    except (FirstguessError, ArithmeticError):
        return unknown


def _through(layers: Sequence[Layer], points: Points, k: Array) -> list[Back]:
    """Forth, keeping how each layer goes back."""
    backs: list[Back] = []
    for layer in layers:
        points, k, back = _one(layer, points, k)
        backs.append(back)
    return backs


def _one(layer: Layer, points: Points, k: Array) -> tuple[Points, Array, Back]:
    """Points and covariance after a layer, and its way back."""
    back = layer.token_gradients(points, k, lambda path: partial(_along, _through(path, points, k)))
    if back is None:
        found = _by_pair(layer, points, k)
        if segment((layer,), points.grid) == 0:  # else it is sampled, forth by a rule of its own
            return found
        back = found[2]
    budget = Budget(1)
    pending = propagate((layer,), _start(points, k), budget)
    return pending.last, all_pairs(pending, budget)[0], back


def _start(points: Points, k: Array) -> Pending:
    return Pending(Stored(k.copy(), None, points), points)


def _by_pair(layer: Layer, points: Points, k: Array) -> tuple[Points, Array, Back]:
    """A layer that acts on every entry: forth and back in one step."""
    found = layer.frozen_weights().covariance(points, Folding(_start(points, k), Budget(1, True)))
    if not isinstance(found, PairwiseMap):
        raise NotCovered("gradients by pairs of tokens", got=text(layer))
    rows = slice(0, len(k))
    tile = Tile(k.copy(), np.ones_like(k), rows, rows)
    found.step(tile)
    tile.fill_diagonal(found.after.q[rows])  # known better than arccos near c = 1 can give it
    factor = tile.t
    assert factor is not None
    return found.after, tile.k, lambda g: g * factor


def _along(backs: Sequence[Back], g: Array) -> Array:
    for back in reversed(backs):
        g = back(g)
    return g


# The closed form of token networks: two prototype sequences through the fold of the kernel reading (theory.md §9).

_ONE_LENGTH = ("sequences of one length, without padding",)


def predict_tokens(network: Network, tokens: Tokens, points: int | None, *, gradients: bool = True) -> Prediction:
    """γ = C/(S − C) of every layer at equal places, and of the output: theory.md (28).

    Without `gradients`, which take as long as all the rest, they can be had later: `with_gradients`.
    """
    started = time.perf_counter()
    last = network.layers[-1]
    if last.each_token:
        from firstguess.theory.language import predict_language

        return predict_language(network, tokens, {"tokens": described(tokens)}, points=points)
    if not last.draws:
        raise no_output(network.layers)
    found = prototype_kernel(network, tokens)
    padded = getattr(network.layers[0], "padding", None) is not None
    assumptions = dict.fromkeys(line for layer in every(network.layers) for line in layer.assumptions())
    factors = stream_gradients(network, tokens) if gradients else [None] * len(found.layers)
    own, other = float(found.covariance[0, 0]), float(found.covariance[0, 1])
    return Prediction(
        network,
        "closed form",
        tuple(replace(layer, gradient=factor) for layer, factor in zip(found.layers, factors, strict=True)),
        # Two independent sequences are uncorrelated up to the rounding of sampled attention, in float32.
        Guesses(max(other / (own - other), 0.0) if own > other else math.inf, network.classes, points),
        ("i.i.d. tokens", *_ONE_LENGTH * padded, "wide layers", *assumptions, *found.remarks),
        provenance(network, tokens=described(tokens)),
        time.perf_counter() - started,
    )


def described(tokens: Tokens) -> dict[str, float]:
    return {"length": tokens.length, "coincidence": tokens.chance, "shared": tokens.shared}


def with_gradients(p: Prediction, tokens: Tokens) -> Prediction:
    """The same prediction, with the gradients that it was made without."""
    if p.network.layers[-1].each_token:
        return p
    factors = stream_gradients(p.network, tokens)
    return replace(p, layers=tuple(replace(one, gradient=f) for one, f in zip(p.layers, factors, strict=True)))


def _sampled(layer: Layer, before: Signal, after: Signal) -> bool:
    """Whether units of a sum were sampled, here or in a block within a block."""
    if isinstance(after.distribution, Pairs):
        return True
    if not any(x.paths for path in layer.paths for x in path):
        return False
    return any(_sampled(*step) for path in layer.paths for step in steps(path, before))


def predict(
    network: Network | str,
    *,
    inputs: Inputs | Tokens | None = None,
    points: int | None = None,
    classes: int | None = None,
) -> Prediction:
    """Predict γ by layer and the distribution of class shares of an untrained network: theory.md (2)-(9).

    `inputs` describes the data (default: the blob of the papers, components N(0, 1)); `points` is the size of the data
    set (None: infinitely many). Assumes i.i.d. inputs and wide layers.

    >>> p = predict("20 x [dense(weight_var=2) > relu] > dense(weight_var=2)")
    >>> print(f"{p.gamma[1]:.6f} {p.gamma[-1]:.6f} {p.regime}")
    0.466942 18.390547 deeply biased
    """
    started = time.perf_counter()
    network = as_network(network, classes)
    if isinstance(inputs, Tokens):
        return predict_tokens(network, inputs, points)
    if needs_tokens(network.layers):
        hint = "inputs=fg.Tokens(length=128, coincidence=0.0075), or data=ids of shape (sequences, tokens)"
        raise InvalidInput("sequences for a network of tokens", got="none", where="predict", hint=hint)
    inputs = inputs or Inputs()
    if not isinstance(inputs, Inputs):
        hint = "fg.Inputs(mean_square=0.3, variance=1.0)"
        raise InvalidInput("inputs as fg.Inputs", got=type(inputs).__name__, where="predict", hint=hint)
    readings: list[LayerReading] = []
    assumptions: dict[str, None] = {}
    signal = inputs.signal()
    distinct = {id(layer): layer for layer in network.layers}  # a repeated segment has the same layers again
    texts = {key: text(layer) for key, layer in distinct.items()}
    for layer, before, after in steps(network.layers, signal):
        try:
            gradient = layer.gradient(before)
        except FirstguessError:  # a slope that does not converge is not known; the guesses do not need it
            gradient = None
        readings.append(LayerReading(texts[id(layer)], layer.weighted, *after.numbers(), gradient))
        assumptions.update(dict.fromkeys(layer.assumptions()))
        if _sampled(layer, before, after):
            assumptions[SAMPLED] = None
        signal = after
    if not (network.layers[-1].weighted and isinstance(signal.distribution, Gaussian)):
        short = f": {network} > dense" if len(str(network)) < 80 else ""
        raise no_output(network.layers, f"add '> dense'{short}")
    if signal.total == 0.0:
        raise all_zero(network.layers)
    return Prediction(
        network,
        "closed form",
        tuple(readings),
        Guesses(signal.gamma, network.classes, points),
        ("i.i.d. inputs", "wide layers", *assumptions),
        provenance(network, inputs={name: value for name, value in vars(inputs).items() if value is not None}),
        time.perf_counter() - started,
    )
