"""`firstguess diagnose`: what to do, and why."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, cast

import typer

from firstguess.base.errors import InvalidInput
from firstguess.cli import subjects
from firstguess.cli.output import Json, leave_if_interrupted, print_json, say

EXAMPLES = """Examples:

firstguess diagnose mymodels:Net --data cifar10 --data-dir data --report report.html

firstguess diagnose "10 x [dense(weight_var=2) > layernorm > relu] > dense" --data digits
"""


def diagnose(
    what: subjects.Subject,
    data: subjects.DataName,
    data_dir: subjects.DataDir = None,
    report: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the report: one .html file that opens offline.")
    ] = None,
    inits: subjects.Inits = 64,
    points: Annotated[int, typer.Option(help="Data points at most.")] = 1000,
    seconds: Annotated[
        float,
        typer.Option(help="About how long it may take; a verdict of fewer initializations is called preliminary."),
    ] = 180.0,
    width: subjects.Width = 1000,
    batch_size: subjects.BatchSize = None,
    standardize: subjects.Standardize = None,
    init: subjects.Init = None,
    redraw: subjects.Redraw = None,
    no_advice: Annotated[bool, typer.Option("--no-advice", help="Try no remedies.")] = False,
    optimizer: Annotated[
        str | None, typer.Option(help="What you will train with: gd (full batches), sgd or adam. [default: adam]")
    ] = None,
    lr: Annotated[float | None, typer.Option(help="Its learning rate. [default: 0.001, or a safe one]")] = None,
    steps: Annotated[int | None, typer.Option(help="How long you will train, in steps, or")] = None,
    epochs: Annotated[int | None, typer.Option(help="in epochs. [default: one, at least 100 steps]")] = None,
    goal: Annotated[
        str, typer.Option(help="What advice is ranked by: even start, trainability or worst class early.")
    ] = "even start",
    seed: subjects.Seed = 0,
    json: Json = False,
) -> None:
    """Say what to do about how an untrained network guesses: fix this, worth a change, harmless, nothing to do.

    Then what that follows from: how it guesses, which layers do it, whether it will train, how long the bias lasts.
    """
    import firstguess as fg

    if report is not None and report.suffix.lower() not in (".html", ".htm"):
        raise InvalidInput("a report ending in .html", got=str(report), where="--report", hint="--report report.html")
    if report is not None and not report.absolute().parent.is_dir():
        raise InvalidInput("a folder that exists", got=str(report.parent), where="--report")
    chosen, options = subjects.subject(what, init=init, width=width, redraw=redraw)
    source: Any = subjects.load_data(
        data, data_dir=data_dir, points=points, standardize=standardize, seed=seed, at_most=True
    )
    d = fg.diagnose(
        chosen,
        source,
        inits=inits,
        seed=seed,
        points=points,
        seconds=seconds,
        batch_size=batch_size,
        advice=not no_advice,
        lr=lr,
        optimizer=optimizer,
        steps=steps,
        epochs=epochs,
        goal=cast("Any", goal),
        name=what,
        data_name=data,
        **options,
    )
    if json:
        print_json(d.to_dict())
    else:
        typer.echo(str(d))
    if report is not None:
        d.save(report)
        say(f"wrote {report}")
    leave_if_interrupted(d.findings)
