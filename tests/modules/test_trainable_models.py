"""Models that train, and of which gradients of single pre-activations said that they do not (theory.md (39))."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from small_models import points, some_labels
from torch import nn

import firstguess as fg
from firstguess.base.text import size_change
from firstguess.diagnosis.answer import trainability_of
from firstguess.modules.measure_gradients import measure_gradients

pytestmark = pytest.mark.usefixtures("one_thread")

FINE = ("shrink", "keep their size", "grow")


def images(n: int = 48, side: int = 32) -> torch.Tensor:
    """Smooth, with some noise, as photographs are."""
    return F.interpolate(points(n, 3, side // 4, side // 4), size=(side, side), mode="bilinear") + 0.3 * points(
        n, 3, side, side, seed=1
    )


def cnn(pool: nn.Module, stages: int = 3, *, mean: bool = False) -> nn.Module:
    layers: list[nn.Module] = []
    channels, width, side = 3, 8, 32
    for _ in range(stages):
        layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU(), pool]
        channels, width, side = width, 2 * width, side // pool.kernel_size
    if mean:
        layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10)]
    else:
        layers += [nn.Flatten(), nn.Linear(channels * side**2, 64), nn.ReLU(), nn.Linear(64, 10)]
    return nn.Sequential(*layers)


@pytest.mark.parametrize(
    "make",
    [
        lambda: cnn(nn.MaxPool2d(2)),
        lambda: cnn(nn.AvgPool2d(2)),
        lambda: cnn(nn.MaxPool2d(2), 4, mean=True),
    ],
    ids=["max", "average", "max, then a mean"],
)
def test_a_pooling_cnn_does_not_vanish(make: Callable[[], nn.Module]):
    """PyTorch's default and four layers: factors of 0.1 to 0.3 a layer; pre-activations' had 0.005 to 0.1."""
    g = measure_gradients(make, (images(), some_labels(48, 10)), inits=4)
    assert g.word == "shrink"
    assert g.growth.value > 0.04


@pytest.mark.parametrize(
    ("pool", "low", "high"),
    [(nn.MaxPool2d(4), 1.0, 3.0), (nn.MaxPool2d(2), 0.8, 3.0), (nn.AvgPool2d(4), 0.05, 1.0)],
    ids=["max of 16", "max of 4", "mean of 16"],
)
def test_pools_at_he_weights_are_as_in_a_plain_loop(pool: nn.Module, low: float, high: float):
    """σw² = 2: × 1.5 to 1.9 a layer with MaxPool(4), where pre-activations' had 0.15 to 0.17 (theory.md (39))."""
    x, y = images(24), some_labels(24, 10)
    model = cnn(pool, 2)
    g = measure_gradients(model, (x, y), inits=6, init=(2.0, 0.0))
    assert low < g.growth.value < high
    one = measure_gradients(lambda: copy.deepcopy(model), (x, y), inits=2)
    sizes = [0.0, 0.0]
    conv, dense = model[3], model[7]
    for point, label in zip(x, y, strict=True):  # one backward pass each
        model.zero_grad()
        h = model[:3](point[None])
        flat = model[3:7](h)
        F.cross_entropy(model[7:](flat), label[None]).backward()
        patches = F.unfold(h.detach(), 3, padding=1).square().sum(1).mean()
        sizes[0] += float(conv.weight.grad.square().sum() / patches)
        sizes[1] += float(dense.weight.grad.square().sum() / flat.detach().square().sum())
    assert one.growth.value == pytest.approx(sizes[0] / sizes[1], rel=1e-3)


def normed(hidden: int) -> nn.Module:
    layers = [m for i in range(hidden) for m in (nn.Linear(64 if i else 40, 64), nn.BatchNorm1d(64), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(64, 10))


@pytest.mark.parametrize("hidden", [2, 3, 4])
def test_the_scale_of_the_data_does_not_matter_behind_batchnorm(hidden: int):
    """0 to 255 instead of 0 to 1: the first layer's gradient is 255 times smaller, and a BatchNorm trains alike."""
    x, y = torch.rand(96, 40, generator=torch.Generator().manual_seed(0)), some_labels(96, 10)
    pixels, units = (
        measure_gradients(lambda: normed(hidden), (k * x, y), inits=4, dtype=torch.float64) for k in (255.0, 1.0)
    )
    assert pixels.word in (*FINE, *(("not known",) if hidden == 2 else ()))
    assert pixels.word == units.word
    if hidden > 2:
        assert pixels.growth.value == pytest.approx(units.growth.value, rel=1e-3)


def test_the_same_for_a_cnn():
    model = nn.Sequential(
        *(m for a, b in ((3, 8), (8, 8), (8, 8)) for m in (nn.Conv2d(a, b, 3), nn.BatchNorm2d(b), nn.ReLU())),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 4),
    )
    g = measure_gradients(model, (128 + 60 * images(32, 16), some_labels(32, 4)), inits=4)
    assert g.word in FINE
    assert g.layers[0].all.value < g.layers[1].all.value - 2  # what was left out


