"""Where float64 ends: one clear refusal instead of an OverflowError, a warning or a NaN."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

import numpy as np

from firstguess.base.errors import NotCovered


@contextmanager
def float_range() -> Generator[None]:
    """Arithmetic that leaves float64, of Python and of NumPy alike, is a network that formulas cannot follow.

    Formulas move scales out of the way where they can (`network.signal`); this is for what is left.

    >>> with float_range():
    ...     1e200 ** 2
    Traceback (most recent call last):
    firstguess.NotCovered: Expected numbers that float64 can hold (1e-308 to 1e308), but got others. Try: ...
    """
    try:
        with np.errstate(over="raise", invalid="raise", divide="raise"):
            yield
    except ArithmeticError:
        raise beyond_float64() from None


def beyond_float64() -> NotCovered:
    """What such arithmetic ends in."""
    return NotCovered(
        "numbers that float64 can hold (1e-308 to 1e308)", got="others", hint="parameters and variances nearer to 1"
    )
