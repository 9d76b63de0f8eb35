"""Charts from the lines of a table: points with error bars, lines of theory, rows of dots.

Lines are those that `tables.columns` writes: dicts whose measured values are `Number`s, or have a column of errors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from firstguess_papers.judging import Number

if TYPE_CHECKING:
    from firstguess_papers.library import Chart, Series

Rows: TypeAlias = Sequence[Mapping[str, Any]]
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


def measured(label: str, x: Sequence[float], numbers: Sequence[Number]) -> Series:
    """Points with error bars."""
    from firstguess_papers.library import Series

    return Series(label, x, [n.value for n in numbers], [n.error for n in numbers], "points")


def points(label: str, numbers: Mapping[Any, Number]) -> Series:
    """Points with error bars, by their x."""
    return measured(label, [*numbers], [*numbers.values()])


def predicted(label: str, x: Sequence[float], values: Sequence[float]) -> Series:
    """A line."""
    from firstguess_papers.library import Series

    return Series(label, x, values, mark="line")


def series(rows: Rows, x: str, y: str = "value", *, by: str = "name", theory: str = "theory") -> list[Series]:
    """Points of the column `y` over the column `x`, a series for each value of `by`, and a line where theory is known.

    >>> rows = [{"name": "ReLU", "depth": k, "value": Number(0.5 * k, 0.1), "theory": 0.5 * k} for k in (1, 2)]
    >>> [(one.label, list(one.y), one.mark) for one in series(rows, "depth")]
    [('ReLU', [0.5, 1.0], 'line'), ('ReLU', [0.5, 1.0], 'points')]
    """
    found: list[Series] = []
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
    error = row.get(f"{y}_error", row.get("error", 0.0))
    return Number(row[y], error)


def panels_of(rows: Rows, panel: str) -> dict[str, Rows]:
    """Lines by the value of a column."""
    return {
        str(name): [row for row in rows if row[panel] == name] for name in dict.fromkeys(row[panel] for row in rows)
    }


def lines(
    rows: Rows,
    x: str,
    y: str = "value",
    *,
    by: str = "name",
    theory: str = "theory",
    panel: str = "",
    also: Mapping[str, Sequence[Series]] | None = None,
    title: str = "",
    subtitle: str = "",
    **look: Any,
) -> Chart:
    """`series` of a table as a chart, a panel for each value of the column `panel`; `also` are more of them by panel.

    Axes are named after their columns (`AXES`); `look` is that of `lines_chart`, and goes before.
    """
    from firstguess import figures

    parts = panels_of(rows, panel) if panel else {"": rows}
    drawn = {
        name: [*series(own, x, y, by=by, theory=theory), *(also or {}).get(name, ())] for name, own in parts.items()
    }
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
) -> Chart:  # fmt: skip
    """Values of a table as dots ± 2 standard errors: a row for each value of the column `row`, series by `by`."""
    from firstguess_papers.library import Dot, dots_chart

    parts = panels_of(rows, panel) if panel else {"": rows}
    drawn: dict[str, list[Dot]] = {}
    for name, own in parts.items():
        drawn[name] = []
        for one in own:
            drawn[name].append(Dot(str(one[row]), str(one[by]) if by else "measured", *_number(one, y)))
            if one.get(theory) is not None:
                drawn[name].append(Dot(str(one[row]), "closed form", one[theory]))
    usual: dict[str, Any] = {"x_title": AXES.get(y, y)} | (
        {"columns": 2, "width": 380} if len(parts) > 1 else {"width": 560}
    )
    return dots_chart(drawn, title=title, subtitle=[subtitle, DOTS], **(usual | look))
