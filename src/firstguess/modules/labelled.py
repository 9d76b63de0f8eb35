"""Labelled points for training a module: all of them as one batch, of which any rows can be taken."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from firstguess.base.errors import InvalidInput
from firstguess.data import Batch, collect, load
from firstguess.data.items import tensors
from firstguess.modules.calling import signature
from firstguess.modules.feeding import Forward, fed

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
    batch = _joined(fed(what, found, forward), where)
    labels = batch.labels
    if labels is None:
        raise InvalidInput("labelled points", got="points without labels", where=where, hint=f"{where}=(x, y)")
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1:
        raise InvalidInput("one label a point", got=f"labels of shape {tuple(labels.shape)}", where=where)
    whole = labels.long()
    if labels.is_floating_point() and not torch.equal(whole.to(labels.dtype), labels):
        raise InvalidInput("labels 0, 1, …", got="numbers that are not whole", where=where)
    if int(whole.min()) < 0:
        raise InvalidInput("labels 0, 1, …", got=int(whole.min()), where=where)
    return Labelled(batch, whole)


def _joined(batches: Sequence[Batch], where: str) -> Batch:
    """Batches of a loader as one."""
    first = batches[0]
    if len(batches) == 1:
        return first
    if len({signature(batch) for batch in batches}) > 1:
        raise InvalidInput(
            "points of one shape",
            got="batches of different shapes",
            where=where,
            hint="padding to one length for all batches",
        )
    if first.aside and first.call is not None:
        raise InvalidInput("tensors only, for forward= on several batches", got=", ".join(first.aside), where=where)
    leaves = [tensors(batch.inputs) for batch in batches]
    joined = {key: torch.cat([own[key] for own in leaves]) if leaf.ndim else leaf for key, leaf in leaves[0].items()}
    if isinstance(first.inputs, dict):
        inputs: Any = {**first.inputs, **joined}
    else:
        inputs = tuple(joined.values()) if isinstance(first.inputs, tuple) else joined[None]
    labels = None
    if all(batch.labels is not None for batch in batches):
        labels = torch.cat([cast("torch.Tensor", batch.labels) for batch in batches])
    size = sum(batch.size for batch in batches)
    return replace(first, inputs=inputs, labels=labels, size=size, tree=None if first.aside else first.tree)
