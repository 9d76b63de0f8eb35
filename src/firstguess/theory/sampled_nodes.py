"""Layers between two random weights, by sampled nodes: where a covariance alone does not say what comes out.

BatchNorm divides a node by its *own* scale over a batch, which fluctuates from node to node by √(2/directions), and a
max-pool over positions wants the joint law of a window. Both are plain arithmetic on one node's values over the data,
u ~ N(0, K). So nodes are drawn, sent through the layers, and K' = E y yᵀ is estimated from R of them. A *twin* of every
node is divided by the root mean square over all nodes instead. Its covariance K̃' is known by formula, so what the
sample makes of it tells part of the sampling error (a control variate):

    K' ≈ YᵀY/R + β·(K̃' − ỸᵀỸ/R),   0 ≤ β ≤ 1 by regression;  the standard error is part of the result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from firstguess.base.errors import NotCovered
from firstguess.base.gaussian import Array
from firstguess.base.roots import positive, root
from firstguess.base.self_normalized import self_normalized, through_rays
from firstguess.network.activations.kernels import rays
from firstguess.network.grid import Grid
from firstguess.network.image_layers import positions_after, split
from firstguess.network.layers import (
    Activate,
    AvgPool,
    BatchNorm,
    GroupNorm,
    Layer,
    LayerNorm,
    MaxPool,
    RMSNorm,
    Scale,
    Shift,
    text,
)
from firstguess.network.layers.activate import centre_of
from firstguess.network.layers.batchnorm import centre_over_data
from firstguess.network.node_ops import NODEWISE, Op, Values, operation, twin_batches, twin_over_nodes
from firstguess.network.points import Points, Remark
from firstguess.theory.tiles import Summary

# Layers on a whole covariance, by formula: (layers, points, grid, k, t) -> points, k, t
Formula = Callable[[Sequence[Layer], Points, Grid, Array, Array | None], tuple[Points, Array, Array | None]]

_NODES = 16384  # without twins the error of a covariance would be 1/√_NODES = 0.8 % of the diagonal
_AT_ONCE = 1024  # pairs of nodes ±u
_BYTES_AT_ONCE = 24_000_000  # memory in larger pieces comes from the system anew each time, which is slow
_ENOUGH = 500.0  # effective directions from which on formulas do, to 1 or 2 in so many: no nodes are drawn
_NO_TANGENT = "batchnorm: the tangent kernel leaves out that node scales fluctuate"
_PROBES = 256  # entries of the covariance whose error is followed


class Nodewise(NamedTuple):
    """What comes out: the covariance, the tangent kernel (by formula), a summary of every layer."""

    k: Array
    t: Array | None
    points: Points
    grid: Grid
    summaries: list[Summary]
    remarks: tuple[str, ...]


def stretch(layers: Sequence[Layer], grid: Grid) -> int:
    """How many layers in front have no weights, if sampled nodes serve one of them better than a formula; else 0."""
    length = next((i for i, layer in enumerate(layers) if not isinstance(layer, NODEWISE)), len(layers))
    if length and layers[0] == BatchNorm() and all(isinstance(x, (Scale, Shift)) for x in layers[1:length]):
        return 0  # one BatchNorm of Gaussian nodes over all data: `node_scale` is exact
    return length if any(isinstance(x, BatchNorm) or _window(x, grid) for x in layers[:length]) else 0


def by_nodes(
    layers: Sequence[Layer],
    points: Points,
    grid: Grid,
    k: Array,
    t: Array | None,
    formula: Formula,
    *,
    seed: int = 0,
    nodes: int = _NODES,
) -> Nodewise | None:
    """Carry a covariance of Gaussian nodes through layers without weights; `k` and `t` are overwritten.

    None, with nothing touched, where formulas are good enough: every batch has many directions. The same network and
    data always draw the same nodes. Piecewise linear activations behind a BatchNorm need none (`node_scale`).
    """
    rows = k.shape[0]
    looks = [_look(k, layer, grid) for layer in layers if isinstance(layer, BatchNorm)]
    directions, share = (min(values) for values in zip(*looks, strict=True)) if looks else (math.inf, 1.0)
    if directions >= _ENOUGH and not any(_window(x, grid) or _leave_one_out(x) for x in layers):
        return None
    if (slopes := _rays_behind_batchnorm(layers)) is not None:
        return _exactly(layers, points, grid, k, t, formula, slopes, directions)
    exact = share < 1e-4 or not 1e-12 < float(points.q.mean()) < 1e12  # float32 would lose what is left of a node
    dtype = np.float64 if exact else np.float32
    upper = np.ascontiguousarray(root(k, share).T, dtype=dtype)
    path = _follow(layers, points, grid, k, t, formula)
    pools = math.prod(x.size for x in layers if isinstance(x, (AvgPool, MaxPool))) if grid.flat else 1
    fitting = min(_AT_ONCE, max(128, _BYTES_AT_ONCE // (2 * rows * np.dtype(dtype).itemsize)))
    at_once = max(1, fitting // pools) * pools
    wanted = max(nodes * min(1.0, 2000.0 / rows), 2.0 * rows) * pools
    chunks = max(1, math.ceil(wanted / (2 * at_once)))
    tally = _Tally(path, rows // grid.places)
    # blocks of a ResNet may have the same place in their branch: what arrives there tells them apart
    mark = round(1e4 * float(points.q.mean())) % 2**32

    def draw(index: int) -> Values:
        return np.random.default_rng((seed, mark, index)).standard_normal((at_once, rows), dtype=dtype)

    with ThreadPoolExecutor(1) as pool:  # the next nodes are drawn while these are worked on
        ahead = pool.submit(draw, 0)
        for index in range(chunks):
            u = ahead.result() @ upper
            if index + 1 < chunks:
                ahead = pool.submit(draw, index + 1)
            tally.add(np.concatenate([u, -u]))  # pairs ±u: the odd and the even part of φ do not mix
    found, entry, mean = tally.covariance()
    q = found.diagonal().astype(np.float64)
    after = Points(
        q, tally.mean, False, path.points.width, points.width_after, what=f"{text(layers[-1])} of sampled nodes"
    )
    said = (
        f"{' > '.join(text(x) for x in layers)}: by {tally.nodes} sampled nodes, a covariance to ±{entry:.2%} and "
        f"their mean to ±{mean:.2%} of the diagonal (one standard error)"
    )
    if directions < math.inf:
        said += f"; {_fluctuation(directions)}"
    remarks: tuple[str, ...] = (Remark(said, "nodes", entry),)
    if t is not None:
        remarks += (_NO_TANGENT,)
    summaries = [*tally.summaries(), summary(layers[-1], found, q, path.grids[-1])]
    return Nodewise(found.astype(k.dtype, copy=False), path.t, after, path.grids[-1], summaries, remarks)


def _exactly(
    layers: Sequence[Layer],
    points: Points,
    grid: Grid,
    k: Array,
    t: Array | None,
    formula: Formula,
    slopes: tuple[float, float],
    directions: float,
) -> Nodewise:
    """A BatchNorm over all data and a piecewise linear activation, without sampling."""
    remarks: tuple[str, ...] = (Remark(f"{_fluctuation(directions)}: allowed for", "scales", 1.0 / directions),)
    if t is not None:
        t = _follow(layers, points, grid, k.copy(), t, formula).t
        remarks += (_NO_TANGENT,)
    centre_over_data(k, None, points, None)
    if grid.flat:  # a node's values have mean square 1 and sum to 0
        first = Summary(layers[0], 1.0, -1.0 / (len(k) - 1))
    else:
        first = summary(layers[0], self_normalized(k.copy()), np.ones(len(k)), grid)
    found, mean = through_rays(k, *slopes)
    q = found.diagonal().astype(np.float64)
    after = Points(q, mean, False, points.width, points.width_after, what=f"the output of {text(layers[1])}")
    return Nodewise(found, t, after, grid, [first, summary(layers[1], found, q, grid)], remarks)


def _rays_behind_batchnorm(layers: Sequence[Layer]) -> tuple[float, float] | None:
    """The slopes of a piecewise linear activation behind a BatchNorm over all data, if these are all the layers."""
    if len(layers) != 2 or layers[0] != BatchNorm() or not isinstance(layers[1], Activate) or layers[1].phi.centered:
        return None
    return rays(layers[1].phi)


def _fluctuation(directions: float) -> str:
    count = "1 effective direction" if directions < 1.5 else f"{directions:.0f} effective directions"
    return f"batchnorm has {count}, a node's variance over the data fluctuates by ±{math.sqrt(2.0 / directions):.0%}"


def _window(layer: Layer, grid: Grid) -> bool:
    """A max-pool over positions: no formula."""
    return isinstance(layer, MaxPool) and layer.size > 1 and not grid.flat


def _leave_one_out(layer: Layer) -> bool:
    return isinstance(layer, BatchNorm) and layer.estimator == "leave_one_out"


def _look(k: Array, layer: BatchNorm, grid: Grid) -> tuple[float, float]:
    """Of the batches: the least number of effective directions, and the least share of the variance that is left."""
    rows = k.shape[0]
    size = rows if layer.batch is None else min(layer.batch * grid.places, rows)
    directions, share = math.inf, 1.0
    for start in range(0, rows, size):
        block = k[start : start + size, start : start + size].astype(np.float64)
        full = float(np.trace(block))
        block -= block.mean(axis=0)
        block -= block.mean(axis=1, keepdims=True)
        trace = float(np.trace(block))
        if trace > 0.0:
            directions = min(directions, trace**2 / float(np.vdot(block, block)))
        share = min(share, trace / full if full > 0.0 else 0.0)
    return directions, share


# --- two paths --------------------------------------------------------------------------------------------------------


@dataclass
class _Path:
    """The layers as arithmetic on nodes and on their twins, and the twins' covariance by formula (None: no twins)."""

    layers: Sequence[Layer]
    points: Points
    k: Array | None
    t: Array | None
    grids: list[Grid] = field(default_factory=list[Grid])
    own: list[Op] = field(default_factory=list[Op])
    twin: list[Op] = field(default_factory=list[Op])
    # in front of an activation behind which a max-pool of nodes will look: its index, and the state there
    behind: tuple[int, Points, Array, Array | None] | None = None


