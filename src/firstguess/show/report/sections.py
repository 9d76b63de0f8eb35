"""The parts of the report, each from one part of a diagnosis; None where there is nothing to say."""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from firstguess.base.text import counted
from firstguess.modules.structure import short
from firstguess.show.charts.theme import number, percent, unbroken
from firstguess.show.report import wording
from firstguess.show.report.charts import Drawn
from firstguess.show.report.elements import table, tag

if TYPE_CHECKING:
    from firstguess.diagnosis.result import Cause, Diagnosis, Trainability
    from firstguess.ensemble.measurement import Measurement

_CAUSES, _LOWERING = 12, 4
_PARTS = 60


def section(key: str, title: str, *content: str | None) -> Markup:
    """A part with its heading; nothing where it has no content."""
    parts = [part for part in content if part]
    return tag("section", tag("h2", title, id=key), *parts, aria_labelledby=key) if parts else Markup("")


def head(d: Diagnosis) -> Markup:
    """Name, verdict in one sentence, and why."""
    sure = wording.sureness(d.verdict)
    badge = tag("strong", d.verdict.title, class_="badge")
    return tag(
        "header",
        tag("p", "firstguess: what this network believes before it has learned anything", class_="eyebrow"),
        tag("h1", d.name),
        tag(
            "div",
            tag("p", badge, *([tag("span", f" {sure}", class_="soft")] if sure else [])),
            tag("p", unbroken(wording.headline(d)), class_="headline"),
            *([tag("p", sentence(d.verdict.why))] if d.verdict.why else []),
            class_=f"verdict {d.verdict.name.replace(' ', '-')}",
        ),
    )


def faults(d: Diagnosis) -> Markup:
    """Known faults, before any number that they would explain."""
    items = [
        tag(
            "li",
            tag("strong", f.name),
            f" at {f.layer}" if f.layer else "",
            f": {sentence(f.message)} What to do: {f.do}.",
            class_="finding",
        )
        for f in d.faults
    ]
    return section("faults", "Faults", tag("ul", *items) if items else None)


def numbers(d: Diagnosis) -> Markup:
    """The headline numbers with their intervals."""
    m = d.measurement
    if m is None:
        return Markup("")
    g, cards = m.guesses, list[Markup]()
    cards.append(
        _card(
            percent(g.expected_max()),
            "of the data in the largest class, on average",
            f"{wording.span(*g.interval('expected_max'), share=True, inits=m.inits)}; "
            f"even split {percent(1 / g.classes)}",
        )
    )
    v = d.verdict
    if not math.isnan(v.gamma):
        span = wording.span(v.low, v.high, inits=m.inits)
        cards.append(_card(number(v.gamma), "drift ratio γ of the output", span))
    often = g.interval(("prob_max_above", 0.9))
    cards.append(
        _card(
            percent(g.prob_max_above(0.9)),
            "of all initializations put over 90 % of the data in one class",
            wording.span(*often, share=True, inits=m.inits),
        )
    )
    cards.append(_card(f"{m.inits:,}", "initializations measured", f"{m.points:,} data points, {m.classes:,} classes"))
    meaning = (
        "γ compares how far the average outputs of the classes are apart with how much outputs differ between inputs. "
        "Up to 0.05 is called even, below 1 leaning, above it biased, and from 9.5 on deeply biased; the word above is "
        "that of the γ with which wide networks guess as these do"
    )
    meaning += "." if math.isnan(v.guess_gamma) else f": {_gamma(v.guess_gamma, v.guess_low, v.guess_high)}."
    parts = [tag("div", *cards, class_="cards"), tag("p", unbroken(meaning), class_="soft")]
    if not math.isnan(v.gamma):
        parts.append(tag("p", unbroken(f"Is there initial guessing bias at all? {sentence(m.bias_test.words)}")))
    return Markup("").join(parts)


def _gamma(value: float, low: float, high: float) -> str:
    interval = "" if math.isnan(low) or math.isnan(high) else f" ({wording.span(low, high)})"
    return f"{number(value)}{interval}"


def _card(big: str, words: str, small: str) -> Markup:
    lines = [tag("p", unbroken(words)), tag("p", unbroken(small), class_="soft")]
    return tag("div", tag("p", big, class_="big"), *lines, class_="card")


def guesses(d: Diagnosis, charts: Drawn) -> Markup:
    """The law of the guesses and the single initializations."""
    return section("guesses", "How it guesses", charts.get("law"), charts.get("strip"))


