"""The correlation of two inputs before and after every step of a model, so that the step which adds it can be named.

A step is a call of a module, or the plain code between calls (a sum, `F.relu`), found by walking autograd's graph from
a module's input back to the outputs that it was made of.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from firstguess.data import Batch
from firstguess.ensemble.seeds import member_seeds
from firstguess.modules.autograd_graph import DATA, StepPlan, discover
from firstguess.modules.call_model import joined, leaves, part, replaced, signature
from firstguess.modules.guard import every_module_called, restored
from firstguess.modules.hooks.session import OUTPUT, Hooks, same_memory
from firstguess.modules.members.initializers import CONVOLUTIONS, Init, Redrawn
from firstguess.modules.members.sources import Mode, Source, source_of
from firstguess.modules.outputs import LogitCaller, Pick, Tally, as_rows, classes_of, contrasts

_MOST_POINTS = 509
MOST_NUMBERS = 1 << 22  # of one tensor: decides how many points

Array: TypeAlias = NDArray[np.float64]
CENTER, SPREAD, MEAN = range(3)


@dataclass(frozen=True)
class FlowStep:
    """One step: c before and after it, what it adds, with the standard error over initializations.

    `name` is a module's path (path#2 for its second call), or for plain code the module that the code feeds;
    `sources` are the steps whose results it takes. Of several sources the one with the largest c counts as before, so a
    sum is not blamed for what its summands bring. `mean` is the average value after the step. A `constant` step gives
    the same for every point (position embeddings); what is summed with it is compared with its other sources. `bias`: a
    layer with weights whose bias parameters are drawn.
    """

    name: str
    kind: str
    sources: tuple[str, ...]
    before: float
    after: float
    added: float
    se: float
    mean: float
    constant: bool = False
    bias: bool = False


@dataclass(frozen=True)
class Flow:
    """All steps of a model in the order of their calls, averaged over initializations."""

    data: float  # c of the inputs themselves
    steps: tuple[FlowStep, ...]
    inits: int
    points: int
    only_to: dict[str, str] = field(default_factory=dict)  # module -> the one module that gets its output, unchanged


def trace_flow(
    what: nn.Module | Callable[[], nn.Module] | Source,
    batches: Sequence[Batch],
    *,
    inits: int = 20,
    seed: int = 0,
    seconds: float = math.inf,
    init: Init = None,
    logits: Pick = None,
    mode: Mode = "train",
    redraw: Redrawn = None,
    scale: float = 1.0,
) -> Flow:
    """Measure c before and after each step of `inits` initializations, on one batch of the data.

    >>> from firstguess.data import blob, collect
    >>> model = nn.Sequential(nn.Linear(50, 400, bias=False), nn.ReLU(), nn.Linear(400, 10, bias=False))
    >>> flow = trace_flow(model, collect(blob(300, 50)), inits=5)
    >>> max(flow.steps, key=lambda step: step.added).name  # the ReLU: c rises from 0 to 1/π
    '1'
    """
    call = LogitCaller(logits)
    members = source_of(what, batches, init=init, mode=mode, redraw=redraw, scale=scale, logits=logits)
    started = time.perf_counter()
    plan: StepPlan | None = None
    rows: list[dict[str, Array]] = []
    biased: set[str] = set()
    batch = batches[0]
    for member_seed in member_seeds(seed, 0, inits):
        with members.member(int(member_seed)) as model:
            if plan is None:
                try:
                    with restored(model, parameters=False):
                        plan, largest = discover(model, part(batch, 0, min(3, batch.size)), call)
                    batch = gathered(batches, most_points(largest, sum(b.size for b in batches)))
                except Exception:  # of a user's model: one that takes whole batches only, or it fails again
                    plan, _ = discover(model, batch, call)
                biased = {path for path, module in model.named_modules() if _has_bias(module)}
            rows.append(_measured(model, batch, call, plan))
        if len(rows) >= 2 and time.perf_counter() - started > seconds:
            break
    assert plan is not None
    return _flow(plan, rows, batch.size, biased)


# -- Numbers of one initialization ------------------------------------------------------------------------------------


def most_points(largest: int, available: int) -> int:
    """A prime number of points, by what there are and the numbers that the largest tensor has for each."""
    most = min(available, max(2, MOST_NUMBERS // max(largest, 1)))
    return _prime(most)


def _prime(most: int) -> int:
    """The largest one, so that no width or number of tokens is mistaken for the number of points."""
    numbers = range(min(most, _MOST_POINTS), 2, -1)
    return next((n for n in numbers if all(n % k for k in range(2, math.isqrt(n) + 1))), 2)


def gathered(batches: Sequence[Batch], points: int) -> Batch:
    """One batch of `points` points, from the first batches of the same shape."""
    first = batches[0]
    if first.size >= points:
        return part(first, 0, points)
    if first.call is not None:  # whose batches may hold more than can be put together
        return part(first, 0, _prime(first.size))
    whole = joined([batch for batch in batches if signature(batch) == signature(first)])
    return part(whole, 0, _prime(min(points, whole.size)))


def _measured(model: nn.Module, batch: Batch, call: LogitCaller, plan: StepPlan) -> dict[str, Array]:
    numbers: dict[str, Array] = {}
    latest: list[tuple[str, torch.Tensor]] = []
    data = [leaf for leaf in leaves(batch.inputs).values() if varies(leaf, batch.size)]
    if data:
        numbers[DATA] = _moments(data[0], batch.size)

    def enter(name: str, _: nn.Module, tensor: torch.Tensor | None) -> None:
        gap = plan.gaps.get(name)
        if gap is not None and tensor is not None:
            numbers[gap] = _moments(tensor, batch.size)

    def leave(name: str, tensor: torch.Tensor | None, _: Any) -> None:
        if tensor is not None and name in plan.sources and name not in plan.parents:
            numbers[name] = _moments(tensor, batch.size)
            latest[:] = [(name, tensor)]

    with torch.no_grad(), Hooks(model, enter=enter, leave=leave):
        result, rows = call.rows(model, batch)
    makers = [name for name, tensor in latest if same_memory(tensor, result)]
    for name in [plan.gaps[OUTPUT]] if OUTPUT in plan.gaps else makers:
        numbers[name] = _moments(contrasts(rows), len(rows))
    return numbers


@dataclass(frozen=True)
class _Seen:
    """One tensor: the averages of its units over the points, center and spread (theory.md (2))."""

    mean: torch.Tensor
    center: float
    spread: float

    @property
    def correlation(self) -> float:
        total = self.center + self.spread
        return min(max(self.center / total, 0.0), 1.0) if total > 0 else 0.0

    @property
    def grand(self) -> float:
        """The average over all units and points."""
        return float(self.mean.mean())

    @property
    def grand_share(self) -> float:
        """The share of the mean square that is the grand average's."""
        total = self.center + self.spread
        return min(self.grand**2 / total, 1.0) if total > 0 else 0.0


