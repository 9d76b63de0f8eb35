"""Trainings that nothing is wrong with: architectures × losses × optimizers × steps, all generated."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from doctor_cases import (
    CE,
    Text,
    fit,
    images,
    imbalanced,
    keras_binary,
    keras_categorical,
    mlp,
    net,
    one_hot,
    points,
    tokens,
)
from torch import nn


@dataclass(frozen=True)
class Healthy:
    id: str
    build: Callable[[], tuple[Any, Any, dict[str, Any]]]


def healthy(id: str, make: Any, data: Any, loss: Any, opt: Any, steps: int, planned: int | None = None) -> Healthy:
    def build() -> Any:
        m = make()
        o = opt([p for p in m.parameters() if p.requires_grad])
        fit(m, o, data(), loss, steps)
        return m, data(), {"loss": loss, "optimizer": o, "steps": planned}

    return Healthy(f"{id} {steps}", build)


class Cnn(nn.Module):
    def __init__(self, classes: int = 4, norm: bool = True) -> None:
        super().__init__()
        self.one, self.two = nn.Conv2d(1, 12, 3, padding=1), nn.Conv2d(12, 24, 3, padding=1)
        self.norm = nn.BatchNorm2d(12) if norm else nn.Identity()
        self.head = nn.Linear(24, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(F.relu(self.norm(self.one(x))), 2)
        return self.head(F.relu(self.two(x)).mean((2, 3)))


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.RNNBase] = nn.LSTM, classes: int = 4) -> None:
        super().__init__()
        self.embed, self.rnn, self.head = nn.Embedding(50, 24), kind(24, 32, batch_first=True), nn.Linear(32, classes)

    def forward(self, t: torch.Tensor) -> torch.Tensor:
        return self.head(self.rnn(self.embed(t))[0].mean(1))


class PreNorm(nn.Module):
    def __init__(self, classes: int = 4, zero: bool = False, tiny: bool = False) -> None:
        super().__init__()
        self.embed, self.place = nn.Embedding(50, 32), nn.Parameter(0.02 * torch.randn(1, 12, 32))
        layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
        self.norm, self.head = nn.LayerNorm(32), nn.Linear(32, classes)
        if zero:
            nn.init.zeros_(self.head.weight)
            nn.init.zeros_(self.head.bias)
        if tiny:
            nn.init.trunc_normal_(self.head.weight, std=0.02)
            with torch.no_grad():
                self.head.weight.mul_(0.001)
                self.head.bias.mul_(0.001)

    def forward(self, t: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.encoder(self.embed(t) + self.place).mean(1)))


class Segment(nn.Module):
    def __init__(self, classes: int = 3) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, 12, 3, padding=1), nn.ReLU(), nn.Conv2d(12, 12, 3, padding=1), nn.ReLU())
        self.head = nn.Conv2d(12, classes, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x))


def deep(act: Any, depth: int, init: Any, gain: str, width: int = 64) -> nn.Module:
    m = mlp(20, *[width] * depth, 4, act=act)
    for layer in m:
        if isinstance(layer, nn.Linear):
            init(layer.weight, gain=nn.init.calculate_gain(gain)) if init is nn.init.xavier_normal_ else init(
                layer.weight, nonlinearity=gain
            )
            nn.init.zeros_(layer.bias)
    return m


def focal(out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    log = F.cross_entropy(out, y, reduction="none")
    return ((1 - (-log).exp()) ** 2 * log).mean()


def dice(out: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    p, t = out.softmax(1), F.one_hot(y, out.shape[1]).movedim(-1, 1).float()
    return 1 - (2 * (p * t).sum() + 1) / (p.sum() + t.sum() + 1)


def weighted(y: torch.Tensor) -> nn.Module:
    w = 1 / torch.bincount(y).float()
    return nn.CrossEntropyLoss(weight=w / w.mean())


def adam(rate: float = 1e-3) -> Any:
    return lambda p: torch.optim.Adam(p, rate)


def adamw(rate: float = 1e-3, wd: float = 0.05) -> Any:
    return lambda p: torch.optim.AdamW(p, rate, weight_decay=wd)


def sgd(rate: float = 0.1, momentum: float = 0.9, wd: float = 0.0) -> Any:
    return lambda p: torch.optim.SGD(p, rate, momentum=momentum, weight_decay=wd)


def rms(rate: float = 1e-3) -> Any:
    return lambda p: torch.optim.RMSprop(p, rate)


def regression() -> tuple[torch.Tensor, torch.Tensor]:
    x, _ = points()
    return x, torch.stack((x[:, 0] * x[:, 1], x[:, 2].sin()), 1)


def positive() -> tuple[torch.Tensor, torch.Tensor]:
    x, _ = points()
    return x, (x[:, :1] + 0.3 * x[:, 1:2]).sigmoid()


def binary(column: bool = True) -> tuple[torch.Tensor, torch.Tensor]:
    x, y = points(classes=2)
    return x, y.float()[:, None] if column else y.float()


def several() -> tuple[torch.Tensor, torch.Tensor]:
    x, _ = points()
    return x, (x @ torch.randn(20, 6, generator=torch.Generator().manual_seed(4)) > 2.0).float()


def pixels() -> tuple[torch.Tensor, torch.Tensor]:
    x, _ = images(3)
    return x, (3 * x[:, 0].clamp(0, 0.999)).long()


def shifted() -> tuple[torch.Tensor, torch.Tensor]:
    x, y = points()
    return x + 1.5, y


def random_labels() -> tuple[torch.Tensor, torch.Tensor]:
    return points()[0], torch.randint(0, 4, (512,), generator=torch.Generator().manual_seed(2))


def signs() -> tuple[torch.Tensor, torch.Tensor]:
    x, y = points(classes=2)
    return x, 2 * y.float() - 1


def _all() -> Iterator[Healthy]:
    vectors: dict[str, Any] = {
        "mlp": net,
        "tanh": lambda: net(act=nn.Tanh),
        "gelu wide": lambda: net(act=nn.GELU, width=256),
        "one hidden": lambda: mlp(20, 100, 4),
        "norm": lambda: mlp(20, 64, 64, 4, act=lambda: nn.Sequential(nn.BatchNorm1d(64), nn.ReLU())),
        "dropout": lambda: mlp(20, 64, 64, 4, act=lambda: nn.Sequential(nn.ReLU(), nn.Dropout(0.5))),
        "He ReLU 20": lambda: deep(nn.ReLU, 20, nn.init.kaiming_normal_, "relu"),
        "tanh 20": lambda: deep(nn.Tanh, 20, nn.init.xavier_normal_, "tanh"),
        "linear": lambda: nn.Sequential(nn.Linear(20, 4)),
    }
    optimizers = {
        "adam": adam(),
        "adam 1e-2": adam(1e-2),
        "sgd 0.1": sgd(0.1, 0.0),
        "momentum": sgd(0.05),
        "adamw": adamw(),
    }
    for name, make in vectors.items():
        for kind, opt in optimizers.items():
            if name in ("He ReLU 20", "tanh 20") and kind in ("adam 1e-2", "momentum"):
                continue  # which do not train them
            for steps in (0, 10, 200):
                yield healthy(f"{name} {kind}", make, points, CE, opt, steps)
    for steps in (0, 10, 200):
        for name, data in (("random labels", random_labels), ("uncentred", shifted)):
            yield healthy(f"{name}", net, data, CE, adam(), steps)
            yield healthy(f"{name} sgd", net, data, CE, sgd(0.05), steps)
        losses: dict[str, Any] = {
            "smoothing": nn.CrossEntropyLoss(label_smoothing=0.1),
            "focal": focal,
            "hinge": nn.MultiMarginLoss(),
            "sum": nn.CrossEntropyLoss(reduction="sum"),
            "lambda": lambda o, y: F.cross_entropy(o, y) * 2,
            "temperature": lambda o, y: F.cross_entropy(o / 2, y),
        }
        for name, loss in losses.items():
            yield healthy(name, net, points, loss, adam(), steps)
        yield healthy("log_softmax CE", lambda: net(nn.LogSoftmax(1)), points, CE, adam(), steps)
        yield healthy("log_softmax NLL", lambda: net(nn.LogSoftmax(1)), points, nn.NLLLoss(), adam(), steps)
        yield healthy(
            "softmax keras", lambda: net(nn.Softmax(1)), lambda: one_hot(points(), 4), keras_categorical, adam(), steps
        )
        yield healthy(
            "softmax log NLL", lambda: net(nn.Softmax(1)), points, lambda o, y: F.nll_loss(o.log(), y), adam(), steps
        )
        yield healthy("mse one-hot", net, lambda: one_hot(points(), 4), nn.MSELoss(), adam(), steps)
        yield healthy(
            "softmax mse", lambda: net(nn.Softmax(1)), lambda: one_hot(points(), 4), nn.MSELoss(), adam(), steps
        )
        yield healthy(
            "soft labels",
            net,
            lambda: (lambda x, y: (x, 0.9 * F.one_hot(y, 4).float() + 0.025))(*points()),
            CE,
            adam(),
            steps,
        )
        yield healthy("bce logits", lambda: net(out=1), binary, nn.BCEWithLogitsLoss(), adam(), steps)
        yield healthy(
            "bce logits flat",
            lambda: nn.Sequential(net(out=1), nn.Flatten(0)),
            lambda: binary(False),
            nn.BCEWithLogitsLoss(),
            adam(),
            steps,
        )
        yield healthy("bce sigmoid", lambda: net(nn.Sigmoid(), out=1), binary, nn.BCELoss(), adam(), steps)
        yield healthy("keras sigmoid", lambda: net(nn.Sigmoid(), out=1), binary, keras_binary, rms(), steps)
        yield healthy("mse sigmoid", lambda: net(nn.Sigmoid(), out=1), binary, nn.MSELoss(), adam(), steps)
        yield healthy(
            "hinge sign",
            lambda: nn.Sequential(net(out=1), nn.Flatten(0)),
            signs,
            lambda o, y: (1 - o * y).clamp_min(0).mean(),
            adam(),
            steps,
        )
        yield healthy(
            "tanh sign", lambda: nn.Sequential(net(nn.Tanh(), out=1), nn.Flatten(0)), signs, nn.MSELoss(), adam(), steps
        )
        yield healthy("multi-label", lambda: net(out=6), several, nn.BCEWithLogitsLoss(), adam(), steps)
        yield healthy("regression", lambda: net(out=2), regression, nn.MSELoss(), adam(), steps)
        yield healthy("regression mae", lambda: net(out=2), regression, nn.L1Loss(), adam(), steps)
        yield healthy("regression huber", lambda: net(out=2), regression, nn.SmoothL1Loss(), sgd(0.05), steps)
        yield healthy("regression sigmoid", lambda: net(nn.Sigmoid(), out=1), positive, nn.MSELoss(), adam(), steps)
        yield healthy("80:20", lambda: net(out=2), lambda: imbalanced(0.2), CE, adam(), steps)
        yield healthy(
            "80:20 weights", lambda: net(out=2), lambda: imbalanced(0.2), weighted(imbalanced(0.2)[1]), adam(), steps
        )
        yield healthy(
            "90:10 weights", lambda: net(out=2), lambda: imbalanced(0.1), weighted(imbalanced(0.1)[1]), adam(), steps
        )
        yield healthy("weight decay", net, points, CE, sgd(0.05, 0.9, 5e-4), steps)
        yield healthy(
            "weight decay adam", net, points, CE, lambda p: torch.optim.Adam(p, 1e-3, weight_decay=1e-4), steps
        )
        yield healthy("sharp sgd", net, points, CE, sgd(1.0, 0.0), steps)
        yield healthy("nadam", net, points, CE, lambda p: torch.optim.NAdam(p, 2e-3), steps)
        yield healthy("adagrad", net, points, CE, lambda p: torch.optim.Adagrad(p, 1e-2), steps)
        yield healthy("ten classes", lambda: net(out=10), lambda: points(classes=10), CE, adam(), steps)
        yield healthy("cnn", Cnn, lambda: images(4), CE, adam(), steps)
        yield healthy("cnn sgd", Cnn, lambda: images(4), CE, sgd(0.05), steps)
        yield healthy("cnn plain", lambda: Cnn(norm=False), lambda: images(4), CE, adam(3e-3), steps)
        yield healthy("segmentation", Segment, pixels, CE, adam(), steps)
        yield healthy("segmentation dice", Segment, pixels, dice, adam(), steps)
    for steps in (0, 10, 60):
        yield healthy("lstm", Recurrent, tokens, CE, adam(), steps)
        yield healthy("gru", lambda: Recurrent(nn.GRU), tokens, CE, adam(3e-3), steps)
        yield healthy("transformer", lambda: Text(layers=2), tokens, CE, adam(), steps)
        yield healthy("pre-norm", PreNorm, tokens, CE, adam(), steps)
        yield healthy("pre-norm adamw", PreNorm, tokens, CE, adamw(3e-4, 0.1), steps)
        yield healthy("zero head", lambda: PreNorm(zero=True), tokens, CE, adam(), steps)
        yield healthy("tiny head", lambda: PreNorm(tiny=True), tokens, CE, adam(), steps)


HEALTHY = list(_all())
