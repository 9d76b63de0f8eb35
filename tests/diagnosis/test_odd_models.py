"""Models that keep tensors of a call, take whole graphs or ids among floats, or draw their weights themselves."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch
from torch import nn

import firstguess as fg

X = torch.randn(64, 20, generator=torch.Generator().manual_seed(1))


class Leaky(nn.Module):
    """A spiking neuron that keeps its membrane potential, as snntorch has it."""

    def __init__(self) -> None:
        super().__init__()
        self.potential: torch.Tensor | float = 0.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if isinstance(self.potential, torch.Tensor) and self.potential.shape != x.shape:
            self.potential = 0.0
        self.potential = 0.9 * self.potential + x
        return (self.potential > 0).float()


class Remembering(nn.Module):
    """Its latest output is an attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.head, self.latest = nn.Linear(20, 4), torch.zeros(())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.latest = self.head(x) + 0.1 * self.latest.mean()
        return self.latest


def spiking() -> nn.Module:
    return nn.Sequential(nn.Linear(20, 32), Leaky(), nn.Linear(32, 4))


def spectral() -> nn.Module:
    norm = nn.utils.spectral_norm
    return nn.Sequential(norm(nn.Linear(20, 32)), nn.ReLU(), norm(nn.Linear(32, 4)))


@pytest.mark.filterwarnings("ignore:.*spectral_norm.*")
@pytest.mark.parametrize("make", [spiking, spectral, Remembering])
def test_a_vmapped_call_leaves_nothing_behind(make: Callable[[], nn.Module]) -> None:
    torch.manual_seed(0)
    model = make()
    assert fg.measure(model, X, inits=20).inits == 20
    assert fg.explain_guess(model, X, seconds=60).points == 64
    assert fg.diagnose(model, X, seconds=6, inits=12).measurement.inits == 12
    assert model(X).shape == (64, 4)


class Graph(nn.Module):
    """Averages over the neighbours of 64 nodes on a ring: all of them, or none."""

    def __init__(self, units: int = 32, own: float = 1.0) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(20, units), nn.Linear(units, 4)
        ring = torch.eye(64) * own + torch.eye(64).roll(1, 0) + torch.eye(64).roll(-1, 0)
        self.register_buffer("ring", ring / ring.sum(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.ring @ self.two(torch.relu(self.ring @ self.one(x)))


@pytest.mark.parametrize("options", [{}, {"units": 8}, {"own": 0.0}])
@pytest.mark.parametrize("shift", [0.0, 5.0])
def test_a_whole_graph_is_explained(options: dict[str, float], shift: float) -> None:
    torch.manual_seed(0)
    model = Graph(**options)  # type: ignore[arg-type]
    e = fg.explain_guess(model, X + shift, seconds=60)
    assert e.points == 64
    assert e.fractions == pytest.approx((model(X + shift).argmax(1).bincount(minlength=4) / 64).tolist())


class Categories(nn.Module):
    """Floats, of which the first columns are ids, as deepctr has it; a head that favours one class by far."""

    def __init__(self, ids: int = 3) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(10, 8) for _ in range(ids))
        self.head = nn.Linear(8 * ids + 4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = [table(x[:, i].long()) for i, table in enumerate(self.tables)]
        return self.head(torch.cat([*found, 8 + x[:, len(found) :]], 1))


@pytest.mark.parametrize("ids", [1, 3, 5])
def test_ids_among_floats_are_not_centred(ids: int) -> None:
    stream = torch.Generator().manual_seed(3)
    x = torch.cat([torch.randint(0, 10, (200, ids), generator=stream).float(), torch.rand(200, 4, generator=stream)], 1)
    for seed in range(3):
        torch.manual_seed(seed)
        assert fg.explain_guess(Categories(ids), x, seconds=60).points == 200


class Clicks(Categories):
    """The same as a probability, as click predictors end."""

    def __init__(self, ids: int) -> None:
        super().__init__(ids)
        self.body, self.head = nn.Linear(8 * ids + 4, 32), nn.Linear(32, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = [table(x[:, i].long()) for i, table in enumerate(self.tables)]
        return torch.sigmoid(self.head(torch.relu(self.body(torch.cat([*found, x[:, len(found) :]], 1)))))


@pytest.mark.parametrize("ids", [1, 3])
def test_inputs_that_cannot_be_centred_leave_the_other_causes(ids: int) -> None:
    """One step cannot be taken away, and all effects were lost: "causes were not tried, because time was short"."""
    stream = torch.Generator().manual_seed(3)
    x = torch.cat([torch.randint(0, 10, (200, ids), generator=stream).float(), torch.rand(200, 4, generator=stream)], 1)
    d = fg.diagnose(lambda: Clicks(ids), x, seconds=60, inits=16)
    assert any(cause.tried for cause in d.causes)
    page = " ".join(str(d).split())
    assert "time was short" not in page
    assert "read as two classes by its sign" not in page  # it is a probability, decided at ½
    assert ("the data themselves" in page) == ("separated from the rest" in page)


class Rand(nn.Module):
    def __init__(self, classes: int = 3, shift: float = 0.0) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.rand(20, classes) + shift)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight


@pytest.mark.parametrize("options", [{}, {"classes": 2}, {"shift": -0.5}])
def test_of_one_model_nothing_is_expected(options: dict[str, float]) -> None:
    """Weights by torch.rand have no initializer that could draw them again."""
    torch.manual_seed(0)
    model = Rand(**options)  # type: ignore[arg-type]
    told = str(fg.explain_guess(model, X + 3.0, seconds=60))
    assert not re.search(r"100(\.0)? % of (all|[0-9]+ init)|of 1 init|± 0\b|expected from architecture", told)
    assert "a function that builds the model" in " ".join(told.split())
    assert "nan" not in str(fg.measure(model, X, inits=5))
    for ask in (fg.diagnose, fg.assert_even):
        with pytest.raises(fg.InvalidInput, match="a function that builds the model, or its class"):
            ask(model, X)
    assert fg.measure(lambda: Rand(**options), X, inits=5).inits == 5  # type: ignore[arg-type]


def test_the_same_finding_of_many_layers_is_one_line() -> None:
    class Deep(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(Rand(20) for _ in range(10))
            self.head = nn.Linear(20, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in self.layers:
                x = torch.tanh(layer(x))
            return self.head(x)

    told = str(fg.measure(Deep(), X, inits=5))
    told = " ".join(told.split())
    assert told.count("no initializer draws all") == 1
    assert "and 7 more" in told
