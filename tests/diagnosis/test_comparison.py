"""`compare`: right theories agree at the stated rate, wrong ones do not, and every number is where it should be."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from scipy import stats

import firstguess.diagnosis.compare  # noqa: F401
from firstguess.base.errors import InvalidInput
from firstguess.diagnosis.compare import Comparison, compare
from firstguess.ensemble.measurement import Measurement, layer_measurements
from firstguess.ensemble.member_statistics import BETWEEN, SPREAD, ProbedLayer
from firstguess.theory.closed_form import predict
from firstguess.theory.shares.empirical import EmpiricalGuesses
from firstguess.theory.shares.gaussian import Guesses

TEXT = "2 x [dense(weight_var=2) > relu] > dense(weight_var=2)"
LAYERS = (
    ProbedLayer("dense 1", "dense", 100, True),
    ProbedLayer("relu 1", "activation", 100, False),
    ProbedLayer("dense 2", "dense", 100, True),
    ProbedLayer("relu 2", "activation", 100, False),
    ProbedLayer("dense 3", "dense", 2, True),
)


def simulated(
    seed: int, *, inits: int = 200, classes: int = 2, points: int = 300, factor: float = 1.0, layers=LAYERS
) -> Measurement:
    """What a measurement of TEXT would be if theory were exact (and γ larger by `factor`)."""
    rng = np.random.default_rng([seed, 9])
    gammas = iter(predict(TEXT).gamma * factor)
    values = [next(gammas) if layer.weights else 1.0 for layer in LAYERS][-len(layers) :] if layers else []
    numbers = np.zeros((inits, len(layers), 4))
    for k, (layer, gamma) in enumerate(zip(layers, values, strict=True)):
        numbers[:, k, BETWEEN] = gamma * rng.chisquare(layer.nodes, inits) / layer.nodes
        numbers[:, k, SPREAD] = rng.chisquare(50 * layer.nodes, inits) / (50 * layer.nodes)
    law = Guesses(float(predict(TEXT).gamma[-1]) * factor, classes, points)
    guesses = EmpiricalGuesses(law.sample(inits, seed=seed), points, seed)
    return Measurement(guesses, layer_measurements(layers, numbers, seed), seed=seed)


def test_the_right_theory_agrees():
    """Level 1e-3 (2e-3 at worst, see `chance`) over 300 measurements: 0.6 disagreements; 8 or more have 2e-7."""
    prediction = predict(TEXT)
    start = int(np.random.default_rng(20261115).integers(2**30))
    results = [compare(prediction, simulated(start + i)) for i in range(300)]
    assert sum(not c.agrees for c in results) <= 7
    # p-values of a row are uniform, or larger for counts: 3 of 300 are below 1e-2, more than 20 with 1e-10.
    for row in range(len(results[0].differences)):
        assert sum(c.differences[row].p_value < 1e-2 for c in results) <= 20
    # A χ² of the z of γ 3, 300 of them: heavier tails than normal for 200 skewed members, so 6 standard errors.
    z = np.array([c.layers[2].z for c in results])
    assert abs(np.mean(z**2) - 1) < 6 * math.sqrt(2 / 300)


def test_a_wrong_theory_does_not_agree():
    """γ larger by 1.5 over 2000 members: the output's is 15 standard errors away, a wide layer's more than 50."""
    c = compare(predict(TEXT), simulated(1, inits=2000, factor=1.5))
    assert not c.agrees
    assert c.worst.p_value < 1e-9
    assert min(c.layers[1].z, c.layers[2].z) > 4
    assert "disagree" in str(c)
    assert c.p_value < 1e-3


@pytest.mark.parametrize("classes", [3, 10])
def test_more_classes(classes):
    c = compare(predict(TEXT, classes=classes), simulated(2, classes=classes, inits=500))
    assert c.classes == classes
    assert all(d.p_value > 1e-7 for d in c.differences)  # five rows: a false-alarm rate of about 1e-6
    assert c.p_value > 1e-7
    other = compare(predict(TEXT, classes=classes), simulated(2, classes=classes, inits=2000, factor=3))
    assert other.p_value < 1e-6


def test_distance_is_kolmogorovs():
    """Infinitely many points are a continuous law: scipy's kstest on the same numbers; n = 10⁶ differs by about 1/n."""
    m = simulated(3, points=10**6)
    law = Guesses(float(predict(TEXT).gamma[-1]))
    found = stats.kstest(m.guesses.fractions[:, 0], lambda g: law.cdf(g))
    c = compare(predict(TEXT), m)
    assert c.distance == pytest.approx(found.statistic, abs=1e-5)
    assert c.p_value == pytest.approx(found.pvalue, rel=1e-2)


def test_distance_of_few_points_is_over_counts():
    """γ = 0, 4 points: the cdf of Binomial(4, ½) is 1/16, 5/16, 11/16, 15/16, 1 at the counts."""
    rows = np.array([[0.0, 1.0]] * 1 + [[0.25, 0.75]] * 4 + [[0.5, 0.5]] * 7 + [[0.75, 0.25]] * 3 + [[1.0, 0.0]] * 1)
    prediction = predict("dense")
    c = compare(prediction, Measurement(EmpiricalGuesses(rows, 4), ()))
    assert prediction.gamma[-1] == 0
    assert c.distance == pytest.approx(1 / 16)
    assert c.p_value > 0.99


