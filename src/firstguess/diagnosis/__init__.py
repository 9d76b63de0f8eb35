"""One call, one page: is a network biased, where does it come from, is it expected, what to change."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from firstguess.diagnosis.expectation import Expected
    from firstguess.diagnosis.result import Advice, Cause, Diagnosis, Trainability, Verdict

__all__ = ["Advice", "Cause", "Diagnosis", "Expected", "Trainability", "Verdict"]


def __getattr__(name: str) -> Any:
    """Load what needs torch when it is asked for: comparisons of stored results do without."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module("firstguess.diagnosis.result"), name)
