"""The state of the kernel reading: what is known of every data point at every position, and of every pair.

Dense layers, activations and norms over units act on a pair (a, b) alone, given what is known of a and of b. So a layer
first maps the *points* (their mean square and mean over units, vectors of n·positions), and returns a *move* whose step
maps any tile of the covariance in place (`theory.kernel.tiles` passes tiles through them). BatchNorm mixes all points:
it wants the whole matrix. Flat data are a grid of one position, images one of H×W, sequences one of T.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from firstguess.base.gaussian import Array
from firstguess.network.activations.record import Activation
from firstguess.network.shapes import PositionGrid, Shape, Shaped

Flags: TypeAlias = NDArray[np.bool_]
_STRIP = 1 << 14  # numbers that an activation maps at once


@dataclass(frozen=True)
class Points:
    """Every data point at every position in the wide limit: `q` = E x² and `mean` = E x over units; their distribution.

    `before` and `phi` say what a signal was made of, for a max-pool to see through.
    """

    q: Array  # (n·positions,), point by point
    mean: Array
    gaussian: bool
    shape: Shape
    default_width: int  # what weights without a width of their own make
    before: Points | None = None
    phi: Activation | None = None
    what: str = "the inputs"  # in words, for refusals
    # (n, n, positions): the covariance of the mean over units where weights make it random, at equal positions: a mixer
    # shares its weights over units (theory.md (29)). None: the mean is `mean`, whatever the weights.
    level: Array | None = None
    # (n·positions,): which tokens are no padding, that others attend to and that are read. None: all.
    real: Flags | None = None

    @property
    def grid(self) -> PositionGrid:
        """The positions."""
        assert self.shape.grid is not None
        return self.shape.grid

    @property
    def width(self) -> int:
        """Units (channels) at a position: the tangent kernel wants their number."""
        return self.shape.units

    @property
    def count(self) -> int:
        """How many data points there are."""
        return self.q.size // self.grid.places

    @property
    def centred(self) -> bool:
        """Whether all means are 0: exactly, since that decides whether units may be sampled."""
        return not self.mean.any() and self.level is None

    @property
    def mean_square(self) -> Array:
        """The mean square of the mean over units, at every position of every point."""
        square = self.mean**2
        return square if self.level is None else square + np.einsum("aap->ap", self.level).ravel()

    @property
    def shown(self) -> Array:
        """`q` without that of padding."""
        return self.q if self.real is None else self.q[self.real]

    @property
    def pairs(self) -> int:
        """How many pairs of two points there are at equal positions, in both orders; padding makes none."""
        if self.real is None:
            return max(self.count * (self.count - 1), 1) * self.grid.places
        here = self.real.reshape(self.count, -1).sum(axis=0)
        return max(int((here * (here - 1)).sum()), 1)

    def after(
        self,
        layer: Shaped,
        q: Array,
        mean: Array,
        *,
        gaussian: bool,
        what: str,
        before: Points | None = None,
        phi: Activation | None = None,
        level: Array | None = None,
        real: Flags | None = None,
    ) -> Points:
        """What is known after a layer, whose own rule gives the shape there; `real` where it changes the tokens."""
        shape = layer.shape(self.shape, self.default_width)
        if self.real is not None and q.size == self.real.size:
            real = self.real
        return Points(q, mean, gaussian, shape, self.default_width, before, phi, what, level, real)


class Tile:
    """A block of the covariance (and of the tangent kernel) of rows × cols; steps change it in place.

    Factors of rows and columns are kept apart until someone looks at `k`: weights without biases, norms and scale-free
    activations only need correlations, so a deep ReLU network never multiplies them in.
    """

    def __init__(
        self, k: Array, t: Array | None, rows: slice, cols: slice, spare: tuple[Array, Array, Array] | None = None
    ) -> None:
        self._entries = k
        self._factors: tuple[Array, Array] | None = None
        self._spare = spare
        self.t = t
        self.rows = rows
        self.cols = cols
        self.previous: tuple[Array, Array | None] | None = None  # k and t before the move before, if one will look

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
        """Fill the diagonal of a block, whose own entries are known better than arccos near c = 1 can give them."""
        if self._factors is not None:
            scale = self._factors[0] * self._factors[1]
            q = np.divide(q, scale, out=np.zeros_like(q), where=scale > 0.0)  # a point without signal stays one
        np.fill_diagonal(self._entries, q)

    def outer(self, v: Array) -> Array:
        """v_a · v_b for the block."""
        return v[self.rows, None] * v[None, self.cols]


Step = Callable[[Tile], None]
Correlate = Callable[[Array], Array]


def unchanged(c: Array) -> Array:
    """The map of correlations by whatever only rescales points."""
    return c


@dataclass(frozen=True)
class PairwiseMap:
    """One layer on any tile, and what is known after it.

    `correlate` is given where the correlation of two points after it depends on that before alone, by one map for
    all pairs: a run of such layers is taken in one go (`base.numerics`). It may overwrite what it is given.
    """

    after: Points
    step: Step
    correlate: Correlate | None = None
    needs_previous: bool = False  # wants the tile before the move before it


def apply(move: PairwiseMap, tile: Tile, *, watched: bool) -> None:
    """One move of a tile; if the next one will look after it, what stood before is kept for that."""
    previous = (tile.k.copy(), tile.t) if watched else None
    move.step(tile)
    tile.previous = previous


def along(moves: Sequence[PairwiseMap], tile: Tile) -> None:
    """A tile through moves, one after the other."""
    for index, move in enumerate(moves):
        apply(move, tile, watched=any(following.needs_previous for following in moves[index + 1 : index + 2]))


class Done(NamedTuple):
    """All pairs after some layers."""

    k: Array
    t: Array | None
    points: Points
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class AllPairsMap:
    """One layer that needs all pairs at once (it may overwrite them); its points are known afterwards."""

    apply: Callable[[Array, Array | None], Done]


def split(k: Array, grid: PositionGrid) -> Array:
    """(points, positions, points, positions) of a tile."""
    return k.reshape(-1, grid.places, k.shape[1] // grid.places, grid.places)


def take_level(tile: Tile, points: Points) -> None:
    """K[a s, b s] less the covariance of the means over units there: what a centring norm leaves (theory.md (29))."""
    if points.level is None:
        return
    grid, every = points.grid, np.arange(points.grid.places)
    part = points.level[grid.points(tile.rows), grid.points(tile.cols)]
    split(tile.k, grid)[:, every, :, every] -= part.transpose(2, 0, 1)


def in_strips(step: Step) -> Step:
    """The same, a few rows at a time: a tile of large images is larger than the cache, which costs a factor of five."""

    def strips(tile: Tile) -> None:
        rows, cols = tile.k.shape
        few = max(1, _STRIP // cols)
        for start in range(0, rows, few):
            stop = min(start + few, rows)
            at = slice(tile.rows.start + start, tile.rows.start + stop)
            part = Tile(tile.k[start:stop], None if tile.t is None else tile.t[start:stop], at, tile.cols)
            step(part)
            tile.k[start:stop] = part.k
            if tile.t is not None and part.t is not None:
                tile.t[start:stop] = part.t

    return strips


def at_equal_places(k: Array, points: Points, rows: slice, cols: slice) -> float:
    """The sum of a tile's covariances over equal positions of its data points; padding does not count."""
    same = split(k, points.grid).diagonal(axis1=1, axis2=3)  # (points, points, positions)
    if points.real is None:
        return float(same.sum())
    left, right = (points.real[side].reshape(-1, points.grid.places).astype(k.dtype) for side in (rows, cols))
    return float(np.einsum("abt,at,bt->", same, left, right))


