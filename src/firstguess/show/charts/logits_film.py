"""The film of training in the plane of logits: the cloud moves to the boundary (bias goes), then turns (signal)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import altair as alt
import numpy as np
from numpy.typing import ArrayLike, NDArray

from firstguess.base.errors import InvalidInput
from firstguess.ensemble.logits import Logits
from firstguess.show.charts import theme
from firstguess.show.charts.logits import FAVOURED, OTHER, RIVAL, View, as_logits, axes, dots, sides
from firstguess.show.charts.parts import Entry, heading, key

_SIZE = 190
_FRAMES = 5  # pictures of a film, where nobody says which
_HALF = 0.5  # of the way from the first distance to 0, and to the best alignment: what the title tells


def logits_film(
    frames: Mapping[int, Any] | Iterable[tuple[int, Any]],
    labels: ArrayLike | None = None,
    *,
    at: Sequence[int] | None = None,
    title: str | None = None,
    subtitle: Sequence[str] = (),
) -> theme.Chart:
    """Pictures of one network's logits at some steps of training and, below, two curves over all steps.

    *Translation*: the distance of the cloud's center from the boundary, in spreads of the margin; *rotation*: the
    correlation of the margin with the labels, which is the cosine of the angle between them. NORM App. C.1 says that
    the first goes to 0 before the second grows. The class that is favoured at the first step is followed throughout.

    `frames` are {step: logits} or (step, logits) in any order, logits (points, classes) as arrays, tensors or `Logits`,
    always of the same points; `labels` the points' classes, without which the second curve is left out; `at` which
    steps are drawn as pictures: by default five, the first and the last among them.
    """
    given: dict[int, Any] = dict(frames)
    film = {int(step): as_logits(given[step]) for step in sorted(given)}
    _check(film)
    steps = list(film)
    first = film[steps[0]]
    above, below = first.favoured, first.rival
    chosen = _chosen(steps, at)
    views = {step: View.of(film[step], above, below) for step in chosen}
    reach = 1.06 * max(2.5, *(view.reach for view in views.values()))
    y = None if labels is None else np.asarray(labels)
    pictures = [
        _picture(step, film[step], views[step], y, (above, below), reach, first=index == 0)
        for index, step in enumerate(chosen)
    ]
    margins = {step: logits.margin_of(above) for step, logits in film.items()}
    shift = np.array([m.mean() / (m.std(ddof=1) or 1.0) for m in margins.values()])
    turn = None if y is None else np.array([logits.alignment(y, above) for logits in film.values()])
    wide = _SIZE * len(chosen) + 24 * (len(chosen) - 1)
    curves = [
        _curve(
            steps, shift, chosen, "Translation: distance of the centre from the boundary, in spreads", wide // 2 - 40
        )
    ]
    if turn is not None:
        words = "Rotation: correlation of the margin with the labels"
        curves.append(_curve(steps, turn, chosen, words, wide // 2 - 40))
    names = [f"class {above}, favoured at the start", f"class {below}"]
    whose = "point of" if y is not None else "point guessed as"
    entries = [
        Entry(f"{whose} {names[0]}", FAVOURED, shape="circle"),
        Entry(f"{whose} {names[1]}", RIVAL, shape="circle"),
        *([Entry("another class", OTHER, shape="circle")] if first.classes > 2 else []),
        Entry("centre of the cloud", theme.INK, shape="cross"),
    ]
    chart: Any = alt.vconcat(
        theme.stacked(key(entries, height=8), 620, 14),
        alt.hconcat(*pictures, spacing=24),
        alt.hconcat(*curves, spacing=70),
        spacing=18,
    )
    said = title or theme.unbroken(_title(steps, shift, turn))
    return theme.house(chart, said, subtitle or _subtitle(first, len(steps)), wide=True)


def _check(film: Mapping[int, Logits]) -> None:
    if len(film) < 2:
        raise InvalidInput("logits at two steps at least", got=f"{len(film)}", where="logits_film")
    sizes = {logits.values.shape for logits in film.values()}
    if len(sizes) > 1:
        raise InvalidInput("logits of the same points at every step", got=f"shapes {sizes}", where="logits_film")


def _chosen(steps: list[int], at: Sequence[int] | None) -> list[int]:
    if at is not None:
        missing = [step for step in at if step not in steps]
        if missing or not at:
            raise InvalidInput("steps of the film", got=f"{missing or 'none'}", where="at", hint=f"at={steps[:3]}")
        return sorted(at)
    if len(steps) <= _FRAMES:
        return steps
    return [steps[i] for i in np.unique(np.linspace(0, len(steps) - 1, _FRAMES).round().astype(int))]


def _picture(
    step: int,
    logits: Logits,
    view: View,
    labels: NDArray[Any] | None,
    pair: tuple[int, int],
    reach: float,
    *,
    first: bool,
) -> alt.LayerChart:
    shown = logits.guesses if labels is None else labels
    inks = [{pair[0]: FAVOURED, pair[1]: RIVAL}.get(int(c), OTHER) for c in shown]
    plane = axes(reach, f"Logit of class {pair[1]}", f"Logit of class {pair[0]}" if first else None)
    share = theme.percent(float(logits.shares[pair[0]]))
    end = alt.Chart(theme.data([{"x": -view.center, "y": view.center}]))
    end = end.encode(**plane)
    cross: Any = {"shape": "cross", "filled": True, "opacity": 1}
    layers = [
        *sides(reach, plane),
        dots(view, inks, reach, plane, 14),
        end.mark_point(size=240, color="white", **cross),
        end.mark_point(size=120, color=theme.INK, **cross),
    ]
    head = alt.TitleParams(
        f"step {theme.spaced(step)}", subtitle=[theme.unbroken(f"{share} guessed class {pair[0]}")], anchor="start",
        frame="group", fontSize=16, subtitleFontSize=13, fontWeight="normal", offset=8, subtitlePadding=3,
    )  # fmt: skip
    return theme.stacked(layers, _SIZE, _SIZE, title=head)


def _curve(steps: list[int], values: NDArray[np.float64], chosen: list[int], words: str, wide: int) -> alt.LayerChart:
    rows = [
        {"step": s, "y": float(v), "shown": s in chosen}
        for s, v in zip(steps, values, strict=True)
        if math.isfinite(float(v))
    ]
    ticks = [0, *(10**k for k in range(9) if 10**k <= steps[-1])]
    x = alt.X(
        "step:Q",
        title="Step of training",
        scale=alt.Scale(type="symlog", constant=1, domain=[0, steps[-1]], nice=False),
        axis=alt.Axis(values=ticks, labelExpr="format(datum.value, ',')", labelFlush=False),
    )
    ends = [min(0.0, float(np.nanmin(values))), 1.05 * max(0.1, float(np.nanmax(values)))]
    y = alt.Y("y:Q", title=None, scale=alt.Scale(domain=ends, nice=False), axis=alt.Axis(tickCount=4))
    base = alt.Chart(theme.data(rows)).encode(x=x, y=y)
    zero = alt.Chart(theme.data([{"y": 0.0}])).mark_rule(color=theme.SOFT, strokeDash=[2, 3]).encode(y=y)
    picked = alt.Chart(theme.data([row for row in rows if row["shown"]])).encode(x=x, y=y)
    layers = [
        zero,
        base.mark_line(color=theme.INK, strokeWidth=2.5),
        picked.mark_point(filled=True, color=theme.INK, size=70, opacity=1, stroke="white", strokeWidth=1),
    ]
    return theme.stacked(layers, wide, 150, title=heading(words))


def _title(steps: list[int], shift: NDArray[np.float64], turn: NDArray[np.float64] | None) -> str:
    """When half of the way is gone, first there and first here: which comes first is what was found."""
    near = next((s for s, v in zip(steps, shift, strict=True) if abs(v) <= _HALF * abs(shift[0])), None)
    gone = (
        f"the cloud is half-way to the boundary by step {theme.spaced(near)}"
        if near is not None
        else "the cloud stays away"
    )
    if turn is None or not np.isfinite(turn).any():
        return gone[0].upper() + gone[1:]
    best = float(np.nanmax(turn))
    if best < 0.1:
        return f"{gone[0].upper()}{gone[1:]}; it has not turned towards the labels by step {theme.spaced(steps[-1])}"
    half = float(turn[0]) + _HALF * (best - float(turn[0]))
    turned = next(s for s, v in zip(steps, turn, strict=True) if v >= half)
    if near is None:
        return (
            f"The cloud stays away from the boundary, and is half turned to the labels by step {theme.spaced(turned)}"
        )
    if near < turned:
        return f"First translation, then rotation: {gone}, half turned to the labels by step {theme.spaced(turned)}"
    if near == turned:
        return f"Translation and rotation together: half of both by step {theme.spaced(near)}"
    return f"Rotation before translation: half turned to the labels by step {theme.spaced(turned)}, {gone}"


def _subtitle(first: Logits, steps: int) -> list[str]:
    share = theme.percent(float(first.shares[first.favoured]))
    return [
        f"One network's logits on {theme.spaced(first.points)} points at {steps} steps of training, in standard "
        f"deviations of the margin; the diagonal is the boundary. At the start {share} are guessed to be of one class."
    ]
