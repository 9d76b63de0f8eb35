"""The table of models that are read by the names of their classes: trunk, then how their head reads it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn

from firstguess.modules.read.token_parts import Builder, Matrix, ModelTensor, Piece, Stop, residual
from firstguess.network.activations.registry import activation
from firstguess.network.layers import Activate, FirstToken, Positions

# torch's own: nn.MultiheadAttention, nn.TransformerEncoderLayer and nn.TransformerEncoder.


def is_causal(mask: Any, *, taken: bool = False) -> bool | None:
    """Whether a mask (T, T) lets a token attend to itself and those before it; None: it is another one.

    As for nn.MultiheadAttention: True, or −∞, is where it may not; `taken`: True is where it may.
    """
    if mask is None:
        return False
    mask = torch.as_tensor(mask)
    mask = mask.reshape(mask.shape[-2:]) if mask.ndim > 2 and mask.numel() == mask[..., :, :].shape[-1] ** 2 else mask
    if mask.ndim != 2 or mask.shape[0] != mask.shape[1]:
        return None
    open_ = (mask if taken else ~mask) if mask.dtype == torch.bool else mask == 0
    if not bool(open_.any()) or (mask.dtype != torch.bool and not bool(torch.isneginf(mask[~open_]).all())):
        return None
    if bool(open_.all()):
        return False
    return True if torch.equal(open_, torch.ones_like(open_).tril()) else None


def multihead(builder: Builder, path: str, *, causal: bool) -> Piece:
    """nn.MultiheadAttention as self-attention."""
    module: Any = builder.model.get_submodule(path)
    if not module.batch_first:
        raise builder.stop(path, "batch_first=False: tokens come first, and a description has points first")
    if module.in_proj_weight is None or module.bias_k is not None or module.add_zero_attn:
        raise builder.stop(path, "keys or values of other widths, or more keys than tokens")
    dot, width = f"{path}." if path else "", module.embed_dim
    bias = None if module.in_proj_bias is None else ModelTensor(f"{dot}in_proj_bias")
    fused = Matrix(path, ModelTensor(f"{dot}in_proj_weight"), bias, 3 * width, width)
    last = builder.matrix(f"{dot}out_proj")
    return builder.attention(path, fused.thirds(), last, module.num_heads, causal=causal)


def encoder(builder: Builder, path: str, *, causal: bool) -> list[Piece]:
    """nn.TransformerEncoderLayer, or nn.TransformerEncoder: its layers, and the norm at the end if there is one."""
    module: Any = builder.model.get_submodule(path)
    dot = f"{path}." if path else ""
    if isinstance(module, nn.TransformerEncoder):
        paths = [f"{dot}layers.{i}" for i in range(len(module.layers))]
        end = [] if module.norm is None else builder.module(f"{dot}norm")
        return [*(piece for one in paths for piece in encoder(builder, one, causal=causal)), *end]
    if type(module).forward is not nn.TransformerEncoderLayer.forward:
        raise builder.stop(path, "an encoder layer with a forward of its own")
    attention = multihead(builder, f"{dot}self_attn", causal=causal)
    mlp = builder.mlp([f"{dot}linear1", f"{dot}linear2"], module.activation, path)
    norms = [builder.module(f"{dot}{name}") for name in ("norm1", "norm2")]
    return _in_stream(attention, mlp, norms, after=not module.norm_first)


def _in_stream(attention: Piece, mlp: list[Piece], norms: list[list[Piece]], *, after: bool) -> list[Piece]:
    """A block: two branches, with norms before them or `after` their sums."""
    if after:
        return [residual([attention]), *norms[0], residual(mlp), *norms[1]]
    return [residual([*norms[0], attention]), residual([*norms[1], *mlp])]


# Transformers of Hugging Face: where each family keeps its parts.


@dataclass(frozen=True)
class BlockPaths:
    """Paths of a block's parts, below it; several have spaces between them."""

    attention: str
    three: str  # queries, keys and values; or one layer for all, one after another
    out: str
    norms: str  # of the attention and of the MLP
    mlp: str  # widening, narrowing; of a gated one the gate is first
    function: str  # the activation, named by the module that it is in
    bends: str = ""  # … or by this one


