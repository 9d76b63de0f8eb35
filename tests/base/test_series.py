"""Chains of layers that act on correlations alone: one series must be what the layers are one after the other."""

from __future__ import annotations

import mpmath as mp
import numpy as np
import pytest
from threadpoolctl import threadpool_info

import firstguess as fg
from firstguess.base.gaussian import Array
from firstguess.base.numerics import Chain, chain
from firstguess.base.threads import in_threads
from firstguess.network.network import Network
from firstguess.theory.kernel import tiles as kernel_runs
from firstguess.theory.kernel.propagation import kernel

EPS = float(np.finfo(np.float64).eps)

CHAINED = [
    "20 x [dense(weight_var=2) > relu] > dense",
    "3 x [dense(weight_var=0.5) > leaky_relu(0.2)] > dense(weight_var=3)",
    "4 x [dense > abs] > dense",
    "5 x [dense > layernorm > relu] > dense",
    "5 x [dense > relu > layernorm] > dense",
    "4 x [dense(weight_var=2) > relu > rmsnorm > scale(0.5)] > dense",
    "dense > 6 x [residual [dense(weight_var=2) > relu > dense]] > dense > relu",
    "dense > 3 x [residual(scale=-0.4) [relu > dense(weight_var=2) | dense(weight_var=3)]] > dense > relu",
    "dense > relu > dense > relu > dense > tanh > dense > relu > dense > relu > dense",
]
PLAIN = [
    "4 x [dense(weight_var=2, bias_var=0.1) > relu] > dense",
    "4 x [dense > tanh] > dense",
    "dense > relu > dense",
]


def relu(c: Array) -> Array:
    return (np.sqrt((1.0 - c) * (1.0 + c)) + c * (np.pi - np.arccos(c))) / np.pi


def data() -> Array:
    """Points of different sizes over tile borders, two of them equal, two opposite."""
    rng = np.random.default_rng(20261116)
    x = rng.normal(size=(300, 20)) * rng.uniform(0.5, 2.0, (300, 1))
    x[7], x[280] = 2.0 * x[3], -x[5]
    return x


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[Chain | None]:
    """The chains that were made."""
    made: list[Chain | None] = []

    def spy(*args: object) -> Chain | None:
        made.append(chain(*args))  # pyright: ignore[reportArgumentType]
        return made[-1]

    monkeypatch.setattr(kernel_runs, "chain", spy)
    return made


@pytest.mark.parametrize("depth", [1, 2, 5, 20, 100])
def test_a_series_is_its_layers(depth: int) -> None:
    """Against 40 digits: (sin θ + (π − θ) cos θ)/π, over and over."""
    series = chain([relu] * depth, 20.0 * EPS)
    assert series is not None
    grid = np.concatenate([np.linspace(-1.0, 1.0, 41), 1.0 - 10.0 ** -np.arange(3.0, 16.0, 3.0)])
    want = np.empty((grid.size, depth))
    with mp.workdps(40):
        for row, value in enumerate(grid):
            c = mp.mpf(float(value))
            for layer in range(depth):
                theta = mp.acos(c)
                c = (mp.sin(theta) + (mp.pi - theta) * mp.cos(theta)) / mp.pi
                want[row, layer] = float(c)
    got = grid[None, :].copy()
    weights = np.random.default_rng(20261116).uniform(size=grid.size)
    sums = series(got, np.array([1.5]), weights)
    assert np.abs(got[0] - want[:, -1]).max() < 5e-14
    assert np.allclose(sums, 1.5 * weights @ want, rtol=1e-13)


