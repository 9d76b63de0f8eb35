"""Whatever a model is fed with, as a list of batches: tensors, arrays, DataLoaders, Datasets, pairs, dicts."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import closing, nullcontext
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from firstguess.base.errors import InvalidInput
from firstguess.base.text import spaced
from firstguess.data.dataset import Data, pick, whole_number
from firstguess.data.items import ACCEPTED, Batch, as_batch, check_finite, first_number, is_array
from firstguess.data.sources import INPUT_KEYS, LABEL_KEYS, load

if TYPE_CHECKING:
    import torch

POINTS = 1000  # that are taken unless asked for more: what `measure` and `diagnose` share
_BATCH_SIZE = 256


def collect(obj: object, points: int | None = None, *, batch_size: int | None = None, seed: int = 0) -> list[Batch]:
    """All batches of `obj`, read once and kept, so that one-shot generators serve many models; see `batches`.

    >>> [batch.size for batch in collect(np.zeros((10, 3)), batch_size=4)]
    [4, 4, 2]
    """
    return list(batches(obj, points, batch_size=batch_size, seed=seed))


def batches(obj: object, points: int | None = None, *, batch_size: int | None = None, seed: int = 0) -> Iterator[Batch]:
    """Batches of inputs and labels, from anything a model can be fed with.

    Tensors keep their dtype; float64 arrays and lists become torch's default dtype. In a pair (x, y) and under the
    keys labels, label, targets, target, y are labels, which the model does not get. Global random generators (torch,
    numpy, random) are as before after every batch, and a loader's own generator at the end: inside, a private stream
    started from `seed` takes their place, so a shuffled loader gives the same batches each time.

    Args:
        obj: `Data`, tensor, array, (x, y), (x1, x2, y), dict (also a tokenizer's), Dataset, DataLoader, or iterable
            of batches. A list is an iterable of batches, unless it is [x, y] or holds plain numbers.
        points: At most this many points: drawn by `seed` where they can be indexed, else the first of the stream.
        batch_size: For arrays and Datasets (default 256); loaders and iterables keep their own.
    """
    if points is not None:
        whole_number(points, "points", 1, "at least one point")
    if batch_size is not None:
        whole_number(batch_size, "batch_size", 1, "a batch size of at least 1")
    whole = _whole(obj)
    if whole is not None:
        return _split(whole, points, batch_size or _BATCH_SIZE, seed)
    return _checked(_stream(obj, points, batch_size or _BATCH_SIZE, seed), points)


def limit(obj: object, points: int | None) -> int | None:
    """How many points are taken at most: as many as were asked for, by default 1000; None for what was collected."""
    collected = isinstance(obj, list) and bool(obj) and isinstance(cast("list[object]", obj)[0], Batch)
    return None if points is None and collected else points or POINTS


def cut_note(obj: object, points: int | None, taken: int) -> str:
    """What to say where the default took fewer points than there are; empty where it did not."""
    if points is not None or limit(obj, points) is None or taken < POINTS:
        return ""
    size, drawn = extent(obj)
    if size is None:
        return f"the first {spaced(taken)} points of a stream (points= takes more)"
    way = "drawn at random" if drawn else "the first"
    return f"{spaced(taken)} of the {spaced(size)} points, {way} (points={size} takes all)" if size > taken else ""


def extent(obj: object) -> tuple[int | None, bool]:
    """How many points there are, where that is known without reading them; and whether some of them can be drawn."""
    from torch.utils.data import DataLoader

    if isinstance(obj, Data):
        return obj.n, True
    if (whole := _whole(obj)) is not None:
        return whole.size, True
    if isinstance(obj, (list, tuple)):
        return sum(as_batch(one, where="the data").size for one in cast("Sequence[Any]", obj)), False
    there = obj.dataset if isinstance(obj, DataLoader) else obj
    size = len(there) if hasattr(there, "__getitem__") and isinstance(there, Sized) else None
    return size, size is not None and there is obj


def _whole(obj: object) -> Batch | None:
    """`obj` as one large batch, or None if it is a stream."""
    if isinstance(obj, os.PathLike):
        obj = load(os.fspath(cast("os.PathLike[str]", obj)))
    if isinstance(obj, Data):
        return as_batch(obj.x if obj.y is None else (obj.x, obj.y), where=obj.name)
    if isinstance(obj, (str, bytes)):
        raise InvalidInput(ACCEPTED, got=repr(obj), hint="firstguess.data.load(text) for data by name")
    if isinstance(obj, list) and first_number(cast("list[object]", obj)) is not None:
        try:
            obj = np.asarray(obj)
        except ValueError as error:
            raise InvalidInput("a list of equally long lists of numbers", got=str(error)) from None
    if is_array(obj) or isinstance(obj, Mapping):
        return as_batch(obj, where="the data", whole=True)
    if isinstance(obj, (tuple, list)) and is_pair(cast("Sequence[object]", obj)):
        return as_batch(obj, where="the data", whole=True)
    return None


def is_pair(items: Sequence[object]) -> bool:
    """Whether a tuple or list is one (x, …, y), and not a sequence of batches."""
    if isinstance(items, tuple):
        return bool(items) and (items[-1] is None or is_array(items[-1]))
    if len(items) != 2 or not all(is_array(item) for item in items):
        return False
    x, y = (cast("Any", item) for item in items)
    return x.ndim >= 2 and y.ndim == 1 and len(x) == len(y)


def _split(whole: Batch, points: int | None, batch_size: int, seed: int) -> Iterator[Batch]:
    if whole.size == 0:
        raise InvalidInput("at least one point", got="empty data")
    check_finite(whole, 0, where="the data")
    rows = None if points is None or points >= whole.size else pick(whole.size, points, seed=seed, where="the data")
    size = whole.size if rows is None else len(rows)
    for start in range(0, size, batch_size):
        part = slice(start, min(start + batch_size, size))
        yield whole.rows(part if rows is None else rows[part], part.stop - start)


def _stream(obj: object, points: int | None, batch_size: int, seed: int) -> Iterator[Any]:
    from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset

    indexed = hasattr(obj, "__getitem__") and isinstance(obj, Sized)
    if isinstance(obj, DataLoader):
        return _private(lambda: iter(cast("Iterable[Any]", obj)), _generators(obj), seed)
    if isinstance(obj, IterableDataset):
        loader = DataLoader(cast("Dataset[Any]", obj), batch_size=batch_size, collate_fn=_collated)
        return _private(lambda: iter(loader), [], seed, collated=True)
    if isinstance(obj, (list, tuple)):
        return iter(cast("Iterable[Any]", obj))
    given = getattr(obj, "format", {}) if indexed and type(obj).__module__.startswith("datasets.") else None
    if given is not None and given.get("type") in (None, "python"):
        expected = "a Hugging Face dataset that gives tensors"
        hint = 'dataset.with_format("torch"), after its texts are tokenized'
        raise InvalidInput(expected, got="one that gives Python lists and texts", hint=hint)
    if indexed:  # a torch Dataset, or one like it, such as Hugging Face's
        available = len(cast("Sized", obj))
        keep = None if points is None else min(points, available)
        if available == 0:
            raise InvalidInput("at least one point", got="an empty Dataset")
        rows = pick(available, keep, seed=seed, where="the Dataset")
        dataset = Subset(cast("Dataset[Any]", obj), rows.tolist())
        return _private(
            lambda: iter(DataLoader(dataset, batch_size=batch_size, collate_fn=_collated)), [], seed, collated=True
        )
    if isinstance(obj, Iterable):
        return _private(lambda: iter(cast("Iterable[Any]", obj)), [], seed)
    got = "no data" if obj is None else f"{type(obj).__module__}.{type(obj).__qualname__}"
    raise InvalidInput(ACCEPTED, got=got, hint="fg.diagnose(model, x)" if obj is None else "")


def _collated(items: list[Any]) -> Any:
    """Collate as torch does, which refuses paths."""
    from torch.utils.data._utils.collate import collate, default_collate_fn_map

    def listed(paths: list[Any], *, collate_fn_map: object = None) -> list[Any]:
        return list(paths)

    return collate(items, collate_fn_map={**default_collate_fn_map, PurePath: listed})


def _private(
    start: Callable[[], Iterator[Any]], generators: list[torch.Generator], seed: int, *, collated: bool = False
) -> Iterator[Any]:
    """Items of a user's iterator, without a trace in any random generator that others use."""
    states = [(generator, generator.get_state()) for generator in generators]
    private = IsolatedRandomness(seed, resumes=True)
    try:
        with private:
            iterator = start()
        while True:
            try:
                with private:
                    item = next(iterator)
            except StopIteration:
                return
            except (TypeError, RuntimeError) as error:
                # torch's own words for items of a wrong type, and of different shapes
                if not collated or not any(words in str(error) for words in ("default_collate", "stack expects each")):
                    raise
                expected = "a Dataset of tensors, arrays or numbers, all of one shape"
                hint = "add a transform to tensors, or give a DataLoader with your collate_fn"
                raise InvalidInput(expected, got=str(error), hint=hint) from error
            yield item
    finally:
        for generator, state in states:
            generator.set_state(state)


class IsolatedRandomness:
    """`with` this, the global generators (torch on all devices in use, numpy, random) run a private stream, which
    begins at `seed`, or if it `resumes` continues at the next entry; outside they are as if it had never run."""

    def __init__(self, seed: int, *, resumes: bool = False) -> None:
        self.seed, self._resumes = seed, resumes
        self._inner: list[Any] = []
        self._outer: list[Any] = []

    def __enter__(self) -> None:
        import torch

        self._outer = generator_states()
        if self._inner:
            return _restore(self._inner)
        torch.default_generator.manual_seed(self.seed)  # not torch.manual_seed, which reseeds idle devices as well
        random.seed(self.seed)
        np.random.seed(self.seed)  # noqa: NPY002 - initializers and users' transforms draw from the legacy generator
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            torch.cuda.manual_seed_all(self.seed)
        return torch.mps.manual_seed(self.seed) if torch.backends.mps.is_available() else None

    def __exit__(self, *_: object) -> None:
        if self._resumes:
            self._inner = generator_states()
        _restore(self._outer)


def generator_states() -> list[tuple[Callable[[Any], object], Any]]:
    """The state of every global generator, each with what sets it."""
    import torch

    found: list[tuple[Callable[[Any], object], Any]] = [
        (torch.default_generator.set_state, torch.default_generator.get_state()),
        (random.setstate, random.getstate()),
        (np.random.set_state, np.random.get_state()),  # noqa: NPY002
    ]
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        found.append((torch.cuda.set_rng_state_all, torch.cuda.get_rng_state_all()))
    if torch.backends.mps.is_available():
        found.append((torch.mps.set_rng_state, torch.mps.get_rng_state()))
    return found


def _restore(states: list[tuple[Callable[[Any], object], Any]]) -> None:
    for restore, state in states:
        restore(state)


def _generators(loader: Any) -> list[torch.Generator]:
    import torch

    batch_sampler = getattr(loader, "batch_sampler", None)
    owners = [loader, getattr(loader, "sampler", None), batch_sampler, getattr(batch_sampler, "sampler", None)]
    found = [getattr(owner, "generator", None) for owner in owners]
    return list({id(one): one for one in found if isinstance(one, torch.Generator)}.values())


def _checked(stream: Iterator[Any], points: int | None) -> Iterator[Batch]:
    done = 0
    with closing(cast("Any", stream)) if hasattr(stream, "close") else nullcontext():
        for number, item in enumerate(stream):
            where = f"batch {number}"
            batch = as_batch(item, where=where)
            if points is not None and done + batch.size > points:
                batch = batch.rows(slice(0, points - done), points - done)
            if batch.size:
                check_finite(batch, done, where=where)
                done += batch.size
                yield batch
            if done == points:
                return
    if done == 0:
        raise InvalidInput("at least one point", got="an empty stream", hint="a generator can be read only once")


# `as_data`: what a user hands in, as `Data`.


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
            expected = f"a dict with one of the keys {', '.join(INPUT_KEYS)}"
            raise InvalidInput(expected, got=f"keys {', '.join(map(str, fields))}")
        labels = next((fields[key] for key in LABEL_KEYS if key in fields), None)
        if "attention_mask" in fields and not _numpy(fields["attention_mask"]).all():
            expected = "ids without an attention_mask, which one array has no place for"
            hint = "data=ids, and the id of padding in the network: embed(…, padding=0)"
            raise InvalidInput(expected, got="a mask with zeros", where="data", hint=hint)
        return _numpy(fields[keys[0]]), None if labels is None else _numpy(labels)
    if isinstance(obj, (tuple, list)):
        items = cast("Sequence[object]", obj)
        if len(items) == 2 and (is_pair(items) or _is_listed_pair(items)):
            return _numpy(items[0]), None if items[1] is None else _numpy(items[1])
        return (_numpy(items), None) if _depth(items) >= 1 else None
    if hasattr(obj, "__array__"):
        return _numpy(obj), None
    return None


def _is_listed_pair(items: Sequence[object]) -> bool:
    """(x, y) in plain lists: y is flat (numbers or names of classes), x is not."""
    x, y = items
    named = isinstance(y, (list, tuple)) and all(isinstance(one, str) for one in cast("Sequence[object]", y))
    return _depth(x) >= 2 and (_depth(y) == 1 or named)


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
    hint = "fill up sequences of tokens with one id more, and name it: embed(…, padding=0)"
    return InvalidInput("points of one length", got=f"lengths {some}", where="data", hint=hint)


def _joined(obj: object, points: int | None, most: int | None, seed: int) -> tuple[object, object]:
    """A stream read to its end (or to `points`), as one array."""
    read = collect(obj, most if points is None else points, seed=seed)
    inputs = [batch.inputs for batch in read]
    if isinstance(inputs[0], dict):
        parts = [_parts(cast("dict[str, object]", one)) for one in inputs]
        arrays = [part[0] for part in parts if part is not None]
    elif isinstance(inputs[0], tuple):
        hint = "collect, for the ensemble reading"
        raise InvalidInput("one input per point", got=f"{len(inputs[0])} inputs", hint=hint)
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
