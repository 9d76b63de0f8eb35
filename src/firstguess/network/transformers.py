"""Builders of token networks: the usual transformers and mixers as descriptions."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, get_args

from firstguess.base.checks import check_count, check_number
from firstguess.base.errors import InvalidInput
from firstguess.network.activations import lookup
from firstguess.network.activations.record import Activation
from firstguess.network.layer import Layer
from firstguess.network.layers import (
    Activate,
    Attention,
    Dense,
    Embed,
    FirstToken,
    Gated,
    LayerNorm,
    Patches,
    PoolTokens,
    Positions,
    Residual,
    RMSNorm,
    TokenMix,
    Unembed,
)
from firstguess.network.network import Network

Style = Literal["gpt2", "bert", "llama", "vit", "original"]
Pool = Literal["last", "mean", "cls"]
_POOLS: dict[str, Pool] = {"gpt2": "last", "bert": "cls", "llama": "last", "vit": "cls", "original": "mean"}
_VOCABULARY = {"gpt2": 50257, "bert": 30522, "llama": 32000, "original": 37000}  # of the real ones
_EPS = {"gpt2": 1e-5, "bert": 1e-12, "llama": 1e-6, "vit": 1e-12, "original": 1e-5}  # of the real ones' norms


def transformer(
    style: Style = "gpt2",
    *,
    depth: int = 12,
    width: int = 768,
    heads: int = 12,
    groups: int | None = None,
    window: int | None = None,
    hidden: int | None = None,
    std: float | None = None,
    pool: Pool | None = None,
    classes: int = 10,
    patch: int = 16,
    channels: int = 3,
    eps: float | None = None,
    head: Literal["classes", "language"] = "classes",
    vocabulary: int | None = None,
    tied: bool | None = None,
    padding: int | None = None,
) -> Network:
    """A transformer that classifies, initialized as the real ones are; or a language model (`head="language"`).

    "gpt2", "bert", "llama" and "vit" are Hugging Face's: weights N(0, std²) with std 0.02, no biases at the start, the
    norms' own ε; of GPT-2 the last weights of every branch are divided by √(2·depth). "original" is that of 2017: norms
    behind the sums, Glorot weights (all variances 1 but those that widen and narrow), embeddings of unit size, and
    sinusoidal positions. `hidden` is the width inside the MLP (4·width; of LLaMA 8/3·width, in each half of the gate);
    `patch` and `channels` are those of a ViT's images. Heads share `groups` keys and values; tokens attend to others
    nearer than `window`; `padding` is the id that shorter sequences are filled up with. BERT's CLS and LLaMA's BOS are
    tokens of the data: `fg.Tokens(…, shared=1)`.

    A language model guesses a token of its `vocabulary` at every place; its head is `tied` to the embedding, as that
    of GPT-2, of BERT (behind one more dense layer with GELU and a norm) and of the original, or not, as LLaMA's.

    >>> print(transformer("llama", depth=2, width=64, heads=4))   # doctest: +ELLIPSIS
    embed(0.02, width=64) > 2 x [residual[rmsnorm(eps=1e-06) > attention(4, causal, rotary, ...
    """
    _check(style, depth, width, heads)
    if hidden is None:
        hidden = 8 * width // 3 if style == "llama" else 4 * width
    check_count(hidden, "hidden", "transformer")
    eps = _EPS[style] if eps is None else eps
    pool = _POOLS[style] if pool is None else pool
    block = None
    if style == "original":
        block = _original(width, Attention(heads, groups=groups, window=window), hidden, eps, std)
    std = 0.02 if std is None else std
    check_number(std, "std", "transformer", strict=True, hint="std=0.02")
    wide, deep = width * std**2, hidden * std**2
    share = 1.0 / (2 * depth) if style == "gpt2" else 1.0
    causal = style in ("gpt2", "llama")
    norm: Layer = RMSNorm(eps=eps) if style == "llama" else LayerNorm(eps=eps)
    size = _vocabulary(style, head, vocabulary, tied)
    attention = Attention(
        heads,
        causal,
        style == "llama",
        weight_var=wide,
        out_var=None if share == 1.0 else share * wide,
        groups=groups,
        window=window,
    )
    inner = 2 * hidden if style == "llama" else hidden
    bend = Gated(lookup.activation("silu")) if style == "llama" else Activate(_phi(style))
    mlp = (Dense(wide, width=inner), bend, Dense(share * deep))
    if block is None and style == "bert":
        block = [Residual((attention,)), norm, Residual(mlp), norm]
    elif block is None:
        block = [Residual((norm, attention)), Residual((norm, *mlp))]
    end: list[Layer] = [] if style in ("bert", "original") else [norm]
    front = _front(style, std, width, patch, channels, norm)
    if padding is not None:
        if not isinstance(front[0], Embed):
            raise InvalidInput("a style that reads tokens, for padding", got=style, where="transformer")
        front[0] = replace(front[0], padding=padding)
    if size is not None:
        front[0] = replace(front[0], vocabulary=size) if isinstance(front[0], Embed) else front[0]
        if style == "bert":
            end = [Dense(wide), Activate(_phi(style)), norm]
        tied = style != "llama" if tied is None else tied
        last = Unembed(tied, weight_var=1.0 if tied or style == "original" else wide)
        return Network((*front, *block * depth, *end, last), size)
    return Network(
        (*front, *block * depth, *end, PoolTokens(pool), Dense(wide if style != "original" else 1.0)), classes
    )


def _vocabulary(style: Style, head: str, vocabulary: int | None, tied: bool | None) -> int | None:
    """The number of tokens of a language model; None: it classifies."""
    if head not in ("classes", "language"):
        raise InvalidInput("head 'classes' or 'language'", got=head, where="transformer", hint="head='language'")
    if head == "classes":
        if vocabulary is not None or tied is not None:
            raise InvalidInput(
                "head='language' for a vocabulary or ties", got=head, where="transformer", hint="head='language'"
            )
        return None
    if style == "vit":
        raise InvalidInput("a style that reads tokens", got="vit", where="transformer", hint="style='gpt2'")
    check_count(vocabulary, "vocabulary", "transformer", low=2)
    return vocabulary or _VOCABULARY[style]


def _phi(style: str) -> Activation:
    return lookup.activation("gelu_tanh" if style == "gpt2" else "gelu")


def _front(style: str, std: float, width: int, patch: int, channels: int, norm: Layer) -> list[Layer]:
    """What makes tokens: embeddings and positions."""
    if style == "vit":
        check_count(patch, "patch", "transformer")
        check_count(channels, "channels", "transformer")
        cut = Patches(patch, weight_var=std**2 * channels * patch**2, width=width)
        return [cut, FirstToken(std), Positions(std)]
    if style == "original":  # N(0, 1/width), times √width
        return [Embed(1.0, width=width), Positions(sinusoidal=True)]
    if style == "bert":
        return [Embed(std, width=width, types=std), Positions(std), norm]
    return [Embed(std, width=width), Positions(std)] if style == "gpt2" else [Embed(std, width=width)]


def _original(width: int, attention: Attention, hidden: int, eps: float, std: float | None) -> list[Layer]:
    """Norms behind the sums; Glorot: Var W = 2/(fan-in + fan-out)."""
    if std is not None:
        raise InvalidInput(
            "no std for the original transformer: its weights are Glorot's",
            got=std,
            where="transformer",
            hint="style='bert'",
        )
    norm = LayerNorm(eps=eps)
    mlp = (
        Dense(2.0 * width / (width + hidden), width=hidden),
        Activate(lookup.activation("relu")),
        Dense(2.0 * hidden / (width + hidden)),
    )
    return [Residual((attention,)), norm, Residual(mlp), norm]


def _check(style: str, depth: int, width: int, heads: int) -> None:
    if style not in get_args(Style):
        raise InvalidInput(
            f"a style of {', '.join(get_args(Style))}", got=style, where="transformer", hint="style='gpt2'"
        )
    for name, value in (("depth", depth), ("width", width), ("heads", heads)):
        check_count(value, name, "transformer")
    if width % heads:
        near = next(h for h in range(min(heads, width), 0, -1) if width % h == 0)
        raise InvalidInput(
            f"heads that divide the width, {width}", got=heads, where="transformer", hint=f"heads={near}"
        )


def mixer(
    *,
    depth: int = 8,
    width: int = 512,
    tokens: int = 256,
    hidden: int = 2048,
    patch: int = 16,
    norm: Literal["layernorm", "rmsnorm"] = "layernorm",
    weight_var: float = 1.0,
    classes: int = 10,
    eps: float = 1e-6,
) -> Network:
    """An MLP-Mixer (S/16 by default): `depth` times token mixing with `tokens` units, then an MLP with `hidden` ones.

    >>> print(mixer(depth=2, width=64, tokens=32, hidden=128, patch=4, eps=0))   # doctest: +ELLIPSIS
    patches(4, width=64) > 2 x [residual[layernorm > tokenmix(32)] > residual[layernorm > dense(width=128) > gelu > ...
    """
    for name, value in (("depth", depth), ("width", width), ("tokens", tokens), ("hidden", hidden), ("patch", patch)):
        check_count(value, name, "mixer")
    if norm not in ("layernorm", "rmsnorm"):
        raise InvalidInput("layernorm or rmsnorm", got=norm, where="mixer", hint="norm='layernorm'")
    one: Layer = LayerNorm(eps=eps) if norm == "layernorm" else RMSNorm(eps=eps)
    mlp = (Dense(weight_var, width=hidden), Activate(lookup.activation("gelu")), Dense(weight_var))
    block: list[Layer] = [Residual((one, TokenMix(tokens, weight_var=weight_var))), Residual((one, *mlp))]
    front = Patches(patch, weight_var=weight_var, width=width)
    return Network((front, *block * depth, one, PoolTokens("mean"), Dense(weight_var)), classes)