def _follow(layers: Sequence[Layer], points: Points, grid: Grid, k: Array, t: Array | None, formula: Formula) -> _Path:
    path = _Path(layers, points, k, t)
    for index, layer in enumerate(layers):
        before, constant = path.points, None
        if path.k is not None:
            try:
                constant = _one_layer(path, index, grid, formula)
            except NotCovered:
                if t is not None or isinstance(layer, BatchNorm):  # its errors are about the data: no nodes help
                    raise
                path.k, path.twin = None, []
        path.own.append(operation(layer, grid, constant))
        if path.k is not None and len(path.twin) < len(path.own):
            over = isinstance(layer, (LayerNorm, GroupNorm, RMSNorm))
            path.twin.append(twin_over_nodes(layer, before, grid) if over else path.own[-1])
        grid = positions_after(layer, grid)
        path.grids.append(grid)
    return path


def _one_layer(path: _Path, index: int, grid: Grid, formula: Formula) -> float | None:
    """The twins' covariance through one layer; for an activation, what a centred one takes off.

    A max-pool of nodes wants what stood in front of the activation: it goes in one run with it, from a copy of that.
    """
    layer, before, k, first = path.layers[index], path.points, path.k, index
    assert k is not None
    if isinstance(layer, BatchNorm):
        size = None if layer.batch is None else layer.batch * grid.places
        path.t, inverse, path.points = centre_over_data(k, path.t, before, size)
        path.twin.append(twin_batches(layer, grid, inverse))
        return None
    points, t = before, path.t
    if isinstance(layer, MaxPool) and path.behind is not None and before.before is path.behind[1]:
        first, points, k, t = path.behind
    elif isinstance(layer, Activate) and grid.flat and any(isinstance(x, MaxPool) for x in path.layers[index + 1 :]):
        path.behind = index, before, k.copy(), None if t is None else t.copy()
    path.points, path.k, path.t = formula(path.layers[first : index + 1], points, grid, k, t)
    return centre_of(layer.phi, before) if isinstance(layer, Activate) and layer.phi.centered else 0.0


