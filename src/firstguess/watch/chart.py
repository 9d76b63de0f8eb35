"""One network's training as it was watched: shares of the guesses and recall by class, over steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import altair as alt
import numpy as np
from numpy.typing import NDArray

from firstguess.base.errors import InvalidInput
from firstguess.base.gaussian import Array
from firstguess.show.charts import theme
from firstguess.show.charts.theme import Entry, heading, key_above
from firstguess.theory.training.curves import OTHERS, Curve
from firstguess.watch.seen import WatchedTraining

_WIDTH, _HEIGHT, _GAP = 400, 300, 70
_FAVOURED, _REST, _OTHERS, _PREDICTED = theme.PALETTE[1], theme.PALETTE[0], "#999999", theme.PALETTE[2]
_LARGEST = theme.PALE_BLUE
_QUIET = "#999999"
_MOST = 12  # classes up to which each has its line
_EARLY = 12  # evaluations that are marked


def watch_chart(watched: WatchedTraining, *, title: str | None = None, subtitle: Sequence[str] = ()) -> theme.Chart:
    """Shares of the guesses by class, with the level of absorption, next to recall by class (γ where labels are not
    known), over the steps that were looked at; what was predicted is a dashed line."""
    if not len(watched.steps):
        raise InvalidInput("a training that was looked at", got="no look", where="watch_chart", hint="watch.step(k)")
    x = theme.steps_axis(watched.steps)
    labelled = bool(np.isfinite(watched.recall).any())
    left = theme.stacked(_shares(watched, x), _WIDTH, _HEIGHT, title=heading("Share of the guesses"))
    second = _recall(watched, x) if labelled else _gamma(watched, x)
    words = "Recall: share of a class that is found" if labelled else "Drift ratio γ of this network's output"
    right = theme.stacked(second, _WIDTH, _HEIGHT, title=heading(words))
    legend = key_above(_entries(watched, labelled), width=2 * _WIDTH + _GAP)
    # Flush: frames, not what is written around them, stand side by side, and so do their titles.
    chart: Any = alt.vconcat(legend, alt.hconcat(left, right, spacing=_GAP, bounds="flush"), spacing=6)
    said = watched.finding
    default = [f"{theme.spaced(watched.points)} held points at each of {theme.spaced(len(watched.steps))} looks"]
    return theme.house(chart, title or f"{said[:1].upper()}{said[1:]}", subtitle or default, wide=True)


def _entries(w: WatchedTraining, labelled: bool) -> list[Entry]:
    when = "start" if w.start_known else "first look"
    favourite = theme.shortened(w.name(w.favourite), 24)
    found = [Entry(f"{favourite}, most guessed at the {when}", _FAVOURED)]
    if w.classes == 2:
        found.append(Entry(theme.shortened(w.name(1 - w.favourite), 24), _REST, dash=[6, 4]))
    else:
        found += [Entry("each other class", _OTHERS)] if w.classes <= _MOST else []
        found += [Entry("others together", _REST, dash=[6, 4])] if labelled else []
    found.append(Entry("largest", _LARGEST))
    found += [Entry("predicted", _PREDICTED, dash=[2, 3])] if w.predicted is not None else []
    return found + ([Entry("evaluated too early", theme.INK, shape="diamond")] if w.early else [])


def _y() -> alt.Y:
    return alt.Y("value:Q", title=None, **theme.axis([0, 1], labelExpr=theme.PERCENT))


def _line(
    steps: NDArray[np.int64], values: Array, name: str, x: alt.X, y: alt.Y, *, form: str = ".1%", **mark: Any
) -> list[alt.Chart]:
    known = [(int(s), float(v)) for s, v in zip(steps, values, strict=True) if np.isfinite(v)]
    rows = [{"step": s, "value": v, "of": name} for s, v in known]
    if not rows:
        return []
    tooltip = theme.tooltip("of", "step", f"value|value|{form}")
    base = theme.chart(rows, x=x, y=y, tooltip=tooltip)
    if len(rows) == 1:  # of which a line shows nothing
        return [base.mark_point(filled=True, size=60, color=mark["color"], opacity=1)]
    look: dict[str, Any] = {"strokeJoin": "round", "clip": True, **mark}
    return [base.mark_line(**look)]


def _shares(w: WatchedTraining, x: alt.X) -> list[alt.Chart]:
    y, steps, found = _y(), w.steps, list[alt.Chart]()
    largest = w.curves.largest.draws[0]
    found += _line(steps, largest, "largest share", x, y, color=_LARGEST, strokeWidth=9)
    found += _each(w, w.shares, x, y)
    found += _line(steps, w.shares[:, w.favourite], w.name(w.favourite), x, y, color=_FAVOURED, strokeWidth=3)
    if w.predicted is not None:
        found += _band(w.predicted.curves.largest, x, y)
    found += _level(w, x, y)
    return found + _early(w, largest, x, y)


def _recall(w: WatchedTraining, x: alt.X) -> list[alt.Chart]:
    y = _y()
    found = _each(w, w.recall, x, y)
    if w.classes > 2:
        others = w.curves.accuracy[OTHERS].draws[0]
        found += _line(w.steps, others, "others together", x, y, color=_REST, strokeWidth=3, strokeDash=[6, 4])
    found += _line(w.steps, w.recall[:, w.favourite], w.name(w.favourite), x, y, color=_FAVOURED, strokeWidth=3)
    return found + _upright(w, x)


def _gamma(w: WatchedTraining, x: alt.X) -> list[alt.Chart]:
    y = alt.Y("value:Q", title=None, scale=alt.Scale(zero=True), axis=alt.Axis(tickCount=5))
    return _line(w.steps, w.gamma, "γ", x, y, form=".3g", color=theme.INK, strokeWidth=3)


def _each(w: WatchedTraining, values: Array, x: alt.X, y: alt.Y) -> list[alt.Chart]:
    """A thin line for each class but the favourite; the only other one is as important."""
    if w.classes > _MOST:
        return []
    look: dict[str, Any] = {"color": _OTHERS, "strokeWidth": 1.3}
    if w.classes == 2:
        look = {"color": _REST, "strokeWidth": 3, "strokeDash": [6, 4]}
    others = [c for c in range(w.classes) if c != w.favourite]
    return [layer for c in others for layer in _line(w.steps, values[:, c], w.name(c), x, y, **look)]


def _band(curve: Curve, x: alt.X, y: alt.Y) -> list[alt.Chart]:
    known = zip(curve.steps, curve.low, curve.high, strict=True)
    rows = [{"step": int(s), "low": float(a), "high": float(b)} for s, a, b in known if np.isfinite(a)]
    area = theme.chart(rows).mark_area(color=_PREDICTED, opacity=0.16, clip=True)
    line = _line(curve.steps, curve.mean, "predicted", x, y, color=_PREDICTED, strokeWidth=3, strokeDash=[2, 3])
    return [area.encode(x=x, y=alt.Y("low:Q", title=None), y2="high:Q"), *line]


def _level(w: WatchedTraining, x: alt.X, y: alt.Y) -> list[alt.Chart]:
    """The level, and the step at which it was reached."""
    # On the left, where a biased start is far above it; above it on the right, where there is no start to see.
    place: dict[str, Any] = {"align": "left", "baseline": "top", "dy": 5}
    if not w.start_known:
        place = {"align": "right", "baseline": "bottom", "dy": -4}
    words, along = f"absorbed: {100 * w.level:.0f} %", 6 if w.start_known else _WIDTH - 4
    found = theme.named_rule(y, w.level, words, along, rule=_QUIET, color=theme.SOFT, fontSize=13, **place)
    if not _reached(w):
        return found
    found += _upright(w, x)
    said = f"step {theme.spaced(math.ceil(w.absorbed_at))}"
    mark = theme.chart([{"step": w.absorbed_at, "value": w.level, "text": said}], x=x)
    dot: dict[str, Any] = {"filled": True, "size": 90, "opacity": 1, "stroke": "white", "strokeWidth": 1.5}
    found.append(mark.mark_point(color=theme.INK, **dot).encode(y=y))
    # A word to the right of a late step would leave the frame.
    begin, end = float(w.steps[0]), float(w.steps[-1])
    late = math.log1p(w.absorbed_at) > 0.7 * math.log1p(end)
    late = w.absorbed_at - begin > 0.7 * (end - begin) if begin > 0 else late
    side: dict[str, Any] = {"align": "right", "dx": -7} if late else {"align": "left", "dx": 7}
    word = mark.encode(text="text:N", y=alt.value(10))
    return found + theme.halo(word, fontSize=15, fontWeight="bold", color=theme.INK, **side)


def _reached(w: WatchedTraining) -> bool:
    return math.isfinite(w.absorbed_at) and w.absorbed_at > 0


def _upright(w: WatchedTraining, x: alt.X) -> list[alt.Chart]:
    if not _reached(w):
        return []
    row = theme.chart([{"step": w.absorbed_at}], x=x)
    return [row.mark_rule(color=_QUIET, strokeDash=[2, 3], strokeWidth=1.5)]


def _early(w: WatchedTraining, largest: Array, x: alt.X, y: alt.Y) -> list[alt.Chart]:
    """Evaluations before absorption."""
    at = {int(step): float(value) for step, value in zip(w.steps, largest, strict=True)}
    rows = [{"step": step, "value": at[step]} for step in w.early[:_EARLY] if np.isfinite(at.get(step, math.nan))]
    if not rows:
        return []
    base = theme.chart(rows, x=x, y=y, tooltip=[alt.Tooltip("step:Q", title="evaluated at step")])
    return [base.mark_point(shape="diamond", filled=True, color=theme.INK, size=110, opacity=1, stroke="white")]
