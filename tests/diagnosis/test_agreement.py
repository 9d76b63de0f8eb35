"""The words on a prediction never contradict the numbers next to them; remedies are measured where it failed."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from diagnoses import measurement
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

import firstguess as fg
from firstguess.diagnosis import Diagnosis, Expected
from firstguess.diagnosis.compare import Comparison, Difference, compare
from firstguess.diagnosis.expectation import adjusted, agreement, said
from firstguess.ensemble.measurement import Measurement
from firstguess.theory.shares.empirical import EmpiricalGuesses
from firstguess.theory.shares.gaussian import Guesses

GAMMAS = st.sampled_from([0.0, 1e-9, 0.05, 0.5, 0.949, 0.95, 2.5, 2.6, 18.0, 2.9e4, 3e7, math.inf, math.nan])
SHARES = st.sampled_from([0.1, 0.5, 0.5001, 0.55, 0.7, 0.72, 0.968, 1.0])
ERRORS = st.sampled_from([0.0, 1e-12, 1e-3, 0.1, 3.0, 1e6, math.inf, math.nan])
CHANCES = st.sampled_from([0.0, 1e-300, 1e-5, 9e-4, 2e-3, 0.5, 1.0, math.nan])


@st.composite
def comparisons(draw: st.DrawFn) -> Comparison:
    def one(name: str, values: st.SearchStrategy[float]) -> Difference:
        return Difference(name, draw(values), draw(values), draw(ERRORS), 0.0, draw(CHANCES), draw(st.just(0.0)))

    layers = tuple(one(f"γ {k}: layer", GAMMAS) for k in range(draw(st.integers(0, 3))))
    names = ("std of a class's share", "average largest share", "P(largest share > 0.9)")
    summaries = tuple(one(name, SHARES) for name in names)
    return Comparison(layers, summaries, 0.1, draw(CHANCES), 10, 100, draw(st.integers(1, 100)))


def check(text: str, c: Comparison) -> None:
    """What a reader can check by looking."""
    largest = next(d for d in c.summaries if d.name == "average largest share")
    gamma = c.layers[-1] if c.layers else None
    p = re.search(r"p = ([\d.e+-]+)", text)
    assert ("not what was measured" in text) + ("close to what" in text) + (text.startswith("as measured")) == 1
    if text.startswith("as measured") or "close to what" in text:
        assert abs(largest.predicted - largest.measured) <= 0.1
        if gamma is not None and gamma.predicted != gamma.measured:
            top = max(gamma.predicted, gamma.measured, 0.2)
            assert math.isfinite(top)
            assert abs(gamma.predicted - gamma.measured) <= 0.5 * top
    if text.startswith("as measured"):
        assert p is not None
        assert float(p[1]) >= c.level * 0.99  # two digits are printed
    if "largest difference" in text:
        assert p is not None
        assert float(p[1]) <= c.level
        if " predicted against " in text:
            one, other = re.search(r"(\S+) predicted against (\S+)", text).groups()  # type: ignore[union-attr]
            assert one != other or c.worst.predicted == c.worst.measured or "nan" in one
    if "cannot rule it out" in text:
        assert c.agrees


@given(comparisons())
def test_words_follow_the_numbers(c: Comparison) -> None:
    check(said(c), c)
    assert (adjusted(c) < c.level) == (not c.agrees)


def compared(predicted: float, seen: float, *, error: float = 0.05, inits: int = 80) -> Comparison:
    """Of a network whose γ is predicted, and measured with guesses of another one's law."""
    net = fg.Network.parse("2 x [dense(weight_var=2) > relu] > dense(weight_var=2)", classes=2)
    prediction = fg.predict(net)
    *rest, last = prediction.layers
    prediction = replace(prediction, layers=(*rest, replace(last, gamma=predicted)), guesses=Guesses(predicted, 2))
    m = measurement(gamma=seen, inits=inits)
    layers = (*m.layers[:-1], replace(m.layers[-1], gamma=seen, gamma_se=error))
    return compare(prediction, Measurement(EmpiricalGuesses(Guesses(seen, 2, 200).sample(inits, seed=1), 200), layers))


@pytest.mark.parametrize(("predicted", "seen"), [(math.inf, 2.5), (math.inf, 3e7), (2.9e4, 2.5)])
@pytest.mark.parametrize("error", [0.05, math.nan, 1e5])
@pytest.mark.parametrize("inits", [2, 80])
def test_what_could_be_read_on_pages_before(predicted: float, seen: float, error: float, inits: int) -> None:
    """ "predicts γ = inf …: not what was measured (p = 1)", and "as measured" at 2.9e4 against 2.5."""
    c = compared(predicted, seen, error=error, inits=inits)
    check(said(c), c)
    assert agreement(c) not in ("as measured", "close")
    assert "(p = 1)" not in said(c)


