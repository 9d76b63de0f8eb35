"""Builders: the usual networks as descriptions."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib.machinery import PathFinder
from typing import Literal, get_args

from firstguess.base import checks
from firstguess.base.checks import check_count, check_number, is_module
from firstguess.base.errors import InvalidInput, ParseError
from firstguess.base.gaussian import Function
from firstguess.base.text import is_path
from firstguess.network.activations import registry
from firstguess.network.activations.record import Activation
from firstguess.network.grammar import parse_layers
from firstguess.network.layer import Layer
from firstguess.network.layers import (
    KINDS,
    Activate,
    Attention,
    Conv,
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

Placement = Literal["before", "after"]

_DEEPEST = 100_000


def mlp(
    depth: int = 1,
    activation: str | Activation | Function = "relu",
    *,
    norm: str | Layer | None = None,
    placement: Placement = "before",
    weight_var: float = 2.0,
    bias_var: float = 0.0,
    classes: int = 2,
    width: int | None = None,
    pool: str | Layer | None = None,
) -> Network:
    """A multilayer perceptron: `depth` times [dense, norm?, activation, norm?, pool?], then the output layer.

    >>> print(mlp(depth=3, norm="layernorm", placement="after"))
    3 x [dense(weight_var=2) > relu > layernorm] > dense(weight_var=2)
    """
    _check_depth(depth, "mlp")
    phi = _activate(activation)
    dense = Dense(weight_var, bias_var, width)
    block = [dense, *_around(phi, norm, placement), *([_layer(pool)] if pool is not None else [])]
    return Network((*block * depth, replace(dense, width=None)), classes)


def residual_mlp(
    depth: int = 1,
    activation: str | Activation | Function = "relu",
    *,
    norm: str | Layer | None = None,
    placement: Literal["before branch", "after sum"] = "before branch",
    branch_scale: float = 1.0,
    weight_var: float = 2.0,
    bias_var: float = 0.0,
    classes: int = 2,
    width: int | None = None,
) -> Network:
    """A stem, `depth` times x + scale·dense(φ(x)), and the output; the norm at the branch's head or after the sum.

    >>> print(residual_mlp(depth=2, norm="layernorm"))
    dense(weight_var=2) > 2 x [residual[layernorm > relu > dense(weight_var=2)]] > dense(weight_var=2)
    """
    _check_depth(depth, "residual_mlp")
    checks.choice(placement, ("before branch", "after sum"), "residual_mlp", "placement")
    phi = _activate(activation)
    dense = Dense(weight_var, bias_var, width)
    norms = [_layer(norm)] if norm is not None else []
    head = norms if placement == "before branch" else []
    block: list[Layer] = [Residual((*head, phi, dense), branch_scale)]
    block += norms if placement == "after sum" else []
    return Network((dense, *block * depth, replace(dense, width=None)), classes)


def cnn(
    depth: int = 2,
    activation: str | Activation | Function = "relu",
    *,
    norm: str | Layer | None = None,
    placement: Placement = "before",
    pool: str | Layer | None = "maxpool(4)",
    kernel: int = 3,
    weight_var: float = 2.0,
    bias_var: float = 0.0,
    classes: int = 2,
    width: int | None = None,
) -> Network:
    """`depth` times [conv, norm?, activation, norm?, pool?], then a dense output layer.

    >>> print(cnn(depth=2, activation="tanh", pool="avgpool(4)", weight_var=1))
    2 x [conv(padding=1) > tanh > avgpool(4)] > dense
    """
    _check_depth(depth, "cnn")
    phi = _activate(activation)
    check_count(kernel, "kernel", "cnn")
    conv = Conv(weight_var, bias_var, width, kernel, padding=kernel // 2)
    block = [conv, *_around(phi, norm, placement), *([_layer(pool)] if pool is not None else [])]
    return Network((*block * depth, Dense(weight_var, bias_var)), classes)


def _around(phi: Layer, norm: str | Layer | None, placement: Placement) -> list[Layer]:
    checks.choice(placement, ("before", "after"), "norm", "placement", hint="placement='after'")
    if norm is None:
        return [phi]
    return [_layer(norm), phi] if placement == "before" else [phi, _layer(norm)]


def _activate(what: str | Activation | Function) -> Layer:
    """Make an activation by its name, with parameters where it has some: "leaky_relu(0.2)", "centered(relu)"."""
    if not (isinstance(what, str) and "(" in what):
        return Activate(registry.activation(what))
    layers = parse_layers(what)
    if len(layers) != 1 or layers[0].function is None:
        raise InvalidInput("one activation", got=repr(what), hint="activation='leaky_relu(0.2)'")
    return layers[0]


def _layer(what: str | Layer) -> Layer:
    if is_module(what):
        kind = what.__name__ if isinstance(what, type) else type(what).__name__
        known = [word for word in KINDS if word == kind.lower().rstrip("123d")]
        raise InvalidInput("one layer by its name", got=f"the module {kind}", hint=repr([*known, "layernorm"][0]))
    if not isinstance(what, str):
        return what
    layers = parse_layers(what)
    if len(layers) != 1:
        raise InvalidInput("one layer", got=repr(what), hint="norm='layernorm'")
    return layers[0]


def _check_depth(depth: int | None, where: str) -> None:
    if depth is None:
        raise InvalidInput("a depth", got=depth, where=where, hint="depth=20")
    if isinstance(depth, str):
        raise InvalidInput("a depth first", got=repr(depth), where=where, hint=f"fg.{where}(5, {depth!r})")
    check_count(depth, "depth", where)
    if depth > _DEEPEST:
        raise InvalidInput(f"a depth of at most {_DEEPEST}", got=depth, where=where, hint="depth=1000")


# Builders of token networks: the usual transformers and mixers as descriptions.

Style = Literal["gpt2", "bert", "llama", "vit", "original"]
Pool = Literal["last", "mean", "cls"]
Init = Literal["torch", "gpt2", "llama"]
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
    embed_std: float | None = None,
    init: Init | None = None,
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
    after the sums, Glorot weights (all variances 1 but those that widen and narrow), embeddings of unit size, and
    sinusoidal positions. `hidden` is the width inside the MLP (4·width; of LLaMA 8/3·width, in each half of the gate);
    `patch` and `channels` are those of a ViT's images. Heads share `groups` keys and values; tokens attend to others
    nearer than `window`; `padding` is the id that shorter sequences are filled up with. BERT's CLS and LLaMA's BOS are
    tokens of the data: `fg.Tokens(…, shared=1)`.

    `init` gives a style another initialization: "gpt2" and "llama" as above, with or without that division; "torch" is
    what nn.Linear and nn.Embedding do by themselves: uniform weights and biases of variance 1/(3·fan-in) (LLaMA has
    no biases), embeddings N(0, 1). `embed_std` is the standard
    deviation of embeddings and learned positions, if it is not that of the weights.

    A language model guesses a token of its `vocabulary` at every place; its head is `tied` to the embedding, as that
    of GPT-2, of BERT (after one more dense layer with GELU and a norm) and of the original, or not, as LLaMA's.

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
        if init is not None or embed_std is not None:
            raise InvalidInput("another style, for init or embed_std", got=style, where="transformer", hint="init=None")
        block = _original(width, Attention(heads, groups=groups, window=window), hidden, eps, std)
    start = _initial(style, init, std, embed_std, depth)
    wide, share = start.variance(width), start.share
    causal = style in ("gpt2", "llama")
    norm: Layer = RMSNorm(eps=eps) if style == "llama" else LayerNorm(eps=eps)
    size = _vocabulary(style, head, vocabulary, tied)
    attention = Attention(
        heads,
        causal,
        style == "llama",
        weight_var=wide,
        out_var=None if share == 1.0 else share * wide,
        bias_var=start.bias(width),
        groups=groups,
        window=window,
    )
    inner = 2 * hidden if style == "llama" else hidden
    bend = Gated(registry.activation("silu")) if style == "llama" else Activate(_phi(style))
    mlp = (start.dense(width, width=inner), bend, start.dense(hidden, share=share))
    if block is None and style == "bert":
        block = [Residual((attention,)), norm, Residual(mlp), norm]
    elif block is None:
        block = [Residual((norm, attention)), Residual((norm, *mlp))]
    end: list[Layer] = [] if style in ("bert", "original") else [norm]
    front = _front(style, start, width, patch, channels, norm)
    if padding is not None:
        if not isinstance(front[0], Embed):
            raise InvalidInput("a style that reads tokens, for padding", got=style, where="transformer")
        front[0] = replace(front[0], padding=padding)
    if size is not None:
        front[0] = replace(front[0], vocabulary=size) if isinstance(front[0], Embed) else front[0]
        if style == "bert":
            end = [start.dense(width), Activate(_phi(style)), norm]
        tied = style != "llama" if tied is None else tied
        own = style == "original" or tied
        last = Unembed(tied, weight_var=1.0 if own else wide, init="normal" if own else start.distribution)
        return Network((*front, *block * depth, *end, last), size)
    return Network(
        (*front, *block * depth, *end, PoolTokens(pool), start.dense(width) if style != "original" else Dense(1.0)),
        classes,
    )


def _vocabulary(style: Style, head: str, vocabulary: int | None, tied: bool | None) -> int | None:
    """The number of tokens of a language model; None: it classifies."""
    checks.choice(head, ("classes", "language"), "transformer", "head", hint="head='language'")
    if head == "classes":
        if vocabulary is not None or tied is not None:
            hint = "head='language'"
            raise InvalidInput("head='language' for a vocabulary or ties", got=head, where="transformer", hint=hint)
        return None
    if style == "vit":
        raise InvalidInput("a style that reads tokens", got="vit", where="transformer", hint="style='gpt2'")
    check_count(vocabulary, "vocabulary", "transformer", low=2)
    return vocabulary or _VOCABULARY[style]


def _phi(style: str) -> Activation:
    return registry.activation("gelu_tanh" if style == "gpt2" else "gelu")


@dataclass(frozen=True)
class _Initial:
    """How a transformer's weights start."""

    std: float | None  # of all weights; None: as nn.Linear does it
    embedded: float
    share: float  # of the variance of a branch's last weights
    biases: bool

    @property
    def distribution(self) -> str:
        return "uniform" if self.std is None else "normal"

    def variance(self, fan_in: int) -> float:
        """fan-in · Var W."""
        return 1.0 / 3.0 if self.std is None else fan_in * self.std**2

    def bias(self, fan_in: int) -> float:
        """Var b."""
        return 1.0 / (3.0 * fan_in) if self.biases else 0.0

    def dense(self, fan_in: int, *, share: float = 1.0, width: int | None = None) -> Dense:
        """A dense layer that starts like this."""
        variance = share * self.variance(fan_in)
        return Dense(variance, bias_var=self.bias(fan_in), width=width, init=self.distribution)


