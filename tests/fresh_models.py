"""Ten architectures as their constructors leave them: what nobody may call faulty."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch
from faulty_models import Attention, Conv, Dense, Encoder, noise
from torch import nn


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.convs = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x + self.convs(x))


class ResNet(nn.Sequential):
    def __init__(self, blocks: int, classes: int) -> None:
        stem = (nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU())
        pool = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, classes))
        super().__init__(*stem, *(Block(16) for _ in range(blocks)), *pool)


class Recurrent(nn.Module):
    def __init__(self, kind: str, classes: int) -> None:
        super().__init__()
        self.cells = getattr(nn, kind)(16, 24, num_layers=2, batch_first=True)
        self.head = nn.Linear(24, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.cells(x)[0][:, -1])


class Texts(nn.Module):
    def __init__(self, classes: int) -> None:
        super().__init__()
        self.embed, self.places = nn.Embedding(50, 16, padding_idx=0), nn.Embedding(6, 16)
        self.encoder = Encoder(classes=classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.encoder(self.embed(x) + self.places(torch.arange(6)))


class Mixer(nn.Module):
    """Tokens and channels mixed in turn, with GELU and LayerNorm."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(16) for _ in range(4))
        self.tokens = nn.ModuleList(
            nn.Sequential(nn.Linear(6, 12), nn.GELU(), nn.Dropout(0.1), nn.Linear(12, 6)) for _ in range(2)
        )
        self.channels = nn.ModuleList(nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16)) for _ in range(2))
        self.head = nn.Linear(16, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for i in range(2):
            x = x + self.tokens[i](self.norms[2 * i](x).mT).mT
            x = x + self.channels[i](self.norms[2 * i + 1](x))
        return self.head(x.mean(1))


def deep(depth: int, classes: int, act: Callable[[], nn.Module]) -> nn.Sequential:
    widths = [20, *[40] * depth]
    hidden = (layer for a, b in itertools.pairwise(widths) for layer in (nn.Linear(a, b), act()))
    return nn.Sequential(*hidden, nn.Linear(40, classes))


class Squeezed(nn.Module):
    """Channels weighted by a squeeze and excitation of four units, which may all be off."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 16, 3), nn.GroupNorm(4, 16)
        self.gate = nn.Sequential(nn.Linear(16, 4), nn.ReLU(), nn.Linear(4, 16), nn.Sigmoid())
        self.head = nn.Linear(16, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.norm(self.conv(x)))
        return self.head((x * self.gate(x.mean((2, 3)))[..., None, None]).mean((2, 3)))


def vectors(seed: int) -> torch.Tensor:
    return noise(128, 20, seed=seed)


def images(seed: int) -> torch.Tensor:
    return noise(128, 3, 8, 8, seed=seed)


def sequences(seed: int) -> torch.Tensor:
    return noise(128, 6, 16, seed=seed)


def tokens(seed: int) -> torch.Tensor:
    return torch.randint(0, 50, (128, 6), generator=torch.Generator().manual_seed(seed))


_ACTS = (nn.ReLU, nn.Tanh, nn.GELU, nn.SiLU)

# Architecture -> (its k-th variant, its inputs).
FRESH: dict[str, tuple[Callable[[int], nn.Module], Callable[[int], Any]]] = {
    "MLP": (lambda k: Dense(_ACTS[k % 4], classes=2 + k % 9), vectors),
    "deep MLP": (lambda k: deep(5 + k % 10, 2 + k % 9, _ACTS[k % 4]), vectors),
    "MLP with BatchNorm": (lambda k: Dense(_ACTS[k % 4], norm=True, classes=2 + k % 9), vectors),
    "CNN": (lambda k: Conv(_ACTS[k % 4], classes=2 + k % 9), images),
    "CNN with BatchNorm": (lambda k: Conv(_ACTS[k % 4], norm=True, classes=2 + k % 9), images),
    "ResNet": (lambda k: ResNet(1 + k % 3, 2 + k % 9), images),
    "squeeze and excitation": (lambda k: Squeezed(2 + k % 9), images),
    "transformer": (lambda k: Attention(_ACTS[k % 4], classes=2 + k % 9) if k % 2 else Encoder(classes=3), sequences),
    "text transformer": (lambda k: Texts(2 + k % 9), tokens),
    "recurrent or mixer": (
        lambda k: Mixer(2 + k % 9) if k % 3 == 0 else Recurrent(("LSTM", "GRU", "RNN")[k % 3], 2 + k % 9),
        sequences,
    ),
}
