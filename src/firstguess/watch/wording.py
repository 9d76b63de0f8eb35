"""A watched training in sentences."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from firstguess.base.text import spaced
from firstguess.theory.training.curves import FAVOURED, OTHERS
from firstguess.watch.evaluation import reached, share
from firstguess.watch.seen import WatchRecord

_FEW = 3  # early evaluations that are listed


def summary(w: WatchRecord) -> list[tuple[str, str]]:
    """Label and value of every headline number."""
    fine = [look for look in w.looks if not look.lost]
    if not fine:
        return [("cost", str(w.cost))]
    first, last = fine[0], fine[-1]
    where = "at the start" if first.step == 0 else f"at step {spaced(first.step)}"
    end = f"at step {spaced(last.step)}"
    top = w.name(int(np.argmax(last.shares)))
    largest = f"{share(first.largest)} {where} ({w.name(w.favourite)}), {share(last.largest)} {end} ({top})"
    if w.labels is not None:
        largest += f"; of the labels {share(float(np.bincount(w.labels).max() / len(w.labels)))}"
    rows = [("largest share", largest), ("absorbed", _absorbed(w))]
    if math.isfinite(w.left[-1]):
        rows.append(("starting bias that is left", f"{share(w.left[-1])} {end} (guesses for {w.name(w.favourite)})"))
    if w.labels is not None:
        groups = [(name, w.accuracy[which].draws[0]) for name, which in (("favoured", FAVOURED), ("others", OTHERS))]
        said = [f"{name} {_ends(values, '.2f')}" for name, values in groups if np.isfinite(values).any()]
        if said:
            rows.append(("recall by class", ", ".join(said)))
        rows.append(("accuracy", _ends(w.accuracy.draws[0], ".2f")))
    if np.isfinite(w.gamma).any():
        rows.append(("γ of this network's output", _ends(w.gamma, ".3g")))
    if w.early:
        rows.append(("evaluated before absorption", early(w)))
    if w.predicted is not None or w.unpredicted:
        rows.append(("predicted", predicted(w)))
    rows.append(("cost", str(w.full_cost)))
    return rows


def early(w: WatchRecord) -> str:
    """Where it was evaluated too early, and what that means."""
    steps = [spaced(step) for step in w.early]
    listed = ", ".join(steps[:_FEW]) + (f" and {len(steps) - _FEW} more" if len(steps) > _FEW else "")
    at = {look.step: look for look in w.looks if not look.lost}
    leaders = dict.fromkeys(int(np.argmax(at[step].shares)) for step in w.early if step in at)
    return f"at step{'s' if len(steps) > 1 else ''} {listed}: scores by class there favour {_named(w, leaders)}"


def _named(w: WatchRecord, classes: Iterable[int]) -> str:
    """Classes by name, the favourite of the start told apart."""
    first = f"the favourite of the {'start' if w.start_known else 'first look'}"
    return " and ".join(w.name(c) + (f", {first}" if c == w.favourite else "") for c in classes)


def predicted(w: WatchRecord) -> str:
    """Prediction beside what was seen, or why there is none."""
    t = w.predicted
    if t is None:
        return f"not: {w.unpredicted}"
    at = t.absorption.median
    last = spaced(float(t.steps[-1]))
    when = f"absorbed at step {reached(at)}" if math.isfinite(at) else f"not absorbed within {last} steps"
    words = f"{when}; largest share off by at most {w.difference:.2f} up to step {last}"
    return words if t.trust is None else f"{words}; trust, for averages over networks: {t.trust}"


def warning(w: WatchRecord, step: int) -> str:
    """Of an evaluation before absorption."""
    now = next(look for look in reversed(w.looks) if not look.lost)
    even = "" if w.labels is not None else "; no labels were given, so classes are taken for even"
    again = math.isfinite(w.absorbed_at)
    when = "while one class leads again after absorption" if again else "before the bias of the start is absorbed"
    leader = int(np.argmax(now.shares))
    past = (
        ""
        if leader == w.favourite
        else f" (at the {'start' if w.start_known else 'first look'} {w.name(w.favourite)} did)"
    )
    return (
        f"evaluated at step {spaced(step)}, {when}: {w.name(leader)} gets {share(now.largest)} of the guesses "
        f"(absorbed is {share(w.level)} or less{even}){past}. Scores by class now favour {_named(w, [leader])}: "
        "evaluate again later"
    )


def _absorbed(w: WatchRecord) -> str:
    at, level = w.absorbed_at, f"a largest share of {share(w.level)}"
    if math.isnan(at):
        return f"not known: {level} or less at the first look already"
    if math.isinf(at):
        return f"not yet: {level} was not reached"
    if at == 0.0:
        return f"at the start: {level} or less there already"
    again = ", ".join(f"{spaced(a)} to {spaced(b)}" if b > a else spaced(a) for a, b in w.relapses)
    return f"at step {reached(at)} ({level})" + (f"; above it again at steps {again}" if again else "")


def _ends(values: np.ndarray[tuple[int, ...], np.dtype[np.float64]], form: str) -> str:
    fine = values[np.isfinite(values)]
    return f"{fine[0]:{form}} → {fine[-1]:{form}}" if len(fine) else "unknown"
