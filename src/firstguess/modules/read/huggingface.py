"""The table of models that are read by the names of their classes: trunk, then how their head reads it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import nn

from firstguess.modules.read.token_parts import Builder, Matrix, Piece, Stop, plain, residual
from firstguess.network.activations.registry import activation
from firstguess.network.layers import Activate, Embed

# GPT-2, and LLaMA with those built like it (Mistral): causal decoders of Hugging Face.


def gpt2(builder: Builder, path: str) -> list[Piece]:
    """A GPT2Model: its last token is read."""
    model: Any = builder.model.get_submodule(path)
    dot = f"{path}." if path else ""
    config = model.config
    if config.add_cross_attention:
        raise builder.stop(path, "has cross-attention; a description has self-attention only")
    if not config.scale_attn_weights or config.scale_attn_by_inverse_layer_idx:
        raise builder.stop(f"{dot}h.0.attn", "scales its logits otherwise than by the root of a head's size")
    pieces = [builder.embed(f"{dot}wte"), builder.positions(f"{dot}wpe.weight", f"{dot}wpe")]
    for i in range(len(model.h)):
        block = f"{dot}h.{i}"
        fused = builder.matrix(f"{block}.attn.c_attn")
        width = fused.inputs
        three = tuple(fused.part(j * width, (j + 1) * width) for j in range(3))
        attention = builder.attention(
            f"{block}.attn",
            (three[0], three[1], three[2]),
            builder.matrix(f"{block}.attn.c_proj"),
            model.h[i].attn.num_heads,
            causal=True,
        )
        mlp = builder.mlp(f"{block}.mlp.c_fc", model.h[i].mlp.act, f"{block}.mlp.c_proj", f"{block}.mlp.act")
        pieces += [
            residual([*builder.norm(f"{block}.ln_1"), attention]),
            residual([*builder.norm(f"{block}.ln_2"), *mlp]),
        ]
    return [*pieces, *builder.norm(f"{dot}ln_f")]


def llama(builder: Builder, path: str) -> list[Piece]:
    """A LlamaModel or MistralModel: its last token is read."""
    model: Any = builder.model.get_submodule(path)
    dot = f"{path}." if path else ""
    config = model.config
    rope = getattr(config, "rope_parameters", None) or {"rope_theta": getattr(config, "rope_theta", 10000.0)}
    if rope.get("rope_type", "default") != "default":
        raise builder.stop(
            f"{dot}rotary_emb", f"rotary positions of the type {rope['rope_type']}; a description has the first ones"
        )
    pieces = [builder.embed(f"{dot}embed_tokens")]
    for i in range(len(model.layers)):
        block = f"{dot}layers.{i}"
        layer: Any = model.layers[i]
        attention = _grouped(builder, f"{block}.self_attn", config, float(rope["rope_theta"]))
        mlp = builder.gated(
            f"{block}.mlp.gate_proj",
            f"{block}.mlp.up_proj",
            layer.mlp.act_fn,
            f"{block}.mlp.down_proj",
            f"{block}.mlp.act_fn" if isinstance(layer.mlp.act_fn, nn.Module) else f"{block}.mlp",
        )
        pieces += [
            residual([*builder.norm(f"{block}.input_layernorm"), attention]),
            residual([*builder.norm(f"{block}.post_attention_layernorm"), *mlp]),
        ]
    return [*pieces, *builder.norm(f"{dot}norm")]


def _grouped(builder: Builder, path: str, config: Any, base: float) -> Piece:
    """Keys and values may be fewer than queries, and tokens may attend to the last ones only."""
    query, key, value = (builder.matrix(f"{path}.{name}_proj") for name in "qkv")
    return builder.attention(
        path,
        (query, key, value),
        builder.matrix(f"{path}.o_proj"),
        config.num_attention_heads,
        causal=True,
        base=base,
        groups=config.num_key_value_heads,
        window=getattr(config, "sliding_window", None),
    )


# BERT, RoBERTa and DistilBERT: post-norm encoders of Hugging Face.


def bert(builder: Builder, path: str) -> list[Piece]:
    """A BertModel or RobertaModel, without its pooler."""
    model: Any = builder.model.get_submodule(path)
    dot = f"{path}." if path else ""
    config = model.config
    if config.add_cross_attention:
        raise builder.stop(path, "has cross-attention; a description has self-attention only")
    if getattr(config, "position_embedding_type", None) not in (None, "absolute"):
        raise builder.stop(f"{dot}embeddings", "relative positions; a description has absolute and rotary ones")
    front = f"{dot}embeddings"
    pieces = [
        builder.embed(f"{front}.word_embeddings", f"{front}.token_type_embeddings"),
        _positions(builder, f"{front}.position_embeddings"),
        *builder.norm(f"{front}.LayerNorm"),
    ]
    for i in range(len(model.encoder.layer)):
        block = f"{dot}encoder.layer.{i}"
        layer: Any = model.encoder.layer[i]
        own = f"{block}.attention.self"
        attention = builder.attention(
            own,
            _three(builder, own, ("query", "key", "value")),
            builder.matrix(f"{block}.attention.output.dense"),
            layer.attention.self.num_attention_heads,
            causal=bool(config.is_decoder),
        )
        act = layer.intermediate.intermediate_act_fn
        mlp = builder.mlp(f"{block}.intermediate.dense", act, f"{block}.output.dense", f"{block}.intermediate")
        pieces += [residual([attention]), *builder.norm(f"{block}.attention.output.LayerNorm")]
        pieces += [residual(mlp), *builder.norm(f"{block}.output.LayerNorm")]
    return pieces


def distilbert(builder: Builder, path: str) -> list[Piece]:
    """A DistilBertModel."""
    model: Any = builder.model.get_submodule(path)
    dot = f"{path}." if path else ""
    front = f"{dot}embeddings"
    pieces = [
        builder.embed(f"{front}.word_embeddings"),
        _positions(builder, f"{front}.position_embeddings"),
        *builder.norm(f"{front}.LayerNorm"),
    ]
    for i in range(len(model.transformer.layer)):
        block = f"{dot}transformer.layer.{i}"
        layer: Any = model.transformer.layer[i]
        own = f"{block}.attention"
        attention = builder.attention(
            own,
            _three(builder, own, ("q_lin", "k_lin", "v_lin")),
            builder.matrix(f"{own}.out_lin"),
            model.config.n_heads,
            causal=False,
        )
        mlp = builder.mlp(f"{block}.ffn.lin1", layer.ffn.activation, f"{block}.ffn.lin2", f"{block}.ffn")
        pieces += [residual([attention]), *builder.norm(f"{block}.sa_layer_norm")]
        pieces += [residual(mlp), *builder.norm(f"{block}.output_layer_norm")]
    return pieces


def _three(builder: Builder, path: str, names: tuple[str, str, str]) -> tuple[Matrix, Matrix, Matrix]:
    query, key, value = (builder.matrix(f"{path}.{name}") for name in names)
    return query, key, value


def _positions(builder: Builder, path: str) -> Piece:
    """RoBERTa's start after the row of padding."""
    table: Any = builder.model.get_submodule(path)
    padding = table.padding_idx
    return builder.positions(f"{path}.weight", path, start=0 if padding is None else int(padding) + 1)


