"""The exact reductions leave the distribution of everything unchanged.

Each test compares two ensembles, with and without a reduction, of other random numbers. Two-sample Kolmogorov–Smirnov
at p < 1e-7 and differences of means at 5.5 standard errors (4e-8): with fewer than 25 looks a case, a false alarm in
less than 1 of 10⁶ runs of a case.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import stats as scipy_stats

from firstguess.ensemble.engine import DescriptionEngine
from firstguess.ensemble.member_statistics import BETWEEN, MEAN, SPREAD
from firstguess.ensemble.program import conditional, conditional_pays, factor
from firstguess.network.builders import mlp
from firstguess.network.network import Network
from firstguess.network.tensors import Weights

INITS = 800


def points(n: int, d: int) -> np.ndarray:
    """Not i.i.d. on purpose: a common part, unequal lengths, two points that almost coincide."""
    rng = np.random.default_rng(2)
    x = rng.standard_normal((n, d)) * rng.uniform(0.5, 2.0, (n, 1)) + 0.5
    x[1] = x[0] + 1e-3 * x[1]
    return x.astype(np.float32)


def same_law(network: Network, x: np.ndarray, width: int, note: str) -> None:
    reduced = DescriptionEngine(network, x, width=width)
    direct = DescriptionEngine(network, x, width=width, reduce=False)
    assert note in " ".join(reduced.notes)
    assert direct.notes == ()
    # members far apart: draws of one kind must not meet those of the other
    a, b = reduced.run(0, INITS), direct.run(1_000_000, 1_000_000 + INITS)
    looks = 0

    def compare(u: np.ndarray, v: np.ndarray, what: str) -> None:
        nonlocal looks
        looks += 1
        assert scipy_stats.ks_2samp(u, v, method="asymp").pvalue > 1e-7, what
        error = math.sqrt((u.var() + v.var()) / INITS)
        assert abs(u.mean() - v.mean()) <= 5.5 * error + 1e-9 * abs(u.mean()), what

    compare(a.fractions[:, 0], b.fractions[:, 0], "G0")
    compare((a.fractions[:, 0] - 0.5) ** 2, (b.fractions[:, 0] - 0.5) ** 2, "Var G0")
    weighty = [i for i, layer in enumerate(reduced.layers) if layer.weights]
    for place in {weighty[0], weighty[len(weighty) // 2], weighty[-1]}:
        name = reduced.layers[place].name
        for index in (MEAN, BETWEEN, SPREAD):
            compare(a.stats[:, place, index], b.stats[:, place, index], f"{name} {place} {index}")
        ratio = [s[:, place, BETWEEN] / s[:, place, SPREAD] for s in (a.stats, b.stats)]
        compare(*ratio, f"γ {name} {place}")
    assert looks < 25


@pytest.mark.parametrize("network", [mlp(1), mlp(4), mlp(2, "tanh", bias_var=0.3, norm="batchnorm")], ids=str)
def test_the_triangular_factor_of_the_data(network: Network) -> None:
    same_law(network, points(60, 150), 40, "triangular factor")


@pytest.mark.parametrize(
    "network",
    [
        mlp(2),
        mlp(6),
        mlp(3, "tanh", bias_var=0.3),
        mlp(3, norm="layernorm", placement="after"),
        Network.parse("dense > residual[relu > dense] > maxpool(2) > dense(bias_var=0.2) > relu > dense", classes=3),
    ],
    ids=str,
)
def test_a_layer_drawn_whole_given_its_gram_matrix(network: Network) -> None:
    same_law(network, points(20, 15), 120, "drawn whole")


def test_both_at_once() -> None:
    x = points(20, 90)
    engine = DescriptionEngine(mlp(3), x, width=120)
    assert len(engine.notes) == 2
    same_law(mlp(3), x, 120, "triangular factor")


def test_the_joint_law_of_two_points() -> None:
    """E u_a u_b over units of a conditional draw is the Gram matrix itself: 6 standard errors, 2e-9 each."""
    x = torch.from_numpy(points(12, 50)).T.unsqueeze(0).contiguous()
    units = 200_000
    weights = Weights((units, 50), 50, weight_var=1.7, bias_var=0.4)
    normals = torch.randn(1, units, 12, generator=torch.Generator().manual_seed(0))
    wanted = (1.7 * x[0].double().T @ x[0].double() / 50 + 0.4).numpy()
    u = conditional(x.clone(), normals, weights, torch.empty(1, units, 12))[0].double().numpy()
    error = np.sqrt((np.outer(np.diag(wanted), np.diag(wanted)) + wanted**2) / units)
    assert np.all(np.abs(u.T @ u / units - wanted) < 6 * error)


def test_deep_and_ordered_points_stay_apart() -> None:
    """1 − c ≈ 1e-6 by the end (γ ≈ 1e6): the spread of reduced and direct draws agrees, so no digits were lost."""
    network = Network.parse("12 x [dense(weight_var=0.3, bias_var=1) > tanh] > dense")
    x = points(15, 10)
    reduced, direct = (
        DescriptionEngine(network, x, width=100, reduce=r).run(s, s + 300).stats
        for r, s in ((True, 0), (False, 10_000))
    )
    for place in (0, 8, 16, 22):
        u, v = np.log(reduced[:, place, SPREAD]), np.log(direct[:, place, SPREAD])
        assert scipy_stats.ks_2samp(u, v, method="asymp").pvalue > 1e-7


def test_points_that_coincide_stay_together() -> None:
    """A singular Gram matrix: jitter of 1e-15 keeps equal points equal to float32 noise."""
    x = np.repeat(points(6, 40), 2, axis=0)
    gram = x.astype(np.float64) @ x.T
    lower = factor(torch.from_numpy(gram))
    np.testing.assert_allclose((lower @ lower.T).numpy(), gram, rtol=1e-6, atol=1e-6 * gram.max())
    assert np.abs((lower[0::2] - lower[1::2]).numpy()).max() < 1e-5 * np.sqrt(gram.max())
    zero = factor(torch.zeros(3, 3, dtype=torch.float64))
    assert float(zero.abs().max()) == 0.0
    members = DescriptionEngine(mlp(3), x, width=100).run(0, 50)
    pairs = members.fractions * 6
    assert np.mean(np.abs(np.round(pairs) - pairs) < 1e-9) > 0.95  # but for logits that tie to rounding
    assert not members.findings


def test_when_a_reduction_applies() -> None:
    """It depends on the network, the data and the options; only Gaussian weights have it."""
    x = points(20, 50)
    for source in (
        "dense(init=uniform) > relu > dense(init=uniform) > relu > dense",
        "dense(init=orthogonal) > relu > dense(init=orthogonal) > relu > dense",
    ):
        assert DescriptionEngine(Network.parse(source), x, width=200).notes == ()
    assert DescriptionEngine(mlp(2), x, width=200, threads=1).notes == DescriptionEngine(mlp(2), x, width=200).notes
    assert "1 dense layer drawn whole" in DescriptionEngine(mlp(2), x, width=200).notes[1]
    assert conditional_pays(100, 1000, 1000)
    assert not conditional_pays(1000, 1000, 1000)
    assert not conditional_pays(100, 1000, 2)
    assert DescriptionEngine(mlp(2), points(300, 50), width=100).notes == ()
