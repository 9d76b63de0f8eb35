"""Numbers of measurements, rows of tables, and charts of them: points and lines, dots, trained and predicted curves."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

import firstguess as fg
from firstguess import InvalidInput
from firstguess_papers import library
from firstguess_papers.items import Rows
from firstguess_papers.judging import Array, Number, proportion
from firstguess_papers.library import Curve, predicted_law
from firstguess_papers.training_pieces import Arm

if TYPE_CHECKING:
    import altair as alt


def std(m: fg.Measurement) -> Number:
    """Standard deviation of a guess fraction over initializations."""
    return Number(m.guesses.std(), m.guesses.standard_error("std"))


def largest(m: fg.Measurement) -> Number:
    """The average largest fraction, E max_c G_c."""
    return Number(m.guesses.expected_max(), m.guesses.standard_error("expected_max"))


def theory_gamma(network: Any) -> float:
    """γ of the output in closed form."""
    from firstguess import predict

    return float(predict(network).gamma[-1])


def gamma(m: fg.Measurement, layer: int = -1) -> Number:
    """γ of a layer with weights: by default the output."""
    return Number(float(m.gamma[layer]), float(m.gamma_se[layer]))


def share(m: fg.Measurement, low: float, high: float) -> Number:
    """The share of networks whose G₀ is from `low` to `high`, with its binomial error (at least that of one)."""
    inside = (m.guesses.fractions[:, 0] >= low) & (m.guesses.fractions[:, 0] <= high)
    return proportion(inside)


def ratio(over: Array, under: Array) -> Number:
    """Of averages over networks, with its standard error to first order.

    >>> print(ratio(np.array([2.0, 4.0]), np.array([1.0, 2.0])))
    2
    """
    value = float(over.mean() / under.mean())
    return Number(value, float((over - value * under).std(ddof=1) / math.sqrt(len(over)) / abs(under.mean())))


def law_panel(
    label: str,
    m: fg.Measurement,
    *,
    theory: Mapping[str, fg.Guesses | fg.EmpiricalGuesses | fg.Prediction] | None = None,
    bins: int = 20,
    note: str | None = None,
    top: float | None = None,
) -> fg.figures.Panel:
    """The measured law of the guess fractions, and predicted ones on the same bins (for as many data points)."""
    from firstguess import MixedGuesses, figures

    edges, density = m.guesses.histogram(bins)
    curves: dict[str, Any] = {}
    for name, law in (theory or {}).items():
        known = predicted_law(law, m.points) if isinstance(law, fg.Prediction) else law
        if isinstance(known, fg.Guesses | MixedGuesses):
            known = replace(known, points=m.points)
        below = known.cdf(edges)
        curves[name] = np.diff(below, prepend=0.0)[1:] / np.diff(edges)
    said = f"standard deviation {std(m)}" if note is None else note
    return figures.Panel(label, edges, density, curves, said, top)


def laws(
    cells: Mapping[Any, fg.Measurement],
    label: Callable[..., str],
    *,
    title: str,
    theory: Callable[..., Mapping[str, Any]] = lambda *_: {},
    note: Callable[[fg.Measurement], str] | None = None,
    bins: int = 20,
    says: str = "",
    **look: Any,
) -> library.Chart:
    """A panel for each cell: `label` and `theory` by its key; `says` what is drawn, before it stand the settings."""
    from firstguess import figures

    keys = {key: key if isinstance(key, tuple) else (key,) for key in cells}
    panels = [
        law_panel(label(*own), cells[key], theory=theory(*own), bins=bins, note=note(cells[key]) if note else None)
        for key, own in keys.items()
    ]
    return figures.panels_chart(panels, title=title, subtitle=[f"Bars: networks. {says}"] if says else [], **look)


def note_largest(m: fg.Measurement) -> str:
    """A panel's note where many classes are guessed."""
    return f"average largest fraction {largest(m)}"


def row(name: str, m: fg.Measurement, **more: Any) -> dict[str, Any]:
    """One line of a table: the headline numbers of a measurement."""
    numbers: dict[Literal["std", "largest"], Number] = {"std": std(m), "largest": largest(m)}
    line: dict[str, Any] = {"name": name, **more, "inits": m.inits, "points": m.points, "classes": m.classes}
    for key, number in numbers.items():
        line |= {key: number.value, f"{key}_error": number.error}
    if m.gamma.size:
        line |= {"gamma": float(m.gamma[-1]), "gamma_error": float(m.gamma_se[-1])}
    return line


