"""The parts of a diagnosis: what they may take of the time, and what is kept of them after Ctrl-C."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from firstguess.base.errors import FirstguessError
from firstguess.ensemble.measurement import Measurement
from firstguess.ensemble.member_statistics import Finding, FindingKind, Members, ProbedLayer

if TYPE_CHECKING:
    from firstguess.data import Batch
    from firstguess.modules.engine import ModuleEngine

Progress = Callable[[int, int], object]
_T = TypeVar("_T")
# Of the time allowed, in percent, by the end of each part: how far a diagnosis is.
LOOKED, MEASURED, CAUSES, EXPECTED, DIFFERENTIATED, LASTED, REHEARSED, ADVISED = 3, 38, 52, 58, 68, 73, 82, 100


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


# --------------------------------------------------------------------------------------------------------------
# An ensemble whose size a budget in seconds decides: how long a point takes, members while there is time.

_PAIRS = 200  # initializations at most that are run on centred data too, while it is not clear whether that helps


def time_a_point(model: Any, batches: Sequence[Batch], pick: Any, seed: int, *, enough: float) -> tuple[float, bool]:
    """Seconds of a forward, with its probes, for one point of as many as take `enough` seconds, or of all; and whether
    the model takes all of them only (a whole graph).

    A call has costs of its own, which a few points must not be charged with: points are doubled until they count.
    """
    from firstguess.modules.call_model import fewer, first_forward
    from firstguess.modules.hooks.snapshot import look

    total, count, whole = sum(batch.size for batch in batches), 16, False
    while True:
        few = list(batches) if whole else fewer(batches, count)
        size, taken = sum(batch.size for batch in few), math.inf
        for _ in range(2):  # the first call of a model is slower
            began = time.perf_counter()
            try:
                with first_forward():
                    look(model, few, pick=pick, seed=seed)
            except Exception:  # of a user's model, on a part of the data
                if size >= total:
                    raise
                whole = True
                break
            taken = time.perf_counter() - began
            if taken > min(0.5, enough):
                break
        if size < total and whole:
            continue
        if taken >= enough or size >= total:
            return taken / size, whole
        count *= 2


def drawn(
    engine: ModuleEngine, start: int, stop: int, deadline: float, progress: Progress | None = None, *, least: int
) -> list[Members]:
    """Members until there are enough or the time is over."""
    parts: list[Members] = []
    done, step, slow = start, 1, 0.0
    while done < stop and (done - start < least or time.perf_counter() + slow < deadline):
        began = time.perf_counter()
        parts.append(engine.run(done, done + step))
        done += step
        slow = (time.perf_counter() - began) / step
        left = max(0.0, deadline - time.perf_counter())
        # At most a quarter of what is left at once: the first members of a new way of running can be slow.
        step = max(1, min(engine.batch_hint, stop - done, int(left / 4 / max(slow, 1e-6))))
        if progress is not None:
            progress(done, stop)
    return parts


def paired(engine: ModuleEngine, parts: Sequence[Members], centred: ModuleEngine, deadline: float) -> tuple[Any, Any]:
    """Excess of the same members on data and on centred data; of more members while these leave it open."""
    from firstguess.diagnosis.guess_causes import is_clear

    raw, done = list(parts), sum(part.inits for part in parts)
    cured = drawn(centred, 0, done, deadline, least=2)
    while True:
        before, after = excesses(raw, cured)
        both = sum(part.inits for part in cured) == done < _PAIRS and len(after) > 1
        if not both or is_clear(before, after) or time.perf_counter() > deadline:
            return before, after
        raw += drawn(engine, done, min(2 * done, _PAIRS), deadline, least=1)
        until = sum(part.inits for part in raw)
        cured += drawn(centred, done, until, deadline, least=1)
        done = until


def excesses(parts: Sequence[Members], others: Sequence[Members]) -> tuple[Any, Any]:
    """The excess of the same members on data and on centred data, without those that are not finite."""
    from firstguess.diagnosis.faults.base import excess

    raw = excess(np.concatenate([part.fractions for part in parts]))
    if not others:
        return raw, np.empty(0)
    cured = excess(np.concatenate([part.fractions for part in others]))
    fine = np.isfinite(raw[: len(cured)]) & np.isfinite(cured)
    return raw[: len(cured)][fine], cured[fine]


class Replay:
    """An engine that hands out what was computed: so that a budget in seconds can decide how much that is."""

    def __init__(self, engine: ModuleEngine, parts: Sequence[Members]) -> None:
        self.layers: tuple[ProbedLayer, ...] = engine.layers
        self.classes, self.points, self.notes = engine.classes, engine.points, engine.notes
        self._parts = list(parts)

    @property
    def batch_hint(self) -> int:
        return self._parts[0].inits

    def run(self, start: int, stop: int) -> Members:
        part = self._parts.pop(0)
        assert (part.start, part.start + part.inits) == (start, stop)
        return part
