"""Inputs that say nothing: all points are one, or each point is one number."""

from __future__ import annotations

from firstguess.diagnosis.faults.base import Fault, Seen

_LOOK = "look at what the loader gives: x[0], x[1], x.std(0)"


def find(seen: Seen) -> Fault | None:
    """Facts, up to a rounding of 1e-6 of the largest value."""
    given = seen.examination.given
    if given.same:
        return seen.fault(
            "identical inputs",
            "all points are the same: one point copied, or each replaced by their mean",
            _LOOK,
            evidence=f"{seen.examination.now.points} points",
            same=True,
        )
    if given.flat:
        return seen.fault(
            "inputs replaced by their mean",
            "every point has one value in all its entries, as if it were replaced by its mean",
            "look at what the loader gives, and at averages (mean, pooling) in its transforms",
            flat=True,
        )
    return None
