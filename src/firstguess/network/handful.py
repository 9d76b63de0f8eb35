"""A handful of data points in many networks of real width: no weights are drawn, only nodes.

Given the layer before, the nodes of a dense layer with Gaussian weights are independent over nodes, each a Gaussian
vector over the data points whose covariance is the layer's before: σw²·(mean over its nodes of x_a x_b) + σb². So
points go through real, finite networks exactly, node by node, without any weight (theory.md (41)). Two points are the
papers' chain of (q_a, q_b, p_ab); more of them share a network, and tell how networks differ.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from firstguess.base.errors import NotCovered
from firstguess.base.gaussian import Array
from firstguess.network.signal import Signal

_FLAT = 1e-13  # a pivot below this share of its diagonal is 0 to rounding: a point that others already determine


@dataclass(frozen=True)
class Handful:
    """The same few points in many networks, as one layer has them.

    Either their nodes are known, or what decides them: `covariance` of Gaussian nodes, which are drawn when a layer
    looks at them (the output's never are), or `gram`, all that a dense layer needs to know of inputs.
    """

    rng: np.random.Generator
    width: int  # of layers that name none
    signal: Signal | None  # the closed form here; None where it does not cover a layer
    known: Array | None = None  # (networks, points, nodes)
    covariance: Array | None = None  # (networks, points, points)
    nodes: int = 0  # how many to draw of it
    given: Array | None = None  # (networks, points, points): the mean over nodes of x_a x_b

    @cached_property
    def values(self) -> Array:
        """(networks, points, nodes); drawn once."""
        if self.known is not None:
            return self.known
        if self.covariance is None:
            raise NotCovered(
                "inputs whose components are known", got="their overlaps alone", hint="a dense layer first"
            )
        networks, points, _ = self.covariance.shape
        return lower(self.covariance) @ self.rng.standard_normal((networks, points, self.nodes))

    @cached_property
    def gram(self) -> Array:
        """The mean over nodes of x_a x_b."""
        if self.given is not None:
            return self.given
        x = self.values
        return x @ x.transpose(0, 2, 1) / x.shape[2]

    def weighted(self, weight_var: float, bias_var: float, nodes: int) -> Handful:
        """Behind Gaussian weights and biases, of `nodes` units."""
        covariance = weight_var * self.gram + bias_var
        if not np.isfinite(covariance).all():
            raise NotCovered("covariances that float64 can hold", got="an overflow", hint="a smaller weight variance")
        return Handful(self.rng, self.width, self.signal, covariance=covariance, nodes=nodes)

    def with_values(self, values: Array) -> Handful:
        """The same networks with other nodes."""
        return Handful(self.rng, self.width, self.signal, known=values)

    @property
    def overlaps(self) -> Array:
        """The cosine of every pair of points in every network: (networks, pairs)."""
        k = self.covariance if self.covariance is not None else self.gram
        root = np.sqrt(np.einsum("raa->ra", k))
        a, b = np.triu_indices(k.shape[1], 1)
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.clip(k[:, a, b] / (root[:, a] * root[:, b]), -1.0, 1.0)


def lower(k: Array) -> Array:
    """L with L Lᵀ = k for every network, also where k is singular (more points than directions): that pivot is 0."""
    out = np.zeros_like(k)
    for j in range(k.shape[1]):
        column = k[:, j:, j] - np.einsum("rik,rk->ri", out[:, j:, :j], out[:, j, :j])
        pivot = column[:, 0]
        alive = pivot > _FLAT * k[:, j, j]
        root = np.sqrt(np.where(alive, pivot, 1.0))
        out[:, j:, j] = np.where(alive[:, None], column / root[:, None], 0.0)
    return out


def input_gram(rng: np.random.Generator, networks: int, points: int, center: float, spread: float, d: int) -> Array:
    """x_a·x_b/d of points N(μ, spread) with |μ|²/d = center: Bartlett's decomposition, min(points, d) normals a point.

    Turned so that the points come one after another in ever more dimensions, x_a has normals in the first a − 1, and
    the length of what is left in the next: χ with d − a + 1 degrees.
    """
    own = np.zeros((networks, points, min(points, d - 1) if center else min(points, d)))
    left = d - 1 if center else d  # one dimension is that of μ
    for a in range(points):
        filled = min(a, own.shape[2])
        own[:, a, :filled] = rng.standard_normal((networks, filled))
        if a < own.shape[2]:
            own[:, a, a] = np.sqrt(rng.chisquare(left - a, networks))
    gram = own @ own.transpose(0, 2, 1) * (spread / d)
    if center:
        along = math.sqrt(center) + math.sqrt(spread / d) * rng.standard_normal((networks, points))
        gram += along[:, :, None] * along[:, None, :]
    return gram


def centred(x: Array, eps: float) -> Array:
    """Over nodes: less the mean, by √(variance + ε)."""
    return scaled_to_one(x - x.mean(axis=2, keepdims=True), eps)


def scaled_to_one(x: Array, eps: float) -> Array:
    """Over nodes: by √(mean square + ε); what is 0 stays 0."""
    square = np.mean(x * x, axis=2, keepdims=True) + eps
    return x / np.sqrt(np.where(square > 0.0, square, 1.0))
