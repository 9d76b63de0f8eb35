"""Finite width where weights are drawn: laws that are not Gaussian, norms over batches; against real networks."""

from __future__ import annotations

import math

import numpy as np
import pytest

import firstguess as fg
from firstguess.network.weights import draw_weights
from firstguess.theory.finite.monte_carlo import sample_points

FAR = 5.5  # standard errors: 4e-8 a comparison
LAWS = ("normal", "uniform", "rademacher", "laplace", "student(5)", "orthogonal")


@pytest.mark.parametrize("init", LAWS)
@pytest.mark.parametrize("nodes", [7, 30])
def test_variance_and_fourth_moment(init: str, nodes: int) -> None:
    """Var W = weight_var/fan-in, and the fourth moment of the distribution."""
    w = draw_weights(np.random.default_rng(3), init, 2.0, 400, 20, nodes).astype(float) * math.sqrt(20 / 2.0)
    per_network = (w**2).mean(axis=(1, 2))
    error = max(float(per_network.std()) / math.sqrt(400), 1e-6)
    assert abs(per_network.mean() - 1.0) < FAR * error
    fourth = {"normal": 3.0, "uniform": 1.8, "rademacher": 1.0, "laplace": 6.0}.get(init)
    if fourth is not None:
        each = (w**4).mean(axis=(1, 2))
        assert abs(each.mean() - fourth) < FAR * max(float(each.std()) / 20.0, 1e-5)


def test_orthogonal_rows() -> None:
    for fan_in, nodes in ((20, 6), (6, 20)):
        (w,) = draw_weights(np.random.default_rng(1), "orthogonal", 1.0, 1, fan_in, nodes).astype(float)
        gram = w.T @ w if fan_in >= nodes else w @ w.T
        assert np.allclose(gram / gram[0, 0], np.eye(len(gram)), atol=1e-5)
        assert abs(float((w**2).mean()) * fan_in - 1.0) < 1e-5


def real_networks(rng: np.random.Generator, init: str, networks: int, width: int, d: int, n: int) -> np.ndarray:
    """G₀ of plain NumPy networks: 3 ReLU layers, weights of a law, fresh points."""
    found = []
    for _ in range(networks):
        x = rng.standard_normal((n, d))
        for units in (width, width, width):
            x = np.maximum(x @ _weights(rng, init, x.shape[1], units, 2.0), 0.0)
        f = x @ _weights(rng, init, width, 2, 2.0)
        tie = rng.random(n) < 0.5  # dead points
        found.append(float(np.mean((f[:, 0] > f[:, 1]) | ((f[:, 0] == f[:, 1]) & tie))))
    return np.array(found)


def _weights(rng: np.random.Generator, init: str, fan_in: int, units: int, variance: float) -> np.ndarray:
    scale = math.sqrt(variance / fan_in)
    if init == "rademacher":
        return scale * rng.choice([-1.0, 1.0], (fan_in, units))
    return scale * math.sqrt(3.0) * rng.uniform(-1.0, 1.0, (fan_in, units))


@pytest.mark.parametrize("init", ["uniform", "rademacher"])
def test_narrow_networks(init: str) -> None:
    """Width 12, where the distribution of the weights shows: by its variance, 3000 networks."""
    text = f"3 x [dense(weight_var=2, init={init}) > relu] > dense(weight_var=2, init={init})"
    few = sample_points(fg.Network.parse(text), fg.Inputs(dimension=8), 12, networks=1500)
    g = real_networks(np.random.default_rng(9), init, 3000, 12, 8, 200)
    square = (g - 0.5) ** 2
    predicted = 0.25 / 200 + (1 - 1 / 200) * few.excess / 2
    error = math.hypot(square.std() / math.sqrt(len(g)), few.excess_error / 2)
    assert abs(square.mean() - predicted) < FAR * error


def test_gaussian_by_weights_and_by_nodes() -> None:
    """More points than nodes: weights are drawn; few: nodes from their covariance. The same overlaps."""
    net = fg.Network.parse("2 x [dense(weight_var=2) > relu] > dense")
    one = sample_points(net, fg.Inputs(dimension=5), 8, networks=1500)  # 16 points of 5 and 8 nodes: weights
    two = sample_points(net, fg.Inputs(dimension=17), 17, networks=1500)  # nodes
    for few, d, width in ((one, 5, 8), (two, 17, 17)):
        rng = np.random.default_rng(2)
        x = rng.standard_normal((4000, 2, d))
        for units in (width, width):
            w = rng.standard_normal((4000, x.shape[2], units)) * math.sqrt(2 / x.shape[2])
            x = np.maximum(x @ w, 0.0)
        norms = np.linalg.norm(x, axis=2).prod(axis=1)
        c = np.einsum("ri,ri->r", x[:, 0], x[:, 1]) / np.where(norms > 0.0, norms, 1.0)  # 0 with a dead point
        assert abs(few.overlap - c.mean()) < FAR * math.hypot(few.overlap_error, c.std() / math.sqrt(len(c)))


