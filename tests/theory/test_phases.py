"""Fixed points, edges and neutrality lines: against iteration, against paper, and where there are none."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from scipy import integrate, optimize

import firstguess as fg
from firstguess.theory.phases.fixed_points import FixedPoint
from firstguess.theory.phases.layer_map import as_block

CASES = [
    ("tanh", 0.8, 0.05),
    ("tanh", 2.5, 0.05),
    ("tanh", 3.5, 0.0),
    ("erf", 3.0, 0.3),
    ("hardtanh", 2.0, 0.1),
    ("sin", 2.2, 0.1),
    ("relu", 1.0, 0.3),
    ("relu6", 2.5, 0.1),
    ("gelu", 1.2, 0.1),
    ("silu", 1.5, 0.2),
    ("selu", 1.1, 0.1),
    ("elu", 0.8, 0.2),
    ("sigmoid", 6.0, 0.2),
    ("softplus", 1.2, 0.1),
    ("sign", 1.5, 0.2),
    ("centered(relu)", 2.2, 0.1),
    ("centered(gelu)", 2.5, 0.1),
    ("tanh > avgpool(2)", 4.5, 0.1),
    ("tanh > maxpool(2)", 1.5, 0.1),
    ("tanh > layernorm", 2.0, 0.1),
    ("relu > layernorm", 2.0, 0.3),
    ("relu > rmsnorm", 2.0, 0.3),
    ("layernorm > tanh", 2.0, 0.3),
]


@pytest.mark.parametrize(("block", "weight_var", "bias_var"), CASES)
def test_fixed_points_are_where_networks_end(block: str, weight_var: float, bias_var: float) -> None:
    """By `predict`, as many layers as are far beyond the depth scale: e⁻³⁰ is left of where it started."""
    fp = fg.fixed_point(block, weight_var=weight_var, bias_var=bias_var)
    depth = 30 + math.ceil(30 * fp.depth_scale)
    p = fg.predict(f"{depth} x [dense({weight_var}, {bias_var}) > {block}] > dense({weight_var}, {bias_var})")
    assert p.q[-1] == pytest.approx(fp.q, rel=1e-10)
    assert p.correlation[-1] == pytest.approx(fp.c, abs=1e-9)
    assert p.gradient_growth[-1] == pytest.approx(fp.chi, rel=1e-9)
    if math.isfinite(fp.gamma):
        assert p.gamma[-1] == pytest.approx(fp.gamma, rel=1e-8, abs=1e-9)
    else:
        assert p.gamma[-1] > 1e12


@pytest.mark.parametrize(
    ("block", "weight_var", "bias_var"),
    [("tanh", 2.5, 0.05), ("relu", 1.2, 0.3), ("sin", 2.2, 0.1), ("tanh > avgpool(2)", 4.5, 0.1), ("gelu", 1.2, 0.1)],
)
def test_depth_scale_is_how_fast_correlations_settle(block: str, weight_var: float, bias_var: float) -> None:
    fp = fg.fixed_point(block, weight_var=weight_var, bias_var=bias_var)
    depth = int(6 * fp.depth_scale) + 40
    p = fg.predict(f"{depth} x [dense({weight_var}, {bias_var}) > {block}] > dense({weight_var}, {bias_var})")
    gap = p.one_minus_c if fp.c == 1.0 else np.abs(p.correlation - fp.c)
    rate = math.log(gap[depth - 11] / gap[depth - 1]) / 10
    assert 1.0 / rate == pytest.approx(fp.depth_scale, rel=0.02)


def test_tanh_against_iterated_quadrature() -> None:
    """q* and c* by iterating both maps, with the trapezoid rule in one and two dimensions."""
    z = np.arange(-9.0, 9.05, 0.1)
    w = np.exp(-0.5 * z * z)
    w = w / w.sum()
    q, c = 1.0, 0.2
    for _ in range(300):
        q = 2.5 * float(w @ np.tanh(math.sqrt(q) * z) ** 2) + 0.05
    for _ in range(300):
        v = c * z[:, None] + math.sqrt(1 - c * c) * z[None, :]
        c = (2.5 * float(w @ (np.tanh(math.sqrt(q) * z)[:, None] * np.tanh(math.sqrt(q) * v)) @ w) + 0.05) / q
    fp = fg.fixed_point("tanh", weight_var=2.5, bias_var=0.05)
    assert fp.q == pytest.approx(q, rel=1e-10)
    assert fp.c == pytest.approx(c, rel=1e-9)


def test_edge_of_tanh_by_scipy() -> None:
    """q = σw²·E tanh² + σb² and σw²·E sech⁴ = 1, solved by scipy with its own quadrature."""

    def mean(f: object, q: float) -> float:
        def g(z: float) -> float:
            return f(math.sqrt(q) * z) * math.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)  # type: ignore[operator]

        return integrate.quad(g, -12, 12, epsabs=1e-14, epsrel=1e-12, limit=200)[0]

    def excess(q: float) -> float:
        w = 1.0 / mean(lambda x: 1 / math.cosh(x) ** 4, q)
        return q - w * mean(lambda x: math.tanh(x) ** 2, q) - 0.1

    q = float(optimize.brentq(excess, 0.05, 3.0, xtol=1e-14))
    want = 1.0 / mean(lambda x: 1 / math.cosh(x) ** 4, q)
    assert fg.edge_of_chaos("tanh", bias_var=0.1) == pytest.approx(want, rel=1e-10)


@pytest.mark.parametrize(
    "name", ["tanh", "erf", "hardtanh", "sin", "selu", "elu", "sigmoid", "relu6", "relu", "tanh > avgpool(2)"]
)
@pytest.mark.parametrize("bias_var", [0.02, 0.3])
def test_edges_are_where_gradients_keep_their_size(name: str, bias_var: float) -> None:
    edge = fg.edge_of_chaos(name, bias_var=bias_var)
    if name == "relu":
        assert edge == 2.0  # where the variance just diverges
        return
    at = fg.fixed_point(name, weight_var=edge, bias_var=bias_var)
    assert at.chi == pytest.approx(1.0, abs=1e-9)
    assert at.phase == "edge of chaos"
    below, above = (fg.fixed_point(name, weight_var=edge * f, bias_var=bias_var) for f in (0.99, 1.01))
    assert (below.phase, above.phase) == ("ordered", "chaotic")
    assert below.c == 1.0
    assert above.c < 1.0


@pytest.mark.parametrize(
    "name", ["tanh", "erf", "hardtanh", "sin", "selu", "sign", "centered(relu)", "tanh > avgpool(2)"]
)
@pytest.mark.parametrize("bias_var", [0.02, 0.1])
def test_neutrality_is_where_half_is(name: str, bias_var: float) -> None:
    line = fg.neutrality_line(name, bias_var=bias_var)
    at = fg.fixed_point(name, weight_var=line, bias_var=bias_var)
    assert at.c == pytest.approx(0.5, abs=1e-9)
    assert at.gamma == pytest.approx(1.0, abs=1e-8)
    assert fg.fixed_point(name, weight_var=line * 1.01, bias_var=bias_var).regime == "neutral"
    assert fg.fixed_point(name, weight_var=line * 0.99, bias_var=bias_var).regime == "biased"


@pytest.mark.parametrize("name", ["tanh", "erf", "hardtanh", "sin"])
def test_lines_start_at_the_slope_at_zero(name: str) -> None:
    """Odd activations without biases: below 1/φ'(0)² the signal dies, above c* = 0."""
    start = math.pi / 4 if name == "erf" else 1.0
    assert fg.edge_of_chaos(name) == pytest.approx(start, rel=1e-9)
    assert fg.neutrality_line(name) == pytest.approx(start, rel=1e-9)
    assert fg.fixed_point(name, weight_var=start * 1.2).c == 0.0
    dead = fg.fixed_point(name, weight_var=start * 0.8)
    assert (dead.q, dead.phase) == (0.0, "ordered")
    assert "vanishes" in dead.note


