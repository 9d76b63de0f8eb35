"""Kernels of activations against direct two-dimensional quadrature that shares no code with the library.

The error is relative to √(E φ_a² E φ_b²); the promise is 1e-8, for unequal variances and near c = ±1 too.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable

import mpmath
import numpy as np
import pytest
from scipy import integrate, special

import firstguess as fg
from firstguess.base.errors import NotConverged, NotCovered
from firstguess.network.activations.kernels import kernel_map, means, table
from firstguess.network.activations.registry import activation

Function = Callable[[np.ndarray], np.ndarray]
SELU = 1.0507009873554805, 1.6732632423543772
T = math.sqrt(2 / math.pi)


def _mish(x: np.ndarray) -> np.ndarray:
    return x * np.tanh(np.logaddexp(0, x))


def _mish_slope(x: np.ndarray) -> np.ndarray:
    t = np.tanh(np.logaddexp(0, x))
    return t + x * (1 - t * t) * special.expit(x)


def _gelu_tanh_slope(x: np.ndarray) -> np.ndarray:
    t = np.tanh(T * (x + 0.044715 * x**3))
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * T * (1 + 0.134145 * x * x)


def _pdf(x: np.ndarray) -> np.ndarray:
    return np.exp(-0.5 * x * x) / math.sqrt(2 * math.pi)


# name -> (φ, φ', kinks), written from the definitions
FUNCTIONS: dict[str, tuple[Function, Function, tuple[float, ...]]] = {
    "linear": (lambda x: x, np.ones_like, ()),
    "relu": (lambda x: np.maximum(x, 0), lambda x: 1.0 * (x > 0), (0.0,)),
    "leaky_relu": (lambda x: np.where(x > 0, x, 0.01 * x), lambda x: np.where(x > 0, 1.0, 0.01), (0.0,)),
    "prelu": (lambda x: np.where(x > 0, x, 0.25 * x), lambda x: np.where(x > 0, 1.0, 0.25), (0.0,)),
    "abs": (np.abs, np.sign, (0.0,)),
    "erf": (special.erf, lambda x: 2 / math.sqrt(math.pi) * np.exp(-x * x), ()),
    "gelu": (lambda x: x * special.ndtr(x), lambda x: special.ndtr(x) + x * _pdf(x), ()),
    "sin": (np.sin, np.cos, ()),
    "square": (lambda x: x * x, lambda x: 2 * x, ()),
    "sign": (np.sign, np.zeros_like, (0.0,)),
    "hardtanh": (lambda x: np.clip(x, -1, 1), lambda x: 1.0 * (np.abs(x) < 1), (-1.0, 1.0)),
    "relu6": (lambda x: np.clip(x, 0, 6), lambda x: 1.0 * ((x > 0) & (x < 6)), (0.0, 6.0)),
    "hardswish": (
        lambda x: x * np.clip(x + 3, 0, 6) / 6,
        lambda x: np.where(x < -3, 0.0, np.where(x > 3, 1.0, x / 3 + 0.5)),
        (-3.0, 3.0),
    ),
    "tanh": (np.tanh, lambda x: 1 / np.cosh(x) ** 2, ()),
    "sigmoid": (special.expit, lambda x: special.expit(x) * special.expit(-x), ()),
    "silu": (lambda x: x * special.expit(x), lambda x: special.expit(x) * (1 + x * special.expit(-x)), ()),
    "softplus": (lambda x: np.logaddexp(0, x), special.expit, ()),
    "mish": (_mish, _mish_slope, ()),
    "gelu_tanh": (lambda x: 0.5 * x * (1 + np.tanh(T * (x + 0.044715 * x**3))), _gelu_tanh_slope, ()),
    "elu": (lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))), lambda x: np.exp(np.minimum(x, 0)), (0.0,)),
    "selu": (
        lambda x: SELU[0] * np.where(x > 0, x, SELU[1] * np.expm1(np.minimum(x, 0))),
        lambda x: SELU[0] * np.where(x > 0, 1.0, SELU[1] * np.exp(np.minimum(x, 0))),
        (0.0,),
    ),
}
CORRELATIONS = (-0.99, -0.5, 0.0, 0.3, 0.9, 1 - 1e-4, 1 - 1e-9)
SIZES = ((0.1, 10.0), (0.4, 0.4), (0.9, 1.1), (0.5, 50.0))
_X, _W = np.polynomial.legendre.leggauss(16)


def _nodes(edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    edges = np.sort(np.clip(edges, -9.0, 9.0), axis=-1)
    half = 0.5 * np.diff(edges, axis=-1)[..., None]
    middle = 0.5 * (edges[..., 1:] + edges[..., :-1])[..., None]
    shape = (*edges.shape[:-1], -1)
    return (middle + half * _X).reshape(shape), (half * _W).reshape(shape)


def quadrature(fn: Function, kinks: tuple[float, ...], qa: float, qb: float, c: float) -> float:
    """E f(√q_a x) f(√q_b (c x + √(1−c²) y)): Gauss-Legendre panels, split at every kink of the inner integrand."""
    a, b, r = math.sqrt(qa), math.sqrt(qb), math.sqrt((1 - c) * (1 + c))
    step = min(1.2, 3.0 / max(a, b))
    plain = np.arange(-9.0, 9.0 + step, step)
    outer = [plain]
    for at in kinks:
        outer.append(np.array([at / a]))
        if abs(c) > 0.1:  # where the inner kink passes: structure of width r/c
            around = 0.5 * r / abs(c) * 2.0 ** np.arange(0, max(1.0, math.log2(20.0 / r)))
            outer.append(at / (b * c) + np.concatenate([-around, [0.0], around]))
    x, wx = _nodes(np.concatenate(outer))
    inner = [np.tile(plain, (x.size, 1))] + [((at / b - c * x) / r)[:, None] for at in kinks]
    y, wy = _nodes(np.concatenate(inner, axis=1))
    conditional = np.sum(wy * _pdf(y) * fn(b * (c * x[:, None] + r * y)), axis=1)
    return float(np.sum(wx * _pdf(x) * fn(a * x) * conditional))


@pytest.mark.parametrize(("name", "c"), [("tanh", 0.6), ("gelu", -0.9), ("sigmoid", 0.99)])
def test_the_reference_against_scipy(name: str, c: float) -> None:
    """The quadrature used below is right: adaptive integration of the same expectation."""
    fn, _, kinks = FUNCTIONS[name]
    qa, qb = 0.5, 2.0
    r = math.sqrt(1 - c * c)
    value, error = integrate.dblquad(
        lambda y, x: float(
            fn(math.sqrt(qa) * x)
            * fn(math.sqrt(qb) * (c * x + r * y))
            * math.exp(-0.5 * (x * x + y * y))
            / (2 * math.pi)
        ),
        *(-9.0, 9.0, -9.0, 9.0),
        epsabs=1e-10,
        epsrel=0.0,
    )
    assert abs(quadrature(fn, kinks, qa, qb, c) - value) <= max(error, 1e-10)


def test_the_reference_against_mpmath() -> None:
    """A kinked one: E elu(x) elu(y) at equal variances and c = 0 is (E elu)²."""
    alone = mpmath.quad(lambda x: mpmath.expm1(x) * mpmath.npdf(x), [-12, 0]) + 1 / mpmath.sqrt(2 * mpmath.pi)
    fn, _, kinks = FUNCTIONS["elu"]
    assert quadrature(fn, kinks, 1.0, 1.0, 0.0) == pytest.approx(float(alone) ** 2, abs=1e-13)


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_maps_agree_with_quadrature(name: str) -> None:
    fn, slope, kinks = FUNCTIONS[name]
    for (qa, qb), c in itertools.product(SIZES, CORRELATIONS):
        if name == "sign" and c > 0.999:
            continue  # the reference would have to follow a jump of width 1e-5; arcsin is exact
        k = np.array([[c * math.sqrt(qa * qb)]])
        expected, expected_slope = quadrature(fn, kinks, qa, qb, c), quadrature(slope, kinks, qa, qb, c)
        scale = math.sqrt(_square(fn, kinks, qa) * _square(fn, kinks, qb))
        scale_slope = math.sqrt(_square(slope, kinks, qa) * _square(slope, kinks, qb))
        wide, own = np.array([0.1, 50.0]), np.array([qa, qb])
        for points in (wide, own) if qb < 2.0 * qa else (wide,):  # one table for all, and one for points of like size
            run = kernel_map(activation(name), points)
            got, got_slope = run(k, np.array([[qa]]), np.array([[qb]]), name != "sign")
            assert abs(got[0, 0] - expected) <= 1e-8 * scale, (qa, qb, c)
            if got_slope is not None:
                assert abs(got_slope[0, 0] - expected_slope) <= 1e-8 * scale_slope, ("slope", qa, qb, c)


def _square(fn: Function, kinks: tuple[float, ...], q: float) -> float:
    root = math.sqrt(q)
    x, w = _nodes(np.concatenate([np.arange(-9.0, 9.0, 0.15 / max(1.0, root) + 0.05), [k / root for k in kinks]]))
    return float(np.sum(w * _pdf(x) * fn(root * x) ** 2))


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_means_agree_with_quadrature(name: str) -> None:
    fn, _, kinks = FUNCTIONS[name]
    q = np.exp(np.linspace(math.log(0.1), math.log(10.0), 60))  # enough distinct sizes to interpolate
    mean, square = means(activation(name), q)
    for index in (0, 17, 44, 59):
        root = math.sqrt(q[index])
        x, w = _nodes(np.concatenate([np.arange(-9.0, 9.1, 0.1), [k / root for k in kinks]]))
        f = fn(root * x)
        scale = math.sqrt(float(np.sum(w * _pdf(x) * f * f)))
        assert abs(mean[index] - np.sum(w * _pdf(x) * f)) <= 1e-10 * scale
        assert abs(square[index] - scale**2) <= 1e-10 * scale**2


def test_custom_functions() -> None:
    """Any callable: smooth, and with a kink at 0, for unequal sizes; with a kink elsewhere, for points of one size."""
    smooth = activation(lambda x: x * np.exp(-0.25 * x * x) + 0.3, name="wave")
    bent = activation(lambda x: np.where(x > 0, x, np.sin(x)), name="half")
    far = activation(lambda x: np.where(x > 0.7, x * x, 0.7 * x), kinks=(0.7,), name="far")
    q = np.array([0.3, 4.0])
    cases: list[tuple[object, Function, tuple[float, ...], float, float]] = [
        (smooth, lambda x: x * np.exp(-0.25 * x * x) + 0.3, (), 0.3, 4.0),
        (bent, lambda x: np.where(x > 0, x, np.sin(x)), (0.0,), 0.3, 4.0),
        (far, lambda x: np.where(x > 0.7, x * x, 0.7 * x), (0.7,), 1.3, 1.3),
    ]
    for phi, fn, kinks, qa, qb in cases:
        run = kernel_map(phi, q if qa != qb else np.array([qa, qa]))
        for c in CORRELATIONS:
            k = np.array([[c * math.sqrt(qa * qb)]])
            got = run(k, np.array([[qa]]), np.array([[qb]]), False)[0][0, 0]
            scale = math.sqrt(_square(fn, kinks, qa) * _square(fn, kinks, qb))
            assert abs(got - quadrature(fn, kinks, qa, qb, c)) <= 1e-8 * scale
    known = activation(
        lambda x: x * np.exp(-0.25 * x * x), derivative=lambda x: (1 - 0.5 * x * x) * np.exp(-0.25 * x * x)
    )
    at = np.full((1, 1), 0.3), np.full((1, 1), 1.0), np.full((1, 1), 1.0)
    tangents = [kernel_map(phi, q)(*at, True)[1] for phi in (smooth, known)]
    assert tangents[0] == pytest.approx(tangents[1], rel=1e-8)
    with pytest.raises(NotCovered, match="without jumps"):
        kernel_map(activation(np.sign, kinks=(0.0,), name="step"), q)(*at, True)


def test_a_kink_away_from_zero_is_refused_at_once_for_unequal_sizes() -> None:
    started = time.perf_counter()
    phi = activation(lambda x: np.maximum(x - 0.5, 0.0), kinks=(0.5,), name="late")
    with pytest.raises(NotConverged, match=r"bends at 0\.5"):
        kernel_map(phi, np.array([0.9, 1.1]))
    assert time.perf_counter() - started < 1.0
    # where no signal reaches the kink there is nothing to refuse
    tiny = np.array([1e-4, 2e-4])
    k = kernel_map(activation(lambda x: x + np.maximum(x - 5.0, 0.0), kinks=(5.0,), name="far"), tiny)
    assert k(np.array([[1e-4]]), tiny[:1, None], tiny[None, 1:], False)[0][0, 0] == pytest.approx(1e-4, rel=1e-9)


def test_an_undeclared_kink_is_not_silently_wrong() -> None:
    phi = activation(lambda x: np.maximum(x - 0.3, 0.0), name="hidden")
    with pytest.raises(NotConverged):
        means(phi, np.array([1.0]))
    with pytest.raises(NotConverged):
        kernel_map(phi, np.array([1.0, 1.0]))


def test_a_function_that_only_shares_a_name() -> None:
    """Closed forms belong to registered activations, not to whatever a user's function is called."""

    def square(x: np.ndarray) -> np.ndarray:
        return np.tanh(x)

    one = np.ones((1, 1))
    got = kernel_map(activation(square), np.ones(2))(0.5 * one, one, one, False)[0][0, 0]
    assert got == pytest.approx(quadrature(np.tanh, (), 1.0, 1.0, 0.5), rel=1e-9)


