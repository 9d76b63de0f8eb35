"""One look: the model's guesses on the held points, after which everything is as it was."""

from __future__ import annotations

import copy
import math
from collections.abc import Generator, Iterable, Sequence, Sized
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.utils.data import DataLoader, Subset

from firstguess.base.errors import InvalidInput
from firstguess.base.gaussian import Array
from firstguess.base.statistics import settle
from firstguess.base.text import spaced
from firstguess.data import Batch, collect, load
from firstguess.data.dataset import whole_number
from firstguess.data.streams import IsolatedRandomness
from firstguess.modules.call_model import mask_of
from firstguess.modules.guard import hooked
from firstguess.modules.hooks.accumulators import BatchSums, Blocks, logit_sums
from firstguess.modules.hooks.session import examined, look
from firstguess.modules.members.sources import Mode, unwrapped_in_mode
from firstguess.modules.outputs import EPS, LogitCaller, Pick, by_class, classes_of

_CHUNK = 1 << 22  # logits that are counted at once: of large vocabularies a batch has more
_SUM = 1e-3  # by which probabilities of a point may miss 1, in float16 too
_SHARDED = ("FullyShardedDataParallel", "DeepSpeedEngine")


@dataclass(frozen=True, eq=False)
class Look:
    """What was seen at one step; NaN throughout where a logit was NaN or Inf."""

    step: int
    shares: Array  # of the points, by guessed class
    right: NDArray[np.int64] | None  # rightly guessed points of each class; None without labels
    loss: float  # cross-entropy with the labels
    gamma: float  # center over spread of this network's output: theory.md (2), (38)
    lost: int  # points with NaN or Inf among their logits
    tied: int  # points whose largest logit is shared: these are guesses at random
    hidden: Array | None = None  # mean of the last hidden layer's units over the points; None: there is none

    @property
    def largest(self) -> float:
        return float(self.shares.max())


