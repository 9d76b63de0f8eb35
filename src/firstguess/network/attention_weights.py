"""What attention does to covariances: E over heads of A K Aᵀ, for soft-max weights A with Gaussian logits: theory.md (23).

K is (n·T, n·T), the covariance of tokens of n sequences. A head's queries and keys are sums over random weights of these
tokens, so its logits ℓ_st = q_s·k_t/√d are Gaussian in the limit of a large head, with Cov(ℓ_st, ℓ_s't') = Q_ss' τ K_tt',
where Q = K + σb²/σq² (biases of keys shift all logits of a token alike, and cancel).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from firstguess.base.gaussian import Array
from firstguess.base.roots import root
from firstguess.base.threads import in_threads
from firstguess.network.participation import renormalized

_NODES, _MOST_NODES = 12, 64  # Chebyshev nodes in κ; more where the exponent varies by more than a few
_FEWEST_HEADS, _MOST_HEADS = 32, 512
_WORK = 2e10  # operations that sampled heads of a layer may take, if fewer than _MOST_HEADS would take more


@dataclass(frozen=True)
class Heads:
    """What is known of the logits of a layer's heads."""

    sequences: int
    tokens: int
    tau: float  # σq²σk²
    causal: bool = False
    bias: float = 0.0  # σb²/σq²
    size: int = 64  # nodes of a head
    turns: Array | None = None  # angles a token of rotary positions, one for every two nodes of a head

    @property
    def windows(self) -> Array:
        """How many tokens each attends to."""
        return np.arange(1, self.tokens + 1) if self.causal else np.full(self.tokens, self.tokens)

    def blocks(self, k: Array) -> Array:
        """(n, T, n, T) of (n·T, n·T)."""
        return k.reshape(self.sequences, self.tokens, self.sequences, self.tokens)

    def logit_variance(self, k: Array) -> Array:
        """β_s² = τ Q_ss (mean_t K_tt − mean_tt' K_tt')·T/(T−1) of every token, over those that it attends to: (26)."""
        own = np.einsum("asat->ast", self.blocks(k))
        diagonal, both = np.einsum("ass->as", own), own
        size = self.windows.astype(np.float64)
        if self.causal:
            mean = diagonal.cumsum(axis=1) / size
            both = np.einsum("ass->as", both.cumsum(axis=1).cumsum(axis=2)) / size**2
        else:
            mean = diagonal.mean(axis=1, keepdims=True)
            both = both.mean(axis=(1, 2))[:, None]
        spread = np.maximum(mean - both, 0.0) * size / np.maximum(size - 1.0, 1.0)
        return self.tau * (diagonal + self.bias) * spread


def uniform(k: Array, heads: Heads) -> Array:
    """The mean of K over both windows: theory.md (24), the limit of small logits."""
    blocks = heads.blocks(k)
    if not heads.causal:
        mean = blocks.mean(axis=(1, 3))
        return np.repeat(np.repeat(mean, heads.tokens, axis=0), heads.tokens, axis=1)
    share = 1.0 / heads.windows
    out = blocks.cumsum(axis=1)
    np.cumsum(out, axis=3, out=out)
    out *= share[:, None, None]
    out *= share
    return out.reshape(k.shape)


def annealed(k: Array, heads: Heads, *, renormalize: bool = False) -> Array:
    """f_ab(κ) = Σ K_tt' e^{τκK_tt'} / Σ e^{τκK_tt'} at κ = Q_ss': theory.md (25); for a common diagonal.

    `renormalize`: at κ·r_s·r_s', by which a token has the participation that it really has: theory.md (26).
    """
    blocks, out = heads.blocks(k), np.empty_like(k)
    new = heads.blocks(out)
    factor = np.ones((heads.sequences, heads.tokens))
    if renormalize:
        factor = np.sqrt(renormalized(heads.windows, heads.logit_variance(k)))
    pairs = [(a, b) for a in range(heads.sequences) for b in range(a, heads.sequences)]

    def job(index: int) -> None:
        a, b = pairs[index]
        block = blocks[a, :, b]
        kappa = (block + heads.bias) * factor[a][:, None] * factor[b]
        new[a, :, b] = _tilted(np.ascontiguousarray(block), kappa, heads)
        if a != b:
            new[b, :, a] = new[a, :, b].T

    in_threads(job, len(pairs))
    return out


