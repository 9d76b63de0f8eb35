"""Figures of training: what was trained as bands, what was predicted as dots, over steps on a logarithmic axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from firstguess import InvalidInput
from firstguess_papers import library
from firstguess_papers.training_pieces import Arm

if TYPE_CHECKING:
    import altair as alt

    from firstguess_papers.library import Chart, Curve

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


def lines_of(
    what: str, arms: Mapping[str, Arm], predictions: Mapping[str, Arm] | None = None, *, dashed: bool = False
) -> list[Line]:
    """The same curve of several arms, each with its prediction where there is one.

    Labels of both mappings are those of the key; arms may be trained (bands) or not there at all (prediction only).
    """
    known = predictions or {}
    names = list(dict.fromkeys([*arms, *known]))
    return [
        Line(
            name,
            arms[name].curve(what) if name in arms else None,
            known[name].curve(what) if name in known else None,
            dashed,
        )
        for name in names
    ]


def by_class(
    arms: Mapping[str, Arm], predictions: Mapping[str, Arm] | None = None, *, test: bool = False
) -> list[Line]:
    """Accuracy on the class favoured at the start and, dashed, on the others."""
    held = "test " if test else ""
    return [
        *lines_of(f"{held}favoured", arms, predictions),
        *lines_of(f"{held}others", arms, predictions, dashed=True),
    ]


CURVES = {  # names of curves, as a panel's heading has them
    "largest": "share of the largest class",
    "accuracy": "accuracy",
    "classes": "accuracy by class",
    "test accuracy": "accuracy, held-out",
    "test worst": "worst class, held-out",
}
Rows: TypeAlias = Mapping[str, tuple[Mapping[str, Arm], Mapping[str, Arm]]]  # trained and predicted arms by row


def rows_chart(rows: Rows, curves: Sequence[str], **look: Any) -> Chart:
    """One row of panels for each row, one panel for each of the `CURVES`; `look` is that of `arms_chart`."""
    panels: dict[str, Sequence[Line]] = {}
    for name, (arms, known) in rows.items():
        for what in curves:
            fits = {label: arm for label, arm in known.items() if arm.test is not None or not what.startswith("test")}
            drawn = by_class(arms, fits) if what == "classes" else lines_of(what, arms, fits)
            panels[f"{name}: {CURVES[what]}"] = drawn
    usual: dict[str, Any] = {"columns": len(curves), "width": 290 if len(curves) > 3 else 360, "height": 220}
    return arms_chart(panels, **(usual | look))


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
) -> Chart:
    """Panels by heading; one colour an arm in all of them, named once above.

    Axes are shares from 0 to 100 %, but for the headings in `plain` (losses, gradients: as the numbers are) and the
    `y_domains` of single headings. `rules`: a horizontal line at a share, in panels by heading.
    """
    import altair as alt

    everything = [line for lines in panels.values() for line in lines]
    if not everything:
        raise InvalidInput("at least one line", got="none", where="arms_chart")
    labels = list(dict.fromkeys(line.label for line in everything))
    curves = [c for line in everything for c in (line.trained, line.predicted) if c is not None]
    x = library.theme.steps_axis(np.array([0, max(int(c.steps[-1]) for c in curves)]))
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
        charts.append(library.theme.stacked(layers, width, height, title=library.heading(name)))
    body = alt.concat(*charts, columns=columns, spacing=36)
    wide = min(columns, len(charts)) * width > 640
    chart: Any = alt.vconcat(_key(everything, labels, min(columns, len(charts)) * (width + 36)), body, spacing=16)
    return library.theme.house(chart, title, [*subtitle, _words(everything)], wide=wide)


def _words(lines: Sequence[Line]) -> str:
    parts: list[str] = []
    if any(line.trained is not None for line in lines):
        parts.append("Lines with bands: trained networks, mean ± 2 s.e.")
    if any(line.predicted is not None for line in lines):
        parts.append("Dots: predicted by the tangent kernel, no free parameter.")
    return " ".join(parts)


def _room(lines: Sequence[Line]) -> tuple[float, float]:
    values = [c.mean for line in lines for c in (line.trained, line.predicted) if c is not None]
    top = float(np.nanmax(np.concatenate(values)))
    low = float(np.nanmin(np.concatenate(values)))
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
    dots: Any = {"strokeDash": _DOTS, "strokeCap": "round", "strokeWidth": 3.2}
    return [base.mark_line(color=_darker(colour), clip=True, **dots)]


def _darker(colour: str) -> str:
    """Of the same hue: dots stand out on a band of their own colour."""
    return "#" + "".join(f"{int(0.62 * int(colour[k : k + 2], 16)):02X}" for k in (1, 3, 5))


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
