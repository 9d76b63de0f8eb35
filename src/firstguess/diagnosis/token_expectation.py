"""What theory expects of a network of tokens: the kernel on as many sequences as fit the time, else the closed form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from firstguess.base.errors import NotCovered
from firstguess.base.shares import percent
from firstguess.data import Batch, Data
from firstguess.network.network import Network
from firstguess.network.tokens import Tokens
from firstguess.theory.guesses import Guesses

if TYPE_CHECKING:
    from firstguess.theory.prediction import Prediction

_FEWEST = 16  # sequences: of fewer, γ would be known to 10 % at best
_INPUTS = ("input_ids", "pixel_values")


def sequences_of(batches: Sequence[Batch], padding: int | None = None) -> torch.Tensor | None:
    """All sequences of token ids, or images, as one tensor, filled up behind with `padding` to one length.

    None where they cannot be: a mask that is not that of this id, two segments, or more than that.
    """
    found = [_sequences(batch.inputs, padding) for batch in batches]
    known = [x for x in found if x is not None]
    if not known or len(known) < len(found) or len({x.dtype for x in known}) > 1:
        return None
    if padding is not None and all(x.ndim == 2 for x in known):
        longest = max(x.shape[1] for x in known)
        known = [torch.nn.functional.pad(x, (0, longest - x.shape[1]), value=padding) for x in known]
    return torch.cat(known) if len({x.shape[1:] for x in known}) == 1 else None


def _sequences(inputs: Any, padding: int | None) -> torch.Tensor | None:
    if isinstance(inputs, torch.Tensor):
        return inputs
    if not isinstance(inputs, dict):
        return None
    mask, types = inputs.get("attention_mask"), inputs.get("token_type_ids")
    rest = set(inputs) - {*_INPUTS, "attention_mask", "token_type_ids"}
    if rest or (types is not None and bool((types != 0).any())):
        return None
    found = next((inputs[key] for key in _INPUTS if isinstance(inputs.get(key), torch.Tensor)), None)
    if found is not None and (padding is not None or mask is not None):
        masked = torch.zeros_like(found, dtype=torch.bool) if mask is None else mask == 0
        same = torch.equal(masked, found == padding) if padding is not None else not bool(masked.any())
        return found if same else None
    return found


def predicted_tokens(network: Network, data: Data, *, draws: int, seed: int, seconds: float) -> tuple[Prediction, str]:
    """The kernel reading on all sequences, or γ of as many as fit the time; else the closed form with their p₂."""
    from firstguess.theory.readings import predict

    count = data.n
    refused: NotCovered | None = None
    while count >= min(_FEWEST, data.n):
        few = data if count == data.n else data.subset(count, seed)
        try:
            found = predict(network, data=few, draws=draws, seed=seed, seconds=seconds)
        except NotCovered as error:
            refused, count = refused or error, count // 2
            if network.layers[-1].each_token:
                break  # whose law is drawn for its own tokens: γ alone does not give it
            continue
        if count == data.n:
            return found, ""
        law = Guesses(float(found.gamma[-1]), network.classes, data.n)
        said = f"γ is that of {count} of the {data.n} sequences, the time allowing no more"
        return replace(found, guesses=law, assumptions=(*found.assumptions, said)), said
    assert refused is not None  # the loop ends by a prediction or by refusals
    tokens = tokens_of(np.asarray(data.x))
    padding = getattr(network.layers[0], "padding", None)
    if tokens is None or (padding is not None and bool((np.asarray(data.x) == padding).any())):
        raise refused
    found = predict(network, inputs=tokens, points=data.n)
    said = f"random tokens are taken instead, two of them the same in {percent(tokens.chance)} of cases, as in yours"
    if tokens.shared:
        said += f"; the first {'is' if tokens.shared == 1 else f'{tokens.shared} are'} the same in all sequences"
    return found, f"not on your own sequences, because {refused.reason}; {said}"


def tokens_of(ids: NDArray[Any]) -> Tokens | None:
    """What the closed form knows of sequences (n, tokens): their length, p₂, and how many tokens in front are shared.

    p₂ = Σ n_i(n_i − 1)/(N(N − 1)) over the other tokens, which is Σ p² on average: theory.md (20).

    >>> tokens_of(np.array([[7, 1, 2], [7, 2, 3]]))
    Tokens(length=3, coincidence=0.16666666666666666, shared=1)
    """
    if ids.ndim != 2 or len(ids) < 2:
        return None
    same = (ids == ids[0]).all(axis=0)
    shared = len(same) if same.all() else int(np.argmin(same))
    if shared == ids.shape[1]:
        return None
    counts = np.unique(ids[:, shared:], return_counts=True)[1].astype(np.float64)
    total = counts.sum()
    return Tokens(ids.shape[1], float((counts * (counts - 1)).sum() / (total * (total - 1))), shared)
