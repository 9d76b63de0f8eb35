"""The page's panels: sentences, SVG charts and a table of what is seen."""

from __future__ import annotations

import base64
import io
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape

import numpy as np

from firstguess.base.text import by_powers as number
from firstguess.base.text import percent, rounded_off, spaced
from firstguess.explore.choice import DIMENSION, PRESETS, TOKENS, WIDTH, Choice, ExploredNetwork
from firstguess.theory.phases.fixed_points import FixedPoint
from firstguess.theory.phases.phase_diagram import PhaseDiagram
from firstguess.theory.prediction import EDGES, largest_share, stream_growth
from firstguess.theory.shares.gaussian import Guesses, average_kth

# Small charts as SVG text, in a millisecond: they follow a slider. Figures for papers and talks are `fg.figures`.

CHART_WIDTH, HEIGHT = 380, 250
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 14, 12, 40
BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#7a7a7a"


@dataclass(frozen=True)
class AxisScale:
    """Numbers onto pixels: straight, or by their logarithm."""

    low: float
    high: float
    log: bool = False

    @classmethod
    def around(cls, values: Iterable[float], *, log: bool = False, least: float = 1.0) -> AxisScale:
        """All finite values with some room; a logarithmic one spans at least `least` decades."""
        seen = [v for v in values if math.isfinite(v) and (v > 0.0 or not log)]
        if not seen:
            return cls(0.1, 10.0, True) if log else cls(0.0, 1.0)
        low, high = min(seen), max(seen)
        if not log:
            room = 0.08 * (high - low) or 0.5
            return cls(low - room, high + room)
        a, b = math.log10(low), math.log10(high)
        more = max(0.06 * (b - a), 0.5 * (least - (b - a)), 0.05)
        return cls(10.0 ** (a - more), 10.0 ** (b + more), True)

    def __call__(self, value: float) -> float:
        """The place on the axis, from 0 to 1 and no further."""
        if self.log:
            if value <= 0.0:
                return 0.0
            part = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            part = (value - self.low) / (self.high - self.low)
        return min(max(part, 0.0), 1.0)

    def ticks(self) -> list[float]:
        """Round numbers, five or so."""
        if not self.log:
            step = _round_step((self.high - self.low) / 5.0)
            first = math.ceil(self.low / step - 1e-9)
            return [k * step for k in range(first, math.floor(self.high / step + 1e-9) + 1)]
        low, high = math.log10(self.low), math.log10(self.high)
        if high - low < 1.2:
            marks = [m * 10.0**k for k in range(math.floor(low), math.ceil(high) + 1) for m in (1, 2, 5)]
            return [m for m in marks if self.low <= m <= self.high]
        step = max(1, round((high - low) / 5.0))
        first = step * math.ceil(low / step)  # so that 1 is one of them
        return [10.0**k for k in range(first, math.floor(high) + 1, step)]


def _round_step(size: float) -> float:
    power = 10.0 ** math.floor(math.log10(size))
    return next(m * power for m in (1, 2, 5, 10) if m * power >= size * (1 - 1e-9))


