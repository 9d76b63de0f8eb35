"""The closed form of token networks: two prototype sequences through the fold of the kernel reading (theory.md §9)."""

from __future__ import annotations

import math
import sys
import time
from dataclasses import replace

from firstguess._version import __version__
from firstguess.base.errors import InvalidInput, NotCovered
from firstguess.network.layer import text
from firstguess.network.network import Network
from firstguess.network.tokens import Tokens
from firstguess.network.walk import every, needs_tokens
from firstguess.theory.guesses import Guesses
from firstguess.theory.prediction import Prediction
from firstguess.theory.stream_gradients import stream_gradients
from firstguess.theory.token_kernel import prototype_kernel, reading

_ONE_LENGTH = ("sequences of one length, without padding",)


def check_no_tokens(network: Network) -> None:
    """Raise InvalidInput for a network of tokens whose sequences nobody described."""
    if needs_tokens(network.layers):
        raise InvalidInput(
            "sequences for a network of tokens",
            got="none",
            where="predict",
            hint="inputs=fg.Tokens(length=128, coincidence=0.0075), or data=ids of shape (sequences, tokens)",
        )


def predict_tokens(network: Network, tokens: Tokens, points: int | None, *, gradients: bool = True) -> Prediction:
    """γ = C/(S − C) of every layer at equal places, and of the output: theory.md (28).

    Without `gradients`, which take as long as all the rest, they can be had later: `with_gradients`.
    """
    started = time.perf_counter()
    last = network.layers[-1]
    if last.each_token:
        from firstguess.theory.language import predict_language

        described = {"length": tokens.length, "coincidence": tokens.chance, "shared": tokens.shared}
        return predict_language(network, tokens, {"tokens": described}, points=points)
    if not last.draws:
        raise NotCovered(
            "a network that ends in its output layer (random weights)",
            got=f"one that ends in {text(last)}",
            where=f"layer {len(network.layers)}",
            hint="add '> dense'",
        )
    found = prototype_kernel(network, tokens)
    padded = getattr(network.layers[0], "padding", None) is not None
    assumptions = dict.fromkeys(line for layer in every(network.layers) for line in layer.assumptions())
    factors = stream_gradients(network, tokens) if gradients else [None] * len(found.layers)
    own, other = float(found.covariance[0, 0]), float(found.covariance[0, 1])
    return Prediction(
        network,
        "closed form",
        tuple(replace(reading(layer), gradient=factor) for layer, factor in zip(found.layers, factors, strict=True)),
        # Two independent sequences are uncorrelated up to the rounding of sampled attention, in float32.
        Guesses(max(other / (own - other), 0.0) if own > other else math.inf, network.classes, points),
        ("i.i.d. tokens", *_ONE_LENGTH * padded, "wide layers", *assumptions, *found.remarks),
        {
            "firstguess": __version__,
            "python": sys.version.split()[0],
            "network": str(network),
            "tokens": {"length": tokens.length, "coincidence": tokens.chance, "shared": tokens.shared},
        },
        time.perf_counter() - started,
    )


def with_gradients(p: Prediction, tokens: Tokens) -> Prediction:
    """The same prediction, with the gradients that it was made without."""
    if p.network.layers[-1].each_token:
        return p
    factors = stream_gradients(p.network, tokens)
    return replace(p, layers=tuple(replace(one, gradient=f) for one, f in zip(p.layers, factors, strict=True)))
