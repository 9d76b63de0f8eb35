"""A diagnosis as text: one page of a terminal."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from firstguess.diagnosis.result import Advice, Diagnosis

_COLUMNS = 100
_CAUSES = 5
_ADVICE = 5


def page(d: Diagnosis) -> str:
    """At most 100 columns; what does not fit is in the report."""
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
        interval = f" ({verdict.low:.3g} to {verdict.high:.3g})" if known else ""
        rows.append(("drift ratio γ of the output", f"{verdict.gamma:.3g}{interval}"))
    low, high = g.interval("expected_max")
    rows.append(
        (
            "average largest guess fraction",
            f"{g.expected_max():.3f} ({low:.3f} to {high:.3f}), even {1 / g.classes:.3g}",
        )
    )
    rows.append(("chance that one class gets over 90 %", f"{g.prob_max_above(0.9):.3f}"))
    rows.append(("measured on", f"{m.inits} initializations, {m.points} points, {m.classes} classes"))
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
