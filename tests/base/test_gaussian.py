"""Gaussian expectations: quadrature against closed forms, simulation, and limits known on paper."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from properties import examples

from firstguess.base import gaussian
from firstguess.base.errors import InvalidInput, NotConverged
from firstguess.base.gaussian import Feature, Function, Moments
from firstguess.network.activations import record, registry
from firstguess.network.activations.registry import activation

KINK = (Feature(0.0, 0.0),)


def relu(x: gaussian.Array) -> gaussian.Array:
    return np.maximum(x, 0.0)


def step(x: gaussian.Array) -> gaussian.Array:
    return (x > 0.0) + 0.0


def assert_close(got: Moments, want: Moments, rel: float) -> None:
    """Relative for the variances; the mean relative to the function's own scale, because it may be zero."""
    scale = abs(want.mean) + math.sqrt(want.between + want.spread)
    assert abs(got.mean - want.mean) <= rel * scale
    assert got.between == pytest.approx(want.between, rel=rel, abs=0.0)
    assert got.spread == pytest.approx(want.spread, rel=rel, abs=0.0)


# --- the numeric route against closed forms ---------------------------------------------------------------------------


@pytest.mark.parametrize("q", [1e-8, 1e-3, 1.0, 30.0, 1e6])
@pytest.mark.parametrize("derivative", [None, step])
def test_relu_keeps_its_digits_at_every_drift_ratio(q: float, derivative: Function | None) -> None:
    for gamma in (1e-12, 1e-8, 1e-5, 1e-3, 0.1, 1.0, 10.0, 1e3, 1e6, 1e9, 1e12, 1e15):
        between, spread = q * gamma / (1.0 + gamma), q / (1.0 + gamma)
        got = gaussian.moments(relu, between, spread, KINK, derivative=derivative)
        assert_close(got, record.piecewise_linear_moments(0.0, 1.0, between, spread), rel=1e-10)


@pytest.mark.parametrize(
    ("name", "q"),
    # The plain rule resolves φ on the scale of the Gaussian: a wave in a wide Gaussian is left to the closed form.
    [("sin", 1e-6), ("sin", 0.05)]
    + [
        (name, q)
        for name in ("linear", "abs", "erf", "gelu", "square", "sign", "leaky_relu")
        for q in (1e-6, 0.05, 1.0, 20.0, 1e4, 1e12)
    ],
)
def test_numeric_route_agrees_with_the_closed_form(name: str, q: float) -> None:
    phi = activation(name)
    assert phi.closed is not None
    for gamma in (1e-9, 9e-5, 1e-2, 1.0, 50.0, 1e8, 1e14):
        between, spread = q * gamma / (1.0 + gamma), q / (1.0 + gamma)
        got = gaussian.moments(phi.rise, between, spread, phi.features, jumps=phi.jumps, derivative=phi.derivative)
        assert_close(got, phi.closed(between, spread), rel=3e-11)


@pytest.mark.parametrize("name", ["relu", "leaky_relu", "abs", "erf", "gelu", "square"])
@pytest.mark.parametrize("q", [1e-6, 1.0, 100.0])
def test_closed_energy_agrees_with_quadrature_of_the_derivative(name: str, q: float) -> None:
    phi = activation(name)
    assert phi.energy is not None
    derivative = phi.derivative
    assert derivative is not None
    want = gaussian.expectation(lambda x: derivative(x) ** 2, q, phi.features)
    assert phi.energy(q) == pytest.approx(want, rel=1e-12)


@pytest.mark.parametrize("name", ["tanh", "silu", "mish", "gelu_tanh", "elu", "hardswish", "relu6", "softplus"])
@pytest.mark.parametrize("q", [1e-9, 1e-2, 3.0, 1e3, 1e8])
def test_more_nodes_change_nothing(name: str, q: float) -> None:
    phi = activation(name)
    for gamma in (1e-12, 3e-5, 0.2, 5.0, 1e5, 1e13):
        between, spread = q * gamma / (1.0 + gamma), q / (1.0 + gamma)
        once, twice = (
            gaussian.moments(phi.rise, between, spread, phi.features, refine=r, derivative=phi.derivative)
            for r in (1.0, 2.0)
        )
        assert_close(once, twice, rel=2e-11)


def test_extrapolation_and_integrated_slopes_are_one_limit() -> None:
    # Two methods beyond γ = 1e12: differences extrapolated in the angle, and Price's theorem with the derivative.
    phi = activation("elu", alpha=0.5)  # a true kink
    for gamma in (3e12, 1e16, 1e30):
        between, spread = gamma / (1.0 + gamma), 1.0 / (1.0 + gamma)
        a = gaussian.moments(phi.rise, between, spread, phi.features)
        b = gaussian.moments(phi.rise, between, spread, phi.features, derivative=phi.derivative)
        assert_close(a, b, rel=1e-10)


# --- limits -----------------------------------------------------------------------------------------------------------


