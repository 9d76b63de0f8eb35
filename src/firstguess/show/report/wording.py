"""The report's sentences and numbers in words that a stranger understands."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from firstguess.show.charts.theme import number, percent, percents

if TYPE_CHECKING:
    from firstguess.diagnosis.result import Diagnosis, Verdict

_STARTS = {
    "neutral": "Before any training, this network spreads its guesses about evenly over the classes",
    "biased": "Before any training, this network already prefers one class over the others",
    "deeply biased": "Before any training, this network puts most of its inputs in one class, whatever they show",
    "degenerate head": "The output layer does not tell inputs apart: these are not guesses yet",
    "broken": "This network gives no usable numbers, so nothing can be said about its guesses",
}


def headline(d: Diagnosis) -> str:
    """The verdict in one sentence."""
    start = _STARTS[d.verdict.name]
    if d.measurement is None or d.verdict.name in ("degenerate head", "broken"):
        return f"{start}."
    g = d.measurement.guesses
    share, even = percent(g.expected_max()), percent(1 / g.classes)
    return f"{start}: on average its favourite gets {share} of the data, where an even split would be {even}."


def sureness(verdict: Verdict) -> str:
    """How sure the verdict is, or nothing where that is not known."""
    if math.isnan(verdict.probability):
        return ""
    if verdict.probability > 0.999:
        return "sure: over 99.9 %"
    return f"chance that this is right: {percent(verdict.probability)}"


def span(low: float, high: float, *, share: bool = False, inits: int = 2) -> str:
    """A 95 % interval in words, or that there is none, and why."""
    if math.isnan(low) or math.isnan(high):
        return "no interval from one initialization" if inits < 2 else "no interval known"
    ends = percents(low, high) if share else [number(low), number(high)]
    return f"95 %: {ends[0]} to {ends[1]}"


def with_error(x: float, error: float) -> str:
    """A number and its standard error where it has one, or a dash."""
    if not math.isfinite(x):
        return "–"
    return number(x) if math.isnan(error) else f"{number(x)} ± {error:.2g}"


def change(before: float, after: float, *, share: bool = False) -> str:
    """before → after, or a dash where it is not known."""
    if math.isnan(before) and math.isnan(after):
        return "–"
    ends = percents(before, after) if share else [_number(before), _number(after)]
    return f"{ends[0]} → {ends[1]}"


def value(x: float, digits: int = 3) -> str:
    """A number with so many decimals, or a dash."""
    if math.isnan(x):
        return "–"
    return f"{x:.{digits}f}".replace("-", "−") if math.isfinite(x) else number(x)


def _number(x: float) -> str:
    return "?" if math.isnan(x) else number(x)