def _initial(style: str, init: str | None, std: float | None, embed_std: float | None, depth: int) -> _Initial:
    kind = init or ("gpt2" if style == "gpt2" else "llama")
    if kind not in get_args(Init):
        expected = f"init {', '.join(get_args(Init))}, or None for the style's own"
        raise InvalidInput(expected, got=init, where="transformer", hint="init='torch'")
    if kind == "torch" and std is not None:
        raise InvalidInput("no std for init='torch'", got=std, where="transformer", hint="embed_std=0.02")
    std = 0.02 if std is None else std
    check_number(std, "std", "transformer", strict=True, hint="std=0.02")
    embedded = embed_std if embed_std is not None else 1.0 if kind == "torch" else std
    check_number(embedded, "embed_std", "transformer", strict=True, hint="embed_std=0.02")
    share = 1.0 / (2 * depth) if kind == "gpt2" else 1.0
    return _Initial(None if kind == "torch" else std, embedded, share, kind == "torch" and style != "llama")


def _front(style: str, start: _Initial, width: int, patch: int, channels: int, norm: Layer) -> list[Layer]:
    std = start.embedded
    if style == "vit":
        check_count(patch, "patch", "transformer")
        check_count(channels, "channels", "transformer")
        cut = Patches(patch, weight_var=start.variance(channels * patch**2), width=width)
        return [cut, FirstToken(std), Positions(std)]
    if style == "original":  # N(0, 1/width), times √width
        return [Embed(1.0, width=width), Positions(sinusoidal=True)]
    if style == "bert":
        return [Embed(std, width=width, types=std), Positions(std), norm]
    return [Embed(std, width=width), Positions(std)] if style == "gpt2" else [Embed(std, width=width)]