def _seen(x: torch.Tensor) -> _Seen:
    variance, mean = (v.double() for v in torch.var_mean(x, dim=0, correction=1))
    spread = float(variance.mean())
    return _Seen(mean, float(mean.square().mean()) - spread / len(x), spread)


def _moments(tensor: torch.Tensor, size: int) -> Array:
    """center, spread and mean (theory.md (2)) of (samples, …); NaN where no axis runs over the samples."""
    x = as_samples(tensor, size)
    if x is None and is_broadcast(tensor, size):
        return np.array([float(tensor.double().square().mean()), 0.0, float(tensor.double().mean())])
    if x is None:
        return np.full(3, np.nan)
    seen = _seen(x)
    return np.array([seen.center, seen.spread, seen.grand])


def as_samples(tensor: torch.Tensor, size: int) -> torch.Tensor | None:
    """(samples, units); None where no axis runs over the samples."""
    x = tensor.detach()
    if x.ndim == 0 or x.shape[0] % size:
        if x.ndim < 2 or x.shape[1] != size:
            return None
        x = x.movedim(1, 0)
    return x.reshape(size, -1).float() if x.dtype != torch.float64 else x.reshape(size, -1)


def is_broadcast(tensor: torch.Tensor, size: int) -> bool:
    """One row that stands for every sample, as of position embeddings."""
    return tensor.ndim > 1 and tensor.shape[0] == 1 < size and tensor.shape[1] != size


