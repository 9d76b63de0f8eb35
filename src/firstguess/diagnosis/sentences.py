"""What a diagnosis says, in sentences that the terminal and the report share, and as one page of a terminal."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from firstguess.base.text import (
    capital,
    columns,
    percent,
    percent_apart,
    percents,
    rounded_off,
    short,
    size_change_of,
    spaced,
)
from firstguess.diagnosis.advice import order
from firstguess.diagnosis.answer import INTERRUPTED, NAMELESS, TIME_WAS_UP, Answer, Trains, in_steps
from firstguess.diagnosis.causes import in_time, lines_of
from firstguess.diagnosis.expectation import agreement
from firstguess.ensemble.member_statistics import Finding, FindingKind, merged

if TYPE_CHECKING:
    from firstguess.diagnosis.causes import Cause
    from firstguess.diagnosis.faults import Fault
    from firstguess.diagnosis.result import Advice, Diagnosis, Verdict

_STARTS = {
    "even": "Before any training, this network spreads its guesses about evenly over the classes",
    "leaning": "Before any training, this network leans towards one class, without neglecting the others",
    "biased": "Before any training, this network already prefers one class over the others",
    "deeply biased": "Before any training, this network puts most of its inputs in one class, whatever they show",
    "repeats its input": "Before any training, this network guesses its own input, so that guesses are as uneven as it",
    "degenerate head": "The output layer does not tell inputs apart: these are not guesses yet",
    "broken": "This network gives no usable numbers, so nothing can be said about its guesses",
}
_SINK = 1.2  # by which the first position's variance stands out
_REPEATS = 10.0  # times as often as by chance, from which on a language model is said to repeat its input
_LITTLE = 0.1  # of the way to an even split
_READINGS = {"kernel reading": "predicted on your data", "closed form reading": "predicted for random data"}


def start(d: Diagnosis) -> str:
    """The verdict in one sentence, with the one number that it follows."""
    # On a border, the word that is certain: "at least biased, borderline deeply biased" is no "most of its inputs".
    sure = d.verdict.title.partition(",")[0].removeprefix("at least ")
    said = _STARTS[d.verdict.name if sure.startswith("at most ") else sure]
    if d.measurement is None or d.verdict.name in ("degenerate head", "broken"):
        return f"{said}."
    g = d.measurement.guesses
    span = share_span(*g.interval("expected_max"), inits=d.measurement.inits)
    most = "the most frequent token" if d.verdict.name == "repeats its input" else "its favourite"
    return (
        f"{said}: on average {most} gets {percent(g.expected_max())} of the data ({span}), "
        f"where an even split would be {percent(1 / g.classes)}."
    )


def often(d: Diagnosis) -> str:
    """How many initializations put nearly everything into one class."""
    if d.measurement is None:
        return ""
    g = d.measurement.guesses
    share = g.prob_max_above(0.9)
    if share == 0:
        return "No initialization puts over 90 % of the data in one class"
    span = share_span(*g.interval(("prob_max_above", 0.9)), inits=d.measurement.inits)
    return f"{percent(share)} of all initializations put over 90 % of the data in one class ({span})"


def share_span(low: float, high: float, *, inits: int) -> str:
    """A 95 % interval of shares, or that there is none, and why."""
    if math.isnan(low) or math.isnan(high):
        return "no interval from one initialization" if inits < 2 else "no interval known"
    ends = percents(low, high)
    if ends[0] == ends[1] and low < high:
        ends = [f"{100 * end:.2g} %" for end in (low, high)]
    return "95 %: {} to {}".format(*ends)


def facts(d: Diagnosis) -> list[tuple[str, str]]:
    """What else was measured, and on what: label and value."""
    m, verdict = d.measurement, d.verdict
    if m is None:
        return []
    rows: list[tuple[str, str]] = []
    for label, gamma, low, high in (
        ("drift ratio γ of the output", verdict.gamma, verdict.low, verdict.high),
        ("γ implied by the guesses", verdict.guess_gamma, verdict.guess_low, verdict.guess_high),
    ):
        around = f" (95 %: {_number(low)} to {_number(high)})" if math.isfinite(low) and not math.isnan(high) else ""
        if high < 0:
            around += ", below 0: class means differ less than those of independent points would"
        if not math.isnan(gamma):
            rows.append((label, f"{_number(rounded_off(gamma))}{around if rounded_off(gamma) else ''}"))
    if not math.isnan(verdict.gamma):
        rows.append(("bias detectable?", m.bias_test.words))
    on = f"{spaced(m.inits)} initializations, {spaced(m.points)} points, {spaced(m.classes)} classes"
    rows.append(("measured on", on))
    if (data := m.data or d.data_name) not in ("", NAMELESS):
        rows.append(("data", data))
    return rows


def faults_title(d: Diagnosis) -> str:
    """What stands above them: where the answer is another, depth does it, or copies learn all the same."""
    return "Faults" if d.answer is Answer.FIX else "Also seen, need not be fixed"


def remarkable(d: Diagnosis) -> list[Finding]:
    """Findings for a page: what is kept of a model is one of them."""
    kept = any(finding.kind == FindingKind.TRAINED for finding in d.findings)
    return merged(f for f in d.findings if not (kept and f.kind == FindingKind.MAYBE_TRAINED))


def main_cause(d: Diagnosis) -> Cause | None:
    """The step without which guesses would be most even, if one clearly matters."""
    return next((c for c in d.causes if c.brings), None)


def cause(d: Diagnosis) -> str:
    """The main cause in one sentence."""
    found = main_cause(d)
    if found is None:
        alike = f"the kept layers: their outputs are similar for all inputs (correlation c = {d.given:.2g})"
        return alike if math.isfinite(d.given) else _no_cause(d)
    it = "them" if len(found.steps) > 1 or found.kind == "constant" else "it"
    it = "what they share" if found.kind == "data" else it
    before, after = percents(found.largest_before, found.largest_after)
    change = f"without {it} the largest share falls from {before} to {after} (± {points(found.error)})"
    even = 0.0 if d.measurement is None else 1 / d.measurement.classes
    if found.largest_before - found.largest_after < _LITTLE * (found.largest_before - even):
        return f"no single layer does much; of those with a clear effect, {found.words}: {change}"
    return f"{found.words}: {change}"


def _no_cause(d: Diagnosis) -> str:
    """Nothing was found, or there was too little time to tell."""
    tried = [c for c in d.causes if c.tried]
    if not d.causes:
        return "not known"
    if not tried or math.isfinite(d.causes_need):
        what = "causes were not tried" if not tried else f"too little to tell, of {len(tried)} steps that were tried"
        if math.isfinite(d.causes_need):
            return f"{what}: that {in_time(d.causes_need)}"
        late = any(f.kind == FindingKind.TIME_IS_UP for f in d.findings)
        return f"{what}{', because time was short' if late else ': the notes say why'}"
    alone = f"none of the {len(tried)} layers that were tried has a statistically clear effect on its own"
    most = sorted((c for c in tried if c.added > 0 and len(c.steps) < 2), key=lambda c: -c.added)[:2]
    rises = " and ".join(f"{c.words}, {c.before:z.2f} → {c.after:.2f}" for c in most)
    return f"{alone}; correlation c rises most at {rises}" if most else alone


_EXPECTED = {
    **dict.fromkeys(("as measured", "close"), "Expected for this architecture (theory: {})"),
    "not as measured": "Not what theory predicts for this architecture ({})",
    "too few to tell": "Too few initializations to compare with theory ({})",
}


def expectation(d: Diagnosis) -> str:
    """Whether theory predicts this, in one sentence; nothing where it has no number."""
    e = d.expected
    if e.comparison is None or e.prediction is None:
        return ""
    return _EXPECTED[agreement(e.comparison)].format(percent(e.prediction.guesses.expected_max()))


def tokens(d: Diagnosis) -> str:
    """Whether a language model repeats its input, and how much of an answer the input token decides."""
    m, p = d.measurement, d.expected.prediction
    if m is None or m.own_guess is None:
        return ""
    share, error = m.own_guess
    parts: list[str] = []
    if share - 5 * error > _REPEATS / m.classes:
        theory = "" if p is None or p.own_guess is None else f" (theory: {percent(p.own_guess)})"
        parts.append(
            f"it repeats its input: {percent(share)} of positions guess the token that they hold{theory}, as a head "
            "tied to the embedding does; frequent guesses are then frequent tokens of the data, no favourite class"
        )
    else:
        spread, even = m.guesses.effective_support(), m.guesses.null().effective_support
        same = p is not None and p.guesses.points == m.points
        theory = f", theory: {spaced(round(p.guesses.effective_support().mean))}" if p is not None and same else ""
        parts.append(
            f"{spaced(m.points)} positions guess {spaced(round(spread.mean))} tokens (effective support, ± "
            f"{spread.error:.0f}{theory}), where even guessing would use {spaced(round(even))}"
        )
    own = "of the last state is the token's own embedding"
    parts += [line for line in (() if p is None else p.assumptions) if own in line]
    if p is not None and p.by_position and p.by_position[0] >= _SINK * p.by_position[-1]:
        parts.append(
            f"in theory the first position's state has {p.by_position[0] / p.by_position[-1]:.2g} times the variance "
            "of the last one's, which averages over more tokens: what becomes an attention sink"
        )
    return ". ".join(map(capital, parts))


def sureness(d: Diagnosis) -> str:
    """The verdict's word, its chance, and what it is from."""
    v, m = d.verdict, d.measurement
    if m is None:
        return ""
    chance = f" with a chance of {v.sureness}" if v.sureness and v.chances else ""
    early = f"; preliminary: {v.preliminary}" if v.preliminary else ""
    return f"{v.title}{chance}, from {spaced(m.inits)} initializations on {spaced(m.points)} points{early}"


