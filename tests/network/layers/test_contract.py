"""What every layer promises: its closed form is what drawn nodes do, errors name its place, its text reads back."""

from __future__ import annotations

import math

import numpy as np
import pytest
from simulated import agrees, forward, moments, state

from firstguess.base.errors import FirstguessError, NotCovered
from firstguess.network.activations import registry
from firstguess.network.grammar import parse_layers
from firstguess.network.layer import Mix
from firstguess.network.layers import KINDS, Layer, sequence_text, steps, text
from firstguess.network.signal import Gaussian, Largest, Signal, Unknown

# One text for every kind of layer, more where a parameter changes the formula.
EVERY = [
    "dense(weight_var=1.7, bias_var=0.3)",
    "conv(weight_var=1.7, bias_var=0.3, kernel=1)",
    "dense(weight_var=1.7, bias_var=0.3, init=student(3))",
    "conv(kernel=1, init=rademacher)",
    "relu",
    "tanh",
    "gelu",
    "abs",
    "softplus",
    "batchnorm",
    "batchcenter",
    "layernorm",
    "rmsnorm",
    "groupnorm(4)",
    "groupnorm(each=2)",
    "groupnorm(each=4)",
    "groupnorm(each=3) > relu",
    "shift(0.4) > groupnorm(each=6) > relu",
    "maxpool(1)",
    "maxpool(2)",
    "maxpool(9)",
    "avgpool(4)",
    "scale(-0.7)",
    "shift(0.4)",
    "gated(silu)",
    "shift(0.4) > gated(relu)",
    "layernorm(eps=0.3)",
    "relu > rmsnorm(eps=0.3)",
    "residual(scale=0.5)[relu > dense(weight_var=2, bias_var=0.1)]",
    "residual[layernorm > tanh > dense(weight_var=2)]",
    "relu > maxpool(4)",
    "tanh > maxpool(3)",
    "relu > avgpool(4)",
    "relu > layernorm",
    "relu > rmsnorm",
    "relu > groupnorm(2)",
    "tanh > batchnorm",
    "relu > batchcenter",
    "shift(0.4) > relu",
    "shift(-0.3) > tanh",
    "shift(0.4) > layernorm",
    "relu > shift(-0.5) > scale(2)",
]
# What has no closed form, in words of its refusal.
REFUSED = {"instancenorm": "how the positions of an image are correlated"}
STATES = [(0.0, 1.0), (0.4, 0.6), (1.9, 0.1)]


def only(source: str) -> tuple[Layer, ...]:
    return parse_layers(source)


def after(layers: tuple[Layer, ...], signal: Signal) -> Signal:
    *_, (_, _, last) = steps(layers, signal)
    return last


def test_every_kind_is_under_contract() -> None:
    kinds = {layer.kind for source in (*EVERY, *REFUSED) for layer in only(source)}
    tokens = {kind for kind, cls in KINDS.items() if Mix.TOKENS in cls.mixes}  # test_contract_tokens.py
    assert kinds == {*KINDS, "residual", "activation"} - tokens


@pytest.mark.parametrize("source", REFUSED)
def test_what_has_no_closed_form_says_why(source: str) -> None:
    with pytest.raises(NotCovered, match=REFUSED[source]) as caught:
        after(only(source), Signal(0.0, 0.4, 0.6, distribution=Gaussian()))
    assert f"layer 1 ({source})" in str(caught.value)
    assert "fg.predict(net, data=x)" in caught.value.hint
    assert parse_layers(sequence_text(only(source))) == only(source)


@pytest.mark.parametrize("source", EVERY)
@pytest.mark.parametrize(("between", "spread"), STATES)
def test_closed_form_is_what_drawn_nodes_do(source: str, between: float, spread: float) -> None:
    """Nodes drawn from the state itself. 240 replicates, 5.5 standard errors: false alarm < 2e-7 a number."""
    layers = only(source)
    want = after(layers, Signal(0.0, between, spread, distribution=Gaussian()))
    rng = np.random.default_rng(20240501)
    # BatchNorm's statistics are over the data: their own error is 1/points, below a standard error here
    weights = any(layer.kind in ("dense", "conv", "residual") for layer in layers)
    centred = "batchnorm" in source or "batchcenter" in source
    points, nodes = (400, 36) if centred else (4, 252 if weights else 1440)
    got = np.array(
        [moments(forward(layers, state(between, spread, 0.0, points, nodes, rng), rng, nodes)) for _ in range(240)]
    )
    scale = math.exp(want.log_scale)
    if want.mean != 0.0 or not (
        "norm" in source or centred
    ):  # a norm's mean over nodes is 0 to rounding, with no error to compare
        agrees(got[:, 0], want.mean * math.sqrt(scale), what="mean")
    if centred:
        assert want.center == 0.0
        assert float(np.abs(got[:, 1]).max()) <= 1.01 / points * float(
            got[:, 2].max()
        )  # n(n−1) pairs of a sum that is 0: −1/(n−1)
    else:
        agrees(got[:, 1], want.center * scale, what="center")
    last = source.rsplit("> ", maxsplit=1)[-1]
    if last.split("(")[0] in ("layernorm", "rmsnorm", "groupnorm", "batchnorm") and "eps" not in last:
        assert want.total * scale == pytest.approx(1.0, abs=1e-15)
    else:
        agrees(got[:, 2], want.total * scale, what="total")


