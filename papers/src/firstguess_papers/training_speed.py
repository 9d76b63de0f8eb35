"""How fast networks absorb bias and learn, one number per network; phases in training, and the checks of M10.

A network that diverged (NaN or Inf) counts as one that guesses a single class for ever: never absorbed, accuracy
1/classes, largest share 1. Otherwise an arm that breaks would look better, or undecided, for having lost its worst.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from firstguess_papers.charts import columns
from firstguess_papers.items import Entry
from firstguess_papers.judging import Check, Number, Truth, above, all_of, average, check, claimed
from firstguess_papers.training_pieces import MEMBERS, Arm, Array

if TYPE_CHECKING:
    from firstguess.data import Data
    from firstguess_papers.charts import Line
    from firstguess_papers.library import Chart
    from firstguess_papers.running import Run

SAME_TIME = 0.1  # of log10: times that differ by less than 26 % are the same
SAME_SCORE = 0.02  # accuracies that differ by less are the same


def few_looks(steps: int) -> list[int]:
    """Steps 0 to 3, then five a decade, and the last: a look at all points takes as long as many steps.

    >>> few_looks(100)
    [0, 1, 2, 3, 4, 6, 10, 16, 25, 40, 63, 100]
    """
    later = (round(10 ** (k / 5)) for k in range(3, 40))
    return sorted({0, 1, 2, 3, steps, *(step for step in later if step < steps)})


def with_held_out(run: Run, spec: str, points: int, held: int) -> tuple[Data, Data]:
    """Training points and others of the same data, standardized together, in an order of their own."""
    whole = run.data(spec, points=points + held)
    order = np.random.default_rng([run.seed, 0x7E57]).permutation(whole.n)
    return part_of(whole, order[:points]), part_of(whole, order[points:])


def part_of(data: Data, rows: NDArray[np.int64]) -> Data:
    """Some of the points, with their labels."""
    from firstguess.data import Data

    assert data.y is not None
    return Data(data.x[rows], data.y[rows], name=f"{data.name}, {len(rows)} of them", class_names=data.class_names)


def balanced(data: Data, points: int) -> Data:
    """The first points of every class, as many of each: no class is favoured by the labels."""
    assert data.y is not None
    classes = int(data.y.max()) + 1
    rows = np.concatenate([np.flatnonzero(data.y == c)[: points // classes] for c in range(classes)])
    return part_of(data, np.sort(rows))


def settled(arm: Arm, level: float | None = None) -> Array:
    """Steps from which on the largest share of each network stays at or below the level until the end; inf: never.

    Not the first time that it is there: where classes hand over to each other the share passes the level on its way
    from one to the other. Linear between the look before and the look at which it is there for good.
    """
    limit = arm.level if level is None else level
    steps = arm.steps.astype(float)
    found = np.full(arm.networks, math.inf)
    for i, row in enumerate(arm.largest.draws):
        out = np.flatnonzero(~(row <= limit))  # NaN is out, too
        if not len(out):
            found[i] = 0.0
        elif out[-1] + 1 < len(row):
            k = int(out[-1])
            part = (row[k] - limit) / (row[k] - row[k + 1]) if math.isfinite(row[k]) else 1.0
            found[i] = steps[k] + part * (steps[k + 1] - steps[k])
    return found


def log_steps(steps: Array, last: int) -> Array:
    """log10(1 + steps), those that never end at the last step: a mean of these is at least so large."""
    return np.log10(1.0 + np.minimum(steps, float(last)))


def scores(arm: Arm, what: str, step: int | None = None) -> Array:
    """A share of every network at a step (default: the last); of a network that diverged, that of a single class."""
    values = arm.values(what, arm.last if step is None else step)
    return np.where(np.isfinite(values), values, _lost(arm, what))


def over_looks(arm: Arm, what: str) -> Array:
    """The mean of a share over the looks from step 1 on, which are even on a logarithmic axis: speed and height."""
    draws = arm.curve(what).draws[:, arm.steps >= 1]
    return np.where(np.isfinite(draws), draws, _lost(arm, what)).mean(axis=1)


def _lost(arm: Arm, what: str) -> float:
    classes = sum(isinstance(which, int) for which in arm.accuracy.groups)
    return 1.0 if what.endswith("largest") else 1.0 / classes


def number(values: Array) -> Number:
    """Mean ± standard error over networks; fewer than ten decide nothing (NaN)."""
    return average(values) if len(values) >= MEMBERS else Number(float(values.mean()), math.nan)


def apart(one: Array, other: Array) -> Number:
    """The mean difference, network by network: arms have the same members, drawn from the same numbers."""
    return number(one - other)


def more(one: Array, other: Array, *, room: float) -> Truth:
    """Whether one arm has more than the other, by 4 standard errors: a difference of less than `room` is none.

    >>> more(np.linspace(0.5, 0.6, 20), np.linspace(0.3, 0.4, 20), room=0.02)
    True
    >>> more(np.linspace(0.5, 0.501, 20), np.full(20, 0.5), room=0.02)
    False
    """
    difference = apart(one, other)
    if abs(difference.value) < room and 2 * difference.error <= room:
        return False
    return above(difference, 0.0)


def less(one: Array, other: Array, *, room: float) -> Truth:
    """The mirror of `more`."""
    return more(other, one, room=room)


def exceeds(name: str, one: Array, other: Array, *, room: float, than: str, below: bool = False) -> Check:
    """`more`, or `less` (`below`), as a named check, network by network."""
    truth = less(one, other, room=room) if below else more(one, other, room=room)
    asked = f"{'below' if below else 'above'} {than} (less than {room:g} is no difference)"
    return Check(name, asked, truth, f"{number(one)} against {number(other)}")


def typical(logs: Number) -> str:
    """A number of log10(1 + steps) as steps, the error as a factor.

    >>> typical(Number(2.0, 0.1))
    '99 steps (×/÷ 1.26)'
    """
    steps = 10**logs.value - 1
    said = f"{steps:.0f}" if steps >= 10 else f"{steps:.1f}"
    return f"{said} steps" + (f" (×/÷ {10**logs.error:.2f})" if math.isfinite(logs.error) and logs.error > 0 else "")


def relabelled(arm: Arm, label: str) -> Arm:
    """The same arm under another name, for a figure's key."""
    return replace(arm, label=label)


