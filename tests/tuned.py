"""Small networks that were really trained, on digits, to more than 90 % of test points right."""

from __future__ import annotations

import copy
from functools import cache

import torch
from torch import nn

import firstguess as fg


@cache
def digits() -> tuple[torch.Tensor, torch.Tensor]:
    data = fg.data.digits()
    x = torch.tensor(data.x, dtype=torch.float32).flatten(1)
    assert data.y is not None
    return (x - x.mean()) / x.std(), torch.tensor(data.y)


def mlp(width: int = 64) -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10)
    )  # fmt: skip


def cnn() -> nn.Sequential:
    return nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
        nn.Conv2d(16, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(128, 10),
    )  # fmt: skip


@cache
def _trained(kind: str, optimizer: str, seed: int) -> nn.Sequential:
    x, y = digits()
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = {"mlp": mlp, "cnn": cnn, "wide": lambda: mlp(256)}[kind]()
        made = {"adam": lambda p: torch.optim.Adam(p, 2e-3), "sgd": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9)}
        step = made[optimizer](model.parameters())
        right = 0.0
        for _ in range(60):
            for i in torch.randperm(1400).split(64):
                step.zero_grad()
                nn.functional.cross_entropy(model(x[i]), y[i]).backward()
                step.step()
            model.eval()
            with torch.no_grad():
                right = float((model(x[1400:]).argmax(1) == y[1400:]).float().mean())
            model.train()
            if right > 0.91:
                break
        assert right > 0.9
    model.zero_grad()
    return model


def trained(kind: str = "mlp", optimizer: str = "adam", seed: int = 0) -> nn.Sequential:
    """A copy, for a test to change."""
    return copy.deepcopy(_trained(kind, optimizer, seed))