def training(d: Diagnosis) -> str:
    """Yes, at risk or no; then what was measured of gradients."""
    words = "" if d.trainability is None else d.trainability.words
    measured = words and not words.startswith("how gradients change")
    copies = d.rehearsal is not None and d.rehearsal.known and "labels come in blocks" in {f.name for f in d.faults}
    order = " Copies get shuffled batches: they may learn where your loader's order would not." if copies else ""
    return (f"{d.will_train}. {capital(words)}." if measured else f"{d.will_train}.") + order


def duration(d: Diagnosis) -> str:
    """What was seen; then what theory predicts."""
    seen, lasts = d.rehearsal, d.lasting
    parts: list[str] = []
    if seen is not None and seen.known and not math.isnan(seen.steps):
        copies = "1 copy" if seen.inits == 1 else f"{seen.inits} copies"
        gone = f"gone after about {in_steps(seen.steps)} steps" if math.isfinite(seen.steps) else "not gone"
        nothing = f", but they learn nothing: {percent(seen.largest[-1])} of inputs end in one class"
        trained = f"Seen on {copies} trained for {seen.last} steps with {seen.how}"
        parts.append(f"{trained}: 75 % of the starting bias is {gone}{'' if seen.learns else nothing}")
    return ". ".join([*parts, *([] if lasts is None else [capital(lasts.words)])])


