"""Values with error bars by name, one row a name: for things that have no number to stand on an axis."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import altair as alt
import numpy as np

from firstguess.base.errors import InvalidInput
from firstguess.base.text import rounded_off, spaced
from firstguess.base.text import share_change as percents
from firstguess.show.charts import theme
from firstguess.show.charts.lines import Series, lines_chart
from firstguess.show.charts.theme import Entry

if TYPE_CHECKING:
    from firstguess.diagnosis.compare import Comparison
    from firstguess.diagnosis.explain_guess import Explanation
    from firstguess.diagnosis.training_comparison import TrainingComparison
    from firstguess.modules.match_prior import Matched
    from firstguess.modules.repair import Repaired
    from firstguess.theory.data_bias import DataBias
    from firstguess.theory.prediction import FiniteSize

_WIDTH, _ROW = 420, 40
_STEP = 9  # pixels from one series to the next below it
_SHAPES = ("circle", "diamond", "square", "triangle-up")


@dataclass(frozen=True)
class Dot:
    """One value: in which row it stands, of which series it is, and its standard error (0: none is drawn)."""

    row: str
    series: str
    value: float
    error: float = 0.0


def dots_chart(
    panels: Mapping[str, Sequence[Dot]],
    *,
    title: str,
    x_title: str,
    subtitle: Sequence[str] = (),
    x_domain: tuple[float, float] | None = None,
    percent: bool = False,
    columns: int = 3,
    width: int = _WIDTH,
) -> theme.Chart:
    """Rows by name, series by colour and shape a little below each other, bars ± 2 standard errors; panels by heading.

    >>> chart = dots_chart({"": [Dot("ReLU", "measured", 0.3, 0.02)]}, title="A split", x_title="std")
    >>> type(chart).__name__
    'VConcatChart'
    """
    every = [dot for dots in panels.values() for dot in dots]
    if not every:
        raise InvalidInput("at least one value", got="none", where="dots_chart")
    names = list(dict.fromkeys(dot.series for dot in every))
    rows = list(dict.fromkeys(dot.row for dot in every))  # all panels have all rows: only the first names them
    top = max(dot.value + 2 * dot.error for dot in every)
    low = min(0.0, *(dot.value - 2 * dot.error for dot in every))
    scale = alt.Scale(domain=list(x_domain or (low, 1.05 * top)), nice=False)
    labels: Any = {"labelExpr": theme.PERCENT} if percent else {}
    axis = alt.Axis(grid=True, tickCount=5, **labels)
    row = max(_ROW, _STEP * len(names) + 10)  # many series of one row do not reach into the next
    charts: list[Any] = []
    for index, (heading, dots) in enumerate(panels.items()):
        y_axis: Any = alt.Axis(labelLimit=0, grid=False, labelColor=theme.INK) if index % columns == 0 else None
        y = alt.Y("row:N", sort=rows, title=None, axis=y_axis, scale=alt.Scale(domain=rows, padding=0.2))
        x = {at: alt.X(f"{at}:Q", title=x_title, scale=scale, axis=axis) for at in ("value", "low")}
        layers = [layer for name in names for layer in _layers(dots, name, names, x, y)]
        head = {"title": theme.heading(heading, size=16)} if heading else {}
        charts.append(theme.stacked(layers, width, row * len(rows), **head))
    entries = [Entry(name, theme.colour(k), shape=_SHAPES[k % len(_SHAPES)]) for k, name in enumerate(names) if name]
    whole = min(columns, len(charts)) * width
    grid = theme.grid(charts, entries, columns)
    return theme.house(grid, title, subtitle, wide=whole > 640, narrow=whole < 480)


def _layers(dots: Sequence[Dot], name: str, names: list[str], x: Mapping[str, alt.X], y: alt.Y) -> list[alt.Chart]:
    place = names.index(name)
    shift = _STEP * (place - (len(names) - 1) / 2)
    ends = [(d, d.value - 2 * d.error, d.value + 2 * d.error) for d in dots if d.series == name]
    rows = [{"row": d.row, "series": name, "value": d.value, "low": low, "high": high} for d, low, high in ends]
    if not rows:
        return []
    base = theme.chart(rows)
    bars = base.mark_rule(color=theme.colour(place), strokeWidth=2, yOffset=shift, y2Offset=shift, clip=True)
    points = base.mark_point(
        filled=True, opacity=1, size=85, color=theme.colour(place), shape=_SHAPES[place % len(_SHAPES)], stroke="white",
        strokeWidth=0.8, yOffset=shift,
    )  # fmt: skip
    tooltip = theme.tooltip("row", "series", "value|value|.4~g")
    return [bars.encode(x=x["low"], x2="high:Q", y=y), points.encode(x=x["value"], y=y, tooltip=tooltip)]


# Shares of the guesses by class, or before and after a repair, as results of single models have them.

_CLASSES = 12  # rows: the largest of more


def explanation_chart(explanation: Explanation, *, title: str | None = None) -> theme.Chart:
    """The share of each class in this model's guesses, compared with an even split."""
    shares = np.array(explanation.fractions)
    even = 1 / len(shares)
    rows = _largest(shares)
    dots = [
        dot for c in rows for dot in (Dot(f"class {c}", "guesses", float(shares[c])), Dot(f"class {c}", "even", even))
    ]
    return _percent(
        dots,
        title or f"{theme.percent(explanation.largest)} of the guesses are class {explanation.favoured}",
        [f"{spaced(explanation.points)} data points, {spaced(len(shares))} classes{_rest(shares, rows)}."],
    )