@pytest.mark.parametrize("text", CHAINED)
def test_chained_and_layer_by_layer(text: str, built: list[Chain | None], monkeypatch: pytest.MonkeyPatch) -> None:
    net, x = Network.parse(text), data()
    together = kernel(net, x)
    assert any(built)
    monkeypatch.setattr(kernel_runs, "chain", lambda *_: None)
    apart = kernel(net, x)
    scale = np.sqrt(np.outer(apart.covariance.diagonal(), apart.covariance.diagonal()))
    # layers amplify what rounding left of 1 − c ~ 1e-16: a LayerNorm behind ReLU does, the others shrink it
    assert np.abs((together.covariance - apart.covariance) / scale).max() < 2e-12
    for a, b in zip(together.layers, apart.layers, strict=True):
        assert (a.layer, a.weights, a.q) == (b.layer, b.weights, b.q)
        assert a.q_ab == pytest.approx(b.q_ab, rel=1e-11, abs=1e-12 * b.q)
    assert np.array_equal(together.covariance, together.covariance.T)


@pytest.mark.parametrize("together", [True, False])
def test_a_branch_counts_with_the_square_of_its_scale(
    together: bool, built: list[Chain | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """On paper: q and the covariance of two points grow by scale² times those of relu, at weight variance 2."""
    if not together:
        monkeypatch.setattr(kernel_runs, "chain", lambda *_: None)
    cosines = np.linspace(-0.9, 0.9, 7)
    x = np.stack([np.append(1.0, cosines), np.append(0.0, np.sqrt(1.0 - cosines**2))], axis=1)
    found = kernel(Network.parse("dense > 5 x [residual(scale=0.3) [relu > dense(weight_var=2)]] > dense"), x)
    assert any(built) == together
    c = cosines
    for _ in range(5):
        c = (c + 0.09 * relu(c)) / 1.09
    assert found.covariance[0] == pytest.approx(0.5 * 1.09**5 * np.append(1.0, c), rel=1e-12)


@pytest.mark.parametrize("text", PLAIN)
def test_what_is_not_a_chain(text: str, built: list[Chain | None]) -> None:
    """Biases, curved activations; and one activation alone, which is faster as it is."""
    kernel(Network.parse(text), data())
    assert not built


def test_the_tangent_kernel_goes_layer_by_layer(built: list[Chain | None]) -> None:
    net, x = Network.parse(CHAINED[0]), data()
    apart = kernel(net, x, tangent=True)
    assert not built
    assert np.allclose(kernel(net, x).covariance, apart.covariance, rtol=0, atol=1e-12 * apart.covariance.max())


def test_max_pools_look_behind_activations(built: list[Chain | None], monkeypatch: pytest.MonkeyPatch) -> None:
    net, x = Network.parse("3 x [dense(weight_var=2) > relu] > maxpool(4) > dense"), data()
    together = kernel(net, x)
    assert any(built)
    monkeypatch.setattr(kernel_runs, "chain", lambda *_: None)
    assert np.allclose(together.covariance, kernel(net, x).covariance, rtol=1e-12)


def test_a_chaotic_chain_is_left_alone(built: list[Chain | None]) -> None:
    """60 layers of ReLU and LayerNorm turn any two points apart so often that no short series follows."""
    found = kernel(Network.parse("60 x [dense > relu > layernorm] > dense"), data()[:5, :])
    assert built == [None]
    assert np.allclose(found.covariance.diagonal(), 1.0)


def test_float32_chains(built: list[Chain | None]) -> None:
    """The stated error of float32: 1e-6 of the diagonal."""
    net, x = fg.mlp(depth=20), data()
    double, single = (kernel(net, x, dtype=t) for t in (np.float64, np.float32))
    assert all(built)
    assert np.abs(double.covariance - single.covariance).max() <= 1e-6 * double.covariance.diagonal().max()
    assert single.layers[-1].q_ab == pytest.approx(double.layers[-1].q_ab, rel=1e-6)


def test_jobs_on_all_cores() -> None:
    before = [library["num_threads"] for library in threadpool_info()]
    seen: list[int] = []
    in_threads(seen.append, 10)
    assert sorted(seen) == list(range(10))

    def fail(index: int) -> None:
        if index == 3:
            raise ValueError("three")

    with pytest.raises(ValueError, match="three"):
        in_threads(fail, 5)
    in_threads(fail, 0)
    assert [library["num_threads"] for library in threadpool_info()] == before
