"""tanh, sigmoid and softmax at the ends of their range."""

from __future__ import annotations

from firstguess.diagnosis.faults.base import Fault, Seen

_HALF = 0.5
_DO = "smaller weights or inputs before it, or a norm"


def find(seen: Seen) -> Fault | None:
    """More than half of all values beyond 0.99 of the range."""
    x = seen.examination
    if seen.doctor is not None and seen.doctor.has_learned:
        return None  # it is sure because it knows
    if seen.notable and x.now.probabilities and x.now.sure > _HALF:
        return seen.fault(
            "saturated outputs",
            f"the model ends in a {x.now.probabilities} at the ends of its range, where gradients are almost 0",
            _DO,
            evidence=f"above 0.99 on {x.now.sure:.0%} of the points",
            outputs=x.now.probabilities,
            sure=x.now.sure,
        )
    layers: dict[str, float] = {}
    for (_, name), (at, of) in x.ops.ends.items():
        if at > _HALF * of:
            layers[name] = max(at / of, layers.get(name, 0.0))
    if not layers:
        return None
    worst = max(layers, key=layers.__getitem__)
    return seen.fault(
        "saturated outputs",
        f"{worst} is at the ends of its range, where gradients are almost 0",
        _DO,
        worst,
        f"{layers[worst]:.0%} of its values are beyond 0.99 of the range; {len(layers)} such layers",
        saturated=layers[worst],
        layers=layers,
    )