@dataclass
class SvgChart:
    """A chart that is written down mark by mark; `svg` is all of it."""

    x: AxisScale
    y: AxisScale
    x_title: str
    y_title: str
    marks: list[str] = field(default_factory=list)
    _taken: list[tuple[float, float, float]] = field(default_factory=list)  # by dots and names: from, to, height
    zero: float | None = None  # the height of a logarithmic axis that stands for 0

    def at(self, x: float, y: float) -> tuple[float, float]:
        """The pixel of a point."""
        right, up = (CHART_WIDTH - _LEFT - _RIGHT) * self.x(x), (HEIGHT - _TOP - _BOTTOM) * self.y(y)
        return _LEFT + right, HEIGHT - _BOTTOM - up

    def line(self, points: Iterable[tuple[float, float]], colour: str = BLUE, dash: str = "", name: str = "") -> None:
        """Through finite points; one that is not finite breaks it."""
        runs: list[list[str]] = [[]]
        for x, y in points:
            if math.isfinite(x) and math.isfinite(y):
                runs[-1].append("{:.1f},{:.1f}".format(*self.at(x, y)))
            elif runs[-1]:
                runs.append([])
        for run in runs:
            if len(run) > 1:
                dashes = f' stroke-dasharray="{dash}"' if dash else ""
                said = f"<title>{escape(name)}</title>" if name else ""
                self.marks.append(
                    f'<polyline points="{" ".join(run)}" fill="none" stroke="{colour}" stroke-width="2"{dashes}>{said}'
                    "</polyline>"
                )

    def area(self, points: Sequence[tuple[float, float]], colour: str = BLUE) -> None:
        """Between the points and the bottom."""
        if len(points) > 1:
            floor = self.y.low
            outline = [(points[0][0], floor), *points, (points[-1][0], floor)]
            path = " ".join("{:.1f},{:.1f}".format(*self.at(x, y)) for x, y in outline)
            self.marks.append(f'<polygon points="{path}" fill="{colour}" fill-opacity="0.18"/>')

    def dot(self, x: float, y: float, label: str = "", colour: str = BLUE, name: str = "", size: float = 4.5) -> None:
        """A dot, with a number or a word in it or next to it."""
        px, py = self.at(x, y)
        said = f"<title>{escape(name)}</title>" if name else ""
        self.marks.append(f'<circle cx="{px:.1f}" cy="{py:.1f}" r="{size}" fill="{colour}">{said}</circle>')
        self._taken.append((px - 6, px + 6, py + 4))
        if label:
            self.named(x, y, label)

    def named(self, x: float, y: float, label: str) -> None:
        """A word next to a dot, right or left of it, where it covers no other dot or word."""
        (px, py), long = self.at(x, y), 6.2 * len(label)
        sides = [(px + 8, px + 8 + long, "start"), (px - 8 - long, px - 8, "end")]
        sides = [side for side in sides if side[0] > _LEFT - 8 and side[1] < CHART_WIDTH] or sides
        for down in sorted((14.0 * k for k in range(-8, 9)), key=abs):
            for start, end, anchor in sides:
                height = py + 4 + down
                free = not any(a < end and start < b and abs(height - h) < 13 for a, b, h in self._taken)
                if (free and _TOP + 8 < height < HEIGHT - _BOTTOM - 2) or down == 112.0:
                    self._taken.append((start, end, height))
                    self.words(start if anchor == "start" else end, height, label, anchor=anchor)
                    return

    def bar(self, x: float, y: float, half: float, colour: str = BLUE, *, name: str = "") -> None:
        """Draw a bar from the bottom to y."""
        (left, top), (right, floor) = self.at(x - half, y), self.at(x + half, self.y.low)
        self.marks.append(
            f'<rect x="{left:.1f}" y="{top:.1f}" width="{right - left:.1f}" height="{max(floor - top, 0):.1f}" '
            f'fill="{colour}"><title>{escape(name)}</title></rect>'
        )

    def level(self, y: float, label: str = "", colour: str = GREY, *, left: bool = False) -> None:
        """A dashed line across, named at its right, or left."""
        _, py = self.at(self.x.low, y)
        self.marks.append(
            f'<line x1="{_LEFT}" x2="{CHART_WIDTH - _RIGHT}" y1="{py:.1f}" y2="{py:.1f}" stroke="{colour}" '
            'stroke-dasharray="3 4"/>'
        )
        if label:
            where, anchor = (_LEFT + 4, "start") if left else (CHART_WIDTH - _RIGHT - 2, "end")
            self.words(where, py - 4, label, anchor=anchor, colour=colour)

    def picture(self, png: str) -> None:
        """Colours behind everything: a PNG in base64 over the whole field."""
        self.marks.append(
            f'<image x="{_LEFT}" y="{_TOP}" width="{CHART_WIDTH - _LEFT - _RIGHT}" height="{HEIGHT - _TOP - _BOTTOM}" '
            f'preserveAspectRatio="none" href="data:image/png;base64,{png}"/>'
        )

    def words(self, px: float, py: float, text: str, *, anchor: str = "start", colour: str = "currentColor") -> None:
        """Write words at a pixel."""
        where = f'x="{px:.1f}" y="{py:.1f}" font-size="12" text-anchor="{anchor}"'
        halo = 'style="paint-order:stroke;stroke:var(--background);stroke-width:3px"'  # legible across a line
        self.marks.append(f'<text {where} fill="{colour}" {halo}>{escape(text)}</text>')

    def svg(self, label: str) -> str:
        """The chart; `label` is what a screen reader says of it."""
        axes = "".join(self._axes())
        return (
            f'<svg role="img" aria-label="{escape(label, quote=True)}" viewBox="0 0 {CHART_WIDTH} {HEIGHT}" '
            f'style="width:100%;height:auto;max-width:460px;display:block">{axes}{"".join(self.marks)}</svg>'
        )

    def _axes(self) -> Iterable[str]:
        faint = 'stroke="currentColor" stroke-opacity="0.15"'
        floor, right = HEIGHT - _BOTTOM, CHART_WIDTH - _RIGHT
        yield f'<line x1="{_LEFT}" x2="{right}" y1="{floor}" y2="{floor}" stroke="currentColor" stroke-opacity="0.5"/>'
        marked = self.y.ticks()
        if self.zero is not None:
            marked = [self.zero, *(value for value in marked if value > 3 * self.zero)]
        for value in marked:
            _, py = self.at(self.x.low, value)
            yield f'<line x1="{_LEFT}" x2="{right}" y1="{py:.1f}" y2="{py:.1f}" {faint}/>'
            yield _text(_LEFT - 6, py + 4, "0" if value == self.zero else number(value), "end")
        for value in self.x.ticks():
            px, _ = self.at(value, self.y.low)
            yield f'<line x1="{px:.1f}" x2="{px:.1f}" y1="{floor}" y2="{floor + 4}" stroke="currentColor"/>'
            yield _text(px, floor + 17, number(value), "middle")
        yield _text((_LEFT + right) / 2, HEIGHT - 6, self.x_title, "middle")
        middle = (_TOP + floor) / 2
        yield (
            f'<text transform="translate(12 {middle}) rotate(-90)" font-size="12" text-anchor="middle" '
            f'fill="currentColor">{escape(self.y_title)}</text>'
        )


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="11" text-anchor="{anchor}" fill="currentColor" fill-opacity="0.75">'
        f"{escape(text)}</text>"
    )


