"""An ensemble whose size a budget in seconds decides: how long a point takes, members while there is time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from firstguess.ensemble.members import Members, ProbedLayer

if TYPE_CHECKING:
    from firstguess.data import Batch
    from firstguess.modules.engine import ModuleEngine

Progress: TypeAlias = Callable[[int, int], object]

_PAIRS = 200  # initializations at most that are run on centred data too, while it is not clear whether that helps


def time_a_point(model: Any, batches: Sequence[Batch], pick: Any, seed: int, *, enough: float) -> float:
    """Seconds of a forward, with its probes, for one point of as many as take `enough` seconds, or of all.

    A call has costs of its own, which a few points must not be charged with: points are doubled until they count.
    """
    from firstguess.modules.calling import first_forward
    from firstguess.modules.snapshot import fewer, look

    total, count = sum(batch.size for batch in batches), 16
    while True:
        few = fewer(batches, count)
        size, taken = sum(batch.size for batch in few), math.inf
        for _ in range(2):  # the first call of a model is slower
            began = time.perf_counter()
            with first_forward():
                look(model, few, pick=pick, seed=seed)
            taken = time.perf_counter() - began
            if taken > min(0.5, enough):
                break
        if taken >= enough or size >= total:
            return taken / size
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
        step = max(1, min(engine.stretch, stop - done, int(left / 4 / max(slow, 1e-6))))
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
    from firstguess.diagnosis.notable import excess

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
    def stretch(self) -> int:
        return self._parts[0].inits

    def run(self, start: int, stop: int) -> Members:
        part = self._parts.pop(0)
        assert (part.start, part.start + part.inits) == (start, stop)
        return part
