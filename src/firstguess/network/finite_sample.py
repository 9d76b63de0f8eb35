"""A Monte Carlo sample of data points in many networks of real width, layer by layer.

Given the layer before, the nodes of a dense layer with Gaussian weights are independent over nodes, each a Gaussian
vector over the data points whose covariance is the layer's before: σw²·(mean over its units of x_a x_b) + σb². So
points go through real, finite networks exactly, unit by unit, without any weight (theory.md (41)). Two points are the
papers' chain of (q_a, q_b, p_ab); more of them share a network, and tell how networks differ. Where weights have
another distribution, or points are more than units (a whole batch, for a norm over it), weights themselves are drawn.
"""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from firstguess.base.errors import NotCovered
from firstguess.base.gaussian import Array
from firstguess.base.statistics import guesses
from firstguess.network.inputs import Inputs
from firstguess.network.points import Op
from firstguess.network.signal import Signal
from firstguess.network.weights import draw_weights

Values = NDArray[Any]  # (networks, points, units), float32 where weights were drawn, else float64

_FEW = 64  # points up to which units are drawn from their covariance: more are cheaper by weights
_FLAT = 1e-13  # a pivot below this share of its diagonal is 0 to rounding: a point that others already determine


# Where the sampled points come from: inputs that are described, or points of data.


@dataclass(frozen=True)
class Described:
    """Fresh points N(μ, variance) for every network; infinitely many components have all the same overlaps."""

    rng: np.random.Generator
    inputs: Inputs
    networks: int
    points: int

    @property
    def dimension(self) -> float:
        return math.inf if self.inputs.dimension is None else float(self.inputs.dimension)

    def gram(self) -> Array:
        center, spread, d = self.inputs.mean_square, self.inputs.variance, self.inputs.dimension
        if d is None:
            gram = np.full((self.points, self.points), center) + spread * np.eye(self.points)
            return np.broadcast_to(gram, (self.networks, self.points, self.points))
        return input_gram(self.rng, self.networks, self.points, center, spread, d)

    def values(self) -> Values:
        d = self.inputs.dimension
        assert d is not None
        own = np.random.default_rng(d).standard_normal(d)  # the means of the components: theirs for all networks
        own = (own - own.mean()) / own.std() if d > 1 else np.zeros(d)
        mean = self.inputs.mean
        center = mean + math.sqrt(max(self.inputs.mean_square - mean**2, 0.0)) * own
        root = math.sqrt(self.inputs.variance)
        x = self.rng.standard_normal((self.networks, self.points, d), dtype=np.float32)
        x *= np.float32(root)
        x += center.astype(np.float32)
        return x


@dataclass(frozen=True)
class OfData:
    """Rows of a data set, others for every network."""

    x: Array  # (n, components)
    rows: NDArray[np.int64]  # (networks, points)

    @property
    def points(self) -> int:
        return self.rows.shape[1]

    @property
    def dimension(self) -> float:
        return float(self.x.shape[1])

    def gram(self) -> Array:
        x = self.values()
        return x @ x.transpose(0, 2, 1) / x.shape[2]

    def values(self) -> Values:
        return self.x[self.rows]


PointSource: TypeAlias = Described | OfData


@dataclass(frozen=True)
class RandomSums:
    """Sums over a layer's units by random weights: what decides the next units."""

    before: PointSample
    weight_var: float
    bias_var: float
    nodes: int
    init: str