def columns(rows: Rows) -> dict[str, list[Any]]:
    """Rows as columns; what a row does not have is None, and a `Number` has a second column for its error.

    >>> columns([{"name": "ReLU", "gamma": Number(0.5, 0.1)}, {"name": "tanh"}])
    {'name': ['ReLU', 'tanh'], 'gamma': [0.5, None], 'gamma_error': [0.1, None]}
    """
    plain: list[dict[str, Any]] = []
    for line in rows:
        plain.append({})
        for name, value in line.items():
            if isinstance(value, Number):
                plain[-1] |= {name: value.value, "error" if name == "value" else f"{name}_error": value.error}
            else:
                plain[-1][name] = value
    names = list(dict.fromkeys(name for line in plain for name in line))
    return {name: [line.get(name) for line in plain] for name in names}


KAIMING = "dense(weight_var=2)"
EVEN = 0.05  # γ up to which we say even (theory.md §1)
FLIPS = 0.05  # of the average largest fraction, beyond coin flips: up to there guesses are called even


def deep(block: str, depth: int, dense: str = KAIMING) -> str:
    """`depth` times a dense layer and the block, and a dense output: Kaiming variances, no biases.

    >>> deep("relu > layernorm", 3)
    '3 x [dense(weight_var=2) > relu > layernorm] > dense(weight_var=2)'
    """
    return f"{depth} x [{dense} > {block}] > {dense}"


def gammas(m: fg.Measurement) -> list[Number]:
    """γ of the hidden pre-activations after 1, 2, … blocks: what the output of a network of that depth would have.

    Those have as many nodes as a layer is wide, the output only as many as there are classes: errors are far smaller.
    """
    # nodes that are centred over the data have the same γ in all networks, up to rounding
    errors = [float(e) if e > 1e-12 else 0.0 for e in m.gamma_se[1:-1]]
    return [Number(float(g), e) for g, e in zip(m.gamma[1:-1], errors, strict=True)]


def beyond_flips(m: fg.Measurement) -> Number:
    """The average largest fraction beyond that of points whose classes are drawn evenly: 0 where guesses are even.

    Where every node is centred over the data γ is 0 by construction, and only the guesses can show what is left.
    """

    return largest(m) - Number(fg.Guesses(0.0, m.classes, m.points).expected_max())


def grid(axes: str, **columns: Any) -> list[dict[str, Any]]:
    """Rows of a table: one for every key of the first column, its parts by the names of the axes.

    A column is a mapping by such keys, or of mappings and lists that are mappings again (a list counts from 1), or a
    function of the parts of a key. What it does not have stays out.

    >>> grid("name depth", value={"ReLU": [0.5, 0.8]}, theory={("ReLU", 1): 0.4}, at=lambda name, depth: depth / 2)
    [{'name': 'ReLU', 'depth': 1, 'value': 0.5, 'theory': 0.4, 'at': 0.5}, {'name': 'ReLU', 'depth': 2, ...'at': 1.0}]
    """
    names = axes.split()
    known: dict[str, Any] = {k: one if callable(one) else _by_key(one, len(names)) for k, one in columns.items()}
    return [
        dict(zip(names, key, strict=True))
        | {name: one(*key) if callable(one) else one[key] for name, one in known.items() if callable(one) or key in one}
        for key in next(iter(known.values()))
    ]


def _by_key(values: Any, axes: int) -> dict[tuple[Any, ...], Any]:
    """Values by the parts of their keys, as many as there are axes."""
    if not axes:
        return {(): values}
    pairs = values.items() if isinstance(values, Mapping) else enumerate(values, start=1)
    keyed = ((key if isinstance(key, tuple) else (key,), value) for key, value in pairs)
    return {(*key, *rest): one for key, value in keyed for rest, one in _by_key(value, axes - len(key)).items()}


MARKS = "Points: measured ± 2 standard errors; lines: closed form."
MARKS_ALONE = "Points: measured ± 2 standard errors."
DOTS = "Measured ± 2 standard errors."
AXES = {  # names of columns, as an axis has them
    "depth": "Hidden layers",
    "layer": "Hidden layer",
    "width": "Width",
    "value": "Drift ratio γ",
    "gamma": "Drift ratio γ of the output",
    "std": "Standard deviation of a guess fraction",
    "largest": "Average largest guess fraction",
    "c": "Correlation c",
    "at": "Weight variance / critical weight variance",
    "multiple": "Weight variance / critical weight variance",
    "hidden_layers": "Hidden layers",
}


