"""`fg.read` of models of tokens: pieces, compared with the model, as a reading."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from firstguess.data import Batch
from firstguess.data.items import tensors
from firstguess.modules.claims import is_attention
from firstguess.modules.graph_reader import GraphReading
from firstguess.modules.guard import private_copy
from firstguess.modules.initializers import is_lookup
from firstguess.modules.site import Modules
from firstguess.modules.structure import Unread
from firstguess.modules.tracing import sized_graph
from firstguess.modules.transformers_read.graph import GraphPieces, is_leaf
from firstguess.modules.transformers_read.kit import Kit
from firstguess.modules.transformers_read.known import is_known, outputs, read_known
from firstguess.modules.transformers_read.pieces import Piece, Stop
from firstguess.modules.transformers_read.twin import disagreement
from firstguess.network.layers import Embed

_ROWS, _TOKENS = 3, 9  # that a model and its description are compared on
_CHECKED = "with the same weights the description gives the model's own outputs: compared on {} inputs"
_DROPOUT = "dropout is off at initialization, and left out"


def token_parameters(model: nn.Module) -> Iterator[str]:
    """Names of all parameters of a model that may be one of tokens: embeddings and positions are drawn too."""
    if is_known(model) or any(is_lookup(m) or is_attention(m) or _learned(m) for m in model.modules()):
        named = model.named_parameters(remove_duplicate=False)
        yield from (name for name, p in named if p.is_floating_point())


def _learned(module: nn.Module) -> bool:
    """Whether a module has parameters of its own that may be positions or a class token."""
    own = not type(module).__module__.startswith("torch.nn")
    return own and any(p.ndim in (2, 3) for p in module.parameters(recurse=False))


def known_reading(model: nn.Module, modules: Modules, batch: Batch | None) -> GraphReading | None:
    """A model of a known class; None: it is none."""
    if not is_known(model):
        return None
    kit = Kit(model, modules.draws, modules.init)
    try:
        padding = _padding(model, batch)
        known = read_known(kit)
    except Stop as stop:
        return stopped(stop, kit)
    config: Any = model.config
    inputs = _varied(_inputs(model, batch), getattr(config, "vocab_size", 0), getattr(config, "pad_token_id", None))
    pieces = known.pieces
    if padding is not None:
        pieces[0] = _padded(pieces[0], padding)
        inputs[-1, inputs.shape[1] // 2 + 1 :] = padding

    def call(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return outputs(m(x) if padding is None else m(x, attention_mask=(x != padding).long()))

    said = disagreement(model, pieces, inputs, call, classes=known.classes, norms=kit.norms)
    return finished(model, pieces, kit, said, len(inputs))


def graph_reading(model: nn.Module, modules: Modules, batch: Batch | None) -> GraphReading | None:
    """A model of tokens that is written by hand; None: it is none, as far as it was looked at."""
    given = {} if batch is None else tensors(batch.inputs)
    if len(given) != 1 or (batch is not None and batch.call is not None):
        return None
    inputs = next(iter(given.values()))[:_ROWS].cpu()
    traced = private_copy(model)
    if traced is None:
        return None
    traced.eval().requires_grad_(False)
    inputs = inputs.float() if inputs.is_floating_point() else inputs
    call, graph, opaque = sized_graph(traced.float(), inputs, is_leaf)
    if graph is None:
        return None
    kit = Kit(model, modules.draws, modules.init)
    try:
        walk = GraphPieces(kit, call, graph, inputs, opaque)
    except Exception:  # a user's forward that does not run node by node: the other reader says why
        return None
    try:
        pieces, classes = walk.pieces()
    except Stop as stop:
        return stopped(stop, kit) if walk.begun else None
    inputs = _varied(inputs, getattr(pieces[0].check, "vocabulary", 0), None)
    said = disagreement(
        model, pieces, inputs, lambda m, x: outputs(m(x)), classes=classes, norms=kit.norms, ending=walk.ending
    )
    return finished(model, pieces, kit, said, len(inputs))


def finished(model: nn.Module, pieces: Sequence[Piece], kit: Kit, said: str, rows: int) -> GraphReading:
    """The reading of all pieces; `said` is why it does not hold."""
    parts = tuple(part for piece in pieces for part in piece.parts)
    notes = list(dict.fromkeys(kit.notes))
    said = said or _shared(model, pieces)
    if said:
        return GraphReading([], parts, (Unread("", type(model).__name__, said),), notes)
    if any(isinstance(m, nn.Dropout) and m.p > 0 for m in model.modules()):
        notes.append(_DROPOUT)
    notes.append(_CHECKED.format(rows))
    return GraphReading([tuple(piece.layer for piece in pieces)], parts, (), notes)


def _shared(model: nn.Module, pieces: Sequence[Piece]) -> str:
    """Why weights that are used twice have no description; "": none are."""
    used = [
        (id(model.get_parameter(own.name)), own.rows, own.name) for p in pieces for f in p.fills for own in f.weights
    ]
    seen = {one[:2] for one in used}
    if len(seen) == len(used):
        return ""
    name = next(name for *key, name in used if sum(other[:2] == tuple(key) for other in used) > 1)
    return f"{name} is used more than once; a description has new weights in every layer"


def stopped(stop: Stop, kit: Kit) -> GraphReading:
    """The reading up to what could not be read."""
    layers = tuple(piece.layer for piece in stop.before)
    parts = tuple(part for piece in stop.before for part in piece.parts)
    unread = (Unread(stop.path, stop.kind, stop.why),)
    return GraphReading([layers, ()] if layers else [], parts, unread, list(dict.fromkeys(kit.notes)))


def _padding(model: Any, batch: Batch | None) -> int | None:
    """The id of padding, if the example says by an attention_mask which tokens that is; None: there is none.

    Stop where ids and mask do not say the same, and where some tokens are of a second segment.
    """
    if batch is None:
        return None
    given = tensors(batch.inputs)
    mask, types = given.get("attention_mask"), given.get("token_type_ids")
    if types is not None and bool((types != 0).any()):
        raise Stop("", "token_type_ids", "tokens of two segments; a description has one")
    ids = given.get("input_ids", given.get(None))
    pad = getattr(model.config, "pad_token_id", None)
    if ids is None or ids.is_floating_point():
        return None
    if mask is None and pad is not None and bool((ids == pad).any()):
        raise Stop("", "input_ids", _UNMASKED.format(pad))
    if mask is not None and mask.shape != ids.shape:
        raise Stop("", "attention_mask", "not one number a token; a description knows padding only")
    if mask is not None and not torch.equal(mask == 0, ids == (-1 if pad is None else pad)):
        raise Stop("", "attention_mask", _OTHERS if pad is None else _NOT_PADDING.format(pad))
    return None if mask is None else pad


def _padded(piece: Piece, padding: int) -> Piece:
    """An embedding that knows which id is padding."""
    assert isinstance(piece.layer, Embed)
    assert isinstance(piece.check, Embed)
    return replace(piece, layer=replace(piece.layer, padding=padding), check=replace(piece.check, padding=padding))


_UNMASKED = "the id of padding, {}, stands among the ids without an attention_mask, so the model attends to it"
_NOT_PADDING = "masks other tokens than those with the id of padding, {}; a description knows padding only"
_OTHERS = "masks tokens, but the model's config has no pad_token_id: a description knows padding by its id"


def _varied(inputs: torch.Tensor, vocabulary: int, padding: int | None) -> torch.Tensor:
    """The first of the inputs, and drawn ones without padding: all sequences of an example may be the same."""
    generator, shape = torch.Generator().manual_seed(0), (_ROWS - 1, *inputs.shape[1:])
    if inputs.is_floating_point():
        return torch.cat([inputs[:1], torch.randn(shape, generator=generator)])
    drawn = torch.randint(max(vocabulary - 1, 1), shape, generator=generator)
    return torch.cat([inputs[:1], drawn if padding is None else drawn + (drawn >= padding)])


def _inputs(model: Any, batch: Batch | None) -> torch.Tensor:
    """A few inputs of the model: of the example, else drawn."""
    given = {} if batch is None else tensors(batch.inputs)
    config = model.config
    generator = torch.Generator().manual_seed(0)
    if getattr(model, "main_input_name", "") == "pixel_values":
        found = given.get("pixel_values", given.get(None))
        if found is not None:
            return found[:_ROWS].float().cpu()
        size = config.image_size if isinstance(config.image_size, (tuple, list)) else (config.image_size,) * 2
        return torch.randn(_ROWS, config.num_channels, *size, generator=generator)
    found = given.get("input_ids", given.get(None))
    if found is not None:
        ids, pad = found.long().cpu(), getattr(config, "pad_token_id", None)
        return ids[[int((ids == pad).sum(1).argmax())]] if pad is not None else ids[:_ROWS]  # with the most padding
    length = min(_TOKENS, getattr(config, "max_position_embeddings", _TOKENS) - 2)
    ids = torch.randint(config.vocab_size - 1, (_ROWS, max(2, length)), generator=generator)
    pad = getattr(config, "pad_token_id", None)
    return ids if pad is None else ids + (ids >= pad)
