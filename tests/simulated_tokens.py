"""Networks of tokens in plain NumPy, written from their definitions and sharing no code with firstguess.

Batches are (points, tokens, nodes), before an embedding ids (points, tokens), before patches images.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
from simulated import FUNCTIONS, Array

from firstguess.network.layers import Layer

tables: list[Array] = []  # of the last embedding, for heads that are tied to it
real: list[list[list[bool]]] = []  # of the last embedding: which tokens are no padding


def token_member(layers: Sequence[Layer], x: Array, weights: Iterator[Array]) -> Array:
    """One network; `weights` are its parameters in the order of drawing, a residual block's branch first."""
    for layer in layers:
        x = _apply(layer, x, weights)
    return x


def _dense(x: Array, weights: Iterator[Array], biased: bool) -> Array:
    y = x @ next(weights).T
    return y + next(weights) if biased else y


def _apply(layer: Layer, x: Array, weights: Iterator[Array]) -> Array:
    kind = layer.kind
    if kind == "embed":
        table = next(weights)
        tables[:] = [table]
        real[:] = [[[int(i) != layer.padding for i in row] for row in x]]
        x = table[x.astype(int)]
        return x + next(weights) if layer.types else x
    if kind == "patches":
        real[:] = []
        high, wide = x.shape[2:]
        kernels, p = next(weights), layer.size
        rows = [
            np.einsum("nchw,uchw->nu", x[:, :, i : i + p, j : j + p], kernels)
            for i in range(0, high, p)
            for j in range(0, wide, p)
        ]
        y = np.stack(rows, axis=1)
        return y + next(weights) if layer.bias_var else y
    if kind == "positions":
        if not layer.sinusoidal:
            return x + next(weights)
        waves = np.zeros(x.shape[1:])
        for s in range(x.shape[1]):
            for j in range(x.shape[2]):
                angle = s / 10000.0 ** (2 * (j // 2) / x.shape[2])
                waves[s, j] = math.cos(angle) if j % 2 else math.sin(angle)
        return x + waves
    if kind == "cls":
        first = np.broadcast_to(next(weights), (len(x), 1, x.shape[2]))
        real[:] = [[[True, *row] for row in rows] for rows in real]
        return np.concatenate([first, x], axis=1)
    if kind == "attention":
        return _attention(layer, x, weights)
    if kind == "tokenmix":
        hidden = FUNCTIONS[layer.phi.name](_dense(x.transpose(0, 2, 1), weights, layer.bias_var > 0))
        return _dense(hidden, weights, layer.bias_var > 0).transpose(0, 2, 1)
    if kind == "gated":
        half = x.shape[-1] // 2
        return FUNCTIONS[layer.phi.name](x[..., :half]) * x[..., half:]
    if kind == "pool_tokens":
        rows = [y[list(which)] for y, which in zip(x, real[0], strict=True)] if real else list(x)
        return np.array([{"cls": y[0], "last": y[-1], "mean": y.mean(0)}[layer.at] for y in rows])
    if kind == "unembed":
        return x @ (tables[0] if layer.tied else next(weights)).T
    if kind == "dense":
        return _dense(x, weights, layer.bias_var > 0)
    if kind == "activation":
        return FUNCTIONS[layer.phi.name](x)
    if kind == "layernorm":
        return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + layer.eps)
    if kind == "rmsnorm":
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + layer.eps)
    if kind == "scale":
        return layer.factor * x
    if kind == "shift":
        return x + layer.by
    assert kind == "residual", kind
    branch = token_member(layer.branch, x, weights)
    return token_member(layer.shortcut, x, weights) + layer.scale * branch


def _attention(layer: Layer, x: Array, weights: Iterator[Array]) -> Array:
    n, tokens, width = x.shape
    size = width // layer.heads
    inner = _dense(x, weights, layer.bias_var > 0)
    few = layer.groups or layer.heads
    mixed = np.zeros_like(x)
    for a in range(n):
        for h in range(layer.heads):
            g = h // (layer.heads // few)  # heads side by side share their keys and values
            starts = h * size, width + g * size, width + few * size + g * size
            q, k, v = (inner[a, :, at : at + size] for at in starts)
            if layer.rotary:
                q, k = (_rotated(y, layer.base) for y in (q, k))
            logits = q @ k.T / math.sqrt(size)
            for s in range(tokens):
                seen = [t for t in range(s + 1 if layer.causal else tokens) if abs(s - t) < (layer.window or tokens)]
                seen = [t for t in seen if not real or real[0][a][t]] or [s]
                share = np.exp(logits[s, seen] - logits[s, seen].max())
                mixed[a, s, h * size : (h + 1) * size] = share @ v[seen] / share.sum()
    return _dense(mixed, weights, layer.bias_var > 0)


def _rotated(y: Array, base: float) -> Array:
    """Pairs (j, j + half) as complex numbers, turned by place · base^(−j/half)."""
    half = y.shape[1] // 2
    turn = np.exp(1j * np.arange(len(y))[:, None] * base ** (-np.arange(half) / half))
    z = (y[:, :half] + 1j * y[:, half:]) * turn
    return np.concatenate([z.real, z.imag], axis=1)
