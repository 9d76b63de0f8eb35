"""The correlation of two inputs before and after every step of a model, so that the step which adds it can be named.

A step is a call of a module, or the plain code between calls (a sum, `F.relu`), found by walking autograd's graph from
a module's input back to the outputs that it was made of.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import numpy as np
import torch
from torch import nn

from firstguess.base.gaussian import Array
from firstguess.data import Batch
from firstguess.ensemble.seeds import member_seeds
from firstguess.modules.call_model import joined, leaves, part, replaced, signature
from firstguess.modules.guard import differentiable, restored
from firstguess.modules.hooks.session import OUTPUT, Hooks, same_memory
from firstguess.modules.members.initializers import is_lookup
from firstguess.modules.members.sources import Source, source_of
from firstguess.modules.outputs import LogitCaller, Pick, contrasts, floats

# Which step of a model feeds which: one forward with gradients on, followed back through autograd's graph.

DATA = "(data)"
CODE = "code"

_TRIVIAL = (
    "view", "unsafeview", "reshape", "permute", "transpose", "t", "clone", "unsqueeze", "squeeze", "alias", "tocopy",
    "expand", "accumulategrad",
)  # fmt: skip
_LONGEST_WALK = 400  # nodes of autograd's graph between two modules


@dataclass
class StepPlan:
    """What the first forward shows: the steps, and where each takes its input from."""

    order: list[str] = field(default_factory=list)
    kinds: dict[str, str] = field(default_factory=dict)
    sources: dict[str, tuple[str, ...]] = field(default_factory=dict)
    gaps: dict[str, str] = field(default_factory=dict)  # module call -> the code step that feeds it
    parents: set[str] = field(default_factory=set)  # calls with other steps inside
    readers: dict[str, list[str]] = field(default_factory=dict)


class _StepTracer:
    """Follows one forward with gradients on: which step each module's input comes from."""

    def __init__(self, plan: StepPlan, inputs: dict[Any, torch.Tensor]) -> None:
        self.plan = plan
        self.largest = 1  # numbers of a sample, of the largest tensor
        self._nodes: dict[Any, str] = {}
        self._objects: dict[int, tuple[torch.Tensor, int, str]] = {}
        self._stack: list[str] = []
        self._latest = DATA
        for tensor in inputs.values():
            self._objects[id(tensor)] = (tensor, tensor._version, DATA)
            if tensor.is_floating_point():
                with torch.enable_grad():  # a model may turn gradients off in its own forward
                    node = cast("Any", tensor.view_as(tensor).grad_fn).next_functions[0][0]
                self._nodes[node] = DATA

    def enter(self, name: str, module: nn.Module, tensor: torch.Tensor | None) -> None:
        plan = self.plan
        plan.parents.update(self._stack)
        self._stack.append(name)
        plan.order.append(name)
        plan.kinds[name] = type(module).__name__
        if is_lookup(module) or tensor is None:
            plan.sources[name] = (DATA,)
            return
        plan.sources[name] = self._origin(tensor, name)

    def leave(self, name: str, tensor: torch.Tensor | None, output: Any) -> None:
        self._stack.pop()
        if tensor is None:
            return
        for other in floats([output]):  # a recurrence's last state, attention's weights: the module made them too
            self._know(other, name)
        self._know(tensor, name)
        self._latest = name

    def output(self, logits: torch.Tensor) -> None:
        origin = self._origin(logits, OUTPUT)
        if OUTPUT in self.plan.gaps:
            self.plan.sources[OUTPUT] = origin

    def _know(self, tensor: torch.Tensor, name: str) -> None:
        self._objects[id(tensor)] = (tensor, tensor._version, name)
        if tensor.grad_fn is not None:
            self._nodes[tensor.grad_fn] = name
        self.largest = max(self.largest, tensor.numel())

    def _origin(self, tensor: torch.Tensor, reader: str) -> tuple[str, ...]:
        plan = self.plan
        known = self._objects.get(id(tensor))
        if known is not None and known[0] is tensor and known[1] == tensor._version:
            plan.readers.setdefault(known[2], []).append(reader)
            return (known[2],)
        ops, found = self._walk(tensor)
        for name in found:
            plan.readers.setdefault(name, []).append(CODE if ops else reader)
        if not ops and len(found) == 1:  # seen from another side: a view
            self._know(tensor, found[0])
            return tuple(found)
        gap = f"code before {reader}"
        plan.gaps[reader] = gap
        plan.order.insert(max(len(plan.order) - (reader != OUTPUT), 0), gap)
        shown = " > ".join(reversed(ops[:4])) or "plain code"
        plan.kinds[gap] = f"{CODE}: {shown}" + (", …" if len(ops) > 4 else "")
        plan.sources[gap] = tuple(found) or (self._latest,)
        self._know(tensor, gap)
        plan.readers.setdefault(gap, []).append(reader)
        return (gap,)

    def _walk(self, tensor: torch.Tensor) -> tuple[list[str], list[str]]:
        """Operations and steps that a tensor comes from, nearest first."""
        start: Any = tensor.grad_fn
        if start is None:
            return [], []  # detached, or made without gradients
        ops: list[str] = []
        found: list[str] = []
        seen: set[Any] = set()
        queue: list[Any] = [start]
        while queue and len(seen) < _LONGEST_WALK:
            node = queue.pop(0)
            if node is None or node in seen:
                continue
            seen.add(node)
            if node in self._nodes:
                name = self._nodes[node]
                if name not in found:
                    found.append(name)
                continue
            operation = node.name().split("::")[-1].split("Backward")[0].lower().strip("_")  # AddmmBackward0 -> addmm
            word = operation + _position(node)
            if word not in _TRIVIAL and word not in ops:
                ops.append(word)
            queue += [parent for parent, _ in node.next_functions]
        return ops, found


