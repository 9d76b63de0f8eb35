"""A head that does not look at its inputs, or gives all classes the same."""

from __future__ import annotations

from firstguess.diagnosis.faults.base import Fault, Seen

_TIES = 0.01


def find(seen: Seen) -> Fault | None:
    """Ties of a head whose weights are 0, or that gives every class the same logit; or weights 0 beside a bias."""
    now = seen.now
    if {"Dropout(1)", "ReLU after the head", "dead units", "mask that hides everything"} & set(seen.found):
        return None
    constant, level = now.head_zero and seen.examination.same, now.level or seen.examination.level
    if not constant and not (level or (now.head_zero and now.ties >= _TIES)):
        return None
    why = "its weights are zero" if now.head_zero else "it gives every class the same logit"
    then = (
        f"so {now.ties:.1%} of the points have no largest logit; an arg-max takes the first class"
        if now.ties >= _TIES
        else "so its bias alone decides, the same for all points"
        if now.head_zero
        else "up to rounding, which decides"
    )
    return seen.fault(
        "zero head",
        f"{now.head}: {why}, {then}",
        "small random weights; or leave it if it is meant: the first step of training moves it",
        now.head,
        ties=now.ties,
        weights_zero=now.head_zero,
        meant=seen.doctor is not None and seen.doctor.moves(now.head),
    )
