"""The distribution of a sum of which one part is not Gaussian, as in a ResNet that adds relu(u) and a branch: by
sampled nodes.

A Gaussian signal is three numbers. φ(u) + v is not Gaussian, and neither is what blocks after it make of it; but every
node is still plain arithmetic on independent Gaussians, one a block. So the values of `_NODES` nodes on two data points
are carried beside the three numbers: what an activation needs are means over units of x_a, x_a² and x_a x_b. Units are
a low-discrepancy sequence (Sobol, scrambled), the same in every call: measured against exact integrals, moments are
good to 2e-4 of E x² after one block and to 1e-3 after eight.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from firstguess.base import gaussian
from firstguess.base.errors import NotCovered
from firstguess.base.gaussian import Array
from firstguess.network.signal import Activated, Distribution, Gaussian, Largest, Signal, Unknown

if TYPE_CHECKING:
    from firstguess.network.activations.record import Activation

_NODES = 1 << 15
_BLOCKS = 48  # Gaussians that a node may be made of by the sequence; later ones are pseudo-random
_POOL = 16  # nodes of a max-pool: every one is made of a Gaussian of its own
_RANGE = 600.0  # log q
SAMPLED = "residual sums that are not Gaussian: by 32768 sampled nodes, to about 1e-3 of a signal's mean square"


@dataclass(frozen=True, eq=False)
class Pairs:
    """Nodes on two data points: `values` (2, nodes) in units of exp(log_scale/2), made of `parts` Gaussians each.

    `alike`: no unit has a center of its own, as after BatchNorms; then all that differs between units is sampling.
    """

    values: Array
    log_scale: float
    parts: int
    alike: bool

    def activate(self, signal: Signal, phi: Activation) -> Signal:
        scale, x = self._for(phi, signal)
        y = gaussian.evaluate(phi.rise, x.ravel()).reshape(x.shape) + phi.offset
        if phi.centered:
            y = y - y.mean()
        log_scale = phi.degree * scale if phi.degree is not None else 0.0
        half, difference = 0.5 * (y[0] + y[1]), 0.5 * (y[0] - y[1])
        mean, common, own = float(half.mean()), float(half.var()), float(np.mean(difference**2))
        between, spread = (0.0, common + own) if self.alike else (max(common - own, 0.0), 2.0 * own)
        return Signal(mean, between, spread, log_scale, replace(self, values=y, log_scale=log_scale)).rescaled()

    def mean_square_slope(self, signal: Signal, phi: Activation) -> float | None:
        if phi.jumps or phi.derivative is None or phi.degree not in (None, 0, 1):
            return math.inf if phi.jumps else None
        try:
            _, x = self._for(phi, signal)
        except NotCovered:
            return None
        return float(np.mean(gaussian.evaluate(phi.derivative, x.ravel()) ** 2))

    def _for(self, phi: Activation, signal: Signal) -> tuple[float, Array]:
        """(log scale, values) that φ may be applied to: where φ(ax) = a^k φ(x), in units of their own."""
        if phi.degree is not None:
            return self.log_scale, self.values
        if abs(signal.log_q) > _RANGE:
            raise NotCovered(
                "a signal that float64 can hold",
                got=f"log q = {signal.log_q:.4g} entering {phi}",
                hint="a smaller weight variance, or a norm",
            )
        return 0.0, self.values * math.exp(0.5 * self.log_scale)


def distribution_of_sum(x: Signal, f: Signal, factor: float) -> Distribution:
    """The distribution of x + factor·f, where f is uncorrelated with x because its last weights may change their sign.

    Both Gaussian: Gaussian. One Gaussian, the other made of Gaussians and activations: sampled nodes. Else unknown.
    """
    if isinstance(x.distribution, Gaussian) and isinstance(f.distribution, Gaussian):
        return Gaussian(x.distribution.positions or f.distribution.positions)
    one, other = _nodes(x, 0), None
    if one is not None:
        other = _nodes(f, one.parts)
    if one is None or other is None:
        return Unknown("a residual sum whose parts are not Gaussian")
    scale = max(one.log_scale, other.log_scale)
    left, right = (each.values * math.exp(0.5 * (each.log_scale - scale)) for each in (one, other))
    if not 1e-100 < abs(factor) < 1e100:
        return Unknown("a residual sum with a branch of an extreme scale")
    values = left + factor * right
    size = float(np.mean(values * values))
    if not 1e-60 < size < 1e60 and math.isfinite(size) and size > 0.0:
        values, scale = values / math.sqrt(size), scale + math.log(size)
    return Pairs(values, scale, other.parts, one.alike and other.alike)


def _nodes(signal: Signal, parts: int) -> Pairs | None:
    """Nodes of a signal, from Gaussians beyond the first `parts` of them; None where its distribution is not known."""
    distribution = signal.distribution
    if isinstance(distribution, Gaussian):
        common, own = _normals(parts)
        common = math.sqrt(signal.between + 0.5 * signal.spread) * common
        own = math.sqrt(0.5 * signal.spread) * own
        values = signal.mean + np.stack([common + own, common - own])
        return Pairs(values, signal.log_scale, parts + 1, signal.between == 0.0)
    if isinstance(distribution, Activated):
        before = _nodes(distribution.before, parts)
        after = None if before is None else before.activate(distribution.before, distribution.phi).distribution
        return after if isinstance(after, Pairs) else None
    if isinstance(distribution, Unknown) and distribution.affine_of is not None:
        return _moved(signal, distribution.affine_of, parts, flipped=distribution.flipped)
    if isinstance(distribution, Largest) and distribution.size <= _POOL:
        found = [
            _nodes(
                replace(distribution.before, distribution=Activated(distribution.before, distribution.phi)), parts + i
            )
            for i in range(distribution.size)
        ]
        nodes = [one for one in found if one is not None]
        if len(nodes) < distribution.size:
            return None
        return replace(nodes[0], values=np.max([one.values for one in nodes], axis=0), parts=parts + distribution.size)
    return distribution if isinstance(distribution, Pairs) and parts == 0 else None


def _moved(signal: Signal, before: Signal, parts: int, *, flipped: bool) -> Pairs | None:
    """Units of `before`, with the mean and the variance of `signal`."""
    old, new = (math.sqrt(one.between + one.spread) for one in (before, signal))
    found = _nodes(before, parts)
    if found is None or old == 0.0:
        return None
    unit = found.values * math.exp(0.5 * (found.log_scale - before.log_scale)) - before.mean
    return replace(found, values=signal.mean + (-new if flipped else new) / old * unit, log_scale=signal.log_scale)


def _normals(part: int) -> Array:
    """Two independent standard normals for every unit."""
    if part < _BLOCKS:
        from scipy.special import ndtri

        points = _sequence()[:, 2 * part : 2 * part + 2].T
        return np.asarray(ndtri(np.clip(points, 1e-12, 1.0 - 1e-12)), dtype=np.float64)
    return np.random.default_rng((1, part)).standard_normal((2, _NODES))


@lru_cache(maxsize=1)
def _sequence() -> Array:
    from scipy.stats import qmc  # half a second to import, which other networks need not wait for

    # seed=: scipy before 1.15 has no rng=
    sobol = qmc.Sobol(2 * _BLOCKS, seed=0)  # pyright: ignore[reportCallIssue]  # the stubs know the new name only
    return np.asarray(sobol.random_base2(_NODES.bit_length() - 1), dtype=np.float64)
