"""Biases and buffers that a constructor draws in its own way, in an instance: re-initialized, or kept and said."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, spectral_norm

import firstguess as fg
from firstguess.data.streams import IsolatedRandomness
from firstguess.modules.members.infer_initializer import ObservedWeights, random_buffers, random_vectors
from firstguess.modules.members.redraw import Redraw

pytestmark = pytest.mark.usefixtures("one_thread")
X = torch.randn(80, 10, generator=torch.Generator().manual_seed(20261116))


class Biases(nn.Module):
    """Every bias is drawn, that of a head of four as well."""

    def __init__(self, std: float = 1.0) -> None:
        super().__init__()
        sizes = (10, 64, 64, 64, 4)
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in itertools.pairwise(sizes))
        for layer in self.layers:
            nn.init.normal_(layer.bias, std=std)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers[:-1]:
            x = torch.relu(layer(x))
        return self.layers[-1](x)


class Shift(nn.Module):
    """A vector of its own, which nothing draws but the constructor."""

    def __init__(self, std: float = 2.0) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(10, 200), nn.Linear(200, 3)
        self.shift = nn.Parameter(std * torch.randn(200))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.two(torch.relu(self.one(x) + self.shift))


class Uniform(nn.Module):
    """As Biases, of another distribution, in convolutions."""

    def __init__(self, std: float = 1.0) -> None:
        super().__init__()
        self.one, self.two, self.head = nn.Conv1d(1, 96, 3), nn.Conv1d(96, 128, 3), nn.Linear(128, 5)
        for layer in (self.one, self.two, self.head):
            nn.init.uniform_(layer.bias, -math.sqrt(3.0) * std, math.sqrt(3.0) * std)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.two(torch.relu(self.one(x[:, None])))).mean(2))


class Head(nn.Module):
    """Only three numbers are drawn: too few to tell how."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.head = nn.Linear(10, 100), nn.Linear(100, 3)
        nn.init.normal_(self.head.bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.one(x)))


def looking_drawn(build: Callable[[], nn.Module], buffers: int = 0) -> nn.Module:
    """An instance all of whose drawn vectors look drawn: one in fifty does not. 20 in a row: never."""
    for _ in range(20):
        model = build()
        said = Redraw(model).findings
        if len(random_buffers(model)) == buffers and {f.kind for f in said} <= {"random values", "random buffers"}:
            return model
    raise AssertionError("no instance looks drawn")


@pytest.mark.parametrize("build", [Biases, Shift, Uniform])
def test_drawn_vectors_are_drawn_anew(build: Callable[..., nn.Module]) -> None:
    """At the size that the instance's own entries have together, in 40 draws: six standard errors of a normal law."""
    model = looking_drawn(build)
    before = {name: value.detach().clone() for name, value in model.named_parameters()}
    redraw = Redraw(model)
    assert [f.kind for f in redraw.findings] == ["random values"]
    names = [name for name in before if name == "shift" or (name.endswith("bias") and build is not Shift)]
    size = torch.cat([before[name] for name in names]).square().mean()
    drawn: dict[str, list[torch.Tensor]] = {name: [] for name in names}
    for seed in range(40):
        with IsolatedRandomness(seed):
            redraw.draw()
        for name, value in model.named_parameters():
            if name in drawn:
                drawn[name].append(value.detach().clone())
    for name, values in drawn.items():
        found = torch.stack(values)
        assert not torch.equal(found[0], found[1])
        assert float(found.square().mean() / size) == pytest.approx(1.0, abs=6 * math.sqrt(2 / found.numel())), name


@pytest.mark.parametrize("build", [Biases, Shift, Uniform])
def test_an_instance_is_as_its_class_at_its_size(build: Callable[..., nn.Module]) -> None:
    """γ and the average largest fraction, 100 initializations each: 5.5 standard errors (4e-8)."""
    model = looking_drawn(build)
    own = [p for name, p in model.named_parameters() if name == "shift" or ("bias" in name and build is not Shift)]
    std = float(torch.cat([p.detach() for p in own]).square().mean().sqrt())
    one, two = fg.measure(model, X, inits=100), fg.measure(lambda: build(std), X, inits=100, seed=1)
    assert abs(one.gamma[-1] - two.gamma[-1]) <= 5.5 * math.hypot(one.gamma_se[-1], two.gamma_se[-1])
    apart = abs(one.guesses.expected_max() - two.guesses.expected_max())
    assert apart <= 5.5 * math.hypot(*(m.guesses.standard_error("expected_max") for m in (one, two)))


