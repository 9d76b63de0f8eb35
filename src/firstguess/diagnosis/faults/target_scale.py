"""Numbers to regress on that are far from what the outputs start as."""

from __future__ import annotations

import math

from firstguess.diagnosis.faults.base import Fault, Seen

_TIMES = 30.0  # the outputs' size at the start


def find(seen: Seen) -> Fault | None:
    """Far from the outputs of a re-initialized copy, and at the user's rate it does not get there."""
    doctor = seen.doctor
    if doctor is None or doctor.patient.optimizer is None or doctor.learned or doctor.end.name:
        return None
    a = doctor.answers
    if not a.numeric or not a.y.is_floating_point() or a.y.numel() != doctor.out.numel():
        return None
    y = a.y.double()
    size, out = float(y.square().mean().sqrt()), doctor.patient.outputs(doctor.patient.fresh()).detach().double()
    mine = float(out.square().mean().sqrt())
    if not size > _TIMES * max(mine, 1.0):
        return None
    run = doctor.probe.run(1.0)
    if not run.wild and doctor.progress(run.start, run.end) > 0.5:
        return None
    spread = math.sqrt(float(y.var())) if y.numel() > 1 else size
    return seen.fault(
        "targets not scaled",
        "targets are far larger than what the model gives at the start",
        "standardize them: (y - y.mean()) / y.std(), and undo it after the model",
        seen.now.head,
        f"targets have RMS {size:.3g} (standard deviation {spread:.3g}), outputs {mine:.3g}; after "
        f"{len(run.losses) - 1} steps the loss is {run.end:.3g} of {run.start:.3g}",
        targets=size,
        outputs=mine,
    )
