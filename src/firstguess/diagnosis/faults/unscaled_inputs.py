"""Inputs of the wrong size, most of all pixels from 0 to 255."""

from __future__ import annotations

import math

from firstguess.diagnosis.faults.base import Fault, Seen

_LARGE = 10.0  # RMS of what the first layer with weights gets; standardized data have 1, pixels from 0 to 255 about 100
_PIXELS = 255
_LOSS = 1.5  # times log M: what is large but no pixels must do harm


def find(seen: Seen) -> Fault | None:
    """By what reaches the first layer with weights: a model that divides by 255, or normalizes first, is fine."""
    given = seen.examination.given
    if not given.rms > _LARGE or "identical inputs" in seen.found:
        return None
    pixels = given.low >= 0 and _PIXELS / 2 < given.high <= _PIXELS
    loss = seen.examination.loss if not math.isnan(seen.examination.loss) else seen.examination.loss_even
    if not pixels and not loss > _LOSS * math.log(len(seen.now.fractions)):
        return None
    what = "pixels from 0 to 255 that nobody scaled" if pixels else f"values from {given.low:.3g} to {given.high:.3g}"
    words = seen.words_of_loss
    return seen.fault(
        "unscaled inputs",
        f"the first layer with weights gets {what}",
        "x / 255, then subtract the mean and divide by the standard deviation" if pixels else "standardize the inputs",
        evidence=f"RMS {given.rms:.3g}{f'; {words}' if words else ''}",
        low=given.low,
        high=given.high,
        rms=given.rms,
        loss=loss,
        pixels=pixels,
    )