# ViT and DeiT of Hugging Face: patches, a class token, pre-norm blocks.


def vit(builder: Builder, path: str) -> list[Piece]:
    """A ViTModel or DeiTModel (which has one more token), without its pooler."""
    model: Any = builder.model.get_submodule(path)
    dot = f"{path}." if path else ""
    front = f"{dot}embeddings"
    pieces = [builder.patches(f"{front}.patch_embeddings.projection")]
    for name in ("distillation_token", "cls_token"):  # the last one put in front is the first
        if getattr(model.embeddings, name, None) is not None:
            pieces.append(builder.first_token(f"{front}.{name}", front))
    pieces.append(builder.positions(f"{front}.position_embeddings", front))
    blocks, where = (model.layers, "layers") if hasattr(model, "layers") else (model.encoder.layer, "encoder.layer")
    for i in range(len(blocks)):
        block, layer = f"{dot}{where}.{i}", blocks[i]
        pieces += _block(builder, block, layer)
    return [*pieces, *builder.norm(f"{dot}layernorm")]


def _block(builder: Builder, block: str, layer: Any) -> list[Piece]:
    own = f"{block}.attention"
    if hasattr(layer.attention, "q_proj"):
        inner, names, out = layer.attention, ("q_proj", "k_proj", "v_proj"), f"{own}.o_proj"
        three = [builder.matrix(f"{own}.{name}") for name in names]
        first, act, second, bends = "mlp.fc1", layer.mlp.activation_fn, "mlp.fc2", "mlp"
    else:  # transformers 4
        inner, out = layer.attention.attention, f"{own}.output.dense"
        three = [builder.matrix(f"{own}.attention.{name}") for name in ("query", "key", "value")]
        first, act, second = "intermediate.dense", layer.intermediate.intermediate_act_fn, "output.dense"
        bends = "intermediate"
    heads = int(inner.num_attention_heads)
    attention = builder.attention(own, (three[0], three[1], three[2]), builder.matrix(out), heads, causal=False)
    mlp = builder.mlp(f"{block}.{first}", act, f"{block}.{second}", f"{block}.{bends}")
    return [
        residual([*builder.norm(f"{block}.layernorm_before"), attention]),
        residual([*builder.norm(f"{block}.layernorm_after"), *mlp]),
    ]


Trunk = Callable[[Builder, str], list[Piece]]
TRUNKS: dict[str, Trunk] = {
    "GPT2Model": gpt2,
    "LlamaModel": llama,
    "MistralModel": llama,
    "BertModel": bert,
    "RobertaModel": bert,
    "XLMRobertaModel": bert,
    "DistilBertModel": distilbert,
    "ViTModel": vit,
    "DeiTModel": vit,
}


