"""ViT and DeiT of Hugging Face: patches, a class token, pre-norm blocks."""

from __future__ import annotations

from typing import Any

from firstguess.modules.transformers_read.kit import Kit
from firstguess.modules.transformers_read.pieces import Piece, residual


def vit(kit: Kit, path: str) -> list[Piece]:
    """A ViTModel or DeiTModel (which has one more token), without its pooler."""
    model: Any = kit.model.get_submodule(path)
    dot = f"{path}." if path else ""
    front = f"{dot}embeddings"
    pieces = [kit.patches(f"{front}.patch_embeddings.projection")]
    for name in ("distillation_token", "cls_token"):  # the last one put in front is the first
        if getattr(model.embeddings, name, None) is not None:
            pieces.append(kit.first_token(f"{front}.{name}", front))
    pieces.append(kit.positions(f"{front}.position_embeddings", front))
    blocks, where = (model.layers, "layers") if hasattr(model, "layers") else (model.encoder.layer, "encoder.layer")
    for i in range(len(blocks)):
        block, layer = f"{dot}{where}.{i}", blocks[i]
        pieces += _block(kit, block, layer)
    return [*pieces, *kit.norm(f"{dot}layernorm")]


def _block(kit: Kit, block: str, layer: Any) -> list[Piece]:
    own = f"{block}.attention"
    if hasattr(layer.attention, "q_proj"):
        inner, names, out = layer.attention, ("q_proj", "k_proj", "v_proj"), f"{own}.o_proj"
        three = [kit.matrix(f"{own}.{name}") for name in names]
        first, act, second, bends = "mlp.fc1", layer.mlp.activation_fn, "mlp.fc2", "mlp"
    else:  # transformers 4
        inner, out = layer.attention.attention, f"{own}.output.dense"
        three = [kit.matrix(f"{own}.attention.{name}") for name in ("query", "key", "value")]
        first, act, second = "intermediate.dense", layer.intermediate.intermediate_act_fn, "output.dense"
        bends = "intermediate"
    heads = int(inner.num_attention_heads)
    attention = kit.attention(own, (three[0], three[1], three[2]), kit.matrix(out), heads, causal=False)
    mlp = kit.mlp(f"{block}.{first}", act, f"{block}.{second}", f"{block}.{bends}")
    return [
        residual([*kit.norm(f"{block}.layernorm_before"), attention]),
        residual([*kit.norm(f"{block}.layernorm_after"), *mlp]),
    ]
