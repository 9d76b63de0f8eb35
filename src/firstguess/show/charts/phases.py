"""The phase diagram: what depth does to correlation and gradients, over weight and bias variances."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, cast

import altair as alt
import numpy as np
from numpy.typing import NDArray

from firstguess.base.errors import InvalidInput
from firstguess.base.gaussian import Array
from firstguess.show.charts import theme
from firstguess.show.charts.theme import Entry, key
from firstguess.theory.phases.phase_diagram import phase_diagram

if TYPE_CHECKING:
    from firstguess.theory.phases.fixed_points import FixedPoint
    from firstguess.theory.phases.phase_diagram import PhaseDiagram
    from firstguess.theory.phases.transformer_phases import TransformerPhases

_WIDTH, _HEIGHT = 680, 440
# Both run through near-white in the middle and differ in lightness as well as hue: blue to orange, teal to purple.
_CORRELATION = ["#3B8BC4", "#86BADF", "#CCE2F0", "#FAF7F1", "#FAD9B2", "#F0AC6B", "#DD853F"]
_GRADIENTS = ["#3A9C90", "#80C4B8", "#C8E4DE", "#F8F6F8", "#E2D3E9", "#C2A1D0", "#9D72B5"]

Quantity = Literal["correlation", "gradients"]


@dataclass(frozen=True)
class _Border:
    """A line of the diagram: the weight variance at each bias variance, and what happens there, in words."""

    words: str
    weight_vars: Array
    bias_vars: Array
    dash: list[int]


def phase_diagram_chart(
    diagram: PhaseDiagram, *, color: Quantity | None = None, mark: FixedPoint | None = None, title: str | None = None
) -> theme.Chart:
    """A map of c* (or of χ) over weight and bias variances, with the lines that part its phases: theory.md §5.

    `color="correlation"` shows c*, the correlation that two inputs end up with in an infinitely deep network;
    `color="gradients"` the factor χ on the mean square of gradients per layer. None takes c*, unless it is the same
    nearly everywhere (ReLU: 1). The lines: where gradients keep their size, where the forward variance does (if
    elsewhere), and where c* = ½. `mark` is a network's own place, from `fg.fixed_point(…)`.
    """
    if not all(hasattr(diagram, name) for name in ("weight_vars", "bias_vars", "c", "chi", "edge")):
        hint = 'phase_diagram_chart(fg.phase_diagram("tanh"))'
        raise InvalidInput("a PhaseDiagram", got=type(diagram).__name__, where="phase_diagram_chart", hint=hint)
    if color not in (None, "correlation", "gradients"):
        expected = "color 'correlation' or 'gradients'"
        raise InvalidInput(expected, got=repr(color), where="phase_diagram_chart", hint="color=None")
    constant = float(np.ptp(diagram.c)) < 1e-9
    alike = float(np.mean(np.abs(diagram.c - np.median(diagram.c)) < 1e-9))
    shown: Quantity = color or ("gradients" if alike > 0.97 else "correlation")
    frame, borders = _Frame.of(diagram), _borders(diagram)
    marked = mark is not None and frame.holds(mark)
    layers = [_heat(diagram, shown, frame), *(layer for border in borders for layer in _line(border, frame))]
    layers += _names(diagram, mark if marked else None, frame)
    layers += _place(mark, frame) if mark is not None and marked else []
    layers += key([Entry(border.words, theme.INK, border.dash) for border in borders], width=_WIDTH)
    chart = theme.stacked(layers, _WIDTH, _HEIGHT)
    lines = _subtitle(diagram, constant, frame)
    if mark is not None:
        where = "Marked" if marked else "Outside the figure"
        lines.append(f"{where}: {_own(mark)} ({mark.name}).")
    return theme.house(chart, title or _title(diagram, constant), lines)


@dataclass(frozen=True)
class _Frame:
    """The area of the diagram: cells around grid points, and pixels."""

    x: Array  # edges of the cells, ascending
    y: Array
    columns: list[int]  # grid indices in ascending order
    rows: list[int]

    @classmethod
    def of(cls, diagram: PhaseDiagram) -> _Frame:
        columns, rows = np.argsort(diagram.weight_vars).tolist(), np.argsort(diagram.bias_vars).tolist()
        return cls(_edges(diagram.weight_vars[columns]), _edges(diagram.bias_vars[rows]), columns, rows)

    def holds(self, point: FixedPoint) -> bool:
        return bool(self.x[0] <= point.weight_var <= self.x[-1] and self.y[0] <= point.bias_var <= self.y[-1])

    def axes(self) -> dict[str, Any]:
        look: dict[str, Any] = {"grid": False, "domain": False, "ticks": True, "tickCount": 6}
        ends = ([float(edges[0]), float(edges[-1])] for edges in (self.x, self.y))
        x, y = (theme.axis(end, zero=False, **look) for end in ends)
        return {
            "x": alt.X("weight_var:Q", title="Weight variance σw² (times fan-in)", **x),
            "y": alt.Y("bias_var:Q", title="Bias variance σb²", **y),
        }


def _edges(values: Array) -> Array:
    """Edges of cells around ascending values: half-way between them, and not below 0."""
    if values.size == 1:
        half = max(0.05 * float(values[0]), 0.01)
        return np.array([max(0.0, values[0] - half), values[0] + half])
    middle = 0.5 * (values[1:] + values[:-1])
    first, last = 2 * values[0] - middle[0], 2 * values[-1] - middle[-1]
    return np.concatenate([[max(0.0, first)], middle, [last]])


def _heat(diagram: PhaseDiagram, shown: Quantity, frame: _Frame) -> alt.Chart:
    rows: list[dict[str, Any]] = []
    for j, row in enumerate(frame.rows):
        for i, column in enumerate(frame.columns):
            # a little overlap: no seams between cells
            right = frame.x[i + 1] + 0.15 * (frame.x[i + 1] - frame.x[i]) * (i + 1 < len(frame.columns))
            upper = frame.y[j + 1] + 0.15 * (frame.y[j + 1] - frame.y[j]) * (j + 1 < len(frame.rows))
            cell = {"x": frame.x[i], "x2": right, "y": frame.y[j], "y2": upper, "c": diagram.c[row, column]}
            cell |= {"weight_var": diagram.weight_vars[column], "bias_var": diagram.bias_vars[row]}
            numbers = {name: float(value) for name, value in (cell | {"chi": diagram.chi[row, column]}).items()}
            words = theme.number(float(diagram.gamma[row, column])), str(diagram.names[row, column])
            rows.append({**numbers, "gamma": words[0], "phase": words[1]})
    if shown == "correlation":
        field, title = "c:Q", ["Correlation c* of two inputs", "after infinitely many layers"]
        ends: Any = {"domain": np.linspace(0, 1, 7).tolist(), "range": _CORRELATION}
        ticks, words = [0, 0.25, 0.5, 0.75, 1], "datum.value == 0.5 ? '½' : format(datum.value, '~')"
    else:
        finite = diagram.chi[(diagram.chi > 0) & np.isfinite(diagram.chi)]
        # even to both sides of 1, up to a factor of 4: beyond, gradients are lost within a few layers anyway
        reach = min(4.0, max(1.25, *(float(v) for v in (finite.max(), 1 / finite.min()))) if finite.size else 4.0)
        stops = np.exp(np.linspace(-math.log(reach), math.log(reach), 7)).tolist()
        ticks = [stops[0], 1 / math.sqrt(reach), 1.0, math.sqrt(reach), stops[-1]]
        field, title = "chi:Q", ["Change χ of gradients'", "mean square per layer"]
        ends = {"type": "log", "domain": stops, "range": _GRADIENTS}
        words = "'× ' + format(datum.value, '.2~f')"
    look: Any = {"titlePadding": 12, "labelFontSize": 14, "labelOffset": 8, "offset": 24}
    look |= {"orient": "right", "gradientLength": 260, "gradientThickness": 16}
    legend = alt.Legend(values=ticks, labelExpr=words, **look)
    color = alt.Color(field, title=title, scale=alt.Scale(clamp=True, interpolate="rgb", **ends), legend=legend)
    tooltip = theme.tooltip(
        "phase", "weight_var|weight variance|.4~g", "bias_var|bias variance|.4~g", "c|correlation c*|.4~g",
        "gamma|drift ratio γ", "chi|gradients χ|.4~g",
    )  # fmt: skip
    axes = frame.axes()
    where = {"x": axes["x"].copy(), "y": axes["y"].copy()}
    where["x"].shorthand, where["y"].shorthand = "x:Q", "y:Q"
    return theme.chart(rows, **where, x2="x2:Q", y2="y2:Q", color=color, tooltip=tooltip).mark_rect(clip=True)


def _borders(diagram: PhaseDiagram) -> list[_Border]:
    lines = (diagram.bias_vars, diagram.edge, diagram.variance_edge, diagram.neutrality)
    at, edge, variance, neutrality = (np.concatenate(both) for both in zip(lines, diagram.fine, strict=True))
    order = np.argsort(at)
    at, edge, variance, neutrality = at[order], edge[order], variance[order], neutrality[order]
    same = bool(np.allclose(edge, variance, rtol=1e-9, atol=0))
    words = f"gradients {'and variance ' * same}keep their size (edge of chaos)"
    borders = [_Border(words, edge, at, [1, 0])]
    borders += [] if same else [_Border("variance keeps its size", variance, at, [8, 5])]
    borders.append(_Border("neutrality: c* = ½", neutrality, at, [2, 4]))
    return [border for border in borders if np.isfinite(border.weight_vars).any()]


def _points(border: _Border, frame: _Frame) -> list[tuple[float, float]]:
    """(weight variance, bias variance) along a line, upward."""
    both = zip(border.weight_vars.tolist(), border.bias_vars.tolist(), strict=True)
    points = [(w, b) for w, b in both if math.isfinite(w)]
    if len({round(w, 12) for w, _ in points}) == 1:  # straight up: to the ends of the frame
        points = [(points[0][0], float(frame.y[0])), *points, (points[0][0], float(frame.y[-1]))]
    return points


def _line(border: _Border, frame: _Frame) -> list[alt.Chart]:
    rows = [
        {"weight_var": w, "bias_var": b, "order": k, "line": border.words}
        for k, (w, b) in enumerate(_points(border, frame))
    ]
    base = theme.chart(rows, **frame.axes(), order="order:Q", tooltip=alt.Tooltip("line:N", title=""))
    return [
        base.mark_line(color="white", strokeWidth=5.5, opacity=0.75, clip=True),
        base.mark_line(color=theme.INK, strokeWidth=2.5, strokeDash=border.dash, clip=True),
    ]


def _own(mark: FixedPoint) -> str:
    return f"σw² {theme.number(mark.weight_var)}, σb² {theme.number(mark.bias_var)}"


def _place(mark: FixedPoint, frame: _Frame) -> list[alt.Chart]:
    """A network's own place with its variances, towards the middle of the figure."""
    row = {"weight_var": mark.weight_var, "bias_var": mark.bias_var, "text": _own(mark)}
    base = theme.chart([row], **frame.axes())
    dot: Any = {"filled": True, "size": 150, "opacity": 1, "color": theme.INK, "stroke": "white", "strokeWidth": 2}
    left = mark.weight_var < (frame.x[0] + frame.x[-1]) / 2
    up = 1 if mark.bias_var < (frame.y[0] + frame.y[-1]) / 2 else -1
    style: Any = {"align": "left" if left else "right", "dx": 11 if left else -11, "dy": -14 * up, "fontWeight": "bold"}
    return [base.mark_point(**dot), *theme.halo(base.encode(text="text:N"), **style, baseline="middle", fontSize=15)]


