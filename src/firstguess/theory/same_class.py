"""The chance that two data points get the same class, by their overlap c; and the law of the shares it belongs to.

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
from scipy import optimize

from firstguess.base.gaussian import Array
from firstguess.base.series import interpolate
from firstguess.theory.guesses import Guesses
from firstguess.theory.mixed_guesses import MixedGuesses
from firstguess.theory.plurality import excess_agreement

_TERMS = 28  # of A as a series in arcsin c: 1e-9 for ten classes
_NETWORKS = 7  # Gauss-Hermite nodes over networks
_ALIKE = 1e-3  # a standard deviation of ln(1 − c) over networks below which one γ stands for all


@dataclass(frozen=True)
class SameClass:
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
        found = optimize.brentq(lambda a: float(self(np.array([math.sin(a)]))[0]) - excess, 0.0, 0.5 * math.pi)
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
def same_class(classes: int) -> SameClass:
    """A(c), tabulated once for a number of classes."""
    if classes == 2:
        return SameClass(2, np.zeros(1))
    c = np.sin(0.5 * math.pi * chebyshev.chebpts1(_TERMS))
    return SameClass(classes, interpolate(np.array([excess_agreement(classes, float(x), float(1.0 - x)) for x in c])))


def law_of_shares(excess: float, differ: float, classes: int, points: int | None) -> Guesses | MixedGuesses:
    """The law of G over networks whose average A is `excess` and whose ln(1 − c) has standard deviation `differ`.

    In one network (8) holds, with the γ of its own overlap; over networks y = −ln(1 − c) is Gaussian (theory.md (45)),
    about the mean with which the average of A is right.
    """
    same = same_class(classes)
    c = same.overlap(excess)
    if differ < _ALIKE or not 0.0 < c < 1.0:
        return Guesses(c / (1.0 - c) if c < 1.0 else math.inf, classes, points)
    z, w = np.polynomial.hermite_e.hermegauss(_NETWORKS)
    w = w / w.sum()

    def overlaps(middle: float) -> Array:
        return -np.expm1(-np.maximum(middle + differ * z, 0.0))

    def wrong(middle: float) -> float:
        return float(w @ same(overlaps(middle))) - excess

    start = -math.log1p(-c)
    low, high = start - 10.0 * differ, start + 10.0 * differ
    found = overlaps(cast(float, optimize.brentq(wrong, low, high)))
    return MixedGuesses(tuple((found / (1.0 - found)).tolist()), tuple(w.tolist()), classes, points)
