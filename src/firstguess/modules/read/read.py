"""`read`: from an `nn.Module` to its description."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from firstguess.base import checks
from firstguess.base.errors import FirstguessError, InvalidInput
from firstguess.data import Batch, batches, load
from firstguess.ensemble.member_statistics import ASSUMED, FOLLOWED, Finding
from firstguess.ensemble.seeds import check_seed, member_seeds
from firstguess.modules.call_model import Caller, Forward, fed, leaves, part, replaced
from firstguess.modules.guard import IsolatedRandomness, restored
from firstguess.modules.members.initializers import Init
from firstguess.modules.members.sources import Setup, Source, is_source, named, shaped_by, source
from firstguess.modules.read.context import TORCH_DEFAULT, Modules, draw, parameter_names
from firstguess.modules.read.dispatch import is_whole
from firstguess.modules.read.graph import GraphReading, listed, read_graph
from firstguess.modules.read.result import Structure, Unread
from firstguess.modules.read.tracing import Traced, trace
from firstguess.modules.read.verify import graph_reading, known_reading, token_parameters
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
        seed: Of the draws.
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
        names = list(dict.fromkeys([*parameter_names(first), *token_parameters(first)]))
    draws = draw(members, names, seed)
    with members.member(int(member_seeds(seed, 0, 1)[0])) as member:
        modules = Modules(member, draws, init)
        known = known_reading(member, modules, batch)
        if known is not None:
            reading, notes = known, known.notes
        else:
            reading, notes = _reading(member, modules, None if batch is None else _enough(member, batch))
            by_tokens = graph_reading(member, modules, batch) if reading.unread else None
            if by_tokens is not None:
                reading, notes = by_tokens, by_tokens.notes
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
        raise InvalidInput(
            "an example of the inputs, to give lazy layers their shape",
            got="none",
            where="read(example)",
            hint="fg.read(model, x)",
        )
    return shaped_by(model, batch)


def _reading(model: nn.Module, modules: Modules, batch: Batch | None) -> tuple[GraphReading, list[str]]:
    own = _own_inputs(model, batch)
    if isinstance(own, str):
        traced = Traced(None, {"": own})
    else:
        inputs, as_one = own
        with restored(model, parameters=False):  # a module may keep what it is traced with
            traced = trace(model, None if inputs is None else _like(model, inputs), as_one=as_one)
    if traced.graph is not None:
        reading = read_graph(traced, modules)
        notes = reading.notes
        if traced.problem:
            notes.append(f"the example could not be run, so shapes are not known ({traced.problem})")
        if not traced.opaque:
            return reading, notes
        inside = tuple(f"{path}." for path in traced.opaque)
        order = [(path, axes) for path, axes in _order(model, batch) if path.startswith(inside)]
        if not order:
            return reading, notes
        more = listed(model, order, modules)
        where = f"modules inside of {', '.join(traced.opaque)} are listed after the others, in the order of their"
        notes += [f"{where} {'calls' if batch is not None else 'registration'}", *more.notes]
        return replace(reading, parts=(*reading.parts, *more.parts), unread=(*reading.unread, *more.unread)), notes
    reading = listed(model, _order(model, batch), modules)
    how = "modules are listed in the order of their calls; how they are connected is not known"
    if batch is None:
        how = "modules are listed in the order of their registration: an example of the inputs would give that of calls"
    opaque = {"": "its forward cannot be traced"} | traced.opaque
    stopped = (Unread(path, type(model.get_submodule(path)).__name__, why) for path, why in opaque.items())
    return replace(reading, unread=(*stopped, *reading.unread)), [how, *reading.notes]


def _own_inputs(model: nn.Module, batch: Batch | None) -> tuple[Any, bool] | str:
    """What the model itself gets, and whether that is its one argument; in words why one call of it is not all."""
    if batch is None or batch.call is None:
        return (None if batch is None else batch.inputs), False
    calls: list[tuple[tuple[Any, ...], dict[str, Any], Any]] = []
    hook = model.register_forward_hook(lambda _, *call: calls.append(call), with_kwargs=True)
    try:
        with IsolatedRandomness(0), torch.no_grad():
            output = Caller()(model, batch, copies=True)
    finally:
        hook.remove()
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
        if is_whole(module) or not any(True for _ in module.children()):
            skipped = (*skipped, f"{path}.")
            yield path


def _called(model: nn.Module, batch: Batch) -> list[tuple[str, int | None]]:
    seen: list[tuple[str, int | None]] = []
    hooks: list[Any] = []

    def noting(path: str) -> Callable[[nn.Module, tuple[Any, ...]], None]:
        def note(_: nn.Module, args: tuple[Any, ...]) -> None:
            seen.append((path, args[0].ndim if args and isinstance(args[0], torch.Tensor) else None))

        return note

    try:
        for path in _wholes(model):
            hooks.append(model.get_submodule(path).register_forward_pre_hook(noting(path)))
        with IsolatedRandomness(0), torch.no_grad():
            Caller()(model, batch, copies=True)
    finally:
        for hook in hooks:
            hook.remove()
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
        for run in sorted(reading.runs, key=len, reverse=True):
            if any(layer.weighted for layer in run):
                fragment, _ = _network(run, classes or 2)
                break
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
        notes.append("one output, whose sign is the guess: described as two classes, which have the same law")
    return (*layers[:-1], head), max(2, width or 2)


def _remarks(network: Network, rules: list[str]) -> Iterator[str]:
    """What the closed form makes of the network, where it can."""
    try:
        prediction = closed_form.predict(network)
    except FirstguessError as error:
        yield f"the closed form does not cover this network: {error.reason}"
        return
    if not rules or any(rule != TORCH_DEFAULT for rule in rules):
        return
    text = "PyTorch's default initialization: σw² = 1/3 and σb² = 1/(3 fan-in)"
    growth = prediction.gradient_growth
    if not growth.size or not math.isfinite(growth[-1]):
        yield text
        return
    # Growth by the layer is what one weight layer does, where nothing but pools and kernels mixes what is in between.
    if network.plain and growth.max() < 1.0:
        yield f"{text}: ordered phase, where correlations go to 1 and gradients shrink going back"
    else:
        yield text