def _original(width: int, attention: Attention, hidden: int, eps: float, std: float | None) -> list[Layer]:
    """Norms after the sums; Glorot: Var W = 2/(fan-in + fan-out)."""
    if std is not None:
        expected = "no std for the original transformer: its weights are Glorot's"
        raise InvalidInput(expected, got=std, where="transformer", hint="style='bert'")
    norm = LayerNorm(eps=eps)
    mlp = (
        Dense(2.0 * width / (width + hidden), width=hidden),
        Activate(registry.activation("relu")),
        Dense(2.0 * hidden / (width + hidden)),
    )
    return [Residual((attention,)), norm, Residual(mlp), norm]


def _check(style: str, depth: int, width: int, heads: int) -> None:
    checks.choice(style, get_args(Style), "transformer", "style")
    for name, value in (("depth", depth), ("width", width), ("heads", heads)):
        check_count(value, name, "transformer")
    if width % heads:
        near = next(h for h in range(min(heads, width), 0, -1) if width % h == 0)
        hint = f"heads={near}"
        raise InvalidInput(f"heads that divide the width, {width}", got=heads, where="transformer", hint=hint)


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
    checks.choice(norm, ("layernorm", "rmsnorm"), "mixer", "norm")
    one: Layer = LayerNorm(eps=eps) if norm == "layernorm" else RMSNorm(eps=eps)
    mlp = (Dense(weight_var, width=hidden), Activate(registry.activation("gelu")), Dense(weight_var))
    block: list[Layer] = [Residual((one, TokenMix(tokens, weight_var=weight_var))), Residual((one, *mlp))]
    front = Patches(patch, weight_var=weight_var, width=width)
    return Network((front, *block * depth, one, PoolTokens("mean"), Dense(weight_var)), classes)


