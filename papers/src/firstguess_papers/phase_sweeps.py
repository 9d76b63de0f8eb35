"""Phases in training, side by side: what is compared, the checks of M10, and their figure."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from firstguess_papers.items import Entry
from firstguess_papers.judging import Number, Truth, above, all_of, entry
from firstguess_papers.training_pieces import Arm, Array
from firstguess_papers.training_speed import (  # fmt: skip
    SAME_SCORE,
    SAME_TIME,
    apart,
    less,
    log_steps,
    more,
    number,
    over_looks,
    scores,
    settled,
    typical,
)

if TYPE_CHECKING:
    from firstguess_papers.library import Chart
    from firstguess_papers.training_charts import Line

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


def absorbs_first(s: Sweep) -> list[Truth]:
    """The edge is rid of its bias for good sooner than the ordered phase and than biased chaos.

    Only between phases that are biased at the start (the mean largest share is above the level): else nothing is said.
    """
    return [
        less(s.times(EDGE), s.times(phase), room=SAME_TIME) if s.biased(EDGE) and s.biased(phase) else None
        for phase in (ORDERED, BIASED)
    ]


def learns_best(s: Sweep) -> list[Truth]:
    """The edge's accuracy on held-out points at the end is above that of every other phase."""
    return _edge_above(s, "test accuracy", scores)


def learns_fastest(s: Sweep) -> list[Truth]:
    """The edge's accuracy on training points, averaged over looks, is above that of every other phase."""
    return _edge_above(s, "accuracy", over_looks)


def _edge_above(s: Sweep, what: str, statistic: Any) -> list[Truth]:
    """Where no phase ends past chance there is nothing to compare: not decided, rather than equal."""
    chance = 1 / s.classes
    if not any(above(number(scores(arm, what)), chance, by=PAST) is True for arm in s.arms.values()):
        return [None]
    edge = statistic(s.arms[EDGE], what)
    return [more(edge, statistic(arm, what), room=SAME_SCORE) for phase, arm in s.arms.items() if phase != EDGE]


def keeps_bias(s: Sweep) -> list[Truth]:
    """At the end the ordered phase's largest share is above the edge's by more than 0.1."""
    return [above(apart(scores(s.arms[ORDERED], "largest"), scores(s.arms[EDGE], "largest")), 0.1)]


def chaos_is_poor(s: Sweep) -> list[Truth]:
    """At the end deep chaos is below the edge on held-out points by more than 0.05."""
    if NEUTRAL not in s.arms:
        return []
    edge, deep = (scores(s.arms[phase], "test accuracy") for phase in (EDGE, NEUTRAL))
    return [above(apart(edge, deep), 0.05)]


def judged(
    main: dict[str, Sweep], own: dict[str, Sweep], other: dict[str, Sweep], *, other_words: str, subjects: str
) -> list[Entry]:
    """The parts of M10, each with its own verdict; those that no phase here speaks of are left out."""
    beyond = f"without a limit if also at each phase's own rate and with {other_words}"

    def checks(what: Any, sweeps: dict[str, Sweep]) -> list[Truth]:
        return [check for s in sweeps.values() for check in what(s)]

    def judge(what: Any, statement: str, said: Any) -> Entry:
        within = [*checks(what, own), *checks(what, other)]
        fine = {"own rates": all_of(checks(what, own)), other_words: all_of(checks(what, other))}
        failing = [name for name, truth in fine.items() if truth is not True]
        measured = "; ".join(
            f"{phi}, {sweep.words}: {said(sweep)}" for s in (main, own, other) for phi, sweep in s.items()
        )
        phi, first = list(main.items())[-1]
        found = entry(
            "M10",
            f"{statement}; {subjects}, one rate for all phases; {beyond}",
            measured,
            checks(what, main),
            within=within,
            limit=f"not with {' nor with '.join(failing)}",
            otherwise=_failing(what, main),
            headline=f"{phi}: {said(first)}",
        )
        idle = _idle(what, main)
        return replace(found, why=idle) if found.verdict == "not tested" and idle else found

    parts = (
        (absorbs_first, "“the edge absorbs fastest”: the largest share is at its level for good (a fifth of the way "
         "from even to 1) sooner than in the ordered phase and in biased chaos, all biased at the start (less than "
         "26 % is no difference)", _said_times),
        (learns_best, "“the edge learns best”: accuracy on held-out points at the end is above that of every other "
         "phase, one of them being past chance by 0.05 (less than 0.02 is no difference)",
         lambda s: _said(s, "test accuracy", scores)),
        (learns_fastest, "“the edge learns fastest”: accuracy on training points, averaged over looks (even on a "
         "logarithmic axis), is above that of every other phase, one of them ending past chance by 0.05 (less than "
         "0.02 is no difference)", lambda s: _said(s, "accuracy", over_looks)),
        (keeps_bias, "“ordered networks keep the bias”: their largest share ends above the edge's by more than 0.1",
         lambda s: _said(s, "largest", scores)),
        (chaos_is_poor, "“deep chaos learns poorly”: neutral chaos (tanh alone has it) ends below the edge on held-out "
         "points by more than 0.05", lambda s: _said(s, "test accuracy", scores)),
    )  # fmt: skip
    return [judge(*part) for part in parts if checks(part[0], main)]


def _idle(what: Any, sweeps: dict[str, Sweep]) -> str:
    """Why a comparison says nothing though its errors may be small."""
    if what is absorbs_first:
        even = [f"{phi} {p}" for phi, s in sweeps.items() for p in (ORDERED, EDGE, BIASED) if not s.biased(p)]
        return f"not clearly biased at the start: {', '.join(even)}" if even else ""
    idle = [phi for phi, s in sweeps.items() if what in (learns_best, learns_fastest) and what(s) == [None]]
    return f"no phase of {' and '.join(idle)} ends past chance by 0.05" if idle else ""


def _failing(what: Any, sweeps: dict[str, Sweep]) -> str:
    """Which activations contradict it."""
    found = [phi for phi, s in sweeps.items() if all_of(what(s)) is False]
    return f"contradicted by {' and '.join(found)}" if found else ""


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


def phases_title(sweeps: dict[str, Sweep], *, subject: str = "The edge of chaos", rates: str = "at one rate") -> str:
    """What was found of absorbing and learning; what was not decided is not said."""

    def found(what: Any) -> Truth:
        return all_of(check for s in sweeps.values() for check in what(s))

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
    from firstguess_papers.training_charts import arms_chart, lines_of

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
