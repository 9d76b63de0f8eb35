"""How a model is called on batches: by `forward=`, or as its signature shows; where that leaves it open, by a trial."""

from __future__ import annotations

import inspect
import math
import re
import warnings
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from firstguess.base.errors import FirstguessError, InvalidInput
from firstguess.data import Batch, collect, load
from firstguess.data.items import tensors as leaves
from firstguess.data.streams import IsolatedRandomness
from firstguess.ensemble.member_statistics import Finding, FindingKind
from firstguess.modules.guard import own_copy, restored, unwrapped

# One call of a model on one batch: inputs on its device and in its type, never written to.


def replaced(inputs: Any, tensors: dict[Any, torch.Tensor]) -> Any:
    """`inputs` with some of its tensors replaced."""
    if isinstance(inputs, torch.Tensor):
        return tensors.get(None, inputs)
    if isinstance(inputs, dict):
        return {**inputs, **tensors}
    return tuple(tensors.get(place, value) for place, value in enumerate(inputs))


def part(batch: Batch, start: int, stop: int) -> Batch:
    """Some of a batch's points; the memory is the batch's own."""
    return batch.rows(slice(start, stop), stop - start)


def signature(batch: Batch) -> tuple[Any, ...]:
    """Shape of one point: batches of another one have other tokens or pixels."""
    return tuple((key, tuple(leaf.shape[1:])) for key, leaf in leaves(batch.inputs).items())


def mask_of(batch: Batch) -> torch.Tensor | None:
    """Which tokens are real (points, tokens), if the batch says so and some are not."""
    mask = leaves(batch.inputs).get("attention_mask")
    if mask is None or mask.ndim != 2 or mask.is_floating_point() or bool((mask != 0).all()):
        return None
    return mask != 0


def joined(batches: Sequence[Batch]) -> Batch:
    """Batches of points of one shape as one, with labels where all have some."""
    first = batches[0]
    if len(batches) == 1:
        return first
    found = [leaves(batch.inputs) for batch in batches]
    inputs = {key: torch.cat([own[key] for own in found]) if leaf.ndim else leaf for key, leaf in found[0].items()}
    labels = [batch.labels for batch in batches if batch.labels is not None]
    known = len(labels) == len(batches) and len({label.shape[1:] for label in labels}) == 1
    return replace(
        first,
        inputs=replaced(first.inputs, inputs),
        labels=torch.cat(labels) if known else None,
        size=sum(batch.size for batch in batches),
        tree=None if first.aside else first.tree,
    )


def fewer(batches: Sequence[Batch], points: int, size: int = 256) -> list[Batch]:
    """At most `points` points, evenly spread over the data, in batches of `size`."""
    total = sum(batch.size for batch in batches)
    if points >= total:
        return list(batches)
    if len({signature(batch) for batch in batches}) > 1 or batches[0].call is not None:  # they cannot be put together
        kept: list[Batch] = []
        for batch in batches:
            kept.append(part(batch, 0, min(batch.size, points)))
            points -= kept[-1].size
            if points < 1:
                break
        return kept
    whole = joined(batches).rows(torch.linspace(0, total - 1, points).round().long(), points)
    return [part(whole, start, min(start + size, points)) for start in range(0, points, size)]


def centred(batches: Sequence[Batch]) -> list[Batch] | None:
    """The data minus their mean point; None if they are not one float tensor of one shape."""
    tensors = [batch.inputs for batch in batches]
    if any(not isinstance(x, torch.Tensor) or not x.is_floating_point() for x in tensors):
        return None
    if len({signature(batch) for batch in batches}) > 1:
        return None
    x = torch.cat([t for t in tensors if isinstance(t, torch.Tensor)])
    mean = x.double().mean(0).to(x.dtype)
    return [replace(b, inputs=b.inputs - mean) for b in batches if isinstance(b.inputs, torch.Tensor)]


