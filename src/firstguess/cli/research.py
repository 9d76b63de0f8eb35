"""`firstguess sweep`, `zoo` and `reproduce`: commands for research."""

from __future__ import annotations

import fnmatch
import json as json_
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from firstguess.base import files
from firstguess.base.errors import FirstguessError, InvalidInput
from firstguess.base.progress import bar
from firstguess.base.text import spaced
from firstguess.cli import subjects
from firstguess.cli.output import Command, Json, examples, print_json, print_table, say
from firstguess.cli.subjects import option

if TYPE_CHECKING:
    from firstguess.studies.study_files import StudyFiles


# -- A study written as TOML ------------------------------------------------------------------------------------------


_ROWS, _WIDTH = 40, 80
_ASIDE = ("task", "network", "findings")
_ENDINGS = ("_se", "_low", "_high", "_start")


_RUN: dict[str, Any] = {
    "engine": option(str, "local (processes of this machine) or ray. [default: local]"),
    "address": option(str, 'Address of a Ray cluster; "auto" finds it. [default: one here]'),
    "workers": option(int, "Processes of this machine. [default: one per core]"),
    "cpus": option(int, "Processors per task, on Ray. [default: 1]"),
    "gpus": option(float, "GPUs per task, on Ray. [default: none]"),
    "retries": option(int, "Retries when a worker dies. [default: 3]"),
    "seconds": option(float, "Time limit of a task."),
    "memory": option(float, "Bytes that a task may use: 4e9."),
}


@subjects.takes("how", _RUN)
@examples("""A study.toml; names in the grid are arguments of the network, of the reading, or {names} in a description:

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
""")
def sweep(
    what: Annotated[str, typer.Argument(metavar="FILE|status|table", help="A .toml file; or what to show of a store.")],
    *,
    folder: Annotated[
        Path | None, typer.Argument(metavar="STORE", help="For status and table: the store. [default: runs]")
    ] = None,
    how: dict[str, Any],
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
        files.checked(page, (".html", ".htm"), said=".html", example="study.html")
    found = planned(what, store=store, data_dir=str(data_dir) if data_dir else None)
    say(str(found.run(**how).ran))
    if page is not None:
        say(f"wrote {found.save(page)}")
    _show(found.table(), found.settings(), json)
    failures = found.failures().to_pylist()
    for row in failures:
        where = ", ".join(f"{name} {_cell(row[name], setting=True)}" for name in found.settings())
        say(f"failed: {where}: {row['reason']}")
    if failures:
        raise typer.Exit(1)


def _studies(folder: Path) -> list[StudyFiles]:
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
        say(f"columns that do not fit here (--json has them): {', '.join(left)}")
    if table.num_rows > _ROWS:
        say(f"the first {_ROWS} of {spaced(table.num_rows)} rows: --json has all")


def _cell(value: Any, *, setting: bool = False) -> str:
    if value is None:
        return "none" if setting else "–"
    return f"{value:.4g}" if isinstance(value, float) else value if isinstance(value, str) else json_.dumps(value)


# -- The first values of published architectures ----------------------------------------------------------------------


_WORDS = {
    "never_initialized": "never initialized",
    "no_initializer": "values no initializer gives",
    "dead": "dead at the start (all zero)",
}


@examples("""Examples:

firstguess zoo 'image/*'

firstguess zoo 'sequence/*bert*' --json
""")
def zoo(
    pattern: Annotated[
        str, typer.Argument(help="Which: task/model type of transformers, with * and ?.", metavar="PATTERN")
    ] = "*",
    json: Json = False,
) -> None:
    """List weights of Hugging Face architectures that no initializer gives, that nobody initializes, or that are dead.

    Each is made small and initialized by its own code; nothing is downloaded.
    """
    try:
        import transformers  # pyright: ignore[reportUnusedImport]  # noqa: F401
    except ImportError as error:
        raise InvalidInput("transformers", got="not installed", hint="pip install transformers") from error
    from firstguess.studies.zoo import architectures, audit, shrunk

    names = fnmatch.filter(architectures(), pattern)
    if not names:
        raise InvalidInput(
            "architectures that are there", got=pattern or "an empty pattern", where="zoo", hint="'sequence/*'"
        )
    rows: dict[str, dict[str, list[str]]] = {}
    failed: dict[str, str] = {}
    with bar("looking into") as tick:
        for index, name in enumerate(names):
            tick(index, len(names))
            try:
                rows[name] = audit(shrunk(name))
            except FirstguessError as error:
                failed[name] = error.reason
    if json:
        print_json({"found": rows, "failed": failed})
        return
    strange = {name: row for name, row in rows.items() if any(row.values())}
    for name, row in strange.items():
        typer.echo(name)
        for key, layers in row.items():
            more = f" and {len(layers) - 3} more" if len(layers) > 3 else ""
            if layers:
                typer.echo(f"  {_WORDS[key]}: {', '.join(layers[:3])}{more}")
    typer.echo(f"{len(rows)} looked into, {len(strange)} listed; {len(failed)} could not be made small")
    if strange:
        first = next(iter(strange))
        typer.echo(f"again: python -c \"from firstguess.studies import zoo; print(zoo.audit(zoo.shrunk('{first}')))\"")


# -- Figures of the papers --------------------------------------------------------------------------------------------


def reproduce() -> None:
    """Recompute figures and claims of the papers: numbers as Parquet, figures, and a ledger of what holds."""
    hint = "pip install firstguess-papers (in a clone: pip install ./papers)"
    expected = "the package of the papers, which `firstguess reproduce` comes with"
    raise InvalidInput(expected, got="none that can be imported", hint=hint)


def installed(name: str) -> Any:
    """Return a command that another installed package brings (entry points "firstguess.commands"), or None."""
    from importlib.metadata import entry_points

    for point in entry_points(group="firstguess.commands", name=name):
        try:
            function = point.load()
        except ImportError:
            return None
        app = typer.Typer(add_completion=False, rich_markup_mode="markdown")
        app.command(name, cls=Command, epilog=getattr(function, "examples", None))(function)
        command = typer.main.get_command(app)
        cast("Any", command).rich_help_panel = "Research"
        return command
    return None
