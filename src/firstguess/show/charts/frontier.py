"""The frontier: γ against gradients: where a network stands, what its knob reaches, where remedies lead."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import altair as alt

from firstguess.base.errors import InvalidInput
from firstguess.show.charts import marks, theme

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
        raise InvalidInput(
            "a Frontier", got=type(frontier).__name__, where="frontier_chart", hint="frontier_chart(fg.frontier(net))"
        )
    frame = _Frame.of(frontier)
    layers = [_never(frontier, frame), *_equal(frontier, frame)]
    layers += _knob(frontier.reached, frame)
    groups = _grouped(frontier, frame)
    layers += [arrow for group in groups for arrow in _arrow(frontier.here, group, frame)]
    layers += [point for group in groups for point in _point(group, frame)]
    layers += _labels(frontier, groups, frame)
    layers += marks.key(_entries(frontier))
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
        return alt.X(
            "g:Q",
            title="Gradients from output to input: factor on their mean square, for a signal of constant size",
            scale=alt.Scale(type="log", domain=[self.low, self.high], nice=False),
            axis=alt.Axis(values=values, labelExpr=words, grid=False),
        )

    @property
    def y(self) -> alt.Y:
        ticks = [1.0 + t for t in _TICKS if 1.0 + t <= self.top]
        return alt.Y(
            "y:Q",
            title="Bias: drift ratio γ of the output",
            scale=alt.Scale(type="log", domain=[1.0, self.top], nice=False),
            axis=alt.Axis(values=ticks, labelExpr="replace(format(datum.value - 1, ',.2~r'), /,/g, ' ')", grid=True),
        )


def _chart(rows: Sequence[theme.Row], frame: _Frame) -> alt.Chart:
    return alt.Chart(theme.data(rows)).encode(x=frame.x, y=frame.y)


def _never(f: Frontier, frame: _Frame) -> alt.Chart:
    """Below (1 + γ)·g = 1 + γ₀ there is no network: it would be less nonlinear than a linear one."""
    edge = frame.curve(1.0 + f.data_gamma)
    rows = [{"g": frame.low, "y": min(frame.top, (1.0 + f.data_gamma) / frame.low), "floor": 1.0}]
    rows += [row | {"floor": 1.0} for row in edge]
    area = alt.Chart(theme.data(rows)).mark_area(color=_NEVER, clip=True, opacity=1)
    return area.encode(x=frame.x, y=frame.y, y2="floor:Q")


def _equal(f: Frontier, frame: _Frame) -> list[alt.Chart]:
    """The boundary, and the line of this network's own nonlinearity with its name along it."""
    layers = [_chart(frame.curve(1.0 + f.data_gamma), frame).mark_line(color="#999999", strokeWidth=1.5, clip=True)]
    own = frame.curve(_own(f))
    if own:
        layers.append(_chart(own, frame).mark_line(color=_HERE, strokeDash=[7, 4], strokeWidth=2, clip=True))
    return layers


def _knob(reached: Sequence[FrontierPoint], frame: _Frame) -> list[alt.Chart]:
    """One line for each factor of gradients, a dot for each γ."""
    rows = [{"g": m.gradients, "y": 1.0 + m.gamma, "line": f"{m.gradients:.3g}", **_told(m)} for m in reached]
    if not rows:
        return []
    base = _chart(rows, frame)
    line = base.mark_line(color=_KNOB, strokeWidth=4, opacity=0.35, clip=True).encode(detail="line:N")
    dots = base.mark_point(filled=True, color=_KNOB, size=110, opacity=1, stroke="white", strokeWidth=1.5, clip=True)
    return [line, dots.encode(tooltip=_TOOLTIP)]


_TOOLTIP = [
    alt.Tooltip("name:N", title="network"),
    alt.Tooltip("gamma:N", title="γ"),
    alt.Tooltip("gradients:N", title="gradients"),
    alt.Tooltip("nonlinearity:N", title="nonlinearity P"),
    alt.Tooltip("note:N", title=" "),
]


def _told(m: FrontierPoint) -> dict[str, str]:
    return {
        "name": m.name,
        "gamma": theme.number(m.gamma),
        "gradients": f"× {theme.number(m.gradients)}",
        "nonlinearity": theme.number(m.nonlinearity),
        "note": m.note,
    }


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


