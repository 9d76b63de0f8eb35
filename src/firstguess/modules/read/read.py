"""`read`: from an `nn.Module` to its description."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import nn

from firstguess.base import checks
from firstguess.base.errors import FirstguessError, InvalidInput
from firstguess.data import Batch, batches, load
from firstguess.data.items import tensors
from firstguess.data.streams import IsolatedRandomness
from firstguess.ensemble.member_statistics import ASSUMED, FOLLOWED, Finding
from firstguess.ensemble.seeds import check_seed, member_seeds
from firstguess.modules.call_model import Caller, Forward, fed, first_forward, leaves, part, replaced
from firstguess.modules.guard import hooked, restored
from firstguess.modules.members.initializers import Init, is_lookup
from firstguess.modules.members.sources import Setup, Source, is_source, named, shaped_by, source
from firstguess.modules.read import dispatch
from firstguess.modules.read.dispatch import Modules
from firstguess.modules.read.graph import GraphReader, GraphReading, listed
from firstguess.modules.read.huggingface import is_known, outputs, read_known
from firstguess.modules.read.result import Structure, Unread
from firstguess.modules.read.token_parts import Builder, Stop, difference
from firstguess.modules.read.tokens import TokenWalk, is_leaf
from firstguess.modules.read.tracing import Traced, trace
from firstguess.network.layer import Layer, Symmetry
from firstguess.network.network import Network
from firstguess.network.walk import needs_tokens
from firstguess.theory import closed_form

_ALL = 1 << 30  # points of a batch: arrays are one


def read(
    model: nn.Module | Callable[[], nn.Module] | Source | str,
    example: object = None,
    *,
    classes: int | None = None,
    init: Init = None,
    forward: Forward | None = None,
    seed: int = 0,
    said: Collection[Finding] = (),
) -> Structure:
    """Read a model's structure: its description, with variances measured from its initializers, and what has none.

    Nothing is guessed: `network` is None unless every module and function between input and output is one that a
    description can say, and what is not is listed with its path and the reason. σw² = fan-in · E W² and σb² = E b²
    (theory.md §1) are of freshly drawn weights, as `fg.measure` draws them; where they fit a known rule (PyTorch's
    default, Kaiming, Xavier, LeCun, orthogonal; within 5 standard errors, uniform distributions by their bounds to
    1e-6), the description has that rule's exact numbers. The model and the random generators are left as they were.

    >>> structure = read(nn.Sequential(nn.Linear(100, 400), nn.ReLU(), nn.Linear(400, 10)))
    >>> print(structure.network.where("layernorm after relu"))  # doctest: +ELLIPSIS
    dense(weight_var=0.3333333333333333, bias_var=0.0033333333333333335, width=400) > relu > layernorm > dense(...)
    >>> structure.network.classes, structure.parts[0].variances.rule
    (10, "PyTorch's default")

    Args:
        model: An `nn.Module`, or a class or function that makes one; or the name of one, "package.module:factory".
        example: Inputs (anything `fg.measure` takes as data): shapes are then known, for pools to a given size, views
            and lazy layers. A pair (x, y) is inputs and labels.
        classes: A check, and for models that end in one output (two classes by its sign) or in none.
        init: As for `fg.measure`: how weights are drawn, if not by the model's own initializers.
        forward: As for `fg.measure`: how the model is called on the example. What one call of the model gets is read.
        seed: Random seed.
        said: Findings about re-drawing that the notes need not repeat.
    """
    seed, model = check_seed(seed, "read(seed)"), named(model)
    if classes is not None:
        classes = checks.count(classes, 2, "number of classes", "read(classes)", "classes=2")
    batch = None if example is None else _batch(example)
    if batch is not None and not is_source(model):
        batch = fed(model, [batch], forward)[0]
    setup = Setup("train", None, None, lambda m: _materialise(m, batch))
    members = source(model, init, setup, redraw="all")  # a description is of weights that are drawn
    with members.member(int(member_seeds(seed, 0, 1)[0])) as first:
        names = list(dict.fromkeys([*dispatch.parameter_names(first), *token_parameters(first)]))
    draws = dispatch.draw(members, names, seed)
    with members.member(int(member_seeds(seed, 0, 1)[0])) as member:
        modules = Modules(member, draws, init)
        reading = known_reading(member, modules, batch)
        if reading is None:
            reading = _reading(member, modules, None if batch is None else _enough(member, batch))
    notes = reading.notes
    for finding in (finding for finding in members.findings if finding not in said):
        notes.append(f"{finding.layer}: {finding.message}" if finding.layer else finding.message)
    followed = any(finding.kind in FOLLOWED | ASSUMED for finding in members.findings)
    if isinstance(members.given, nn.Module) and draws.numbers and not followed:
        notes.append("variances are those of freshly drawn weights: values that are trained or loaded are not read")
    return _structure(reading, notes, classes)


def _batch(example: object) -> Batch:
    """An example as one batch, of two points at least: BatchNorm needs as many."""
    if isinstance(example, str):
        example = load(example)
    if not isinstance(example, Batch):
        stream = isinstance(example, list) or not (hasattr(example, "shape") or isinstance(example, (Mapping, tuple)))
        example = next(iter(batches(example, batch_size=None if stream else _ALL)))
    return example.rows(torch.tensor([0, 0]), 2) if example.size == 1 else example


def _enough(model: nn.Module, batch: Batch) -> Batch:
    """Two points, unless the model fails on them: some take whole batches only."""
    few = part(batch, 0, 2)
    try:
        with restored(model, parameters=False), IsolatedRandomness(0), torch.no_grad():
            Caller()(model, few, copies=True)
    except Exception:  # whatever a user's model raises
        return batch
    return few


def _materialise(model: nn.Module, batch: Batch | None) -> Any:
    if batch is None:
        expected = "an example of the inputs, to give lazy layers their shape"
        raise InvalidInput(expected, got="none", where="read(example)", hint="fg.read(model, x)")
    return shaped_by(model, batch)


def _reading(model: nn.Module, modules: Modules, batch: Batch | None) -> GraphReading:
    own = _own_inputs(model, batch)
    one = None  # the one tensor that goes in, if it is one: then it may be tokens
    if isinstance(own, str):
        traced = Traced(None, {"": own})
    else:
        inputs, as_one = own
        inputs = None if inputs is None else _like(model, inputs)
        given = [] if batch is None or batch.call is not None else list(tensors(inputs).values())
        one = given[0] if len(given) == 1 else None
        with restored(model, parameters=False):  # a module may keep what it is traced with
            traced = trace(model, inputs, as_one=as_one, whole=dispatch.is_whole if one is None else is_leaf)
    if traced.graph is not None:
        if one is None or traced.problem:
            reading = GraphReader(traced, modules).reading()
        else:
            reading = _token_graph(traced, Builder(modules), one)
        if traced.problem:
            reading.notes.append(f"the example could not be run, so shapes are not known ({traced.problem})")
        inside = tuple(f"{path}." for path in traced.opaque)
        order = [(path, axes) for path, axes in _order(model, batch) if path.startswith(inside)] if inside else []
        if not order:
            return reading
        more, how = listed(model, order, modules), "calls" if batch is not None else "registration"
        where = f"modules inside of {', '.join(traced.opaque)} are listed after the others"
        reading.notes += [f"{where}, in the order of their {how}", *more.notes]
        return replace(reading, parts=(*reading.parts, *more.parts), unread=(*reading.unread, *more.unread))
    reading = listed(model, _order(model, batch), modules)
    how = "modules are listed in the order of their calls; how they are connected is not known"
    if batch is None:
        how = "modules are listed in the order of their registration: an example of the inputs would give that of calls"
    opaque = {"": "its forward cannot be traced"} | traced.opaque
    stopped = (Unread(path, type(model.get_submodule(path)).__name__, why) for path, why in opaque.items())
    return replace(reading, unread=(*stopped, *reading.unread), notes=[how, *reading.notes])


def _own_inputs(model: nn.Module, batch: Batch | None) -> tuple[Any, bool] | str:
    """What the model itself gets, and whether that is its one argument; in words why one call of it is not all."""
    if batch is None or batch.call is None:
        return (None if batch is None else batch.inputs), False
    calls: list[tuple[tuple[Any, ...], dict[str, Any], Any]] = []
    hook = model.register_forward_hook(lambda _, *call: calls.append(call), with_kwargs=True)
    with hooked([hook]), IsolatedRandomness(0), torch.no_grad():
        output = Caller()(model, batch, copies=True)
    if len(calls) != 1 or calls[0][2] is not output:
        return "forward= does more than call it once"
    args, kwargs, _ = calls[0]
    if args and kwargs:
        return "forward= calls it with positional and named arguments"
    if len(args) != 1:
        return kwargs or args, False
    first = args[0]
    if isinstance(first, Mapping):
        return {key: value for key, value in first.items() if isinstance(value, torch.Tensor)}, True
    return first, isinstance(first, tuple)


def _order(model: nn.Module, batch: Batch | None) -> Sequence[tuple[str, int | None]]:
    """Modules in the order of their calls, with the axes of what they get; without example, of their registration."""
    return [(path, None) for path in _wholes(model)] if batch is None else _called(model, batch)


def _like(model: nn.Module, inputs: Any) -> Any:
    """Inputs on the model's device and in its type."""
    first = next((p for p in model.parameters() if p.is_floating_point()), None)
    if first is None:
        return inputs
    kinds = {key: first.dtype if leaf.is_floating_point() else leaf.dtype for key, leaf in leaves(inputs).items()}
    return replaced(inputs, {k: leaf.to(first.device, kinds[k], copy=True) for k, leaf in leaves(inputs).items()})


