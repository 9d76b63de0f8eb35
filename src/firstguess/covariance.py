"""The state of the kernel reading: what is known of every data point, and the covariance of every pair.

Dense layers, activations and norms over nodes act on a pair (a, b) alone, given what is known of a and of b. So a layer
first maps the *points* (their mean square and mean over nodes, vectors of n), and returns a *step* that maps any tile
of the n×n covariance in place. Tiles then pass through all layers while they are in the cache. BatchNorm mixes all
points: its step wants the whole matrix and ends a run of tiles.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from firstguess.errors import FirstguessError
from firstguess.gaussian import Array

if TYPE_CHECKING:
    from firstguess.activations import Activation
    from firstguess.kernel_nodes import Nodewise
    from firstguess.layers.base import Layer

# A tile and the handful of arrays a layer makes of it stay in the cache, and NumPy's overhead a call is small:
# measured.
_TILE_BYTES = 256 * 256 * 8


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

    def __init__(self, k: Array, t: Array | None, rows: slice, cols: slice) -> None:
        self._entries = k
        self._factors: tuple[Array, Array] | None = None
        self._spare: tuple[Array, Array, Array] | None = None
        self.t = t
        self.rows = rows
        self.cols = cols
        self.before: tuple[Array, Array | None] | None = (
            None  # k and t in front of an activation: a max-pool wants them
        )

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
        return float(left @ (self._entries @ right.astype(self._entries.dtype)))

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


class Summary(NamedTuple):
    """Diagonal and off-diagonal means of the covariance after one layer."""

    layer: Layer
    q: float
    q_ab: float


@dataclass
class Carried:
    """What comes out of a sequence of layers."""

    k: Array
    t: Array | None
    points: Points
    summaries: list[Summary]
    remarks: list[str]


def carry(
    layers: Sequence[Layer],
    points: Points,
    k: Array,
    t: Array | None,
    name: Callable[[int, Layer], str],
    *,
    formulas: bool = False,
) -> Carried:
    """Carry a covariance (which is overwritten) through layers; `name` says where an error came from.

    Stretches with a BatchNorm go by sampled nodes where that is more accurate (`kernel_nodes`), unless `formulas`.
    """
    done = Carried(k, t, points, [], [])
    run: list[tuple[Layer, Points, Step]] = []
    formulas_until = len(layers) if formulas else 0
    skip = 0
    for index, layer in enumerate(layers, start=1):
        if index <= skip:
            continue
        try:
            if index > formulas_until and points.gaussian and not points.mean.any():
                length, by_nodes = _stretch(layers[index - 1 :])
                if length:
                    done.summaries += _through(done.k, done.t, run)
                    run = []
                    found = by_nodes(points, done.k, done.t, index)
                    if found is not None:
                        done.k, done.t, points = found.k, found.t, found.points
                        done.summaries += found.summaries
                        done.remarks += found.remarks
                        skip = index + length - 1
                        continue
                    formulas_until = index + length - 1
            points, step = layer.covariance(points)
            if isinstance(step, Whole):
                done.summaries += _through(done.k, done.t, run)
                run = []
                done.k, done.t, points, said = step.run(done.k, done.t)
                done.remarks += said
                diagonal = points.q
                pairs = max(diagonal.size * (diagonal.size - 1), 1)
                off = float(done.k.sum(dtype=np.float64) - diagonal.sum()) / pairs
                done.summaries.append(Summary(layer, float(diagonal.mean()), off))
            else:
                run.append((layer, points, step))
        except FirstguessError as error:
            raise error.at(name(index, layer)) from None
    done.summaries += _through(done.k, done.t, run)
    done.points = points
    return done


def _stretch(layers: Sequence[Layer]) -> tuple[int, Callable[[Points, Array, Array | None, int], Nodewise | None]]:
    from firstguess.image_layers import Grid  # these know all layers, and layers know this module
    from firstguess.kernel_nodes import by_nodes, stretch

    flat = Grid(flat=True)
    length = stretch(layers, flat)

    def formula(layer: Layer, points: Points, _: Grid, k: Array, t: Array | None) -> tuple[Points, Array, Array | None]:
        done = carry([layer], points, k, t, lambda _, layer: "", formulas=True)
        return done.points, done.k, done.t

    return length, lambda points, k, t, seed: by_nodes(layers[:length], points, flat, k, t, formula, seed=seed)


def _through(k: Array, t: Array | None, run: Sequence[tuple[Layer, Points, Step]]) -> list[Summary]:
    """All tiles of the upper triangle through a run of layers, on all cores; the lower one becomes its mirror image."""
    if not run:
        return []
    n = k.shape[0]
    size = math.isqrt(_TILE_BYTES // k.itemsize)
    starts = range(0, n, size)
    corners = [(i, j) for i in starts for j in starts if j >= i]
    sums = np.zeros((len(corners), len(run)))

    def one(index: int) -> None:
        i, j = corners[index]
        rows, cols = slice(i, min(i + size, n)), slice(j, min(j + size, n))
        entries = k[rows, cols].copy()
        if i == j:  # only the upper triangle of `k` has to be there
            entries = np.triu(entries) + np.triu(entries, 1).T
        tile = Tile(entries, None if t is None else t[rows, cols].copy(), rows, cols)
        for at, (_, points, step) in enumerate(run):
            step(tile)
            if i == j:
                tile.fill_diagonal(points.q[rows])
                sums[index, at] = tile.total() - points.q[rows].sum()
            else:
                sums[index, at] = 2.0 * tile.total()
        for matrix, block in ((k, tile.k), (t, tile.t)):
            if matrix is not None and block is not None:
                # on the diagonal, rows and columns were scaled in turn: symmetric up to rounding only
                matrix[rows, cols] = block if i != j else 0.5 * (block + block.T)
                if i != j:
                    matrix[cols, rows] = block.T

    workers = min(os.cpu_count() or 1, len(corners))
    if workers == 1:
        for index in range(len(corners)):
            one(index)
    else:
        with ThreadPoolExecutor(workers) as pool:  # NumPy's loops run without the interpreter's lock
            for _ in pool.map(one, range(len(corners))):
                pass
    pairs = max(n * (n - 1), 1)
    return [
        Summary(layer, float(points.q.mean()), float(total / pairs))
        for (layer, points, _), total in zip(run, sums.sum(axis=0), strict=True)
    ]