def causes(d: Diagnosis, charts: Drawn) -> Markup:
    """Which steps add correlation."""
    if not d.causes:
        none = tag("p", "No step that changes the correlation between inputs was found.") if d.measurement else None
        return section("causes", "Where it comes from", charts.get("correlation"), none)
    words = (
        "A network is biased when its outputs for different inputs are alike. The correlation c of two inputs (0: "
        "nothing in common, 1: the same) is measured before and after every step; a step that raises it is a cause, "
        "one that lowers it holds the bias down. How much each matters is measured: the network is run on without "
        "what the step adds or takes away, and the largest share of the guesses is compared."
    )
    read = next((f" ({c.inits} initializations, {c.points} points)" for c in d.causes if c.tried), "")
    raising = [c for c in d.causes if c.added >= 0]
    lowering = [c for c in reversed(d.causes) if c.added < 0]
    rows = [_cause(str(rank), cause) for rank, cause in enumerate(raising[:_CAUSES], start=1)]
    rows += [_cause("–", cause) for cause in lowering[:_LOWERING]]
    more = len(raising) - _CAUSES
    return section(
        "causes",
        "Where it comes from",
        tag("p", words),
        charts.get("correlation"),
        table(
            ["Rank", "Step", "c before → after", "Largest share, without it"],
            rows,
            numbers=(2, 3),
            caption=f"Steps that raise correlation, by their effect{read}; without a rank, those that lower it",
        ),
        tag("p", f"… and {more} more that matter less.", class_="soft") if more > 0 else None,
    )


def _cause(rank: str, c: Cause) -> list[str]:
    around = "" if c.kind == "constant" else f"{wording.value(c.before)} → {wording.value(c.after)}"
    change = c.change if not c.tried else f"{c.change} ± {100 * c.error:.{0 if c.error >= 0.01 else 1}f}"
    return [rank, c.words, around, change or "not tried"]


def expected(d: Diagnosis) -> Markup:
    """What theory says, number by number where both are known."""
    e = d.expected
    content: list[str] = [tag("p", sentence(e.words))]
    if e.prediction is not None:
        assumed = ", ".join(e.prediction.assumptions)
        content.append(tag("p", f"The prediction assumes {assumed or 'nothing else'}.", class_="soft"))
        if e.size:
            content.append(tag("p", unbroken(sentence(e.size)), class_="soft"))
    if e.comparison is not None:
        shown = [("γ of the output", r) for r in e.comparison.layers[-1:]]
        shown += [(r.name, r) for r in e.comparison.summaries]
        rows = [
            [name, number(r.predicted), f"{number(r.measured)} ± {number(r.se)}", _z(r.z), _chance(r.p_value)]
            for name, r in shown
        ]
        heads = ["", "predicted", "measured ± s.e.", "difference in s.e.", "p-value"]
        content.append(table(heads, rows, numbers=(1, 2, 3, 4), caption="Prediction and measurement"))
        content += [tag("p", note, class_="soft") for note in e.comparison.notes]
    return section("expected", "Is it expected?", *content)


def _z(z: float) -> str:
    return (
        "–" if math.isnan(z) else f"{z:+.1f}".replace("-", "−") if abs(z) < 1000 else ("> +999" if z > 0 else "< −999")
    )


def _chance(p: float) -> str:
    return "under 1e−300" if p == 0 else number(float(f"{p:.2g}"))


def trainability(d: Diagnosis, charts: Drawn) -> Markup:
    """Whether gradients survive the way back."""
    t = d.trainability
    if t is None:
        return section("training", "Will it train?", tag("p", "Gradients were not measured.", class_="soft"))
    return section("training", "Will it train?", tag("p", sentence(t.words)), charts.get("gradients"), _growth(t))


def _growth(t: Trainability) -> Markup:
    rows: list[list[str]] = []
    step = "block" if t.gradients is not None and t.gradients.stream else "layer"
    if t.phase != "unknown":
        rows.append(["phase", t.phase])
    if not math.isnan(t.growth):
        rows.append(
            [
                f"factor on the gradients' mean square a {step}, going back",
                f"× {number(t.growth)} ({wording.span(t.low, t.high)})",
            ]
        )
    if not math.isnan(t.ratio):
        rows.append(["favoured class's mean square over the others', at the first layer", number(t.ratio)])
    if not math.isnan(t.depth_scale):
        rows.append([f"{step}s over which it changes by a factor e", number(t.depth_scale)])
    return table(["Gradients", "value"], rows, caption="Gradients") if rows else Markup("")


