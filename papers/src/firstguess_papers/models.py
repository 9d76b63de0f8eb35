"""Small models in PyTorch: transformers with and without norms, models whose head is moved, class gradients."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

import firstguess as fg
from firstguess import Network
from firstguess.data import Data
from firstguess_papers import library
from firstguess_papers.charts import ratio
from firstguess_papers.judging import Array, Number
from firstguess_papers.library import IsolatedRandomness, Piece, build, contrasts, loss_gradient, orders


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


def set_weights(model: SmallViT, weights: Array) -> None:
    """The inverse of `weights_of`."""
    nn.utils.vector_to_parameters(torch.tensor(weights, dtype=torch.float32), model.parameters())


def members_of(
    network: Network, x: Data, width: int, change: Callable[[nn.Sequential], Any]
) -> Callable[[], nn.Module]:
    """A factory of a description's members, each as `change` leaves it."""
    places = library.resolve(network, x.x.shape[1:], width=width, inputs=fg.Inputs)

    def make() -> nn.Module:
        model = library.drawn(places, torch.initial_seed(), flat=False)  # the weights of this seed's member
        change(model)
        return model

    return make


class PlainBlock(nn.Module):
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
        self.blocks = nn.ModuleList(PlainBlock(width) for _ in range(blocks))
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


def block_gradients(model: VanillaViT, images: torch.Tensor, labels: torch.Tensor) -> Array:
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


PARTS = (0.5, 1.0)  # ρ: how much of the mean logits is taken off
NEAR = 0.03  # of γ after over γ before: room on points that the head was not moved by
SAME = 1e-3  # of 1: room for gradients and spreads, which should be equal


class _ResidualBlock(nn.Module):
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
        stem, *(_ResidualBlock(12) for _ in range(4)), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(12, 10)
    )


def vit() -> nn.Module:
    """A small vision transformer: four blocks of width 48."""
    return SmallViT(width=48, blocks=4, classes=10)


MODELS: Mapping[str, Callable[[], nn.Module]] = {"MLP of 20 layers": mlp, "ResNet": resnet, "ViT": vit}


def moved(kind: str, images: Data, inits: int, seed: int) -> Piece:
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
            model = MODELS[kind]()
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


def numbers(piece: Mapping[str, Any]) -> dict[str, dict[float, Number]]:
    """From a piece of `moved`, by ρ (0: before): γ, what is kept of it, gradients and spreads over those before."""
    center, spread, gradient = (np.asarray(piece[name], dtype=np.float64) for name in ("center", "spread", "gradient"))
    over = {"gamma": (center, spread)} | {name: (one, np.broadcast_to(one[:, :1], one.shape)) for name, one in (
        ("kept", center), ("gradients", gradient), ("spreads", spread))}  # fmt: skip
    return {name: {part: ratio(top[:, k], bottom[:, k]) for k, part in enumerate((0.0, *PARTS))}
            for name, (top, bottom) in over.items()}  # fmt: skip


PLAIN, EQUAL = "plain", "equal"


def follow(
    network: str,
    x: NDArray[np.float32],
    y: NDArray[np.int64],
    *,
    members: Sequence[int],
    width: int,
    lr: float,
    looks: Sequence[int],
    seed: int,
    how: str = PLAIN,
    threads: int = 2,
    progress: Callable[[int, int], object] = lambda done, total: None,
) -> Piece:
    """`norms` of each class's gradient (members, looks, classes), `shares` of the guesses (the same), accuracies
    (`right`: members, looks), at steps `looks` of full-batch descent.

    "equal" gives every class's gradient the same length, and their sum the length that the plain one has: the same
    steps without the imbalance. Member i is that of `fg.train`.
    """
    parsed = Network.parse(network, classes=int(y.max()) + 1)
    points, labels = torch.from_numpy(np.array(x, dtype=np.float32)), torch.from_numpy(np.array(y, dtype=np.int64))

    def one(member: int) -> tuple[Array, Array, Array]:
        model = build(parsed, x.shape[1:], width=width, seed=seed, member=member)
        return _descend(model, points, labels, lr=lr, looks=looks, equal=how == EQUAL)

    found: list[tuple[Array, Array, Array]] = []
    # layers this narrow gain nothing from more threads; members run side by side instead
    with library.torch_threads(1), ThreadPoolExecutor(threads) as pool:
        for result in pool.map(one, members):
            found.append(result)
            progress(len(found), len(members))
    return {
        name: np.array(part) for name, part in zip(("norms", "shares", "right"), zip(*found, strict=True), strict=True)
    }


def _descend(
    model: nn.Module, points: torch.Tensor, labels: torch.Tensor, *, lr: float, looks: Sequence[int], equal: bool
) -> tuple[Array, Array, Array]:
    classes = int(labels.max()) + 1
    groups = [torch.nonzero(labels == c).flatten() for c in range(classes)]
    weights = [p for p in model.parameters() if p.requires_grad]
    norms, shares, right = (np.empty((len(looks), *more)) for more in ((classes,), (classes,), ()))
    at = {step: index for index, step in enumerate(looks)}
    for step in range(max(looks) + 1):
        pulls: list[torch.Tensor] = []
        guesses = torch.empty_like(labels)
        for rows in groups:
            logits = model(points[rows])
            guesses[rows] = logits.detach().argmax(dim=1)
            loss = nn.functional.cross_entropy(logits, labels[rows])
            pulls.append(nn.utils.parameters_to_vector(torch.autograd.grad(loss, weights)))
        lengths = [float(pull.double().norm()) for pull in pulls]
        if step in at:
            norms[at[step]] = lengths
            shares[at[step]] = np.bincount(guesses.numpy(), minlength=classes) / len(labels)
            right[at[step]] = float((guesses == labels).double().mean())
        parts = [len(rows) / len(labels) for rows in groups]
        none = torch.zeros(())
        pull = sum((part * one for part, one in zip(parts, pulls, strict=True)), none)
        if equal:
            each = [part / max(length, 1e-30) for part, length in zip(parts, lengths, strict=True)]
            evened = sum((part * one for part, one in zip(each, pulls, strict=True)), none)
            pull = float(pull.double().norm()) / max(float(evened.double().norm()), 1e-30) * evened
        with torch.no_grad():
            nn.utils.vector_to_parameters(nn.utils.parameters_to_vector(weights) - lr * pull, weights)
    return norms, shares, right