def test_jumps() -> None:
    one = np.ones((1, 1))
    with pytest.raises(NotCovered, match="no gradient"):
        kernel_map(activation("sign"), np.ones(2))(0.5 * one, one, one, True)
    with pytest.raises(NotCovered, match="jumps"):
        kernel_map(activation(lambda x: 1.0 * (x > 0.2), kinks=(0.2,), name="step"), np.ones(2))


def test_tables_are_few_and_shared() -> None:
    """Layers of a deep network with slowly moving sizes find their table in the cache."""
    table.cache_clear()
    rng = np.random.default_rng(20261115)
    for layer in range(20):
        kernel_map(fg.activation("tanh"), rng.uniform(0.55, 0.6, 50) * (1.0 - 0.001 * layer))
    assert table.cache_info().misses == 1


@pytest.mark.parametrize("name", ["tanh", "gelu", "relu", "hardswish", "elu"])
def test_kernels_are_symmetric_and_positive(name: str) -> None:
    x = np.random.default_rng(20261115).normal(size=(60, 5)) * np.linspace(0.5, 2.0, 60)[:, None]
    k = x @ x.T / 5
    q = k.diagonal().copy()
    out, slope = kernel_map(activation(name), q)(k, q[:, None], q[None, :], True)
    assert slope is not None
    for matrix in (out, slope):
        assert np.abs(matrix - matrix.T).max() <= 1e-12 * np.abs(matrix).max()
        eigenvalues = np.linalg.eigvalsh(matrix)
        assert eigenvalues[0] >= -1e-9 * eigenvalues[-1]
    assert np.allclose(out.diagonal(), means(activation(name), q)[1], rtol=1e-8)
