"""How a model is called on batches: by `forward=`, or as its signature shows; where that leaves it open, by a trial."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias, cast

import torch
from torch import nn

from firstguess.base.errors import InvalidInput
from firstguess.data import Batch
from firstguess.ensemble.members import Finding, FindingKind
from firstguess.modules.calling import Caller, part
from firstguess.modules.guard import PrivateRandomness, borrowed, private_copy, unwrapped

Forward: TypeAlias = Callable[[Any, Any], Any]  # of the model and a batch as it was given; returns the model's output


def fed(what: object, batches: Sequence[Batch], forward: Forward | None = None) -> list[Batch]:
    """The batches, with how `what` (a model, or what makes one) is called on them.

    With `forward`, by it. Else as the model's signature says: a dict as keyword arguments, without those that the model
    does not take, or as its one argument; a tuple as positional arguments, or as its one. A dict with one input may be
    either that input or itself to a model with one argument: there it is tried, on a copy.
    """
    if forward is not None:
        if not callable(forward):
            raise InvalidInput(
                "a function of a model and a batch",
                got=repr(forward),
                where="forward",
                hint='forward=lambda model, batch: model(batch["image"])',
            )
        return [replace(batch, call=forward) for batch in batches]
    first = batches[0]
    open_to = isinstance(first.inputs, (dict, tuple)) or isinstance(_inner(first.tree), dict)
    if not open_to or first.call is not None or not (isinstance(what, nn.Module) or callable(what)):
        return list(batches)
    model = _example(what)
    if model is None:
        return list(batches)
    try:
        parameters = inspect.signature(model.forward)
    except (TypeError, ValueError):  # of a compiled function
        return list(batches)
    if isinstance(first.inputs, tuple):
        if not _binds(parameters, *first.inputs) and _binds(parameters, first.inputs):
            return [replace(batch, call=partial(_as_tuple, len(first.inputs))) for batch in batches]
        return list(batches)
    if isinstance(first.inputs, dict):
        return _named(parameters, [cast("Any", batch) for batch in batches])
    named = any(key in parameters.parameters for key in cast("dict[str, Any]", _inner(first.tree)))
    own = not isinstance(what, nn.Module)
    if not named and _binds(parameters, first.inputs) and _wants_dict(model, first, own=own):
        return [replace(batch, call=_as_dict) for batch in batches]
    return list(batches)


def left_aside(batches: Sequence[Batch]) -> list[Finding]:
    """What batches hold that the model does not get."""
    aside = list(dict.fromkeys(name for batch in batches for name in batch.aside))
    if not aside or batches[0].call is not None:  # which gets all there is
        return []
    message = f"the model does not get {', '.join(aside)} of each batch"
    return [Finding(FindingKind.ASIDE, f"{message}; forward=lambda model, batch: … gets all of it")]


def _named(parameters: inspect.Signature, batches: list[Batch]) -> list[Batch]:
    """Dicts of inputs: as keyword arguments, all or those that the model takes; else as its one argument."""
    inputs = cast("dict[str, Any]", batches[0].inputs)
    if _binds(parameters, **inputs):
        return batches
    known = {key: value for key, value in inputs.items() if key in parameters.parameters}
    if any(isinstance(value, torch.Tensor) for value in known.values()) and _binds(parameters, **known):
        extra = tuple(f"key {key!r}" for key in inputs if key not in known)
        return [
            replace(
                batch,
                inputs={key: value for key, value in cast("dict[str, Any]", batch.inputs).items() if key in known},
                aside=(*batch.aside, *extra),
            )
            for batch in batches
        ]
    return [replace(batch, call=_as_dict) for batch in batches] if _binds(parameters, inputs) else batches


def _binds(parameters: inspect.Signature, *args: Any, **kwargs: Any) -> bool:
    try:
        parameters.bind(*args, **kwargs)
    except TypeError:
        return False
    return True


def _inner(tree: Any) -> Any:
    """What the inputs stand in: an item itself, or the first part of (inputs, labels)."""
    return tree[0] if isinstance(tree, (tuple, list)) and isinstance(tree[0], (Mapping, tuple)) else tree


def _as_dict(model: Any, item: Any) -> Any:
    return model(item if isinstance(item, Mapping) else item[0])


def _as_tuple(count: int, model: Any, item: Any) -> Any:
    return model(item[0] if isinstance(item[0], tuple) else tuple(item[:count]))


def _example(what: Any) -> nn.Module | None:
    """A model to look at; what a factory makes, drawn with nobody's randomness."""
    if isinstance(what, nn.Module):
        return unwrapped(what)
    try:
        with PrivateRandomness(0):
            made = what()
    except Exception:  # it will be called again, by what says so in words
        return None
    return unwrapped(made) if isinstance(made, nn.Module) else None


def _wants_dict(model: nn.Module, batch: Batch, *, own: bool) -> bool:
    """Whether it fails on the one input and runs on the dict around it; nothing stays of either trial."""
    whole = replace(batch, call=_as_dict)
    copied = None if own else private_copy(model)
    twin = model if copied is None else copied
    for size in dict.fromkeys((min(2, batch.size), batch.size)):  # some take whole batches only
        if _runs(twin, part(batch, 0, size)):
            return False
        if _runs(twin, part(whole, 0, size)):
            return True
    return False


def _runs(model: nn.Module, batch: Batch) -> bool:
    try:
        with PrivateRandomness(0), torch.no_grad(), borrowed(model, parameters=False), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of torch, about what is no index of a tensor
            Caller()(model.eval(), batch, copies=True)
    except Exception:  # whatever a user's model raises
        return False
    return True