def matched_chart(matched: Matched, *, title: str | None = None) -> theme.Chart:
    """The prior of each class compared with the share of the guesses that is expected over initializations."""
    rows = _largest(matched.prior)
    dots = [Dot(f"class {c}", "prior", float(matched.prior[c])) for c in rows]
    dots += [Dot(f"class {c}", "expected guesses", float(matched.shares[c])) for c in rows]
    first, then = matched.loss
    return _percent(
        dots,
        title or "Guesses expected from a head that starts at the prior",
        [f"First loss {first:.3g} → {then:.3g}{_rest(matched.prior, rows)}."],
    )


def repaired_chart(repaired: Repaired, *, title: str | None = None) -> theme.Chart:
    """The share of the largest class before and after."""
    (before, after), (g0, g1) = repaired.largest, repaired.gamma
    return _percent(
        [Dot("largest class", "before", before), Dot("largest class", "after", after)],
        title or f"Largest class: {percents(before, after)} of the guesses",
        [f"Drift ratio γ of the output {theme.number(g0)} → {theme.number(rounded_off(g1))}."],
    )


def _largest(shares: Any) -> list[int]:
    """Classes in their order, the largest of many."""
    return sorted(int(c) for c in np.argsort(-np.asarray(shares), kind="stable")[:_CLASSES])


def _rest(shares: Any, rows: Sequence[int]) -> str:
    return f"; the {len(rows)} largest of {spaced(len(shares))}" if len(rows) < len(shares) else ""


def _percent(dots: Sequence[Dot], title: str, subtitle: Sequence[str]) -> theme.Chart:
    return dots_chart(
        {"": dots}, title=theme.unbroken(title), x_title="Share", subtitle=subtitle, x_domain=(0.0, 1.0), percent=True
    )


# The drift ratio γ₀ that data bring, as they are and after each standardization.


def data_bias_chart(bias: DataBias, *, title: str | None = None) -> theme.Chart:
    """γ₀ of the points as they are given, and what each standardization would leave of it."""
    rows = {"none: as they are": bias.gamma, **{how: gamma for how, gamma in bias.after.items() if how != "none"}}
    return dots_chart(
        {"": [Dot(name, "drift ratio γ", gamma) for name, gamma in rows.items()]},
        title=title or f"The drift ratio γ of the data alone is {theme.number(bias.gamma)}",
        x_title="Drift ratio γ of the data",
        subtitle=[
            f"{bias.name}: {spaced(bias.points)} points. Recommended: {bias.recommended}. About "
            f"{max(1, round(bias.directions))} directions tell the points apart."
        ],
    )


# What finite width adds to the spread of a class's share.


def finite_size_chart(size: FiniteSize, *, title: str | None = None) -> theme.Chart:
    """The standard deviation of a class's share at this size and at infinite size."""
    named = [
        f"{name} {spaced(value)}" for name, value in (("width", size.width), ("dimension", size.dimension)) if value
    ]
    error = size.error if size.way == "chain" else size.next_order / 2  # bars are twice this: what is left out
    here = ", ".join(named) or "this size"
    known = "± 2 standard errors" if size.way == "chain" else "the next order of the expansion"
    return dots_chart(
        {"": [Dot("infinite size", "predicted", size.infinite), Dot(here, "predicted", size.std, error)]},
        title=title or f"Finite size adds {theme.number(size.added)} to the spread of a class's share",
        x_title="Standard deviation of a class's share",
        subtitle=[f"Infinitely many data points; the bar is {known}."],
    )


# Prediction against what was seen, as a result has it: differences in standard errors, and curves over training.

_MOST = 24  # rows: of a deep network the layers that differ most


def differences_chart(comparison: Comparison, *, title: str | None = None) -> theme.Chart:
    """Measured minus predicted of every number, in standard errors; what has none is left out."""
    known = [d for d in comparison.differences if math.isfinite(d.z)]
    most = sorted(known, key=lambda d: -abs(d.z))[:_MOST]
    shown = [d for d in known if d in most]
    words = "agree" if comparison.agrees else "do not agree"
    subtitle = [
        f"{spaced(comparison.inits)} initializations, {spaced(comparison.points)} data points; beyond the difference "
        "that finitely many data allow."
    ]
    left = len(comparison.differences) - len(shown)
    subtitle += [f"{left} of {len(comparison.differences)} numbers are not shown."] if left else []
    reach = 1.1 * max(3.0, *(abs(d.z) for d in shown))
    return dots_chart(
        {"": [Dot(d.name, "measured − predicted", d.z) for d in shown]},
        title=title or f"Prediction and measurement {words}",
        x_title="Difference in standard errors",
        subtitle=subtitle,
        x_domain=(-reach, reach),
    )


def curves_chart(comparison: TrainingComparison, *, title: str | None = None) -> theme.Chart:
    """Every curve that was compared: predicted as a line, trained as points ± 2 standard errors."""
    panels = {
        c.name: [
            Series("predicted", c.steps, c.predicted, mark="line"),
            Series("trained", c.steps, c.trained, c.trained_se, mark="points"),
        ]
        for c in comparison.curves
        if len(c.steps)
    }
    words = "agree" if comparison.agrees else "do not agree"
    return lines_chart(
        panels,
        title=title or f"Predicted and real training {words}",
        x_title="Step",
        y_title="",
        x_scale="symlog",
        subtitle=[
            f"Means over {spaced(comparison.draws)} predicted and {spaced(comparison.members)} trained networks."
        ],
        width=300,
        height=200,
    )
