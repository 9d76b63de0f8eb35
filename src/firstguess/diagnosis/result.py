"""What a diagnosis holds: verdict, causes, what theory expects, trainability, advice."""

from __future__ import annotations

import importlib
import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from firstguess.base.record import Record, Shown, room
from firstguess.base.text import capital, ends, percent, spaced
from firstguess.diagnosis import answer as answers
from firstguess.diagnosis.answer import Answer, Duration, Trainability, Trains, WillTrain
from firstguess.diagnosis.causes import Cause
from firstguess.diagnosis.expectation import Expected
from firstguess.diagnosis.verdict import Verdict
from firstguess.ensemble.member_statistics import FindingKind

if TYPE_CHECKING:
    from firstguess.diagnosis.bias_duration import PredictedDuration
    from firstguess.diagnosis.faults import Fault
    from firstguess.diagnosis.rehearsal import Rehearsal
    from firstguess.ensemble.gradient_statistics import Gradients
    from firstguess.ensemble.measurement import Measurement
    from firstguess.ensemble.member_statistics import Finding
    from firstguess.modules.read.result import Structure

How = Literal["predicted", "measured"]
Aim = Literal["guesses", "first guesses", "gradients", "loss", "repair", "training"]
Goal = Literal["even start", "trainability", "worst class early"]


@dataclass(frozen=True)
class Advice:
    """A change that was tried: γ and the average largest share before and after, predicted or measured.

    `gradient` is theory's factor per layer going back, before and after (NaN: not known), `nonlinearity` P of theory.md
    (31), `absorption` the steps of descent until the bias is gone by (16). `helps` says whether the largest share
    falls by more than its error. `aim` is what the change is for, and `worth_it` whether it is one to make: guesses
    become more even, or its other aim is reached. `edit` is the change in short or as a description, `code` runnable
    PyTorch, `price` what it costs.
    """

    title: str
    edit: str
    how: How
    gamma_before: float
    gamma_after: float
    largest_before: float
    largest_after: float
    error: float  # of largest_after − largest_before
    gradient_before: float = math.nan
    gradient_after: float = math.nan
    note: str = ""
    remedy: str = ""
    aim: Aim = "guesses"
    reading: str = ""  # what both numbers are known by: a prediction's, or how many initializations
    nonlinearity_before: float = math.nan
    nonlinearity_after: float = math.nan
    absorption_before: float = math.nan
    absorption_after: float = math.nan
    code: str = ""
    price: str = ""

    @property
    def helps(self) -> bool:
        return self.largest_before - self.largest_after > max(0.01, 2 * self.error)

    @property
    def worth_it(self) -> bool:
        if self.helps or self.aim in ("loss", "repair"):  # which fall, or give weights, by construction
            return True
        if self.aim == "training":
            return self.nonlinearity_after < self.nonlinearity_before  # False where either is NaN
        known = self.gradient_before > 0 and self.gradient_after > 0  # not NaN
        kept = known and abs(math.log(self.gradient_after)) < abs(math.log(self.gradient_before))
        return self.aim == "gradients" and kept


