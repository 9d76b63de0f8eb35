"""tanh, sigmoid and softmax at the ends of their range."""

from __future__ import annotations

from firstguess.diagnosis.faults.base import Fault, Seen

_HALF = 0.5
_DO = "smaller weights or inputs in front of it, or a norm"


def find(seen: Seen) -> Fault | None:
    """More than half of all values beyond 0.99 of the range."""
    x = seen.examination
    if seen.notable and x.now.probabilities and x.now.sure > _HALF:
        return Fault(
            "saturated outputs",
            f"the model ends in a {x.now.probabilities} that is above 0.99 or at its ends on {x.now.sure:.0%} of the "
            "points: gradients through it are almost 0",
            _DO,
            evidence={"outputs": x.now.probabilities, "sure": x.now.sure},
        )
    layers: dict[str, float] = {}
    for (_, name), (at, of) in x.ops.ends.items():
        if at > _HALF * of:
            layers[name] = max(at / of, layers.get(name, 0.0))
    if not layers:
        return None
    worst = max(layers, key=layers.__getitem__)
    return Fault(
        "saturated outputs",
        f"{worst}: {layers[worst]:.0%} of its values are at the ends of its range (beyond 0.99 of it); {len(layers)} "
        "such layers: gradients through them are almost 0",
        _DO,
        worst,
        {"layer": worst, "saturated": layers[worst], "layers": layers},
    )
