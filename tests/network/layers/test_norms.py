"""LayerNorm, RMSNorm and GroupNorm, before and after the activation, in networks with real weights."""

from __future__ import annotations

import numpy as np
import pytest
from simulated import agrees, forward, moments

import firstguess as fg
from firstguess.network.grammar import parse_layers

NETWORKS = [
    "3 x [dense(weight_var=2, bias_var=0.1) > {norm} > {phi}] > dense(weight_var=2, bias_var=0.1)",
    "3 x [dense(weight_var=2, bias_var=0.1) > {phi} > {norm}] > dense(weight_var=2, bias_var=0.1)",
]


@pytest.mark.parametrize("template", NETWORKS, ids=["before", "after"])
@pytest.mark.parametrize("norm", ["layernorm", "rmsnorm", "groupnorm(2)"])
@pytest.mark.parametrize("phi", ["relu", "tanh", pytest.param("gelu", marks=pytest.mark.slow)])
def test_networks_of_real_weights(template: str, norm: str, phi: str) -> None:
    """200 networks of width 240; 5.5 standard errors. The bias of finite width, about 1/width, is below them."""
    source = template.format(norm=norm, phi=phi)
    want = fg.predict(source)
    rng = np.random.default_rng(31)
    layers = parse_layers(source)
    got = np.array([moments(forward(layers, rng.standard_normal((5, 240)), rng, 240)) for _ in range(200)])
    agrees(got[:, 1], float(want.correlation[-1] * want.q[-1]), what="center")
    agrees(got[:, 2], float(want.q[-1]), what="total")


def test_the_error_falls_with_width() -> None:
    """LayerNorm after GELU, biases: what is left at width 64 is a quarter of what is left at width 16."""
    source = "2 x [dense(weight_var=2, bias_var=0.2) > gelu > layernorm] > dense(weight_var=2, bias_var=0.2)"
    want = fg.predict(source)
    center = float(want.correlation[-1] * want.q[-1])
    layers = parse_layers(source)
    gaps, errors = [], []
    for width in (16, 64):
        rng = np.random.default_rng(41)
        got = [moments(forward(layers, rng.standard_normal((4, 64)), rng, width))[1] for _ in range(3000)]
        gaps.append(np.mean(got) - center)
        errors.append(np.std(got, ddof=1) / np.sqrt(len(got)))
    # a quarter, within 5.5 standard errors of both
    assert abs(gaps[1] - gaps[0] / 4) <= 5.5 * np.hypot(errors[0] / 4, errors[1])


@pytest.mark.parametrize("norm", ["layernorm", "rmsnorm", "groupnorm(4)"])
def test_gradients_are_divided_by_the_scale(norm: str) -> None:
    """One layer of [dense, norm, tanh]: σw²·E φ'²/q on a Gaussian of total q."""
    p = fg.predict(f"2 x [dense(weight_var=3, bias_var=0.5) > {norm} > tanh] > dense(weight_var=3, bias_var=0.5)")
    slope = fg.activation("tanh").mean_square_slope(1.0)
    assert p.gradient_growth == pytest.approx(3.0 * slope / p.q[:-1], rel=1e-12)


def test_rmsnorm_does_not_centre() -> None:
    after = fg.predict("5 x [dense(weight_var=2) > relu > rmsnorm] > dense(weight_var=2)")
    none = fg.predict("5 x [dense(weight_var=2) > relu] > dense(weight_var=2)")
    assert after.gamma == pytest.approx(none.gamma, rel=1e-12)


@pytest.mark.parametrize("norm", ["layernorm", "rmsnorm", "groupnorm(4)"])
def test_a_signal_of_zero(norm: str) -> None:
    with pytest.raises(fg.NotCovered, match=f"layer 3 \\({norm[:5]}"):
        fg.predict(f"dense > scale(0) > {norm} > dense")


def test_bad_groups() -> None:
    for text in ("groupnorm(0)", "groupnorm(1.5)", "groupnorm(-1)", "groupnorm(relu)", "layernorm(3)"):
        with pytest.raises(fg.ParseError):
            fg.Network.parse(f"dense > {text} > dense")