STYLE = """<style>
.fg-page{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(290px,100%),1fr));gap:14px 26px}
.fg-page h3{font-size:1rem;margin:.2rem 0}.fg-page p{margin:.2rem 0;font-size:.9rem}
.fg-head{font-size:1.15rem;margin:.3rem 0 .1rem}.fg-soft{opacity:.75;font-size:.9rem;margin:.1rem 0}
.fg-scroll{overflow-x:auto}.fg-scroll table{border-collapse:collapse;font-size:.9rem}
.fg-scroll td,.fg-scroll th{padding:.15rem .6rem;text-align:right;white-space:nowrap}
.fg-scroll td:first-child,.fg-scroll th:first-child{text-align:left}
.fg-share{float:right;margin-left:1rem;font-size:.9rem;font-weight:400;
padding:.1rem .6rem;border:1px solid var(--border);border-radius:.4rem}
.marimo-cell:has(.fg-controls),[data-cell-id]:has(.fg-controls){position:sticky;top:0;z-index:40;
background:var(--background);padding:.3rem 0;border-bottom:1px solid var(--border);max-height:40vh;overflow-y:auto}
#fg-presets a,#fg-before a{text-decoration:underline;text-underline-offset:2px}
.fg-wide{grid-column:1/-1}.fg-text{font-family:ui-monospace,monospace;overflow-wrap:anywhere;font-size:.85rem}
</style>"""
_LEAST = 1e-4  # γ below this is drawn as 0
_HUGE = 1e12
_NARROW = 4e-3  # standard deviation of a share below which nearly all networks are within one percent
_NO_GRADIENTS = "Not known in closed form for this network."


