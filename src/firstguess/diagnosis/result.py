"""What a diagnosis holds: verdict, causes, what theory expects, trainability, advice."""

from __future__ import annotations

import html
import importlib
import math
import textwrap
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from firstguess.base.text import ends, interval, plain

if TYPE_CHECKING:
    from firstguess.diagnosis.comparison import Comparison
    from firstguess.ensemble.measurement import Measurement
    from firstguess.ensemble.members import Finding
    from firstguess.modules.gradients import Gradients
    from firstguess.modules.structure import Structure
    from firstguess.theory.prediction import Prediction

VerdictName = Literal["neutral", "biased", "deeply biased", "degenerate head", "broken"]
Phase = Literal["ordered", "edge of chaos", "chaotic", "unknown"]
How = Literal["predicted", "measured"]
Aim = Literal["guesses", "gradients", "loss", "repair"]

# Of the printed page: what does not fit is in the report.
_COLUMNS, _CAUSES, _ADVICE = 100, 5, 5


@dataclass(frozen=True)
class Verdict:
    """The regime, how sure it is, and the drift ratio γ of the output with its 95 % interval.

    `probability` is the chance that γ lies in this regime's range, given its interval (half a normal on each side):
    1 where γ does not decide (a degenerate head, NaN), NaN where an instance's own values had to say how it is drawn
    (findings "other scale", "kept values"). `low` and `high` are NaN where γ could not be measured.
    """

    name: VerdictName
    probability: float
    gamma: float
    low: float
    high: float
    why: str = ""


@dataclass(frozen=True)
class Cause:
    """A step that adds correlation: c of two inputs before and after it (measured), and its share of all that is added.

    `kind` is the module's class, "code: add > relu" for plain code between modules, or "data" for the inputs'
    own correlation.
    """

    name: str
    kind: str
    before: float
    after: float
    added: float
    se: float
    share: float

    @property
    def words(self) -> str:
        """The step in words."""
        if self.kind == "data":
            return "the data themselves"
        if self.kind.startswith("code: "):
            return f"{self.kind.removeprefix('code: ')} ({self.name})"
        return f"{self.kind} {self.name}"


@dataclass(frozen=True, eq=False)
class Expected:
    """What theory predicts for this architecture and these data, or why it cannot be read."""

    prediction: Prediction | None
    comparison: Comparison | None
    why: str = ""

    @property
    def p_value(self) -> float:
        """The chance of a difference in the law of the guesses like the one seen, if the prediction is right."""
        return math.nan if self.comparison is None else self.comparison.p_value

    @property
    def words(self) -> str:
        """One sentence."""
        if self.prediction is None:
            return f"not predicted: {self.why}"
        gamma, largest = float(self.prediction.gamma[-1]), self.prediction.guesses.expected_max()
        text = f"the {self.prediction.reading} reading predicts γ = {gamma:.3g}, largest fraction {largest:.3f}"
        if self.comparison is None:
            return f"{text} ({self.why})" if self.why else text
        verdict = "as measured" if self.comparison.agrees else "not what was measured"
        return f"{text}: {verdict} (p = {self.p_value:.2g})"


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


