"""The logarithm of 0."""

from __future__ import annotations

from firstguess.diagnosis.faults.base import Fault, Seen


def find(seen: Seen) -> Fault | None:
    """−Inf from a logarithm, where it reaches the outputs (masks are made by log(0) on purpose, and do not)."""
    x = seen.examination
    if not x.ops.logs or not (x.now.lost or x.now.nonfinite):
        return None
    place, count = next(iter(x.ops.logs.items()))
    share = x.now.lost / max(x.now.points, 1)
    return seen.fault(
        "log(0)",
        "a logarithm of 0 gives −Inf, and it reaches the outputs",
        "log_softmax instead of log(softmax(x)); else log(x.clamp_min(1e-12)), or log1p",
        place,
        f"{count} times; {share:.1%} of the points have outputs that are not finite",
        count=count,
        points_lost=share,
    )
