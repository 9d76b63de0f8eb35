"""Plain networks, node by node: centers and spreads that the ensemble engine averages away.

Written without the engines on purpose: NumPy, one network at a time, so that it also checks them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from firstguess_papers.judging import Number

FloatArray = npt.NDArray[np.float64]
ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "linear": lambda u: u,
    "relu": lambda u: np.maximum(u, 0.0),
    "tanh": np.tanh,
}


@dataclass(frozen=True)
class Nodes:
    """Pre-activations of some nodes of every layer, over data: (inits, layers, nodes) each."""

    mean: FloatArray
    variance: FloatArray  # unbiased
    skewness: FloatArray
    kurtosis: FloatArray  # excess
    points: int

    @property
    def centers(self) -> FloatArray:
        """Means in units of the layer's typical spread over data."""
        return self.mean / np.sqrt(self.variance.mean(axis=(0, 2), keepdims=True))

    def gamma(self, layer: int) -> Number:
        """γ of a layer: E[mean² − V/n]/E V, with its error over initializations."""
        v = self.variance[:, layer].mean(axis=1)
        c = (self.mean[:, layer] ** 2 - self.variance[:, layer] / self.points).mean(axis=1)
        ratio = float(c.mean() / v.mean())
        error = float((c - ratio * v).std(ddof=1) / v.mean() / math.sqrt(len(c)))
        return Number(ratio, error)

    def pack(self) -> dict[str, Any]:
        """As a piece."""
        return {**vars(self)}


def simulate(
    x: npt.NDArray[Any], *, depth: int, width: int, activation: str, inits: int, nodes: int, seed: list[int]
) -> Nodes:
    """Networks with Kaiming weights (σw² = 2), `depth` hidden layers and `nodes` outputs; so many nodes of each layer.

    >>> x = np.random.default_rng(0).standard_normal((500, 50))
    >>> found = simulate(x, depth=1, width=100, activation="relu", inits=20, nodes=5, seed=[0])
    >>> found.mean.shape, abs(found.gamma(0).value) < 0.01, 0.2 < found.gamma(1).value < 0.8
    ((20, 2, 5), True, True)
    """
    rng = np.random.default_rng(seed)
    phi = ACTIVATIONS[activation]
    moments = np.empty((4, inits, depth + 1, nodes))
    data = np.ascontiguousarray(x, dtype=np.float32)
    for i in range(inits):
        h = data
        for layer in range(depth + 1):
            out = width if layer < depth else nodes
            w = rng.standard_normal((h.shape[1], out), dtype=np.float32) * np.float32(math.sqrt(2 / h.shape[1]))
            u = h @ w
            moments[:, i, layer] = _moments(u[:, :nodes].astype(np.float64))
            h = phi(u)
    return Nodes(*moments, points=len(data))


def _moments(u: FloatArray) -> FloatArray:
    n = len(u)
    mean = u.mean(axis=0)
    y = u - mean
    y2 = y * y
    square = y2.mean(axis=0)
    skewness, kurtosis = (y2 * y).mean(axis=0) / square**1.5, (y2 * y2).mean(axis=0) / square**2 - 3
    return np.stack([mean, square * n / (n - 1), skewness, kurtosis])
