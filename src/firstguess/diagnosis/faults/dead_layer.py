"""Layers that no step moves: gradients of exactly 0, units that are copies of each other, gradients that vanish."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from firstguess.diagnosis.faults.base import Fault, Seen

_VANISHED = 1e-3  # the first layer's gradient over its size, against the last one's
_STUCK = 0.02  # of the way to the best loss


def find(seen: Seen) -> Iterator[Fault]:
    """On a copy of the model as it is: weights whose gradient is exactly 0 now and after each of three steps."""
    doctor = seen.doctor
    if doctor is None or doctor.learned or not doctor.training.depends:
        return
    if {"softmax over one unit", "frozen parameters", "loss does not depend on the outputs"} & set(seen.found):
        return
    model = doctor.patient.training_copy()
    for parameter in model.parameters():
        parameter.requires_grad_(parameter.is_floating_point())
    looks = doctor.probe.gradients(model, steps=3)
    if not looks:
        return
    names = [n for n, g in looks[0].items() if n in doctor.weights and g.ndim > 1]
    dead = [n for n in names if all(n in g and not bool(g[n].any()) for g in looks)]
    if dead:
        layer = dead[0].rpartition(".")[0]
        yield seen.fault(
            "dead layer",
            "no gradient reaches a layer, now or after three steps: it never learns",
            f"nn.init.kaiming_normal_({seen.code(layer)}.weight); with ReLU also look at the biases before it",
            layer,
            f"the gradient is exactly 0 for {len(dead)} of {len(names)} weights",
            layers=dead,
        )
        return
    twins = [n for n in names if _copies(doctor.weights[n]) and all(_copies(g[n]) for g in looks)]
    if twins and len(names) > 1:
        layer = twins[0].rpartition(".")[0]
        yield seen.fault(
            "identical units",
            "all units of a layer have the same weights and get the same gradient: they stay one unit",
            f"nn.init.kaiming_normal_({seen.code(layer)}.weight)",
            layer,
            f"{len(twins)} of {len(names)} layers",
            layers=twins,
        )


def _copies(w: torch.Tensor) -> bool:
    rows = w.detach().reshape(len(w), -1)
    return len(rows) > 2 and bool(rows.any()) and bool((rows - rows[0]).abs().max() <= 1e-6 * rows.abs().max())


def vanishing(seen: Seen) -> Fault | None:
    """Of a re-initialized copy, the first layer's gradient is next to nothing, and it learns a constant only."""
    doctor = seen.doctor
    if doctor is None or doctor.patient.optimizer is None or doctor.learned or "vanishing logits" in seen.found:
        return None
    model = doctor.patient.fresh()
    grads = next(iter(doctor.probe.gradients(model)), {})
    sizes = {
        n: float(grads[n].norm() / w.detach().norm().clamp_min(1e-30))
        for n, w in model.named_parameters()
        if n in grads and n in doctor.weights
    }
    if len(sizes) < 3:
        return None
    first, last = next(iter(sizes)), list(sizes)[-1]
    ratio = sizes[first] / max(sizes[last], 1e-30)
    if not ratio < _VANISHED:
        return None
    run = doctor.probe.run(1.0)
    if doctor.progress(min(run.start, doctor.training.constant[0]), run.end) > _STUCK:
        return None
    return seen.fault(
        "gradients vanish",
        "gradients shrink from layer to layer, and the first layers do not learn",
        "ReLU or GELU in place of sigmoid and tanh, a norm before each activation, or residual connections",
        first.rpartition(".")[0],
        f"over its weights, the gradient of {first} is {ratio:.1g} times that of {last}",
        ratio=ratio,
    )
