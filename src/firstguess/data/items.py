"""One batch as a loader gave it: what a model computes with, its labels, and everything else in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np

from firstguess.base.errors import InvalidInput
from firstguess.data.dataset import encode, not_finite
from firstguess.data.sources import LABEL_KEYS

if TYPE_CHECKING:
    import torch

Inputs: TypeAlias = "torch.Tensor | tuple[torch.Tensor, ...] | dict[str, Any]"

ACCEPTED = "a tensor, an array, (x, y), a dict of tensors, a Dataset, a DataLoader or an iterable of batches"
_POSITIONAL = ("x", "img", "image", "images")  # alone in a dict, these name a data column and not a model's argument
_NO_NUMBERS = "USOMm"  # NumPy's kinds of texts, objects and dates


@dataclass(frozen=True)
class _Input:
    """Where an input stood in an item, by its key or position among the inputs."""

    key: Any


@dataclass(frozen=True)
class _Labels:
    """Where the labels stood."""


@dataclass(frozen=True)
class _Rows:
    """Something with one entry per point, which no model computes with: paths, names."""

    values: Any


@dataclass(frozen=True, eq=False)
class Batch:
    """What one call of a model gets: a tensor, a tuple of positional or a dict of keyword arguments, on the CPU.

    `item` is the batch as its loader gave it, for a `call` that is made of model and item; `aside` names what is in the
    item and in neither inputs nor labels.
    """

    inputs: Inputs
    labels: torch.Tensor | None
    size: int
    aside: tuple[str, ...] = ()
    call: Callable[[Any, Any], Any] | None = None  # None: the model gets the inputs
    tree: Any = field(default=None, repr=False)  # the item, with marks where inputs and labels stood

    def item(self, inputs: Any = None, move: Callable[[torch.Tensor], torch.Tensor] | None = None) -> Any:
        """The batch as it was given, with `inputs` in place of its own; `move` is done to all other tensors."""
        inputs = self.inputs if inputs is None else inputs
        moved = move or (lambda tensor: tensor)
        labels = None if self.labels is None else moved(self.labels)
        return inputs if self.tree is None else _filled(self.tree, inputs, labels, moved)

    def rows(self, rows: Any, size: int) -> Batch:
        """Some of the points; the memory of a slice is the batch's own."""
        kept = {key: leaf[rows] if leaf.ndim else leaf for key, leaf in tensors(self.inputs).items()}
        if isinstance(self.inputs, dict):
            inputs: Any = {**self.inputs, **kept}
        else:
            inputs = tuple(kept.values()) if isinstance(self.inputs, tuple) else kept[None]
        labels = None if self.labels is None else self.labels[rows]
        return replace(self, inputs=inputs, labels=labels, size=size, tree=_cut(self.tree, rows))


def tensors(inputs: Any) -> dict[Any, torch.Tensor]:
    """The tensors among a model's inputs, by key or position."""
    import torch

    if isinstance(inputs, torch.Tensor):
        return {None: inputs}
    items = cast("dict[Any, Any]", inputs).items() if isinstance(inputs, dict) else enumerate(inputs)
    return {key: value for key, value in items if isinstance(value, torch.Tensor)}


def as_batch(item: Any, *, where: str, whole: bool = False) -> Batch:
    """One raw batch, its labels set apart; `whole` if it is all there is."""
    if isinstance(item, Batch):  # collected before, e.g. to serve several readings
        return item
    labels: Any = None
    aside: list[str] = []
    if isinstance(item, Mapping):
        inputs, labels, tree = _of_mapping(dict(cast("Mapping[str, Any]", item)), aside, where, whole=whole)
    elif isinstance(item, (tuple, list)):
        parts: list[Any] = list(cast("Sequence[Any]", item))
        tree = list(parts)
        last = len(parts) - 1
        here = [
            i
            for i, part in enumerate(parts)
            if (i == 0 and isinstance(part, Mapping)) or not _is_aside(part, where, labels=whole and i == last > 0)
        ]
        aside += [f"item {i}" for i in range(len(parts)) if i not in here]
        end: Any = parts[here[-1]] if here else None
        classes = end is None or (is_array(end) and end.ndim == 1 and "int" in str(end.dtype))
        if len(here) == 2 or (len(here) > 2 and classes):
            labels = end
            tree[here.pop()] = _Labels()
        inner: Any = parts[here[0]] if len(here) == 1 else tuple(parts[i] for i in here)
        if isinstance(inner, Mapping):
            found = as_batch(inner, where=where, whole=whole)
            inputs, labels, tree[here[0]] = found.inputs, found.labels if labels is None else labels, found.tree
            aside += found.aside
        elif isinstance(inner, (tuple, list)) and first_number(cast("list[object]", inner)) is None:
            inputs = tuple(_tensor(part, where=where) for part in cast("Sequence[Any]", inner))
            if len(here) == 1:
                tree[here[0]] = tuple(_Input(k) for k in range(len(inputs)))
            for k, i in enumerate(here if len(here) > 1 else ()):
                tree[i] = _Input(k)
        else:
            inputs = _tensor(inner, where=where)
            tree[here[0]] = _Input(None)
        tree = _like(item, tree)
    else:
        inputs, tree = _tensor(item, where=where), None
    size = _size(inputs, where, aside)
    labels = None if labels is None else _numbered(labels, where, whole=whole)
    if labels is not None and (labels.ndim == 0 or len(labels) != size):
        expected = f"{size} labels, one per point"
        hint = "for several inputs and no labels: (x1, x2, None)"
        raise InvalidInput(expected, got=f"labels of shape {tuple(labels.shape)}", where=where, hint=hint)
    return Batch(inputs, labels, size, tuple(aside), None, _marked(tree, size))


