"""`firstguess sweep`: a study written as TOML, run or gone on with; what there is of studies in a store."""

from __future__ import annotations

import json as json_
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from firstguess.base.errors import InvalidInput
from firstguess.cli.data import DataDir
from firstguess.cli.output import Json, print_json, print_table, say

if TYPE_CHECKING:
    from firstguess.studies.kept import KeptStudy

EXAMPLES = """Examples:

firstguess sweep study.toml

firstguess sweep study.toml --engine ray --address auto --report study.html

firstguess sweep status runs/

firstguess sweep table runs/ --study norms --json
"""
_ROWS = 40


def sweep(
    what: Annotated[str, typer.Argument(metavar="FILE|status|table", help="A .toml file; or what to show of a store.")],
    folder: Annotated[
        Path | None, typer.Argument(metavar="STORE", help="For status and table: the store. [default: runs]")
    ] = None,
    engine: Annotated[str, typer.Option(help="local (processes of this machine) or ray.")] = "local",
    address: Annotated[str | None, typer.Option(help='Of a Ray cluster; "auto" finds it. [default: one here]')] = None,
    workers: Annotated[int | None, typer.Option(help="Processes of this machine. [default: one a core]")] = None,
    cpus: Annotated[int, typer.Option(help="Processors a task, on Ray.")] = 1,
    gpus: Annotated[float, typer.Option(help="GPUs a task, on Ray.")] = 0,
    retries: Annotated[int, typer.Option(help="Of a task whose process or node died.")] = 3,
    seconds: Annotated[float | None, typer.Option(help="Time limit of a task.")] = None,
    memory: Annotated[float | None, typer.Option(help="Bytes that a task may use.")] = None,
    store: Annotated[Path | None, typer.Option(help="Another store than the file's.")] = None,
    data_dir: DataDir = None,
    page: Annotated[
        Path | None,
        typer.Option("--report", "--page", metavar="FILE", help="Write the study as .html when it is done."),
    ] = None,
    study: Annotated[str | None, typer.Option(help="For table: which one, where the store has several.")] = None,
    json: Json = False,
) -> None:
    """Run a study: all combinations of a grid, each computed once and kept; the same command goes on after anything.

    Exit code 1: there are tasks without a result; the list of them is printed.
    """
    if what in ("status", "table"):
        (_status if what == "status" else _table)(folder or Path("runs"), study, json)
        return
    if folder is not None:
        raise InvalidInput("status or table before a store", got=what, hint=f"firstguess sweep status {folder}")
    from firstguess.studies.plans import planned

    if page is not None:
        from firstguess.base import files

        files.checked(page, (".html", ".htm"), said=".html", example="study.html")
    found = planned(what, store=store, data_dir=str(data_dir) if data_dir else None)
    options: dict[str, Any] = {"engine": engine, "retries": retries, "seconds": seconds, "memory": memory}
    options |= {"address": address, "cpus": cpus, "gpus": gpus} if engine == "ray" else {"workers": workers}
    try:
        found.run(**options)
    except KeyboardInterrupt:
        say(f"stopped: {found.ran}; the same command goes on from there")
        raise
    say(str(found.ran))
    if page is not None:
        say(f"wrote {found.save(page)}")
    _show(found.table(), json)
    failures = found.failures().to_pylist()
    for row in failures:
        where = ", ".join(f"{k} {v}" for k, v in row.items() if k not in ("reason", "trace", "seconds", "task"))
        say(f"failed: {where}: {row['reason']}")
    if failures:
        raise typer.Exit(1)


def _studies(folder: Path) -> list[KeptStudy]:
    from firstguess.studies.kept import studies_in

    if not folder.is_dir():
        raise InvalidInput("a store", got=f"{folder}, which is not there", hint="firstguess sweep status runs/")
    return list(studies_in(folder))


def _status(folder: Path, study: str | None, json: bool) -> None:
    rows = [{"study": one.name, **one.counts()} for one in _studies(folder) if study in (None, one.name)]
    if json:
        print_json(rows)
        return
    columns = ["study", "tasks", "done", "failed", "missing"]
    print_table(f"Studies in {folder}", columns, [[str(row[name]) for name in columns] for row in rows])


def _table(folder: Path, study: str | None, json: bool) -> None:
    found = {one.name: one for one in _studies(folder)}
    if study is None and len(found) == 1:
        study = next(iter(found))
    if study not in found:
        names = ", ".join(found) or "none"
        raise InvalidInput(f"--study, one of: {names}", got=study or "none", where=str(folder))
    table, damaged = found[study].table()
    if damaged:
        say(f"{damaged} damaged result files were set aside: the study computes them again")
    _show(table, json)


def _show(table: Any, json: bool) -> None:
    if json:
        print_json(table.to_pylist())
        return
    names = [field.name for field in table.schema if not str(field.type).startswith("list")]
    names = [name for name in names if name not in ("task", "network", "findings") and not _aside(name)]
    rows = table.select(names).slice(0, _ROWS).to_pylist()
    print_table("", names, [[_cell(row[name]) for name in names] for row in rows])
    if table.num_rows > _ROWS:
        say(f"the first {_ROWS} of {table.num_rows} rows: --json has all, with all columns")


def _aside(name: str) -> bool:
    return name.endswith(("_se", "_low", "_high", "_start"))


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:.4g}" if isinstance(value, float) else value if isinstance(value, str) else json_.dumps(value)