@dataclass(frozen=True)
class HeadPath:
    """How a model with a head reads its trunk: the trunk's name, which token, dense layers and activations after it."""

    trunk: str
    at: Literal["cls", "last"]
    layers: tuple[str, ...]  # paths, or names of activations in brackets


HEADS: dict[str, HeadPath] = {
    "GPT2ForSequenceClassification": HeadPath("transformer", "last", ("score",)),
    "LlamaForSequenceClassification": HeadPath("model", "last", ("score",)),
    "MistralForSequenceClassification": HeadPath("model", "last", ("score",)),
    "BertForSequenceClassification": HeadPath("bert", "cls", ("bert.pooler.dense", "(tanh)", "classifier")),
    "RobertaForSequenceClassification": HeadPath(
        "roberta", "cls", ("classifier.dense", "(tanh)", "classifier.out_proj")
    ),
    "XLMRobertaForSequenceClassification": HeadPath(
        "roberta", "cls", ("classifier.dense", "(tanh)", "classifier.out_proj")
    ),
    "DistilBertForSequenceClassification": HeadPath("distilbert", "cls", ("pre_classifier", "(relu)", "classifier")),
    "ViTForImageClassification": HeadPath("vit", "cls", ("classifier",)),
    "DeiTForImageClassification": HeadPath("deit", "cls", ("classifier",)),
}
_LANGUAGE = ("LMHeadModel", "ForCausalLM", "ForMaskedLM", "ForPreTraining")


def is_trunk(module: nn.Module) -> bool:
    """Whether a module is a bare model of Hugging Face that is read as one."""
    return type(module).__name__ in TRUNKS and hasattr(module, "config")


def is_known(model: nn.Module) -> bool:
    name = type(model).__name__
    return hasattr(model, "config") and (name in TRUNKS or name in HEADS or _is_language(model))


def _is_language(model: nn.Module) -> bool:
    name = type(model).__name__
    return name.endswith(_LANGUAGE) and any(is_trunk(m) for m in model.children())


@dataclass(frozen=True)
class KnownModel:
    """The pieces of a model, and how many classes it has (None: no head)."""

    pieces: list[Piece]
    classes: int | None


def read_known(builder: Builder) -> KnownModel:
    """The pieces of the whole model; Stop where something is not read."""
    model: Any = builder.model
    name = type(model).__name__
    if name in TRUNKS:
        pieces = TRUNKS[name](builder, "")
        pooler = getattr(model, "pooler", None)
        if pooler is None:
            return KnownModel(pieces, None)
        act = builder.activate(pooler.activation, "pooler")
        return KnownModel([*pieces, builder.pool("cls"), builder.dense(builder.matrix("pooler.dense")), act], None)
    if name not in HEADS:
        return _language(builder)
    head = HEADS[name]
    trunk = type(getattr(model, head.trunk)).__name__
    pieces = [*TRUNKS[trunk](builder, head.trunk), builder.pool(head.at)]
    for layer in head.layers:
        if layer.startswith("("):
            pieces.append(plain(Activate(activation(layer[1:-1]))))
        else:
            pieces.append(builder.dense(builder.matrix(layer)))
    return KnownModel(pieces, int(model.config.num_labels))


def _language(builder: Builder) -> KnownModel:
    """A language model: its head guesses at every token, by weights of its own or by the embedding's."""
    children = dict(builder.model.named_children())
    trunk = next(name for name, module in children.items() if is_trunk(module))
    pieces = TRUNKS[builder.kind(trunk)](builder, trunk)
    head = next((name for name in children if name != trunk), "")
    if set(children) != {trunk, "lm_head"} or not isinstance(children["lm_head"], nn.Linear):
        why = "a head that bends the signal once more, and has biases; a description's gives logits by one matrix"
        raise Stop(head, builder.kind(head), why, pieces)
    matrix = builder.matrix("lm_head")
    if matrix.bias is not None:
        raise Stop(head, builder.kind(head), "a language-model head with biases", pieces)
    first = pieces[0]
    assert isinstance(first.layer, Embed)
    pieces[0] = replace(first, layer=replace(first.layer, vocabulary=matrix.units))
    return KnownModel([*pieces, builder.unembed(matrix, tied=_tied(builder.model))], matrix.units)


def _tied(model: Any) -> bool:
    given, out = model.get_input_embeddings(), model.get_output_embeddings()
    return out is not None and getattr(out, "weight", None) is given.weight


def outputs(result: Any) -> torch.Tensor:
    """What a model's description describes: logits, the pooled vector, or the last tokens."""
    if isinstance(result, torch.Tensor):
        return result
    for name in ("logits", "pooler_output", "last_hidden_state"):
        found = getattr(result, name, None)
        if isinstance(found, torch.Tensor):
            return found
    return result[0]
