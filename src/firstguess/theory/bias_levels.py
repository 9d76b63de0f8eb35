"""The words for how uneven guesses are: even, leaning, biased, deeply biased; by γ, or by the guesses themselves."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Literal, cast

import numpy as np

from firstguess.theory.shares.gaussian import Guesses

Word = Literal["even", "leaning", "biased", "deeply biased"]
GradientWord = Literal["vanish", "shrink", "keep their size", "grow", "explode"]
WORDS: tuple[Word, ...] = ("even", "leaning", "biased", "deeply biased")

# γ at which the average two-class network gives 90 % of all points to one class: ½ + arctan(√γ)/π = 0.9.
DEEPLY_BIASED = math.tan(0.4 * math.pi) ** 2
EDGES = (0.05, 1.0, DEEPLY_BIASED)  # γ between one word and the next

_LEAST, _MOST = 1e-6, 1e9  # γ that are told from 0 and from ∞
_GRID = (0.0, 0.003, 0.015, *EDGES[:1], 0.2, *EDGES[1:])  # γ at which counting is drawn, for more than two classes
_DRAWN, _NETWORKS, _WORK = 30_000, 200, 400_000  # fractions that are drawn for it; networks at least, work at most


def word(gamma: float) -> Word:
    """The word for a drift ratio, theory.md §1.

    even: at most 0.05; leaning: below 1, one peak about the even split; biased: from 1 on, where the distribution of a
    two-class fraction has two peaks; deeply biased: from tan²(0.4π) ≈ 9.47 on, where one of two classes gets 90 % on
    average.

    >>> word(0.05), word(0.47), word(2.8), word(18.4)
    ('even', 'leaning', 'biased', 'deeply biased')
    """
    if gamma <= EDGES[0]:
        return "even"
    return "leaning" if gamma < EDGES[1] else "biased" if gamma < EDGES[2] else "deeply biased"


_SMALL = 2.0  # a change of gradients' mean square over the whole network that is worth a word
_LARGE = 1e4  # one that training suffers from: tests/diagnosis/test_words_and_training.py


def gradient_word(total: float) -> GradientWord:
    """What gradients do going back whose mean square changes by this factor over the network: one rule for all pages.

    >>> [gradient_word(total) for total in (1e-5, 0.1, 1.5, 6.8, 1e5)]
    ['vanish', 'shrink', 'keep their size', 'grow', 'explode']
    """
    if total < 1 / _SMALL:
        return "vanish" if total < 1 / _LARGE else "shrink"
    return "keep their size" if total <= _SMALL else "grow" if total <= _LARGE else "explode"


def word_with_gamma(verdict: str, gamma: float) -> str:
    """The verdict of a page, and what γ of the output beside it would be called if that is another word.

    >>> word_with_gamma("biased", 3.0), word_with_gamma("biased", 0.7)
    ('biased', 'biased, by the guesses (γ of the output alone would be called leaning)')
    """
    if verdict not in WORDS or math.isnan(gamma) or word(gamma) == verdict:
        return verdict
    return f"{verdict}, by the guesses (γ of the output alone would be called {word(gamma)})"


def largest_share(gamma: float, classes: int, points: int | None = None) -> float:
    """E max_c G_c by theory.md (6)-(8), as `Guesses.expected_max`, but a quick and smooth function of γ.

    For more than two classes, what counting `points` adds to it is interpolated between a few γ, the edges among them,
    where it is drawn (standard error 1e-4 for ten classes and 1000 points).
    """
    if points is None or gamma == math.inf:
        return Guesses(gamma, classes).expected_max()
    if classes == 2:
        return Guesses(gamma, 2, points).expected_max()
    added = float(np.interp(_place(gamma), *_added(classes, points)))
    return min(1.0, Guesses(gamma, classes).expected_max() + added)


@lru_cache(maxsize=32)
def _added(classes: int, points: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Places of some γ, and what counting adds to the largest fraction there; nothing at the last."""
    rows = max(_DRAWN // classes, min(_NETWORKS, _WORK // classes), 20)
    added: list[float] = []
    for gamma in _GRID:
        share = Guesses(gamma, classes).sample(rows, seed=1)
        counted = np.random.default_rng(2).multinomial(points, share) / points
        added.append(max(0.0, float((counted.max(axis=1) - share.max(axis=1)).mean())))
    return tuple(_place(gamma) for gamma in (*_GRID, _MOST)), (*added, 0.0)


def _place(gamma: float) -> float:
    return math.log1p(gamma / 0.01)


def edges_of_shares(classes: int, points: int | None = None) -> tuple[float, float, float]:
    """E max_c G_c at the γ that part the words."""
    first, second, third = (largest_share(edge, classes, points) for edge in EDGES)
    return first, second, third


def word_of_share(share: float, classes: int, points: int | None = None) -> Word:
    """The word for an average largest fraction: that of the γ whose distribution has it.

    >>> word_of_share(0.69, 2), word_of_share(0.92, 2), word_of_share(0.51, 2, points=1000)
    ('leaning', 'deeply biased', 'even')
    """
    first, second, third = edges_of_shares(classes, points)
    return WORDS[(share > first) + (share >= second) + (share >= third)]


def gamma_of_share(share: float, classes: int, points: int | None = None) -> float:
    """The γ whose distribution, theory.md (6)-(8), has this average largest fraction: 0 for none larger than chance, to
    ∞.

    >>> print(f"{gamma_of_share(0.75, 2):.6f} {gamma_of_share(0.5, 2)} {gamma_of_share(1.0, 2)}")
    1.000000 0.0 inf
    """
    if math.isnan(share):
        return math.nan

    def excess(log_gamma: float) -> float:
        return largest_share(math.exp(log_gamma), classes, points) - share

    low, high = math.log(_LEAST), math.log(_MOST)
    if excess(low) >= 0:
        return 0.0
    # From there on one class gets all but 1e-5 of infinitely many points: told apart by none of finitely many.
    if excess(high) <= 0:
        return math.inf
    from scipy.optimize import brentq  # scipy.optimize takes 50 ms to import

    return math.exp(cast(float, brentq(excess, low, high, xtol=1e-4)))