class Vision(nn.Module):
    """Patches, a class token or a mean, pre-norm or post-norm blocks."""

    def __init__(self, blocks: int = 8, *, pre: bool = True, token: bool = True) -> None:
        super().__init__()
        self.embed, self.token = nn.Linear(48, 32), nn.Parameter(0.02 * torch.randn(1, 1, 32)) if token else None
        self.place = nn.Parameter(0.02 * torch.randn(1, 16 + token, 32))
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, activation="gelu", batch_first=True, norm_first=pre)
            for _ in range(blocks)
        )
        self.norm, self.head = nn.LayerNorm(32), nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.embed(F.unfold(x, 4, stride=4).mT)
        if self.token is not None:
            x = torch.cat([self.token.expand(len(x), -1, -1), x], 1)
        x = x + self.place
        for block in self.blocks:
            x = block(x)
        x = self.norm(x)
        return self.head(x.mean(1) if self.token is None else x[:, 0])


@pytest.mark.parametrize(("pre", "token"), [(True, True), (True, False), (False, True)])
def test_a_vision_transformer_is_followed_along_its_stream(pre: bool, token: bool):
    x, y = images(16, 16), some_labels(16, 10)
    g = measure_gradients(lambda: Vision(pre=pre, token=token), (x, y), inits=4)
    assert g.word in FINE
    assert len(g.stream) == 17  # 8 blocks of two additions
    model, seen = Vision(pre=pre, token=token), list[torch.Tensor]()
    one = measure_gradients(lambda: copy.deepcopy(model), (x, y), inits=2)
    for block in model.blocks:
        block.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    grads = torch.autograd.grad(F.cross_entropy(model(x), y, reduction="sum"), seen)
    for grad, place in zip(grads, one.stream[:-1:2], strict=True):
        size = torch.maximum(grad.square().sum((1, 2)), grad.sum(1).square().sum(1)).mean()
        assert place.all.mean_square == pytest.approx(float(size), rel=1e-3)


@pytest.mark.parametrize(("hidden", "scale"), [(2, 255.0), (3, 255.0), (8, 1.0)])
def test_tanh_at_a_large_variance_is_not_ordered(hidden: int, scale: float):
    """Weights of size 1 at 784 inputs: χ̃ is 15 (theory.md (10)); the first layer, saturated, was taken for order."""
    layers: list[Any] = [m for i in range(hidden) for m in (nn.Linear(100 if i else 784, 100), nn.Tanh())]
    x = scale * torch.rand(48, 784, generator=torch.Generator().manual_seed(0))
    d = fg.diagnose(
        nn.Sequential(*layers, nn.Linear(100, 10)),
        (x, some_labels(48, 10)),
        inits=4,
        advice=False,
        init=(784.0, 0.0),
        seconds=30,
    )
    assert d.trainability is not None
    assert d.trainability.phase in ("chaotic", "unknown")
    assert "ordered" not in str(d)
    assert d.trainability.growth > 5 or (hidden == 2 and "not measured" in d.trainability.words)


def test_a_graph_network_that_takes_whole_batches_has_gradients():
    class Graph(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(12, 12) for _ in range(4))
            self.head = nn.Linear(12, 3)

        def forward(self, x: torch.Tensor, adj: torch.Tensor) -> torch.Tensor:
            for layer in self.layers:
                x = torch.tanh(adj @ layer(x))
            return self.head(x)

    n = 300
    adj = torch.eye(n) + (torch.rand(n, n, generator=torch.Generator().manual_seed(0)) < 0.02)
    data = {"x": points(n, 12), "adj": adj / adj.sum(1, keepdim=True), "labels": some_labels(n, 3)}
    d = fg.diagnose(Graph(), data, inits=4, batch_size=n, advice=False)
    assert d.trainability is not None
    g = d.trainability.gradients
    assert g is not None
    assert any("whole batches" in note for note in g.notes)
    assert g.points == n
    assert g.growth.layers == 3
    model = Graph()  # the batch's own gradient, for inputs of unit size, by hand
    h = model.layers[0](data["x"])
    h = torch.tanh(data["adj"] @ h).detach()
    x = h
    for layer in model.layers[1:]:
        x = torch.tanh(data["adj"] @ layer(x))
    F.cross_entropy(model.head(x), data["labels"], reduction="sum").backward()
    own = model.layers[1].weight.grad.square().sum() / h.square().sum(1).mean()
    same = measure_gradients(lambda: copy.deepcopy(model), data, inits=1, points=n, batch_size=n)
    assert same.layers[1].all.mean_square == pytest.approx(float(own), rel=1e-3)


def test_one_number_on_every_page():
    d = fg.diagnose("8 x [dense(weight_var=1.2) > relu] > dense", points(60, 30).numpy(), inits=10, width=60)
    t = d.trainability
    assert t is not None
    shown = f"Gradients change by {size_change(t.growth)} per layer"
    assert shown in " ".join(str(d).split())
    assert (
        d.to_dict()["trainability"]["growth"] == t.growth == d.to_dict()["trainability"]["gradients"]["growth"]["value"]
    )
    edge = next(a for a in d.advice if a.remedy == "go to the edge of chaos")
    assert edge.gradient_before == t.growth
    assert trainability_of(t.gradients, plain=True).words.count(size_change(t.growth)) == 1
