"""The parts of a diagnosis: what they may take of the time, and what is kept of them after Ctrl-C."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

from firstguess.base.errors import FirstguessError
from firstguess.ensemble.measurement import Measurement
from firstguess.ensemble.members import Finding, FindingKind

Progress = Callable[[int, int], object]
_T = TypeVar("_T")
# Of the time allowed, in percent, by the end of each part: how far a diagnosis is.
LOOKED, MEASURED, CAUSES, EXPECTED, DIFFERENTIATED, LASTED, ADVISED = 3, 43, 58, 65, 75, 80, 100


class Clock:
    """A time in seconds, and what is left of it."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.started = time.perf_counter()

    @property
    def passed(self) -> float:
        return time.perf_counter() - self.started

    @property
    def left(self) -> float:
        return self.seconds - self.passed

    def share(self, part: float) -> float:
        """So many seconds as a part of all, or what is left of them."""
        return max(0.0, min(part * self.seconds, self.left))


class Stages:
    """What comes after the measurement, part by part: once there was a Ctrl-C, only what is quick is still done; and
    nothing that would need more time than is left."""

    def __init__(self, m: Measurement, clock: Clock, progress: Progress) -> None:
        self._clock, self._progress = clock, progress
        self._said = [finding.message for finding in m.findings if finding.kind == FindingKind.INTERRUPTED]
        self._interrupted = bool(self._said)
        self._left_out: list[str] = []
        self._late: list[str] = []
        self._member = m.seconds / max(1, m.inits)

    def do(self, name: str, work: Callable[[], _T], *, quick: bool = False, members: float = 0.0) -> _T | None:
        """One part, which takes at least as long as so many `members`."""
        if self._interrupted and not quick:
            self._left_out.append(name)
            return None
        if members * self._member > self._clock.left:
            self._late.append(name)
            return None
        try:
            return work()
        except KeyboardInterrupt:
            self.interrupt(name)
            return None

    def tick(self, percent: int) -> None:
        try:
            self._progress(percent, 100)
        except KeyboardInterrupt:
            self._interrupted = True

    def interrupt(self, name: str) -> None:
        self._interrupted = True
        self._left_out.append(name)

    def findings(self, m: Measurement) -> tuple[Finding, ...]:
        """Those of the measurement, and what was left out."""
        found = m.findings
        if self._left_out:
            words = "; ".join([*self._said, f"left out: {', '.join(self._left_out)}"])
            found = (*(f for f in found if f.kind != FindingKind.INTERRUPTED), Finding(FindingKind.INTERRUPTED, words))
        if self._late:
            words = f"left out, because of {self._clock.seconds:g} s: {', '.join(self._late)}"
            found = (*found, Finding(FindingKind.TIME_IS_UP, words))
        return found


def attempt(work: Callable[[], Any], name: str, notes: list[str]) -> Any:
    """A part of the diagnosis, which may fail for a model that the measurement could handle."""
    try:
        return work()
    except (FirstguessError, RuntimeError, TypeError, ValueError, AttributeError, LookupError) as error:
        said = error.reason if isinstance(error, FirstguessError) else str(error)
        first = said.splitlines()[0] if said else type(error).__name__
        notes.append(f"no {name}: {first}")
        return None
