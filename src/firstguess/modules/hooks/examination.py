"""All that one pass of a model, as it is, shows of it and of its data: what tests for named faults ask."""

from __future__ import annotations

import importlib
import math
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from firstguess.base.errors import FirstguessError
from firstguess.data import Batch
from firstguess.modules.call_model import leaves
from firstguess.modules.guard import hooked
from firstguess.modules.hooks.session import SURE, Snapshot, fresh_norms, look
from firstguess.modules.members.initializers import is_lookup, is_weighted
from firstguess.modules.members.weight_statistics import scaled_size
from firstguess.modules.outputs import Pick, by_class, contrasts, is_float
from firstguess.modules.read.dispatch import DROPOUTS

# What a model computes while it runs, operation by operation: soft-maxes, ReLUs, logarithms, masks, dropout.
#
# Modules and plain code alike (`nn.ReLU`, `F.relu`, `x.relu_()`): a dispatch mode sees every operation of torch, and
# hooks tell in which module it ran. Dropout is seen as a call, because in eval mode it does nothing.

HIDDEN = -1e8  # a score at or below it is no score: masks are −Inf, −1e9 or the lowest float
ALL = 0.99  # dropout of at least this part leaves next to nothing
_LIKE_RELU = ("gelu", "mish")  # computed by a tanh, whose ends are then no saturation

# A ReLU's or tanh's place in a forward, and the module that it ran in: one module may be called many times.
Site: TypeAlias = tuple[int, str]


@dataclass
class Operations:
    """What was seen, in words of the model: where, and how much."""

    alive: dict[Site, torch.Tensor] = field(default_factory=dict[Site, torch.Tensor])  # ReLU units above 0 somewhere
    ends: dict[Site, tuple[int, int]] = field(default_factory=dict[Site, tuple[int, int]])  # values at the ends, values
    gates: set[Site] = field(default_factory=set[Site])  # whose values something is multiplied by
    _bounded: deque[tuple[torch.Tensor, Site]] = field(default_factory=lambda: deque(maxlen=4))  # the latest of them
    logs: dict[str, int] = field(default_factory=dict[str, int])  # logarithms of 0
    twice: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])  # a softmax, and one of what it gave
    soft: str = ""  # where the latest softmax was
    dropped: dict[str, float] = field(default_factory=dict[str, float])  # dropout of all, and how much
    hidden: dict[str, torch.Tensor] = field(default_factory=dict[str, torch.Tensor])  # points without one score
    hidden_points: dict[str, int] = field(default_factory=dict[str, int])
    relu: torch.Tensor | None = None  # what the latest ReLU gave: kept, so that its memory is nobody else's
    relu_at: str = ""
    entry: torch.Tensor | None = None  # what the first layer with weights got
    alike: list[tuple[str, bool]] = field(default_factory=list[tuple[str, bool]])  # leaf -> same for all points
    size: int = 0
    path: list[tuple[str, nn.Module]] = field(default_factory=list[tuple[str, nn.Module]])
    count: int = 0

    def begin(self, batch: Batch) -> None:
        """Begin a forward."""
        self.size, self.count = batch.size, 0
        self.relu, self.entry, self.relu_at, self.soft = None, None, "", ""
        self.alike.clear()
        self.hidden.clear()

    def end(self) -> None:
        """After each forward: what is counted by points is added up."""
        for place, rows in self.hidden.items():
            if count := int(rows.sum()):
                self.hidden_points[place] = self.hidden_points.get(place, 0) + count

    @property
    def here(self) -> str:
        """The module that runs."""
        return self.path[-1][0] or "(model)"

    def site(self) -> Site:
        self.count += 1
        return self.count, self.here

    # One operation each

    def rectified(self, out: torch.Tensor) -> None:
        self.relu, self.relu_at = out, self.here
        site = self.site()
        if out.ndim < 2 or not self.size:
            return
        if out.shape[0] % self.size == 0:
            axes = (0, 2, 3) if out.ndim == 4 else (0,)
        elif out.ndim > 2 and out.shape[1] == self.size:
            axes = (0, 1)
        else:
            return
        alive = out > 0
        for axis in sorted(axes, reverse=True):
            alive = alive.any(axis)
        before = self.alive.get(site)
        if before is None or before.shape == alive.shape:
            self.alive[site] = alive if before is None else before | alive

    def bounded(self, out: torch.Tensor, middle: float, reach: float) -> None:
        site, name = self.site(), type(self.path[-1][1]).__name__.lower()
        if any(word in name for word in _LIKE_RELU):
            return
        self._bounded.append((out, site))
        at, of = self.ends.get(site, (0, 0))
        self.ends[site] = (at + int(((out - middle).abs() > SURE * reach).sum()), of + out.numel())

    def logarithm(self, out: torch.Tensor) -> None:
        if count := int(torch.isneginf(out).sum()):
            self.logs[self.here] = self.logs.get(self.here, 0) + count

    def softmax(self, x: torch.Tensor, axis: int) -> None:
        if not x.numel() or not x.is_floating_point():
            return
        self.masked(x.amax(axis) <= HIDDEN)
        sums = x.sum(axis)
        if x.shape[axis] > 1 and bool((x >= 0).all()) and torch.allclose(sums, torch.ones_like(sums), atol=1e-4):
            self.twice.append((self.soft, self.here))
        self.soft = self.here

    def masked(self, rows: torch.Tensor) -> None:
        """`rows`: which rows of scores hide every entry, samples first where they are told apart."""
        if not self.size or not bool(rows.any()):
            return
        if rows.ndim and rows.shape[0] % self.size == 0:
            points = rows.reshape(self.size, -1).all(1)
        elif bool(rows.all()):
            points = torch.ones(self.size, dtype=torch.bool, device=rows.device)
        else:
            return
        before = self.hidden.get(self.here)
        self.hidden[self.here] = points if before is None else before | points

    def operation(self, func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], out: Any) -> None:
        name = str(func.overloadpacket.__name__).removesuffix("_")  # in place or not
        if name in _HANDLERS:
            _HANDLERS[name](self, args, kwargs, out)
        elif name == "mul":
            self.gates |= {site for value, site in self._bounded if any(value is arg for arg in args)}
        elif "scaled_dot_product" in name:
            names = [argument.name for argument in func._schema.arguments]
            given = dict(zip(names, args, strict=False)) | dict(kwargs)
            mask = given.get("attn_mask", given.get("attn_bias"))
            if isinstance(mask, torch.Tensor) and mask.ndim:
                self.masked(~mask.any(-1) if mask.dtype == torch.bool else mask.amax(-1) <= HIDDEN)


