"""Models that fail on a few points of a batch: trials leave no trace, and numbers are those of a plain loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from small_models import points
from torch import nn

import firstguess as fg
from firstguess.ensemble.seeds import member_seeds

pytestmark = pytest.mark.usefixtures("one_thread")

INITS, NODES = 8, 300


def graph() -> torch.Tensor:
    """A row-normalized adjacency matrix with self-loops."""
    links = (torch.rand(NODES, NODES, generator=torch.Generator().manual_seed(1)) < 0.02).float() + torch.eye(NODES)
    return links / links.sum(1, keepdim=True)


class Graph(nn.Module):
    """A graph convolutional network on the whole graph."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(16, 32), nn.Linear(32, 4)

    def forward(self, x: torch.Tensor, adj: torch.Tensor) -> torch.Tensor:
        return adj @ self.two(torch.relu(adj @ self.one(x)))


class Transposed(Graph):
    """On a few points it does run, and returns a row for each of all nodes."""

    def forward(self, x: torch.Tensor, adj: torch.Tensor) -> torch.Tensor:
        return adj.T @ self.two(torch.relu(self.one(x)))


class Cached(Graph):
    """Keeps what it made of the first graph it saw, and counts its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: torch.Tensor | None = None
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor, adj: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        if self.kept is None:
            self.kept = adj * 1.0
        h = self.two(torch.relu(self.one(x)))
        return self.kept @ h * self.calls / self.calls


class View(nn.Module):
    """A hard-coded batch of 40."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(16, 50), nn.Linear(50, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.two(torch.relu(self.one(x)).view(40, 50))


class Late(nn.Module):
    """It fails after a norm of the batch, after all its other layers were called."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.norm, self.two = nn.Linear(16, 50), nn.BatchNorm1d(50), nn.Linear(50, 4)
        self.scale = nn.Parameter(torch.ones(40, 1), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.two(self.norm(self.one(x))) * self.scale


GRAPH = {"x": points(NODES, 16), "adj": graph()}
FORTIES = list(points(200, 16).split(40))
MODELS: dict[str, tuple[type[nn.Module], list[Any], list[str]]] = {
    "graph": (Graph, [GRAPH], ["one", "two", "(output)"]),
    "transposed": (Transposed, [GRAPH], ["one", "two", "(output)"]),
    "cached": (Cached, [GRAPH], ["one", "two", "(output)"]),
    "view": (View, FORTIES, ["one", "two"]),
    "late": (Late, FORTIES, ["one", "norm", "two", "(model)"]),
}


def loop(make: Callable[[], nn.Module], data: list[Any]) -> tuple[np.ndarray, float]:
    """Fractions and γ of the output, centred over classes."""
    shares, center, spread = [], 0.0, 0.0
    for seed in member_seeds(0, 0, INITS):
        with torch.random.fork_rng(), torch.no_grad():
            torch.manual_seed(int(seed))
            model = make()
            z = torch.cat([model(**b) if isinstance(b, dict) else model(b) for b in data]).double().numpy()
        shares.append(np.bincount(z.argmax(1), minlength=4) / len(z))
        z = z - z.mean(1)[:, None]
        center += np.mean(z.mean(0) ** 2 - z.var(0, ddof=1) / len(z))
        spread += np.mean(z.var(0, ddof=1))
    return np.array(shares), center / spread


@pytest.mark.parametrize("name", MODELS)
def test_numbers_are_those_of_a_plain_loop(name: str) -> None:
    make, data, layers = MODELS[name]
    m = fg.measure(make, data, inits=INITS)
    assert [layer.name for layer in m.layers] == layers
    assert not [f for f in m.findings if f.kind == "control flow"]
    shares, gamma = loop(make, data)
    np.testing.assert_allclose(m.guesses.fractions, shares, atol=1.5 / m.points)
    assert m.layers[-1].gamma == pytest.approx(gamma, rel=1e-4)


@pytest.mark.parametrize("name", MODELS)
def test_an_instance_in_both_ways(name: str) -> None:
    make, data, layers = MODELS[name]
    model = make()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    m = fg.measure(model, data, inits=INITS, strategy="loop")
    assert [layer.name for layer in m.layers] == layers
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    if name != "cached":  # what vmap's first call keeps is vmap's
        other = fg.measure(model, data, inits=INITS, strategy="vmap")
        assert other.layers[-1].gamma == pytest.approx(m.layers[-1].gamma, rel=1e-4)


def test_a_whole_graph_is_not_split_to_save_memory() -> None:
    m = fg.measure(Graph, [GRAPH], inits=2, memory=1e4)
    assert m.points == NODES


def test_causes_of_a_whole_graph() -> None:
    d = fg.diagnose(Graph(), [GRAPH], seconds=3, advice=False)
    assert d.causes
    assert not [f for f in d.findings if "control flow" in str(f)]
