"""LayerNorm: one mean and one scale per sample, over the nodes."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, final

import numpy as np

from firstguess.base.errors import NotCovered
from firstguess.network.layer import Layer, Meaning, Mix, Parity, keeps_shape, register
from firstguess.network.meaning import Site
from firstguess.network.points import OnCorrelations, Points, Step, Tile
from firstguess.network.signal import Gaussian, Signal, Unknown, exp


def over_nodes(signal: Signal, kind: str) -> Signal:
    """(0, (center − mean²)/(total − mean²), 1): the mean over nodes goes, the centers' differences stay."""
    variance = signal.between + signal.spread
    if variance == 0.0:
        raise NotCovered(
            "nodes that differ",
            got="a signal without variance over nodes",
            hint="a larger weight variance before this layer",
        )
    law = (
        Gaussian()
        if isinstance(signal.law, Gaussian)
        else Unknown(f"a {kind} of a signal that is not Gaussian", signal)
    )
    return Signal(0.0, signal.between / variance, signal.spread / variance, law=law)


def over_nodes_gradient(signal: Signal) -> float:
    """Dividing by the standard deviation over nodes; the two directions it projects out are negligible when wide."""
    return exp(-math.log(signal.between + signal.spread) - signal.log_scale)


def over_nodes_kernel(points: Points, what: str) -> tuple[Points, Step]:
    """K ← (K_ab − m_a m_b)/(s_a s_b), Θ ← Θ/(s_a s_b): theory.md (11). What it projects out is one node in many."""
    variance = points.q - points.mean**2
    if np.any(variance <= 0.0):
        raise NotCovered(
            "nodes that differ on every data point",
            got=f"{int(np.sum(variance <= 0.0))} points where they do not",
            hint="a larger weight or bias variance before this layer",
        )
    mean, inverse = points.mean, 1.0 / np.sqrt(variance)
    centred = bool(np.any(mean != 0.0))

    def step(tile: Tile) -> None:
        if centred:
            tile.k -= tile.outer(mean)
        tile.scale(inverse)
        if tile.t is not None:
            tile.t *= tile.outer(inverse)

    n = points.q.size
    after = Points(
        np.ones(n), np.zeros(n), points.gaussian, points.width, points.width_after, what=f"{what} of {points.what}"
    )
    shares = mean**2 / points.q
    if np.ptp(shares) > 1e-12 or np.ptp(np.sign(mean)) > 0.0:
        return after, step
    share = float(shares[0])
    return after, OnCorrelations(step, lambda c: (c - share) / (1.0 - share))


@register
@final
@dataclass(frozen=True)
class LayerNorm(Layer):
    """Subtract a sample's mean over nodes, divide by its standard deviation over nodes: theory.md §2."""

    kind: ClassVar[str] = "layernorm"
    weighted = False
    mixes = Mix.NODES
    parity = Parity.CENTRES
    bends = False

    shape = keeps_shape

    def moments(self, signal: Signal) -> Signal:
        return over_nodes(signal, "layernorm")

    def covariance(self, points: Points) -> tuple[Points, Step]:
        return over_nodes_kernel(points, "a layernorm")

    def gradient(self, signal: Signal) -> float | None:
        return over_nodes_gradient(signal)

    def assumptions(self) -> Iterable[str]:
        return ()

    modules = ("LayerNorm",)

    @classmethod
    def from_module(cls, module: Any, site: Site) -> Meaning:
        axes = len(module.normalized_shape)
        why = site.whole_sample(axes)
        return Meaning(why=why) if why else Meaning((cls(),), axes=axes + 1, affine=True)
