"""Max-pooling: theory.md (9) three ways (independent quadrature, simulation, limits on paper)."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import special
from simulated import FUNCTIONS, agrees, forward, moments

import firstguess as fg
from firstguess.network.activations.registry import activation
from firstguess.network.grammar import parse_layers
from firstguess.network.layers import MaxPool
from firstguess.network.pooling import max_mean_square_slope, max_moments

RISING = ["relu", "tanh", "linear", "hardtanh", "selu", "softplus", "elu", "sigmoid", "relu6", "erf"]


def panels(kinks: list[float], nodes: int = 20) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    edges = np.unique(np.concatenate([np.linspace(-9.0, 9.0, 15), [k for k in kinks if abs(k) < 9.0]]))
    x, w = special.roots_legendre(nodes)
    half, middle = 0.5 * np.diff(edges), 0.5 * (edges[1:] + edges[:-1])
    return (middle[:, None] + half[:, None] * x).ravel(), (half[:, None] * w).ravel()


def nine(name: str, size: int, q: float, c: float) -> tuple[float, float, float]:
    """(mean, between, spread) as theory.md (9) writes them: the integral of F₂^K − F₁^K F₁^K over the plane.

    F₂ by its derivative in the correlation, a 160-point rule; nothing is shared with firstguess but φ and φ'.
    """
    phi, root = activation(name), math.sqrt(q)
    s, w = panels([f.at / root for f in phi.features])
    rise = w * root * phi.derivative(root * s)  # type: ignore[misc]
    a, b = s[:, None], s[None, :]
    x, weight = special.roots_legendre(160)
    arc = math.asin(c)
    joint = special.ndtr(a) * special.ndtr(b)
    product = joint**size
    for angle, wa in zip(0.5 * arc * (x + 1), 0.5 * arc * weight, strict=True):
        joint = joint + wa / (2 * math.pi) * np.exp(
            -(a * a + b * b - 2 * a * b * math.sin(angle)) / (2 * math.cos(angle) ** 2)
        )
    between = float(rise @ (joint**size - product) @ rise)
    mass = w * size * np.exp(-0.5 * s * s) / math.sqrt(2 * math.pi) * special.ndtr(s) ** (size - 1)
    f = phi(root * s)
    mean = float(mass @ f)
    return mean, between, float(mass @ (f - mean) ** 2) - between


@pytest.mark.parametrize("name", RISING)
@pytest.mark.parametrize(
    ("size", "q", "c"), [(2, 0.3, 0.3), (4, 4.0, 0.69), (9, 1.0, 0.71), (25, 0.3, 0.9), (3, 4.0, 1e-3)]
)
def test_against_the_double_integral(name: str, size: int, q: float, c: float) -> None:
    """Both branches (c below and above ½√2) and φ of both signs."""
    got = max_moments(activation(name), size, c * q, (1 - c) * q)
    assert got == pytest.approx(nine(name, size, q, c), rel=2e-9)


def relu_near_one(size: int, one_minus_c: float) -> float:
    """The spread after ReLU at q = 1 for c near 1: 2∬ (F₁(s)^K − F₂(s, t)^K) over 0 < s < t.

    F₁(s) − F₂(s, t) by conditioning on the first point, in z = (s − x)/√(1−c²): another way than firstguess's.
    """
    c = 1.0 - one_minus_c
    width = math.sqrt(one_minus_c * (1.0 + c))
    s, ws = panels([0.0])
    s, ws = s[s > 0.0], ws[s > 0.0]
    x, w = special.roots_legendre(48)
    delta, wd = 5.5 * (x + 1), 5.5 * w
    x, w = special.roots_legendre(80)
    z, wz = 7.0 * (x + 1), 7.0 * w
    tail = special.ndtr(-(delta[None, :, None] + s[:, None, None] * one_minus_c / width + c * z))
    density = np.exp(-0.5 * (s[:, None, None] - width * z) ** 2) / math.sqrt(2 * math.pi)
    gap = width * np.sum(wz * density * tail, axis=2)
    single = special.ndtr(s)[:, None]
    loss = single**size * -np.expm1(size * np.log1p(-gap / single))
    return 2.0 * width * float(ws @ loss @ wd)


@pytest.mark.parametrize("size", [2, 4, 9, 25])
@pytest.mark.parametrize("one_minus_c", [0.3, 0.1, 1e-2, 1e-4, 1e-6])
def test_relu_near_one_by_conditioning(size: int, one_minus_c: float) -> None:
    got = max_moments(activation("relu"), size, 1 - one_minus_c, one_minus_c).spread
    assert got == pytest.approx(relu_near_one(size, one_minus_c), rel=1e-9)


@pytest.mark.parametrize("one_minus_c", ["1", "0.7", "0.32", "0.29", "1e-3", "1e-6", "1e-9", "1e-14", "1e-40"])
def test_two_linear_nodes_are_known_exactly(one_minus_c: str) -> None:
    """max(u, v) = (u+v)/2 + |u−v|/2, so E M_a M_b = r/2 + (q/π)(√(1−c²) + c·arcsin c); mpmath, 60 digits."""
    with mpmath.workdps(60):
        gap = mpmath.mpf(one_minus_c)
        c = 1 - gap
        center = c / 2 + (mpmath.sqrt(1 - c * c) + c * mpmath.asin(c)) / mpmath.pi
        between, spread = float(center - 1 / mpmath.pi), float(1 - center)
    got = max_moments(activation("linear"), 2, 1.0 - float(one_minus_c), float(one_minus_c))
    assert got.mean == pytest.approx(1 / math.sqrt(math.pi), rel=1e-12)
    assert got.between == pytest.approx(between, rel=1e-10, abs=0.0)
    assert got.spread == pytest.approx(spread, rel=1e-8 if float(one_minus_c) < 1e-7 else 1e-10, abs=0.0)


@pytest.mark.parametrize("size", [2, 4, 9, 25])
@pytest.mark.parametrize(("name", "c"), [("relu", 0.0), ("relu", 0.5), ("relu", 0.98), ("tanh", 0.5), ("linear", 0.98)])
def test_against_drawn_pools(size: int, name: str, c: float) -> None:
    """250 replicates of 800 pools of pairs; 5.5 standard errors, false alarm < 2e-7 a number."""
    rng = np.random.default_rng(11)
    shared = rng.standard_normal((250, 800, size))
    a, b = (
        FUNCTIONS[name](math.sqrt(c) * shared + math.sqrt(1 - c) * rng.standard_normal(shared.shape)).max(2)
        for _ in range(2)
    )
    m = max_moments(activation(name), size, c, 1 - c)
    agrees(a.mean(1), m.mean, what="mean")
    agrees((a * b).mean(1), m.mean**2 + m.between, what="center")
    agrees((a * a).mean(1), m.mean**2 + m.between + m.spread, what="total")
    agrees(0.5 * ((a - b) ** 2).mean(1), m.spread, what="spread")


@pytest.mark.parametrize("size", [2, 4, 9, 25])
@pytest.mark.parametrize("depth", [1, 10])
def test_by_depth_against_the_double_integral(size: int, depth: int) -> None:
    """The whole recursion of γ by (9), with the independent integrals at every layer (ReLU is scale-free: q = 1)."""
    gamma = 0.0
    for _ in range(depth):
        gap = 1.0 / (1.0 + gamma)
        mean, between, spread = nine("relu", size, 1.0, min(1.0 - gap, 0.7))
        if gap < 0.3:
            variance, spread = between + spread, relu_near_one(size, gap)
            between = variance - spread
        gamma = (mean**2 + between) / spread
    got = fg.predict(f"{depth} x [dense > relu > maxpool({size})] > dense").gamma[-1]
    assert got == pytest.approx(gamma, rel=1e-8)


def test_a_wide_network_of_real_weights() -> None:
    """Depth 3, K = 2, width 256: 220 networks; the bias of finite width is below the standard errors here."""
    layers = parse_layers("3 x [dense > relu > maxpool(2)] > dense")
    want = fg.predict("3 x [dense > relu > maxpool(2)] > dense")
    rng = np.random.default_rng(5)
    got = np.array([moments(forward(layers, rng.standard_normal((6, 300)), rng, 256)) for _ in range(220)])
    agrees(got[:, 1], float(want.correlation[-1] * want.q[-1]), what="center")
    agrees(got[:, 2], float(want.q[-1]), what="total")


# --- limits -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["relu", "tanh", "softplus"])
def test_one_node_is_the_activation(name: str) -> None:
    phi = activation(name)
    for between, spread in ((0.3, 0.7), (1e-3, 1.0), (1.0, 1e-3)):
        assert max_moments(phi, 1, between, spread) == pytest.approx(phi.moments(between, spread), rel=1e-9)


@pytest.mark.parametrize("name", ["relu", "tanh", "hardtanh", "sigmoid"])
@pytest.mark.parametrize("size", [2, 9])
@pytest.mark.parametrize("c", [1e-6, 1e-12, 1e-40])
def test_small_correlation_is_first_order(name: str, size: int, c: float) -> None:
    """Var of the data-mean → c·q·Σ_k (E ∂M/∂u_k)² = c·q·(E φ'(max))²/K."""
    phi, q = activation(name), 1.7
    s, w = panels([f.at / math.sqrt(q) for f in phi.features])
    mass = w * size * np.exp(-0.5 * s * s) / math.sqrt(2 * math.pi) * special.ndtr(s) ** (size - 1)
    slope = float(mass @ phi.derivative(math.sqrt(q) * s))  # type: ignore[misc]
    got = max_moments(phi, size, c * q, (1 - c) * q).between
    assert got == pytest.approx(c * q * slope**2 / size, rel=1e-5 if c == 1e-6 else 1e-9)


@pytest.mark.parametrize("name", ["relu", "tanh", "hardtanh", "selu", "linear"])
@pytest.mark.parametrize("size", [2, 9])
def test_points_that_nearly_coincide(name: str, size: int) -> None:
    """Spread → spread·E φ'(max)² as θ → 0; kinks and ties of the maximum add O(θ)."""
    phi, q = activation(name), 1.3
    for one_minus_c in (1e-8, 1e-12, 1e-20, 1e-60):
        theta = math.sqrt(2 * one_minus_c)
        m = max_moments(phi, size, q * (1 - one_minus_c), q * one_minus_c)
        limit = max_mean_square_slope(phi, size, q)
        assert m.spread / (q * one_minus_c) == pytest.approx(limit, rel=3.0 * theta + 2e-8)


@pytest.mark.parametrize("name", ["relu", "tanh", "linear"])
def test_the_two_branches_and_the_extrapolation_meet(name: str) -> None:
    """The same function from both sides of every switch: θ = 0.8 and θ = 5e-4."""
    phi = activation(name)
    for theta, step in ((0.8, 1e-9), (5e-4, 1e-12)):
        sides = []
        for t in (theta - step, theta + step):
            s = 2 * math.sin(t / 2) ** 2
            m = max_moments(phi, 4, 1 - s, s)
            sides.append((m.mean, m.between, m.spread / s))
        assert sides[0] == pytest.approx(sides[1], rel=1e-7)


@pytest.mark.parametrize(("size", "want"), [(2, 0.75), (4, 15 / 16), (9, 1 - 2.0**-9)])
def test_gradients_go_through_the_largest(size: int, want: float) -> None:
    """ReLU: P(max > 0) = 1 − 2^−K."""
    assert max_mean_square_slope(activation("relu"), size, 3.0) == pytest.approx(want, rel=1e-13)
    p = fg.predict(f"2 x [dense(weight_var=2) > relu > maxpool({size})] > dense(weight_var=2)")
    assert p.gradient_growth == pytest.approx(np.full(2, 2 * want), rel=1e-12)


def test_gradient_factor_against_drawn_pools() -> None:
    rng = np.random.default_rng(3)
    u = rng.standard_normal((250, 1000, 4)).max(2)
    agrees(((1 - np.tanh(u) ** 2) ** 2).mean(1), max_mean_square_slope(activation("tanh"), 4, 1.0))


def test_vanishing_and_exploding_signals_keep_their_bias() -> None:
    """Far from q = 1 tanh is linear and softplus a ReLU: γ is theirs, and the scale stays in log q."""
    for name, like, variance in (("tanh", "linear", 1e-200), ("softplus", "relu", 1e200), ("selu", "linear", 1e-70)):
        text = "6 x [dense(weight_var=0.9) > {} > maxpool(2)] > dense"
        inputs = fg.Inputs(variance=variance)
        if name == "selu":  # its slopes differ left and right of 0
            like = "leaky_relu(slope=1.6732632423543772)"
        got, want = (fg.predict(text.format(n), inputs=inputs) for n in (name, like))
        assert got.gamma == pytest.approx(want.gamma, rel=1e-12)
        if name != "selu":
            assert got.log_q == pytest.approx(want.log_q, rel=1e-12)


def test_centered_activation_takes_its_mean_off_the_maximum() -> None:
    phi = activation("relu")
    plain = max_moments(phi, 4, 0.3, 0.7)
    signal = fg.predict("dense > centered(relu) > maxpool(4) > dense", inputs=fg.Inputs(mean_square=0.3, variance=0.7))
    mean = plain.mean - math.sqrt(1 / (2 * math.pi))
    assert signal.gamma[-1] == pytest.approx((mean**2 + plain.between) / plain.spread, rel=1e-12)


@pytest.mark.parametrize("name", ["gelu", "abs", "sin", "square", "sign"])
def test_what_is_not_covered_says_what_is(name: str) -> None:
    with pytest.raises(fg.NotCovered, match=r"layer 3 \(maxpool\(2\)\)") as caught:
        fg.predict(f"dense > {name} > maxpool(2) > dense")
    assert "measure" in caught.value.hint


@pytest.mark.parametrize("size", [0, -1, 1.5, True, "a", 10**7])
def test_bad_sizes(size: object) -> None:
    with pytest.raises(fg.InvalidInput):
        MaxPool(size)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("phi", "at_zero"), [("relu", 0.0), ("sigmoid", 0.5), ("selu", 0.0), ("softplus", math.log(2.0))]
)
def test_nodes_that_are_all_zero(phi: str, at_zero: float) -> None:
    """The largest of φ(0), …, φ(0) is φ(0), for every input."""
    p = fg.predict(f"dense > scale(0) > {phi} > maxpool(3) > shift(1) > dense(weight_var=2)")
    assert p.gamma[-1] == math.inf
    assert p.q[-1] == pytest.approx(2.0 * (at_zero + 1.0) ** 2, rel=1e-14)
