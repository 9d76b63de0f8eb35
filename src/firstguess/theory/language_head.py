"""Language-model heads: how often an untrained model with a tied head guesses the token that it was given."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import log_ndtr

from firstguess.base.checks import check_count, check_number

_STEP, _REACH = 1.0 / 64.0, 12.0


def own_guess_chance(shift: float, vocabulary: int) -> float:
    """P(guess = own input) = ∫ φ(t − z) Φ(t)^{V−1} dt, where the own token's logit stands `shift` = z higher.

    z is in standard deviations of a logit: √(D·v_e/q_final) for a tied head, whatever γ is: theory.md (30).

    >>> print(f"{own_guess_chance(3.48, 2000):.6f} {own_guess_chance(1.88, 50257):.6f}")
    0.518636 0.011449
    """
    check_number(shift, "shift", "own_guess_chance", low=-math.inf, hint="own_guess_chance(3.48, 2000)")
    check_count(vocabulary, "vocabulary", "own_guess_chance", low=2)
    t = np.arange(-_REACH, _REACH + _STEP, _STEP)
    weights = np.exp(-0.5 * t * t) * _STEP / math.sqrt(2.0 * math.pi)  # a trapezoid rule: exact to e^(−2π²/_STEP²)
    return float(np.sum(weights * np.exp((vocabulary - 1) * log_ndtr(t + shift))))
