"""What each change does: the share of the largest class and the drift ratio, before and after."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import altair as alt

from firstguess.base.errors import InvalidInput
from firstguess.show.charts import parts, theme
from firstguess.show.charts.gamma_by_depth import GammaScale

if TYPE_CHECKING:
    from firstguess.diagnosis.result import Advice

_WIDTH, _ROW = 300, 58
_MOST = 8
_BEFORE, _HELPS, _SAME = theme.SOFT, theme.PALETTE[0], theme.PALETTE[4]


def advice_chart(advice: Sequence[Advice], *, title: str | None = None, narrow: bool = False) -> theme.Chart:
    """Every change that was tried, as a line from before (hollow) to after (filled).

    Left: the average share of the largest class. Right: γ of the output, logarithmic with a place for 0 and ∞; left out
    where no γ is known; `narrow`, for a phone, one below the other. Changes after which guesses are not more even,
    beyond the error, are orange.
    """
    shown = list(advice)[:_MOST]
    if not shown:
        raise InvalidInput("at least one piece of advice", got="none", where="advice_chart")
    rows = [_row(place, one) for place, one in enumerate(shown)]
    names = [theme.wrapped(_named(one), 18 if narrow else 34, 3) for one in shown]
    width = theme.NARROW - 110 if narrow else _WIDTH
    gamma = _gamma(rows)  # first: it finds ∞ a place
    chart: Any = _panel(_largest(), rows, names, "Largest share, average", "largest", width, stacked=narrow)
    if any(row["gamma_from"] is not None for row in rows):
        other = _panel(gamma, rows, names if narrow else None, "Drift ratio γ", "gamma", width, stacked=narrow)
        if narrow:
            chart = alt.vconcat(chart, other, spacing=96, bounds="flush")
        else:
            chart = alt.hconcat(chart, other, spacing=56, bounds="flush")
    return theme.house(chart, title or theme.unbroken(_title(shown)), _subtitle(shown, len(advice)))


def _row(place: int, one: Advice) -> dict[str, Any]:
    known = not (math.isnan(one.gamma_before) or math.isnan(one.gamma_after))
    return {
        "place": place,
        "title": one.title,
        "how": one.how,
        "fill": _HELPS if one.helps else _SAME,
        "verdict": "less bias" if one.helps else "guesses not more even",
        "largest_from": one.largest_before,
        "largest_to": one.largest_after,
        "gamma_from": one.gamma_before if known else None,
        "gamma_to": one.gamma_after if known else None,
        "words": f"γ {theme.number(one.gamma_before)} → {theme.number(one.gamma_after)}" if known else "γ not known",
    }


def _largest() -> dict[str, Any]:
    return {
        "scale": alt.Scale(domain=[0, 1], nice=False),
        "axis": alt.Axis(values=[0, 0.25, 0.5, 0.75, 1], labelExpr=theme.PERCENT, grid=True, labelFlush=False),
    }


def _gamma(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The axis of γ; positions of ∞ are put where the axis has them."""
    values = [row[end] for row in rows for end in ("gamma_from", "gamma_to") if row[end] is not None]
    scale = GammaScale.of([v for v in values if v >= 0], noise=values)
    for row in rows:
        for end in ("gamma_from", "gamma_to"):
            row[end] = None if row[end] is None else scale(row[end])
    return scale.marks()


def _panel(
    marks: dict[str, Any],
    rows: Sequence[theme.Row],
    names: Sequence[Sequence[str]] | None,
    words: str,
    field: str,
    width: int,
    *,
    stacked: bool,
) -> alt.LayerChart:
    labels = json.dumps(list(names or ()), ensure_ascii=False)
    x = alt.X(f"{field}_from:Q", title=words, **marks)
    look: Any = {"labelExpr": f"{labels}[datum.value]", "labelLimit": 0} if names is not None else {"labels": False}
    y = alt.Y(
        "place:Q",
        title=None,
        scale=alt.Scale(domain=[len(rows) - 0.5, -0.5], nice=False),
        axis=alt.Axis(values=list(range(len(rows))), grid=True, labelColor=theme.INK, labelLineHeight=17, **look),
    )
    tooltip = [
        alt.Tooltip("title:N", title="change"),
        alt.Tooltip("how:N", title="known by"),
        alt.Tooltip("largest_from:Q", title="largest share before", format=".1%"),
        alt.Tooltip("largest_to:Q", title="largest share after", format=".1%"),
        alt.Tooltip("words:N", title="drift ratio"),
        alt.Tooltip("verdict:N", title="result"),
    ]
    colour = alt.Color("fill:N", scale=None, legend=None)
    shape = alt.Shape(
        "how:N", scale=alt.Scale(domain=["measured", "predicted"], range=["circle", "diamond"]), legend=None
    )
    base = alt.Chart(theme.data(rows)).encode(x=x, y=y)
    after = alt.Chart(theme.data(rows)).encode(x=f"{field}_to:Q", y=y, color=colour)
    layers = [
        base.mark_rule(strokeWidth=3).encode(x2=f"{field}_to:Q", color=colour),
        base.mark_point(filled=True, fill="white", stroke=_BEFORE, strokeWidth=2, size=120, opacity=1).encode(
            tooltip=tooltip
        ),
        after.mark_point(filled=True, size=190, opacity=1, stroke="white", strokeWidth=1).encode(
            shape=shape, tooltip=tooltip
        ),
    ]
    if field == "largest":
        layers += parts.key(_entries(rows), stacked=stacked)
    return theme.stacked(layers, width, _ROW * len(rows))


def _entries(rows: Sequence[theme.Row]) -> list[parts.Entry]:
    found = [parts.Entry("before", _BEFORE, shape="circle", filled=False)]
    for how, shape in (("measured", "circle"), ("predicted", "diamond")):
        if any(row["how"] == how for row in rows):
            found.append(parts.Entry(f"after, {how}", _HELPS, shape=shape))
    if any(row["fill"] == _SAME for row in rows):
        found.append(parts.Entry("guesses not more even", _SAME, shape="circle"))
    return found


def _named(one: Advice) -> str:
    return f"{one.title[:1].upper()}{one.title[1:]}"


def _title(shown: Sequence[Advice]) -> str:
    helpful = [one for one in shown if one.helps]
    if not helpful:
        return "None of the changes that were tried makes guesses more even"
    best = min(helpful, key=lambda one: one.largest_after)
    before, after = theme.percents(best.largest_before, best.largest_after)
    return f"{theme.shortened(_named(best), 60)}: the largest share goes from {before} to {after}"


def _subtitle(shown: Sequence[Advice], total: int) -> list[str]:
    words = "Average over initializations of the share of the data in the largest class, and γ of the output"
    left = f" The first {len(shown)} of {total} changes." if total > len(shown) else ""
    return [f"{words}, before and after each change.{left}"]
