"""The sealed cases of answers.py: 25 of other architectures, data, optimizers and faults than any set before them.

Drawn by one seed and not chosen; no case of them was diagnosed before they were committed. A duration is judged by 32
trainings: four or eight had judged some by their own noise (docs/answers.md).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

if TYPE_CHECKING:
    from answers import Case

SEED = 7
DATA: dict[str, tuple[str, ...]] = {  # which networks read which data
    "rings": ("bottleneck", "gated", "concat"),
    "gauss": ("bottleneck", "gated", "concat"),
    "pulses": ("conv1d", "lstm", "mixer"),
    "words": ("words",),
}
CLASSES = {"rings": 3, "gauss": 12, "pulses": 4, "words": 8}
OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "nadam": lambda p: torch.optim.NAdam(p, lr=2e-3),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.03),
    "adamax": lambda p: torch.optim.Adamax(p, lr=4e-3),
    "light momentum": lambda p: torch.optim.SGD(p, lr=0.03, momentum=0.5),
    "tiny rate": lambda p: torch.optim.Adam(p, lr=1e-8),
}
FAULTS = ("nll of logits", "identical inputs", "tiny weights", "tiny rate", "tanh far out", "head bias")
ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "mish": nn.Mish, "selu": nn.SELU, "softsign": nn.Softsign, "hardswish": nn.Hardswish,
}  # fmt: skip
VOCABULARY, LENGTH = 200, 24


def drawn(make: Callable[..., Case]) -> list[Case]:
    """Five of each kind."""
    rng = np.random.default_rng(SEED)

    def one(*among: Any) -> Any:
        return among[int(rng.integers(len(among)))]

    found: list[Case] = []
    for number, kind in enumerate(itertools.chain.from_iterable([k] * 5 for k in KINDS)):
        data, optimizer = one(*DATA), one("nadam", "adagrad", "adamax", "light momentum")
        depth, activation, gain, shift, fault = one(1, 2, 3), one(*ACTIVATIONS), 0.0, 0.0, ""
        if kind in ("biased", "repaired"):
            data, depth, activation = one("rings", "gauss", "pulses"), one(3, 5, 7), one("mish", "hardswish", "relu")
            gain, shift = one(0.0, 1.8), 0.0 if kind == "repaired" else one(0.0, 1.5)
        elif kind == "deep":
            data, depth, gain = one("rings", "gauss"), one(12, 18, 25), one(0.0, 1.6, 3.0)
        elif kind == "faulty":
            fault = FAULTS[int(rng.integers(len(FAULTS)))]
            optimizer = fault if fault in OPTIMIZERS else optimizer
            data = one("rings", "gauss", "pulses")
        net = one(*DATA[data])
        net = {"lstm": "conv1d", "mixer": "conv1d"}.get(net, net) if kind in ("biased", "repaired") else net
        found.append(
            make("sealed", 200 + number, kind, net, depth, activation, "", gain, data, shift, optimizer, fault)
        )
    return found


KINDS = ("sound", "biased", "deep", "faulty", "repaired")


def points(case: Case) -> tuple[torch.Tensor, torch.Tensor]:
    """640 labelled points: rings in 16 dimensions, twelve correlated Gaussians, pulses in time, words of topics."""
    rng = np.random.default_rng(case.number)
    y = rng.integers(0, CLASSES[case.data], 640)
    if case.data == "rings":
        angle, radius = 2 * np.pi * rng.random(640), 0.5 + y + 0.12 * rng.standard_normal(640)
        x = np.zeros((640, 16))
        x[:, 0], x[:, 1] = radius * np.cos(angle), radius * np.sin(angle)
        x[:, 2:] = 0.1 * rng.standard_normal((640, 14))
        x = x @ np.linalg.qr(rng.standard_normal((16, 16)))[0]
    elif case.data == "gauss":
        mixed = rng.standard_normal((40, 40)) / 40**0.5
        x = rng.standard_normal((12, 40))[y] + rng.standard_normal((640, 40)) @ mixed
    elif case.data == "pulses":
        t, at = np.arange(LENGTH), rng.uniform(6, 18, 640)[:, None]
        shapes = [lambda u: np.exp(-np.square(u)), lambda u: -u * np.exp(-np.square(u)), np.tanh, np.cos]
        width = rng.uniform(1.5, 3.0, 640)[:, None]
        base = np.stack([shape((t - at) / width) for shape in shapes])[y, np.arange(640)]
        x = base[:, None] * rng.uniform(0.5, 1.5, (640, 3))[..., None] + 0.2 * rng.standard_normal((640, 3, LENGTH))
    else:
        topics = rng.dirichlet(np.full(VOCABULARY, 0.08), 8) * 0.6 + 0.4 / VOCABULARY
        x = np.stack([rng.choice(VOCABULARY, LENGTH, p=topics[k]) for k in y])
        return torch.tensor(x), torch.tensor(y)
    if case.fault == "identical inputs":
        x = np.repeat(x[:1], 640, axis=0) + 1e-9 * rng.standard_normal(x.shape)
    return torch.tensor(x).float() + case.shift, torch.tensor(y)


class Concat(nn.Module):
    """Every layer reads what all before it gave."""

    def __init__(self, inputs: int, depth: int, act: Callable[[], nn.Module], classes: int) -> None:
        super().__init__()
        self.steps = nn.ModuleList(nn.Linear(inputs + 24 * k, 24) for k in range(depth))
        self.act, self.head = act(), nn.Linear(inputs + 24 * depth, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for step in self.steps:
            x = torch.cat([x, self.act(step(x))], 1)
        return self.head(x)


class Gated(nn.Module):
    """Half of a layer's units gate the others."""

    def __init__(self, inputs: int, depth: int, classes: int) -> None:
        super().__init__()
        self.steps = nn.ModuleList(nn.Linear(inputs if k == 0 else 40, 80) for k in range(depth))
        self.head = nn.Linear(40, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for step in self.steps:
            x = nn.functional.glu(step(x))
        return self.head(x)


class Lstm(nn.Module):
    def __init__(self, channels: int, depth: int, classes: int) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(channels, 32, depth, batch_first=True), nn.Linear(32, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(x.transpose(1, 2))[1][0][-1])


class Mixer(nn.Module):
    """Times and channels are mixed in turn."""

    def __init__(self, depth: int, act: Callable[[], nn.Module], classes: int) -> None:
        super().__init__()
        self.embed, self.head = nn.Linear(3, 24), nn.Linear(24, classes)
        self.times = nn.ModuleList(
            nn.Sequential(nn.Linear(LENGTH, 48), act(), nn.Linear(48, LENGTH)) for _ in range(depth)
        )
        self.units = nn.ModuleList(nn.Sequential(nn.Linear(24, 48), act(), nn.Linear(48, 24)) for _ in range(depth))
        self.norms = nn.ModuleList(nn.LayerNorm(24) for _ in range(2 * depth))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.embed(x.transpose(1, 2))
        for k, (times, units) in enumerate(zip(self.times, self.units, strict=True)):
            h = h + times(self.norms[2 * k](h).transpose(1, 2)).transpose(1, 2)
            h = h + units(self.norms[2 * k + 1](h))
        return self.head(h.mean(1))


def network(case: Case, example: torch.Tensor) -> nn.Module:
    """As PyTorch draws it, with the faults that are in the model."""
    act = (ACTIVATIONS | {"relu": nn.ReLU})[case.activation]
    classes, inputs = CLASSES[case.data], example.numel()
    if case.net == "concat":
        model: nn.Module = Concat(inputs, case.depth, act, classes)
    elif case.net == "gated":
        model = Gated(inputs, case.depth, classes)
    elif case.net == "lstm":
        model = Lstm(len(example), case.depth, classes)
    elif case.net == "mixer":
        model = Mixer(case.depth, act, classes)
    elif case.net == "words":
        steps = [layer for _ in range(case.depth) for layer in (nn.Linear(32, 32), act())]
        model = nn.Sequential(nn.EmbeddingBag(VOCABULARY, 32), *steps, nn.Linear(32, classes))
    elif case.net == "conv1d":
        conv = [[nn.Conv1d(3 if k == 0 else 20, 20, 5, padding=2), act()] for k in range(case.depth)]
        pooled = [nn.AdaptiveMaxPool1d(2), nn.Flatten(), nn.Linear(40, classes)]
        model = nn.Sequential(*itertools.chain.from_iterable(conv), *pooled)
    else:
        sizes = [inputs, *(64 if k % 2 == 0 else 10 for k in range(case.depth))]
        steps = [layer for a, b in itertools.pairwise(sizes) for layer in (nn.Linear(a, b), act())]
        model = nn.Sequential(*steps, nn.Linear(sizes[-1], classes))
    head = next(m for m in reversed(list(model.modules())) if isinstance(m, nn.Linear))
    with torch.no_grad():
        if case.fault == "tiny weights":
            for parameter in model.parameters():
                parameter.mul_(1e-4)
        if case.fault == "head bias":
            head.bias[case.number % classes] = 12.0
        if case.fault == "tanh far out":
            head.weight.mul_(200.0)
            return nn.Sequential(model, nn.Tanh())
    return model
