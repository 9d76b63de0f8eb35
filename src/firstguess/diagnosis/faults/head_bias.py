"""A bias of the head that prefers a class."""

from __future__ import annotations

import math

import numpy as np

from firstguess.diagnosis.faults.base import NOTABLE, Fault, Seen, excess

_HALF = 0.5
_APART = 3.0  # times what torch's initializer reaches, 1/√fan_in, and times the range of the other classes


def find(seen: Seen) -> Fault | None:
    """The favoured class's bias stands apart, and decides: without it that class, or the excess over an even split,
    gets half at most; or it is far beyond what the rest of the logits vary by."""
    now = seen.now
    if now.bias is None or now.without_bias is None or now.level or now.head_zero:
        return None
    if not float(excess(now.fractions)) >= NOTABLE:  # of few points too: what follows is no play of chance
        return None
    bias = np.array([-now.bias[0], now.bias[0]]) if now.single else now.bias
    favoured = int(now.fractions.argmax())
    others = np.delete(bias, favoured)
    apart = float(bias[favoured] - np.median(others))
    # What an initializer gives is never so far apart.
    if apart <= _APART * max(now.reach, float(np.ptp(others))):
        return None
    mine, without, even = float(now.fractions[favoured]), float(now.without_bias[favoured]), 1 / len(bias)
    fewer = without <= _HALF * mine or now.without_bias.max() - even < _HALF * (mine - even)
    # The one bias's part in the mean square of the logits, without what all classes share (theory.md (38)).
    own = (apart / 2) ** 2 if now.single else apart**2 / len(bias)
    rest = math.sqrt(max(0.0, seen.examination.size**2 - own))
    if not fewer and apart <= _APART * rest:
        return None
    return seen.fault(
        "head bias",
        f"the head's bias decides for class {favoured}",
        f"nn.init.zeros_({seen.code(now.head)}.bias), unless it is set to the classes' frequencies on purpose",
        now.head,
        f"it is {apart:.3g} larger than for others; the class gets {mine:.1%} of the points, {without:.1%} without it",
        bias=now.bias.tolist(),
        largest_without=float(now.without_bias.max()),
    )