def _names(diagram: PhaseDiagram, mark: FixedPoint | None, frame: _Frame) -> list[alt.Chart]:
    """The phases' names, each in a wide place of its region; none where there is no room."""
    names = diagram.names[np.ix_(frame.rows, frame.columns)]
    free = np.ones(names.shape, dtype=bool)
    if mark is not None:
        row = int(np.searchsorted(frame.y, mark.bias_var)) - 1
        free[max(row, 0), max(int(np.searchsorted(frame.x, mark.weight_var)) - 1, 0)] = False
    layers: list[alt.Chart] = []
    for name in np.unique(names):
        for width in (24, 13):
            words = theme.wrapped(str(name), width, 4)
            place = _room((names == name) & free, words, frame)
            if place is None:
                continue
            text = theme.chart([{**place, "text": "\n".join(words)}], **frame.axes(), text="text:N")
            look: Any = {"lineBreak": "\n", "lineHeight": 19, "dy": -9.5 * (len(words) - 1), "baseline": "middle"}
            layers += theme.halo(text, **look, fontSize=15, fontWeight="bold")
            break
    return layers


def _room(region: NDArray[np.bool_], words: Sequence[str], frame: _Frame) -> dict[str, float] | None:
    """The place nearest to the middle of the figure in which a text fits into a region."""
    from scipy import ndimage

    wide, high = max(len(w) for w in words) * 8.2 + 16, 19.0 * len(words) + 10
    many, few = region.shape
    # Distances to the border, in units of the text's width and height: it needs a half of each.
    steps = (_HEIGHT / many / high, _WIDTH / few / wide)
    depth = cast("Array", ndimage.distance_transform_edt(np.pad(region, 1), steps))[1:-1, 1:-1]
    fits = [(-round(float(min(depth[j, i], 1.0)), 1), math.hypot(j / many - 0.5, i / few - 0.5), i, j)
            for j, i in np.argwhere(depth >= 0.5).tolist()]  # fmt: skip
    if not fits:
        return None
    *_, i, j = min(fits)
    return {"weight_var": float(frame.x[i : i + 2].mean()), "bias_var": float(frame.y[j : j + 2].mean())}


