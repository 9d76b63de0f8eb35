"""γ by depth: where in a network the bias arises, and what the output's is called."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import altair as alt
import numpy as np

from firstguess.base.errors import InvalidInput
from firstguess.base.text import four_digits
from firstguess.show.charts import theme
from firstguess.show.charts.theme import Entry, Row, key
from firstguess.theory.predict import predict
from firstguess.theory.prediction import DEEPLY_BIASED, EDGES, WORDS, Prediction

if TYPE_CHECKING:
    from firstguess.modules.read.result import Structure
    from firstguess.theory.tune import Tuned

WIDTH, HEIGHT = 720, 440
_GUTTER = 118  # pixels at the left for the words
_SAME: Any = {"rtol": 1e-6, "atol": 0, "equal_nan": True}  # curves that coincide
_LABEL = 34  # characters of a name
_END = 10  # pixels after the last layer
_BANDS = ("#FFFFFF", "#FBF9F4", "#F7F3EA", "#EFE6D3")
_MARKED = 40  # layers up to which every layer is marked


@dataclass(frozen=True)
class GammaScale:
    """Positions of γ: a logarithm that continues linearly below `unit`, so that γ = 0 has a place (Vega's symlog)."""

    unit: float
    low: float
    top: float
    infinite: bool  # ∞ has a place too, at the top

    @classmethod
    def of(cls, gammas: Sequence[float], *, noise: Sequence[float] = ()) -> GammaScale:
        """The scale for these values; all four words are always on it. `noise`: values it need not resolve."""
        smallest = min((g for g in gammas if 0 < g < math.inf), default=0.1)
        finite = [g for g in (*gammas, *noise) if math.isfinite(g)]
        unit = min(0.1, max(1e-3, 10.0 ** math.floor(math.log10(smallest) + 1e-9)))
        highest = max([*finite, 1.7 * DEEPLY_BIASED])
        infinite = any(g == math.inf for g in gammas)
        low = min([0.0, *finite]) - 0.5 * unit  # a curve at 0 is not on the axis
        return cls(unit, low, highest * (10.0 if infinite else 1.5), infinite)

    def __call__(self, gamma: float) -> float:
        """Where γ is drawn: itself, but ∞ at the top."""
        return self.top if gamma == math.inf else gamma

    def axis(self) -> alt.Y:
        """The axis of γ, upright."""
        return alt.Y("position:Q", title="Drift ratio γ of the pre-activations", **self.marks())

    def marks(self) -> dict[str, Any]:
        """Scale and axis of γ: 0, powers of ten, and ∞ where it occurs."""
        first, last = round(math.log10(self.unit)), math.floor(math.log10(self.top / (3 if self.infinite else 1)))
        step = max(1, math.ceil((last - first + 1) / 6))
        ticks = [0.0, *(10.0**k for k in range(first, last + 1) if k % step == 0), *([self.top] * self.infinite)]
        plain = "replace(format(datum.value, ',~f'), ',', ' ')"
        words = f"datum.value < 1e6 ? {plain} : replace(format(datum.value, '~e'), '+', '')"
        if self.infinite:
            words = f"datum.value >= {0.999 * self.top} ? '∞' : {words}"
        look: dict[str, Any] = {"type": "symlog", "constant": self.unit, "zero": False, "values": ticks}
        return theme.axis([self.low, self.top], labelExpr=words, grid=False, **look)


def gamma_by_depth_chart(
    predictions: Mapping[str, Prediction] | Sequence[Prediction], *, title: str | None = None
) -> theme.Chart:
    """γ of the pre-activations of every layer, the output last, over the words even, leaning, biased, deeply biased.

    `predictions` by name, or a list, which is named by the networks' texts. The axis is logarithmic above the smallest
    decade that occurs and linear below it, so γ = 0 is on it. Curves that coincide are one line with all their names.
    """
    named = _named(predictions)
    lines: list[tuple[str, list[float]]] = []  # names of curves that coincide come together
    for name, p in named.items():
        gamma = p.gamma.tolist()
        same = (k for k, (_, one) in enumerate(lines) if len(one) == len(gamma) and np.allclose(one, gamma, **_SAME))
        if (k := next(same, None)) is None:
            lines.append((name, gamma))
        else:
            lines[k] = f"{lines[k][0]}, {name}", lines[k][1]
    scale = GammaScale.of([g for _, gamma in lines for g in gamma])
    longest = max(len(gamma) for _, gamma in lines)
    output = longest if len({len(gamma) for _, gamma in lines}) == 1 else None
    x, y = layer_axis(longest, output), scale.axis()
    layers = bands(scale)
    # Short networks are drawn over long ones, with which they may coincide as far as they go.
    for index, (names, gamma) in sorted(enumerate(lines), key=lambda item: -len(item[1][1])):
        layers += curve(gamma, names, theme.colour(index), theme.dash(index), scale, x, y)
    short = [f"{theme.shortened(names, 4 * _LABEL)}: γ = {theme.number(gamma[-1])}" for names, gamma in lines]
    layers += key([Entry(n, theme.colour(k), theme.dash(k)) for k, n in enumerate(short)], stacked=True)
    chart = theme.stacked(layers, WIDTH, HEIGHT)
    said = title or _title([gamma[-1] for _, gamma in lines if not math.isnan(gamma[-1])])
    return theme.house(chart, said, _subtitle(list(named.values()), scale))


def layer_axis(longest: int, output: int | None) -> alt.X:
    """The axis of layers, whose last is called by its name."""
    step = theme.round_step(longest, 8)
    ticks = [1, *range(step if step > 1 else 2, longest + 1, step)]
    words = theme.THOUSANDS
    if output is not None:
        ticks = [t for t in ticks if t <= output - max(1.0, 0.1 * output)] + [output]
        words = f"datum.value == {output} ? 'output' : {words}"
    pixel = max(longest - 1, 1) / (WIDTH - _GUTTER - _END)
    ends = theme.axis([1 - _GUTTER * pixel, longest + _END * pixel], values=ticks, labelExpr=words, labelFlush=False)
    return alt.X("layer:Q", title="Layer with weights, from the input to the output", **ends)


def bands(scale: GammaScale) -> list[alt.Chart]:
    """The words for γ as fills behind everything."""
    return fills([scale.low, *EDGES, scale.top])


def fills(edges: Sequence[float]) -> list[alt.Chart]:
    """Fills from edge to edge of "position", called even, leaning, biased, deeply biased."""
    rows = [
        {"position": high, "low": low, "word": name, "fill": fill}
        for low, high, name, fill in zip(edges, edges[1:], WORDS, _BANDS, strict=False)
    ]
    color = alt.Color("fill:N", scale=None, legend=None)
    base = theme.chart(rows, y="position:Q", color=color, x=alt.value(0), x2=alt.value("width"))
    borders = theme.chart(rows[:-1], y="position:Q")
    first, others = (theme.chart(part, text="word:N", x=alt.value(10)) for part in (rows[:1], rows[1:]))
    look: Any = {"align": "left", "fontSize": 14, "fontStyle": "italic", "color": "#7A6A3F"}
    return [
        base.mark_rect().encode(y2="low:Q"),
        borders.mark_rule(color="#BDB08E", strokeWidth=1),
        first.mark_text(baseline="bottom", dy=-1, **look).encode(y="low:Q"),  # its fill may be hardly as high as it
        others.mark_text(baseline="top", dy=7, **look).encode(y="position:Q"),
    ]


def curve(
    gamma: Sequence[float], label: str, colour: str, dash: list[int], scale: GammaScale, x: alt.X, y: alt.Y
) -> list[alt.Chart]:
    """One line of γ by layer, with a mark on every layer where there is room."""
    drawn = range(len(gamma))
    if len(gamma) > 500:  # of a very deep network the first layers, where γ changes fast, and an even choice of others
        drawn = sorted({*range(60), *np.round(np.linspace(0, len(gamma) - 1, 400)).astype(int).tolist()})
    rows: list[Row] = [
        {"curve": label, "layer": i + 1, "gamma": gamma[i] if math.isfinite(gamma[i]) else None,
         "position": None if math.isnan(gamma[i]) else scale(gamma[i]),  # the line breaks where γ is not known
         "text": theme.number(gamma[i])}
        for i in drawn
    ]  # fmt: skip
    tips = theme.tooltip("curve|network", "layer", "text|γ")
    return theme.line(rows, x, y, colour, tips, dots=42 if len(gamma) <= _MARKED else 0, width=3, dash=dash)


def _named(predictions: Mapping[str, Prediction] | Sequence[Prediction]) -> dict[str, Prediction]:
    if isinstance(predictions, Prediction):
        predictions = [predictions]
    if isinstance(predictions, Mapping):
        named = {str(name): p for name, p in predictions.items()}
    else:
        named = {}
        several = list(cast("Sequence[Any]", predictions))
        texts = [str(getattr(p, "network", p)) for p in several]
        for p, text in zip(several, _differences(texts), strict=True):
            name = theme.shortened(text, 3 * _LABEL - 8)
            repeated = sum(other == name or other.startswith(f"{name} (") for other in named)
            named[f"{name} ({repeated + 1})" if repeated else name] = p
    if not named:
        hint = "gamma_by_depth_chart({'plain': fg.predict(net)})"
        raise InvalidInput("at least one prediction", got="none", where="gamma_by_depth_chart", hint=hint)
    for name, p in cast("dict[str, Any]", named).items():
        if not isinstance(p, Prediction):
            hint = "gamma_by_depth_chart({'plain': fg.predict(net)})"
            raise InvalidInput("predictions", got=type(p).__name__, where=f"gamma_by_depth_chart, {name!r}", hint=hint)
    return named


def _differences(texts: Sequence[str]) -> list[str]:
    """What tells networks apart: their texts without the layers that all begin and end with, where that is readable."""
    parts = [re.findall(r"\d+ x \[|residual(?:\([^)]*\))?\[|[\w.]+(?:\([^)]*\))?|\]|\||>", text) for text in texts]
    if len(set(texts)) < 2:
        return list(texts)
    shortest = min(len(part) for part in parts)
    head = next((i for i in range(shortest) if len({part[i] for part in parts}) > 1), shortest)
    tail = next((i for i in range(shortest - head) if len({part[-1 - i] for part in parts}) > 1), shortest - head)
    cores = [" ".join(part[head : len(part) - tail]).strip(" >") for part in parts]
    readable = all(core and core.count("[") == core.count("]") for core in cores)
    return cores if readable else list(texts)


def _title(ends: Sequence[float]) -> str:
    if not ends:
        return "The drift ratio γ by layer"
    low, high = theme.number(min(ends)), theme.number(max(ends))
    return f"The drift ratio γ of the output is {low}" if low == high else (
        f"The drift ratio γ of the output lies between {low} and {high}"
    )  # fmt: skip


def _subtitle(predictions: Sequence[Prediction], scale: GammaScale) -> list[str]:
    depths = sorted({p.network.depth for p in predictions})
    first, last = theme.spaced(depths[0]), theme.spaced(depths[-1])
    layers = first if len(depths) == 1 else f"{first} to {last}"
    assumptions = dict.fromkeys(a for p in predictions for a in p.assumptions)
    readings = " and ".join(dict.fromkeys(p.reading for p in predictions))
    first = f"Untrained networks with {layers} hidden layer{'s' * (layers != '1')}, {readings}."
    if assumptions:
        first += f" Assumes {', '.join(assumptions)}."
    deep = f"deeply biased from γ = {DEEPLY_BIASED:.1f}, where one of two classes gets 90 % of the data on average"
    lines = [first, f"Even up to γ = 0.05; biased from γ = 1; {deep}."]
    if scale.infinite:
        lines.append("γ = ∞: all inputs are mapped to the same point.")
    return lines


def structure_chart(structure: Structure, *, title: str | None = None) -> theme.Chart:
    """γ by depth of the network that was read."""
    if structure.network is None:
        raise InvalidInput("a model that was read as a whole", got=repr(structure), where="Structure.plot")
    return gamma_by_depth_chart([predict(structure.network)], title=title)


def tuned_chart(tuned: Tuned, *, title: str | None = None) -> theme.Chart:
    """γ by depth of the tuned network."""
    return gamma_by_depth_chart(
        {theme.shortened(four_digits(tuned.network), 64): predict(tuned.network, inputs=tuned.inputs)}, title=title
    )
