"""Every registered activation against mpmath (golden/moments.json), scipy, and what is known about it on paper."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy import integrate

from firstguess.base.errors import InvalidInput, NotConverged, NotCovered
from firstguess.network.activations import registry
from firstguess.network.activations.kernels import kernel_map
from firstguess.network.activations.record import Activation
from firstguess.network.activations.registry import activation, centered, register_activation
from firstguess.network.causes_bias import causes_bias

GOLDEN: list[dict[str, str]] = json.loads(
    Path(__file__).parents[1].joinpath("golden").joinpath("moments.json").read_text()
)
NAMES = sorted({row["activation"] for row in GOLDEN})
REGISTERED = set(registry.names())  # at import: other tests may register their own
CORRELATION = {"1": 0.0, "0.7": 0.3, "1e-6": 0.999999}
# SELU's constants make its mean at q = 1 zero; printed with 32 digits, they leave 1e-32.
ZERO = {("selu", "1", "mean")}


def named(name: str) -> Activation:
    return activation(name, slope=0.2) if name == "leaky_relu" else activation(name)


def pair(phi: Activation, between: float, spread: float) -> tuple[float, float | None]:
    """E φφ and E φ'φ' (of a φ without jumps) of two points, as the kernel reading has them."""
    q = np.array([[between + spread]])
    kernel, slopes = kernel_map(phi, q)(np.array([[between]]), q, q, not phi.jumps)
    return float(kernel[0, 0]), None if slopes is None else float(slopes[0, 0])


# --- golden -----------------------------------------------------------------------------------------------------------


def test_every_registered_activation_has_golden_numbers() -> None:
    assert set(NAMES) == REGISTERED
    assert len(GOLDEN) == 9 * len(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_moments_and_maps_agree_with_mpmath(name: str) -> None:
    phi = named(name)
    for row in (r for r in GOLDEN if r["activation"] == name):
        q, gap = float(row["q"]), float(row["one_minus_c"])
        between, spread = CORRELATION[row["one_minus_c"]] * q, gap * q
        m = phi.moments(between, spread)
        got = {
            "mean": m.mean,
            "between": m.between,
            "spread": m.spread,
            "mean_square_slope": phi.mean_square_slope(q),
        }
        scale = {"mean": math.sqrt(float(row["spread"])), "between": float(row["spread"])}
        for key, value in got.items():
            want = float(row[key])
            where = f"{name}, q = {q}, 1−c = {gap}, {key}"
            if want == 0.0 or (name, row["q"], key) in ZERO:
                assert abs(value) <= 1e-14 * scale[key], where
            else:
                assert value == pytest.approx(want, rel=1e-10, abs=0.0), where
        kernel, slopes = pair(phi, between, spread)
        # the promise of kernels, relative to their diagonal
        assert abs(kernel - float(row["mean"]) ** 2 - float(row["between"])) <= 1e-8 * (
            m.mean**2 + m.between + m.spread
        )
        if slopes is not None:
            assert abs(slopes - float(row["slope_kernel"])) <= 1e-8 * phi.mean_square_slope(q), f"{name}, q = {q}"


@pytest.mark.parametrize("name", [n for n in NAMES if n != "sign"])
def test_derivative_is_the_derivative(name: str) -> None:
    phi = named(name)
    assert phi.derivative is not None
    x = np.array([-7.3, -2.9, -1.1, -0.6, -0.013, 0.021, 0.7, 1.2, 2.8, 5.9, 8.1])  # no kink within h
    h = 1e-4
    slope = (8.0 * (phi(x + h) - phi(x - h)) - (phi(x + 2 * h) - phi(x - 2 * h))) / (12.0 * h)
    np.testing.assert_allclose(phi.derivative(x), slope, rtol=0.0, atol=2e-11 * float(np.max(np.abs(phi(x)))) + 1e-11)


@pytest.mark.parametrize("name", NAMES)
def test_rise_is_zero_at_zero_and_keeps_its_relative_digits_there(name: str) -> None:
    phi = named(name)
    assert phi.rise(np.zeros(1))[0] == 0.0
    if phi.near is not None:
        left, right = phi.near
        x = 1e-12
        assert phi.rise(np.array([x]))[0] == pytest.approx(right * x, rel=1e-11, abs=0.0)
        assert phi.rise(np.array([-x]))[0] == pytest.approx(-left * x, rel=1e-11, abs=0.0)


# --- limits -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("sign", [-1.0, 1.0])
def test_asymptote_is_where_the_numbers_go(name: str, sign: float) -> None:
    phi = named(name)
    ray = phi.asymptote(sign * 80.0)
    if ray is None:
        assert phi.degree is not None or (phi.far if sign > 0 else phi.near) is None
        return
    assert phi.asymptote(sign * 60.0) is None
    # Corrections are of relative order √q or 1/√q: e^{−30} = 1e-13 at |log q| = 60, times a constant of order one.
    q = math.exp(sign * 60.0)
    for c in (0.0, 0.5, 0.999):
        got, want = phi.moments(c * q, (1.0 - c) * q), ray.moments(c * q, (1.0 - c) * q)
        assert got.between == pytest.approx(want.between, rel=1e-11, abs=0.0)
        assert got.spread == pytest.approx(want.spread, rel=1e-11, abs=0.0)
        assert got.mean == pytest.approx(want.mean, rel=1e-11, abs=1e-11 * math.sqrt(q))


def test_asymptotes_with_the_same_slopes_are_told_apart() -> None:
    # ½x and log 2 + ½x: equal slopes, and a cache in between
    silu, softplus = (activation(n).asymptote(-80.0) for n in ("silu", "softplus"))
    assert silu is not None
    assert softplus is not None
    assert silu != softplus
    assert silu.moments(0.0, 1e-35).mean == 0.0
    assert softplus.moments(0.0, 1e-35).mean == math.log(2.0)


@pytest.mark.parametrize("name", ["tanh", "erf", "hardtanh", "sigmoid"])
def test_a_bounded_activation_becomes_a_sign(name: str) -> None:
    q, height = 1e20, 0.5 if name == "sigmoid" else 1.0
    want = activation("sign").moments(0.4 * q, 0.6 * q)
    got = activation(name).moments(0.4 * q, 0.6 * q)
    assert got.between == pytest.approx(height**2 * want.between, rel=1e-9)
    assert got.spread == pytest.approx(height**2 * want.spread, rel=1e-9)


@pytest.mark.parametrize("name", [n for n in NAMES if n != "sign"])
def test_slope_kernel_is_the_slope_of_the_map(name: str) -> None:
    # Price's theorem: d E φφ / dr = E φ'φ', by central differences
    phi = named(name)
    for between, spread in ((0.3, 0.9), (3.0, 1.0)):
        h = 1e-4
        up, down = phi.moments(between + h, spread - h), phi.moments(between - h, spread + h)
        assert pair(phi, between, spread)[1] == pytest.approx((up.between - down.between) / (2 * h), rel=1e-6)


@pytest.mark.parametrize("name", [n for n in NAMES if n != "sign"])
def test_mean_square_slope_is_the_slope_kernel_of_equal_points(name: str) -> None:
    phi = named(name)
    for q in (0.01, 1.0, 25.0):
        want = phi.mean_square_slope(q)
        assert pair(phi, q, 0.0)[1] == pytest.approx(want, rel=1e-8)
        spread = 1e-20 * q  # χ̃ = ∂q_ab'/∂q_ab at c = 1: theory.md (10)
        assert phi.moments(q, spread).spread / spread == pytest.approx(want, rel=1e-8)
    assert activation("sign").mean_square_slope(1.0) == math.inf


# --- a mean in front --------------------------------------------------------------------------------------------------

SCALAR: dict[str, tuple[Callable[[float], float], tuple[float, ...]]] = {
    "relu": (lambda x: max(x, 0.0), (0.0,)),
    "leaky_relu": (lambda x: x if x > 0 else 0.2 * x, (0.0,)),
    "tanh": (math.tanh, ()),
    "erf": (math.erf, ()),
    "gelu": (lambda x: 0.5 * x * math.erfc(-x / math.sqrt(2.0)), ()),
    "elu": (lambda x: x if x > 0 else math.expm1(x), (0.0,)),
    "hardtanh": (lambda x: min(max(x, -1.0), 1.0), (-1.0, 1.0)),
    "sigmoid": (lambda x: 1.0 / (1.0 + math.exp(-x)), ()),
    "sin": (math.sin, ()),
    "square": (lambda x: x * x, ()),
    "sign": (lambda x: float(x > 0) - float(x < 0), (0.0,)),
}


def gaussian_integral(fn: Callable[[float], float], center: float, sd: float, kinks: tuple[float, ...]) -> float:
    points = sorted({center - 9.0 * sd, center, center + 9.0 * sd, *(k for k in kinks if abs(k - center) < 9.0 * sd)})

    def weighted(u: float) -> float:
        return fn(u) * math.exp(-0.5 * ((u - center) / sd) ** 2) / (sd * math.sqrt(2.0 * math.pi))

    return sum(
        integrate.quad(weighted, a, b, epsabs=1e-12, epsrel=1e-12, limit=200)[0] for a, b in itertools.pairwise(points)
    )


@pytest.mark.parametrize("name", list(SCALAR))
@pytest.mark.parametrize(("mean", "between", "spread"), [(0.7, 0.6, 0.4), (-2.0, 3.0, 1.5)])
def test_shifted_input_agrees_with_scipy(name: str, mean: float, between: float, spread: float) -> None:
    fn, kinks = SCALAR[name]
    total = gaussian_integral(lambda u: fn(u) ** 2, mean, math.sqrt(between + spread), kinks)
    expected = gaussian_integral(fn, mean, math.sqrt(between + spread), kinks)
    center = gaussian_integral(
        lambda mu: gaussian_integral(fn, mu, math.sqrt(spread), kinks) ** 2, mean, math.sqrt(between), ()
    )
    got = named(name).moments(between, spread, mean=mean)
    assert got.mean == pytest.approx(expected, rel=1e-10)
    assert got.between == pytest.approx(center - expected**2, rel=1e-9)
    assert got.spread == pytest.approx(total - center, rel=1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_a_vanishing_shift_changes_nothing(name: str) -> None:
    phi = named(name)
    for between, spread in ((0.2, 0.8), (30.0, 0.5), (1e-3, 2e-6)):
        sd = math.sqrt(between + spread)
        plain, shifted = phi.moments(between, spread), phi.moments(between, spread, mean=1e-14 * sd)
        assert shifted.mean == pytest.approx(plain.mean, rel=1e-11, abs=3e-14 * max(sd, 1.0))
        assert shifted[1:] == pytest.approx(plain[1:], rel=1e-10)


def test_shifted_extremes() -> None:
    relu = activation("relu")
    far = relu.moments(1e-3, 1e-6, mean=50.0)  # the kink is out of reach: the identity
    assert far == pytest.approx((50.0, 1e-3, 1e-6), rel=1e-12)
    assert relu.moments(1e-3, 1e-6, mean=-50.0) == (0.0, 0.0, 0.0)
    narrow = activation("tanh").moments(1.0, 1e-18, mean=0.3)
    slope = integrate.quad(
        lambda z: math.cosh(0.3 + z) ** -4 * math.exp(-0.5 * z * z) / math.sqrt(2.0 * math.pi), -9.0, 9.0, epsabs=1e-13
    )[0]
    assert narrow.spread == pytest.approx(1e-18 * slope, rel=1e-9)


# --- bias -------------------------------------------------------------------------------------------------------------

UNBIASED = {"linear", "tanh", "erf", "hardtanh", "sin", "sign"}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("q", [1e-4, 1.0, 50.0])
def test_causes_bias_iff_not_odd(name: str, q: float) -> None:
    # IGB App. G. SELU is the exception that its authors designed: mean 0 at q = 1, and only there.
    assert causes_bias(named(name), q=q) == (name not in UNBIASED and (name, q) != ("selu", 1.0))
    assert not causes_bias(centered(named(name)), q=q)


@pytest.mark.parametrize("name", sorted(UNBIASED))
def test_odd_activations_have_no_mean(name: str) -> None:
    for between, spread in ((0.0, 1.0), (0.3, 0.9), (1e3, 1.0)):
        assert named(name).moments(between, spread).mean == 0.0


def test_one_relu_layer() -> None:
    m = activation("relu").moments(0.0, 1.0)
    assert m.mean**2 / m.spread == pytest.approx(1.0 / (math.pi - 1.0), rel=1e-14)
    assert f"{m.mean**2 / m.spread:.6f}" == "0.466942"


def test_centered_takes_the_mean_off_and_nothing_else() -> None:
    plain, shifted = activation("relu"), centered("relu")
    for between, spread in ((0.0, 1.0), (2.0, 0.1)):
        m = shifted.moments(between, spread)
        assert m.mean == 0.0
        assert m[1:] == plain.moments(between, spread)[1:]
    x = np.linspace(-2.0, 2.0, 5)
    np.testing.assert_allclose(shifted(x), np.maximum(x, 0.0) - 1.0 / math.sqrt(2.0 * math.pi), atol=1e-15)
    assert shifted != plain
    assert str(shifted) == "centered(relu)"


# --- names and functions of one's own ---------------------------------------------------------------------------------


def test_names_aliases_and_parameters() -> None:
    assert activation("swish") == activation("silu")
    assert activation(" ReLU ") == activation("relu")
    assert activation("identity") == activation("linear")
    assert activation("leaky_relu") == activation("leaky_relu", slope=0.01)
    assert activation("leaky_relu", slope=0.2) != activation("leaky_relu")
    assert str(activation("leaky_relu", slope=0.2)) == "leaky_relu(slope=0.2)"
    assert activation("elu", alpha=1.0) == activation("elu")
    assert activation("prelu").moments(0.2, 0.8) == activation("leaky_relu", slope=0.25).moments(0.2, 0.8)
    phi = activation("gelu")
    assert activation(phi) is phi
    assert len({activation(n) for n in registry.names()}) == len(registry.names())


@pytest.mark.parametrize(
    ("name", "params", "message"),
    [
        ("rellu", {}, r"Expected the name of an activation.*got 'rellu'.*Try: 'relu'"),
        ("zzz", {}, "one of linear, relu"),
        ("", {}, "name of an activation"),
        ("relu", {"slope": 0.1}, "parameters that relu has"),
        ("leaky_relu", {"slope": math.nan}, "a finite number for slope"),
        ("elu", {"alpha": "big"}, "a finite number for alpha"),
    ],
)
def test_unknown_names_and_parameters(name: str, params: dict[str, float], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        activation(name, **params)


def test_a_function_of_your_own_with_kinks_is_as_good_as_a_registered_one() -> None:
    mine = activation(lambda x: np.clip(x, -1.0, 1.0), name="mine", kinks=(-1.0, 1.0))
    for between, spread in ((0.0, 1.0), (0.6, 0.3), (1.0, 1e-8), (1.0, 1e-14), (1e-9, 4.0)):
        got, want = mine.moments(between, spread), activation("hardtanh").moments(between, spread)
        assert got[1:] == pytest.approx(want[1:], rel=1e-10, abs=0.0)
        assert abs(got.mean) < 1e-15
    assert mine.mean_square_slope(2.0) == pytest.approx(activation("hardtanh").mean_square_slope(2.0), rel=1e-9)
    assert pair(mine, 0.5, 0.5) == pytest.approx(pair(activation("hardtanh"), 0.5, 0.5), rel=1e-9)
    with pytest.raises(NotCovered, match="without jumps"):
        pair(activation(lambda x: np.where(x > 1.0, 1.0, 0.0), kinks=(1.0,), name="step"), 0.5, 0.5)


def test_a_function_of_your_own_with_its_derivative() -> None:
    mine = activation(np.arctan, derivative=lambda x: 1.0 / (1.0 + x * x))
    assert mine.name == "arctan"
    assert not causes_bias(mine)
    h = 1e-4
    up, down = mine.moments(0.3 + h, 0.9 - h), mine.moments(0.3 - h, 0.9 + h)
    assert pair(mine, 0.3, 0.9)[1] == pytest.approx((up.between - down.between) / (2 * h), rel=1e-6)
    assert mine.mean_square_slope(1.0) == pytest.approx(activation(np.arctan).mean_square_slope(1.0), rel=1e-9)


def test_a_kink_at_zero_need_not_be_declared() -> None:
    mine = activation(lambda x: np.where(x > 0, x, 0.2 * x) + 3.0, name="mine")
    want = activation("leaky_relu", slope=0.2)
    for between, spread in ((0.0, 1.0), (0.5, 0.5), (1.0, 1e-10), (1.0, 1e-16), (1e-8, 1e-4)):
        got = mine.moments(between, spread)
        assert got.mean == pytest.approx(3.0 + want.moments(between, spread).mean, rel=1e-12)
        assert got[1:] == pytest.approx(want.moments(between, spread)[1:], rel=1e-9, abs=0.0)
    assert mine.mean_square_slope(1.0) == pytest.approx(0.52, rel=1e-9)


def test_a_jump_of_your_own() -> None:
    gate = activation(lambda x: np.where(x > 0, 1.0, 0.0), name="gate", kinks=[0.0])
    for between, spread in ((0.0, 1.0), (0.5, 0.5), (1.0, 1e-10), (1.0, 1e-14)):
        got, want = gate.moments(between, spread), activation("sign").moments(between, spread)
        assert got.mean == pytest.approx(0.5, rel=1e-12)
        assert got[1:] == pytest.approx((want.between / 4.0, want.spread / 4.0), rel=1e-9, abs=0.0)
    assert gate.mean_square_slope(1.0) == math.inf
    with pytest.raises(NotCovered, match="without jumps"):
        pair(gate, 0.5, 0.5)


def test_undeclared_kinks_are_not_smoothed_over_in_the_slope() -> None:
    with pytest.raises(NotConverged, match="kinks"):
        activation(lambda x: np.maximum(x - 0.37, 0.0), name="bent").mean_square_slope(1.0)


def test_registering_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_TABLE", dict(registry._TABLE))
    made = register_activation("mine", np.arctan)
    assert activation("mine") is made
    assert "mine" in registry.names()
    for bad in ("relu", "two words", "1st"):
        with pytest.raises(InvalidInput, match="a new name"):
            register_activation(bad, np.arctan)


def test_kinks_must_be_finite() -> None:
    with pytest.raises(InvalidInput, match="finite kinks"):
        activation(np.abs, kinks=[math.inf])


def test_a_short_repr_has_the_name_and_none_of_what_is_known() -> None:
    """What is known (offsets, features, slopes, maps) is for formulas."""
    assert repr(activation("sigmoid")) == "Activation(name='sigmoid', params=(), centered=False)"
