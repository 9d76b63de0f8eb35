"""Variances from initializers: rules are recognised, others measured, and the description predicts what is measured."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

import firstguess as fg
from firstguess.data import blob
from firstguess.modules.read.read import read

pytestmark = pytest.mark.usefixtures("one_thread")


def model(fan_in: int = 40, width: int = 60, *, bias: bool = True) -> nn.Sequential:
    return nn.Sequential(nn.Linear(fan_in, width, bias=bias), nn.ReLU(), nn.Linear(width, 3, bias=bias))


def rule(draw, bias=nn.init.zeros_):
    def init(module: nn.Module) -> None:
        if isinstance(module, (nn.Linear, nn.Conv2d)):
            draw(module.weight)
            if module.bias is not None:
                bias(module.bias)

    return init


RULES = {
    "PyTorch's default": (None, [1 / 3, 1 / 3], [1 / 120, 1 / 180]),
    "Kaiming normal": (rule(lambda w: nn.init.kaiming_normal_(w, nonlinearity="relu")), [2, 2], [0, 0]),
    "Kaiming uniform": (rule(lambda w: nn.init.kaiming_uniform_(w, nonlinearity="relu")), [2, 2], [0, 0]),
    "Xavier normal": (rule(nn.init.xavier_normal_), [80 / 100, 120 / 63], [0, 0]),
    "Xavier uniform": (rule(nn.init.xavier_uniform_), [80 / 100, 120 / 63], [0, 0]),
    "Kaiming by fan-out normal": (
        rule(lambda w: nn.init.kaiming_normal_(w, mode="fan_out", nonlinearity="relu")), [80 / 60, 40], [0, 0]
    ),
    "LeCun normal": (rule(lambda w: nn.init.normal_(w, 0, w.shape[1] ** -0.5)), [1, 1], [0, 0]),
    "normal, standard deviation 0.02": (rule(lambda w: nn.init.normal_(w, 0, 0.02)), [0.016, 0.024], [0, 0]),
    "orthogonal": (rule(nn.init.orthogonal_), [40 / 60, 1], [0, 0]),
    "orthogonal with ReLU's gain": (rule(lambda w: nn.init.orthogonal_(w, 2**0.5)), [80 / 60, 2], [0, 0]),
}  # fmt: skip


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("seed", range(3))
def test_rules_are_recognised_exactly(name, seed):
    """A true rule is missed with probability < 1e-6 a layer (5 standard errors, or the bound's 1e-6)."""
    init, weights, biases = RULES[name]
    found = read(model(), init=init, seed=seed)
    dense = [layer for layer in found.network.layers if layer.kind == "dense"]
    assert [layer.weight_var for layer in dense] == pytest.approx(weights, rel=1e-12)
    assert [layer.bias_var for layer in dense] == pytest.approx(biases, rel=1e-12)
    assert [p.variances.rule for p in found.parts if p.variances] == [name, name]
    assert {layer.init for layer in dense} == {"orthogonal" if "orthogonal" in name else "normal"}


def test_convolutions_count_their_kernel():
    images = nn.Sequential(
        nn.Conv2d(3, 20, 5), nn.ReLU(), nn.Conv2d(20, 8, 3, bias=False), nn.Flatten(), nn.Linear(8, 2)
    )
    found = read(images)
    conv = found.network.layers[0], found.network.layers[2]
    assert [(c.weight_var, c.bias_var) for c in conv] == [(1 / 3, 1 / 225), (1 / 3, 0.0)]


def test_other_sizes_are_measured_and_say_so():
    """σw² = 3.3 and σb² = 0.07 fit no rule: estimates lie within 5 standard errors of the truth (6e-7 each)."""
    init = rule(
        lambda w: nn.init.normal_(w, 0, math.sqrt(3.3 / w.shape[1])), lambda b: nn.init.normal_(b, 0, 0.07**0.5)
    )
    found = read(model(), init=init)
    for part in [p for p in found.parts if p.variances]:
        v = part.variances
        assert v.rule == "measured"
        assert 0 < v.weight_se < 0.02 * 3.3
        assert abs(v.weight_var - 3.3) < 5 * v.weight_se
        assert abs(v.bias_var - 0.07) < 5 * v.bias_se
    assert found.network.layers[0].weight_var == found.parts[0].variances.weight_var


def test_a_pair_is_exact():
    found = read(model(), init=(1.7, 0.3))
    assert [(x.weight_var, x.bias_var) for x in found.network.layers if x.kind == "dense"] == [(1.7, 0.3)] * 2


def test_constant_biases_are_a_shift():
    found = read(model(), init=rule(nn.init.xavier_normal_, lambda b: nn.init.constant_(b, 0.25)))
    assert [x.kind for x in found.network.layers] == ["dense", "shift", "activation", "dense"]
    assert found.network.layers[1].by == 0.25
    assert any("same for all classes" in note for note in found.notes)


def test_weights_with_a_mean_are_refused():
    found = read(model(), init=rule(lambda w: nn.init.uniform_(w, 0, 0.1)))
    assert [u.path for u in found.unread] == ["0", "2"]


def test_default_weights_with_other_biases_are_not_called_the_default():
    def made():
        net = model()
        nn.init.zeros_(net[0].bias)
        return net

    found = read(made)
    assert found.network.layers[0].bias_var == 0.0
    assert found.parts[0].variances.rule == "PyTorch's default for weights, not for biases"
    assert not any("ordered" in note for note in found.notes)


def test_an_instance_of_another_size_is_read_at_its_own():
    """30 times PyTorch's default: U(−30/√40, 30/√40), whose end is known to 5 of 2400 parts (e⁻¹⁴ to miss that)."""
    scaled = model()
    with torch.no_grad():
        scaled[0].weight.mul_(30)
    found = read(scaled)
    assert found.network.layers[0].weight_var == pytest.approx(300, rel=14 / 2400)
    assert found.parts[0].variances.rule == "measured"
    assert found.network.layers[2].weight_var == 1 / 3
    assert any("other scale" in note or "re-initialized at the size" in note for note in found.notes)


@pytest.mark.parametrize("name", [name for name in RULES if name != "PyTorch's default"])
def test_an_instance_is_read_like_its_factory(name):
    """What `init` does to a constructed model, as a constructor would: variances and the name of the rule. The 180
    normal weights of the head may be too few to tell rules apart."""
    init, weights, biases = RULES[name]

    def made():
        net = model()
        net.apply(init)
        return net

    torch.manual_seed(0)
    one, two = read(made()), read(made)
    dense = [[x for x in found.network.layers if x.kind == "dense"] for found in (one, two)]
    assert [x.bias_var for x in dense[0]] == biases
    assert dense[0][0].weight_var == pytest.approx(weights[0], rel=1e-12)
    assert dense[0][0].init == dense[1][0].init
    assert [p.variances.rule for p in two.parts if p.variances] == [name, name]
    # Six standard errors of 180 normal entries (2e-9); orthogonal ones have none.
    assert dense[0][1].weight_var == pytest.approx(weights[1], rel=6 * math.sqrt(2 / 180))


def test_zero_biases_of_an_instance_are_zero():
    net = model()
    nn.init.zeros_(net[0].bias)
    found = read(net)
    assert [x.bias_var for x in found.network.layers if x.kind == "dense"] == [0.0, 1 / 180]
    assert found.parts[0].variances.rule == "PyTorch's default for weights, not for biases"
    assert not any("trained" in note for note in found.notes)
    assert any("trained" in note for note in read(model()).notes)


WIDTH, POINTS, INITS = 300, 200, 400


@pytest.mark.parametrize("make", ["default", "kaiming", "layernorm"])
def test_the_description_predicts_what_the_model_does(make):
    """γ of all layers, `fg.predict` of what was read against `fg.measure` of the model, in standard errors.

    False alarms: |z| > 5.3 has 1.2e-7, times 4 layers. Finite width N: center and spread of a layer are means over N
    nodes of the layer before, whose relative variance is at most 5/N for ReLU (Var φ²/E²[φ²] = 5), and so is the
    relative second-order shift of their averages: 5 l/N of γ after l hidden layers is allowed, next to the (1 + γ)/n of
    `fg.compare` for n points (which also holds what is random in the data: their own mean has γ = ±√(2/d)/n).
    """
    blocks = []
    for fan_in in (100, WIDTH, WIDTH):
        blocks += [nn.Linear(fan_in, WIDTH), *([nn.LayerNorm(WIDTH)] if make == "layernorm" else []), nn.ReLU()]
    net = nn.Sequential(*blocks, nn.Linear(WIDTH, 2))
    init = None if make == "default" else "kaiming_normal"
    data = blob(POINTS, 100, seed=7)
    found = read(net, data, init=init)
    predicted = fg.predict(found.network)
    measured = fg.measure(net, data, inits=INITS, init=init, batch_size=POINTS, probe="weights", seed=3)
    assert measured.gamma.shape == predicted.gamma.shape == (4,)
    layer = np.arange(4)
    room = (1 + predicted.gamma) / POINTS + 5 * layer * predicted.gamma / WIDTH
    assert np.all(np.abs(measured.gamma - predicted.gamma) <= 5.3 * measured.gamma_se + room)
    # the test can fail: Kaiming's γ at the last layer is not the default's
    other = fg.predict(read(net, init="kaiming_normal" if make == "default" else None).network)
    if make != "layernorm":
        assert abs(measured.gamma[-1] - other.gamma[-1]) > 5.3 * measured.gamma_se[-1] + room[-1]
