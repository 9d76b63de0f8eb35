"""A model as it is now: its guesses on data in its current mode, and what its layers show while it makes them."""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from firstguess.data import Batch
from firstguess.modules.guard import IsolatedRandomness, every_module_called, is_lazy, own_copy, restored, unwrapped
from firstguess.modules.hooks.probes import OUTPUT, hooked
from firstguess.modules.members.initializers import BATCH_NORMS, is_weighted
from firstguess.modules.members.sources import shaped_by
from firstguess.modules.outputs import (
    EPS,
    Ending,
    LogitCaller,
    Pick,
    Tally,
    as_rows,
    check_known,
    classes_of,
    ending,
    is_probability,
)

Probabilities: TypeAlias = Literal["", "softmax", "sigmoid"]

SURE = 0.99  # of probability, or of the range of a bounded activation: its gradient is 2 % of the largest and less


@dataclass(frozen=True)
class Snapshot:
    """What a model does with data, without any change to it."""

    fractions: NDArray[np.float64]  # over the points whose logits are finite
    points: int
    lost: int  # points with NaN or Inf among their logits
    ties: float  # share of points whose largest logit is shared
    level: bool  # all logits are equal on every point
    nonfinite: str  # the first layer with NaN or Inf
    dead: dict[str, float]  # layer -> share of its units with one value on all points
    head: str  # the last layer with weights
    head_zero: bool  # its weights are all 0
    bias: NDArray[np.float64] | None  # of the head, where it is added to the logits
    without_bias: NDArray[np.float64] | None  # fractions without it
    probabilities: Probabilities  # what the outputs are, if they are no logits
    sure: float  # share of points with a probability above 0.99
    samples: int  # inputs; a head with a guess at every token has more points
    single: bool  # one logit, whose sign decides
    reach: float  # 1/√fan_in of the head: how far torch's initializer draws its bias

    @property
    def largest(self) -> float:
        return float(self.fractions.max())


@contextmanager
def examined(model: nn.Module, first: Batch, seed: int) -> Generator[nn.Module]:
    """A copy of `model` in its current state and mode; where it cannot be copied, itself, restored afterwards."""
    inner = unwrapped(model)
    twin = own_copy(inner)
    if twin is not None:
        if is_lazy(twin):
            with IsolatedRandomness(seed), torch.no_grad():
                shaped_by(twin, first)
        yield twin
        return
    with restored(inner, parameters=False):
        yield inner


class Onlooker(Protocol):
    """Who looks on while `look` runs."""

    def begin(self, batch: Batch) -> None:
        """Begin a forward."""
        ...

    def end(self, raw: torch.Tensor, rows: torch.Tensor, before: torch.Tensor | None, batch: Batch) -> None:
        """End it: the output, its rows of classes, and the logits where these are probabilities."""
        ...


def look(
    model: nn.Module, batches: Sequence[Batch], *, pick: Pick = None, seed: int = 0, watch: Onlooker | None = None
) -> Snapshot:
    """Run the data through `model` as it is (a copy: its BatchNorms may count the batches)."""
    view = _View(LogitCaller(pick), seed, watch)
    with IsolatedRandomness(seed), torch.no_grad(), every_module_called(), hooked(model, view.see) as hooks:
        for batch in batches:
            hooks.begin()
            if watch is not None:
                watch.begin(batch)
            view.forward(model, batch)
    return view.result()


