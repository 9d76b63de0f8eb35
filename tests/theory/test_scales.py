"""The kernel reading at any scale: which logit is largest does not depend on how large logits are."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

import firstguess as fg
from firstguess.network.signal import Signal
from firstguess.theory.kernel.propagation import kernel
from firstguess.theory.shares.argmax_sampling import draw_guesses
from firstguess.theory.shares.empirical import EmpiricalGuesses

DIGITS = fg.data.load("digits").subset(300, seed=1)
DRAWS = 2000


def own_law(correlations: np.ndarray, classes: int) -> tuple[float, float]:
    """E max of the guesses and its standard error by a plain loop in float64, from correlations alone."""
    rng = np.random.default_rng()
    n = len(correlations)
    values, vectors = np.linalg.eigh(correlations)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    largest = []
    for _ in range(DRAWS):
        guesses = (root @ rng.standard_normal((n, classes))).argmax(axis=1)
        largest.append(np.bincount(guesses, minlength=classes).max() / n)
    return float(np.mean(largest)), float(np.std(largest)) / math.sqrt(DRAWS)


def relu_correlations(depth: int) -> np.ndarray:
    """Of a deep ReLU network without biases, whose arc-cosine map knows no scale."""
    x = DIGITS.x.reshape(300, -1).astype(np.float64)
    norm = np.sqrt((x * x).sum(axis=1))
    c = np.clip(x @ x.T / np.outer(norm, norm), -1.0, 1.0)
    for _ in range(depth):
        c = np.clip((np.sqrt(1.0 - c * c) + c * (np.pi - np.arccos(c))) / np.pi, -1.0, 1.0)
        np.fill_diagonal(c, 1.0)
    return c


@pytest.mark.parametrize(
    ("network", "depth"),
    [
        ("150 x [dense(weight_var=1/3) > relu] > dense(weight_var=2)", 150),  # logits of 1e-58
        ("100 x [dense(weight_var=60) > relu] > dense(weight_var=2)", 100),  # of 1e73
        ("80 x [dense(weight_var=1/300) > tanh] > dense", 0),  # of 1e-99, where tanh is the identity
    ],
)
def test_law_of_very_small_and_very_large_logits(network: str, depth: int) -> None:
    """E max as correlations alone give it: 4.9 standard errors, a false alarm in 1e6."""
    found = fg.predict(network, data=DIGITS, draws=DRAWS, classes=10)
    assert isinstance(found.guesses, EmpiricalGuesses)
    c = relu_correlations(depth)
    own, error = own_law(c, 10)
    assert abs(found.guesses.expected_max() - own) <= 4.9 * math.hypot(
        error, found.guesses.standard_error("expected_max")
    )
    assert not any("shared" in remark for remark in found.assumptions)


@pytest.mark.parametrize("power", [-900, -300, 300, 900])
def test_a_power_of_two_changes_no_draw(power: int) -> None:
    x = np.random.default_rng().normal(size=(30, 20))
    k = x @ x.T + np.eye(30)
    ordinary, scaled = (draw_guesses(m, 3, draws=200) for m in (k, k * 2.0**power))
    assert np.array_equal(ordinary.fractions, scaled.fractions)
    assert ordinary.ties == scaled.ties


def test_sampled_sums_at_a_small_scale() -> None:
    """relu(relu(u) + f) by sampled nodes: without biases, γ is that of the same blocks at an ordinary scale."""
    blocks = "residual[dense(weight_var=2) > relu > dense(weight_var=2)] > relu > dense(weight_var=2)"
    small = fg.predict(f"dense(weight_var=1e-60) > relu > {blocks}", data=DIGITS, draws=DRAWS)
    usual = fg.predict(f"dense(weight_var=2) > relu > {blocks}", data=DIGITS, draws=DRAWS)
    error = kernel(usual.network, DIGITS.x).error
    # γ = c/(1 − c), and each reading has the c of its own nodes: to 4.9 standard errors of an entry of the diagonal
    c = [p.gamma[-1] / (1.0 + p.gamma[-1]) for p in (small, usual)]
    assert abs(c[0] - c[1]) <= 4.9 * math.sqrt(2.0) * error


@pytest.mark.parametrize(
    ("network", "precision", "hint"),
    [
        ("500 x [dense(weight_var=1/3) > relu] > dense", "float64", "fewer layers"),
        ("400 x [dense(weight_var=60) > relu] > dense", "float64", "fewer layers"),
        ("150 x [dense(weight_var=1/3) > relu] > dense", "float32", "precision='float64'"),
        ("150 x [dense(weight_var=60) > relu] > dense", "float32", "precision='float64'"),
    ],
)
def test_what_floating_point_loses_is_refused(network: str, precision: str, hint: str) -> None:
    with pytest.raises(fg.NotCovered, match="mean squares from") as error:
        fg.predict(network, data=DIGITS, precision=precision)
    assert hint in error.value.hint


def test_a_signal_in_units_beyond_float64_is_cut_off_and_raises_nothing() -> None:
    """e^1000 is beyond float64, whose largest number is e^709.8: 1/e^1000 is 0, and e^1000 is left at e^600."""
    signal = Signal(0.5, 1.0, 2.0, 1000.0)
    large = signal.at_scale(0.0)
    assert math.isfinite(large.between)
    assert math.log(large.between) == pytest.approx(600.0)
    assert large.spread / large.between == pytest.approx(2.0)
    assert replace(signal, log_scale=-1000.0).at_scale(0.0).between == 0.0