def _title(diagram: PhaseDiagram, constant: bool) -> str:
    if constant and diagram.c.flat[0] > 1 - 1e-9:
        return f"Deep networks of {diagram.block} end deeply biased at every variance"
    regimes = [word for word in ("neutral", "biased", "deeply biased") if np.any(diagram.regime == word)]
    ends = " or ".join([", ".join(regimes[:-1]), regimes[-1]] if len(regimes) > 1 else regimes)
    return f"Deep networks of {diagram.block} end {ends}"


def _subtitle(diagram: PhaseDiagram, constant: bool, frame: _Frame) -> list[str]:
    lines = ["Untrained networks of infinite width and depth. Ordered: gradients vanish; chaotic: they explode."]
    if constant:
        value = float(diagram.c.flat[0])
        lines.append(f"All inputs end up with correlation c* = {theme.number(value)} everywhere: no neutrality line.")
    edge = diagram.edge[np.isfinite(diagram.edge)]
    if edge.size and (edge.min() > frame.x[-1] or edge.max() < frame.x[0]):
        lines.append(f"The edge of chaos is outside: weight variance {theme.number(float(edge.min()))} and above.")
    both = np.any(diagram.phase == "ordered", axis=1) & np.any(diagram.phase == "chaotic", axis=1)
    if edge.size and np.any(both & ~np.isfinite(diagram.edge)):
        lines.append("Where the line of the edge ends, gradients go from vanishing to exploding in a jump.")
    return lines


