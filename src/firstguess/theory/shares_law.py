"""The law of the shares at finite width, from how often two points get the same class and how networks differ."""

from __future__ import annotations

import math
from typing import cast

import numpy as np

from firstguess.base.gaussian import Array
from firstguess.theory.guesses import Guesses
from firstguess.theory.mixed_guesses import MixedGuesses
from firstguess.theory.same_class import same_class

_NETWORKS = 7  # Gauss-Hermite nodes over networks
_ALIKE = 1e-3  # a standard deviation of ln(1 − c) over networks below which one γ stands for all


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
    from scipy.optimize import brentq  # scipy.optimize takes 50 ms to import

    found = overlaps(cast(float, brentq(wrong, low, high)))
    return MixedGuesses(tuple((found / (1.0 - found)).tolist()), tuple(w.tolist()), classes, points)
