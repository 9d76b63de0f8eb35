"""GPT-2, and LLaMA with those built like it (Mistral): causal decoders of Hugging Face."""

from __future__ import annotations

from typing import Any

from torch import nn

from firstguess.modules.transformers_read.kit import Kit
from firstguess.modules.transformers_read.pieces import Piece, residual


def gpt2(kit: Kit, path: str) -> list[Piece]:
    """A GPT2Model: its last token is read."""
    model: Any = kit.model.get_submodule(path)
    dot = f"{path}." if path else ""
    config = model.config
    if config.add_cross_attention:
        raise kit.stop(path, "has cross-attention; a description has self-attention only")
    if not config.scale_attn_weights or config.scale_attn_by_inverse_layer_idx:
        raise kit.stop(f"{dot}h.0.attn", "scales its logits otherwise than by the root of a head's size")
    pieces = [kit.embed(f"{dot}wte"), kit.positions(f"{dot}wpe.weight", f"{dot}wpe")]
    for i in range(len(model.h)):
        block = f"{dot}h.{i}"
        fused = kit.matrix(f"{block}.attn.c_attn")
        width = fused.inputs
        three = tuple(fused.part(j * width, (j + 1) * width) for j in range(3))
        attention = kit.attention(
            f"{block}.attn",
            (three[0], three[1], three[2]),
            kit.matrix(f"{block}.attn.c_proj"),
            model.h[i].attn.num_heads,
            causal=True,
        )
        mlp = kit.mlp(f"{block}.mlp.c_fc", model.h[i].mlp.act, f"{block}.mlp.c_proj", f"{block}.mlp.act")
        pieces += [
            residual([*kit.norm(f"{block}.ln_1"), attention]),
            residual([*kit.norm(f"{block}.ln_2"), *mlp]),
        ]
    return [*pieces, *kit.norm(f"{dot}ln_f")]


def llama(kit: Kit, path: str) -> list[Piece]:
    """A LlamaModel or MistralModel: its last token is read."""
    model: Any = kit.model.get_submodule(path)
    dot = f"{path}." if path else ""
    config = model.config
    rope = getattr(config, "rope_parameters", None) or {"rope_theta": getattr(config, "rope_theta", 10000.0)}
    if rope.get("rope_type", "default") != "default":
        raise kit.stop(
            f"{dot}rotary_emb", f"rotary positions of the type {rope['rope_type']}; a description has the first ones"
        )
    pieces = [kit.embed(f"{dot}embed_tokens")]
    for i in range(len(model.layers)):
        block = f"{dot}layers.{i}"
        layer: Any = model.layers[i]
        attention = _grouped(kit, f"{block}.self_attn", config, float(rope["rope_theta"]))
        mlp = kit.gated(
            f"{block}.mlp.gate_proj",
            f"{block}.mlp.up_proj",
            layer.mlp.act_fn,
            f"{block}.mlp.down_proj",
            f"{block}.mlp.act_fn" if isinstance(layer.mlp.act_fn, nn.Module) else f"{block}.mlp",
        )
        pieces += [
            residual([*kit.norm(f"{block}.input_layernorm"), attention]),
            residual([*kit.norm(f"{block}.post_attention_layernorm"), *mlp]),
        ]
    return [*pieces, *kit.norm(f"{dot}norm")]


def _grouped(kit: Kit, path: str, config: Any, base: float) -> Piece:
    """Keys and values may be fewer than queries, and tokens may attend to the last ones only."""
    query, key, value = (kit.matrix(f"{path}.{name}_proj") for name in "qkv")
    return kit.attention(
        path,
        (query, key, value),
        kit.matrix(f"{path}.o_proj"),
        config.num_attention_heads,
        causal=True,
        base=base,
        groups=config.num_key_value_heads,
        window=getattr(config, "sliding_window", None),
    )
