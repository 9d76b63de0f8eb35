"""What the page says of a choice: closed form, in a few milliseconds; and why, where a part is not known."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from firstguess.base.errors import FirstguessError
from firstguess.explore.choice import Choice
from firstguess.network.inputs import Tokens
from firstguess.network.layer import text
from firstguess.network.network import Network
from firstguess.network.walk import every
from firstguess.theory import closed_form
from firstguess.theory.closed_form import predict_tokens
from firstguess.theory.frontier import Frontier, frontier
from firstguess.theory.phases.diagram import PhaseDiagram, phase_diagram
from firstguess.theory.phases.fixed_points import FixedPoint, fixed_point
from firstguess.theory.predict import predict
from firstguess.theory.prediction import Prediction
from firstguess.theory.training.curves import Absorption

_TOKENS = {
    "frontier": "Not known for tokens: the limit on γ at given gradients is derived for networks of vectors; "
    "attention mixes tokens, and the nonlinearity of a network that does is not known.",
    "absorption": "Not known for tokens: it takes the tangent kernel, and that of attention is not part of the theory.",
    "phases": "None for tokens: phases are known for repeated blocks of vectors, not for blocks with attention, which "
    "mix tokens.",
}
_PHASES = {
    "residual": "Not drawn here: that of residual blocks takes 20 s. `firstguess phases` draws it.",
    "text": "Drawn for plain networks only: a text may hold blocks that differ, which have no phase in common.",
}
_SLOW = "Takes too long for a slider with max pools of this activation: prediction.absorption(lr=…) has it."
_ROTARY = "Not known: there is no formula for gradients through rotary positions unless attention is nearly uniform."
DIMENSION = WIDTH = 1000  # that training is predicted for


@dataclass(frozen=True)
class ExploredNetwork:
    """All that moves with a slider. A part that is not known is None, and `why` has the reason by the part's name."""

    choice: Choice
    prediction: Prediction
    frontier: Frontier | None
    absorption: Absorption | None
    why: dict[str, str]
    later: tuple[str, ...] = ()  # what the charts do not wait for: gradients of tokens, absorption of many classes

    @property
    def gradients(self) -> list[tuple[int, float]]:
        """(layer, mean square of the gradients there by that at the output), from the output back to the first."""
        growth = self.prediction.gradient_growth
        back = np.cumprod(growth[::-1]).tolist()
        last = len(growth) + 1
        return [(last, 1.0), *((last - 1 - k, value) for k, value in enumerate(back))]

    @property
    def stream(self) -> list[tuple[int, float]]:
        """(residual block, mean square of the stream's gradients after it by that after the last); none: []."""
        back, value, found = reversed(self.prediction.layers), 1.0, list[float]()
        for layer in back:
            if layer.layer.startswith("residual"):
                found.append(value)
            if layer.gradient is None:
                return []
            value = value * layer.gradient if found else 1.0
        return [(len(found) - k, v) for k, v in enumerate(found)]


def see(choice: Choice, *, whole: bool = True) -> ExploredNetwork:
    """Predict a choice; errors are the network's own. Unless `whole`, what is slow waits for `with_the_rest`."""
    network, inputs = choice.network, choice.inputs
    if isinstance(inputs, Tokens) and not whole:
        prediction = predict_tokens(network, inputs, None, gradients=False)
    else:
        prediction = predict(network, inputs=inputs)
    if isinstance(inputs, Tokens):
        why = dict(_TOKENS)
        if any(getattr(layer, "rotary", False) for layer in every(network.layers)):
            why["gradients"] = _ROTARY
        return ExploredNetwork(choice, prediction, None, None, why, ("gradients",) * (not whole))
    why = dict[str, str]()
    standing: Frontier | None = None
    try:
        standing = frontier(network, targets=(), inputs=inputs)
    except FirstguessError as error:
        why["frontier"] = error.reason
    seen = ExploredNetwork(
        choice, prediction, standing, None, why, ("absorption",) * (not whole and network.classes > 2)
    )
    return seen if seen.later else _lasting(seen)


def _lasting(seen: ExploredNetwork) -> ExploredNetwork:
    """With the time that the bias lasts, or why it is not known."""
    p = seen.prediction
    try:
        if not _slow(p.network):
            found = p.absorption(lr=seen.choice.lr, dimension=DIMENSION, width=WIDTH)
            return replace(seen, absorption=found, later=())
        why = _SLOW
    except FirstguessError as error:
        why = error.reason
    return replace(seen, why={**seen.why, "absorption": why}, later=())


def with_the_rest(seen: ExploredNetwork) -> ExploredNetwork:
    """With what was put off."""
    if not seen.later:
        return seen
    inputs = seen.choice.inputs
    if isinstance(inputs, Tokens):
        return replace(seen, prediction=closed_form.with_gradients(seen.prediction, inputs), later=())
    return _lasting(seen)


def _slow(network: Network) -> bool:
    """Max pools of what is not piecewise linear: their tangents take a minute, those of a ReLU half a second once."""
    layers = list(every(network.layers))
    bent = any(layer.function is not None and layer.function.degree is None for layer in layers)
    return bent and any(layer.kind == "maxpool" for layer in layers)


def of_tokens(choice: Choice) -> bool:
    """Whether its inputs are sequences."""
    return isinstance(choice.inputs, Tokens)


def phases_of(choice: Choice) -> tuple[PhaseDiagram, FixedPoint] | str:
    """The phase diagram of a plain choice's block, and its point in it; or why there is none."""
    if choice.kind != "plain":
        return _TOKENS["phases"] if of_tokens(choice) else _PHASES[choice.kind]
    layers = choice.network.layers
    block = " > ".join(text(layer) for layer in layers[1 : (len(layers) - 1) // choice.depth])
    return _diagram(block), fixed_point(block, weight_var=choice.weight_var, bias_var=choice.bias_var)


@lru_cache(maxsize=64)
def _diagram(block: str) -> PhaseDiagram:
    """Phases over the range of the sliders, coarse: a third of a second, once for each block."""
    return phase_diagram(
        block, weight_vars=np.linspace(0.1, 6.0, 49), bias_vars=np.linspace(0.0, 2.0, 33), tolerance=1e-3, lines=False
    )
