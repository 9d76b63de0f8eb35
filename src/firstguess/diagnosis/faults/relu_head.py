"""A ReLU behind the head."""

from __future__ import annotations

from firstguess.diagnosis.faults.base import Fault, Seen


def find(seen: Seen) -> Fault | None:
    """What the model returns is what a ReLU returned, and some of it was cut."""
    x = seen.examination
    if not x.relu or not x.zeros or "Dropout(1)" in seen.found:
        return None
    return Fault(
        "ReLU after the head",
        f"logits go through a ReLU: {x.zeros:.0%} of them are 0, where no gradient passes and classes tie",
        "no activation after the last layer",
        x.relu,
        {"layer": x.relu, "zeros": x.zeros},
    )
