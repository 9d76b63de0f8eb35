"""Gradients of weights by point, and the stream of residual networks: against one backward pass a point."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from itertools import pairwise

import pytest
import torch
import torch.nn.functional as F
from small_models import points, some_labels
from torch import nn

from firstguess.diagnosis.answer import trainability_of
from firstguess.modules.measure_gradients import measure_gradients

pytestmark = pytest.mark.usefixtures("one_thread")


class Shaped(nn.Module):
    """One layer between two that hand on its positions, and a head that averages them."""

    def __init__(self, layer: nn.Module, reshape: tuple[int, ...], channel: int, width: int) -> None:
        super().__init__()
        self.layer, self.reshape, self.channel = layer, reshape, channel
        self.first, self.head = nn.Linear(math.prod(reshape), math.prod(reshape)), nn.Linear(width, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        u = self.layer(self.first(x).relu().reshape(-1, *self.reshape))
        return self.head(u.tanh().movedim(self.channel, -1).flatten(1, -2).mean(1))


SHAPED: dict[str, Callable[[], Shaped]] = {
    "dense on tokens, few weights": lambda: Shaped(nn.Linear(3, 4), (6, 3), -1, 4),
    "dense on tokens, many weights": lambda: Shaped(nn.Linear(9, 40), (2, 9), -1, 40),
    "dense on a grid": lambda: Shaped(nn.Linear(3, 4), (2, 3, 3), -1, 4),
    "conv": lambda: Shaped(nn.Conv2d(2, 5, 3, padding=1), (2, 3, 4), 1, 5),
    "conv, strided, dilated": lambda: Shaped(nn.Conv2d(2, 5, 2, stride=2, dilation=2, padding=(1, 2)), (2, 4, 4), 1, 5),
    "conv, same": lambda: Shaped(nn.Conv2d(2, 5, (2, 3), padding="same"), (2, 3, 4), 1, 5),
    "conv, circular": lambda: Shaped(nn.Conv2d(2, 5, 3, padding=1, padding_mode="circular"), (2, 3, 4), 1, 5),
    "conv in groups": lambda: Shaped(nn.Conv2d(4, 6, 3, groups=2), (4, 4, 4), 1, 6),
    "conv by channel": lambda: Shaped(nn.Conv2d(4, 4, 3, groups=4), (4, 4, 4), 1, 4),
    "conv of a sequence": lambda: Shaped(nn.Conv1d(2, 5, 3, padding=1, stride=2), (2, 9), 1, 5),
}


@pytest.mark.parametrize("name", SHAPED)
def test_equals_one_backward_pass_a_point(name: str):
    """‖∂L/∂W‖² by autograd; ‖h‖² by a layer of ones, whose squared outputs' inputs are summed by hand."""
    model, (x, y) = SHAPED[name](), (points(7, math.prod(SHAPED[name]().reshape)), some_labels(7, 3))
    found = measure_gradients(lambda: copy.deepcopy(model), (x, y), inits=2)
    layer = model.layer
    expected = 0.0
    for point, label in zip(x, y, strict=True):
        model.zero_grad()
        F.cross_entropy(model(point[None]), label[None]).backward()
        h = model.first(point[None]).relu().reshape(-1, *model.reshape)
        ones = type(layer)(*_shape(layer), **_options(layer)).double()
        nn.init.ones_(ones.weight)
        seen = ones(h.detach().double().square())  # each output sums the squares of all that it sees
        expected += float(layer.weight.grad.double().square().sum() / seen.detach().mean()) / 7
    assert found.layers[1].name == "layer"
    assert found.layers[1].all.mean_square == pytest.approx(expected, rel=1e-4)
    assert found.layers[1].all.error == pytest.approx(0.0, abs=1e-9)  # the factory gives the same model again


def _shape(layer: nn.Module) -> tuple[int, ...]:
    return (layer.in_features, layer.out_features) if isinstance(layer, nn.Linear) else (
        layer.in_channels, layer.out_channels, layer.kernel_size
    )  # fmt: skip


def _options(layer: nn.Module) -> dict[str, object]:
    names = () if isinstance(layer, nn.Linear) else ("stride", "padding", "dilation", "groups", "padding_mode")
    return {"bias": False} | {name: getattr(layer, name) for name in names}


def test_widths_do_not_matter():
    """theory.md (10): a wide ReLU layer has σw²/2 whatever the widths; the mean over nodes has their ratio besides.

    Layers of 400 to 100: a ratio of logarithms is known to √(5/100/20) = 5 %; 30 % is six of these. Twice as wide a
    layer would shift by 100 %.
    """
    widths = (300, 400, 100, 400, 100, 400)
    layers = [m for a, b in pairwise(widths) for m in (nn.Linear(a, b, bias=False), nn.ReLU())]
    model = nn.Sequential(*layers, nn.Linear(400, 2))
    g = measure_gradients(model, points(64, 300), inits=20, init=(2.0, 0.0))
    for one, two in zip(g.layers[1:-2], g.layers[2:-1], strict=True):
        assert abs(one.all.value - two.all.value) < math.log10(1.3)


# -- The stream ------------------------------------------------------------------------------------------------------


