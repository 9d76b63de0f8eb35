"""`firstguess diagnose`, `explain`, `check`, `measure` and `repair`: commands on a model or a description."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, cast

import typer

import firstguess as fg
from firstguess.base import files
from firstguess.base.errors import FirstguessError, InvalidInput
from firstguess.base.progress import bar
from firstguess.base.text import capital, is_path
from firstguess.cli import subjects
from firstguess.cli.output import Figure, Json, check_figure, examples, leave_if_interrupted, print_json, say, show
from firstguess.cli.predict import closed_form
from firstguess.cli.subjects import DataOptions, flag, option

# -- What to do, and why ----------------------------------------------------------------------------------------------


_DIAGNOSED: dict[str, Any] = {
    "inits": subjects.Inits,
    "seconds": option(float, "About how long it may take; a verdict of fewer initializations is called preliminary."),
    "batch_size": subjects.BatchSize,
    "no_advice": flag("--no-advice", "Try no remedies."),
    "optimizer": option(str, "What you will train with: gd (full batches), sgd or adam. [default: adam]"),
    "lr": option(float, "Its learning rate. [default: 0.001, or a safe one]"),
    "steps": option(int, "How long you will train, in steps, or"),
    "epochs": option(int, "in epochs. [default: one, at least 100 steps]"),
    "goal": option(str, "What advice is ranked by: even start, trainability or worst class early."),
}


@subjects.reads_data(points=1000)
@subjects.takes_model()
@subjects.takes("how", _DIAGNOSED, inits=64, seconds=180.0, no_advice=False, goal="even start")
@examples("""Examples:

firstguess diagnose mymodels:Net --data cifar10 --data-dir data --report report.html

firstguess diagnose "10 x [dense(weight_var=2) > layernorm > relu] > dense" --data digits
""")
def diagnose(
    what: subjects.Subject,
    *,
    source: DataOptions,
    model: dict[str, Any],
    report: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the report: one .html file that opens offline.")
    ] = None,
    how: dict[str, Any],
    json: Json = False,
) -> None:
    """Say what to do about how an untrained network guesses: fix this, worth a change, harmless, nothing to do.

    Then the evidence: how it guesses, which layers do it, whether it will train, how long the bias lasts.
    """
    if report is not None:
        files.checked(report, (".html", ".htm"), said=".html", example="report.html", where="--report")
    chosen, options = subjects.subject(what, **model)
    given: Any = source.load(most=source.points)
    options |= {"name": what, "data_name": source.data, "advice": not how.pop("no_advice"), "points": given.n}
    d = fg.diagnose(chosen, given, seed=source.seed, **options, **how)
    show(d, json=json)
    if report is not None:
        d.save(report)
        say(f"wrote {report}")
    leave_if_interrupted(d.findings)


# -- Why one model guesses as it does ---------------------------------------------------------------------------------


@subjects.reads_data(points=1000)
@examples("""Examples:

firstguess explain mymodels:net --data digits

firstguess explain mymodels.py:net --data mnist:even-odd --data-dir data
""")
def explain(
    what: subjects.Subject,
    source: DataOptions,
    inits: Annotated[int, typer.Option(help="Initializations to compare with.")] = 50,
    seconds: Annotated[float, typer.Option(help="About how long it may take.")] = 30.0,
    redraw: subjects.Redraw = None,
    json: Json = False,
) -> None:
    """Explain the guesses of one model as it is: expected from its architecture, caused by the data, or a fault.

    For what to do about an architecture, firstguess diagnose.
    """
    if not is_path(what):
        hint = "firstguess diagnose for descriptions"
        raise InvalidInput("a model, module:name", got=what, where="explain", hint=hint)
    chosen, options = subjects.subject(what, width=0, redraw=redraw)
    given: Any = source.load(most=source.points)
    options |= {"inits": inits, "points": given.n, "seconds": seconds, "seed": source.seed}
    with bar("explaining") as tick:
        found = fg.explain_guess(chosen, given, progress=tick, **options)
    show(found, json=json)


# -- A gate for CI ----------------------------------------------------------------------------------------------------


@subjects.reads_data()
@subjects.takes_model()
@examples("""Examples:

firstguess check mymodels:Net --data mnist:even-odd --data-dir data

firstguess check mymodels:Net --data digits --max-share 0.5

firstguess check "5 x [dense(weight_var=2) > relu > layernorm] > dense" --data digits --max-gamma 0.5

