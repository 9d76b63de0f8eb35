"""What the report of a diagnosis says: sentences, rows of tables and charts, which `templates/report.html` sets.

The answer, the evidence part by part, what to change, the details; nothing where there is nothing to say.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from markupsafe import Markup

from firstguess.base.text import capital, counted, deviation, four_digits, size_change, size_changes, spaced
from firstguess.diagnosis import sentences
from firstguess.diagnosis.answer import Answer, Trains
from firstguess.show import charts as figures
from firstguess.show.charts.theme import assumed, number, percent, unbroken
from firstguess.show.report.pages import Figure, figure, page, plain, resource, value, with_error
from firstguess.theory.references import PAPERS

if TYPE_CHECKING:
    from firstguess.diagnosis.result import Advice, Cause, Diagnosis, Structure, Trainability


_CAUSES, _LOWERING = 12, 4
_PARTS = 60
_LINKS = {"Why": "causes", "Watch out": "lasting", "Optional": "advice", "Change": "advice", "Fix": "faults"}
_RANKED = {
    "even start": "the largest share that is left",
    "trainability": "the least nonlinearity, then gradients that keep their size",
    "worst class early": "little nonlinearity first (P up to 3, up to 19, more), then the largest share that is left",
}
_COMPARED = {
    "std of a class's share": "spread of a class's share (standard deviation)",
    "average largest share": "largest share, average",
    "P(largest share > 0.9)": "chance that one class gets over 90 %",
}
_KEYS = {"model": "class of the model", "network": "description"}


def document(d: Diagnosis, *, live: bool = True) -> str:
    """One HTML file that loads nothing; not `live`: without scripts, charts are pictures."""
    on = f" on {d.data_name}" if d.data_name else ""
    return page("report.html", f"{d.name}{on}: {d.answer} · firstguess", context(d, live=live), live=live, tips=_TIPS)


def context(d: Diagnosis, *, live: bool = True) -> dict[str, Any]:
    """Everything that the template names."""
    fix, p = d.answer is Answer.FIX, d.expected.prediction
    lasts = not fix and (d.lasting is not None or d.rehearsal is not None)
    return {
        "d": d,
        "charts": _drawn(d, live=live),
        "fix": fix,
        "nothing": d.answer is Answer.NOTHING,
        "answers": _answers(d),
        "coded": change if (change := sentences.best_change(d)) is not None and change.code else None,
        "start": sentences.start(d),
        "facts": sentences.facts(d),
        "found": sentences.remarkable(d),
        "faults_title": sentences.faults_title(d),
        "kept": sentences.cause(d) if math.isfinite(d.given) else "",
        "causes": _causes(d),
        "compared": _compared(d),
        "assumed": [] if p is None else [f"assumed: {assumed(p.assumptions) or 'nothing else'}"],
        "training": sentences.training(d) if d.will_train.word is not Trains.UNKNOWN else "",
        "growth": _growth(d.trainability),
        "duration": (sentences.duration(d) or d.duration.words) if lasts else "",
        "lasting": _durations(d),
        "ranked_by": _RANKED[d.goal],
        "change_title": _change_title,
        "changes": _changes(d),
        "failed": [f"{capital(a.title)}: {', '.join(map(str, sentences.effects(a)[:2]))}" for a in d.did_not_help],
        "unread": _unread(d.structure),
        "parts": _read(d.structure),
        "layers": _layers(d),
        "provenance": _provenance(d),
        "short": four_digits,
        "papers": PAPERS,
        "terms": lambda text: used(text.striptags()),
        "headings": lambda text: [(k, Markup(t)) for k, t in re.findall(r'<h2 id="([^"]*)">(.*?)</h2>', text)],
    }  # fmt: skip


# -- Charts ------------------------------------------------------------------------------------------------------------


def _drawn(d: Diagnosis, *, live: bool) -> dict[str, Figure]:
    """The figures that this diagnosis has something for, by name: each for a wide page, and for a phone.

    Their titles say what no other place of the page does: one number, one place.
    """
    titles = {"law": sentences.often(d), "correlation": _correlation_title(d), "advice": _advice_title(d)}
    if d.trainability is not None:
        titles["gradients"] = _gradients_title(d.trainability)
    found: dict[str, Figure] = {}
    for name, chart in _charts(d):
        title = unbroken(titles[name]) if name in titles else None
        wide, narrow = (chart(title=title, narrow=narrow).to_dict(validate=False) for narrow in (False, True))
        found[name] = figure(name, wide, narrow, live=live)
    return found


def _charts(d: Diagnosis) -> Iterator[tuple[str, Callable[..., Any]]]:
    m, t = d.measurement, d.trainability
    if m is not None:
        yield "law", lambda **look: figures.law_chart(m, d.expected.prediction, **look)
        yield "strip", lambda **look: figures.strip_chart(m, **look)
        if (p := d.expected.prediction) is not None and p.support_steps:
            yield "support", lambda **look: figures.support_chart(p, m, **look)
        if m.layers:
            yield "correlation", lambda **look: figures.correlation_chart(d, **look)
    if t is not None and (gradients := t.gradients) is not None and gradients.layers:
        yield "gradients", lambda **look: figures.gradients_chart(gradients, **look)
    if d.advice:
        yield "advice", lambda **look: figures.advice_chart(d.advice, **look)


def _correlation_title(d: Diagnosis) -> str:
    """A title that says from where to where, which no other place says."""
    m = d.measurement
    known = [] if m is None else [x.correlation for x in m.layers if math.isfinite(x.correlation)]
    data = next((c.after for c in d.causes if c.kind == "data"), math.nan)
    known = [data, *known] if math.isfinite(data) else known
    if len(known) < 2:
        return "How alike two inputs look, layer by layer"
    first, last = (value(c, 2) for c in (known[0], known[-1]))
    how = "more alike" if known[-1] > known[0] + 0.005 else "less alike" if known[-1] < known[0] - 0.005 else "as alike"
    return f"Inputs end up {how} {'than' if how != 'as alike' else 'as'} they came: c goes from {first} to {last}"


def _gradients_title(t: Trainability) -> str:
    """The number is in the sentence above the chart."""
    word = "not known" if t.gradients is None else t.gradients.word
    plain = {"not known": "Gradients by layer", **{word: f"Gradients are {word}" for word in ("zero", "not finite")}}
    return plain.get(word, f"Towards the input gradients {word}")


def _advice_title(d: Diagnosis) -> str:
    """The numbers are at the top of the page, and on the chart's axis."""
    helpful = sum(a.helps for a in d.advice)
    tried = f"{len(d.advice)} change{'s' if len(d.advice) > 1 else ''} tried"
    if not helpful:
        return f"{tried}: none makes guesses more even"
    return f"{tried}: {helpful} make{'s' if helpful == 1 else ''} guesses more even"