class _Tally:
    """Sums over nodes: products of all pairs of points, some of them with their squares, and means by layer."""

    def __init__(self, path: _Path, images: int) -> None:
        self.path, self.images, self.nodes = path, images, 0
        places = path.grids[-1].places
        size = images * places
        self._products = np.zeros((size, size))
        self._twins = np.zeros((size, size)) if path.k is not None else None
        self._memory: Values | None = None
        rng = np.random.default_rng(0)  # which entries are followed: any do
        self._pairs = rng.integers(0, size, (2, _PROBES))
        self._sums = np.zeros((5, _PROBES + 1))  # of a, b, a², ab, b² for the entries and the mean of all
        self._mean = np.zeros(size)
        self._by_layer = np.zeros((len(path.layers), 2))
        self._count = self._chunks = 0

    def add(self, u: Values) -> None:
        y = u.copy()
        for index, (one, grid) in enumerate(zip(self.path.own, self.path.grids, strict=True)):
            y = one(y)
            if index + 1 < len(self.path.own):
                at = y.reshape(-1, self.images, grid.places)
                square, total = float(np.vdot(y, y)), at.sum(axis=1)
                self._by_layer[index] += np.array([square, float(np.vdot(total, total)) - square]) / y.shape[0]
        self._products += self._product(y)
        self._mean += y.sum(axis=0, dtype=np.float64)
        self.nodes += y.shape[0]
        seen = [self._probe(y)]
        if self._twins is not None:
            for one in self.path.twin:
                u = one(u)
            self._twins += self._product(u)
            seen.append(self._probe(u))
        a, b = seen[0], seen[-1]
        self._sums += np.stack([x.sum(axis=0) for x in (a, b, a * a, a * b, b * b)])
        self._count += len(a)
        self._chunks += 1

    def _product(self, y: Values) -> Values:
        if self._memory is None:
            self._memory = np.empty((y.shape[1], y.shape[1]), y.dtype)
        return np.matmul(y.T, y, out=self._memory)

    def _probe(self, y: Values) -> Array:
        """The followed products of every pair of nodes ±u (one number a pair: the two are not independent)."""
        entries = y[:, self._pairs[0]].astype(np.float64) * y[:, self._pairs[1]]
        mean = y.mean(axis=1, dtype=np.float64) ** 2
        both = np.concatenate([entries, mean[:, None]], axis=1)
        half = len(both) // 2
        return 0.5 * (both[:half] + both[half:])

    def covariance(self) -> tuple[Array, float, float]:
        """The estimate, the standard error of an entry (root mean square) and that of the mean, by the diagonal."""
        self._memory = None
        a, b, aa, ab, bb = self._sums / self._count
        spread, joint, other = aa - a * a, ab - a * b, bb - b * b
        found, beta = self._products, 0.0  # in place: with many points every matrix counts
        found /= self.nodes
        if self._twins is not None and self.path.k is not None:
            beta = float(np.clip(joint[:-1].sum() / max(other[:-1].sum(), 1e-300), 0.0, 1.0))
            control = self._twins
            control /= -self.nodes
            control += self.path.k
            known = found.diagonal().copy()
            beta = next((x for x in (beta, 0.5 * beta) if positive(found + x * control)), 0.0)
            control *= beta
            found += control
            if isinstance(self.path.layers[-1], BatchNorm):
                self._keep_scale(found, known)
        error = np.sqrt(np.maximum(spread - 2.0 * beta * joint + beta**2 * other, 0.0) / self._count)
        q = float(found.diagonal().mean())
        return found, math.sqrt(float(np.mean(error[:-1] ** 2))) / q, float(error[-1]) / q

    def _keep_scale(self, found: Array, known: Array) -> None:
        """After a BatchNorm a node's mean square over a batch is 1 (0 where it is dead): nothing to estimate."""
        last = self.path.layers[-1]
        size = len(known)
        if isinstance(last, BatchNorm) and last.batch is not None:
            size = min(size, last.batch * self.path.grids[-1].places)
        for start in range(0, len(known), size):
            rows = slice(start, start + size)
            scale = math.sqrt(float(known[rows].mean() / found.diagonal()[rows].mean()))
            found[rows] *= scale
            found[:, rows] *= scale

    @property
    def mean(self) -> Array:
        return self._mean / self.nodes

    def summaries(self) -> list[Summary]:
        """Of all layers but the last."""
        chunks = self._chunks
        pairs = max(self.images * (self.images - 1), 1)
        return [
            Summary(layer, float(square) / (chunks * self.images * g.places), float(off) / (chunks * pairs * g.places))
            for layer, g, (square, off) in zip(self.path.layers[:-1], self.path.grids, self._by_layer, strict=False)
        ]


def summary(layer: Layer, k: Array, q: Array, grid: Grid) -> Summary:
    """Diagonal and off-diagonal means; of two images, only equal positions count."""
    pairs = split(k, grid).diagonal(axis1=1, axis2=3).sum(axis=2)
    n = pairs.shape[0]
    return Summary(layer, float(q.mean()), float(pairs.sum() - np.trace(pairs)) / (max(n * (n - 1), 1) * grid.places))
