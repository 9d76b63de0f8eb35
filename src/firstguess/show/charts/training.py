"""Training over time: the largest share with its band, and the accuracy of the favoured class against the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import altair as alt
import numpy as np
from numpy.typing import NDArray

from firstguess.base.errors import InvalidInput
from firstguess.show.charts import theme
from firstguess.show.charts.parts import Entry, heading, key
from firstguess.theory.curves import FAVOURED, OTHERS, Absorption, Curve, Curves

_WIDTH, _HEIGHT = 420, 300
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
    named: dict[str, Trained] = dict(runs) if isinstance(runs, Mapping) else {"predicted": runs}
    if not named:
        raise InvalidInput("at least one run", got="none", where="training_chart", hint="training_chart({'gd': t})")
    steps = np.concatenate([run.curves.largest.steps for run in named.values()])
    x = _steps_axis(steps)
    shares: list[Any] = []
    scores: list[Any] = []
    alone = len(named) == 1
    for index, (name, run) in enumerate(named.items()):
        shares += _curve(run.curves.largest, name, theme.colour(index), [1, 0], x, band=True)
        for group, dash in ((FAVOURED, [1, 0]), (OTHERS, [6, 4])):
            colour = theme.colour(int(alone and group == OTHERS) + index)
            scores += _curve(run.curves.accuracy[group], f"{name}: {_GROUPS[group]}", colour, dash, x, band=alone)
    if not alone:
        shares += key([Entry(name, theme.colour(index)) for index, name in enumerate(named)])
    inks = [theme.colour(0), theme.colour(1)] if alone else [theme.SOFT, theme.SOFT]
    scores += key([Entry("class favoured at the start", inks[0]), Entry("other classes", inks[1], dash=[6, 4])])
    left = theme.stacked(shares, _WIDTH, _HEIGHT, title=heading("Share of the largest class"))
    right = theme.stacked(scores, _WIDTH, _HEIGHT, title=heading("Accuracy by class"))
    chart: Any = alt.hconcat(left, right, spacing=40)
    return theme.house(chart, title or _title(named), subtitle or _subtitle(named), wide=True)


def _steps_axis(steps: NDArray[np.int64]) -> alt.X:
    last = int(steps.max())
    ticks = [0, *(10**k for k in range(9) if 10**k <= last)]
    return alt.X(
        "step:Q",
        title="Step of training",
        scale=alt.Scale(type="symlog", constant=1, domain=[0, last], nice=False),
        axis=alt.Axis(values=ticks, labelExpr="format(datum.value, ',')", labelFlush=False),
    )


def _curve(curve: Curve, name: str, colour: str, dash: list[int], x: alt.X, *, band: bool) -> list[Any]:
    rows: list[dict[str, Any]] = [
        {"step": int(s), "mean": float(m), "low": float(a), "high": float(b), "run": name}
        for s, m, a, b in zip(curve.steps, curve.mean, curve.low, curve.high, strict=True)
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
    line = base.mark_line(color=colour, strokeWidth=3, strokeDash=dash)
    if not band:
        return [line]
    return [base.mark_area(color=colour, opacity=0.16).encode(y="low:Q", y2="high:Q"), line]


def _title(named: Mapping[str, Trained]) -> str:
    run = next(iter(named.values()))
    if len(named) > 1:
        each = ", ".join(f"{name} {_within(run.absorption)}" for name, run in named.items())
        return f"How long the bias lasts: {each}"
    found, start = run.absorption, float(run.curves.largest.mean[0])
    if found.median == 0.0:
        return f"At the start the largest class gets {100 * start:.0f} %: there is hardly any bias to absorb"
    if not np.isfinite(found.median):
        return f"Most networks are still biased after {_spaced(run.curves.largest.steps[-1])} steps"
    fall = f"from {100 * start:.0f} % to {100 * found.level:.0f} %"
    return f"Half of all networks absorb their bias within {_spaced(found.median)} steps, {fall}"


def _within(found: Absorption) -> str:
    return (
        f"{_spaced(found.median)} step{'s' if round(found.median) != 1 else ''}"
        if np.isfinite(found.median)
        else "longer"
    )


def _spaced(number: float) -> str:
    return f"{number:,.0f}".replace(",", " ")


def _subtitle(named: Mapping[str, Trained]) -> list[str]:
    count = len(next(iter(named.values())).curves.largest.draws)
    return [f"Lines are means over {count} networks, bands hold 90 % of them; steps are on a logarithmic scale"]
