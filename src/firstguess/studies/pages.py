"""A study as one HTML file that opens offline: figures, best and worst, a table to sort and filter, how it was made."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from firstguess.base import files
from firstguess.base.text import duration, spaced
from firstguess.show.charts.sweep import WORDS, study_chart
from firstguess.show.charts.theme import number, percent, shortened, unbroken
from firstguess.studies.store import SECONDS, TASK
from firstguess.studies.study_files import StudyFiles

_ROWS = 2000  # of the table on the page: the Parquet file has all
_ENDS = 5  # best, and worst
_FIGURES = 2
_LONGEST = 60
_METRICS = ("largest", "gamma", "accuracy_end", "absorption", "largest_end", "loss_end")
_EVEN = ("largest", "gamma")  # less of it is a more even start
_ASIDE = ("network", "log_q", "findings", "seed", "points", "classes", "ties", "reading", "level", "trace")
Row = Mapping[str, Any]


def write(study: StudyFiles, found: Any, path: str | Path) -> Path:
    """Write the page to `path`, which ends in .html; gives the path back."""
    target = files.checked(path, (".html", ".htm"), said=".html", example="study.html")
    return files.write(target, page(study, found).encode())


def page(study: StudyFiles, found: Any) -> str:
    """The text of the file, with everything in it."""
    from firstguess.show.report.pages import figure, resource
    from firstguess.show.report.pages import page as rendered

    settings = study.settings()
    rows: list[Row] = found.to_pylist()
    metrics = _metrics(rows, settings)
    specs = {y: _spec(found, rows, settings, y) for y in metrics[:_FIGURES]}
    context: dict[str, Any] = {
        "name": study.name,
        "summary": _summary(study, rows),
        "charts": [figure(y.replace(".", "-"), spec) for y, spec in specs.items() if spec is not None],
        "words": WORDS,
        **_ends(rows, settings, metrics),
        **_table(rows, settings),
        "failures": _failures(study, settings),
        **_provenance(study, rows),
        "style": Markup(resource("study.css")),
    }
    return rendered("study.html", f"{study.name} · firstguess", context, own=["study.js"] if rows else [])


def _metrics(rows: Sequence[Row], settings: Sequence[str]) -> list[str]:
    """The columns worth a figure: those with a name in the house, else the first numbers."""
    numbers = {
        name
        for row in rows[:_ROWS]
        for name, value in row.items()
        if name not in settings and name not in (SECONDS, TASK) and _finite(value)
    }
    known = [name for name in _METRICS if name in numbers]
    ordered = list(rows[0]) if rows else []
    return known or [name for name in ordered if name in numbers and not name.endswith(("_se", "_low", "_high"))]


def _spec(found: Any, rows: Sequence[Row], settings: Sequence[str], y: str) -> dict[str, Any] | None:
    """A figure over the setting that has most values, by colour for the one that has most of the rest."""
    count = {name: len({str(row[name]) for row in rows}) for name in settings}
    varying = sorted((name for name in settings if count[name] > 1), key=lambda name: -count[name])
    along = [name for name in varying if all(_finite(row[name]) for row in rows)] or varying
    if not along or len(rows) > _ROWS:
        return None
    color = next((name for name in varying if name != along[0] and count[name] <= 7), None)
    return study_chart(found, x=along[0], y=y, color=color, settings=settings).to_dict(validate=False)


def _summary(study: StudyFiles, rows: Sequence[Row]) -> str:
    counts = study.counts()
    words = f"{spaced(counts['tasks'])} configurations, {spaced(len(rows))} with a result"
    words += f", {counts['failed']} failed" if counts["failed"] else ""
    words += f", {counts['missing']} not computed yet" if counts["missing"] else ""
    return f"{words}. {duration(sum(float(row[SECONDS]) for row in rows))} of work."


def _ends(rows: Sequence[Row], settings: Sequence[str], metrics: Sequence[str]) -> dict[str, Any]:
    """Heading and tables of the rows at both ends of the first metric."""
    y = metrics[0] if metrics else ""
    fine = sorted((row for row in rows if _finite(row.get(y))), key=lambda row: row[y])
    few = min(_ENDS, len(fine) // 2)
    shown = [name for name in settings if any(name in row for row in rows)]
    named, heading = ("Lowest", "Highest"), "Lowest and highest"
    if y in _EVEN:
        named, heading = ("Most even", "Most biased"), "Best and worst: the most even start, and the most biased"
    ends: list[Any] = []
    for name, some in zip(named, (fine[:few], fine[::-1][:few]), strict=True):
        cells = [[_cell(row[y], y), *(_cell(row.get(key), key, setting=True) for key in shown)] for row in some]
        if few:
            last = cells[-1][0]
            more = sum(_cell(row[y], y) == last for row in fine) - sum(row[0] == last for row in cells)
            ends.append((name, cells, more))
    return {"ends": ends, "ends_title": heading, "ends_by": WORDS.get(y, y), "shown": shown}


def _table(rows: Sequence[Row], settings: Sequence[str]) -> dict[str, Any]:
    """Columns (name, whether numbers), rows of cells (column, text, exact number), and what is not shown."""
    names = dict.fromkeys(name for row in rows[:_ROWS] for name in row)
    lists = {name for row in rows[:_ROWS] for name, value in row.items() if isinstance(value, list)}
    aside = {name for name in names if name in _ASIDE and name not in settings}
    aside |= {TASK, *(name for name in names if name.endswith(("_se", "_low", "_high")))}
    columns = [name for name in names if name not in lists | aside and "expected_max" not in name]  # `largest`, of old
    same = {name for name in columns if name not in (*settings, SECONDS) and _same(rows, name)}
    columns = [name for name in columns if name not in same]
    known = ", ".join(f"{name} {_cell(rows[0].get(name), name)}" for name in names if name in same)
    left = ", ".join(sorted((lists | aside) - {TASK}))
    words = [
        f"The first {spaced(_ROWS)} of {spaced(len(rows))} rows." if len(rows) > _ROWS else "",
        f"The same in all rows: {known}." if known else "",
        f"Columns that are in the table's file only: {left}." if left else "",
    ]
    return {
        "columns": [(name, any(_finite(row.get(name)) for row in rows[:_ROWS])) for name in columns],
        "rows": [
            [(name, _cell(row.get(name), name, setting=name in settings), _exact(row.get(name))) for name in columns]
            for row in rows[:_ROWS]
        ],
        "not_shown": " ".join(filter(None, words)),
    }


def _exact(value: Any) -> str:
    """What is sorted by, where it is a number."""
    return repr(float(value)) if isinstance(value, int | float) else ""


def _same(rows: Sequence[Row], name: str) -> bool:
    return len(rows) > 1 and len({_cell(row.get(name), name) for row in rows}) == 1


def _cell(value: Any, name: str, *, setting: bool = False) -> str:
    if value is None:
        return "none" if setting else "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        if math.isnan(value):
            return "–"
        return unbroken(percent(value)) if name in ("largest", "over_90") else number(value)
    return shortened(str(value), _LONGEST)


def _failures(study: StudyFiles, settings: Sequence[str]) -> list[list[str]]:
    """Names of the columns, then a row for each failure."""
    rows: list[Row] = study.failures().to_pylist()
    cells = [
        [*(_cell(row.get(name), name, setting=True) for name in settings), str(row["reason"])] for row in rows[:_ROWS]
    ]
    return [[*settings, "reason"], *cells] if rows else []


def _provenance(study: StudyFiles, rows: Sequence[Row]) -> dict[str, Any]:
    known = study.about()
    function = str(known.pop("function", ""))
    cells = [[key, value if isinstance(value, str) else json.dumps(value)] for key, value in known.items() if value]
    cells.append(["store", str(study.results.folder)])
    seconds = [float(row[SECONDS]) for row in rows]
    if seconds:
        cells.append(["a task took", f"{duration(min(seconds))} to {duration(max(seconds))}"])
    return {"function": function, "provenance": cells}


def _finite(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
