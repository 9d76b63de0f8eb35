"""`read`: from modules to descriptions and back, what cannot be read by path, and a model that comes back untouched."""

from __future__ import annotations

import json
import math
import random

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from firstguess.base.errors import InvalidInput
from firstguess.ensemble.member_module import build
from firstguess.modules.read.read import read
from firstguess.modules.read.result import Structure
from firstguess.network.builders import cnn, mlp, residual_mlp
from firstguess.network.layers import Conv, Dense, Residual
from firstguess.network.network import Network

pytestmark = pytest.mark.usefixtures("one_thread")


def unread(structure: Structure) -> list[tuple[str, str]]:
    return [(u.path, u.kind) for u in structure.unread]


def bare(network: Network | None) -> str:
    """The text without widths."""
    assert network is not None

    def strip(layers):
        for layer in layers:
            if isinstance(layer, Residual):
                yield layer.with_paths(lambda path: tuple(strip(path)))
            elif isinstance(layer, Dense):
                yield Dense(layer.weight_var, layer.bias_var, None, layer.init)
            elif isinstance(layer, Conv):
                yield Conv(layer.weight_var, layer.bias_var, None, layer.kernel, layer.stride, layer.padding)
            else:
                yield layer

    return str(Network(tuple(strip(network.layers)), network.classes))


NORMS = ["batchnorm", "layernorm", "rmsnorm", "groupnorm(each=4)"]
FLAT = [
    mlp(2, "relu", norm="groupnorm(groups=2)"),  # of 20 nodes: wide
    *(mlp(2, "relu", norm=n, placement=p) for n in NORMS for p in ("before", "after")),
    *(mlp(1, phi) for phi in ("tanh", "gelu", "gelu_tanh", "silu", "sigmoid", "selu", "softplus", "hardtanh", "mish")),
    *(mlp(1, phi) for phi in ("relu6", "hardswish", "leaky_relu", "elu", "abs", "erf", "sin", "square", "sign")),
    mlp(2, "relu", pool="maxpool(4)", width=40),
    mlp(2, "tanh", pool="avgpool(2)", classes=7),
    residual_mlp(2, norm="layernorm"),
    residual_mlp(2, "tanh", norm="rmsnorm", placement="after sum", branch_scale=0.5),
    Network.parse("dense(weight_var=2) > relu > scale(1.5) > shift(-0.25) > dense(weight_var=2)"),
    Network.parse("dense(weight_var=2) > leaky_relu(slope=0.3) > dense > elu(alpha=0.5) > dense(weight_var=2)"),
    Network.parse("dense > residual[relu > dense > residual(scale=2)[tanh > dense]  > tanh > dense] > dense"),
    Network.parse("dense > relu > residual[dense > batchnorm > relu > dense > batchnorm | dense] > relu > dense"),
    Network.parse("dense > residual(scale=-0.5)[relu > dense > rmsnorm > shift(0.5) | tanh > layernorm] > dense"),
]
IMAGES = [
    *(cnn(2, "relu", norm=n, placement=p) for n in NORMS for p in ("before", "after")),
    cnn(2, "tanh", pool="avgpool(4)", kernel=5, classes=3),
    Network.parse(
        "conv(width=8, kernel=3, padding=1) > residual[relu > conv(padding=1)] > relu > dense > relu > dense"
    ),
    Network.parse("conv(width=4, stride=2) > relu > conv(width=6, kernel=1) > relu > dense"),
    Network.parse(
        "conv(padding=1) > batchnorm > relu > residual[conv(padding=1) > batchnorm > relu > conv(padding=1) > "
        "batchnorm] > relu > residual[conv(width=8, stride=2, padding=1) > groupnorm(each=4) | avgpool(4) > "
        "conv(kernel=1) > batchnorm] > relu > dense"
    ),
]


@pytest.mark.parametrize("network", FLAT, ids=str)
def test_a_description_comes_back_from_its_module(network):
    """Variances are snapped to the rule: kaiming_normal for σw² = 2; a wrong value has probability < 1e-6 a layer."""
    model = build(network, 24, width=40)
    found = read(model, torch.zeros(3, 24), init=_kaiming)
    assert found.complete, str(found)
    assert bare(found.network) == bare(_with_kaiming(network))
    assert found.network == Network.parse(str(found.network), classes=network.classes)
    assert found.network.classes == network.classes


@pytest.mark.parametrize("network", IMAGES, ids=str)
@pytest.mark.parametrize("shown", [True, False], ids=["example", "no example"])
def test_a_description_of_images_comes_back(network, shown):
    model = build(network, (3, 16, 16), width=8)
    found = read(model, torch.zeros(3, 3, 16, 16) if shown else None, init=_kaiming)
    assert found.complete, str(found)
    assert bare(found.network) == bare(_with_kaiming(network))


