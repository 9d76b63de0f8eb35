"""The evidence, part by part: a sentence and a chart in sight, tables folded; nothing where there is nothing to say."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from markupsafe import Markup

from firstguess.base.text import size_change, size_changes
from firstguess.diagnosis import sentences
from firstguess.diagnosis.answer import Answer
from firstguess.show.charts.theme import assumed, number, percent, unbroken
from firstguess.show.report import wording
from firstguess.show.report.charts import Drawn
from firstguess.show.report.elements import folded, section, table, tag
from firstguess.show.report.wording import sentence

if TYPE_CHECKING:
    from firstguess.diagnosis.result import Cause, Diagnosis, Trainability

_CAUSES, _LOWERING = 12, 4


def faults(d: Diagnosis) -> Markup:
    """Known faults, before any number that they would explain."""
    items = [
        tag(
            "li",
            tag("strong", f.name),
            f" at {f.where}" if f.where else "",
            f": {sentence(f.words)}",
            class_="finding",
        )
        for f in d.faults
    ]
    return section("faults", "Faults", tag("ul", *items) if items else None)


def findings(d: Diagnosis) -> Markup:
    """What a reader must know before believing the rest."""
    items = [
        tag("li", tag("strong", f.kind), f" at {f.layer}" if f.layer else "", f": {f.message}", class_="finding")
        for f in d.findings
    ]
    return section("findings", "Findings", tag("ul", *items) if items else None)


def guesses(d: Diagnosis, charts: Drawn) -> Markup:
    """How shares are distributed, the single initializations, and what else was measured."""
    start = tag("p", unbroken(sentences.start(d)))
    why = tag("p", sentence(d.verdict.why), class_="soft") if d.verdict.why else None
    rows = [tag("div", tag("dt", label), tag("dd", unbroken(value))) for label, value in sentences.facts(d)]
    facts = tag("dl", *rows, class_="facts") if rows else None
    return section("guesses", "How it guesses", start, why, charts.get("law"), charts.get("strip"), facts)


def causes(d: Diagnosis, charts: Drawn) -> Markup:
    """Which steps add correlation."""
    if not d.causes:
        none = tag("p", "No step that changes the correlation between inputs was found.") if d.measurement else None
        return section("causes", "Where it comes from", charts.get("correlation"), none)
    words = (
        "A network is biased when different inputs look alike to it. Correlation c says how alike (0: nothing in "
        "common, 1: the same). A step that raises it is a cause, one that lowers it holds the bias down; how much each "
        "matters is measured, by running the network on without it."
    )
    raising = [c for c in d.causes if c.added >= 0]
    lowering = [c for c in reversed(d.causes) if c.added < 0]
    rows = [_cause(str(rank), cause) for rank, cause in enumerate(raising[:_CAUSES], start=1)]
    rows += [_cause("–", cause) for cause in lowering[:_LOWERING]]
    more = len(raising) - _CAUSES
    heads = ["Rank", "Step", "c before → after", "largest share without it"]
    caption = "Steps that raise correlation, by their effect; without a rank, those that lower it"
    return section(
        "causes",
        "Where it comes from",
        tag("p", words),
        charts.get("correlation"),
        folded(
            f"All steps, with errors{_read(d)}",
            table(heads, rows, numbers=(2, 3), caption=caption),
            tag("p", f"… and {more} more that matter less.", class_="soft") if more > 0 else "",
        ),
    )


def _read(d: Diagnosis) -> str:
    first = next((c for c in d.causes if c.tried), None)
    return "" if first is None else f" ({first.inits} initializations, {first.points} points)"


def _cause(rank: str, c: Cause) -> list[str]:
    around = "" if c.kind == "constant" else f"{wording.value(c.before)} → {wording.value(c.after)}"
    change = f"{percent(c.largest_after)} ± {sentences.points(c.error)}" if c.tried else "not tried"
    return [rank, c.words, around, change]


def correlation_title(d: Diagnosis) -> str:
    """Of the chart: from where to where, which no other place says."""
    m = d.measurement
    known = [] if m is None else [x.correlation for x in m.layers if math.isfinite(x.correlation)]
    data = next((c.after for c in d.causes if c.kind == "data"), math.nan)
    known = [data, *known] if math.isfinite(data) else known
    if len(known) < 2:
        return "How alike two inputs look, layer by layer"
    first, last = (wording.value(c, 2) for c in (known[0], known[-1]))
    how = "more alike" if known[-1] > known[0] + 0.005 else "less alike" if known[-1] < known[0] - 0.005 else "as alike"
    return f"Inputs end up {how} {'than' if how != 'as alike' else 'as'} they came: c goes from {first} to {last}"


def expected(d: Diagnosis) -> Markup:
    """What theory says, number by number where both are known."""
    e = d.expected
    if d.answer is Answer.FIX:
        return Markup("")
    content: list[str] = [tag("p", sentence(e.words))]
    if e.size:
        content.append(tag("p", sentence(e.size), class_="soft"))
    if e.comparison is not None:
        shown = [("drift ratio γ of the output", r) for r in e.comparison.layers[-1:]]
        shown += [(wording.compared(r.name), r) for r in e.comparison.summaries]
        rows = [
            [name, number(r.predicted), f"{number(r.measured)} ± {number(r.se)}", _z(r.z), _chance(r.p_value)]
            for name, r in shown
        ]
        heads = ["", "predicted", "measured ± s.e.", "difference in s.e.", "p-value"]
        notes = [tag("p", sentence(note), class_="soft") for note in (*_assumed(d), *e.comparison.notes)]
        compared = table(heads, rows, numbers=(1, 2, 3, 4), caption="Prediction and measurement")
        content.append(folded("Prediction and measurement, number by number", compared, *notes))
    elif _assumed(d):
        content += [tag("p", sentence(note), class_="soft") for note in _assumed(d)]
    return section("expected", "Is it expected?", *content)


def _assumed(d: Diagnosis) -> list[str]:
    e = d.expected
    return [] if e.prediction is None else [f"assumed: {assumed(e.prediction.assumptions) or 'nothing else'}"]


def _z(z: float) -> str:
    return (
        "–" if math.isnan(z) else f"{z:+.1f}".replace("-", "−") if abs(z) < 1000 else ("> +999" if z > 0 else "< −999")
    )


def _chance(p: float) -> str:
    return "under 1e−300" if p == 0 else number(float(f"{p:.2g}"))


def trainability(d: Diagnosis, charts: Drawn) -> Markup:
    """Whether gradients survive the way back."""
    t, words = d.trainability, tag("p", sentence(sentences.training(d)))
    return section("training", "Will it train?", words, charts.get("gradients"), None if t is None else _growth(t))


def gradients_title(t: Trainability) -> str:
    """Of the chart; the number is in the sentence above it."""
    word = "not known" if t.gradients is None else t.gradients.word
    if word in ("zero", "not finite"):
        return f"Gradients are {word}"
    return "Gradients by layer" if word == "not known" else f"Towards the input gradients {word}"


def _growth(t: Trainability) -> Markup:
    rows: list[list[str]] = []
    step = "block" if t.gradients is not None and t.gradients.stream else "layer"
    if t.phase != "unknown":
        rows.append(["phase", t.phase])
    if not math.isnan(t.growth):
        size = f"{size_change(t.growth)} (95 %: {size_changes(t.low, t.high)})"
        rows.append([f"gradients' size, a {step} towards the input", size])
        rows.append([f"factor on their mean square, a {step} towards the input", number(t.growth)])
    if not math.isnan(t.ratio):
        rows.append(["favoured class's mean square over the others', at the first layer", number(t.ratio)])
    if not math.isnan(t.depth_scale):
        rows.append([f"{step}s over which it changes by a factor e", number(t.depth_scale)])
    return (
        folded("Gradients in numbers", table(["Gradients", "value"], rows, caption="Gradients")) if rows else Markup("")
    )


def lasting(d: Diagnosis) -> Markup:
    """How long the bias lasts in training."""
    found = d.lasting
    if (found is None and d.rehearsal is None) or d.answer is Answer.FIX:
        return Markup("")
    words = tag("p", sentence(sentences.lasting(d) or d.duration.words))
    if found is None or not found.known:
        return section("lasting", "How long will the bias last?", words)
    (first, then), (guessed, learned) = found.largest, found.accuracy
    whose = f"{number(found.own[0])} of its description's, differing by {percent(found.own[1])} between networks"
    rows = [
        ["step from which on at most half of the starting bias is left", _step(found.half)],
        ["at most a quarter", _step(found.steps)],
        ["largest share, at the start → then", f"{percent(first)} → {percent(then)}"],
        ["the labels' own largest share", percent(found.majority)],
        ["accuracy on these points, at the start → then", f"{percent(guessed)} → {percent(learned)}"],
        ["how much faster the bias moves than the labels' signal", number(found.ratio)],
        ["learning rate from which on descent overshoots", number(found.overshoot)],
        ["pace of the bias in this model", whose],
    ]
    meaning = (
        "The starting bias is how the accuracy on a class depends on which class an initialization favours; what is "
        "left of it is its part at a later step. No network was trained: logits of this model's own initializations "
        "move along the tangent kernel of its description, as those of wide networks do. By then the largest "
        "share need not be small: guesses may have gone over to another class."
    )
    shown = table(["Training", "predicted"], rows, numbers=(1,), caption="How long the bias lasts")
    return section(
        "lasting",
        "How long will the bias last?",
        words,
        folded("Training in numbers", shown, tag("p", meaning, class_="soft")),
    )


def _step(step: float) -> str:
    return "not within these" if math.isinf(step) else number(float(f"{step:.0f}")) if step >= 10 else f"{step:.1f}"
