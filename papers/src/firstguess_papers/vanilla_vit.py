"""A vision transformer without norms and skip connections, and gradients at its blocks: MF's vanilla ViT."""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from firstguess_papers.library import loss_gradient

ALL, FAVOURED, OTHERS = range(3)


class Block(nn.Module):
    """Attention with one head, then two dense layers with ReLU between them: nothing else."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query, self.key, self.value, self.mix, self.first, self.second = (
            nn.Linear(width, width, bias=False) for _ in range(6)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores = self.query(x) @ self.key(x).transpose(1, 2) / math.sqrt(x.shape[2])
        x = self.mix(torch.softmax(scores, dim=2) @ self.value(x))
        return self.second(torch.relu(self.first(x)))


class VanillaViT(nn.Module):
    """Patches of 4 × 4 pixels, `blocks` blocks, the mean over tokens, an output layer. No biases, no positions.

    All weights are N(0, weight_var/fan_in), drawn from (seed, member) as standard normal numbers and scaled: networks
    that differ in weight_var alone have the same directions.
    """

    def __init__(self, *, width: int, blocks: int, classes: int, weight_var: float, seed: int, member: int) -> None:
        super().__init__()
        self.embed = nn.Linear(48, width, bias=False)
        self.blocks = nn.ModuleList(Block(width) for _ in range(blocks))
        self.head = nn.Linear(width, classes, bias=False)
        generator = torch.Generator()
        generator.manual_seed(int(np.random.SeedSequence([seed, member]).generate_state(1, np.uint64)[0] >> 1))
        with torch.no_grad():
            for weight in self.parameters():
                weight.normal_(generator=generator).mul_(math.sqrt(weight_var / weight.shape[1]))

    def states(self, images: torch.Tensor) -> list[torch.Tensor]:
        """The tokens after every block, (points, tokens, width), and the logits last; `images` (points, 3, 32, 32)."""
        x = self.embed(nn.functional.unfold(images, 4, stride=4).transpose(1, 2))
        found: list[torch.Tensor] = []
        for block in self.blocks:
            x = block(x)
            found.append(x)
        return [*found, self.head(x.mean(dim=1))]

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """The logits."""
        return self.states(images)[-1]


def block_gradients(model: VanillaViT, images: torch.Tensor, labels: torch.Tensor) -> NDArray[np.float64]:
    """(blocks, 5): mean squares of the gradient at each block's tokens (all points, the favoured class's, the others'),
    the mean square of the tokens, and their correlation within one image (1: all tokens alike).

    The loss is the sum over points of the cross-entropy; a group without points is NaN.
    """
    *tokens, logits = model.states(images)
    for x in tokens:
        x.retain_grad()
    logits.backward(loss_gradient(logits, labels).to(logits.dtype))
    guessed = logits.argmax(dim=1)
    favoured = labels == guessed.mode().values
    rows: list[list[float]] = []
    for x in tokens:
        assert x.grad is not None
        squares = (x.grad.double() ** 2).mean(dim=(1, 2))
        groups = [squares, squares[favoured], squares[~favoured]]
        value = x.detach().double()
        total = float((value**2).mean())
        alike = float((value.mean(dim=1) ** 2).mean()) / total
        rows.append([float(g.mean()) if len(g) else math.nan for g in groups] + [total, alike])
    return np.array(rows)