def varies(leaf: torch.Tensor, size: int) -> bool:
    """Whether an input is numbers that differ between points: one that is the same for all of them is no data."""
    return leaf.is_floating_point() and leaf.ndim > 0 and leaf.shape[0] == size and bool((leaf != leaf[:1]).any())


# -- Averages -----------------------------------------------------------------------------------------------------


def _has_bias(module: nn.Module) -> bool:
    """A layer with weights, and biases that are not all 0: norms have none to speak of at the start."""
    weight, bias = getattr(module, "weight", None), getattr(module, "bias", None)
    return isinstance(weight, nn.Parameter) and weight.ndim > 1 and isinstance(bias, nn.Parameter) and bool(bias.any())


def _flow(plan: StepPlan, rows: Sequence[dict[str, Array]], points: int, biased: set[str]) -> Flow:
    names = [name for name in plan.order if name not in plan.parents and any(name in row for row in rows)]
    missing = np.full(3, np.nan)
    table = {name: np.array([row.get(name, missing) for row in rows]) for name in {*names, DATA}}  # (inits, 3)
    curves = {name: _jackknifed(values) for name, values in table.items()}
    steps = [replace(s, bias=s.name.partition("#")[0] in biased) for s in _steps(plan, names, table, curves)]
    only = {a: b for a, (b, *rest) in plan.readers.items() if not rest and b in plan.kinds and b not in plan.parents}
    return Flow(float(curves[DATA][0]), tuple(steps), len(rows), points, only)


def _steps(
    plan: StepPlan, names: Sequence[str], table: dict[str, Array], curves: dict[str, Array]
) -> Iterator[FlowStep]:
    constant = {name for name in names if _is_constant(table[name])}
    for name in names:
        sources = _measured_sources(plan, name, curves)
        after = curves[name]
        signals = [s for s in sources if s not in constant]
        before = np.maximum.reduce([curves[s] for s in signals]) if signals else np.zeros_like(after)
        added = after - before
        if not np.isfinite(added[0]):
            continue
        left_out, count = added[1:], len(added) - 1
        squares = float(np.square(left_out - left_out.mean()).sum())
        error = math.sqrt((count - 1) / count * squares) if count > 1 else math.nan
        mean = float(np.nanmean(table[name][:, MEAN]))
        numbers = float(before[0]), float(after[0]), float(added[0]), error, mean
        yield FlowStep(name, plan.kinds[name], sources, *numbers, constant=name in constant)


def _is_constant(values: Array) -> bool:
    """No spread over the points in any initialization, beyond rounding."""
    return bool((values[:, SPREAD] <= 1e-12 * np.abs(values[:, CENTER])).all() and (values[:, CENTER] > 0).any())


def _measured_sources(plan: StepPlan, name: str, curves: dict[str, Array]) -> tuple[str, ...]:
    """The sources that were measured; through parents and views to what they come from."""
    result: list[str] = []
    queue = list(plan.sources.get(name, ()))
    seen: set[str] = set()
    while queue:
        origin = queue.pop(0)
        if origin in seen:
            continue
        seen.add(origin)
        if origin in curves and np.isfinite(curves[origin][0]):
            result.append(origin)
        elif origin != DATA:
            queue += plan.sources.get(origin, ())
    return tuple(result)


