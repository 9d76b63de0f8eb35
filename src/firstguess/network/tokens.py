"""What the closed form needs to know about sequences of tokens."""

from __future__ import annotations

import math
from dataclasses import InitVar, dataclass
from typing import Any

import numpy as np

from firstguess.base.checks import check_count, check_number
from firstguess.base.errors import InvalidInput
from firstguess.base.gaussian import Array

_WHERE = "Tokens"


@dataclass(frozen=True)
class Tokens:
    """Sequences of `length` i.i.d. tokens: theory.md (20).

    `coincidence` is p₂ = Σ p², the chance that two tokens are the same; or `frequencies` are given, how often each
    token of the vocabulary comes (they need not sum to 1). The first `shared` tokens are the same in all sequences and
    come nowhere else: a CLS or BOS. Tokens may also be patches of images: then `coincidence` is the correlation of two
    patches.

    >>> Tokens(length=64, frequencies=[2, 1, 1]).coincidence
    0.375
    """

    length: int
    coincidence: float | None = None
    shared: int = 0
    frequencies: InitVar[Any] = None

    def __post_init__(self, frequencies: Any) -> None:
        check_count(self.length, "length", _WHERE)
        check_count(self.shared, "shared", _WHERE, low=0)
        if frequencies is not None:
            if self.coincidence is not None:
                raise InvalidInput("coincidence or frequencies", got="both", where=_WHERE, hint="one of them")
            object.__setattr__(self, "coincidence", _coincidence(frequencies))
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


def _coincidence(frequencies: Any) -> float:
    p = np.asarray(frequencies, dtype=np.float64).ravel()
    if p.size == 0 or not np.isfinite(p).all() or (p < 0).any() or not p.any():
        raise InvalidInput(
            "frequencies of tokens: numbers from 0 on, not all 0", got="others", where=_WHERE, hint="np.bincount(ids)"
        )
    p = p / math.fsum(p)
    return float(np.sum(p * p))
