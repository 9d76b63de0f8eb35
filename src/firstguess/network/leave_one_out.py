"""The leave-one-out estimator of NORM App. E.1, in operations that NumPy and torch share."""

from __future__ import annotations

from typing import Any, TypeVar

Values = TypeVar("Values", bound=Any)  # arrays, or tensors


def variance_of_others(d: Values, total: Values, size: int) -> Values:
    """sd'² of theory.md (5), (u − mean')/sd' over the other B − 1 points: with d = u − mean of all B, total = Σd²,

    u − mean' = d·B/(B−1) and sd'² = (Σd² − d²·B/(B−1))/(B−2).
    """
    return ((total - d * d * (size / (size - 1))) / (size - 2)).clip(min=0.0)
