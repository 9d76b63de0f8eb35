"""What the closed form needs to know about inputs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Real
from typing import Protocol

from firstguess.base.checks import count
from firstguess.base.errors import InvalidInput
from firstguess.network.signal import Gaussian, Signal, Unknown


class Moments(Protocol):
    """Moments of a sample, over points and components."""

    @property
    def mean_square(self) -> float: ...

    @property
    def variance(self) -> float: ...

    @property
    def mean(self) -> float: ...


class Sample(Protocol):
    """A data set that knows its size and moments: `fg.data.Data` is one."""

    @property
    def n(self) -> int: ...

    def inputs(self) -> Moments: ...


@dataclass(frozen=True)
class Inputs:
    """What the closed form needs to know about i.i.d. inputs: theory.md (2), first row.

    `mean_square` is m0 = ‖E x‖²/d, `variance` is v0 = tr Cov(x)/d, `mean` the average over all components (it matters
    only where a norm over nodes meets the input before any dense layer). The default is the blob of the papers.
    `dimension` is how many independent components there are, for predictions at finite size (theory.md §12): the
    overlap of two points then has a variance of 1/dimension. None: infinitely many.

    >>> Inputs(mean_square=0.3).signal().gamma
    0.3
    """

    mean_square: float = 0.0
    variance: float = 1.0
    mean: float = 0.0
    dimension: int | None = None

    def __post_init__(self) -> None:
        if self.dimension is not None:
            hint = "Inputs(dimension=1000), or None for infinitely many"
            whole = count(self.dimension, 2, "number of dimensions", "Inputs(dimension)", hint)
            object.__setattr__(self, "dimension", whole)
        for name in ("mean_square", "variance", "mean"):
            value = getattr(self, name)
            finite = isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
            if not finite or (name != "mean" and value < 0.0):
                raise InvalidInput(
                    f"a finite {name}" + (" of at least 0" if name != "mean" else ""),
                    got=value,
                    where="Inputs",
                    hint="Inputs(mean_square=0.3, variance=1.0)",
                )
        if self.variance == 0.0:
            raise InvalidInput(
                "inputs that differ from each other", got="variance 0", where="Inputs", hint="Inputs(variance=1.0)"
            )
        if self.mean * self.mean > self.mean_square * (1 + 1e-9):
            raise InvalidInput(
                "mean² ≤ mean_square (Jensen)",
                got=f"mean {self.mean}, mean_square {self.mean_square}",
                where="Inputs",
                hint=f"mean_square={self.mean * self.mean}",
            )

    @classmethod
    def of_sample(cls, mean_square: float, variance: float, mean: float, *, points: int) -> Inputs:
        """Inputs whose sample of `points` has these moments (1/n statistics, as `Data.inputs()` gives them).

        The squared mean of a sample is too large by variance/(n−1), which is taken off: kernel and measurement do too.

        >>> Inputs.of_sample(0.01, 0.99, 0.0, points=100).mean_square
        0.0
        """
        excess = variance / (points - 1) if points > 1 else 0.0
        corrected = max(mean_square - excess, 0.0)
        return cls(corrected, variance + excess, math.copysign(min(abs(mean), math.sqrt(corrected)), mean))

    @classmethod
    def of_data(cls, data: Sample) -> Inputs:
        """Inputs with the mean and variance of these data, for `fg.predict(net, inputs=…)`.

        >>> from firstguess.data import blob
        >>> print(f"{Inputs.of_data(blob(500, 100)).variance:.1f}")
        1.0
        """
        moments = data.inputs()
        return cls.of_sample(moments.mean_square, moments.variance, moments.mean, points=data.n)

    def signal(self) -> Signal:
        """The state that enters the first layer."""
        between = max(self.mean_square - self.mean * self.mean, 0.0)
        law = Gaussian() if self.mean_square == 0.0 else Unknown("inputs with centers of their own")
        return Signal(self.mean, between, self.variance, law=law).rescaled()