@dataclass(frozen=True)
class TrunkPaths:
    """Paths of a model's parts; several have spaces between them. Versions of the package differ in `blocks` and
    `layouts`: the first one that is there is meant."""

    front: str  # a table of tokens (and of segments), or a convolution that cuts patches
    blocks: str
    layouts: tuple[BlockPaths, ...]
    positions: str = ""
    tokens: str = ""  # learned ones; the last one put in front is the first
    begin: str = ""  # a norm before the first block
    end: str = ""  # a norm after the last block
    post_norm: bool = False  # norms after sums, not before branches


_GPT2 = TrunkPaths(
    "wte", "h",
    (BlockPaths("attn", "attn.c_attn", "attn.c_proj", "ln_1 ln_2", "mlp.c_fc mlp.c_proj", "mlp.act", "mlp.act"),),
    positions="wpe", end="ln_f",
)  # fmt: skip
_LLAMA = TrunkPaths(
    "embed_tokens", "layers",
    (BlockPaths("self_attn", "self_attn.q_proj self_attn.k_proj self_attn.v_proj", "self_attn.o_proj",
                "input_layernorm post_attention_layernorm", "mlp.gate_proj mlp.up_proj mlp.down_proj",
                "mlp.act_fn", "mlp.act_fn"),),
    end="norm",
)  # fmt: skip
_BERT = TrunkPaths(
    "embeddings.word_embeddings embeddings.token_type_embeddings", "encoder.layer",
    (BlockPaths("attention.self", "attention.self.query attention.self.key attention.self.value",
                "attention.output.dense", "attention.output.LayerNorm output.LayerNorm",
                "intermediate.dense output.dense", "intermediate.intermediate_act_fn"),),
    positions="embeddings.position_embeddings", begin="embeddings.LayerNorm", post_norm=True,
)  # fmt: skip
_DISTILBERT = TrunkPaths(
    "embeddings.word_embeddings", "transformer.layer",
    (BlockPaths("attention", "attention.q_lin attention.k_lin attention.v_lin", "attention.out_lin",
                "sa_layer_norm output_layer_norm", "ffn.lin1 ffn.lin2", "ffn.activation"),),
    positions="embeddings.position_embeddings", begin="embeddings.LayerNorm", post_norm=True,
)  # fmt: skip
_VIT = TrunkPaths(
    "embeddings.patch_embeddings.projection", "layers encoder.layer",
    (BlockPaths("attention", "attention.q_proj attention.k_proj attention.v_proj", "attention.o_proj",
                "layernorm_before layernorm_after", "mlp.fc1 mlp.fc2", "mlp.activation_fn"),
     BlockPaths("attention",  # transformers 4
                "attention.attention.query attention.attention.key attention.attention.value",
                "attention.output.dense", "layernorm_before layernorm_after", "intermediate.dense output.dense",
                "intermediate.intermediate_act_fn")),
    positions="embeddings.position_embeddings",
    tokens="embeddings.distillation_token embeddings.cls_token", end="layernorm",
)  # fmt: skip
FAMILIES: dict[str, TrunkPaths] = {
    "GPT2Model": _GPT2, "LlamaModel": _LLAMA, "MistralModel": _LLAMA, "BertModel": _BERT, "RobertaModel": _BERT,
    "XLMRobertaModel": _BERT, "DistilBertModel": _DISTILBERT, "ViTModel": _VIT, "DeiTModel": _VIT,
}  # fmt: skip


