"""Residual sums that are not Gaussian, in the kernel reading: relu(relu(u) + f), as in most ResNets, by sampled nodes.

A covariance does not say what an activation makes of φ(u) + v. But nodes do: u ~ N(0, K) is drawn, sent through the
layers without weights, and at every block v ~ N(0, K_f) is added, K_f being what the branch makes of the covariance of
the nodes so far. Branches end in weights of their own, so v is independent of the nodes. At the next weights the
covariance is estimated from all nodes, and its standard error is part of the result.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from firstguess.base.errors import NotCovered
from firstguess.base.gaussian import Array
from firstguess.base.roots import root
from firstguess.network.grid import Grid
from firstguess.network.layer import Fold, Layer, text
from firstguess.network.layers import Residual
from firstguess.network.nodes import Values
from firstguess.network.points import Points
from firstguess.network.remarks import Remark
from firstguess.theory.sampled_nodes import Nodewise
from firstguess.theory.tiles import Summary

_NODES = 16384  # an error of a covariance of 1/√_NODES = 0.8 % of the diagonal
_PROBES = 256  # entries of the covariance whose error is followed


def by_sums(layers: Sequence[Layer], points: Points, k: Array, fold: Fold, *, seed: int = 0) -> Nodewise | None:
    """Carry a covariance of Gaussian nodes through layers without weights and residual blocks.

    None where a branch does not give Gaussian nodes. The same network and data always draw the same nodes.
    """
    if points.real is not None:
        raise NotCovered(
            "sequences without padding for a sum of activated nodes under an activation, whose nodes are sampled",
            got="padding",
            hint="sequences of one length, or fg.measure(...)",
        )
    images = points.count
    pools = math.prod(x.pools for x in layers) if not points.shape.images else 1
    wanted = max(_NODES * min(1.0, 2000.0 / k.shape[0]), 2.0 * k.shape[0]) * pools
    bunch = math.prod(x.together for x in layers)
    half = math.ceil(wanted / (2 * pools * bunch)) * pools * bunch
    rng = np.random.default_rng((seed, round(1e4 * float(points.q.mean())) % 2**32))

    def draw(k: Array, pairs: int) -> Values:
        """Pairs ±u: the odd and the even part of φ do not mix."""
        ordinary = 1e-12 < float(k.diagonal().mean()) < 1e12  # else squares of nodes would leave float32
        u = rng.standard_normal((pairs, k.shape[0]), dtype=np.float32)
        u = u @ root(k).T.astype(np.float32 if ordinary else np.float64)
        return np.concatenate([u, -u])

    y = draw(k, half)
    summaries: list[Summary] = []
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
    return Nodewise(found.astype(k.dtype, copy=False), None, after, summaries, tuple(remarks))


def _apply(layer: Layer, y: Values, points: Points) -> tuple[Values, Points]:
    """A layer by the statistics of the nodes drawn: of the points only their shape is known."""
    shape = layer.shape(points.shape, points.default_width)
    return layer.nodes(points, known=False).own(y), replace(points, shape=shape)


def _covariance(y: Values) -> Array:
    return np.asarray(y.T @ y, dtype=np.float64) / len(y)


def _moments(y: Values) -> tuple[Array, Array]:
    square = np.einsum("rp,rp->p", y, y, dtype=np.float64) / len(y)
    return np.asarray(square, dtype=np.float64), np.asarray(y.mean(axis=0, dtype=np.float64), dtype=np.float64)


def _error(y: Values, bunch: int) -> float:
    """The root mean square over entries of their standard error; the two of a pair ±u are not independent, nor are
    those of a narrow group."""
    size = y.shape[1]
    a, b = np.random.default_rng(0).integers(0, size, (2, _PROBES))  # which entries are followed: any do
    products = y[:, a].astype(np.float64) * y[:, b]
    half = len(products) // 2
    pairs = 0.5 * (products[:half] + products[half : 2 * half])
    pairs = pairs.reshape(-1, bunch, pairs.shape[1]).mean(axis=1)
    return math.sqrt(float(np.mean(pairs.var(axis=0))) / len(pairs))


def _summary(layer: Layer, y: Values, images: int, grid: Grid) -> Summary:
    at = y.reshape(len(y), images, grid.places)
    square, total = float(np.vdot(y, y)), at.sum(axis=1)
    scale = len(y) * grid.places
    off = (float(np.vdot(total, total)) - square) / (scale * max(images * (images - 1), 1))
    return Summary(layer, square / (scale * images), off)