def points(label: str, numbers: Mapping[Any, Number]) -> fg.figures.Series:
    """Points with error bars, by their x."""
    values, errors = zip(*numbers.values(), strict=True) if numbers else ((), ())
    return fg.figures.Series(label, [*numbers], values, errors, "points")


def predicted(label: str, x: Sequence[float], values: Sequence[float]) -> fg.figures.Series:
    """A line."""

    return fg.figures.Series(label, x, values, mark="line")


def series(
    rows: Rows, x: str, y: str = "value", *, by: str = "name", theory: str = "theory"
) -> list[fg.figures.Series]:
    """Points of the column `y` over the column `x`, a series for each value of `by`, and a line where theory is known.

    >>> rows = [{"name": "ReLU", "depth": k, "value": Number(0.5 * k, 0.1), "theory": 0.5 * k} for k in (1, 2)]
    >>> [(one.label, list(one.y), one.mark) for one in series(rows, "depth")]
    [('ReLU', [0.5, 1.0], 'line'), ('ReLU', [0.5, 1.0], 'points')]
    """
    found: list[fg.figures.Series] = []
    for label in dict.fromkeys(row[by] for row in rows):
        own = [row for row in rows if row[by] == label]
        known = [row for row in own if row.get(theory) is not None]
        if known:
            found.append(predicted(str(label), [row[x] for row in known], [row[theory] for row in known]))
        found.append(points(str(label), {row[x]: _number(row, y) for row in own if y in row}))
    return found


def _number(row: Mapping[str, Any], y: str) -> Number:
    """A value with its error, from one column or two."""
    if isinstance(row[y], Number):
        return row[y]
    return Number(row[y], row.get(f"{y}_error", row.get("error", 0.0)))


def panels_of(rows: Rows, panel: str) -> dict[str, Rows]:
    """Lines by the value of a column."""
    names = dict.fromkeys(row[panel] for row in rows)
    return {str(name): [row for row in rows if row[panel] == name] for name in names}


def lines(
    rows: Rows,
    x: str,
    y: str = "value",
    *,
    by: str = "name",
    theory: str = "theory",
    panel: str = "",
    also: Mapping[str, Sequence[fg.figures.Series]] | None = None,
    title: str = "",
    subtitle: str = "",
    **look: Any,
) -> library.Chart:
    """`series` of a table as a chart, a panel for each value of the column `panel`; `also` are more of them by panel.

    Axes are named after their columns (`AXES`); `look` is that of `lines_chart`, and goes before.
    """
    from firstguess import figures

    parts = panels_of(rows, panel) if panel else {"": rows}
    more = also or {}
    drawn = {name: [*series(own, x, y, by=by, theory=theory), *more.get(name, ())] for name, own in parts.items()}
    usual: dict[str, Any] = {"x_title": AXES.get(x, x), "y_title": AXES.get(y, y), "dodge": True}
    usual |= {"columns": 2, "width": 400} if len(parts) in (2, 4) else {} if len(parts) > 2 else {"width": 640}
    if x in ("depth", "layer") and "x_scale" not in look:
        at = [row[x] for row in rows]
        usual["x_domain"] = (min(at) - 0.3, max(at) + 0.3)
    marks = MARKS if any(row.get(theory) is not None for row in rows) else MARKS_ALONE
    return figures.lines_chart(drawn, title=title, subtitle=[subtitle, marks], **(usual | look))


def dots(
    rows: Rows, row: str, y: str = "value", *, by: str = "", theory: str = "theory", panel: str = "", title: str = "",
    subtitle: str = "", **look: Any,
) -> library.Chart:  # fmt: skip
    """Values of a table as dots ± 2 standard errors: a row for each value of the column `row`, series by `by`."""
    from firstguess.figures import Dot, dots_chart

    parts = panels_of(rows, panel) if panel else {"": rows}
    drawn: dict[str, list[Dot]] = {}
    for name, own in parts.items():
        drawn[name] = []
        for one in own:
            drawn[name].append(Dot(str(one[row]), str(one[by]) if by else "measured", *_number(one, y)))
            if one.get(theory) is not None:
                drawn[name].append(Dot(str(one[row]), "closed form", one[theory]))
    size = {"columns": 2, "width": 380} if len(parts) > 1 else {"width": 560}
    usual: dict[str, Any] = {"x_title": AXES.get(y, y), **size}
    return dots_chart(drawn, title=title, subtitle=[subtitle, DOTS], **(usual | look))