def missing(d: Diagnosis) -> str:
    """What would be needed for an answer."""
    why = d.duration.why
    if "no labels" in why:
        return "labels: fg.diagnose(model, (x, y)) or a loader that has them"
    if why == INTERRUPTED:
        return "what was left out: run it once more, or with fewer seconds="
    if why == TIME_WAS_UP:
        needed = d.causes_need if math.isfinite(d.causes_need) else 0.0
        return f"time: {in_time(max(10.0, 2 * d.seconds, needed)).partition(': ')[2]}"
    if " s more" in why:
        return f"time ({why}): seconds={2 * d.seconds:.0f}"
    if math.isinf(d.duration.steps):
        return f"a longer look: seconds= gives copies more steps than {d.duration.last}"
    return why or d.will_train.reason


def no_change(d: Diagnosis) -> str:
    """Where a change is worth it, and none that was tried does it."""
    if d.will_train.word != "yes":
        layers = () if d.measurement is None else d.measurement.layers
        normed = any("norm" in layer.kind.lower() for layer in layers)
        other = "a smaller learning rate may" if normed else "a smaller learning rate, norms or skip connections may"
        return f"none that was tried helps training; {other}"
    return "none that was tried makes guesses more even" if d.advice else "none was tried (advice=True tries them)"


def points(error: float) -> str:
    """An error of a share, in percent.

    >>> points(0.041), points(0.004)
    ('4 %', '0.4 %')
    """
    return f"{100 * error:{'.0f' if error >= 0.01 else '.1g'}} %"