def live(seen: ExploredNetwork, before: ExploredNetwork | None = None) -> str:
    """All that moves with a slider, `before` in grey; its attributes are for those who read it by program."""
    p = seen.prediction
    largest, gamma = p.guesses.expected_max(), float(p.gamma[-1])
    gradients, lasting = ("" if name in seen.later else draw(seen) for name, draw in _PUT_OFF.items())
    parts = [_shares(seen, before), _gamma(seen, before), gradients, _frontier(seen), lasting, _remedies(seen)]
    return (
        f'{STYLE}<section id="fg-live" aria-label="Prediction" aria-live="polite" '
        f'data-state="{escape(seen.choice.query)}" data-gamma="{gamma:.6g}" data-largest="{largest:.6g}">'
        f'<p class="fg-head">{link(seen.choice.query)}<b>{escape(p.verdict.capitalize())}</b>: the largest of '
        f"{p.network.classes} classes gets "
        f"<b>{percent(largest)}</b> of the guesses on average; drift ratio γ = {number(rounded_off(gamma))}.</p>"
        f"{_compared(before)}"
        f'<p class="fg-text">{escape(_brief(str(p.network)))}</p>'
        f'<div class="fg-page">{"".join(parts)}</div></section>'
    )


def _brief(text: str) -> str:
    """Numbers to six digits; "Copy as Python" has them all."""
    return re.sub(r"\d+\.\d{7,}", lambda found: f"{float(found[0]):.6g}", text)


def message(why: str) -> str:
    """A sentence that may have anything in it, an address's text, as text."""
    return f"<p>{escape(why)}</p>" if why else ""


def presets() -> str:
    """Links to networks to begin with."""
    links = [f'<a href="?{escape(query)}">{escape(name)}</a>' for name, query in PRESETS.items()]
    return f'<p id="fg-presets">Start from: {" · ".join(links)}</p>'


def link(query: str) -> str:
    """A link to the state that is shown."""
    return f'<a id="fg-link" class="fg-share" href="?{escape(query)}">Share this state</a>'


def _compared(before: ExploredNetwork | None) -> str:
    """What the shown network is compared with, in one line, and the way back to it."""
    if before is None:
        return ""
    p = before.prediction
    said = f"{p.verdict}, {percent(p.guesses.expected_max())}, γ = {number(rounded_off(float(p.gamma[-1])))}"
    back = f'<a href="?{escape(before.choice.query)}">back to it</a>'
    return f'<p class="fg-soft" id="fg-before">Before (grey): {escape(said)} ({back}).</p>'


def refused(choice: Choice, why: str) -> str:
    """A choice that has no closed form."""
    return (
        f'{STYLE}<section id="fg-live" aria-live="polite" data-state="{escape(choice.query)}" data-gamma="nan">'
        f'<p class="fg-head">Not predicted.</p><p>{escape(why)}</p></section>'
    )


def _panel(title: str, body: str, *, wide: bool = False) -> str:
    return f"<div{' class=fg-wide' if wide else ''}><h3>{escape(title)}</h3>{body}</div>"


def _unknown(title: str, why: str) -> str:
    """Why a part is not known; nothing for networks of tokens, for which it never is."""
    return "" if why in TOKENS.values() else _panel(title, f"<p>{escape(why)}</p>")