@pytest.mark.parametrize(("slope", "want"), [(0.0, 2.0), (0.5, 1.6), (1.0, 1.0)])
def test_scale_free_edges_on_paper(slope: float, want: float) -> None:
    """2/(1 + slope²), for variance and gradients alike, whatever the biases."""
    name = f"leaky_relu(slope={slope})"
    for bias_var in (0.0, 0.5):
        assert fg.edge_of_chaos(name, bias_var=bias_var) == pytest.approx(want, rel=1e-14)
    assert fg.edge_of_chaos(name, kind="variance") == pytest.approx(want, rel=1e-14)


def test_scales_without_end() -> None:
    """A variance that vanishes or explodes: c* is that of the asymptote, not 1 by assumption."""
    square = fg.fixed_point("square", weight_var=2.0)
    assert square.q == math.inf
    assert square.c == pytest.approx(0.5, abs=1e-9)  # c' = (1 + 2c²)/3
    assert square.depth_scale == pytest.approx(-1 / math.log(2 / 3), rel=1e-6)
    for weight_var in (1.0, 2.0, 5.0):
        cured = fg.fixed_point("centered(relu)", weight_var=weight_var)
        assert cured.c == 0.0
        assert cured.regime == "neutral"
        assert fg.predict(fg.mlp(50, fg.centered("relu"), weight_var=weight_var)).gamma[-1] == 0.0
    for weight_var, q in ((1.0, 0.0), (3.0, math.inf)):
        relu = fg.fixed_point("relu", weight_var=weight_var)
        assert (relu.q, relu.c, relu.gamma, relu.depth_scale) == (q, 1.0, math.inf, math.inf)
        pooled = fg.fixed_point("relu > maxpool(2)", weight_var=weight_var)
        # c settles at the rate R₀·q/V = ¾ / ((3π+2)/4π)
        assert pooled.depth_scale == pytest.approx(-1 / math.log(3 * math.pi / (3 * math.pi + 2)), rel=1e-6)


