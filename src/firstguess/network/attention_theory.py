"""What attention does to covariances: E over heads of A K Aᵀ, soft-max weights A of Gaussian logits: theory.md (23).

K is (n·T, n·T), the covariance of tokens of n sequences. A head's queries and keys are sums over random weights of
these tokens, so its logits ℓ_st = q_s·k_t/√d are Gaussian in the limit of a large head, with Cov(ℓ_st, ℓ_s't') =
Q_ss' τ K_tt', where Q = K + σb²/σq² (biases of keys shift all logits of a token alike, and cancel).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from firstguess.base.gaussian import Array
from firstguess.base.numerics import root
from firstguess.base.threads import in_threads
from firstguess.network.points import Flags

if TYPE_CHECKING:
    from scipy.interpolate import CubicSpline


# How many tokens one token attends to: the participation of soft-max weights with Gaussian logits, theory.md (26).

_STEP = 0.25  # of v: exp(−eᵛ) is analytic up to π/2 next to the axis, so a trapezoid rule is exact to e^(−π²/_STEP)
_LARGEST = 40.0  # β beyond which weights are one token, to what matters here
_GRID = 80  # values of β between which the renormalization is interpolated


def participation(tokens: int, beta: float) -> float:
    """Y = Σ E A_t² of soft-max weights over `tokens` independent logits N(0, β²): theory.md (26).

    Y = T ∫ h(v) M(v)^{T−1} dv with h = E e^{2y − e^y}, M = E exp(−e^y), y ~ N(v, β²).

    >>> print(f"{participation(16, 1.0):.6f} {participation(64, 1.0):.6f}")
    0.132452 0.038804
    """
    if tokens == 1 or beta == 0.0:
        return 1.0 / tokens
    step, h, m = _integrands(beta)
    return float(tokens * step * np.sum(h * m ** (tokens - 1)))


@lru_cache(maxsize=512)
def _integrands(beta: float) -> tuple[float, Array, Array]:
    """The step of v, and h and M on it: convolutions of smooth functions with a Gaussian of width β."""
    step = min(_STEP, 0.25 * beta)
    reach = 9.0 * beta
    width = math.ceil(reach / step)
    z = np.arange(-width, width + 1) * step
    weights = np.exp(-0.5 * (z / beta) ** 2)
    weights /= weights.sum()
    # h falls like e^{2v} to the left and doubly exponentially to the right
    y = np.arange(math.floor((-25.0 - 2.0 * reach) / step), math.ceil((4.0 + 2.0 * reach) / step) + 1) * step
    with np.errstate(under="ignore"):
        e = np.exp(np.minimum(y, 7.0))
        survive = np.exp(-e)
        squares = e * e * survive
    return step, np.convolve(squares, weights, "valid"), np.minimum(np.convolve(survive, weights, "valid"), 1.0)


@lru_cache(maxsize=64)
def _ratios(counts: tuple[int, ...]) -> CubicSpline:
    """β_eff²/β² of a number of tokens, as a function of β, from a grid that is finer where β is small."""
    from scipy.interpolate import CubicSpline

    beta = _LARGEST * np.linspace(0.0, 1.0, _GRID) ** 2
    tokens = np.array(counts, dtype=np.float64)
    ratio = np.ones((_GRID, tokens.size))
    for index, b in enumerate(beta[1:], start=1):
        step, h, m = _integrands(float(b))
        with np.errstate(under="ignore", divide="ignore"):
            y = tokens * step * (np.exp(np.multiply.outer(tokens - 1.0, np.log(m))) @ h)
        y = np.clip(y, 1.0 / tokens, 1.0 - 1e-12)
        ratio[index] = np.log(y * (tokens - 1.0) / (1.0 - y)) / b**2
    return CubicSpline(beta, ratio)


def renormalized(tokens: Array, beta_square: Array) -> Array:
    """r² = β_eff²/β² with e^{β_eff²} = Y(T−1)/(1−Y): for which annealed weights have the exact participation.

    `beta_square` is (…, T) for `tokens` (T,): how many tokens each attends to.

    >>> print(f"{renormalized(np.array([64]), np.array([4.0]))[0]:.3f}")
    0.623
    """
    beta = np.minimum(np.sqrt(np.maximum(beta_square, 0.0)), _LARGEST)
    out = np.ones_like(beta)
    counts = tuple(int(c) for c in np.unique(tokens) if c > 1)
    for index, count in enumerate(counts):
        at, spline = np.broadcast_to(tokens == count, beta.shape), _ratios(counts)
        out[at] = type(spline).construct_fast(spline.c[:, :, index], spline.x)(beta[at])
    return np.clip(out, 0.0, 1.0)


Reals = NDArray[Any]  # float32 or float64
_MOST_NODES = 96  # Chebyshev nodes in κ
_DIGITS = 34.5  # of e: rounding
_FEWEST_HEADS, _MOST_HEADS = 32, 512
_WORK = 2e10  # operations that sampled heads of a layer may take, if fewer than _MOST_HEADS would take more
NEGATIVE = 0.1  # of the diagonal: what annealed and renormalized weights may leave negative where tokens repeat
_GOOD = 2e-3  # of the diagonal: the error of a sampled covariance at which no more heads are drawn
_TOGETHER = 1 << 16  # entries of pairs of sequences that are tilted together
_SMALL = 1 << 14  # entries that one core tilts sooner than others have started
_AT_ONCE = 2_000_000  # numbers that heads drawn together may have


@dataclass(frozen=True)
class Heads:
    """What is known of the logits of a layer's heads."""

    sequences: int
    tokens: int
    tau: float  # σq²σk²
    causal: bool = False
    bias: float = 0.0  # σb²/σq²
    size: int = 64  # units of a head
    turns: Array | None = None  # angles a token of rotary positions, one for every two units of a head
    window: int | None = None  # a token attends to others that are nearer than this
    real: Flags | None = None  # (n, T): which tokens are no padding; None: all

    @property
    def plain(self) -> bool:
        """Whether all sequences are alike, and tokens attend to all others or all before: sums need no weights."""
        return self.window is None and self.real is None

    @property
    def allowed(self) -> Flags:
        """(n or 1, T, T): whether token s attends to token t. Padding attends to itself if there is nothing else."""
        place = np.arange(self.tokens)
        ahead = place - place[:, None]  # t − s
        seen = (ahead <= 0 if self.causal else np.ones_like(ahead, dtype=bool))[None]
        if self.window is not None:
            seen = seen & (np.abs(ahead) < self.window)
        if self.real is None:
            return seen
        seen = seen & self.real[:, None, :]
        return seen | (~seen.any(axis=2, keepdims=True) & (ahead == 0))

    @property
    def windows(self) -> Array:
        """How many tokens each attends to: (T,), or (n or 1, T)."""
        if not self.plain:
            return self.allowed.sum(axis=2, dtype=np.float64)
        return np.arange(1.0, self.tokens + 1.0) if self.causal else np.full(self.tokens, float(self.tokens))

    @property
    def barred(self) -> Flags | None:
        """What is not attended to; None: nothing."""
        return ~self.allowed if self.causal or not self.plain else None

    def blocks(self, k: Array) -> Array:
        """(n, T, n, T) of (n·T, n·T)."""
        return k.reshape(self.sequences, self.tokens, self.sequences, self.tokens)

    def logit_variance(self, k: Array) -> Array:
        """β_s² = τ Q_ss (mean_t K_tt − mean_tt' K_tt')·T/(T−1) of every token, over those that it attends to: (26)."""
        own = np.einsum("asat->ast", self.blocks(k))
        diagonal, both = np.einsum("ass->as", own), own
        size = self.windows
        if not self.plain:
            seen = self.allowed.astype(np.float64)
            mean = np.einsum("ast,at->as", np.broadcast_to(seen, own.shape), diagonal) / size
            both = np.sum((seen @ own) * seen, axis=2) / size**2
        elif self.causal:
            mean = diagonal.cumsum(axis=1) / size
            both = np.einsum("ass->as", both.cumsum(axis=1).cumsum(axis=2)) / size**2
        else:
            mean = diagonal.mean(axis=1, keepdims=True)
            both = both.mean(axis=(1, 2))[:, None]
        spread = np.maximum(mean - both, 0.0) * size / np.maximum(size - 1.0, 1.0)
        found = self.tau * (diagonal + self.bias) * spread
        return found if self.real is None else found * self.real


