"""NaN or Inf from the model itself; data with NaN are refused before it is run."""

from __future__ import annotations

from firstguess.diagnosis.faults.base import Fault, Seen


def find(seen: Seen) -> Fault | None:
    """The first layer that gives one."""
    now = seen.now
    if not now.nonfinite:
        return None
    share = now.lost / max(now.points, 1)
    return seen.fault(
        "NaN or Inf",
        f"{now.nonfinite} is the first layer that gives NaN or Inf",
        "look at that layer's weights and inputs: torch.isfinite(…).all()",
        now.nonfinite,
        f"{share:.1%} of the points have no guess",
        points_lost=share,
    )