def test_linear_networks_keep_what_they_got() -> None:
    fp = fg.fixed_point("linear", weight_var=1.0)
    assert (fp.c, fp.gamma, fp.phase) == (0.0, 0.0, "edge of chaos")
    assert "linear" in fp.note
    assert fg.fixed_point("linear", weight_var=0.5, bias_var=0.1).c == 1.0
    big = fg.fixed_point("linear", weight_var=3.0, bias_var=0.1)
    # Σ of biases 0.1(1 + 1/3 + …)/3 against 1: γ = 0.05 after infinitely many layers
    assert big.gamma == pytest.approx(0.1 / 3 / (1 - 1 / 3), rel=1e-9)


@pytest.mark.parametrize("name", ["gelu", "silu", "mish", "softplus", "hardswish", "square"])
def test_no_edge(name: str) -> None:
    """The variance jumps from small to infinite before gradients keep their size: no weight variance has χ̃ = 1."""
    with pytest.raises(fg.NotCovered, match="edge of chaos") as caught:
        fg.edge_of_chaos(name, bias_var=0.05)
    assert "jump, at weight_var" in str(caught.value)
    assert "phase_diagram" in caught.value.hint
    jump = float(str(caught.value).split("weight_var ")[1].split(". Try")[0])
    below, above = (fg.fixed_point(name, weight_var=jump * f, bias_var=0.05) for f in (0.999, 1.001))
    assert below.chi < 1.0 < above.chi or name == "softplus"
    with pytest.raises(fg.NotCovered, match="neutrality line"):
        fg.neutrality_line(name, bias_var=0.05)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: fg.neutrality_line("relu"), "neutrality line"),
        (lambda: fg.neutrality_line("relu", bias_var=0.3), "neutrality line"),
        (lambda: fg.neutrality_line("linear"), "linear"),
        (lambda: fg.edge_of_chaos("sign"), "without jumps"),
        (lambda: fg.edge_of_chaos("sign", bias_var=0.1), "without jumps"),
        (lambda: fg.edge_of_chaos("tanh", kind="variance"), "scale-free"),
        (lambda: fg.fixed_point("dense > tanh", weight_var=1.0), "without weights"),
        (lambda: fg.fixed_point("dense > relu", weight_var=1.0), "outside of residual branches"),
        (lambda: fg.fixed_point("residual[relu > dense] > relu", weight_var=1.0), "residual"),
        (lambda: fg.fixed_point("gelu > maxpool(2)", weight_var=1.0), "never decreases"),
    ],
)
def test_not_covered(call: object, said: str) -> None:
    with pytest.raises(fg.NotCovered, match=said) as caught:
        call()  # type: ignore[operator]
    assert caught.value.hint


