"""A command line that cannot be read ends like any other bad input: in one line."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, cast

import typer

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