@dataclass(frozen=True)
class PointSample:
    """The same few points in many networks, as one layer has them.

    Either their units are known, or where they come from: random `sums` of other units, which are drawn when a layer
    looks at them (the output's never are), or a `source` of inputs, of which a dense layer wants overlaps alone.
    """

    rng: np.random.Generator
    width: int  # of layers that name none
    signal: Signal | None  # the closed form here; None where it does not cover a layer
    known: Values | None = None
    sums: RandomSums | None = None
    source: PointSource | None = None

    @cached_property
    def values(self) -> Values:
        """(networks, points, units); drawn once."""
        if self.known is not None:
            return self.known
        if self.sums is not None:
            return self.drawn()
        assert self.source is not None
        if self.source.dimension == math.inf:
            raise NotCovered(
                "a finite dimension, where a layer looks at the inputs' components (the first one is no dense layer)",
                got="infinitely many components",
                hint="fg.Inputs(dimension=1000)",
            )
        return self.source.values()

    def drawn(self) -> Values:
        """Units of these sums: new ones at every call."""
        assert self.sums is not None
        before, nodes = self.sums.before, self.sums.nodes
        if self.gaussian and (before.fan_in == math.inf or self.points <= min(before.fan_in, _FEW)):
            covariance = self.covariance
            shape = (*covariance.shape[:2], nodes)
            return lower(covariance) @ self.rng.standard_normal(shape)
        x = before.values.astype(np.float32)
        networks, _, fan_in = x.shape
        weights = draw_weights(self.rng, self.sums.init, self.sums.weight_var, networks, fan_in, nodes)
        y = x @ weights
        if self.sums.bias_var:
            root = np.float32(math.sqrt(self.sums.bias_var))
            y += root * self.rng.standard_normal((networks, 1, nodes), dtype=np.float32)
        return y

    @property
    def gaussian(self) -> bool:
        """Whether nodes are Gaussian, given the layer before: what sums of Gaussian weights are, or of many."""
        return self.sums is not None and (self.sums.init == "normal" or self.sums.before.fan_in == math.inf)

    @property
    def fan_in(self) -> float:
        """How many units the next weights sum over."""
        if self.source is not None:
            return self.source.dimension
        return self.sums.nodes if self.sums is not None else self.values.shape[2]

    @property
    def points(self) -> int:
        if self.sums is not None:
            return self.sums.before.points
        return self.values.shape[1] if self.source is None else self.source.points

    @cached_property
    def gram(self) -> Array:
        """The mean over units of x_a x_b."""
        if self.source is not None and "values" not in self.__dict__:
            return self.source.gram()
        x = self.values
        return (x @ x.transpose(0, 2, 1)).astype(np.float64) / x.shape[2]

    @cached_property
    def covariance(self) -> Array:
        """(networks, points, points) of random sums over their weights; of other units the mean of x_a x_b."""
        if self.sums is None:
            return self.gram
        covariance = self.sums.weight_var * self.sums.before.gram + self.sums.bias_var
        if not np.isfinite(covariance).all():
            raise NotCovered("covariances that float64 can hold", got="an overflow", hint="a smaller weight variance")
        return covariance

    def weighted(self, weight_var: float, bias_var: float, nodes: int, init: str) -> PointSample:
        """The sample after random weights and biases, of `nodes` units."""
        return PointSample(self.rng, self.width, self.signal, sums=RandomSums(self, weight_var, bias_var, nodes, init))

    def with_values(self, values: Values) -> PointSample:
        """The same networks with other units."""
        return PointSample(self.rng, self.width, self.signal, known=values)

    def first(self, points: int) -> PointSample:
        """The first points of these random sums; units as they were."""
        if self.points <= points:
            return self
        assert self.sums is not None
        before = self.sums.before.with_values(self.sums.before.values[:, :points])
        return replace(self, sums=replace(self.sums, before=before))

    def sizes(self) -> tuple[Array, Array]:
        """The mean square of a point in every network, and the mean overlap of two; one that is 0 has none."""
        first = self.sums.before if self.sums is not None else self
        if self.points <= _FEW or first.fan_in == math.inf:
            return np.einsum("raa->r", self.covariance) / self.points, self.overlaps.mean(axis=1)
        x = first.values
        gain, added = (1.0, 0.0) if self.sums is None else (self.sums.weight_var, self.sums.bias_var)
        q = gain * np.einsum("rai,rai->ra", x, x) / x.shape[2] + added
        inverse = 1.0 / np.sqrt(np.where(q > 0.0, q, np.inf))  # Σ_ab c_ab is the square of a sum over points
        total = (
            gain * ((inverse[:, None, :] @ x)[:, 0] ** 2).sum(axis=1) / x.shape[2] + added * inverse.sum(axis=1) ** 2
        )
        pairs = self.points * (self.points - 1)
        return q.mean(axis=1), (total - (q > 0.0).sum(axis=1)) / pairs

    @cached_property
    def correlation(self) -> Array:
        """The cosines of all pairs of points in every network; 0 with a point that is 0 there (a dead one)."""
        k = self.covariance
        root = np.sqrt(np.einsum("raa->ra", k))
        inverse = 1.0 / np.where(root > 0.0, root, np.inf)
        return np.clip(k * inverse[:, :, None] * inverse[:, None, :], -1.0, 1.0)

    @property
    def overlaps(self) -> Array:
        """Those of distinct points: (networks, pairs)."""
        a, b = np.triu_indices(self.points, 1)
        return self.correlation[:, a, b]

    @property
    def dead(self) -> float:
        """The share of points that are 0."""
        return float((np.einsum("raa->ra", self.covariance) == 0.0).mean())

    def guesses(self, heads: int) -> NDArray[np.intp]:
        """(networks, heads, points): the largest of these sums, drawn `heads` times."""
        return np.stack([guesses(self.drawn(), self.rng) for _ in range(heads)], axis=1)


def lower(k: Array) -> Array:
    """L with L Lᵀ = k for every network, also where k is singular (more points than directions): that pivot is 0."""
    if k.shape[1] > _FEW:
        with contextlib.suppress(np.linalg.LinAlgError):
            return np.linalg.cholesky(k).astype(np.float64, copy=False)
    out = np.zeros_like(k)
    for j in range(k.shape[1]):
        column = k[:, j:, j] - np.einsum("rik,rk->ri", out[:, j:, :j], out[:, j, :j])
        pivot = column[:, 0]
        alive = pivot > _FLAT * k[:, j, j]
        root = np.sqrt(np.where(alive, pivot, 1.0))
        out[:, j:, j] = np.where(alive[:, None], column / root[:, None], 0.0)
    return out


def input_gram(rng: np.random.Generator, networks: int, points: int, center: float, spread: float, d: int) -> Array:
    """x_a·x_b/d of points N(μ, spread) with |μ|²/d = center: Bartlett's decomposition, min(points, d) normals per
    point.

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


def by_unit(x: Values, op: Op) -> Values:
    """Arithmetic on (units, points), for the units of all networks."""
    networks, points, nodes = x.shape
    return op(x.transpose(0, 2, 1).reshape(-1, points)).reshape(networks, nodes, points).transpose(0, 2, 1)
