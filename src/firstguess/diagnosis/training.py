"""Whether gradients survive, in words: growth per layer, phase, depth scale, who gets them."""

from __future__ import annotations

import math

from firstguess.diagnosis.result import Phase, Trainability
from firstguess.ensemble.gradient_statistics import Gradients

_PHASES: dict[str, Phase] = {
    "vanish": "ordered",
    "explode": "chaotic",
    "keep their size": "edge of chaos",
    "not known": "unknown",
}
_APART = 10.0  # ratio of the others' to the favoured class's mean square gradient that is worth saying


def trainability_of(g: Gradients, *, plain: bool) -> Trainability:
    """The measured gradients, summed up. Phases are those of `plain` networks: no norms, no skips, no attention."""
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
        _words(g, phase, scale, ratio),
        g,
    )


def _words(g: Gradients, phase: Phase, scale: float, ratio: float) -> str:
    growth = g.growth
    if growth.word == "not known":
        return "the growth of gradients is not known: fewer than two hidden layers with weights, or no finite gradients"
    text = (
        f"going back, the mean square of gradients changes by × {growth.value:.3g} a layer "
        f"(95 %: {growth.low:.3g} to {growth.high:.3g}) over {len(g.layers) - 1} hidden layers: they {growth.word}"
    )
    if phase in ("ordered", "chaotic"):
        like = "as in the ordered phase" if phase == "ordered" else "as in chaos"
        text += f", by a factor e every {scale:.2g} layers ({like})"
    elif phase == "edge of chaos":
        text += ", as at the edge of chaos"
    if math.isfinite(ratio) and ratio < 1 / _APART:
        text += f". Points of the favoured class get {ratio:.2g} of the others' gradient: the others are learned first"
    return text
