"""Roots of functions, roots of covariances that are positive up to rounding or sampling, and series."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar, cast

import numpy as np
from numpy.polynomial import chebyshev
from numpy.typing import NDArray

from firstguess.base.errors import NotConverged
from firstguess.base.gaussian import Array

Factor = TypeVar("Factor")


def find_root(
    fn: Callable[[float], float], low: float, high: float, *, xtol: float = 2e-12, rtol: float = 2.0**-50
) -> float:
    """Where a function is 0 between two points at which its signs differ (Brent); ValueError where they do not."""
    from scipy.optimize import brentq  # takes 50 ms to import

    return cast(float, brentq(fn, low, high, xtol=xtol, rtol=np.float64(rtol)))


def bisect(below: Callable[[Array], NDArray[np.bool_]], low: Array, high: Array, steps: int) -> Array:
    """Where `below` changes from true to false between two ends, entry by entry."""
    for _ in range(steps):
        middle = 0.5 * (low + high)
        short = below(middle)
        low, high = np.where(short, middle, low), np.where(short, high, middle)
    return 0.5 * (low + high)


def least_jitter(attempt: Callable[[float], Factor | None], ladder: Iterable[float]) -> tuple[Factor, float] | None:
    """The factor of a matrix whose diagonal is raised by the first step of a ladder for which there is one.

    `attempt` raises the diagonal by a share of its mean and factorizes, in NumPy or torch; None: not positive.
    """
    for jitter in ladder:
        found = attempt(jitter)
        if found is not None:
            return found, jitter
    return None


def lower_factor(k: Array, jitter: float) -> Array | None:
    """The lower triangular factor in float64 of a covariance whose diagonal is raised by a share of its mean."""
    from scipy.linalg import cholesky

    work = np.array(k, dtype=np.float64, order="F")  # overwritten: no third matrix
    work[np.diag_indices_from(work)] += jitter * float(k.diagonal().mean(dtype=np.float64))
    try:
        return np.asarray(cholesky(work, lower=True, overwrite_a=True, check_finite=False), dtype=np.float64)
    except np.linalg.LinAlgError:
        return None


def root(k: Array, share: float = 1.0, *, negative: float = 1e-3) -> Array:
    """R with R Rᵀ = K, up to rounding and 1e-5.

    A raised diagonal would be a signal to a BatchNorm that leaves only a small `share` of the variance. Directions that
    are `negative` by up to this share of the mean diagonal are left out: a covariance by a formula that is not exact
    has some.
    """
    mean = float(k.diagonal().mean())
    steps = [raised for raised in (1e-12, 1e-8, 1e-5) if raised <= max(1e-12, 1e-3 * share)]
    if (made := least_jitter(lambda jitter: lower_factor(k, jitter), steps)) is not None:
        return made[0]
    found = np.linalg.eigh(k.astype(np.float64))
    values, vectors = np.asarray(found[0], dtype=np.float64), np.asarray(found[1], dtype=np.float64)
    if values[0] < -negative * mean:
        expected = "a covariance that is positive up to rounding"
        raise NotConverged(expected, got="one with clearly negative directions", hint="float64 instead of float32")
    vectors *= np.sqrt(np.maximum(values, 0.0))
    return vectors


def positive(k: Array) -> bool:
    """Make K positive up to the rounding of float32; `k` is overwritten."""
    from scipy.linalg import cholesky

    k[np.diag_indices_from(k)] += 1e-5 * float(k.diagonal().mean())
    try:
        cholesky(k, overwrite_a=True, check_finite=False)
    except np.linalg.LinAlgError:
        return False
    return True


# Layers that act on correlations alone, taken together: one series instead of a map a layer.
#
# Weights without biases, piecewise linear activations, and norms over nodes turn the correlation c of two points into a
# correlation that depends on c only. A chain of them is one function of the angle α = arcsin c, analytic on [−π/2, π/2]
# (the map of ReLU is entire in α, and α' is analytic in α at the ends): a Chebyshev series of 26 terms serves 5 layers,
# one of 42 serves 20. Sums over all pairs, which the summary of a layer wants, need only the sums of the basis.

Correlate = Callable[[Array], Array]

_MOST_TERMS = 256
_BLOCK = 16384  # entries that pass through all of the work at a time: what it needs then stays in the cache


def interpolate(values: Array) -> Array:
    """Chebyshev coefficients along the first axis of values at chebpts1."""
    from scipy.fft import dct  # here: loading it takes longer than a prediction

    coefficients = np.asarray(dct(values[::-1], axis=0)) / values.shape[0]  # SciPy's nodes go down
    coefficients[0] *= 0.5
    return coefficients


class Chain:
    """Correlations after every layer of a chain: Σ_ji products[layer, j, i]·T_{jI}(x)·T_i(x) with x = 2α/π."""

    def __init__(self, products: Array) -> None:
        self.products = products  # (layers, J, I)
        self._mine = threading.local()  # memory to work in: fresh memory would cost more than the arithmetic

    def __call__(self, c: Array, left: Array, right: Array) -> Array:
        """Map correlations (rows, cols) in place to those after the last layer; Σ_ab left_a·right_b·c'_ab of all."""
        last = self.products[-1].astype(c.dtype)
        sums = np.zeros_like(self.products[0])
        height = max(1, _BLOCK // c.shape[1])
        for start in range(0, c.shape[0], height):
            rows = slice(start, start + height)
            x = c[rows].reshape(-1)  # whole rows of an array of its own: a view
            short, long, work = self._memory(x)
            _basis(x, short, long)
            np.multiply.outer(left[rows].astype(c.dtype), right.astype(c.dtype), out=x.reshape(-1, c.shape[1]))
            np.multiply(long, x, out=work)
            sums += np.dot(work, short.T)  # unlike @, it lets other threads run where the result is small
            np.matmul(last, short, out=work)
            np.einsum("jb,jb->b", work, long, out=x)
        return np.einsum("lji,ji->l", self.products, sums)

    def _memory(self, x: Array) -> tuple[Array, Array, Array]:
        """Room for T_0 … T_{I−1}, for T_0, T_I, T_2I …, whose first rows are ones, and for work."""
        _, many, few = self.products.shape
        rows = few + 2 * many
        held: Array | None = getattr(self._mine, "held", None)
        if held is None or held.dtype != x.dtype or held.size < rows * x.size:
            held = self._mine.held = np.empty(rows * max(x.size, _BLOCK), x.dtype)
        room = held[: rows * x.size].reshape(rows, x.size)
        short, long, work = room[:few], room[few : few + many], room[few + many :]
        short[0] = long[0] = 1.0
        return short, long, work


def _basis(c: Array, short: Array, long: Array) -> None:
    """T_0 … T_{I−1} and T_0, T_I, T_2I … of the angles of c, which is used up; rows 0 are ones already."""
    x = short[1]
    np.arcsin(c, out=x)
    x *= 2.0 / math.pi
    _fill(short, c)
    if long.shape[0] > 1:  # T_I = 2 T_{I−1} T_1 − T_{I−2}
        np.multiply(x, 2.0, out=c)
        np.multiply(c, short[-1], out=long[1])
        long[1] -= short[-2]
        _fill(long, c)


def _fill(rows: Array, spare: Array) -> None:
    """Rows 2, 3 … from rows 0 and 1, twice as many at a time: T_{m+i} = 2 T_m T_i − T_{m−i}."""
    m = 1
    while m < rows.shape[0] - 1:
        more = min(m, rows.shape[0] - 1 - m)
        np.multiply(rows[m], 2.0, out=spare)
        new = rows[m + 1 : m + 1 + more]
        np.multiply(rows[1 : 1 + more], spare, out=new)
        new -= rows[m - more : m][::-1]
        m += more


def chain(maps: Sequence[Correlate], tolerance: float) -> Chain | None:
    """The series of a chain of maps of correlations, one after the other; None if 256 terms do not reach `tolerance`.

    >>> twice = chain([lambda c: (np.sqrt(1.0 - c * c) + c * (np.pi - np.arccos(c))) / np.pi] * 2, 1e-14)
    >>> c = np.array([[0.0, 1.0]])
    >>> sums = twice(c, np.ones(1), np.ones(2))
    >>> print(c.round(6), sums.round(6))              # two ReLU layers: from 0 to 1/π to 0.493731
    [[0.493731 1.      ]] [1.31831  1.493731]
    """
    n = 32
    while n <= _MOST_TERMS:
        c = np.sin(0.5 * math.pi * chebyshev.chebpts1(n))
        after: list[Array] = []
        for correlate in maps:
            c = correlate(c.copy())
            after.append(c)
        series = interpolate(np.stack(after, axis=1))
        terms = int(np.nonzero(np.abs(series).max(axis=1) > tolerance)[0][-1]) + 1
        if terms <= n - 4:
            return Chain(_products(series[:terms].T))
        n *= 2
    return None


def _products(series: Array) -> Array:
    """Σ a_m T_m as Σ_ji b_ji T_{jI} T_i, by T_{jI+i} = 2 T_{jI} T_i − T_{jI−i}: about 2√n terms to compute, not n."""
    layers, n = series.shape
    few = max(2, math.isqrt(n - 1) + 1)
    many = -(-n // few)
    left = np.zeros((layers, many * few))
    left[:, :n] = series
    out = np.zeros((layers, many, few))
    for m in range(many * few - 1, -1, -1):
        j, i = divmod(m, few)
        if j == 0 or i == 0:
            out[:, j, i] = left[:, m]
        else:
            out[:, j, i] = 2.0 * left[:, m]
            left[:, j * few - i] -= left[:, m]
    return out
