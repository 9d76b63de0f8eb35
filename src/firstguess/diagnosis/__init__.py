"""One call, one page: is a network biased, where does it come from, is it expected, what to change."""

from firstguess.diagnosis.expectation import Expected
from firstguess.diagnosis.result import Advice, Cause, Diagnosis, Trainability, Verdict

__all__ = ["Advice", "Cause", "Diagnosis", "Expected", "Trainability", "Verdict"]
