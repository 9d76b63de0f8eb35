"""The state of the closed form between layers: three numbers, a scale, and what is known of the distribution."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from firstguess.base.errors import InvalidInput, NotCovered

if TYPE_CHECKING:
    from firstguess.network.activations.record import Activation

# Values are kept between these; what lies beyond goes into `log_scale`.
_SMALL, _LARGE = 1e-60, 1e60
_OVERFLOW = 600.0
_STEEP = 150.0  # log q up to which a bounded activation, by then a step, is still integrated in good time


def exp(x: float) -> float:
    """eˣ; inf where float64 ends, instead of an OverflowError."""
    return math.exp(x) if x < 709.0 else math.inf


class Distribution(Protocol):
    """What a signal's units are distributed like, beyond their moments: enough to apply an activation, or not."""

    def activate(self, signal: Signal, phi: Activation) -> Signal:
        """The signal after φ, or NotCovered."""
        ...

    def mean_square_slope(self, signal: Signal, phi: Activation) -> float | None:
        """E φ'², the factor on the mean square of gradients going back; None where it is not known."""
        ...


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
        return self.center + self.spread

    @property
    def gamma(self) -> float:
        """The drift ratio γ = center/spread; infinite where all data points coincide, NaN where all are 0."""
        if self.spread == 0.0:
            return math.inf if self.center > 0.0 else math.nan
        return self.center / self.spread

    @property
    def correlation(self) -> float:
        """c = q_ab/q_aa = γ/(1+γ): theory.md (1)."""
        return self.center / self.total if self.total > 0.0 else math.nan

    @property
    def one_minus_c(self) -> float:
        """1 − c without cancelling."""
        return self.spread / self.total if self.total > 0.0 else math.nan

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

    def rescaled(self) -> Signal:
        """The same signal with its numbers brought into range; the scale moves to log_scale."""
        total = self.total
        if total == 0.0 or _SMALL < total < _LARGE:
            return self
        if not math.isfinite(total):
            raise InvalidInput("finite moments", got=total, hint="smaller variances, or fewer layers")
        return replace(
            self,
            mean=self.mean / math.sqrt(total),
            between=self.between / total,
            spread=self.spread / total,
            log_scale=self.log_scale + math.log(total),
        )

    def at_scale(self, log_scale: float) -> Signal:
        """The same signal in other units."""
        factor = math.exp(min(self.log_scale - log_scale, _OVERFLOW))
        return replace(
            self,
            mean=self.mean * math.sqrt(factor),
            between=self.between * factor,
            spread=self.spread * factor,
            log_scale=log_scale,
        )


@dataclass(frozen=True)
class Gaussian:
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
            ray = phi.asymptote(log_q)
            if ray is not None:
                m = ray.moments(signal.between, signal.spread)
                if ray.offset == 0.0:
                    return Signal(*m, signal.log_scale, after).rescaled()
                unit = Signal(m.mean - ray.offset, m.between, m.spread, signal.log_scale).at_scale(0.0)
                return replace(unit, mean=ray.offset + unit.mean, distribution=after)
        unit = signal.at_scale(0.0)
        if abs(log_q) > _OVERFLOW or (log_q > _STEEP and phi.closed is None):
            raise NotCovered(
                "a signal that float64 can hold",
                got=f"log q = {log_q:.4g} entering {phi}",
                hint="a smaller weight variance, or a norm",
            )
        return Signal(*phi.moments(unit.between, unit.spread, mean=unit.mean), 0.0, after).rescaled()

    def mean_square_slope(self, signal: Signal, phi: Activation) -> float | None:
        log_q = signal.log_q
        if phi.degree in (0, 1) and signal.mean == 0.0:
            return phi.mean_square_slope(1.0)
        ray = phi.asymptote(log_q) if signal.mean == 0.0 else None
        if ray is not None:
            return ray.mean_square_slope(1.0)
        if abs(log_q) > _OVERFLOW or (signal.mean != 0.0 and log_q > _STEEP):
            return None
        if signal.mean != 0.0:
            unit = signal.at_scale(0.0)
            return phi.mean_square_slope(unit.between + unit.spread, unit.mean)
        return phi.mean_square_slope(signal.q)


def _not_gaussian(got: str) -> NotCovered:
    return NotCovered(
        "a Gaussian signal in front of an activation",
        got=got,
        hint="dense in place of linear, which is the identity here: a layer with weights is dense"
        if got == "the output of linear"
        else "put a dense layer between them, or use the ensemble reading: fg.measure(...)",
    )


@dataclass(frozen=True)
class Activated:
    """φ of a signal whose distribution is known: what a max-pool needs to see through."""

    before: Signal
    phi: Activation

    def activate(self, signal: Signal, phi: Activation) -> Signal:
        raise _not_gaussian(f"the output of {self.phi}")

    def mean_square_slope(self, signal: Signal, phi: Activation) -> float | None:
        return None


@dataclass(frozen=True)
class Largest:
    """The largest of `size` independent units, each φ of a signal whose distribution is known."""

    before: Signal
    phi: Activation
    size: int

    def activate(self, signal: Signal, phi: Activation) -> Signal:
        return Unknown("the maximum of several nodes").activate(signal, phi)

    def mean_square_slope(self, signal: Signal, phi: Activation) -> float | None:
        return None


@dataclass(frozen=True)
class Unknown:
    """Moments are right, the distribution is not known: enough for dense layers and norms, not for an activation.

    `affine_of`: a signal that becomes this one by one shift and one factor for all units (`flipped`: a negative one).
    """

    why: str
    affine_of: Signal | None = None
    flipped: bool = False

    def activate(self, signal: Signal, phi: Activation) -> Signal:
        raise _not_gaussian(self.why)

    def mean_square_slope(self, signal: Signal, phi: Activation) -> float | None:
        return None