def _shares(seen: ExploredNetwork, before: ExploredNetwork | None) -> str:
    """Two classes: the density of a share; more: the average shares in order."""
    law = seen.prediction.guesses
    assert isinstance(law, Guesses)  # of closed forms
    over = f"One class gets over 90 % of the guesses in {percent(law.prob_max_above(0.9))} of networks."
    if law.std() < _NARROW:
        drawing = SvgChart(AxisScale(0, 1), AxisScale(0, 1.0), "share of a class", "")
        drawing.line([(1 / law.classes, 0.0), (1 / law.classes, 0.97)], name="every network")
        scatter = f" ± {100 * law.std():.1g} %" if law.std() > 5e-4 else ""
        over = f"Every class gets {percent(1 / law.classes)}{scatter} in every network."
    elif law.classes == 2:
        reach = min(0.496, 6.0 * law.std())  # a narrow peak would fall between places far apart
        at = np.linspace(0.5 - reach, 0.5 + reach, 121)
        found = list(zip(at.tolist(), law.pdf(at).tolist(), strict=True))
        old = None if before is None else before.prediction.guesses
        top = max(y for _, y in found)
        top = top if law.gamma < 1.0 else min(top, 6.0)  # from γ = 1 on it has poles at the ends
        y = AxisScale(0, top * 1.08 + 0.05)
        drawing = SvgChart(AxisScale(0, 1), y, "share of a class", "% of networks, per 1 %")
        if isinstance(old, Guesses) and old.classes == 2 and old.std() > _NARROW:
            drawing.line(list(zip(at.tolist(), old.pdf(at).tolist(), strict=True)), GREY, dash="6 4", name="before")
        drawing.area(found)
        drawing.line(found)
    else:
        shown = min(law.classes, 10)
        means = _means(law, law.classes, shown)
        old_means = [] if before is None else _means(before.prediction.guesses, law.classes, shown)
        top = max(*means, *old_means, 1 / law.classes) * 1.08
        drawing = SvgChart(AxisScale(0.4, shown + 0.6), AxisScale(0, top), "class, from the largest share on", "share")
        for k, mean in enumerate(means, start=1):
            drawing.bar(k, mean, 0.38, name=f"number {k}: {percent(mean)}")
        for k, mean in enumerate(old_means, start=1):
            drawing.line([(k - 0.45, mean), (k + 0.45, mean)], GREY, name=f"before, number {k}: {percent(mean)}")
        drawing.level(1 / law.classes, "even")
    return _panel("Distribution of class shares", drawing.svg(over) + f"<p>{over}</p>")


def _means(law: object, classes: int, shown: int) -> list[float]:
    """The average shares in order; none of a network with other classes."""
    if not isinstance(law, Guesses) or law.classes != classes:
        return []
    return [average_kth(classes, k, law.gamma, quick=True) for k in range(1, shown + 1)]


def _gamma(seen: ExploredNetwork, before: ExploredNetwork | None) -> str:
    values = np.clip(seen.prediction.gamma, _LEAST, _HUGE)
    points = [(k, float(v)) for k, v in enumerate(values, start=1)]
    old = np.empty(0) if before is None else np.clip(before.prediction.gamma, _LEAST, _HUGE)
    y = AxisScale.around([*values.tolist(), *old.tolist(), EDGES[0] / 3, EDGES[2] * 3], log=True)
    drawing = SvgChart(AxisScale(0.5, max(len(points), len(old)) + 0.5), y, "layer of weights", "drift ratio γ")
    drawing.zero = _LEAST if _LEAST in values or _LEAST in old else None
    drawing.line(list(enumerate(old.tolist(), start=1)), GREY, dash="6 4", name="before")
    for edge, name in zip(EDGES, ("leaning", "biased", "deeply biased"), strict=True):
        drawing.level(edge, name, left=True)
    drawing.line(points)
    drawing.dot(*points[-1], name=f"output: γ = {number(float(seen.prediction.gamma[-1]))}")
    return _panel("γ through the layers", drawing.svg(f"γ from {number(values[0])} to {number(values[-1])}"))


def _gradients(seen: ExploredNetwork) -> str:
    p = seen.prediction
    stream = stream_growth([(layer.layer, layer.gradient) for layer in p.layers])
    growth = p.gradient_growth
    if stream is not None:
        said = f"Gradients change by {signed(stream[0])} per residual block towards the input (mean square)."
        return _gradients_drawn(seen.stream, "residual block", said)
    if not growth.size or not np.isfinite(growth).all():
        return _panel("Gradients", f"<p>{escape(seen.why.get('gradients', _NO_GRADIENTS))}</p>")
    said = f"Gradients change by {signed(float(growth[-1]))} per layer towards the input (mean square, last layers)."
    return _gradients_drawn(seen.gradients, "layer of weights", said)


