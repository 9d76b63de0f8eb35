"""Dropout that leaves nothing."""

from __future__ import annotations

from firstguess.diagnosis.faults.base import Fault, Seen


def find(seen: Seen) -> Fault | None:
    """A fact: modules, calls of F.dropout, and the dropout of attention and recurrent layers."""
    dropped = seen.examination.ops.dropped
    if not dropped:
        return None
    place, p = next(iter(dropped.items()))
    left = "nothing" if p == 1 else f"{1 - p:.1%}"
    return seen.fault(
        "Dropout(1)",
        f"dropout leaves {left} of the signal in training: p is the part that is dropped, not kept",
        "nn.Dropout(p=0.1)",
        place,
        f"p = {p:g}",
        p=p,
        layers=list(dropped),
    )
