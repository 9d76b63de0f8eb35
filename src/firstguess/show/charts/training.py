"""Training over time: the largest share with its band, and the accuracy of the favoured class against the others.

A prediction is a line with a filled band; what was trained is points with error bars, in a band with dashed
edges: where the two agree, both are still to be seen.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import numpy as np
from numpy.typing import NDArray

from firstguess.base.errors import InvalidInput
from firstguess.base.text import spaced
from firstguess.ensemble.trained import TrainedMembers
from firstguess.show.charts import theme
from firstguess.show.charts.theme import LINE, Entry, heading, key
from firstguess.theory.prediction import Prediction
from firstguess.theory.training.curves import FAVOURED, HIGH, LOW, OTHERS, Absorption, Curve, Followed
from firstguess.theory.training.runs import KernelSpectrum, spectrum

_WIDTH, _HEIGHT = 420, 300
_DASH = [6, 4]  # of other classes
_ERRORS = 2.0  # standard errors, up and down
_GROUPS = {FAVOURED: "favoured class", OTHERS: "other classes"}


def training_chart(
    runs: Mapping[str, Followed] | Followed, *, title: str | None = None, subtitle: Sequence[str] = ()
) -> theme.Chart:
    """The share of the largest class and accuracies over steps; lines are means, bands hold 90 % of networks.

    `runs` by name (e.g. a prediction and what was seen), or one of them.
    """
    kind = "trained" if isinstance(runs, TrainedMembers) else "predicted"
    named: dict[str, Followed] = dict(runs) if isinstance(runs, Mapping) else {kind: runs}
    if not named:
        raise InvalidInput("at least one run", got="none", where="training_chart", hint="training_chart({'gd': t})")
    steps = np.concatenate([run.curves.largest.steps for run in named.values()])
    x = theme.steps_axis(steps)
    level = next(iter(named.values())).absorption.level  # at which the bias counts as absorbed
    text: Any = {"align": "left", "dx": 4, "dy": 12, "color": theme.SOFT}
    words = f"absorbed: {100 * level:.0f} %"
    shares: list[Any] = theme.named_rule(alt.Y("share:Q"), level, words, 0, rule=theme.SOFT, **text)
    scores: list[Any] = []
    alone = len(named) == 1
    for index, (name, run) in enumerate(named.items()):
        points = _as_points(named, run)
        shares += _curve(run.curves.largest, name, theme.colour(index), x, points=points, band=True)
        for group in (FAVOURED, OTHERS):
            ink, words = theme.colour(int(alone and group == OTHERS) + index), f"{name}: {_GROUPS[group]}"
            known: Any = {"others": group == OTHERS, "points": points, "band": alone}
            scores += _curve(run.curves.accuracy[group], words, ink, x, **known)
    if not alone:
        shapes = ["circle" if _as_points(named, run) else LINE for run in named.values()]
        inks = [theme.colour(k) for k in range(len(named))]
        shares += key([Entry(n, c, shape=s) for n, c, s in zip(named, inks, shapes, strict=True)])
    inks = [theme.colour(0), theme.colour(1)] if alone else [theme.SOFT, theme.SOFT]
    scores += key([Entry("class favoured at the start", inks[0]), Entry("other classes", inks[1], dash=_DASH)])
    left = theme.stacked(shares, _WIDTH, _HEIGHT, title=heading("Share of the largest class"))
    right = theme.stacked(scores, _WIDTH, _HEIGHT, title=heading("Accuracy by class"))
    chart: Any = alt.hconcat(left, right, spacing=40)
    return theme.house(chart, title or _title(named), subtitle or _subtitle(named), wide=True)


def _as_points(named: Mapping[str, Followed], run: Followed) -> bool:
    """What was trained, next to something else."""
    return isinstance(run, TrainedMembers) and run is not next(iter(named.values()))


def _curve(
    curve: Curve, name: str, colour: str, x: alt.X, *, others: bool = False, points: bool, band: bool
) -> list[Any]:
    """A line, dashed for other classes; or points, hollow for other classes."""
    errors = np.nan_to_num(_ERRORS * curve.se)
    rows: list[dict[str, Any]] = [
        {"step": int(s), "mean": float(m), "low": float(a), "high": float(b), "run": name}
        | {"from": max(0.0, float(m - e)), "to": min(1.0, float(m + e))}
        for s, m, a, b, e in zip(curve.steps, curve.mean, curve.low, curve.high, errors, strict=True)
        if np.isfinite(m)
    ]
    y = alt.Y("mean:Q", title=None, **theme.axis([0, 1], labelExpr=theme.PERCENT))
    tooltip = theme.tooltip("run|of", "step", "mean|mean|.1%", "low|5 % are below|.1%", "high|5 % are above|.1%")
    base = theme.chart(rows, x=x, y=y, tooltip=tooltip)
    ink: Any = {"color": colour}
    if points:
        edge: Any = {"strokeWidth": 1.5, "strokeDash": [3, 3], "opacity": 0.9}
        edges = [base.mark_line(**edge, **ink).encode(y=f"{side}:Q") for side in ("low", "high")] if band else []
        bars = base.mark_rule(strokeWidth=2, **ink).encode(y="from:Q", y2="to:Q")
        fill: Any = {"filled": True, "fill": "white" if others else colour, "stroke": colour}
        return [*edges, bars, base.mark_point(size=46, opacity=1, strokeWidth=2, **fill)]
    line = base.mark_line(strokeWidth=3, strokeDash=_DASH if others else [1, 0], **ink)
    return [base.mark_area(opacity=0.16, **ink).encode(y="low:Q", y2="high:Q"), line] if band else [line]


def _title(named: Mapping[str, Followed]) -> str:
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
    if not np.isfinite(found.median):
        return "more steps than shown"
    return f"{spaced(found.median)} step{'s' if round(found.median) != 1 else ''}"


def _subtitle(named: Mapping[str, Followed]) -> list[str]:
    counts = {name: len(run.curves.largest.draws) for name, run in named.items()}
    seen = [name for name, run in named.items() if _as_points(named, run)]
    many = {count for name, count in counts.items() if name not in seen}
    each = f"{many.pop()} networks" if len(many) == 1 else "networks"
    lines = [f"Lines are means over {each}, bands hold 90 % of them; steps are on a logarithmic scale"]
    if seen:
        others = " and ".join(str(counts[name]) for name in seen)
        lines.append(f"Points are means over {others} trained networks ± 2 s.e., dashed edges hold 90 % of those")
    return lines


# How long the bias lasts, by depth: families of networks (phases, norms), in closed form and by the kernel.

_ABSORPTION_WIDTH, _ABSORPTION_HEIGHT = 620, 420
_LEAST = 0.5  # steps: shorter times are drawn here, a logarithm has no 0

Times = Mapping[str, Mapping[int, Absorption]]


def absorption_chart(
    times: Times, *, kernel: Times | None = None, title: str | None = None, subtitle: Sequence[str] = ()
) -> theme.Chart:
    """Steps until the largest share is at its level, by depth: medians; the band of a single family holds 90 %.

    `times` by family and depth, as `fg.predict(net).absorption(lr=…)` gives them; `kernel` likewise, from
    `fg.predict_training(net, data=…, lr=…).absorption`, as points.
    """
    if not times or not all(times.values()):
        expected = "families of networks with their times by depth"
        hint = "absorption_chart({'edge': {1: fg.predict(net).absorption(lr=1e-4)}})"
        raise InvalidInput(expected, got="none", where="absorption_chart", hint=hint)
    seen = kernel or {}
    everything = [a for family in (*times.values(), *seen.values()) for a in family.values()]
    finite = [s for a in everything for s in (a.quantile(LOW), a.median, a.quantile(HIGH)) if 0 < s < math.inf]
    top = max([10.0, *finite]) * 1.5
    low = max(_LEAST, 0.7 * min([top, *finite]))
    depths = sorted({depth for family in (*times.values(), *seen.values()) for depth in family})
    look = theme.axis([min(0, depths[0]), depths[-1] * 1.02], tickMinStep=1, tickCount=8, format="d")
    x = alt.X("depth:Q", title="Hidden layers", **look)
    ticks = [10.0**k for k in range(-1, 10) if low <= 10.0**k <= top]
    look = theme.axis([low, top], type="log", clamp=True, values=ticks, labelExpr=theme.THOUSANDS, grid=True)
    y = alt.Y("median:Q", title="Steps until the bias is absorbed", **look)
    layers: list[Any] = []
    entries: list[Entry] = []
    tips = theme.tooltip(*_TIPS)
    for index, (name, family) in enumerate(times.items()):
        ink, rows = theme.colour(index), _rows(name, family, low, top)
        band = 0.12 if len(times) == 1 else 0.0  # bands of several families hide each other
        layers += theme.line(rows, x, y, ink, tips, band=band, dots=0, width=3, dash=theme.dash(index))
        if name in seen:
            dots = theme.chart(_rows(name, seen[name], low, top), x=x, y=y, tooltip=tips)
            mark: Any = {"filled": True, "size": 90, "opacity": 1, "stroke": "white", "strokeWidth": 1}
            layers.append(dots.mark_point(color=ink, **mark))
        entries.append(Entry(theme.shortened(name, 34), ink, theme.dash(index)))
    entries.append(Entry("closed form, median" + " and 90 % of networks" * (len(times) == 1), theme.SOFT))
    entries += [Entry("kernel of data", theme.SOFT, shape="circle")] if seen else []
    layers += key(entries)
    chart = theme.stacked(layers, _ABSORPTION_WIDTH, _ABSORPTION_HEIGHT)
    what = f"Until the largest share falls to {100 * everything[0].level:.0f} %, full batches"
    default = what + ("; points are predicted from kernels of data" if seen else "") + "; steps on a logarithmic scale"
    return theme.house(chart, title or _absorption_title(times), subtitle or [default])


_TIPS = ("network", "depth|hidden layers", "text|median", "low|5 % are below|,.0f", "high|5 % are above|,.0f")


def _rows(name: str, family: Mapping[int, Absorption], low: float, top: float) -> list[dict[str, Any]]:
    def inside(steps: float) -> float:
        return float(np.clip(steps, low, top))

    rows: list[dict[str, Any]] = []
    for depth, found in sorted(family.items()):
        low_end, middle, high_end = (
            inside(steps) for steps in (found.quantile(LOW), found.median, found.quantile(HIGH))
        )
        row = {"network": name, "depth": int(depth), "median": middle, "low": low_end, "high": high_end}
        rows.append({**row, "text": spaced(found.median, "never")})
    return rows


def _absorption_title(times: Times) -> str:
    """A title: one family's first and last depth; of several who needs longest at the greatest depth that all have."""
    if len(times) == 1:
        name, family = next(iter(times.items()))
        first, last = min(family), max(family)
        a, b = family[first].median, family[last].median
        if first == last:
            return f"{name}: {_steps_text(a)} with {_layers(first)}"
        return f"{name}: {_steps_text(a)} with {_layers(first)}, {spaced(b, 'never')} with {_layers(last)}"
    shared = set[int].intersection(*(set(family) for family in times.values()))
    if not shared:
        return "Steps until the bias is absorbed, by depth"
    depth = max(shared)
    medians = {name: family[depth].median for name, family in times.items()}
    slow, fast = max(medians, key=medians.__getitem__), min(medians, key=medians.__getitem__)
    if medians[slow] == medians[fast]:
        return f"At {_layers(depth)} all have the same median: {_steps_text(medians[slow])}"
    end = f"{slow}: {_steps_text(medians[slow])} in the median, {fast}: {spaced(medians[fast], 'never')}"
    if medians[fast] == 0.0:
        end = f"{slow}: {_steps_text(medians[slow])} in the median; {fast} has none to absorb"
    return f"At {_layers(depth)} bias lasts longest in {end}"


