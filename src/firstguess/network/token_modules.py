"""Modules of token layers for one member of an ensemble; batches are (points, tokens, nodes). Loads torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

if TYPE_CHECKING:
    from firstguess.base.gaussian import Array


class Embedding(nn.Module):
    """A row of the table for every id, plus one vector for all tokens if there is one."""

    def __init__(self, table: nn.Module, types: nn.Module | None) -> None:
        super().__init__()
        self.table, self.types = table, types

    def forward(self, ids: Tensor) -> Tensor:
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


class FirstToken(nn.Module):
    """One learned token in front of all others."""

    def __init__(self, token: nn.Module) -> None:
        super().__init__()
        self.token = token

    def forward(self, x: Tensor) -> Tensor:
        first = self.token.get_parameter("weight").expand(len(x), 1, -1)
        return torch.cat([first, x], dim=1)


class Patches(nn.Module):
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
    """φ of the first half of the nodes, times the second half."""

    def __init__(self, phi: nn.Module, axis: int) -> None:
        super().__init__()
        self.phi, self.axis = phi, axis

    def forward(self, x: Tensor) -> Tensor:
        gate, up = x.chunk(2, dim=self.axis)
        return self.phi(gate) * up


class PoolTokens(nn.Module):
    """The first token, the last, or the mean of all."""

    def __init__(self, at: str) -> None:
        super().__init__()
        self.at = at

    def extra_repr(self) -> str:
        return self.at

    def forward(self, x: Tensor) -> Tensor:
        return x.mean(1) if self.at == "mean" else x[:, 0 if self.at == "cls" else -1]


class TokenMix(nn.Module):
    """Two dense layers over tokens, the same for every node."""

    def __init__(self, first: nn.Module, phi: nn.Module, second: nn.Module) -> None:
        super().__init__()
        self.first, self.phi, self.second = first, phi, second

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.phi(self.first(x.transpose(1, 2)))).transpose(1, 2)


class SelfAttention(nn.Module):
    """Queries, keys and values of all heads from one layer, soft-max weights, and the output layer."""

    def __init__(
        self, inner: nn.Module, outer: nn.Module, heads: int, causal: bool, turns: Array | None = None
    ) -> None:
        super().__init__()
        self.inner, self.outer, self.heads, self.causal = inner, outer, heads, causal
        self.turns = None if turns is None else torch.from_numpy(turns)

    def extra_repr(self) -> str:
        return (
            f"heads={self.heads}" + (", causal" if self.causal else "") + (", rotary" if self.turns is not None else "")
        )

    def forward(self, x: Tensor) -> Tensor:
        n, tokens, width = x.shape
        parts = self.inner(x).view(n, tokens, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        query, key, value = parts.unbind(0)
        if self.turns is not None:
            query, key = self._turned(query), self._turned(key)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=self.causal)
        return self.outer(mixed.transpose(1, 2).reshape(n, tokens, width))

    def _turned(self, x: Tensor) -> Tensor:
        assert self.turns is not None
        angles = torch.arange(x.shape[2], dtype=torch.float64)[:, None] * self.turns
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        one, other = x.chunk(2, dim=-1)
        return torch.cat([one * cos - other * sin, other * cos + one * sin], dim=-1)
