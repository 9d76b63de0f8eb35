"""How sure a verdict is."""

from __future__ import annotations

from dataclasses import replace

import pytest
from diagnoses import layer, measurement

from firstguess.diagnosis.verdict import verdict_of
from firstguess.ensemble.members import Finding, FindingKind
from firstguess.theory.words import DEEPLY_BIASED


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


@pytest.mark.parametrize(("lost", "name"), [(79, "biased"), (80, "broken")])
@pytest.mark.parametrize("layer_known", [True, False])
def test_a_network_is_broken_from_half_of_its_initializations_on(lost: int, name: str, layer_known: bool) -> None:
    seen = measurement(inits=80)
    said = f"{lost} of {80 + lost} initializations gave NaN or Inf: not in the guesses"
    first = (Finding(FindingKind.NONFINITE, "NaN", "2"),) if layer_known else ()
    found = verdict_of(replace(seen, findings=(Finding(FindingKind.LEFT_OUT, said), *first)))
    assert found.name == name
    if name == "broken":
        assert found.probability == 1.0
        assert found.why == said + (" (the first layer with NaN or Inf is 2)" if layer_known else "")


@pytest.mark.parametrize(("ties", "name"), [(0.49, "biased"), (0.5, "degenerate head")])
def test_the_head_decides_from_half_of_the_guesses_on(ties: float, name: str) -> None:
    found = verdict_of(replace(measurement(), ties=ties))
    assert found.name == name
    if name != "biased":
        assert found.probability == 1.0
        assert found.why == "50% of all guesses are ties: the head gives classes equal logits"


def test_words_say_how_often_one_class_gets_nearly_all() -> None:
    often = measurement(gamma=3.0)
    share = often.guesses.prob_max_above(0.9)
    assert 0 < share < 1
    assert verdict_of(often).why.endswith(f", and over 90 % in {share:.0%} of initializations")
    assert verdict_of(measurement(gamma=1.01, classes=100)).why.endswith("into one class on average")