def _of_mapping(named: dict[str, Any], aside: list[str], where: str, *, whole: bool) -> tuple[Any, Any, Any]:
    """Inputs, labels, and the tree of a dict."""
    tree: dict[str, Any] = dict(named)
    labels: Any = None
    for key in LABEL_KEYS:
        if key in named:
            value = named.pop(key)
            if labels is None and not _is_aside(value, f"{where}, key {key!r}", labels=whole):
                labels, tree[key] = value, _Labels()
            elif labels is None:
                aside.append(f"key {key!r}")
    inputs: dict[str, Any] = {}
    for key, value in named.items():
        place = f"{where}, key {key!r}"
        if value is None or isinstance(value, (bool, int, float, str)):
            inputs[key] = value  # a switch such as `return_dict=True`
        elif _is_aside(value, place):
            aside.append(f"key {key!r}")
        else:
            inputs[key] = _tensor(value, where=place)
            tree[key] = _Input(key)
    if len(inputs) == 1 and next(iter(inputs)) in _POSITIONAL:
        key = next(iter(inputs))
        tree[key] = _Input(None)
        return inputs[key], labels, tree
    return inputs, labels, tree


def _is_aside(value: Any, where: str, *, labels: bool = False) -> bool:
    """Whether no model computes with it: texts, paths, objects; `labels`: texts may be labels, which are numbered."""
    import torch

    if value is None or isinstance(value, torch.Tensor):
        return False
    if isinstance(value, Mapping):
        return True
    if isinstance(value, (tuple, list)) and any(isinstance(x, torch.Tensor) for x in cast("Sequence[Any]", value)):
        return False
    kind = _array(value, where).dtype.kind
    return kind in _NO_NUMBERS and not labels


def _like(item: Any, parts: list[Any]) -> Any:
    """A tuple, a named one, or a list, as `item` is."""
    if isinstance(item, list):
        return parts
    return type(item)(*parts) if hasattr(item, "_fields") else tuple(parts)


def _marked(tree: Any, size: int) -> Any:
    """The tree, with what has one entry per point marked, to be cut with the points."""
    if isinstance(tree, (_Input, _Labels)) or tree is None:
        return tree
    if not _has_marks(tree):
        whole = isinstance(tree, (str, bytes, Mapping)) or not hasattr(tree, "__len__")
        return tree if whole or len(tree) != size else _Rows(tree)
    if isinstance(tree, dict):
        return {key: _marked(value, size) for key, value in cast("dict[str, Any]", tree).items()}
    return _like(tree, [_marked(value, size) for value in tree])


def _has_marks(tree: Any) -> bool:
    if isinstance(tree, (_Input, _Labels)):
        return True
    inner: Any = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, (tuple, list)) else ()
    return any(_has_marks(value) for value in inner)


def _cut(tree: Any, rows: Any) -> Any:
    if isinstance(tree, _Rows):
        values = tree.values
        if isinstance(rows, slice) or hasattr(values, "shape"):
            return _Rows(values[rows])
        return _Rows([values[int(i)] for i in rows])
    if isinstance(tree, dict):
        return {key: _cut(value, rows) for key, value in cast("dict[str, Any]", tree).items()}
    return _like(tree, [_cut(value, rows) for value in tree]) if isinstance(tree, (tuple, list)) else tree


