"""One file a remedy: each offers variants of a network or of its data, which `diagnose` then tries."""

from collections.abc import Callable, Iterator

from firstguess.diagnosis.remedies import (
    centre_activation,
    centre_data,
    centre_head,
    edge,
    gated_mlp,
    head,
    layernorm_for_rmsnorm,
    move_norm,
    pre_norm,
    shared_embeddings,
    tuned,
)
from firstguess.diagnosis.remedies.base import Case, Variant

Remedy = Callable[[Case], Iterator[Variant]]

REMEDIES: dict[str, Remedy] = {
    "move the norm": move_norm.variants,
    "centre the activation": centre_activation.variants,
    "centre the data": centre_data.variants,
    "LayerNorm for RMSNorm": layernorm_for_rmsnorm.variants,
    "go to the edge of chaos": edge.variants,
    "smaller shared embeddings": shared_embeddings.variants,
    "gate the MLPs": gated_mlp.variants,
    "pre-norm": pre_norm.variants,
    "tune": tuned.variants,
    "centre the head": centre_head.variants,
    "repair the head": head.variants,
}

__all__ = ["REMEDIES", "Case", "Remedy", "Variant"]
