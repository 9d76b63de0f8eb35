"""The kernel reading at finite width, theory.md (50): limits, i.i.d. data, real networks on data with clusters."""

from __future__ import annotations

import math

import numpy as np
import pytest

import firstguess as fg
from firstguess.base.errors import NotCovered
from firstguess.theory.finite.on_data import at_width, expanded_on_data, positive, sampled_on_data, shifts
from firstguess.theory.kernel.propagation import kernel

FAR = 5.5  # standard errors: 4e-8 a comparison
TEXT = "{} x [dense(weight_var=2) > {}] > dense(weight_var=2)"


def clusters(n: int, d: int = 40) -> np.ndarray:
    """Two clusters about centers of their own, points of many sizes."""
    rng = np.random.default_rng(21)
    centers = rng.standard_normal((2, d))
    x = 0.7 * centers[rng.integers(0, 2, n)] + rng.standard_normal((n, d))
    return x * rng.uniform(0.5, 2.0, (n, 1))


@pytest.mark.parametrize("body", ["relu > layernorm", "relu"])
def test_infinite_width_is_the_limit(body: str) -> None:
    x = clusters(60)
    wide = fg.predict(TEXT.format(3, body), data=x, width=10**13, draws=10)
    infinite = fg.predict(TEXT.format(3, body), data=x, draws=10)
    assert wide.covariance is not None
    assert infinite.covariance is not None
    assert np.allclose(wide.covariance, infinite.covariance, rtol=0, atol=1e-7)  # 1e-8: inverting a table
    assert wide.finite_size is not None
    assert abs(wide.finite_size.added) < 1e-7
    assert "wide layers" not in wide.assumptions


def test_blob_as_in_closed_form() -> None:
    """On i.i.d. data both readings have the same standard deviation, to the next order that they state."""
    x = np.random.default_rng(2).standard_normal((300, 1000))
    text = TEXT.format(5, "relu > layernorm")
    kernel = fg.predict(text, data=x, width=100, draws=10).finite_size
    closed = fg.predict(text, width=100, inputs=fg.Inputs(dimension=1000)).finite_size
    assert kernel is not None
    assert closed is not None
    assert abs(kernel.std - closed.std) < 0.05 * closed.std
    room = kernel.next_order + FAR * kernel.error + closed.next_order
    assert abs(kernel.std - closed.std) < room + 0.0005  # the luck of 300 points


@pytest.mark.parametrize("body", ["relu > layernorm", "layernorm > relu"])
def test_real_networks(body: str) -> None:
    """Standard deviation of G₀ at width 60, depth 4: 500 real networks on clusters."""
    x = clusters(200)
    text = TEXT.format(4, body)
    p = fg.predict(text, data=x, width=60, draws=4000)
    seen = fg.measure(fg.Network.parse(text), x, inits=500, width=60, seed=5, probe="output", threads=1).guesses
    assert p.finite_size is not None
    assert isinstance(p.guesses, fg.EmpiricalGuesses)
    room = math.hypot(p.finite_size.next_order, p.guesses.standard_error("std"))
    assert abs(seen.std() - p.guesses.std()) < FAR * math.hypot(seen.standard_error("std"), room)


def test_shift_of_a_pair() -> None:
    """One layer without a norm, by hand: C + B/N and s/N at the overlap of the inputs; 0 for a point and itself."""
    c, n = 0.3, 50
    _, moved, variance = shifts(fg.Network.parse("dense > relu > dense"), n).at(np.arcsin([c, 1.0]))
    x = np.random.default_rng(6).standard_normal((100_000, n, 2))
    b = c * x[:, :, 0] + math.sqrt(1 - c * c) * x[:, :, 1]
    a, b = np.maximum(x[:, :, 0], 0), np.maximum(b, 0)
    found = (a * b).sum(1) / np.sqrt((a * a).sum(1) * (b * b).sum(1))
    wide = (math.sqrt(1 - c * c) + c * (math.pi - math.acos(c))) / math.pi
    error = found.std() / math.sqrt(len(found))
    assert abs(found.mean() - wide - moved[0]) < FAR * error + 5.0 / n**2
    assert abs(found.var() / variance[0] - 1.0) < 0.1  # the next order is a few percent at 50 nodes
    assert abs(moved[1]) < 1e-12 > abs(variance[1])


