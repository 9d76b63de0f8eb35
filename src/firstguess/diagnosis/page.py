"""A diagnosis as one page of a terminal."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from firstguess.diagnosis import sentences
from firstguess.diagnosis.answer import Answer
from firstguess.diagnosis.cause import lines_of

if TYPE_CHECKING:
    from firstguess.diagnosis.result import Advice, Diagnosis, Verdict

_NARROWEST, _WIDEST, _ADVICE = 56, 100, 5  # columns, and changes; what does not fit is in the report


def page(d: Diagnosis) -> str:
    """The answer, then everything that it follows from, as wide as the terminal is (at most 100 columns)."""
    given = shutil.get_terminal_size((_WIDEST, 24)).columns
    columns = min(_WIDEST, max(_NARROWEST, given))
    return "\n".join(line for part in _Page(d, columns).parts() for line in part)


class _Page:
    """A diagnosis in so many columns."""

    def __init__(self, d: Diagnosis, columns: int) -> None:
        self._d, self._columns = d, columns

    def parts(self) -> Iterator[list[str]]:
        d = self._d
        fix = d.answer is Answer.FIX
        yield self._answer()
        yield [""]
        yield [*self._wrapped(f"{d.name}: {_title(d.verdict)}", ""), *self._wrapped(sentences.start(d))]
        if d.verdict.preliminary:
            yield self._wrapped(f"preliminary: {d.verdict.preliminary} were drawn")
        yield self._wrapped(d.verdict.why)
        if d.faults:
            yield ["Faults", *(line for fault in d.faults for line in self._wrapped(str(fault)))]
        yield self._numbers()
        if d.causes and not fix:
            yield lines_of(d.causes, self._columns)
        if not fix:
            yield ["Is it expected?", *self._wrapped(d.expected.words)]
        yield ["Will it train?", *self._wrapped(sentences.training(d))]
        if d.lasting is not None and not fix:
            yield ["How long will the bias last?", *self._wrapped(sentences.lasting(d))]
        if not fix and d.answer is not Answer.NOTHING:
            yield from self._changes()
        elif d.ranked and not fix:
            tried = f"{len(d.ranked)} change{'s' if len(d.ranked) > 1 else ''}"
            yield self._wrapped(f"What you could change: {tried} (in the report, or d.ranked)", "")
        remarks = [str(finding) for finding in d.findings] + [f"note: {note}" for note in d.notes]
        yield [line for remark in remarks for line in self._wrapped(remark)]

    def _answer(self) -> list[str]:
        d, rows = self._d, sentences.rows_of(self._d)
        lines = self._lines(d.headline, f"{d.answer.upper()}   ", "  ")
        width = max((len(name) for name, _ in rows), default=0)
        for name, text in rows:
            lines += self._lines(text, f"  {name:<{width}}  ", " " * (width + 4))
        return lines

    def _changes(self) -> Iterator[list[str]]:
        d = self._d
        if d.ranked:
            yield [
                *self._wrapped(f"What to change (tried, before → after; ranked for: {d.goal})", ""),
                *(line for i, a in enumerate(d.ranked[:_ADVICE], 1) for line in self._advice(f"{i}. ", a)),
                *(f"  as PyTorch: in the report, or d.ranked[{i}].code" for i in _with_code(d)[:1]),
            ]
        if d.did_not_help:
            yield [
                "Tried, did not help (before → after)",
                *(line for a in d.did_not_help[:_ADVICE] for line in self._advice("", replace(a, note="", price=""))),
            ]
        if d.case:
            yield ["Is that better?", *self._wrapped(d.case)]

    def _numbers(self) -> list[str]:
        rows = sentences.facts(self._d)
        if self._d.measurement is not None:
            rows.insert(0, ("how often", sentences.often(self._d)))
        width = max((len(label) for label, _ in rows), default=0)
        hang = " " * (width + 4)
        return [line for label, value in rows for line in self._lines(value, f"  {label:<{width}}  ", hang)]

    def _advice(self, rank: str, a: Advice) -> list[str]:
        mark = ", guesses not more even" if a.worth_it and not a.helps else ""
        numbers = ", ".join(map(str, sentences.effects(a)))
        said = "; ".join(part for part in (a.note, a.price and f"price: {a.price}") if part)
        title = self._lines(f"{rank}{a.title} ({sentences.known_by(a)}{mark})", "  ", "     ")
        return [*title, *self._wrapped(numbers, "     "), *self._wrapped(said, "     ")]

    def _wrapped(self, text: str, indent: str = "  ") -> list[str]:
        return self._lines(text, indent, indent) if text else []

    def _lines(self, text: str, first: str, rest: str) -> list[str]:
        """No break between a number and its %, or after a ×."""
        kept = text.replace(" %", "\N{NO-BREAK SPACE}%").replace("× ", "×\N{NO-BREAK SPACE}")
        lines = textwrap.wrap(kept, self._columns, initial_indent=first, subsequent_indent=rest)
        return [line.replace("\N{NO-BREAK SPACE}", " ") for line in lines]


def _with_code(d: Diagnosis) -> list[int]:
    """Places of the changes that can be copied, of those that are shown."""
    return [i for i, a in enumerate(d.ranked[:_ADVICE]) if a.code]


def _title(verdict: Verdict) -> str:
    first, *rest = verdict.title.split(", ")
    sure = f" ({verdict.sureness})" if verdict.sureness else ""
    return ", ".join([f"{first.upper()}{sure}", *rest])
