"""Gradients going back through attention: theory.md (10) for (23), in the limit of wide layers and many heads.

G_ss' = Σ_nodes ∂L/∂x_s ∂L/∂x_s' over the tokens of one sequence. With the weights A of a head,

    values   G' = σv²σo² E AᵀGA
    queries  G' += σv²σo²τ E G∘[A(K∘K)Aᵀ − (B∘B)Aᵀ − A(B∘B)ᵀ + M∘M],              B = AK, M = AKAᵀ
    keys     G' += σv²σo²τ E {K∘(AᵀPA) − Aᵀ(B∘PA) − (B∘PA)ᵀA + Aᵀ(P∘M)A},          P = G∘K,

since ∂L/∂ℓ_st = A_st u_s·(v_t − Σ_t' A_st' v_t') with u = W_oᵀ ∂L/∂y, and ℓ_st = q_s·k_t/√size. What the three have in
common is of the order of β² by the number of tokens, and left out.
"""

from __future__ import annotations

import numpy as np

from firstguess.base.gaussian import Array
from firstguess.network.attention_weights import Heads, drawn_weights

_HEADS = 16


def attention_back(k: Array, g: Array, heads: Heads, *, uniform: bool) -> Array:
    """G in front of the layer from G behind it, by σv²σo²; `k` is that of one sequence, (T, T)."""
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
