"""Weights that no initializer gives: memory as it was found, NaN, next to no size."""

from __future__ import annotations

import math

import torch
from torch import nn

from firstguess.diagnosis.faults.base import Fault, Seen
from firstguess.modules.members.weight_statistics import scaled_size

_LARGE, _SMALL = 1e4, 1e-30  # of an entry; of all entries
_SIZE = 300.0  # of RMS·√fan_in, which initializers make 0.1 to 2


def absurd(seen: Seen) -> Fault | None:
    """Find absurd weights by their values alone."""
    model = seen.doctor.patient.given
    found = absurd_weights(model)
    count = sum(1 for _ in model.parameters())
    if not found:
        return None
    name = next(iter(found))
    message = "weights have values that no initializer gives: memory as it was found, or a training that blew up"
    how = "kaiming_uniform_" if model.get_parameter(name).ndim > 1 else "zeros_"
    fix = f"initialize them: nn.init.{how}({seen.code(name)})"
    place, evidence = name.rpartition(".")[0] or name, f"{name}: {found[name]}; {len(found)} of {count} parameters"
    return seen.fault("weights never initialized", message, fix, place, evidence, parameters=found)


def absurd_weights(model: nn.Module) -> dict[str, str]:
    """What is wrong with the values of each parameter that no initializer gives."""
    found: dict[str, str] = {}
    for name, parameter in model.named_parameters():
        if not parameter.is_floating_point() or not parameter.numel():
            continue
        w = parameter.detach()
        top = float(w.abs().max())
        if not math.isfinite(top):
            found[name] = f"{int((~torch.isfinite(w)).sum())} of {w.numel()} entries are NaN or Inf"
        elif 0 < top < _SMALL:
            found[name] = f"the largest entry is {top:.1g}"
        elif top > _LARGE or (w.ndim > 1 and scaled_size(w) > _SIZE):
            found[name] = f"entries up to {top:.1g}"
    return found


def not_loaded(seen: Seen) -> Fault | None:
    """Weights that look like a fresh draw, of a model that is said to be trained: by their singular values."""
    if not (found := seen.doctor.patient.untrained) or seen.doctor.has_learned:
        return None
    shows, evidence = "not every weight shows", found
    if found == "all":
        shows = "no weight shows"
        evidence = "singular values are those of a fresh draw; a short training leaves them so"
    fix = (
        "print(model.load_state_dict(torch.load(path), strict=False)): it names the keys that are missing or not known"
    )
    message = f"trained=True, but {shows} traces of training"
    return seen.fault("checkpoint not loaded", message, fix, evidence=evidence)


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
    evidence = f"logits differ by {x.size:.1g} (RMS)"
    if tiny:
        more = f" ({len(tiny)} such layers)" if len(tiny) > 1 else ""
        own = f"the weights of {first} have RMS·√fan_in = {tiny[first]:.1g}, initializers give 0.1 to 2{more}"
        evidence = f"{own}; {evidence}"
    message = "weights, or logits, have next to no size"
    fix = f"weights at the size that their initializer gives, e.g. nn.init.kaiming_normal_({seen.code(first)}.weight)"
    return seen.fault("vanishing logits", message, fix, first, evidence, logits=x.size, weights=tiny)
