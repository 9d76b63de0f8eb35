"""Phases of transformers: rank collapse and entropy collapse, over the strength of attention logits and of residuals.

Giorlandino and Goldt (ICLR 2026, arXiv 2505.24333) treat soft-max weights over T tokens as a random energy model: with
logits of standard deviation β they spread over all tokens for T → ∞ below β_c = √(2 ln T), and condense on few above.
Here weights are those of the other readings (theory.md (24)-(27)), exact at any T; the random-energy limit stands
next to them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from firstguess.base.checks import check_count
from firstguess.base.errors import NotCovered
from firstguess.base.gaussian import Array
from firstguess.base.record import Shown, StoredRecord
from firstguess.network.activations import registry
from firstguess.network.attention_theory import Heads, drawn_weights
from firstguess.network.inputs import Tokens
from firstguess.network.layers import Attention
from firstguess.network.network import Network
from firstguess.theory.closed_form import stream_gradients
from firstguess.theory.phases.phase_diagram import axis
from firstguess.theory.tokens import block_covariances

_ALIKE = 0.9  # similarity of tokens from which they are called collapsed
_DRAWN = 64  # heads whose weights give an entropy
_SIZE = 64  # units of a head
_LONGEST = 2048  # tokens whose pairs fit in 2 GB


def energy_limit(beta: float, tokens: int) -> tuple[float, float]:
    """Entropy by ln T and participation Σ A² of soft-max weights as T → ∞, logits N(0, β²): the random energy model.

    1 − β²/β_c² and 0 below β_c = √(2 ln T); 0 and 1 − β_c/β above.

    >>> print([f"{x:.3f}" for b in (1.0, 8.0) for x in energy_limit(b, 32)])
    ['0.856', '0.000', '0.000', '0.671']
    """
    ratio = beta / math.sqrt(2.0 * math.log(tokens))
    return (1.0 - ratio * ratio, 0.0) if ratio <= 1.0 else (0.0, 1.0 - 1.0 / ratio)


@dataclass(frozen=True)
class TransformerPhases(StoredRecord, Shown):
    """Blocks of attention and MLP over a grid: arrays of shape (residuals, strengths), of the last block.

    `similarity` is the correlation of two tokens of a sequence, `gamma` that of tokens at the same place of two
    sequences, `entropy` that of attention weights by ln T, `energy_entropy` its random-energy limit at the same `beta`,
    the standard deviation of attention logits; `gradients` the factor on gradients' mean square per block going back.
    """

    activation: str
    length: int
    depth: int
    strengths: Array
    residuals: Array
    similarity: Array
    gamma: Array
    entropy: Array
    energy_entropy: Array
    beta: Array
    gradients: Array
    note: str = field(default="i.i.d. tokens, no positions, every token attends to all; wide layers, many heads")

    @property
    def condensed(self) -> float:
        """β_c = √(2 ln T)."""
        return math.sqrt(2.0 * math.log(self.length))

    @property
    def phase(self) -> NDArray[np.str_]:
        """The phase in words: tokens all alike, attention on few tokens, both, or neither."""
        rank, entropy = self.similarity >= _ALIKE, self.beta >= self.condensed
        return np.array(["neither", "rank collapse", "entropy collapse", "both collapse"])[rank + 2 * entropy]

    def __repr__(self) -> str:
        return f"TransformerPhases({self.depth} blocks, {self.residuals.size} × {self.strengths.size} points)"

    def __str__(self) -> str:
        names, counts = np.unique(self.phase, return_counts=True)
        lines = [f"Phases of {self.depth} transformer blocks ({self.activation}), {self.length} tokens"]
        lines += [
            f"  {100 * n / self.phase.size:5.1f} %  {name}" for n, name in sorted(zip(counts, names, strict=True))
        ]
        return "\n".join([*lines, f"  {self.note}"])


def transformer_phases(
    activation: str = "gelu",
    *,
    strengths: ArrayLike | None = None,
    residuals: ArrayLike | None = None,
    length: int = 32,
    depth: int = 8,
) -> TransformerPhases:
    """Where depth makes tokens alike (rank collapse) and where attention rests on few of them (entropy collapse).

    Blocks h ← h + attention(norm h)/α, h ← h + MLP(norm h)/α whose values and MLPs keep the size of what enters:
    `residuals` are α, `strengths` σ_Qσ_K, the standard deviation of attention logits between unrelated tokens. Of
    sequences beyond 256 tokens gradients are not known (NaN). The default takes half a minute on one core.

    >>> d = transformer_phases("relu", strengths=[0.1, 10.0], residuals=[0.1, 3.0], length=16, depth=4)
    >>> print(d.phase.tolist())
    [['rank collapse', 'entropy collapse'], ['neither', 'entropy collapse']]
    """
    check_count(length, "length", "transformer_phases", low=2)
    check_count(depth, "depth", "transformer_phases", low=1)
    if length > _LONGEST:
        hint = "length=32"
        raise NotCovered(f"sequences of at most {_LONGEST} tokens", got=length, where="transformer_phases", hint=hint)
    x = axis(strengths, np.geomspace(0.1, 12.0, 9), "strengths", positive=True)
    y = axis(residuals, np.geomspace(0.1, 6.0, 7), "residuals", positive=True)
    found = [[_point(activation, float(s), float(a), length, depth) for s in x] for a in y]
    values: dict[str, Any] = {name: np.array([[one[name] for one in row] for row in found]) for name in found[0][0]}
    return TransformerPhases(activation, length, depth, x, y, **values)


def _point(activation: str, strength: float, residual: float, length: int, depth: int) -> dict[str, float]:
    """One network on two sequences that share no token."""
    branch = f"residual(scale={1.0 / residual!r})"
    attention = f"attention(8, weight_var={strength!r}, out_var={1.0 / strength!r})"
    moments = registry.activation(activation).moments(0.0, 1.0)
    outer = 1.0 / (moments.mean**2 + moments.between + moments.spread)
    mlp = f"dense > {activation} > dense(weight_var={outer!r})"
    block = f"{branch}[layernorm > {attention}] > {branch}[layernorm > {mlp}]"
    body = Network.parse(f"embed(1) > {depth} x [{block}]", classes=2)
    ids = np.arange(2 * length).reshape(2, length)
    heads = Heads(1, length, strength**2, size=_SIZE)
    entropy, beta, c = math.nan, math.nan, np.eye(2 * length)
    for layers, _, before, after in block_covariances(body, ids):
        if layers[0].paths and any(isinstance(layer, Attention) for layer in layers[0].paths[0]):
            inside = _correlations(before)[:length, :length]
            beta = math.sqrt(float(heads.logit_variance(inside).mean()))
            weights = drawn_weights(inside, heads, _DRAWN)
            entropy = -float(np.sum(weights * np.log(np.maximum(weights, 1e-300)), axis=-1).mean()) / math.log(length)
        c = _correlations(after)
    same = float(c[:length, length:].diagonal().mean())
    head = Network.parse(f"{body} > layernorm > pool_tokens(mean) > dense", classes=2)
    factors = stream_gradients(head, Tokens(length=length))[1 : 2 * depth + 1]
    known = [math.log(f) for f in factors if f is not None and f > 0.0]
    return {
        "similarity": float(c[:length, :length].sum() - length) / (length * (length - 1.0)),
        "gamma": same / (1.0 - same) if same < 1.0 else math.inf,
        "entropy": entropy,
        "energy_entropy": energy_limit(beta, length)[0],
        "beta": beta,
        "gradients": math.exp(math.fsum(known) / depth) if len(known) == 2 * depth else math.nan,
    }


def _correlations(k: Array) -> Array:
    scale = np.sqrt(k.diagonal())
    return k / np.multiply.outer(scale, scale)
