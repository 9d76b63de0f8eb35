"""Whether gradients survive, in words: growth per layer, phase, depth scale, who gets them."""

from __future__ import annotations

import math

from firstguess.diagnosis.result import Phase, Trainability
from firstguess.ensemble.gradient_statistics import Gradients, Growth

_PHASES: dict[str, Phase] = {
    "vanish": "ordered",
    "explode": "chaotic",
    "keep their size": "edge of chaos",
    "not known": "unknown",
}
_APART = 10.0  # ratio of the others' to the favoured class's mean square gradient that is worth saying


def trainability_of(g: Gradients, *, plain: bool, predicted: float = math.nan) -> Trainability:
    """The measured gradients, summed up. Phases are those of `plain` networks: no norms, no skips, no attention.

    `predicted` is theory's factor a layer, which is said where none was measured.
    """
    growth = g.growth
    factor = growth.value
    phase = _PHASES[growth.word] if plain else "unknown"
    scale = 1 / abs(math.log(factor)) if math.isfinite(factor) and factor > 0 and factor != 1.0 else math.inf
    first = g.layers[0] if g.layers else None
    ratio = 10.0 ** (first.favoured.value - first.others.value) if first is not None else math.nan
    return Trainability(
        phase,
        factor,
        growth.low,
        growth.high,
        g.favoured_growth.value,
        g.others_growth.value,
        ratio,
        scale,
        len(g.layers),
        _words(g, phase, scale, ratio, predicted),
        g,
    )


def _words(g: Gradients, phase: Phase, scale: float, ratio: float, predicted: float) -> str:
    growth, hidden = g.growth, len(g.layers) - 1
    if growth.word == "not known":
        return _unknown(growth, hidden, predicted)
    fitted = growth.layers or hidden
    over = f"{fitted} hidden layers" if fitted == hidden else f"the last {fitted} of {hidden} hidden layers"
    text = (
        f"going back, the mean square of gradients changes by × {growth.value:.3g} a layer "
        f"(95 %: {growth.low:.3g} to {growth.high:.3g}) over {over}: they {growth.word}"
    )
    if phase in ("ordered", "chaotic"):
        like = "as in the ordered phase" if phase == "ordered" else "as in chaos"
        text += f", by a factor e every {scale:.2g} layers ({like})"
    elif phase == "edge of chaos":
        text += ", as at the edge of chaos"
    if g.off_line:
        text += f". But {g.off_line}"
    if math.isfinite(ratio) and ratio < 1 / _APART:
        text += f". Points of the favoured class get {ratio:.2g} of the others' gradient: the others are learned first"
    return text


def _unknown(growth: Growth, hidden: int, predicted: float) -> str:
    if hidden < 2:
        why = "no hidden layer has weights" if hidden < 1 else "only one hidden layer has weights"
    else:
        why = "only one initialization" if growth.inits else "no initialization has finite gradients at all layers"
    text = f"how gradients change from layer to layer was not measured: {why}"
    return text if math.isnan(predicted) else f"{text}; theory predicts × {predicted:.3g} a layer in mean square"
