"""Progress for somebody who looks: a bar on a terminal, a line in a notebook, nothing in a pipe."""

from __future__ import annotations

import io
import sys
import types

import pytest

from firstguess.base.progress import bar, showing


@showing("working")
def work(steps: int, *, progress: object = None) -> int:
    assert callable(progress)
    for done in range(steps + 1):
        progress(done, steps)
    return steps


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_nothing_is_written_into_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert work(3) == work(3, progress=False) == 3
    assert sys.stderr.getvalue() == ""


def test_a_function_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    seen: list[tuple[int, int]] = []
    work(2, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(0, 2), (1, 2), (2, 2)]
    assert sys.stderr.getvalue() == ""


def test_a_notebook_has_a_line_with_what_is_known_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: None))  # pyright: ignore
    monkeypatch.setitem(sys.modules, "ipykernel", types.ModuleType("ipykernel"))
    with bar("diagnosing") as tick:
        tick(1, 4)
        tick.say("so far: biased")
        tick(2, 4)
    written = sys.stderr.getvalue()
    assert "\rdiagnosing: 25 %" in written
    assert "\rdiagnosing: 50 % (so far: biased)" in written
    assert written.endswith("\r")


def test_a_terminal_has_a_bar_after_two_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setattr("firstguess.base.progress._PATIENCE", 0.0)
    with bar("diagnosing") as tick:
        tick.say("so far: biased")
        tick(3, 4)
        import time

        time.sleep(0.3)
    assert "so far: biased" in sys.stderr.getvalue()
