"""How long the bias lasts, in closed form, compared with the kernel's descent and a brute-force simulation."""

import numpy as np
import pytest

import firstguess as fg
from firstguess.network.network import Network
from firstguess.theory.training.absorption import flow_times, scalar_tangent, steps_to


@pytest.mark.parametrize("depth", [1, 3])
def test_two_classes_against_the_kernel_of_blobs(depth):
    """Steps to 0.6 of the same 300 starts, within 8 % (and 4.9 standard errors of the ratio, false alarm 1e-6)."""
    n, d, networks = 400, 400, 300
    net = f"{depth} x [dense(weight_var=2) > relu] > dense(weight_var=2)"
    rng = np.random.default_rng(depth)
    x, y = rng.normal(size=(n, d)), np.arange(n) % 2
    covariance = fg.predict(net, data=x, draws=1).covariance
    lower = np.linalg.cholesky(covariance + 1e-9 * np.eye(n))
    start = (lower @ rng.normal(size=(n, 2 * networks))).reshape(n, networks, 2).transpose(1, 0, 2)
    t = scalar_tangent(Network.parse(net), dimension=d)
    rate = 0.1 / t.bias_mode(n)
    steps = range(0, 241, 3)
    seen = fg.predict_training(net, data=(x, y), lr=rate, steps=steps, start=start, trust=False).absorption.draws
    g = start[..., 1] - start[..., 0]
    said = steps_to(0.6, g.mean(axis=1), np.sqrt(2 * (t.q - t.q_ab)), rate * t.bias_mode(n))
    assert np.isfinite(seen).all()
    ratio = said.mean() / seen.mean()
    se = np.std(said - ratio * seen, ddof=1) / np.sqrt(networks) / seen.mean()
    assert se < 0.015
    assert abs(ratio - 1) < 0.08 + 4.9 * se


def simulated(level, mean, spread, points, step, rng):
    """τ until the largest share of these points falls to `level`: their logits m + s·z, moved by their own softmax."""
    z = spread * rng.standard_normal((points, len(mean)))
    classes = len(mean)

    def slope(m):
        p = np.exp(m + z - (m + z).max(axis=1, keepdims=True))
        return 1.0 / classes - (p / p.sum(axis=1, keepdims=True)).mean(axis=0)

    def largest(m):
        return np.bincount((m + z).argmax(axis=1)).max() / points

    m, time, before = np.array(mean), 0.0, largest(np.array(mean))
    while before > level:
        k1 = slope(m)
        k2 = slope(m + step / 2 * k1)
        k3 = slope(m + step / 2 * k2)
        k4 = slope(m + step * k3)
        m = m + step / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        now = largest(m)
        if now <= level:
            return time + step * (before - level) / (before - now)
        before, time = now, time + step
    return 0.0


@pytest.mark.parametrize(
    ("mean", "spread", "level"),
    [([2.0, -1.0, 0.5], 0.8, 0.5), ([1.5, 1.2, -1.0, 0.0, -0.4], 1.1, 0.35), ([4.0, 0.0, 0.0, -3.0], 2.0, 0.4)],
)
def test_many_classes_against_a_brute_force_simulation(mean, spread, level):
    """20 sets of 6 000 points; 7.5 standard errors are a false alarm of 1e-6 by Student's t with 19 degrees."""
    rng = np.random.default_rng(len(mean))
    found = np.array([simulated(level, mean, spread, 6000, 0.2, rng) for _ in range(20)])
    said = float(flow_times(level, np.array([mean]), spread)[0])
    se = found.std(ddof=1) / np.sqrt(len(found))
    assert se < 0.01 * said
    assert abs(found.mean() - said) < 7.5 * se


def test_the_law_of_three_classes_is_that_of_simulated_networks():
    """m₀ is drawn, points' logits are integrated by brute force: how many are done when the closed form says that half,
    three quarters or nine tenths are (4.9 binomial standard errors)."""
    draws, rate = 300, 1e-6
    net = fg.predict("3 x [dense(weight_var=2) > relu] > dense(weight_var=2)", classes=3)
    t = scalar_tangent(net.network, dimension=100)
    said = net.absorption(lr=rate / t.bias_mode(), dimension=100)
    rng = np.random.default_rng(5)
    means = np.sqrt(t.q_ab) * rng.standard_normal((draws, 3))
    times = np.array([simulated(said.level, m, np.sqrt(t.q - t.q_ab), 2000, 0.25, rng) for m in means])
    for share in (0.5, 0.75, 0.9):
        done = np.mean(times <= said.quantile(share) * rate)
        assert abs(done - share) < 4.9 * np.sqrt(share * (1 - share) / draws)
