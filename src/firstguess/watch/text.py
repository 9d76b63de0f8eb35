"""Steps and shares as text."""

from __future__ import annotations

import math

from firstguess.base.text import spaced


def share(value: float) -> str:
    """A share in percent: of a few hundred points, whole percents are all there is.

    >>> share(0.604), share(0.999), share(float("nan"))
    ('60 %', '99.9 %', 'unknown')
    """
    if math.isnan(value):
        return "unknown"
    digits = 1 if 0.99 < abs(value) < 1 or 0 < abs(value) < 0.01 else 0
    return f"{100 * value:.{digits}f} %".replace("-", "−")


def reached(step: float) -> str:
    """The first whole step by which something between two looks has happened.

    >>> reached(0.3), reached(41.0)
    ('1', '41')
    """
    return spaced(math.ceil(step))
