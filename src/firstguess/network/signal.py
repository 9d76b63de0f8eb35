"""The state of the closed form between layers: three numbers, a scale, and what is known of the distribution."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np
from scipy.special import ndtri

from firstguess.base import gaussian
from firstguess.base.errors import InvalidInput, NotCovered
from firstguess.base.gaussian import Array
from firstguess.network.activations.record import Activation

# Values are kept between these; what lies beyond goes into `log_scale`.
_SMALL, _LARGE = 1e-60, 1e60
_OVERFLOW = 600.0
_STEEP = 150.0  # log q up to which a bounded activation, by then a step, is still integrated in good time


def exp(x: float) -> float:
    """eˣ; inf where float64 ends, instead of an OverflowError."""
    return math.exp(x) if x < 709.0 else math.inf


class Distribution:
    """What a signal's units are distributed like, beyond their moments: enough to apply an activation, or not."""

    @property
    def words(self) -> str:
        """What it is, for refusals."""
        return "another signal"

    def activate(self, signal: Signal, phi: Activation) -> Signal:
        """The signal after φ, or NotCovered."""
        hint = "put a dense layer between them, or use the ensemble reading: fg.measure(...)"
        if self.words == "the output of linear":
            hint = "dense in place of linear, which is the identity here: a layer with weights is dense"
        raise NotCovered("a Gaussian signal before an activation", got=self.words, hint=hint)

    def mean_square_slope(self, signal: Signal, phi: Activation) -> float | None:
        """E φ'², the factor on the mean square of gradients going back; None where it is not known."""
        return None


@dataclass(frozen=True)
class Signal:
    """A layer's units in the wide limit: theory.md (2), with the parts kept apart so that nothing cancels.

    `mean = E x`; `between = Var over nodes of the data-mean`; `spread = mean over nodes of the variance over data`; all
    in units of `exp(log_scale)` (the mean in its square root). `center`, `total`, γ, c and q follow.

    >>> Signal(mean=0.0, between=1.0, spread=3.0).correlation
    0.25
    """

    mean: float
    between: float
    spread: float
    log_scale: float = 0.0
    distribution: Distribution | None = None

    @property
    def center(self) -> float:
        """E over units of (E over data)², in units of exp(log_scale)."""
        return self.mean**2 + self.between

    @property
    def total(self) -> float:
        """E x², in units of exp(log_scale)."""
        return self.mean**2 + self.between + self.spread  # written out, as below: called for every layer

    @property
    def gamma(self) -> float:
        """The drift ratio γ = center/spread; infinite where all data points coincide, NaN where all are 0."""
        if self.spread == 0.0:
            return math.inf if self.center > 0.0 else math.nan
        return self.center / self.spread

    @property
    def correlation(self) -> float:
        """c = q_ab/q_aa = γ/(1+γ): theory.md (1)."""
        center = self.mean**2 + self.between
        total = center + self.spread
        return center / total if total > 0.0 else math.nan

    @property
    def one_minus_c(self) -> float:
        """1 − c without cancelling."""
        total = self.total
        return self.spread / total if total > 0.0 else math.nan

    @property
    def log_q(self) -> float:
        """log E x²."""
        return math.log(self.total) + self.log_scale if self.total > 0.0 else -math.inf

    @property
    def q(self) -> float:
        """E x²; 0 or inf where float64 ends (see log_q)."""
        return exp(self.log_q)

    def numbers(self) -> tuple[float, float, float, float]:
        """γ, c, 1 − c and log q at once: what is said of every layer."""
        center = self.mean**2 + self.between
        spread, total = self.spread, center + self.spread
        if total <= 0.0:
            return math.nan, math.nan, math.nan, -math.inf
        gamma = center / spread if spread != 0.0 else math.inf
        return gamma, center / total, spread / total, math.log(total) + self.log_scale

    def times(self, factor: float) -> Signal:
        """Every unit multiplied by `factor`."""
        if factor == 0.0:
            return replace(self, mean=0.0, between=0.0, spread=0.0, log_scale=0.0)
        if not _SMALL < abs(factor) < _LARGE:  # its square may leave float64
            factor, log_scale = math.copysign(1.0, factor), self.log_scale + 2.0 * math.log(abs(factor))
            return replace(self, mean=self.mean * factor, log_scale=log_scale)
        square = factor * factor
        return replace(
            self, mean=self.mean * factor, between=self.between * square, spread=self.spread * square
        ).rescaled()

    def gaussian_or(self, otherwise: Distribution) -> Distribution:
        """Its distribution after a map that keeps Gaussian nodes Gaussian; `otherwise` where they are not."""
        return self.distribution if isinstance(self.distribution, Gaussian) else otherwise

    def beyond_float(self, phi: Activation) -> NotCovered:
        """The error of an activation that meets it where float64 ends."""
        hint = "a smaller weight variance, or a norm"
        return NotCovered("a signal that float64 can hold", got=f"log q = {self.log_q:.4g} entering {phi}", hint=hint)

    def rescaled(self) -> Signal:
        """The same signal with its numbers brought into range; the scale moves to log_scale."""
        total = self.total
        if total == 0.0 or _SMALL < total < _LARGE:
            return self
        if not math.isfinite(total):
            raise InvalidInput("finite moments", got=total, hint="smaller variances, or fewer layers")
        mean = self.mean / math.sqrt(total)
        log_scale = self.log_scale + math.log(total)
        return replace(self, mean=mean, between=self.between / total, spread=self.spread / total, log_scale=log_scale)

    def at_scale(self, log_scale: float) -> Signal:
        """The same signal in other units."""
        factor = math.exp(min(self.log_scale - log_scale, _OVERFLOW))
        mean = self.mean * math.sqrt(factor)
        return replace(self, mean=mean, between=self.between * factor, spread=self.spread * factor, log_scale=log_scale)


