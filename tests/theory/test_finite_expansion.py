"""Finite width and dimension by expansion: golden numbers of theory.md §12, constants by other means, limits."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import special

import firstguess as fg
from firstguess.base.errors import InvalidInput, NotCovered
from firstguess.network.activations.registry import activation
from firstguess.network.finite_signal import UnitDistribution, at, at_zero
from firstguess.theory.finite.expansion import expanded

LN_AFTER = "{} x [dense(weight_var=2) > relu > layernorm] > dense(weight_var=2)"
NONE = "{} x [dense(weight_var=2) > relu] > dense(weight_var=2)"


def state(text: str, width: int | None, dimension: int | None, **inputs: float) -> tuple[float, float]:
    wide = fg.predict(text, inputs=fg.Inputs(**inputs))
    found, _ = expanded(wide, fg.Inputs(dimension=dimension, **inputs), width, 0.0)
    assert found is not None
    return found.size.overlap, found.size.overlap_variance


def std(text: str, width: int, dimension: int, points: int, classes: int = 2) -> float:
    found, _ = expanded(fg.predict(text, classes=classes), fg.Inputs(dimension=dimension), width, 0.0)
    assert found is not None
    even = (1 - 1 / classes) / classes
    return math.sqrt(even / points + (1 - 1 / points) * found.excess / classes)


def test_golden_layernorm_after() -> None:
    """theory.md (42), L2 N100 d100 n600; and its table's two cells."""
    e, v = state(LN_AFTER.format(2), 100, 100)
    assert abs(e - 0.00505253) < 1e-8
    assert abs(v - 0.01841713) < 1e-8
    assert abs(std(LN_AFTER.format(2), 100, 100, 600) - 0.03546410) < 1e-8
    assert abs(std(LN_AFTER.format(20), 50, 200, 600) - 0.0901) < 5e-5
    assert abs(std(LN_AFTER.format(20), 100, 1000, 600) - 0.0613) < 5e-5


def test_golden_without_norm() -> None:
    """theory.md (45), L2 N100 d300; the variance between networks by the distribution that comes out; its table."""
    text = NONE.format(2)
    e, v = state(text, 100, 300)
    assert abs(e - 0.49704621) < 1e-8
    assert abs(v - 0.00843893) < 1e-8
    found, _ = expanded(fg.predict(text), fg.Inputs(dimension=300), 100, 0.0)
    assert found is not None
    assert abs((found.differ * (1 - e)) ** 2 - 0.00067387) < 1e-8
    assert abs(std(NONE.format(5), 30, 300, 600) - 0.3722) < 6e-5
    assert abs(std(NONE.format(20), 100, 300, 600) - 0.4500) < 6e-5


BN_AFTER = "{} x [dense(weight_var=2) > relu > batchnorm] > dense(weight_var=2)"


@pytest.mark.parametrize(
    ("depth", "dimension", "e", "spread"), [(2, 100, 0.00045862, 0.01395576), (20, 1000, 0.00422412, 0.02861786)]
)
def test_golden_batchnorm_after(depth: int, dimension: int, e: float, spread: float) -> None:
    """theory.md (44), N100 n1000; it is 12 % off at depth 5, so its next order must not be small there."""
    net = fg.Network.parse(BN_AFTER.format(depth))
    found, why = expanded(fg.predict(net, points=1000), fg.Inputs(dimension=dimension), 100, 0.0)
    assert found is not None, why
    assert abs(found.size.overlap - e) < 1e-8
    assert abs(math.sqrt(0.25 / 1000 + (1 - 1 / 1000) * found.excess / 2) - spread) < 1e-8
    five, _ = expanded(fg.predict(BN_AFTER.format(5), points=1000), fg.Inputs(dimension=1000), 100, 0.0)
    assert five is not None
    assert five.size.next_order > 0.0024


