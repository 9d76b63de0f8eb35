"""Inputs, labels and a small network for tests of models."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


def points(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def some_labels(n: int, classes: int) -> torch.Tensor:
    return torch.arange(n) % classes


def kinds(members: Any) -> set[str]:
    return {finding.kind for finding in members.findings}


def mlp(classes: int = 3) -> nn.Sequential:
    return nn.Sequential(nn.Linear(10, 30), nn.ReLU(), nn.Linear(30, 20), nn.Tanh(), nn.Linear(20, classes))


def unshared(logits: torch.Tensor) -> torch.Tensor:
    """Logits (points, classes) without what all classes share, at the scale of independent ones (theory.md (38))."""
    classes = logits.shape[1]
    return (logits - logits.mean(1, keepdim=True)) * (classes / (classes - 1)) ** 0.5
