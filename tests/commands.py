"""The command within this process: the second that a process of its own takes to start is for tests of the start."""

from __future__ import annotations

import io
import sys
from contextlib import redirect_stderr, redirect_stdout
from subprocess import CompletedProcess
from unittest.mock import patch

import pytest

from firstguess.cli import main


def run_here(*arguments: str, code: int = 0) -> CompletedProcess[str]:
    """What the command prints; its exit code has to be `code`. An exception that is not ours comes through."""
    out, err = io.StringIO(), io.StringIO()
    with (
        patch.object(sys, "argv", ["firstguess", *arguments]),
        redirect_stdout(out),
        redirect_stderr(err),
        pytest.raises(SystemExit) as ended,
    ):
        main()
    assert ended.value.code == code, err.getvalue() + out.getvalue()
    return CompletedProcess(arguments, code, out.getvalue(), err.getvalue())


def refused(*arguments: str) -> str:
    """The one line on stderr that bad input ends in, with exit code 2."""
    done = run_here(*arguments, code=2)
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    return line
