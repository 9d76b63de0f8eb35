"""Nodes divided by their own scale over the data: limits on paper, another quadrature, and simulation.

Against draws every entry has to be within 6.5 standard errors (Student's t with 399 degrees: 2·10⁻¹⁰ for one of at most
930 numbers, 2·10⁻⁷ for a test).
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import integrate

from firstguess.base import gaussian as node_scale
from firstguess.base.gaussian import Array, self_normalized, through_leaky
from firstguess.network.network import Network
from firstguess.theory.kernel.propagation import kernel

N, GROUPS, Z = 30, 400, 6.5


def root(power: float) -> Array:
    """Of a covariance whose directions fall off as a power."""
    return np.random.default_rng(20261116).normal(size=(N, N)) * np.arange(1.0, N + 1.0) ** -power


def against_draws(found: Array, draws: Array, plain: Array) -> None:
    error = draws.std(axis=0, ddof=1) / math.sqrt(GROUPS)
    assert np.all(np.abs(draws.mean(axis=0) - found) <= Z * error + 1e-12)
    assert np.max(np.abs(plain - found) / error) > 20.0  # what a common scale would have ignored


def nodes(r: Array, rng: np.random.Generator) -> Array:
    y = r @ rng.normal(size=(N, 250))
    return y / np.sqrt(np.mean(y * y, axis=0))


@pytest.mark.parametrize("power", [1.0, 0.6])
def test_against_draws(power: float) -> None:
    r, rng = root(power), np.random.default_rng(1)
    draws = np.array([y @ y.T / 250 for y in (nodes(r, rng) for _ in range(GROUPS))])
    against_draws(self_normalized(r @ r.T), draws, r @ r.T / (np.trace(r @ r.T) / N))


@pytest.mark.parametrize("slopes", [(0.0, 1.0), (0.3, 1.0), (-1.0, 1.0), (2.0, -0.5)])
def test_rays_against_draws(slopes: tuple[float, float]) -> None:
    left, right = slopes
    r, rng = root(1.0), np.random.default_rng(2)
    k, mean = through_leaky(r @ r.T, left, right)
    products, means = [], []
    for _ in range(GROUPS):
        y = nodes(r, rng)
        y = np.where(y > 0.0, right * y, left * y)
        products.append(y @ y.T / 250)
        means.append(y.mean(axis=1))
    q = np.diagonal(r @ r.T) / (np.trace(r @ r.T) / N)
    c = (r @ r.T) / (np.trace(r @ r.T) / N) / np.sqrt(np.outer(q, q))
    a2, b2 = (0.5 * (left + right)) ** 2, (0.5 * (left - right)) ** 2 * 2.0 / math.pi
    plain = np.sqrt(np.outer(q, q)) * (
        a2 * c + b2 * (np.sqrt(np.maximum(1.0 - c * c, 0.0)) + c * np.arcsin(c.clip(-1, 1)))
    )
    against_draws(k, np.array(products), plain)
    against_draws(mean, np.array(means), (right - left) / math.sqrt(2.0 * math.pi) * np.sqrt(q))


def test_rays_of_two_directions_against_another_quadrature() -> None:
    """y = (√λ₁ cos θ, √λ₂ sin θ)·radius: scale drops out, and one integral over θ is left."""
    lambda_1, lambda_2 = 3.0, 0.2
    turn = np.array([[0.8, -0.6], [0.6, 0.8]])

    def at(theta: float) -> Array:
        y = turn @ np.array([math.sqrt(lambda_1) * math.cos(theta), math.sqrt(lambda_2) * math.sin(theta)])
        y *= math.sqrt(2.0) / np.linalg.norm(y)
        return np.maximum(y, 0.1 * y)

    kinks = [math.atan2(-turn[i, 0] * math.sqrt(lambda_1), turn[i, 1] * math.sqrt(lambda_2)) for i in (0, 1)]
    ends = sorted((k + shift * math.pi) % (2.0 * math.pi) for k in kinks for shift in (0, 1))
    want, level = np.zeros((2, 2)), np.zeros(2)
    for low, high in zip([0.0, *ends], [*ends, 2.0 * math.pi], strict=True):
        for i in range(2):
            level[i] += integrate.quad(lambda x, i=i: at(x)[i], low, high, epsabs=1e-13)[0] / (2.0 * math.pi)
            for j in range(2):
                part = integrate.quad(lambda x, i=i, j=j: at(x)[i] * at(x)[j], low, high, epsabs=1e-13)[0]
                want[i, j] += part / (2.0 * math.pi)
    k, mean = through_leaky(turn @ np.diag([lambda_1, lambda_2]) @ turn.T, 0.1, 1.0)
    assert np.allclose(k, want, rtol=0, atol=1e-9)
    assert np.allclose(mean, level, rtol=0, atol=2e-8)


def test_rays_where_all_directions_are_alike() -> None:
    """Scale and direction are independent: E φφ is that of a common scale, E φ(y_a)/|y| = E φ(y_a)/E|y|."""
    n = 50
    k, mean = through_leaky(np.eye(n), 0.0, 1.0)
    assert np.allclose(k.diagonal(), 0.5)
    assert np.allclose(k[np.triu_indices(n, 1)], 1.0 / (2.0 * math.pi))
    length = math.sqrt(2.0) * math.exp(math.lgamma((n + 1) / 2) - math.lgamma(n / 2))
    assert np.allclose(mean, math.sqrt(n) / math.sqrt(2.0 * math.pi) / length, rtol=1e-7)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_leading_directions_are_enough_for_many_points(
    dtype: type[np.floating], monkeypatch: pytest.MonkeyPatch
) -> None:
    x = np.random.default_rng(20261115).normal(size=(500, 400)) * np.arange(1, 401) ** -0.7
    x -= x.mean(axis=0)
    c: Array = (x @ x.T).astype(dtype)
    few, (leaky_slopes, mean) = self_normalized(c.copy()), through_leaky(c.copy(), 0.0, 1.0)
    monkeypatch.setattr(node_scale, "_ALL", 10_000)
    every, (all_rays, all_means) = self_normalized(c.copy()), through_leaky(c.copy(), 0.0, 1.0)
    assert np.abs(few - every).max() <= 1e-4 * every.diagonal().max()
    assert np.abs(leaky_slopes - all_rays).max() <= 1e-4 * all_rays.diagonal().max()
    assert np.allclose(mean, all_means, rtol=1e-4)


def test_deep_networks_on_few_directions() -> None:
    """Against layers of finite width would add 1/width: against the sampled nodes of the same reading instead."""
    x = np.random.default_rng(3).normal(size=(60, 20)) * np.arange(1.0, 21.0) ** -1.0
    deep = "{} x [dense(weight_var=2) > batchnorm > relu{}] > dense"
    exact = kernel(Network.parse(deep.format(3, "")), x)
    assert exact.error == 0.0
    sampled = kernel(Network.parse(deep.format(3, " > scale(1)")), x)  # a stretch of three layers is sampled
    assert sampled.error > 0.0
    size = exact.covariance.diagonal().mean()
    assert np.sqrt(np.mean((exact.covariance - sampled.covariance) ** 2)) < 5.6 * math.sqrt(3.0) * sampled.error * size


def test_two_points_repeated_keep_their_law_at_every_depth() -> None:
    """n₁ points at +a and n₂ at −b: a node is ±(√(n₂/n₁), −√(n₁/n₂)), so |·| leaves the same two rows in each layer."""
    x = np.repeat(np.array([[1.0, 0.0, 2.0], [0.5, -1.0, 0.3]]), [50, 30], axis=0)
    found = kernel(Network.parse("6 x [dense(weight_var=2) > batchnorm > abs] > dense(weight_var=2)"), x)
    a, b = math.sqrt(30 / 50), math.sqrt(50 / 30)
    want = 2.0 * np.outer(row := np.repeat([a, b], [50, 30]), row)
    assert np.allclose(found.covariance, want, rtol=1e-9)
    assert "1 effective direction," in found.remarks[0]


def test_data_of_one_dimension() -> None:
    """One direction: a node is ± the standardized data, whatever the depth; ReLU keeps either its positive part or its
    negative one."""
    x = np.random.default_rng(4).normal(size=(80, 1))
    z = (x[:, 0] - x.mean()) / x.std()
    found = kernel(Network.parse("dense > batchnorm > dense > batchnorm > relu > dense"), x)
    up, down = np.maximum(z, 0.0), np.maximum(-z, 0.0)
    assert np.allclose(found.covariance, 0.5 * (np.outer(up, up) + np.outer(down, down)), rtol=0, atol=1e-9)