@dataclass(frozen=True, eq=False, repr=False)
class Diagnosis(Record, Shown):
    """The answer for one model on some data, and what it follows from. Print it, or `save` it.

    `answer` says what to do, `headline` why; `will_train` and `duration` are what it follows from, besides `faults`.
    `advice` has all changes that were tried, best first; those that did not help are last, and have no rank.
    """

    _apart = ("run", "assumed")

    verdict: Verdict
    causes: tuple[Cause, ...]
    expected: Expected
    trainability: Trainability | None
    advice: tuple[Advice, ...]
    case: str  # whether this bias is one to worry about: even is not always better
    name: str
    measurement: Measurement | None
    structure: Structure | None
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    provenance: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    faults: tuple[Fault, ...] = ()  # known faults that were seen in the model as it is, or in the data
    lasting: PredictedDuration | None = None  # how long the bias lasts in training; None: theory was not asked
    goal: Goal = "even start"  # what the advice is ranked by
    data_name: str = ""  # what the user calls the data
    rehearsal: Rehearsal | None = None  # what copies did in their first steps of training
    run: int = answers.LEAST_STEPS  # steps that the model will be trained for
    assumed: str = ""  # what of that was not said: optimizer, loss, length
    causes_need: float = math.nan  # seconds= with which every cause could be tried; NaN: all were
    given: float = math.nan  # correlation of what kept layers give to the fresh part; NaN: nothing is kept

    @property
    def answer(self) -> Answer:
        """What to do, by the first rule that holds: a fault; it will not train; even; gone by the end of the run."""
        train, start = self.will_train.word, self.verdict.name
        if self.to_fix or start == "broken":
            return Answer.FIX
        if train in (Trains.NO, Trains.RISK):
            return Answer.CHANGE
        if start == "degenerate head":
            return Answer.HARMLESS if train is Trains.YES and self.rehearsal is not None else Answer.UNKNOWN
        if start in answers.LITTLE:
            return Answer.NOTHING if train is Trains.YES else Answer.UNKNOWN
        outlasts = self.duration.outlasts
        return Answer.UNKNOWN if outlasts is None else Answer.CHANGE if outlasts else Answer.HARMLESS

    @property
    def headline(self) -> str:
        """The answer's one sentence."""
        start, m, train = self.verdict.name, self.measurement, self.will_train
        if self.to_fix:
            return capital(f"{self.to_fix[0].message}.")
        if start == "broken" or m is None:
            return capital(f"{self.verdict.why or 'it gives no usable numbers'}.")
        if self.answer is Answer.CHANGE and train.word is not Trains.YES:
            risk = "it will not train as it is" if train.word is Trains.NO else "it may not train as it is"
            return capital(f"{risk}: {train.reason}.")
        if start == "degenerate head":
            return "All classes tie at the start: the head does not tell inputs apart until the first step."
        trains = "it trains" if train.word is Trains.YES else f"whether it trains is {train.word}"
        if start == "repeats its input" and m.own_guess is not None:
            own = f"{percent(m.own_guess[0])} of positions guess the token that they hold"
            return f"{own}: it repeats its input, and {trains}."
        share = percent(m.guesses.expected_max())
        if start in answers.LITTLE:
            return f"{share} of inputs start in the largest of {spaced(m.classes)} classes: {start}, and {trains}."
        run = f", and your run has {spaced(self.run)}" if self.answer is Answer.CHANGE else ""
        return f"{share} of inputs start in one class; {self.duration.words}{run}."

    @property
    def duration(self) -> Duration:
        """How long the starting bias lasts in training, by theory and by the copies."""
        theory, copies = self.lasting, self.rehearsal
        why = ""
        if copies is not None and not copies.known:
            why = copies.why
        elif theory is not None and not theory.known:
            why = theory.why.removeprefix("not predicted: ")
        elif theory is None and copies is None:
            kinds = {finding.kind for finding in self.findings}
            why = answers.TIME_WAS_UP if FindingKind.TIME_IS_UP in kinds else "it was not requested"
            why = answers.INTERRUPTED if FindingKind.INTERRUPTED in kinds else why
        by_theory = theory if theory is not None and theory.known else None
        by_copies = copies if copies is not None and copies.known else None
        looked = int(by_theory.at[-1]) if by_theory is not None and by_theory.at and by_copies is None else 0
        found = Duration(
            math.nan if by_theory is None or by_theory.uncertain else by_theory.steps,
            math.nan if by_copies is None or by_copies.diverged == by_copies.inits else by_copies.steps,
            max(0 if copies is None else copies.last, looked),
            self.run,
            "" if copies is None else copies.how,
            why,
            *((math.nan, math.nan) if copies is None else (copies.low, copies.high)),
        )
        if math.isnan(found.steps):
            return replace(found, why=why or "all classes tie at the start of each copy")
        return replace(found, why="") if math.isfinite(found.steps) else found

    @property
    def will_train(self) -> WillTrain:
        """Yes, at risk or no, with the reason; at risk with a fault, unless copies were trained that have it."""
        if self.verdict.name == "broken":
            return WillTrain(Trains.NO, "it gives no usable numbers")
        if self.to_fix and (self.rehearsal is None or not self.rehearsal.known):
            return WillTrain(Trains.RISK, f"fix this first ({self.to_fix[0].name})")
        return answers.will_train(self._gradients, self.rehearsal)

    @property
    def to_fix(self) -> list[Fault]:
        """Faults that come before everything else, the first of them first."""
        return answers.serious(self.faults, self._gradients, self.rehearsal)

    @property
    def _gradients(self) -> Gradients | None:
        return None if self.trainability is None else self.trainability.gradients

    @property
    def main_causes(self) -> tuple[Cause, ...]:
        """Causes as page, chart and report number them: those without which guesses were seen to be more even.

        Where none was tried, steps that raise c.
        """
        tried = any(c.tried for c in self.causes)
        return tuple(c for c in self.causes if (c.brings if tried else c.added > 0))

    @property
    def ranked(self) -> tuple[Advice, ...]:
        """Changes to make, best first."""
        return tuple(a for a in self.advice if a.worth_it)

    @property
    def did_not_help(self) -> tuple[Advice, ...]:
        """Changes that were tried and are not worth making."""
        return tuple(a for a in self.advice if not a.worth_it)

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        found, verdict, test = super().to_dict(), self.verdict, self.measurement and self.measurement.bias_test
        found["verdict"]["title"] = verdict.title
        for low, high in (("low", "high"), ("guess_low", "guess_high")):
            if ends(getattr(verdict, low), getattr(verdict, high)) is None:
                found["verdict"] |= {low: None, high: None}
        for a, row in zip(self.advice, found["advice"], strict=True):
            rank = self.ranked.index(a) + 1 if a.worth_it else None
            row.update(helps=a.helps, worth_it=a.worth_it, rank=rank)
        first = {
            "answer": str(self.answer),
            "headline": self.headline,
            "will_train": {"answer": str(self.will_train.word), "reason": self.will_train.reason},
            "duration": self.duration.to_dict(),
        }
        return first | found | {"bias_test": test and test.to_dict()}

    def save(self, path: str | Path) -> Path:
        """Write the report: one HTML file that opens offline and prints."""
        return room().save(self, path)

    def __repr__(self) -> str:
        return f"Diagnosis({self.name}: {self.answer}; {self.verdict.name}, γ = {self.verdict.gamma:.3g})"

    def __str__(self) -> str:
        # By name: a page is made of diagnoses.
        return importlib.import_module("firstguess.diagnosis.sentences").page(self)