def test_a_small_sure_difference_is_close() -> None:
    c = compared(3.0, 2.9, error=1e-4)
    c = replace(c, layers=c.layers[-1:])
    assert not c.agrees
    assert agreement(c) == "close"
    assert Expected(None, c).trusted
    assert not Expected(None, compared(9.0, 2.0)).trusted


def test_a_remark_stands_in_brackets_after_the_comparison_or_not_at_all() -> None:
    """What a mutant changed without a test failing: `if self.why`."""
    p = fg.predict("dense(weight_var=2) > relu > dense(weight_var=2)", classes=2)
    assert Expected(p, compared(2.0, 2.0), "a remark").words.endswith(" (a remark)")
    assert "()" not in Expected(p, compared(2.0, 2.0)).words
    assert "()" not in Expected(p, None).words


TEXTS = [
    "dense(weight_var=2) > relu > dense",
    "30 x [dense(weight_var=2, width=12) > relu] > dense",
    "40 x [dense(weight_var=0.3333) > relu] > dense",
    "3 x [dense(weight_var=2) > relu > layernorm] > dense",
    "dense(weight_var=1, bias_var=0.1) > tanh > dense",
    "5 x [dense(weight_var=0.01, bias_var=1) > relu] > dense",
]


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("inits", [3, 40])
def test_pages_of_descriptions(text: str, inits: int) -> None:
    d = fg.diagnose(text, fg.data.blob(60, 15), inits=inits, width=40, seconds=60, classes=3)
    if d.expected.comparison is not None:
        check(d.expected.words.partition(": ")[2], d.expected.comparison)
    check_advice(d)


def check_advice(d: Diagnosis) -> None:
    """Before is the number of the reading that is named: the page's measurement, or a prediction that holds."""
    assert d.measurement is not None
    for a in d.advice:
        assert a.reading
        if a.how == "measured":
            assert a.largest_before == pytest.approx(d.measurement.guesses.expected_max())
            assert a.gamma_before == pytest.approx(d.measurement.layers[-1].gamma, nan_ok=True)
        else:
            assert d.expected.trusted
            assert d.expected.for_changes is not None
            assert a.largest_before == d.expected.for_changes.guesses.expected_max()
            assert d.expected.for_changes.reading in a.reading
            assert ("infinite width" in a.reading) == (d.expected.wide is not None)  # next to another prediction


# -- Remedies, measured ----------------------------------------------------------------------------------------------

IMAGES = torch.as_tensor(np.array(fg.data.load("digits").x), dtype=torch.float32).reshape(-1, 1, 8, 8)[:300] + 0.5


def cnn(pool: type[nn.Module]) -> nn.Sequential:
    layers = [nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), pool(2), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10))


class Functional(nn.Module):
    """No module to edit: the description's change is measured."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(64 if i == 0 else 12, 12) for i in range(25)])
        self.head = nn.Linear(12, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.flatten(1)
        for layer in self.layers:
            x = F.relu(layer(x))
        return self.head(x)


@pytest.mark.parametrize("pool", [nn.MaxPool2d, pytest.param(nn.AvgPool2d, marks=pytest.mark.slow)])
def test_remedies_of_a_cnn_are_measured_where_theory_is_rough(pool: type[nn.Module]) -> None:
    """And give what an own loop gives: centred data, other members, in standard errors (8 of both)."""
    model = cnn(pool)
    d = fg.diagnose(model, IMAGES, inits=40, seconds=300)
    check_advice(d)
    if d.expected.trusted:
        pytest.skip("theory holds here")
    assert {a.how for a in d.advice} == {"measured"}
    advice = next(a for a in d.advice if a.remedy == "centre the data")
    falls: list[float] = []
    with torch.no_grad():
        for _ in range(60):
            one = cnn(pool)
            shares = [one(x).argmax(1).bincount(minlength=10).max() / 300 for x in (IMAGES, IMAGES - IMAGES.mean(0))]
            falls.append(float(shares[0] - shares[1]))
    error = math.hypot(advice.error, float(np.std(falls, ddof=1)) / math.sqrt(60))
    assert abs(advice.largest_before - advice.largest_after - np.mean(falls)) < 8 * error


def test_remedies_of_plain_code_are_measured_on_its_description() -> None:
    d = fg.diagnose(Functional(), IMAGES, inits=40, seconds=120)
    check_advice(d)
    assert not d.expected.trusted
    centred = next(a for a in d.advice if a.remedy == "centre the activation")
    assert centred.how == "measured"
    edge = next(a for a in d.advice if a.remedy == "go to the edge of chaos")
    assert edge.how == "measured"
    assert edge.gradient_after == pytest.approx(1.0)
    assert edge.worth_it
