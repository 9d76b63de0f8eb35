"""The table of models that are read by the names of their classes: trunk, then how their head reads it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import nn

from firstguess.modules.transformers_read import decoders, encoders, images
from firstguess.modules.transformers_read.kit import Kit
from firstguess.modules.transformers_read.pieces import Piece, Stop, plain
from firstguess.network.activations.lookup import activation
from firstguess.network.layers import Activate, Embed

Trunk = Callable[[Kit, str], list[Piece]]
TRUNKS: dict[str, Trunk] = {
    "GPT2Model": decoders.gpt2,
    "LlamaModel": decoders.llama,
    "MistralModel": decoders.llama,
    "BertModel": encoders.bert,
    "RobertaModel": encoders.bert,
    "XLMRobertaModel": encoders.bert,
    "DistilBertModel": encoders.distilbert,
    "ViTModel": images.vit,
    "DeiTModel": images.vit,
}


@dataclass(frozen=True)
class Head:
    """How a model with a head reads its trunk: the trunk's name, which token, dense layers and activations behind."""

    trunk: str
    at: Literal["cls", "last"]
    layers: tuple[str, ...]  # paths, or names of activations in brackets


HEADS: dict[str, Head] = {
    "GPT2ForSequenceClassification": Head("transformer", "last", ("score",)),
    "LlamaForSequenceClassification": Head("model", "last", ("score",)),
    "MistralForSequenceClassification": Head("model", "last", ("score",)),
    "BertForSequenceClassification": Head("bert", "cls", ("bert.pooler.dense", "(tanh)", "classifier")),
    "RobertaForSequenceClassification": Head("roberta", "cls", ("classifier.dense", "(tanh)", "classifier.out_proj")),
    "XLMRobertaForSequenceClassification": Head(
        "roberta", "cls", ("classifier.dense", "(tanh)", "classifier.out_proj")
    ),
    "DistilBertForSequenceClassification": Head("distilbert", "cls", ("pre_classifier", "(relu)", "classifier")),
    "ViTForImageClassification": Head("vit", "cls", ("classifier",)),
    "DeiTForImageClassification": Head("deit", "cls", ("classifier",)),
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
class Known:
    """The pieces of a model, and how many classes it has (None: no head)."""

    pieces: list[Piece]
    classes: int | None


def read_known(kit: Kit) -> Known:
    """The pieces of the whole model; Stop where something is not read."""
    model: Any = kit.model
    name = type(model).__name__
    if name in TRUNKS:
        pieces = TRUNKS[name](kit, "")
        pooler = getattr(model, "pooler", None)
        if pooler is None:
            return Known(pieces, None)
        act = kit.activate(pooler.activation, "pooler")
        return Known([*pieces, kit.pool("cls"), kit.dense(kit.matrix("pooler.dense")), act], None)
    if name not in HEADS:
        return _language(kit)
    head = HEADS[name]
    trunk = type(getattr(model, head.trunk)).__name__
    pieces = [*TRUNKS[trunk](kit, head.trunk), kit.pool(head.at)]
    for layer in head.layers:
        if layer.startswith("("):
            pieces.append(plain(Activate(activation(layer[1:-1]))))
        else:
            pieces.append(kit.dense(kit.matrix(layer)))
    return Known(pieces, int(model.config.num_labels))


def _language(kit: Kit) -> Known:
    """A language model: its head guesses at every token, by weights of its own or by the embedding's."""
    children = dict(kit.model.named_children())
    trunk = next(name for name, module in children.items() if is_trunk(module))
    pieces = TRUNKS[kit.kind(trunk)](kit, trunk)
    head = next((name for name in children if name != trunk), "")
    if set(children) != {trunk, "lm_head"} or not isinstance(children["lm_head"], nn.Linear):
        why = "a head that bends the signal once more, and has biases; a description's gives logits by one matrix"
        raise Stop(head, kit.kind(head), why, pieces)
    matrix = kit.matrix("lm_head")
    if matrix.bias is not None:
        raise Stop(head, kit.kind(head), "a language-model head with biases", pieces)
    first = pieces[0]
    assert isinstance(first.layer, Embed)
    pieces[0] = replace(first, layer=replace(first.layer, vocabulary=matrix.units))
    return Known([*pieces, kit.unembed(matrix, tied=_tied(kit.model))], matrix.units)


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