def test_few_numbers_are_kept_and_that_is_said() -> None:
    model = Head()
    with torch.no_grad():
        model.head.bias.copy_(torch.tensor([0.5, -1.2, 0.9]))
    found = fg.measure(model, X, inits=5)
    (said,) = [f for f in found.findings if f.kind == "kept values"]
    assert said.layer == "head.bias"
    assert "intervals hold for these values alone; pass the class" in said.message


@pytest.mark.parametrize(
    "value",
    [
        torch.linspace(-1, 1, 64),
        torch.sin(torch.arange(64.0)),
        torch.log(1 / torch.arange(1, 65.0)),
        torch.cat([torch.ones(16), torch.zeros(48)]),
        torch.cat([torch.zeros(60), torch.tensor([1.0, 2.0, 3.0, 4.0])]),
        torch.randn(20),
    ],
)
def test_what_does_not_look_drawn(value: torch.Tensor) -> None:
    assert random_vectors([ObservedWeights.of("bias", value)]) == []


def test_how_often_drawn_vectors_look_drawn() -> None:
    """Normal vectors fail one of the tests in less than 5 %: of 400 more than 50 do with chance 1e-9."""
    generator = torch.Generator().manual_seed(20261116)
    kept = sum(not random_vectors([ObservedWeights.of("b", torch.randn(64, generator=generator))]) for _ in range(400))
    assert kept <= 50


class Fourier(nn.Module):
    """Random Fourier features."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("frequencies", torch.randn(10, 64))
        self.register_buffer("phases", 2 * math.pi * torch.rand(64))
        self.head = nn.Linear(64, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.cos(x @ self.get_buffer("frequencies") + self.get_buffer("phases")))


class Projection(nn.Module):
    """A fixed orthogonal projection."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("basis", nn.init.orthogonal_(torch.empty(40, 10)))
        self.head = nn.Sequential(nn.ReLU(), nn.Linear(40, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(x @ self.get_buffer("basis").T)


class OwnReset(Fourier):
    """Its own method draws the buffer as well."""

    def reset_parameters(self) -> None:
        self.get_buffer("frequencies").normal_()
        self.get_buffer("phases").uniform_(0, 2 * math.pi)


@pytest.mark.parametrize(("build", "names"), [(Fourier, {"frequencies", "phases"}), (Projection, {"basis"})])
def test_random_buffers_are_held_and_that_is_said(build: Callable[[], nn.Module], names: set[str]) -> None:
    found = fg.measure(looking_drawn(build, buffers=len(names)), X, inits=5)
    (said,) = found.findings
    assert said.kind == "random buffers"
    assert said.layer in names
    assert "every initialization has this instance's own" in said.message
    assert not fg.measure(build, X, inits=5).findings


def test_buffers_that_are_drawn_or_not_random() -> None:
    assert not Redraw(looking_drawn(OwnReset, buffers=2)).findings
    place, step = torch.arange(50.0)[:, None], torch.exp(-torch.arange(0, 32, 2) / 4)
    others = nn.ModuleList([
        nn.BatchNorm1d(64), spectral_norm(nn.Linear(64, 64)), parametrizations.spectral_norm(nn.Linear(64, 64)),
    ])  # fmt: skip
    others.register_buffer("encoding", torch.stack([torch.sin(place * step), torch.cos(place * step)], 2).flatten(1))
    others.register_buffer("frequencies", 10_000.0 ** (-torch.arange(0, 64, 2) / 64))
    others.register_buffer("mask", torch.ones(20, 20).tril())
    others.register_buffer("index", torch.arange(100))
    others[0].running_mean.normal_()
    assert random_buffers(others) == {}