def trunk(builder: Builder, path: str) -> list[Piece]:
    """A bare model of a known family, without its pooler."""
    model: Any = builder.model.get_submodule(path)
    dot, family = f"{path}." if path else "", FAMILIES[type(model).__name__]
    _check_config(builder, path, dot, model.config)
    front = [f"{dot}{name}" for name in family.front.split()]
    patches = isinstance(builder.model.get_submodule(front[0]), nn.Conv2d)
    pieces = [builder.patches(front[0]) if patches else builder.embed(*front)]
    for name in family.tokens.split():
        if _at(model, name) is not None:
            pieces.append(builder.shared(FirstToken, f"{dot}{name}"))
    if family.positions:
        pieces.append(_positions(builder, f"{dot}{family.positions}", _at(model, family.positions)))
    if family.begin:
        pieces += builder.module(f"{dot}{family.begin}")
    where = next(name for name in family.blocks.split() if _at(model, name) is not None)
    for i, block in enumerate(_at(model, where)):
        pieces += _block(builder, f"{dot}{where}.{i}", block, family, model.config)
    return [*pieces, *builder.module(f"{dot}{family.end}")] if family.end else pieces


def pooled(builder: Builder, path: str) -> list[Piece]:
    """A bare model's pooler on its first token; nothing where it has none."""
    pooler, at = getattr(builder.model.get_submodule(path), "pooler", None), f"{path}.pooler" if path else "pooler"
    if pooler is None:
        return []
    dense = builder.dense(builder.matrix(f"{at}.dense"))
    return [builder.pool("cls"), dense, builder.activate(pooler.activation, at)]


def _at(module: Any, path: str) -> Any:
    for name in path.split("."):
        module = getattr(module, name, None)
    return module


def _check_config(builder: Builder, path: str, dot: str, config: Any) -> None:
    """Raise Stop for what a family can be told to do otherwise."""
    if getattr(config, "add_cross_attention", False):
        raise builder.stop(path, "has cross-attention; a description has self-attention only")
    if not getattr(config, "scale_attn_weights", True) or getattr(config, "scale_attn_by_inverse_layer_idx", False):
        raise builder.stop(f"{dot}h.0.attn", "scales its logits otherwise than by the root of a head's size")
    if getattr(config, "position_embedding_type", None) not in (None, "absolute"):
        raise builder.stop(f"{dot}embeddings", "relative positions; a description has absolute and rotary ones")
    if (kind := _rope(config).get("rope_type", "default")) != "default":
        raise builder.stop(f"{dot}rotary_emb", f"rotary positions of the type {kind}; a description has the first ones")


def _rope(config: Any) -> dict[str, Any]:
    return getattr(config, "rope_parameters", None) or {"rope_theta": getattr(config, "rope_theta", 10000.0)}


def _block(builder: Builder, path: str, block: Any, family: TrunkPaths, config: Any) -> list[Piece]:
    """Attention and MLP. Keys and values may be fewer than queries, and tokens may attend to the last ones only."""
    at = next(layout for layout in family.layouts if _at(block, layout.three.split()[0]) is not None)
    query, *others = (builder.matrix(f"{path}.{name}") for name in at.three.split())
    rotary = family is _LLAMA
    three, out = (query, others[0], others[1]) if others else query.thirds(), builder.matrix(f"{path}.{at.out}")
    how: dict[str, Any] = {"causal": rotary or family is _GPT2 or (family is _BERT and bool(config.is_decoder))}
    if rotary:
        how |= {"base": float(_rope(config)["rope_theta"]), "groups": config.num_key_value_heads}
        how["window"] = getattr(config, "sliding_window", None)
    attention = builder.attention(f"{path}.{at.attention}", three, out, int(config.num_attention_heads), **how)
    bends = at.bends or at.function.rpartition(".")[0]
    mlp = builder.mlp([f"{path}.{name}" for name in at.mlp.split()], _at(block, at.function), f"{path}.{bends}")
    norms = [builder.module(f"{path}.{name}") for name in at.norms.split()]
    return _in_stream(attention, mlp, norms, after=family.post_norm)


def _positions(builder: Builder, path: str, table: Any) -> Piece:
    """A table, of which RoBERTa's positions start after the row of padding; or a parameter."""
    if not isinstance(table, nn.Embedding):
        return builder.shared(Positions, path)
    padding = table.padding_idx
    return builder.shared(Positions, f"{path}.weight", start=0 if padding is None else int(padding) + 1)


