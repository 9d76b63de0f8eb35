"""Weights that no initializer gives: memory as it was found, NaN, next to no size."""

from __future__ import annotations

import math

import torch
from torch import nn

from firstguess.diagnosis.faults.base import Fault, Seen

_LARGE, _SIZE, _SMALL = (
    1e4,
    300.0,
    1e-30,
)  # of an entry; of RMS·√fan_in, which initializers make 0.1 to 2; of all entries


def absurd(seen: Seen) -> Fault | None:
    """Find absurd weights by their values alone."""
    model = seen.doctor.patient.given
    found = absurd_weights(model)
    count = sum(1 for _ in model.parameters())
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


def absurd_weights(model: nn.Module) -> dict[str, str]:
    """What is wrong with the values of each parameter that no initializer gives."""
    found: dict[str, str] = {}
    for name, parameter in model.named_parameters():
        if not parameter.is_floating_point() or not parameter.numel():
            continue
        w = parameter.detach()
        top = float(w.abs().max())
        if not math.isfinite(top):
            lost = int((~torch.isfinite(w)).sum())
            found[name] = f"{lost} of {w.numel()} entries are NaN or Inf"
        elif 0 < top < _SMALL:
            found[name] = f"the largest entry is {top:.1g}"
        elif top > _LARGE or (w.ndim > 1 and _size(w) > _SIZE):
            found[name] = f"entries up to {top:.1g}"
    return found


def _size(w: torch.Tensor) -> float:
    fan_in = w.numel() / w.shape[0]
    return float(w.double().square().mean().sqrt()) * math.sqrt(fan_in)


def not_loaded(seen: Seen) -> Fault | None:
    """Weights that look like a fresh draw, of a model that is said to be trained: by their singular values."""
    if not (found := seen.doctor.patient.untrained) or seen.doctor.has_learned:
        return None
    whole = found == "all"
    return seen.fault(
        "checkpoint not loaded",
        f"trained=True, but {'no weight shows' if whole else 'not every weight shows'} traces of training",
        "print(model.load_state_dict(torch.load(path), strict=False)): it names the keys that are missing or not known",
        evidence="singular values are those of a fresh draw; a short training leaves them so" if whole else found,
    )


_NOTHING = 1e-12  # RMS of the logits without what classes share: 40 layers that lose a factor of two each

_HARDLY, _LITTLE = 0.01, 0.1  # of the logits' size that depends on the input
_ONE, _HEAD = 5e-3, 6.5e-5  # RMS·√fan_in of one layer; of a head, which some make tiny on purpose (timm: 2e-5·√fan_in)


def vanishing(seen: Seen) -> Fault | None:
    """Weights a hundred times below any initializer's; or logits whose differences a float32 sum would lose."""
    x = seen.examination
    small = 0 < x.size < _NOTHING and not x.now.level
    # Residual branches are made tiny on purpose: then neither the head is, nor most layers, and inputs matter.
    one = {name: size for name, size in x.tiny.items() if size < _ONE}
    meant = seen.asker is not None and seen.doctor.patient.loss is not None
    head = x.tiny.get(x.now.head, 1.0) < _HEAD and not meant  # a tiny head learns, as a zero one does
    most = len(x.tiny) > x.weighted / 2 and (x.varies < _LITTLE or x.size < _HARDLY)
    # A tiny head takes as much from what inputs share as from what they differ by: it is no reason that these are one.
    lost = {name: size for name, size in one.items() if name != x.now.head} if x.varies < _HARDLY else {}
    tiny = x.tiny if most else one if head or small else lost
    if not tiny and not small:
        return None
    first = next(iter(tiny), x.now.head)
    parts: list[str] = []
    if tiny:
        more = f" ({len(tiny)} such layers)" if len(tiny) > 1 else ""
        parts.append(f"the weights of {first} have RMS·√fan_in = {tiny[first]:.1g}, initializers give 0.1 to 2{more}")
    parts.append(f"logits differ by {x.size:.1g} (RMS)")
    return seen.fault(
        "vanishing logits",
        "weights, or logits, have next to no size",
        f"weights at the size that their initializer gives, e.g. nn.init.kaiming_normal_({seen.code(first)}.weight)",
        first,
        "; ".join(parts),
        logits=x.size,
        weights=tiny,
    )
