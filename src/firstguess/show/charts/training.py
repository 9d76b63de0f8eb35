"""Training over time: the largest share with its band, and the accuracy of the favoured class against the others.

A prediction is a line with a filled band; what was trained beside it is points with error bars, in a band with dashed
edges: where the two agree, both are still to be seen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import altair as alt
import numpy as np
from numpy.typing import NDArray

from firstguess.base.errors import InvalidInput
from firstguess.base.text import spaced
from firstguess.ensemble.trained import TrainedMembers
from firstguess.show.charts import theme
from firstguess.show.charts.parts import Entry, heading, key
from firstguess.theory.training.curves import FAVOURED, OTHERS, Absorption, Curve, Curves

_WIDTH, _HEIGHT = 420, 300
_DASH = [6, 4]  # of other classes
_ERRORS = 2.0  # standard errors, up and down
_GROUPS = {FAVOURED: "favoured class", OTHERS: "other classes"}


class Trained(Protocol):
    """What is drawn: a prediction of training, or training itself."""

    @property
    def curves(self) -> Curves: ...

    @property
    def absorption(self) -> Absorption: ...


def training_chart(
    runs: Mapping[str, Trained] | Trained, *, title: str | None = None, subtitle: Sequence[str] = ()
) -> theme.Chart:
    """The share of the largest class and accuracies over steps; lines are means, bands hold 90 % of networks.

    `runs` by name (a prediction and what was seen, say), or one of them.
    """
    named: dict[str, Trained] = dict(runs) if isinstance(runs, Mapping) else {_word(runs): runs}
    if not named:
        raise InvalidInput("at least one run", got="none", where="training_chart", hint="training_chart({'gd': t})")
    steps = np.concatenate([run.curves.largest.steps for run in named.values()])
    x = _steps_axis(steps)
    shares: list[Any] = _absorbed_at(next(iter(named.values())).absorption.level)
    scores: list[Any] = []
    alone = len(named) == 1
    for index, (name, run) in enumerate(named.items()):
        look = _Look(name, theme.colour(index), points=_as_points(named, run))
        shares += _curve(run.curves.largest, look, x, band=True)
        for group in (FAVOURED, OTHERS):
            ink = theme.colour(int(alone and group == OTHERS) + index)
            own = _Look(f"{name}: {_GROUPS[group]}", ink, group == OTHERS, _as_points(named, run))
            scores += _curve(run.curves.accuracy[group], own, x, band=alone)
    if not alone:
        shares += key([Entry(n, theme.colour(k), shape=_shape(named, run)) for k, (n, run) in enumerate(named.items())])
    inks = [theme.colour(0), theme.colour(1)] if alone else [theme.SOFT, theme.SOFT]
    scores += key([Entry("class favoured at the start", inks[0]), Entry("other classes", inks[1], dash=_DASH)])
    left = theme.stacked(shares, _WIDTH, _HEIGHT, title=heading("Share of the largest class"))
    right = theme.stacked(scores, _WIDTH, _HEIGHT, title=heading("Accuracy by class"))
    chart: Any = alt.hconcat(left, right, spacing=40)
    return theme.house(chart, title or _title(named), subtitle or _subtitle(named), wide=True)


@dataclass(frozen=True)
class _Look:
    """How one curve is drawn: a line, dashed for other classes; or points, hollow for other classes."""

    name: str
    colour: str
    others: bool = False
    points: bool = False


def _word(run: Trained) -> str:
    return "trained" if isinstance(run, TrainedMembers) else "predicted"


def _as_points(named: Mapping[str, Trained], run: Trained) -> bool:
    """What was trained, beside something else."""
    return isinstance(run, TrainedMembers) and run is not next(iter(named.values()))


def _shape(named: Mapping[str, Trained], run: Trained) -> str:
    return "circle" if _as_points(named, run) else ""


def _absorbed_at(level: float) -> list[Any]:
    """The share at which the bias counts as absorbed."""
    base = alt.Chart(theme.data([{"share": level, "text": f"absorbed: {100 * level:.0f} %", "step": 0}]))
    rule = base.mark_rule(color=theme.SOFT, strokeDash=[2, 3], strokeWidth=1.5).encode(y="share:Q")
    word = base.encode(x="step:Q", y="share:Q", text="text:N")
    return [rule, *theme.halo(word, align="left", dx=4, dy=12, color=theme.SOFT)]


def _steps_axis(steps: NDArray[np.int64]) -> alt.X:
    last = int(steps.max())
    ticks = [0, *(10**k for k in range(9) if 10**k <= last)]
    return alt.X(
        "step:Q",
        title="Step of training",
        scale=alt.Scale(type="symlog", constant=1, domain=[0, last], nice=False),
        axis=alt.Axis(values=ticks, labelExpr="format(datum.value, ',')", labelFlush=False),
    )


def _curve(curve: Curve, look: _Look, x: alt.X, *, band: bool) -> list[Any]:
    errors = np.nan_to_num(_ERRORS * curve.se)
    rows: list[dict[str, Any]] = [
        {"step": int(s), "mean": float(m), "low": float(a), "high": float(b), "run": look.name}
        | {"from": max(0.0, float(m - e)), "to": min(1.0, float(m + e))}
        for s, m, a, b, e in zip(curve.steps, curve.mean, curve.low, curve.high, errors, strict=True)
        if np.isfinite(m)
    ]
    y = alt.Y("mean:Q", title=None, scale=alt.Scale(domain=[0, 1], nice=False), axis=alt.Axis(labelExpr=theme.PERCENT))
    tooltip = [
        alt.Tooltip("run:N", title="of"),
        alt.Tooltip("step:Q"),
        alt.Tooltip("mean:Q", format=".1%"),
        alt.Tooltip("low:Q", title="5 % are below", format=".1%"),
        alt.Tooltip("high:Q", title="5 % are above", format=".1%"),
    ]
    base = alt.Chart(theme.data(rows)).encode(x=x, y=y, tooltip=tooltip)
    ink: Any = {"color": look.colour}
    if look.points:
        edge: Any = {"strokeWidth": 1.5, "strokeDash": [3, 3], "opacity": 0.9}
        edges = [base.mark_line(**edge, **ink).encode(y=f"{side}:Q") for side in ("low", "high")] if band else []
        bars = base.mark_rule(strokeWidth=2, **ink).encode(y="from:Q", y2="to:Q")
        fill: Any = {"filled": True, "fill": "white" if look.others else look.colour, "stroke": look.colour}
        return [*edges, bars, base.mark_point(size=46, opacity=1, strokeWidth=2, **fill)]
    line = base.mark_line(strokeWidth=3, strokeDash=_DASH if look.others else [1, 0], **ink)
    return [base.mark_area(opacity=0.16, **ink).encode(y="low:Q", y2="high:Q"), line] if band else [line]


def _title(named: Mapping[str, Trained]) -> str:
    run = next(iter(named.values()))
    if len(named) > 1:
        if not any(np.isfinite(run.absorption.median) for run in named.values()):
            last = spaced(max(int(run.curves.largest.steps[-1]) for run in named.values()))
            return f"Most networks are still biased after {last} steps: {' and '.join(named)}"
        each = ", ".join(f"{_within(run.absorption)} ({name})" for name, run in named.items())
        return f"Half of all networks absorb their bias within {each}"
    found, start = run.absorption, float(run.curves.largest.mean[0])
    if found.median == 0.0:
        return f"At the start the largest class gets {100 * start:.0f} %: there is hardly any bias to absorb"
    if not np.isfinite(found.median):
        return f"Most networks are still biased after {spaced(run.curves.largest.steps[-1])} steps"
    fall = f"from {100 * start:.0f} % to {100 * found.level:.0f} %"
    return f"Half of all networks absorb their bias within {spaced(found.median)} steps, {fall}"


def _within(found: Absorption) -> str:
    return (
        f"{spaced(found.median)} step{'s' if round(found.median) != 1 else ''}"
        if np.isfinite(found.median)
        else "more steps than shown"
    )


def _subtitle(named: Mapping[str, Trained]) -> list[str]:
    counts = {name: len(run.curves.largest.draws) for name, run in named.items()}
    seen = [name for name, run in named.items() if _as_points(named, run)]
    many = {count for name, count in counts.items() if name not in seen}
    each = f"{many.pop()} networks" if len(many) == 1 else "networks"
    lines = [f"Lines are means over {each}, bands hold 90 % of them; steps are on a logarithmic scale"]
    if seen:
        others = " and ".join(str(counts[name]) for name in seen)
        lines.append(f"Points are means over {others} trained networks ± 2 s.e., dashed edges hold 90 % of those")
    return lines