def _steps_text(number: float) -> str:
    return f"{spaced(number)} steps" if math.isfinite(number) else "never absorbed"


def _layers(depth: int) -> str:
    return f"{depth} hidden layer{'s' if depth != 1 else ''}"


# The modes of the tangent kernel: how fast the bias relaxes, and how fast the labels are learned.

_MODES_WIDTH, _MODES_HEIGHT = 720, 420
_BIAS, _SIGNAL, _OTHER = theme.PALETTE[0], theme.PALETTE[1], "#B5B5B5"
_MODES_LEAST = 0.01  # share of a direction from which on a mode is marked
_SMALLEST = 1e-8  # of the largest eigenvalue: below is rounding
_LARGEST_DOT = 900.0


def modes_chart(
    modes: KernelSpectrum | Prediction,
    labels: NDArray[np.int64] | Sequence[int] | None = None,
    *,
    title: str | None = None,
    subtitle: Sequence[str] = (),
) -> theme.Chart:
    """Eigenvalues of Θ/n by rank: a mode's rate is η times its own. Dots are as large as the share of the bias's
    direction (common to all points) and of the labels' direction that a mode holds.

    `modes` is a kernel reading with its tangent, `fg.predict(net, data=x, tangent=True)`, with the labels.
    """
    found = _spectrum(modes, labels)
    n = len(found.values)
    kept = np.flatnonzero(found.values > _SMALLEST * found.values[0])
    ranks = [10**k for k in range(7) if 10**k <= n]
    look = theme.axis([0.8, 1.25 * n], type="log", values=ranks, labelExpr=theme.THOUSANDS)
    x = alt.X("rank:Q", title="Mode of the tangent kernel, the fastest first", **look)
    low, top = float(found.values[kept[-1]]) / 1.5, 2.0 * float(found.values[0])
    powers = [10.0**k for k in range(-12, 13) if low <= 10.0**k <= top]
    look = theme.axis([low, top], type="log", values=powers, labelExpr="format(datum.value, '~g')", grid=True)
    y = alt.Y("value:Q", title="Eigenvalue λ of Θ/n", **look)
    layers: list[Any] = [*_rule(found.modes.bias, "λ of the bias", _BIAS, y, above=True)]
    layers += _rule(found.modes.signal, "λ of the labels", _SIGNAL, y, above=found.modes.signal > found.modes.bias)
    layers.append(_dots(found, kept, np.full(n, 0.02), _OTHER, x, y))
    for share, ink in ((found.bias, _BIAS), (found.signal, _SIGNAL)):
        layers.append(_dots(found, kept[share[kept] >= _MODES_LEAST], share, ink, x, y))
    names = (("the bias, common to all points", _BIAS), ("the labels", _SIGNAL), ("other modes", _OTHER))
    entries = [Entry(name, ink, shape="circle") for name, ink in names]
    chart = theme.stacked([*layers, *key(entries)], _MODES_WIDTH, _MODES_HEIGHT)
    first = int(np.argmax(found.bias))
    held = f"{100 * found.bias[first]:.0f} % of the bias is mode {first + 1}"
    default = f"{len(found.values)} points; {held}; a dot is as large as the share of its direction in a mode"
    return theme.house(chart, title or _modes_title(found), subtitle or [default])