def test_zero_variances() -> None:
    assert gaussian.moments(np.cos, 0.0, 0.0) == Moments(1.0, 0.0, 0.0)
    assert gaussian.expectation(np.cos, 0.0) == 1.0
    certain = gaussian.moments(relu, 2.0, 0.0, KINK)  # no data variance: all of it is between nodes
    assert certain.spread == 0.0
    assert certain.between == pytest.approx(1.0 - 1.0 / math.pi, rel=1e-13)
    independent = gaussian.moments(relu, 0.0, 2.0, KINK)
    assert independent.between == 0.0
    assert independent.spread == pytest.approx(1.0 - 1.0 / math.pi, rel=1e-13)
    assert gaussian.moments(np.sign, 1.0, 0.0, KINK, jumps=True) == pytest.approx((0.0, 1.0, 0.0), abs=1e-15)


def test_first_hermite_coefficient_rules_at_small_correlation() -> None:
    # Mehler: between → c·(E z φ)²; for ReLU E z φ = ½, for |x| the series starts at c²·(1/√π)²... = c²/π
    assert gaussian.moments(relu, 1e-12, 1.0, KINK).between == pytest.approx(0.25e-12, rel=1e-10)
    assert gaussian.moments(np.abs, 1e-12, 1.0, KINK).between == pytest.approx(1e-24 / math.pi, rel=1e-10)


@pytest.mark.parametrize("order", [1, 2, 3, 4, 5])
def test_hermite_polynomials_at_small_correlation(order: int) -> None:
    """Mehler: Var_μ E_y He_k(μ + y) = k!·c^k where μ + y has variance 1; c is the largest that goes by the series."""
    c = 1e-4
    got = gaussian.moments(np.polynomial.hermite_e.HermiteE.basis(order), c, 1.0 - c)
    assert got.between == pytest.approx(math.factorial(order) * c**order, rel=1e-8, abs=0.0)


def test_relu_at_the_edge_loses_correlation_with_the_three_halves_power() -> None:
    # 1 − c' = (1−c) − (2√2/3π)(1−c)^{3/2} + O((1−c)^{5/2}): the reason for the power law in theory.md §4
    gap = 1e-6
    m = activation("relu").moments(1.0 - gap, gap)
    assert m.spread / 0.5 == pytest.approx(gap - 2.0 * math.sqrt(2.0) / (3.0 * math.pi) * gap**1.5, rel=1e-12)


@pytest.mark.parametrize("numeric", [False, True])
def test_published_drift_ratios_of_relu(numeric: bool) -> None:
    # theory.md §2: none, σw² = 2, L = 1, 2, 5, 10, 20
    want = {1: 0.466942, 2: 0.975235, 5: 2.787109, 10: 6.784253, 20: 18.390547}
    between, spread = 0.0, 2.0
    for layer in range(1, 21):
        m = gaussian.moments(relu, between, spread, KINK) if numeric else activation("relu").moments(between, spread)
        between, spread = 2.0 * (m.mean**2 + m.between), 2.0 * m.spread
        if layer in want:
            assert between / spread == pytest.approx(want[layer], abs=6e-7)
    assert want[1] == pytest.approx(1.0 / (math.pi - 1.0), abs=6e-7)


@pytest.mark.parametrize(
    ("bias_var", "edge", "neutral"),
    [(0.01, 1.424205, 1.68467), (0.05, 1.760955, 2.37827), (0.1, 1.986073, 2.92477), (0.2, 2.285152, 3.76110)],
)
def test_published_lines_of_tanh(bias_var: float, edge: float, neutral: float) -> None:
    # theory.md §5: χ̃ = 1 on the edge of chaos; c* = ½ on the line of neutrality
    tanh = activation("tanh")
    q = 1.0
    for _ in range(2000):
        m = tanh.moments(0.0, q)
        q = edge * m.spread + bias_var
    assert edge * tanh.mean_square_slope(q) == pytest.approx(1.0, abs=2e-6)
    q = 1.0
    for _ in range(200):
        m = tanh.moments(0.5 * q, 0.5 * q)
        q = neutral * (m.between + m.spread) + bias_var
    assert (neutral * m.between + bias_var) / q == pytest.approx(0.5, abs=2e-6)


# --- simulation -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["relu", "gelu", "tanh", "hardswish", "elu", "sigmoid", "mish", "sign"])
@pytest.mark.parametrize(("between", "spread"), [(0.3, 0.7), (4.0, 1.0)])
def test_moments_agree_with_simulation(name: str, between: float, spread: float) -> None:
    # Within 5 standard errors: a false alarm has probability 6e-7 a comparison, 3e-5 for all 48. The seed is fixed.
    rng = np.random.default_rng([7, *name.encode()])
    n = 200_000
    mu = math.sqrt(between) * rng.standard_normal(n)
    phi = activation(name)
    a, b = (phi(mu + math.sqrt(spread) * rng.standard_normal(n)) for _ in range(2))
    m = phi.moments(between, spread)
    center = m.mean**2 + m.between
    for sample, want in ((a, m.mean), (a * b, center), (a * a, center + m.spread)):
        error = float(np.std(sample)) / math.sqrt(n)
        assert abs(float(np.mean(sample)) - want) <= 5.0 * error + 1e-12