_ONE_VALUE = "Expected more than 1 value per channel"  # torch's words
_OTHER_TYPE = ("dtype", "scalar type", "Input type", "not implemented for 'Byte'")  # torch's, of layers fed integers


@contextmanager
def first_forward(batch: Batch | None = None) -> Generator[None]:
    """What a user's model raises on its first call, as an error that says what to do."""
    try:
        yield
    except FirstguessError:
        raise
    except Exception as error:  # whatever a user's model raises
        raise not_run(error, batch) from error


def not_run(error: Exception, batch: Batch | None = None) -> InvalidInput:
    """What a user's model raised, with what its words and the shape of the data say of the reason."""
    first = None if batch is None else next(iter(leaves(batch.inputs).values()), None)
    got, hint = f"{type(error).__name__}: {error}", _meant(str(error), first)
    return InvalidInput("a model that runs on this data", got=got, where="the first forward", hint=hint)


def _meant(said: str, x: torch.Tensor | None) -> str:
    """What to do about torch's words for layers and inputs that do not fit.

    >>> _meant("mat1 and mat2 shapes cannot be multiplied (50x32 and 64x10)", torch.zeros(50, 32))
    'other inputs: the first Linear takes 64 features, and the data have 32'
    >>> _meant("expected input[5, 8, 8, 3] to have 3 channels, but got 8 channels instead", torch.zeros(5, 8, 8, 3))
    'x.permute(0, 3, 1, 2): the images look channels-last'
    """
    if found := re.search(r"shapes cannot be multiplied \(\d+x(\d+) and (\d+)x\d+\)", said):
        given, wanted = int(found[1]), int(found[2])
        if x is not None and x.ndim > 2 and math.prod(x.shape[1:]) == wanted:
            return f"x.flatten(1), or nn.Flatten() as the first layer: the Linear takes {wanted} features"
        if x is not None and x.ndim == 2 and x.shape[1] == given:
            return f"other inputs: the first Linear takes {wanted} features, and the data have {given}"
        return f"other inputs: the Linear takes {wanted} features, and is given {given}"
    if found := re.search(r"to have (\d+) channels, but got (\d+) channels", said):
        wanted = int(found[1])
        if x is not None and x.ndim == 4 and x.shape[-1] == wanted:
            return "x.permute(0, 3, 1, 2): the images look channels-last"
        if x is not None and x.ndim == 3 and wanted == 1:
            return "x.unsqueeze(1): the images have no axis for their one channel"
        return f"other inputs: the convolution takes {wanted} channels, and is given {found[2]}"
    return "a call of the model on one batch by hand"


def _whole_numbers(given: dict[Any, torch.Tensor], error: Exception) -> InvalidInput | None:
    """The error for images in bytes, or other whole numbers, where layers want floats."""
    whole = {key: leaf for key, leaf in given.items() if not leaf.is_floating_point() and not leaf.is_complex()}
    if not isinstance(error, RuntimeError) or not whole or not any(words in str(error) for words in _OTHER_TYPE):
        return None
    key, leaf = next(((k, v) for k, v in whole.items() if v.dtype == torch.uint8), next(iter(whole.items())))
    kind, pixels = str(leaf.dtype).removeprefix("torch."), leaf.dtype == torch.uint8
    got = f"{kind} ({'bytes, such as pixels from 0 to 255' if pixels else 'whole numbers'})"
    where = "the data" if key is None else f"the data, {key!r}"
    hint = "x.float() / 255, then (x - x.mean()) / x.std()" if pixels else "x.float()"
    return InvalidInput("inputs as floats", got=got, where=where, hint=hint)


