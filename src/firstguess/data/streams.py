"""Whatever a model is fed with, as a list of batches: tensors, arrays, DataLoaders, Datasets, pairs, dicts."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np

from firstguess.base.errors import InvalidInput
from firstguess.data.classes import encode
from firstguess.data.dataset import Data, not_finite, pick, whole_number
from firstguess.data.sources import LABEL_KEYS

if TYPE_CHECKING:
    import torch

Inputs: TypeAlias = "torch.Tensor | tuple[torch.Tensor, ...] | dict[str, Any]"

_BATCH_SIZE = 256
_POSITIONAL = ("x", "img", "image", "images")  # alone in a dict, these name a data column and not a model's argument
_ACCEPTED = "a tensor, an array, (x, y), a dict of tensors, a Dataset, a DataLoader or an iterable of batches"


@dataclass(frozen=True, eq=False)
class Batch:
    """What one call of a model gets: a tensor, a tuple of positional or a dict of keyword arguments, on the CPU."""

    inputs: Inputs
    labels: torch.Tensor | None
    size: int


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
    if points is not None and whole_number(points, "points") < 1:
        raise InvalidInput("at least one point", got=points)
    if batch_size is not None and whole_number(batch_size, "batch_size") < 1:
        raise InvalidInput("a batch size of at least 1", got=batch_size)
    whole = _whole(obj)
    if whole is not None:
        return _split(whole, points, batch_size or _BATCH_SIZE, seed)
    return _checked(_stream(obj, points, batch_size or _BATCH_SIZE, seed), points)


def _whole(obj: object) -> Batch | None:
    """`obj` as one large batch, or None if it is a stream."""
    if isinstance(obj, Data):
        return _batch((obj.x, obj.y), where=obj.name)
    if isinstance(obj, (str, bytes)):
        raise InvalidInput(_ACCEPTED, got=repr(obj), hint="firstguess.data.load(text) for data by name")
    if isinstance(obj, list) and _first_leaf(cast("list[object]", obj)) is not None:
        try:
            obj = np.asarray(obj)
        except ValueError as error:
            raise InvalidInput("a list of equally long lists of numbers", got=str(error)) from None
    if _is_array(obj) or isinstance(obj, Mapping):
        return _batch(obj, where="the data", whole=True)
    if isinstance(obj, (tuple, list)) and is_pair(cast("Sequence[object]", obj)):
        return _batch(obj, where="the data", whole=True)
    return None


def is_pair(items: Sequence[object]) -> bool:
    """Whether a tuple or list is one (x, …, y), and not a sequence of batches."""
    if isinstance(items, tuple):
        return bool(items) and (items[-1] is None or _is_array(items[-1]))
    if len(items) != 2 or not all(_is_array(item) for item in items):
        return False
    x, y = (cast("Any", item) for item in items)
    return x.ndim >= 2 and y.ndim == 1 and len(x) == len(y)


def _first_leaf(items: list[object]) -> object:
    """The first plain number in nested lists, or None."""
    leaf: object = items
    while isinstance(leaf, list) and leaf:
        leaf = leaf[0]
    return leaf if isinstance(leaf, (int, float)) else None


def _is_array(value: object) -> bool:
    return hasattr(value, "__array__") and hasattr(value, "shape")


def _split(whole: Batch, points: int | None, batch_size: int, seed: int) -> Iterator[Batch]:
    if whole.size == 0:
        raise InvalidInput("at least one point", got="empty data")
    _finite(whole, 0, where="the data")
    rows = None if points is None or points >= whole.size else pick(whole.size, points, seed=seed, where="the data")
    size = whole.size if rows is None else len(rows)
    for start in range(0, size, batch_size):
        part = slice(start, min(start + batch_size, size))
        yield _take(whole, part if rows is None else rows[part], part.stop - start)


def _stream(obj: object, points: int | None, batch_size: int, seed: int) -> Iterator[Any]:
    from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset

    indexed = hasattr(obj, "__getitem__") and isinstance(obj, Sized)
    if isinstance(obj, DataLoader):
        return _private(lambda: iter(cast("Iterable[Any]", obj)), _generators(obj), seed)
    if isinstance(obj, IterableDataset):
        loader = DataLoader(cast("Dataset[Any]", obj), batch_size=batch_size)
        return _private(lambda: iter(loader), [], seed, collated=True)
    if isinstance(obj, (list, tuple)):
        return iter(cast("Iterable[Any]", obj))
    if indexed:  # a torch Dataset, or one like it, such as Hugging Face's
        available = len(cast("Sized", obj))
        keep = None if points is None else min(points, available)
        if available == 0:
            raise InvalidInput("at least one point", got="an empty Dataset")
        rows = pick(available, keep, seed=seed, where="the Dataset")
        dataset = Subset(cast("Dataset[Any]", obj), rows.tolist())
        return _private(lambda: iter(DataLoader(dataset, batch_size=batch_size)), [], seed, collated=True)
    if isinstance(obj, Iterable):
        return _private(lambda: iter(cast("Iterable[Any]", obj)), [], seed)
    raise InvalidInput(_ACCEPTED, got=f"{type(obj).__module__}.{type(obj).__qualname__}")


def _private(
    start: Callable[[], Iterator[Any]], generators: list[torch.Generator], seed: int, *, collated: bool = False
) -> Iterator[Any]:
    """Items of a user's iterator, without a trace in any random generator that others use."""
    states = [(generator, generator.get_state()) for generator in generators]
    private = _PrivateRandomness(seed)
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
                raise InvalidInput(
                    "a Dataset of tensors, arrays or numbers, all of one shape",
                    got=str(error),
                    hint="add a transform to tensors, or give a DataLoader with your collate_fn",
                ) from error
            yield item
    finally:
        for generator, state in states:
            generator.set_state(state)


