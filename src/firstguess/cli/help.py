"""A command line that cannot be read ends like any other bad input: in one line."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, cast

import typer
from typer.core import TyperCommand, TyperGroup

from firstguess.base.errors import InvalidInput


def run(app: typer.Typer) -> None:
    """Run the commands; a missing or unknown option is one line on stderr and exit code 2, not a box of five."""
    try:
        code: object = app(prog_name="firstguess", standalone_mode=False)
    except MemoryError as error:
        raise InvalidInput(
            "something that fits in memory", got=str(error) or "no more of it", hint="fewer points or a smaller width"
        ) from None
    except Exception as error:
        # Click's own exceptions by what they can do: newer versions of Typer carry a copy of Click, older ones use it.
        words = cast("Callable[[], str] | None", getattr(error, "format_message", None))
        if words is None:
            raise
        code = int(getattr(error, "exit_code", 2))
        if type(error).__name__ == "NoArgsIsHelpError":  # the message is the help, which Rich has printed already
            if words().strip():
                cast(Any, error).show()
        else:
            sys.stderr.write(f"firstguess: {_line(words())} Try: {_help(error)}\n")
    sys.exit(code if isinstance(code, int) else 0)


def _line(text: str) -> str:
    line = " ".join(text.split())
    return line if line.endswith((".", "?", "!")) else f"{line}."


def _help(error: Exception) -> str:
    path = getattr(getattr(error, "ctx", None), "command_path", "firstguess")
    return f"{path} --help"


# --------------------------------------------------------------------------------------------------------------
# One vocabulary for all commands: what stands after an option in the help, by its name; flags have nothing there.

# Option or argument -> what stands for its value. The same name means the same in every command.
VALUES = {
    "activation": "NAME", "address": "ADDRESS", "block": "BLOCK", "code": "FILE", "data": "DATA", "data_dir": "FOLDER",
    "draw": "WHAT", "engine": "NAME", "figure": "FILE", "figures": "FOLDER", "goal": "GOAL", "how": "HOW",
    "init": "NAME", "knob": "NAME", "ledger": "FILE", "loss": "NAME", "network": "NETWORK", "norm": "NAME",
    "optimizer": "NAME", "page": "FILE", "placement": "PLACE", "pool": "LAYER", "redraw": "NAMES", "report": "FILE",
    "schedule": "NAME", "standardize": "HOW", "start": "KIND", "store": "FOLDER", "study": "NAME", "test": "DATA",
    "what": "NETWORK", "weight_range": "FROM TO", "bias_range": "FROM TO",
}  # fmt: skip
_BY_TYPE = {"int": "N", "integer": "N", "float": "X", "Path": "FILE", "path": "FILE"}


def worded(parameter: Any) -> Any:
    """The same parameter with its word; Typer's own is <int> or <bool>."""
    if parameter.param_type_name == "argument":
        parameter.metavar = parameter.metavar or VALUES.get(parameter.name)
        parameter.display_type_rich = _nothing  # its name says it
    elif getattr(parameter, "is_flag", False):
        parameter.metavar = ""
    elif parameter.metavar is None:
        parameter.metavar = VALUES.get(parameter.name) or _BY_TYPE.get(_kind(parameter), "TEXT")
    return parameter


def _kind(parameter: Any) -> str:
    """The name of its type: newer versions of Typer have the annotation, older ones Click's type."""
    described = getattr(parameter, "type_descriptor", None)
    if described is not None:
        return getattr(described.annotation, "__name__", "")
    return getattr(parameter.type, "name", "")


def _nothing(*_: object, **__: object) -> None:
    return None


class Command(TyperCommand):
    """A command whose help has words for values."""

    def get_params(self, ctx: Any) -> list[Any]:
        return [worded(parameter) for parameter in super().get_params(ctx)]


class Group(TyperGroup):
    """The commands, likewise."""

    def get_params(self, ctx: Any) -> list[Any]:
        return [worded(parameter) for parameter in super().get_params(ctx)]
