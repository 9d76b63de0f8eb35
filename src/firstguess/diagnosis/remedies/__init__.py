"""Remedies: each offers variants of a network or of its data, which `diagnose` then tries."""

from collections.abc import Callable, Iterator

from firstguess.diagnosis.remedies import activations, head_and_data, norms, tokens
from firstguess.diagnosis.remedies.base import Case, Variant
from firstguess.network.network import Network
from firstguess.network.walk import needs_tokens

Remedy = Callable[[Case], Iterator[Variant]]


def _of_tokens(change: Callable[[Network], Iterator[Variant]]) -> Remedy:
    """A change of networks of tokens."""

    def remedy(case: Case) -> Iterator[Variant]:
        yield from change(case.network) if case.network and needs_tokens(case.network.layers) else ()

    return remedy


REMEDIES: dict[str, Remedy] = {
    "move the norm": norms.after_the_activation,
    "centre the activation": activations.centred,
    "centre the data": head_and_data.centred_data,
    "LayerNorm for RMSNorm": norms.layernorm_for_rmsnorm,
    "go to the edge of chaos": activations.edge,
    "smaller shared embeddings": _of_tokens(tokens.smaller_embeddings),
    "gate the MLPs": _of_tokens(tokens.gated_mlps),
    "pre-norm": _of_tokens(tokens.pre_norm),
    "tune": activations.tuned,
    "centre the head": head_and_data.centred_head,
    "repair the head": head_and_data.repaired_head,
}

__all__ = ["REMEDIES", "Case", "Remedy", "Variant"]
