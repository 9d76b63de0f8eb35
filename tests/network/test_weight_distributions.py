"""Laws of weights: their moments and tails, universality in wide networks, what has no variance."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import special, stats

import firstguess as fg
from firstguess.ensemble.seeds import fill_weights
from firstguess.network.layers import Conv, Dense
from firstguess.network.tensors import Weights

LAWS = {
    "normal": stats.norm(),
    "uniform": stats.uniform(-math.sqrt(3.0), 2.0 * math.sqrt(3.0)),
    "laplace": stats.laplace(scale=math.sqrt(0.5)),
    "student(3)": stats.t(3, scale=math.sqrt(1 / 3)),
    "student(12.5)": stats.t(12.5, scale=math.sqrt(10.5 / 12.5)),
    "student(1)": stats.t(1),
    "student(2)": stats.t(2),
}


def drawn(init: str, size: int = 200_000, weight_var: float = 1.0, fan_in: int = 1) -> np.ndarray:
    out = torch.empty(size, 1)
    generator = torch.Generator().manual_seed(20261116)
    return fill_weights(out, generator, Weights((size, 1), fan_in, weight_var, 0.0, init)).numpy().ravel()


@pytest.mark.parametrize("init", LAWS)
def test_they_are_what_they_are_called(init: str) -> None:
    """Kolmogorov–Smirnov against scipy's laws of variance 1 (scale 1 where there is none): p above 1e-7."""
    assert stats.kstest(drawn(init), LAWS[init].cdf).pvalue > 1e-7


def test_rademacher_is_a_sign() -> None:
    x = drawn("rademacher", weight_var=2.0, fan_in=50)
    assert set(np.abs(x).tolist()) == {np.float32(0.2)}
    assert abs(float(np.sign(x).mean())) <= 5.5 / math.sqrt(x.size)


@pytest.mark.parametrize("init", ["rademacher", "laplace", "student(5)"])
def test_scaled_by_variance_and_fan_in(init: str) -> None:
    """A quantile of |W| moves by √(weight_var/fan_in) exactly: the draws are the same."""
    np.testing.assert_allclose(drawn(init, 1000, 3.0, 75), 0.2 * drawn(init, 1000), rtol=1e-5)


def test_without_a_variance_sums_keep_their_size() -> None:
    """Cauchy weights over N nodes, W/N: a sum of N of them is Cauchy again. Kolmogorov–Smirnov, p above 1e-7."""
    w = drawn("student(1)", 400_000, 1.0, 100).reshape(-1, 100).sum(axis=1, dtype=np.float64)
    assert stats.kstest(w, stats.cauchy.cdf).pvalue > 1e-7


@pytest.mark.parametrize("init", ["rademacher", "laplace", "student(5)", "uniform"])
@pytest.mark.parametrize("kind", ["dense", "conv"])
def test_wide_networks_do_not_see_the_law(init: str, kind: str) -> None:
    """I20: c of the outputs by theory, within 5.5 standard errors of 300 networks and 3/width."""
    layer = f"{kind}(weight_var=2, init={init}{', padding=1' if kind == 'conv' else ''})"
    text = f"2 x [{layer} > relu] > dense(weight_var=2, init={init})"
    shape = (60, 100) if kind == "dense" else (30, 3, 5, 5)
    x = np.random.default_rng(20261116).standard_normal(shape).astype(np.float32)
    predicted = fg.predict(text, data=x, draws=20)
    measured = fg.measure(text, x, inits=300, width=200, seed=5)
    last = measured.layers[-1]
    assert abs(last.correlation - predicted.correlation[-1]) <= 5.5 * last.correlation_se + 3 / 200


def test_theory_states_the_assumption_and_refuses_infinite_variance() -> None:
    said = fg.predict("dense(init=student(3)) > relu > dense(init=rademacher)").assumptions
    slowly = "in the wide limit, slowly: they have no fourth moment"
    assert f"student(3) weights have the moments of Gaussian ones {slowly}" in said
    assert "rademacher weights have the moments of Gaussian ones in the wide limit" in said
    x = np.random.default_rng(0).normal(size=(5, 6))
    images = np.random.default_rng(0).normal(size=(3, 2, 4, 4))
    for text, data in (
        ("dense(init=student(2)) > relu > dense", x),
        ("conv(init=student(1.5)) > relu > dense", images),
    ):
        with pytest.raises(fg.NotCovered, match=r"weights of finite variance.*layer 1.*fg\.measure"):
            fg.predict(text)
        with pytest.raises(fg.NotCovered, match=r"weights of finite variance.*layer 1"):
            fg.predict(text, data=data)
        assert fg.measure(text, data.astype(np.float32), inits=3, width=8).guesses.inits == 3


@pytest.mark.parametrize("kind", [Dense, Conv])
def test_text_and_bad_values(kind: type) -> None:
    net = fg.Network.parse(f"{kind.kind}(init=student(3.0)) > dense(init=laplace)")
    assert str(net) == f"{kind.kind}(init=student(3)) > dense(init=laplace)"
    assert net.layers[0] == kind(init="student(3.0)")
    for bad in ("student", "student(0)", "student(-1)", "student(inf)", "student(x)", "cauchy", 3, None):
        with pytest.raises(fg.InvalidInput, match="init to be normal") as caught:
            kind(init=bad)
        assert "student(3)" in caught.value.hint
    for bad in ("student(2, 3)", "student(df=3)", "student(relu)", "student()"):
        with pytest.raises(fg.InvalidInput, match="one number of degrees"):
            fg.Network.parse(f"{kind.kind}(init={bad}) > dense")


def test_tails_reach_where_they_should() -> None:
    """N·P(|t| > the largest of N draws) is an exponential of mean 1: outside [1e-7, 17] once in 5 million."""
    largest = float(np.abs(drawn("student(3)", 400_000)).max()) * math.sqrt(3.0)
    assert 1e-7 < 400_000 * 2.0 * special.stdtr(3, -largest) < 17.0
