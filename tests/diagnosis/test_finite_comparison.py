"""Comparisons with predictions at finite size: their own errors count, γ only where it means the same."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

import firstguess as fg
from firstguess.diagnosis.compare import PredictionError, compare, error_of, gamma_error
from firstguess.ensemble.measurement import Measurement
from firstguess.theory.prediction import Prediction
from firstguess.theory.shares.empirical import EmpiricalGuesses

AFTER = "20 x [dense(weight_var=2) > relu > layernorm] > dense(weight_var=2)"
POINTS = 600


def predicted(text: str = AFTER) -> Prediction:
    return fg.predict(text, width=100, inputs=fg.Inputs(dimension=1000), points=POINTS)


def drawn(p: Prediction, inits: int, seed: int) -> Measurement:
    """What would be measured if the distribution were exact."""
    return Measurement(EmpiricalGuesses(p.guesses.sample(inits, seed=seed), POINTS, seed), layers=())


def test_networks_of_this_width_agree_and_infinite_width_does_not() -> None:
    """Level 1e-3 for the right one; the wrong one's spread is a third of what is there: p under 1e-20."""
    m = fg.measure(AFTER, fg.data.blob(POINTS, 1000, seed=4), inits=150, width=100, classes=2, seed=5)
    right, wrong = compare(predicted(), m), compare(fg.predict(AFTER, points=POINTS), m)
    assert right.agrees
    assert not wrong.agrees
    assert wrong.worst.p_value < 1e-20
    assert [d.name.split(":")[0] for d in right.layers] == ["γ of the output"]  # after a norm, both are e/(1 − e)
    assert "after a norm" in " ".join(right.notes)


def test_gamma_is_left_out_where_it_means_something_else() -> None:
    p = predicted("2 x [dense(weight_var=2) > relu] > dense(weight_var=2)")
    m = fg.measure(p.network, fg.data.blob(POINTS, 1000, seed=4), inits=40, width=100, seed=5)
    c = compare(p, m)
    assert c.layers == ()
    assert any("ratio of averages" in note for note in c.notes)


def test_what_an_expansion_leaves_out_is_not_held_against_it() -> None:
    """A law wider by what is left out agrees, with 200 times as many networks as would tell otherwise."""
    p = predicted()
    assert p.finite_size is not None
    share = 0.05
    rough = replace(p, finite_size=replace(p.finite_size, next_order=share * p.finite_size.std))
    sharp = replace(p, finite_size=replace(p.finite_size, next_order=0.0))
    m = drawn(p, 20_000, 1)
    wider = 0.5 + (m.guesses.fractions - 0.5) * (1.0 + 0.8 * share)
    wide = Measurement(EmpiricalGuesses(np.round(wider * POINTS) / POINTS, POINTS, 1), layers=())
    assert compare(rough, wide).agrees
    assert not compare(sharp, wide).agrees
    assert compare(rough, wide).summaries[0].room == pytest.approx(share * p.finite_size.std**2 / p.guesses.std())
    far = 0.5 + (m.guesses.fractions - 0.5) * (1.0 + 3.0 * share)
    assert not compare(rough, Measurement(EmpiricalGuesses(far, POINTS, 1), layers=())).agrees


def test_a_chains_error_counts() -> None:
    p = predicted()
    assert p.finite_size is not None
    size = replace(p.finite_size, way="chain", next_order=0.0, error=0.003)
    sampled = replace(p, finite_size=size)
    m = drawn(p, 400, 2)
    one, other = compare(replace(p, finite_size=replace(size, error=0.0)), m), compare(sampled, m)
    whole = p.guesses.std()
    assert other.summaries[0].se == pytest.approx(math.hypot(one.summaries[0].se, 0.003 * size.std / whole))
    assert other.summaries[0].room == 0.0


def test_errors_of_infinite_size_are_none() -> None:
    p = fg.predict(AFTER, points=POINTS)
    assert error_of(p, p.guesses) == PredictionError()
    assert gamma_error(p) == (0.0, 0.0)


def test_gammas_error_is_that_of_the_spread() -> None:
    """By hand for two classes: σ² = arcsin(e)/2π, γ = e/(1 − e)."""
    p = predicted()
    assert p.finite_size is not None
    step, e = 1e-6, p.finite_size.overlap
    moved = math.sqrt((math.asin(e + step) - math.asin(e)) / (2 * math.pi) + p.finite_size.std**2)
    slope = ((e + step) / (1 - e - step) - e / (1 - e)) / (moved - p.finite_size.std)
    assert gamma_error(p)[1] == pytest.approx(slope * p.finite_size.next_order, rel=1e-3)
