"""ReLU units that are 0 on all points."""

from __future__ import annotations

import math

from scipy import special
from torch import Tensor

from firstguess.diagnosis.faults.base import Fault, Seen

_POINTS = 16  # fewer do not tell a dead unit from one that is rarely on
_MOST = 0.9  # of a layer; a unit whose sign is that of its bias alone is dead in half of all cases
_CHANCE = 1e-6  # of as many dead units, if each is dead in half of all cases
_HALF = 0.5
_MORE = 0.25  # more dead nodes than the ensemble's average
_SDS = 4.0  # … and standard deviations of its members
_TIES = 0.01


def find(seen: Seen) -> Fault | None:
    """Nearly all ReLUs of a layer; or most of a layer's nodes, far more than after an initialization."""
    if {"identical inputs", "Dropout(1)"} & set(seen.found):
        return None
    return _against_initializations(seen) or _outright(seen)


def _against_initializations(seen: Seen) -> Fault | None:
    layers = dead_layers(seen)
    if not layers or not (seen.notable or seen.now.ties >= _TIES):
        return None
    if {"saturated outputs", "vanishing logits"} & set(seen.found):  # which make values one up to rounding
        return None
    first, (share, usual) = next(iter(layers.items()))
    return seen.fault(
        "dead units",
        "most units of a layer give one value on all points, far more than after an initialization",
        _DO,
        first,
        f"{first}: {share:.0%} of its units, {usual:.0%} after an initialization; {len(layers)} such layers",
        dead=share,
        dead_in_ensemble=usual,
        layers=list(layers),
    )


_DO = "look at the biases and weights before it, and at the learning rate if it was trained"


def dead_layers(seen: Seen) -> dict[str, tuple[float, float]]:
    """Layers where most nodes give one value on all points, far more than in the ensemble: (now, ensemble).

    A few units of a gate may all be off by chance, which an ensemble of ten does not show: so either all outputs are
    dead, or it is a layer of so many ReLUs that chance is out of the question.
    """
    found: dict[str, tuple[float, float]] = {}
    if seen.measurement is None:
        return found
    usual = {layer.name: layer for layer in seen.measurement.layers}
    head = seen.now.head if seen.now.head_zero else ""
    many = {name for (_, name), alive in seen.examination.ops.alive.items() if _is_rare(alive)}
    for name, share in seen.now.dead.items():
        if name not in usual or share < _HALF or name == head:
            continue
        mean, error = usual[name].dead, usual[name].dead_se
        sd = error * math.sqrt(seen.measurement.inits) if math.isfinite(error) else 0.0
        if share > mean + max(_MORE, _SDS * sd) and (seen.examination.same or name in many):
            found[name] = (share, mean)
    return found


def _is_rare(alive: Tensor) -> bool:
    """Whether as many units are off as chance hardly gives, if each is off in half of all cases."""
    # Positions of a sequence are not independent: its last axis is.
    free = alive.shape[-1] if alive.ndim > 1 else alive.numel()
    off = math.floor(_off(alive) * free)
    return off > 0 and float(special.bdtrc(off - 1, free, _HALF)) < _CHANCE


def _off(alive: Tensor) -> float:
    return 1 - float(alive.double().mean()) if alive.numel() else 0.0


def _outright(seen: Seen) -> Fault | None:
    if seen.now.nonfinite:
        return None
    found: dict[str, float] = {}
    for (_, name), alive in seen.examination.ops.alive.items():
        share = _off(alive)
        most = share >= _MOST and seen.now.samples >= _POINTS and _is_rare(alive)
        if most or (share == 1 and seen.examination.same):
            found.setdefault(name, share)
    if not found:
        return None
    first, share = next(iter(found.items()))
    return seen.fault(
        "dead units",
        "units of a ReLU are 0 on all points, and pass no gradient",
        _DO,
        first,
        f"{first}: {share:.0%} of its units; {len(found)} such {'layers' if len(found) > 1 else 'layer'}",
        dead=share,
        layers=list(found),
    )
