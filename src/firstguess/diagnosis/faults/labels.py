"""Labels that are no class of the model."""

from __future__ import annotations

from firstguess.diagnosis.faults.base import Fault, Seen


def find(seen: Seen) -> Fault | None:
    """Whole numbers below 0 (but −100, which torch leaves out) or from the number of classes on; NaN."""
    y = seen.examination.labels
    if y is None or not y.outside:
        return None
    if y.missing:
        return seen.fault(
            "labels out of range",
            "labels are NaN",
            "drop these points",
            evidence=f"{y.missing} of {y.count}",
            missing=y.missing,
            labels=y.count,
        )
    if (y.low, y.high, y.classes) == (-1.0, 1.0, 2) and seen.now.single:
        return None  # −1 and 1, for the sign of one logit: hinge losses want them
    one_based = y.low == 1 and y.high == y.classes
    return seen.fault(
        "labels out of range",
        f"labels go from {y.low:.0f} to {y.high:.0f}, and the model has {y.classes} classes, 0 to {y.classes - 1}",
        "subtract 1 from the labels" if one_based else "number the classes from 0 on, or give the head more outputs",
        evidence=f"{y.outside} of {y.count} are none of them",
        low=y.low,
        high=y.high,
        classes=y.classes,
        outside=y.outside,
        labels=y.count,
    )
