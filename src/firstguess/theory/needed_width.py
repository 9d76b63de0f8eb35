"""From which width on the infinite theory is right."""

from __future__ import annotations

import math

from firstguess.base import checks
from firstguess.base.errors import InvalidInput, NotCovered
from firstguess.network.inputs import Inputs
from firstguess.network.network import Network
from firstguess.theory import closed_form
from firstguess.theory.finite_size import predict_finite

_START, _WIDEST = 32, 10**7
_CLOSE = 1.02  # widths this near to each other count as one


def width_needed(
    network: Network | str,
    *,
    tolerance: float = 0.02,
    inputs: Inputs | None = None,
    classes: int | None = None,
    seed: int = 0,
) -> int:
    """The width from which on the infinite theory is right: its standard deviation of a class's share, to `tolerance`.

    Layers that name a width keep it. The difference falls with the width (theory.md §12), so it is found by doubling
    and halving, to 2 %. `tolerance=0.02`: two percent of the data. For inputs of infinitely many dimensions.

    >>> width_needed("20 x [dense(weight_var=2) > relu > layernorm] > dense(weight_var=2)", tolerance=0.02)
    764
    """
    if not 0.0 < checks.number(tolerance) < 1.0:
        raise InvalidInput("a tolerance between 0 and 1", got=tolerance, where="width_needed", hint="tolerance=0.02")
    given = inputs or Inputs()
    if given.dimension is not None:
        raise InvalidInput(
            "inputs of infinitely many dimensions, as the infinite theory has them",
            got=f"dimension {given.dimension}",
            where="width_needed",
            hint="fg.Inputs()",
        )
    infinite = closed_form.predict(network, inputs=given, classes=classes)

    def right(width: int) -> bool:
        try:
            size = predict_finite(infinite, given, width, seed=seed).finite_size
        except NotCovered:
            if width >= _START:
                raise
            return False  # a few nodes: networks die
        assert size is not None
        return abs(size.added) <= tolerance

    high = _START
    if right(high):
        while high > 2 and right(high // 2):
            high //= 2
    else:
        while not right(high := 2 * high):
            if high > _WIDEST:
                raise NotCovered(
                    f"a network whose layers may all be wider than {_WIDEST}",
                    got="one that differs at any width",
                    where="width_needed",
                    hint="leave widths of its own out, or a larger tolerance",
                )
    low = max(high // 2, 2)
    while high - low > 1 and high > _CLOSE * low:
        middle = min(max(round(math.sqrt(low * high)), low + 1), high - 1)
        low, high = (low, middle) if right(middle) else (middle, high)
    return high