_CELLS = 40  # along each axis


def fixed_point_chart(point: FixedPoint, *, title: str | None = None) -> theme.Chart:
    """The place of a network in the phase diagram of its block."""
    wide, high = max(4.0, 1.25 * point.weight_var), max(0.5, 1.25 * point.bias_var)
    weight_vars = np.linspace(wide / _CELLS, wide, _CELLS)
    diagram = phase_diagram(point.block, weight_vars=weight_vars, bias_vars=np.linspace(0.0, high, _CELLS))
    return phase_diagram_chart(diagram, mark=point, title=title)


_SHOWN = {  # what a colour stands for: words, its ends, and the format of its values
    "similarity": ("Correlation of two tokens of a sequence", [0.0, 1.0], ".2~f"),
    "entropy": ("Entropy of attention weights, by that of even ones", [1.0, 0.0], ".2~f"),
    "gamma": ("Drift ratio γ of a token", None, ".3~g"),
    "gradients": ("Gradients' mean square, change per block", None, ".3~g"),
}


def transformer_phases_chart(
    diagram: TransformerPhases, *, color: str = "similarity", title: str | None = None
) -> theme.Chart:
    """A map over the strength of attention logits and of residuals, on logarithmic axes; each square names its value.

    Framed: β ≥ √(2 ln T) in the last block, where attention condenses on few tokens in the random energy model.
    """
    words, ends, form = _SHOWN[color]
    values = np.asarray(getattr(diagram, color))
    rows: list[dict[str, Any]] = [
        {"strength": f"{x:.2g}", "residual": f"{a:.2g}", "value": v if math.isfinite(v) else None,
         "text": format(v, ".2g" if ends else ".3g"), "phase": str(diagram.phase[i, j]),
         "beta": float(diagram.beta[i, j]), "limit": float(diagram.energy_entropy[i, j]),
         "entropy": float(diagram.entropy[i, j])}
        for i, a in enumerate(diagram.residuals) for j, x in enumerate(diagram.strengths)
        for v in [float(values[i, j])]
    ]  # fmt: skip
    look: Any = {"axis": alt.Axis(grid=False, labelAngle=0)}
    x = alt.X("strength:N", sort=None, title="Strength of queries and keys, σ_Qσ_K", **look)
    sort = [f"{a:.2g}" for a in diagram.residuals[::-1]]
    y = alt.Y("residual:N", sort=sort, title="Strength of residuals, α", **look)
    kind: Any = {"domain": ends} if ends else {"type": "symlog"}
    scale = alt.Scale(range=_CORRELATION, interpolate="rgb", **kind)
    heat = alt.Color("value:Q", title=None, scale=scale, legend=alt.Legend(format=form))
    tooltip = theme.tooltip(
        "phase", "strength", "residual", f"value|{words}|.3~g", "beta|std of attention logits|.3~g",
        "entropy|entropy|.3f", "limit|its random-energy limit|.3f",
    )  # fmt: skip
    base = theme.chart(rows, x=x, y=y, tooltip=tooltip)
    condensed = base.transform_filter(f"datum.beta >= {diagram.condensed!r}")
    layers = [
        base.mark_rect().encode(color=heat),
        condensed.mark_rect(fillOpacity=0, stroke=theme.INK, strokeWidth=1.5),
        base.mark_text(fontSize=13, color=theme.INK).encode(text="text:N"),
    ]
    said = [
        f"{diagram.depth} blocks ({diagram.activation}), {diagram.length} tokens; {diagram.note}.",
        f"Framed: logits above √(2 ln T) = {diagram.condensed:.2f}, where attention condenses on few tokens.",
    ]
    return theme.house(theme.stacked(layers, _WIDTH, _HEIGHT - 60), title or words, said)