def _wholes(model: nn.Module) -> Iterator[str]:
    """Modules that are looked at as one: known ones, and those without children."""
    skipped: tuple[str, ...] = ()
    for path, module in model.named_modules():
        if path.startswith(skipped) and skipped:
            continue
        if dispatch.is_whole(module) or not any(True for _ in module.children()):
            skipped = (*skipped, f"{path}.")
            yield path


def _called(model: nn.Module, batch: Batch) -> list[tuple[str, int | None]]:
    seen: list[tuple[str, int | None]] = []

    def note(path: str, _: nn.Module, args: tuple[Any, ...]) -> None:
        seen.append((path, args[0].ndim if args and isinstance(args[0], torch.Tensor) else None))

    hooks = [model.get_submodule(path).register_forward_pre_hook(partial(note, path)) for path in _wholes(model)]
    with hooked(hooks), IsolatedRandomness(0), torch.no_grad(), first_forward(batch):
        Caller()(model, batch, copies=True)
    return seen


def _structure(reading: GraphReading, notes: list[str], classes: int | None) -> Structure:
    network = fragment = None
    unread = reading.unread
    whole = len(reading.runs) == 1 and not unread
    if whole:
        layers, found = _headed(reading.runs[0], notes)
        if found is not None and classes not in (None, found):
            raise InvalidInput(f"{found} classes, the model's outputs", got=classes, where="read(classes)")
        if found is None and classes is None:
            notes.append("the number of classes is not clear: 2 are taken (classes=)")
        network, problem = _network(layers, found or classes or 2)
        if problem:
            unread = (Unread("", "model", problem),)
    else:
        runs = [run for run in reading.runs if any(layer.weighted for layer in run)]
        fragment = _network(max(runs, key=len), classes or 2)[0] if runs else None
    if network is not None and not needs_tokens(network.layers):
        notes += _remarks(network, [p.variances.rule for p in reading.parts if p.variances is not None])
    return Structure(network, reading.parts, unread, tuple(dict.fromkeys(notes)), fragment)


