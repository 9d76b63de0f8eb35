"""What the page says of a choice: closed form, in a few milliseconds; and why, where a part is not known."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from firstguess.base.errors import FirstguessError
from firstguess.explore.choice import Choice
from firstguess.network.layer import text
from firstguess.network.tokens import Tokens
from firstguess.theory.curves import Absorption
from firstguess.theory.diagrams import PhaseDiagram, phase_diagram
from firstguess.theory.phases import FixedPoint, fixed_point
from firstguess.theory.prediction import Prediction
from firstguess.theory.readings import predict
from firstguess.theory.trade_off import Frontier, frontier

_TOKENS = "Known for networks of vectors only, not yet for those of tokens."
DIMENSION = WIDTH = 1000  # that training is predicted for


@dataclass(frozen=True)
class Seen:
    """All that moves with a slider. A part that is not known is None, and `why` has the reason by the part's name."""

    choice: Choice
    prediction: Prediction
    frontier: Frontier | None
    absorption: Absorption | None
    why: dict[str, str]

    @property
    def gradients(self) -> list[tuple[int, float]]:
        """(layer, mean square of the gradients there by that at the output), from the output back to the first."""
        growth = self.prediction.gradient_growth
        back = np.cumprod(growth[::-1]).tolist()
        last = len(growth) + 1
        return [(last, 1.0), *((last - 1 - k, value) for k, value in enumerate(back))]


def see(choice: Choice) -> Seen:
    """Predict a choice; errors are the network's own, in one line."""
    network, inputs = choice.network, choice.inputs
    prediction = predict(network, inputs=inputs)
    if isinstance(inputs, Tokens):
        return Seen(choice, prediction, None, None, dict.fromkeys(("frontier", "absorption"), _TOKENS))
    why = dict[str, str]()
    standing: Frontier | None = None
    lasting: Absorption | None = None
    try:
        standing = frontier(network, targets=(), inputs=inputs)
    except FirstguessError as error:
        why["frontier"] = error.reason
    try:
        lasting = prediction.absorption(lr=choice.lr, dimension=DIMENSION, width=WIDTH)
    except FirstguessError as error:
        why["absorption"] = error.reason
    return Seen(choice, prediction, standing, lasting, why)


def phases_of(choice: Choice) -> tuple[PhaseDiagram, FixedPoint] | None:
    """The phase diagram of a plain choice's block, and its point in it. None: residual blocks take 20 s."""
    if choice.kind != "plain":
        return None
    layers = choice.network.layers
    block = " > ".join(text(layer) for layer in layers[1 : (len(layers) - 1) // choice.depth])
    return _diagram(block), fixed_point(block, weight_var=choice.weight_var, bias_var=choice.bias_var)


@lru_cache(maxsize=64)
def _diagram(block: str) -> PhaseDiagram:
    """Phases over the range of the sliders, coarse: a third of a second, once for each block."""
    return phase_diagram(
        block, weight_vars=np.linspace(0.1, 6.0, 49), bias_vars=np.linspace(0.0, 2.0, 33), tolerance=1e-3, lines=False
    )
