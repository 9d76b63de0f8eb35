"""What the optimizer holds: parameters of another model, none that can learn, not the head; gradients left over."""

from __future__ import annotations

import math
from collections.abc import Iterator

from torch import optim

from firstguess.diagnosis.faults.base import Fault, Seen
from firstguess.modules.members.untrained import brief

_LEFT = 20.0  # times this batch's gradient
_REMAKE = "make the optimizer after the model is complete: optimizer = torch.optim.{}(model.parameters(), lr={:g})"


def find(seen: Seen) -> Iterator[Fault]:
    """Facts of the instance; of a function that makes one, nothing is asked."""
    doctor = seen.doctor
    if doctor is None:
        return
    model, given = doctor.patient.given, doctor.patient.optimizer
    if not any(p.requires_grad for p in model.parameters()) and any(True for _ in model.parameters()):
        yield _frozen(seen, "every parameter of the model is frozen", "model.requires_grad_(True)")
        return
    if not isinstance(given, optim.Optimizer):
        return
    held = {id(p): p for group in given.param_groups for p in group["params"]}
    mine = {id(p): name for name, p in model.named_parameters()}
    free = {id(p) for p in model.parameters() if p.requires_grad}
    remake = _REMAKE.format(type(given).__name__, float(given.param_groups[0]["lr"]))
    strangers = [p for key, p in held.items() if key not in mine]
    lacking = [mine[key] for key in free if key not in held]
    head = {f"{seen.now.head}.weight", f"{seen.now.head}.bias"}
    if (strangers and lacking) or not set(mine) & set(held) or head & set(lacking):
        yield seen.fault(
            "parameters missing from the optimizer",
            "the optimizer does not hold parameters of the model that are to learn"
            + (
                ", but others that are not in it: the model was changed, or copied, after it was made" * bool(strangers)
            ),
            remake,
            seen.now.head if head & set(lacking) else "",
            f"{len(lacking)} of {len(free)} parameters are missing ({brief(model, lacking)}), {len(strangers)} are not "
            "the model's",
            missing=lacking,
        )
    elif not set(held) & free:
        yield _frozen(seen, "every parameter that the optimizer holds is frozen", remake)
    yield from _left_over(seen)


def _frozen(seen: Seen, message: str, fix: str) -> Fault:
    assert seen.doctor is not None
    model = seen.doctor.patient.given
    frozen, count = sum(not p.requires_grad for p in model.parameters()), sum(1 for _ in model.parameters())
    return seen.fault(
        "frozen parameters", f"{message}: no step changes anything", fix, evidence=f"{frozen} of {count} are frozen"
    )


def _left_over(seen: Seen) -> Iterator[Fault]:
    doctor = seen.doctor
    assert doctor is not None
    kept = {n: p.grad for n, p in doctor.patient.given.named_parameters() if p.grad is not None}
    if not kept or doctor.learned:
        return
    sizes: list[float] = []
    for model in (doctor.patient.training_copy(), doctor.patient.fresh()):
        grads = next(iter(doctor.probe.gradients(model)), {})
        sizes.append(math.sqrt(sum(float(grads[n].square().sum()) for n in kept if n in grads)))
    size = math.sqrt(sum(float(g.square().sum()) for g in kept.values()))
    if size > _LEFT * max(sizes) > 0:
        yield seen.fault(
            "gradients left over",
            "gradients on the model are far larger than this batch's: they are added up from step to step",
            "optimizer.zero_grad() before loss.backward()",
            evidence=f"norm {size:.3g}; this batch's is {sizes[0]:.3g}",
            norm=size,
        )
