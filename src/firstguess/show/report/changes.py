"""The part of the report on what to change: every change that was tried, what it comes to, its price and its code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from markupsafe import Markup

from firstguess.diagnosis import sentences
from firstguess.diagnosis.answer import Answer
from firstguess.modules.read.result import short
from firstguess.show.report import top
from firstguess.show.report.charts import Drawn
from firstguess.show.report.elements import folded, section, table, tag
from firstguess.show.report.glossary import cited
from firstguess.show.report.wording import sentence

if TYPE_CHECKING:
    from firstguess.diagnosis.result import Advice, Diagnosis

_RANKED = {
    "even start": "the largest share that is left",
    "trainability": "the least nonlinearity, then gradients that keep their size",
    "worst class early": "little nonlinearity first (P up to 3, up to 19, more), then the largest share that is left",
}


def advice(d: Diagnosis, charts: Drawn) -> Markup:
    """Every change that was tried."""
    case = tag("p", cited(sentence(d.case))) if d.case else None
    if d.answer is Answer.FIX:
        return Markup("")
    if not d.advice:
        words = tag("p", "No change was tried.", class_="soft") if d.verdict.name != "even" else None
        return section("advice", "What to change", words, case)
    if d.answer is Answer.NOTHING:
        parts = (_change(rank, a, best=False, above=False) for rank, a in enumerate(d.ranked, 1))
        return section("advice", "What to change", tag("p", "Nothing."), folded("What you could change", *parts))
    how = f"Each change was tried. Ranked for: {d.goal}, by {_RANKED[d.goal]}."
    first = top.with_code(d)
    return section(
        "advice",
        "What to change",
        tag("p", how),
        charts.get("advice"),
        *(_change(rank, a, best=a is first, above=a is first) for rank, a in enumerate(d.ranked, 1)),
        None if d.ranked else tag("p", "No change that was tried is worth making."),
        tag("h3", "Tried, did not help") if d.did_not_help else None,
        _failed(d.did_not_help),
        _numbers(d),
        tag("h3", "Is that better?") if case else None,
        case,
    )


def title(d: Diagnosis) -> str:
    """Of the chart; the numbers are at the top of the page, and on its axis."""
    helpful = [a for a in d.advice if a.helps]
    tried = f"{len(d.advice)} change{'s' if len(d.advice) > 1 else ''} tried"
    if not helpful:
        return f"{tried}: none makes guesses more even"
    return f"{tried}: {len(helpful)} make{'s' if len(helpful) == 1 else ''} guesses more even"


def has_code(d: Diagnosis) -> bool:
    """Whether there is anything to copy."""
    return any(a.code for a in d.ranked)


def _named(a: Advice) -> str:
    return f"{a.title[:1].upper()}{a.title[1:]}"


def _change(rank: int, a: Advice, *, best: bool, above: bool) -> Markup:
    """A change behind its result; code that stands at the top already is not repeated."""
    said = "at the top of this page" if best else sentences.result(a)
    parts: list[str] = [tag("p", sentence(words)) for words in (a.note, a.price and f"Price: {a.price}") if words]
    if a.code and not above:
        parts.append(top.code_block(a.code, f"change {rank}"))
    elif a.edit and not a.code:
        parts.append(tag("p", "The network in firstguess's notation, or what changes in it:", class_="soft"))
        parts.append(tag("pre", tag("code", short(a.edit)), tabindex="0"))
    return folded(f"{rank}. {_named(a)}: {said}", *parts)


def _failed(changes: Sequence[Advice]) -> Markup | None:
    if not changes:
        return None
    return tag("ul", *(tag("li", f"{_named(a)}: {', '.join(map(str, sentences.effects(a)[:2]))}") for a in changes))


def _numbers(d: Diagnosis) -> Markup:
    """All numbers, before → after, folded: the headline has the first of them."""
    every = [{e.name: f"{e.before} → {e.after}" for e in sentences.effects(a)} for a in d.advice]
    names = [
        name for name in ("largest share", "γ", "gradients", "nonlinearity", "bias gone after") if _in(every, name)
    ]
    heads = {"gradients": "gradients a layer", "nonlinearity": "nonlinearity P", "bias gone after": "steps until gone"}
    rows = [
        [_named(a), *(numbers.get(name, "–") for name in names), sentences.known_by(a)]
        for a, numbers in zip(d.advice, every, strict=True)
    ]
    columns = ["Change", *(heads.get(name, name) for name in names), "known by"]
    return folded("All numbers, before → after", table(columns, rows, caption="Changes, before and after"))


def _in(every: Sequence[dict[str, str]], name: str) -> bool:
    return any(name in numbers for numbers in every)