def _jackknifed(values: Array) -> Array:
    """c = Σ center/Σ (center + spread) over initializations: of all, then with each left out."""
    fine = np.isfinite(values).all(axis=1)
    center, spread = (np.where(fine, values[:, which], 0.0) for which in (CENTER, SPREAD))
    total = center + spread
    with np.errstate(invalid="ignore", divide="ignore"):
        whole = center.sum() / total.sum() if fine.any() else math.nan
        rest = (center.sum() - center) / (total.sum() - total) if len(values) > 1 else np.full(len(values), np.nan)
    return np.concatenate([[whole], rest])


# What the guesses are without a step's part in what all inputs have in common: the rest of the network is run on.
#
# A step's own part is taken away by changing the averages over the data that it hands on, and nothing else. Of a step
# that raises c (1) the average over all units falls to the share of the signal that it had before the step: φ − E φ
# after random weights, theory.md §4; (2) where c is still above what it was, the averages of all units shrink until it
# is not: centred data, biases of 0. To a step that lowers c the averages that it got are given back until c is what it
# was. Taking off all that is in common would be another question, to which the last step is always the answer.

_ENOUGH = 6  # initializations that an effect should have; steps are left out before there are fewer
_FEWEST = 31  # points below which largest shares say little
_FEWEST_PAIRS = 3  # of finite numbers: fewer have no error to speak of
_PROBED = 1.5  # what a forward with its averages takes of one without
_LARGEST_FACTOR = 10.0  # on averages that are nearly 0: more would be noise


@dataclass(frozen=True)
class RemovalEffect:
    """The output as it is and without some steps, over the same initializations and points.

    `largest_…` is the average largest guess fraction, `error` the standard error of its change (of pairs, and of all
    initializations where their shares are known); γ is Σ center/Σ spread of the output (theory.md (38)).
    """

    largest_before: float
    largest_after: float
    error: float
    gamma_before: float
    gamma_after: float
    inits: int
    points: int


@dataclass(frozen=True)
class Effects:
    """Effects by removal; `impossible`: those not told from the rest, `late`: those that time was up for.

    `needed`: seconds that all of them take, on as many points.
    """

    found: dict[Any, RemovalEffect] = field(default_factory=dict[Any, RemovalEffect])
    impossible: tuple[Any, ...] = ()
    late: tuple[Any, ...] = ()
    needed: float = math.nan


def effects_of(
    members: Source,
    batches: Sequence[Batch],
    flow: Flow,
    removals: Mapping[Hashable, Sequence[str]],
    *,
    inits: int = 20,
    seed: int = 0,
    seconds: float = math.inf,
    logits: Pick = None,
    shares: Array | None = None,
) -> Effects:
    """The output without the steps of each removal (names of `flow.steps`, or "(data)"), the most wanted first.

    Steps of one removal are all taken to raise c, or all to lower it, by what they add together. `shares`: the largest
    shares of more initializations, the same ones first, which largest shares are then said of.

    As many initializations as there is time for, of the same seeds as `trace_flow`'s. Where time is short there are
    first fewer points, then fewer removals, then fewer initializations; none where not even three of two fit.
    """
    started = time.perf_counter()
    call, keys = LogitCaller(logits), list(removals)
    batch: Batch | None = None
    rows: list[dict[Any, tuple[float, float, float]]] = []
    impossible: set[Any] = set()
    needed = math.nan
    for number, member_seed in enumerate(member_seeds(seed, 0, inits)):
        with members.member(int(member_seed)) as model:
            if batch is None:
                batch, a_pass = _batch(model, batches, flow, call, seconds / (_ENOUGH * (len(keys) + 1)))
                left = seconds - (time.perf_counter() - started)
                needed = (_ENOUGH * (len(keys) + 1) + 2) * a_pass
                most = int(min(len(keys), max(left / (_ENOUGH * a_pass) - 1, 2.0))) if left > 9 * a_pass else 0
                keys = keys[:most]
                if not keys:
                    break
            row: dict[Any, tuple[float, float, float]] = {}
            state = torch.get_rng_state()
            for key in (None, *keys):
                if key in impossible:
                    continue
                torch.set_rng_state(state)  # a forward that draws numbers draws the same
                run = _AblatedForward(flow, frozenset(() if key is None else removals[key]), model, batch)
                found = run.output(model, call, seed, number)
                if run.impossible:
                    impossible.add(key)
                else:
                    row[key] = found
            rows.append(row)
        passed = time.perf_counter() - started
        if len(rows) == 1 and passed > seconds / _ENOUGH:
            keys = keys[: max(2, int(len(keys) * seconds / _ENOUGH / passed))]
        if len(rows) >= _FEWEST_PAIRS and passed * (1 + 1 / len(rows)) > seconds:
            break
    late = tuple(key for key in removals if key not in keys)
    if batch is None or len(rows) < _FEWEST_PAIRS:
        return Effects(late=tuple(removals), needed=needed)
    found = {key: e for key in keys if key not in impossible and (e := _effect(rows, key, batch.size, shares))}
    return Effects(found, tuple(key for key in keys if key in impossible), late, needed)


