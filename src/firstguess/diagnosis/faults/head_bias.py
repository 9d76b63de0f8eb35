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
    if (against := _against(seen)) is not None:
        return against
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


def _against(seen: Seen) -> Fault | None:
    """A class that its bias alone keeps from ever being guessed, though labels are of it where these are known."""
    now = seen.now
    assert now.bias is not None and now.without_bias is not None  # noqa: PT018 - asked before
    if len(now.bias) < 3 or len(now.bias) != len(now.without_bias):
        return None
    least = int(now.bias.argmin())
    others = np.delete(now.bias, least)
    apart = float(np.median(others) - now.bias[least])
    share, without = float(now.fractions[least]), float(now.without_bias[least])
    far = apart > _APART * max(now.reach, float(np.ptp(others)), 1.0)
    if not far or share > 0 or without < _HALF / len(now.bias) or _hardly_any(seen, least):
        return None
    return seen.fault(
        "head bias",
        f"the head's bias keeps class {least} from ever being guessed",
        f"nn.init.zeros_({seen.code(now.head)}.bias), unless it is set to the classes' frequencies on purpose",
        now.head,
        f"it is {apart:.3g} smaller than for others; the class gets none of the points, {without:.1%} without it",
        bias=now.bias.tolist(),
        largest_without=float(now.without_bias.max()),
    )


def _hardly_any(seen: Seen, label: int) -> bool:
    try:
        known = seen.doctor.training.classes if seen.doctor is not None else None
    except Exception:  # no labels, or none that tell
        return False
    return known is not None and float((known[0] == label).double().mean()) < 0.2 / known[1]
