"""The distribution of class shares: how untrained networks split a data set between the classes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt
import numpy as np

from firstguess.base.errors import InvalidInput
from firstguess.network.layer import text as layer_text
from firstguess.show.charts import theme
from firstguess.show.charts.theme import Row
from firstguess.theory.prediction import Prediction
from firstguess.theory.shares.empirical import EmpiricalGuesses
from firstguess.theory.shares.gaussian import Guesses
from firstguess.theory.shares.mixture import MixedGuesses

_WIDTH, _HEIGHT = 760, 380
_MARGIN = 0.02  # of the axis, at both ends: how far into a pole at 0 or 1 the figure looks
_CONTRAST = 8.0  # a peak may be this many times higher than the lowest law's before its top is cut off
_DRAWN = 50  # bins of a law that is known by draws
_STEPS = 60  # data points up to which the single counts are drawn as steps


@dataclass(frozen=True)
class _Law:
    label: str
    guesses: Guesses | MixedGuesses

    @property
    def masses(self) -> list[tuple[float, float]]:
        """(fraction, probability) of a distribution that has no density: γ = 0 and γ = ∞ with infinitely many data."""
        g = self.guesses
        if g.points is not None or 0 < g.gamma < math.inf:
            return []
        even = 1 / g.classes
        places = [even] if g.gamma == 0 else [0.0, 1.0]
        return [(x, g.cdf(x) - (0.0 if x == places[0] else g.cdf(places[0]))) for x in places]

    def curve(self, end: float) -> list[tuple[float, float]]:
        """(fraction, density) up to `end`; the fractions themselves where data are finite."""
        g = self.guesses
        if self.masses:
            return []
        if g.drawn:  # drawn: a density point by point is mostly noise
            edges = np.linspace(0.0, end, _DRAWN + 1)
            density = np.diff(g.cdf(edges)) * _DRAWN / end
            return [(float(x), float(y)) for x, y in zip((edges[1:] + edges[:-1]) / 2, density, strict=True)]
        if g.points is not None:
            last = math.ceil(end * g.points)
            at = np.unique(np.round(np.linspace(0, last, min(last, 800) + 1))) / g.points
        else:
            # Quantiles find the peak of a narrow law; the poles of a wide one are reached from inside.
            inside = g.quantile(np.linspace(0, 1, 402)[1:-1])
            ends = end * np.logspace(-6, -2, 60)
            at = np.unique(np.concatenate([inside, np.linspace(0, end, 202)[1:-1], ends, end * (1 - ends / end)]))
            at = at[(at > 0) & (at < 1) & (at <= end)]
        density = g.pdf(at)
        return [(float(x), float(y)) for x, y in zip(at, density, strict=True) if math.isfinite(y)]


def guesses_chart(
    *laws: Guesses | Prediction, labels: Sequence[str] | None = None, title: str | None = None
) -> theme.Chart:
    """The distributions of a class's share over initializations, overlaid: theory.md (6)-(8).

    Densities that diverge at 0 and 1 leave at the top. γ = 0 and γ = ∞ have no density: they are arrows, as high as
    they are probable. For more than two classes dashed lines mark the average largest share.
    """
    named = _named(laws, labels)
    classes = sorted({law.guesses.classes for law in named})
    # Where the axis ends: at 1, unless all distributions of many classes end long before.
    reach = max(max(law.guesses.quantile(0.999), law.guesses.expected_max()) for law in named)
    end = 1.0 if reach > 0.4 else min(1.0, 1.25 * reach)
    curves = [law.curve(end) for law in named]
    top = _top(named, curves, end)
    cut = [_mass_above(law, curve, top) for law, curve in zip(named, curves, strict=True)]
    scale = alt.Scale(domain=[law.label for law in named], range=[theme.colour(i) for i in range(len(named))])
    legend = alt.Legend(orient="top", direction="vertical", columns=1, symbolType="stroke", offset=30, padding=0)
    colours = alt.Color("law:N", title=None, scale=scale, legend=legend)
    title_of_x = "Share of the data that an untrained network guesses to be of one class"
    x = alt.X("fraction:Q", title=title_of_x, **theme.axis([0, end], labelExpr=theme.PERCENT, tickCount=6))
    masses_only = not any(curves)
    look = theme.axis([0, top], tickCount=5, labelExpr=theme.PERCENT if masses_only else "datum.label")
    words = "% of initializations" + ("" if masses_only else ", per 1 % of share")
    y = alt.Y("density:Q", title=words, **look)
    text: Any = {"align": "center", "dy": -9, "baseline": "bottom", "color": theme.SOFT}
    places = [1 / m for m in classes if 1 / m < end]
    layers = [layer for at in places for layer in theme.named_rule(x, at, "even split", 5, **text)]
    texts: list[alt.Chart] = []
    for index, (law, curve) in enumerate(zip(named, curves, strict=True)):
        rows: list[Row] = [{"law": law.label, "fraction": g, "density": min(p, 4 * top), "exact": p} for g, p in curve]
        layers += _curve(law, rows, index, x, y, colours) if rows else []
        arrow, text = _arrows(law, index, 0.94 * top, x, y, colours)
        layers += arrow
        texts += text
    layers += [*texts, *_largest(named, x, end)]
    chart = theme.stacked(layers, _WIDTH, _HEIGHT)
    return theme.house(chart, title or _title(named), _subtitle(laws, named, cut))


def _named(laws: Sequence[Guesses | Prediction], labels: Sequence[str] | None) -> list[_Law]:
    if not laws:
        hint = "guesses_chart(Guesses(1.0))"
        raise InvalidInput("at least one distribution", got="none", where="guesses_chart", hint=hint)
    if labels is not None and len(labels) != len(laws):
        expected = f"as many labels as distributions, {len(laws)}"
        raise InvalidInput(expected, got=len(labels), where="guesses_chart(labels)", hint="labels=None")
    found: list[Guesses | MixedGuesses] = []
    for index, law in enumerate(laws):
        guesses: object = law.guesses if isinstance(law, Prediction) else law
        if not isinstance(guesses, Guesses | MixedGuesses):
            sampled = isinstance(guesses, EmpiricalGuesses)
            hint = "readings_chart(None, prediction)" if sampled else "guesses_chart(fg.predict(net))"
            got = "a sampled one (kernel reading)" if sampled else type(guesses).__name__
            where = f"guesses_chart, argument {index + 1}"
            raise InvalidInput("a Guesses or a Prediction", got=got, where=where, hint=hint)
        found.append(guesses)
    texts: list[str] = []
    for index, (law, g) in enumerate(zip(laws, found, strict=True)):
        gamma = float(law.gamma[-1]) if isinstance(law, Prediction) else g.gamma  # as its page has it
        text = f"{'drift ratio ' if labels is None else f'{labels[index]}, '}γ = {theme.number(gamma)}"
        text += f", {theme.count(g.classes)} classes" if len({one.classes for one in found}) > 1 else ""
        text += f", {_points(g.points)}" if len({one.points for one in found}) > 1 else ""
        same = sum(other.startswith(text) for other in texts)
        texts.append(text + (f" ({same + 1})" if same else ""))
    shares = [f"{theme.percent(g.expected_max())} in the favoured class" for g in found]
    favours = ["no class is favoured" if _even(g) else share for g, share in zip(found, shares, strict=True)]
    return [_Law(f"{text}: {favour}", g) for text, favour, g in zip(texts, favours, found, strict=True)]


def _even(g: Guesses | MixedGuesses) -> bool:
    """No class is favoured: γ = 0, or so near to it that it makes no difference in the figures shown."""
    return theme.percent(Guesses(g.gamma, g.classes).expected_max()) == theme.percent(1 / g.classes)


def _top(named: Sequence[_Law], curves: Sequence[Sequence[tuple[float, float]]], end: float) -> float:
    """The end of the density's axis: above all peaks, but not all the way up a pole at 0 or 1."""
    peaks: list[float] = []
    for law, curve in zip(named, curves, strict=True):
        low, high = (x if math.isfinite(law.guesses.pdf(x)) else abs(x - _MARGIN * end) for x in (0.0, 1.0))
        peaks += [max(p for g, p in curve if low <= g <= high)] if curve else []
    return 1.08 * min(max(peaks), _CONTRAST * max(min(peaks), 1.0)) if peaks else 1.0


