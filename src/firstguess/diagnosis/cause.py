"""A cause, and causes as lines of the page."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from firstguess.base.text import elided
from firstguess.base.text import share_change as percents

_CAUSES, _LOWERING = 5, 3  # of the page: the report has more


@dataclass(frozen=True)
class Cause:
    """A step that changes what inputs have in common, or all steps of a kind, and what the guesses are without it.

    `before` and `after` are c of two inputs before and behind it, `added` their difference (of several steps, the sum).
    `largest_before` → `largest_after`: the average share of the largest class as it is, and where the step hands on as
    much correlation as it gets, with the standard error of the change; γ of the output likewise. Both are of the same
    `inits` initializations and `points` points. NaN: not tried, a note says why.

    `kind` is the module's class, "code: add > relu" for plain code between modules, "data" for the inputs' own
    correlation, "constant" for lookups that give the same for every point (positions, token types).
    """

    name: str
    kind: str
    before: float
    after: float
    added: float
    se: float
    steps: tuple[str, ...] = ()
    largest_before: float = math.nan
    largest_after: float = math.nan
    error: float = math.nan
    gamma_before: float = math.nan
    gamma_after: float = math.nan
    inits: int = 0
    points: int = 0

    @property
    def tried(self) -> bool:
        """Whether its effect is known."""
        return not math.isnan(self.largest_after)

    @property
    def matters(self) -> bool:
        """Whether the guesses change beyond rounding and error without it; True where it was not tried."""
        change = abs(self.largest_before - self.largest_after)
        return not change <= max(0.005, 2 * self.error)

    @property
    def words(self) -> str:
        """The step in words."""
        return self.short()

    def short(self, width: int = 10_000) -> str:
        """The step in words, with the middle of a long name left out."""
        kind = self.kind.removeprefix("code: ")
        if self.kind == "data":
            return "the data themselves"
        if self.kind == "constant":
            ends = ", ".join(step.rpartition(".")[2] for step in self.steps)
            return f"constant inputs: {elided(ends, max(width - 17, 8))}"
        if len(self.steps) > 1:
            return elided(f"all {len(self.steps)} {kind}", width)
        name = self.name.removeprefix("code before ")
        start = f"{kind} before " if kind != self.kind else f"{kind} at "
        start = elided(start, max(width - len(name), width // 2))
        return start + elided(name, width - len(start))

    @property
    def change(self) -> str:
        """With it → without it, in percent; nothing where it was not tried."""
        return percents(self.largest_before, self.largest_after) if self.tried else ""


def lines_of(causes: Sequence[Cause], columns: int) -> list[str]:
    """Of the page: steps that raise c, then those that lower it; with it → without it, on one reading that is named."""
    read = next((f" (measured: {c.inits} initializations, {c.points} points)" for c in causes if c.tried), "")
    causes = [c for c in causes if c.tried] or causes
    raising = [c for c in causes if c.added >= 0]
    lowering = [c for c in reversed(causes) if c.added < 0 and c.matters and not c.gamma_after < c.gamma_before]
    shown = [c for c in raising if c.matters][:_CAUSES]
    more = len(raising) - len(shown)
    what = "the largest share, without it" if read else "correlation c of two inputs, before → after"
    lines = textwrap.wrap(f"Where it comes from: {what}{read}", columns, subsequent_indent="  ")
    lines += [_line(c, columns) for c in shown]
    rest = f"… {more} more" if shown else f"none of {more} steps that raise c surely changes the guesses by itself"
    lines += textwrap.wrap(rest, columns, initial_indent="  ", subsequent_indent="  ") if more else []
    lines += ["  held down by" if raising else "  no step adds correlation; held down by"] if lowering else []
    return lines + [_line(c, columns) for c in lowering[:_LOWERING]]


def _line(c: Cause, columns: int) -> str:
    error = 100 * c.error
    share = f"{c.change} ± {error:{'.0f' if error >= 1 else '.1g'}}" if c.tried else f"c {c.before:.2f} → {c.after:.2f}"
    row = f"  {share:<18}  "
    return row + c.short(columns - len(row))
