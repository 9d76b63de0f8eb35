"""`firstguess explain`: why one model guesses as it does."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from firstguess.base.errors import InvalidInput
from firstguess.base.progress import bar
from firstguess.base.text import is_path
from firstguess.cli import subjects
from firstguess.cli.output import Json, print_json

EXAMPLES = """Examples:

firstguess explain mymodels:net --data digits

firstguess explain mymodels.py:net --data mnist:even-odd --data-dir data
"""


def explain(
    what: subjects.Subject,
    data: subjects.DataName,
    data_dir: subjects.DataDir = None,
    inits: Annotated[int, typer.Option(help="Initializations to compare with.")] = 50,
    points: Annotated[int, typer.Option(help="Data points at most.")] = 1000,
    seconds: Annotated[float, typer.Option(help="About how long it may take.")] = 30.0,
    standardize: subjects.Standardize = None,
    redraw: subjects.Redraw = None,
    seed: subjects.Seed = 0,
    json: Json = False,
) -> None:
    """Explain the guesses of one model as it is: expected from its architecture, caused by the data, or a fault.

    For what to do about an architecture, firstguess diagnose.
    """
    import firstguess as fg

    if not is_path(what):
        raise InvalidInput(
            "a model, module:name", got=what, where="explain", hint="firstguess diagnose for descriptions"
        )
    chosen, options = subjects.subject(what, init=None, width=0, redraw=redraw)
    source: Any = subjects.load_data(
        data, data_dir=data_dir, points=points, standardize=standardize, seed=seed, at_most=True
    )
    with bar("explaining") as tick:
        found = fg.explain_guess(
            chosen, source, inits=inits, points=points, seconds=seconds, seed=seed, progress=tick, **options
        )
    if json:
        print_json(found.to_dict())
    else:
        typer.echo(str(found))
