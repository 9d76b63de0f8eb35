"""Where the points of a handful come from: inputs that are described, or points of data."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from firstguess.base.gaussian import Array
from firstguess.network.handful import Values, input_gram
from firstguess.network.inputs import Inputs


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
    rows: np.ndarray  # (networks, points)

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