def _spectrum(modes: Any, labels: Any) -> KernelSpectrum:
    if isinstance(modes, KernelSpectrum):
        return modes
    tangent = getattr(modes, "tangent", None)
    if tangent is None or labels is None:
        got = "no tangent" if tangent is None else "no labels"
        hint = "modes_chart(fg.predict(net, data=x, tangent=True), y)"
        raise InvalidInput("a kernel reading with its tangent, and labels", got=got, where="modes_chart", hint=hint)
    return spectrum(tangent, np.asarray(labels))


def _dots(found: KernelSpectrum, which: NDArray[Any], share: Any, ink: str, x: alt.X, y: alt.Y) -> alt.Chart:
    rows = [
        {"rank": int(i) + 1, "value": float(found.values[i]), "size": 24.0 + _LARGEST_DOT * float(share[i]),
         "bias": float(found.bias[i]), "signal": float(found.signal[i])}
        for i in which
    ]  # fmt: skip
    tooltip = theme.tooltip("rank|mode", "value|λ|.4~g", "bias|of the bias|.1%", "signal|of the labels|.1%")
    base = theme.chart(rows).mark_point(filled=True, color=ink, opacity=0.75, stroke="white", strokeWidth=0.5)
    return base.encode(x=x, y=y, tooltip=tooltip, size=alt.Size("size:Q", scale=None, legend=None))


def _rule(value: float, name: str, ink: str, y: alt.Y, *, above: bool) -> list[Any]:
    text: Any = {"align": "right", "baseline": "bottom" if above else "top", "dy": -5 if above else 6, "color": ink}
    words = f"{name}: {theme.number(value)}"
    return theme.named_rule(y, value, words, _MODES_WIDTH - 6, dash=[6, 4], rule=ink, **text)


def _modes_title(found: KernelSpectrum) -> str:
    ratio = found.modes.ratio
    if ratio >= 1.5:
        return f"The bias goes {theme.number(float(f'{ratio:.2g}'))} times as fast as the labels are learned"
    if ratio > 1 / 1.5:
        return "The bias goes about as fast as the labels are learned"
    return f"The labels are learned {theme.number(float(f'{1 / ratio:.2g}'))} times as fast as the bias goes"