def known_by(a: Advice) -> str:
    """Predicted for which data, or measured on how much.

    >>> from firstguess.diagnosis.result import Advice
    >>> known_by(Advice("x", "", "predicted", 2.0, 1.0, 0.8, 0.6, 0.0, reading="kernel reading"))
    'predicted on your data'
    >>> known_by(Advice("x", "", "predicted", 2.0, 1.0, 0.8, 0.6, 0.0, reading="kernel reading, infinite width"))
    'predicted on your data, at infinite width'
    """
    if a.how == "predicted":
        reading, _, width = a.reading.partition(", ")
        return f"{_READINGS.get(reading, a.how)}{f', at {width}' if width else ''}"
    return f"{a.how}: {a.reading}" if a.reading else a.how


def result(a: Advice) -> str:
    """What a change comes to, in words."""
    if not a.helps:
        return f"guesses do not become more even ({known_by(a)})"
    return f"the largest share falls to {percent(a.largest_after)} ({known_by(a)})"


class Effect(NamedTuple):
    """A number before and after a change, as texts."""

    name: str
    before: str
    after: str
    unit: str = ""

    def __str__(self) -> str:
        return f"{self.name} {self.before} → {self.after}{self.unit}"


def effects(a: Advice) -> list[Effect]:
    """All that is known of a change, before and after."""
    found = [Effect("largest share", *percents(a.largest_before, a.largest_after))]
    if not (math.isnan(a.gamma_before) and math.isnan(a.gamma_after)):
        found.append(Effect("γ", _number(a.gamma_before), _number(a.gamma_after)))
    if not (math.isnan(a.gradient_before) or math.isnan(a.gradient_after)):
        by = ", as theory predicts" if a.how == "measured" else ""
        before, after = size_change_of(a.gradient_before, a.gradient_after)
        found.append(Effect("gradients", before, after, f" per layer{by}"))
    if not (math.isnan(a.nonlinearity_before) or math.isnan(a.nonlinearity_after)):
        found.append(Effect("nonlinearity", _number(a.nonlinearity_before), _number(a.nonlinearity_after)))
    if not (math.isnan(a.absorption_before) or math.isnan(a.absorption_after)):
        steps = _number(a.absorption_before), _number(a.absorption_after)
        found.append(Effect("bias gone after", *steps, " steps, for random data"))
    return found


def _number(value: float) -> str:
    return "?" if math.isnan(value) else short(float(f"{value:.3g}"))


def best_change(d: Diagnosis) -> Advice | None:
    """The change that the answer asks for: for training where that is at risk, else for an even start."""
    if d.answer not in (Answer.CHANGE, Answer.HARMLESS, Answer.UNKNOWN):
        return None
    ranked = list(d.ranked)
    if d.answer is Answer.CHANGE and d.will_train.word is not Trains.YES:
        helpful = [a for a in ranked if a.aim in ("gradients", "training")]
        ranked = sorted(helpful, key=lambda a: order("trainability", a))
    if d.answer is Answer.HARMLESS:  # no other change is worth its price
        ranked = [a for a in ranked if a.remedy == "centre the head"]
    return ranked[0] if ranked else None