class Caller:
    """Calls models on batches. `clones`: a model was seen to write into its inputs, so it gets copies."""

    def __init__(self) -> None:
        self.clones = False
        self.channels_last = False  # images in the memory order that convolutions on a CPU are fastest in
        self.cast = ""  # e.g. "float32 to bfloat16"

    def __call__(self, model: nn.Module, batch: Batch, *, copies: bool = False) -> Any:
        tensors, device, dtype = leaves(batch.inputs), torch.device("cpu"), None
        for parameter in model.parameters():
            if parameter.is_floating_point():
                device, dtype = parameter.device, parameter.dtype
                break
        given: dict[Any, torch.Tensor] = {}
        with torch.inference_mode(False):  # a tensor of inference mode has no version to tell that it was written
            for key, leaf in tensors.items():
                kind = dtype if leaf.is_floating_point() and dtype is not None else leaf.dtype
                if kind != leaf.dtype:
                    self.cast = f"{leaf.dtype} to {kind}".replace("torch.", "")
                new = leaf.to(device=device, dtype=kind)
                if self.channels_last and new.ndim == 4:
                    new = new.contiguous(memory_format=torch.channels_last)
                given[key] = new.clone() if new is leaf and (self.clones or copies) else new
        versions = {key: leaf._version for key, leaf in given.items() if not leaf.is_inference()}
        inputs = replaced(batch.inputs, given)
        try:
            if batch.call is not None:
                run = getattr(model, "run_by", None)  # of stacked.py: with other parameters
                item = batch.item(inputs, lambda leaf: leaf.to(device))
                output = batch.call(model, item) if run is None else run(batch.call, item)
            elif isinstance(inputs, torch.Tensor):
                output = model(inputs)
            else:
                output = model(**inputs) if isinstance(inputs, dict) else model(*inputs)
        except Exception as error:  # whatever a user's model raises
            if (whole := _whole_numbers(given, error)) is not None:
                raise whole from error
            if batch.size > 1 or _ONE_VALUE not in str(error) or not isinstance(error, ValueError):
                raise
            expected = "batches of two points or more, for a BatchNorm in training mode"
            got = "a batch of one (what is left over at the end of the data?)"
            hint = "DataLoader(..., drop_last=True), or another batch_size"
            raise InvalidInput(expected, got=got, where="the data", hint=hint) from error
        for key, version in versions.items():
            if given[key]._version != version:
                if given[key] is tensors[key]:
                    got = f"one that did so for some data only ({'inputs' if key is None else key})"
                    expected = "a model that writes into its inputs always or never"
                    hint = "x = x.clone() at the start of its forward"
                    raise InvalidInput(expected, got=got, hint=hint)
                self.clones = True
        return output


Forward: TypeAlias = Callable[[Any, Any], Any]  # of the model and a batch as it was given; returns the model's output


def fed(what: object, batches: Sequence[Batch], forward: Forward | None = None) -> list[Batch]:
    """The batches, with how `what` (a model, or what makes one) is called on them.

    With `forward`, by it. Else as the model's signature says: a dict as keyword arguments, without those that the model
    does not take, or as its one argument; a tuple as positional arguments, or as its one. A dict with one input may be
    either that input or itself to a model with one argument: there it is tried, on a copy.
    """
    if forward is not None:
        if not callable(forward):
            hint = 'forward=lambda model, batch: model(batch["image"])'
            raise InvalidInput("a function of a model and a batch", got=repr(forward), where="forward", hint=hint)
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
            count = len(first.inputs)

            def as_tuple(model: Any, item: Any) -> Any:
                return model(item[0] if isinstance(item[0], tuple) else tuple(item[:count]))

            return [replace(batch, call=as_tuple) for batch in batches]
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
    return [Finding(FindingKind.ASIDE, f"{message}; in Python forward= takes a function that does")]


def _named(parameters: inspect.Signature, batches: list[Batch]) -> list[Batch]:
    """Dicts of inputs: as keyword arguments, all or those that the model takes; else as its one argument."""
    inputs = cast("dict[str, Any]", batches[0].inputs)
    if _binds(parameters, **inputs):
        return batches
    known = {key: value for key, value in inputs.items() if key in parameters.parameters}
    if any(isinstance(value, torch.Tensor) for value in known.values()) and _binds(parameters, **known):
        extra = tuple(f"key {key!r}" for key in inputs if key not in known)

        def taken(batch: Batch) -> Batch:
            own = {key: value for key, value in cast("dict[str, Any]", batch.inputs).items() if key in known}
            return replace(batch, inputs=own, aside=(*batch.aside, *extra))

        return list(map(taken, batches))
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