@dataclass(frozen=True)
class Gaussian(Distribution):
    """Every node is Gaussian over data around its own center, the centers Gaussian over nodes: theory.md §1.

    `positions`: it is the output of a convolution, and of what its positions have in common nothing is known.
    """

    positions: bool = field(default=False, compare=False)

    def activate(self, signal: Signal, phi: Activation) -> Signal:
        log_q = signal.log_q
        after = Activated(signal, phi)
        if signal.mean == 0.0:
            if phi.degree is not None:  # φ(ax) = a^k φ(x): the scale goes through untouched
                m = phi.moments(signal.between, signal.spread)
                return Signal(*m, phi.degree * signal.log_scale, after).rescaled()
            line = phi.asymptote(log_q)
            if line is not None:
                m = line.moments(signal.between, signal.spread)
                if line.offset == 0.0:
                    return Signal(*m, signal.log_scale, after).rescaled()
                unit = Signal(m.mean - line.offset, m.between, m.spread, signal.log_scale).at_scale(0.0)
                return replace(unit, mean=line.offset + unit.mean, distribution=after)
        unit = signal.at_scale(0.0)
        if abs(log_q) > _OVERFLOW or (log_q > _STEEP and phi.closed is None):
            raise signal.beyond_float(phi)
        return Signal(*phi.moments(unit.between, unit.spread, mean=unit.mean), 0.0, after).rescaled()

    def mean_square_slope(self, signal: Signal, phi: Activation) -> float | None:
        log_q = signal.log_q
        if phi.degree in (0, 1) and signal.mean == 0.0:
            return phi.mean_square_slope(1.0)
        line = phi.asymptote(log_q) if signal.mean == 0.0 else None
        if line is not None:
            return line.mean_square_slope(1.0)
        if abs(log_q) > _OVERFLOW or (signal.mean != 0.0 and log_q > _STEEP):
            return None
        if signal.mean != 0.0:
            unit = signal.at_scale(0.0)
            return phi.mean_square_slope(unit.between + unit.spread, unit.mean)
        return phi.mean_square_slope(signal.q)