class _PrivateRandomness:
    """`with` this, the global generators run a private stream; outside they are as if it had never run.

    Swapped at every step, not once around: between two steps the consumer's own draws must count.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.inner: tuple[Any, ...] | None = None
        self.outer: tuple[Any, ...] = ()

    def __enter__(self) -> None:
        import torch

        self.outer = self._get()
        if self.inner is not None:
            return self._set(self.inner)
        torch.default_generator.manual_seed(self.seed)  # not torch.manual_seed, which reseeds every device
        random.seed(self.seed)
        return np.random.seed(self.seed)  # noqa: NPY002 - users' transforms draw from the legacy generator

    def __exit__(self, *_: object) -> None:
        self.inner = self._get()
        self._set(self.outer)

    @staticmethod
    def _get() -> tuple[Any, ...]:
        import torch

        return torch.default_generator.get_state(), random.getstate(), np.random.get_state()  # noqa: NPY002

    @staticmethod
    def _set(state: tuple[Any, ...]) -> None:
        import torch

        torch.default_generator.set_state(state[0])
        random.setstate(state[1])
        np.random.set_state(state[2])  # noqa: NPY002


def _generators(loader: Any) -> list[torch.Generator]:
    import torch

    batch_sampler = getattr(loader, "batch_sampler", None)
    owners = [loader, getattr(loader, "sampler", None), batch_sampler, getattr(batch_sampler, "sampler", None)]
    found = [getattr(owner, "generator", None) for owner in owners]
    return list({id(one): one for one in found if isinstance(one, torch.Generator)}.values())


def _checked(stream: Iterator[Any], points: int | None) -> Iterator[Batch]:
    done = 0
    with closing(cast("Any", stream)) if hasattr(stream, "close") else _nothing():
        for number, item in enumerate(stream):
            where = f"batch {number}"
            batch = _batch(item, where=where)
            if points is not None and done + batch.size > points:
                batch = _take(batch, slice(0, points - done), points - done)
            if batch.size:
                _finite(batch, done, where=where)
                done += batch.size
                yield batch
            if done == points:
                return
    if done == 0:
        raise InvalidInput("at least one point", got="an empty stream", hint="a generator can be read only once")


class _nothing:
    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


def _batch(item: Any, *, where: str, whole: bool = False) -> Batch:
    """One raw batch, its labels set apart; `whole` if it is all there is."""
    if isinstance(item, Batch):  # collected before, e.g. to serve several readings
        return item
    labels: Any = None
    if isinstance(item, Mapping):
        named = dict(cast("Mapping[str, Any]", item))
        for key in LABEL_KEYS:
            if key in named:
                value = named.pop(key)
                labels = value if labels is None else labels
        inputs: Any = {key: _value(value, where=f"{where}, key {key!r}") for key, value in named.items()}
        if len(inputs) == 1 and next(iter(inputs)) in _POSITIONAL:
            inputs = next(iter(inputs.values()))
    elif isinstance(item, (tuple, list)):
        parts: list[Any] = list(cast("Sequence[Any]", item))
        if len(parts) == 2 or (len(parts) > 2 and (parts[-1] is None or _is_class_labels(parts[-1]))):
            labels = parts.pop()
        inner: Any = parts[0] if len(parts) == 1 else tuple(parts)
        if isinstance(inner, Mapping):
            found = _batch(inner, where=where, whole=whole)
            inputs, labels = found.inputs, found.labels if labels is None else labels
        elif isinstance(inner, (tuple, list)) and _first_leaf(cast("list[object]", inner)) is None:
            inputs = tuple(_tensor(part, where=where) for part in cast("Sequence[Any]", inner))
        else:
            inputs = _tensor(inner, where=where)
    else:
        inputs = _tensor(item, where=where)
    sizes = {len(leaf) for _, leaf in _leaves(inputs)}
    if len(sizes) != 1:
        raise InvalidInput(
            "inputs with one number of points", got=f"{sorted(sizes)}" if sizes else "no tensor at all", where=where
        )
    size = sizes.pop()
    labels = None if labels is None else _tensor(_numbered(labels, where, whole=whole), where=f"{where}, labels")
    if labels is not None and (labels.ndim == 0 or len(labels) != size):
        raise InvalidInput(
            f"{size} labels, one a point",
            got=f"labels of shape {tuple(labels.shape)}",
            where=where,
            hint="for several inputs and no labels: (x1, x2, None)",
        )
    return Batch(inputs, labels, size)


def _numbered(labels: Any, where: str, *, whole: bool) -> Any:
    """Labels that are texts, as numbers: of a stream only the user can tell which number a text has in all batches."""
    array = labels if _is_array(labels) else np.asarray(labels, dtype=object)
    if not isinstance(array, np.ndarray) or (encoded := encode(array, None, where=where)) is None:
        return labels
    if not whole:
        raise InvalidInput(
            "numbers as labels",
            got=f"texts such as {str(array.ravel()[0])!r}",
            where=f"{where}, labels",
            hint="number the classes in your Dataset, or leave labels out: a guess needs none",
        )
    return encoded[0]


def _is_class_labels(value: Any) -> bool:
    return _is_array(value) and value.ndim == 1 and "int" in str(value.dtype)


def _value(value: Any, *, where: str) -> Any:
    """A keyword argument: arrays and lists become tensors, switches such as `return_dict=True` stay."""
    return value if value is None or isinstance(value, (bool, int, float, str)) else _tensor(value, where=where)


def _tensor(value: Any, *, where: str) -> torch.Tensor:
    import torch

    if isinstance(value, torch.Tensor):
        if value.is_meta:
            raise InvalidInput("a tensor with content", got="a tensor on the meta device", where=where)
        value = value.detach().cpu()
        return value if value.layout == torch.strided else value.to_dense()
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise InvalidInput(
            "equally long rows", got=str(error), where=where, hint='padding=True, return_tensors="pt" for a tokenizer'
        ) from None
    if array.dtype.kind not in "fiub":
        raise InvalidInput(_ACCEPTED, got=f"{type(value).__qualname__} of dtype {array.dtype}", where=where)
    if array.dtype.kind == "f" and array.itemsize > 8:
        array = array.astype(np.float64)  # torch has no long double
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    # A copy of what cannot be written: torch warns about such memory, and a model may work in place.
    tensor = torch.from_numpy(np.ascontiguousarray(array) if array.flags.writeable else array.copy())
    return tensor.to(torch.get_default_dtype()) if tensor.dtype == torch.float64 else tensor


def _leaves(inputs: Any) -> list[tuple[str, torch.Tensor]]:
    """The tensors that have an axis of points, with the names they go by."""
    import torch

    if isinstance(inputs, torch.Tensor):
        named: list[tuple[str, Any]] = [("", inputs)]
    elif isinstance(inputs, dict):
        named = list(cast("dict[str, Any]", inputs).items())
    else:
        named = [(f"input {number}", part) for number, part in enumerate(inputs)]
    return [(name, leaf) for name, leaf in named if isinstance(leaf, torch.Tensor) and leaf.ndim]


def _take(batch: Batch, rows: Any, size: int) -> Batch:
    kept = {name: leaf[rows] for name, leaf in _leaves(batch.inputs)}
    if isinstance(batch.inputs, dict):
        inputs: Any = {key: kept.get(key, value) for key, value in batch.inputs.items()}
    else:
        inputs = tuple(kept.values()) if isinstance(batch.inputs, tuple) else kept[""]
    return Batch(inputs, None if batch.labels is None else batch.labels[rows], size)


def _finite(batch: Batch, first_point: int, *, where: str) -> None:
    for name, leaf in _leaves(batch.inputs):
        # An additive attention mask is made of −Inf.
        if "mask" in name or not leaf.is_floating_point() or bool(leaf.isfinite().all()):
            continue
        bad = (~leaf.isfinite()).nonzero()
        point, *entry = (int(index) for index in bad[0])
        place = f"{where}, {name}" if name else where
        raise not_finite(len(bad), leaf.numel(), first_point + point, tuple(entry), where=place)
