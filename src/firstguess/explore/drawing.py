"""Small charts as SVG text, in a millisecond: they follow a slider. Figures for papers and talks are `fg.figures`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape

WIDTH, HEIGHT = 380, 250
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 14, 12, 40
BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#7a7a7a"


@dataclass(frozen=True)
class Scale:
    """Numbers onto pixels: straight, or by their logarithm."""

    low: float
    high: float
    log: bool = False

    @classmethod
    def around(cls, values: Iterable[float], *, log: bool = False, least: float = 1.0) -> Scale:
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
        """From 0 to 1, and no further."""
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


def short(value: float) -> str:
    """A number as an axis has it."""
    if value == 0.0 or 0.001 <= abs(value) < 10_000:
        return f"{value:.3g}"
    power = math.floor(math.log10(abs(value)) + 1e-9)
    front = value / 10.0**power
    raised = str(power).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"10{raised}" if abs(front - 1.0) < 1e-6 else f"{front:.2g}·10{raised}"


@dataclass
class Drawing:
    """A chart that is written down mark by mark; `svg` is all of it."""

    x: Scale
    y: Scale
    x_title: str
    y_title: str
    marks: list[str] = field(default_factory=list)

    def at(self, x: float, y: float) -> tuple[float, float]:
        """The pixel of a point."""
        return (
            _LEFT + (WIDTH - _LEFT - _RIGHT) * self.x(x),
            HEIGHT - _BOTTOM - (HEIGHT - _TOP - _BOTTOM) * self.y(y),
        )

    def line(
        self, points: Sequence[tuple[float, float]], colour: str = BLUE, *, dash: str = "", name: str = ""
    ) -> None:
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

    def dot(
        self, x: float, y: float, label: str = "", colour: str = BLUE, *, name: str = "", size: float = 4.5
    ) -> None:
        """A dot, with a number or a word in it or beside it."""
        px, py = self.at(x, y)
        said = f"<title>{escape(name)}</title>" if name else ""
        self.marks.append(f'<circle cx="{px:.1f}" cy="{py:.1f}" r="{size}" fill="{colour}">{said}</circle>')
        if label:
            left = px > WIDTH - 90
            self.words(px + (-8 if left else 8), py + 4, label, anchor="end" if left else "start")

    def bar(self, x: float, y: float, half: float, colour: str = BLUE, *, name: str = "") -> None:
        """From the bottom to y."""
        (left, top), (right, floor) = self.at(x - half, y), self.at(x + half, self.y.low)
        self.marks.append(
            f'<rect x="{left:.1f}" y="{top:.1f}" width="{right - left:.1f}" height="{max(floor - top, 0):.1f}" '
            f'fill="{colour}"><title>{escape(name)}</title></rect>'
        )

    def level(self, y: float, label: str = "", colour: str = GREY, *, left: bool = False) -> None:
        """A dashed line across, named at its right, or left."""
        _, py = self.at(self.x.low, y)
        self.marks.append(
            f'<line x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{py:.1f}" y2="{py:.1f}" stroke="{colour}" '
            'stroke-dasharray="3 4"/>'
        )
        if label:
            where, anchor = (_LEFT + 4, "start") if left else (WIDTH - _RIGHT - 2, "end")
            self.words(where, py - 4, label, anchor=anchor, colour=colour)

    def picture(self, png: str) -> None:
        """Colours behind everything: a PNG in base64 over the whole field."""
        self.marks.append(
            f'<image x="{_LEFT}" y="{_TOP}" width="{WIDTH - _LEFT - _RIGHT}" height="{HEIGHT - _TOP - _BOTTOM}" '
            f'preserveAspectRatio="none" href="data:image/png;base64,{png}"/>'
        )

    def words(self, px: float, py: float, text: str, *, anchor: str = "start", colour: str = "currentColor") -> None:
        """At a pixel."""
        where = f'x="{px:.1f}" y="{py:.1f}" font-size="12" text-anchor="{anchor}"'
        self.marks.append(f'<text {where} fill="{colour}">{escape(text)}</text>')

    def svg(self, label: str) -> str:
        """The chart; `label` is what a screen reader says of it."""
        axes = "".join(self._axes())
        return (
            f'<svg role="img" aria-label="{escape(label, quote=True)}" viewBox="0 0 {WIDTH} {HEIGHT}" '
            f'style="width:100%;height:auto;max-width:460px;display:block">{axes}{"".join(self.marks)}</svg>'
        )

    def _axes(self) -> Iterable[str]:
        faint = 'stroke="currentColor" stroke-opacity="0.15"'
        floor, right = HEIGHT - _BOTTOM, WIDTH - _RIGHT
        yield f'<line x1="{_LEFT}" x2="{right}" y1="{floor}" y2="{floor}" stroke="currentColor" stroke-opacity="0.5"/>'
        for value in self.y.ticks():
            _, py = self.at(self.x.low, value)
            yield f'<line x1="{_LEFT}" x2="{right}" y1="{py:.1f}" y2="{py:.1f}" {faint}/>'
            yield _text(_LEFT - 6, py + 4, short(value), "end")
        for value in self.x.ticks():
            px, _ = self.at(value, self.y.low)
            yield f'<line x1="{px:.1f}" x2="{px:.1f}" y1="{floor}" y2="{floor + 4}" stroke="currentColor"/>'
            yield _text(px, floor + 17, short(value), "middle")
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