_WIDTH, _HEIGHT = 380, 260
_OTHERS = [7, 4]  # dash of other classes
_DOTS = [0.1, 5]  # of predictions: round dots
_ERRORS = 2.0  # standard errors, up and down


@dataclass(frozen=True)
class Line:
    """One curve of one arm in a panel: trained, predicted or both; `dashed` for the classes not favoured."""

    label: str
    trained: Curve | None = None
    predicted: Curve | None = None
    dashed: bool = False

    @property
    def curves(self) -> list[Curve]:
        """Those that there are."""
        return [curve for curve in (self.trained, self.predicted) if curve is not None]


def lines_of(
    what: str, arms: Mapping[str, Arm], predictions: Mapping[str, Arm] | None = None, *, dashed: bool = False
) -> list[Line]:
    """The same curve of several arms, each with its prediction where there is one.

    Labels of both mappings are those of the key; arms may be trained (bands) or not there at all (prediction only).
    """
    known = predictions or {}

    def curve(of: Mapping[str, Arm], name: str) -> Curve | None:
        return of[name].curve(what) if name in of else None

    return [Line(name, curve(arms, name), curve(known, name), dashed) for name in dict.fromkeys([*arms, *known])]


def by_class(
    arms: Mapping[str, Arm], predictions: Mapping[str, Arm] | None = None, *, test: bool = False
) -> list[Line]:
    """Accuracy on the class favoured at the start and, dashed, on the others."""
    both = (("test " * test + what, what == "others") for what in ("favoured", "others"))
    return [line for what, dashed in both for line in lines_of(what, arms, predictions, dashed=dashed)]


CURVES = {  # names of curves, as a panel's heading has them
    "largest": "share of the largest class",
    "accuracy": "accuracy",
    "classes": "accuracy by class",
    "test accuracy": "accuracy, held-out",
    "test worst": "worst class, held-out",
}
ArmRows: TypeAlias = Mapping[str, tuple[Mapping[str, Arm], Mapping[str, Arm]]]  # trained and predicted arms by row


def rows_chart(rows: ArmRows, curves: Sequence[str], *, floor: float | None = 0.0, **look: Any) -> library.Chart:
    """One row of panels for each row, one panel for each of the `CURVES`; `look` is that of `arms_chart`.

    Axes of shares begin at `floor`; None: at 0, and they end at the next full tenth above all curves.
    """
    panels: dict[str, Sequence[Line]] = {}
    for name, (arms, known) in rows.items():
        for what in curves:
            fits = {label: arm for label, arm in known.items() if arm.tested or not what.startswith("test")}
            drawn = by_class(arms, fits) if what == "classes" else lines_of(what, arms, fits)
            panels[f"{name}: {CURVES[what]}"] = drawn
    usual: dict[str, Any] = {"columns": len(curves), "width": 290 if len(curves) > 3 else 360, "height": 220}
    usual["y_domains"] = {name: (floor or 0.0, 1.0 if floor is not None else _top(own)) for name, own in panels.items()}
    return arms_chart(panels, **(usual | look))


def _top(lines: Sequence[Line]) -> float:
    most = max(float(np.nanmax(c.mean + 2 * np.nan_to_num(c.se))) for line in lines for c in line.curves)
    return min(1.0, math.ceil(10 * most) / 10)