def lasting(d: Diagnosis) -> Markup:
    """How long the bias lasts in training."""
    found = d.lasting
    if found is None:
        return Markup("")
    words = tag("p", sentence(found.words))
    if not found.known:
        return section("lasting", "How long will the bias last?", words)
    (first, then), (guessed, learned) = found.largest, found.accuracy
    whose = f"{number(found.own[0])} of the kernel's, differing by {percent(found.own[1])} from network to network"
    rows = [
        ["step from which on at most half of the starting bias is left", _step(found.half)],
        ["at most a quarter", _step(found.steps)],
        ["largest share, at the start → then", f"{percent(first)} → {percent(then)}"],
        ["the labels' own largest share", percent(found.majority)],
        ["accuracy on these points, at the start → then", f"{percent(guessed)} → {percent(learned)}"],
        ["bias to signal (how much faster the bias moves)", number(found.ratio)],
        ["learning rate from which on descent overshoots", number(found.overshoot)],
        ["pace of the bias in this model", whose],
    ]
    meaning = (
        "The starting bias is how the accuracy on a class depends on which class an initialization favours; what is "
        "left of it is its part at a later step. No network was trained: logits of this model's own initializations "
        "move along the tangent kernel of its description, as those of wide networks do."
    )
    shown = table(["Training", "predicted"], rows, numbers=(1,), caption="How long the bias lasts")
    return section("lasting", "How long will the bias last?", words, shown, tag("p", meaning, class_="soft"))


def _step(step: float) -> str:
    return "not within these" if math.isinf(step) else f"{step:,.0f}" if step >= 10 else f"{step:.1f}"


def structure(d: Diagnosis) -> Markup:
    """What of the model could be read as a description, and what could not."""
    s = d.structure
    if s is None:
        return Markup("")
    content: list[str] = []
    if s.network is not None:
        content += [tag("p", "The whole model was read as:"), tag("pre", tag("code", short(str(s.network))))]
    else:
        content.append(tag("p", "The model could not be read as a whole, so theory has nothing to say on all of it."))
        if s.fragment is not None:
            content += [tag("p", "The longest stretch that was read:"), tag("pre", tag("code", short(str(s.fragment))))]
    if s.unread:
        times = Counter((u.path or "the model", u.kind, u.why) for u in s.unread)
        rows = [[path, kind, *counted([why] * count)] for (path, kind, why), count in times.items()]
        content.append(table(["Not read", "kind", "why"], rows, caption="What was not read"))
    if s.parts:
        rows = [
            [p.path or "·", p.kind, short(p.layer) or "nothing at initialization", str(p.variances or "")]
            for p in s.parts
        ]
        parts = table(["Module", "kind", "read as", "weights"], rows[:_PARTS], caption="What was read")
        left = [tag("p", f"… {len(rows) - _PARTS} more.", class_="soft")] if len(rows) > _PARTS else []
        content.append(tag("details", tag("summary", f"What was read: {len(rows)} parts"), parts, *left))
    content += [tag("p", f"Note: {note}") for note in s.notes if note not in d.notes]
    return section("structure", "What was read of the model", *content)


def findings(d: Diagnosis) -> Markup:
    """What a reader must know before believing the rest."""
    items = [
        tag("li", tag("strong", f.kind), f" at {f.layer}" if f.layer else "", f": {f.message}", class_="finding")
        for f in d.findings
    ]
    return section("findings", "Findings", tag("ul", *items) if items else None)


def notes(d: Diagnosis) -> Markup:
    """How the work was done."""
    return section("notes", "Notes", tag("ul", *(tag("li", note) for note in d.notes)) if d.notes else None)


def layers(m: Measurement | None) -> Markup:
    """Every measured layer."""
    if m is None or not m.layers:
        return Markup("")
    rows = [
        [
            x.name,
            x.kind,
            f"{x.nodes:,}",
            wording.with_error(x.gamma, x.gamma_se),
            wording.value(x.correlation, 4),
            percent(x.dead),
        ]
        for x in m.layers
    ]
    heads = ["Layer", "kind", "nodes", "γ ± s.e.", "c", "dead nodes"]
    whole = table(heads, rows, numbers=(2, 3, 4, 5), caption="All measured layers")
    return section("layers", "All layers", tag("details", tag("summary", f"{len(rows)} layers as measured"), whole))


def provenance(d: Diagnosis) -> Markup:
    """With what this was made."""
    rows = [[str(key), _plain(value)] for key, value in d.provenance.items()]
    if d.seconds > 0:
        rows.append(["time", f"{d.seconds:.1f} s"])
    return section(
        "provenance", "How this was made", table(["", "value"], rows, caption="Provenance") if rows else None
    )


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def sentence(text: str) -> str:
    """With a capital and an end."""
    text = text.strip()
    return unbroken(f"{text[:1].upper()}{text[1:]}{'' if text.endswith(('.', '!', '?')) else '.'}")
