"""Activations on residual sums that are not Gaussian, in the kernel reading: exact cases, and real networks.

Random checks allow 5.6 standard errors (2·10⁻⁸ for one Gaussian number) of the stated sampling error, of the
measurement's, or of both; each test compares fewer than 50 numbers. No seed was picked.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

import firstguess as fg
from firstguess.base.errors import NotCovered
from firstguess.network.grammar import parse_layers
from firstguess.network.network import Network
from firstguess.theory.kernel.propagation import image_kernel, kernel
from firstguess.theory.kernel.tiles import sums_ahead

Z = 5.6


@pytest.mark.parametrize(
    ("text", "layers"),
    [
        ("relu > residual[dense] > relu > dense", 3),
        ("batchnorm > relu > maxpool(4) > residual[dense > batchnorm | scale(2)] > relu > avgpool(2) > dense", 6),
        ("batchnorm > relu > 2 x [residual[dense] > relu] > residual[dense | dense] > relu > dense", 6),
        ("relu > residual[dense] > layernorm > dense", 0),  # only moments are wanted: formulas do
        ("layernorm > residual[relu > dense] > relu > dense", 0),  # Gaussian
        ("residual[relu > dense] > relu > residual[dense] > relu > dense", 0),  # begins later
        ("relu > dense > residual[dense] > relu", 0),
        ("relu > residual[dense > relu] > relu > dense", 0),
    ],
)
def test_where_nodes_are_sampled(text: str, layers: int) -> None:
    assert sums_ahead(parse_layers(text)) == layers


def test_independent_points_have_the_moments_of_the_closed_form() -> None:
    """Points without overlap: all pairs are alike, and the closed form's own nodes are another sample."""
    n = 48
    x = np.eye(n) * math.sqrt(n)
    text = "dense(weight_var=2) > relu > 2 x [residual(scale=0.7)[dense > relu > dense > layernorm] > relu] > dense"
    found = kernel(Network.parse(text), x)
    want = fg.predict(text)
    off = found.covariance[~np.eye(n, dtype=bool)].mean()
    # 2e-3: what the closed form's nodes leave
    room = (Z * found.error + 2e-3) * want.q[-1]
    assert abs(found.covariance.diagonal().mean() - want.q[-1]) < room
    assert abs(off - want.correlation[-1] * want.q[-1]) < room
    assert 0.0 < found.error < 0.02
    assert any("sampled nodes" in said and "residual[…]" in said for said in found.remarks)
    assert np.array_equal(kernel(Network.parse(text), x).covariance, found.covariance)


@pytest.mark.parametrize(
    "text",
    [
        "dense > layernorm > relu > 2 x [residual[dense > relu > dense > layernorm] > relu] > dense",
        "dense > batchnorm > relu > residual[dense > batchnorm > relu > dense > batchnorm] > relu > dense",
        "dense > relu > residual(scale=-0.5)[dense(weight_var=2) > avgpool(2) | avgpool(2)] > tanh > dense",
    ],
)
def test_real_networks_agree(text: str) -> None:
    """γ by layer; a width of 512 moves it by (1 + γ)/512 of itself for each of up to five layers."""
    x = np.random.default_rng(20261116).normal(size=(24, 10)) + 0.4
    p = fg.predict(text, data=x, draws=4000)
    m = fg.measure(Network.parse(text), x, inits=200, width=512)
    for predicted, seen in zip(p.gamma, (layer for layer in m.layers if layer.weights), strict=True):
        room = 5 * predicted * (1 + predicted) / 512 + 0.01 * (1 + predicted) ** 2  # 0.01: sampled nodes
        assert abs(predicted - seen.gamma) < Z * seen.gamma_se + room, seen.name


def test_a_resnet_of_images_agrees() -> None:
    text = (
        "conv(weight_var=2, padding=1) > batchnorm > relu > maxpool(9, stride=2, padding=1) > residual[conv(padding=1) "
        "> batchnorm > relu > conv(padding=1) > batchnorm] > relu > residual[conv(stride=2, padding=1) > batchnorm | "
        "conv(kernel=1, stride=2) > batchnorm] > relu > avgpool(4) > dense"
    )
    data = fg.data.load("digits", points=10)
    p = fg.predict(text, data=data, draws=4000)
    m = fg.measure(Network.parse(text), data, inits=150, width=128)
    weights = [layer for layer in m.layers if layer.weights]
    for predicted, seen in zip(p.gamma, weights, strict=True):
        room = 5 * predicted * (1 + predicted) / 128 + 0.01 * (1 + predicted) ** 2
        assert abs(predicted - seen.gamma) < Z * seen.gamma_se + room, seen.name


def test_what_stays_refused() -> None:
    x = np.random.default_rng(0).normal(size=(8, 6))
    text = "dense > relu > residual[dense] > relu > dense"
    with pytest.raises(NotCovered, match="before an activation"):
        kernel(Network.parse(text), x, tangent=True)
    with pytest.raises(NotCovered, match="before an activation"):
        kernel(Network.parse("dense > relu > residual[dense > batchnorm(batch=4)] > relu > dense"), x)
    images = np.random.default_rng(0).normal(size=(4, 2, 4, 4))
    with pytest.raises(NotCovered, match="before an activation"):
        image_kernel(Network.parse("conv > relu > residual[conv(kernel=1)] > relu > dense"), images, tangent=True)