def _kaiming(module: nn.Module) -> None:
    if isinstance(module, (nn.Linear, nn.Conv2d)):
        nn.init.kaiming_normal_(module.weight)
        if module.bias is not None:
            nn.init.zeros_(module.bias)


def _with_kaiming(network: Network) -> Network:
    def layers(of):
        for layer in of:
            if isinstance(layer, Residual):
                yield layer.with_paths(lambda path: tuple(layers(path)))
            elif isinstance(layer, Dense):
                yield Dense(2.0, 0.0, layer.width)
            elif isinstance(layer, Conv):
                yield Conv(2.0, 0.0, layer.width, layer.kernel, layer.stride, layer.padding)
            else:
                yield layer

    return Network(tuple(layers(network.layers)), network.classes)


class Skip(nn.Module):
    def __init__(self, act=F.relu):
        super().__init__()
        self.stem, self.norm, self.fc, self.head = (
            nn.Linear(20, 32),
            nn.LayerNorm(32),
            nn.Linear(32, 32),
            nn.Linear(32, 3),
        )
        self.drop, self.act = nn.Dropout(0.3), act

    def forward(self, x, labels=None):
        x = self.stem(x.view(x.size(0), -1))
        x = x + self.drop(self.fc(self.act(self.norm(x)))) * 0.5
        if labels is not None:
            x = x * 3.0
        return {"logits": self.head(x.tanh()), "loss": None}


def test_functional_relu_and_a_skip_connection():
    found = read(Skip)
    assert bare(found.network) == bare(
        Network.parse(
            "dense(weight_var=1/3, bias_var=1/60) > residual(scale=0.5)[layernorm > relu > "
            "dense(weight_var=1/3, bias_var=1/96)] > tanh > dense(weight_var=1/3, bias_var=1/96)",
            classes=3,
        )
    )
    assert found.network.layers[0].width == 32
    assert [(p.path, p.kind) for p in found.parts] == [
        ("stem", "Linear"), ("norm", "LayerNorm"), ("", "relu"), ("fc", "Linear"), ("drop", "Dropout"), ("", "mul"),
        ("", "tanh"), ("head", "Linear"),
    ]  # fmt: skip
    assert any("dropout" in note for note in found.notes)


def test_an_activation_in_place_on_the_skip_is_not_believed():
    """x + f(relu_(x)) is relu(x) + f(relu(x)): the sum's first term was overwritten."""

    class InPlace(Skip):
        def forward(self, x):
            x = self.stem(x)
            return self.head(x + self.fc(torch.relu_(x)))

    class Lost(Skip):
        def forward(self, x):
            x = self.stem(x)
            x.relu_()
            return self.head(x)

    found = read(InPlace())
    assert not found.complete
    assert unread(found) == [("", "relu_")]
    assert unread(read(Lost())) == [("", "relu_")]
    inside = nn.Sequential(nn.Linear(9, 9), nn.ReLU(inplace=True), nn.Linear(9, 2))
    assert bare(read(inside).network).split(" > ")[1] == "relu"


def test_control_flow_is_listed_in_the_order_of_calls():
    class Branching(Skip):
        def forward(self, x):
            x = self.stem(x)
            if x.sum() > 1e9:
                x = self.norm(x)
            return self.head(self.fc(x).relu())

    for example, paths in (
        (None, ["stem", "norm", "fc", "head", "drop"]),
        (torch.zeros(2, 20), ["stem", "fc", "head"]),
    ):
        found = read(Branching(), example)
        assert not found.complete
        assert found.unread[0].path == ""
        assert "control flow" in found.unread[0].why
        assert [p.path for p in found.parts] == paths

    inner = nn.Sequential(nn.Linear(20, 20), nn.Tanh(), nn.Linear(20, 20), Branching())
    found = read(inner, torch.zeros(2, 20))
    assert unread(found) == [("3", "Branching")]
    assert str(found.fragment).startswith(
        "dense(weight_var=0.3333333333333333, bias_var=0.016666666666666666, width=20)"
    )
    assert [p.path for p in found.parts] == ["0", "1", "2", "3.stem", "3.fc", "3.head"]


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(8, 8)

    def forward(self, x):
        return self.fc(torch.tanh(self.fc(x)))


class Gate(Recurrent):
    def forward(self, x):
        return self.fc(x) * x


class Join(Recurrent):
    def forward(self, x):
        return torch.cat([self.fc(x), x], 1)


