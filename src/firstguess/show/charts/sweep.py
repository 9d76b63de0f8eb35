"""A study's table as a chart: one column over another, by colour for a third, panels for the other settings."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from firstguess.base.errors import InvalidInput
from firstguess.show.charts import theme
from firstguess.show.charts.dots import Dot, dots_chart
from firstguess.show.charts.lines import Scale, Series, lines_chart

WORDS = {
    "gamma": "drift ratio γ of the output",
    "correlation": "correlation c of two inputs' outputs",
    "largest": "average largest share",
    "over_90": "chance that one class gets over 90 %",
    "std": "standard deviation of a share",
    "gradient_growth": "gradients, going back: factor per layer in mean square",
    "largest_start": "largest share at the start",
    "largest_end": "largest share at the end",
    "accuracy_end": "accuracy at the end",
    "test_accuracy_end": "accuracy on held-out points at the end",
    "loss_end": "loss at the end",
    "absorption": "steps until the bias is absorbed, in the median",
    "expected_max": "average largest share",  # the old name
}
_SHARES = ("largest", "expected_max", "over_90", "largest_start", "largest_end", "accuracy_end", "test_accuracy_end")
_PANELS, _SERIES = 9, 14
_FAR = 50.0  # a logarithmic axis, where the largest value is this many times the smallest


def study_chart(
    table: Any, *, x: str, y: str, color: str | None = None, settings: Sequence[str] | None = None
) -> theme.Chart:
    """Column `y` over column `x`, by colour for `color`; bars are ± 2 standard errors where there is a column `y_se`.

    `settings` are the columns that a configuration has: those that vary besides `x` and `color` make panels, where
    nine are enough. Rows without a finite number are left out, and the subtitle counts them.

    >>> import pyarrow as pa
    >>> t = pa.table({"depth": [1, 5], "norm": ["none", "none"], "gamma": [0.47, 2.8]})
    >>> type(study_chart(t, x="depth", y="gamma", color="norm", settings=["depth", "norm"])).__name__
    'VConcatChart'
    """
    names: list[str] = table.column_names
    for role, name in (("x", x), ("y", y), ("color", color)):
        if name is not None and name not in names:
            raise InvalidInput(f"a column: {', '.join(names)}", got=repr(name), where=f"plot({role})")
    settings = [name for name in (settings or []) if name in names]
    chosen = dict.fromkeys([x, y, *([color] if color else []), *settings, *([f"{y}_se"] if f"{y}_se" in names else [])])
    rows: list[dict[str, Any]] = table.select(list(chosen)).to_pylist()
    fine = [row for row in rows if _finite(row[y]) and (not _is_number(row[x]) or _finite(row[x]))]
    if not fine:
        raise InvalidInput("a column of finite numbers", got=repr(y), where="plot(y)")
    others = [name for name in settings if name not in (x, color) and len({_said(row[name]) for row in rows}) > 1]
    panels = _panels(fine, others)
    left_out = len(rows) - len(fine)
    subtitle = [f"{theme.count(len(fine))} configurations" + (f"; {left_out} without a finite {y}" if left_out else "")]
    if others and len(panels) == 1:
        subtitle.append(f"points of one colour differ in {', '.join(others)}")
    if f"{y}_se" in chosen:
        subtitle.append("bars: ± 2 standard errors")
    words, along, subtitle = WORDS.get(y, y), WORDS.get(x, x), ["; ".join(subtitle)]
    head = title(fine, y, [name for name in (*settings, x, color) if name])
    percent = y in _SHARES
    if all(_is_number(row[x]) for row in fine):
        drawn = {heading: _series(found, x, y, color) for heading, found in panels.items()}
        look: Any = {"x_scale": _scale(fine, x), "y_scale": "linear" if percent else _scale(fine, y)}
        look |= {"percent": percent, "dodge": True, "x_title": along, "y_title": words}
        return lines_chart(drawn, title=head, subtitle=subtitle, **look)
    dots = {
        heading: [Dot(_said(row[x]), _label(row, color, y), float(row[y]), _error(row, y)) for row in found]
        for heading, found in panels.items()
    }
    return dots_chart(dots, title=head, x_title=words, subtitle=subtitle, percent=percent)


def defaults(
    table: Any, settings: Sequence[str], x: str | None, y: str | None, color: str | None
) -> tuple[str, str, str | None]:
    """What is not said: the first setting that varies, the first number of the results, the second such setting."""
    rows: list[dict[str, Any]] = table.to_pylist()
    names: list[str] = table.column_names
    if not rows:
        raise InvalidInput("a study with results", got="none so far", where="plot", hint="study.run()")
    varied = [name for name in settings if name in names and len({_said(row[name]) for row in rows}) > 1]
    results = [name for name in names if name not in settings and any(_finite(row[name]) for row in rows)]
    known = [name for name in WORDS if name in results]  # what has words is what is asked for
    if y is None:
        y = next(iter([*known, *results]), None)
    if x is None:
        x = next((name for name in [*varied, *settings] if name not in (y, color)), None)
    if x is None or y is None:
        raise InvalidInput("two columns", got=", ".join(names), where="plot", hint='plot("depth", "gamma")')
    return x, y, color or next((name for name in varied if name not in (x, y)), None)


def title(rows: Sequence[Mapping[str, Any]], y: str, settings: Sequence[str]) -> str:
    """Where the column is lowest and where it is highest.

    >>> title([{"depth": 1, "gamma": 0.467}, {"depth": 20, "gamma": 18.4}], "gamma", ["depth"])
    'Drift ratio γ of the output: lowest at depth 1 (0.467), highest at depth 20 (18.4)'
    """
    words = WORDS.get(y, y)
    values = [theme.percent(row[y]) if y in _SHARES else theme.number(row[y]) for row in rows]
    varying = [name for name in dict.fromkeys(settings) if len({_said(row[name]) for row in rows}) > 1]

    def at(index: int) -> str:
        """Its place; where others show the same number, how many they are: none of them is the lowest."""
        if (alike := values.count(values[index])) > 1:
            return f"{values[index]} ({alike} configurations)"
        return f"at {', '.join(f'{name} {_said(rows[index][name])}' for name in varying)} ({values[index]})"

    order = sorted(range(len(rows)), key=lambda i: rows[i][y])
    low, high = order[0], order[-1]
    head = f"{words[:1].upper()}{words[1:]}"
    if values[low] == values[high]:
        return f"{head}: {values[low]} everywhere"
    return f"{head}: lowest {at(low)}, highest {at(high)}"


def _panels(rows: list[dict[str, Any]], others: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(", ".join(f"{name} {_said(row[name])}" for name in others), []).append(row)
    return found if len(found) <= _PANELS else {"": rows}


def _series(rows: list[dict[str, Any]], x: str, y: str, color: str | None) -> list[Series]:
    by: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        by.setdefault(_label(row, color, y), []).append(row)
    if len(by) > _SERIES:
        expected = f"at most {_SERIES} values of a colour"
        raise InvalidInput(expected, got=f"{len(by)}, {color}", where="plot(color)", hint="another one")
    series: list[Series] = []
    for label, found in by.items():
        found.sort(key=lambda row: row[x])
        places = [float(row[x]) for row in found]
        joined = len(set(places)) == len(places) > 1
        errors = [_error(row, y) for row in found] if f"{y}_se" in found[0] else None
        series.append(Series(label, places, [float(row[y]) for row in found], errors, "both" if joined else "points"))
    return series


def _label(row: Mapping[str, Any], color: str | None, y: str) -> str:
    return y if color is None else f"{color} {_said(row[color])}"


def _error(row: Mapping[str, Any], y: str) -> float:
    error: Any = row.get(f"{y}_se")
    return float(error) if _finite(error) else 0.0


def _said(value: Any) -> str:
    if value is None:
        return "none"
    return theme.number(value) if isinstance(value, float) else str(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _finite(value: Any) -> bool:
    return _is_number(value) and math.isfinite(value)


def _scale(rows: Sequence[Mapping[str, Any]], name: str) -> Scale:
    values = [float(row[name]) for row in rows]
    return "log" if min(values) > 0 and max(values) >= _FAR * min(values) else "linear"
