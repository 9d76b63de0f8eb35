"""Weight decay that outweighs the loss."""

from __future__ import annotations

import math

from torch import optim

from firstguess.diagnosis.faults.base import Fault, Seen

_STRONGER = 3.0  # times the gradient
_STEPS = 60
_SPENT = 4.0  # time constants of the decay, after which e^-4 of a weight is left


def find(seen: Seen) -> Fault | None:
    """The pull of the decay on a re-initialized copy is beyond the gradient's, and without it the copy learns more."""
    doctor = seen.doctor
    if doctor is None or doctor.patient.optimizer is None:
        return None
    p = doctor.patient
    group = max(p.example.param_groups, key=lambda g: float(g.get("weight_decay", 0.0)))
    decay, rate = float(group.get("weight_decay", 0.0)), p.rate
    if not decay:
        return None
    model = p.fresh()
    grads = next(iter(doctor.probe.gradients(model)), {})
    mine = {n: w for n, w in model.named_parameters() if n in grads and w.ndim > 1}
    size = math.sqrt(sum(float(w.detach().square().sum()) for w in mine.values()))
    count = sum(w.numel() for w in mine.values())
    decoupled = isinstance(p.example, optim.AdamW) or bool(group.get("decoupled_weight_decay"))
    # Adam's steps have the size of the rate, whatever the gradient; a decay outside of them competes with that.
    pull = math.sqrt(count) if decoupled else math.sqrt(sum(float(grads[n].square().sum()) for n in mine))
    if not mine or not decay * size > _STRONGER * pull:
        return None
    factor = max(1.0, _SPENT / (rate * decay * _STEPS)) if rate else 1.0
    with_, without = (doctor.probe.run(factor, decay=on, steps=_STEPS) for on in (True, False))
    if without.finite and with_.finite and not without.end < with_.end - 0.05 * abs(with_.end):
        return None
    return seen.fault(
        "weight decay too strong",
        f"weight_decay = {decay:g} pulls weights to 0 faster than the loss moves them",
        f"weight_decay={decay / 1000:.0e}",
        evidence=f"the pull is {decay * size / max(pull, 1e-30):.3g} times the gradient; a re-initialized copy ends at "
        f"{with_.end:.3g} with it, {without.end:.3g} without",
        weight_decay=decay,
        ratio=decay * size / max(pull, 1e-30),
    )