def mean_of_pairs(k: Array, points: Points) -> float:
    """The mean covariance of two data points; of their positions, only equal ones count, and no padding."""
    if points.grid.places == 1:
        total = float(k.sum(dtype=np.float64) - points.q.sum())
    else:
        everything = slice(0, len(k))
        total = at_equal_places(k, points, everything, everything) - float(points.shown.sum())
    return total / points.pairs


# Layers as arithmetic on sampled units, where a covariance alone does not say what comes out.
#
# Rows are units, columns data points (point by point, then by position). A *control variate* of every unit uses
# statistics that formulas give instead of its own: its covariance is known, which tells part of the sampling error.

Values = NDArray[Any]  # (units, n·positions), float32 or float64
Op = Callable[[Values], Values]  # may overwrite what it is given


class UnitMap(NamedTuple):
    """One layer on units, and on their control variates."""

    units: Op
    control: Op
    settle: Callable[[Array, Array], None] | None = (
        None  # (covariance, its diagonal before control variates corrected it)
    )


class ControlVariates(NamedTuple):
    """A layer whose control variates need the whole covariance before it, which becomes theirs after it."""

    control: Op
    t: Array | None
    points: Points


class Need(NamedTuple):
    """How far formulas do: effective directions, the share of the variance that is left; or not at all."""

    directions: float = math.inf
    share: float = 1.0
    always: bool = False
    of: str = "batchnorm"  # whose statistics fluctuate, and what they are taken over: for the remark
    over: str = "the data"


# An exact formula for a layer and the one after it: k -> the mean of K[a≠b] after the first, k' and mean' after both.
Joint: TypeAlias = Callable[[Points, Array], tuple[float, Array, Array]]


def same_map(op: Op) -> UnitMap:
    """A layer that does to control variates what it does to units."""
    return UnitMap(op, op)


# Remarks on a reading, which know their kind and size.


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


def random_sum_map(
    layer: Shaped, points: Points, weight_var: float, bias_var: float, what: str, *, frozen: bool = False
) -> PairwiseMap:
    """K ← σw²K + σb², and Θ ← σw²Θ + N·K_in with N the fan-in: theory.md (11), (12).

    Biases are trained where they exist, that is where σb² > 0 (as `.module()` builds them): then Θ grows by 1. `frozen`
    weights and biases are not trained: Θ only passes through.
    """
    fan_in, root = points.width, math.sqrt(weight_var)

    def step(tile: Tile) -> None:
        if tile.t is not None:
            tile.t *= weight_var
            if not frozen:
                tile.t += fan_in * tile.k
                if bias_var:
                    tile.t += 1.0
        tile.scale(root)
        if bias_var:
            tile.k += bias_var

    q = weight_var * points.q + bias_var
    after = points.after(layer, q, np.zeros_like(q), gaussian=True, what=what)
    return PairwiseMap(after, step, None if bias_var else unchanged)
