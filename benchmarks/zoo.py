"""The zoo: every architecture of the installed transformers that can be shrunk, and of other packages, before training.

    python benchmarks/zoo.py run [PATTERN] [ray]   one task a model, resumable, here or on Ray: runs/zoo
    python benchmarks/zoo.py write                 docs/zoo.json, docs/zoo.md, tables and figure, from what has run

Packages (zoo_packages.py) are visited where they are installed; they stand in no requirement of ours.
"""

from __future__ import annotations

import fnmatch
import itertools
import json
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np

import firstguess as fg
from firstguess.studies import zoo

HERE = Path(__file__).parent
STORE, ROWS = HERE.parent / "runs", HERE.parent / "docs" / "zoo.json"
_SECONDS = 240.0  # a task, at most


def visited(p: dict[str, Any]) -> dict[str, str]:
    """One model's row, as text; what fails is a row, too."""
    sys.path.insert(0, p["here"])
    try:
        from zoo_visit import visit

        if p["model"].split("/")[0] in zoo.TASKS:
            case = zoo.shrunk(p["model"])
        else:
            import zoo_packages

            case = zoo_packages.case(p["model"])
        row = visit(case, seed=zlib.crc32(p["model"].encode()))
    except Exception as error:
        row = {"failed": f"{type(error).__name__}: {error}"[:400]}
    return {"row": json.dumps(row)}


def names() -> list[str]:
    """All there are, a task after the other in turn, so that what has run by any time is of every kind."""
    import zoo_packages

    groups: dict[str, list[str]] = {}
    for name in [*zoo_packages.names(), *zoo.architectures()]:
        groups.setdefault(name.split("/")[0], []).append(name)
    return [name for turn in itertools.zip_longest(*groups.values()) for name in turn if name]


def run(pattern: str = "*", engine: str = "local") -> None:
    """Visit what has not been visited."""
    workers = {"workers": 1} if engine == "local" else {}
    _study(pattern).run(engine=engine, seconds=_SECONDS, memory=8e9, **workers)
    collect(pattern)


def collect(pattern: str = "*") -> None:
    """Add what has run, or is still running elsewhere, to the rows that are kept."""
    rows = rows_of(_study(pattern).table().to_pylist())
    ROWS.write_text(json.dumps(dict(sorted((known() | rows).items())), indent=1))
    print(len(rows), "visited:", sum(not row["failed"] for row in rows.values()), "ran")


def known() -> dict[str, dict[str, Any]]:
    return json.loads(ROWS.read_text()) if ROWS.exists() else {}


def _study(pattern: str) -> Any:
    import zoo_packages

    asked = zoo_packages.names() if pattern == "packages" else fnmatch.filter(names(), pattern)
    wanted = [{"model": name, "here": str(HERE)} for name in asked]
    return fg.study("zoo", wanted, visited, store=STORE, version=2)