ORDERED, EDGE, BIASED, NEUTRAL = "ordered", "edge", "biased chaos", "neutral chaos"
PAST = 0.05  # accuracy above chance from which on a phase has learned anything


@dataclass(frozen=True, eq=False)
class Sweep:
    """One activation at one depth: arms by phase, predictions of those that have one, rates."""

    arms: dict[str, Arm]
    known: dict[str, Arm]
    rates: dict[str, float]
    words: str  # what differs from the main sweep, for tables

    def times(self, phase: str) -> Array:
        """log10(1 + steps until the bias is gone for good)."""
        return log_steps(settled(self.arms[phase]), self.arms[phase].last)

    def biased(self, phase: str) -> bool:
        """Whether its networks are biased at the start: the mean largest share is above the level."""
        arm = self.arms[phase]
        return above(number(scores(arm, "largest", 0)), arm.level) is True

    @property
    def classes(self) -> int:
        """Of the labels."""
        return sum(isinstance(which, int) for which in self.arms[EDGE].accuracy.groups)


def absorbs_first(s: Sweep) -> list[Check]:
    """The edge is rid of its bias for good sooner than the ordered phase and than biased chaos.

    Only between phases that are biased at the start (the mean largest share is above the level): else nothing is said.
    """
    return [
        _decides(
            exceeds("log10 of 1 + steps at the edge", s.times(EDGE), s.times(phase), room=SAME_TIME, than=f"{phase}'s",
                    below=True),
            s.biased(EDGE) and s.biased(phase),
        )
        for phase in (ORDERED, BIASED)
    ]  # fmt: skip


def learns_best(s: Sweep) -> list[Check]:
    """The edge's accuracy on held-out points at the end is above that of every other phase."""
    return _edge_above(s, "test accuracy", scores)


def learns_fastest(s: Sweep) -> list[Check]:
    """The edge's accuracy on training points, averaged over looks, is above that of every other phase."""
    return _edge_above(s, "accuracy", over_looks)


