"""Progress of long work: a bar on a terminal, a line in a notebook, nothing in a pipe."""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, ParamSpec, Protocol, TypeVar

_PATIENCE = 2.0  # seconds before a progress bar shows
_P = ParamSpec("_P")
_T = TypeVar("_T")


class Tick(Protocol):
    """Called with (done, total); `say` puts a word on what is known so far next to the bar."""

    def __call__(self, done: int, total: int) -> None: ...

    def say(self, text: str) -> None: ...


class _Line:
    """One line that is written over, for notebooks; or nothing."""

    def __init__(self, label: str, *, shown: bool) -> None:
        self._label, self._shown, self._said, self._last = label, shown, "", ""

    def __call__(self, done: int, total: int) -> None:
        text = f"{self._label}: {100 * done // max(total, 1)} %{f' ({self._said})' if self._said else ''}"
        if self._shown and text != self._last:
            sys.stderr.write(f"\r{text:<{len(self._last)}}")
            sys.stderr.flush()
            self._last = text

    def say(self, text: str) -> None:
        self._said = text

    def stop(self) -> None:
        if self._last:
            sys.stderr.write(f"\r{'':<{len(self._last)}}\r")


class _Bar:
    """Rich's bar; it starts, and its clock moves, by itself: one initialization of a large model takes long."""

    def __init__(self, label: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._label, self._bar = label, Progress(*columns, console=Console(stderr=True), transient=True)
        self._task = self._bar.add_task(label, total=None)
        self._patience = threading.Timer(_PATIENCE, self._bar.start)
        self._patience.daemon = True
        self._patience.start()

    def __call__(self, done: int, total: int) -> None:
        self._bar.update(self._task, completed=done, total=total)

    def say(self, text: str) -> None:
        self._bar.update(self._task, description=f"{self._label} ({text})")

    def stop(self) -> None:
        self._patience.cancel()
        self._patience.join()
        self._bar.stop()


@contextmanager
def bar(label: str) -> Generator[Tick]:
    """Yields progress(done, total), which shows a bar on stderr: after two seconds, and for somebody who looks."""
    notebook = hasattr(sys.modules.get("IPython"), "get_ipython") and "ipykernel" in sys.modules
    shown: Any = _Bar(label) if sys.stderr.isatty() and not notebook else _Line(label, shown=notebook)
    try:
        yield shown
    finally:
        shown.stop()


def showing(label: str) -> Callable[[Callable[_P, _T]], Callable[_P, _T]]:
    """Make `progress=None` a bar of this label, and `progress=False` none; a function is called as it is."""

    def decorated(function: Callable[_P, _T]) -> Callable[_P, _T]:
        @functools.wraps(function)
        def shown(*args: _P.args, **kwargs: _P.kwargs) -> _T:
            given = kwargs.pop("progress", None)
            if given is not None:
                kwargs["progress"] = given or _Line(label, shown=False)
                return function(*args, **kwargs)
            with bar(label) as tick:
                kwargs["progress"] = tick
                return function(*args, **kwargs)

        return shown

    return decorated
