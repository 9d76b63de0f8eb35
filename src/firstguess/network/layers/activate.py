"""An activation, applied to every node."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar, final

import numpy as np

from firstguess.base.errors import NotCovered
from firstguess.base.gaussian import Array
from firstguess.network.activations import tensors
from firstguess.network.activations.kernels import correlate_rays, correlated_rays, kernel_map, means, rays, shifted
from firstguess.network.activations.lookup import activation
from firstguess.network.activations.record import Activation
from firstguess.network.layer import Layer, Meaning, Mix, Parity, keeps_shape, register
from firstguess.network.meaning import Call, Site
from firstguess.network.points import OnCorrelations, Points, Step, Tile
from firstguess.network.signal import Signal, Unknown


def centre_of(phi: Activation, points: Points) -> float:
    """What a centred activation subtracts: one constant, its mean at the average variance."""
    level = float(points.mean[0])
    if level:
        phi = shifted(phi, level)
    return float(means(phi, np.array([float(points.q.mean()) - level**2]))[0][0])


@register
@final
@dataclass(frozen=True)
class Activate(Layer):
    """φ on every node: theory.md (4). Needs a signal whose law is known."""

    kind: ClassVar[str] = "activation"
    weighted = False
    mixes = Mix.NOTHING
    bends = True
    phi: Activation
    parity: Parity = field(default=Parity.NONE, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "parity", Parity.ODD if self.phi.odd else Parity.NONE)

    @property
    def name(self) -> str:
        return self.phi.name

    @property
    def rays(self) -> tuple[float, float] | None:
        return rays(self.phi)

    def text(self) -> str:
        return str(self.phi)

    shape = keeps_shape

    def moments(self, signal: Signal) -> Signal:
        return (signal.law or Unknown("a signal of unknown law")).activate(signal, self.phi)

    def covariance(self, points: Points) -> tuple[Points, Step]:
        """K'_ab = E φ(u_a)φ(u_b), Θ ← Θ ∘ E φ'φ': theory.md (11), (12)."""
        if not points.gaussian:
            raise NotCovered(
                "a Gaussian signal in front of an activation",
                got=points.what,
                hint="put a dense layer between them, or use the ensemble reading: fg.measure(...)",
            )
        if np.ptp(points.mean) > 0.0:
            raise NotCovered(
                "a signal with one mean for all data points in front of an activation",
                got=points.what,
                hint="a dense layer between them, or the ensemble reading: fg.measure(...)",
            )
        level = float(points.mean[0])
        phi, q = (self.phi, points.q) if level == 0.0 else (shifted(self.phi, level), points.q - level**2)
        if np.any(q <= 0.0):
            raise NotCovered(
                "data points that are not zero",
                got=f"{int(np.sum(q <= 0.0))} points without any signal",
                hint="a bias variance above 0, or drop them",
            )
        mean, square = means(phi, q)
        constant = centre_of(self.phi, points) if phi.centered else 0.0
        after = Points(
            square - 2.0 * constant * mean + constant**2,
            mean - constant,
            False,
            points.width,
            points.width_after,
            points if level == 0.0 else None,
            phi,
            f"the output of {self.phi}",
        )
        slopes = rays(phi)
        if slopes is not None:
            left, right = slopes
            growth = math.sqrt(0.5 * (left * left + right * right))

            def apply(tile: Tile) -> Array | None:
                if after.watched:
                    tile.before = tile.k.copy(), tile.t
                slope = correlate_rays(left, right, tile.correlations(q), tile.t is not None, tile.spare)
                tile.scale(growth)
                return slope

        else:
            run = kernel_map(phi, q)

            def apply(tile: Tile) -> Array | None:
                tile.before = tile.k, tile.t
                tile.k, slope = run(tile.k, q[tile.rows, None], q[None, tile.cols], tile.t is not None)
                return slope

        def step(tile: Tile) -> None:
            if level:
                tile.k -= level**2
            slope = apply(tile)
            if constant:
                tile.k -= constant * (mean[tile.rows, None] + mean[None, tile.cols] - constant)
            if tile.t is not None and slope is not None:
                tile.t = tile.t * slope

        if slopes is None or level or constant:
            return after, step
        return after, OnCorrelations(step, lambda c: correlated_rays(*slopes, c))

    def gradient(self, signal: Signal) -> float | None:
        return signal.law.mean_square_slope(signal, self.phi) if signal.law is not None else None

    def assumptions(self) -> Iterable[str]:
        if self.phi.centered:
            yield f"{self.phi}: its mean is taken off exactly, at the variance it meets"

    modules = ("PReLU",)

    @classmethod
    def read_modules(cls) -> tuple[str | type, ...]:
        return *tensors.module_names(), *cls.modules

    @classmethod
    def read_calls(cls) -> tuple[str, ...]:
        return tensors.call_names()

    @classmethod
    def from_module(cls, module: Any, site: Site) -> Meaning:
        """What the records say; the slope of a PReLU is a parameter."""
        if site.claim == "PReLU":
            slope = site.constants.get("weight")
            phi = "its slopes differ" if slope is None else activation("prelu", slope=slope)
        else:
            spelling = tensors.by_module()[tensors.resolve(f"torch.nn.{site.claim}")]
            phi = spelling.meaning(lambda _, key, default: getattr(module, key, default))
        return Meaning(why=phi) if isinstance(phi, str) else Meaning((cls(phi),))

    @classmethod
    def from_call(cls, call: Call, site: Site) -> Meaning:
        phi = tensors.by_call()[call.target].meaning(call.argument)
        return Meaning(why=phi) if isinstance(phi, str) else Meaning((cls(phi),))
