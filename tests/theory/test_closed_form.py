"""`predict`: the fold, extreme depths and scales, what it refuses, plain data."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import mpmath
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from properties import examples
from random_networks import TAME_VAR, layers, networks
from simulated import agrees, forward, moments

import firstguess as fg
from firstguess.network.grammar import parse_layers
from firstguess.network.layer import Layer, Mix, Symmetry, keeps_shape
from firstguess.network.layers import Dense
from firstguess.network.network import Network
from firstguess.network.signal import SAMPLED, Signal
from firstguess.theory.prediction import Prediction, regime

# Fast ones: quadrature over random parameters is not the point here.
SOME = ("linear", "relu", "abs", "tanh", "gelu", "erf", "sin", "hardtanh", "square", "sign")


# --- depth and scale --------------------------------------------------------------------------------------------------


def relu_by_mpmath(gap: str, depth: int) -> list[float]:
    """γ of ReLU networks by the arc-cosine map, with 80 digits."""
    with mpmath.workdps(80):
        c = 1 - mpmath.mpf(gap)
        out = []
        for _ in range(depth):
            c = (mpmath.sqrt(1 - c * c) + c * (mpmath.pi - mpmath.acos(c))) / mpmath.pi
            out.append(float(c / (1 - c)))
        return out


@pytest.mark.parametrize("ratio", [0.0, 1e-12, 1e-6, 1.0, 1e6, 1e12, 1e25])
def test_no_digit_is_lost_from_tiny_to_huge_bias(ratio: float) -> None:
    """γ of the inputs from 0 to 1e25 through 60 ReLU layers, against 80 digits."""
    with mpmath.workdps(80):
        gap = str(1 / (1 + mpmath.mpf(ratio)))
    got = fg.predict(fg.mlp(60), inputs=fg.Inputs(mean_square=ratio)).gamma
    assert got[0] == pytest.approx(ratio, rel=1e-15)
    assert got[1:] == pytest.approx(np.array(relu_by_mpmath(gap, 60)), rel=1e-12)


@pytest.mark.parametrize("mean_square", [1e-12, 1e12])
@pytest.mark.parametrize("name", ["tanh", "gelu", "relu", "linear", "hardtanh", "softplus"])
def test_uncentred_inputs_at_both_ends(mean_square: float, name: str) -> None:
    """γ after the first layer is m0/v0 exactly; further layers change it smoothly, without NaN or rounding to 0."""
    p = fg.predict(fg.mlp(5, name, weight_var=1.0), inputs=fg.Inputs(mean_square=mean_square, variance=1.0))
    assert p.gamma[0] == pytest.approx(mean_square, rel=1e-14)
    assert np.all(np.isfinite(p.gamma))
    assert np.all(p.gamma > 0)
    if name == "linear":
        assert p.gamma == pytest.approx(np.full(6, mean_square), rel=1e-13)


def test_small_bias_through_odd_activations_is_linear_response() -> None:
    """tanh: c' = c·(E φ' u)²/(q E φ²) for small c, so γ from 1e-12 shrinks by a factor known on paper."""
    p = fg.predict(fg.mlp(3, "tanh", weight_var=2.0), inputs=fg.Inputs(mean_square=1e-12))
    z, w = np.polynomial.hermite_e.hermegauss(120)
    w = w / w.sum()
    q, c = 2.0, 1e-12
    for got in p.gamma[1:]:
        f = np.tanh(math.sqrt(q) * z)
        c *= float(w @ (f * z)) ** 2 / float(w @ (f * f))
        q = 2.0 * float(w @ (f * f))
        assert got == pytest.approx(c, rel=1e-9)


@pytest.mark.parametrize("variance", [1e-300, 1e-12, 1e12, 1e300])
@pytest.mark.parametrize("name", ["relu", "abs", "leaky_relu"])
def test_the_scale_of_inputs_does_not_matter_to_scale_free_networks(variance: float, name: str) -> None:
    scaled = fg.predict(fg.mlp(20, name), inputs=fg.Inputs(variance=variance))
    plain = fg.predict(fg.mlp(20, name))
    assert scaled.gamma == pytest.approx(plain.gamma, rel=1e-12)
    assert scaled.log_q == pytest.approx(plain.log_q + math.log(variance), abs=1e-11)


@pytest.mark.parametrize(
    ("weight_var", "depth"), [(1.0, 2000), (4.0, 2000), (1e-200, 2000), (1e200, 2000), (2.0, 10_000)]
)
def test_deep_relu_is_exact(weight_var: float, depth: int) -> None:
    """γ does not depend on σw² and log q is a straight line."""
    p = fg.predict(fg.mlp(depth, weight_var=weight_var))
    reference = fg.predict(fg.mlp(depth, weight_var=2.0))
    assert p.gamma == pytest.approx(reference.gamma, rel=1e-10)
    line = math.log(weight_var) + np.arange(depth + 1) * math.log(weight_var / 2)
    assert p.log_q == pytest.approx(line, rel=1e-13, abs=1e-12)
    assert p.gradient_growth == pytest.approx(np.full(depth, weight_var / 2), rel=1e-14)
    assert np.all(p.correlation <= 1.0)
    assert p.one_minus_c[-1] == pytest.approx(4.5 * math.pi**2 / depth**2, rel=0.05)
    assert np.all(np.isfinite(p.gamma))


@pytest.mark.parametrize(
    "network",
    [
        fg.mlp(10_000, "tanh", weight_var=1.0),
        fg.mlp(10_000, "tanh", weight_var=2.5, bias_var=0.05),
        fg.mlp(10_000, "gelu", weight_var=1.5),
        fg.mlp(10_000, norm="layernorm", placement="after", bias_var=0.1),
        fg.residual_mlp(10_000, norm="layernorm"),
        "10000 x [dense(weight_var=3) > relu > avgpool(2)] > dense",
        "150 x [dense(weight_var=1.3) > relu > maxpool(2)] > dense",
    ],
    ids=["tanh edge", "tanh chaos", "gelu ordered", "layernorm after", "residual", "avgpool", "maxpool"],
)
def test_depth_ten_thousand(network: Network | str) -> None:
    p = fg.predict(network)
    assert np.all(np.isfinite(p.log_q))
    assert not np.any(np.isnan(p.gamma))
    assert np.all(p.gamma >= 0.0)
    assert p.regime in ("neutral", "biased", "deeply biased")


def test_ordered_phase_shrinks_differences_exponentially() -> None:
    """ReLU with biases, σw² = 1: 1 − c falls by ½ a layer; at layer 1000 γ is near 2^1000, with all its digits."""
    p = fg.predict(fg.mlp(1000, weight_var=1.0, bias_var=0.1))
    assert p.gamma[-1] > 1e290
    assert p.gamma[-1] / p.gamma[-2] == pytest.approx(2.0, rel=1e-12)
    assert fg.predict(fg.mlp(3000, weight_var=1.0, bias_var=0.1)).regime == "deeply biased"


# --- what it says -----------------------------------------------------------------------------------------------------


def test_lengths_and_layers() -> None:
    p = fg.predict(fg.mlp(4, norm="layernorm", classes=10), points=1000)
    assert p.gamma.shape == p.correlation.shape == p.q.shape == p.log_q.shape == p.one_minus_c.shape == (5,)
    assert p.gradient_growth.shape == (4,)
    assert len(p.layers) == 13
    assert (p.guesses.classes, p.guesses.points, p.guesses.gamma) == (10, 1000, p.gamma[-1])
    assert p.correlation == pytest.approx(p.gamma / (1 + p.gamma), rel=1e-14)
    assert "wide layers" in p.assumptions
    assert p.provenance["network"] == str(p.network)
    assert "γ of the output" in str(p)
    assert "γ of the output" in p._repr_html_()


def test_classes_can_be_given_late() -> None:
    assert fg.predict("dense > relu > dense", classes=7).guesses.classes == 7
    assert fg.predict(fg.mlp(1, classes=3), classes=7).network.classes == 7


@pytest.mark.parametrize(
    ("gamma", "want"),
    [
        (0.0, "neutral"),
        (0.999999, "neutral"),
        (1.0, "biased"),
        (9.0, "biased"),
        (9.48, "deeply biased"),
        (math.inf, "deeply biased"),
    ],
)
def test_regimes(gamma: float, want: str) -> None:
    assert regime(gamma) == want


@pytest.mark.parametrize(
    ("source", "sampled"),
    [
        ("dense > residual[relu > dense] > relu > dense", False),
        ("dense > relu > residual[dense] > relu > dense", True),
        ("dense > residual[residual[relu > dense] > relu > dense] > dense", False),
        ("dense > residual[relu > residual[dense] > relu > dense] > dense", True),  # within, and Gaussian again behind
    ],
)
def test_sampled_nodes_are_an_assumption_wherever_they_stand(source: str, sampled: bool) -> None:
    assert (SAMPLED in fg.predict(source).assumptions) == sampled


def test_uncentred_inputs_by_simulation() -> None:
    """Inputs with a mean of their own, two ReLU layers: 200 networks of width 200, 5.5 standard errors."""
    want = fg.predict(fg.mlp(2, width=None), inputs=fg.Inputs(mean_square=0.3, variance=1.0))
    chain = parse_layers(str(fg.mlp(2)))
    rng = np.random.default_rng(61)
    got = []
    for _ in range(200):
        center = rng.standard_normal(200)
        center *= math.sqrt(0.3 * 200) / np.linalg.norm(center)
        got.append(moments(forward(chain, center + rng.standard_normal((5, 200)), rng, 200)))
    agrees(np.array(got)[:, 1], float(want.correlation[-1] * want.q[-1]), what="center")
    agrees(np.array(got)[:, 2], float(want.q[-1]), what="total")


def test_gradient_growth_by_simulation() -> None:
    """Mean square of back-propagated vectors through one tanh layer: 240 networks of width 150."""
    p = fg.predict(fg.mlp(2, "tanh", weight_var=2.5, bias_var=0.1))
    rng = np.random.default_rng(71)
    ratios = []
    for _ in range(240):
        x = rng.standard_normal((3, 150))
        u = x @ rng.normal(0, math.sqrt(2.5 / 150), (150, 150)) + rng.normal(0, math.sqrt(0.1), 150)
        v = rng.normal(0, math.sqrt(2.5 / 150), (150, 150))
        back = (rng.standard_normal((3, 150)) @ v.T) * (1 - np.tanh(u) ** 2)
        ratios.append(float(np.mean(back * back)))
    agrees(ratios, float(p.gradient_growth[0]), what="χ̃")


# --- plain data -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "network",
    [
        fg.mlp(3, classes=10),
        "dense(weight_var=0, bias_var=1) > dense",  # γ = ∞
        "dense > batchnorm(batch=8) > relu > dense > relu > dense",  # a gradient that is not known
        "dense > sign > dense",  # an infinite gradient
        fg.mlp(3000, weight_var=0.01),  # q = 0 in float64
    ],
)
def test_predictions_read_back(network: Network | str) -> None:
    p = fg.predict(network)
    again = Prediction.from_dict(json.loads(json.dumps(p.to_dict(), allow_nan=False)))
    assert again == p
    assert np.array_equal(again.gamma, p.gamma)
    assert np.array_equal(again.gradient_growth, p.gradient_growth, equal_nan=True)


# --- what it refuses --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call",
    [
        lambda: fg.predict("dense > relu > dense", classes=1),
        lambda: fg.predict("dense > relu > dense", points=0),
        lambda: fg.predict("dense > relu > dense", points=1.5),
        lambda: fg.predict(3),
        lambda: fg.predict(None),
        lambda: fg.predict("dense", inputs={"variance": 1.0}),
        lambda: fg.predict("dense", inputs=3),
        lambda: fg.Inputs(mean_square=-1.0),
        lambda: fg.Inputs(variance=-1.0),
        lambda: fg.Inputs(variance=0.0),
        lambda: fg.Inputs(variance=math.nan),
        lambda: fg.Inputs(mean_square=math.inf),
        lambda: fg.Inputs(mean_square="0.3"),
        lambda: fg.Inputs(mean=1.0),
        lambda: fg.Inputs(mean=1e200, mean_square=1e300),
        lambda: fg.predict("dense > nope > dense"),
        lambda: fg.predict(fg.mlp(2, lambda x: np.log(x))),
        lambda: fg.predict(fg.mlp(2, lambda x: np.exp(x * x))),
        lambda: fg.predict(fg.mlp(2, lambda x: x.sum())),
        lambda: fg.predict(fg.mlp(2, lambda x: x[:3])),
    ],
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_bad_input(call: object) -> None:
    with pytest.raises(fg.InvalidInput) as caught:
        call()  # type: ignore[operator]
    assert caught.value.hint, str(caught.value)


@pytest.mark.parametrize(
    ("source", "where", "said"),
    [
        ("dense > relu > relu > dense", "layer 3 (relu)", "the output of relu"),
        ("dense > relu > layernorm > tanh > dense", "layer 4 (tanh)", "layernorm of a signal that is not Gaussian"),
        ("dense > relu > maxpool(2) > relu > dense", "layer 4 (relu)", "maximum of several nodes"),
        ("dense > batchnorm(batch=8) > relu > tanh > dense", "layer 4 (tanh)", "the output of relu"),
        ("dense > batchnorm(batch=8) > maxpool(2) > dense", "layer 3 (maxpool(2))", "another signal"),
        ("dense > relu > avgpool(2) > abs > dense", "layer 4 (abs)", "average of nodes"),
        ("dense > relu", "layer 2", "ends in relu"),
        ("relu", "layer 1", "ends in relu"),
        ("dense > layernorm", "layer 2", "ends in layernorm"),
    ],
)
def test_what_is_not_covered_names_its_layer(source: str, where: str, said: str) -> None:
    with pytest.raises(fg.NotCovered) as caught:
        fg.predict(source)
    assert caught.value.where == where
    assert said in str(caught.value)
    assert "measure" in caught.value.hint or "dense" in caught.value.hint


def test_an_activation_on_uncentred_inputs_is_not_covered() -> None:
    fg.predict("relu > dense")  # the blob is Gaussian
    with pytest.raises(fg.NotCovered, match=r"layer 1 \(relu\)"):
        fg.predict("relu > dense", inputs=fg.Inputs(mean_square=0.3))


def test_all_zero_outputs_are_a_finding_of_their_own() -> None:
    with pytest.raises(fg.NotCovered, match="all classes tie"):
        fg.predict("dense > scale(0) > dense")
    assert fg.predict("dense > scale(0) > dense(bias_var=1)").gamma[-1] == math.inf


@dataclass(frozen=True)
class Stubborn(Layer):
    """A layer from outside, whose gradient nobody can compute."""

    kind: ClassVar[str] = "stubborn"
    weighted = False
    mixes = Mix.NOTHING
    symmetry = Symmetry.LINEAR
    breaks_gaussianity = False
    shape = keeps_shape

    def moments(self, signal: Signal) -> Signal:
        return signal

    def gradient(self, signal: Signal) -> float | None:
        raise fg.NotConverged("a slope", got="none", hint="nothing")

    def assumptions(self) -> Iterable[str]:
        return ("stubborn",)


def test_a_gradient_that_is_not_known_does_not_stop_a_prediction() -> None:
    p = fg.predict(Network((Dense(2.0), Stubborn(), *parse_layers("relu"), Dense(2.0))))
    assert np.isnan(p.gradient_growth[0])
    assert p.gamma == pytest.approx(fg.predict(fg.mlp(1)).gamma)
    assert "stubborn" in p.assumptions


# --- random networks --------------------------------------------------------------------------------------------------


@given(networks(layers(TAME_VAR, SOME)), st.sampled_from([0.0, 1e-12, 0.3, 1e12]), st.sampled_from([1e-12, 1.0, 1e12]))
@example(Network.parse("scale(0) > dense > shift(1)"), 0.0, 1.0)
@example(Network.parse("scale(0) > relu > maxpool(2) > shift(1)"), 0.0, 1.0)
@examples(150)
def test_random_networks_give_a_number_or_one_of_our_errors(net: Network, mean_square: float, variance: float) -> None:
    whole = Network((Dense(), *net.layers, Dense(1.5)), 2)
    try:
        p = fg.predict(whole, inputs=fg.Inputs(mean_square=mean_square, variance=variance))
    except fg.FirstguessError as error:
        assert error.hint, str(error)  # noqa: PT017
        return
    assert not np.any(np.isnan(p.log_q))
    silent = np.isneginf(p.log_q)  # a layer that is 0 for every input: γ and c are 0/0 there, and only there
    assert not silent[-1]
    assert np.array_equal(np.isnan(p.gamma), silent)
    assert np.array_equal(np.isnan(p.correlation), silent)
    assert np.all(p.gamma[~silent] >= 0.0)
    assert np.all((p.correlation[~silent] >= 0.0) & (p.correlation[~silent] <= 1.0))
    assert np.all(p.gradient_growth[~np.isnan(p.gradient_growth)] >= 0.0)


BLOCK = st.builds(
    lambda dense, before, phi, after: [dense, *before, phi, *after],
    st.builds(lambda w, b: f"dense(weight_var={w!r}, bias_var={b!r})", st.floats(0.1, 1e3), st.just(0.0) | TAME_VAR),
    st.sampled_from([[], ["layernorm"], ["rmsnorm"], ["batchnorm"], ["groupnorm(4)"], ["scale(0.3)"], ["shift(-0.5)"]]),
    st.sampled_from([*SOME, "selu", "softplus", "relu6", "centered(relu)", "leaky_relu(slope=0.3)"]),
    st.sampled_from([[], ["layernorm"], ["rmsnorm"], ["batchnorm"], ["avgpool(4)"], ["scale(-2)"], ["shift(0.7)"]]),
)


@given(st.lists(BLOCK, min_size=1, max_size=6), st.sampled_from([0.0, 1e-12, 0.3, 1e12]))
@examples(100)
def test_well_formed_networks_give_a_number(blocks: list[list[str]], mean_square: float) -> None:
    source = " > ".join(word for block in blocks for word in block) + " > dense"
    p = fg.predict(source, inputs=fg.Inputs(mean_square=mean_square))
    assert np.all(np.isfinite(p.gamma) & (p.gamma >= 0.0))
    assert np.all(np.isfinite(p.log_q))
    assert 0.5 <= p.guesses.expected_max() <= 1.0


@given(
    st.lists(st.sampled_from(["tanh", "sin", "hardtanh", "erf", "sign", "linear"]), min_size=1, max_size=6), TAME_VAR
)
@examples(40)
def test_odd_activations_on_centred_data_never_cause_bias(names: list[str], weight_var: float) -> None:
    source = " > ".join(f"dense(weight_var={weight_var!r}) > {n}" for n in names) + " > dense"
    assert np.all(fg.predict(source).gamma == 0.0)


@given(st.floats(0.1, 10.0), st.floats(0.0, 2.0))
@examples(30)
def test_bias_grows_with_the_bias_of_the_inputs(weight_var: float, bias_var: float) -> None:
    """c' increases with c for every activation with non-negative correlations."""
    gammas = [
        fg.predict(fg.mlp(3, weight_var=weight_var, bias_var=bias_var), inputs=fg.Inputs(m, 1.0 - m)).gamma[-1]
        for m in (0.0, 0.2, 0.5, 0.9)
    ]
    assert np.all(np.diff(gammas) > 0)


@pytest.mark.parametrize("bias_var", ["1e44", "1e60", "1e104"])
def test_a_bias_far_above_the_activation_s_scale(bias_var: str) -> None:
    """erf has a closed form; a tiny shift sends it through the quadrature, which was off by up to 1e10 and took 40 s.

    tanh has none, and γ grows like √q there: the slope counts where it is not 0, on a share 1/√q of the nodes.
    """

    def gamma(body: str, at: str = bias_var) -> float:
        return float(fg.predict(f"dense(bias_var={at}) > {body} > dense").gamma[-1])

    assert gamma("shift(1e-9) > erf") == pytest.approx(gamma("erf"), rel=1e-9)
    if float(bias_var) < 1e90:  # tanh itself ends at q = 1e100
        assert gamma("tanh") == pytest.approx(gamma("tanh", "1e30") * math.sqrt(float(bias_var) / 1e30), rel=1e-9)


def test_the_page_shows_four_digits_and_the_network_keeps_all():
    net = Network.parse("dense(weight_var=1/3) > relu > dense(weight_var=1/3)")
    p = fg.predict(net)
    assert "dense(weight_var=0.3333)" in str(p)
    assert "33333" not in str(p)
    assert Network.parse(str(p.network)) == net