def _network(layers: tuple[Layer, ...], classes: int) -> tuple[Network | None, str]:
    try:
        return Network(layers, classes), ""
    except FirstguessError as error:
        return None, str(error)


def _headed(layers: tuple[Layer, ...], notes: list[str]) -> tuple[tuple[Layer, ...], int | None]:
    """The layers with an output layer that has no width of its own, and the number of classes it stands for."""
    if len(layers) > 1 and layers[-1].symmetry is Symmetry.SHIFTS and layers[-2].as_output() is not None:
        notes.append("the output layer's constant bias is the same for all classes, and left out")
        layers = layers[:-1]
    if layers and layers[-1].each_token:
        return layers, getattr(layers[0], "vocabulary", None)
    output = layers[-1].as_output() if layers else None
    if output is None:
        notes.append("the network does not end in a dense layer: its readings will refuse it")
        return layers, None
    head, width = output
    if width == 1:
        notes.append("one output, whose sign is the guess: described as two classes, which have the same distribution")
    return (*layers[:-1], head), max(2, width or 2)


def _remarks(network: Network, rules: list[str]) -> Iterator[str]:
    """What the closed form makes of the network, where it can."""
    try:
        prediction = closed_form.predict(network)
    except FirstguessError as error:
        yield f"the closed form does not cover this network: {error.reason}"
        return
    if not rules or any(rule != dispatch.TORCH_DEFAULT for rule in rules):
        return
    text = "PyTorch's default initialization: σw² = 1/3 and σb² = 1/(3 fan-in)"
    growth = prediction.gradient_growth
    # Growth by the layer is what one weight layer does, where nothing but pools and kernels mixes what is in between.
    ordered = growth.size and math.isfinite(growth[-1]) and network.plain and growth.max() < 1.0
    phase = ": ordered phase, where correlations go to 1 and gradients shrink going back"
    yield f"{text}{phase if ordered else ''}"


