"""A ReLU after the head."""

from __future__ import annotations

from firstguess.diagnosis.faults.base import Fault, Seen


def find(seen: Seen) -> Fault | None:
    """What the model returns is what a ReLU returned, and some of it was cut."""
    x = seen.examination
    if not x.relu or not x.zeros or "Dropout(1)" in seen.found:
        return None
    return seen.fault(
        "ReLU after the head",
        "logits go through a ReLU: where they are 0 no gradient passes, and classes tie",
        "no activation after the last layer",
        x.relu,
        f"{x.zeros:.0%} of them are 0",
        zeros=x.zeros,
    )
