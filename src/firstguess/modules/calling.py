"""One call of a model on one batch: inputs on its device and in its type, never written to."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from firstguess.base.errors import FirstguessError, InvalidInput
from firstguess.data import Batch
from firstguess.data.items import tensors as leaves


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


_ONE_VALUE = "Expected more than 1 value per channel"  # torch's words
_OTHER_TYPE = (
    "dtype",
    "scalar type",
    "Input type",
    "not implemented for 'Byte'",
)  # torch's, of layers fed with integers


@contextmanager
def first_forward() -> Generator[None]:
    """What a user's model raises on its first call, as an error that says what to do."""
    try:
        yield
    except FirstguessError:
        raise
    except Exception as error:  # whatever a user's model raises
        raise InvalidInput(
            "a model that runs on this data",
            got=f"{type(error).__name__}: {error}",
            where="the first forward",
            hint="a call of the model on one batch by hand",
        ) from error


def _whole_numbers(given: dict[Any, torch.Tensor], error: Exception) -> InvalidInput | None:
    """The error for images in bytes, or other whole numbers, where layers want floats."""
    whole = {key: leaf for key, leaf in given.items() if not leaf.is_floating_point() and not leaf.is_complex()}
    if not isinstance(error, RuntimeError) or not whole or not any(words in str(error) for words in _OTHER_TYPE):
        return None
    key, leaf = next(((k, v) for k, v in whole.items() if v.dtype == torch.uint8), next(iter(whole.items())))
    kind, pixels = str(leaf.dtype).removeprefix("torch."), leaf.dtype == torch.uint8
    return InvalidInput(
        "inputs as floats",
        got=f"{kind} ({'bytes, such as pixels from 0 to 255' if pixels else 'whole numbers'})",
        where="the data" if key is None else f"the data, {key!r}",
        hint="x.float() / 255, then (x - x.mean()) / x.std()" if pixels else "x.float()",
    )


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
            raise InvalidInput(
                "batches of two points or more, for a BatchNorm in training mode",
                got="a batch of one (what is left over at the end of the data?)",
                where="the data",
                hint="DataLoader(..., drop_last=True), or another batch_size",
            ) from error
        for key, version in versions.items():
            if given[key]._version != version:
                if given[key] is tensors[key]:
                    raise InvalidInput(
                        "a model that writes into its inputs always or never",
                        got=f"one that did so for some data only ({'inputs' if key is None else key})",
                        hint="x = x.clone() at the start of its forward",
                    )
                self.clones = True
        return output
