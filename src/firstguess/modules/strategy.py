"""Which way of running members is the fastest: measured on the first of them, whose results are kept."""

from __future__ import annotations

import math
from typing import Literal, TypeAlias

Strategy: TypeAlias = Literal["auto", "loop", "vmap"]
Way: TypeAlias = Literal["loop", "channels last", "vmap"]

_RUNS: dict[Way, int] = {"loop": 4, "channels last": 3, "vmap": 2}  # timed before the choice; the best of them counts
_GAIN = 0.95  # another way must be this much faster than the loop
_WORDS: dict[Way, str] = {
    "loop": "one by one",
    "channels last": "one by one, with channels last in memory",
    "vmap": "several at once by vmap",
}


class Choice:
    """Tries each way, then stays with the fastest.

    >>> choice = Choice("auto", ["loop", "vmap"])
    >>> for seconds in (0.02, 0.01, 0.01, 0.01):
    ...     choice.record(choice.way(), seconds)
    >>> choice.way(members=1), choice.way()  # one member is no trial of several at once
    ('loop', 'vmap')
    >>> choice.record("vmap", 0.004)
    >>> choice.record("vmap", 0.005)
    >>> choice.way(), choice.note
    ('vmap', 'members run several at once by vmap: 4 ms each (one by one: 10 ms)')
    """

    def __init__(self, strategy: Strategy, ways: list[Way]) -> None:
        self.asked = strategy != "auto"
        self._ways: list[Way] = ways if strategy == "auto" else [strategy]
        self._times: dict[Way, list[float]] = {way: [] for way in self._ways}
        self._dropped: dict[Way, str] = {}

    def way(self, members: int = 2) -> Way:
        """For the next of so many `members`."""
        for way in self._ways:
            if len(self._times[way]) < _RUNS[way] and not self.asked and (way != "vmap" or members > 1):
                return way
        return self._best()

    def _best(self) -> Way:
        usual = self._ways[0]
        best = min(self._ways, key=self.seconds)
        return best if self.seconds(best) < _GAIN * self.seconds(usual) else usual

    def seconds(self, way: Way | None = None) -> float:
        """Of one member, in the chosen way; infinite if not known yet."""
        return min(self._times.get(way or self._best(), ()), default=math.inf)

    def record(self, way: Way, seconds: float) -> None:
        times = self._times[way]
        if len(times) < _RUNS[way]:
            times.append(seconds)

    def drop(self, way: Way, reason: str) -> None:
        self._ways.remove(way)
        self._dropped[way] = reason

    @property
    def note(self) -> str:
        best = self._best()
        words = f"members run {_WORDS[best]}"
        if self.asked:
            return f"{words}, as asked"
        known: list[Way] = [way for way in self._ways if self._times[way]]
        others = [f"{_WORDS[way]}: {1e3 * self.seconds(way):.3g} ms" for way in known if way != best]
        others += [f"{_WORDS[way]}: not possible, {reason}" for way, reason in self._dropped.items()]
        spent = f": {1e3 * self.seconds(best):.3g} ms each" if known else ""
        return f"{words}{spent}" + (f" ({'; '.join(others)})" if others else "")


def brief(error: Exception) -> str:
    """Why a way was dropped, in one line."""
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