@dataclass(frozen=True)
class Activated(Distribution):
    """φ of a signal whose distribution is known: what a max-pool needs to see through."""

    before: Signal
    phi: Activation

    @property
    def words(self) -> str:
        return f"the output of {self.phi}"


@dataclass(frozen=True)
class Largest(Distribution):
    """The largest of `size` independent units, each φ of a signal whose distribution is known."""

    before: Signal
    phi: Activation
    size: int

    @property
    def words(self) -> str:
        return "the maximum of several nodes"


@dataclass(frozen=True)
class Unknown(Distribution):
    """Moments are right, the distribution is not known: enough for dense layers and norms, not for an activation.

    `affine_of`: a signal that becomes this one by one shift and one factor for all units (`flipped`: a negative one).
    """

    why: str
    affine_of: Signal | None = None
    flipped: bool = False

    @property
    def words(self) -> str:
        return self.why


def random_sum(signal: Signal, weight_var: float, bias_var: float) -> Signal:
    """Weights of variance σw²/fan-in and biases of variance σb²: theory.md (3). Gaussian in the wide limit."""
    # The bias is written in the units of the larger of the two, so that neither under- nor overflows.
    if weight_var == 0.0:
        return Signal(0.0, bias_var, 0.0, distribution=Gaussian()).rescaled()
    if not 1e-100 < weight_var < 1e100:
        signal, weight_var = replace(signal, log_scale=signal.log_scale + math.log(weight_var)), 1.0
    scale = signal.log_scale
    if bias_var > 0.0 and signal.log_q + math.log(weight_var) < math.log(bias_var) - 100.0:
        scale = 0.0 if 1e-10 < bias_var < 1e10 else math.log(bias_var)
        signal, weight_var = replace(signal, log_scale=signal.log_scale + math.log(weight_var)).at_scale(scale), 1.0
    bias = bias_var if scale == 0.0 or bias_var == 0.0 else math.exp(math.log(bias_var) - scale)
    return Signal(0.0, weight_var * signal.center + bias, weight_var * signal.spread, scale, Gaussian()).rescaled()


# Sums of which one part is not Gaussian, as in a ResNet that adds relu(u) and a branch: by sampled units.
#
# A Gaussian signal is three numbers. φ(u) + v is not Gaussian, and neither is what blocks after it make of it; but
# every unit is still plain arithmetic on independent Gaussians, one per block. So the values of `_NODES` units on two
# data points are propagated next to the three numbers: an activation needs means over units of x_a, x_a² and x_a x_b.
# Units are a low-discrepancy sequence (Sobol, scrambled), the same in every call: measured against exact integrals,
# moments are good to 2e-4 of E x² after one block and to 1e-3 after eight.

_NODES = 1 << 15
_BLOCKS = 48  # Gaussians that a node may be made of by the sequence; later ones are pseudo-random
_POOL = 16  # nodes of a max-pool: every one is made of a Gaussian of its own
_RANGE = 600.0  # log q
SAMPLED = "residual sums that are not Gaussian: by 32768 sampled nodes, to about 1e-3 of a signal's mean square"


@dataclass(frozen=True, eq=False)
class Pairs(Distribution):
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
            raise signal.beyond_float(phi)
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
        points = _sequence()[:, 2 * part : 2 * part + 2].T
        return np.asarray(ndtri(np.clip(points, 1e-12, 1.0 - 1e-12)), dtype=np.float64)
    return np.random.default_rng((1, part)).standard_normal((2, _NODES))


@lru_cache(maxsize=1)
def _sequence() -> Array:
    from scipy.stats import qmc  # half a second to import, which other networks need not wait for

    # seed=: scipy before 1.15 has no rng=
    sobol = qmc.Sobol(2 * _BLOCKS, seed=0)  # pyright: ignore[reportCallIssue]  # the stubs know the new name only
    return np.asarray(sobol.random_base2(_NODES.bit_length() - 1), dtype=np.float64)