def _at_zero(ops: Operations, args: tuple[Any, ...], kwargs: Mapping[str, Any], out: Any) -> None:
    """clamp, clamp_min, threshold, hardtanh: a ReLU where they cut at 0."""
    low = args[1] if len(args) > 1 else kwargs.get("min", kwargs.get("min_val", kwargs.get("threshold")))
    if isinstance(low, (int, float)) and low == 0:
        ops.rectified(out)


_Handler: TypeAlias = Callable[[Operations, tuple[Any, ...], Mapping[str, Any], Any], None]
_HANDLERS: dict[str, _Handler] = {
    **dict.fromkeys(("relu", "relu6"), lambda ops, _, __, out: ops.rectified(out)),
    **dict.fromkeys(("clamp", "clamp_min", "threshold", "hardtanh"), _at_zero),
    "tanh": lambda ops, _, __, out: ops.bounded(out, 0.0, 1.0),
    "sigmoid": lambda ops, _, __, out: ops.bounded(out, 0.5, 0.5),
    **dict.fromkeys(("log", "log2", "log10", "log1p"), lambda ops, _, __, out: ops.logarithm(out)),
    **dict.fromkeys(("_softmax", "_log_softmax", "_safe_softmax"), lambda ops, args, _, __: ops.softmax(*args[:2])),
}


class _Dispatch(TorchDispatchMode):
    def __init__(self, ops: Operations) -> None:
        super().__init__()
        self._ops = ops

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if self._ops.path and isinstance(out, torch.Tensor | tuple):
            self._ops.operation(func, args, kwargs or {}, out)
        return out


