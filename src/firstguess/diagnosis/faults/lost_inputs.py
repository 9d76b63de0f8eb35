"""Inputs that differ, and outputs that do not, for no other reason that has a name."""

from __future__ import annotations

from firstguess.diagnosis.faults.base import Fault, Seen
from firstguess.modules.hooks.examination import are_alike


def find(seen: Seen) -> Fault | None:
    """All points of each batch have the same outputs, up to rounding."""
    x = seen.examination
    # Dropout in train mode makes outputs differ: without it they may be one.
    same = x.same or (seen.doctor is not None and seen.doctor.patient.given.training and are_alike(seen.doctor.out))
    if not same or seen.found:
        return None
    place = f" from {x.same_from} on" if x.same_from else ""
    return seen.fault(
        "same output for all inputs",
        f"all points of a batch have the same values{place}, though inputs differ: the batch was averaged (inputs "
        "replaced by their mean), or what tells points apart is lost to rounding",
        "look for a mean over dim 0, and for layers that shrink the signal",
        x.same_from,
    )
