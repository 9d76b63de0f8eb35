"""Residual sums that are not Gaussian, in the kernel reading: relu(relu(u) + f), as in most ResNets, by sampled nodes.

A covariance does not say what an activation makes of φ(u) + v. But nodes do: u ~ N(0, K) is drawn, sent through the
layers without weights, and at every block v ~ N(0, K_f) is added, K_f being what the branch makes of the covariance of
the nodes so far. Branches end in weights of their own, so v is independent of the nodes. At the next weights the
covariance is estimated from all nodes, and its standard error is part of the result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from firstguess.base.gaussian import Array
from firstguess.base.roots import root
from firstguess.network.grid import Grid
from firstguess.network.image_layers import positions_after
from firstguess.network.layers import Activate, AvgPool, Layer, MaxPool, Residual, text
from firstguess.network.layers.residual import unsigned
from firstguess.network.node_ops import NODEWISE, Values, operation
from firstguess.network.points import Points, Remark
from firstguess.theory.sampled_nodes import Nodewise
from firstguess.theory.tiles import Summary

# A branch on a whole covariance: (layers, points, grid, k) -> points, k, remarks
Through = Callable[[Sequence[Layer], Points, Grid, Array], tuple[Points, Array, Sequence[str]]]

_NODES = 16384  # an error of a covariance of 1/√_NODES = 0.8 % of the diagonal
_PROBES = 256  # entries of the covariance whose error is followed


def sums_ahead(layers: Sequence[Layer]) -> int:
    """How many layers in front, up to the next weights, have a sum of activated nodes under an activation; else 0."""
    if not layers or isinstance(layers[0], Residual):
        return 0
    length, bent, summed, needed = 0, False, False, False
    for layer in layers:
        if isinstance(layer, Residual):
            if unsigned(layer.branch) or not all(isinstance(x, NODEWISE) for x in layer.shortcut):
                break
            summed = summed or bent
        elif not isinstance(layer, NODEWISE):
            break
        bends = isinstance(layer, (Activate, MaxPool))
        bent, needed = bent or bends, needed or (bends and summed)
        length += 1
    return length if needed else 0


def by_sums(
    layers: Sequence[Layer], points: Points, grid: Grid, k: Array, through: Through, *, seed: int = 0
) -> Nodewise | None:
    """Carry a covariance of Gaussian nodes through layers without weights and residual blocks.

    None where a branch does not give Gaussian nodes. The same network and data always draw the same nodes.
    """
    images = k.shape[0] // grid.places
    pools = math.prod(x.size for x in layers if isinstance(x, (AvgPool, MaxPool))) if grid.flat else 1
    wanted = max(_NODES * min(1.0, 2000.0 / k.shape[0]), 2.0 * k.shape[0]) * pools
    half = math.ceil(wanted / (2 * pools)) * pools
    rng = np.random.default_rng((seed, round(1e4 * float(points.q.mean())) % 2**32))

    def draw(k: Array, pairs: int) -> Values:
        """Pairs ±u: the odd and the even part of φ do not mix."""
        u = rng.standard_normal((pairs, k.shape[0]), dtype=np.float32) @ root(k).T.astype(np.float32)
        return np.concatenate([u, -u])

    y = draw(k, half)
    summaries: list[Summary] = []
    remarks: list[str] = []
    for layer in layers:
        if isinstance(layer, Residual):
            now = Points(*_moments(y), False, points.width, points.width_after, what="sampled nodes")
            inner, f, said = through(layer.branch, now, grid, _covariance(y))
            if not inner.gaussian or inner.mean.any():
                return None
            remarks += said
            for one in layer.shortcut:
                y, grid = _apply(one, y, grid)
            y += np.float32(layer.scale) * draw(f, y.shape[0] // 2)
        else:
            y, grid = _apply(layer, y, grid)
        summaries.append(_summary(layer, y, images, grid))
    found = _covariance(y)
    q, mean = _moments(y)
    error = _error(y) / float(q.mean())
    what = " > ".join(text(x) if not isinstance(x, Residual) else "residual[…]" for x in layers)
    remarks.append(Remark(f"{what}: by {len(y)} sampled nodes, a covariance to ±{error:.2%} of the diagonal (one "
                          "standard error)", "nodes", error))  # fmt: skip
    after = Points(q, mean, False, points.width, points.width_after, what=f"{text(layers[-1])} of sampled nodes")
    return Nodewise(found.astype(k.dtype, copy=False), None, after, grid, summaries, tuple(remarks))


def _apply(layer: Layer, y: Values, grid: Grid) -> tuple[Values, Grid]:
    constant = None if isinstance(layer, Activate) and layer.phi.centered else 0.0
    return operation(layer, grid, constant)(y), positions_after(layer, grid)


def _covariance(y: Values) -> Array:
    return np.asarray(y.T @ y, dtype=np.float64) / len(y)


def _moments(y: Values) -> tuple[Array, Array]:
    square = np.einsum("rp,rp->p", y, y, dtype=np.float64) / len(y)
    return np.asarray(square, dtype=np.float64), np.asarray(y.mean(axis=0, dtype=np.float64), dtype=np.float64)


def _error(y: Values) -> float:
    """The root mean square over entries of their standard error; the two of a pair ±u are not independent."""
    size = y.shape[1]
    a, b = np.random.default_rng(0).integers(0, size, (2, _PROBES))  # which entries are followed: any do
    products = y[:, a].astype(np.float64) * y[:, b]
    half = len(products) // 2
    pairs = 0.5 * (products[:half] + products[half : 2 * half])
    return math.sqrt(float(np.mean(pairs.var(axis=0))) / half)


def _summary(layer: Layer, y: Values, images: int, grid: Grid) -> Summary:
    at = y.reshape(len(y), images, grid.places)
    square, total = float(np.vdot(y, y)), at.sum(axis=1)
    scale = len(y) * grid.places
    off = (float(np.vdot(total, total)) - square) / (scale * max(images * (images - 1), 1))
    return Summary(layer, square / (scale * images), off)
