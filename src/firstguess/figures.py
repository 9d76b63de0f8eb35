"""`fg.figures`, the public name of the charts: `firstguess.show.charts` itself, not a copy."""

import sys

from firstguess.show import charts
from firstguess.show.charts import *  # noqa: F403  (for editors: what they see here is what there is)

sys.modules[__name__] = charts
