"""RMSNorm: one scale per sample, no centring."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, final

from firstguess.base.errors import NotCovered
from firstguess.network.layer import Fold, Layer, Mix, Parity, keeps_shape, register
from firstguess.network.nodes import NodeMove
from firstguess.network.over_nodes import over_nodes_move, over_nodes_nodes
from firstguess.network.points import Move, Points
from firstguess.network.signal import Gaussian, Signal, Unknown, exp
from firstguess.network.tensors import Draw, Local, Place

if TYPE_CHECKING:
    from torch import nn


@register
@final
@dataclass(frozen=True)
class RMSNorm(Layer):
    """Divide a sample by its root mean square over nodes: it does not centre, so after φ it does not cure."""

    kind: ClassVar[str] = "rmsnorm"
    weighted = False
    mixes = Mix.NODES
    parity = Parity.ODD
    bends = False

    shape = keeps_shape

    def moments(self, signal: Signal) -> Signal:
        total = signal.total
        if total == 0.0:
            raise NotCovered("a signal that is not zero", got="zero", hint="a larger weight variance before this layer")
        law = (
            Gaussian()
            if isinstance(signal.law, Gaussian)
            else Unknown("an rmsnorm of a signal that is not Gaussian", signal)
        )
        return Signal(signal.mean / math.sqrt(total), signal.between / total, signal.spread / total, law=law)

    def covariance(self, points: Points, fold: Fold) -> Move:
        return over_nodes_move(self, points, centre=False)

    def nodes(self, points: Points, known: bool) -> NodeMove:
        return over_nodes_nodes(points, known, centre=False)

    def gradient(self, signal: Signal) -> float | None:
        return exp(-signal.log_q)

    def assumptions(self) -> Iterable[str]:
        return ()

    def tensors(self, place: Place) -> Local:
        from firstguess.network.tensor_ops import over_nodes

        return Local(over_nodes(place.before.images, center=False))

    def module(self, place: Place, draw: Draw) -> nn.Module:
        from torch import nn

        from firstguess.network.small_modules import EPS

        return nn.RMSNorm(list(place.before.sizes), eps=EPS, elementwise_affine=False)
