"""Numbers as text."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any


def number(value: object) -> str:
    """The shortest text that reads back to the same value.

    >>> number(2.0), number(1 / 3), number(7)
    ('2', '0.3333333333333333', '7')
    """
    if isinstance(value, Real) and not isinstance(value, Integral):  # NumPy's numbers too
        value = float(value)
        return str(int(value)) if value.is_integer() and abs(value) < 1e15 else repr(value)
    return str(value)


def plain(value: Any) -> Any:
    """Data as strict JSON can hold it: inf and nan as the text that `float` reads back.

    >>> plain({"gamma": [1.0, math.inf]})
    {'gamma': [1.0, 'inf']}
    """
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