# -- The answer --------------------------------------------------------------------------------------------------------


def _answers(d: Diagnosis) -> list[tuple[str, str, str]]:
    """Name, words, and the part of the page that has more. A line of code is no sentence: it stands in a box below."""
    rows = [(name, words.partition("; d.ranked[")[0]) for name, words in sentences.rows_of(d)]
    return [
        (name, f"{words.partition('#')[2]}: the code below" if "   # " in words else words, _LINKS.get(name, ""))
        for name, words in rows
    ]


# -- The evidence ------------------------------------------------------------------------------------------------------


def _causes(d: Diagnosis) -> dict[str, Any] | None:
    if not d.causes:
        return None
    main = d.main_causes
    raising = [*main, *(c for c in d.causes if c.added >= 0 and c not in main)]
    lowering = [c for c in reversed(d.causes) if c.added < 0]
    ranks = [str(i + 1) if i < len(main) else "–" for i in range(len(raising))]
    rows = [_cause(rank, cause) for rank, cause in zip(ranks[:_CAUSES], raising, strict=False)]
    rows += [_cause("–", cause) for cause in lowering[:_LOWERING]]
    first = next((c for c in d.causes if c.tried), None)
    read = "" if first is None else f" ({first.inits} initializations, {first.points} points)"
    return {"rows": rows, "more": len(raising) - _CAUSES, "read": read}


def _cause(rank: str, c: Cause) -> list[str]:
    around = "" if c.kind == "constant" else f"{value(c.before)} → {value(c.after)}"
    change = f"{percent(c.largest_after)} ± {sentences.points(c.error)}" if c.tried else "not tried"
    return [rank, c.words, around, change]


def _compared(d: Diagnosis) -> list[list[str]]:
    """What theory says, number by number where both are known."""
    comparison = d.expected.comparison
    if comparison is None:
        return []
    shown = [("drift ratio γ of the output", r) for r in comparison.layers[-1:]]
    shown += [(_COMPARED.get(r.name, r.name), r) for r in comparison.summaries]
    return [
        [name, number(r.predicted), f"{number(r.measured)} ± {number(r.se)}", deviation(r.z), _chance(r.p_value)]
        for name, r in shown
    ]


def _chance(p: float) -> str:
    return "under 1e−300" if p == 0 else number(float(f"{p:.2g}"))


