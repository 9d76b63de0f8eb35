"""How long the bias lasts, by depth: families of networks (phases, norms), in closed form and by the kernel."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt
import numpy as np

from firstguess.base.errors import InvalidInput
from firstguess.show.charts import theme
from firstguess.show.charts.parts import Entry, key
from firstguess.theory.training.curves import HIGH, LOW, Absorption

_WIDTH, _HEIGHT = 620, 420
_LEAST = 0.5  # steps: shorter times are drawn here, a logarithm has no 0
_LINE = 18.0  # pixels a label

Times = Mapping[str, Mapping[int, Absorption]]


def absorption_chart(
    times: Times, *, kernel: Times | None = None, title: str | None = None, subtitle: Sequence[str] = ()
) -> theme.Chart:
    """Steps until the largest share is at its level, by depth: medians; the band of a single family holds 90 %.

    `times` by family and depth, as `fg.predict(net).absorption(lr=…)` gives them; `kernel` likewise, from
    `fg.predict_training(net, data=…, lr=…).absorption`, as points.
    """
    if not times or not all(times.values()):
        raise InvalidInput(
            "families of networks with their times by depth",
            got="none",
            where="absorption_chart",
            hint="absorption_chart({'edge': {1: fg.predict(net).absorption(lr=1e-4)}})",
        )
    seen = kernel or {}
    everything = [a for family in (*times.values(), *seen.values()) for a in family.values()]
    finite = [s for a in everything for s in (a.quantile(LOW), a.median, a.quantile(HIGH)) if 0 < s < math.inf]
    top = max([10.0, *finite]) * 1.5
    low = max(_LEAST, 0.7 * min([top, *finite]))
    depths = sorted({depth for family in (*times.values(), *seen.values()) for depth in family})
    x = alt.X(
        "depth:Q",
        title="Hidden layers",
        scale=alt.Scale(domain=[min(0, depths[0]), depths[-1] * 1.02], nice=False),
        axis=alt.Axis(tickMinStep=1, tickCount=8, format="d"),
    )
    y = alt.Y(
        "median:Q",
        title="Steps until the bias is absorbed",
        scale=alt.Scale(type="log", domain=[low, top], nice=False, clamp=True),
        axis=alt.Axis(
            values=[10.0**k for k in range(-1, 10) if low <= 10.0**k <= top],
            labelExpr="format(datum.value, ',')",
            grid=True,
        ),
    )
    layers: list[Any] = []
    ends: list[tuple[float, str, str]] = []
    for index, (name, family) in enumerate(times.items()):
        ink, rows = theme.colour(index), _rows(name, family, low, top)
        base = alt.Chart(theme.data(rows)).encode(x=x, y=y, tooltip=_tooltip())
        if len(times) == 1:  # bands of several families hide each other
            layers.append(base.mark_area(color=ink, opacity=0.12).encode(y="low:Q", y2="high:Q"))
        layers.append(base.mark_line(color=ink, strokeWidth=3, strokeDash=theme.dash(index)))
        if name in seen:
            dots = alt.Chart(theme.data(_rows(name, seen[name], low, top))).encode(x=x, y=y, tooltip=_tooltip())
            mark: Any = {"filled": True, "size": 90, "opacity": 1, "stroke": "white", "strokeWidth": 1}
            layers.append(dots.mark_point(color=ink, **mark))
        ends.append((rows[-1]["median"], name, ink))
    layers += _labels(ends, low, top)
    layers += key(
        [Entry("closed form, median" + " and 90 % of networks" * (len(times) == 1), theme.SOFT), *_kernel_key(seen)]
    )
    chart = theme.stacked(layers, _WIDTH, _HEIGHT)
    return theme.house(chart, title or _title(times), subtitle or _subtitle(everything[0], seen))


def _kernel_key(seen: Times) -> list[Entry]:
    return [Entry("kernel of data", theme.SOFT, shape="circle")] if seen else []


def _rows(name: str, family: Mapping[int, Absorption], low: float, top: float) -> list[dict[str, Any]]:
    def inside(steps: float) -> float:
        return float(np.clip(steps, low, top))

    return [
        {
            "network": name,
            "depth": int(depth),
            "median": inside(found.median),
            "low": inside(found.quantile(LOW)),
            "high": inside(found.quantile(HIGH)),
            "text": _steps(found.median),
        }
        for depth, found in sorted(family.items())
    ]


def _tooltip() -> list[alt.Tooltip]:
    return [
        alt.Tooltip("network:N"),
        alt.Tooltip("depth:Q", title="hidden layers"),
        alt.Tooltip("text:N", title="median"),
        alt.Tooltip("low:Q", title="5 % are below", format=",.0f"),
        alt.Tooltip("high:Q", title="5 % are above", format=",.0f"),
    ]


def _labels(ends: Sequence[tuple[float, str, str]], low: float, top: float) -> list[Any]:
    """Names at the lines' ends, moved apart where lines end close together."""
    at: list[float] = []
    layers: list[Any] = []
    for value, name, ink in sorted(ends, key=lambda end: -end[0]):
        pixel = _HEIGHT * math.log(top / value) / math.log(top / low)
        pixel = max(pixel, at[-1] + _LINE) if at else max(pixel, _LINE / 2)
        at.append(pixel)
        word = alt.Chart(theme.data([{"text": theme.shortened(name, 34)}])).mark_text(
            align="left", fontSize=15, color=ink
        )
        layers.append(word.encode(x=alt.value(_WIDTH + 10), y=alt.value(pixel), text="text:N"))
    return layers


def _steps(number: float) -> str:
    return f"{number:,.0f}".replace(",", " ") if math.isfinite(number) else "never"


def _title(times: Times) -> str:
    """Of one family its first and last depth; of several who needs longest at the greatest depth that all have."""
    if len(times) == 1:
        name, family = next(iter(times.items()))
        first, last = min(family), max(family)
        a, b = family[first].median, family[last].median
        if first == last:
            return f"{name}: {_lasting(a)} with {_layers(first)}"
        return f"{name}: {_lasting(a)} with {_layers(first)}, {_steps(b)} with {_layers(last)}"
    shared = set[int].intersection(*(set(family) for family in times.values()))
    if not shared:
        return "Steps until the bias is absorbed, by depth"
    depth = max(shared)
    medians = {name: family[depth].median for name, family in times.items()}
    slow, fast = max(medians, key=medians.__getitem__), min(medians, key=medians.__getitem__)
    if medians[slow] == medians[fast]:
        return f"At {_layers(depth)} all have the same median: {_lasting(medians[slow])}"
    end = f"{slow}: {_lasting(medians[slow])} in the median, {fast}: {_steps(medians[fast])}"
    if medians[fast] == 0.0:
        end = f"{slow}: {_lasting(medians[slow])} in the median; {fast} has none to absorb"
    return f"At {_layers(depth)} bias lasts longest in {end}"


def _lasting(number: float) -> str:
    return f"{_steps(number)} steps" if math.isfinite(number) else "never absorbed"


def _layers(depth: int) -> str:
    return f"{depth} hidden layer{'s' if depth != 1 else ''}"


def _subtitle(found: Absorption, seen: Times) -> list[str]:
    what = f"Until the largest share falls to {100 * found.level:.0f} %, full batches"
    return [what + ("; points are predicted from kernels of data" if seen else "") + "; steps on a logarithmic scale"]
