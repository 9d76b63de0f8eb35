"""Every kind of layer: its tangent kernel is that of the networks we draw, or it is refused by name.

Networks are those of `build`, as users train them; gradients are autograd's, by the difference of two logits (2Θ).
The mean over 40 of them is within 8 standard errors (false alarm 1e-9 a number by Student's t with 39 degrees, some
300 numbers) and what a width of 300 leaves: a few parts in 300 a layer.
"""

import numpy as np
import pytest
import torch

from firstguess.base.errors import NotCovered
from firstguess.ensemble.member_module import build
from firstguess.ensemble.predict_training import trained
from firstguess.network.layer import KINDS
from firstguess.network.network import Network
from firstguess.network.walk import every, needs_images
from firstguess.theory.training.problem import kernel_of

WIDTH, MEMBERS, POINTS = 300, 40, 4

RIGHT = {
    "dense": ["dense(weight_var=1.5, bias_var=0.3) > dense(bias_var=0.2)", "dense(frozen=true) > tanh > dense"],
    "activation": [
        "dense(weight_var=2) > relu > dense > erf > dense",
        "dense > leaky_relu(0.2) > dense > gelu > dense",
    ],
    "layernorm": [
        "dense > layernorm > relu > dense",
        "dense > relu > layernorm > dense",
        "conv > layernorm > relu > dense",
    ],
    "rmsnorm": ["dense > rmsnorm > tanh > dense", "dense > relu > rmsnorm > dense"],
    "groupnorm": ["dense > groupnorm(2) > relu > dense", "conv(padding=1) > groupnorm(2) > relu > dense"],
    "maxpool": ["dense > maxpool(2) > dense > relu > dense"],
    "avgpool": ["dense > relu > avgpool(2) > dense", "conv(padding=1) > relu > avgpool(4) > dense"],
    "conv": ["conv(bias_var=0.2) > tanh > conv(kernel=2) > dense", "conv(stride=2, padding=1) > relu > dense"],
    "residual": [
        "dense > residual(scale=0.5)[relu > dense] > relu > dense",
        "dense > residual[tanh > dense | dense(weight_var=2)] > dense",
        "conv(padding=1) > residual[relu > conv(padding=1)] > relu > dense",
    ],
    "instancenorm": ["conv(padding=1) > instancenorm > relu > dense"],
    "gated": ["dense > gated(silu) > dense"],
    "batchcenter": ["dense > relu > batchcenter > dense", "conv > batchcenter(batch=2) > relu > dense"],
    "scale": ["dense > scale(0.6) > relu > dense"],
    "shift": ["dense > shift(0.5) > relu > dense"],
}
REFUSED = {
    "activation": [("dense > sign > dense", "sign")],
    "batchnorm": [("dense > batchnorm(batch=2) > relu > dense", r"batchnorm\(batch=2\)")],
    "groupnorm": [("dense > groupnorm(each=4) > relu > dense", r"groupnorm\(each=4\)")],
    "embed": [("embed(1, vocabulary=30) > dense > pool_tokens(last) > dense", "embed")],
    "patches": [("patches(2) > dense > pool_tokens(mean) > dense", "patches")],
    "attention": [("dense > attention(2, by=uniform) > pool_tokens(mean) > dense", "attention")],
    "tokenmix": [("dense > tokenmix(2) > pool_tokens(mean) > dense", "tokenmix")],
    "cls": [("dense > cls(0.02) > dense > pool_tokens(cls) > dense", "cls")],
    "positions": [("dense > positions(0.02) > pool_tokens(mean) > dense", "positions")],
    "pool_tokens": [("dense > relu > pool_tokens(mean) > dense", "pool_tokens")],
    "unembed": [("dense > unembed", "unembed")],
    "maxpool": [("conv(padding=1) > relu > maxpool(4) > dense", r"maxpool\(4\)")],
}
ELSEWHERE = {"batchnorm": "over the whole data it is in test_tangent.py: there node scales fluctuate with the points"}


def test_every_kind_of_layer_is_here():
    known = {*RIGHT, *REFUSED, *ELSEWHERE}
    assert set(KINDS) == known
    for kind, texts in RIGHT.items():
        for text in texts:
            assert kind in {layer.kind for layer in every(Network.parse(text).layers)}


def tangents(network, x, members):
    """(members, points, points): ½ JJᵀ of the difference of two logits, of drawn networks."""
    found = []
    for member in range(members):
        model = build(network, x, width=WIDTH, seed=21, member=member)
        parameters = [p for module in trained(model, network) for p in module.parameters()]
        with torch.enable_grad():
            f = model(torch.from_numpy(x))
            rows = [torch.autograd.grad(row[1] - row[0], parameters, retain_graph=True) for row in f]
        j = np.array([np.concatenate([g.double().flatten().numpy() for g in row]) for row in rows])
        found.append(j @ j.T / 2)
    return np.array(found)


@pytest.mark.parametrize("text", [text for texts in RIGHT.values() for text in texts])
def test_the_tangent_kernel_of_each_is_that_of_wide_networks(text):
    network = Network.parse(text)
    shape = (POINTS, 2, 4, 4) if needs_images(network.layers) else (POINTS, 6)
    x = (np.random.default_rng(8).normal(size=shape) + 0.5).astype(np.float32)
    said = kernel_of(network, x.astype(float), WIDTH).tangent
    seen = tangents(network, x, 5 * MEMBERS if "gated" in text else MEMBERS)  # products of two sums have long tails
    se = seen.std(axis=0, ddof=1) / np.sqrt(len(seen))
    scale = np.sqrt(np.outer(said.diagonal(), said.diagonal()))
    off = np.abs(seen.mean(axis=0) - said)
    assert (off <= 8 * se + 8 / WIDTH * scale).all(), (off / scale, se / scale)
    assert (se < 0.03 * scale).all()


@pytest.mark.parametrize(("text", "name"), [pair for pairs in REFUSED.values() for pair in pairs])
def test_what_has_none_is_refused_by_name(text, name):
    network = Network.parse(text)
    with pytest.raises(NotCovered, match=name):
        kernel_of(network, np.ones((4, 2, 4, 4) if needs_images(network.layers) else (4, 6)), WIDTH)
