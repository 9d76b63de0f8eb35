"""`firstguess sweep`: a study written as TOML, run or gone on with; what there is of studies in a store."""

from __future__ import annotations

import json as json_
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from firstguess.base.checks import given
from firstguess.base.errors import InvalidInput
from firstguess.base.text import spaced
from firstguess.cli import subjects
from firstguess.cli.output import Json, print_json, print_table, say

if TYPE_CHECKING:
    from firstguess.studies.study_files import KeptStudy

EXAMPLES = """A study.toml; names in the grid are arguments of the network, of the reading, or {names} in a description:

reading = "measure"  # or predict, train, diagnose

network = "mlp"  # or residual_mlp, cnn, a description

data = "digits"

grid = {depth = [1, 5, 20], norm = ["none", "batchnorm", "layernorm"]}

options = {inits = 200, width = 500}

Examples:

firstguess sweep study.toml

firstguess sweep study.toml --engine ray --address auto --report study.html

firstguess sweep status runs/

firstguess sweep table runs/ --study norms --json
"""
_ROWS, _WIDTH = 40, 80
_ASIDE = ("task", "network", "findings")
_ENDINGS = ("_se", "_low", "_high", "_start")


def sweep(
    what: Annotated[str, typer.Argument(metavar="FILE|status|table", help="A .toml file; or what to show of a store.")],
    folder: Annotated[
        Path | None, typer.Argument(metavar="STORE", help="For status and table: the store. [default: runs]")
    ] = None,
    engine: Annotated[
        str | None, typer.Option(help="local (processes of this machine) or ray. [default: local]")
    ] = None,
    address: Annotated[str | None, typer.Option(help='Of a Ray cluster; "auto" finds it. [default: one here]')] = None,
    workers: Annotated[int | None, typer.Option(help="Processes of this machine. [default: one a core]")] = None,
    cpus: Annotated[int | None, typer.Option(help="Processors a task, on Ray. [default: 1]")] = None,
    gpus: Annotated[float | None, typer.Option(help="GPUs a task, on Ray. [default: none]")] = None,
    retries: Annotated[int | None, typer.Option(help="Retries when a worker dies. [default: 3]")] = None,
    seconds: Annotated[float | None, typer.Option(help="Time limit of a task.")] = None,
    memory: Annotated[float | None, typer.Option(help="Bytes that a task may use: 4e9.")] = None,
    store: Annotated[Path | None, typer.Option(help="Another store than the file's.")] = None,
    data_dir: subjects.DataDir = None,
    page: Annotated[
        Path | None,
        typer.Option("--report", "--page", metavar="FILE", help="Write the study as .html when it is done."),
    ] = None,
    study: Annotated[str | None, typer.Option(help="For table: which one, where the store has several.")] = None,
    json: Json = False,
) -> None:
    """Run a study: all combinations of a grid, each result is cached; rerun the same command to resume.

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
    limits = given(retries=retries, seconds=seconds, memory=memory)
    options = given(engine=engine, address=address, workers=workers, cpus=cpus, gpus=gpus, **limits)
    say(str(found.run(**options).ran))
    if page is not None:
        say(f"wrote {found.save(page)}")
    _show(found.table(), found.settings(), json)
    failures = found.failures().to_pylist()
    for row in failures:
        where = ", ".join(f"{name} {_cell(row[name], setting=True)}" for name in found.settings())
        say(f"failed: {where}: {row['reason']}")
    if failures:
        raise typer.Exit(1)


def _studies(folder: Path) -> list[KeptStudy]:
    from firstguess.studies.study_files import studies_in

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
    _show(table, found[study].settings(), json)


def _show(table: Any, settings: list[str], json: bool) -> None:
    """All of it as JSON; else what differs from row to row, and fits, and what does not in words."""
    if json:
        print_json(table.to_pylist())
        return
    names = [field.name for field in table.schema if not str(field.type).startswith("list")]
    names = [name for name in names if name in settings or not (name in _ASIDE or name.endswith(_ENDINGS))]
    rows = table.select(names).slice(0, _ROWS).to_pylist()
    cells = {name: [_cell(row[name], setting=name in settings) for row in rows] for name in names}
    same = [name for name in names if len(rows) > 1 and len(set(cells[name])) == 1 and name != "seconds"]
    shown, left = [name for name in names if name not in same], list[str]()
    while len(shown) > 2 and sum(max(len(name), *map(len, cells[name])) + 3 for name in shown) > _WIDTH + 3:
        left.insert(0, shown.pop())
    print_table("", shown, zip(*(cells[name] for name in shown), strict=True))
    if same:
        say(f"the same in all rows: {', '.join(f'{name} {cells[name][0]}' for name in same)}")
    if left:
        say(f"columns that have no room here, but with --json: {', '.join(left)}")
    if table.num_rows > _ROWS:
        say(f"the first {_ROWS} of {spaced(table.num_rows)} rows: --json has all")


def _cell(value: Any, *, setting: bool = False) -> str:
    if value is None:
        return "none" if setting else "–"
    return f"{value:.4g}" if isinstance(value, float) else value if isinstance(value, str) else json_.dumps(value)