def test_negative_directions_are_dropped() -> None:
    k = np.array([[1.0, 0.9, -0.9], [0.9, 1.0, 0.9], [-0.9, 0.9, 1.0]])
    found, none = positive(k)
    assert none is None
    assert np.linalg.eigvalsh(found).min() > -1e-12
    assert np.allclose(np.diagonal(found), 1.0)
    same, lower = positive(np.eye(3))
    assert np.array_equal(same, np.eye(3))
    assert lower is not None
    assert np.array_equal(lower[0], np.eye(3))
    assert lower[1] == 0.0


def test_the_factor_that_is_passed_on_is_that_of_the_covariance() -> None:
    net = fg.Network.parse("3 x [dense(weight_var=2) > relu] > dense(weight_var=3)")
    x = np.random.default_rng(0).standard_normal((40, 20)) + 1.0
    found = at_width(net, 100, x, kernel(net, x).covariance)
    assert found.lower is not None
    lower, jitter = found.lower
    assert np.allclose(lower @ lower.T, found.covariance, rtol=1e-12 + jitter)


@pytest.mark.parametrize("classes", [2, 5])
@pytest.mark.parametrize(
    "body",
    [
        "dense(weight_var=2, bias_var=0.1) > gelu",
        "dense(weight_var=2, init=uniform) > relu",
        "dense(weight_var=2) > residual[relu > dense(weight_var=2)] > rmsnorm",
        "dense(weight_var=2) > relu > batchnorm",
        "dense(weight_var=2) > centered(relu)",
    ],
)
def test_sampled_against_real_networks(body: str, classes: int) -> None:
    """What no expansion covers, at width 30, depth 3: 400 real networks on clusters."""
    x = clusters(100)
    net = fg.Network.parse(f"3 x [{body}] > dense(weight_var=2)", classes=classes)
    p = fg.predict(net, data=x, width=30, draws=3000)
    assert p.finite_size is not None
    assert p.finite_size.way == "chain"
    assert isinstance(p.guesses, fg.EmpiricalGuesses)
    seen = fg.measure(net, x, inits=400, width=30, seed=5, probe="output", threads=1).guesses
    for what in ("std", "expected_max"):
        error = math.hypot(seen.standard_error(what), p.guesses.standard_error(what), 2.0 * p.finite_size.error)
        assert abs(getattr(seen, what)() - getattr(p.guesses, what)()) < FAR * error


def test_sampled_and_expanded_agree() -> None:
    """LayerNorm after at width 200, where both hold."""
    x, net = clusters(60), fg.Network.parse(TEXT.format(3, "relu > layernorm"))
    covariance = fg.predict(net, data=x, draws=10).covariance
    assert covariance is not None
    drawn = sampled_on_data(net, 200, x, covariance).size
    formula = expanded_on_data(net, 200, x, covariance).size
    assert abs(drawn.std - formula.std) < FAR * drawn.error + 2.0 * formula.next_order
    assert drawn.infinite == pytest.approx(formula.infinite, abs=1e-12)


def test_refused_by_name() -> None:
    with pytest.raises(NotCovered, match="at most 2000 points"):
        fg.predict(
            "dense > batchnorm > relu > dense", data=np.random.default_rng(1).standard_normal((2001, 3)), width=9
        )
    with pytest.raises(NotCovered, match="gated"):
        fg.predict("dense > gated(relu) > dense", data=clusters(20), width=50)


def test_images_are_refused() -> None:
    x = np.random.default_rng(0).standard_normal((4, 1, 6, 6))
    with pytest.raises(NotCovered, match="convolutions"):
        fg.predict("conv > relu > dense", data=x, width=50)
