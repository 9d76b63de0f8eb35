"""Is there initial guessing bias at all? A test of γ = 0 that knows what the luck of the data points can do."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from scipy import special

LEVEL = 0.01


class Output(Protocol):
    """What the test needs to know of an output layer: a `LayerMeasurement`."""

    @property
    def nodes(self) -> int: ...
    @property
    def gamma(self) -> float: ...
    @property
    def spread(self) -> float: ...
    @property
    def spread_se(self) -> float: ...


@dataclass(frozen=True)
class BiasTest:
    """Whether γ of the output is above 0: the one-sided p-value, and the level at which `found` says yes.

    `p_value` is NaN, and `found` None, where it cannot be tested: one initialization, no γ. `uneven`: guesses are
    surely not even all the same, which needs no γ > 0 where points come in clusters that are guessed together.
    """

    p_value: float
    level: float = LEVEL
    uneven: bool = False

    @property
    def found(self) -> bool | None:
        return None if math.isnan(self.p_value) else self.p_value < self.level

    @property
    def words(self) -> str:
        """The answer in words."""
        if self.found is None:
            return "not tested: that needs several initializations and a γ of the output"
        shown = "p < 1e-12" if self.p_value < 1e-12 else f"p = {self.p_value:.2g}"
        if self.found:
            return f"yes: γ > 0 ({shown})"
        none = f"none seen: γ is not above 0 at the {self.level:.0%} level ({shown})".replace("%", " %")
        return f"{none}; guesses are uneven all the same, as where points come in clusters" if self.uneven else none

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {**asdict(self), "found": self.found}


def bias_test(output: Output | None, inits: int, points: int) -> BiasTest:
    """Test γ = 0 of an output layer, against γ > 0, at a false-alarm rate of at most about 1 %.

    Two things move γ about 0. Weights: over R initializations and k = nodes − 1 free outputs, γ̂ + 1/n is 1/n times the
    mean of ν = R·k/(1 + r) squared Gaussians; r is the relative variance of members' spreads, by which they count.
    Points: γ̂ is an average of the overlaps c_ab of different points, which is not 0 on a finite sample although it
    is on average; its variance is 2·E c²/n(n − 1), and no number of initializations lowers it. E c² shows in how much
    the spread, a mean square over the points, differs between outputs: r·k/2 = 1/n + E c² for Gaussian outputs (more
    in narrow networks, which errs on the safe side). The sum of both is taken as a shifted gamma law of its variance
    and skewness.
    """
    if output is None or inits < 2 or points < 2 or math.isnan(output.gamma):
        return BiasTest(math.nan)
    if not output.spread > 0:  # every point gets the same logits
        return BiasTest(0.0 if output.gamma > 0 else math.nan)
    if not math.isfinite(output.spread_se):
        return BiasTest(math.nan)
    free = max(1, output.nodes - 1)
    differs = inits * (output.spread_se / output.spread) ** 2
    most = differs * (1 + 2 * math.sqrt(2 / (inits - 1)))  # two standard errors more
    overlap = min(1.0, max(0.0, 0.5 * free * most - 1 / points))
    degrees = inits * free / (1 + differs)
    weights, luck = 2 / degrees / points**2, 2 * overlap / (points * (points - 1))
    error = math.sqrt(weights + luck)
    skew = (math.sqrt(8 / degrees) * weights**1.5 + math.sqrt(8 * overlap) * luck**1.5) / error**3
    shape = 4 / skew**2
    at = shape + output.gamma / error * math.sqrt(shape)
    return BiasTest(float(special.gammaincc(shape, at)) if at > 0 else 1.0)