class Skips(nn.Module):
    """Blocks of every usual kind: an addition; a ReLU or a norm after it; a norm before the branch."""

    def __init__(self, kind: str, blocks: int = 4) -> None:
        super().__init__()
        self.kind = kind
        self.first, self.head = nn.Linear(12, 10), nn.Linear(10, 3)
        self.branches = nn.ModuleList(
            nn.Sequential(nn.Linear(10, 20), nn.Tanh(), nn.Linear(20, 10)) for _ in range(blocks)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(10) for _ in range(blocks))
        self.seen: list[torch.Tensor] = []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        if self.kind in ("relu", "post"):
            x = x.relu() if self.kind == "relu" else F.layer_norm(x, (10,))
        self.seen = [x]
        for branch, norm in zip(self.branches, self.norms, strict=True):
            x = x + branch(norm(x) if self.kind == "pre" else x)
            x = x.relu() if self.kind == "relu" else norm(x) if self.kind == "post" else x
            self.seen.append(x)
        return self.head(x)


@pytest.mark.parametrize("kind", ["add", "relu", "pre", "post"])
def test_the_stream_is_followed_block_by_block(kind: str):
    torch.manual_seed(0)
    model, x, y = Skips(kind), points(9, 12), some_labels(9, 3)
    found = measure_gradients(lambda: copy.deepcopy(model), (x, y), inits=2)
    loss = F.cross_entropy(model(x), y, reduction="sum")
    grads = torch.autograd.grad(loss, model.seen)
    expected = [float(g.double().square().sum(1).mean()) for g in grads]
    names = [f"into branches.{i}.0" for i in range(4)] + ["after branches.3.2"]
    assert [layer.name for layer in found.stream] == names
    assert [layer.all.mean_square for layer in found.stream] == pytest.approx(expected, rel=1e-4)
    assert found.growth.layers == 4  # without the first
    assert len(found.layers) == 10


def test_a_plain_network_has_no_stream_and_side_layers_are_not_on_its_path():
    class Gated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(10, 10) for _ in range(5))
            self.gate, self.head = nn.Linear(10, 10), nn.Linear(10, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for i, layer in enumerate(self.layers):
                x = layer(x).tanh()
                x = x * self.gate(x).sigmoid() if i == 2 else x
            return self.head(x)

    g = measure_gradients(Gated, points(9, 10), inits=2)
    assert not g.stream
    assert len(g.layers) == 7
    assert g.growth.layers == 4  # neither the gate, nor the first, nor the head


def test_residual_relu_grows_by_its_closed_form():
    """The skip adds 1 to the branch's σw²/2 (theory.md (10)). Within 5.5 standard errors of 40 networks (1e-6), and
    2.5 over the width, which logarithms of means are low by."""
    g = measure_gradients(
        "12 x [residual[dense(weight_var=1) > relu]] > dense", points(32, 200).numpy(), inits=40, width=200
    )
    error = math.log(g.growth.high / g.growth.low) / 4
    assert abs(math.log(g.growth.value / 1.5)) < 5.5 * error + 2.5 / 200
    assert "per block" in str(g)


def test_tokens_are_summed_where_they_are_averaged_behind():
    """A mean over 64 positions divides each one's gradient by 64; what weights get does not fall by it."""

    class Averages(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two, self.three, self.four = (nn.Conv1d(4, 4, 1) for _ in range(4))
            self.five, self.head = nn.Linear(4, 4), nn.Linear(4, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.four(self.three(self.two(self.one(x))))
            return self.head(self.five(x.mean(2)))

    def same(module: nn.Module) -> None:
        if getattr(module, "weight", None) is not None:
            nn.init.dirac_(module.weight) if module.weight.ndim == 3 else nn.init.eye_(module.weight)
            nn.init.zeros_(module.bias)

    x = points(16, 4, 1).expand(16, 4, 64).contiguous()  # all positions alike: the sum is the gradient after the mean
    g = measure_gradients(Averages(), (x, some_labels(16, 3)), inits=2, init=same)
    levels = [layer.all.value for layer in g.layers[:-1]]
    assert levels == pytest.approx([levels[-1]] * 5, abs=1e-5)


# -- Nothing to measure ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hidden", [1, 3])
def test_gradients_that_are_zero_are_called_so(hidden: int):
    def zero_head(module: nn.Module) -> None:
        if isinstance(module, nn.Linear):
            module.reset_parameters()
            if module.out_features == 2:
                nn.init.zeros_(module.weight)

    layers = [m for _ in range(hidden) for m in (nn.Linear(8, 8), nn.ReLU())]
    g = measure_gradients(nn.Sequential(*layers, nn.Linear(8, 2)), points(10, 8), inits=3, init=zero_head)
    assert g.word == "zero"
    assert "not finite" not in str(g)


def test_gradients_below_the_number_format_vanish():
    g = measure_gradients("40 x [dense(weight_var=1e-4) > tanh] > dense", points(16, 20).numpy(), inits=3, width=50)
    assert g.layers[1].all.zeros == 3
    assert g.layers[-2].all.zeros == 0
    assert (g.word, g.growth.total) == ("vanish", 0.0)
    assert "× 0" not in trainability_of(g, plain=True).words
