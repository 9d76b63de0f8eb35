"""The law of a Gaussian node that was normalized over a batch: theory.md (5)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from firstguess.base import gaussian
from firstguess.base.errors import NotCovered
from firstguess.network.signal import Activated, Signal

if TYPE_CHECKING:
    from firstguess.network.activations.record import Activation

Estimator = Literal["usual", "leave_one_out"]


@dataclass(frozen=True)
class BatchLaw:
    """A Gaussian node normalized over a batch of B: û²/(B−1) ~ Beta(½, (B−2)/2); leave-one-out: Student's t."""

    batch: int
    estimator: Estimator

    def activate(self, signal: Signal, phi: Activation) -> Signal:
        if self.estimator == "leave_one_out":
            far, near = (float(np.max(np.abs(gaussian.evaluate(phi.rise, np.array([-x, x]))))) for x in (1e6, 1e3))
            if near > 0.0 and 2.0 * math.log(max(far, near) / near) / math.log(1e3) > self.batch - 2.5:
                raise NotCovered(
                    "an activation whose mean square exists: Student's t with B − 2 degrees has heavy tails",
                    got=f"{phi} after a leave-one-out batchnorm of {self.batch}",
                    hint="a larger batch, or estimator=usual",
                )
        u, w = self.rule(phi.features)
        f = gaussian.evaluate(phi.rise, u)
        mean = float(np.sum(w * f))
        spread = float(np.sum(w * (f - mean) ** 2))
        # At fixed weights no node has a center of its own: all batches are alike.
        return Signal(0.0 if phi.centered else phi.offset + mean, 0.0, spread, law=Activated(signal, phi))

    def level(self, phi: Activation) -> float:
        """E φ of the normalized value, whether or not φ takes it off."""
        u, w = self.rule(phi.features)
        return phi.offset + float(np.sum(w * gaussian.evaluate(phi.rise, u)))

    def mean_square_slope(self, signal: Signal, phi: Activation) -> float | None:
        return None

    def rule(self, features: Iterable[gaussian.Feature]) -> tuple[gaussian.Array, gaussian.Array]:
        """Quadrature nodes and weights of the normalized value."""
        b = self.batch
        if b == 2:
            return np.array([-1.0, 1.0]), np.array([0.5, 0.5])
        usual = self.estimator == "usual"
        # û = √(B−1) sin α with density ∝ cos^{B−3} α; Student: û' = √(B/(B−1)) √(B−2) tan α, density ∝ cos^{B−3} α
        stretch = math.sqrt(b - 1) if usual else math.sqrt(b / (b - 1) * (b - 2))
        limit = min(math.pi / 2, 2.0 * gaussian.REACH / math.sqrt(b))
        edges = [np.linspace(-limit, limit, 17)]
        if not usual:  # heavy tails: a wave such as sin is followed to where the mass beyond is 1e-10
            reach = min(stretch * 10.0 ** (10.0 / (b - 2)), 5000.0)
            edges.append(np.arctan(np.arange(-reach, reach, 4.0) / stretch))
        for feature in features:
            points = (feature.at + gaussian.graded(feature.width, 60.0 + abs(feature.at))) / stretch
            edges.append(np.arcsin(np.clip(points, -1.0, 1.0)) if usual else np.arctan(points))
        alpha, half = gaussian.panels(np.sort(np.clip(np.concatenate(edges), -limit, limit)))
        log_density = (b - 3) * np.log(np.maximum(np.cos(alpha), 1e-300))
        w = half * np.exp(log_density)
        u = stretch * (np.sin(alpha) if usual else np.tan(alpha))
        return u, w / w.sum()
