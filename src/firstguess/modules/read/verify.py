"""`fg.read` of models of tokens: pieces, compared with the model, as a reading."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn

from firstguess.base.errors import FirstguessError
from firstguess.data import Batch
from firstguess.data.items import tensors
from firstguess.ensemble.member_module import resolve
from firstguess.modules.guard import IsolatedRandomness, own_copy
from firstguess.modules.members.initializers import is_lookup
from firstguess.modules.read.context import Modules
from firstguess.modules.read.dispatch import is_attention
from firstguess.modules.read.graph import GraphReading
from firstguess.modules.read.huggingface import is_known, outputs, read_known
from firstguess.modules.read.result import Unread
from firstguess.modules.read.token_parts import Builder, Fill, Piece, Stop, Tensors
from firstguess.modules.read.tokens import GraphPieces, is_leaf
from firstguess.modules.read.tracing import sized_graph
from firstguess.network.layers import Dense, Embed, PoolTokens
from firstguess.network.network import Network
from firstguess.network.tensors import Place, Weights
from firstguess.network.torch_ops import join

# The guard of a reading: the description, filled with the model's own weights, has to give the model's own outputs.

_TOLERANCE = {torch.float64: 1e-4, torch.float32: 1e-3}  # of the outputs' own size
_LARGE = 3_000_000  # parameters from which on there is no copy in double precision
_BIASES = 0.3


@dataclass
class _Filled:
    """Stand in for a member's draws: the model's own parameters, one after another; at last the identity."""

    fills: list[Fill]
    tensors: Tensors
    used: int = field(default=0)

    def fill(self, module: nn.Module, weights: Weights) -> nn.Module:
        parameter = module.get_parameter("weight")
        with torch.no_grad():
            if self.used >= len(self.fills):
                parameter.copy_(torch.eye(*parameter.shape))
                return module
            one = self.fills[self.used]
            self.used += 1
            value = one.weight(self.tensors)
            value = value[: len(parameter)] if parameter.ndim == 2 and value.ndim == 2 else value  # places of the table
            module.to(value.dtype)
            parameter = module.get_parameter("weight")
            parameter.copy_(value.reshape(parameter.shape))
            if weights.bias_var > 0.0:
                module.get_parameter("bias").copy_(one.bias(self.tensors))
        return module

    def path(self, places: Sequence[Place]) -> nn.Sequential:
        return nn.Sequential(*(place.layer.module(place, self) for place in places))


def disagreement(
    model: nn.Module,
    pieces: Sequence[Piece],
    inputs: torch.Tensor,
    call: Callable[[nn.Module, torch.Tensor], Any],
    *,
    classes: int | None,
    norms: set[str],
    ending: Callable[[torch.Tensor], torch.Tensor] | None = None,
    seed: int = 0,
) -> str:
    """Where the description with the model's weights gives other outputs than the model, in words; "": nowhere.

    `call` gives the model's outputs (1, …, classes) for one input; `classes` None: they are tokens or nodes, without a
    head. Twice: with the weights as they are drawn, where ε counts, and with larger ones and all biases, where
    attention is far from uniform. `ending`: what the model does to logits. Nothing of the model is changed.
    """
    one = copy.deepcopy(model).eval().requires_grad_(False)
    small = sum(p.numel() for p in one.parameters()) < _LARGE
    one = one.double() if small else one.float()
    given = inputs.to(next(one.parameters()).dtype) if inputs.is_floating_point() else inputs
    with IsolatedRandomness(seed), torch.no_grad():
        for larger in (False, True):
            if larger:
                _enlarge(one, norms)
            try:
                said = _apart(one, pieces, given, call, classes, ending)
            except FirstguessError as error:
                said = f"the description does not fit the model: {error}"
            except Exception as error:  # of a model that does not take these inputs, or a shape that does not fit
                said = f"it could not be compared with its description ({type(error).__name__}: {error})"
            if said:
                return said.splitlines()[0]
    return ""


def _enlarge(model: nn.Module, norms: set[str]) -> None:
    """Weights that make logits of attention differ by about 1, and biases; norms stay as they are."""
    for name, parameter in model.named_parameters():
        if name in norms:
            continue
        size = parameter[0].numel() ** -0.5 if parameter.ndim > 1 else _BIASES
        parameter.add_(torch.randn_like(parameter) * min(size, 1.0))


def _apart(
    model: nn.Module,
    pieces: Sequence[Piece],
    inputs: torch.Tensor,
    call: Callable[..., Any],
    classes: int | None,
    ending: Callable[[torch.Tensor], torch.Tensor] | None,
) -> str:
    rows = [call(model, x[None]) for x in inputs]
    wanted = torch.cat(rows)
    checks = [piece.check for piece in pieces]
    padding = getattr(checks[0], "padding", None)
    real = torch.ones(wanted.shape[:2]) if padding is None or wanted.ndim < 3 else (inputs != padding)
    if classes is None:  # no head: the mean over tokens, through an identity
        if wanted.ndim == 3:
            wanted = (wanted * real.unsqueeze(2)).sum(1) / real.sum(1, keepdim=True)
            checks.append(PoolTokens("mean"))
        checks.append(Dense())
    network = Network(tuple(checks), wanted.shape[-1])
    vocabulary = getattr(checks[0], "vocabulary", None)
    places = resolve(network, tuple(inputs.shape[1:]), width=2, inputs=lambda: None, vocabulary=vocabulary)
    filled = _Filled([fill for piece in pieces for fill in piece.fills], model.get_parameter)
    twin = filled.path(places).to(wanted.dtype)
    join(twin)
    if filled.used != len(filled.fills):
        return "the description has no place for some of the model's weights"
    found = twin(inputs)
    found = found if ending is None else ending(found)
    if wanted.ndim == 3:  # a guess at every token: those of padding are nobody's
        found, wanted = (x[real.bool()] for x in (found, wanted))
    size = max(float(wanted.double().pow(2).mean().sqrt()), 1e-30)
    worst = float((found - wanted).abs().max()) / size
    if worst <= _TOLERANCE[wanted.dtype]:
        return ""
    return f"its description, with the same weights, gives other outputs (by {worst:.1e} of their size)"


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
    builder = Builder(modules)
    try:
        padding = _padding(model, batch)
        pieces, classes = read_known(builder)
    except Stop as stop:
        return stopped(stop, builder)
    config: Any = model.config
    inputs = _varied(_inputs(model, batch), getattr(config, "vocab_size", 0), getattr(config, "pad_token_id", None))
    if padding is not None:
        pieces[0] = _padded(pieces[0], padding)
        inputs[-1, inputs.shape[1] // 2 + 1 :] = padding

    def call(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return outputs(m(x) if padding is None else m(x, attention_mask=(x != padding).long()))

    said = disagreement(model, pieces, inputs, call, classes=classes, norms=builder.norms)
    return finished(model, pieces, builder, said, len(inputs))


def graph_reading(model: nn.Module, modules: Modules, batch: Batch | None) -> GraphReading | None:
    """A model of tokens that is written by hand; None: it is none, as far as it was looked at."""
    given = {} if batch is None else tensors(batch.inputs)
    if len(given) != 1 or (batch is not None and batch.call is not None):
        return None
    inputs = next(iter(given.values()))[:_ROWS].cpu()
    traced = own_copy(model)
    if traced is None:
        return None
    traced.eval().requires_grad_(False)
    inputs = inputs.float() if inputs.is_floating_point() else inputs
    call, graph, opaque = sized_graph(traced.float(), inputs, is_leaf)
    if graph is None:
        return None
    builder = Builder(modules)
    try:
        walk = GraphPieces(builder, call, graph, inputs, opaque)
    except Exception:  # a user's forward that does not run node by node: the other reader says why
        return None
    try:
        pieces, classes = walk.pieces()
    except Stop as stop:
        return stopped(stop, builder) if walk.begun else None
    inputs = _varied(inputs, getattr(pieces[0].check, "vocabulary", 0), None)
    said = disagreement(
        model, pieces, inputs, lambda m, x: outputs(m(x)), classes=classes, norms=builder.norms, ending=walk.ending
    )
    return finished(model, pieces, builder, said, len(inputs))


def finished(model: nn.Module, pieces: Sequence[Piece], builder: Builder, said: str, rows: int) -> GraphReading:
    """The reading of all pieces; `said` is why it does not hold."""
    parts = tuple(part for piece in pieces for part in piece.parts)
    notes = list(dict.fromkeys(builder.notes))
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


def stopped(stop: Stop, builder: Builder) -> GraphReading:
    """The reading up to what could not be read."""
    layers = tuple(piece.layer for piece in stop.before)
    parts = tuple(part for piece in stop.before for part in piece.parts)
    unread = (Unread(stop.path, stop.kind, stop.why),)
    return GraphReading([layers, ()] if layers else [], parts, unread, list(dict.fromkeys(builder.notes)))


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
