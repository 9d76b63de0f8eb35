"""A study as one HTML file that opens offline: figures, best and worst, a table to sort and filter, how it was made."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from markupsafe import Markup

from firstguess.base import files
from firstguess.base.text import spaced
from firstguess.show.charts.sweep import WORDS, study_chart
from firstguess.show.charts.theme import number, percent, shortened, unbroken
from firstguess.show.report.elements import table as plain_table
from firstguess.show.report.elements import tag
from firstguess.studies.store import SECONDS, TASK
from firstguess.studies.study_files import KeptStudy

_ROWS = 2000  # of the table on the page: the Parquet file has all
_ENDS = 5  # best, and worst
_FIGURES = 2
_LONGEST = 60
_METRICS = ("expected_max", "gamma", "accuracy_end", "absorption", "largest_end", "loss_end")
_EVEN = ("expected_max", "gamma")  # less of it is a more even start
_ASIDE = ("network", "log_q", "findings", "seed", "points", "classes", "ties", "reading", "level", "trace")
Row = Mapping[str, Any]


def write(study: KeptStudy, found: Any, path: str | Path) -> Path:
    """Write the page to `path`, which ends in .html; gives the path back."""
    target = files.checked(path, (".html", ".htm"), said=".html", example="study.html")
    return files.write(target, page(study, found).encode())


def page(study: KeptStudy, found: Any) -> str:
    """The text of the file, with everything in it."""
    from firstguess.show.report.charts import figure
    from firstguess.show.report.document import whole

    settings = study.settings()
    rows: list[Row] = found.to_pylist()
    metrics = _metrics(rows, settings)
    drawn: dict[str, Markup] = {}
    for y in metrics[:_FIGURES]:
        spec = _spec(found, rows, settings, y)
        if spec is not None:
            drawn[y] = figure(y.replace(".", "-"), spec)
    body = [
        _head(study, rows),
        _section("figures", "What varies", *drawn.values()),
        _section("ends", *_ends(rows, settings, metrics)),
        _section("table", "All results", _table(rows, settings)),
        _section("failures", "Without a result", _failures(study, settings)),
        _section("provenance", "How this was made", _provenance(study, rows)),
    ]
    return whole(f"{study.name} · firstguess", body, drawn, own=[_resource("study.js")])


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


def _head(study: KeptStudy, rows: Sequence[Row]) -> Markup:
    counts = study.counts()
    words = f"{spaced(counts['tasks'])} configurations, {spaced(len(rows))} with a result"
    words += f", {counts['failed']} failed" if counts["failed"] else ""
    words += f", {counts['missing']} not computed yet" if counts["missing"] else ""
    seconds = sum(float(row[SECONDS]) for row in rows)
    return tag(
        "header",
        tag("p", "firstguess: a study", class_="eyebrow"),
        tag("h1", study.name),
        tag("p", f"{words}. {_duration(seconds)} of work."),
    )


def _ends(rows: Sequence[Row], settings: Sequence[str], metrics: Sequence[str]) -> list[str | None]:
    """Heading and tables of the rows at both ends of the first metric."""
    if not metrics or len(rows) < 2:
        return ["", None]
    y = metrics[0]
    fine = sorted((row for row in rows if _finite(row.get(y))), key=lambda row: row[y])
    few = min(_ENDS, len(fine) // 2)
    named = ("Most even", "Most biased") if y in _EVEN else ("Lowest", "Highest")
    heading = "Best and worst: the most even start, and the most biased" if y in _EVEN else "Lowest and highest"
    shown = [name for name in settings if any(name in row for row in rows)]
    parts: list[str | None] = [heading, tag("p", f"By {WORDS.get(y, y)}.", class_="soft")]
    for name, some in zip(named, (fine[:few], fine[::-1][:few]), strict=True):
        cells: list[list[str]] = [
            [_cell(row[y], y), *(_cell(row.get(key), key, setting=True) for key in shown)] for row in some
        ]
        parts.append(tag("h3", name))
        parts.append(plain_table([WORDS.get(y, y), *shown], cells, caption=name))
        if few and (more := sum(_cell(row[y], y) == cells[-1][0] for row in fine) - _ending(cells)):
            parts.append(tag("p", f"… and {more} more with the number of the last row.", class_="soft"))
    return parts if few else ["", None]


def _ending(cells: Sequence[Sequence[str]]) -> int:
    """Rows that show the number of the last one."""
    return sum(row[0] == cells[-1][0] for row in cells)


def _table(rows: Sequence[Row], settings: Sequence[str]) -> Markup | None:
    if not rows:
        return None
    names = dict.fromkeys(name for row in rows[:_ROWS] for name in row)
    lists = {name for row in rows[:_ROWS] for name, value in row.items() if isinstance(value, list)}
    aside = {name for name in names if name in _ASIDE and name not in settings}
    aside |= {TASK, *(name for name in names if name.endswith(("_se", "_low", "_high")))}
    columns = [name for name in names if name not in lists | aside]
    same = {name for name in columns if name not in (*settings, SECONDS) and _same(rows, name)}
    columns = [name for name in columns if name not in same]
    head = tag("tr", *(_sorting(name, rows) for name in columns))
    body = [
        tag("tr", *(_sorted_cell(row.get(name), name, name in settings) for name in columns)) for row in rows[:_ROWS]
    ]
    whole = tag("table", tag("caption", "All results"), tag("thead", head), tag("tbody", *body), id="results")
    words = f"The first {spaced(_ROWS)} of {spaced(len(rows))} rows." if len(rows) > _ROWS else ""
    known = ", ".join(f"{name} {_cell(rows[0].get(name), name)}" for name in names if name in same)
    words += f" The same in all rows: {known}." if known else ""
    left = ", ".join(sorted((lists | aside) - {TASK}))
    words += f" Columns that are in the table's file only: {left}." if left else ""
    box = tag("input", type="search", id="filter", placeholder="layernorm depth:5", aria_describedby="filter-words")
    label = tag("label", "Show rows with ", box, for_="filter")
    hint = tag("span", " A click on a name sorts by it. depth:5 looks in one column only.", id="filter-words")
    return Markup("").join(
        [
            tag("style", Markup(_resource("study.css"))),
            tag("p", label, hint, tag("output", "", id="shown"), class_="soft filter"),
            tag("div", whole, class_="scroll", tabindex="0", role="region", aria_label="All results"),
            tag("p", words.strip(), class_="soft") if words else "",
        ]
    )


def _same(rows: Sequence[Row], name: str) -> bool:
    return len(rows) > 1 and len({_cell(row.get(name), name) for row in rows}) == 1


def _sorting(name: str, rows: Sequence[Row]) -> Markup:
    """The head of a column: a button that sorts by it, and in words what it is."""
    numbers = any(_finite(row.get(name)) for row in rows[:_ROWS])
    button = tag("button", name, type="button", **({"title": WORDS[name]} if name in WORDS else {}))
    return tag("th", button, scope="col", aria_sort="none", **({"class_": "number"} if numbers else {}))


def _sorted_cell(value: Any, name: str, setting: bool) -> Markup:
    exact = {"data_value": repr(float(value))} if isinstance(value, int | float) else {}
    look = {"class_": "number"} if exact and not isinstance(value, bool) else {}
    return tag("td", _cell(value, name, setting=setting), data_column=name, **look, **exact)


def _cell(value: Any, name: str, *, setting: bool = False) -> str:
    if value is None:
        return "none" if setting else "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        if math.isnan(value):
            return "–"
        return unbroken(percent(value)) if name in ("expected_max", "over_90") else number(value)
    return shortened(str(value), _LONGEST)


def _failures(study: KeptStudy, settings: Sequence[str]) -> Markup | None:
    rows: list[Row] = study.failures().to_pylist()
    if not rows:
        return None
    cells = [
        [*(_cell(row.get(name), name, setting=True) for name in settings), str(row["reason"])] for row in rows[:_ROWS]
    ]
    return plain_table([*settings, "reason"], cells, caption="Failures")


def _provenance(study: KeptStudy, rows: Sequence[Row]) -> Markup:
    known = study.about()
    function = str(known.pop("function", ""))
    cells = [[key, value if isinstance(value, str) else json.dumps(value)] for key, value in known.items() if value]
    cells.append(["store", str(study.results.folder)])
    seconds = [float(row[SECONDS]) for row in rows]
    if seconds:
        cells.append(["a task took", f"{_duration(min(seconds))} to {_duration(max(seconds))}"])
    words = "The study, as it was written:" if "[grid]" in function else "The function, as it was written:"
    parts = [tag("p", words, class_="soft"), tag("pre", tag("code", function))]
    return Markup("").join([*(parts if function else []), plain_table(["", "value"], cells, caption="Provenance")])


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _section(key: str, title: str | None, *content: str | None) -> Markup:
    parts = [part for part in content if part]
    return tag("section", tag("h2", title or "", id=key), *parts, aria_labelledby=key) if parts else Markup("")


def _finite(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _resource(name: str) -> str:
    return resources.files("firstguess.studies").joinpath(name).read_text("utf-8")
