"""Weights that no initializer gives: memory as it was found, NaN, numbers without any size."""

from __future__ import annotations

import math

import torch

from firstguess.diagnosis.faults.base import Fault, Seen

_LARGE, _SIZE, _SMALL = (
    1e4,
    300.0,
    1e-30,
)  # of an entry; of RMS·√fan_in, which initializers make 0.1 to 2; of all entries


def find(seen: Seen) -> Fault | None:
    """By their values alone."""
    if seen.doctor is None:
        return None
    model = seen.doctor.patient.given
    found: dict[str, str] = {}
    count = 0
    for name, parameter in model.named_parameters():
        if not parameter.is_floating_point() or not parameter.numel():
            continue
        w = parameter.detach()
        count += 1
        top = float(w.abs().max())
        if not math.isfinite(top):
            lost = int((~torch.isfinite(w)).sum())
            found[name] = f"{lost} of {w.numel()} entries are NaN or Inf"
        elif 0 < top < _SMALL:
            found[name] = f"the largest entry is {top:.1g}"
        elif top > _LARGE or (w.ndim > 1 and _size(w) > _SIZE):
            found[name] = f"entries up to {top:.1g}"
    if not found:
        return None
    name = next(iter(found))
    layer = name.rpartition(".")[0]
    return seen.fault(
        "weights never initialized",
        "weights have values that no initializer gives: memory as it was found, or a training that blew up",
        f"initialize them: nn.init.kaiming_uniform_({seen.code(name)})"
        if model.get_parameter(name).ndim > 1
        else f"initialize them: nn.init.zeros_({seen.code(name)})",
        layer or name,
        f"{name}: {found[name]}; {len(found)} of {count} parameters",
        parameters=found,
    )


def _size(w: torch.Tensor) -> float:
    fan_in = w.numel() / w.shape[0]
    return float(w.double().square().mean().sqrt()) * math.sqrt(fan_in)
