"""Models and data as people have them, each with a loop of plain PyTorch: what `docs/models.md` shows, and a slow test.

`own` knows nothing of firstguess: it seeds torch, builds the model, calls it on its batches, and counts.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

POINTS, FEATURES, CLASSES = 192, 12, 4


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


X, Y = normal(POINTS, FEATURES) + 0.5, torch.arange(POINTS) % CLASSES
IMAGES = normal(POINTS, 3, 8, 8, seed=1) + 0.3
TOKENS = torch.randint(1, 50, (POINTS, 9), generator=torch.Generator().manual_seed(2))
CUTS = tuple(range(0, POINTS, 64))


class MLP(nn.Module):
    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.one, self.two, self.head = nn.Linear(FEATURES, width), nn.Linear(width, width), nn.Linear(width, CLASSES)

    def forward(self, x: torch.Tensor) -> Any:
        return self.head(F.relu(self.two(F.relu(self.one(x)))))


class TwoTowers(MLP):
    def forward(self, left: torch.Tensor, right: torch.Tensor) -> Any:
        return self.head(F.relu(self.two(F.relu(self.one(left)) * torch.sigmoid(self.one(right)))))


class Pair(TwoTowers):
    """One argument, a tuple."""

    def forward(self, pair: tuple[torch.Tensor, torch.Tensor]) -> Any:
        return super().forward(*pair)


class Dict(MLP):
    """One argument, the batch as the loader gives it; it also looks at the labels and the paths."""

    def forward(self, batch: dict[str, Any]) -> Any:
        assert len(batch["y"]) == len(batch["path"]) == len(batch["x"])
        return super().forward(batch["x"])


@dataclass
class Output:
    hidden: torch.Tensor
    logits: torch.Tensor


class Structured(MLP):
    def forward(self, x: torch.Tensor) -> Output:
        hidden = F.relu(self.one(x))
        return Output(hidden, self.head(F.relu(self.two(hidden))))


class Bytes(MLP):
    """Takes bytes, and makes floats of them itself."""

    def forward(self, x: torch.Tensor) -> Any:
        return super().forward(x.float() / 255)


class WeightNorm(MLP):
    def __init__(self) -> None:
        super().__init__()
        for name in ("one", "two"):
            setattr(self, name, parametrizations.weight_norm(getattr(self, name)))


class Experts(nn.Module):
    """A mixture: the two best of four experts, weighted by the gate."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.gate, self.head = nn.Linear(FEATURES, 32), nn.Linear(32, 4), nn.Linear(32, CLASSES)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(32, 32), nn.ReLU()) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = F.relu(self.inner(x))
        best, which = self.gate(h).softmax(1).topk(2, dim=1)
        weights = torch.zeros(len(h), 4).scatter(1, which, best)
        return self.head(sum(weights[:, i, None] * expert(h) for i, expert in enumerate(self.experts)))


class LoRA(nn.Module):
    """A linear layer and a low-rank change of it that starts at 0."""

    def __init__(self, inputs: int, outputs: int, rank: int = 4) -> None:
        super().__init__()
        self.base = nn.Linear(inputs, outputs)
        self.base.weight.requires_grad_(False)
        self.down, self.up = nn.Linear(inputs, rank, bias=False), nn.Linear(rank, outputs, bias=False)
        nn.init.zeros_(self.up.weight)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base(x) + self.up(self.down(x))


class Sine(nn.Module):
    """A layer of SIREN, with its own initialization."""

    def __init__(self, inputs: int, outputs: int, *, first: bool = False) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)
        bound = 1 / inputs if first else math.sqrt(6 / inputs) / 30
        nn.init.uniform_(self.linear.weight, -bound, bound)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sin(30 * self.linear(x))


class ResNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.head = nn.Conv2d(3, 8, 3, padding=1), nn.Linear(8, CLASSES)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1)) for _ in range(3)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = x + block(x)
        return self.head(x.mean((2, 3)))


class Transformer(nn.Module):
    """`nn.TransformerEncoder` copies its layer: all start with the same weights."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 16)
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 3, enable_nested_tensor=False)
        self.head = nn.Linear(16, CLASSES)

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.encoder(self.embedding(input_ids)).mean(1))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.gru, self.head = nn.Embedding(50, 16), nn.GRU(16, 24, batch_first=True), nn.Linear(24, 4)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.gru(self.embedding(tokens))[0][:, -1])


class Graph(nn.Module):
    """On the whole graph at once."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(FEATURES, 32), nn.Linear(32, CLASSES)

    def forward(self, x: torch.Tensor, adj: torch.Tensor) -> torch.Tensor:
        return adj @ self.two(F.relu(adj @ self.one(x)))


