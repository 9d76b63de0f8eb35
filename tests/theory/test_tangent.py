"""The tangent kernel (theory.md (12)) against gradients of real networks, written in plain torch.

The mean over independent initializations has to agree within 5.5 standard errors over 200 of them (false alarm below
2e-7 a number, Student's t) plus what a finite width N leaves: a few parts in N a layer.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from firstguess.base.errors import NotCovered
from firstguess.network.network import Network
from firstguess.theory.kernel.propagation import kernel

N, D, POINTS, INITS = 256, 6, 4, 200

NETWORKS = {
    "relu": "2 x [dense(weight_var=2) > relu] > dense(weight_var=2)",
    "tanh with biases": "2 x [dense(weight_var=1.5, bias_var=0.2) > tanh] > dense(bias_var=0.2)",
    "gelu": "2 x [dense(weight_var=2) > gelu] > dense",
    "layernorm before": "2 x [dense > layernorm > relu] > dense",
    "layernorm after": "2 x [dense > relu > layernorm] > dense",
    "rmsnorm before": "2 x [dense > rmsnorm > tanh] > dense",
    "rmsnorm after": "2 x [dense > relu > rmsnorm] > dense",
    "avgpool": "dense > relu > avgpool(2) > dense > tanh > dense",
    "maxpool": "dense(weight_var=2) > relu > maxpool(2) > dense > dense",
    "maxpool of weights": "dense(weight_var=2) > maxpool(2) > dense > relu > dense",
    "residual": "dense > residual(scale=0.5)[relu > dense(weight_var=2)] > relu > dense",
    "residual with a norm before the sum": "dense > residual(scale=0.5)[relu > dense > layernorm] > relu > dense",
    "residual with a projection": "dense > residual[relu > dense > rmsnorm | dense(weight_var=2)] > relu > dense",
    "residual with an average": "dense > residual[dense > tanh > avgpool(2) | relu > avgpool(2)] > dense",
    "scale and shift": "dense > scale(0.7) > shift(0.5) > relu > dense > shift(-0.3) > tanh > dense",
    "hardswish": "dense(weight_var=3) > hardswish > dense > elu > dense",
    "batchcenter": "dense(weight_var=2, bias_var=0.3) > relu > batchcenter > dense > batchcenter > tanh > dense",
    "batchcenter of batches": "dense(weight_var=2) > batchcenter(batch=2) > relu > dense",
    "centered": "dense > centered(relu) > dense > tanh > dense",
}


def _activate(name: str, x: torch.Tensor) -> torch.Tensor:
    return getattr(torch.nn.functional, name)(x) if name != "tanh" else torch.tanh(x)


def _forward(
    layers: tuple, x: torch.Tensor, parameters: list[torch.Tensor], draw: torch.Generator, last: int = N
) -> torch.Tensor:
    """One random network; every dense layer has N units, the last one `last`."""
    for index, layer in enumerate(layers):
        kind = layer.kind
        if kind == "dense":
            units = last if index == len(layers) - 1 else N
            w = torch.randn(x.shape[1], units, generator=draw, dtype=x.dtype) * math.sqrt(layer.weight_var / x.shape[1])
            parameters.append(w.requires_grad_())
            x = x @ w
            if layer.bias_var > 0.0:
                b = torch.randn(units, generator=draw, dtype=x.dtype) * math.sqrt(layer.bias_var)
                parameters.append(b.requires_grad_())
                x = x + b
        elif kind == "activation":
            x = _activate(layer.phi.name, x)
            if layer.phi.centered:  # one constant, the mean at the average variance: here that of unit-size points
                x = x - math.sqrt(1.0 / (2.0 * math.pi))
        elif kind == "layernorm":
            x = (x - x.mean(1, keepdim=True)) / x.var(1, keepdim=True, correction=0).sqrt()
        elif kind == "rmsnorm":
            x = x / (x * x).mean(1, keepdim=True).sqrt()
        elif kind == "batchnorm":
            x = (x - x.mean(0)) / x.var(0, correction=0).sqrt()
        elif kind == "batchcenter":
            x = torch.cat([part - part.mean(0) for part in x.split(layer.batch or len(x))])
        elif kind == "avgpool":
            x = x.reshape(x.shape[0], -1, layer.size).mean(2)
        elif kind == "maxpool":
            x = x.reshape(x.shape[0], -1, layer.size).amax(2)
        elif kind == "scale":
            x = layer.factor * x
        elif kind == "shift":
            x = x + layer.by
        elif kind == "residual":
            branch = _forward(layer.branch, x, parameters, draw)
            x = _forward(layer.shortcut, x, parameters, draw) + layer.scale * branch
        else:
            raise AssertionError(kind)
    return x


def empirical(net: Network, x: np.ndarray, inits: int) -> np.ndarray:
    """Tangent kernels of one output over independent initializations: (inits, n, n)."""
    data = torch.from_numpy(x)
    kernels = []
    draw = torch.Generator().manual_seed(int(np.random.default_rng(20261115).integers(2**31)))
    for _ in range(inits):
        parameters: list[torch.Tensor] = []
        f = _forward(net.layers, data, parameters, draw, last=1)[:, 0]
        rows = []
        for a in range(len(x)):
            gradients = torch.autograd.grad(f[a], parameters, retain_graph=True)
            rows.append(torch.cat([g.ravel() for g in gradients]))
        jacobian = torch.stack(rows)
        kernels.append((jacobian @ jacobian.T).numpy())
    return np.array(kernels)


def _points(unit: bool = False) -> np.ndarray:
    x = np.random.default_rng(20261115).normal(size=(POINTS, D)) + 0.5
    return x / np.sqrt(np.mean(x * x, axis=1, keepdims=True)) if unit else x


def _agrees(text: str, x: np.ndarray, slack: float) -> None:
    net = Network.parse(text)
    predicted = kernel(net, x, tangent=True, width=N).tangent
    assert predicted is not None
    measured = empirical(net, x, INITS)
    error = measured.std(axis=0, ddof=1) / math.sqrt(INITS)
    scale = np.sqrt(np.outer(predicted.diagonal(), predicted.diagonal()))
    difference = np.abs(measured.mean(axis=0) - predicted)
    assert np.all(difference <= 5.5 * error + slack * scale), (difference / scale, error / scale)


@pytest.mark.parametrize("name", sorted(NETWORKS))
def test_against_gradients_of_wide_networks(name: str) -> None:
    _agrees(NETWORKS[name], _points(unit=name == "centered"), slack=8.0 / N)


@pytest.mark.parametrize("text", ["dense > batchnorm > relu > dense", "dense > tanh > batchnorm > dense"])
def test_batchnorm_against_gradients(text: str) -> None:
    """The whole data set is the batch; node scales fluctuate by √(2/directions), which Θ ignores: some 2/40."""
    net = Network.parse(text)
    x = np.random.default_rng(20261115).normal(size=(40, 60))
    predicted = kernel(net, x, tangent=True, width=N).tangent
    assert predicted is not None
    measured = empirical(net, x, 30)
    error = measured.std(axis=0, ddof=1) / math.sqrt(30)
    scale = np.sqrt(np.outer(predicted.diagonal(), predicted.diagonal()))
    # 30 initializations: 8.5 standard errors for 1e-9 a number (Student's t, 29 degrees), 1600 numbers
    assert np.all(np.abs(measured.mean(axis=0) - predicted) <= 8.5 * error + 0.1 * scale)
    assert abs(np.trace(measured.mean(axis=0)) / np.trace(predicted) - 1.0) <= 0.06


def test_the_recursion_by_hand() -> None:
    """Θ¹ = XXᵀ; Θ² = σw²·Ḟ∘Θ¹ + N·F, and biases that exist are trained: + 1."""
    x = _points()
    one = kernel(Network.parse("dense(weight_var=2)"), x, tangent=True).tangent
    assert one is not None
    assert np.allclose(one, x @ x.T, rtol=1e-12)
    k = 2.0 * x @ x.T / D
    root = np.sqrt(k.diagonal())
    theta = np.arccos(np.clip(k / np.outer(root, root), -1.0, 1.0))
    f = np.outer(root, root) / (2 * math.pi) * (np.sin(theta) + (math.pi - theta) * np.cos(theta))
    slope = (math.pi - theta) / (2 * math.pi)
    two = kernel(Network.parse("dense(weight_var=2) > relu > dense(weight_var=3)"), x, tangent=True, width=70).tangent
    assert two is not None
    assert np.allclose(two, 3.0 * slope * (x @ x.T) + 70 * f, rtol=1e-6)
    assert np.allclose(two.diagonal(), (3.0 * 0.5 * x @ x.T + 70 * f).diagonal(), rtol=1e-6)
    biased = kernel(Network.parse("dense(weight_var=2, bias_var=0.1)"), x, tangent=True).tangent
    assert biased is not None
    assert np.allclose(biased, x @ x.T + 1.0, rtol=1e-12)


def test_widths_of_the_description_count() -> None:
    x = _points()
    wide = kernel(Network.parse("dense(width=300) > relu > dense"), x, tangent=True, width=7).tangent
    same = kernel(Network.parse("dense > relu > dense"), x, tangent=True, width=300).tangent
    assert wide is not None
    assert same is not None
    assert np.array_equal(wide, same)


def test_what_has_no_tangent_kernel_says_so() -> None:
    x = _points()
    with pytest.raises(NotCovered, match="no gradient"):
        kernel(Network.parse("dense > sign > dense"), x, tangent=True)
    with pytest.raises(NotCovered, match="whole data set"):
        kernel(Network.parse("dense > batchnorm(batch=2) > relu > dense"), x, tangent=True)


def test_symmetric_and_positive() -> None:
    x = np.random.default_rng(20261115).normal(size=(300, 20))
    for text in (
        "3 x [dense(weight_var=2) > relu] > dense",
        "2 x [dense > batchnorm > relu] > dense",
        "dense > mish > dense",
    ):
        t = kernel(Network.parse(text), x, tangent=True).tangent
        assert t is not None
        assert np.abs(t - t.T).max() <= 1e-11 * np.abs(t).max()
        values = np.linalg.eigvalsh(t)
        assert values[0] >= -1e-9 * values[-1]
