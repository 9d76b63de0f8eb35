"""The frontier: γ against gradients: where a network stands, what its knob reaches, where remedies lead."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import altair as alt

from firstguess.base.errors import InvalidInput
from firstguess.show.charts import theme

if TYPE_CHECKING:
    from firstguess.theory.frontier import Frontier, FrontierPoint

_WIDTH, _HEIGHT = 720, 470
_LINES = 60  # points of a curve
_HERE, _KNOB, _REMEDY, _NEVER = theme.PALETTE[1], theme.PALETTE[0], theme.PALETTE[2], "#EFEFEC"
_TICKS = (0, 0.1, 0.5, 1, 3, 10, 30, 100, 1000, 10_000)
_NEAR = 16.0  # pixels between marks that share a name


def frontier_chart(frontier: Frontier, *, title: str | None = None) -> theme.Chart:
    """γ (as 1 + γ, logarithmic) against the gradients' factor: lines of equal nonlinearity fall from left to right.

    Grey: where no network can be. Dashed: all networks as nonlinear as this one. Blue: what the knob reaches. An arrow
    leads from the network to what each remedy makes of it.
    """
    if not hasattr(frontier, "reached"):
        hint = "frontier_chart(fg.frontier(net))"
        raise InvalidInput("a Frontier", got=type(frontier).__name__, where="frontier_chart", hint=hint)
    frame = _Frame.of(frontier)
    layers = [_never(frontier, frame), *_equal(frontier, frame)]
    layers += _knob(frontier.reached, frame)
    layers += _remedies(frontier, _grouped(frontier, frame), frame)
    here = _chart([_row(frontier.here)], frame).encode(tooltip=_TOOLTIP)
    layers.append(here.mark_point(filled=True, color=_HERE, size=330, opacity=1, stroke="white", strokeWidth=2))
    layers += theme.key(_entries(frontier))
    chart = theme.stacked(layers, _WIDTH, _HEIGHT)
    return theme.house(chart, title or _title(frontier), _subtitle(frontier))


@dataclass(frozen=True)
class _Frame:
    """The axes: gradients from `low` to `high`, 1 + γ from 1 to `top`, both logarithmic."""

    low: float
    high: float
    top: float

    @classmethod
    def of(cls, f: Frontier) -> _Frame:
        marks = [m for m in (f.here, *f.remedies, *f.reached) if math.isfinite(m.gamma) and m.gradients > 0]
        gradients = [m.gradients for m in marks]
        wide = max(10.0, (max(gradients) / min(gradients)) ** 0.12)  # room for names at the sides
        top = max(10.0, *(1.0 + m.gamma for m in marks))
        return cls(min(gradients) / wide, max(gradients) * wide, top**1.12)

    def pixel(self, gradients: float, gamma: float) -> tuple[float, float]:
        across = math.log(gradients / self.low) / math.log(self.high / self.low)
        return _WIDTH * across, _HEIGHT * (1.0 - math.log(1.0 + gamma) / math.log(self.top))

    def curve(self, constant: float) -> list[dict[str, float]]:
        """(1 + γ)·g = constant, as far as it is inside."""
        from_, to = max(self.low, constant / self.top), min(self.high, constant)
        if not from_ < to:
            return []
        step = math.log(to / from_) / _LINES
        return [{"g": g, "y": constant / g} for g in (from_ * math.exp(step * k) for k in range(_LINES + 1))]

    @property
    def x(self) -> alt.X:
        decades = range(math.ceil(math.log10(self.low)), math.floor(math.log10(self.high)) + 1)
        every = max(1, math.ceil(len(decades) / 8))
        values = [10.0**k for k in decades if k % every == 0]
        plain = "datum.value >= 0.001 && datum.value <= 10000"
        words = f"'× ' + ({plain} ? replace(format(datum.value, ',~g'), ',', ' ') : format(datum.value, '.0e'))"
        look = theme.axis([self.low, self.high], type="log", values=values, labelExpr=words, grid=False)
        title = "Gradients from output to input: factor on their mean square, for a signal of constant size"
        return alt.X("g:Q", title=title, **look)

    @property
    def y(self) -> alt.Y:
        ticks = [1.0 + t for t in _TICKS if 1.0 + t <= self.top]
        words = "replace(format(datum.value - 1, ',.2~r'), /,/g, ' ')"
        look = theme.axis([1.0, self.top], type="log", values=ticks, labelExpr=words, grid=True)
        return alt.Y("y:Q", title="Bias: drift ratio γ of the output", **look)


def _chart(rows: Sequence[theme.Row], frame: _Frame) -> alt.Chart:
    return theme.chart(rows, x=frame.x, y=frame.y)


def _never(f: Frontier, frame: _Frame) -> alt.Chart:
    """Below (1 + γ)·g = 1 + γ₀ there is no network: it would be less nonlinear than a linear one."""
    edge = frame.curve(1.0 + f.data_gamma)
    rows = [{"g": frame.low, "y": min(frame.top, (1.0 + f.data_gamma) / frame.low), "floor": 1.0}]
    rows += [row | {"floor": 1.0} for row in edge]
    area = theme.chart(rows).mark_area(color=_NEVER, clip=True, opacity=1)
    return area.encode(x=frame.x, y=frame.y, y2="floor:Q")


def _equal(f: Frontier, frame: _Frame) -> list[alt.Chart]:
    """The boundary, and the line of this network's own nonlinearity with its name along it."""
    layers = [_chart(frame.curve(1.0 + f.data_gamma), frame).mark_line(color="#999999", strokeWidth=1.5, clip=True)]
    own = frame.curve((1.0 + f.data_gamma) * f.here.nonlinearity)
    if own:
        layers.append(_chart(own, frame).mark_line(color=_HERE, strokeDash=[7, 4], strokeWidth=2, clip=True))
    return layers


