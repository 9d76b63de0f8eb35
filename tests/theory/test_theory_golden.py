"""Every number of theory.md §2–§5, printed there with the digits asserted here."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from scipy import special

import firstguess as fg
from firstguess.network.activations.registry import activation
from firstguess.network.grammar import parse_layers
from firstguess.network.layers import steps
from firstguess.network.norms import BatchNormed
from firstguess.network.signal import Gaussian, Signal

ONE_RELU = 1.0 / (math.pi - 1.0)
NONE = {1: 0.466942, 2: 0.975235, 5: 2.787109, 10: 6.784253, 20: 18.390547}
HALF_DIGIT = 5.01e-7  # theory.md prints six decimals


def gamma_of(depth: int, norm: str | None = None, placement: str = "before", **options: float) -> float:
    return float(fg.predict(fg.mlp(depth, norm=norm, placement=placement, **options)).gamma[-1])  # type: ignore[arg-type]


# --- §2: the table of placements --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("norm", "placement"), [(None, "before"), ("layernorm", "before"), ("rmsnorm", "before"), ("rmsnorm", "after")]
)
@pytest.mark.parametrize("depth", NONE)
def test_placements_that_leave_the_bias_alone(norm: str | None, placement: str, depth: int) -> None:
    assert gamma_of(depth, norm, placement) == pytest.approx(NONE[depth], abs=HALF_DIGIT)


@pytest.mark.parametrize("depth", [1, 2, 5, 10, 20, 200])
def test_batchnorm_before_has_the_same_bias_at_every_depth(depth: int) -> None:
    assert gamma_of(depth, "batchnorm") == pytest.approx(ONE_RELU, rel=1e-14)


@pytest.mark.parametrize("norm", ["batchnorm", "layernorm"])
@pytest.mark.parametrize("depth", [1, 2, 5, 10, 20, 200])
def test_centring_after_the_activation_cures(norm: str, depth: int) -> None:
    assert gamma_of(depth, norm, "after") == 0.0


def test_layernorm_after_with_biases() -> None:
    assert gamma_of(4, "layernorm", "after", bias_var=0.1) == pytest.approx(0.160, abs=5e-4)


@pytest.mark.parametrize("name", ["tanh", "gelu"])
def test_layernorm_before_changes_activations_that_have_a_scale(name: str) -> None:
    inputs = fg.Inputs(mean_square=0.3)
    plain, normed = (fg.predict(fg.mlp(5, name, norm=norm), inputs=inputs).gamma[-1] for norm in (None, "layernorm"))
    assert abs(normed / plain - 1.0) > 0.01
    relu, relu_normed = (fg.predict(fg.mlp(5, norm=norm), inputs=inputs).gamma[-1] for norm in (None, "layernorm"))
    assert relu == pytest.approx(relu_normed, rel=1e-13)


def test_states_of_the_table() -> None:
    """Each row of the table on a state with three different numbers."""
    mean, between, spread = 0.7, 0.4, 1.1
    center, total = mean**2 + between, mean**2 + between + spread

    def row(source: str) -> Signal:
        *_, (_, _, out) = steps(parse_layers(source), Signal(mean, between, spread, distribution=Gaussian()))
        return out

    out = row("dense(weight_var=1.5, bias_var=0.2)")
    assert (out.mean, out.center, out.total) == (
        0.0,
        pytest.approx(1.5 * center + 0.2),
        pytest.approx(1.5 * total + 0.2),
    )
    out = row("batchnorm")
    assert (out.mean, out.center, out.total) == (0.0, 0.0, 1.0)
    out = row("layernorm")
    assert (out.mean, out.center, out.total) == (
        0.0,
        pytest.approx((center - mean**2) / (total - mean**2)),
        pytest.approx(1.0),
    )
    out = row("rmsnorm")
    assert (out.mean, out.center, out.total) == (
        pytest.approx(mean / math.sqrt(total)),
        pytest.approx(center / total),
        pytest.approx(1.0),
    )
    out = row("scale(-3)")
    assert (out.mean, out.center, out.total) == (-3 * mean, pytest.approx(9 * center), pytest.approx(9 * total))
    out = row("avgpool(5)")
    assert (out.mean, out.center, out.total) == (
        mean,
        pytest.approx((center - mean**2) / 5 + mean**2),
        pytest.approx((total - mean**2) / 5 + mean**2),
    )


# --- §2: mini-batches (5) ---------------------------------------------------------------------------------------------


def five(batch: int) -> float:
    with mpmath.workdps(40):
        ratio = mpmath.gamma(mpmath.mpf(batch - 1) / 2) / mpmath.gamma(mpmath.mpf(batch) / 2)
        a2 = (batch - 1) / (4 * mpmath.pi) * ratio**2
        return float(a2 / (0.5 - a2))


@pytest.mark.parametrize(("batch", "want"), [(2, 1.0), (4, 0.6), (16, 0.490515)])
def test_mini_batches_as_printed(batch: int, want: float) -> None:
    assert gamma_of(3, f"batchnorm(batch={batch})") == pytest.approx(want, abs=HALF_DIGIT)


@pytest.mark.parametrize("batch", [2, 3, 4, 5, 6, 7, 8, 16, 31, 32, 64, 100, 128, 1000, 4096, 100_000])
@pytest.mark.parametrize("depth", [1, 7])
def test_mini_batches_by_five(batch: int, depth: int) -> None:
    assert gamma_of(depth, f"batchnorm(batch={batch})") == pytest.approx(five(batch), rel=1e-12)


def test_mini_batches_tend_to_the_whole() -> None:
    gaps = [gamma_of(1, f"batchnorm(batch={b})") - ONE_RELU for b in (1000, 2000, 4000)]
    assert gaps[0] / gaps[1] == pytest.approx(2.0, rel=2e-3)  # 1/B
    assert gaps[1] / gaps[2] == pytest.approx(2.0, rel=1e-3)


def test_beta_law_has_unit_variance() -> None:
    for batch in (2, 3, 5, 64):
        out = BatchNormed(batch, "usual").activate(Signal(0.0, 0.0, 1.0), activation("linear"))
        assert out.mean == pytest.approx(0.0, abs=1e-15)
        assert out.spread == pytest.approx(1.0, rel=1e-13)


# --- §3: binary summaries, max-pool -----------------------------------------------------------------------------------


def test_binary_summaries_of_one_relu_layer() -> None:
    g = fg.predict(fg.mlp(1)).guesses
    assert g.gamma == pytest.approx(ONE_RELU, rel=1e-14)
    assert g.var() == pytest.approx(0.05155762, abs=5.1e-9)
    assert g.expected_max() == pytest.approx(0.69081130, abs=5.1e-9)
    c = ONE_RELU / (1 + ONE_RELU)
    assert g.var() == pytest.approx(math.asin(c) / (2 * math.pi), rel=1e-12)
    assert g.expected_max() == pytest.approx(0.5 + math.atan(math.sqrt(ONE_RELU)) / math.pi, rel=1e-12)
    assert g.prob_max_above(0.9) == pytest.approx(
        2 * special.ndtr(-special.ndtri(0.9) / math.sqrt(ONE_RELU)), rel=1e-12
    )


@pytest.mark.parametrize(
    ("size", "want"), [(1, 0.466942), (2, 1.041469), (4, 2.429259), (9, 6.186921), (25, 14.941201)]
)
def test_max_pool_on_the_first_layer(size: int, want: float) -> None:
    got = fg.predict(f"dense(weight_var=2) > relu > maxpool({size}) > dense").gamma[-1]
    assert got == pytest.approx(want, abs=HALF_DIGIT)


# --- §4 ---------------------------------------------------------------------------------------------------------------


def test_growth_of_the_bias_with_depth() -> None:
    """γ_l ~ 2l²/9π² and 1 − c_l ~ 9π²/2l²; the next term is O(log l / l), so it halves when l doubles, nearly."""
    p = fg.predict(fg.mlp(10_000))
    layer = np.array([1250, 2500, 5000, 10_000])
    ratio = p.gamma[layer] / (2.0 * layer**2 / (9.0 * math.pi**2))
    assert np.all(np.abs(ratio - 1.0) < 4.0 * np.log(layer) / layer + 8.0 / layer)
    assert np.all(np.diff(np.abs(ratio - 1.0)) < 0.0)
    assert p.one_minus_c[layer[-1]] * layer[-1] ** 2 == pytest.approx(4.5 * math.pi**2, rel=5e-3)


def test_depth_never_creates_bias() -> None:
    for name in ("tanh", "sin", "hardtanh", "erf", "linear", "sign"):
        assert np.all(fg.predict(fg.mlp(30, name)).gamma == 0.0), name
    assert np.all(fg.predict(fg.mlp(30, fg.centered("relu"))).gamma == 0.0)
    assert fg.predict("dense > tanh > shift(0.5) > dense").gamma[-1] > 0.1
    assert fg.predict(fg.mlp(1, "tanh"), inputs=fg.Inputs(mean_square=0.5)).gamma[-1] > 0.1


# --- §5 ---------------------------------------------------------------------------------------------------------------

EDGE = {0.01: 1.424205, 0.05: 1.760955, 0.1: 1.986073, 0.2: 2.285152}
NEUTRAL = {0.01: 1.68467, 0.05: 2.37827, 0.1: 2.92477, 0.2: 3.76110}


@pytest.mark.parametrize("bias_var", EDGE)
def test_lines_of_tanh(bias_var: float) -> None:
    assert fg.edge_of_chaos("tanh", bias_var=bias_var) == pytest.approx(EDGE[bias_var], abs=HALF_DIGIT)
    assert fg.neutrality_line("tanh", bias_var=bias_var) == pytest.approx(NEUTRAL[bias_var], abs=5.01e-6)


def test_numbers_of_the_issue() -> None:
    assert fg.edge_of_chaos("tanh", bias_var=0.05) == pytest.approx(1.760955, abs=HALF_DIGIT)
    assert fg.neutrality_line("tanh", bias_var=0.05) == pytest.approx(2.378266, abs=HALF_DIGIT)


@pytest.mark.parametrize(
    ("block", "variance", "gradients"),
    [
        ("relu", 2.0, 2.0),
        ("relu > maxpool(2)", 4 * math.pi / (3 * math.pi + 2), 4 / 3),
        ("relu > avgpool(2)", 4 * math.pi / (math.pi + 1), 4.0),
    ],
)
def test_pooling_has_two_edges(block: str, variance: float, gradients: float) -> None:
    assert fg.edge_of_chaos(block, kind="variance") == pytest.approx(variance, rel=1e-12)
    assert fg.edge_of_chaos(block, kind="gradients") == pytest.approx(gradients, rel=1e-12)


def test_gradients_at_the_variance_edge_of_max_pooling() -> None:
    p = fg.predict("14 x [dense(weight_var=1.0999) > relu > maxpool(2)] > dense(weight_var=1.0999)")
    assert p.gradient_growth[1:] == pytest.approx(np.full(13, 1.0999 * 0.75), rel=1e-9)
    assert round(p.gradient_growth[-1], 2) in (0.82, 0.83)  # measured: 0.83


@pytest.mark.parametrize("weight_var", [0.1, 1.0, 2.0, 7.0])
def test_batchnorm_before_relu_has_no_edge(weight_var: float) -> None:
    growth = fg.predict(fg.mlp(12, norm="batchnorm", weight_var=weight_var)).gradient_growth
    assert growth.size == 12
    assert growth[1:] == pytest.approx(np.full(11, math.pi / (math.pi - 1)), rel=1e-12)


def test_pytorch_defaults_are_ordered() -> None:
    p = fg.predict(fg.mlp(7, weight_var=1 / 3, bias_var=1 / (3 * 512)))
    assert p.correlation[6] == pytest.approx(0.9973, abs=5.1e-5)
    assert np.all(p.gradient_growth == pytest.approx(1 / 6, rel=1e-14))
    assert fg.fixed_point("relu", weight_var=1 / 3, bias_var=1 / 1536).phase == "ordered"


def test_table_of_phases() -> None:
    names = [
        fg.fixed_point("tanh", weight_var=w, bias_var=0.05).name
        for w in (1.0, fg.edge_of_chaos("tanh", bias_var=0.05), 2.0, 4.0)
    ]
    assert names == [
        "ordered, deeply and persistently biased",
        "edge of chaos, deeply but transiently biased",
        "chaotic, biased",
        "chaotic, neutral",
    ]
    relu = [fg.fixed_point("relu", weight_var=w) for w in (1.0, 2.0, 3.0)]
    assert [p.phase for p in relu] == ["ordered", "edge of chaos", "chaotic"]
    assert all(p.c == 1.0 and math.isinf(p.gamma) for p in relu)


def test_approach_to_one_is_exponential_or_a_power_law() -> None:
    """ReLU: with biases in the ordered phase like χ^l, in the chaotic one like l^−2."""
    ordered = fg.predict(fg.mlp(200, weight_var=1.0, bias_var=0.1)).one_minus_c
    assert ordered[150] / ordered[149] == pytest.approx(0.5, rel=1e-3)
    chaotic = fg.predict(fg.mlp(4000, weight_var=3.0, bias_var=0.1)).one_minus_c
    assert chaotic[4000] / chaotic[2000] == pytest.approx(0.25, rel=2e-2)
