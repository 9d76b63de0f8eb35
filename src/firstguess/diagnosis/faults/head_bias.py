"""A bias of the head that prefers a class."""

from __future__ import annotations

import numpy as np

from firstguess.diagnosis.faults.base import Fault, Seen

_HALF = 0.5
_APART = 3.0  # times what torch's initializer reaches, 1/√fan_in, and times the range of the other classes


def find(seen: Seen) -> Fault | None:
    """The favoured class's bias stands apart, and without it half of the excess over an even split is gone."""
    now = seen.now
    if not seen.notable or now.bias is None or now.without_bias is None or now.level:
        return None
    bias = np.array([-now.bias[0], now.bias[0]]) if len(now.bias) == 1 else now.bias
    favoured = int(now.fractions.argmax())
    if int(bias.argmax()) != favoured or now.head_zero:
        return None
    even = 1 / len(now.fractions)
    if now.without_bias.max() - even >= _HALF * (now.fractions.max() - even):
        return None
    others = np.delete(bias, favoured)
    if bias[favoured] - np.median(others) <= _APART * max(now.reach, float(np.ptp(others))):
        return None  # as an initializer gives it
    return Fault(
        "head bias",
        f"{now.head}.bias is largest for class {favoured} and decides: without it the largest fraction is "
        f"{now.without_bias.max():.1%}",
        "nn.init.zeros_(head.bias), unless it is set to the classes' frequencies on purpose",
        now.head,
        {"layer": now.head, "bias": now.bias.tolist(), "largest_without": float(now.without_bias.max())},
    )