# Models of tokens: which they are, their inputs, and the comparison with the description.

_ROWS, _TOKENS = 3, 9  # that a model and its description are compared on


def token_parameters(model: nn.Module) -> Iterator[str]:
    """Names of all parameters of a model that may be one of tokens: embeddings and positions are drawn too."""
    if is_known(model) or any(is_lookup(m) or dispatch.is_attention(m) or _learned(m) for m in model.modules()):
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
        layers = tuple(piece.layer for piece in stop.before)
        parts = tuple(part for piece in stop.before for part in piece.parts)
        unread = (Unread(stop.path, stop.kind, stop.why),)
        return GraphReading([layers, ()] if layers else [], parts, unread, builder.notes)
    config: Any = model.config
    inputs = _varied(_inputs(model, batch), getattr(config, "vocab_size", 0), getattr(config, "pad_token_id", None))
    if padding is not None:
        pieces[0] = builder.changed(pieces[0], padding=padding)
        inputs[-1, inputs.shape[1] // 2 + 1 :] = padding

    def call(m: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return outputs(m(x) if padding is None else m(x, attention_mask=(x != padding).long()))

    layers, parts = tuple(piece.layer for piece in pieces), tuple(part for piece in pieces for part in piece.parts)
    reading = GraphReading([layers], parts, (), builder.notes)
    return _compared(reading, builder, inputs, call, head=classes is not None)


def _token_graph(traced: Traced, builder: Builder, inputs: torch.Tensor) -> GraphReading:
    """The reading of a graph, compared with the model if it is one of tokens."""
    walk = TokenWalk(builder, traced)
    reader = GraphReader(traced, builder.modules, walk.visit)
    reading = reader.reading()
    reading.notes += builder.notes
    carriers = reader.carriers
    if reading.unread or not any(c.flow is not None and c.kind != "input" for c in carriers.values()):
        return reading
    signal = walk.signal(reader.end)
    if signal is None:
        why = "the output is not a vector, or tokens, of a signal that was read"
        return replace(reading, runs=[], unread=(Unread("", "output", why),))
    layers = reading.runs[0]
    checked = builder.filled.checks(layers[:1])
    inputs = _varied(inputs[:_ROWS].cpu(), getattr(checked[0], "vocabulary", 0), None)
    tail = [node for node in carriers if node in reader.trail.idle]
    head = signal.form == "vector" and layers[-1].as_output() is not None

    def ending(x: torch.Tensor) -> torch.Tensor:
        for node in tail:
            x = walk.run(node, x)
        return x

    return _compared(reading, builder, inputs, lambda m, x: outputs(m(x)), head=head, ending=ending)


def _compared(reading: GraphReading, builder: Builder, inputs: torch.Tensor, call: Any, **how: Any) -> GraphReading:
    """A reading, unless the description with the model's weights gives other outputs than the model."""
    model = builder.model
    why = difference(model, reading.runs[0], builder.filled, inputs, call, **how)
    if why:
        return replace(reading, runs=[], unread=(Unread("", type(model).__name__, why),))
    if any(isinstance(m, nn.Dropout) and m.p > 0 for m in model.modules()):
        reading.notes.append(dispatch.DROPOUT)
    same = "with the same weights the description gives the model's own outputs"
    reading.notes.append(f"{same}: compared on {len(inputs)} inputs")
    return reading


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
        raise Stop("", "attention_mask", "not one number per token; a description knows padding only")
    if mask is not None and not torch.equal(mask == 0, ids == (-1 if pad is None else pad)):
        raise Stop("", "attention_mask", _OTHERS if pad is None else _NOT_PADDING.format(pad))
    return None if mask is None else pad


_UNMASKED = "the padding id, {}, occurs among the ids without an attention_mask, so the model attends to it"
_NOT_PADDING = "masks other tokens than those with the id of padding, {}; a description knows padding only"
_OTHERS = "masks tokens, but the model's config has no pad_token_id: a description knows padding by its id"


def _varied(inputs: torch.Tensor, vocabulary: int, padding: int | None) -> torch.Tensor:
    """The first of the inputs, and drawn ones without padding: all sequences of an example may be the same."""
    shape = (_ROWS - 1, *inputs.shape[1:])
    if inputs.is_floating_point():
        return torch.cat([inputs[:1], torch.randn(shape, generator=torch.Generator().manual_seed(0))])
    return torch.cat([inputs[:1], _ids(vocabulary, shape, padding)])


def _ids(vocabulary: int, shape: tuple[int, ...], padding: int | None) -> torch.Tensor:
    """Drawn ids, none of them padding."""
    drawn = torch.randint(max(vocabulary - 1, 1), shape, generator=torch.Generator().manual_seed(0))
    return drawn if padding is None else drawn + (drawn >= padding)


def _inputs(model: Any, batch: Batch | None) -> torch.Tensor:
    """A few inputs of the model: of the example, else drawn."""
    given = {} if batch is None else tensors(batch.inputs)
    config = model.config
    if getattr(model, "main_input_name", "") == "pixel_values":
        found = given.get("pixel_values", given.get(None))
        if found is not None:
            return found[:_ROWS].float().cpu()
        size = config.image_size if isinstance(config.image_size, (tuple, list)) else (config.image_size,) * 2
        return torch.randn(_ROWS, config.num_channels, *size, generator=torch.Generator().manual_seed(0))
    found, pad = given.get("input_ids", given.get(None)), getattr(config, "pad_token_id", None)
    if found is not None:
        ids = found.long().cpu()
        return ids[[int((ids == pad).sum(1).argmax())]] if pad is not None else ids[:_ROWS]  # with the most padding
    length = min(_TOKENS, getattr(config, "max_position_embeddings", _TOKENS) - 2)
    return _ids(config.vocab_size, (_ROWS, max(2, length)), pad)
