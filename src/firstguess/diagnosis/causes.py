"""Which steps bring the bias: ranked by what the guesses are without each; the data beside them.

Correlations saturate: c from 0 to 0.77 in the data says nothing of what centred data would change after five ReLUs.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

from firstguess.base.text import elided
from firstguess.base.text import share_change as percents
from firstguess.ensemble.measurement import Measurement
from firstguess.ensemble.member_statistics import FindingKind
from firstguess.modules.flow import DATA, Effects, Flow, FlowStep

_SHOWN, _SHOWN_LOWERING = 5, 3  # of the page: the report has more


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
    shown = [c for c in raising if c.matters][:_SHOWN]
    more = len(raising) - len(shown)
    what = "the largest share, without it" if read else "correlation c of two inputs, before → after"
    lines = textwrap.wrap(f"Where it comes from: {what}{read}", columns, subsequent_indent="  ")
    lines += [_line(c, columns) for c in shown]
    rest = f"… {more} more" if shown else f"none of {more} steps that raise c surely changes the guesses by itself"
    lines += textwrap.wrap(rest, columns, initial_indent="  ", subsequent_indent="  ") if more else []
    lines += ["  held down by" if raising else "  no step adds correlation; held down by"] if lowering else []
    return lines + [_line(c, columns) for c in lowering[:_SHOWN_LOWERING]]


def _line(c: Cause, columns: int) -> str:
    error = 100 * c.error
    share = f"{c.change} ± {error:{'.0f' if error >= 1 else '.1g'}}" if c.tried else f"c {c.before:.2f} → {c.after:.2f}"
    row = f"  {share:<18}  "
    return row + c.short(columns - len(row))


_LEAST = 0.005  # of correlation: less is not a cause
_SURE = 3.0  # standard errors that an addition must stand out by
_RAISING, _LOWERING = 12, 4  # single steps that are tried

Removals = Mapping[Hashable, Sequence[str]]


@dataclass(frozen=True)
class Found:
    """Causes, the most important first, and notes on those whose effect is not known."""

    causes: tuple[Cause, ...] = ()
    notes: tuple[str, ...] = ()


def causes_of(flow: Flow) -> tuple[Cause, ...]:
    """Steps that raise c by more than their error, largest first, without their effect.

    Linear layers only carry c on, up to noise of few nodes: what they add is not counted unless it is sure. Lookups
    that are the same for every point (positions, token types) are one cause together, and a sum with them is none.
    """
    return tuple(sorted((c for c in _changes(flow) if c.added > 0 and len(c.steps) < 2), key=lambda c: -c.added))


def ranked(flow: Flow, try_all: Callable[[Removals], Effects]) -> Found:
    """Steps that change c, and all steps of a kind, by how much the largest fraction falls without them."""
    candidates = _wanted(_changes(flow))
    tried = try_all({cause: cause.steps for cause in candidates})
    causes: list[Cause] = []
    for cause in candidates:
        effect = tried.found.get(cause)
        causes.append(cause if effect is None else replace(cause, **vars(effect)))
    return Found(tuple(sorted(causes, key=_rank)), tuple(_notes(tried)))


def _rank(cause: Cause) -> tuple[bool, float, float, float]:
    """By the share in whole percents: below that γ decides, which goes on where shares are at their end."""
    if not cause.tried:
        return True, 0.0, 0.0, -cause.added
    before, after = (max(gamma, 1e-3) for gamma in (cause.gamma_before, cause.gamma_after))
    ratio = math.log(after / before) if math.isfinite(after) and math.isfinite(before) else 0.0
    return False, -round(cause.largest_before - cause.largest_after, 2), ratio, -cause.added


def _notes(tried: Effects) -> list[str]:
    notes: list[str] = []
    for causes, why in (
        (tried.late, "time was up"),
        (tried.impossible, "its part cannot be told from the rest"),
    ):
        names = [cause.words for cause in causes]
        shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        notes += [f"not tried without {shown}: {why}"] if names else []
    return notes


def _changes(flow: Flow) -> list[Cause]:
    """The data, steps that are the same for every point, single steps, all steps of a kind."""
    found: list[Cause] = []
    if math.isfinite(flow.data) and flow.data > _LEAST:
        found.append(Cause(DATA, "data", 0.0, flow.data, flow.data, 0.0, (DATA,)))
    constant = [step for step in flow.steps if step.constant and set(step.sources) <= {DATA}]
    if constant:
        names = tuple(step.name for step in constant)
        found.append(Cause(", ".join(names), "constant", 0.0, 1.0, 0.0, 0.0, names))
    fixed = {step.name for step in flow.steps if step.constant}
    singles = [step for step in flow.steps if not step.constant and _is_sure(step) and not _adds_constant(step, fixed)]
    found += [_cause(step.kind, [step]) for step in singles]
    kinds: dict[str, list[FlowStep]] = {}
    for step in flow.steps:
        if not step.constant and not _adds_constant(step, fixed):
            kinds.setdefault(step.kind, []).append(step)
    # All of them, also those that add too little to be sure of: together they may matter.
    found += [_cause(k, steps) for k, steps in kinds.items() if len(steps) > 1 and any(s in singles for s in steps)]
    return found


def _is_sure(step: FlowStep) -> bool:
    return abs(step.added) > max(_LEAST, _SURE * (0.0 if math.isnan(step.se) else step.se))


def _adds_constant(step: FlowStep, fixed: set[str]) -> bool:
    """A plain sum with what is the same for every point raises c by that, which is counted already."""
    return step.kind == "code: add" and any(source in fixed for source in step.sources)


def _cause(kind: str, steps: Sequence[FlowStep]) -> Cause:
    name = steps[0].name if len(steps) == 1 else f"{steps[0].name} … {steps[-1].name}"
    error = math.sqrt(sum(step.se**2 for step in steps))
    added = sum(step.added for step in steps)
    return Cause(name, kind, steps[0].before, steps[-1].after, added, error, tuple(step.name for step in steps))


def _wanted(causes: Sequence[Cause]) -> list[Cause]:
    """Those that are tried, the most telling first: the data, then steps by what they change."""
    inputs = sorted((c for c in causes if c.kind in ("data", "constant")), key=lambda c: c.kind != "data")
    steps = sorted((c for c in causes if c not in inputs), key=lambda c: -abs(c.added))
    raising = [c for c in steps if c.added > 0][:_RAISING]
    lowering = [c for c in steps if c.added < 0][:_LOWERING]
    return [*inputs[:1], *raising, *inputs[1:], *lowering]


def without_ending(flow: Flow, m: Measurement) -> Flow:
    """Up to the logits: a softmax or sigmoid behind them raises c, and changes no guess."""
    head = next((finding.layer for finding in m.findings if finding.kind == FindingKind.PROBABILITIES), "")
    place = next((i for i, step in enumerate(flow.steps) if step.name == head), None)
    return flow if place is None else replace(flow, steps=flow.steps[: place + 1])