def rows_of(d: Diagnosis) -> list[tuple[str, str]]:
    """What stands under the headline: why, how sure, what to watch out for, what to type."""
    rows: list[tuple[str, str]] = []
    if faults := d.to_fix:
        return fixes(faults)
    if d.measurement is None:
        return rows
    biased = d.verdict.name in ("biased", "deeply biased")
    if biased and (d.causes or math.isfinite(d.given)):
        rows.append(("Why", capital(f"{cause(d)}. {expectation(d)}".strip())))
    if said := tokens(d):
        rows.append(("Tokens", said))
    if sure := sureness(d):
        rows.append(("How sure", sure))
    if d.assumed:
        rows.append(("Assumed", d.assumed))
    if d.answer is Answer.HARMLESS and biased and d.duration.steps > 1:
        step = in_steps(d.duration.steps)
        rows.append(("Watch out", f"per-class scores before step {step} show the initialization, not learning"))
    seen = d.rehearsal
    if seen is not None and seen.learns and seen.doubt and math.isnan(seen.held):  # no time to hold points out
        rows.append(("Watch out", f"{seen.doubt}; copies were not tried on points that they had not seen"))
    if d.answer is Answer.UNKNOWN:
        rows.append(("Missing", missing(d)))
    change = best_change(d)
    if change is not None:
        name = "Optional" if d.answer is not Answer.CHANGE else "Change"
        code = next((line for line in change.code.splitlines() if "fg.repair" in line), "")
        said = f"{code.partition('#')[0].strip()}   # even first guesses, same training" if code else ""
        copied = f"; d.ranked[{d.ranked.index(change)}].code" if change.code else ""
        rows.append((name, said or f"{change.title}: {result(change)}{copied}"))
        rows += [("Its price", change.price)] if change.price and not said else []
    elif d.answer is Answer.CHANGE:
        rows.append(("Change", no_change(d)))
    return rows


def fixes(faults: Sequence[Fault]) -> list[tuple[str, str]]:
    """What to type for the first fault, and which others were seen."""
    return [("Fix", faults[0].do), *(("Also", f"{fault.name}: {fault.message}") for fault in faults[1:3])]


_ADVICE = 5  # changes that are shown: more are in the report


def page(d: Diagnosis) -> str:
    """The answer, then everything that it follows from, as wide as the terminal is (at most 100 columns)."""
    return "\n".join(line for part in _Page(d, columns()).parts() for line in part)


