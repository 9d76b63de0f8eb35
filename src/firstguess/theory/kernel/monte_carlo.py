"""Layers between two random weights, by sampled units: where a covariance alone does not say what comes out.

BatchNorm divides a unit by its *own* scale over a batch, which fluctuates from unit to unit by √(2/directions), and a
max-pool over positions wants the joint distribution of a window. Both are plain arithmetic on one unit's values over
the data, u ~ N(0, K). So units are drawn, sent through the layers, and K' = E y yᵀ is estimated from R of them. A
*control variate* of every unit is divided by the root mean square over all units instead. Its covariance K̃' is known
by formula, so what the sample makes of it tells part of the sampling error (a control variate):

    K' ≈ YᵀY/R + β·(K̃' − ỸᵀỸ/R),   0 ≤ β ≤ 1 by regression;  the standard error is part of the result.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import NamedTuple, cast

import numpy as np

from firstguess.base.errors import NotCovered
from firstguess.base.gaussian import Array
from firstguess.base.numerics import positive, root
from firstguess.network.layer import Fold, Layer, LayerReading, Mix, text
from firstguess.network.layers import Residual
from firstguess.network.points import Joint, Need, Op, PairwiseMap, Points, Remark, UnitMap, Values, mean_of_pairs
from firstguess.network.shapes import PositionGrid, Shape
from firstguess.network.walk import shapes
from firstguess.theory.kernel.tiles import Budget, Mapped, Pending, Stored, all_pairs

_UNITS = 16384  # without control variates the error of a covariance would be 1/√_UNITS = 0.8 % of the diagonal
_AT_ONCE = 1024  # pairs of units ±u
_BYTES_AT_ONCE = 24_000_000  # memory in larger pieces comes from the system again each time, which is slow
_ENOUGH = 500.0  # effective directions from which on formulas do, to 1 or 2 parts in 500: no units are drawn
_NO_TANGENT = "{}: the tangent kernel leaves out that node scales fluctuate"
_PROBES = 256  # entries of the covariance whose error is followed


class SampledUnits(NamedTuple):
    """What comes out: the covariance, the tangent kernel (by formula), a summary of every layer."""

    k: Array
    t: Array | None
    points: Points
    summaries: list[LayerReading]
    remarks: tuple[str, ...]


def by_sampled_units(
    layers: Sequence[Layer],
    points: Points,
    k: Array,
    t: Array | None,
    budget: Budget,
    *,
    seed: int = 0,
    nodes: int = _UNITS,
) -> SampledUnits | None:
    """Carry a covariance of Gaussian nodes through layers without weights; `k` and `t` are overwritten.

    None, with nothing touched, where formulas are good enough: every batch has many directions. The same network and
    data always draw the same units. Piecewise linear activations after a BatchNorm need none (`Layer.jointly`).
    """
    rows, grid = k.shape[0], points.grid
    needs = [layer.need(points, k) for layer in layers if layer.sampled(grid)]
    few = min(needs, key=lambda need: need.directions)
    directions, share = few.directions, min(need.share for need in needs)
    if directions >= _ENOUGH and not any(need.always for need in needs):
        return None
    if (joint := layers[0].jointly(layers[1:])) is not None:
        return _exactly(layers, points, k, t, budget, joint, few)
    exact = share < 1e-4 or not 1e-12 < float(points.q.mean()) < 1e12  # float32 would lose what is left of a unit
    dtype = np.float64 if exact else np.float32
    upper = np.ascontiguousarray(root(k, share).T, dtype=dtype)
    path = _follow(layers, points, k, t, budget)
    pools = math.prod(x.pools for x in layers) if not points.shape.images else 1
    fitting = min(_AT_ONCE, max(128, _BYTES_AT_ONCE // (2 * rows * np.dtype(dtype).itemsize)))
    bunch = math.prod(x.together for x in layers)
    at_once = max(1, fitting // (pools * bunch)) * pools * bunch
    wanted = max(nodes * min(1.0, 2000.0 / rows), 2.0 * rows) * pools
    chunks = max(1, math.ceil(wanted / (2 * at_once)))
    tally = _Tally(path, points.count, bunch)
    # blocks of a ResNet may have the same place in their branch: what arrives there tells them apart
    mark = round(1e4 * float(points.q.mean())) % 2**32

    def draw(index: int) -> Values:
        return np.random.default_rng((seed, mark, index)).standard_normal((at_once, rows), dtype=dtype)

    with ThreadPoolExecutor(1) as pool:  # the next units are drawn while these are worked on
        ahead = pool.submit(draw, 0)
        for index in range(chunks):
            u = ahead.result() @ upper
            if index + 1 < chunks:
                ahead = pool.submit(draw, index + 1)
            tally.add(np.concatenate([u, -u]))  # pairs ±u: the odd and the even part of φ do not mix
    found, entry, mean = tally.covariance()
    q = found.diagonal().astype(np.float64)
    what = f"{text(layers[-1])} of sampled nodes"
    after = Points(q, tally.mean, False, path.shapes[-1], points.default_width, what=what)
    said = (
        f"{' > '.join(text(x) for x in layers)}: by {tally.nodes} sampled nodes, a covariance to ±{entry:.2%} and "
        f"their mean to ±{mean:.2%} of the diagonal (one standard error)"
    )
    if directions < math.inf:
        said += f"; {_fluctuation(few)}"
    remarks: tuple[str, ...] = (Remark(said, "nodes", entry),)
    if t is not None:
        remarks += (_NO_TANGENT.format(few.of),)
    off = mean_of_pairs(found, after)
    summaries = [*tally.summaries(), LayerReading.of(layers[-1], float(q.mean()), off)]
    return SampledUnits(found.astype(k.dtype, copy=False), path.t, after, summaries, remarks)


def _exactly(
    layers: Sequence[Layer], points: Points, k: Array, t: Array | None, budget: Budget, joint: Joint, few: Need
) -> SampledUnits:
    """A BatchNorm over all data and a piecewise linear activation, without sampling."""
    remarks: tuple[str, ...] = (Remark(f"{_fluctuation(few)}: allowed for", "scales", 1.0 / few.directions),)
    if t is not None:
        t = _follow(layers, points, k.copy(), t, budget).t
        remarks += (_NO_TANGENT.format(few.of),)
    first, found, mean = joint(points, k)
    q = found.diagonal().astype(np.float64)
    shape = shapes(layers, points.shape, points.default_width)[-1]
    after = Points(q, mean, False, shape, points.default_width, what=f"the output of {text(layers[1])}")
    second = LayerReading.of(layers[1], float(q.mean()), mean_of_pairs(found, after))
    return SampledUnits(found, t, after, [LayerReading.of(layers[0], 1.0, first), second], remarks)


def _fluctuation(few: Need) -> str:
    directions = few.directions
    count = "1 effective direction" if directions < 1.5 else f"{directions:.0f} effective directions"
    size = math.sqrt(2.0 / directions)
    return f"{few.of} has {count}, a node's variance over {few.over} fluctuates by ±{size:.0%}"


@dataclass
class _Path:
    """The layers as arithmetic on units and on their control variates, whose covariance is known by formula.

    `k` is None where there are no control variates.
    """

    layers: Sequence[Layer]
    shapes: list[Shape]  # after every layer
    maps: list[UnitMap] = field(default_factory=list[UnitMap])
    k: Array | None = None
    t: Array | None = None

    @property
    def grids(self) -> list[PositionGrid]:
        return [shape.grid for shape in self.shapes if shape.grid is not None]


def _follow(layers: Sequence[Layer], points: Points, k: Array, t: Array | None, budget: Budget) -> _Path:
    """What control variates do goes by formula, in runs from one layer that mixes points to the next.

    Where a formula refuses there are no control variates, and layers use the statistics of the units drawn.
    """
    path = _Path(layers, shapes(layers, points.shape, points.default_width)[1:])
    pending: Pending | None = Pending(Stored(k, t, points), points)
    for layer, shape in zip(layers, [points.shape, *path.shapes[:-1]], strict=True):
        points = pending.last if pending is not None else replace(points, shape=shape)
        control: Op | None = None
        if pending is not None and Mix.POINTS in layer.mixes:  # its errors are about the data: no units help
            k, t = all_pairs(pending, budget)
            made = layer.control_variates(points, k, t)
            control, pending = made.control, Pending(Stored(k, made.t, made.points), made.points)
        elif pending is not None:
            try:
                move = layer.covariance(points, cast(Fold, pending))  # without paths it asks for `within` alone
                assert isinstance(move, PairwiseMap)
                pending.layers.append(Mapped(layer, points, move))
            except NotCovered:
                if budget.tangent:
                    raise
                pending = None
        found = layer.sampled_units(points, pending is not None)
        path.maps.append(found if control is None else found._replace(control=control))
    if pending is not None:
        path.k, path.t = all_pairs(pending, budget)
    return path


class _Tally:
    """Sums over units: products of all pairs of points, some of them with their squares, and means by layer."""

    def __init__(self, path: _Path, images: int, bunch: int = 1) -> None:
        self.path, self.images, self.nodes = path, images, 0
        self._bunch = bunch  # units that a norm over a narrow group ties together
        places = path.grids[-1].places
        size = images * places
        self._products = np.zeros((size, size))
        self._controls = np.zeros((size, size)) if path.k is not None else None
        self._memory: Values | None = None
        rng = np.random.default_rng(0)  # which entries are followed: any do
        self._pairs = rng.integers(0, size, (2, _PROBES))
        self._sums = np.zeros((5, _PROBES + 1))  # of a, b, a², ab, b² for the entries and the mean of all
        self._mean = np.zeros(size)
        self._by_layer = np.zeros((len(path.layers), 2))
        self._count = self._chunks = 0

    def add(self, u: Values) -> None:
        y = u.copy()
        for index, (unit_map, grid) in enumerate(zip(self.path.maps, self.path.grids, strict=True)):
            y = unit_map.units(y)
            if index + 1 < len(self.path.maps):
                self._by_layer[index] += np.array(_sums(y, self.images, grid)) / y.shape[0]
        self._products += self._product(y)
        self._mean += y.sum(axis=0, dtype=np.float64)
        self.nodes += y.shape[0]
        seen = [self._probe(y)]
        if self._controls is not None:
            for unit_map in self.path.maps:
                u = unit_map.control(u)
            self._controls += self._product(u)
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
        """The followed products of every pair of units ±u (one number a pair: the two are not independent)."""
        entries = y[:, self._pairs[0]].astype(np.float64) * y[:, self._pairs[1]]
        mean = y.mean(axis=1, dtype=np.float64) ** 2
        return _by_pairs(np.concatenate([entries, mean[:, None]], axis=1), self._bunch)

    def covariance(self) -> tuple[Array, float, float]:
        """The estimate, the standard error of an entry (root mean square) and that of the mean, by the diagonal."""
        self._memory = None
        a, b, aa, ab, bb = self._sums / self._count
        spread, joint, other = aa - a * a, ab - a * b, bb - b * b
        found, beta = self._products, 0.0  # in place: with many points every matrix counts
        found /= self.nodes
        if self._controls is not None and self.path.k is not None:
            beta = float(np.clip(joint[:-1].sum() / max(other[:-1].sum(), 1e-300), 0.0, 1.0))
            control = self._controls
            control /= -self.nodes
            control += self.path.k
            known = found.diagonal().copy()
            beta = next((x for x in (beta, 0.5 * beta) if positive(found + x * control)), 0.0)
            control *= beta
            found += control
            if (settle := self.path.maps[-1].settle) is not None:
                settle(found, known)
        error = np.sqrt(np.maximum(spread - 2.0 * beta * joint + beta**2 * other, 0.0) / self._count)
        q = float(found.diagonal().mean())
        return found, math.sqrt(float(np.mean(error[:-1] ** 2))) / q, float(error[-1]) / q

    @property
    def mean(self) -> Array:
        return self._mean / self.nodes

    def summaries(self) -> list[LayerReading]:
        """The summaries of all layers but the last."""
        chunks = self._chunks
        pairs = max(self.images * (self.images - 1), 1)
        return [
            LayerReading.of(
                layer, float(square) / (chunks * self.images * g.places), float(off) / (chunks * pairs * g.places)
            )
            for layer, g, (square, off) in zip(self.path.layers[:-1], self.path.grids, self._by_layer, strict=False)
        ]


# Residual sums that are not Gaussian, in the kernel reading: relu(relu(u) + f), as in most ResNets, by sampled nodes.
#
# A covariance does not say what an activation makes of φ(u) + v. But units do: u ~ N(0, K) is drawn, sent through the
# layers without weights, and at every block v ~ N(0, K_f) is added, K_f being what the branch makes of the covariance
# of the units so far. Branches end in weights of their own, so v is independent of the units. At the next weights the
# covariance is estimated from all units, and its standard error is part of the result.


def by_sampled_sums(
    layers: Sequence[Layer], points: Points, k: Array, fold: Fold, *, seed: int = 0
) -> SampledUnits | None:
    """Carry a covariance of Gaussian nodes through layers without weights and residual blocks.

    None where a branch does not give Gaussian nodes. The same network and data always draw the same nodes.
    """
    if points.real is not None:
        expected = "sequences without padding for a sum of activated nodes under an activation, whose nodes are sampled"
        raise NotCovered(expected, got="padding", hint="sequences of one length, or fg.measure(...)")
    images = points.count
    pools = math.prod(x.pools for x in layers) if not points.shape.images else 1
    wanted = max(_UNITS * min(1.0, 2000.0 / k.shape[0]), 2.0 * k.shape[0]) * pools
    bunch = math.prod(x.together for x in layers)
    half = math.ceil(wanted / (2 * pools * bunch)) * pools * bunch
    rng = np.random.default_rng((seed, round(1e4 * float(points.q.mean())) % 2**32))

    def draw(k: Array, pairs: int) -> Values:
        """Pairs ±u: the odd and the even part of φ do not mix."""
        ordinary = 1e-12 < float(k.diagonal().mean()) < 1e12  # else squares of units would leave float32
        u = rng.standard_normal((pairs, k.shape[0]), dtype=np.float32)
        u = u @ root(k).T.astype(np.float32 if ordinary else np.float64)
        return np.concatenate([u, -u])

    y = draw(k, half)
    summaries: list[LayerReading] = []
    remarks: list[str] = []
    now = points
    for layer in layers:
        if isinstance(layer, Residual):
            now = Points(*_moments(y), False, now.shape, points.default_width, what="sampled nodes")
            f = fold.through(layer.branch, now, _covariance(y), None, "branch")
            if not f.points.gaussian or not f.points.centred:
                return None
            remarks += f.remarks
            for one in layer.shortcut:
                y, now = _apply(one, y, now)
            y = y + layer.scale * draw(f.k, y.shape[0] // 2)
        else:
            y, now = _apply(layer, y, now)
        summaries.append(_summary(layer, y, images, now.grid))
    found = _covariance(y)
    q, mean = _moments(y)
    error = _error(y, bunch) / float(q.mean())
    what = " > ".join(f"{x.kind}[…]" if x.paths else text(x) for x in layers)
    remarks.append(Remark(f"{what}: by {len(y)} sampled nodes, a covariance to ±{error:.2%} of the diagonal (one "
                          "standard error)", "nodes", error))  # fmt: skip
    after = Points(q, mean, False, now.shape, points.default_width, what=f"{text(layers[-1])} of sampled nodes")
    return SampledUnits(found.astype(k.dtype, copy=False), None, after, summaries, tuple(remarks))


def _apply(layer: Layer, y: Values, points: Points) -> tuple[Values, Points]:
    """A layer by the statistics of the units drawn: of the points only their shape is known."""
    shape = layer.shape(points.shape, points.default_width)
    return layer.sampled_units(points, known=False).units(y), replace(points, shape=shape)


def _covariance(y: Values) -> Array:
    return np.asarray(y.T @ y, dtype=np.float64) / len(y)


def _moments(y: Values) -> tuple[Array, Array]:
    square = np.einsum("rp,rp->p", y, y, dtype=np.float64) / len(y)
    return np.asarray(square, dtype=np.float64), np.asarray(y.mean(axis=0, dtype=np.float64), dtype=np.float64)


def _by_pairs(products: Array, bunch: int) -> Array:
    """Averages over pairs of units ±u, and over the units of a narrow group: what is independent of each other."""
    half = len(products) // 2
    pairs = 0.5 * (products[:half] + products[half : 2 * half])
    return pairs.reshape(-1, bunch, pairs.shape[1]).mean(axis=1)


def _error(y: Values, bunch: int) -> float:
    """The root mean square over entries of their standard error; the two of a pair ±u are not independent, nor are
    those of a narrow group."""
    size = y.shape[1]
    a, b = np.random.default_rng(0).integers(0, size, (2, _PROBES))  # which entries are followed: any do
    pairs = _by_pairs(y[:, a].astype(np.float64) * y[:, b], bunch)
    return math.sqrt(float(np.mean(pairs.var(axis=0))) / len(pairs))


def _summary(layer: Layer, y: Values, images: int, grid: PositionGrid) -> LayerReading:
    (square, off), scale = _sums(y, images, grid), len(y) * grid.places
    return LayerReading.of(layer, square / (scale * images), off / (scale * max(images * (images - 1), 1)))


def _sums(y: Values, images: int, grid: PositionGrid) -> tuple[float, float]:
    """Σ y², and Σ y_a y_b over different points at equal positions."""
    square, total = float(np.vdot(y, y)), y.reshape(len(y), images, grid.places).sum(axis=1)
    return square, float(np.vdot(total, total)) - square