@pytest.mark.parametrize(
    "call",
    [
        lambda: fg.fixed_point("tanh", weight_var=0.0),
        lambda: fg.fixed_point("tanh", weight_var=-1.0),
        lambda: fg.fixed_point("tanh", weight_var=math.nan),
        lambda: fg.fixed_point("tanh", weight_var=1.0, bias_var=-0.1),
        lambda: fg.fixed_point("tanh", weight_var="2"),
        lambda: fg.fixed_point("tanhh", weight_var=1.0),
        lambda: fg.fixed_point("layernorm", weight_var=1.0),
        lambda: fg.fixed_point("", weight_var=1.0),
        lambda: fg.fixed_point("tanh > ", weight_var=1.0),
        lambda: fg.edge_of_chaos("tanh", bias_var=math.inf),
        lambda: fg.edge_of_chaos("nope"),
        lambda: fg.neutrality_line("tanh", bias_var=-1),
    ],
)
def test_bad_input(call: object) -> None:
    with pytest.raises(fg.InvalidInput) as caught:
        call()  # type: ignore[operator]
    assert caught.value.hint


def test_functions_of_your_own() -> None:
    mine = fg.activation(lambda x: np.tanh(x), name="mine", derivative=lambda x: 1 / np.cosh(x) ** 2)
    assert fg.edge_of_chaos(mine, bias_var=0.05) == pytest.approx(1.760955, abs=1e-6)
    got, want = (fg.fixed_point(f, weight_var=2.5, bias_var=0.05) for f in (mine, "tanh"))
    assert (got.q, got.c, got.chi) == pytest.approx((want.q, want.c, want.chi), rel=1e-8)


@pytest.mark.parametrize(
    ("block", "weight_var"), [("tanh", 2.5), ("relu", 2.0), ("relu", 3.0), ("sign", 2.0), ("linear", 1.0)]
)
def test_plain_data_reads_back(block: str, weight_var: float) -> None:
    fp = fg.fixed_point(block, weight_var=weight_var)
    assert FixedPoint.from_dict(json.loads(json.dumps(fp.to_dict(), allow_nan=False))) == fp
    assert str(fp)


def test_blocks_know_whether_they_have_a_scale() -> None:
    scale_free = {b: as_block(b).scale_free() for b in ("relu", "abs", "tanh", "relu > avgpool(3)", "relu > layernorm")}
    assert scale_free == {
        "relu": True,
        "abs": True,
        "tanh": False,
        "relu > avgpool(3)": True,
        "relu > layernorm": False,
    }
    assert as_block("linear").keeps_correlation(0.0)
    assert not as_block("relu").keeps_correlation(0.0)


