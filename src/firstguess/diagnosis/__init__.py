"""One call, one page: is a network biased, where does it come from, is it expected, what to change."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from firstguess.diagnosis.expectation import Expected
    from firstguess.diagnosis.result import Advice, Cause, Diagnosis, Trainability, Verdict

__all__ = ["Advice", "Cause", "Diagnosis", "Expected", "Trainability", "Verdict"]


def __getattr__(name: str) -> Any:
    """Import on demand: records of a diagnosis load torch, which comparisons do not need."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    place = "expectation" if name == "Expected" else "result"
    return getattr(importlib.import_module(f"firstguess.diagnosis.{place}"), name)
