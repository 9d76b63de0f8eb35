"""`as_data`: what a user hands in, as `Data`."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np

from firstguess.base.errors import InvalidInput
from firstguess.data.dataset import Data
from firstguess.data.sources import INPUT_KEYS, LABEL_KEYS
from firstguess.data.streams import collect, is_pair


def as_data(
    obj: object, *, points: int | None = None, most: int | None = None, seed: int = 0, name: str = "data"
) -> Data:
    """`obj` as `Data`: one array of numbers, with labels if it has any.

    Takes `Data`, arrays, tensors (any device, dtype, with or without gradient), lists, (x, y), dicts with a key such as
    x, inputs or pixel_values; DataLoaders, Datasets and iterables of batches are read to the end. `points` of them are
    drawn by `seed`; from a loader or an iterable, the first are taken. With `most`, fewer are fine.

    Token ids (input_ids) are accepted, but as numbers they mean nothing to `Data.inputs`: for a language model use
    `collect`.

    >>> as_data(([[1, 2], [3, 4], [5, 6]], [0, 1, 1]))
    Data('data', 3 points of shape (2,), 2 classes)
    """
    if isinstance(obj, Data):
        data = obj
    elif isinstance(obj, (str, bytes)):
        raise InvalidInput("data", got=repr(obj), hint="firstguess.data.load(text) for data by name")
    else:
        found = _parts(obj)
        if found is None:
            found, points = _joined(obj, points, most, seed), None
        data = Data(cast("Any", found[0]), cast("Any", found[1]), name=name)
    if points is None and most is not None:
        points = min(most, data.n)
    return data if points in (None, data.n) else data.subset(points, seed)


def _parts(obj: object) -> tuple[object, object] | None:
    """Points and labels as NumPy sees them, or None for a stream."""
    if isinstance(obj, Mapping):
        fields = cast("Mapping[str, object]", obj)
        keys = [key for key in (*INPUT_KEYS, "input_ids") if key in fields]
        if not keys:
            raise InvalidInput(
                f"a dict with one of the keys {', '.join(INPUT_KEYS)}", got=f"keys {', '.join(map(str, fields))}"
            )
        labels = next((fields[key] for key in LABEL_KEYS if key in fields), None)
        if "attention_mask" in fields and not _numpy(fields["attention_mask"]).all():
            raise InvalidInput(
                "ids without an attention_mask, which one array has no place for",
                got="a mask with zeros",
                where="data",
                hint="data=ids, and the id of padding in the network: embed(…, padding=0)",
            )
        return _numpy(fields[keys[0]]), None if labels is None else _numpy(labels)
    if isinstance(obj, (tuple, list)):
        items = cast("Sequence[object]", obj)
        if len(items) == 2 and (is_pair(items) or _is_listed_pair(items)):
            return _numpy(items[0]), None if items[1] is None else _numpy(items[1])
        return (_numpy(items), None) if _is_listed_numbers(items) else None
    if hasattr(obj, "__array__"):
        return _numpy(obj), None
    return None


def _is_listed_pair(items: Sequence[object]) -> bool:
    """(x, y) in plain lists: y is flat (numbers or names of classes), x is not."""
    x, y = items
    named = isinstance(y, (list, tuple)) and all(isinstance(one, str) for one in cast("Sequence[object]", y))
    return _depth(x) >= 2 and (_depth(y) == 1 or named)


def _is_listed_numbers(items: Sequence[object]) -> bool:
    return _depth(items) >= 1


def _depth(value: object) -> int:
    """How deep lists are nested over a number; −1 if something else is inside."""
    depth = 0
    while isinstance(value, (list, tuple)):
        if not value:
            return -1
        value, depth = cast("Sequence[object]", value)[0], depth + 1
    shape = getattr(value, "shape", None)
    if shape is not None:
        return depth + len(shape) if depth == 0 else -1
    return depth if isinstance(value, (int, float)) else -1


def _numpy(value: Any) -> np.ndarray[Any, Any]:
    torch = sys.modules.get("torch")  # a tensor can only come from a program that has imported torch
    if torch is not None and isinstance(value, torch.Tensor):
        if value.is_meta:
            raise InvalidInput("a tensor with content", got="a tensor on the meta device")
        value = value.detach().cpu()
        value = value if value.layout == torch.strided else value.to_dense()
        return (value.float() if value.is_floating_point() else value).resolve_conj().numpy()
    try:
        found = np.asarray(value)
    except ValueError as error:
        lengths = sorted({len(one) for one in value}) if _depth(value) == 2 else []
        if len(lengths) > 1:
            raise _ragged(lengths) from None
        raise InvalidInput("an array of numbers", got=str(error)) from None
    if found.dtype == object and found.ndim == 1 and all(isinstance(one, (list, tuple, np.ndarray)) for one in found):
        raise _ragged(sorted({len(one) for one in found}))
    return found


def _ragged(lengths: Sequence[int]) -> InvalidInput:
    """What to say of sequences of these lengths."""
    some = ", ".join(map(str, lengths[:5])) + (", …" if len(lengths) > 5 else "")
    return InvalidInput(
        "points of one length",
        got=f"lengths {some}",
        where="data",
        hint="fill up sequences of tokens with one id more, and name it: embed(…, padding=0)",
    )


def _joined(obj: object, points: int | None, most: int | None, seed: int) -> tuple[object, object]:
    """A stream read to its end (or to `points`), as one array."""
    read = collect(obj, most if points is None else points, seed=seed)
    inputs = [batch.inputs for batch in read]
    if isinstance(inputs[0], dict):
        parts = [_parts(cast("dict[str, object]", one)) for one in inputs]
        arrays = [part[0] for part in parts if part is not None]
    elif isinstance(inputs[0], tuple):
        raise InvalidInput(
            "one input a point", got=f"{len(inputs[0])} inputs", hint="collect, for the ensemble reading"
        )
    else:
        arrays = [_numpy(one) for one in inputs]
    labels = [None if batch.labels is None else _numpy(batch.labels) for batch in read]
    size = sum(batch.size for batch in read)
    if points is not None and size < points:
        raise InvalidInput(f"between 1 and {size} points: there are {size}", got=points)
    lengths = sorted({cast("Any", array).shape[0] for array in arrays if cast("Any", array).ndim == 1})
    if len(lengths) > 1:
        raise _ragged(lengths)
    shapes = {cast("Any", array).shape[1:] for array in arrays}
    if len(shapes) > 1:
        if all(len(shape) == 1 for shape in shapes):
            raise _ragged(sorted(shape[0] for shape in shapes))
        raise InvalidInput("points of one shape", got=f"shapes {', '.join(map(str, sorted(shapes)))}")
    have_labels = all(label is not None for label in labels)
    return np.concatenate(cast("Any", arrays)), np.concatenate(cast("Any", labels)) if have_labels else None
