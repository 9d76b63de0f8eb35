"""Heads whose bias is moved: γ, spreads and gradients of small models before and after, on other points."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from firstguess_papers.judging import Number
from firstguess_papers.library import IsolatedRandomness, contrasts
from firstguess_papers.small_vit import SmallViT
from firstguess_papers.tables import ratio

if TYPE_CHECKING:
    from firstguess.data import Data
    from firstguess_papers.library import Piece

PARTS = (0.5, 1.0)  # ρ: how much of the mean logits is taken off
NEAR = 0.03  # of γ after over γ before: room on points that the head was not moved by
EQUAL = 1e-3  # of 1: room for gradients and spreads, which should be equal


class _Block(nn.Module):
    """x + BatchNorm(conv(ReLU(BatchNorm(conv(x))))), then ReLU: a basic block of a ResNet."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(channels, channels, 3, padding=1, bias=False) for _ in range(2))
        self.norm1, self.norm2 = nn.BatchNorm2d(channels), nn.BatchNorm2d(channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = self.norm2(self.second(torch.relu(self.norm1(self.first(x)))))
        return torch.relu(x + inner)


def mlp() -> nn.Module:
    """Twenty hidden layers of 100 with ReLU, Kaiming normal weights, biases of 0."""
    layers: list[nn.Module] = [nn.Flatten()]
    for index in range(21):
        dense = nn.Linear(3072 if index == 0 else 100, 10 if index == 20 else 100)
        nn.init.kaiming_normal_(dense.weight, nonlinearity="relu")
        nn.init.zeros_(dense.bias)
        layers += [dense] if index == 20 else [dense, nn.ReLU()]
    return nn.Sequential(*layers)


def resnet() -> nn.Module:
    """A small ResNet: a convolution with stride 2, four basic blocks of 12 channels, the mean over pixels, a head."""
    stem = nn.Conv2d(3, 12, 3, stride=2, padding=1)
    return nn.Sequential(
        stem, *(_Block(12) for _ in range(4)), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(12, 10)
    )


def vit() -> nn.Module:
    """A small vision transformer: four blocks of width 48."""
    return SmallViT(width=48, blocks=4, classes=10)


MODELS: Mapping[str, Callable[[], nn.Module]] = {"MLP of 20 layers": mlp, "ResNet": resnet, "ViT": vit}


@dataclass(frozen=True)
class Moved:
    """Of one kind of model: γ before, and after each ρ; gradients and spreads after, over those before."""

    gamma: Number
    after: Mapping[float, Number]
    kept: Mapping[float, Number]  # γ after over γ before
    gradients: Mapping[float, Number]
    spreads: Mapping[float, Number]


def moved(make: Callable[[], nn.Module], images: Data, inits: int, seed: int) -> Piece:
    """Of every initialization: center and spread of logits on held-out points, and squared gradients of logits.

    Logits without what all classes share; centers free of what finite data add. Gradients by all parameters, of logits
    in random directions, the same before and after. Rows: before, then each ρ. BatchNorm by the batch, which is all.
    One half of the images moves the head, the other is held out; which is which is each network's own.
    """
    found: dict[str, list[list[float]]] = {"center": [], "spread": [], "gradient": []}
    half = images.n // 2
    for member in range(inits):
        order = np.random.default_rng([seed, member, 0x0DD]).permutation(images.n)
        points, x = (
            torch.from_numpy(np.array(images.x[own], dtype=np.float32)) for own in (order[:half], order[half:])
        )
        with IsolatedRandomness(int(np.random.SeedSequence([seed, member, 0x4EAD]).generate_state(1)[0])):
            model = make()
            weights = torch.randn(len(x), 10)
        variants = [model, *(head_moved(model, points, part) for part in PARTS)]
        rows = [_numbers(one, x, weights) for one in variants]
        for name, values in zip(found, zip(*rows, strict=True), strict=True):
            found[name].append(list(values))
    return {name: np.array(values) for name, values in found.items()}


def head_moved(model: nn.Module, points: torch.Tensor, part: float) -> nn.Module:
    """A copy whose head has this part of the mean logits on these points taken off, but for what all classes share."""
    found = deepcopy(model)
    head = [module for module in found.modules() if isinstance(module, nn.Linear)][-1]
    with torch.no_grad():
        mean = found.train()(points).mean(0)
        head.bias.sub_(part * (mean - mean.mean()))
    return found


def _numbers(model: nn.Module, x: torch.Tensor, weights: torch.Tensor) -> tuple[float, float, float]:
    model.train()
    out = model(x)
    gradients = torch.autograd.grad((out * weights).sum(), [p for p in model.parameters() if p.requires_grad])
    rows = contrasts(out.detach()).double()
    spread = float(rows.var(0).mean())
    center = float(rows.mean(0).square().mean()) - spread / len(x)
    return center, spread, sum(float(g.double().square().sum()) for g in gradients)


def numbers(piece: Mapping[str, Any]) -> Moved:
    """From a piece of `moved`."""
    center, spread, gradient = (np.asarray(piece[name], dtype=np.float64) for name in ("center", "spread", "gradient"))
    each = {part: row for row, part in enumerate(PARTS, start=1)}
    return Moved(
        ratio(center[:, 0], spread[:, 0]),
        {part: ratio(center[:, k], spread[:, k]) for part, k in each.items()},
        {part: ratio(center[:, k], center[:, 0]) for part, k in each.items()},
        {part: ratio(gradient[:, k], gradient[:, 0]) for part, k in each.items()},
        {part: ratio(spread[:, k], spread[:, 0]) for part, k in each.items()},
    )
