"""Layers that were copied after they were drawn, and models of which nothing is drawn."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

import firstguess as fg
from firstguess.data.streams import IsolatedRandomness
from firstguess.ensemble.member_statistics import FindingKind
from firstguess.modules.members.infer_initializer import clones
from firstguess.modules.members.redraw import Redraw

pytestmark = pytest.mark.usefixtures("one_thread")
INITS = 150


class Encoder(nn.Module):
    """nn.TransformerEncoder deep-copies its layer."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(8, 16)
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
        self.head = nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.encoder(self.embed(x)).mean(1))


class Copies(nn.Module):
    """A block and its deep copies: one random map, many times."""

    def __init__(self) -> None:
        super().__init__()
        block = nn.Sequential(nn.Linear(8, 8), nn.Tanh())
        self.blocks = nn.Sequential(*(copy.deepcopy(block) for _ in range(8)))
        self.head = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.blocks(x).mean(1))


class OnlyBiases(Copies):
    """As in nn.Transformer: weights are drawn again after copying, biases are not."""

    def __init__(self) -> None:
        super().__init__()
        for parameter in self.parameters():
            if parameter.ndim > 1:
                nn.init.xavier_uniform_(parameter)


def points() -> torch.Tensor:
    return torch.randn(40, 5, 8, generator=torch.Generator().manual_seed(20261116))


def own_loop(build: Callable[[], nn.Module], x: torch.Tensor) -> tuple[float, float]:
    """E max G and its standard error: build, run, count."""
    largest: list[float] = []
    for seed in range(INITS):
        with IsolatedRandomness(10_000 + seed), torch.no_grad():
            guesses = build().eval()(x).argmax(1)
        largest.append(float(torch.bincount(guesses).max()) / len(x))
    return float(np.mean(largest)), float(np.std(largest, ddof=1)) / math.sqrt(INITS)


@pytest.mark.parametrize("build", [Encoder, Copies, OnlyBiases])
def test_an_instance_is_as_its_class(build: Callable[[], nn.Module]) -> None:
    """E max of the re-initialized instance and of a plain loop over the constructor: 4.9 standard errors."""
    x = points()
    found = fg.measure(build(), x, inits=INITS)
    own, error = own_loop(build, x)
    apart = abs(found.guesses.expected_max() - own)
    assert apart <= 4.9 * math.hypot(error, found.guesses.standard_error("expected_max"))
    (said,) = [finding for finding in found.findings if finding.kind is FindingKind.CLONED]
    assert "keeps them equal" in said.message


def test_copies_stay_equal_and_are_drawn() -> None:
    model = Copies()
    redraw = Redraw(model)
    with IsolatedRandomness(1):
        redraw.draw()
    first, *others = [block[0].weight for block in model.blocks]
    once = first.detach().clone()
    assert all(torch.equal(first, other) for other in others)
    with IsolatedRandomness(2):
        redraw.draw()
    assert all(torch.equal(first, other) for other in others)
    assert not torch.equal(first, once)


def test_what_is_no_copy() -> None:
    """Layers of their own, ones and zeros of norms, one value, and what init= draws."""
    apart = nn.Sequential(*(nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8)) for _ in range(3)), nn.Linear(8, 1))
    assert not [f for f in Redraw(apart).findings if f.kind is FindingKind.CLONED]
    assert clones({"a": torch.ones(5), "b": torch.ones(5), "c": torch.eye(6), "d": torch.eye(6)}) == {}
    value = torch.randn(7)
    assert clones({"a": value, "b": torch.randn(7), "c": value.clone(), "d": value.double()}) == {"c": "a"}
    model = Copies()
    redraw = Redraw(model, init="kaiming_normal")
    assert not [f for f in redraw.findings if f.kind is FindingKind.CLONED and f.layer.endswith("weight")]


class RandomBuffer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", torch.randn(4, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.get_buffer("weight").T


class NoParameters(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[:, :3]


class Loaded(nn.Module):
    """A parameter that nothing draws."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight.T


@pytest.mark.parametrize("build", [RandomBuffer, NoParameters, Loaded])
def test_nothing_was_redrawn(build: Callable[[], nn.Module]) -> None:
    """All members are one model: that is said, and there is no error bar instead of one of zero."""
    model, x = build(), torch.randn(50, 8)
    found = fg.measure(model, x, inits=12)
    assert [
        f for f in found.findings if f.kind is FindingKind.NOTHING_DRAWN and "nothing was re-initialized" in f.message
    ]
    assert found.guesses.inits == 1
    assert math.isnan(found.guesses.interval("expected_max")[0])
    assert not (found.gamma_se == 0.0).any()
    guesses = torch.bincount(model(x).argmax(1), minlength=found.guesses.classes) / 50
    assert np.allclose(found.guesses.fractions[0], guesses.numpy(), atol=1.5 / 50)


def test_a_class_with_random_buffers_is_an_ensemble() -> None:
    found = fg.measure(RandomBuffer, torch.randn(50, 8), inits=12)
    assert found.guesses.inits == 12
    assert not found.findings
