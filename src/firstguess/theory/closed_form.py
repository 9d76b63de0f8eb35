"""The first reading: three numbers through the layers, for i.i.d. inputs and infinitely wide networks."""

from __future__ import annotations

import sys
import time

from firstguess._version import __version__
from firstguess.base.errors import FirstguessError, InvalidInput, NotCovered
from firstguess.network.described import as_network
from firstguess.network.inputs import Inputs
from firstguess.network.layer import Layer, steps, text
from firstguess.network.network import Network
from firstguess.network.sampled_law import SAMPLED, Pairs
from firstguess.network.signal import Gaussian, Signal
from firstguess.network.tokens import Tokens
from firstguess.theory.guesses import Guesses
from firstguess.theory.prediction import LayerReading, Prediction
from firstguess.theory.prototypes import check_no_tokens, predict_tokens


def _gradient(layer: Layer, before: Signal) -> float | None:
    try:
        return layer.gradient(before)
    except FirstguessError:  # a slope that does not converge is not known; the guesses do not need it
        return None


def _sampled(layer: Layer, before: Signal, after: Signal) -> bool:
    """Whether nodes of a sum were sampled, here or in a block within a block."""
    if isinstance(after.law, Pairs):
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
    check_no_tokens(network)
    inputs = inputs or Inputs()
    if not isinstance(inputs, Inputs):
        raise InvalidInput(
            "inputs as fg.Inputs",
            got=type(inputs).__name__,
            where="predict",
            hint="fg.Inputs(mean_square=0.3, variance=1.0)",
        )
    readings: list[LayerReading] = []
    assumptions: dict[str, None] = {}
    signal = inputs.signal()
    distinct = {id(layer): layer for layer in network.layers}  # a repeated stretch has the same layers again
    texts = {key: text(layer) for key, layer in distinct.items()}
    for layer, before, after in steps(network.layers, signal):
        readings.append(
            LayerReading(
                texts[id(layer)],
                layer.weighted,
                after.gamma,
                after.correlation,
                after.one_minus_c,
                after.log_q,
                _gradient(layer, before),
            )
        )
        assumptions.update(dict.fromkeys(layer.assumptions()))
        if _sampled(layer, before, after):
            assumptions[SAMPLED] = None
        signal = after
    if not (network.layers[-1].weighted and isinstance(signal.law, Gaussian)):
        raise NotCovered(
            "a network that ends in its output layer (random weights)",
            got=f"one that ends in {text(network.layers[-1])}",
            where=f"layer {len(network.layers)}",
            hint=f"add '> dense': {network} > dense" if len(str(network)) < 80 else "add '> dense'",
        )
    if signal.total == 0.0:
        raise NotCovered(
            "outputs that are not all zero",
            got="a network that is 0 for every input: all classes tie",
            where=f"layer {len(network.layers)}",
            hint="a scale other than 0, or a bias_var above 0",
        )
    return Prediction(
        network,
        "closed form",
        tuple(readings),
        Guesses(signal.gamma, network.classes, points),
        ("i.i.d. inputs", "wide layers", *assumptions),
        {
            "firstguess": __version__,
            "python": sys.version.split()[0],
            "network": str(network),
            "inputs": {"mean_square": inputs.mean_square, "variance": inputs.variance, "mean": inputs.mean}
            | ({} if inputs.dimension is None else {"dimension": inputs.dimension}),
        },
        time.perf_counter() - started,
    )
