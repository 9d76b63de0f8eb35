"""LayerNorm: one mean and one scale per sample, over the nodes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, final

from firstguess.base.checks import check_number
from firstguess.network.finite_sample import Handful, centred
from firstguess.network.finite_signal import FiniteSignal
from firstguess.network.layer import Fold, Layer, Meaning, Mix, Parity, keeps_shape, register
from firstguess.network.norms import over_nodes, over_nodes_gradient, over_nodes_move, over_nodes_nodes
from firstguess.network.points import Move, NodeMove, Points
from firstguess.network.read_result import Site
from firstguess.network.signal import Signal
from firstguess.network.source import Source
from firstguess.network.tensors import Draw, Local, Place

if TYPE_CHECKING:
    from torch import nn


@register
@final
@dataclass(frozen=True)
class LayerNorm(Layer):
    """Subtract a sample's mean over nodes, divide by √(variance over nodes + eps): theory.md §2, (21).

    On tokens each token by itself.
    """

    kind: ClassVar[str] = "layernorm"
    weighted = False
    mixes = Mix.NODES
    parity = Parity.CENTRES
    bends = False
    by_token = True
    eps: float = field(default=0.0, kw_only=True)

    def __post_init__(self) -> None:
        check_number(self.eps, "eps", "layernorm", hint="layernorm(eps=1e-5)")

    shape = keeps_shape

    @property
    def one_size(self) -> bool:
        return self.eps == 0.0

    def moments(self, signal: Signal) -> Signal:
        return over_nodes(signal, "layernorm", self.eps)

    def covariance(self, points: Points, fold: Fold) -> Move:
        return over_nodes_move(self, points, eps=self.eps)

    def nodes(self, points: Points, known: bool) -> NodeMove:
        return over_nodes_nodes(points, known, eps=self.eps)

    def finite(self, before: FiniteSignal, after: Signal) -> FiniteSignal:
        return before.normed(after, centres=True, eps=self.eps)

    def handful(self, few: Handful) -> Handful:
        return few.with_values(centred(few.values, self.eps))

    def gradient(self, signal: Signal) -> float | None:
        return over_nodes_gradient(signal, self.eps)

    def assumptions(self) -> Iterable[str]:
        return ()

    def tensors(self, place: Place) -> Local:
        from firstguess.network.torch_ops import over_nodes, over_nodes_derivative

        derivative = None if place.before.images else over_nodes_derivative(eps=self.eps)
        return Local(over_nodes(place.before.images, eps=self.eps), derivative=derivative)

    def source(self, at: Source) -> str:
        return f"nn.LayerNorm({at.size}{f', eps={self.eps}' if self.eps else ''})"

    def module(self, place: Place, draw: Draw) -> nn.Module:
        from torch import nn

        from firstguess.network.torch_ops import EPS

        return nn.LayerNorm(place.before.own_sizes, eps=self.eps or EPS, elementwise_affine=False)

    modules = ("LayerNorm",)

    @classmethod
    def from_module(cls, module: Any, site: Site) -> Meaning:
        axes = len(module.normalized_shape)
        why = site.whole_sample(axes)
        return Meaning(why=why) if why else Meaning((cls(),), axes=axes + 1, affine=True)