def uniform(k: Array, heads: Heads) -> Array:
    """The mean of K over both windows: theory.md (24), the limit of small logits."""
    blocks = heads.blocks(k)
    if not heads.plain:
        weights = np.broadcast_to(heads.allowed / heads.windows[:, :, None], (heads.sequences, *(heads.tokens,) * 2))
        return _attend(k, weights[None], heads)[0]
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
    seen = None if heads.plain else np.broadcast_to(heads.allowed, (heads.sequences, *(heads.tokens,) * 2))
    jobs = [(a, slice(b, min(b + step, heads.sequences))) for a in range(heads.sequences)
            for step in [max(1, _TOGETHER // heads.tokens**2)] for b in range(a, heads.sequences, step)]  # fmt: skip

    def job(index: int) -> None:
        a, others = jobs[index]
        block = np.ascontiguousarray(blocks[a, :, others].swapaxes(0, 1))  # (pairs, T, T)
        kappa = (block + heads.bias) * factor[a][:, None] * factor[others][:, None, :]
        sides = None if seen is None else (seen[a].astype(k.dtype), seen[others].swapaxes(1, 2).astype(k.dtype))
        found = _tilted(block, kappa, heads, sides)
        new[a, :, others] = found.swapaxes(0, 1)
        new[others, :, a] = found.swapaxes(1, 2)

    in_threads(job, len(jobs), small=k.size <= _SMALL)
    return out


def _tilted(k: Array, kappa: Array, heads: Heads, sides: tuple[Array, Array] | None) -> Array:
    """f at every κ for pairs of sequences (pairs, T, T), from its values at Chebyshev nodes between the ends of κ.

    `sides`: whom tokens of the first attend to, and (pairs, T, T) by whom those of the others are, unless all alike.
    """
    low, high = float(kappa.min()), float(kappa.max())
    reach = heads.tau * (high - low) * float(np.ptp(k))
    # The sum of exponentials has no zero up to π/(τ·range of K) next to the axis, since the angles of its terms then
    # differ by less than π: so the error of n units falls like e^(−n·asinh(2π/reach)).
    count = min(_MOST_NODES, math.ceil(_DIGITS / math.asinh(2.0 * math.pi / reach))) if reach > 1e-12 else 1
    angles = (np.arange(count) + 0.5) * math.pi / count
    nodes = 0.5 * (low + high) + 0.5 * (high - low) * np.cos(angles)
    signs = np.sin(angles) * np.where(np.arange(count) % 2, -1.0, 1.0)
    above, below = np.zeros_like(k), np.zeros_like(k)
    ends = k.max(axis=(1, 2), keepdims=True), k.min(axis=(1, 2), keepdims=True)
    for node, sign in zip(nodes, signs, strict=True):
        exponent = k - ends[0 if node > 0.0 else 1]
        exponent *= heads.tau * node
        weights = np.exp(exponent, out=exponent)
        value = _summed(weights * k, heads.causal, sides)
        value /= _summed(weights, heads.causal, sides)
        if count == 1:
            return np.broadcast_to(value, k.shape).copy()
        distance = kappa - node
        distance[distance == 0.0] = 1e-290
        np.divide(sign, distance, out=distance)
        below += distance
        distance *= value
        above += distance
    return np.divide(above, below, out=above)


def _summed(x: Array, causal: bool, sides: tuple[Array, Array] | None) -> Array:
    """Sum over both windows of every two tokens."""
    if sides is not None:  # by products: differences of cumulative sums would lose small weights
        return sides[0] @ x @ sides[1]
    return x.sum(axis=(1, 2), keepdims=True) if not causal else x.cumsum(axis=1).cumsum(axis=2)


class SampledAttention(NamedTuple):
    """E A K Aᵀ from drawn heads, and one standard error of an entry (root mean square), by the diagonal."""

    k: Array
    error: float
    heads: int


def sampled(k: Array, heads: Heads) -> SampledAttention:
    """Queries and keys of heads are drawn, and A K Aᵀ averaged: theory.md (27). Exact for any logits, and rotations.

    Pairs ±q: what is odd in the logits cancels. Heads are drawn until entries are good to _GOOD of the diagonal, or
    there are as many as time allows. The same covariances always draw the same heads. In float32, but for what all
    tokens have in common, which weights that sum to 1 leave as it is.
    """
    rows = k.shape[0]
    most = min(max(_WORK / (4.0 * heads.tokens * rows**2), _FEWEST_HEADS), _MOST_HEADS)
    at_once = int(min(max(1, _AT_ONCE // rows**2), _FEWEST_HEADS // 2))  # pairs
    rng = np.random.default_rng(np.frombuffer(np.float64(k.mean()).tobytes(), dtype=np.uint32))
    probe = rng.integers(0, rows, (2, 256))
    factor, total, drawn = root(k, negative=NEGATIVE).astype(np.float32), np.zeros_like(k), 0
    common = float(k.mean())
    rest = (k - common).astype(np.float32)
    barred = heads.barred
    seen: list[Array] = []  # of every pair of heads, the entries whose error is followed
    while True:
        logits = _logits(factor, heads, rng, at_once)
        both = np.zeros((at_once, probe.shape[1]))
        for sign in (1.0, -1.0):
            out = _attend(rest, _soft_max(np.float32(sign) * logits, barred), heads)
            total += out.sum(axis=0, dtype=np.float64)
            both += 0.5 * out[:, probe[0], probe[1]]
        seen.extend(both)
        drawn += 2 * at_once
        if drawn < _FEWEST_HEADS:
            continue
        error = math.sqrt(float(np.mean(np.var(np.array(seen), axis=0, ddof=1))) / len(seen))
        error /= float(total.diagonal().mean()) / drawn + common
        if error <= _GOOD or drawn >= most:
            total *= 0.5 / drawn
            return SampledAttention(total + total.T + common, error, drawn)


def drawn_weights(k: Array, heads: Heads, count: int) -> Array:
    """(heads, T, T): soft-max weights of drawn heads on the first sequence, in pairs ±q."""
    rng = np.random.default_rng(np.frombuffer(np.float64(k.mean()).tobytes(), dtype=np.uint32))
    factor = root(k, negative=NEGATIVE).astype(np.float32)
    logits = _logits(factor, heads, rng, max(1, count // 2))[:, 0].astype(np.float64)
    both = np.concatenate([logits, -logits])[:, None]
    return _soft_max(both, heads.barred)[:, 0]


def _logits(factor: Reals, heads: Heads, rng: np.random.Generator, count: int) -> Reals:
    """(heads, n, T, T): q·k/√size of drawn queries and keys, turned by their places."""
    size = heads.size
    drawn = factor @ rng.standard_normal((factor.shape[1], count * 2 * size), dtype=factor.dtype.type)
    both = drawn.reshape(heads.sequences, heads.tokens, count, 2, size).transpose(3, 2, 0, 1, 4)
    query, key = both
    if heads.bias:
        query = query + np.float32(math.sqrt(heads.bias)) * rng.standard_normal((count, 1, 1, size), dtype=np.float32)
    query, key = (_turned(x, heads.turns) for x in (query, key))
    return (np.float32(math.sqrt(heads.tau / size)) * query) @ key.swapaxes(2, 3)


def _soft_max(logits: Reals, barred: Flags | None) -> Array:
    if barred is not None:
        np.copyto(logits, -np.inf, where=barred)
    logits -= logits.max(axis=-1, keepdims=True)
    weights = np.exp(logits, out=logits)
    weights /= weights.sum(axis=-1, keepdims=True)
    return weights


def _attend(k: Reals, weights: Reals, heads: Heads) -> Reals:
    """(heads, n·T, n·T): A K Aᵀ with A_a on the diagonal, a block a sequence."""
    n, size, count = heads.sequences, heads.tokens, len(weights)
    left = (weights @ k.reshape(n, size, -1)).reshape(count, -1, n, size)
    both = left.transpose(0, 2, 1, 3) @ weights.swapaxes(2, 3)
    return both.transpose(0, 2, 1, 3).reshape(count, k.shape[0], k.shape[0])


def _turned(x: Array, turns: Array | None) -> Array:
    """Rotary positions: the two halves of a head's units turn by angles that grow with the token's place."""
    if turns is None:
        return x
    angles = np.arange(x.shape[-2])[:, None] * turns
    cos, sin = np.cos(angles).astype(x.dtype), np.sin(angles).astype(x.dtype)
    one, other = np.split(x, 2, axis=-1)
    return np.concatenate([one * cos - other * sin, other * cos + one * sin], axis=-1)


# Gradients going back through attention: theory.md (10) for (23), in the limit of wide layers and many heads.
#
# G_ss' = Σ_nodes ∂L/∂x_s ∂L/∂x_s' over the tokens of one sequence. With the weights A of a head,
#
# values   G' = σv²σo² E AᵀGA
# queries  G' += σv²σo²τ E G∘[A(K∘K)Aᵀ − (B∘B)Aᵀ − A(B∘B)ᵀ + M∘M],              B = AK, M = AKAᵀ
# keys     G' += σv²σo²τ E {K∘(AᵀPA) − Aᵀ(B∘PA) − (B∘PA)ᵀA + Aᵀ(P∘M)A},          P = G∘K,
#
# since ∂L/∂ℓ_st = A_st u_s·(v_t − Σ_t' A_st' v_t') with u = W_oᵀ ∂L/∂y, and ℓ_st = q_s·k_t/√size. What the three have
# in common is of the order of β² by the number of tokens, and left out.

_HEADS = 16


def attention_back(k: Array, g: Array, heads: Heads, *, uniform: bool) -> Array:
    """G before the layer from G after it, by σv²σo²; `k` is that of one sequence, (T, T)."""
    if uniform:
        one = heads.allowed.astype(k.dtype)
        weights = one / one.sum(axis=2, keepdims=True)
    else:
        weights = drawn_weights(k, heads, _HEADS)
    total = np.zeros_like(g)
    for a in weights:
        total += _one(k, g, a, 0.0 if heads.turns is not None else heads.tau)
    return total / len(weights)


def _one(k: Array, g: Array, a: Array, tau: float) -> Array:
    out = a.T @ g @ a
    if not tau:
        return out
    b = a @ k
    m = b @ a.T
    crossed = (b * b) @ a.T
    out += tau * g * (a @ (k * k) @ a.T - crossed - crossed.T + m * m)
    p = g * k
    pa = p @ a
    mixed = a.T @ (b * pa)
    out += tau * (k * (a.T @ pa) - mixed - mixed.T + a.T @ (p * m) @ a)
    return out
