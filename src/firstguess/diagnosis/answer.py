"""The answer: what to do about what was found, and whether the network will train.

One table of limits, one function of a diagnosis each. docs/answers.md has the same table, where each limit comes from,
and how often the answers were right.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal, Protocol

from firstguess.base.record import Record
from firstguess.base.text import capital, percent, size_change, size_changes, spaced
from firstguess.ensemble.gradient_statistics import Gradients, Word
from firstguess.ensemble.member_statistics import FindingKind

if TYPE_CHECKING:
    from firstguess.diagnosis.bias_duration import PredictedDuration
    from firstguess.diagnosis.faults import Fault
    from firstguess.diagnosis.rehearsal import Rehearsal
    from firstguess.ensemble.gradient_statistics import Gradients
    from firstguess.ensemble.measurement import Measurement
    from firstguess.ensemble.member_statistics import Finding

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
            likely = f", {in_steps(self.low)} to {_at_most(self.high, self.last)}" if apart(self.low, self.high) else ""
            both.append(f"seen {in_steps(self.seen)} on copies{likely}")
        source = ", ".join(both) + ("" if self.agree else "; copies are believed")
        if math.isinf(self.steps):
            rest = f" ({source})" if both else ""
            return f"more than a quarter of that is left after {spaced(self.last)} steps{rest}"
        count = in_steps(self.steps)
        unit = "step" if count == "1" else "steps"
        return f"three quarters of that are gone after about {count} {unit} ({source})"


def in_steps(steps: float) -> str:
    """Two digits are known.

    >>> in_steps(0.3), in_steps(11.4), in_steps(1234.0)
    ('1', '11', '1 200')
    """
    return spaced(float(f"{max(1.0, steps):.2g}"))


def _at_most(steps: float, last: int) -> str:
    return in_steps(steps) if math.isfinite(steps) else f"more than {spaced(last)}"


def apart(a: float, b: float) -> bool:
    """Whether two numbers of steps say different things.

    >>> apart(2.0, 6.0), apart(10.0, 18.0), apart(10.0, 30.0), apart(3.0, math.inf)
    (False, False, True, True)
    """
    return not (abs(a - b) <= CLOSE or max(a, b) <= AGREE * min(a, b)) if a != b and not math.isnan(a + b) else False


class Diagnosed(Protocol):
    """What the rules look at."""

    @property
    def verdict(self) -> Any: ...
    @property
    def measurement(self) -> Measurement | None: ...
    @property
    def lasting(self) -> PredictedDuration | None: ...
    @property
    def rehearsal(self) -> Rehearsal | None: ...
    @property
    def findings(self) -> Sequence[Finding]: ...
    @property
    def run(self) -> int: ...
    @property
    def to_fix(self) -> list[Fault]: ...
    @property
    def answer(self) -> Answer: ...
    @property
    def duration(self) -> Duration: ...
    @property
    def will_train(self) -> WillTrain: ...


# -- The rules --------------------------------------------------------------------------------------------------------


def duration_of(d: Diagnosed) -> Duration:
    """How long the bias lasts by theory, and by the copies."""
    lasts, seen = d.lasting, d.rehearsal
    why = _left_out(d.findings) if lasts is None and seen is None else ""
    if seen is not None and not seen.known:
        why = seen.why
    elif lasts is not None and not lasts.known:
        why = lasts.why.removeprefix("not predicted: ")
    found = Duration(
        _predicted(lasts),
        math.nan if seen is None or not seen.known or seen.diverged == seen.inits else seen.steps,
        max(seen.last if seen is not None else 0, _looked(lasts) if seen is None or not seen.known else 0),
        d.run,
        seen.how if seen is not None else "",
        why,
        math.nan if seen is None else seen.low,
        math.nan if seen is None else seen.high,
    )
    if math.isnan(found.steps):
        return replace(found, why=why or "all classes tie at the start of each copy")
    return replace(found, why="") if math.isfinite(found.steps) else found


def _left_out(findings: Sequence[Finding]) -> str:
    """Why neither theory nor copies were asked."""
    kinds = {finding.kind for finding in findings}
    if FindingKind.INTERRUPTED in kinds:
        return INTERRUPTED
    return TIME_WAS_UP if FindingKind.TIME_IS_UP in kinds else "it was not requested"


def _predicted(lasts: PredictedDuration | None) -> float:
    return math.nan if lasts is None or not lasts.known or lasts.uncertain else lasts.steps


def _looked(lasts: PredictedDuration | None) -> int:
    return int(lasts.at[-1]) if lasts is not None and lasts.known and lasts.at else 0


def will_train(gradients: Gradients | None, seen: Rehearsal | None) -> WillTrain:
    """What copies did decides; where none were trained, gradients do."""
    word = "not known" if gradients is None else gradients.word
    going = {
        "vanish": "gradients vanish towards the input",
        "explode": "gradients explode towards the input",
        "zero": "gradients are zero in all hidden layers",
        "not finite": "gradients are not finite",
    }.get(word, "")
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


def answer_of(d: Diagnosed) -> Answer:
    """The first rule that holds: a fault; it will not train; even; gone by the end of the run."""
    train, start = d.will_train.word, d.verdict.name
    if d.to_fix or start == "broken":
        return Answer.FIX
    if train in (Trains.NO, Trains.RISK):
        return Answer.CHANGE
    if start == "degenerate head":
        return Answer.HARMLESS if train is Trains.YES and d.rehearsal is not None else Answer.UNKNOWN
    if start in LITTLE:
        return Answer.NOTHING if train is Trains.YES else Answer.UNKNOWN
    outlasts = d.duration.outlasts
    return Answer.UNKNOWN if outlasts is None else Answer.CHANGE if outlasts else Answer.HARMLESS


def serious(faults: Sequence[Fault], gradients: Gradients | None, seen: Rehearsal | None) -> list[Fault]:
    """Faults to fix before anything else."""
    fails = seen is not None and seen.known and not seen.learns
    of_depth = frozenset[str]() if gradients is None else OF_DEPTH.get(gradients.word, frozenset())
    return [f for f in faults if (fails or f.name not in MEANT) and f.name not in of_depth]


def headline_of(d: Diagnosed) -> str:
    """The answer's one sentence."""
    faults, m = d.to_fix, d.measurement
    if faults:
        return capital(f"{faults[0].message}.")
    if d.verdict.name == "broken" or m is None:
        return capital(f"{d.verdict.why or 'it gives no usable numbers'}.")
    share = m.guesses.expected_max()
    start = f"{percent(share)} of inputs start in one class"
    if d.answer is Answer.CHANGE and d.will_train.word is not Trains.YES:
        risk = "it will not train as it is" if d.will_train.word is Trains.NO else "it may not train as it is"
        return capital(f"{risk}: {d.will_train.reason}.")
    if d.verdict.name == "degenerate head":
        return "All classes tie at the start: the head does not tell inputs apart until the first step."
    if d.verdict.name == "repeats its input" and m.own_guess is not None:
        own = f"{percent(m.own_guess[0])} of positions guess the token that they hold"
        return f"{own}: it repeats its input, and {_unless(d)}."
    if d.verdict.name in LITTLE:
        even = f"{percent(share)} of inputs start in the largest of {spaced(m.classes)} classes"
        return f"{even}: {d.verdict.name}, and {_unless(d)}."
    run = f", and your run has {spaced(d.run)}" if d.answer is Answer.CHANGE else ""
    return f"{start}; {d.duration.words}{run}."


def _unless(d: Diagnosed) -> str:
    return "it trains" if d.will_train.word is Trains.YES else f"whether it trains is {d.will_train.word}"


Phase = Literal["ordered", "edge of chaos", "chaotic", "unknown"]
_PHASES: dict[Word, Phase] = {
    "vanish": "ordered",
    "shrink": "ordered",
    "explode": "chaotic",
    "grow": "chaotic",
    "keep their size": "edge of chaos",
}
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
    growth = g.growth
    factor = growth.value
    phase: Phase = _PHASES.get(growth.word, "unknown") if plain and as_predicted(factor, predicted) else "unknown"
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


def as_predicted(factor: float, predicted: float) -> bool:
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
            f"{size_change(growth.value)} per {step} towards the input "
            f"(95 %: {size_changes(growth.low, growth.high)}), over {_over(g)}: {_on_the_whole(word)}"
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
    """What becomes of gradients; the factor per layer need not be 1 where so few layers keep their size."""
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
        else f"{text}; theory predicts a change of {size_change(predicted)} per layer towards the input"
    )
