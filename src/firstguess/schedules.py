"""`fg.schedules`, the public name of learning rates over training: `firstguess.theory.training.schedules` itself, not
a copy.
"""

import sys

from firstguess.theory.training import schedules
from firstguess.theory.training.schedules import *  # noqa: F403  (for editors: what they see here is what there is)

sys.modules[__name__] = schedules
