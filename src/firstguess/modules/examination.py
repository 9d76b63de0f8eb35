"""All that one pass of a model, as it is, shows of it and of its data: what tests for named faults ask."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import nn

from firstguess.base.errors import FirstguessError
from firstguess.data import Batch
from firstguess.modules.calling import leaves
from firstguess.modules.initializers import is_lookup, is_weighted
from firstguess.modules.operations import ALL, Operations, are_alike, watched
from firstguess.modules.outputs import Pick, contrasts
from firstguess.modules.snapshot import Snapshot, fresh_norms, look
from firstguess.modules.weight_statistics import sampled

IGNORED = -100  # torch's label of what is not counted
_TINY = 5e-3  # of weights: RMS·√fan_in is 0.6 by torch's initializers, and 0.1 at std 0.02 and 32 inputs
_ENOUGH = 16  # weights of a layer that has a size at all


@dataclass(frozen=True)
class Given:
    """Inputs: of the first layer with weights where there is one, else of the model."""

    low: float
    high: float
    rms: float
    whole: bool  # all of them whole numbers
    same: bool  # all points are one point
    flat: bool  # each point has one value throughout


@dataclass(frozen=True)
class Labels:
    """Labels beside the classes that a model has."""

    low: float
    high: float
    classes: int
    outside: int  # how many are no class
    missing: int  # … because they are NaN
    count: int


@dataclass(frozen=True)
class Examination:
    """A model as it is, on data: its guesses (`now`), its operations, its inputs, outputs, labels and weights."""

    now: Snapshot
    ops: Operations
    given: Given
    labels: Labels | None
    norms: list[str]  # BatchNorms in eval mode that have seen no data
    size: float  # RMS of the logits without what all classes share (theory.md (38)); NaN where there is no finite one
    level: bool  # … and that is nothing but rounding
    varies: float  # the part of it (RMS) that differs from point to point
    same: bool  # all points of a batch have the same outputs
    same_from: str  # … from this layer on
    probabilities: bool  # outputs are positive and sum to 1 over classes, point by point
    over_batch: bool  # outputs sum to 1 over the points of a batch, class by class
    relu: str  # where the ReLU is whose output is the model's
    zeros: float  # share of outputs that are 0
    masks: tuple[str, ...]  # masks that are one value throughout, by name
    loss: float  # mean cross-entropy with the labels; NaN without
    loss_even: float  # … with labels that are drawn evenly: what is known without any
    tiny: dict[str, float]  # layers whose weights are tiny -> RMS·√fan_in
    weighted: int  # layers with weights
    types: dict[str, str]  # path of a module -> its class
    a_point: float = math.nan  # seconds of a pass for one point, where that was timed


@dataclass
class _Sums:
    """Filled batch by batch, while `look` runs."""

    ops: Operations
    squares: float = 0.0
    common: float = 0.0
    totals: torch.Tensor | None = None  # over points, class by class
    values: int = 0
    same: list[bool] = field(default_factory=list[bool])
    same_from: str = ""
    columns: list[bool] = field(default_factory=list[bool])
    shares: list[bool] = field(default_factory=list[bool])
    relu: str = ""
    rectified: list[bool] = field(default_factory=list[bool])
    zeros: int = 0
    outputs: int = 0
    loss: float = 0.0
    labelled: int = 0
    even: float = 0.0
    points: int = 0
    low: float = math.inf
    high: float = -math.inf
    energy: float = 0.0
    entries: int = 0
    whole: bool = True
    classes: int = 0

    def begin(self, batch: Batch) -> None:
        self.ops.begin(batch)

    def end(self, raw: torch.Tensor, rows: torch.Tensor, before: torch.Tensor | None, batch: Batch) -> None:
        """One forward's outputs; `before` is what the head returned, where outputs are probabilities."""
        self.ops.end()
        self._entry(batch)
        rows = rows.detach().double()
        self.classes = 2 if rows.ndim == 1 else rows.shape[1]
        relu = self.ops.relu
        mine = relu is not None and relu.data_ptr() == raw.data_ptr() and relu.numel() == raw.numel()
        self.rectified.append(mine)
        self.relu = self.ops.relu_at if mine else self.relu
        self.zeros += int((rows == 0).sum())
        self.outputs += rows.numel()
        if rows.ndim == 2 and len(rows) > 1:
            self.columns.append(_sum_to_one(rows, max(1, len(rows) // batch.size)))
        fine = torch.isfinite(rows).reshape(len(rows), -1).all(1)
        if len(rows) > 1 and bool(fine.all()):
            self.same.append(are_alike(rows if rows.ndim > 1 else rows[:, None]))
            varied = [i for i, (_, alike) in enumerate(self.ops.alike) if not alike]
            after = self.ops.alike[varied[-1] + 1 if varied else 0 :]
            self.same_from = after[0][0] if after else ""
        shares = rows.ndim == 2 and _across(rows[fine])
        self.shares.append(shares)
        # Probabilities p are the softmax of log p.
        logits = before.detach().double() if before is not None else rows.clamp_min(1e-300).log() if shares else rows
        self._sizes(logits[fine])
        self._losses(logits, fine, batch)

    def _entry(self, batch: Batch) -> None:
        floats = [leaf for leaf in leaves(batch.inputs).values() if leaf.is_floating_point()]
        x = self.ops.entry if self.ops.entry is not None else floats[0] if floats else None
        if x is None or not x.numel():
            return
        self.low, self.high = min(self.low, float(x.min())), max(self.high, float(x.max()))
        self.energy += float(x.double().square().sum())
        self.entries += x.numel()
        self.whole = self.whole and bool((x == x.round()).all())

    def _sizes(self, logits: torch.Tensor) -> None:
        if not len(logits) or (logits.ndim == 2 and logits.shape[1] < 2):
            return
        centred = contrasts(logits)
        self.squares += float(centred.square().sum())
        self.common += float(logits.square().sum())
        self.totals = centred.sum(0) + (0.0 if self.totals is None else self.totals)
        self.values += centred.numel()

    def varies(self) -> float:
        """√(mean square of the logits around their class's mean over points, over their mean square)."""
        if self.totals is None or not self.squares:
            return math.nan
        points = self.values / len(self.totals)
        return math.sqrt(max(0.0, 1 - float(self.totals.square().sum()) / points / self.squares))

    def _losses(self, logits: torch.Tensor, fine: torch.Tensor, batch: Batch) -> None:
        """Cross-entropies of points with finite logits; one logit z is the pair (0, z)."""
        pair = torch.stack((torch.zeros_like(logits), logits), 1) if logits.ndim == 1 else logits
        logs = torch.log_softmax(pair, 1)
        self.even -= float(logs[fine].mean(1).sum())
        self.points += int(fine.sum())
        y = batch.labels
        if y is None or y.numel() != len(logs) or y.is_floating_point():
            return
        y = y.flatten().long().to(logs.device)
        known = fine & (y >= 0) & (y < self.classes)
        self.loss -= float(logs[known].gather(1, y[known][:, None]).sum())
        self.labelled += int(known.sum())


def examine(
    model: nn.Module,
    batches: Sequence[Batch],
    *,
    data: Sequence[Batch] = (),
    pick: Pick = None,
    seed: int = 0,
) -> Examination:
    """Run batches through `model` as it is (a copy, as for `look`), and look at everything.

    `data`: all there are, where these are some of them only: labels, masks and inputs need no model.
    """
    norms = fresh_norms(model)  # before any forward: a BatchNorm in train mode counts its batches
    try:
        with watched(model) as ops:
            sums = _Sums(ops)
            now = look(model, batches, pick=pick, seed=seed, watch=sums)
    except FirstguessError:
        raise
    except Exception:  # an operation that a mode of torch's cannot look at: what is seen without is still seen
        sums = _Sums(ops := Operations())
        now = look(model, batches, pick=pick, seed=seed, watch=sums)
    for name, module in model.named_modules():
        p = getattr(module, "dropout", None) if isinstance(module, nn.MultiheadAttention | nn.RNNBase) else None
        if isinstance(p, float) and p >= ALL and (not isinstance(module, nn.RNNBase) or module.num_layers > 1):
            ops.dropped[name] = p
    ops.relu = ops.entry = None
    return Examination(
        now,
        ops,
        _given(data or batches, sums),
        _labels(data or batches, sums.classes),
        norms,
        math.sqrt(sums.squares / sums.values) if sums.values else math.nan,
        sums.values > 0 and sums.squares <= 1e-12 * sums.common,
        sums.varies(),
        bool(sums.same) and all(sums.same) and len(sums.same) == sum(batch.size > 1 for batch in batches),
        sums.same_from,
        all(sums.shares),
        bool(sums.columns) and all(sums.columns),
        sums.relu if all(sums.rectified) else "",
        sums.zeros / max(sums.outputs, 1),
        tuple(_one_valued_masks(data or batches)),
        sums.loss / sums.labelled if sums.labelled else math.nan,
        sums.even / sums.points if sums.points else math.nan,
        dict(_tiny_weights(model)),
        sum(is_weighted(module) for module in model.modules()),
        {name or "(model)": type(module).__name__ for name, module in model.named_modules()},
    )


def _labels(batches: Sequence[Batch], classes: int) -> Labels | None:
    """Labels that are classes: whole numbers, one a point or position, but for those that are left out."""
    low, high, outside, missing, count = math.inf, -math.inf, 0, 0, 0
    for batch in batches:
        y = batch.labels
        if y is None or not y.numel() or (y.ndim > 1 and y.shape[-1] == classes and y.is_floating_point()):
            continue
        y = y.double().flatten()
        bad = torch.isnan(y)
        missing += int(bad.sum())
        count += int(bad.sum())
        y = y[~bad]
        if not bool((y == y.round()).all()):  # numbers to regress on
            continue
        y = y[y != IGNORED]
        if len(y):
            count += len(y)
            low, high = min(low, float(y.min())), max(high, float(y.max()))
            outside += int(((y < 0) | (y >= classes)).sum())
    return Labels(low, high, classes, outside + missing, missing, count) if count else None


def _sum_to_one(rows: torch.Tensor, positions: int) -> bool:
    """Whether each class's outputs sum to 1 over the points (or their exponentials do), and each point's do not."""
    for x in (rows, rows.exp()):
        over = x.sum(0) / positions
        if bool((x >= 0).all()) and torch.allclose(over, torch.ones_like(over), atol=1e-4):
            return not _across(x)
    return False


def _across(rows: torch.Tensor) -> bool:
    """Whether each point's outputs are shares of 1."""
    sums = rows.sum(1)
    return bool((rows >= 0).all()) and len(rows) > 0 and torch.allclose(sums, torch.ones_like(sums), atol=1e-4)


def _given(batches: Sequence[Batch], sums: _Sums) -> Given:
    first = leaves(batches[0].inputs)
    same = sum(batch.size for batch in batches) > 1 and bool(first)
    flat = True
    for batch in batches:
        for key, leaf in leaves(batch.inputs).items():
            if not leaf.ndim:
                continue
            example = first[key][:1]
            same = same and leaf.shape[1:] == example.shape[1:] and _near(leaf, example)
            flat = flat and leaf.is_floating_point() and leaf[0].numel() > 1
            flat = flat and _near(leaf.flatten(1), leaf.flatten(1)[:, :1])
    rms = math.sqrt(sums.energy / sums.entries) if sums.entries else math.nan
    return Given(sums.low, sums.high, rms, sums.whole, same, flat and not same)


def _near(x: torch.Tensor, other: torch.Tensor) -> bool:
    if not x.is_floating_point():
        return bool((x == other).all())
    return bool((x - other).abs().max() <= 1e-6 * x.abs().max())


def _one_valued_masks(batches: Sequence[Batch]) -> list[str]:
    """Masks, by name or by being switches, of which every entry is the same in every batch; an attention mask: is 0."""
    found: list[str] = []
    for key, leaf in leaves(batches[0].inputs).items():
        if leaf.ndim < 2 or not ("mask" in str(key) or leaf.dtype == torch.bool):
            continue
        all_of_it = [leaves(batch.inputs)[key] for batch in batches if key in leaves(batch.inputs)]
        one = leaf.flatten()[0]
        if all(bool((x == one).all()) for x in all_of_it) and not (str(key) == "attention_mask" and bool(one)):
            found.append("the mask" if key is None else f"input {key}" if isinstance(key, int) else str(key))
    return found


def _tiny_weights(model: nn.Module) -> list[tuple[str, float]]:
    found: list[tuple[str, float]] = []
    for name, module in model.named_modules():
        weight = getattr(module, "weight", None) if is_weighted(module) and not is_lookup(module) else None
        if not isinstance(weight, torch.Tensor) or weight.numel() < _ENOUGH or not bool(weight.any()):
            continue
        size = float(sampled(weight, 1 << 20).double().square().mean().sqrt()) * math.sqrt(
            weight.numel() / weight.shape[0]
        )
        if size < _TINY:
            found.append((name or "(model)", size))
    return found