@pytest.mark.parametrize("source", EVERY)
def test_scale_of_the_units_does_not_matter(source: str) -> None:
    """The same signal written in other units gives the same signal."""
    plain = after(only(source), Signal(0.0, 0.4, 0.6, distribution=Gaussian()))
    other = after(only(source), Signal(0.0, 0.4e40, 0.6e40, -40 * math.log(10), distribution=Gaussian()))
    assert other.log_q == pytest.approx(plain.log_q, abs=1e-12)
    assert other.gamma == pytest.approx(plain.gamma, rel=1e-12)
    assert other.mean * math.exp(0.5 * other.log_scale) == pytest.approx(
        plain.mean * math.exp(0.5 * plain.log_scale), rel=1e-12, abs=1e-13
    )


# Every two of layer, scale and correlation meet; all three together are slow.
EXTREMES = [
    pytest.param(source, log_q, one_minus_c, marks=() if (i + j + k) % 3 == 0 else pytest.mark.slow)
    for i, source in enumerate(EVERY)
    for j, log_q in enumerate([-3000.0, -100.0, 100.0, 149.0, 500.0])
    for k, one_minus_c in enumerate([1.0, 1e-12, 1e-60])
]


@pytest.mark.parametrize(("source", "log_q", "one_minus_c"), EXTREMES)
def test_no_overflow_at_any_scale(source: str, log_q: float, one_minus_c: float) -> None:
    """Finite moments and a gradient that is a number, or an error of ours; never another exception or NaN."""
    signal = Signal(0.0, 1.0 - one_minus_c, one_minus_c, log_q, Gaussian())
    try:
        for layer, before, out in steps(only(source), signal):
            assert math.isfinite(out.mean)
            assert 0.0 <= out.between < math.inf
            assert 0.0 <= out.spread < math.inf
            assert not math.isnan(out.gamma)
            factor = layer.gradient(before)
            assert factor is None or factor >= 0.0
    except FirstguessError as error:
        assert error.hint  # noqa: PT017


@pytest.mark.parametrize("source", EVERY)
def test_text_reads_back(source: str) -> None:
    assert parse_layers(sequence_text(only(source))) == only(source)


@pytest.mark.parametrize("source", EVERY)
def test_layers_are_values(source: str) -> None:
    a, b = only(source), only(source)
    assert a == b
    assert hash(a) == hash(b)
    assert all(isinstance(layer, Layer) for layer in a)
    assert all(isinstance(line, str) for layer in a for line in layer.assumptions())


@pytest.mark.parametrize("name", [n for n in registry.names() if n != "mine"])
def test_an_activation_on_an_activation_names_its_layer(name: str) -> None:
    first = next(iter(only(f"{name}")))
    with pytest.raises(FirstguessError) as caught:
        after(only(f"dense > {name} > {name}"), Signal(0.0, 0.0, 1.0, distribution=Gaussian()))
    assert f"layer 3 ({text(first)})" in str(caught.value)
    # who writes linear twice means layers with weights
    assert ("a layer with weights is dense" if name == "linear" else "ensemble reading") in caught.value.hint


@pytest.mark.parametrize("norm", ["layernorm", "rmsnorm", "groupnorm(2)", "batchnorm", "avgpool(2)", "maxpool(2)"])
def test_what_follows_an_activation_is_no_longer_gaussian(norm: str) -> None:
    out = after(only(f"relu > {norm}"), Signal(0.0, 0.4, 0.6, distribution=Gaussian()))
    assert isinstance(out.distribution, (Unknown, Largest))


@pytest.mark.parametrize("norm", ["layernorm", "rmsnorm", "groupnorm(2)", "batchnorm", "avgpool(2)", "scale(3)"])
def test_a_gaussian_stays_one(norm: str) -> None:
    assert isinstance(after(only(norm), Signal(0.0, 0.4, 0.6, distribution=Gaussian())).distribution, Gaussian)


def test_a_batch_of_one_draw_is_what_moments_measures() -> None:
    x = state(0.4, 0.6, 0.2, 3, 200_000, np.random.default_rng(7))
    mean, center, total = moments(x)
    pair = np.mean([np.mean(x[i] * x[j]) for i in range(3) for j in range(3) if i != j])
    assert center == pytest.approx(float(pair), rel=1e-12)
    assert (mean, total) == (float(x.mean()), pytest.approx(float(np.mean(x * x))))