_TOOLTIP = theme.tooltip("name|network", "gamma|γ", "gradients", "nonlinearity|nonlinearity P", "note| ")


def _row(m: FrontierPoint) -> dict[str, Any]:
    words = {"gamma": theme.number(m.gamma), "gradients": f"× {theme.number(m.gradients)}", "note": m.note}
    words |= {"name": m.name.replace("-", "−"), "nonlinearity": theme.number(m.nonlinearity)}
    return {"g": m.gradients, "y": 1.0 + m.gamma, **words}


def _knob(reached: Sequence[FrontierPoint], frame: _Frame) -> list[alt.Chart]:
    """One line for each factor of gradients, a dot for each γ; names at constant gradients, where they have room."""
    if not reached:
        return []
    base = _chart([{**_row(m), "line": f"{m.gradients:.3g}"} for m in reached], frame)
    line = base.mark_line(color=_KNOB, strokeWidth=4, opacity=0.35, clip=True).encode(detail="line:N")
    dots = base.mark_point(filled=True, color=_KNOB, size=110, opacity=1, stroke="white", strokeWidth=1.5, clip=True)
    named: list[dict[str, Any]] = []
    last = math.inf
    for m in sorted(filter(_near_one, reached), key=lambda m: m.gamma):
        at = frame.pixel(m.gradients, m.gamma)[1]
        if last - at > _NEAR:
            named.append(_row(m))
            last = at
    words = _chart(named, frame).encode(text="name:N")
    return [line, dots.encode(tooltip=_TOOLTIP), *theme.halo(words, align="left", dx=12, color=_KNOB)]


@dataclass(frozen=True)
class _Group:
    """Marks that lie in one place."""

    marks: tuple[FrontierPoint, ...]
    at: tuple[float, float]

    @property
    def name(self) -> str:
        return ", ".join(m.name for m in self.marks)

    @property
    def head(self) -> bool:
        """A head that was centred leaves the curve: it is drawn hollow."""
        return all(m.note for m in self.marks)


