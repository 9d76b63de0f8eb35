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
    return Fault(
        "Dropout(1)",
        f"dropout with p = {p:g} leaves {left} of the signal in training: p is the part that is dropped, not kept",
        "a p such as 0.1",
        place,
        {"layer": place, "p": p, "layers": list(dropped)},
    )
