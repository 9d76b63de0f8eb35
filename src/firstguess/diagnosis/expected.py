"""What theory predicts, beside what was measured, in one sentence."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from firstguess.base.shares import percent
from firstguess.diagnosis.agreement import adjusted, agreement, said
from firstguess.diagnosis.prediction_error import gamma_of

if TYPE_CHECKING:
    from firstguess.diagnosis.comparison import Comparison
    from firstguess.theory.prediction import Prediction


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