def _edge_above(s: Sweep, what: str, statistic: Any) -> list[Check]:
    """Where no phase ends past chance there is nothing to compare: not decided, rather than equal."""
    learned = any(above(number(scores(arm, what)), 1 / s.classes, by=PAST) is True for arm in s.arms.values())
    edge = statistic(s.arms[EDGE], what)
    return [
        _decides(exceeds("edge", edge, statistic(arm, what), room=SAME_SCORE, than=f"{phase}'s"), learned)
        for phase, arm in s.arms.items()
        if phase != EDGE
    ]


def _decides(one: Check, can: bool) -> Check:
    return one if can else replace(one, truth=None)


def keeps_bias(s: Sweep) -> list[Check]:
    """At the end the ordered phase's largest share is above the edge's by more than 0.1."""
    return [check("ordered − edge", apart(*(scores(s.arms[phase], "largest") for phase in (ORDERED, EDGE))), above=0.1)]


def chaos_is_poor(s: Sweep) -> list[Check]:
    """At the end deep chaos is below the edge on held-out points by more than 0.05."""
    if NEUTRAL not in s.arms:
        return []
    rest = apart(*(scores(s.arms[phase], "test accuracy") for phase in (EDGE, NEUTRAL)))
    return [check("edge − neutral chaos", rest, above=0.05)]


def judged(
    main: dict[str, Sweep], own: dict[str, Sweep], other: dict[str, Sweep], *, other_words: str, subjects: str
) -> list[Entry]:
    """The parts of M10, each with its own verdict; those that no phase here speaks of are left out."""

    def checks(what: Any, sweeps: dict[str, Sweep]) -> list[Check]:
        return [replace(one, name=f"{phi}, {one.name}, {s.words}") for phi, s in sweeps.items() for one in what(s)]

    def judge(what: Any, statement: str, said: Any) -> Entry:
        beyond = {"own rates": checks(what, own), other_words: checks(what, other)}
        failing = [name for name, found in beyond.items() if all_of(one.truth for one in found) is not True]
        phi, first = list(main.items())[-1]
        return claimed(
            "M10", f"{statement}; {subjects}, one rate for all phases, else at each phase's own or with {other_words}",
            checks(what, main), within=[one for found in beyond.values() for one in found],
            limit=f"not with {' nor with '.join(failing)}", undecided=_idle(what, main),
            headline=f"{phi}: {said(first)}",
        )  # fmt: skip

    parts = (
        (absorbs_first, "“the edge absorbs fastest”: steps until the largest share is at its level for good (a fifth "
         "of the way from even to 1), where phases are biased at the start", _said_times),
        (learns_best, "“the edge learns best”: accuracy on held-out points at the end, where one phase is past chance "
         "by 0.05", lambda s: _said(s, "test accuracy", scores)),
        (learns_fastest, "“the edge learns fastest”: accuracy on training points, averaged over looks (even on a "
         "logarithmic axis), where one phase ends past chance by 0.05", lambda s: _said(s, "accuracy", over_looks)),
        (keeps_bias, "“ordered networks keep the bias”: the largest share at the end",
         lambda s: _said(s, "largest", scores)),
        (chaos_is_poor, "“deep chaos learns poorly”: accuracy on held-out points at the end (tanh alone has neutral "
         "chaos)", lambda s: _said(s, "test accuracy", scores)),
    )  # fmt: skip
    return [judge(*part) for part in parts if checks(part[0], main)]


def _idle(what: Any, sweeps: dict[str, Sweep]) -> str:
    """Why a comparison says nothing though its errors may be small."""
    if what is absorbs_first:
        even = [f"{phi} {p}" for phi, s in sweeps.items() for p in (ORDERED, EDGE, BIASED) if not s.biased(p)]
        return f"not clearly biased at the start: {', '.join(even)}" if even else ""
    idle = [phi for phi, s in sweeps.items() if what in (learns_best, learns_fastest) and _open(what(s))]
    return f"no phase of {' and '.join(idle)} ends past chance by 0.05" if idle else ""


def _open(checks: list[Check]) -> bool:
    return all(one.truth is None for one in checks)


