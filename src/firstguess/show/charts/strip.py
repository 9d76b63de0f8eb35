"""Class shares as a strip: one column an initialization, divided as that network divides the data."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import altair as alt
import numpy as np

from firstguess.show.charts import theme

if TYPE_CHECKING:
    from firstguess.ensemble.measurement import Measurement
    from firstguess.theory.shares.empirical import EmpiricalGuesses

_WIDTH, _HEIGHT = 760, 320
_COLUMNS = 120
_FEW = 6  # classes up to which each has its own colour; beyond, colours are ranks
_RANKS = ("#0B4F7A", "#4A9CCB", "#A9D0E8", "#E4E4E4")


def strip_chart(measurement: Measurement, *, title: str | None = None, narrow: bool = False) -> theme.Chart:
    """How every initialization divides the data between the classes.

    Two classes: columns in the order of G₀. Up to six: by favoured class. More: from the largest class of a column up,
    in the order of its size, because a thousand colours say nothing. `narrow` is for a phone.
    """
    seen = measurement.guesses
    order, bands, names, colours = _by_class(seen) if seen.classes <= _FEW else _by_rank(seen)
    chosen = order
    if len(order) > _COLUMNS:
        chosen = order[np.round(np.linspace(0, len(order) - 1, _COLUMNS)).astype(int)]
    rows = [
        row for column, member in enumerate(chosen) for row in _column(column, bands[member], names, seen, int(member))
    ]
    top = _top(bands, seen.classes)
    width = theme.NARROW if narrow else _WIDTH
    rects = _rects(rows, len(chosen), names, colours, top, 2 if narrow else len(names))
    layers = [rects, *_even(seen, top, named=not narrow)]
    chart = theme.stacked(layers, width, _HEIGHT)
    return theme.house(
        chart, title or theme.unbroken(_title(seen)), _subtitle(seen, len(chosen), names[-1] if top < 1 else "")
    )


def _by_class(seen: EmpiricalGuesses) -> tuple[Any, Any, list[str], list[str]]:
    favoured = seen.fractions.argmax(axis=1)
    order = np.argsort(-seen.fractions[:, 0]) if seen.classes == 2 else np.lexsort((-seen.largest, favoured))
    names = [f"class {c}" for c in range(seen.classes)]
    return order, seen.fractions, names, [theme.colour(c) for c in range(seen.classes)]


def _by_rank(seen: EmpiricalGuesses) -> tuple[Any, Any, list[str], list[str]]:
    ranked = -np.sort(-seen.fractions, axis=1)
    edges = [0, 1, 3, min(10, seen.classes), seen.classes] if seen.classes > 10 else [0, 1, 2, 3, seen.classes]
    names = ["largest class", "2nd and 3rd", "4th to 10th", f"the other {theme.spaced(seen.classes - 10)}"]
    if seen.classes <= 10:
        names = ["largest class", "2nd", "3rd", f"the other {seen.classes - 3}"]
    bands = np.stack([ranked[:, a:b].sum(axis=1) for a, b in pairwise(edges)], axis=1)
    return np.argsort(-seen.largest), bands, names, list(_RANKS)


def _column(
    column: int, shares: Any, names: Sequence[str], seen: EmpiricalGuesses, member: int
) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    low = 0.0
    favoured, largest = int(seen.fractions[member].argmax()), float(seen.largest[member])
    for name, share in zip(names, shares, strict=True):
        high = low + float(share)
        if share > 0:
            rows.append(
                {"column": column, "to": column + 1, "low": low, "high": min(high, 1.0), "band": name,
                 "share": float(share), "member": member, "favoured": f"class {favoured}", "largest": largest}
            )  # fmt: skip
        low = high
    return rows


def _rects(
    rows: Sequence[theme.Row], columns: int, names: Sequence[str], colours: Sequence[str], top: float, side: int
) -> alt.Chart:
    tooltip = [
        alt.Tooltip("member:Q", title="initialization"),
        alt.Tooltip("band:N", title="part"),
        alt.Tooltip("share:Q", title="of the data", format=".1%"),
        alt.Tooltip("favoured:N", title="favoured"),
        alt.Tooltip("largest:Q", title="its share", format=".1%"),
    ]
    return (
        alt.Chart(theme.data(rows))
        .mark_rect(clip=True, stroke="white", strokeWidth=1 if columns <= 60 and side > 2 else 0.4)
        .encode(
            x=alt.X(
                "column:Q",
                title="Initializations, one a column, sorted",
                scale=alt.Scale(domain=[0, columns], nice=False),
                axis=alt.Axis(labels=False, ticks=False),
            ),
            x2="to:Q",
            y=alt.Y(
                "low:Q",
                title="Share of the data",
                scale=alt.Scale(domain=[0, top], nice=False),
                axis=alt.Axis(tickCount=5, labelExpr=theme.PERCENT, grid=False),
            ),
            y2="high:Q",
            color=alt.Color(
                "band:N",
                title=None,
                sort=list(names),
                scale=alt.Scale(domain=list(names), range=list(colours)),
                legend=alt.Legend(
                    orient="top", direction="horizontal", columns=side, symbolType="square", offset=12, padding=0
                ),
            ),
            tooltip=tooltip,
        )
    )


def _top(bands: Any, classes: int) -> float:
    """Where the axis ends: at all of the data, unless the ten largest of many classes are far from that."""
    named = float(bands[:, :-1].sum(axis=1).max()) if classes > _FEW else 1.0
    return 1.0 if named > 0.4 else 1.3 * named


def _even(seen: EmpiricalGuesses, top: float, *, named: bool) -> list[alt.Chart]:
    """Where an even split would put the first border, if that can be told from 0."""
    if 1 / seen.classes < 0.02 * top:
        return []
    row = {"low": 1 / seen.classes, "text": "even share"}
    base = alt.Chart(theme.data([row])).encode(y="low:Q")
    word = base.encode(x=alt.value(_WIDTH + 8), text="text:N")
    rule = base.mark_rule(color=theme.INK, strokeDash=[5, 4], strokeWidth=1.5)
    return [rule, word.mark_text(align="left", baseline="middle", color=theme.SOFT)] if named else [rule]


def _title(seen: EmpiricalGuesses) -> str:
    half = float(np.median(seen.largest))
    much = "all of the data" if half == 1.0 else f"at least {theme.percent(half)} of the data"
    return f"In half of the initializations one class gets {much}"


def _subtitle(seen: EmpiricalGuesses, columns: int, beyond: str) -> list[str]:
    shown = (
        f"{columns} of {theme.spaced(seen.inits)} initializations, evenly chosen"
        if columns < seen.inits
        else f"{seen.inits} initializations"
    )
    times = np.bincount(seen.fractions.argmax(axis=1), minlength=seen.classes)
    winner, count = int(times.argmax()), int(times.max())
    favoured = f"Favoured most often: class {winner}, in {theme.percent(count / seen.inits)} of them"
    even = f"an even chance would be {theme.percent(1 / seen.classes)}"
    rest = f" The axis ends early: above it is only {beyond}." if beyond else ""
    return [
        f"{shown}, {theme.count(seen.classes)} classes, {theme.spaced(seen.points)} data points.{rest}",
        f"{favoured}; {even}.",
    ]
