"""Verdicts follow the guesses, and say how sure they are."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from diagnoses import layer, measurement, sample
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import firstguess as fg
from firstguess.diagnosis import Diagnosis, Verdict
from firstguess.diagnosis.sentences import sureness
from firstguess.diagnosis.verdict import verdict_of
from firstguess.ensemble.measurement import Measurement
from firstguess.ensemble.member_statistics import Finding, FindingKind
from firstguess.theory.prediction import WORDS, edges_of_shares, word
from firstguess.theory.shares.empirical import EmpiricalGuesses
from firstguess.theory.shares.gaussian import Guesses


def seen(tops: list[float], *, gamma: float = 1.0, points: int = 1000) -> Measurement:
    """Two classes with these largest fractions."""
    rows = np.array([[t, 1 - t] for t in tops])
    return Measurement(EmpiricalGuesses(rows, points), (layer("4", "Linear", gamma),))


# -- The guesses decide ---------------------------------------------------------------------------------------------


class Plain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.hidden = nn.ModuleList(nn.Linear(50 if i == 0 else 100, 100, bias=False) for i in range(4))
        self.head = nn.Linear(100, 2, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for dense in self.hidden:
            x = torch.relu(dense(x))
        return self.head(x)


class Cubed(Plain):
    """The same guesses: of two logits the larger has the larger cube. Their γ is another one, far from Gaussian."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) ** 3


@pytest.mark.parametrize(
    ("net", "width", "classes"),
    [("100 x [dense(weight_var=2) > relu] > dense", 60, 2), ("60 x [dense(weight_var=2) > relu] > dense", 40, 10)],
)
def test_deep_narrow_networks_are_called_what_they_do(net: str, width: int, classes: int) -> None:
    """γ, a ratio of averages, says biased; nearly all of them put over 90 % into one class (theory.md (38))."""
    m = fg.measure(fg.Network.parse(net, classes=classes), fg.data.blob(300, 50), width=width, inits=64)
    found = verdict_of(m)
    assert m.regime == "biased"
    assert m.guesses.prob_max_above(0.9) > 0.6
    assert m.verdict == found.name == found.title == "deeply biased"
    assert found.guess_low > found.high
    assert f"γ of the output alone, {found.gamma:.3g}, would be called biased" in found.why


def test_logits_that_are_not_gaussian_get_the_word_of_their_guesses() -> None:
    x = fg.data.blob(300, 50)
    plain, cubed = (verdict_of(fg.measure(net, x, inits=64, init="kaiming_normal")) for net in (Plain, Cubed))
    assert plain.name == cubed.name == "biased"
    assert plain.guess_gamma == cubed.guess_gamma
    assert word(cubed.gamma) == "leaning"
    assert "would be called" not in plain.why
    assert "would be called leaning: it is a ratio of averages" in cubed.why


@given(
    st.sampled_from([2, 3, 10]),
    st.lists(st.floats(-9, 9), min_size=1, max_size=12),
    st.floats(0, 100),
    st.integers(0, 2**31),
)
def test_no_word_contradicts_the_fractions(classes: int, bends: list[float], gamma: float, seed: int) -> None:
    """Any shares, whatever γ was measured: the word is that of the γ with the same average largest fraction."""
    points = 1000
    rows = np.random.default_rng(seed).dirichlet(np.ones(classes), size=len(bends))
    rows = (rows / rows.max(axis=1, keepdims=True)) ** np.exp(bends)[:, None]
    rows /= rows.sum(axis=1, keepdims=True)
    m = Measurement(EmpiricalGuesses(rows, points), (layer("4", "Linear", gamma),))
    found, share = verdict_of(m), m.guesses.expected_max()
    first, second, third = edges_of_shares(classes, points)
    ends = {"even": (0, first), "leaning": (first, second), "biased": (second, third), "deeply biased": (third, 1)}
    low, high = ends[found.name]
    assert low <= share <= high
    assert found.name == m.verdict
    if found.guess_gamma not in (0.0, math.inf):
        assert Guesses(found.guess_gamma, classes).expected_max() == pytest.approx(share, abs=0.03)
    if m.guesses.prob_max_above(0.9) > 0.9 and classes == 2:
        assert found.name in ("biased", "deeply biased")
    assert ("γ of the output alone" in found.why) == (word(gamma) != found.name)
    if len(bends) == 1:
        assert math.isnan(found.probability)
        assert not found.sureness
    else:
        assert sum(found.chances) == pytest.approx(1.0)
        assert found.probability == found.chances[WORDS.index(found.name)]


# -- How sure -------------------------------------------------------------------------------------------------------


def half_normals(m: Measurement, edge: float) -> float:
    """P(E max > edge) by its interval, computed by drawing."""
    low, high = m.guesses.interval("expected_max")
    share = m.guesses.expected_max()
    z = np.random.default_rng(3).standard_normal(200_000)
    draws = share + np.where(z < 0, (share - low) / 1.96, (high - share) / 1.96) * z
    return float((draws > edge).mean())


@pytest.mark.parametrize("gamma", [0.02, 0.06, 0.9, 2.0, 8.0, 30.0])
def test_chances_are_those_of_the_interval(gamma: float) -> None:
    m = measurement(gamma=gamma, inits=40)
    found = verdict_of(m)
    for k, edge in enumerate(edges_of_shares(2, 200), start=1):
        assert sum(found.chances[k:]) == pytest.approx(half_normals(m, edge), abs=6e-3)  # 5 s.e. of 200 000 draws