def test_golden_constants() -> None:
    """theory.md §12's constants of ReLU."""
    z = at_zero(UnitDistribution(activation("relu"), 1.0, centres=True))
    want = (0.733471, 0.466942, 0.0, 0.466942, 1.0, 1.369954, -2.449870, -0.215233, -2.251031, 1.640561, 5.407639)
    assert np.allclose(z, want, rtol=0, atol=6e-7)
    plain = at(UnitDistribution(activation("relu")), 0.0)
    assert abs(plain.s - 0.544055) < 6e-7
    assert abs(plain.b - 0.238732) < 6e-7


@pytest.mark.parametrize(("name", "q", "centres"), [("relu", 2.0, True), ("relu", 1.0, False), ("gelu", 1.3, True)])
@pytest.mark.parametrize("c", [0.35, -0.6])
def test_constants_by_polar_quadrature(name: str, q: float, centres: bool, c: float) -> None:
    """s and B by an integral over the plane in polar coordinates, which shares nothing with the series in θ."""
    phi = {"relu": lambda x: np.maximum(x, 0.0), "gelu": lambda x: 0.5 * x * special.erfc(-x / math.sqrt(2.0))}[name]
    nodes, weights = np.polynomial.legendre.leggauss(80)
    radius, by_radius = 6.0 * (nodes + 1.0), 6.0 * weights
    half = math.asin(c)  # the second node's sign changes at −arcsin-turned angles, the first one's at ±π/2
    edges = sorted(
        {0.0, 0.5 * math.pi, 1.5 * math.pi, 2 * math.pi} | {(k * math.pi - half) % (2 * math.pi) for k in (1, 2)}
    )
    angle = np.concatenate([0.5 * (b - a) * (nodes + 1.0) + a for a, b in itertools.pairwise(edges)])
    by_angle = np.concatenate([0.5 * (b - a) * weights for a, b in itertools.pairwise(edges)])
    w = np.outer(by_radius * radius * np.exp(-0.5 * radius**2), by_angle) / (2 * math.pi)
    root = math.sqrt(q)
    a = phi(root * np.outer(radius, np.cos(angle)))
    b = phi(root * np.outer(radius, c * np.cos(angle) + math.sqrt(1 - c * c) * np.sin(angle)))
    mean = float((w * a).sum()) if centres else 0.0
    scale = math.sqrt(float((w * (a - mean) ** 2).sum()))
    a, b = (a - mean) / scale, (b - mean) / scale
    m11, m22, m31, m40 = (float((w * a**i * b**j).sum()) for i, j in ((1, 1), (2, 2), (3, 1), (4, 0)))
    found = at(UnitDistribution(activation(name), q, centres=centres), c)
    assert abs(found.s - (m22 - 2 * m11 * m31 + 0.5 * m11**2 * (m40 + m22))) < 1e-8
    assert abs(found.b - (0.75 * m11 * m40 + 0.25 * m11 * m22 - m31)) < 1e-8


def test_series_and_taylor_agree() -> None:
    """Derivatives at 0 by Hermite coefficients are those of the series in θ."""
    distribution = UnitDistribution(activation("gelu"), 2.0, centres=True)
    z, h = at_zero(distribution), 1e-3
    low, here, high = (at(distribution, x) for x in (-h, 0.0, h))
    assert np.allclose([here.slope, here.curve, here.s], [z.c1, z.c2, z.s0], rtol=0, atol=1e-9)
    assert abs((high.curve - low.curve) / (2 * h) - z.c3) < 1e-5
    assert abs((high.s - low.s) / (2 * h) - z.s1) < 1e-5
    assert abs((high.s - 2 * here.s + low.s) / h**2 - z.s2) < 1e-4
    assert abs((high.b - low.b) / (2 * h) - z.b1) < 1e-5
    assert abs((high.b - 2 * here.b + low.b) / h**2 - z.b2) < 1e-4


def test_layernorm_before_formula() -> None:
    """theory.md (46) for ReLU, written out."""
    c = 0.4
    with_norm = at(UnitDistribution(activation("relu"), centred_first=True), c)
    plain = at(UnitDistribution(activation("relu")), c)
    overlap = (math.sqrt(1 - c * c) + c * (math.pi - math.acos(c))) / math.pi
    q, p = math.sqrt(2 / math.pi), (1 + c) / math.sqrt(2 * math.pi)
    assert abs(with_norm.s - (plain.s - 2 * (1 + c) * (p - overlap * q) ** 2)) < 1e-9
    assert abs(with_norm.b - (plain.b - overlap * q * q * (3 + c) + 2 * q * p * (1 + c))) < 1e-9


