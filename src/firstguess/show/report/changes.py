"""The part of the report on what to change: every change that was tried, before → after, and its code."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from markupsafe import Markup

from firstguess.modules.structure import short
from firstguess.show.report import wording
from firstguess.show.report.charts import Drawn
from firstguess.show.report.elements import table, tag
from firstguess.show.report.sections import section, sentence

if TYPE_CHECKING:
    from firstguess.diagnosis.result import Advice, Diagnosis

_RANKED = {
    "even start": "the largest share that is left",
    "trainability": "the least nonlinearity, then gradients that keep their size",
    "worst class early": "little nonlinearity first (P up to 3, up to 19, more), then the largest share that is left",
}


def advice(d: Diagnosis, charts: Drawn) -> Markup:
    """Every change that was tried, before → after."""
    if not d.advice:
        words = tag("p", "No change was tried.", class_="soft") if d.verdict.name != "even" else None
        return section("advice", "What to change", words, tag("p", sentence(d.case)) if d.case else None)
    none = tag("p", "No change that was tried is worth making.") if not d.ranked else None
    how = f"Ranked for: {d.goal}, by {_RANKED[d.goal]}."
    return section(
        "advice",
        "What to change",
        tag("p", f"Each change was tried, by prediction or on a small ensemble; before → after. {how}"),
        charts.get("advice"),
        _changes(d.ranked, "Changes, before and after", ranked=True) or none,
        _codes(d.ranked),
        tag("h3", "Tried, did not help") if d.did_not_help else None,
        _changes(d.did_not_help, "Changes that did not help, before and after", ranked=False),
        tag("h3", "Is that better?") if d.case else None,
        tag("p", sentence(d.case)) if d.case else None,
    )


def has_code(d: Diagnosis) -> bool:
    """Whether there is anything to copy."""
    return any(a.code for a in d.ranked)


def _changes(changes: Sequence[Advice], caption: str, *, ranked: bool) -> Markup | None:
    if not changes:
        return None
    columns: list[tuple[str, Callable[[Advice], str]]] = [
        ("largest fraction", lambda a: wording.change(a.largest_before, a.largest_after, share=True)),
        ("drift ratio γ", lambda a: wording.change(a.gamma_before, a.gamma_after)),
    ]
    if any(not math.isnan(a.gradient_after) for a in changes):
        columns.append(("gradients a layer", lambda a: wording.change(a.gradient_before, a.gradient_after)))
    if any(not math.isnan(a.nonlinearity_after) for a in changes):
        columns.append(("nonlinearity P", lambda a: wording.change(a.nonlinearity_before, a.nonlinearity_after)))
    if any(not math.isnan(a.absorption_after) for a in changes):
        columns.append(("steps to absorb it", lambda a: wording.change(a.absorption_before, a.absorption_after)))
    columns.append(("known by", lambda a: a.how))
    rows = [
        [_what(a, f"{rank}. " if ranked else ""), *(of(a) for _, of in columns)] for rank, a in enumerate(changes, 1)
    ]
    return table(["Change", *(name for name, _ in columns)], rows, caption=caption)


def _title(a: Advice) -> str:
    return f"{a.title[:1].upper()}{a.title[1:]}"


def _what(a: Advice, rank: str) -> Markup:
    parts = [tag("span", f"{rank}{_title(a)}")]
    if rank and not a.helps:
        parts.append(tag("span", " guesses not more even", class_="tagged"))
    if a.edit:
        parts.append(tag("pre", tag("code", short(a.edit))))
    for words in (a.note, a.price and f"Price: {a.price}."):
        parts += [tag("p", words, class_="soft")] if words else []
    return Markup("").join(parts)


def _codes(changes: Sequence[Advice]) -> Markup | None:
    """Runnable PyTorch, folded; the script adds a button that copies it."""
    known = [(rank, a) for rank, a in enumerate(changes, 1) if a.code]
    if not known:
        return None
    words = (
        "PyTorch for each, on your model and loader; a network that was read or described is written out as build(…)."
    )
    blocks = [
        tag(
            "details",
            tag("summary", f"{rank}. {_title(a)}: PyTorch"),
            tag("div", tag("pre", tag("code", a.code)), class_="code", data_code=f"{rank}"),
        )
        for rank, a in known
    ]
    return Markup("").join([tag("p", words, class_="soft"), *blocks])