@pytest.mark.parametrize("block", ["tanh", "relu", "gelu", "sin", "tanh > maxpool(2)"])
def test_the_secant_decreases_from_the_slope(block: str) -> None:
    """Why a fixed point below 1 exists iff χ̃ > 1: R(θ) falls from R₀."""
    b = as_block(block)
    values = [b.secant(0.3, t) for t in (0.0, 1e-6, 1e-3, 0.1, 0.5, 1.0, 1.3, math.pi / 2)]
    assert values[1] == pytest.approx(values[0], rel=1e-5)
    assert all(x > y for x, y in pairwise(values[2:]))


# --- functions of one's own
# --------------------------------------------------------------------------------------------

OWN = {
    "x sin x": lambda x: x * np.sin(x),
    "softsign": lambda x: x / (1.0 + np.abs(x)),
    "arctan": np.arctan,
    "algebraic": lambda x: x / np.sqrt(1.0 + x * x),
    "arcsinh": np.arcsinh,
    "cos": np.cos,
    "tanh and a line": lambda x: np.tanh(x) + 0.1 * x,
}


@pytest.mark.parametrize(("bias_var", "edge"), [(0.01, 1.36426), (0.05, 1.28532), (0.3, 0.99861)])
def test_the_edge_of_x_sin_x_is_where_a_deep_network_turns_chaotic(bias_var: float, edge: float) -> None:
    """At small bias variances in a jump between two finite variances, as `fixed_point` finds it."""
    phi = fg.activation(OWN["x sin x"], name="wave")
    assert fg.edge_of_chaos(phi, bias_var=bias_var) == pytest.approx(edge, abs=1e-5)
    below, above = (fg.fixed_point(phi, weight_var=edge + d, bias_var=bias_var) for d in (-2e-5, 2e-5))
    assert (below.phase, above.phase) == ("ordered", "chaotic")


@pytest.mark.parametrize("name", OWN)
def test_lines_of_own_functions_are_those_of_their_fixed_points(name: str) -> None:
    phi = fg.activation(OWN[name], name="mine")
    edge = fg.edge_of_chaos(phi, bias_var=0.3)
    below, above = (fg.fixed_point(phi, weight_var=edge * f, bias_var=0.3).chi for f in (1 - 1e-5, 1 + 1e-5))
    assert below < 1.0 < above
    neutral = fg.neutrality_line(phi, bias_var=0.3)
    assert fg.fixed_point(phi, weight_var=neutral, bias_var=0.3).c == pytest.approx(0.5, abs=1e-6)


@pytest.mark.parametrize(("own", "known"), [(np.tanh, "tanh"), (lambda x: np.tanh(np.logaddexp(0, x)) * x, "mish")])
def test_own_functions_agree_with_the_same_ones_by_name(own: Any, known: str) -> None:
    phi = fg.activation(own, name="mine")
    for call in (fg.edge_of_chaos, fg.neutrality_line):
        for bias_var in (0.0, 0.05):
            try:
                expected = call(known, bias_var=bias_var)
            except fg.NotCovered:
                with pytest.raises(fg.NotCovered, match="none at bias_var"):
                    call(phi, bias_var=bias_var)
            else:
                assert call(phi, bias_var=bias_var) == pytest.approx(expected, rel=1e-9)


def test_a_phase_diagram_of_an_own_function_says_where_it_cannot_be_integrated() -> None:
    d = fg.phase_diagram(OWN["x sin x"], weight_vars=[0.9, 1.1, 1.4, 3.0], bias_vars=[0.05, 0.3])
    assert d.phase[1].tolist() == ["ordered", "chaotic", "chaotic", "chaotic"]
    assert d.edge == pytest.approx([1.28532, 0.99861], abs=1e-5)
    assert np.isinf(d.q[:, 3]).all()
    assert "is called infinite: it cannot be integrated there" in d.note
    for i, w in enumerate((0.9, 1.1, 1.4)):
        p = fg.fixed_point(OWN["x sin x"], weight_var=w, bias_var=0.3)
        assert d.q[1, i] == pytest.approx(p.q, rel=1e-6)
        assert d.c[1, i] == pytest.approx(p.c, abs=1e-5)