@dataclass(frozen=True)
class Advice:
    """A change that was tried: γ and the average largest fraction before and after, predicted or measured.

    `gradient` is the predicted or measured factor per layer going back, before and after (NaN: not known). `helps` says
    whether the largest fraction falls by more than its error. `aim` is what the change is for, and `worth_it` whether
    it is one to make: guesses become more even, or its other aim is reached. `edit` is the change as code or a
    description.
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

    @property
    def helps(self) -> bool:
        return self.largest_before - self.largest_after > max(0.01, 2 * self.error)

    @property
    def worth_it(self) -> bool:
        if self.helps or self.aim in (
            "loss",
            "repair",
        ):  # the first loss falls, or a head gets weights, by construction
            return True
        known = self.gradient_before > 0 and self.gradient_after > 0  # not NaN
        return self.aim == "gradients" and known and self._gradients_keep_more()

    def _gradients_keep_more(self) -> bool:
        return abs(math.log(self.gradient_after)) < abs(math.log(self.gradient_before))


@dataclass(frozen=True, eq=False, repr=False)
class Diagnosis:
    """Verdict, causes, expectation, trainability and advice for one model on some data. Print it, or `save` it.

    `advice` has all changes that were tried, best first; those that did not help are last, and have no rank.
    """

    verdict: Verdict
    causes: tuple[Cause, ...]
    expected: Expected
    trainability: Trainability | None
    advice: tuple[Advice, ...]
    case: str  # whether this bias is one to worry about: neutral is not always better
    name: str
    measurement: Measurement | None
    structure: Structure | None
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    provenance: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0

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
        expected, train = self.expected, self.trainability
        return plain(
            {
                "name": self.name,
                "verdict": asdict(self.verdict)
                | ({"low": None, "high": None} if ends(self.verdict.low, self.verdict.high) is None else {}),
                "causes": [asdict(cause) for cause in self.causes],
                "expected": {
                    "words": expected.words,
                    "p_value": expected.p_value,
                    "prediction": None if expected.prediction is None else expected.prediction.to_dict(),
                    "comparison": None if expected.comparison is None else expected.comparison.to_dict(),
                },
                "trainability": None
                if train is None
                else {
                    **{k: v for k, v in vars(train).items() if k != "gradients"},
                    "gradients": None if train.gradients is None else train.gradients.to_dict(),
                },
                "advice": [
                    {
                        **asdict(a),
                        "helps": a.helps,
                        "worth_it": a.worth_it,
                        "rank": self.ranked.index(a) + 1 if a.worth_it else None,
                    }
                    for a in self.advice
                ],
                "case": self.case,
                "measurement": None if self.measurement is None else self.measurement.to_dict(),
                "structure": None if self.structure is None else self.structure.to_dict(),
                "findings": [finding.to_dict() for finding in self.findings],
                "notes": list(self.notes),
                "provenance": self.provenance,
                "seconds": self.seconds,
            }
        )

    def save(self, path: str | Path) -> Path:
        """Write the report: one HTML file that opens offline and prints."""
        # By name, because a report is made of diagnoses: this is the one place that looks up to what shows results.
        return importlib.import_module("firstguess.show.report").write(self, path)

    def __repr__(self) -> str:
        return f"Diagnosis({self.name}: {self.verdict.name}, γ = {self.verdict.gamma:.3g})"

    def __str__(self) -> str:
        return _page(self)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"


# -- One page of a terminal -------------------------------------------------------------------------------------------


def _page(d: Diagnosis) -> str:
    return "\n".join(line for part in _parts(d) for line in part)


def _parts(d: Diagnosis) -> Iterator[list[str]]:
    yield [f"{d.name}: {d.verdict.name.upper()}{_sure(d.verdict.probability)}", *_wrapped(d.verdict.why)]
    yield _numbers(d)
    if d.causes:
        rows = [
            f"  {c.added:+.3f}  {c.before:6.3f} → {c.after:<6.3f} {c.share:>5.0%}  {c.words}"
            for c in d.causes[:_CAUSES]
        ]
        more = len(d.causes) - _CAUSES
        yield [
            "Where it comes from: correlation c of two inputs, before → after (share of all that is added)",
            *(_short(row) for row in rows),
            *([f"  … {more} more"] if more > 0 else []),
        ]
    yield ["Is it expected?", *_wrapped(d.expected.words)]
    if d.trainability is not None:
        yield ["Will it train?", *_wrapped(d.trainability.words)]
    if d.ranked:
        yield [
            "What to change (tried, before → after)",
            *(line for i, a in enumerate(d.ranked[:_ADVICE], 1) for line in _advice(f"{i}. ", a)),
        ]
    if d.did_not_help:
        yield [
            "Tried, did not help (before → after)",
            *(line for a in d.did_not_help[:_ADVICE] for line in _advice("", a)[:2]),
        ]
    if d.case:
        yield ["Is that better?", *_wrapped(d.case)]
    remarks = [str(finding) for finding in d.findings]
    remarks += [f"note: {note}" for note in d.notes]
    if remarks:
        yield [line for remark in remarks for line in _wrapped(remark)]


def _sure(probability: float) -> str:
    if math.isnan(probability):
        return ""
    return "  (sure: > 99.9 %)" if probability > 0.999 else f"  (chance that this is right: {probability:.1%})"


def _numbers(d: Diagnosis) -> list[str]:
    m, verdict = d.measurement, d.verdict
    if m is None:
        return []
    g = m.guesses
    rows: list[tuple[str, str]] = []
    if not math.isnan(verdict.gamma):
        known = math.isfinite(verdict.low) and math.isfinite(verdict.high)
        around = f" ({verdict.low:.3g} to {verdict.high:.3g})" if known else ""
        rows.append(("drift ratio γ of the output", f"{verdict.gamma:.3g}{around}"))
    low, high = g.interval("expected_max")
    span = interval(low, high, m.inits) if math.isnan(low) else f"({low:.3f} to {high:.3f})"
    rows.append(
        (
            "average largest guess fraction",
            f"{g.expected_max():.3f} {span}, even {1 / g.classes:.3g}",
        )
    )
    rows.append(("chance that one class gets over 90 %", f"{g.prob_max_above(0.9):.3f}"))
    rows.append(("measured on", f"{m.inits} initializations, {m.points} points, {m.classes} classes"))
    if m.data:
        rows.append(("data", m.data))
    width = max(len(label) for label, _ in rows)
    return [f"  {label:<{width}}  {value}" for label, value in rows]


def _advice(rank: str, a: Advice) -> list[str]:
    gamma = f"γ {a.gamma_before:.3g} → {a.gamma_after:.3g}"
    largest = f"largest {a.largest_before:.2f} → {a.largest_after:.2f}"
    gradient = ""
    if not (math.isnan(a.gradient_before) or math.isnan(a.gradient_after)):
        gradient = f", gradients × {a.gradient_before:.2f} → {a.gradient_after:.2f} a layer"
    mark = ", guesses not more even" if a.worth_it and not a.helps else ""
    lines = [_short(f"  {rank}{a.title} ({a.how}{mark})"), _short(f"     {largest}, {gamma}{gradient}")]
    return lines + (_wrapped(a.note, "     ") if a.note else [])


def _wrapped(text: str, indent: str = "  ") -> list[str]:
    return textwrap.wrap(text, _COLUMNS, initial_indent=indent, subsequent_indent=indent) if text else []


def _short(row: str) -> str:
    return row if len(row) <= _COLUMNS else row[: _COLUMNS - 1] + "…"
