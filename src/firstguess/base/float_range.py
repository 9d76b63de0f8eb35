"""Where float64 ends: one clear refusal instead of an OverflowError, a warning or a NaN."""

from __future__ import annotations

from types import TracebackType

import numpy as np

from firstguess.base.errors import NotCovered


class float_range:
    """Arithmetic that leaves float64, of Python and of NumPy alike, is a network that formulas cannot follow.

    Formulas move scales out of the way where they can (`network.signal`); this is for what is left. A class, because a
    generator would cost as much as a layer's closed form.

    >>> with float_range():
    ...     1e200 ** 2
    Traceback (most recent call last):
    firstguess.NotCovered: Expected numbers that float64 can hold (1e-308 to 1e308), but got others. Try: ...
    """

    def __enter__(self) -> None:
        self._errors = np.errstate(over="raise", invalid="raise", divide="raise")
        self._errors.__enter__()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._errors.__exit__(kind, error, at)
        if isinstance(error, ArithmeticError):
            raise beyond_float64() from None


def beyond_float64() -> NotCovered:
    """What such arithmetic ends in."""
    return NotCovered(
        "numbers that float64 can hold (1e-308 to 1e308)", got="others", hint="parameters and variances nearer to 1"
    )