class Learned(Recurrent):
    def __init__(self):
        super().__init__()
        self.alpha = nn.Parameter(torch.ones(8))

    def forward(self, x):
        return self.fc(x * self.alpha)


class OwnForward(nn.Linear):
    def forward(self, x):
        return super().forward(x).sort(1).values


@pytest.mark.parametrize(
    ("model", "example", "where", "why"),
    [
        (nn.Sequential(nn.Conv2d(4, 8, 3, groups=2), nn.Flatten(), nn.Linear(8, 2)), None, "0", "groups"),
        (nn.Sequential(nn.Conv2d(4, 8, 3, dilation=2), nn.Flatten(), nn.Linear(8, 2)), None, "0", "dilation"),
        (nn.Sequential(nn.Conv2d(4, 8, (3, 1)), nn.Flatten(), nn.Linear(8, 2)), None, "0", "3×1"),
        (nn.Sequential(nn.Conv2d(4, 8, 3, padding_mode="reflect", padding=1)), None, "0", "reflect"),
        (nn.Sequential(nn.Conv1d(4, 8, 3), nn.Flatten(), nn.Linear(8, 2)), None, "0", "two-dimensional"),
        (nn.Sequential(nn.Conv2d(3, 4, 3), nn.AvgPool2d(3, 2)), None, "1", "overlap"),
        (nn.Sequential(nn.Conv2d(3, 4, 3), nn.MaxPool2d(2, ceil_mode=True)), None, "1", "ceil_mode"),
        (nn.Sequential(nn.Conv2d(3, 4, 3), nn.AdaptiveAvgPool2d(1)), None, "1", "example"),
        (nn.Sequential(nn.Conv2d(3, 4, 3), nn.Linear(14, 2)), torch.zeros(2, 3, 16, 16), "1", "last axis"),
        (nn.Sequential(nn.Conv2d(3, 4, 3), nn.LayerNorm(14)), None, "1", "every position"),
        (nn.Sequential(nn.Linear(4, 8), nn.Softplus(beta=2.0), nn.Linear(8, 2)), None, "1", "beta"),
        (nn.Sequential(nn.Linear(4, 8), nn.Softmax(1), nn.Linear(8, 2)), None, "1", "softmax"),
        (
            nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2), nn.Softmax(0)),
            None,
            "3",
            "over the points of a batch",
        ),
        (nn.MultiheadAttention(8, 2), None, "", "attention is read in models of known classes"),
        (nn.Sequential(nn.Embedding(10, 8), nn.Linear(8, 2)), None, "0", "looked-up"),
        (nn.Sequential(nn.LSTM(8, 8)), None, "0", "recurrence"),
        (nn.Sequential(OwnForward(4, 4)), None, "0", "sort"),
        (Recurrent(), None, "fc", "more than once"),
        (Gate(), None, "", "product of two signals"),
        (Join(), None, "", "joins"),
        (Learned(), None, "", "parameter"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else None,
)
def test_what_cannot_be_said_is_listed_with_its_path_and_reason(model, example, where, why):
    found = read(model, example)
    assert found.network is None
    assert not found.complete
    assert any(u.path == where and (why in u.why or why == u.kind) for u in found.unread), str(found)


def test_a_shortcut_with_a_projection_and_a_branch_that_ends_in_a_norm():
    class Block(Skip):
        def forward(self, x):
            x = self.stem(x)
            x = self.fc(x) + self.norm(x)
            return self.head(x + self.norm(x))

    found = read(Block())
    assert [u.why.split(";")[0] for u in found.unread] == ["a branch that ends in layernorm"]
    assert "> residual[dense(" in str(found.fragment)
    assert str(found.fragment).endswith(" | layernorm]")


def test_heads():
    one = read(nn.Sequential(nn.Linear(9, 30), nn.Tanh(), nn.Linear(30, 1), nn.Sigmoid()))
    assert one.network.classes == 2
    assert one.network.layers[-1].kind == "dense"
    with pytest.raises(InvalidInput, match="2 classes"):
        read(nn.Sequential(nn.Linear(9, 30), nn.Tanh(), nn.Linear(30, 2)), classes=3)

    def zero_head():
        model = nn.Sequential(nn.Linear(9, 30), nn.Tanh(), nn.Linear(30, 4))
        nn.init.zeros_(model[2].weight)
        nn.init.zeros_(model[2].bias)
        return model

    found = read(zero_head)
    assert unread(found) == [("2", "Linear")]
    assert "zero" in found.unread[0].why