class _Page:
    """A diagnosis in this number of columns."""

    def __init__(self, d: Diagnosis, wide: int) -> None:
        self._d, self._columns = d, wide

    def parts(self) -> Iterator[list[str]]:
        d = self._d
        fix = d.answer is Answer.FIX
        yield opening(d.answer, d.headline, rows_of(d), self._columns)
        yield [""]
        yield [*self._wrapped(f"{d.name}: {_title(d.verdict)}", ""), *self._wrapped(start(d))]
        if d.verdict.preliminary:
            yield self._wrapped(f"preliminary: {d.verdict.preliminary} were drawn")
        yield self._wrapped(d.verdict.why)
        yield self._numbers()
        if d.faults:
            said = [str(f) if fix else f"{f.name}{f' at {f.where}' if f.where else ''}: {f.message}" for f in d.faults]
            yield [faults_title(d), *(line for fault in said for line in self._wrapped(fault))]
        if d.causes and not fix:
            yield lines_of(d.main_causes, d.causes, self._columns)
        if not fix:
            yield ["Is it expected?", *self._wrapped(d.expected.words)]
        if d.will_train.word is not Trains.UNKNOWN:
            yield ["Will it train?", *self._wrapped(training(d))]
        if d.lasting is not None and not fix:
            yield ["How long will the bias last?", *self._wrapped(duration(d))]
        if not fix and d.answer is not Answer.NOTHING:
            yield from self._changes()
        elif d.ranked and not fix:
            tried = f"{len(d.ranked)} change{'s' if len(d.ranked) > 1 else ''}"
            yield self._wrapped(f"What you could change: {tried} (in the report, or d.ranked)", "")
        remarks = [str(finding) for finding in remarkable(d)] + [f"note: {note}" for note in d.notes]
        yield [line for remark in remarks for line in self._wrapped(remark)]

    def _changes(self) -> Iterator[list[str]]:
        d, wanted = self._d, best_change(self._d)
        # Of the changes that can be copied, and are shown, what the answer asks for first.
        with_code = [i for i, a in enumerate(d.ranked[:_ADVICE]) if a.code]
        with_code.sort(key=lambda i: d.ranked[i] is not wanted)
        if d.ranked:
            yield [
                *self._wrapped(f"What to change (tried, before → after; ranked for: {d.goal})", ""),
                *(line for i, a in enumerate(d.ranked[:_ADVICE], 1) for line in self._advice(f"{i}. ", a)),
                *([f"  as PyTorch: in the report, or d.ranked[{with_code[0]}].code"] if with_code else []),
            ]
        if d.did_not_help:
            yield [
                "Tried, did not help (before → after)",
                *(line for a in d.did_not_help[:_ADVICE] for line in self._advice("", replace(a, note="", price=""))),
            ]
        if d.case:
            yield ["Is that better?", *self._wrapped(d.case)]

    def _numbers(self) -> list[str]:
        rows = facts(self._d)
        if self._d.measurement is not None:
            rows.insert(0, ("how often", often(self._d)))
        width = max((len(label) for label, _ in rows), default=0)
        hang = " " * (width + 4)
        return [line for label, value in rows for line in self._lines(value, f"  {label:<{width}}  ", hang)]

    def _advice(self, rank: str, a: Advice) -> list[str]:
        mark = ", guesses not more even" if a.worth_it and not a.helps else ""
        numbers = ", ".join(map(str, effects(a)))
        said = "; ".join(part for part in (a.note, a.price and f"price: {a.price}") if part)
        title = self._lines(f"{rank}{a.title} ({known_by(a)}{mark})", "  ", "     ")
        return [*title, *self._wrapped(numbers, "     "), *self._wrapped(said, "     ")]

    def _wrapped(self, text: str, indent: str = "  ") -> list[str]:
        return self._lines(text, indent, indent) if text else []

    def _lines(self, text: str, first: str, rest: str) -> list[str]:
        return _wrapped(text, self._columns, first, rest)


def opening(answer: Answer, headline: str, rows: list[tuple[str, str]], wide: int) -> list[str]:
    """What a page opens with: the answer in a sentence, and named rows under it."""
    lines = _wrapped(headline, wide, f"{answer.upper()}   ", "  ")
    width = max((len(name) for name, _ in rows), default=0)
    for name, text in rows:
        lines += _wrapped(text, wide, f"  {name:<{width}}  ", " " * (width + 4))
    return lines


def _wrapped(text: str, wide: int, first: str, rest: str) -> list[str]:
    """No break between a number and its %, or after a ×."""
    kept = percent_apart(text).replace(" %", "\N{NO-BREAK SPACE}%").replace("× ", "×\N{NO-BREAK SPACE}")
    lines = textwrap.wrap(kept, wide, initial_indent=first, subsequent_indent=rest)
    return [line.replace("\N{NO-BREAK SPACE}", " ") for line in lines]


def _title(verdict: Verdict) -> str:
    first, *rest = verdict.title.split(", ")
    sure = f" ({verdict.sureness})" if verdict.sureness else ""
    return ", ".join([f"{first.upper()}{sure}", *rest])