@dataclass(frozen=True)
class HeadPath:
    """How a model with a head reads its trunk: the trunk's name, which token, dense layers and activations after it."""

    trunk: str
    at: Literal["cls", "last"]
    layers: tuple[str, ...]  # paths, or names of activations in brackets


_ROBERTA = HeadPath("roberta", "cls", ("classifier.dense", "(tanh)", "classifier.out_proj"))
HEADS: dict[str, HeadPath] = {
    "GPT2ForSequenceClassification": HeadPath("transformer", "last", ("score",)),
    "LlamaForSequenceClassification": HeadPath("model", "last", ("score",)),
    "MistralForSequenceClassification": HeadPath("model", "last", ("score",)),
    "BertForSequenceClassification": HeadPath("bert", "cls", ("bert.pooler.dense", "(tanh)", "classifier")),
    **dict.fromkeys(("RobertaForSequenceClassification", "XLMRobertaForSequenceClassification"), _ROBERTA),
    "DistilBertForSequenceClassification": HeadPath("distilbert", "cls", ("pre_classifier", "(relu)", "classifier")),
    "ViTForImageClassification": HeadPath("vit", "cls", ("classifier",)),
    "DeiTForImageClassification": HeadPath("deit", "cls", ("classifier",)),
}
_LANGUAGE = ("LMHeadModel", "ForCausalLM", "ForMaskedLM", "ForPreTraining")


def is_trunk(module: nn.Module) -> bool:
    """Whether a module is a bare model of Hugging Face that is read as one."""
    return type(module).__name__ in FAMILIES and hasattr(module, "config")


def is_known(model: nn.Module) -> bool:
    name = type(model).__name__
    language = name.endswith(_LANGUAGE) and any(is_trunk(m) for m in model.children())
    return hasattr(model, "config") and (name in FAMILIES or name in HEADS or language)


def read_known(builder: Builder) -> tuple[list[Piece], int | None]:
    """The pieces of the whole model, and how many classes it has (None: no head); Stop where something is not read."""
    model: Any = builder.model
    name = type(model).__name__
    if name in FAMILIES:
        return [*trunk(builder, ""), *pooled(builder, "")], None
    if name not in HEADS:
        return _language(builder)
    head = HEADS[name]
    pieces = [*trunk(builder, head.trunk), builder.pool(head.at)]
    for layer in head.layers:
        if layer.startswith("("):
            pieces.append(Piece(Activate(activation(layer[1:-1]))))
        else:
            pieces.append(builder.dense(builder.matrix(layer)))
    return pieces, int(model.config.num_labels)


def _language(builder: Builder) -> tuple[list[Piece], int | None]:
    """A language model: its head guesses at every token, by weights of its own or by the embedding's."""
    children = dict(builder.model.named_children())
    body = next(name for name, module in children.items() if is_trunk(module))
    pieces = trunk(builder, body)
    head = next((name for name in children if name != body), "")
    if set(children) != {body, "lm_head"} or not isinstance(children["lm_head"], nn.Linear):
        why = "a head that bends the signal once more, and has biases; a description's gives logits by one matrix"
        raise Stop(head, builder.kind(head), why, pieces)
    matrix = builder.matrix("lm_head")
    if matrix.bias is not None:
        raise Stop(head, builder.kind(head), "a language-model head with biases", pieces)
    pieces[0] = builder.changed(pieces[0], vocabulary=matrix.units)
    model: Any = builder.model
    given, out = model.get_input_embeddings(), model.get_output_embeddings()
    tied = out is not None and getattr(out, "weight", None) is given.weight
    return [*pieces, builder.unembed(matrix, tied=tied)], matrix.units


def outputs(result: Any) -> torch.Tensor:
    """What a model's description describes: logits, the pooled vector, or the last tokens."""
    if isinstance(result, torch.Tensor):
        return result
    for name in ("logits", "pooler_output", "last_hidden_state"):
        found = getattr(result, name, None)
        if isinstance(found, torch.Tensor):
            return found
    return result[0]
