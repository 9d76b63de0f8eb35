"""A small vision transformer of the usual kind (norms first, skips, GELU), and a plain loop that trains it."""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from firstguess_papers.library import orders


class Block(nn.Module):
    """LayerNorm, attention with two heads, skip; LayerNorm, two dense layers with GELU, skip."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.mix = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.first, self.second = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n, tokens, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).reshape(n, tokens, 3, 2, width // 2).permute(2, 0, 3, 1, 4)
        seen = torch.softmax(q @ k.transpose(2, 3) / math.sqrt(width // 2), dim=3) @ v
        x = x + self.mix(seen.transpose(1, 2).reshape(n, tokens, width))
        return x + self.second(nn.functional.gelu(self.first(self.norm2(x))))


class SmallViT(nn.Module):
    """Patches of 4 × 4 pixels with learned positions, `blocks` blocks, LayerNorm, the mean over tokens, a head."""

    def __init__(self, *, width: int, blocks: int, classes: int) -> None:
        super().__init__()
        self.embed = nn.Linear(48, width)
        self.positions = nn.Parameter(0.02 * torch.randn(64, width))
        self.blocks = nn.Sequential(*(Block(width) for _ in range(blocks)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        patches = nn.functional.unfold(images, 4, stride=4).transpose(1, 2)
        return self.head(self.norm(self.blocks(self.embed(patches) + self.positions)).mean(dim=1))


def made(seed: int, *, width: int, blocks: int, classes: int) -> SmallViT:
    """A network with weights from a generator of its own; torch's is as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(int(np.random.SeedSequence([seed, 0x517]).generate_state(1)[0]))
        return SmallViT(width=width, blocks=blocks, classes=classes)


def pretrain(
    model: SmallViT, images: torch.Tensor, labels: torch.Tensor, *, seed: int, steps: int, batch: int, lr: float
) -> None:
    """So many steps of Adam on the cross-entropy, the rate falling to 0 along a cosine."""
    optimizer = torch.optim.Adam(model.parameters(), lr=lr)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps)
    order = orders(seed, 0, len(labels), batch)
    for _ in range(steps):
        rows = torch.from_numpy(next(order))
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images[rows]), labels[rows]).backward()
        optimizer.step()
        schedule.step()


def accuracy(model: SmallViT, images: torch.Tensor, labels: torch.Tensor) -> float:
    """On these images."""
    with torch.inference_mode():
        return float((model(images).argmax(dim=1) == labels).double().mean())


def weights_of(model: SmallViT) -> NDArray[np.float32]:
    """All parameters, one after the other: for a piece."""
    return nn.utils.parameters_to_vector(model.parameters()).detach().numpy()


def set_weights(model: SmallViT, weights: NDArray[np.float64]) -> None:
    """The inverse of `weights_of`."""
    nn.utils.vector_to_parameters(torch.tensor(weights, dtype=torch.float32), model.parameters())