@dataclass
class _View:
    call: LogitCaller
    seed: int
    watch: Onlooker | None = None
    size: int = 0
    nonfinite: str = ""
    low: dict[str, torch.Tensor] = field(default_factory=dict[str, torch.Tensor])
    high: dict[str, torch.Tensor] = field(default_factory=dict[str, torch.Tensor])
    head: tuple[str, nn.Module] | None = None
    last: torch.Tensor | None = None  # what the head returned
    version: int = 0
    tally: Tally | None = None
    bare: Tally | None = None  # without the head's bias
    samples: int = 0
    single: bool = False
    ending: Ending | None = None  # how outputs come from what the head returned
    sure: int = 0
    lost: int = 0

    def see(self, name: str, module: nn.Module, tensor: torch.Tensor) -> None:
        if not self.nonfinite and not bool(torch.isfinite(tensor).all()):
            self.nonfinite = name
        if is_weighted(module):
            self.head, self.last, self.version = (name, module), tensor, tensor._version
        if tensor.shape[0] == self.size:
            low, high = tensor.amin(0), tensor.amax(0)
            if name in self.low and self.low[name].shape == low.shape:
                low, high = torch.minimum(low, self.low[name]), torch.maximum(high, self.high[name])
            self.low[name], self.high[name] = low, high

    def forward(self, model: nn.Module, batch: Batch) -> None:
        self.size, self.last = batch.size, None
        self.samples += batch.size
        raw, rows = self.call.rows(model, batch)
        classes, self.single = classes_of(rows), rows.ndim == 1
        self.tally = self.tally or Tally(classes, self.seed, 0)
        fine = torch.isfinite(rows).reshape(len(rows), -1).all(1)
        self.lost += int((~fine).sum())
        if not self.nonfinite and not bool(fine.all()):
            self.nonfinite = OUTPUT
        before = self._head_rows(raw, batch)
        if self.ending is None:
            self.ending = ending(rows[fine], before[fine] if before is not None else None)
            if not self.ending and (before is None or not torch.equal(rows, before)):
                told = is_probability(rows[fine], lambda: self.call.raw(model, batch))
                self.ending = "probability" if check_known(told, self.call.pick) else ""
        if self.ending == "probability":
            before = torch.logit(rows.float(), EPS)
        if self.watch is not None:
            self.watch.end(raw, rows, before if self.ending else None, batch)
        if self.probabilities:
            p = 2 * rows[fine] - 1 if rows.ndim == 1 else rows[fine].amax(1)
            self.sure += int((p.abs() > (2 * SURE - 1 if rows.ndim == 1 else SURE)).sum())
        one = self.probabilities == "sigmoid" and rows.ndim == 1
        if bool(fine.any()):
            self.tally.add(rows[fine] - 0.5 if one else rows[fine])  # a probability is decided at ½, a logit at 0
        bias = self._bias() if self.ending != "probability" else None
        if before is not None and bias is not None and len(bias) == (1 if rows.ndim == 1 else classes):
            # sigmoid and softmax keep the order of logits, so that the head's own outputs tell.
            self.bare = self.bare or Tally(classes, self.seed, 0)
            without = (before - bias)[fine] if rows.ndim == 2 else (before - bias[0])[fine]
            if bool(fine.any()) and (self.ending or torch.equal(rows[fine], before[fine])):
                self.bare.add(without)

    @property
    def probabilities(self) -> Probabilities:
        if self.ending == "probability":
            return "sigmoid"
        return "" if self.ending is None or self.ending == "log-softmax" else self.ending

    def _head_rows(self, raw: torch.Tensor, batch: Batch) -> torch.Tensor | None:
        """What the last layer with weights returned, laid out as the logits are."""
        last = self.last
        if last is None or last._version != self.version or last.numel() != raw.numel():
            return None
        return as_rows(last.reshape(raw.shape), batch, self.call.pick)

    def _bias(self) -> torch.Tensor | None:
        bias = getattr(self.head[1], "bias", None) if self.head else None
        return bias.detach() if isinstance(bias, torch.Tensor) else None

    def result(self) -> Snapshot:
        tally, bare, bias = self.tally, self.bare, self._bias()
        assert tally is not None  # `collect` gives no empty data
        weight: Any = getattr(self.head[1], "weight", None) if self.head else None
        total = tally.points + self.lost
        known = tally.points > 0
        return Snapshot(
            tally.fractions if known else np.full(len(tally.counts), np.nan),
            total,
            self.lost,
            tally.ties / max(tally.points, 1),
            known and tally.level,
            self.nonfinite,
            {name: float((low == self.high[name]).double().mean()) for name, low in self.low.items()},
            self.head[0] if self.head else OUTPUT,
            weight is not None and not bool(weight.any()),
            None if bare is None or bias is None else bias.cpu().double().numpy(),
            bare.fractions if bare is not None and bare.points else None,
            self.probabilities,
            self.sure / max(tally.points, 1),
            self.samples,
            self.single,
            1 / math.sqrt(max(1, weight.numel() // weight.shape[0])) if weight is not None and weight.ndim else 1.0,
        )


def fresh_norms(model: nn.Module) -> list[str]:
    """BatchNorms in eval mode whose running statistics are still those of no data: mean 0, variance 1, no batch."""
    found: list[str] = []
    for name, module in model.named_modules():
        if not isinstance(module, BATCH_NORMS) or module.training:
            continue
        mean, var, seen = module.running_mean, module.running_var, module.num_batches_tracked
        if mean is None or var is None or (seen is not None and int(seen) > 0):
            continue
        if not bool(mean.any()) and bool((var == 1).all()):
            found.append(name)
    return found


@contextmanager
def training_norms(model: nn.Module) -> Generator[nn.Module]:
    """`model` with its BatchNorms in train mode, meanwhile."""
    norms = [m for m in model.modules() if isinstance(m, BATCH_NORMS) and not m.training]
    for norm in norms:
        norm.training = True
    try:
        yield model
    finally:
        for norm in norms:
            norm.training = False