def _grouped(f: Frontier, frame: _Frame) -> list[_Group]:
    found: list[_Group] = []
    for mark in f.remedies:
        at = frame.pixel(mark.gradients, mark.gamma)
        near = next((g for g in found if math.dist(g.at, at) < _NEAR and bool(mark.note) == g.head), None)
        if near is None:
            found.append(_Group((mark,), at))
        else:
            found[found.index(near)] = _Group((*near.marks, mark), near.at)
    return found


def _remedies(f: Frontier, groups: Sequence[_Group], frame: _Frame) -> list[alt.Chart]:
    """A line from the network to each place that remedies lead to, numbered; their names next to the figure."""
    layers: list[alt.Chart] = []
    here = frame.pixel(f.here.gradients, f.here.gamma)
    for number, group in enumerate(groups, start=1):
        first = group.marks[0]
        same = math.dist(group.at, here) < _NEAR
        line = _chart([{**_row(first), "to g": f.here.gradients, "to": 1.0 + f.here.gamma}], frame)
        dash = [4, 4] if group.head else [1, 0]
        line = line.mark_rule(color=_REMEDY, strokeWidth=1.8, strokeDash=dash).encode(x2="to g:Q", y2="to:Q")
        layers += [] if same else [line]
        spot = _chart([{**_row(first), "name": group.name, "number": str(number)}], frame).encode(tooltip=_TOOLTIP)
        x = alt.value(_WIDTH + 26)
        beside = theme.chart([{"number": str(number)}], x=x, y=alt.value(44 * number))
        layers += theme.numbered(beside, _REMEDY, hollow=group.head)
        layers += theme.numbered(spot.encode(yOffset=alt.value(-24 if same else 0)), _REMEDY, hollow=group.head)
        text = "\n".join(theme.wrapped(group.name, 30, 2)) + ": no change" * same
        layers.append(theme.text_at(text, _WIDTH + 44, 44 * number))
    return layers


def _near_one(m: FrontierPoint) -> bool:
    """Names for the knob at constant gradients only: there are as many again at each other factor."""
    return 0.9 < m.gradients < 1.1


def _entries(f: Frontier) -> list[theme.Entry]:
    own = f"this network: γ {theme.number(f.here.gamma)}, P {theme.number(f.here.nonlinearity)}"
    found = [theme.Entry(own, _HERE, shape="circle"), theme.Entry("as nonlinear as this network", _HERE, dash=(7, 4))]
    if f.reached:
        found.append(theme.Entry(f"tuned: {f.knob.replace('_', ' ')}", _KNOB, shape="circle"))
    found += [theme.Entry("remedy", _REMEDY, shape="circle")]
    found += [theme.Entry("first guesses only", _REMEDY, shape="circle", filled=False)]
    return [*found, theme.Entry("no network, unless its head is moved", _NEVER, shape="square")]


def _title(f: Frontier) -> str:
    even = [m for m in f.remedies if m.gamma < 0.05 and not m.note]
    cheapest = min((m.gradients for m in even), key=lambda g: abs(math.log(g)), default=1.0)
    costs = f"; even guesses cost gradients × {theme.number(cheapest)}" if even else ""
    tuned = min((m for m in f.reached if _near_one(m)), key=lambda m: abs(math.log(m.gamma / 0.5)), default=None)
    if tuned is None:
        return f"γ {theme.number(f.here.gamma)} at {f.depth} hidden layers{costs}"
    kept = f"{tuned.name} has γ {theme.number(tuned.gamma)} at constant gradients"
    return f"{f.depth} hidden layers, γ {theme.number(f.here.gamma)}: {kept}{costs}"


def _subtitle(f: Frontier) -> list[str]:
    data = f" The data's own γ is {theme.number(f.data_gamma)}." if f.data_gamma > 1e-3 else ""
    return [
        theme.shortened(str(f.network), 108),
        f"(1 + γ)·g = P: on a falling line networks are equally nonlinear, P = 1 is linear.{data} "
        "Closed form, wide layers. Tuned depth trains as well as few layers, not better.",
    ]
