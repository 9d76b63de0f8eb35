"""What the closed form needs to know about inputs."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from numbers import Real
from typing import Any, Protocol

import numpy as np

from firstguess.base.checks import check_count, check_number, count
from firstguess.base.errors import InvalidInput
from firstguess.base.gaussian import Array
from firstguess.base.text import elided
from firstguess.network.signal import Gaussian, Signal, Unknown


class Sample(Protocol):
    """A data set that knows its size and moments: `fg.data.Data` is one."""

    @property
    def n(self) -> int: ...

    def inputs(self) -> Any: ...


@dataclass(frozen=True)
class Inputs:
    """What the closed form needs to know about i.i.d. inputs: theory.md (2), first row.

    `mean_square` is m0 = ‖E x‖²/d, `variance` is v0 = tr Cov(x)/d, `mean` the average over all components (it matters
    only where a norm over units meets the input before any dense layer). The default is the blob of the papers.
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
                expected = f"a finite {name}" + (" of at least 0" if name != "mean" else "")
                raise InvalidInput(expected, got=value, where="Inputs", hint="Inputs(mean_square=0.3, variance=1.0)")
        if self.variance == 0.0:
            hint = "Inputs(variance=1.0)"
            raise InvalidInput("inputs that differ from each other", got="variance 0", where="Inputs", hint=hint)
        if self.mean * self.mean > self.mean_square * (1 + 1e-9):
            got = f"mean {self.mean}, mean_square {self.mean_square}"
            hint = f"mean_square={self.mean * self.mean}"
            raise InvalidInput("mean² ≤ mean_square (Jensen)", got=got, where="Inputs", hint=hint)

    @classmethod
    def of_sample(cls, mean_square: float, variance: float, mean: float, *, points: int) -> Inputs:
        """Inputs whose sample of `points` has these moments (1/n statistics, as `Data.inputs()` gives them).

        The squared mean of a sample is too large by variance/(n−1), which is subtracted: kernel and measurement do too.

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
        distribution = Gaussian() if self.mean_square == 0.0 else Unknown("inputs with centers of their own")
        return Signal(self.mean, between, self.variance, distribution=distribution).rescaled()


# What the closed form needs to know about sequences of tokens.

_WHERE = "Tokens"


@dataclass(frozen=True)
class Tokens:
    """Sequences of `length` i.i.d. tokens: theory.md (20).

    `coincidence` is p₂ = Σ p², the chance that two tokens are the same; or `frequencies` are given, how often each
    token of the vocabulary comes: shares that sum to 1, or counts. The first `shared` tokens are the same in all
    sequences and come nowhere else: a CLS or BOS. Tokens may also be patches of images: then `coincidence` is the
    correlation of two patches.

    >>> Tokens(length=64, frequencies=[2, 1, 1]).coincidence
    0.375
    """

    length: int
    coincidence: float | None = None
    shared: int = 0
    frequencies: Any = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_count(self.length, "length", _WHERE)
        check_count(self.shared, "shared", _WHERE, low=0)
        if self.frequencies is not None:
            if self.coincidence is not None:
                raise InvalidInput("coincidence or frequencies", got="both", where=_WHERE, hint="one of them")
            p = _normalized(self.frequencies)
            object.__setattr__(self, "frequencies", p)
            object.__setattr__(self, "coincidence", float(np.sum(p * p)))
        object.__setattr__(self, "coincidence", 0.0 if self.coincidence is None else self.coincidence)
        check_number(self.chance, "coincidence", _WHERE, hint="Tokens(length=128, coincidence=0.0075)")
        if self.chance >= 1.0:
            raise InvalidInput("a coincidence below 1", got=self.chance, where=_WHERE, hint="coincidence=0.0075")
        if self.shared > self.length:
            raise InvalidInput(f"at most {self.length} shared tokens", got=self.shared, where=_WHERE, hint="shared=1")
        if self.shared == self.length:
            raise InvalidInput("sequences that differ", got="all tokens shared", where=_WHERE, hint="shared=1")

    @property
    def chance(self) -> float:
        """p₂ as a number."""
        assert self.coincidence is not None
        return self.coincidence

    def prototypes(self) -> Array:
        """(2·length, 2·length): the covariance of one-hot tokens of two sequences, on average."""
        k = np.full((2, self.length, 2, self.length), self.chance)
        every, shared = np.arange(self.length), np.arange(self.shared)
        for a in range(2):
            k[a, every, a, every] = 1.0
        k[:, shared] = 0.0
        k[:, :, :, shared] = 0.0
        k[:, shared, :, shared] = 1.0
        return k.reshape(2 * self.length, 2 * self.length)


def _normalized(frequencies: Any) -> Array:
    try:
        p = np.asarray(frequencies, dtype=np.float64)
    except (TypeError, ValueError):
        p = np.zeros(0)
    if p.ndim != 1 or np.count_nonzero(p) < 2 or not np.isfinite(p).all() or (p < 0).any():
        expected = "frequencies of tokens: a list of numbers from 0 on, two or more of them above 0"
        hint = "np.bincount(ids)"
        raise InvalidInput(expected, got=elided(" ".join(repr(frequencies).split()), 40), where=_WHERE, hint=hint)
    whole = math.fsum(p)
    if abs(whole - 1) > 1e-6 and (p % 1 != 0).any():
        expected = "frequencies of tokens that sum to 1, or counts"
        raise InvalidInput(expected, got=f"a sum of {whole:.6g}", where=_WHERE, hint="p / p.sum()")
    return p / whole