def _tilted(k: Array, kappa: Array, heads: Heads) -> Array:
    """f at every κ, from its values at Chebyshev nodes between the smallest and the largest."""
    low, high = float(kappa.min()), float(kappa.max())
    reach = heads.tau * (high - low) * float(np.ptp(k))
    count = min(_MOST_NODES, _NODES + 2 * int(reach)) if reach > 1e-12 else 1
    angles = (np.arange(count) + 0.5) * math.pi / count
    nodes = 0.5 * (low + high) + 0.5 * (high - low) * np.cos(angles)
    signs = np.sin(angles) * np.where(np.arange(count) % 2, -1.0, 1.0)
    above, below = np.zeros_like(k), np.zeros_like(k)
    highest = float(k.max())
    for node, sign in zip(nodes, signs, strict=True):
        exponent = heads.tau * node * (k - (highest if node > 0.0 else float(k.min())))
        weights = np.exp(exponent, out=exponent)
        products = weights * k
        value: Array | float
        if heads.causal:
            value = products.cumsum(axis=0).cumsum(axis=1)
            value /= weights.cumsum(axis=0).cumsum(axis=1)
        else:
            value = float(products.sum() / weights.sum())
        if count == 1:
            return np.full_like(k, value) if isinstance(value, float) else value
        distance = kappa - node
        distance[distance == 0.0] = 1e-290
        np.divide(sign, distance, out=distance)
        below += distance
        distance *= value
        above += distance
    return np.divide(above, below, out=above)


class Sampled(NamedTuple):
    """E A K Aᵀ from drawn heads, and one standard error of an entry (root mean square), by the diagonal."""

    k: Array
    error: float
    heads: int


def sampled(k: Array, heads: Heads) -> Sampled:
    """Queries and keys of heads are drawn, and A K Aᵀ averaged: theory.md (27). Exact for any logits, and rotations.

    Pairs ±q: what is odd in the logits cancels. The same covariances always draw the same heads.
    """
    n, size = heads.sequences, heads.tokens
    rows = k.shape[0]
    each = 4.0 * size * rows**2
    pairs = int(min(max(_WORK / (2.0 * each), _FEWEST_HEADS / 2), _MOST_HEADS / 2))
    seed = np.frombuffer(np.float64(k.mean()).tobytes(), dtype=np.uint32)
    rng = np.random.default_rng(seed)
    factor = root(k)
    total, squares = np.zeros_like(k), 0.0
    hidden = np.triu(np.ones((size, size), dtype=bool), 1) if heads.causal else None
    probe = rng.integers(0, rows, (2, 256))
    seen: list[Array] = []
    for _ in range(pairs):
        drawn = factor @ rng.standard_normal((factor.shape[1], 2 * heads.size))
        query, key = drawn[:, : heads.size], drawn[:, heads.size :]
        if heads.bias:
            query = query + math.sqrt(heads.bias) * rng.standard_normal(heads.size)
        query, key = (_turned(x.reshape(n, size, heads.size), heads.turns) for x in (query, key))
        logits = (math.sqrt(heads.tau / heads.size) * query) @ key.transpose(0, 2, 1)
        both = 0.0
        for sign in (1.0, -1.0):
            out = _attend(k, _soft_max(sign * logits, hidden), heads)
            total += out
            both = both + 0.5 * out[probe[0], probe[1]]
        seen.append(np.asarray(both))
    total /= 2 * pairs
    squares = float(np.mean(np.var(np.array(seen), axis=0, ddof=1))) / pairs if pairs > 1 else 0.0
    return Sampled(0.5 * (total + total.T), math.sqrt(squares) / float(total.diagonal().mean()), 2 * pairs)


def _soft_max(logits: Array, hidden: Array | None) -> Array:
    if hidden is not None:
        logits[:, hidden] = -np.inf
    logits -= logits.max(axis=2, keepdims=True)
    weights = np.exp(logits, out=logits)
    weights /= weights.sum(axis=2, keepdims=True)
    return weights


def _attend(k: Array, weights: Array, heads: Heads) -> Array:
    """A K Aᵀ with A_a on the diagonal, a block a sequence."""
    n, size = heads.sequences, heads.tokens
    left = (weights @ k.reshape(n, size, -1)).reshape(k.shape)
    return np.ascontiguousarray((weights @ left.T.reshape(n, size, -1)).reshape(k.shape).T)


def _turned(x: Array, turns: Array | None) -> Array:
    """Rotary positions: the two halves of a head's nodes turn by angles that grow with the token's place."""
    if turns is None:
        return x
    angles = np.arange(x.shape[1])[:, None] * turns
    cos, sin = np.cos(angles), np.sin(angles)
    one, other = np.split(x, 2, axis=2)
    return np.concatenate([one * cos - other * sin, other * cos + one * sin], axis=2)
