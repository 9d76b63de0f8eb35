"""What every layer promises to the kernel reading: the covariance after it is that of drawn nodes, or it is refused.

Nodes are drawn with plain NumPy weights and sent through `simulated.member`, which shares no code with firstguess: 100
groups of nodes a network, each an independent estimate of the covariance of the outputs.

A covariance is one number here, as in tests/theory/test_sampled_units.py: the root mean square over its entries of the
difference, against 5.6 standard errors of simulation and of the result itself (false alarm at most 2·10⁻⁸ a network).
Norms over nodes use the statistics of a group's nodes, and weights inside a stretch sum over them: room for that,
2/nodes of the diagonal, is given apart.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest
from simulated import Array, member

from firstguess.base.errors import FirstguessError
from firstguess.network.layer import KINDS, Layer, Mix
from firstguess.network.network import Network
from firstguess.network.walk import every
from firstguess.theory.kernel.propagation import Kernel, image_kernel, kernel

STRETCHES = [
    "dense(weight_var=1.7, bias_var=0.3)",
    "conv(weight_var=1.7, bias_var=0.3)",
    "conv(kernel=2, stride=2, padding=1)",
    "relu",
    "tanh",
    "shift(0.4) > gelu",
    "softplus",
    "batchnorm",
    "batchnorm(batch=4)",
    "batchnorm(batch=6, estimator=leave_one_out)",
    "batchcenter",
    "batchcenter(batch=4)",
    "relu > batchcenter",
    "batchcenter > batchnorm(batch=4) > tanh",
    "relu > batchcenter(batch=4) > batchnorm > avgpool(4)",
    "residual[relu > dense > batchcenter]",
    "instancenorm",
    "relu > instancenorm > maxpool(4)",
    "instancenorm > tanh",
    "residual[instancenorm > relu > conv(padding=1)]",
    "layernorm",
    "rmsnorm",
    "groupnorm(groups=2)",
    "groupnorm(each=2)",
    "groupnorm(each=4) > gelu",
    "relu > groupnorm(each=5) > avgpool(4)",
    "maxpool(4) > groupnorm(each=2)",
    "relu > residual[dense] > groupnorm(each=4) > relu",
    "groupnorm(each=1)",
    "maxpool(4)",
    "maxpool(4, stride=1)",
    "maxpool(9, stride=2, padding=1)",
    "avgpool(4)",
    "scale(-0.7)",
    "shift(0.4)",
    "gated(silu)",
    "layernorm(eps=0.3)",
    "relu > rmsnorm(eps=0.3)",
    "residual(scale=0.5)[relu > dense(weight_var=2, bias_var=0.1)]",
    "residual(scale=-2)[relu > conv(padding=1) > layernorm]",
    "residual[conv(padding=1) > avgpool(4) | avgpool(4)]",
    "relu > residual[dense] > relu",
    "relu > residual[dense > tanh] > relu",
    "relu > residual[maxpool(4) > dense]",
    *(
        f"{norm} > {phi} > {pool}"
        for norm in ("batchnorm", "batchnorm(batch=4)", "layernorm", "rmsnorm", "groupnorm(groups=2)")
        for phi, pool in (("relu", "maxpool(4)"), ("tanh", "avgpool(4)"), ("relu", "scale(2)"))
    ),
    "tanh > batchnorm > maxpool(4)",
    "relu > layernorm > avgpool(4)",
    "avgpool(4) > batchnorm(batch=4) > abs",
]
# What has no kernel, in words of its refusal. All else must have one.
REFUSED = {
    ("flat", "groupnorm(each=1)"): "groups of at least 2 nodes",
    ("images", "relu > residual[dense] > groupnorm(each=4) > relu"): "gives back the shape it gets",
    ("flat", "instancenorm"): "images of at least 2 positions",
    ("flat", "relu > instancenorm > maxpool(4)"): "images of at least 2 positions",
    ("flat", "instancenorm > tanh"): "images of at least 2 positions",
    ("flat", "maxpool(4, stride=1)"): "side by side",
    ("flat", "maxpool(9, stride=2, padding=1)"): "side by side",
    ("images", "residual(scale=0.5)[relu > dense(weight_var=2, bias_var=0.1)]"): "gives back the shape it gets",
    ("images", "batchnorm(batch=6, estimator=leave_one_out)"): "the usual estimator for a BatchNorm of images",
    ("images", "relu > residual[dense] > relu"): "gives back the shape it gets",
    ("images", "relu > residual[dense > tanh] > relu"): "gives back the shape it gets",
    ("flat", "relu > residual[dense > tanh] > relu"): "a Gaussian signal before an activation",
    ("images", "relu > residual[maxpool(4) > dense]"): "gives back the shape it gets",
    ("images", "residual[relu > dense > batchcenter]"): "gives back the shape it gets",
}
POINTS, GROUPS, Z = 12, 100, 5.6


def data(grid: str, rng: np.random.Generator) -> Array:
    """Points whose overlaps differ, with a direction in common."""
    sizes = (8,) if grid == "flat" else (2, 4, 4)
    x = rng.normal(size=(POINTS, *sizes)) * np.linspace(0.7, 1.3, POINTS).reshape(-1, *(1 for _ in sizes))
    return x + 0.4


def drawn(layers: tuple[Layer, ...], x: Array, rng: np.random.Generator, nodes: int) -> Array:
    """One group of `nodes` after the layers, with weights drawn on the way."""
    for layer in layers:
        if layer.kind == "residual":
            branch = drawn(layer.branch, x, rng, nodes)
            x = drawn(layer.shortcut, x, rng, nodes) + layer.scale * branch
            continue
        weights: Iterator[tuple[Array, Array]] = iter(())
        if layer.kind in ("dense", "conv"):
            inputs = math.prod(x.shape[1:]) if layer.kind == "dense" else x.shape[1] * layer.kernel**2
            sizes = (inputs,) if layer.kind == "dense" else (x.shape[1], layer.kernel, layer.kernel)
            matrix = rng.normal(size=(nodes, *sizes)) * math.sqrt(layer.weight_var / inputs)
            weights = iter([(matrix, rng.normal(size=nodes) * math.sqrt(layer.bias_var))])
        x = member((layer,), x, weights)
    return x


def read(grid: str, net: Network, x: Array) -> Kernel:
    return kernel(net, x) if grid == "flat" else image_kernel(net, x)


def networks(grid: str) -> list[str]:
    return [s for s in STRETCHES if grid == "images" or "conv" not in s]


@pytest.mark.parametrize(("grid", "source"), [(g, s) for g in ("flat", "images") for s in networks(g)])
def test_the_covariance_is_that_of_drawn_nodes(grid: str, source: str) -> None:
    first = "dense(weight_var=2, bias_var=0.1)" if grid == "flat" else "conv(weight_var=2, kernel=2)"
    net = Network.parse(f"{first} > {source} > dense")
    rng = np.random.default_rng(20261116)
    x = data(grid, rng)
    if (grid, source) in REFUSED:
        with pytest.raises(FirstguessError, match=REFUSED[grid, source]):
            read(grid, net, x)
        return
    found = read(grid, net, x)
    inner = sum(layer.draws for layer in every(net.layers)) > 2  # then nodes cost their square
    nodes = 120 if inner else 1000
    groups = []
    for _ in range(GROUPS):
        y = drawn(net.layers[:-1], x, rng, nodes).reshape(POINTS, -1)
        groups.append(y @ y.T / y.shape[1])
    draws = np.array(groups)
    q = float(found.covariance.diagonal().mean())
    simulated = math.sqrt(float(draws.var(axis=0, ddof=1).mean()) / GROUPS)
    apart = math.sqrt(float(np.mean((found.covariance - draws.mean(axis=0)) ** 2)))
    finite = 2.0 / nodes if inner or any(Mix.UNITS in layer.mixes for layer in every(net.layers)) else 0.0
    assert apart <= Z * math.hypot(simulated, found.error * q) + finite * q


def test_every_kind_is_under_contract() -> None:
    kinds = {layer.kind for source in STRETCHES for layer in every(Network.parse(f"{source} > dense").layers)}
    tokens = {kind for kind, cls in KINDS.items() if Mix.TOKENS in cls.mixes}  # test_contract_tokens.py
    assert kinds == set(KINDS) - tokens
