"""The same networks in plain NumPy, written from their definitions and sharing no code with firstguess.

`forward` runs one random network over a batch, `member` one whose weights are given, on images too; `state` draws nodes
from the infinite-width state itself. Random results are compared by `agrees`: 5.5 standard errors over at least 200
independent replicates, two-sided false alarm below 2e-7 (Student's t) for each number compared.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import special

from firstguess.network.layers import Layer

Array = NDArray[np.float64]

FUNCTIONS: dict[str, Callable[[Array], Array]] = {
    "linear": lambda x: x,
    "relu": lambda x: np.maximum(x, 0.0),
    "tanh": np.tanh,
    "gelu": lambda x: x * special.ndtr(x),
    "abs": np.abs,
    "sin": np.sin,
    "sigmoid": special.expit,
    "silu": lambda x: x * special.expit(x),
    "hardtanh": lambda x: np.clip(x, -1.0, 1.0),
    "selu": lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(np.minimum(x, 0.0))),
    "softplus": lambda x: np.logaddexp(0.0, x),
}


def agrees(samples: Sequence[float] | Array, expected: float, *, what: str = "") -> None:
    """The mean of independent replicates is the expected value within 5.5 standard errors."""
    values = np.asarray(samples, dtype=np.float64)
    assert values.size >= 200, "5.5 standard errors mean 2e-7 only with enough replicates"
    error = float(values.std(ddof=1) / math.sqrt(values.size))
    assert abs(float(values.mean()) - expected) <= 5.5 * error, (
        f"{what}: simulated {values.mean():.8g} ± {error:.2g}, expected {expected:.8g}"
    )


def forward(layers: Sequence[Layer], x: Array, rng: np.random.Generator, width: int) -> Array:
    """One random network: x is (points, nodes); every dense layer has `width` units."""
    for layer in layers:
        x = _apply(layer, x, rng, width)
    return x


def _apply(layer: Layer, x: Array, rng: np.random.Generator, width: int) -> Array:
    kind = layer.kind
    if kind in ("dense", "conv"):
        weights = rng.normal(0.0, math.sqrt(layer.weight_var / x.shape[1]), (x.shape[1], width))
        return x @ weights + rng.normal(0.0, math.sqrt(layer.bias_var), width)
    if kind == "residual":
        branch = forward(layer.branch, x, rng, x.shape[1])
        return forward(layer.shortcut, x, rng, x.shape[1]) + layer.scale * branch
    return _without_weights(layer, x)


def member(layers: Sequence[Layer], x: Array, weights: Iterator[tuple[Array, Array]]) -> Array:
    """One network on (points, nodes) or (points, channels, height, width).

    `weights` are those of dense layers and convolutions with their biases, a residual block's branch before its
    shortcut: (units, inputs) or (units, channels, kernel, kernel), and (units,).
    """
    for layer in layers:
        if layer.kind == "dense":
            matrix, bias = next(weights)
            x = x.reshape(len(x), -1) @ matrix.T + bias
        elif layer.kind == "conv":
            kernel, bias = next(weights)
            windows = _windows(x, layer.kernel, layer.stride, layer.padding, 0.0)
            x = np.einsum("nchwij,ucij->nuhw", windows, kernel, optimize=True) + bias[:, None, None]
        elif layer.kind == "residual":
            branch = member(layer.branch, x, weights)
            x = member(layer.shortcut, x, weights) + layer.scale * branch
        else:
            x = _without_weights(layer, x)
    return x


def _windows(x: Array, side: int, stride: int, padding: int, outside: float) -> Array:
    border = ((0, 0), (0, 0), (padding, padding), (padding, padding))
    x = np.pad(x, border, constant_values=outside)
    return np.lib.stride_tricks.sliding_window_view(x, (side, side), (2, 3))[:, :, ::stride, ::stride]


def _without_weights(layer: Layer, x: Array) -> Array:
    kind = layer.kind
    nodes = tuple(range(1, x.ndim))
    if kind == "activation":
        value = FUNCTIONS[layer.phi.name](x)
        return value - value.mean() if layer.phi.centered else value
    if kind == "batchnorm":
        size = layer.batch or len(x)
        one = _left_out if layer.estimator == "leave_one_out" else _normed
        return np.concatenate([one(x[i : i + size], (0, *nodes[1:])) for i in range(0, len(x), size)])
    if kind == "batchcenter":
        size = layer.batch or len(x)
        return np.concatenate([x[i : i + size] - x[i : i + size].mean(0) for i in range(0, len(x), size)])
    if kind == "layernorm" and layer.eps:
        return (x - x.mean(nodes, keepdims=True)) / np.sqrt(x.var(nodes, keepdims=True) + layer.eps)
    if kind == "layernorm":
        return _normed(x, nodes)
    if kind == "gated":
        gate, up = np.split(x, 2, axis=1)
        return FUNCTIONS[layer.phi.name](gate) * up
    if kind == "instancenorm":
        return _normed(x, nodes[1:])
    if kind == "groupnorm":
        groups = layer.groups if layer.each is None else x.shape[1] // layer.each
        return _normed(x.reshape(x.shape[0], groups, -1), (2,)).reshape(x.shape)
    if kind == "rmsnorm":
        return x / np.sqrt(np.mean(x * x, axis=nodes, keepdims=True) + layer.eps)
    if kind in ("maxpool", "avgpool") and x.ndim == 4:
        side = math.isqrt(layer.size)
        if kind == "avgpool":
            return _windows(x, side, side, 0, 0.0).mean((4, 5))
        return _windows(x, side, layer.stride or side, layer.padding, -np.inf).max((4, 5))
    if kind in ("maxpool", "avgpool"):
        pools = x[:, : x.shape[1] // layer.size * layer.size].reshape(x.shape[0], -1, layer.size)
        return pools.max(2) if kind == "maxpool" else pools.mean(2)
    if kind == "scale":
        return layer.factor * x
    if kind == "shift":
        return x + layer.by
    raise AssertionError(kind)


def _normed(x: Array, axes: tuple[int, ...]) -> Array:
    away, std = x - x.mean(axes, keepdims=True), x.std(axes, keepdims=True)
    return np.divide(away, std, out=np.zeros_like(x), where=std > 0.0)  # a ReLU may be dead on all points


def _left_out(x: Array, axes: tuple[int, ...]) -> Array:
    """Every point by the statistics of the others, one point after another; nodes without positions."""
    assert axes == (0,)
    others = [np.delete(x, i, axis=0) for i in range(len(x))]
    return np.array([(x[i] - rest.mean(0)) / rest.std(0, ddof=1) for i, rest in enumerate(others)])


def moments(x: Array) -> tuple[float, float, float]:
    """(mean, center, total) of theory.md (2) from one network; the center without the bias of finite data."""
    points = x.shape[0]
    total = float(np.mean(x * x))
    center = float(np.mean((x.sum(0) ** 2 - (x * x).sum(0)) / (points * (points - 1))))
    return float(x.mean()), center, total


def state(between: float, spread: float, mean: float, points: int, nodes: int, rng: np.random.Generator) -> Array:
    """Nodes of the infinite-width state itself: u = mean + μ + y, as (points, nodes)."""
    mu = rng.normal(0.0, math.sqrt(between), nodes)
    return mean + mu + rng.normal(0.0, math.sqrt(spread), (points, nodes))