def _arrow(here: FrontierPoint, group: _Group, frame: _Frame) -> list[alt.Chart]:
    """A line that ends short of the mark, and its head."""
    x0, y0 = frame.pixel(here.gradients, here.gamma)
    x1, y1 = group.at
    long = math.hypot(x1 - x0, y1 - y0)
    if long < 40:
        return []
    ux, uy = (x1 - x0) / long, (y1 - y0) / long
    start, tip = (x0 + 14 * ux, y0 + 14 * uy), (x1 - 14 * ux, y1 - 14 * uy)
    dash = [4, 4] if group.head else [1, 0]
    line = alt.Chart(theme.data([{}])).mark_rule(color=_REMEDY, strokeWidth=1.8, strokeDash=dash)
    turn = math.degrees(math.atan2(ux, -uy))
    head = alt.Chart(theme.data([{}])).mark_point(
        shape="triangle-up", filled=True, color=_REMEDY, size=70, opacity=1, angle=turn % 360
    )
    return [
        line.encode(x=alt.value(start[0]), y=alt.value(start[1]), x2=alt.value(tip[0]), y2=alt.value(tip[1])),
        head.encode(x=alt.value(tip[0]), y=alt.value(tip[1])),
    ]


def _point(group: _Group, frame: _Frame) -> list[alt.Chart]:
    first = group.marks[0]
    rows = [{"g": first.gradients, "y": 1.0 + first.gamma, **_told(first), "name": group.name}]
    colours = {"fill": "white", "stroke": _REMEDY} if group.head else {"fill": _REMEDY, "stroke": "white"}
    look: Any = {"shape": "diamond", "size": 170, "opacity": 1, "strokeWidth": 2, **colours}
    return [_chart(rows, frame).mark_point(filled=True, **look).encode(tooltip=_TOOLTIP)]


# -- Names ---------------------------------------------------------------------------------------------------------


def _labels(f: Frontier, groups: Sequence[_Group], frame: _Frame) -> list[alt.Chart]:
    """Every name beside its mark, where no other name is yet."""
    here = frame.pixel(f.here.gradients, f.here.gamma)
    point = alt.Chart(theme.data([{"g": f.here.gradients, "y": 1.0 + f.here.gamma, **_told(f.here)}]))
    dot = point.mark_point(filled=True, color=_HERE, size=330, opacity=1, stroke="white", strokeWidth=2)
    layers = [dot.encode(x=frame.x, y=frame.y, tooltip=_TOOLTIP)]
    dots = [frame.pixel(m.gradients, m.gamma) for m in f.reached]
    taken = [_box(at, 8) for at in (here, *dots, *(g.at for g in groups))]
    lines = [_box(at, 4) for group in groups for at in _between(here, group.at)]
    lines += [_box(frame.pixel(row["g"], row["y"] - 1.0), 4) for row in frame.curve(_own(f))]
    own = f"this network: γ {theme.number(f.here.gamma)}, P {theme.number(f.here.nonlinearity)}"
    for text, at, colour, weight in (
        (own, here, _HERE, "bold"),
        *((m.name, at, _KNOB, "normal") for m, at in zip(f.reached, dots, strict=True) if _near_one(m)),
        *((_named(group, here), group.at, "#00714F", "normal") for group in groups),
    ):
        text = text.replace("-", "−")
        if colour == _KNOB:  # close by, or left to the tooltip: there are many
            place = _free(text, at, taken, tries=2)
        else:
            place = _free(text, at, [*taken, *lines]) or _free(text, at, taken)
        if place is None:
            continue
        x, y, align = place
        taken.append(_text_box(text, x, y, align))
        word = alt.Chart(theme.data([{"text": text}])).encode(x=alt.value(x), y=alt.value(y), text="text:N")
        layers += theme.halo(word, align=align, baseline="middle", color=colour, fontSize=14, fontWeight=weight)
    layers += _zone(f, frame, taken)
    return layers


def _named(group: _Group, here: tuple[float, float]) -> str:
    return f"{group.name}: no change" if math.dist(group.at, here) < _NEAR else group.name


def _between(a: tuple[float, float], b: tuple[float, float]) -> list[tuple[float, float]]:
    """Points along a line, a dozen pixels apart, without its ends."""
    steps = int(math.dist(a, b) / 12)
    return [(a[0] + (b[0] - a[0]) * k / steps, a[1] + (b[1] - a[1]) * k / steps) for k in range(1, steps)]


def _own(f: Frontier) -> float:
    """(1 + γ)·g of this network's line."""
    return (1.0 + f.data_gamma) * f.here.nonlinearity


def _near_one(m: FrontierPoint) -> bool:
    """Names for the knob at constant gradients only: there are as many again at each other factor."""
    return 0.9 < m.gradients < 1.1


_Box = tuple[float, float, float, float]


