"""BERT, RoBERTa and DistilBERT: post-norm encoders of Hugging Face."""

from __future__ import annotations

from typing import Any

from firstguess.modules.transformers_read.kit import Kit
from firstguess.modules.transformers_read.pieces import Matrix, Piece, residual


def bert(kit: Kit, path: str) -> list[Piece]:
    """A BertModel or RobertaModel, without its pooler."""
    model: Any = kit.model.get_submodule(path)
    dot = f"{path}." if path else ""
    config = model.config
    if config.add_cross_attention:
        raise kit.stop(path, "has cross-attention; a description has self-attention only")
    if getattr(config, "position_embedding_type", None) not in (None, "absolute"):
        raise kit.stop(f"{dot}embeddings", "relative positions; a description has absolute and rotary ones")
    front = f"{dot}embeddings"
    pieces = [
        kit.embed(f"{front}.word_embeddings", f"{front}.token_type_embeddings"),
        _positions(kit, f"{front}.position_embeddings"),
        *kit.norm(f"{front}.LayerNorm"),
    ]
    for i in range(len(model.encoder.layer)):
        block = f"{dot}encoder.layer.{i}"
        layer: Any = model.encoder.layer[i]
        own = f"{block}.attention.self"
        attention = kit.attention(
            own,
            _three(kit, own, ("query", "key", "value")),
            kit.matrix(f"{block}.attention.output.dense"),
            layer.attention.self.num_attention_heads,
            causal=bool(config.is_decoder),
        )
        act = layer.intermediate.intermediate_act_fn
        mlp = kit.mlp(f"{block}.intermediate.dense", act, f"{block}.output.dense", f"{block}.intermediate")
        pieces += [residual([attention]), *kit.norm(f"{block}.attention.output.LayerNorm")]
        pieces += [residual(mlp), *kit.norm(f"{block}.output.LayerNorm")]
    return pieces


def distilbert(kit: Kit, path: str) -> list[Piece]:
    """A DistilBertModel."""
    model: Any = kit.model.get_submodule(path)
    dot = f"{path}." if path else ""
    front = f"{dot}embeddings"
    pieces = [
        kit.embed(f"{front}.word_embeddings"),
        _positions(kit, f"{front}.position_embeddings"),
        *kit.norm(f"{front}.LayerNorm"),
    ]
    for i in range(len(model.transformer.layer)):
        block = f"{dot}transformer.layer.{i}"
        layer: Any = model.transformer.layer[i]
        own = f"{block}.attention"
        attention = kit.attention(
            own,
            _three(kit, own, ("q_lin", "k_lin", "v_lin")),
            kit.matrix(f"{own}.out_lin"),
            model.config.n_heads,
            causal=False,
        )
        mlp = kit.mlp(f"{block}.ffn.lin1", layer.ffn.activation, f"{block}.ffn.lin2", f"{block}.ffn")
        pieces += [residual([attention]), *kit.norm(f"{block}.sa_layer_norm")]
        pieces += [residual(mlp), *kit.norm(f"{block}.output_layer_norm")]
    return pieces


def _three(kit: Kit, path: str, names: tuple[str, str, str]) -> tuple[Matrix, Matrix, Matrix]:
    query, key, value = (kit.matrix(f"{path}.{name}") for name in names)
    return query, key, value


def _positions(kit: Kit, path: str) -> Piece:
    """RoBERTa's start behind the row of padding."""
    table: Any = kit.model.get_submodule(path)
    padding = table.padding_idx
    return kit.positions(f"{path}.weight", path, start=0 if padding is None else int(padding) + 1)