class _Calls(TorchFunctionMode):
    def __init__(self, ops: Operations) -> None:
        super().__init__()
        self._ops = ops

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self._ops.path and func in (*DROPOUTS, torch.dropout_, torch.feature_dropout):
            p = args[1] if len(args) > 1 else (kwargs or {}).get("p", 0.5)
            if isinstance(p, (int, float)) and p >= ALL:
                self._ops.dropped[self._ops.here] = float(p)
        return func(*args, **(kwargs or {}))


@contextmanager
def watched(model: nn.Module) -> Generator[Operations]:
    """Watch the operations of `model`; those outside its forward are not."""
    ops = Operations()

    def enter(name: str, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        ops.path.append((name, module))
        if ops.entry is None and (is_weighted(module) or isinstance(module, nn.RNNBase | nn.MultiheadAttention)):
            first = next((x for x in (*args, *kwargs.values()) if isinstance(x, torch.Tensor)), None)
            if first is not None and first.is_floating_point():
                ops.entry = first.detach()

    def leave(name: str, module: nn.Module, _: Any, output: Any) -> None:
        if ops.path and ops.path[-1][1] is module:
            ops.path.pop()
        leaf = not any(True for _ in module.children())
        if leaf and is_float(output) and output.ndim > 1 and output.shape[0] == ops.size > 1:
            ops.alike.append((name, are_alike(output)))

    handles: list[Any] = []
    for name, module in model.named_modules():
        handles.append(module.register_forward_pre_hook(partial(enter, name), with_kwargs=True))
        handles.append(module.register_forward_hook(partial(leave, name), always_call=True))
    with hooked(handles), _Dispatch(ops), _Calls(ops):
        yield ops


def are_alike(rows: torch.Tensor) -> bool:
    """Whether all points have the same values, up to the rounding of sums."""
    if rows.shape[0] < 2 or not rows.numel():
        return False
    spread = rows.amax(0) - rows.amin(0)
    return bool(spread.max() <= 1e-6 * rows.abs().max())


IGNORED = -100  # torch's label of what is not counted
_TINY = 0.02  # of weights: RMS·√fan_in is 0.6 by torch's initializers, and 0.1 at std 0.02 and 32 inputs
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
    """Labels compared with the classes that a model has."""

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
class _Observations:
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
        """Cross-entropies of points with finite logits."""
        logs = torch.log_softmax(by_class(logits), 1)
        self.even -= float(logs[fine].mean(1).sum())
        self.points += int(fine.sum())
        y = batch.labels
        if y is None or y.numel() != len(logs) or y.is_floating_point():
            return
        y = y.flatten().long().to(logs.device)
        known = fine & (y >= 0) & (y < self.classes)
        self.loss -= float(logs[known].gather(1, y[known][:, None]).sum())
        self.labelled += int(known.sum())


def load_probes() -> None:
    """Load what torch itself loads at the first call that is looked into (its compiler, for seconds).

    Before a model is timed, so that its points are not charged with it.
    """
    importlib.import_module("torch._dynamo")


def examine(
    model: nn.Module, batches: Sequence[Batch], *, data: Sequence[Batch] = (), pick: Pick = None, seed: int = 0
) -> Examination:
    """Run batches through `model` as it is (a copy, as for `look`), and look at everything.

    `data`: all there are, where these are some of them only: labels, masks and inputs need no model.
    """
    norms = fresh_norms(model)  # before any forward: a BatchNorm in train mode counts its batches
    try:
        with watched(model) as ops:
            sums = _Observations(ops)
            now = look(model, batches, pick=pick, seed=seed, watch=sums)
    except FirstguessError:
        raise
    except Exception:  # an operation that a mode of torch's cannot look at: what is seen without is still seen
        sums = _Observations(ops := Operations())
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
    """Labels that are classes: whole numbers, one per point or position, but for those that are left out."""
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


def _given(batches: Sequence[Batch], sums: _Observations) -> Given:
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
        if (size := scaled_size(weight)) < _TINY:
            found.append((name or "(model)", size))
    return found
