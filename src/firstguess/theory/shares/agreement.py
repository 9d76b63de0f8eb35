"""The chance that two data points get the same class, by their overlap c.

Given the last hidden layer, the logits of every class are Gaussian over the output's weights, independent over classes,
with overlap c_ab for points a and b. They get the same class with probability 1/M + A(c_ab), A(c) = T(M, c) − 1/M
(`plurality.excess_agreement`; arcsin(c)/π for two classes), so exactly, at any width, Var G = E A(c_ab)/M over pairs
and networks: theory.md (41) for two classes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import cast

import numpy as np
from numpy.polynomial import chebyshev

from firstguess.base.gaussian import Array
from firstguess.base.numerics import interpolate
from firstguess.theory.shares.gaussian_argmax import excess_agreement

_TERMS = 28  # of A as a series in arcsin c: 1e-9 for ten classes


@dataclass(frozen=True)
class AgreementProbability:
    """A(c) for a number of classes: a series in arcsin c from −π/2 to π/2."""

    classes: int
    terms: Array

    def __call__(self, c: Array) -> Array:
        angle: Array = np.arcsin(np.clip(c, -1.0, 1.0))
        if self.classes == 2:
            return angle / math.pi
        return np.asarray(chebyshev.chebval(2.0 * angle / math.pi, self.terms), dtype=np.float64)

    def overlap(self, excess: float) -> float:
        """The c with A(c) = excess; 0 where that is not above 0."""
        if excess <= 0.0:
            return 0.0
        most = 1.0 - 1.0 / self.classes
        if excess >= most:
            return 1.0
        if self.classes == 2:
            return math.sin(math.pi * excess)
        from scipy.optimize import brentq  # scipy.optimize takes 50 ms to import

        found = brentq(lambda a: float(self(np.array([math.sin(a)]))[0]) - excess, 0.0, 0.5 * math.pi)
        return math.sin(cast(float, found))

    def slopes_at_zero(self) -> tuple[float, float, float, float]:
        """A', A'', A''', A'''' at c = 0."""
        if self.classes == 2:
            return 1.0 / math.pi, 0.0, 1.0 / math.pi, 0.0
        scale = 2.0 / math.pi
        one, two, three, four = (
            scale**k * float(chebyshev.chebval(0.0, chebyshev.chebder(self.terms, k))) for k in (1, 2, 3, 4)
        )
        return one, two, three + one, four + 4.0 * two  # α = c + c³/6 + …


@lru_cache(maxsize=32)
def agreement_probability(classes: int) -> AgreementProbability:
    """A(c), tabulated once for a number of classes."""
    if classes == 2:
        return AgreementProbability(2, np.zeros(1))
    c = np.sin(0.5 * math.pi * chebyshev.chebpts1(_TERMS))
    return AgreementProbability(
        classes, interpolate(np.array([excess_agreement(classes, float(x), float(1.0 - x)) for x in c]))
    )
