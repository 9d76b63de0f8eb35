"""Layers by sampled nodes: exact laws where there are some, direct simulation, and real networks with batches.

Random checks allow 5.6 standard errors, 2·10⁻⁸ for one Gaussian number, of the error that the result states (a layer);
each test compares fewer than 50 numbers, so its false-alarm rate is below 10⁻⁶. No seed was picked.

A covariance stands for one such number: the stated error is the root mean square over its entries, and so is the
distance that `apart` gives. With Gaussian errors its square, by the expected one, is Σ λ χ²(1)/Σ λ, where λ are the
eigenvalues of the errors' covariance: beyond Z² this is likeliest where there is one λ (Székely and Bakirov 2003), so
at most 2·10⁻⁸.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

import firstguess as fg
from firstguess.base.errors import NotCovered
from firstguess.network.layers import Activate, MaxPool
from firstguess.network.network import Network
from firstguess.network.points import Points, Remark, Tile
from firstguess.network.pooling import max_moments
from firstguess.network.shapes import Shape
from firstguess.theory.kernel.monte_carlo import by_sampled_units
from firstguess.theory.kernel.propagation import Folding, image_kernel, kernel
from firstguess.theory.kernel.tiles import Budget, Pending, Stored

Z = 5.6


def gamma_of_batches(b: int) -> float:
    """theory.md (5)."""
    a2 = (b - 1) / (4 * math.pi) * math.exp(2 * (math.lgamma((b - 1) / 2) - math.lgamma(b / 2)))
    return a2 / (0.5 - a2)


def orthogonal(n: int) -> Any:
    return np.eye(n) * math.sqrt(n)  # independent points without their random overlaps


def apart(found: Any, expected: Any) -> float:
    """The root mean square over entries of the difference."""
    return math.sqrt(float(np.mean((found - expected) ** 2)))


@pytest.mark.parametrize("depth", [1, 5])
@pytest.mark.parametrize("batch", [2, 4, 16])
def test_relu_behind_batches_has_its_exact_drift_at_every_depth(batch: int, depth: int) -> None:
    """Points of different batches are independent; c = γ/(1 + γ), to the error of a covariance in each layer."""
    n = 96
    net = Network.parse(f"{depth} x [dense(weight_var=2) > batchnorm(batch={batch}) > relu] > dense(weight_var=2)")
    found = kernel(net, orthogonal(n))
    of = np.arange(n) // batch
    apart = of[:, None] != of[None, :]
    exact = gamma_of_batches(batch) / (1 + gamma_of_batches(batch))
    q = found.covariance.diagonal().mean()
    assert 1e-4 < found.error < 0.01
    # the mean over entries is closer than one entry; errors of the diagonal and of layers before add
    assert found.covariance[apart].mean() / q == pytest.approx(exact, abs=Z * found.error * math.sqrt(depth))
    assert "sampled nodes" in found.remarks[0]


def test_large_batches_are_the_whole_data() -> None:
    whole = kernel(Network.parse("dense > batchnorm > tanh > dense"), orthogonal(60))
    one = kernel(Network.parse("dense > batchnorm(batch=60) > tanh > dense"), orthogonal(60))
    np.testing.assert_allclose(one.covariance, whole.covariance, rtol=1e-6, atol=1e-8)


def test_leave_one_out_is_the_closed_form() -> None:
    text = "dense > batchnorm(batch=16, estimator=leave_one_out) > tanh > dense(weight_var=2, bias_var=0.1)"
    relu = text.replace("tanh", "relu")
    for one in (text, relu):
        found = kernel(Network.parse(one), orthogonal(96))
        of = np.arange(96) // 16
        c = found.covariance[of[:, None] != of[None, :]].mean() / found.covariance.diagonal().mean()
        assert c == pytest.approx(fg.predict(one).correlation[-1], abs=Z * found.error)


SIMULATED = {
    "before": ("batchnorm > {phi}", None),
    "after": ("{phi} > batchnorm", None),
    "in batches": ("batchnorm(batch=5) > {phi}", 5),
    "after, in batches": ("{phi} > batchnorm(batch=5)", 5),
}


@pytest.mark.parametrize("phi", ["relu", "tanh"])
@pytest.mark.parametrize("name", SIMULATED)
def test_few_directions_against_direct_simulation(name: str, phi: str) -> None:
    """12 points with two strong directions: entries from 200 000 nodes written out, in 200 groups for their errors."""
    text, batch = SIMULATED[name]
    rng = np.random.default_rng(20261116)
    x = rng.normal(size=(12, 20)) * np.array([4.0, 3.0, *[0.4] * 18])
    found = kernel(Network.parse(f"dense > {text.format(phi=phi)} > dense"), x)
    size = batch or 12
    act = {"relu": lambda u: np.maximum(u, 0.0), "tanh": np.tanh}[phi]

    def norm(y: Any) -> Any:
        out = np.empty_like(y)
        for start in range(0, 12, size):
            d = y[start : start + size] - y[start : start + size].mean(axis=0)
            s = np.sqrt(np.mean(d * d, axis=0))
            out[start : start + size] = np.where(s > 0, d / np.where(s > 0, s, 1.0), 0.0)
        return out

    groups = []
    for _ in range(200):
        u = x @ rng.normal(size=(20, 1000)) / math.sqrt(20)
        y = act(norm(u)) if name.startswith(("before", "in")) else norm(act(u))
        groups.append(y @ y.T / 1000)
    draws = np.array(groups)
    q = found.covariance.diagonal().mean()
    error = math.hypot(math.sqrt(draws.var(axis=0, ddof=1).mean() / 200), found.error * q)
    assert apart(found.covariance, draws.mean(axis=0)) < Z * error
    assert found.error < 0.01


@pytest.mark.parametrize("front", ["dense", "conv(kernel=1) > dense"])
@pytest.mark.parametrize(("slope", "batch"), [(0.0, None), (0.2, None), (0.0, 10)])
def test_max_pools_of_nodes_behind_few_directions_against_direct_simulation(
    front: str, slope: float, batch: int | None
) -> None:
    """40 points, 8 directions, and the largest of 4 nodes: 200 000 pools written out, in 200 groups.

    Twins of sampled nodes see through the activation, to the nodes of which the largest is taken.
    """
    rng = np.random.default_rng(20261116)
    x = rng.normal(size=(40, 8))
    images = front.startswith("conv")
    phi = "relu" if slope == 0.0 else f"leaky_relu(slope={slope})"
    norm = "batchnorm" if batch is None else f"batchnorm(batch={batch})"
    net = Network.parse(f"{front} > {norm} > {phi} > maxpool(4) > dense")
    found = image_kernel(net, x.reshape(40, 8, 1, 1)) if images else kernel(net, x)
    groups = []
    for _ in range(200):
        u = (x @ rng.normal(size=(8, 4000)) / math.sqrt(8)).reshape(-1, batch or 40, 4000)
        u -= u.mean(axis=1, keepdims=True)
        u /= np.sqrt(np.mean(u * u, axis=1, keepdims=True))
        u = u.reshape(40, 4000)
        y = np.maximum(u, slope * u).reshape(40, 1000, 4).max(axis=2)
        groups.append(y @ y.T / 1000)
    draws = np.array(groups)
    q = found.covariance.diagonal().mean()
    error = math.hypot(math.sqrt(draws.var(axis=0, ddof=1).mean() / 200), found.error * q)
    assert apart(found.covariance, draws.mean(axis=0)) < Z * error
    assert found.error < 0.005  # with twins


def test_the_stated_error_is_the_spread_over_seeds() -> None:
    """40 samples of nodes: the variance of an entry, on average over all of them, is the square of the stated error.

    Entries are means over 1024 pairs of nodes, so Gaussian; the sum of their sample variances is Σ λ χ²(39)/39, with λ
    as above: nearly a multiple of χ² with 39·(Σ λ)²/Σ λ² degrees of freedom (Satterthwaite; about 39·73). Two smaller
    errors add to its relative variance, 2/degrees: the stated one is that of 256 entries drawn from all, and a mean of
    40 estimates. The band is for 10⁻⁷: that (Σ λ)²/Σ λ² is itself estimated, to 10 %, does not make it 10⁻⁶.
    """
    rng = np.random.default_rng(20261116)
    x = rng.normal(size=(25, 10))
    layers = Network.parse("batchnorm(batch=5) > tanh > dense").layers[:2]
    k = x @ x.T / 10
    points = Points(k.diagonal().copy(), np.zeros(25), True, Shape(10), 10)
    entries, stated = [], []
    for seed in range(40):
        found = by_sampled_units(layers, points, k.copy(), None, Budget(25), seed=seed, nodes=2048)
        assert found is not None
        entries.append(found.k.ravel())
        remark = found.remarks[0]
        assert isinstance(remark, Remark)
        stated.append((remark.size * found.k.diagonal().mean()) ** 2)
    spread = np.var(entries, axis=0, ddof=1)
    centred = np.array(entries) - np.mean(entries, axis=0)
    gram = centred @ centred.T / 39  # its trace is Σ λ without bias; Σ λ² as for any Wishart matrix:
    squares = 39**2 / (41 * 38) * (np.vdot(gram, gram) - np.trace(gram) ** 2 / 39)
    relative = 2 * squares / (39 * np.trace(gram) ** 2)
    relative += spread.var() / (256 * spread.mean() ** 2) + np.var(stated, ddof=1) / (40 * np.mean(stated) ** 2)
    low, high = stats.chi2.ppf([5e-8, 1 - 5e-8], 2 / relative) * relative / 2
    assert low < spread.mean() / np.mean(stated) < high
    assert 0.75 < low < high < 1.3  # so an error that is wrong by a sixth is found


def test_many_directions_need_no_nodes() -> None:
    found = kernel(Network.parse("dense > batchnorm > relu > dense"), orthogonal(600))
    assert found.error == 0.0
    assert not any("sampled" in r for r in found.remarks)


@pytest.mark.parametrize(
    "body", ["batchnorm(batch=8) > relu", "tanh > batchnorm(batch=8)", "batchnorm(batch=8) > gelu"]
)
def test_real_networks_in_batches_agree(body: str) -> None:
    """Width 400, 200 initializations: γ of the output by its standard error, and 3·(1 + γ)²/400 for finite width."""
    net = Network.parse(f"2 x [dense(weight_var=2) > {body}] > dense(weight_var=2)", classes=2)
    x = fg.data.load("digits", points=64)
    p = fg.predict(net, data=x, draws=4000)
    m = fg.measure(Network.parse(str(net).replace("(batch=8)", "")), x, inits=200, width=400, seed=3, batch_size=8)
    room = 3 * (1 + p.gamma[-1]) ** 2 / 400
    assert abs(p.gamma[-1] - m.gamma[-1]) < Z * m.gamma_se[-1] + room
    for what, predicted, seen in (
        ("std", p.guesses.std(), m.guesses.std()),
        ("expected_max", p.guesses.expected_max(), m.guesses.expected_max()),
    ):
        error = math.hypot(m.guesses.standard_error(what), p.guesses.standard_error(what))  # type: ignore[arg-type]
        assert abs(predicted - seen) < Z * error + 3 * 0.25 / 400


def test_max_pools_over_independent_positions_are_those_over_nodes() -> None:
    """Orthogonal pixels: the largest of 4 positions is the largest of 4 independent nodes (theory.md (9))."""
    n, channels = 6, 24
    x = (np.eye(24) * math.sqrt(24)).reshape(n, 4, channels).transpose(0, 2, 1).reshape(n, channels, 2, 2)
    found = image_kernel(fg.Network.parse("conv(kernel=1) > relu > maxpool(4) > dense"), x)
    relu = fg.activation("relu")
    alone = max_moments(relu, 4, 0.0, 1.0)
    square = alone.mean**2 + alone.spread
    expected = np.where(np.eye(n, dtype=bool), square, alone.mean**2)
    assert apart(found.covariance, expected) < Z * found.error * square
    assert MaxPool(4).kind in found.remarks[0]


@pytest.mark.parametrize("pool", ["maxpool(4)", "maxpool(9, stride=2, padding=1)"])
def test_max_pools_over_positions_agree_with_real_networks(pool: str) -> None:
    text = f"conv(weight_var=2, padding=1) > relu > {pool} > conv(weight_var=2) > batchnorm > relu > dense"
    data = fg.data.load("digits", points=12)
    p = fg.predict(text, data=data, draws=4000)
    m = fg.measure(fg.Network.parse(text), data, inits=150, width=256)
    for predicted, seen, error in zip(p.gamma, m.gamma, m.gamma_se, strict=True):
        assert abs(predicted - seen) < Z * error + 3 * predicted * (1 + predicted) / 256
    with pytest.raises(NotCovered, match="no tangent kernel"):
        fg.predict(text, data=data, tangent=True)


def test_a_max_pool_that_cannot_look_behind_the_activation_says_so() -> None:
    """It never takes an activation's output for its input: theory.md (9) is about the nodes in front."""
    with pytest.raises(NotCovered, match=r"relu before a block that mixes points, at branch layer 1"):
        kernel(Network.parse("dense > relu > residual[maxpool(2) > dense > batchnorm] > dense"), orthogonal(12))
    ones, everything = np.ones(3), slice(0, 3)
    relu = fg.activation("relu")
    points = Points(ones, 0.0 * ones, True, Shape(10), 10)
    fold = Folding(Pending(Stored(np.eye(3), None, points), points), Budget(3))
    activated = Activate(relu).covariance(points, fold).after
    step = MaxPool(2).covariance(activated, fold).step
    with pytest.raises(NotCovered, match="the covariance before the activation"):
        step(Tile(np.eye(3), None, everything, everything))
