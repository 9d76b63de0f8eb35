"""How sure a verdict is."""

from __future__ import annotations

from dataclasses import replace

import pytest
from diagnoses import layer, measurement

from firstguess.diagnosis.verdict import verdict_of
from firstguess.theory.prediction import DEEPLY_BIASED


@pytest.mark.parametrize(
    ("gamma", "low", "high", "name", "probability"),
    [
        (0.5, 0.4, 1.0, "neutral", 0.975),
        (2.0, 1.0, 2.1, "biased", 0.975),
        (2.0, 1.9, DEEPLY_BIASED, "biased", 0.975),
        (12.0, DEEPLY_BIASED, 40.0, "deeply biased", 0.975),
        (1.0, 0.5, 1.5, "biased", 0.5),
        (3.0, 1.0, DEEPLY_BIASED, "biased", 0.95),
    ],
)
def test_an_interval_that_ends_at_the_edge_of_a_regime(
    gamma: float, low: float, high: float, name: str, probability: float
) -> None:
    """It holds 95 %, so 2.5 % are beyond."""
    seen = replace(measurement(), layers=(layer("4", "Linear", gamma, low=low, high=high),))
    found = verdict_of(seen)
    assert found.name == name
    assert found.probability == pytest.approx(probability, abs=1e-5)