def _gradients_drawn(found: Sequence[tuple[int, float]], what: str, said: str) -> str:
    points = [(k, min(max(v, 1e-300), 1e300)) for k, v in found]
    y = AxisScale.around([v for _, v in points], log=True, least=2.0)
    drawing = SvgChart(AxisScale(0.5, len(points) + 0.5), y, what, "gradient, mean square")
    drawing.line(points, ORANGE)
    drawing.level(1.0)
    return _panel("Gradients", drawing.svg(said) + f"<p>{said}</p>")


def signed(factor: float) -> str:
    """A factor as a change, in words."""
    change = 100 * (factor - 1)
    if abs(change) < 0.05:
        return "0 %"
    return f"a factor of {factor:.3g}" if change >= 99.5 else f"{'+' if change > 0 else '−'}{abs(change):.2g} %"


def _frontier(seen: ExploredNetwork) -> str:
    f = seen.frontier
    if f is None:
        return _unknown("Bias against gradients", seen.why["frontier"])
    marks = [f.here, *f.remedies]
    places = [(min(max(m.gradients, 1e-30), 1e30), 1 + min(max(m.gamma, 0), _HUGE)) for m in marks]
    x = AxisScale.around([g for g, _ in places] + [1.0], log=True, least=2.0)
    y = AxisScale.around([v for _, v in places] + [1.0], log=True, least=2.0)
    drawing = SvgChart(x, y, "gradients, output to input (mean square)", "1 + γ")
    edge = 1 + f.data_gamma
    steps = np.geomspace(x.low, x.high, 60)
    below = [(g, edge / g) for g in steps if y.low <= edge / g <= y.high]
    drawing.line(below, GREY, dash="4 4", name="nothing lies below")
    groups = _near(places, drawing)
    for together in groups:
        here, told = 0 in together, "; ".join(marks[k].name for k in together)
        drawing.dot(*places[together[0]], colour=BLUE if here else GREEN, name=told, size=6 if here else 4.5)
    for together in groups:
        drawing.named(*places[together[0]], ", ".join("here" if k == 0 else marks[k].name for k in together))
    said = "Green dots are the changes in the table. Only centring the head can go below the dashed line."
    return _panel("Bias against gradients", drawing.svg(said) + f"<p>{said}</p>")


def _near(places: Sequence[tuple[float, float]], drawing: SvgChart) -> list[list[int]]:
    """Marks that would cover each other, as one."""
    found: list[list[int]] = []
    for k, place in enumerate(places):
        at = drawing.at(*place)
        for group in found:
            if math.dist(at, drawing.at(*places[group[0]])) < 14:
                group.append(k)
                break
        else:
            found.append([k])
    return found


def _absorption(seen: ExploredNetwork) -> str:
    title = "How long the bias lasts"
    if seen.absorption is None:
        return _unknown(title, seen.why["absorption"])
    found, lr = seen.absorption, seen.choice.lr
    where = f"random inputs of {spaced(DIMENSION)} components, layers of {spaced(WIDTH)}."
    where = f"Full-batch descent at a learning rate of {number(lr)}, {where}"
    if found.quantile(0.95) == 0.0:
        return _panel(title, f"<p>There is none to absorb: no class gets {percent(found.level)} at the start.</p>")
    median, slow = _steps(found.median), _steps(found.quantile(0.95))
    said = f"<b>{median}</b> in the median network, {slow} in all but the slowest twentieth."
    said = f"Until the largest share is below {percent(found.level)}: {said}"
    return _panel(title, f"<p>{said}</p><p class='fg-soft'>{where}</p>")


def _steps(count: float) -> str:
    if math.isinf(count):
        return "never"
    whole = math.ceil(count - 1e-9)
    return f"{spaced(whole)} step{'' if whole == 1 else 's'}"


_PUT_OFF = {"gradients": _gradients, "absorption": _absorption}


def rest(seen: ExploredNetwork, names: Sequence[str]) -> str:
    """The parts that the live ones did not wait for."""
    return "".join(_PUT_OFF[name](seen) for name in names)


