"""The command within this process: bad input ends before anything that takes a process of its own to see."""

from __future__ import annotations

import io
import sys
from contextlib import redirect_stderr, redirect_stdout
from unittest.mock import patch

import pytest

from firstguess.cli import main


def refused(*arguments: str) -> str:
    """The one line on stderr that bad input ends in, with exit code 2; an exception that is not ours comes through."""
    out, err = io.StringIO(), io.StringIO()
    with (
        patch.object(sys, "argv", ["firstguess", *arguments]),
        redirect_stdout(out),
        redirect_stderr(err),
        pytest.raises(SystemExit) as ended,
    ):
        main()
    assert ended.value.code == 2, err.getvalue()
    assert out.getvalue() == ""
    (line,) = err.getvalue().splitlines()
    return line
