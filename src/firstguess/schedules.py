"""`fg.schedules`, the public name of learning rates over training: `firstguess.theory.schedules` itself, not a copy."""

import sys

from firstguess.theory import schedules
from firstguess.theory.schedules import *  # noqa: F403  (for editors: what they see here is what there is)

sys.modules[__name__] = schedules