def rows_of(table: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    return {row["model"]: json.loads(row["row"]) for row in table if row.get("row")}


# -- The page ----------------------------------------------------------------------------------------------------------

_COLUMNS = (
    "model",
    "largest share",
    "even",
    "class, s.e.",
    "instance, s.e.",
    "verdict",
    "predicted",
    "faults",
    "seconds",
)


def write() -> None:
    """docs/zoo.md, its tables and its figure."""
    (HERE.parent / "docs" / "zoo.md").write_text(page())
    (HERE.parent / "docs" / "tables" / "zoo.txt").write_text(tables())
    fg.figures.save(chart(those_that_ran(known())), HERE.parent / "docs" / "images" / "zoo.svg")


def those_that_ran(rows: dict[str, Any]) -> dict[str, Any]:
    return {name: row for name, row in rows.items() if not row["failed"] and "classes" in row}


def page() -> str:
    """The page, of the rows that are kept."""
    rows = known()
    ran = those_that_ran(rows)
    text = (HERE / "zoo_page.md").read_text()
    for name, value in _counts(rows, ran).items():
        text = text.replace("{" + name + "}", str(value))
    return text


def tables() -> str:
    """All rows, which the site puts into the page (docs/tools/prepare.py)."""
    rows = known()
    ran = those_that_ran(rows)
    named = {"models": _table(ran), "first values": _strange(ran), "did not run": _failures(rows)}
    return "\n\n".join(f"{name}\n\n{table}" for name, table in named.items()) + "\n"


def _counts(rows: dict[str, Any], ran: dict[str, Any]) -> dict[str, str]:
    found = {"visited": str(len(rows)), "ran": str(len(ran)), "failed": str(len(rows) - len(ran))}
    for which in ("class", "instance"):
        z = np.array([row[f"{which}_z"] for row in ran.values() if row.get(f"{which}_z") is not None])
        z = z[np.isfinite(z)]
        found |= {f"{which}_n": str(len(z)), f"{which}_mean": f"{z.mean():.2f}", f"{which}_sd": f"{z.std(ddof=1):.2f}"}
        found[f"{which}_error"] = f"{z.std(ddof=1) / len(z) ** 0.5:.2f}"
        found[f"{which}_far"] = str(int((np.abs(z) > 4).sum()))
    found["changed"] = str(sum(not row["came_back"] for row in ran.values()))
    found["faulty"] = str(sum(bool(row.get("faults")) for row in ran.values()))
    above = sorted(_excess(row) for row in ran.values())
    found |= {"median": f"{above[len(above) // 2]:.2f}", "deep": str(sum(x > 0.8 for x in above))}
    return found | {"even": str(sum(row.get("verdict") == "even" for row in ran.values()))}


def _excess(row: dict[str, Any]) -> float:
    """0 where guesses are even, 1 where one class gets all."""
    even = 1 / row["classes"]
    return (row["own"] - even) / (1 - even)


def _cell(value: Any, form: str = ".2f") -> str:
    return "" if value is None or value == "" or value != value else f"{value:{form}}"


def _table(ran: dict[str, dict[str, Any]]) -> str:
    lines = [f"| {' | '.join(_COLUMNS)} |", "|" + "---|" * len(_COLUMNS)]
    for name, row in ran.items():
        cells = (
            name, _cell(row["own"], ".3f"), _cell(1 / row["classes"], ".3f"),
            _cell(row.get("class_z")), _cell(row.get("instance_z")), row.get("verdict", "refused"),
            _cell(row.get("predicted"), ".3f"), ", ".join(row.get("faults", [])), _cell(row.get("seconds"), ".0f"),
        )  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _failures(rows: dict[str, dict[str, Any]]) -> str:
    lines = ["| model | why |", "|---|---|"]
    for name, row in rows.items():
        if row["failed"] or "class_refused" in row:
            why = (row["failed"] or row["class_refused"]).replace("|", "/").replace("\n", " ").replace("<", "&lt;")
            why = why.removeprefix("InvalidInput: Expected an architecture that can be shrunk, but got ")
            lines.append(f"| {name} | {why[:160]} |")
    return "\n".join(lines)


def _strange(ran: dict[str, dict[str, Any]]) -> str:
    lines = ["| model | never initialized | values no initializer gives | dead at the start |", "|---|---|---|---|"]
    for name, row in ran.items():
        found = [row.get(key) or [] for key in ("never_initialized", "no_initializer", "dead")]
        if any(found):
            lines.append(f"| {name} | " + " | ".join(_some(layers) for layers in found) + " |")
    return "\n".join(lines)


def _some(layers: list[str]) -> str:
    more = f" and {len(layers) - 2} more" if len(layers) > 2 else ""
    return ", ".join(f"`{layer}`" for layer in layers[:2]) + more


def chart(ran: dict[str, dict[str, Any]]) -> Any:
    """Every model a tick: how far from even it starts, by what it is for."""
    import altair as alt

    kinds = {"language": "language", "masked": "masked language", "choice": "multiple choice", "sequence": "sequences",
             "token": "tokens", "image": "images", "audio": "audio"}  # fmt: skip
    rows = [
        {"model": name, "for": kinds.get(name.split("/")[0], "other packages"), "excess": max(_excess(row), 0.0)}
        for name, row in ran.items()
    ]
    x = alt.X("excess:Q", title="largest share: 0 is even, 1 is all in one class", scale=alt.Scale(domain=[0, 1]))
    y = alt.Y("for:N", title=None, sort="-x", axis=alt.Axis(minExtent=105))  # other fonts are wider
    ticks = alt.Chart(alt.Data(values=rows)).mark_tick(thickness=1.5, opacity=0.6).encode(x=x, y=y, tooltip="model:N")
    middle = alt.Chart(alt.Data(values=rows)).mark_point(shape="diamond", filled=True, size=90, color="#d55e00")
    middle = middle.encode(x=alt.X("median(excess):Q"), y=y)
    return (ticks + middle).properties(
        width=560, height=240, title=f"How biased {len(rows)} published architectures are before training"
    )


if __name__ == "__main__":
    if len(sys.argv) > 1:
        {"run": run, "collect": collect, "write": write}[sys.argv[1]](*sys.argv[2:])
    else:
        print(__doc__)