class Tied(nn.Module):
    """An autoencoder whose decoder is the encoder transposed, with a head on its code."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.head = nn.Linear(FEATURES, 32), nn.Linear(FEATURES, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(F.relu(F.linear(F.relu(self.encoder(x)), self.encoder.weight.T)))


class Item(NamedTuple):
    image: torch.Tensor
    label: torch.Tensor


class Named(Dataset[Any]):
    """Each point with its path, as image folders have them."""

    def __len__(self) -> int:
        return POINTS

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"x": X[index], "y": int(Y[index]), "path": Path(f"images/{index}.png")}


class Endless(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        while True:
            yield from zip(X, Y, strict=True)


def generator() -> Iterator[Any]:
    while True:
        yield from zip(X.split(64), Y.split(64), strict=True)


def adjacency() -> torch.Tensor:
    links = (torch.rand(POINTS, POINTS, generator=torch.Generator().manual_seed(3)) < 0.03).float() + torch.eye(POINTS)
    return links / links.sum(1, keepdim=True)


def quantized() -> nn.Module:
    from torch.ao.quantization import quantize_dynamic

    model = nn.Sequential(nn.Linear(FEATURES, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, CLASSES))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch is about to move it to another package
        return quantize_dynamic(model.eval(), {nn.Linear}, dtype=torch.qint8)


@dataclass(frozen=True)
class Row:
    """A model, the data that firstguess gets, and the batches and the call of the own loop."""

    make: Callable[[], nn.Module]
    data: Callable[[], Any]
    batches: list[Any]
    call: Callable[[nn.Module, Any], torch.Tensor]
    options: dict[str, Any] = field(default_factory=dict[str, Any])
    fixed: bool = False  # an instance has nothing that can be drawn again, which a finding says


def cut(x: torch.Tensor) -> list[torch.Tensor]:
    return list(x.split(64))


def plain(model: nn.Module, x: Any) -> torch.Tensor:
    return model(x)


def siren() -> nn.Module:
    return nn.Sequential(Sine(FEATURES, 32, first=True), Sine(32, 32), nn.Linear(32, CLASSES))


def lora() -> nn.Module:
    return nn.Sequential(LoRA(FEATURES, 32), nn.ReLU(), LoRA(32, 32), nn.ReLU(), nn.Linear(32, CLASSES))


def lazy() -> nn.Module:
    return nn.Sequential(nn.LazyLinear(32), nn.ReLU(), nn.LazyLinear(32), nn.ReLU(), nn.LazyLinear(CLASSES))


def mixer() -> nn.Module:
    tokens = nn.Sequential(nn.Linear(64, 64), nn.GELU())
    return nn.Sequential(nn.Flatten(2), tokens, nn.LayerNorm(64), nn.Flatten(), nn.Linear(192, CLASSES))


def loader() -> Any:
    return DataLoader(TensorDataset(X, Y), batch_size=64)


BYTES = (IMAGES[:, 0].flatten(1)[:, :FEATURES] * 40 + 120).clamp(0, 255).to(torch.uint8)
ROWS: dict[str, Row] = {
    "MLP, a `DataLoader`": Row(MLP, loader, cut(X), plain),
    "MLP, dicts with names and numbers of points, `forward=`": Row(
        MLP,
        lambda: [{"img": x, "name": [f"{i}" for i in range(len(x))], "id": torch.arange(len(x))} for x in cut(X)],
        cut(X),
        plain,
        {"forward": lambda model, batch: model(batch["img"])},
    ),
    "MLP, an endless `IterableDataset`": Row(MLP, Endless, cut(X), plain, {"points": POINTS}),
    "MLP, an endless generator": Row(MLP, generator, cut(X), plain, {"points": POINTS}),
    "MLP, named tuples, `forward=` on its parts": Row(
        MLP,
        lambda: [Item(x, torch.zeros(len(x))) for x in cut(X)],
        cut(X),
        lambda model, x: model.head(F.relu(model.one(x))),
        {"forward": lambda model, item: model.head(F.relu(model.one(item.image)))},
    ),
    "two inputs, a tuple": Row(
        TwoTowers, lambda: (X, X.flip(1), None), list(zip(cut(X), cut(X.flip(1)), strict=True)), lambda m, xs: m(*xs)
    ),
    "a tuple as its one argument": Row(
        Pair, lambda: [((a, b), None) for a, b in zip(cut(X), cut(X.flip(1)), strict=True)],
        list(zip(cut(X), cut(X.flip(1)), strict=True)), plain,
    ),
    "the batch's dict as its one argument, a `Dataset` with paths": Row(
        Dict, Named, cut(X), lambda m, x: m({"x": x, "y": x, "path": x})
    ),
    "a dataclass as output": Row(Structured, loader, cut(X), lambda m, x: m(x).logits),
    "bytes, made floats inside": Row(Bytes, lambda: BYTES, cut(BYTES), plain),
    "`nn.DataParallel`": Row(lambda: nn.DataParallel(MLP()), loader, cut(X), plain),
    "weight norm": Row(WeightNorm, loader, cut(X), plain),
    "mixture of experts": Row(Experts, loader, cut(X), plain),
    "LoRA": Row(lora, loader, cut(X), plain),
    "SIREN": Row(siren, loader, cut(X), plain),
    "dynamically quantized": Row(quantized, loader, cut(X), plain, fixed=True),
    "lazy layers": Row(lazy, loader, cut(X), plain),
    "tied weights": Row(Tied, loader, cut(X), plain),
    "residual CNN with BatchNorm": Row(ResNet, lambda: DataLoader(IMAGES, batch_size=64), cut(IMAGES), plain),
    "MLP-Mixer block": Row(mixer, lambda: IMAGES, cut(IMAGES), plain),
    "transformer of copied layers": Row(Transformer, lambda: {"input_ids": TOKENS}, cut(TOKENS), plain),
    "recurrent": Row(Recurrent, lambda: TOKENS, cut(TOKENS), plain),
    "graph network on a whole graph": Row(
        Graph, lambda: [{"x": X, "adj": adjacency()}], [(X, adjacency())], lambda m, xs: m(*xs)
    ),
}  # fmt: skip


class Numbers(NamedTuple):
    """The average largest guess fraction and γ of the output (theory.md (38)), each with its standard error."""

    largest: float
    largest_se: float
    log_gamma: float
    log_gamma_se: float


def own(row: Row, inits: int, seed: int = 10_000) -> Numbers:
    """Plain PyTorch: seed, build, call, count. BatchNorm is in train mode, as in the first step; none has dropout."""
    largest, center, spread = (np.empty(inits) for _ in range(3))
    for i in range(inits):
        torch.manual_seed(seed + i)
        model = row.make()
        with torch.no_grad():
            z = torch.cat([row.call(model, batch) for batch in row.batches]).double().numpy()
        largest[i] = np.bincount(z.argmax(1), minlength=CLASSES).max() / len(z)
        z = (z - z.mean(1, keepdims=True)) * math.sqrt(CLASSES / (CLASSES - 1))
        spread[i] = z.var(0, ddof=1).mean()
        center[i] = np.mean(z.mean(0) ** 2) - spread[i] / len(z)
    rest = np.log((center.sum() - center) / (spread.sum() - spread))  # jackknife
    error = math.sqrt((inits - 1) / inits * np.square(rest - rest.mean()).sum())
    return Numbers(largest.mean(), largest.std(ddof=1) / math.sqrt(inits), math.log(center.sum() / spread.sum()), error)


def measured(what: Any, row: Row, inits: int) -> tuple[Numbers, Any]:
    """The same numbers from `fg.measure`."""
    import firstguess as fg

    m = fg.measure(what, row.data(), inits=inits, **row.options)
    tops = m.guesses.fractions.max(axis=1)
    last = m.layers[-1]
    error = tops.std(ddof=1) / math.sqrt(len(tops)) if len(tops) > 1 else math.nan
    return Numbers(tops.mean(), error, math.log(last.gamma), last.gamma_se / last.gamma), m


def apart(one: Numbers, two: Numbers) -> tuple[float, float]:
    """Differences of the largest fraction and of log γ, in standard errors."""
    return (
        (one.largest - two.largest) / math.hypot(one.largest_se, two.largest_se),
        (one.log_gamma - two.log_gamma) / math.hypot(one.log_gamma_se, two.log_gamma_se),
    )


def compared(name: str, inits: int) -> tuple[Numbers, dict[str, tuple[Numbers, Any]]]:
    """The own loop, and what firstguess makes of the class or factory and of one instance."""
    row = ROWS[name]
    mine = own(row, inits)
    torch.manual_seed(1)
    return mine, {"class": measured(row.make, row, inits), "instance": measured(row.make(), row, inits)}