# What a user gives as a network: a description, its text, or the word of a builder; and what was meant otherwise.

_CHECKPOINTS = (".pt", ".pth", ".ckpt", ".safetensors", ".bin", ".onnx")
BUILDERS: dict[str, Callable[..., Network]] = {"mlp": mlp, "residual_mlp": residual_mlp, "cnn": cnn}


def as_network(network: Network | str, classes: int | None = None, *, where: str = "predict") -> Network:
    """A network, its text or a builder's word (`mlp`, `residual_mlp`, `cnn`), with another number of classes if asked.

    >>> print(as_network("mlp"))
    dense(weight_var=2) > relu > dense(weight_var=2)
    >>> as_network("mpl")
    Traceback (most recent call last):
    ...
    firstguess.ParseError: Expected a description or a builder, but got 'mpl', at predict. Try: 'mlp'
    """
    if isinstance(network, str):
        source, count = network.strip(), 2 if classes is None else classes
        if source in BUILDERS:
            return BUILDERS[source](classes=count)
        try:
            return Network.parse(source, classes=count)
        except ParseError:
            _meant(source, where)
            raise
    if not isinstance(network, Network):
        module, kind = is_module(network), network if isinstance(network, type) else type(network)
        got = f"{kind.__name__}, a module" if module else kind.__name__
        hint = f"fg.{where}(fg.read(model, data).network)" if module else f"fg.{where}(fg.mlp(depth=20))"
        raise InvalidInput("a Network or its text", got=got, where=where, hint=hint)
    return network if classes in (None, network.classes) else Network(network.layers, classes)


def _meant(text: str, where: str) -> None:
    """Something that is no description at all, and what it looks like."""
    if text.endswith(_CHECKPOINTS):
        hint = "model = MyModel(); model.load_state_dict(torch.load(path)); then the model"
        raise ParseError("a model", got=f"{text!r}, a checkpoint", where=where, hint=hint) from None
    if is_path(text):
        hint = "fg.read(model, data).network, or the shell's firstguess diagnose for module:factory"
        raise ParseError("a description", got=repr(text), where=where, hint=hint) from None
    if "." in text and all(part.isidentifier() for part in text.split(".")):
        hint = f"{text}:make_model"
        raise ParseError("a description, or module:factory", got=repr(text), where=where, hint=hint) from None
    if text.isidentifier() and text not in KINDS and _is_module(text):
        expected = "a description, or module:factory"
        raise ParseError(expected, got=f"{text!r}, a module", where=where, hint=f"{text}:make_model") from None
    if text.isidentifier() and (close := difflib.get_close_matches(text.lower(), BUILDERS, n=1)):
        raise ParseError("a description or a builder", got=repr(text), where=where, hint=repr(close[0])) from None


def _is_module(name: str) -> bool:
    """Whether a user's module of this name could be imported, as `module:factory` would be; nothing is run."""
    if name in sys.stdlib_module_names:
        return False
    spec = PathFinder.find_spec(name, ["", *sys.path])
    return spec is not None and spec.origin is not None  # a folder of that name alone is none