@dataclass(eq=False)
class Eyes:
    """Looks at a model on held points."""

    model: nn.Module
    batches: Sequence[Batch]
    pick: Pick = None
    mode: Mode = "train"
    seed: int = 0
    notes: list[str] = field(default_factory=list[str])
    classes: int = 0
    points: int = 0
    labels: NDArray[np.int64] | None = None  # of points that have one, in order
    first: NDArray[np.float32] | None = None  # logits at the first look, if they were asked for
    single: bool = False
    _kind: str = ""
    _labels: list[torch.Tensor | None] = field(default_factory=list["torch.Tensor | None"])

    def __post_init__(self) -> None:
        check_whole(self.model)
        self._call = LogitCaller(self.pick)

    def look(self, step: int, *, keep: bool = False) -> Look:
        """The guesses now; `keep` the logits too."""
        kept: list[NDArray[np.float32]] = []
        started = self.classes > 0
        total: _Sums | None = None
        with unwrapped_in_mode(self.model, self.mode) as model, _entering(model) as entered:
            for index, batch in enumerate(self.batches):
                rows = self._logits(self._call.rows(model, batch)[1].detach(), index, batch)
                entered.add(1 if self.single else self.classes)
                if not started:
                    self._take_labels(rows, batch)
                total = total or _Sums(self.classes, np.random.default_rng([self.seed, step]))
                labels = self._labels[index]
                for part in range(0, len(rows), max(1, _CHUNK // self.classes)):
                    stop = part + max(1, _CHUNK // self.classes)
                    total.add(rows[part:stop], None if labels is None else labels[part:stop])
                if keep:
                    kept.append(rows.float().cpu().numpy())
        assert total is not None  # `collect` gives no empty data
        if not started:
            self._settle_labels(total.points)
        if keep:
            self.first = np.concatenate(kept)
        return replace(total.look(step, labelled=self.labels is not None), hidden=entered.mean())

    def _logits(self, rows: torch.Tensor, index: int, batch: Batch) -> torch.Tensor:
        """Logits (points, classes): one logit z is the pair (0, z); probabilities become their logarithms."""
        if not self.classes:
            self.classes, self.single = classes_of(rows), rows.ndim == 1
            self._kind = self._kind_of(rows, batch)
        if classes_of(rows) != self.classes:
            where = f"the model's output, batch {index}"
            raise InvalidInput(f"{self.classes} classes, as before", got=classes_of(rows), where=where)
        if rows.ndim == 1:
            return by_class(torch.logit(rows.float(), EPS) if self._kind == "sigmoid" else rows)
        return rows.float().clamp_min(1e-38).log() if self._kind == "softmax" else rows

    def _kind_of(self, rows: torch.Tensor, batch: Batch) -> str:
        fine = rows[torch.isfinite(rows).reshape(len(rows), -1).all(1)]
        if not len(fine) or bool((fine < 0).any()) or bool((fine > 1).any()):
            return ""
        if rows.ndim == 2:
            return "softmax" if bool(((fine.sum(1) - 1).abs() < _SUM).all()) else ""
        # One number between 0 and 1 is a probability, decided at ½, or a logit, decided at 0: its head tells.
        with examined(self.model, batch, self.seed) as twin:
            return look(twin, [batch], pick=self.pick, seed=self.seed).probabilities

    def _take_labels(self, rows: torch.Tensor, batch: Batch) -> None:
        found = _labels_of(batch, len(rows), self.classes)
        if isinstance(found, str):
            if found and found not in self.notes:
                self.notes.append(found)
            found = None
        self._labels.append(None if found is None else found.to(rows.device))

    def _settle_labels(self, points: int) -> None:
        self.points = points
        found = [labels.cpu() for labels in self._labels if labels is not None]
        known = torch.cat(found).numpy() if len(found) == len(self._labels) else np.empty(0, np.int64)
        if len(known := known[known >= 0]):
            self.labels = known
        else:
            self._labels = [None] * len(self.batches)


class _LastHidden:
    """What enters the head, the linear layer that is called last: a sum over points."""

    def __init__(self) -> None:
        self.last: tuple[int, torch.Tensor] | None = None
        self._total: torch.Tensor | None = None
        self._rows = 0

    def see(self, layer: nn.Module, given: tuple[Any, ...]) -> None:
        if isinstance(layer, nn.Linear) and given and isinstance(given[0], torch.Tensor):
            self.last = (layer.out_features, given[0].detach())

    def add(self, outputs: int) -> None:
        """Count what the last call was given, if the layer gives the logits."""
        if self.last is not None and self.last[0] == outputs:
            rows = self.last[1].flatten(0, -2).double()
            self._total = rows.sum(0) + (0.0 if self._total is None else self._total)
            self._rows += len(rows)
        self.last = None

    def mean(self) -> Array | None:
        return None if self._total is None else (self._total / self._rows).cpu().numpy()


@contextmanager
def _entering(model: nn.Module) -> Generator[_LastHidden]:
    """Hooks on linear layers, if there is one besides the head."""
    seen = _LastHidden()
    weighted = [one for one in model.modules() if next(one.parameters(recurse=False), None) is not None]
    linear = [one for one in weighted if isinstance(one, nn.Linear)] if len(weighted) > 1 else []
    with hooked(one.register_forward_pre_hook(seen.see) for one in linear):
        yield seen


def check_whole(model: nn.Module) -> None:
    """Raise where the model is one of many processes' parts: a forward of one of them alone would wait for ever."""
    kinds = {type(module).__name__ for module in model.modules()} & set(_SHARDED)
    if not kinds and any(type(p).__name__ == "DTensor" for p in model.parameters()):
        kinds = {"DTensor parameters"}
    if kinds:
        got = f"a sharded one ({', '.join(sorted(kinds))})"
        hint = "watch a smaller run of it, or one with DistributedDataParallel"
        raise InvalidInput("a model that one process has whole", got=got, where="Watch(model)", hint=hint)


def _labels_of(batch: Batch, rows: int, classes: int) -> torch.Tensor | str:
    """A class for every row, −1 where there is none; in words, or empty, why not."""
    y = batch.labels
    if y is None:
        return ""
    mask = mask_of(batch)
    if mask is not None and y.shape[:2] == mask.shape and rows == int(mask.sum()):
        y = y[mask]
    inputs: Any = batch.inputs
    tokens = inputs.get("input_ids") if isinstance(inputs, dict) else None
    if tokens is not None and batch.labels is not None and batch.labels.shape == tokens.shape:
        known = batch.labels >= 0
        if bool((batch.labels[known] == tokens[known]).all()):
            return "labels repeat the inputs, as for a language model, which shifts them: recall is not looked at"
    if y.ndim == 2 and y.shape == (rows, classes) and y.is_floating_point():
        if not bool(((y.sum(1) - 1).abs() < _SUM).all()):
            return "labels are not one class a point: recall is not looked at"
        y = y.argmax(1)
    if y.numel() != rows:
        return f"{y.numel()} labels for {rows} guesses: recall is not looked at"
    y = y.reshape(-1)
    if y.is_floating_point() and not bool((y == y.round()).all()):
        return "labels are no classes but numbers between them: recall is not looked at"
    y = y.long()
    if bool((y >= classes).any()):
        return f"labels up to {int(y.max())} for {classes} classes: recall is not looked at"
    return torch.where(y >= 0, y, -1)


class _Sums:
    """Counts and moments of rows of logits, part by part."""

    def __init__(self, classes: int, ties: np.random.Generator) -> None:
        self.counts = np.zeros(classes, np.int64)
        self.right = np.zeros(classes, np.int64)
        self.loss = 0.0
        self.labelled = self.points = self.lost = self.tied = 0
        self.sums: BatchSums | None = None
        self.blocks = Blocks()
        self.ties = ties

    def add(self, rows: torch.Tensor, labels: torch.Tensor | None) -> None:
        self.points += len(rows)
        fine = torch.isfinite(rows).all(1)
        if not bool(fine.all()):
            self.lost += int((~fine).sum())
            return
        guess = self._guesses(rows)
        self.counts += torch.bincount(guess, minlength=len(self.counts)).cpu().numpy()
        if (sums := logit_sums(rows, self.blocks)) is not None:
            self.sums = sums if self.sums is None else self.sums.merged(sums)
        if labels is None:
            return
        known = labels >= 0
        y = labels[known]
        self.right += torch.bincount(y[guess[known] == y], minlength=len(self.right)).cpu().numpy()
        self.loss += float(nn.functional.cross_entropy(rows[known].float(), y, reduction="sum")) if len(y) else 0.0
        self.labelled += len(y)

    def _guesses(self, rows: torch.Tensor) -> torch.Tensor:
        """The largest logit; one of them at random where several are."""
        top = rows == rows.amax(1, keepdim=True)
        guess = top.int().argmax(1)
        tied = (top.sum(1) > 1).nonzero().flatten()
        self.tied += len(tied)
        if len(tied):
            of_tied = top[tied].cpu().numpy().T
            settle(of_tied, self.ties)
            guess[tied] = torch.from_numpy(of_tied.argmax(0)).to(rows.device)
        return guess

    def look(self, step: int, *, labelled: bool) -> Look:
        broken = self.lost > 0
        shares = np.full(len(self.counts), math.nan) if broken else self.counts / self.points
        loss = self.loss / self.labelled if labelled and self.labelled and not broken else math.nan
        gamma = math.nan if broken or self.sums is None else self.sums.gamma()
        right = self.right if labelled else None
        return Look(step, shares, right, loss, gamma, self.lost, self.tied)


# The points that a watch looks at, a few of the training's own, chosen once: loader and randomness stay so.

_LEAST, _MOST = 64, 256  # points, unless told
_READ = 1_000_000  # indices of a sampler from which points are drawn


def held(data: object, points: int | None, seed: int) -> list[Batch]:
    """At most `points` points in batches of the loader's size; by default two batches' worth, from 64 to 256.

    Two batches take about as long as two thirds of a step forward and back: a look every 50 steps is 1.3 % of them.

    Of a `DataLoader` they are drawn from what its sampler gives (data sorted by class would else give one class); what
    cannot be indexed is read from its beginning.
    """
    data = load(data) if isinstance(data, str) else data
    loader = cast("DataLoader[Any]", data) if isinstance(data, DataLoader) else None
    size = None if loader is None else _batch_size(loader)
    if points is None:
        points = _MOST if size is None else min(_MOST, max(_LEAST, 2 * size))
    points = whole_number(points, "points")
    rows = None if loader is None or size is None else _rows(loader, points, seed)
    if loader is None or rows is None:
        return collect(data, points, seed=seed)
    dataset: Any = Subset(cast("Any", loader.dataset), rows)
    return collect(DataLoader(dataset, batch_size=size, collate_fn=loader.collate_fn), points, seed=seed)


def _batch_size(loader: Any) -> int | None:
    """None: the dataset's items are batches themselves, or it has no end that is known."""
    if not (hasattr(loader.dataset, "__getitem__") and isinstance(loader.dataset, Sized)):
        return None
    size = loader.batch_size or getattr(loader.batch_sampler, "batch_size", None)
    if isinstance(size, int):
        return size
    return None if loader.batch_sampler is None else _LEAST // 2


def _rows(loader: Any, points: int, seed: int) -> list[Any] | None:
    """Indices that the loader's own sampler gives, a few of them drawn at random; None where it cannot be asked.

    A copy is asked: samplers count epochs, and have generators.
    """
    dataset = loader.dataset
    try:
        with IsolatedRandomness(seed):
            sampler: Iterable[Any] = copy.deepcopy(loader.batch_sampler, {id(dataset): dataset})
            every = (index for batch in sampler for index in cast("Iterable[Any]", batch))
            found = list(islice(every, _READ))
    except Exception:  # a user's sampler that cannot be copied, or not be asked before training
        return None
    if not found:
        return None
    chosen = np.random.default_rng(seed).permutation(len(found))[:points]
    return [found[int(i)] for i in np.sort(chosen)]


# Steps as text.


def reached(step: float) -> str:
    """The first whole step by which something between two looks has happened.

    >>> reached(0.3), reached(41.0)
    ('1', '41')
    """
    return spaced(math.ceil(step))
