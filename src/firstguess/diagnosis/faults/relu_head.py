"""A ReLU after the head."""

from __future__ import annotations

from firstguess.diagnosis.faults.base import Fault, Seen


def find(seen: Seen) -> Fault | None:
    """What the model returns is what a ReLU returned."""
    x = seen.examination
    known = seen.doctor is not None
    end = seen.doctor.end.name if seen.doctor is not None else ""
    if (end not in ("ReLU", "clamp") if known else not x.relu) or "Dropout(1)" in seen.found:
        return None
    if end == "clamp" and not (x.relu and x.zeros):  # cut elsewhere, or at 0 and never there
        return None
    return seen.fault(
        "ReLU after the head",
        "logits go through a ReLU: where they are 0 no gradient passes, and classes tie",
        "no activation after the last layer",
        x.relu or seen.now.head,
        f"{x.zeros:.0%} of them are 0 on these points",
        zeros=x.zeros,
    )
