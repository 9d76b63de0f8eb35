"""`fg.errors`: what firstguess raises and warns of. Each message says what was expected, what came, and what to try."""

from firstguess.base.errors import (
    FirstguessError as FirstguessError,
)
from firstguess.base.errors import (
    InvalidInput as InvalidInput,
)
from firstguess.base.errors import (
    NotConverged as NotConverged,
)
from firstguess.base.errors import (
    NotCovered as NotCovered,
)
from firstguess.base.errors import (
    NotFinite as NotFinite,
)
from firstguess.base.errors import (
    ParseError as ParseError,
)
from firstguess.diagnosis.assert_even import NotEven as NotEven
from firstguess.diagnosis.assert_even import NotNeutral as NotNeutral
from firstguess.watch.seen import EarlyEvaluation as EarlyEvaluation

__all__ = [
    "EarlyEvaluation",
    "FirstguessError",
    "InvalidInput",
    "NotConverged",
    "NotCovered",
    "NotEven",
    "NotFinite",
    "NotNeutral",
    "ParseError",
]