def _remedies(seen: ExploredNetwork) -> str:
    f = seen.frontier
    if f is None:
        return ""
    classes = seen.prediction.network.classes
    rows: list[tuple[str, ...]] = []
    for m in (f.here, *f.remedies):
        share = percent(largest_share(max(m.gamma, 0.0), classes))
        rows.append((m.name, number(m.gamma), share, f"× {number(m.gradients)}"))
    notes = [f"{m.name}: {m.note}" for m in f.remedies if m.note]
    return _panel("What each change does", table("change|γ|largest share|gradients", rows, notes), wide=True)


def table(head: str, rows: Iterable[Sequence[str]], notes: Iterable[str]) -> str:
    """Rows under names that | parts, and sentences below them; no rows: only these."""
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    names = "".join(f"<th>{name}</th>" for name in head.split("|"))
    whole = f'<div class="fg-scroll"><table><tr>{names}</tr>{body}</table></div>' if body else ""
    return whole + "".join(f"<p class='fg-soft'>{escape(note)}</p>" for note in notes)


def phases(choice: Choice, diagram: PhaseDiagram, here: FixedPoint, rest: str = "") -> str:
    """Where the variances stand: colours are γ at depth, lines where gradients keep their size; `rest`: next to it."""
    if len(np.unique(np.round(diagram.gamma, 6))) == 1:  # of a ReLU: all of it is one colour
        value = number(float(diagram.gamma[0, 0]))
        one = f"<p>γ at large depth is {value} for all variances. Here: {escape(here.name)}.</p>"
        return f'{STYLE}<section id="fg-phases" class="fg-page">{_panel("Phases", one)}{rest}</section>'
    w, b = (AxisScale(float(v[0]), float(v[-1])) for v in (diagram.weight_vars, diagram.bias_vars))
    drawing = SvgChart(w, b, "weight variance", "bias variance")
    drawing.picture(_colours(diagram.gamma))
    for line in _level_lines(diagram):
        drawing.line(line, "#222222", name="gradients keep their size")
    drawing.dot(choice.weight_var, choice.bias_var, "here", "#111111", size=5.5)
    said = f"Here, at large depth: {here.name}."
    key = "Colour is γ at large depth, pale (even) to orange (deeply biased); on the line gradients keep their size."
    body = drawing.svg(said) + f"<p>{escape(said)}</p><p class=fg-soft>{key}</p>"
    return f'{STYLE}<section id="fg-phases" class="fg-page">{_panel("Phase diagram", body)}{rest}</section>'


def no_phases(why: str, rest: str = "") -> str:
    """What stands in place of the diagram; `rest`: next to it."""
    return f'{STYLE}<section id="fg-phases" class="fg-page">{_unknown("Phase diagram", why)}{rest}</section>'


def _colours(gamma: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> str:
    """A PNG, bias variances upwards: from pale blue at γ = 0 to orange from 10 on."""
    from PIL import Image

    with np.errstate(invalid="ignore"):  # ∞/∞
        part = np.nan_to_num(gamma / (1.0 + gamma), nan=1.0)[::-1, :, None]
    low, high = np.array([222.0, 235.0, 247.0]), np.array([213.0, 94.0, 0.0])
    pixels = np.clip(low + (high - low) * part**2, 0, 255).astype(np.uint8)
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "PNG")
    return base64.b64encode(stream.getvalue()).decode()


def _level_lines(diagram: PhaseDiagram) -> Sequence[list[tuple[float, float]]]:
    """Where χ passes 1, for each bias variance, by straight lines between grid points."""
    found: list[tuple[float, float]] = []
    for b, row in zip(diagram.bias_vars, diagram.chi, strict=True):
        with np.errstate(invalid="ignore", divide="ignore"):
            logs = np.log(row)
        for k in range(len(row) - 1):
            a, c = logs[k], logs[k + 1]
            if math.isfinite(a) and math.isfinite(c) and a < 0.0 <= c:
                w0, w1 = diagram.weight_vars[k], diagram.weight_vars[k + 1]
                found.append((float(w0 + (w1 - w0) * (-a) / (c - a)), float(b)))
                break
    return [found]