def test_predictions_are_for_the_points_measured():
    c = compare(predict(TEXT, points=17), simulated(4, points=50))
    gamma = float(predict(TEXT).gamma[-1])
    named = {d.name: d.predicted for d in c.summaries}
    assert named["std of a class's share"] == Guesses(gamma, 2, 50).std()
    assert named["average largest share"] == Guesses(gamma, 2, 50).expected_max()
    assert named["P(largest share > 0.9)"] == Guesses(gamma, 2, 50).prob_max_above(0.9)


def test_other_numbers_of_layers():
    only_output = compare(predict(TEXT), simulated(5, layers=LAYERS[-1:]))
    assert [d.name for d in only_output.layers] == ["γ of the output: dense 3"]
    assert "3 layers with weights predicted, 1 measured" in only_output.notes[0]
    none = compare(predict(TEXT), simulated(5, layers=()))
    assert none.layers == ()
    assert "only guesses" in none.notes[0]


def test_a_difference_of_one_over_n_is_not_held_against_gamma():
    """BatchNorm leaves every logit's mean at 0 to rounding, so the unbiased center is −V/n with no error at all."""
    numbers = np.zeros((50, 1, 4))
    numbers[..., SPREAD] = 1.0
    numbers[..., BETWEEN] = -1 / 300
    m = simulated(6)
    m = Measurement(m.guesses, layer_measurements(LAYERS[-1:], numbers, 0))
    c = compare(predict("dense > relu > batchnorm > dense"), m)
    assert c.layers[0].measured == pytest.approx(-1 / 300)
    assert c.layers[0].p_value > 0.9
    assert any("BatchNorm" in note for note in c.notes)
    assert c.layers[0].z == 0
    assert "->999" not in str(c)


def test_what_is_shown_is_what_is_judged():
    """γ = 0 predicted, 0.002 ± 0.0001 measured on 300 points: 20 standard errors, all of them within (1 + γ)/n."""
    numbers = np.zeros((50, 1, 4))
    numbers[..., SPREAD] = 1.0
    numbers[:, 0, BETWEEN] = 0.002 + 7e-4 * np.random.default_rng(3).standard_normal(50)
    m = Measurement(simulated(6).guesses, layer_measurements(LAYERS[-1:], numbers, 0))
    inside = compare(predict("dense"), m).layers[0]
    assert inside.measured / inside.se > 10
    assert (inside.z, inside.room) == (0.0, pytest.approx(1 / 300))
    numbers[:, 0, BETWEEN] += 0.003
    c = compare(predict("dense"), Measurement(m.guesses, layer_measurements(LAYERS[-1:], numbers, 0)))
    beyond = c.layers[0]
    assert beyond.z == pytest.approx((beyond.measured - beyond.room) / beyond.se)
    assert beyond.p_value < 1e-6  # more than 10 standard errors
    assert "± 0.0033" in str(c)
    assert "± 0.0033" in c._repr_html_()
    assert any("allowed: γ is that of these 300 points" in note for note in c.notes)
    assert c.to_dict()["layers"][0]["room"] == beyond.room
    assert "allowed" not in str(compare(predict("dense"), Measurement(m.guesses, ())))


def test_comparison_prints_and_round_trips():
    c = compare(predict(TEXT), simulated(7))
    again = Comparison.from_dict(json.loads(json.dumps(c.to_dict(), allow_nan=False)))
    assert again == c
    assert max(map(len, str(c).splitlines())) <= 100
    assert "Kolmogorov" in str(c)
    assert "Kolmogorov" in c._repr_html_()
    assert c.to_dict()["agrees"] == c.agrees
    assert len(c.differences) == 6
    single = compare(predict(TEXT), simulated(7, inits=1))  # nothing has an error
    assert single.agrees
    assert Comparison.from_dict(json.loads(json.dumps(single.to_dict(), allow_nan=False))).agrees


def test_bad_pairs_are_refused():
    m = simulated(8)
    with pytest.raises(InvalidInput, match="a Prediction and a Measurement"):
        compare(m, predict(TEXT))
    with pytest.raises(InvalidInput, match="classes=2"):
        compare(predict(TEXT, classes=3), m)
    with pytest.raises(InvalidInput, match="level"):
        compare(predict(TEXT), m, level=0)


def test_a_probability_next_to_nothing_does_not_overflow() -> None:
    """Ten classes, 400 points, γ = 0: P(max > 0.9) is 3.6e-308, where SciPy's binomial test overflows."""
    p = predict("dense > tanh > dense", classes=10)
    m = Measurement(EmpiricalGuesses(Guesses(0.0, 10, points=400).sample(50), points=400), layers=())
    assert compare(p, m).summaries[-1].p_value == 1.0