def _said_times(s: Sweep) -> str:
    parts: list[str] = []
    for phase, arm in s.arms.items():
        never = sum(not math.isfinite(t) for t in settled(arm))
        parts.append(
            f"{phase} {typical(number(s.times(phase)))}" + (f", {never} of {arm.networks} never" if never else "")
        )
    return ", ".join(parts)


def _said(s: Sweep, what: str, statistic: Any) -> str:
    return ", ".join(f"{phase} {_short(number(statistic(arm, what)))}" for phase, arm in s.arms.items())


def _short(value: Number) -> str:
    return f"{value.value:.3f} ± {value.error:.3f}" if math.isfinite(value.error) else f"{value.value:.3f}"


def summary_rows(phi: str, s: Sweep) -> list[dict[str, Any]]:
    """What is compared, by phase; of predictions, too."""
    rows: list[dict[str, Any]] = []
    for source, arms in (("trained", s.arms), ("predicted", s.known)):
        for phase, arm in arms.items():
            values = {
                "log10_steps_settled": log_steps(settled(arm), arm.last),
                "test_accuracy_end": scores(arm, "test accuracy"),
                "accuracy_over_looks": over_looks(arm, "accuracy"),
                "largest_end": scores(arm, "largest"),
            }
            line: dict[str, Any] = {"activation": phi, "sweep": s.words, "phase": phase, "source": source}
            line |= {"networks": arm.networks, "diverged": len(arm.diverged), "trust": arm.about.get("trust") or ""}
            for name, found in values.items():
                one = number(found)
                line |= {name: one.value, f"{name}_error": one.error}
            rows.append(line)
    return rows


def phases_tables(sweeps: Sequence[tuple[str, Sweep]], *, named: bool = True) -> dict[str, dict[str, list[Any]]]:
    """All curves, and what is compared, of sweeps by activation; `named`: curves say which."""
    rows = [
        ({"activation": phi} if named else {}) | {"sweep": s.words, **line, "rate": s.rates[line["arm"]]}
        for phi, s in sweeps
        for arm in (*s.arms.values(), *s.known.values())
        for line in arm.rows()
    ]
    return {"curves": columns(rows), "summary": columns([line for one in sweeps for line in summary_rows(*one)])}


def phases_title(sweeps: dict[str, Sweep], *, subject: str = "The edge of chaos", rates: str = "at one rate") -> str:
    """What was found of absorbing and learning; what was not decided is not said."""

    def found(what: Any) -> Truth:
        return all_of(one.truth for s in sweeps.values() for one in what(s))

    absorbs = {True: "absorbs its bias first", False: "is not the first to absorb its bias"}
    learns = {True: "learns best", False: "is not the best learner on held-out images"}
    first, best = found(absorbs_first), found(learns_best)
    if first is None and best is None:
        return f"Phases in training, {rates}"
    said = [absorbs[first]] if first is not None else []
    said += [learns[best]] if best is not None else []
    return f"{subject} {(' and ' if first == best else ', but ').join(said)}, {rates}"


def phases_chart(sweeps: dict[str, Sweep], *, title: str, subtitle: list[str]) -> Chart:
    """A row of panels for every sweep: largest share, accuracy on training and on held-out points."""
    from firstguess_papers.charts import arms_chart, lines_of

    two = all(s.classes == 2 for s in sweeps.values())
    floor = 0.4 if two else 0.0  # of two classes nothing happens below
    panels: dict[str, list[Line]] = {}
    for phi, s in sweeps.items():
        for words, what in (
            ("largest share", "largest"),
            ("accuracy, training", "accuracy"),
            ("accuracy, held out", "test accuracy"),
        ):
            panels[f"{phi}: {words}"] = lines_of(what, s.arms, s.known)
    domains = {name: (floor, 1.0 if floor else _top(lines)) for name, lines in panels.items()}
    return arms_chart(panels, title=title, subtitle=subtitle, y_domains=domains)


def _top(lines: list[Line]) -> float:
    """The next full tenth above all curves: held-out accuracy of ten classes needs less than the whole axis."""
    curves = [curve for line in lines for curve in (line.trained, line.predicted) if curve is not None]
    most = max(float(np.nanmax(curve.mean + 2 * np.nan_to_num(curve.se))) for curve in curves)
    return min(1.0, math.ceil(10 * most) / 10)