def _box(at: tuple[float, float], half: float) -> _Box:
    return at[0] - half, at[1] - half, at[0] + half, at[1] + half


def _text_box(text: str, x: float, y: float, align: str) -> _Box:
    long = theme.text_width(text)
    left = x if align == "left" else x - long if align == "right" else x - long / 2
    return left, y - 9, left + long, y + 9


def _free(
    text: str, at: tuple[float, float], taken: Sequence[_Box], *, tries: int = 99
) -> tuple[float, float, str] | None:
    """A place beside the mark: right, left, above, below; None: all are taken."""
    x, y = at
    places = [(x + 15, y, "left"), (x - 15, y, "right"), (x + 10, y - 18, "left"), (x - 10, y - 18, "right")]
    places += [(x, y - 20, "center"), (x, y + 20, "center"), (x + 10, y + 18, "left"), (x - 10, y + 18, "right")]
    places += [(x, y - 38, "center"), (x + 12, y - 34, "left"), (x - 12, y - 34, "right")]
    for px, py, align in places[:tries]:
        box = _text_box(text, px, py, align)
        inside = box[0] > 2 and box[2] < _WIDTH - 2 and box[1] > -4 and box[3] < _HEIGHT + 2
        if inside and not any(_cross(box, other) for other in taken):
            return px, py, align
    return None


def _cross(a: _Box, b: _Box) -> bool:
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


def _zone(f: Frontier, frame: _Frame, taken: Sequence[_Box]) -> list[alt.Chart]:
    """What the grey corner is, in as many words as there is room for."""
    full = ["no network here, unless", "its head is moved:", "vanishing gradients", "force bias"]
    for lines, lift in ((full, 14.0), (full, 50.0), (["no network", "here"], 14.0), (["no network", "here"], 50.0)):
        places = [(text, 12.0, _HEIGHT - lift - 19 * (len(lines) - 1 - k)) for k, text in enumerate(lines)]
        if all(_in_zone(text, x, y, f, frame, taken) for text, x, y in places):
            mark: Any = {"align": "left", "color": theme.SOFT, "fontSize": 13}
            return [
                alt.Chart(theme.data([{"text": text}]))
                .mark_text(**mark)
                .encode(x=alt.value(x), y=alt.value(y), text="text:N")
                for text, x, y in places
            ]
    return []


def _in_zone(text: str, x: float, y: float, f: Frontier, frame: _Frame, taken: Sequence[_Box]) -> bool:
    """Whether the upper right corner of a text is in the grey, and the text over nothing else."""
    g = frame.low * math.exp((x + theme.text_width(text)) / _WIDTH * math.log(frame.high / frame.low))
    gamma = frame.top ** (1.0 - (y - 9) / _HEIGHT) - 1.0
    inside = (1.0 + gamma) * g <= 1.0 + f.data_gamma
    return inside and not any(_cross(_text_box(text, x, y, "left"), other) for other in taken)


def _entries(f: Frontier) -> list[marks.Entry]:
    found = [marks.Entry("as nonlinear as this network", _HERE, dash=(7, 4))]
    if f.reached:
        found.append(marks.Entry(f"tuned: {f.knob.replace('_', ' ')}", _KNOB, shape="circle"))
    found.append(marks.Entry("remedy", _REMEDY, shape="diamond"))
    return [*found, marks.Entry("first guesses only", _REMEDY, shape="diamond", filled=False)]


def _title(f: Frontier) -> str:
    even = [m for m in f.remedies if m.gamma < 0.05 and not m.note]
    costs = f"; even guesses cost gradients × {theme.number(min(even, key=_cost).gradients)}" if even else ""
    tuned = min((m for m in f.reached if _near_one(m)), key=lambda m: abs(math.log(m.gamma / 0.5)), default=None)
    if tuned is None:
        return f"γ {theme.number(f.here.gamma)} at {f.depth} hidden layers{costs}"
    kept = f"{tuned.name} has γ {theme.number(tuned.gamma)} at constant gradients"
    return f"{f.depth} hidden layers, γ {theme.number(f.here.gamma)}: {kept}{costs}"


def _cost(m: FrontierPoint) -> float:
    return abs(math.log(m.gradients))


def _subtitle(f: Frontier) -> list[str]:
    data = f" The data's own γ is {theme.number(f.data_gamma)}." if f.data_gamma > 1e-3 else ""
    return [
        theme.shortened(str(f.network), 108),
        f"(1 + γ)·g = P: on a falling line networks are equally nonlinear, P = 1 is linear.{data} "
        "Closed form, wide layers. Tuning makes depth harmless, not useful.",
    ]
