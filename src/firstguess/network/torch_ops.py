"""What norms share on tensors. Loads torch: layers import it where they are asked for their tensors.

Norms have no epsilon in theory. Here the variance gets 1e-12 of the squared mean and the smallest normal number:
nothing where float32 resolves the variance, and a constant unit or sample becomes 0 instead of amplified rounding.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from firstguess.base.gaussian import Array
from firstguess.network.shapes import check_first_tokens, check_unpadded
from firstguess.network.tensors import Draw, Local, Scratch, Weights, variance_of_others

RELATIVE_EPS = 1e-12


def inverse_sd(variance: Tensor, mean: Tensor | None) -> Tensor:
    """1/√variance, with what keeps it finite; uses up the variance."""
    if mean is not None:
        variance.add_(mean.square().mul_(RELATIVE_EPS))
    return variance.add_(torch.finfo(variance.dtype).tiny).rsqrt_()


def standardize(
    x: Tensor, dims: tuple[int, ...], scratch: Scratch, *, center: bool = True, eps: float = 0.0, divide: bool = True
) -> None:
    """Subtract the mean over these dimensions (if `center`), divide by √(mean square of what is left + eps)."""
    size = math.prod(x.shape[d] for d in dims)
    mean = None
    if center:
        mean = x.sum(dims, keepdim=True).div_(size)
        x.sub_(mean)
    if not divide:
        return
    # Squares and a sum: a norm over a strided dimension is 15 times slower.
    square = torch.mul(x, x, out=scratch(x))
    x.mul_(inverse_sd(square.sum(dims, keepdim=True).div_(size).add_(eps), mean))


def over_units(images: bool, groups: int, *, center: bool, eps: float, divide: bool) -> Local:
    """LayerNorm (one group), GroupNorm, and without centring RMSNorm: one scale per sample and group."""

    def of_images(x: Tensor, scratch: Scratch) -> Tensor:
        standardize(x.view(x.shape[0], x.shape[1], groups, -1), (3,), scratch, center=center, eps=eps, divide=divide)
        return x

    def of_vectors(x: Tensor, scratch: Scratch) -> Tensor:
        standardize(x.view(x.shape[0], groups, -1, x.shape[2]), (2,), scratch, center=center, eps=eps, divide=divide)
        return x

    return Local(of_images) if images else Local(of_vectors)


# Modules that torch has none of, for one member of an ensemble. Loads torch: layers import it where they are built.

EPS = float(torch.finfo(torch.float32).tiny)  # theory's norms have none


def linear(draw: Draw, weights: Weights) -> nn.Module:
    """nn.Linear with these weights."""
    units, fan_in = weights.shape
    return draw.fill(nn.utils.skip_init(nn.Linear, fan_in, units, bias=weights.bias_var > 0.0), weights)


def convolution(draw: Draw, weights: Weights, stride: int, padding: int = 0) -> nn.Module:
    """nn.Conv2d with these kernels."""
    units, channels, size, _ = weights.shape
    given = {"stride": stride, "padding": padding, "bias": weights.bias_var > 0.0}
    return draw.fill(nn.utils.skip_init(nn.Conv2d, channels, units, size, **given), weights)


class Affine(nn.Module):
    """factor · x + shift, both constants."""

    def __init__(self, factor: float, shift: float) -> None:
        super().__init__()
        self.factor, self.shift = factor, shift

    def extra_repr(self) -> str:
        return f"factor={self.factor}, shift={self.shift}"

    def forward(self, x: Tensor) -> Tensor:
        return x * self.factor + self.shift


class MeanFree(nn.Module):
    """x minus its mean over data and units."""

    def forward(self, x: Tensor) -> Tensor:
        return x - x.mean()


class BatchCentre(nn.Module):
    """x minus its mean over the points of the batch, unit by unit."""

    def forward(self, x: Tensor) -> Tensor:
        return x - x.mean(0, keepdim=True)


class ResidualSum(nn.Module):
    """shortcut(x) + scale · branch(x); without a shortcut x itself."""

    def __init__(self, branch: nn.Module, scale: float, shortcut: nn.Module | None = None) -> None:
        super().__init__()
        self.branch, self.scale, self.shortcut = branch, scale, shortcut or nn.Identity()

    def extra_repr(self) -> str:
        return "" if self.scale == 1.0 else f"scale={self.scale}"

    def forward(self, x: Tensor) -> Tensor:
        return self.shortcut(x) + self.scale * self.branch(x)


class InBatches(nn.Module):
    """A norm applied to consecutive batches of the points."""

    def __init__(self, norm: nn.Module, batch: int) -> None:
        super().__init__()
        self.norm, self.batch = norm, batch

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.norm(part) for part in x.split(self.batch)])


class LeaveOneOutNorm(nn.Module):
    """BatchNorm where a point is left out of its own statistics: theory.md (5), NORM App. E.1."""

    def __init__(self, batch: int) -> None:
        super().__init__()
        self.batch = batch

    def forward(self, x: Tensor) -> Tensor:
        parts: list[Tensor] = []
        for part in x.split(self.batch):
            b = len(part)
            d = part - part.mean(0, keepdim=True)
            others = variance_of_others(d, (d * d).sum(0, keepdim=True), b)
            parts.append(d * (b / (b - 1)) / others.sqrt())
        return torch.cat(parts)


MIXES_POINTS = (nn.BatchNorm1d, nn.BatchNorm2d, MeanFree, BatchCentre, InBatches, LeaveOneOutNorm)


# Modules of token layers for one member of an ensemble; batches are (points, tokens, units). Loads torch.


class Sequences:
    """What the modules of one network know of the batch that goes through it: which tokens are no padding."""

    def __init__(self) -> None:
        self.real: Tensor | None = None  # (points, tokens); None: all


class OnSequences(nn.Module):
    """A module that padding matters to; `join` gives all of a network the same `sequences`."""

    def __init__(self) -> None:
        super().__init__()
        self.sequences = Sequences()


def join(modules: nn.Sequential) -> None:
    """Let a head know the embedding that it is tied to, and all modules of a network know of padding."""
    shared = Sequences()
    for module in modules.modules():
        if isinstance(module, OnSequences):
            module.sequences = shared
        if isinstance(module, TiedHead):
            module.tie(modules[0])


class Embedding(OnSequences):
    """A row of the table for every id, plus one vector for all tokens if there is one."""

    def __init__(self, table: nn.Module, types: nn.Module | None, padding: int | None = None) -> None:
        super().__init__()
        self.table, self.types, self.padding = table, types, padding

    def extra_repr(self) -> str:
        return "" if self.padding is None else f"padding={self.padding}"

    def forward(self, ids: Tensor) -> Tensor:
        real = None if self.padding is None else ids != self.padding
        self.sequences.real = None if real is None or bool(real.all()) else real
        x = self.table(ids.long())
        return x if self.types is None else x + self.types.get_parameter("weight")


class Row(nn.Module):
    """Parameters of one shape, to be drawn."""

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(*shape))


class AddPositions(nn.Module):
    """x plus a vector for every place: parameters, or sines and cosines."""

    def __init__(self, places: nn.Module | Tensor) -> None:
        super().__init__()
        self.places = places if isinstance(places, nn.Module) else None
        self.waves = None if isinstance(places, nn.Module) else places

    def forward(self, x: Tensor) -> Tensor:
        if self.places is not None:
            return x + self.places.get_parameter("weight")
        assert self.waves is not None
        return x + self.waves.to(x)


class FirstTokenModule(OnSequences):
    """One learned token before all others."""

    def __init__(self, token: nn.Module) -> None:
        super().__init__()
        self.token = token

    def forward(self, x: Tensor) -> Tensor:
        first = self.token.get_parameter("weight").expand(len(x), 1, -1)
        if self.sequences.real is not None:
            self.sequences.real = F.pad(self.sequences.real, (1, 0), value=True)
        return torch.cat([first, x], dim=1)


class PatchesModule(nn.Module):
    """Images to tokens, row by row: a convolution whose kernels lie side by side."""

    def __init__(self, kernels: nn.Module) -> None:
        super().__init__()
        self.kernels = kernels

    def forward(self, x: Tensor) -> Tensor:
        return self.kernels(x).flatten(2).transpose(1, 2)


class TiedHead(nn.Module):
    """Logits by the vectors of an embedding, which `tie` makes known."""

    def __init__(self) -> None:
        super().__init__()
        self._table: list[nn.Module] = []  # in a list: the embedding's parameters are not this module's too

    def tie(self, embedding: nn.Module) -> None:
        assert isinstance(embedding, Embedding)
        self._table[:] = [embedding.table]

    def forward(self, x: Tensor) -> Tensor:
        return x @ self._table[0].get_parameter("weight").T


class Gate(nn.Module):
    """φ of the first half of the units, times the second half."""

    def __init__(self, phi: nn.Module, axis: int) -> None:
        super().__init__()
        self.phi, self.axis = phi, axis

    def forward(self, x: Tensor) -> Tensor:
        gate, up = x.chunk(2, dim=self.axis)
        return self.phi(gate) * up


class PoolTokensModule(OnSequences):
    """The first token, the last, or the mean of all; of those that are no padding."""

    def __init__(self, at: str) -> None:
        super().__init__()
        self.at = at

    def extra_repr(self) -> str:
        return self.at

    def forward(self, x: Tensor) -> Tensor:
        real = self.sequences.real
        if real is None:
            return x.mean(1) if self.at == "mean" else x[:, 0 if self.at == "cls" else -1]
        if self.at == "mean":
            return (x * real.unsqueeze(2)).sum(1) / real.sum(1, keepdim=True)
        if self.at == "last":
            return x[torch.arange(len(x)), x.shape[1] - 1 - real.flip(1).long().argmax(1)]
        check_first_tokens(bool(real[:, 0].all()))
        return x[:, 0]


class TokenMixModule(OnSequences):
    """Two dense layers over tokens, the same for every unit."""

    def __init__(self, first: nn.Module, phi: nn.Module, second: nn.Module) -> None:
        super().__init__()
        self.first, self.phi, self.second = first, phi, second

    def forward(self, x: Tensor) -> Tensor:
        check_unpadded(self.sequences.real)
        return self.second(self.phi(self.first(x.transpose(1, 2)))).transpose(1, 2)


class SelfAttention(OnSequences):
    """Queries, keys and values of all heads from one layer, soft-max weights, and the output layer.

    `groups` keys and values, each of several queries; tokens nearer than `window` are attended to.
    """

    def __init__(
        self,
        inner: nn.Module,
        outer: nn.Module,
        heads: int,
        causal: bool,
        turns: Array | None = None,
        groups: int | None = None,
        window: int | None = None,
    ) -> None:
        super().__init__()
        self.inner, self.outer, self.heads, self.causal = inner, outer, heads, causal
        self.turns = None if turns is None else torch.from_numpy(turns)
        self.groups, self.window = groups or heads, window

    def extra_repr(self) -> str:
        words = [f"heads={self.heads}"] + ["causal"] * self.causal + ["rotary"] * (self.turns is not None)
        words += [f"groups={self.groups}"] * (self.groups != self.heads)
        return ", ".join(words + [f"window={self.window}"] * (self.window is not None))

    def forward(self, x: Tensor) -> Tensor:
        n, tokens, width = x.shape
        size = width // self.heads
        parts = self.inner(x).split([width, self.groups * size, self.groups * size], dim=2)
        query, key, value = (part.view(n, tokens, -1, size).transpose(1, 2) for part in parts)
        if self.turns is not None:
            query, key = self._turned(query), self._turned(key)
        if self.groups < self.heads:
            key, value = (part.repeat_interleave(self.heads // self.groups, dim=1) for part in (key, value))
        mask = self._mask(tokens)
        causal = self.causal and mask is None
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, is_causal=causal)
        return self.outer(mixed.transpose(1, 2).reshape(n, tokens, width))

    def _mask(self, tokens: int) -> Tensor | None:
        """(points or 1, 1, tokens, tokens): who attends to whom; None: all, or all before, as `causal` says."""
        real = self.sequences.real
        if real is None and self.window is None:
            return None
        place = torch.arange(tokens)
        ahead = place - place[:, None]
        seen = ahead <= 0 if self.causal else torch.ones_like(ahead, dtype=torch.bool)
        if self.window is not None:
            seen = seen & (ahead.abs() < self.window)
        if real is None:
            return seen[None, None]
        seen = seen & real[:, None, None, :]
        return seen | (~seen.any(3, keepdim=True) & (ahead == 0))  # padding with nothing to attend to

    def _turned(self, x: Tensor) -> Tensor:
        assert self.turns is not None
        angles = torch.arange(x.shape[2], dtype=torch.float64)[:, None] * self.turns
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        one, other = x.chunk(2, dim=-1)
        return torch.cat([one * cos - other * sin, other * cos + one * sin], dim=-1)