@pytest.mark.parametrize(
    "text",
    [
        LN_AFTER.format(20),
        NONE.format(20),
        "5 x [dense(weight_var=2) > layernorm > relu] > dense(weight_var=2)",
        "5 x [dense(weight_var=2, bias_var=0.1) > gelu > layernorm] > dense",
    ],
)
def test_infinite_size_is_the_limit(text: str) -> None:
    wide = fg.predict(text, width=10**15, inputs=fg.Inputs(dimension=10**15))
    infinite = fg.predict(text)
    assert np.allclose(wide.gamma, infinite.gamma, rtol=1e-12, atol=1e-12)
    assert abs(wide.guesses.std() - infinite.guesses.std()) < 1e-7  # √γ of an even network is the root of 1e-15
    assert infinite.finite_size is None


def test_odd_activations_stay_even() -> None:
    """tanh on a blob: E arcsin c = 0 exactly (theory.md §12); of ten classes overlaps of both signs do not cancel."""
    p = fg.predict("20 x [dense > tanh > layernorm] > dense", width=50, inputs=fg.Inputs(dimension=300), points=500)
    assert p.guesses == fg.Guesses(0.0, 2, 500)
    assert p.finite_size is not None
    assert p.finite_size.way == "expansion"
    few = fg.predict("2 x [dense > tanh] > dense", width=20, inputs=fg.Inputs(dimension=20), points=500)
    assert few.guesses == fg.Guesses(0.0, 2, 500)
    assert few.finite_size is not None
    assert few.finite_size.way == "chain"
    ten = fg.predict(p.network, classes=10, width=50, inputs=fg.Inputs(dimension=300), points=500)
    assert ten.guesses.var() > 1.05 * fg.Guesses(0.0, 10, 500).var()


def test_round_trip_and_words() -> None:
    p = fg.predict(NONE.format(2), width=100, inputs=fg.Inputs(dimension=300), points=600)
    again = fg.Prediction.from_dict(p.to_dict())
    assert again.finite_size == p.finite_size
    assert again.guesses == p.guesses
    assert "finite size" in str(p)
    assert "wide layers" not in p.assumptions
    assert "width 100, dimension 300" in str(p.finite_size)


def test_refusals() -> None:
    net = fg.Network.parse(NONE.format(2))
    for width in (1, 0, -3, 2.5, True):
        with pytest.raises(InvalidInput, match="width"):
            fg.predict(net, width=width)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="dimension"):
        fg.Inputs(dimension=0)
    with pytest.raises(NotCovered, match="at most 200000 nodes"):
        fg.predict("dense(init=uniform) > relu > dense", width=300_000, inputs=fg.Inputs(dimension=10))
    with pytest.raises(NotCovered, match="finite dimension"):
        fg.predict("layernorm > dense > gelu > dense", width=20)
    with pytest.raises(InvalidInput, match="either data or inputs"):
        fg.predict(net, data=np.eye(4), inputs=fg.Inputs(dimension=2), width=20)


def test_width_needed() -> None:
    """LayerNorm after, 20 layers: by (40) at its fixed point e = ½C₂v/(1 − C₁), v = 1/N(1 − C₁²), to a few percent."""
    text = LN_AFTER.format(20)
    width = fg.width_needed(text, tolerance=0.02)
    assert std(text, width, 10**12, 10**12) <= 0.02 < std(text, round(0.97 * width), 10**12, 10**12)
    c1, c2 = 0.733471, 0.466942
    fixed = 0.5 * c2 / ((1 - c1) * (1 - c1**2)) / (2 * math.pi * 0.02**2)
    assert abs(width / fixed - 1.0) < 0.06
    with pytest.raises(InvalidInput, match="tolerance"):
        fg.width_needed(text, tolerance=0.0)
    with pytest.raises(InvalidInput, match="dimension"):
        fg.width_needed(text, inputs=fg.Inputs(dimension=10))
