"""Nodes normalized within groups of m independent Gaussian ones: what a narrow GroupNorm leaves, exactly.

A group's centred values on two data points are two vectors in m − 1 dimensions with the nodes' correlation c. Divided
by their own length they meet at a cosine r, the sample correlation of m pairs. So E x_a x_b = E r (< c: a norm over few
nodes takes correlation away), and a node is √(m−1) times one coordinate of a random direction, as in a batch of m
(theory.md (5)). With r = −tanh v its density is

    p(v) ∝ (sech v)^{m−2} · (1 − c·r)^{3/2 − m} · ₂F₁(½, ½; m − ½; (1 + c·r)/2)      (Hotelling, 1953; m ≥ 3),

analytic in |Im v| < π/2: the trapezoidal rule converges geometrically, for every c up to 1.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from scipy import special

from firstguess.base.errors import NotCovered
from firstguess.base.gaussian import Array
from firstguess.network.activations.kernels import rays
from firstguess.network.batch_law import BatchLaw
from firstguess.network.signal import Activated, Signal

if TYPE_CHECKING:
    from firstguess.network.activations.record import Activation


@lru_cache(maxsize=4096)
def cosines(nodes: int, c: float, one_minus_c: float) -> tuple[Array, Array]:
    """(angles θ, weights) of the law of r = cos θ for groups of so many nodes at correlation c ≥ 0.

    >>> theta, weights = cosines(4, 0.5, 0.5)
    >>> print(f"{weights @ np.cos(theta):.10f}")      # 4/3π·₂F₁(½, ½; 5/2; ¼)
    0.4359911242
    """
    if nodes == 2:  # r = ±1
        apart = 2.0 / math.pi * math.asin(math.sqrt(0.5 * one_minus_c))
        return np.array([0.0, math.pi]), np.array([1.0 - apart, apart])
    peak = 0.5 * math.log(max(one_minus_c, 1e-300) / (1.0 + c))
    tail = 80.0 / (nodes - 2) + 2.0
    step = min(0.1, 0.25 / math.sqrt(nodes))
    v = np.arange(peak - tail, tail, step)
    square = np.exp(2.0 * v)  # tan² ½θ
    apart = one_minus_c + c * 2.0 * square / (1.0 + square)  # 1 − c·r without cancelling
    log_density = -(nodes - 2) * np.logaddexp(v, -v) - (nodes - 1.5) * np.log(apart)
    # scipy's ₂F₁ overflows at 1 itself for large groups; it is flat there
    rest = special.hyp2f1(0.5, 0.5, nodes - 0.5, np.minimum(1.0 - 0.5 * apart, 1.0 - 1e-13))
    density = np.exp(log_density - log_density.max()) * rest
    return 2.0 * np.arctan(np.exp(v)), density / density.sum()


def normalized(nodes: int, c: float, one_minus_c: float) -> tuple[float, float]:
    """(E r, 1 − E r): center and spread of a Gaussian node behind a norm over groups of so many."""
    theta, weights = cosines(nodes, c, one_minus_c)
    spread = float(weights @ (2.0 * np.sin(0.5 * theta) ** 2))
    if c > 0.5:
        return 1.0 - spread, spread
    log_ratio = special.gammaln(0.5 * nodes) - special.gammaln(0.5 * (nodes - 1))
    center = 2.0 / (nodes - 1) * math.exp(2.0 * log_ratio) * c * special.hyp2f1(0.5, 0.5, 0.5 * (nodes + 1), c * c)
    return float(center), 1.0 - float(center)


@dataclass(frozen=True)
class GroupLaw:
    """A Gaussian node of correlation c behind a norm over groups of `nodes`.

    Exact for every activation where data points are uncorrelated (c = 0), and for piecewise linear ones at any c:
    these do not care for the length of a direction, so E φφ is the arc-cosine formula at r, averaged over r.
    """

    nodes: int
    c: float
    one_minus_c: float

    def activate(self, signal: Signal, phi: Activation) -> Signal:
        alone = BatchLaw(self.nodes, "usual").activate(signal, phi)
        if self.c == 0.0:
            return alone
        slopes = rays(phi)
        if slopes is None:
            raise NotCovered(
                "a piecewise linear activation behind a groupnorm of narrow groups, or uncorrelated data points",
                got=f"{phi} at c = {self.c:.3g}",
                hint="the kernel reading: fg.predict(net, data=x), or fg.measure(...)",
            )
        a2, b2 = (0.5 * (slopes[1] + slopes[0])) ** 2, (0.5 * (slopes[1] - slopes[0])) ** 2
        theta, weights = cosines(self.nodes, self.c, self.one_minus_c)
        away = 2.0 * np.sin(0.5 * theta) ** 2
        lost = away - 2.0 / math.pi * _sine_minus(theta)  # 1 − (2/π)(√(1−r²) + r·arcsin r)
        spread = float(weights @ (a2 * away + b2 * lost))
        level = alone.mean**2 if not phi.centered else BatchLaw(self.nodes, "usual").level(phi) ** 2
        between = max(a2 + b2 - spread - level, 0.0)
        return Signal(alone.mean, between, spread, law=Activated(signal, phi))

    def mean_square_slope(self, signal: Signal, phi: Activation) -> float | None:
        """A slope that depends on the sign alone is independent of all that the norm's own Jacobian is made of."""
        slopes = rays(phi)
        return None if slopes is None else 0.5 * (slopes[0] ** 2 + slopes[1] ** 2)


def _sine_minus(theta: Array) -> Array:
    """sin θ − θ·cos θ, by its series where that cancels."""
    square = theta * theta
    series = theta**3 * (1 / 3 - square * (1 / 30 - square * (1 / 840 - square / 45360)))
    return np.where(theta < 0.1, series, np.sin(theta) - theta * np.cos(theta))


def gradient_of(nodes: int, log_variance: float) -> float:
    """What a norm over groups of m Gaussian nodes multiplies squared gradients by: (m−2)/((m−3)·variance).

    Two of a group's directions are projected out, and E 1/χ²_{m−1} = 1/(m−3): infinite for three nodes, 0 for two.
    """
    if nodes == 2:
        return 0.0
    if nodes == 3:
        return math.inf
    return (nodes - 2) / (nodes - 3) * math.exp(min(-log_variance, 700.0))
