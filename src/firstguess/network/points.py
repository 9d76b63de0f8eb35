"""The state of the kernel reading: what is known of every data point, and the covariance of every pair.

Dense layers, activations and norms over nodes act on a pair (a, b) alone, given what is known of a and of b. So a layer
first maps the *points* (their mean square and mean over nodes, vectors of n), and returns a *step* that maps any tile
of the n×n covariance in place (`kernel_runs` passes tiles through them). BatchNorm mixes all points: its step wants the
whole matrix.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from firstguess.base.gaussian import Array

if TYPE_CHECKING:
    from firstguess.network.activations.record import Activation


@dataclass(frozen=True)
class Points:
    """Every data point in the wide limit: `q` = E x² and `mean` = E x over nodes; whether nodes are Gaussian.

    `width` is the number of nodes (the tangent kernel wants it). `before` and `phi` say what a signal
    was made of, for a max-pool to see through.
    """

    q: Array  # (n,)
    mean: Array  # (n,)
    gaussian: bool
    width: int
    width_after: int  # what a layer without a width of its own gets
    before: Points | None = None
    phi: Activation | None = None
    what: str = "the inputs"  # in words, for refusals
    watched: list[bool] = field(default_factory=list[bool])  # not empty: a max-pool will look behind the activation

    @property
    def common(self) -> bool:
        """Whether all points have the same mean square, to rounding."""
        return bool(np.ptp(self.q) <= 1e-12 * self.q.max())


class Tile:
    """A block of the covariance (and of the tangent kernel) of rows × cols; steps change it in place.

    Factors of rows and columns are kept apart until someone looks at `k`: weights without biases, norms and scale-free
    activations only need correlations, so a deep ReLU network never multiplies them in.
    """

    def __init__(
        self,
        k: Array,
        t: Array | None,
        rows: slice,
        cols: slice,
        spare: tuple[Array, Array, Array] | None = None,
    ) -> None:
        self._entries = k
        self._factors: tuple[Array, Array] | None = None
        self._spare = spare
        self.t = t
        self.rows = rows
        self.cols = cols
        self.before: tuple[Array, Array | None] | None = (
            None  # k and t in front of an activation: a max-pool wants them
        )

    @property
    def on_diagonal(self) -> bool:
        """Whether the block holds points with themselves."""
        return self.rows == self.cols

    @property
    def spare(self) -> tuple[Array, Array, Array]:
        """Three arrays like the block, for a step to work in."""
        if self._spare is None or self._spare[0].shape != self._entries.shape:
            self._spare = np.empty_like(self._entries), np.empty_like(self._entries), np.empty_like(self._entries)
        return self._spare

    @property
    def k(self) -> Array:
        if self._factors is not None:
            left, right = (v.astype(self._entries.dtype) for v in self._factors)
            self._entries *= left[:, None]
            self._entries *= right
            self._factors = None
        return self._entries

    @k.setter
    def k(self, value: Array) -> None:
        self._entries = value
        self._factors = None

    def scale(self, factor: Array | float) -> None:
        """k_ab ← f_a f_b k_ab, for a factor of every data point (or one for all)."""
        left, right = (factor[self.rows], factor[self.cols]) if isinstance(factor, np.ndarray) else (factor, factor)
        if self._factors is None:
            n, m = self._entries.shape
            self._factors = np.broadcast_to(left, n).copy(), np.broadcast_to(right, m).copy()
        else:
            self._factors = self._factors[0] * left, self._factors[1] * right

    def correlations(self, q: Array) -> Array:
        """k_ab/√(q_a q_b), within [−1, 1]; the block's own memory, and the block is now these times √(q_a q_b)."""
        root = np.sqrt(q)
        left, right = 1.0 / root[self.rows], 1.0 / root[self.cols]
        if self._factors is not None:
            left, right = left * self._factors[0], right * self._factors[1]
        one = self._entries.dtype.type(1.0)
        if max(np.abs(left - 1.0).max(), np.abs(right - 1.0).max()) > 1e-13:
            self._entries *= left.astype(self._entries.dtype)[:, None]
            self._entries *= right.astype(self._entries.dtype)
        self._factors = root[self.rows], root[self.cols]
        return np.clip(self._entries, -one, one, out=self._entries)

    def total(self) -> float:
        """Σ_ab k_ab."""
        if self._factors is None:
            return float(self._entries.sum(dtype=np.float64))
        left, right = self._factors
        return float(left @ np.dot(self._entries, right.astype(self._entries.dtype)))

    def fill_diagonal(self, q: Array) -> None:
        """For a block on the diagonal, whose own entries are known better than arccos near c = 1 can give them."""
        if self._factors is not None:
            q = q / (self._factors[0] * self._factors[1])
        np.fill_diagonal(self._entries, q)

    def outer(self, v: Array) -> Array:
        """v_a · v_b for the block."""
        return v[self.rows, None] * v[None, self.cols]


Step = Callable[[Tile], None]


@dataclass(frozen=True)
class OnCorrelations:
    """A step after which the correlation of two points depends on that before it alone, by one map for all pairs.

    A run of such steps is taken in one go (`kernel_chains`). `correlate` may overwrite what it is given.
    """

    run: Step
    correlate: Callable[[Array], Array]

    def __call__(self, tile: Tile) -> None:
        self.run(tile)


def unchanged(c: Array) -> Array:
    """The map of correlations by whatever only rescales points."""
    return c


@dataclass(frozen=True)
class Whole:
    """A step that needs all pairs at once: (covariance, tangent or None) -> the same, plus remarks for the result."""

    run: Callable[[Array, Array | None], tuple[Array, Array | None, Points, tuple[str, ...]]]


class Remark(str):
    """Something the result has to say; of several of one kind the largest speaks for all (`merged`)."""

    kind: str
    size: float

    def __new__(cls, said: str, kind: str, size: float) -> Remark:
        made = super().__new__(cls, said)
        made.kind, made.size = kind, size
        return made


def merged(remarks: Iterable[str]) -> tuple[str, ...]:
    """Every remark once, and of each kind of `Remark` only the largest, with the number of layers it stands for."""
    plain: dict[str, None] = {}
    kinds: dict[str, list[Remark]] = {}
    for remark in remarks:
        if isinstance(remark, Remark):
            kinds.setdefault(remark.kind, []).append(remark)
        else:
            plain[remark] = None
    for group in kinds.values():
        worst = max(group, key=lambda r: r.size)
        plain[worst if len(group) == 1 else f"{worst} (the worst of {len(group)} layers)"] = None
    return tuple(str(said) for said in plain)
