"""What theory predicts, beside what was measured, in one sentence."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from firstguess.base.text import elided, percent
from firstguess.diagnosis.comparison import gamma_of

if TYPE_CHECKING:
    from firstguess.diagnosis.comparison import Comparison, Difference
    from firstguess.theory.prediction import Prediction


# --------------------------------------------------------------------------------------------------------------
# Whether a prediction is what was measured, in words that the numbers beside them never contradict.

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


@dataclass(frozen=True, eq=False)
class Expected:
    """What theory predicts for this architecture and these data, or why it cannot be read.

    `width`: how wide the layers are, in words. `narrow`: why the prediction is for infinitely wide ones all the same.
    `wide`: beside a prediction at the own widths, that at infinite width, and how it compares.
    """

    prediction: Prediction | None
    comparison: Comparison | None
    why: str = ""
    width: str = ""
    narrow: str = ""
    wide: tuple[Prediction, Comparison] | None = None

    @property
    def p_value(self) -> float:
        """The chance of a difference like the largest one seen, if the prediction is right (Bonferroni's bound)."""
        return math.nan if self.comparison is None else adjusted(self.comparison)

    @property
    def words(self) -> str:
        """One sentence."""
        p = self.prediction
        if p is None:
            return f"not predicted: {self.why}"
        known = "on your data" if p.reading == "kernel" else "for random data"
        at = f" at {self.width}" if p.finite_size is not None and self.width else ""
        text = f"predicted {known}{at}, the largest share is {percent(p.guesses.expected_max())} on average"
        if p.finite_size is None:
            text += f" and γ = {gamma_of(p):.3g}".replace("inf", "∞")
        if self.comparison is None:
            return f"{text} ({self.why})" if self.why else text
        remark = f" ({self.why})" if self.why else ""
        return f"{text}: {said(self.comparison)}{self._excuse}{remark}"

    @property
    def size(self) -> str:
        """What finite width changed, or why that is not known; "" where there is nothing to say."""
        if self.prediction is None:
            return ""
        if self.prediction.finite_size is not None:
            return f"what finite width changed: {self.prediction.finite_size}"
        if not self.narrow:
            return ""
        return f"the prediction is for infinitely wide layers, not for {self.width}: {self.narrow}"

    @property
    def _excuse(self) -> str:
        """What a difference may be, where width is not in the prediction."""
        assert self.comparison is not None
        if not self.narrow or agreement(self.comparison) == "as measured":
            return ""
        return f"; the prediction is for infinitely wide layers, and what {self.width} adds is not known here"

    @property
    def for_changes(self) -> Prediction | None:
        """What changes are predicted by: infinite width, which is quick."""
        return self.prediction if self.wide is None else self.wide[0]

    @property
    def trusted(self) -> bool:
        """Whether that is what was measured, or close to it: else remedies are measured, not predicted."""
        compared = self.comparison if self.wide is None else self.wide[1]
        return compared is not None and agreement(compared) in ("as measured", "close")