def _effect(
    rows: Sequence[dict[Any, tuple[float, float, float]]], key: Hashable, points: int, shares: Array | None
) -> RemovalEffect | None:
    own = [i for i, row in enumerate(rows) if key in row and np.isfinite((row[None], row[key])).all()]
    if len(own) < _FEWEST_PAIRS:
        return None
    pairs = np.array([(rows[i][None], rows[i][key]) for i in own])  # (inits, 2, 3)
    largest, center, spread = pairs[:, :, 0], pairs[:, :, 1].sum(0), pairs[:, :, 2].sum(0)
    with np.errstate(divide="ignore", invalid="ignore"):
        gamma = center / spread
    change = largest[:, 1] - largest[:, 0]
    before, moved, error = float(largest[:, 0].mean()), float(change.mean()), _error(change)
    if shares is not None:
        before, moved, error = of_all(shares, own, change)
    after = float(np.clip(before + moved, largest[:, 1].min(), largest[:, 1].max()))
    return RemovalEffect(before, after, error, float(gamma[0]), float(gamma[1]), len(own), points)


def of_all(shares: Array, own: Sequence[int], change: Array) -> tuple[float, float, float]:
    """The average share of all initializations, and its change by that of some, with its error: regression on their
    own shares (a control variate); the plain change of a few, or of more than all of these."""
    all_of = float(shares.mean())
    if len(own) < _ENOUGH or max(own) >= len(shares):
        return all_of, float(change.mean()), _error(change)
    x = shares[list(own)]
    slope = float(np.cov(change, x)[0, 1] / x.var(ddof=1)) if np.ptp(x) > 0 else 0.0
    rest = change - slope * (x - x.mean())
    error = math.hypot(_error(rest) * math.sqrt((len(x) - 1) / (len(x) - 2)), slope * _error(shares))
    return all_of, float(change.mean()) + slope * (all_of - float(x.mean())), error


def _error(values: Array) -> float:
    return float(values.std(ddof=1)) / math.sqrt(len(values))