@pytest.mark.parametrize(
    "body", ["relu > batchnorm", "batchnorm > relu", "batchnorm(batch=25) > gelu", "batchcenter > relu"]
)
@pytest.mark.parametrize("classes", [2, 5])
def test_batches(body: str, classes: int) -> None:
    """Guesses of a batch of 100 points at width 20, depth 3: 500 real networks, fresh points in every one."""
    net = fg.Network.parse(f"3 x [dense(weight_var=2) > {body}] > dense(weight_var=2)", classes=classes)
    p = fg.predict(net, width=20, inputs=fg.Inputs(dimension=30), points=100)
    assert isinstance(p.guesses, fg.EmpiricalGuesses)
    assert p.guesses.points == 100
    rng = np.random.default_rng(4)
    shares = np.concatenate(
        [
            fg.measure(
                net, rng.standard_normal((100, 30)), inits=5, width=20, seed=i, probe="output", threads=1
            ).guesses.fractions
            for i in range(100)
        ]
    )
    square = ((shares - 1 / classes) ** 2).mean(axis=1)
    largest = shares.max(axis=1)
    own = p.guesses
    for seen, predicted, room in (
        (square, own.std() ** 2, 2 * own.std() * own.standard_error("std")),
        (largest, own.expected_max(), own.standard_error("expected_max")),
    ):
        # 64 output layers of one drawn network are not independent: three times what the bootstrap says
        assert abs(seen.mean() - predicted) < FAR * math.hypot(seen.std() / math.sqrt(len(seen)), 3.0 * room)


def test_centred_batch_is_more_even_than_chance() -> None:
    """One layer and BatchNorm after it, wide: exact centring leaves (¼ − 1/2π)/n (theory.md (44))."""
    p = fg.predict("dense > tanh > batchnorm > dense", width=200, inputs=fg.Inputs(dimension=200), points=50)
    want = (0.25 - 1 / (2 * math.pi)) / 50
    assert isinstance(p.guesses, fg.EmpiricalGuesses)
    assert abs(p.guesses.var() / want - 1.0) < 0.08  # v/n of the overlaps is the next order; chance alone is 2.75 times


def test_batch_that_nobody_named() -> None:
    p = fg.predict("dense > batchnorm > relu > dense", width=10, inputs=fg.Inputs(dimension=10))
    assert p.guesses.points == 256
    assert any("batch of 256 points" in said for said in p.assumptions)
    by_batches = fg.predict("dense > batchnorm(batch=100) > relu > dense", width=10, inputs=fg.Inputs(dimension=10))
    assert by_batches.guesses.points == 200


@pytest.mark.parametrize("body", ["groupnorm(groups=4) > relu", "relu > maxpool(2)", "tanh > avgpool(4)"])
def test_groups_and_pools(body: str) -> None:
    """Overlaps at width 16: 1500 plain NumPy networks of one pair each."""
    few = sample_points(fg.Network.parse(f"dense > {body} > dense"), fg.Inputs(dimension=12), 16, networks=1500)
    rng = np.random.default_rng(6)
    x = rng.standard_normal((6000, 2, 12))
    x = x @ (rng.standard_normal((6000, 12, 16)) / math.sqrt(12))
    if body.startswith("groupnorm"):
        groups = x.reshape(6000, 2, 4, 4)
        groups = groups - groups.mean(3, keepdims=True)
        x = np.maximum((groups / np.sqrt((groups**2).mean(3, keepdims=True))).reshape(6000, 2, 16), 0.0)
    elif "maxpool" in body:
        x = np.maximum(x, 0.0).reshape(6000, 2, 8, 2).max(3)
    else:
        x = np.tanh(x).reshape(6000, 2, 4, 4).mean(3)
    c = np.einsum("ri,ri->r", x[:, 0], x[:, 1]) / np.sqrt(np.einsum("rai,rai->ra", x, x).prod(1))
    assert abs(few.overlap - c.mean()) < FAR * math.hypot(few.overlap_error, c.std() / math.sqrt(6000))
