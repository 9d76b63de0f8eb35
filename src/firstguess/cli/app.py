"""The command's frame: subcommands, errors without tracebacks, exit codes."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from typing import Annotated, Any

import typer

from firstguess._version import __version__
from firstguess.base.errors import FirstguessError
from firstguess.base.files import reason
from firstguess.cli import models, predict, research, setup, theory, train
from firstguess.cli.output import Command, Group, in_shell, run


class _Interruptible(Group):
    """Commands that say when they are interrupted: Typer itself ends them with 130, and without a word."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        outside = research.installed(cmd_name) if cmd_name == "reproduce" else None
        return outside or super().get_command(ctx, cmd_name)

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            sys.stderr.write(_INTERRUPTED)
            raise typer.Exit(130) from None


_INTERRUPTED = "firstguess: interrupted\n"
app = typer.Typer(
    name="firstguess",
    cls=_Interruptible,
    help="What a neural network believes before it has learned anything: predict, measure and repair initial guessing "
    "bias.\n\nStart with: firstguess predict mlp --depth 20",
    no_args_is_help=True,
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


_ON_A_MODEL = (models.diagnose, models.explain, models.check, models.measure, train.train, theory.coordinates)
_OF_THEORY = (predict.predict, train.predict_training, theory.phases, theory.tune, theory.activations, setup.explore)
_GROUPS = {
    "Your model": (*_ON_A_MODEL, models.repair),
    "Theory": _OF_THEORY,
    "Research": (research.sweep, research.reproduce, research.zoo),
    "Set-up": (setup.data, setup.doctor),
}
for _title, _commands in _GROUPS.items():
    for _command in _commands:
        _how: Any = {"cls": Command, "epilog": getattr(_command, "examples", ""), "rich_help_panel": _title}
        app.command(_command.__name__.replace("_", "-"), **_how)(_command)


def main() -> None:
    """Run the command; bad input ends in one line on stderr and exit code 2, Ctrl-C and SIGTERM in 130."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # kept like Ctrl-C: what was computed is printed
    try:
        run(app)
    except FirstguessError as error:
        sys.stderr.write(f"firstguess: {in_shell(str(error))}\n")
        sys.exit(2)
    except KeyboardInterrupt:
        sys.stderr.write(_INTERRUPTED)
        sys.exit(130)
    except BrokenPipeError:  # the reader of a pipe left: not our error
        sys.stderr.close()
        sys.exit(0)
    except OSError as error:  # a full disk, a folder that may not be read, a name too long
        # What a full disk did not take would be tried once more at the end, with a message of its own.
        with contextlib.suppress(OSError, ValueError), open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
        sys.stderr.write(f"firstguess: Expected files that can be read and written, but got {reason(error)}.\n")
        sys.exit(2)