def arms_chart(
    panels: Mapping[str, Sequence[Line]],
    *,
    title: str = "",
    subtitle: Sequence[str] = (),
    columns: int = 3,
    y_domains: Mapping[str, tuple[float, float]] | None = None,
    plain: Sequence[str] = (),
    rules: Mapping[str, float] | None = None,
    width: int = _WIDTH,
    height: int = _HEIGHT,
) -> library.Chart:
    """Panels by heading; one colour an arm in all of them, named once above.

    Axes are shares from 0 to 100 %, but for the headings in `plain` (losses, gradients: as the numbers are) and the
    `y_domains` of single headings. `rules`: a horizontal line at a share, in panels by heading.
    """
    import altair as alt

    everything = [line for lines in panels.values() for line in lines]
    if not everything:
        raise InvalidInput("at least one line", got="none", where="arms_chart")
    labels = list(dict.fromkeys(line.label for line in everything))
    x = library.theme.steps_axis(np.array([0, max(int(c.steps[-1]) for line in everything for c in line.curves)]))
    charts: list[Any] = []
    for name, lines in panels.items():
        share = name not in plain
        domain = (y_domains or {}).get(name, (0.0, 1.0) if share else _room(lines))
        axis: Any = alt.Axis(labelExpr=library.theme.PERCENT, tickCount=5) if share else alt.Axis(tickCount=5)
        scale: Any = alt.Scale(domain=list(domain), nice=False)
        y, low = (alt.Y(f"{field}:Q", title=None, scale=scale, axis=axis) for field in ("mean", "low"))
        layers: list[Any] = []
        if name in (rules or {}):
            base = alt.Chart(library.theme.data([{"mean": (rules or {})[name]}])).encode(y=y)
            layers.append(base.mark_rule(color=library.theme.SOFT, strokeDash=[2, 3], strokeWidth=1.5))
        for trained in (True, False):  # predictions on top: their dots leave the bands in sight
            for line in lines:
                curve = line.trained if trained else line.predicted
                if curve is not None:
                    layers += _drawn(curve, line, library.theme.colour(labels.index(line.label)), x, (y, low), trained)
        charts.append(library.theme.stacked(layers, width, height, title=library.theme.heading(name)))
    body = alt.concat(*charts, columns=columns, spacing=36)
    wide = min(columns, len(charts)) * width > 640
    chart: Any = alt.vconcat(_key(everything, labels, min(columns, len(charts)) * (width + 36)), body, spacing=16)
    return library.theme.house(chart, title, [*subtitle, _words(everything)], wide=wide)


def _words(lines: Sequence[Line]) -> str:
    said = {"trained": "Lines with bands: trained networks, mean ± 2 s.e.",
            "predicted": "Dots: predicted by the tangent kernel, no free parameter."}  # fmt: skip
    return " ".join(text for what, text in said.items() if any(getattr(line, what) is not None for line in lines))


def _room(lines: Sequence[Line]) -> tuple[float, float]:
    values = np.concatenate([curve.mean for line in lines for curve in line.curves])
    top, low = float(np.nanmax(values)), float(np.nanmin(values))
    return (0.0 if low >= 0 else 1.05 * low), 1.05 * (top or 1.0)


def _drawn(curve: Curve, line: Line, colour: str, x: alt.X, ys: tuple[alt.Y, alt.Y], trained: bool) -> list[Any]:
    import altair as alt

    errors = np.nan_to_num(_ERRORS * curve.se)
    rows: list[dict[str, Any]] = [
        {"step": int(s), "mean": float(m), "low": float(m - e), "high": float(m + e), "arm": line.label}
        | {"of": "trained" if trained else "predicted", "classes": "other classes" if line.dashed else ""}
        for s, m, e in zip(curve.steps, curve.mean, errors, strict=True)
        if np.isfinite(m)
    ]
    tooltip = library.theme.tooltip("arm", "of", "classes", "step|step|d", "mean|mean|.4~g")
    y, low = ys  # of means and of bands: without a scale of its own a band's would reach down to 0
    base = alt.Chart(library.theme.data(rows)).encode(x=x, y=y, tooltip=tooltip)
    if trained:
        band = base.mark_area(opacity=0.22, color=colour, clip=True).encode(y=low, y2="high:Q")
        dash: Any = _OTHERS if line.dashed else [1, 0]
        return [band, base.mark_line(color=colour, strokeWidth=2, strokeDash=dash, clip=True)]
    # darker, of the same hue: dots stand out on a band of their own colour
    darker = "#" + "".join(f"{int(0.62 * int(colour[k : k + 2], 16)):02X}" for k in (1, 3, 5))
    dots: Any = {"strokeDash": _DOTS, "strokeCap": "round", "strokeWidth": 3.2}
    return [base.mark_line(color=darker, clip=True, **dots)]


def _key(lines: Sequence[Line], labels: Sequence[str], width: int) -> alt.LayerChart:
    """Names in their colours, then what dashes and dots are."""
    theme = library.theme
    entries = [theme.Entry(label, theme.colour(k)) for k, label in enumerate(labels)]
    if any(line.dashed for line in lines):
        entries += [theme.Entry("class favoured at the start", theme.SOFT),
                    theme.Entry("other classes", theme.SOFT, _OTHERS)]  # fmt: skip
    if any(line.predicted is not None for line in lines):
        entries.append(theme.Entry("predicted", theme.INK, theme.DASHES[2]))
    return theme.key_above(entries, width=width)
