"""The law of the shares at finite width, from how often two points get the same class and how networks differ."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import cast

import numpy as np

from firstguess.base.gaussian import Array
from firstguess.theory.guesses import Guesses
from firstguess.theory.mixed_guesses import MixedGuesses
from firstguess.theory.overlap_spectrum import MOST_CLASSES
from firstguess.theory.pair_moments import PairMoments
from firstguess.theory.same_class import same_class

_NETWORKS = 7  # Gauss-Hermite nodes over networks
_SMALL = 0.3  # mean overlaps up to which pairs differ more than networks do
_SEEN = 1e-3  # a share of E A that the spread over pairs may have without being seen
_ALIKE = 1e-3  # a standard deviation of ln(1 − c) over networks below which one γ stands for all


@lru_cache(maxsize=8)
def gauss_hermite(nodes: int) -> tuple[Array, Array]:
    """Nodes and weights of an average over N(0, 1)."""
    z, w = np.polynomial.hermite_e.hermegauss(nodes)
    return z, w / w.sum()


def law_of_shares(
    excess: float, differ: float, classes: int, points: int | None, pairs: PairMoments | None = None
) -> Guesses | MixedGuesses:
    """The law of G over networks whose average A is `excess` and whose ln(1 − c) has standard deviation `differ`.

    In one network (8) holds, with the γ of its own overlap; over networks y = −ln(1 − c) is Gaussian (theory.md (45)),
    about the mean with which the average of A is right. Where overlaps differ over `pairs` of points, and their mean is
    small, more than two classes have the law of `overlap_spectrum`.
    """
    same = same_class(classes)
    c = same.overlap(excess)
    if pairs is not None and uneven(pairs, excess, classes):
        return MixedGuesses((c / (1.0 - c),), (1.0,), classes, points, pairs)
    if differ < _ALIKE or not 0.0 < c < 1.0:
        return Guesses(c / (1.0 - c) if c < 1.0 else math.inf, classes, points)
    z, w = gauss_hermite(_NETWORKS)

    def overlaps(middle: float) -> Array:
        return -np.expm1(-np.maximum(middle + differ * z, 0.0))

    def wrong(middle: float) -> float:
        return float(w @ same(overlaps(middle))) - excess

    start = -math.log1p(-c)
    low, high = start - 10.0 * differ, start + 10.0 * differ
    from scipy.optimize import brentq  # scipy.optimize takes 50 ms to import

    found = overlaps(cast(float, brentq(wrong, low, high)))
    return MixedGuesses(tuple((found / (1.0 - found)).tolist()), tuple(w.tolist()), classes, points)


def uneven(pairs: PairMoments, excess: float, classes: int) -> bool:
    """Whether the law of many classes shows that overlaps differ over pairs, and can be drawn."""
    if not 2 < classes <= MOST_CLASSES or excess <= 0.0 or pairs.e > _SMALL or pairs.spread <= 0.0:
        return False
    by_spread = 0.5 * same_class(classes).slopes_at_zero()[1] * pairs.spread
    return by_spread > _SEEN * excess
