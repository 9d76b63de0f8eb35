"""Whether a prediction is what was measured, in words that the numbers beside them never contradict."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

from firstguess.base.text import elided

if TYPE_CHECKING:
    from firstguess.diagnosis.comparison import Comparison, Difference

Agreement = Literal["as measured", "close", "not as measured", "too few to tell"]

_LARGEST = "average largest share"  # as `compare` names it
# What may still be called the same without looking at errors: γ by a ratio, with a floor where it is next to nothing.
_SAME_GAMMA, _SAME_SHARE = 0.5, 0.1
_CLOSE_GAMMA, _CLOSE_SHARE = 0.1, 0.02
_FLOOR = 0.2


def agreement(c: Comparison) -> Agreement:
    """By the tests of `compare`, which need errors that are known: numbers far apart are never "as measured".

    "close": a difference that is sure and small, as finite width makes it (γ within 10 %, the share within 0.02 or two
    of its standard errors).
    """
    if c.agrees:
        return "as measured" if _within(c, _SAME_GAMMA, _SAME_SHARE) else "too few to tell"
    error = 2 * _output(c)[1].se
    share = min(max(_CLOSE_SHARE, error), _SAME_SHARE) if math.isfinite(error) else _CLOSE_SHARE
    return "close" if _within(c, _CLOSE_GAMMA, share) else "not as measured"


def said(c: Comparison) -> str:
    """The agreement in words: what was measured, and for a disagreement the number that shows it and its p-value."""
    word = agreement(c)
    if word == "as measured":
        return f"as measured (p = {adjusted(c):.2g})"
    if word == "too few to tell":
        few = f"{c.inits} initialization{'s' if c.inits > 1 else ''}"
        return f"not what was measured, but {few} cannot rule it out"
    least = f"the distribution of class shares (p = {adjusted(c):.2g})"
    if c.worst.p_value <= c.p_value:
        least = f"{_name(c.worst)}, {_pair(c.worst)} (p = {adjusted(c):.2g})"
    start = "close to what was measured" if word == "close" else "not what was measured"
    return f"{start}; least alike: {least}"


def adjusted(c: Comparison) -> float:
    """The smallest p-value times how many there are: below `level` exactly where `agrees` is False."""
    p_values = [*(d.p_value for d in c.differences), c.p_value]
    return min(1.0, min((p for p in p_values if not math.isnan(p)), default=1.0) * len(p_values))


def _output(c: Comparison) -> tuple[Difference | None, Difference]:
    """γ of the output, where it was measured, and the average largest share."""
    largest = next(d for d in c.summaries if d.name == _LARGEST)
    return (c.layers[-1] if c.layers else None), largest


def _within(c: Comparison, ratio: float, share: float) -> bool:
    gamma, largest = _output(c)
    if not abs(largest.predicted - largest.measured) <= share:
        return False
    if gamma is None or gamma.predicted == gamma.measured:
        return True
    apart = abs(gamma.predicted - gamma.measured)
    return apart - gamma.room <= ratio * max(abs(gamma.predicted), abs(gamma.measured), _FLOOR) < math.inf


def _name(d: Difference) -> str:
    """ "γ 3: fc2" counts layers with weights, and a name may be a number too: γ behind fc2."""
    what, _, layer = d.name.partition(": ")
    return f"γ behind {elided(layer, 40)}" if layer and what.startswith("γ ") else what


def _pair(d: Difference) -> str:
    """Two numbers with as many digits as tell them apart."""
    texts = [(f"{d.predicted:.{digits}g}", f"{d.measured:.{digits}g}") for digits in range(3, 16)]
    predicted, measured = next((pair for pair in texts if pair[0] != pair[1]), texts[0])
    return f"{predicted} predicted against {measured} ± {d.se:.2g}"