def _mass_above(law: _Law, curve: Sequence[tuple[float, float]], top: float) -> float:
    """The probability of fractions at which the density is beyond the axis."""
    if not any(p > top for _, p in curve):
        return 0.0
    if law.guesses.points is not None:
        return sum(p / law.guesses.points for _, p in curve if p > top)
    places = [0.0, *(g for g, _ in curve), 1.0]
    high = [curve[0][1] > top, *(p > top for _, p in curve), curve[-1][1] > top]
    below = law.guesses.cdf(places)
    return sum(float(b - a) for a, b, c, d in zip(below, below[1:], high, high[1:], strict=False) if c and d)


def _curve(law: _Law, rows: Sequence[Row], index: int, x: alt.X, y: alt.Y, colours: alt.Color) -> list[alt.Chart]:
    few = law.guesses.points is not None and law.guesses.points <= _STEPS
    how: Any = "step" if few else "linear"
    base = theme.chart(rows, x=x, y=y, color=colours)
    tooltip = theme.tooltip("law", "fraction|share|.3f", "exact|density|.4g")
    return [
        base.mark_area(interpolate=how, opacity=0.09, line=False, clip=True),
        base.mark_line(interpolate=how, strokeWidth=3, strokeDash=theme.dash(index), clip=True).encode(tooltip=tooltip),
    ]


