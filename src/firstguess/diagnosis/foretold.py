"""What theory adds to a change that was tried: nonlinearity, expected absorption, and the network written out."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from firstguess.base.errors import FirstguessError
from firstguess.diagnosis.result import Advice, Goal
from firstguess.network.inputs import Inputs
from firstguess.network.network import Network
from firstguess.network.pytorch_code import pytorch_code
from firstguess.network.walk import every, needs_images, needs_tokens
from firstguess.theory.readings import predict
from firstguess.theory.tuning import stand

GOALS: tuple[Goal, ...] = ("even start", "trainability", "worst class early")
# Of 20 layers on Fashion-MNIST: networks of P up to 3 were fast, from 19 on slow, theory.md §10.
_FAST, _SLOW = 3.0, 19.0
_ALIKE = 0.05  # of the largest share


@dataclass(frozen=True)
class Descent:
    """Full-batch descent, for the steps until a bias is absorbed."""

    lr: float
    width: int
    dimension: int
    points: int


@dataclass(frozen=True)
class Foretold:
    """P of theory.md (31), and the median steps of descent by (16); NaN where it is not known."""

    nonlinearity: float = math.nan
    absorption: float = math.nan


@lru_cache(maxsize=64)
def foretold(network: Network, inputs: Inputs, descent: Descent | None) -> Foretold:
    """In closed form, of networks of vectors without pools: theory's gradients are those of single nodes and positions.

    >>> net = Network.parse("3 x [dense(weight_var=2) > relu] > dense(weight_var=2)")
    >>> print(f"{foretold(net, Inputs(), None).nonlinearity:.4f}")
    2.5305
    """
    pools = any(layer.pools > 1 for layer in every(network.layers))
    if pools or needs_tokens(network.layers) or needs_images(network.layers):
        return Foretold()
    try:
        p = predict(network, inputs=inputs)
        nonlinearity = stand(p).nonlinearity
    except FirstguessError:
        return Foretold()
    steps = math.nan
    if descent is not None:
        try:
            found = p.absorption(lr=descent.lr, dimension=descent.dimension, width=descent.width, points=descent.points)
            steps = float(found.median)
        except FirstguessError:
            pass  # no tangent kernel of some layer, or a rate that overshoots
    return Foretold(nonlinearity, steps)


def written(network: Network | None, width: int) -> str:
    """A description as PyTorch; nothing where a layer has no source."""
    if network is None:
        return ""
    try:
        return pytorch_code(network, width=width)
    except FirstguessError:
        return ""


def order(goal: Goal, a: Advice) -> tuple[float, ...]:
    """The smaller, the better for this goal; what is not worth making comes last in any."""
    unknown = math.isnan(a.nonlinearity_after)
    band = 2.0 if unknown else 0.0 if a.nonlinearity_after <= _FAST else 1.0 if a.nonlinearity_after < _SLOW else 3.0
    first = (float(not a.worth_it),)
    if goal == "even start":
        # Of two that come to about the same, the one that changes more than first guesses.
        about, cosmetic = round(a.largest_after / _ALIKE), float(a.aim == "first guesses")
        return (float(not a.helps), *first, about, cosmetic, a.largest_after)
    if goal == "trainability":
        gradient = a.gradient_after if a.gradient_after > 0 else math.nan
        change = math.inf if math.isnan(gradient) else abs(math.log(gradient))
        return (*first, math.inf if unknown else a.nonlinearity_after, change, a.largest_after)
    return (*first, band, a.largest_after)