def test_a_branch_that_starts_at_zero_adds_nothing():
    class Fixup(Skip):
        def __init__(self):
            super().__init__()
            nn.init.zeros_(self.fc.weight)
            nn.init.zeros_(self.fc.bias)

    found = read(Fixup)
    assert str(found.network).count("residual") == 0
    assert any("fc starts at zero" in note for note in found.notes)


def test_norm_parameters_other_than_one_and_zero_are_said():
    def model():
        norm = nn.LayerNorm(30)
        nn.init.constant_(norm.weight, 0.5)
        nn.init.constant_(norm.bias, 0.1)
        return nn.Sequential(nn.Linear(9, 30), norm, nn.ReLU(), nn.Linear(30, 2))

    found = read(model)
    scale, shift = found.network.layers[2:4]
    assert (scale.factor, round(shift.by, 6)) == (0.5, 0.1)
    assert any("not 1" in note for note in found.notes)
    assert any("not 0" in note for note in found.notes)


class TinyRMSNorm(nn.Module):
    def __init__(self, dim, power=2.0):
        super().__init__()
        self.weight, self.eps, self.power = nn.Parameter(torch.ones(dim)), 1e-6, power

    def forward(self, x):
        return self.weight * x / (x.abs().pow(self.power).mean(-1, keepdim=True) + self.eps) ** (1 / self.power)


def test_a_class_called_rmsnorm_is_tried_before_it_is_believed():
    for power, right in ((2.0, True), (1.0, False)):
        model = nn.Sequential(nn.Linear(9, 30), nn.ReLU(), TinyRMSNorm(30, power), nn.Linear(30, 2))
        found = read(model)
        assert found.complete is right
        assert ("rmsnorm" in str(found.network)) is right


def test_pools_to_a_given_size_need_an_example():
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 2)
    )
    assert unread(read(model)) == [("2", "AdaptiveAvgPool2d")]
    for size in (8, 16):
        found = read(model, np.zeros((4, 3, size, size), np.float32))
        assert f"avgpool({size * size})" in str(found.network)
    assert unread(read(model, torch.zeros(2, 3, 8, 16))) == [("2", "AdaptiveAvgPool2d")]


def test_lazy_layers_need_an_example():
    model = nn.Sequential(nn.LazyLinear(30), nn.ReLU(), nn.LazyLinear(2))
    with pytest.raises(InvalidInput, match="example"):
        read(model)
    found = read(model, torch.zeros(1, 12))
    assert found.network.layers[0].bias_var == 1 / 36
    assert isinstance(model[0].weight, nn.UninitializedParameter)


def test_the_users_model_and_generators_are_untouched():
    model = nn.Sequential(nn.Linear(20, 50), nn.BatchNorm1d(50), nn.ReLU(), nn.Dropout(), Skip())
    model[4].stem = nn.Linear(50, 32)
    model[3].eval()
    state = {k: v.clone() for k, v in model.state_dict().items()}
    flags = [m.training for m in model.modules()]
    before = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()  # noqa: NPY002
    attributes = [set(vars(m)) for m in model.modules()]
    for example in (None, torch.randn(4, 20, generator=torch.Generator().manual_seed(0))):
        read(model, example)
    assert all(torch.equal(v, state[k]) for k, v in model.state_dict().items())
    assert [m.training for m in model.modules()] == flags
    assert [set(vars(m)) for m in model.modules()] == attributes
    assert all(not m._forward_hooks and not m._forward_pre_hooks for m in model.modules())
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.array_equal(np.random.get_state()[1], before[1])  # noqa: NPY002
    assert random.getstate() == before[2]


def test_results_print_and_survive_json():
    for model in (Skip, lambda: nn.Sequential(Skip(), nn.LSTM(3, 3))):
        found = read(model)
        again = Structure.from_dict(json.loads(json.dumps(found.to_dict())))
        assert again == found
        assert str(again) == str(found)
        assert str(found).splitlines()[0] in found._repr_html_()
        assert max(len(line) for line in str(found).splitlines()[2:]) <= 120


def test_the_default_is_named_with_its_gradients():
    found = read(nn.Sequential(nn.Linear(50, 60), nn.ReLU(), nn.Linear(60, 60), nn.ReLU(), nn.Linear(60, 5)))
    assert any("ordered phase" in note and "gradients shrink" in note for note in found.notes)
    normed = read(nn.Sequential(nn.Linear(50, 60), nn.LayerNorm(60), nn.ReLU(), nn.Linear(60, 5)))
    assert not any("ordered" in note for note in normed.notes)
    assert math.isclose(normed.network.layers[0].weight_var, 1 / 3)