def _arrows(
    law: _Law, index: int, height: float, x: alt.X, y: alt.Y, colours: alt.Color
) -> tuple[list[alt.Chart], list[alt.Chart]]:
    """A point mass: an arrow as high as it is probable, and its probability next to the head."""
    rows = [
        {"law": law.label, "fraction": place, "density": height * mass, "probability": mass, "floor": 0.0,
         "text": f"{theme.percent(mass)} of all networks: exactly {theme.percent(place)}"}
        for place, mass in law.masses
    ]  # fmt: skip
    if not rows:
        return [], []
    base = theme.chart(rows, x=x, y=y, color=colours)
    left, right = (alt.datum.fraction <= 0.5), (alt.datum.fraction > 0.5)
    text = theme.chart(rows, x=x, y=y, text="text:N")
    ink: Any = theme.colour(index)
    arrow = [
        base.mark_rule(strokeWidth=3.5).encode(y2="floor:Q"),
        base.mark_point(shape="triangle-up", filled=True, size=170, opacity=1, yOffset=-3),
    ]
    return arrow, [
        *theme.halo(text.transform_filter(left), align="left", dx=14, dy=-4, color=ink),
        *theme.halo(text.transform_filter(right), align="right", dx=-14, dy=-4, color=ink),
    ]


def _largest(named: Sequence[_Law], x: alt.X, end: float) -> list[alt.Chart]:
    """Marks of E max_c G_c, for more than two classes: for two it is just the larger half."""
    many = {i: law.guesses.expected_max() for i, law in enumerate(named) if law.guesses.classes > 2 and not law.masses}
    layers: list[alt.Chart] = []
    for height, (index, place) in enumerate(sorted(many.items(), key=lambda item: item[1])):
        near, ink = place < 0.6 * end, theme.colour(index)
        text: Any = {"align": "left" if near else "right", "dx": 8 if near else -8, "color": ink}
        words = f"average largest share: {theme.percent(place)}"
        layers += theme.named_rule(x, place, words, 24 + 26 * height, dash=[7, 4], width=2, rule=ink, **text)
    return layers


def _title(named: Sequence[_Law]) -> str:
    laws = [law.guesses for law in named]
    if all(_even(g) for g in laws):
        even = " or ".join(theme.percent(1 / m) for m in sorted({g.classes for g in laws}, reverse=True))
        text = f"No class is favoured: each gets {even} of the data on average"
        chance = theme.percent(max(law.expected_max() for law in laws))  # finitely many data are never split evenly
        return text if chance in even else f"{text}, the largest {chance} by chance"
    shares = sorted(law.guesses.expected_max() for law in named)
    low, high = theme.percent(shares[0]), theme.percent(shares[-1])
    between = low if low == high else f"{low} to {high}"
    return f"The favoured class gets {between} of the data on average"


