"""The parts of an answer: how long a bias lasts, whether the network will train; with the limits of their rules.

The rules are `Diagnosis`'s own (result.py). docs/answers.md has the same limits, where each comes from, and how often
the answers were right.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Literal

from firstguess.base.record import Record
from firstguess.base.text import percent, size_change, size_changes, spaced
from firstguess.ensemble.gradient_statistics import Gradients, Word

if TYPE_CHECKING:
    from firstguess.diagnosis.faults import Fault
    from firstguess.diagnosis.rehearsal import Rehearsal

LEAST_STEPS = 100  # a run is one epoch, and at least so long, unless steps= or epochs= say otherwise
AGREE = 2.0  # factor between predicted and seen steps up to which they agree …
CLOSE = 5.0  # … or steps between them
FEW_LAYERS = 3  # hidden layers with weights below which gradients have no room to vanish

NAMELESS = "your data"  # what data are called that have no name
INTERRUPTED, TIME_WAS_UP = "the diagnosis was interrupted", "time was up"  # why a duration is not known

# Faults only where copies learn nothing: what is often meant, and ends with the first step, or is said of training.
MEANT = frozenset({"zero head", "batchnorm in eval mode before training", "gradients vanish", "gradients explode"})
# What depth does in every initialization whose gradients do this: the architecture is to change, nothing to be fixed.
OF_DEPTH: dict[Word, frozenset[str]] = {
    "vanish": frozenset({"same output for all inputs", "vanishing logits", "gradients vanish"}),
    "explode": frozenset({"gradients explode"}),
}


LITTLE = ("even", "leaning", "repeats its input")  # starts that favour no class over the others


class Answer(StrEnum):
    """What to do."""

    FIX = "fix this"
    CHANGE = "worth a change"
    HARMLESS = "harmless"
    NOTHING = "nothing to do"
    UNKNOWN = "not known"


class Trains(StrEnum):
    """Whether it will train."""

    YES = "yes"
    RISK = "at risk"
    NO = "no"
    UNKNOWN = "not known"


@dataclass(frozen=True)
class WillTrain:
    """Whether it will train, and why that is said."""

    word: Trains
    reason: str

    def __str__(self) -> str:
        return f"{self.word.capitalize()}: {self.reason}"


@dataclass(frozen=True)
class Duration(Record):
    """The steps after which three quarters of the starting bias are gone: predicted, and seen on copies.

    NaN: not known; ∞: not by `last`, the last step that was looked at. `run` is how long the run will be.
    """

    _also = ("steps", "agree", "outlasts")

    predicted: float = math.nan
    seen: float = math.nan
    last: int = 0
    run: int = LEAST_STEPS
    how: str = ""
    why: str = ""  # it is not known
    low: float = math.nan  # what two thirds of other draws of the copies would have shown …
    high: float = math.nan

    @property
    def steps(self) -> float:
        """What was seen; else what was predicted."""
        return self.predicted if math.isnan(self.seen) else self.seen

    @property
    def agree(self) -> bool:
        """Whether prediction and copies say about the same; True where one of them is missing."""
        a, b = self.predicted, self.seen
        if math.isnan(a) or math.isnan(b) or a == b:
            return True
        if math.isinf(b):
            return a >= self.last / AGREE
        return math.isinf(a) or not apart(a, b)

    @property
    def outlasts(self) -> bool | None:
        """Whether the bias outlasts the run; None where that is not known."""
        if math.isnan(self.steps):
            return None
        if math.isinf(self.steps):
            if self.last >= self.run:
                return True
            return self.predicted > self.run if self.agree and math.isfinite(self.predicted) else None
        return self.steps > self.run

    @property
    def words(self) -> str:
        """Half a sentence that says it."""
        if math.isnan(self.steps):
            return f"how long that lasts is not known: {self.why}"
        both = [f"predicted {in_steps(self.predicted)}"] if math.isfinite(self.predicted) else []
        if math.isfinite(self.seen):
            low, high = min(self.low, self.seen), max(self.high, self.seen)  # other draws need not be around this one
            most = in_steps(high) if math.isfinite(high) else f"more than {spaced(self.last)}"
            likely = f", {in_steps(low)} to {most}" if apart(low, high) else ""
            both.append(f"seen {in_steps(self.seen)} on copies{likely}")
        source = f" ({', '.join(both)}{'' if self.agree else '; copies are believed'})" if both else ""
        if math.isinf(self.steps):
            return f"more than a quarter of that is left after {spaced(self.last)} steps{source}"
        count = in_steps(self.steps)
        return f"three quarters of that are gone after about {count} {'step' if count == '1' else 'steps'}{source}"


def in_steps(steps: float) -> str:
    """Two digits are known.

    >>> in_steps(0.3), in_steps(3.46), in_steps(11.4), in_steps(1234.0)
    ('1', '3', '11', '1 200')
    """
    return spaced(round(max(1.0, steps)) if steps < 10.0 else float(f"{steps:.2g}"))


def apart(a: float, b: float) -> bool:
    """Whether two numbers of steps say different things.

    >>> apart(2.0, 6.0), apart(10.0, 18.0), apart(10.0, 30.0), apart(3.0, math.inf)
    (False, False, True, True)
    """
    return not (abs(a - b) <= CLOSE or max(a, b) <= AGREE * min(a, b)) if a != b and not math.isnan(a + b) else False


def will_train(gradients: Gradients | None, seen: Rehearsal | None) -> WillTrain:
    """What copies did decides; where none were trained, gradients do."""
    word = "not known" if gradients is None else gradients.word
    going = f"gradients {word} towards the input" if word in ("vanish", "explode") else ""
    going = {"zero": _ZERO, "not finite": "gradients are not finite"}.get(word, going)
    if seen is not None and seen.known:
        if 2 * seen.diverged >= seen.inits:
            return WillTrain(Trains.NO, f"{seen.diverged} of {seen.inits} copies diverged (NaN or Inf) with {seen.how}")
        if seen.learns:
            start, end = seen.accuracy[0], seen.accuracy[-1]
            gains = f"balanced accuracy goes from {percent(start)} to {percent(end)} in {seen.last} steps"
            if seen.slow:
                easy = seen.doubt or f"the nearest class mean has {percent(seen.easy)}"
                return WillTrain(Trains.RISK, f"copies learn slowly, {gains} with {seen.how}, where {easy}")
            if not end > start:
                gains = f"the loss falls from {seen.loss[0]:.3g} to {seen.loss[-1]:.3g} in {seen.last} steps"
            return WillTrain(Trains.YES, f"copies learn, {gains} with {seen.how}")
        nothing = f"copies learned nothing in {seen.last} steps with {seen.how}"
        return WillTrain(Trains.NO, f"{going}, and {nothing}") if going else WillTrain(Trains.RISK, nothing)
    if word in ("zero", "not finite"):
        return WillTrain(Trains.NO, going)
    if going:
        return WillTrain(Trains.RISK, going)
    if word != "not known":
        return WillTrain(Trains.YES, f"gradients {word} towards the input, at a depth that can be trained")
    if gradients is not None and 0 < len(gradients.layers) <= FEW_LAYERS:
        return WillTrain(Trains.YES, "it has few layers, in which gradients hardly vanish")
    return WillTrain(Trains.UNKNOWN, "neither gradients nor a copy in training could be looked at")


def serious(faults: Sequence[Fault], gradients: Gradients | None, seen: Rehearsal | None) -> list[Fault]:
    """Faults to fix before anything else."""
    fails = seen is not None and seen.known and not seen.learns
    of_depth = frozenset[str]() if gradients is None else OF_DEPTH.get(gradients.word, frozenset())
    return [f for f in faults if (fails or f.name not in MEANT) and f.name not in of_depth]


Phase = Literal["ordered", "edge of chaos", "chaotic", "unknown"]
_PHASES: dict[Word, Phase] = {"vanish": "ordered", "shrink": "ordered", "explode": "chaotic", "grow": "chaotic"}
_PHASES["keep their size"] = "edge of chaos"
_ZERO = "gradients are zero in all hidden layers"
_APART = 10.0  # ratio of the others' to the favoured class's mean square gradient that is worth saying
_AS_PREDICTED = 1.25  # a factor per layer further than this from theory's has another cause than the phase


@dataclass(frozen=True, eq=False)
class Trainability:
    """Whether gradients survive: the factor on their mean square per layer going back, with its 95 % interval.

    `favoured` and `others` are the factors for points of the class that the initialization favours, and of the others;
    `ratio` the mean square of the favoured class's gradients over the others' at the first layer. `depth_scale` is
    the number of layers over which the mean square changes by a factor e.
    """

    phase: Phase
    growth: float
    low: float
    high: float
    favoured: float
    others: float
    ratio: float
    depth_scale: float
    layers: int
    words: str
    gradients: Gradients | None = None


def trainability_of(g: Gradients, *, plain: bool, predicted: float = math.nan) -> Trainability:
    """The measured gradients, summed up. Phases are those of `plain` networks (no norms, no skips, no attention) whose
    factor is the one that theory predicts.

    `predicted` is theory's factor per layer, which is said where none was measured.
    """
    factor = g.growth.value
    phase: Phase = _PHASES.get(g.growth.word, "unknown") if plain and as_predicted(factor, predicted) else "unknown"
    scale = 1 / abs(math.log(factor)) if factor > 0 and factor != 1.0 else math.inf if factor == 1.0 else math.nan
    ratio = 10.0 ** (g.layers[0].favoured.value - g.layers[0].others.value) if g.layers else math.nan
    return Trainability(
        phase,
        factor,
        g.growth.low,
        g.growth.high,
        favoured=g.favoured_growth.value,
        others=g.others_growth.value,
        ratio=ratio,
        depth_scale=scale,
        layers=len(g.layers),
        words=_words(g, phase, scale, ratio, predicted),
        gradients=g,
    )


def as_predicted(factor: float, predicted: float) -> bool:
    return 1 / _AS_PREDICTED < factor / predicted < _AS_PREDICTED  # False where either is NaN


def _words(g: Gradients, phase: Phase, scale: float, ratio: float, predicted: float) -> str:
    growth, word = g.growth, g.growth.word
    if word == "zero":
        some = g.layers and math.isfinite(g.layers[-1].weight.value)
        rest = "; the output layer has some, and is the only one that the first step changes"
        return f"{_ZERO}{rest if some else ', and in the output layer too: nothing is learned'}"
    if word == "not finite":
        return "gradients are not finite (NaN or Inf), so that the first step breaks the network"
    if word == "not known":
        return _unknown(g, predicted)
    whose = "gradients of the stream" if g.stream else "gradients"
    if growth.total == 0:
        return (
            f"towards the input {whose} vanish: from some layer on exactly 0 (dead units, or below the number format)"
        )
    hidden = len(g.layers) - 1
    fitted = growth.layers or hidden
    over = f"{'the last ' if fitted == hidden - 1 else ''}{fitted} of {hidden} hidden layers"
    over = f"the last {fitted} of {len(g.stream)} places between residual blocks" if g.stream else over
    # The factor per layer need not be 1 where so few layers keep their size.
    whole = "on the whole they keep their size" if word == "keep their size" else f"they {word}"
    if math.isnan(growth.value):
        change = f"{size_change(growth.total)} towards the input over {over}, but by no one factor"
    else:
        change = f"{size_change(growth.value)} per {'block' if g.stream else 'layer'} towards the input "
        change += f"(95 %: {size_changes(growth.low, growth.high)}), over {over}"
    text = f"{whose} change by {change}: {whole}"
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
    theory = f"; theory predicts a change of {size_change(predicted)} per layer towards the input"
    text = f"how gradients change from layer to layer was not measured: {why}"
    return text if math.isnan(predicted) else f"{text}{theory}"
