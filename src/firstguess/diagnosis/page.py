"""A diagnosis as one page of a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from firstguess.diagnosis import sentences
from firstguess.diagnosis.cause import lines_of

if TYPE_CHECKING:
    from firstguess.diagnosis.result import Advice, Diagnosis, Verdict

# What does not fit is in the report.
_COLUMNS, _ADVICE = 100, 5


def page(d: Diagnosis) -> str:
    """Everything that a reader acts on, in 100 columns."""
    return "\n".join(line for part in _parts(d) for line in part)


def _parts(d: Diagnosis) -> Iterator[list[str]]:
    early = [f"  preliminary: {d.verdict.preliminary} were drawn"] if d.verdict.preliminary else []
    yield [f"{d.name}: {_title(d.verdict)}", *early, *_wrapped(sentences.headline(d)), *_wrapped(d.verdict.why)]
    if d.faults:
        yield ["Faults", *(line for fault in d.faults for line in _wrapped(str(fault)))]
    yield _numbers(d)
    if d.causes:
        yield lines_of(d.causes, _COLUMNS)
    yield ["Is it expected?", *_wrapped(d.expected.words)]
    if d.trainability is not None:
        yield ["Will it train?", *_wrapped(d.trainability.words)]
    if d.lasting is not None:
        yield ["How long will the bias last?", *_wrapped(d.lasting.words)]
    if d.ranked:
        yield [
            f"What to change (tried, before → after; ranked for: {d.goal})",
            *(line for i, a in enumerate(d.ranked[:_ADVICE], 1) for line in _advice(f"{i}. ", a)),
            *(f"  as PyTorch: in the report, or d.ranked[{i}].code" for i in _with_code(d)[:1]),
        ]
    if d.did_not_help:
        yield [
            "Tried, did not help (before → after)",
            *(line for a in d.did_not_help[:_ADVICE] for line in _advice("", replace(a, note="", price=""))),
        ]
    if d.case:
        yield ["Is that better?", *_wrapped(d.case)]
    remarks = [str(finding) for finding in d.findings]
    remarks += [f"note: {note}" for note in d.notes]
    if remarks:
        yield [line for remark in remarks for line in _wrapped(remark)]


def _title(verdict: Verdict) -> str:
    first, *rest = verdict.title.split(", ")
    sure = f" ({verdict.sureness})" if verdict.sureness else ""
    return ", ".join([f"{first.upper()}{sure}", *rest])


def _numbers(d: Diagnosis) -> list[str]:
    rows = sentences.facts(d)
    if d.measurement is not None:
        rows.insert(0, ("how often", sentences.often(d)))
    width = max((len(label) for label, _ in rows), default=0)
    hang = " " * (width + 4)
    return [line for label, value in rows for line in _lines(value, f"  {label:<{width}}  ", hang)]


def _with_code(d: Diagnosis) -> list[int]:
    """Places of the changes that can be copied, of those that are shown."""
    return [i for i, a in enumerate(d.ranked[:_ADVICE]) if a.code]


def _advice(rank: str, a: Advice) -> list[str]:
    mark = ", guesses not more even" if a.worth_it and not a.helps else ""
    numbers = ", ".join(map(str, sentences.effects(a)))
    said = "; ".join(part for part in (a.note, a.price and f"price: {a.price}") if part)
    title = _short(f"  {rank}{a.title} ({sentences.known_by(a)}{mark})")
    return [title, *_wrapped(numbers, "     "), *_wrapped(said, "     ")]


def _wrapped(text: str, indent: str = "  ") -> list[str]:
    return _lines(text, indent, indent) if text else []


def _lines(text: str, first: str, rest: str) -> list[str]:
    """Lines of 100 columns: no break between a number and its %, or behind a ×."""
    kept = text.replace(" %", "\N{NO-BREAK SPACE}%").replace("× ", "×\N{NO-BREAK SPACE}")
    lines = textwrap.wrap(kept, _COLUMNS, initial_indent=first, subsequent_indent=rest)
    return [line.replace("\N{NO-BREAK SPACE}", " ") for line in lines]


def _short(row: str) -> str:
    return row if len(row) <= _COLUMNS else row[: _COLUMNS - 1] + "…"