def _subtitle(laws: Sequence[Guesses | Prediction], named: Sequence[_Law], cut: Sequence[float]) -> list[str]:
    classes = sorted({law.guesses.classes for law in named})
    points = {law.guesses.points for law in named}
    words = " or ".join(theme.count(m) for m in classes)
    setting = f"Class shares before training, over initializations. {words.capitalize()} classes"
    setting += f", {_points(*points)}." if len(points) == 1 else "."
    lines = [setting]
    predictions = [law for law in laws if isinstance(law, Prediction)]
    networks = {str(p.network) for p in predictions}
    if len(networks) == 1 and len(laws) == 1:
        lines.append(f"Network: {networks.pop()}")
    assumptions = dict.fromkeys(a for p in predictions for a in p.assumptions)
    if assumptions:
        lines.append(f"Assumes {', '.join(assumptions)}.")
    if any(cut):
        words = f"{'up to ' * (len(named) > 1)}{theme.percent(max(cut))} of the networks are there"
        lines.append(f"Curves that leave at the top are cut off: {words}.")
    return lines


def _points(points: int | None) -> str:
    return "infinitely many data points" if points is None else f"{theme.spaced(points)} data points"


# How many tokens a language model guesses, and why so few.


def support_chart(
    prediction: Prediction | None, measured: Any = None, *, title: str | None = None, narrow: bool = False
) -> theme.Chart:
    """A chart from even guessing to the measured effective support, one reason after the other: theory.md §13.

    `measured`: a `Measurement` of as many positions as were predicted; with other numbers it is left out.
    """
    if prediction is None or not prediction.support_steps:
        expected = "a prediction for a language model whose head is not tied"
        got = "none" if prediction is None else layer_text(prediction.network.layers[-1])
        hint = 'fg.predict(fg.transformer("llama", head="language"), data=ids)'
        raise InvalidInput(expected, got=got, where="support_chart", hint=hint)
    points = prediction.guesses.points
    steps = [(name, value, 0.0) for name, value in prediction.support_steps]
    steps[-1] = (*steps[-1][:2], prediction.guesses.effective_support().error)
    if measured is not None and measured.points == points:
        found = measured.guesses.effective_support()
        steps.append(("measured", found.mean, found.error))
    rows: list[Row] = [
        {"step": name, "value": value, "before": steps[max(k - 1, 0)][1], "low": max(value - 2 * error, 1.0),
         "high": value + 2 * error, "words": theme.count(round(value)),
         "kind": "measured" if name == "measured" else "predicted"}
        for k, (name, value, error) in enumerate(steps)
    ]  # fmt: skip
    names = [name for name, *_ in steps]
    y = alt.Y("step:N", sort=names, title=None, axis=alt.Axis(labelLimit=0, grid=False, labelColor=theme.INK))
    ends = [0.6 * min(row["low"] for row in rows), 2.2 * max(row["high"] for row in rows)]
    scale = alt.Scale(type="log", domain=ends, nice=False)
    x = alt.X("value:Q", title="Effective support, tokens", scale=scale, axis=alt.Axis(tickCount=4, format="~s"))
    colour = alt.Color(
        "kind:N", title=None, legend=None,
        scale=alt.Scale(domain=["predicted", "measured"], range=[theme.PALETTE[0], theme.PALETTE[1]]),
    )  # fmt: skip
    base = theme.chart(rows, y=y)
    tooltip = theme.tooltip("step", "kind", "value|effective support|.0f", "before|before it|.0f")
    layers = [
        base.mark_bar(height=16, opacity=0.35).encode(x=x, x2="before:Q", color=colour, tooltip=tooltip),
        base.mark_rule(strokeWidth=2).encode(x=alt.X("low:Q", scale=scale), x2="high:Q", color=colour),
        base.mark_tick(thickness=4, height=22).encode(x=x, color=colour, tooltip=tooltip),
        base.mark_text(align="left", dx=10, dy=-16, fontSize=14, color=theme.INK).encode(x=x, text="words:N"),
    ]
    chart = theme.stacked(layers, 360 if narrow else _WIDTH - 200, 52 * len(rows))
    said = f"{theme.count(points or 0)} positions, a vocabulary of {theme.count(prediction.guesses.classes)} tokens."
    return theme.house(
        chart,
        title or f"Guesses spread over {rows[-1]['words']} tokens",
        [said, "Bars: the change that each step makes."],
    )
