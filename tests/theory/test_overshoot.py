"""One limit of the learning rate: Mκ/λ, in the closed form of absorption and in predicted training."""

import math

import numpy as np
import pytest
from scipy import special

import firstguess as fg
from firstguess.theory.training.absorption import scalar_tangent, softening, steps_to


@pytest.mark.parametrize(
    ("spread", "rate", "off"), [(2.0, 0.3, 0.01), (4.0, 0.3, 0.01), (4.0, 1.8, 0.03), (2.0, 1.0, 0.05)]
)
def test_steps_of_descent_are_counted_at_any_spread(spread: float, rate: float, off: float) -> None:
    """m ← m − 2ηλ_b(σ(m/κ) − ½), step by step: κ is in the rate at which classes overtake each other, 2κ, too."""
    level, m, steps = 0.55, 3.0, 0
    kappa, target = softening(spread), spread * special.ndtri(level)
    predicted = float(steps_to(level, np.array([m]), spread, rate)[0])
    before = m
    while m > target:
        before, m, steps = m, m - 2.0 * rate * (special.expit(m / kappa) - 0.5), steps + 1
    counted = steps - 1 + math.log(before / target) / math.log(before / m)
    assert predicted == pytest.approx(counted, rel=off)


@pytest.mark.parametrize("classes", [2, 3])
def test_closed_form_and_kernel_have_one_limit_of_the_learning_rate(classes: int) -> None:
    p = fg.predict("dense(weight_var=2) > relu > dense(weight_var=2)", classes=classes)
    t = scalar_tangent(p.network)
    kappa = softening(math.sqrt(2.0 * (t.q - t.q_ab)))
    limit = classes * kappa / t.off
    assert kappa > 1.1
    assert np.isfinite(p.absorption(lr=0.99 * limit).median)
    with pytest.raises(fg.InvalidInput, match="overshoot"):
        p.absorption(lr=1.01 * limit)