# --- properties -------------------------------------------------------------------------------------------------------

_ALL = [n for n in registry.names() if n not in ("sin",)]


@examples(150)
@given(
    name=st.sampled_from(_ALL),
    log_q=st.floats(-12.0, 12.0),
    low=st.floats(0.0, 1.0),
    high=st.floats(0.0, 1.0),
)
def test_parts_of_the_variance(name: str, log_q: float, low: float, high: float) -> None:
    low, high = sorted((low, high))
    q = math.exp(log_q)
    phi = activation(name)
    a, b = (phi.moments(c * q, (1.0 - c) * q) for c in (low, high))
    total = phi.moments(0.0, q)
    assert min(a.between, a.spread, b.between, b.spread) >= 0.0
    for m in (a, b):  # data or nodes: the whole is the same
        assert m.between + m.spread == pytest.approx(total.spread, rel=1e-11)
        assert m.mean == pytest.approx(total.mean, rel=1e-11, abs=1e-13 * math.sqrt(total.spread))
    assert b.between >= a.between * (1.0 - 1e-11)  # Mehler: Σ a_k² c^k rises with c
    assert b.between <= max(high, 1e-300) * total.spread * (1.0 + 1e-11)  # ... and is below the line through c = 1


@examples(60)
@given(mean=st.floats(-3.0, 3.0), between=st.floats(0.01, 10.0), spread=st.floats(0.01, 10.0))
def test_reflection(mean: float, between: float, spread: float) -> None:
    # φ odd: its moments about −m are those about m, with the mean's sign changed
    for name in ("tanh", "erf", "hardtanh", "sin"):
        phi = activation(name)
        a, b = phi.moments(between, spread, mean=mean), phi.moments(between, spread, mean=-mean)
        assert a.mean == pytest.approx(-b.mean, abs=1e-14)
        assert a[1:] == pytest.approx(b[1:], rel=1e-10)


# --- functions nothing is known about ---------------------------------------------------------------------------------


@pytest.mark.parametrize("kink", [0.0, 0.37, -1.0, 2.5])
@pytest.mark.parametrize("q", [1e-2, 1.0, 50.0])
def test_an_undeclared_kink_is_never_silently_wrong(kink: float, q: float) -> None:
    phi = activation(lambda x: np.maximum(x - kink, 0.0) + 0.1 * x, name="bent")
    for gamma in (1e-13, 1e-3, 0.3, 1.0, 30.0, 1e5, 1e10, 1e14):
        between, spread = q * gamma / (1.0 + gamma), q / (1.0 + gamma)
        try:
            got = phi.moments(between, spread)
        except NotConverged:
            continue
        want = gaussian.moments(phi.rise, between, spread, (Feature(kink, 0.0),), refine=2.0)
        assert_close(got._replace(mean=got.mean - phi.offset), want, rel=1e-8)


@pytest.mark.parametrize("frequency", [1.0, 5.0, 40.0])
def test_a_wave_finer_than_the_nodes_is_never_silently_wrong(frequency: float) -> None:
    phi = activation(lambda x: np.sin(frequency * x), name="wave")
    answered = 0
    for q in (1e-4, 0.1, 1.0, 10.0, 100.0):
        for gamma in (1e-6, 0.1, 1.0, 10.0, 1e6):
            between, spread = q * gamma / (1.0 + gamma), q / (1.0 + gamma)
            try:
                got = phi.moments(between, spread)
            except NotConverged:
                continue
            answered += 1
            want = record.sine(frequency**2 * between, frequency**2 * spread)
            assert abs(got.mean) <= 1e-8
            assert tuple(got[1:]) == pytest.approx(tuple(want[1:]), rel=1e-8, abs=1e-25)
    assert answered >= 5


def test_an_undeclared_jump_is_never_silently_wrong() -> None:
    phi = activation(lambda x: np.where(x > 0.5, 1.0, 0.0), name="gate")
    for between, spread in ((0.0, 1.0), (0.5, 0.5), (1.0, 1e-9)):
        with pytest.raises(NotConverged, match="kinks"):
            phi.moments(between, spread)


@pytest.mark.parametrize(
    ("fn", "message"),
    [
        (np.log, "finite everywhere"),
        (lambda x: 1.0 / x, "finite everywhere"),
        (lambda x: np.exp(x * x), "finite everywhere"),
        (lambda x: np.sum(x), "same shape"),
        (lambda x: x[:-1], "same shape"),
        (lambda x: math.exp(x), "array of floats"),
        (lambda x: x if x > 0 else 0.0, "array of floats"),
        (lambda x: "relu", "array of floats"),
    ],
)
def test_functions_that_are_not_activations(fn: gaussian.Function, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        activation(fn, name="bad").moments(0.0, 1.0)


def test_a_function_that_overflows_only_far_out_is_reported_where_it_does() -> None:
    phi = activation(lambda x: np.exp(np.abs(x)) * x, name="steep", kinks=[0.0])
    assert math.isfinite(phi.moments(0.5, 0.5).spread)
    with pytest.raises(InvalidInput, match="inf at"):
        phi.moments(0.0, 1e6)
