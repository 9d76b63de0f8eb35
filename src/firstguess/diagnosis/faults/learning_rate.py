"""Learning rates: tried on re-initialized copies, at rates around the user's."""

from __future__ import annotations

import math
from collections.abc import Iterator

from torch import optim

from firstguess.base.text import number
from firstguess.diagnosis.faults.base import Fault, Seen
from firstguess.diagnosis.faults.probe import STEPS, Probe, Run

_HARDLY = 0.1  # of the way to the best loss
_FAR = 0.5  # of the way from the best loss to that of a constant guess
_MORE = 5.0  # times as far by a larger rate
_PATIENCE = 10_000  # steps, where nobody says how many are planned
_FEW = 50  # planned steps that are few, whatever the rate


def find(seen: Seen) -> Iterator[Fault]:
    """Too high: wild at the user's rate and calm at a smaller one. Too small: hardly moved, and a larger one does."""
    doctor = seen.doctor
    if doctor is None or doctor.patient.optimizer is None or doctor.learned:
        return
    probe = doctor.probe
    run = probe.run(1.0)
    constant, best = doctor.training.constant[0], doctor.training.free
    stalled = run.end > 0.98 * constant and probe.run(0.1).end < best + _FAR * (constant - best)
    if run.wild or stalled:  # a tenth of the rate learns in as many steps what this one does not
        yield from _too_high(seen, probe, run, stalled)
    elif run.start > doctor.training.free:
        yield from _too_small(seen, probe, run)


def _too_high(seen: Seen, probe: Probe, run: Run, stalled: bool) -> Iterator[Fault]:
    assert seen.doctor is not None
    rate = seen.doctor.patient.rate
    for tried in (0.1, 0.01, 0.001):
        factor, calmer = tried, probe.run(tried)
        if not calmer.calm or (run.finite and not calmer.end < run.end - 0.02 * abs(run.end)):
            continue
        again = probe.run(1.0, seed=1)
        if not again.wild and not (stalled and again.end > 0.98 * run.end):  # one unlucky start
            return
        smaller = probe.run(0.1 * factor)
        if smaller.calm and smaller.end < calmer.end:
            factor, calmer = 0.1 * factor, smaller
        happens = (
            "leaves the numbers"
            if not run.finite
            else f"goes from {run.start:.3g} to {run.end:.3g}"
            + (f" by way of {max(run.losses):.3g}" if max(run.losses) > 2 * max(run.start, run.end) else "")
            + (", with one output for all points" if run.collapsed else "")
        )
        edge = _edge(seen, probe)
        yield seen.fault(
            "learning rate too high",
            f"a re-initialized copy is thrown off at lr = {rate:g}, and learns at {factor * rate:g}",
            f"lr={factor * rate:g}",
            evidence=f"in {len(run.losses) - 1} steps the loss {happens}; at {factor * rate:g}: {calmer.end:.3g}{edge}",
            lr=rate,
            calm=factor * rate,
            start=run.start,
            end=run.end,
            end_calm=calmer.end,
        )
        return


def _edge(seen: Seen, probe: Probe) -> str:
    """For plain descent, how far the rate is beyond the edge of stability."""
    assert seen.doctor is not None
    example, rate = seen.doctor.patient.example, seen.doctor.patient.rate
    if not isinstance(example, optim.SGD):
        return ""
    try:
        sharp = probe.sharpness
    except Exception:  # no second derivative
        return ""
    limit = 2 * (1 + float(example.param_groups[0].get("momentum", 0.0))) / sharp if sharp > 0 else math.inf
    return f"; curvature {sharp:.3g} allows {limit:.2g}" if rate > limit else ""


def _too_small(seen: Seen, probe: Probe, run: Run) -> Iterator[Fault]:
    doctor = seen.doctor
    assert doctor is not None
    planned, rate = doctor.patient.steps, doctor.patient.rate
    horizon = planned or _PATIENCE
    # Steps at a rate that is k times as large stand for k times as many.
    first = probe.run(1.0, steps=horizon) if horizon <= 2 * STEPS else probe.run(horizon / STEPS)
    mine = doctor.progress(first.start, first.end)
    if not mine < _HARDLY or first.wild:
        return
    for factor in (10.0, 100.0, 1000.0):
        more = probe.run(factor * max(1.0, horizon / STEPS))
        far = doctor.progress(more.start, more.end)
        if more.wild:
            return
        if far > _HARDLY and far > _MORE * mine:
            few = planned is not None and planned <= _FEW
            yield seen.fault(
                "too few steps" if few else "learning rate too small",
                f"{planned} steps are too few to learn anything at lr = {rate:g}"
                if few
                else f"at lr = {rate:g} {planned or 'thousands of'} steps hardly change anything",
                f"steps={number(int(factor * horizon))}, or lr={factor * rate:g}" if few else f"lr={factor * rate:g}",
                evidence=f"a re-initialized copy comes {mine:.1%} of the way to the best loss, with {factor:g} times "
                f"the rate {far:.0%}",
                lr=rate,
                progress=mine,
                progress_larger=far,
                factor=factor,
            )
            return