@pytest.mark.parametrize(
    ("chances", "title", "sureness"),
    [
        ((0.0, 0.0, 0.05, 0.95), "deeply biased", "95 %"),
        ((0.0, 0.0, 0.54, 0.46), "at least biased, borderline deeply biased", "> 99.9 %"),
        ((0.0, 0.04, 0.54, 0.42), "at least biased, borderline deeply biased", "96 %"),
        ((0.0, 0.3, 0.7, 0.0), "at least leaning, borderline biased", "> 99.9 %"),
        ((0.0, 0.2, 0.6, 0.2), "at least leaning, borderline biased", "> 99.9 %"),
        ((0.4, 0.6, 0.0, 0.0), "at most leaning, borderline even", "> 99.9 %"),
        ((0.3, 0.4, 0.3, 0.0), "at most biased, borderline leaning", "> 99.9 %"),
        ((0.9995, 0.0005, 0.0, 0.0), "even", "> 99.9 %"),
        ((0.25, 0.25, 0.25, 0.25), "at most deeply biased, borderline biased", "> 99.9 %"),
    ],
)
def test_where_no_word_is_likely_the_title_says_what_is_sure(
    chances: tuple[float, ...], title: str, sureness: str
) -> None:
    best = int(np.argmax(chances))
    found = Verdict(WORDS[best], chances[best], 1.0, 0.9, 1.1, chances=chances)
    assert (found.title, found.sureness) == (title, sureness)


def test_the_page_has_it_after_the_answer() -> None:
    whole = sample()

    def after_the_answer(d: Diagnosis) -> list[str]:
        return str(d).partition("\n\n")[2].splitlines()

    border = Verdict("biased", 0.54, 9.0, 8.0, 11.0, chances=(0.0, 0.0, 0.54, 0.46))
    first = after_the_answer(replace(whole, verdict=border))[0]
    assert first == "A small MLP: AT LEAST BIASED (> 99.9 %), borderline deeply biased"
    early = replace(border, preliminary="12 of 64 initializations")
    whole_early = replace(whole, verdict=early)
    assert "  preliminary: 12 of 64 initializations were drawn" in after_the_answer(whole_early)
    assert "; preliminary: 12 of 64 initializations" in sureness(whole_early)  # the answer's "How sure"


def test_one_initialization_has_a_word_and_no_probability() -> None:
    found = verdict_of(seen([0.95]))
    assert found.name == found.title == "deeply biased"
    assert math.isnan(found.probability)
    assert found.sureness == ""


def test_a_verdict_of_fewer_initializations_than_wanted_is_preliminary() -> None:
    m = replace(
        measurement(inits=12), findings=(Finding(FindingKind.TIME_IS_UP, "12 of 64 initializations within 3 s"),)
    )
    assert verdict_of(m, wanted=64).preliminary == "12 of 64 initializations"
    assert verdict_of(m, wanted=12).preliminary == ""
    assert verdict_of(measurement(inits=12), wanted=64).preliminary == ""  # stopped by a wanted precision


def test_diagnose_says_preliminary_where_time_is_up() -> None:
    net = "5 x [dense(weight_var=2) > relu] > dense"
    slow = fg.diagnose(net, "blob:n=200,d=50", seconds=1e-3, advice=False, width=300)
    assert slow.verdict.preliminary == f"{slow.measurement.inits if slow.measurement else 0} of 64 initializations"
    drawn = f"preliminary: {slow.verdict.preliminary}"
    answer, _, rest = (" ".join(part.split()) for part in str(slow).partition("\n\n"))
    assert drawn in answer
    assert "not known: time was up." in answer
    assert "Missing time: seconds=" in answer
    assert f"{drawn} were drawn" in rest
    whole = fg.diagnose(net, "blob:n=200,d=50", advice=False, width=100)
    assert whole.measurement is not None
    assert whole.measurement.inits == 64
    assert whole.verdict.preliminary == ""


# -- Where guesses do not decide ------------------------------------------------------------------------------------


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


@pytest.mark.parametrize(("own", "name"), [(0.9, "repeats its input"), (0.54, "biased"), (0.3, "biased")])
def test_a_head_that_repeats_its_input_is_not_called_biased(own: float, name: str) -> None:
    """From half of the positions on, by 5 standard errors: guesses are then as uneven as the tokens of the data."""
    m = replace(measurement(), own_guess=(own, 0.01))
    found = verdict_of(m)
    assert found.name == name
    assert (found.title, found.chances == ()) == (name, name != "biased")
    assert verdict_of(replace(m, own_guess=None)).name == "biased"


@pytest.mark.parametrize(("ties", "name"), [(0.49, "biased"), (0.5, "degenerate head")])
def test_the_head_decides_from_half_of_the_guesses_on(ties: float, name: str) -> None:
    m = replace(measurement(), ties=ties)
    found = verdict_of(m)
    assert found.name == m.verdict == name
    if name != "biased":
        assert found.probability == 1.0
        assert found.why == "50 % of all guesses are ties: the head gives classes equal logits"