def _position(node: Any) -> str:
    """Which position of (samples, positions, units) is taken, where it is the first or the last."""
    if getattr(node, "_saved_dim", None) != 1 or len(getattr(node, "_saved_self_sym_sizes", ())) != 3:
        return ""
    index, count = getattr(node, "_saved_index", None), node._saved_self_sym_sizes[1]
    return " first" if index == 0 else " last" if index in (count - 1, 2**64 - 1) else ""


def discover(model: nn.Module, batch: Batch, call: LogitCaller) -> tuple[StepPlan, int]:
    plan = StepPlan()
    given = {
        key: leaf.detach().clone().requires_grad_() if leaf.is_floating_point() else leaf
        for key, leaf in leaves(batch.inputs).items()
    }
    inputs = replace(batch, inputs=replaced(batch.inputs, given))
    tracer = _StepTracer(plan, given)
    hooks = Hooks(model, enter=tracer.enter, leave=tracer.leave)
    with differentiable(model), hooks, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a user's code about gradients, which nobody asked for here
        result = call.raw(model, inputs, copies=False)
        if plan.order:
            tracer.output(result)
    return plan, tracer.largest // batch.size


# What c is before and after every step.

_MOST_POINTS = 509
MOST_NUMBERS = 1 << 22  # of one tensor: decides how many points

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
    logits: Pick = None,
    **of_source: Any,
) -> Flow:
    """Measure c before and after each step of `inits` initializations, on one batch of the data.

    `of_source`: what else `source_of` takes.

    >>> from firstguess.data import blob, collect
    >>> model = nn.Sequential(nn.Linear(50, 400, bias=False), nn.ReLU(), nn.Linear(400, 10, bias=False))
    >>> flow = trace_flow(model, collect(blob(300, 50)), inits=5)
    >>> max(flow.steps, key=lambda step: step.added).name  # the ReLU: c rises from 0 to 1/π
    '1'
    """
    call = LogitCaller(logits)
    members = source_of(what, batches, logits=logits, **of_source)
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
                for path, module in model.named_modules():
                    # A layer with weights, and biases that are not all 0: norms have none to speak of at the start.
                    weight, bias = (getattr(module, name, None) for name in ("weight", "bias"))
                    matrix = isinstance(weight, nn.Parameter) and weight.ndim > 1
                    if matrix and isinstance(bias, nn.Parameter) and bool(bias.any()):
                        biased.add(path)
            rows.append(_measured(model, batch, call, plan))
        if len(rows) >= 2 and time.perf_counter() - started > seconds:
            break
    assert plan is not None
    return _flow(plan, rows, batch.size, biased)


# Numbers of one initialization


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
class StepAverages:
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


def step_averages(x: torch.Tensor) -> StepAverages:
    """Compute the averages of a tensor over its points, with center and spread."""
    variance, mean = (v.double() for v in torch.var_mean(x, dim=0, correction=1))
    spread = float(variance.mean())
    return StepAverages(mean, float(mean.square().mean()) - spread / len(x), spread)


def _moments(tensor: torch.Tensor, size: int) -> Array:
    """center, spread and mean (theory.md (2)) of (samples, …); NaN where no axis runs over the samples."""
    x = as_samples(tensor, size)
    # One row may stand for every sample, as of position embeddings.
    if x is None and tensor.ndim > 1 and tensor.shape[0] == 1 < size and tensor.shape[1] != size:
        return np.array([float(tensor.double().square().mean()), 0.0, float(tensor.double().mean())])
    if x is None:
        return np.full(3, np.nan)
    seen = step_averages(x)
    return np.array([seen.center, seen.spread, seen.grand])


def as_samples(tensor: torch.Tensor, size: int) -> torch.Tensor | None:
    """(samples, units); None where no axis runs over the samples."""
    x = tensor.detach()
    if x.ndim == 0 or x.shape[0] % size:
        if x.ndim < 2 or x.shape[1] != size:
            return None
        x = x.movedim(1, 0)
    return x.reshape(size, -1).float() if x.dtype != torch.float64 else x.reshape(size, -1)


def varies(leaf: torch.Tensor, size: int) -> bool:
    """Whether an input is numbers that differ between points: one that is the same for all of them is no data."""
    return leaf.is_floating_point() and leaf.ndim > 0 and leaf.shape[0] == size and bool((leaf != leaf[:1]).any())


# Averages


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
    # No spread over the points in any initialization, beyond rounding.
    parts = {name: (table[name][:, SPREAD], np.abs(table[name][:, CENTER])) for name in names}
    constant = {name for name, (s, c) in parts.items() if (s <= 1e-12 * c).all() and (c > 0).any()}
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
