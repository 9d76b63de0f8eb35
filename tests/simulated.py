"""The same networks in plain NumPy, written from their definitions and sharing no code with firstguess.

`forward` runs one random network over a batch; `state` draws nodes from the infinite-width state itself. Results are
compared by `agrees`: 5.5 standard errors over at least 200 independent replicates, two-sided false alarm below 2e-7
(Student's t) for each number compared.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

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
    if kind == "activation":
        return FUNCTIONS[layer.phi.name](x)
    if kind == "batchnorm":
        return (x - x.mean(0)) / x.std(0)
    if kind == "layernorm":
        return (x - x.mean(1, keepdims=True)) / x.std(1, keepdims=True)
    if kind == "groupnorm":
        groups = x.reshape(x.shape[0], layer.groups, -1)
        normed = (groups - groups.mean(2, keepdims=True)) / groups.std(2, keepdims=True)
        return normed.reshape(x.shape)
    if kind == "rmsnorm":
        return x / np.sqrt(np.mean(x * x, axis=1, keepdims=True))
    if kind in ("maxpool", "avgpool"):
        pools = x[:, : x.shape[1] // layer.size * layer.size].reshape(x.shape[0], -1, layer.size)
        return pools.max(2) if kind == "maxpool" else pools.mean(2)
    if kind == "scale":
        return layer.factor * x
    if kind == "shift":
        return x + layer.by
    if kind == "residual":
        branch = forward(layer.branch, x, rng, x.shape[1])
        return forward(layer.shortcut, x, rng, x.shape[1]) + layer.scale * branch
    raise AssertionError(kind)


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
