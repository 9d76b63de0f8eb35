"""`firstguess zoo`: the first values of published architectures, where they are not what an initializer gives."""

from __future__ import annotations

import fnmatch
from typing import Annotated

import typer

from firstguess.base.errors import FirstguessError, InvalidInput
from firstguess.base.progress import bar
from firstguess.cli.output import Json, print_json

EXAMPLES = """Examples:

firstguess zoo 'image/*'

firstguess zoo 'sequence/*bert*' --json
"""
_WORDS = {
    "never_initialized": "never initialized",
    "no_initializer": "values no initializer gives",
    "dead": "dead at the start (all zero)",
}


def zoo(
    pattern: Annotated[
        str, typer.Argument(help="Which: task/model type of transformers, with * and ?.", metavar="PATTERN")
    ] = "*",
    json: Json = False,
) -> None:
    """List weights of Hugging Face architectures that no initializer gives, that nobody initializes, or that are dead.

    Each is made small and drawn by its own code; nothing is downloaded.
    """
    try:
        import transformers  # pyright: ignore[reportUnusedImport]  # noqa: F401
    except ImportError as error:
        raise InvalidInput("transformers", got="not installed", hint="pip install transformers") from error
    from firstguess.studies.zoo import architectures, audit, shrunk

    names = fnmatch.filter(architectures(), pattern)
    if not names:
        raise InvalidInput("architectures that are there", got=pattern, where="zoo", hint="'sequence/*'")
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