def _example(what: Any) -> nn.Module | None:
    """A model to look at; what a factory makes, drawn with nobody's randomness."""
    if isinstance(what, nn.Module):
        return unwrapped(what)
    try:
        with IsolatedRandomness(0):
            made = what()
    except Exception:  # it will be called again, by what says so in words
        return None
    return unwrapped(made) if isinstance(made, nn.Module) else None


def _wants_dict(model: nn.Module, batch: Batch, *, own: bool) -> bool:
    """Whether it fails on the one input and runs on the dict around it; nothing stays of either trial."""
    whole = replace(batch, call=_as_dict)
    copied = None if own else own_copy(model)
    twin = model if copied is None else copied
    for size in dict.fromkeys((min(2, batch.size), batch.size)):  # some take whole batches only
        if _runs(twin, part(batch, 0, size)):
            return False
        if _runs(twin, part(whole, 0, size)):
            return True
    return False


def _runs(model: nn.Module, batch: Batch) -> bool:
    try:
        with IsolatedRandomness(0), torch.no_grad(), restored(model, parameters=False), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of torch, about what is no index of a tensor
            Caller()(model.eval(), batch, copies=True)
    except Exception:  # whatever a user's model raises
        return False
    return True


# Labelled points for training a module: all of them as one batch, of which any rows can be taken.

_ALL = 1 << 40  # a batch size that holds everything


@dataclass(frozen=True, eq=False)
class Labelled:
    """Points as a model is called on them, and a class for each."""

    batch: Batch
    labels: torch.Tensor  # int64

    @property
    def n(self) -> int:
        return self.batch.size

    def rows(self, index: torch.Tensor | slice, size: int) -> tuple[Batch, torch.Tensor]:
        """Some of the points; a slice shares their memory."""
        return self.batch.rows(index, size), self.labels[index]

    def classes(self) -> NDArray[np.int64]:
        """The labels, for counting."""
        return self.labels.cpu().numpy().astype(np.int64)


def labelled(what: object, data: Any, where: str, forward: Forward | None = None) -> Labelled:
    """All points of `data` (arrays, loaders, Datasets, dicts, a name), called as `what` takes them."""
    found = collect(load(data) if isinstance(data, str) else data, batch_size=_ALL)
    batches = fed(what, found, forward)
    if len({signature(batch) for batch in batches}) > 1:
        got, hint = "batches of different shapes", "padding to one length for all batches"
        raise InvalidInput("points of one shape", got=got, where=where, hint=hint)
    first = batches[0]
    if len(batches) > 1 and first.aside and first.call is not None:
        raise InvalidInput("tensors only, for forward= on several batches", got=", ".join(first.aside), where=where)
    batch = joined(batches)
    labels = batch.labels
    if labels is None:
        raise InvalidInput("labelled points", got="points without labels", where=where, hint=f"{where}=(x, y)")
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1:
        raise InvalidInput("one label per point", got=f"labels of shape {tuple(labels.shape)}", where=where)
    whole = whole_labels(labels, where)
    if int(whole.min()) < 0:
        raise InvalidInput("labels 0, 1, …", got=int(whole.min()), where=where)
    return Labelled(batch, whole)


def whole_labels(labels: torch.Tensor, where: str) -> torch.Tensor:
    """Labels in a row, as whole numbers."""
    flat = labels.reshape(-1)
    whole = flat.long()
    if labels.is_floating_point() and not torch.equal(whole.to(labels.dtype), flat):
        raise InvalidInput("labels 0, 1, …", got="numbers that are not whole", where=where)
    return whole
