"""The command's frame: subcommands, errors without tracebacks, exit codes."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from firstguess._version import __version__
from firstguess.base.errors import FirstguessError
from firstguess.base.files import told
from firstguess.cli import (
    activations,
    check,
    data,
    diagnose,
    doctor,
    explore,
    measure,
    phases,
    predict,
    repair,
    reproduce,
    sweep,
    train,
    tune,
)
from firstguess.cli.usage import run


class _Interruptible(TyperGroup):
    """Commands that say when they are interrupted: Typer itself ends them with 130, and without a word."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            _say_interrupted()
            raise typer.Exit(130) from None


def _say_interrupted() -> None:
    sys.stderr.write("firstguess: interrupted\n")


app = typer.Typer(
    name="firstguess",
    cls=_Interruptible,
    help="What a neural network believes before it has learned anything: predict, measure and repair initial guessing "
    "bias.\n\nStart with: firstguess predict mlp --depth 20",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(value: bool) -> None:
    if value:
        typer.echo(f"firstguess {__version__}")
        raise typer.Exit()


@app.callback()
def frame(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


app.command("diagnose", epilog=diagnose.EXAMPLES)(diagnose.diagnose)
app.command("check", epilog=check.EXAMPLES)(check.check)
app.command("predict", epilog=predict.EXAMPLES)(predict.predict)
app.command("measure", epilog=measure.EXAMPLES)(measure.measure)
app.command("train", epilog=train.EXAMPLES)(train.train)
app.command("tune", epilog=tune.EXAMPLES)(tune.tune)
app.command("repair", epilog=repair.EXAMPLES)(repair.repair)
app.command("explore", epilog=explore.EXAMPLES)(explore.explore)
app.command("phases", epilog=phases.EXAMPLES)(phases.phases)
app.command("data", epilog=data.EXAMPLES)(data.data)
app.command("activations", epilog=activations.EXAMPLES)(activations.activations)
app.command("doctor", epilog=doctor.EXAMPLES)(doctor.doctor)
app.command("sweep", epilog=sweep.EXAMPLES)(sweep.sweep)
app.command("reproduce", epilog=reproduce.EXAMPLES)(reproduce.reproduce)


def main() -> None:
    """Run the command; bad input ends in one line on stderr and exit code 2, Ctrl-C and SIGTERM in 130."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # kept like Ctrl-C: what was computed is printed
    try:
        run(app)
    except FirstguessError as error:
        sys.stderr.write(f"firstguess: {error}\n")
        sys.exit(2)
    except KeyboardInterrupt:
        _say_interrupted()
        sys.exit(130)
    except BrokenPipeError:  # the reader of a pipe left: not our error
        sys.stderr.close()
        sys.exit(0)
    except OSError as error:  # a full disk, a folder that may not be read, a name too long
        _drop_output()
        sys.stderr.write(f"firstguess: Expected files that can be read and written, but got {told(error)}.\n")
        sys.exit(2)


def _drop_output() -> None:
    """What a full disk did not take would be tried once more at the end, with a message of its own."""
    with contextlib.suppress(OSError, ValueError), open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