def _batch(
    model: nn.Module, batches: Sequence[Batch], flow: Flow, call: LogitCaller, a_pass: float
) -> tuple[Batch, float]:
    """As many points as memory and `a_pass` seconds for a forward allow, by how long a few take; and how long it is."""
    available = sum(b.size for b in batches)
    numbers = max(1, MOST_NUMBERS // max(flow.points, 1)) // 8  # of a point, at the largest tensor; it is not kept
    try:
        batch = gathered(batches, min(most_points(numbers, available), _FEWEST))
        taken = min(_timed(model, batch, call) for _ in range(2))  # the first call is slower
        points = most_points(numbers, int(min(available, batch.size * max(a_pass / taken, 1.0))))
        if points > batch.size:
            batch = gathered(batches, points)
            taken = _timed(model, batch, call)
    except Exception:  # of a user's model: one that takes whole batches only, or it fails again
        return batches[0], _timed(model, batches[0], call)
    return batch, taken


def _timed(model: nn.Module, batch: Batch, call: LogitCaller) -> float:
    began = time.perf_counter()
    with torch.no_grad(), every_module_called():
        call.raw(model, batch)
    return _PROBED * (time.perf_counter() - began)


class _AblatedForward:
    """One forward without the part of some steps."""

    def __init__(self, flow: Flow, removed: frozenset[str], model: nn.Module, batch: Batch) -> None:
        self._steps: dict[str, FlowStep] = {step.name: step for step in flow.steps}
        self._removed, self._batch = removed, batch
        constant = {step.name for step in flow.steps if step.constant}
        steps = [self._steps[name] for name in removed if name in self._steps]
        self._before = {step.name: [s for s in step.sources if s not in constant] for step in steps}
        self._needed = {source for sources in self._before.values() for source in sources}
        self._seen: dict[str, _Seen] = {}
        self._raises = sum(step.added for step in steps) >= 0
        biased = {step.name for step in steps if step.bias and self._raises}
        self._bias = {name: model.get_submodule(name.partition("#")[0]) for name in biased}  # of what raises c by it
        self._last = flow.steps[-1].name if flow.steps else ""
        kept = (*model.parameters(), *model.buffers())
        self._kept = {tensor.untyped_storage().data_ptr() for tensor in kept if tensor.device.type != "meta"}
        self.impossible = False

    def output(self, model: nn.Module, call: LogitCaller, seed: int, member: int) -> tuple[float, float, float]:
        """Largest guess fraction, center and spread of the output."""
        batch = self._batch
        inputs = {key: x for key, x in leaves(batch.inputs).items() if varies(x, batch.size)}
        if DATA in self._removed:
            inputs = {key: x - x.mean(0, keepdim=True) for key, x in inputs.items()}
            batch = replace(batch, inputs=replaced(batch.inputs, inputs))
        elif DATA in self._needed and inputs:
            self._note(DATA, next(iter(inputs.values())))
        with torch.no_grad(), every_module_called(), Hooks(model, enter=self._enter, leave=self._leave):
            result = call.raw(model, batch)
            name = f"code before {OUTPUT}"
            if name in self._removed:
                result = self._without(name, result)
        rows = as_rows(result, batch, call.pick)
        tally = Tally(classes_of(rows), seed, member)
        tally.add(rows)
        seen = _seen(contrasts(rows))
        return float(tally.fractions.max()), seen.center, seen.spread

    def _enter(self, name: str, _: nn.Module, tensor: torch.Tensor | None) -> torch.Tensor | None:
        gap = f"code before {name}"
        if tensor is None or gap not in self._steps:
            return None
        if gap not in self._removed:
            self._note(gap, tensor)
            return None
        new = self._without(gap, tensor)
        self._note(gap, new)
        # What code made may be read again, by a skip connection: the tensor itself is changed, where it is only that.
        own = tensor.untyped_storage().data_ptr() not in self._kept and 0 not in tensor.stride()
        return tensor.copy_(new) if own and not same_memory(tensor, new) else new

    def _leave(self, name: str, tensor: torch.Tensor | None, _: Any) -> torch.Tensor | None:
        if tensor is None:
            return None
        new = self._without(name, tensor) if name in self._removed else None
        self._note(name, tensor if new is None else new)
        return new

    def _note(self, name: str, tensor: torch.Tensor) -> None:
        x = as_samples(tensor, self._batch.size) if name in self._needed else None
        if x is not None:
            self._seen[name] = _seen(x)

    def _without(self, name: str, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor with averages over the points as they would be if c were what it was before the step."""
        x = as_samples(tensor, self._batch.size)
        last = name == self._last
        if self._steps[name].constant:
            return torch.zeros_like(tensor)
        if x is None or (last and tensor.ndim > 2):
            self.impossible = True
            return tensor
        if self._bias:  # layers without bias parameters hand on what they get, but for chance
            new = _without_bias(self._bias[name], tensor) if name in self._bias else tensor
            self.impossible |= new is None
            return tensor if new is None else new
        raw = _seen(x)
        # Of an output, c is that of what arg-max sees.
        seen = _seen(contrasts(x if x.shape[1] > 1 else x[:, 0])) if last else raw
        sources = [self._seen[source] for source in self._before[name] if source in self._seen]
        before = max((source.correlation for source in sources), default=0.0)
        wanted = before / (1 - before) * seen.spread if before < 1 else math.inf
        if self._raises:
            shares = [source.grand_share for source in sources]
            return self._moved(tensor, _lowered(raw, seen, wanted, 1.0 if last else max(shares, default=0.0)))
        alike = [s for s in sources if s.correlation == before and s.mean.shape == raw.mean.shape and not last]
        if not math.isfinite(wanted):
            self.impossible = True
        elif alike:
            return self._moved(tensor, _given_back(seen, alike[0].mean, wanted, len(x)))
        elif seen.center > 0 and wanted < _LARGEST_FACTOR**2 * seen.center:
            return self._moved(tensor, max(math.sqrt(wanted / seen.center) - 1, 0.0) * raw.mean)
        else:
            self.impossible = True
        return tensor

    def _moved(self, tensor: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
        """The tensor, with something added to every unit, whichever axis runs over the points."""
        size = self._batch.size
        shift = shift.to(tensor.dtype)
        if tensor.shape[0] % size:
            moved = tensor.movedim(1, 0)
            return (moved + shift.reshape(moved.shape[1:])).movedim(0, 1)
        rows = tensor.shape[0] // size
        return (tensor.reshape(size, rows, *tensor.shape[1:]) + shift.reshape(rows, *tensor.shape[1:])).reshape(
            tensor.shape
        )


def _without_bias(layer: nn.Module, tensor: torch.Tensor) -> torch.Tensor | None:
    """What the layer gives with bias parameters of 0; None where they are not one per unit."""
    bias, units = cast("torch.Tensor", layer.bias), 1 if isinstance(layer, CONVOLUTIONS) else tensor.ndim - 1
    if bias.ndim != 1 or tensor.shape[units] != len(bias):
        return None
    return tensor - bias.reshape([-1 if axis == units else 1 for axis in range(tensor.ndim)])


def _lowered(raw: _Seen, seen: _Seen, wanted: float, share: float) -> torch.Tensor:
    """What to add to units so that their grand average has at most that share, and their center is at most `wanted`."""
    rest, grand = raw.center + raw.spread - raw.grand**2, raw.grand
    kept = math.sqrt(share / (1 - share) * max(rest, 0.0)) if share < 1 else math.inf
    off = grand - math.copysign(min(kept, abs(grand)), grand)
    # Σ (mean − off)² = Σ mean² − n (2 grand − off) off
    center = seen.center - (2 * grand - off) * off
    factor = math.sqrt(min(max(wanted, 0.0) / center, 1.0)) if center > 0 else 1.0
    return factor * (raw.mean - off) - raw.mean


def _given_back(seen: _Seen, mean: torch.Tensor, wanted: float, points: int) -> torch.Tensor:
    """How much of another tensor's averages gives the center `wanted`: the positive root of a quadratic."""
    a, b = float(mean.square().mean()), float((mean * seen.mean).mean())
    c = seen.center - wanted
    root = b * b - a * c
    if a <= 0 or c >= 0 or root < 0:
        return torch.zeros_like(mean)
    return (math.sqrt(root) - b) / a * mean
