"""Tuning: golden numbers of theory.md §10, every activation, refusals, finite networks, the source that users paste."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import firstguess as fg
from firstguess.ensemble.member_module import build
from firstguess.network.activations import registry
from firstguess.theory.tune import _ends, stand

KAIMING = "dense(weight_var=2)"


@pytest.mark.parametrize(
    ("depth", "gamma", "slope", "beta"),
    [(20, 0.5, 0.679312, 0.26527), (20, 1.0, 0.583846, 0.35939), (100, 0.5, 0.843797, 0.11938)],
)
def test_golden_slopes_and_branch_scales(depth: int, gamma: float, slope: float, beta: float) -> None:
    plain = fg.tune(fg.mlp(depth), gamma=gamma)
    assert plain.knob == "slope"
    assert plain.settings["slope"] == pytest.approx(slope, abs=1e-6)
    assert plain.settings["weight_var"] == pytest.approx(2 / (1 + slope**2), abs=1e-5)
    residual = fg.tune(fg.residual_mlp(depth), gamma=gamma)
    assert residual.knob == "branch_scale"
    assert residual.settings["branch_scale"] == pytest.approx(beta, abs=1e-5)
    for tuned in (plain, residual):
        assert (tuned.gamma, tuned.gradients) == (pytest.approx(gamma, rel=1e-6), pytest.approx(1.0, rel=1e-9))
        assert tuned.nonlinearity == pytest.approx(1.0 + gamma, rel=1e-6)  # (31)


@pytest.mark.parametrize(("gamma", "weight_var", "bias_var"), [(0.5, 1.314139, 0.00428373), (1.0, 1.460095, 0.0125491)])
def test_golden_variances_of_tanh(gamma: float, weight_var: float, bias_var: float) -> None:
    s = fg.tune(fg.mlp(20, "tanh"), gamma=gamma)
    assert s.knob == "variances"
    assert s.settings["weight_var"] == pytest.approx(weight_var, abs=1e-6)
    assert s.settings["bias_var"] == pytest.approx(bias_var, abs=1e-7)
    if gamma == 0.5:
        assert s.settings["first_weight_var"] == pytest.approx(0.191221, abs=1e-6)


def test_golden_shift_and_scale_of_gelu() -> None:
    s = fg.tune(fg.mlp(20, "gelu"), gamma=0.5)
    found = [s.settings[name] for name in ("scale_in", "shift_in", "shift_out", "scale_out")]
    assert found == pytest.approx([0.24218, 0.32326, -0.19455, 5.47193], abs=1e-5)
    assert s.nonlinearity == pytest.approx(1.5, rel=1e-6)


@pytest.mark.parametrize("gamma", [0.1, 0.5, 1.0, 5.0])
def test_very_deep_leaky_networks_follow_the_integral(gamma: float) -> None:
    """κL → H(c), theory.md (33); the rest is of order 1/L."""
    known = {0.1: 0.097936, 0.5: 0.455087, 1.0: 0.844550, 5.0: 3.007794}[gamma]
    a = fg.tune(fg.mlp(1000), gamma=gamma).settings["slope"]
    assert 1000 * (1 - a) ** 2 / (math.pi * (1 + a * a)) == pytest.approx(known, rel=5e-3)


BENDING = [name for name in registry.names() if name not in ("linear", "sign", "square", "relu6")]


@pytest.mark.parametrize("name", BENDING)
def test_every_activation_can_be_tuned(name: str) -> None:
    """Its text alone is predicted to meet the target, at constant gradients and mean squares; (31) holds."""
    s = fg.tune(fg.mlp(12, name), gamma=0.3)
    p = fg.predict(str(s.network))
    assert p.gamma[-1] == pytest.approx(0.3, rel=1e-6)
    assert np.prod(p.gradient_growth) == pytest.approx(1.0, rel=1e-6)
    assert np.ptp(p.log_q) < 1e-5
    assert s.nonlinearity == pytest.approx(1.3, rel=1e-5)
    assert s.reachable[0] < 0.3 < s.reachable[1]


@pytest.mark.parametrize("name", ["linear", "sign", "square", "relu6"])
def test_activations_without_a_knob_are_refused_by_name(name: str) -> None:
    with pytest.raises(fg.NotCovered, match=name):
        fg.tune(fg.mlp(5, name), gamma=0.5)


@pytest.mark.parametrize("gamma", [0.01, 100.0])
@pytest.mark.parametrize("depth", [100, 1000])
def test_far_targets_of_deep_networks(depth: int, gamma: float) -> None:
    for net in (fg.mlp(depth), fg.residual_mlp(depth)):
        assert fg.tune(net, gamma=gamma).gamma == pytest.approx(gamma, rel=1e-6)


def test_other_gradients() -> None:
    s = fg.tune(fg.mlp(10), gamma=0.5, gradients=4.0)
    assert s.gradients == pytest.approx(4.0, rel=1e-9)
    assert s.settings["weight_var"] == pytest.approx(4.0**0.1 * 2 / (1 + s.settings["slope"] ** 2), rel=1e-9)
    tanh = fg.tune(fg.mlp(10, "tanh"), gamma=0.5, gradients=0.8)
    assert tanh.gradients == pytest.approx(0.8, rel=1e-6)
    assert tanh.nonlinearity == pytest.approx(1.5 * 0.8, rel=1e-5)  # (31)


def test_a_norm_before_keeps_gradients_itself() -> None:
    s = fg.tune(fg.mlp(20, norm="layernorm"), gamma=0.5)
    assert s.settings["slope"] == pytest.approx(0.679312, abs=1e-6)  # scale-free: the norm changes nothing
    after = fg.mlp(20, norm="layernorm", placement="after")
    with pytest.raises(fg.InvalidInput, match=r"from 0 to 0"):
        fg.tune(after, gamma=0.5)


def test_data_bring_a_bias_of_their_own() -> None:
    given = fg.Inputs(mean_square=0.2, variance=1.0)
    s = fg.tune(fg.mlp(10), gamma=0.5, inputs=given)
    assert fg.predict(s.network, inputs=given).gamma[-1] == pytest.approx(0.5, rel=1e-6)
    with pytest.raises(fg.InvalidInput, match=r"from 0\.2 to .*centre them"):
        fg.tune(fg.mlp(10), gamma=0.1, inputs=given)
    x = np.random.default_rng(0).standard_normal((400, 30)) + 0.5
    tuned = fg.tune(fg.mlp(10), gamma=0.6, data=x)
    assert fg.predict(tuned.network, inputs=tuned.inputs).gamma[-1] == pytest.approx(0.6, rel=1e-6)
    assert isinstance(tuned.inputs, fg.Inputs)
    assert tuned.inputs.mean_square == pytest.approx(0.25, abs=0.05)


def test_refusals_name_the_nearest_possible() -> None:
    with pytest.raises(fg.InvalidInput, match=r"Try: gamma=9\.3"):
        fg.tune(fg.mlp(5), gamma=1000.0)
    for gamma in (0.0, -1.0, math.inf):
        with pytest.raises(fg.InvalidInput, match="above 0"):
            fg.tune(fg.mlp(5), gamma=gamma)
    with pytest.raises(fg.InvalidInput, match=r"fg\.read"):
        fg.tune(torch.nn.Linear(3, 2), gamma=0.5)  # type: ignore[arg-type]
    for gradients in (0.0, -1.0, math.nan):
        with pytest.raises(fg.InvalidInput, match=r"gradients above 0.*Try: gradients=1\.0"):
            fg.tune(fg.mlp(5), gamma=0.5, gradients=gradients)
    with pytest.raises(fg.NotCovered, match="one activation"):
        fg.tune("dense > relu > dense > tanh > dense", gamma=0.5)
    with pytest.raises(fg.NotCovered, match=r"factor 1.*2\.8.*gradients=None"):  # BatchNorm before: g = (1 + γ)^(L−1)
        fg.tune(fg.mlp(5, norm="batchnorm"), gamma=0.3)
    with pytest.raises(fg.NotCovered, match="residual blocks"):
        fg.tune(fg.mlp(5), gamma=0.5, knob="branch_scale")
    with pytest.raises(fg.InvalidInput, match=r"from 9\.78"):  # below, Q'(1) > 1: theory.md (35)
        fg.tune(fg.mlp(20, "gelu"), gamma=0.5, knob="variances")
    with pytest.raises(fg.InvalidInput, match=r"fg\.Tokens"):
        fg.tune(fg.transformer(style="gpt2", depth=1), gamma=0.5)


def test_the_nonlinearity_is_that_of_gradients_of_networks() -> None:
    """P = E‖∇f‖²·Var x/Var f over 40 drawn networks of width 400: in standard errors (5: 6e-7), and 5 % for width."""
    net = fg.mlp(3, classes=10)
    said = stand(fg.predict(net)).nonlinearity
    x = np.random.default_rng(1).standard_normal((200, 100)).astype(np.float32)
    ratios: list[float] = []
    for member in range(40):
        model = build(net, x, width=400, seed=3, member=member)
        points = torch.from_numpy(x).requires_grad_()
        out = model(points)
        (grad,) = torch.autograd.grad(out[:, 0].sum(), points)
        ratios.append(float(grad.square().sum(1).mean() / out.detach().var(0, unbiased=True).mean()))
    mean, error = np.mean(ratios), np.std(ratios, ddof=1) / math.sqrt(40)
    assert abs(mean - said) < 5 * error + 0.05 * said


FINITE = [fg.mlp(20), fg.residual_mlp(20), fg.mlp(20, "tanh"), fg.mlp(20, "gelu"), fg.residual_mlp(20, "gelu")]


@pytest.mark.slow
@pytest.mark.parametrize("net", FINITE, ids=str)
def test_finite_networks_have_it(net: fg.Network) -> None:
    """Width 500, 30 initializations: γ and the gradients' factor per layer, in standard errors (5: 6e-7).

    A term of first order in depth/width = 0.04 is left to either: 4 % of γ, 0.2 % of the factor per layer.
    """
    s = fg.tune(net, gamma=0.5)
    x = fg.data.blob(400, 500)
    m = fg.measure(fg.Network(s.network.layers, 100), x, inits=30, width=500, seed=5)
    out = m.layers[-1]
    assert abs(out.gamma - 0.5) < 5 * out.gamma_se + 0.04 * 0.5
    g = fg.measure_gradients(s.network, x, inits=30, width=500, seed=5).growth
    error = (g.high - g.low) / (2 * 1.96)
    assert abs(g.value - 1.0) < 5 * error + 0.04 / 20


def _built(code: str, inputs: int, classes: int) -> torch.nn.Module:
    space: dict[str, Any] = {}
    exec(code, space)
    return space["build"](inputs, classes)


SOURCES = [
    fg.mlp(4),
    fg.mlp(4, norm="layernorm"),
    fg.residual_mlp(4),
    fg.mlp(4, "tanh"),
    fg.mlp(3, "gelu"),
    fg.mlp(3, norm="batchnorm", placement="before"),
]


@pytest.mark.parametrize("net", SOURCES, ids=str)
def test_the_source_is_the_network(net: fg.Network) -> None:
    """Read back by `fg.read` it is the tuned description; run, its weights have the variances that are said."""
    s = fg.tune(net, gamma=0.2, gradients=None)
    torch.manual_seed(0)
    model = _built(s.code(width=300), 200, 3)
    assert model(torch.randn(5, 200)).shape == (5, 3)
    read = fg.read(model, torch.randn(64, 200)).network
    assert read is not None
    said, again = fg.predict(s.network), fg.predict(read)
    # variances are measured on drawn weights, 300² and more of them: to 3 %; the last layer has 900, to 25 %
    assert again.gamma[-1] == pytest.approx(said.gamma[-1], rel=0.1)
    assert len(again.gamma) == len(said.gamma)


def test_the_text_says_what_it_costs() -> None:
    s = fg.tune(fg.mlp(20), gamma=0.5)
    text = str(s)
    assert "γ 18.39 → 0.5" in text
    assert "not better" in text
    assert s.to_dict()["settings"]["slope"] == s.settings["slope"]
    with pytest.raises(fg.InvalidInput, match="pytorch"):
        s.code("jax")


IDS = np.random.default_rng(0).integers(2, 50, (40, 16))


@pytest.mark.parametrize("style", ["gpt2", "bert"])
def test_transformers_by_what_sequences_share(style: Any) -> None:
    """Positions and types alone are scaled; the closed form on these very frequencies of tokens has the γ asked for."""
    net = fg.transformer(style, depth=2, width=32, heads=2, classes=3)
    s = fg.tune(net, gamma=1.5, data=IDS)
    tokens = fg.Tokens(length=16, frequencies=np.bincount(IDS.ravel()))
    assert s.knob == "shared_scale"
    assert fg.predict(s.network, inputs=tokens).gamma[-1] == pytest.approx(1.5, rel=1e-6)
    factor = s.settings["shared_scale"]
    assert f"positions({0.02 * factor:.6f}"[:16] in str(s.network)
    assert str(s.network).split("positions")[1].split(">", 1)[1] == str(net).split("positions")[1].split(">", 1)[1]
    assert math.isnan(s.nonlinearity)
    low, high = s.reachable
    with pytest.raises(fg.InvalidInput, match=rf"from {low:.3g} to .*fg\.repair"):
        fg.tune(net, gamma=low / 2, inputs=tokens)
    assert high > 1e3


def test_transformers_that_cannot_be_tuned() -> None:
    ids, shared = IDS.copy(), fg.Tokens(length=16)
    with pytest.raises(fg.NotCovered, match=r"share none.*fg\.repair"):
        fg.tune(fg.transformer("llama", depth=1, width=32, heads=2), gamma=0.5, data=ids)  # rotary: nothing is added
    net = fg.transformer("gpt2", depth=1, width=32, heads=2)
    with pytest.raises(fg.NotCovered, match="gradients=None"):
        fg.tune(net, gamma=0.5, gradients=2.0, inputs=shared)
    with pytest.raises(fg.NotCovered, match="shared_scale"):
        fg.tune(net, gamma=0.5, knob="slope", inputs=shared)
    with pytest.raises(fg.InvalidInput, match="token ids"):
        fg.tune(net, gamma=0.5, data=np.zeros((3, 4)))
    ids[:, 0] = 1  # a BOS is what sequences share too
    assert fg.tune(net, gamma=0.5, data=ids).inputs.shared == 1  # type: ignore[union-attr]


def test_the_end_of_a_parameter_is_drawn_in_to_where_gamma_is_known() -> None:
    """γ is known up to 5 of (0, 10): the end found is below 5, and within a tenth of it."""
    family = SimpleNamespace(name="mine", span=(0.0, 10.0))
    low, high = _ends(family, lambda x: 1.0 if x <= 5.0 else math.inf)
    assert low == 0.0
    assert 4.5 <= high <= 5.0