Exit code: 0 passed, 1 a fault or too biased, 2 bad input, 130 interrupted.
""")
def check(
    what: subjects.Subject,
    source: DataOptions,
    model: dict[str, Any],
    max_gamma: Annotated[
        float | None,
        typer.Option(
            help="The largest drift ratio γ of the output that passes. [default: 1, unless --max-share is given]"
        ),
    ] = None,
    max_share: Annotated[
        float | None, typer.Option(help="The largest average fraction of the largest class that passes.")
    ] = None,
    inits: Annotated[int, typer.Option(help="Most initializations to draw; 50 if these decide.")] = 400,
    batch_size: subjects.BatchSize = None,
    strict: Annotated[
        bool,
        typer.Option(
            "--strict", help="Fail wherever the measured number is above the limit, statistically clear or not."
        ),
    ] = False,
    json: Json = False,
) -> None:
    """Fail (exit code 1) if the model or its data have a fault, or untrained networks favour one class too much.

    The limits are on γ of the output and on the share of the data that the largest class gets, on average.
    """
    from firstguess.diagnosis import assert_even as gate

    chosen, options = subjects.subject(what, **model)
    given: Any = source.load()
    options |= {"strict": strict, "inits": inits, "seed": source.seed, "batch_size": batch_size}
    with bar("drawing networks") as tick:
        try:
            faults = gate.faults_to_fix(chosen, given)
            found = gate.check(chosen, given, max_gamma, max_share, progress=tick, **options)
        except FirstguessError:
            raise
        except Exception as error:  # of the user's code: not to be taken for "too biased", which is exit code 1
            raise InvalidInput("a model that can be built and run", got=f"{type(error).__name__}: {error}") from error
    passed = found.passed and not faults
    lines = [f"FIX THIS: {fault.message}. {capital(fault.fix)}" for fault in faults]
    alone = "the guesses alone passed" if faults else "passed"
    said = found.message.replace("fg.diagnose(model, data)", f"firstguess diagnose {what} --data {source.data}")
    lines.append(f"{alone if found.passed else 'failed'}: {said}")
    if json:
        print_json(found.to_dict() | {"passed": passed, "faults": [fault.to_dict() for fault in faults]})
    else:
        typer.echo("\n".join(lines))
    errors = lines[: len(faults)] if found.passed else lines
    _tell_github(what, lines, errors, passed=passed, aside=json)
    if not passed:
        raise typer.Exit(1)


def _tell_github(what: str, lines: list[str], errors: list[str], *, passed: bool, aside: bool) -> None:
    """Errors next to the change, and a summary of the step, if GitHub Actions runs this."""
    if os.environ.get("GITHUB_ACTIONS") != "true":
        return
    for line in errors:
        said = line.replace("%", "%25").replace("\n", "%0A")
        typer.echo(f"::error title=firstguess check {what}::{said}", err=aside)
    if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
        with open(summary, "a", encoding="utf-8") as file:
            file.write(f"### firstguess check: {what} {'passed' if passed else 'failed'}\n\n")
            file.writelines(f"- {line}\n" for line in lines)


# -- Many untrained networks, counted ---------------------------------------------------------------------------------


@subjects.takes("source", {**subjects.DATA, "shift": subjects.Shift}, make=DataOptions, data=subjects.REQUIRED, seed=0)
@subjects.takes_model()
@examples("""Examples:

firstguess measure "5 x [dense(weight_var=2) > relu] > dense(weight_var=2)" --data digits --inits 500

firstguess measure package.module:factory --data blob:n=2000,d=3072 --inits 100

firstguess measure mymodels:Net --data mnist:even-odd --data-dir data --init kaiming_normal --figure shares.png
""")
def measure(
    what: subjects.Subject,
    source: DataOptions,
    model: dict[str, Any],
    inits: Annotated[int | None, typer.Option(help="Number of initializations. [default: 100]")] = None,
    classes: subjects.Classes = None,
    batch_size: subjects.BatchSize = None,
    precision: Annotated[float | None, typer.Option(help="Stop when the 95 % interval is this narrow (±).")] = None,
    json: Json = False,
    figure: Figure = None,
) -> None:
    """Measure how untrained networks spread their guesses, with error bars: the ensemble reading.

    Ctrl-C keeps what was computed.
    """
    check_figure(figure)
    chosen, options = subjects.subject(what, **model)
    given: Any = source.load()
    options |= {"classes": classes, "precision": precision, "batch_size": batch_size}
    with bar("drawing networks") as drawing:
        m = fg.measure(chosen, given, inits=inits, seed=source.seed, progress=drawing, **options)

    def chart() -> Any:
        if not isinstance(chosen, str):
            return fg.figures.readings_chart(None, None, m)
        prediction = closed_form(fg.Network.parse(chosen, classes=m.classes), given)
        return fg.figures.compare_chart(prediction, m)

    show(m, json=json, figure=figure, chart=chart)
    leave_if_interrupted(m.findings)


# -- A model whose first guesses are as even as wanted ----------------------------------------------------------------


@subjects.reads_data(points=512)
@examples("""Examples:

firstguess repair package.module:factory --data digits --out repaired.safetensors

firstguess repair mymodels:Net --data mnist:even-odd --data-dir data --gamma 0 --out net.safetensors
""")
def repair(
    what: Annotated[str, typer.Argument(help="A model's class or factory, package.module:name.", metavar="MODEL")],
    source: DataOptions,
    out: Annotated[Path, typer.Option(help="Write the weights there, as safetensors.", metavar="FILE")],
    gamma: Annotated[float, typer.Option(help="The wanted γ of the output; 0 removes all of the bias.")] = 0.2,
    how: Annotated[str, typer.Option(help="head: one bias is moved; layers: all are centred.")] = "head",
    force: Annotated[bool, typer.Option("--force", help="Repair it even if it looks trained.")] = False,
    json: Json = False,
) -> None:
    """Write a copy of a model whose output bias is shifted so that no class is favoured on average.

    The first predictions become even; training speed is unchanged.
    """
    import torch
    from torch import nn

    from firstguess.modules.members.sources import found_at

    if not is_path(what):
        hint = "firstguess tune for descriptions"
        raise InvalidInput("a model, package.module:name", got=what, where="repair", hint=hint)
    torch.manual_seed(source.seed)
    factory: Any = found_at(what)
    try:
        made: Any = factory()
    except Exception as error:  # of the user's code, or of what is no factory at all
        got = f"{type(error).__name__}: {error}"
        raise InvalidInput("a factory of nn.Module, called without arguments", got=got, where=what) from error
    if not isinstance(made, nn.Module):
        raise InvalidInput("a factory of nn.Module", got=type(made).__name__, where=what)
    given = source.load(most=source.points)
    fixed = fg.repair(made, given, gamma=gamma, how=cast("Any", how), points=given.n, force=force, seed=source.seed)
    fixed.save(out)
    if json:
        print_json(fixed.to_dict() | {"out": str(out)})
    else:
        typer.echo(str(fixed))
    say(f"wrote {out}")