def _growth(t: Trainability | None) -> list[list[str]]:
    """How gradients change on the way back."""
    if t is None:
        return []
    rows: list[list[str]] = []
    step = "block" if t.gradients is not None and t.gradients.stream else "layer"
    if t.phase != "unknown":
        rows.append(["phase", t.phase])
    if not math.isnan(t.growth):
        size = f"{size_change(t.growth)} (95 %: {size_changes(t.low, t.high)})"
        rows.append([f"gradients' size, per {step} towards the input", size])
        rows.append([f"factor on their mean square, per {step} towards the input", number(t.growth)])
    if not math.isnan(t.ratio):
        rows.append(["favoured class's mean square over the others', at the first layer", number(t.ratio)])
    if not math.isnan(t.depth_scale):
        rows.append([f"{step}s over which it changes by a factor e", number(t.depth_scale)])
    return rows


def _durations(d: Diagnosis) -> list[list[str]]:
    """How long the bias lasts in training."""
    found = d.lasting
    if found is None or not found.known:
        return []
    (first, then), (guessed, learned) = found.largest, found.accuracy
    whose = f"{number(found.own[0])} of its description's, differing by {percent(found.own[1])} between networks"
    return [
        ["step from which on at most half of the starting bias is left", _step(found.half)],
        ["at most a quarter", _step(found.steps)],
        ["largest share, at the start → then", f"{percent(first)} → {percent(then)}"],
        ["the labels' own largest share", percent(found.majority)],
        ["accuracy on these points, at the start → then", f"{percent(guessed)} → {percent(learned)}"],
        ["how much faster the bias moves than the labels' signal", number(found.ratio)],
        ["learning rate from which on descent overshoots", number(found.overshoot)],
        ["pace of the bias in this model", whose],
    ]


def _step(step: float) -> str:
    return "not within these" if math.isinf(step) else number(float(f"{step:.0f}")) if step >= 10 else f"{step:.1f}"


# -- What to change ----------------------------------------------------------------------------------------------------


def _change_title(a: Advice, rank: int, above: bool) -> str:
    """A change and its result; `above`: it is the one that stands at the top of the page."""
    return f"{rank}. {capital(a.title)}: {'at the top of this page' if above else sentences.result(a)}"


def _changes(d: Diagnosis) -> list[list[str]]:
    """All numbers, before → after, below the names of their columns: the headline has the first of them."""
    heads = {"largest share": "largest share", "γ": "γ", "gradients": "gradients per layer"}
    heads |= {"nonlinearity": "nonlinearity P", "bias gone after": "steps until gone"}
    every = [{e.name: f"{e.before} → {e.after}" for e in sentences.effects(a)} for a in d.advice]
    names = [name for name in heads if any(name in numbers for numbers in every)]
    rows = [
        [capital(a.title), *(numbers.get(name, "–") for name in names), sentences.known_by(a)]
        for a, numbers in zip(d.advice, every, strict=True)
    ]
    return [["Change", *(heads[name] for name in names), "known by"], *rows]


# -- Details -----------------------------------------------------------------------------------------------------------


def _unread(s: Structure | None) -> list[list[str]]:
    times = Counter((u.path or "the model", u.kind, u.why) for u in (() if s is None else s.unread))
    return [[path, kind, *counted([why] * count)] for (path, kind, why), count in times.items()]


def _read(s: Structure | None) -> list[list[str]]:
    return [
        [p.path or "·", p.kind, four_digits(p.layer) or "nothing at initialization", str(p.variances or "")]
        for p in (() if s is None else s.parts[:_PARTS])
    ]


def _layers(d: Diagnosis) -> list[list[str]]:
    layers = () if d.measurement is None else d.measurement.layers
    return [
        [x.name, x.kind, spaced(x.nodes), with_error(x.gamma, x.gamma_se), value(x.correlation, 4), percent(x.dead)]
        for x in layers
    ]


def _provenance(d: Diagnosis) -> list[list[str]]:
    rows = [["network", d.name], ["data", d.data_name]] if d.data_name else [["network", d.name]]
    for key, one in d.provenance.items():
        if key == "data" and isinstance(one, Mapping):
            rows += [[f"data: {name}", plain(x)] for name, x in one.items() if str(x) != d.data_name]
        else:
            rows.append([_KEYS.get(str(key), str(key).replace("_", " ")), plain(one)])
    return [*rows, ["time", f"{d.seconds:.1f} s"]] if d.seconds > 0 else rows


# Terms of the page, each in one sentence; the page has those that it uses.


class Term(NamedTuple):
    """A word, what it means, and how the page's text shows that it is used."""

    word: str
    meaning: str
    used: str  # a regular expression

    def is_in(self, text: str) -> bool:
        return re.search(self.used, text) is not None


TERMS = tuple(Term(*line.split(" :: ")) for line in resource("terms.txt").splitlines())
_TIPS = {term.used: term.meaning for term in TERMS if "95" not in term.used}  # a number is no word


def used(text: str) -> list[Term]:
    """The terms that this text uses, in alphabetical order."""
    return [term for term in sorted(TERMS, key=lambda term: term.word.lower()) if term.is_in(text)]
