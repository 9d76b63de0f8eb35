"""`firstguess check`: a gate for CI; exit code 1 when an untrained network's guesses are not even enough."""

from __future__ import annotations

import os
from typing import Annotated, Any

import typer

from firstguess.base.errors import FirstguessError, InvalidInput
from firstguess.base.progress import bar
from firstguess.cli import subjects
from firstguess.cli.output import Json, print_json

EXAMPLES = """Examples:

firstguess check mymodels:Net --data mnist:even-odd --data-dir data

firstguess check mymodels:Net --data digits --max-share 0.5

firstguess check "5 x [dense(weight_var=2) > relu > layernorm] > dense" --data digits --max-gamma 0.5

Exit code: 0 passed, 1 a fault or too biased, 2 bad input, 130 interrupted.
"""


def check(
    what: subjects.Subject,
    data: subjects.DataName,
    data_dir: subjects.DataDir = None,
    max_gamma: Annotated[
        float | None,
        typer.Option(
            help="The largest drift ratio γ of the output that passes. [default: 1, unless --max-share is given]"
        ),
    ] = None,
    max_share: Annotated[
        float | None, typer.Option(help="The largest average fraction of the largest class that passes.")
    ] = None,
    inits: Annotated[int, typer.Option(help="Number of initializations at most; 50 where they decide.")] = 400,
    points: subjects.Points = None,
    width: subjects.Width = 1000,
    batch_size: subjects.BatchSize = None,
    standardize: subjects.Standardize = None,
    init: subjects.Init = None,
    redraw: subjects.Redraw = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Fail wherever the measured number is above the limit, sure or not.")
    ] = False,
    seed: subjects.Seed = 0,
    json: Json = False,
) -> None:
    """Fail (exit code 1) if the model or its data have a fault, or untrained networks favour one class too much.

    The limits are on γ of the output and on the share of the data that the largest class gets, on average.
    """
    from firstguess.diagnosis import gate

    chosen, options = subjects.subject(what, init=init, width=width, redraw=redraw)
    source: Any = subjects.load_data(data, data_dir=data_dir, points=points, standardize=standardize, seed=seed)
    with bar("drawing networks") as tick:
        try:
            faults = gate.faults_to_fix(chosen, source)
            found = gate.check(
                chosen,
                source,
                max_gamma,
                max_share,
                strict=strict,
                inits=inits,
                seed=seed,
                batch_size=batch_size,
                progress=tick,
                **options,
            )
        except FirstguessError:
            raise
        except Exception as error:  # of the user's code: not to be taken for "too biased", which is exit code 1
            raise InvalidInput("a model that can be built and run", got=f"{type(error).__name__}: {error}") from error
    passed = found.passed and not faults
    lines = [f"FIX THIS: {fault.message}. {fault.fix}" for fault in faults]
    lines.append(f"{'passed' if found.passed else 'failed'}: {found.message}")
    if json:
        print_json(found.to_dict() | {"passed": passed, "faults": [fault.to_dict() for fault in faults]})
    else:
        typer.echo("\n".join(lines))
    _tell_github(what, lines, passed=passed, aside=json)
    if not passed:
        raise typer.Exit(1)


def _tell_github(what: str, lines: list[str], *, passed: bool, aside: bool) -> None:
    """Errors beside the change, and a summary of the step, where GitHub Actions runs this."""
    if os.environ.get("GITHUB_ACTIONS") != "true":
        return
    for line in lines:
        if not line.startswith("passed"):
            said = line.replace("%", "%25").replace("\n", "%0A")
            typer.echo(f"::error title=firstguess check {what}::{said}", err=aside)
    if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
        with open(summary, "a", encoding="utf-8") as file:
            file.write(f"### firstguess check: {what} {'passed' if passed else 'failed'}\n\n")
            file.writelines(f"- {line}\n" for line in lines)
