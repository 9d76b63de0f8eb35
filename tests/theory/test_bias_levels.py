"""The words for γ and for guesses, and the way from an average largest fraction to γ and back."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import firstguess as fg
from firstguess.theory import prediction as bias_levels


@pytest.mark.parametrize(
    ("gamma", "want"),
    [(-1e-3, "even"), (0.0, "even"), (0.05, "even"), (0.0501, "leaning"), (0.999, "leaning"), (1.0, "biased"),
     (9.47, "biased"), (9.48, "deeply biased"), (math.inf, "deeply biased")],
)  # fmt: skip
def test_words_of_gamma(gamma: float, want: str) -> None:
    assert bias_levels.word(gamma) == want


@given(st.floats(1e-4, 1e6))
def test_two_classes_have_a_formula(gamma: float) -> None:
    """E max = ½ + arctan(√γ)/π, theory.md §3: γ = tan²(π(E max − ½))."""
    share = 0.5 + math.atan(math.sqrt(gamma)) / math.pi
    assert bias_levels.largest_share(gamma, 2) == pytest.approx(share, abs=1e-12)
    assert bias_levels.gamma_of_share(share, 2) == pytest.approx(gamma, rel=2e-4)


@pytest.mark.parametrize(("classes", "points"), [(2, 20), (2, 1000), (10, None), (3, 50), (10, 1000), (100, 300)])
@pytest.mark.parametrize("gamma", [0.05, 0.3, 1.0, 5.0, bias_levels.DEEPLY_BIASED])
def test_the_way_back(classes: int, points: int | None, gamma: float) -> None:
    share = bias_levels.largest_share(gamma, classes, points)
    assert bias_levels.gamma_of_share(share, classes, points) == pytest.approx(gamma, rel=1e-3)


@pytest.mark.parametrize(("classes", "points"), [(3, 50), (10, 1000), (100, 300)])
@pytest.mark.parametrize("gamma", [*bias_levels.EDGES, 0.3, 5.0])
def test_the_quick_law_is_that_of_multinomial_counts(classes: int, points: int, gamma: float) -> None:
    """Against plain draws of centers, points and guesses: no quadrature, no control variate."""
    rng = np.random.default_rng(11)
    tops: list[float] = []
    for _ in range(400):
        logits = math.sqrt(gamma) * rng.standard_normal(classes) + rng.standard_normal((points, classes))
        tops.append(np.bincount(logits.argmax(axis=1), minlength=classes).max() / points)
    error = float(np.std(tops, ddof=1)) / math.sqrt(len(tops))
    assert abs(bias_levels.largest_share(gamma, classes, points) - np.mean(tops)) < 5 * error + 1.5e-3


def test_ends() -> None:
    assert bias_levels.gamma_of_share(0.5, 2, 1000) == 0  # less than chance would give
    assert bias_levels.gamma_of_share(1.0, 10, 1000) == math.inf
    assert math.isnan(bias_levels.gamma_of_share(math.nan, 2))


@given(st.sampled_from([2, 3, 10]), st.sampled_from([None, 30, 1000]), st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_more_of_the_guesses_is_never_a_milder_word(classes: int, points: int | None, a: float, b: float) -> None:
    low, high = sorted(1 / classes + (1 - 1 / classes) * u for u in (a, b))
    order = [bias_levels.WORDS.index(bias_levels.word_of_share(share, classes, points)) for share in (low, high)]
    assert order[0] <= order[1]


def test_predictions_have_a_word_and_say_whether_there_is_bias_at_all() -> None:
    found = {
        net: (fg.predict(net).verdict, fg.predict(net).has_bias, fg.predict(net).regime)
        for net in (
            "dense > tanh > dense",
            "dense(weight_var=2) > batchnorm > relu > dense",
            "5 x [dense > relu] > dense",
        )
    }
    assert list(found.values()) == [
        ("even", False, "neutral"),
        ("leaning", True, "neutral"),
        ("biased", True, "biased"),
    ]
    text = str(fg.predict("dense(weight_var=2) > relu > dense"))
    assert "leaning" in text
    assert "neutral" not in text
    assert fg.predict("dense > tanh > dense").to_dict()["verdict"] == "even"


def test_points_in_clusters_are_uneven_without_a_common_center() -> None:
    """Three heaps at 120°, whose sum is 0: γ is not above 0, but two of them always share their guess: ⅔."""
    angle = np.repeat(2 * np.pi / 3 * np.arange(3), 30)
    noise = 1e-3 * np.random.default_rng(0).standard_normal((90, 2))
    heaps = fg.data.Data((np.stack([np.cos(angle), np.sin(angle)], axis=1) + noise).astype(np.float32))
    p = fg.predict("dense > dense", data=heaps)
    assert p.gamma[-1] < 0
    assert not p.has_bias
    assert p.guesses.expected_max() == pytest.approx(2 / 3, abs=0.01)
    assert p.verdict == "leaning"
    assert "guesses are uneven because they come in clusters" in str(p)
    m = fg.measure("dense > dense", heaps, inits=64)
    assert m.verdict == "leaning"
    for page in (str(p), str(m)):
        assert "leaning, by the guesses (γ of the output alone would be called even)" in " ".join(page.split())
    assert m.bias_test.found is False
    assert m.bias_test.words.endswith("guesses are uneven nevertheless, as with points that form clusters")
