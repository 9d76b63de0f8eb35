"""Growth of gradients along a residual stream, from the factors of its layers."""

from __future__ import annotations

import math
from collections.abc import Sequence


def stream_growth(factors: Sequence[tuple[str, float | None]]) -> tuple[float, int] | None:
    """The factor a residual block, norms between them included, and how many blocks there are; of layers by text."""
    blocks = [i for i, (text, _) in enumerate(factors) if text.startswith("residual")]
    if len(blocks) < 2:
        return None
    between = [factor for _, factor in factors[blocks[0] + 1 : blocks[-1] + 1]]
    logs = [math.log(one) for one in between if one is not None and one > 0.0]
    return (math.exp(math.fsum(logs) / (len(blocks) - 1)), len(blocks)) if len(logs) == len(between) else None
