"""GroupNorm over a few nodes: the distribution of sample correlations, against mpmath, drawn and wide groups."""

from __future__ import annotations

import math

import numpy as np
import pytest
from mpmath import mp
from simulated import agrees, forward, moments

import firstguess as fg
from firstguess.network.activations.registry import activation
from firstguess.network.grammar import parse_layers
from firstguess.network.layers import GroupNorm
from firstguess.network.norms import GroupNormed, normalized
from firstguess.network.signal import Gaussian, Signal


@pytest.mark.parametrize("nodes", [2, 3, 4, 7, 15, 200])
@pytest.mark.parametrize("one_minus_c", [1.0 - 1e-9, 0.9, 0.5, 1e-3, 1e-9, 1e-15])
def test_the_mean_sample_correlation(nodes: int, one_minus_c: float) -> None:
    """E r = 2/(m−1)·[Γ(m/2)/Γ((m−1)/2)]²·c·₂F₁(½, ½; (m+1)/2; c²) (Hotelling, 1953), to 40 digits by mpmath."""
    with mp.workdps(40):
        c = 1 - mp.mpf(one_minus_c)
        ratio = mp.gamma(mp.mpf(nodes) / 2) / mp.gamma(mp.mpf(nodes - 1) / 2)
        mean = 2 / mp.mpf(nodes - 1) * ratio**2 * c * mp.hyp2f1(0.5, 0.5, mp.mpf(nodes + 1) / 2, c * c)
        wanted = float(mean), float(1 - mean)
    center, spread = normalized(nodes, 1.0 - one_minus_c, one_minus_c)
    assert center == pytest.approx(wanted[0], rel=1e-6 if one_minus_c > 0.99 else 1e-12)  # c itself is rounded
    assert spread == pytest.approx(wanted[1], rel=1e-12)


@pytest.mark.parametrize("nodes", [2, 3, 5, 12])
@pytest.mark.parametrize("name", ["relu", "leaky_relu", "abs"])
def test_rays_against_drawn_groups(nodes: int, name: str) -> None:
    """250 means of 800 groups, 5.5 standard errors: false alarm below 2e-7 a number."""
    rng = np.random.default_rng(20261116)
    phi = activation(name)
    c = 0.6
    out = GroupNormed(nodes, c, 1.0 - c).activate(Signal(0.0, c, 1.0 - c), phi)
    common = rng.normal(size=(250, 800, nodes)) * math.sqrt(c)
    a, b = (common + rng.normal(size=common.shape) * math.sqrt(1.0 - c) for _ in range(2))
    x, y = (phi((u - u.mean(2, keepdims=True)) / u.std(2, keepdims=True))[:, :, 0] for u in (a, b))
    if (nodes, name) != (2, "abs"):  # |±1|: a constant
        agrees((x * y).mean(1), out.center, what="center")
        agrees(x.mean(1), out.mean, what="mean")
        agrees((x * x).mean(1), out.total, what="total")
    else:
        assert (out.mean, out.total) == (pytest.approx(1.0), pytest.approx(1.0))


def test_wide_groups_are_a_layernorm() -> None:
    """The difference falls as 1/m: c(1 − c²)/2m to leading order."""
    c = 0.4
    for nodes in (100, 1000):
        center, _ = normalized(nodes, c, 1.0 - c)
        assert (c - center) * nodes == pytest.approx(0.5 * c * (1.0 - c * c), rel=3.0 / nodes)
    text = "3 x [dense(weight_var=2, bias_var=0.1) > {} > relu] > dense"
    wide, many = (fg.predict(text.format(n)).gamma[-1] for n in ("layernorm", "groupnorm(each=3000)"))
    assert many == pytest.approx(wide, rel=2e-3)


@pytest.mark.parametrize(
    "source",
    [
        "3 x [dense(weight_var=2, bias_var=0.1) > groupnorm(each=4) > relu] > dense(weight_var=2, bias_var=0.1)",
        "3 x [dense(weight_var=2) > relu > groupnorm(each=3)] > dense(weight_var=2)",
        "dense > groupnorm(each=3) > gelu > dense",
    ],
)
def test_networks_of_real_weights(source: str) -> None:
    """200 networks of width 360; 5.5 standard errors. The bias of finite width, about 1/width, is below them."""
    want = fg.predict(source)
    rng = np.random.default_rng(31)
    layers = parse_layers(source)
    got = np.array([moments(forward(layers, rng.standard_normal((5, 360)), rng, 360)) for _ in range(200)])
    agrees(got[:, 1], float(want.correlation[-1] * want.q[-1]), what="center")
    agrees(got[:, 2], float(want.q[-1]), what="total")


def test_after_the_activation_narrow_groups_are_as_even_as_layernorm() -> None:
    """N17: points are independent and nodes of a group alike, so no center is left, whatever the size of groups.

    All nodes of a group are dead with probability 2^−m, and then 0: a little of the scale is lost, no more.
    """
    p = fg.predict("5 x [dense(weight_var=2) > relu > groupnorm(each=3)] > dense(weight_var=2)")
    assert np.all(p.gamma[p.gamma.size // 2 :: 3] >= 0.0)
    assert p.gamma[-1] == 0.0
    assert p.q[-1] == pytest.approx(2.0 * (1.0 - 0.5**3), rel=1e-14)


@pytest.mark.parametrize("nodes", [4, 6, 20])
def test_gradients_through_groups(nodes: int) -> None:
    """tr(JJᵀ)/m of the norm on drawn groups, J = (H − xxᵀ/m)/s: 250 means of 2000 groups."""
    rng = np.random.default_rng(20261116)
    u = 1.7 * rng.normal(size=(250, 2000, nodes))
    variance = u.var(axis=2)
    layer = GroupNorm(each=nodes)
    want = layer.gradient(Signal(0.0, 0.0, 1.7**2, distribution=Gaussian()))
    if nodes > 5:  # E 1/χ⁴ exists
        agrees(((nodes - 2) / nodes / variance).mean(1), want or math.nan)
    assert want == pytest.approx((nodes - 2) / (nodes - 3) / 1.7**2)
    assert GroupNorm(each=2).gradient(Signal(0.0, 0.0, 1.0, distribution=Gaussian())) == 0.0


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("dense(bias_var=1) > groupnorm(each=4) > tanh > dense", "a piecewise linear activation after a groupnorm"),
        ("dense(bias_var=1) > relu > groupnorm(each=4) > dense", "nodes that are not Gaussian, with centers"),
        ("dense > hardtanh > groupnorm(each=4) > dense", "on one flat side"),
        ("conv > groupnorm(each=4) > relu > dense", "positions, of which the closed form does not know"),
        ("conv > relu > avgpool(4) > conv > batchnorm > groupnorm(each=2) > dense", "positions, of which"),
        ("dense > groupnorm(each=1) > dense", "groups of at least 2 nodes"),
    ],
)
def test_what_the_closed_form_refuses(source: str, why: str) -> None:
    with pytest.raises(fg.NotCovered, match=why):
        fg.predict(source)


def test_bad_arguments() -> None:
    with pytest.raises(fg.InvalidInput, match="groups or each"):
        GroupNorm(4, 2)
    with pytest.raises(fg.InvalidInput, match="each"):
        GroupNorm(each=0)
    with pytest.raises(fg.NotCovered, match="a tangent kernel"):
        fg.predict("dense > groupnorm(each=4) > relu > dense", data=np.eye(6), tangent=True)