def _filled(tree: Any, inputs: Any, labels: Any, move: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    import torch

    if isinstance(tree, _Input):
        return inputs if tree.key is None else inputs[tree.key]
    if isinstance(tree, _Labels):
        return labels
    if isinstance(tree, _Rows):
        return _filled(tree.values, inputs, labels, move)
    if isinstance(tree, torch.Tensor):
        return move(tree)
    if isinstance(tree, dict):
        return {key: _filled(value, inputs, labels, move) for key, value in cast("dict[str, Any]", tree).items()}
    if isinstance(tree, (tuple, list)):
        return _like(tree, [_filled(value, inputs, labels, move) for value in tree])
    return tree


def _size(inputs: Any, where: str, aside: Sequence[str]) -> int:
    sizes = {len(leaf) for leaf in tensors(inputs).values() if leaf.ndim}
    if len(sizes) != 1:
        none = "no tensor at all" + (f", but texts or objects ({', '.join(aside)})" if aside else "")
        raise InvalidInput("inputs with one number of points", got=f"{sorted(sizes)}" if sizes else none, where=where)
    return sizes.pop()


def _numbered(labels: Any, where: str, *, whole: bool) -> torch.Tensor:
    """Labels as a tensor; texts, of which all are there, get numbers."""
    array = labels if is_array(labels) else np.asarray(labels, dtype=object)
    if whole and isinstance(array, np.ndarray) and (encoded := encode(array, None, where=where)) is not None:
        labels = encoded[0]
    return _tensor(labels, where=f"{where}, labels")


def is_array(value: object) -> bool:
    return hasattr(value, "__array__") and hasattr(value, "shape")


def first_number(items: list[object]) -> object:
    """The first plain number in nested lists, or None."""
    leaf: object = items
    while isinstance(leaf, list) and leaf:
        leaf = leaf[0]
    return leaf if isinstance(leaf, (int, float)) else None


def _array(value: Any, where: str) -> np.ndarray[Any, Any]:
    try:
        return np.asarray(value)
    except ValueError as error:
        hint = 'padding=True, return_tensors="pt" for a tokenizer'
        raise InvalidInput("equally long rows", got=str(error), where=where, hint=hint) from None


def _tensor(value: Any, *, where: str) -> torch.Tensor:
    import torch

    if isinstance(value, torch.Tensor):
        if value.is_meta:
            raise InvalidInput("a tensor with content", got="a tensor on the meta device", where=where)
        value = value.detach().cpu()
        return value if value.layout == torch.strided else value.to_dense()
    array = _array(value, where)
    if array.dtype.kind not in "fiub":
        got = f"{type(value).__qualname__} of dtype {array.dtype}"
        raise InvalidInput(ACCEPTED, got=got, where=where, hint=_no_numbers(value, array))
    if array.dtype.kind == "f" and array.itemsize > 8:
        array = array.astype(np.float64)  # torch has no long double
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    # A copy of what cannot be written: torch warns about such memory, and a model may work in place.
    tensor = torch.from_numpy(np.ascontiguousarray(array) if array.flags.writeable else array.copy())
    return tensor.to(torch.get_default_dtype()) if tensor.dtype == torch.float64 else tensor


def _no_numbers(value: Any, array: np.ndarray[Any, Any]) -> str:
    """What to do about texts, and tables with a column of them."""
    columns = getattr(value, "select_dtypes", None)
    if columns is not None:  # a DataFrame
        texts = [str(name) for name in columns(exclude="number").columns]
        left = texts[0] if len(texts) == 1 else texts
        return f"(df.drop(columns={left!r}), codes of the classes): {', '.join(texts)} is not a number"
    if array.dtype.kind in "US" or (array.size and isinstance(array.flat[0], str)):
        return "texts tokenized first: tokenizer(texts, return_tensors='pt', padding=True)"
    return ""


def check_finite(batch: Batch, first_point: int, *, where: str) -> None:
    """Raise where an input is NaN or Inf, with the first such place."""
    for key, leaf in tensors(batch.inputs).items():
        name = "" if key is None else key if isinstance(key, str) else f"input {key}"
        # An additive attention mask is made of −Inf.
        if not leaf.ndim or "mask" in name or not leaf.is_floating_point() or bool(leaf.isfinite().all()):
            continue
        bad = (~leaf.isfinite()).nonzero()
        point, *entry = (int(index) for index in bad[0])
        place = f"{where}, {name}" if name else where
        raise not_finite(len(bad), leaf.numel(), first_point + point, tuple(entry), where=place)
