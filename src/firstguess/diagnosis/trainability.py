"""Whether gradients survive, in words: growth per layer or block, phase, depth scale, who gets them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from firstguess.base.errors import FirstguessError
from firstguess.base.text import size_change, size_changes
from firstguess.data import Batch
from firstguess.diagnosis.result import Advice, Phase, Trainability
from firstguess.ensemble.gradient_statistics import Gradients, Word

_PHASES: dict[Word, Phase] = {
    "vanish": "ordered",
    "shrink": "ordered",
    "explode": "chaotic",
    "grow": "chaotic",
    "keep their size": "edge of chaos",
}
GRADIENT_POINTS = 256
_APART = 10.0  # ratio of the others' to the favoured class's mean square gradient that is worth saying
_AS_PREDICTED = 1.25  # a factor a layer further than this from theory's has another cause than the phase


def trainability_of(g: Gradients, *, plain: bool, predicted: float = math.nan) -> Trainability:
    """The measured gradients, summed up. Phases are those of `plain` networks (no norms, no skips, no attention) whose
    factor is the one that theory predicts.

    `predicted` is theory's factor a layer, which is said where none was measured.
    """
    growth = g.growth
    factor = growth.value
    phase: Phase = _PHASES.get(growth.word, "unknown") if plain and _as_predicted(factor, predicted) else "unknown"
    scale = 1 / abs(math.log(factor)) if factor > 0 and factor != 1.0 else math.inf if factor == 1.0 else math.nan
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


def in_parts(work: Callable[[list[Batch], int], Gradients], batches: list[Batch]) -> Gradients:
    """Gradients of some points; where a model takes whole batches only (a graph, a size in its code), of whole ones."""
    try:
        return work(batches, GRADIENT_POINTS)
    except (FirstguessError, RuntimeError):
        sizes = [batch.size for batch in batches]
        count = next((i for i in range(1, len(sizes)) if sum(sizes[:i]) >= GRADIENT_POINTS), len(sizes))
        if sum(sizes[:count]) <= GRADIENT_POINTS:
            raise
        return work(batches[:count], sum(sizes[:count]))


def with_measured(advice: tuple[Advice, ...], train: Trainability | None) -> tuple[Advice, ...]:
    """Advice whose factor before is the measured one, so that a page has one; without any where theory's is another."""
    if train is None or math.isnan(train.growth):
        return advice
    return tuple(
        a if math.isnan(a.gradient_before)
        else replace(
            a,
            gradient_before=train.growth,
            gradient_after=train.growth if a.gradient_after == a.gradient_before else a.gradient_after,
        ) if _as_predicted(train.growth, a.gradient_before)
        else replace(a, gradient_before=math.nan, gradient_after=math.nan)
        for a in advice
    )  # fmt: skip


def _as_predicted(factor: float, predicted: float) -> bool:
    return 1 / _AS_PREDICTED < factor / predicted < _AS_PREDICTED  # False where either is NaN


def _words(g: Gradients, phase: Phase, scale: float, ratio: float, predicted: float) -> str:
    growth, word = g.growth, g.growth.word
    if word == "zero":
        return _zero(g)
    if word == "not finite":
        return "gradients are not finite (NaN or Inf), so that the first step breaks the network"
    if word == "not known":
        return _unknown(g, predicted)
    if growth.total == 0:
        zero = "from some layer on exactly 0 (dead units, or below the number format)"
        return f"towards the input {_whose(g)} vanish: {zero}"
    text = f"{_whose(g)} change by "
    if math.isnan(growth.value):
        whole = _on_the_whole(word)
        text += f"{size_change(growth.total)} towards the input over {_over(g)}, but by no one factor: {whole}"
    else:
        step = "block" if g.stream else "layer"
        text += (
            f"{size_change(growth.value)} a {step} towards the input (95 %: {size_changes(growth.low, growth.high)}), "
            f"over {_over(g)}: {_on_the_whole(word)}"
        )
    if phase in ("ordered", "chaotic"):
        like = "as in the ordered phase" if phase == "ordered" else "as in chaos"
        text += f", their mean square by a factor e every {scale:.2g} layers ({like})"
    elif phase == "edge of chaos":
        text += ", as at the edge of chaos"
    if word in ("shrink", "grow"):
        text += ". At this depth that need not harm training"
    if math.isfinite(ratio) and ratio < 1 / _APART:
        text += f". Points of the favoured class get {ratio:.2g} of the others' gradient: the others are learned first"
    return text


def _on_the_whole(word: str) -> str:
    """What becomes of gradients; the factor a layer need not be 1 where so few layers leave them their size."""
    return "on the whole they keep their size" if word == "keep their size" else f"they {word}"


def _whose(g: Gradients) -> str:
    return "gradients of the stream" if g.stream else "gradients"


def _over(g: Gradients) -> str:
    hidden = len(g.layers) - 1
    fitted = g.growth.layers or hidden
    if g.stream:
        return f"the last {fitted} of {len(g.stream)} places between residual blocks"
    return (
        f"the last {fitted} of {hidden} hidden layers"
        if fitted == hidden - 1
        else f"{fitted} of {hidden} hidden layers"
    )


def _zero(g: Gradients) -> str:
    text = "gradients are zero in all hidden layers"
    if g.layers and math.isfinite(g.layers[-1].weight.value):
        return f"{text}; the output layer has some, and is the only one that the first step changes"
    return f"{text}, and in the output layer too: nothing is learned"


def _unknown(g: Gradients, predicted: float) -> str:
    hidden = len(g.layers) - 1
    if hidden < 1:
        why = "no hidden layer has weights"
    elif hidden < 3 and not g.stream:
        count = "only one hidden layer has weights" if hidden < 2 else "only two hidden layers have weights"
        why = f"{count}, and the first one's gradient has the scale of the data"
    elif g.growth.layers < 2:
        why = "fewer than two layers that every gradient passes"
    else:
        why = "only one initialization" if g.growth.inits else "no initialization has gradients at all layers"
    text = f"how gradients change from layer to layer was not measured: {why}"
    return (
        text
        if math.isnan(predicted)
        else f"{text}; theory predicts a change of {size_change(predicted)} a layer towards the input"
    )
