"""Layers as arithmetic on sampled nodes, where a covariance alone does not say what comes out.

Rows are nodes, columns data points (point by point, then by position). A *twin* of every node uses statistics that
formulas give instead of its own: its covariance is known, which tells part of the sampling error.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from numpy.typing import NDArray

from firstguess.base.gaussian import Array
from firstguess.network.points import Points

Values = NDArray[Any]  # (nodes, n·positions), float32 or float64
Op = Callable[[Values], Values]  # may overwrite what it is given


class NodeMove(NamedTuple):
    """One layer on nodes, and on their twins."""

    own: Op
    twin: Op
    settle: Callable[[Array, Array], None] | None = None  # (covariance, its diagonal before twins corrected it)


class TwinMove(NamedTuple):
    """A layer whose twins need the whole covariance in front of it, which becomes theirs behind it."""

    twin: Op
    t: Array | None
    points: Points


class Need(NamedTuple):
    """How far formulas do: effective directions, the share of the variance that is left; or not at all."""

    directions: float = math.inf
    share: float = 1.0
    always: bool = False
    of: str = "batchnorm"  # whose statistics fluctuate, and what they are taken over: for the remark
    over: str = "the data"


class Joint(NamedTuple):
    """An exact formula for a layer and the one behind it: the covariance behind each, and the mean behind the last."""

    run: Callable[[Points, Array], tuple[float, Array, Array]]  # k -> mean of K[a≠b] behind the first, k', mean'


def alike(op: Op) -> NodeMove:
    """A layer that does to twins what it does to nodes."""
    return NodeMove(op, op)
