"""The correlation of two inputs before and after every step of a model, so that the step which adds it can be named.

A step is a call of a module, or the plain code between calls (a sum, `F.relu`), found by walking autograd's graph from
a module's input back to the outputs that it was made of.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from firstguess.data import Batch
from firstguess.ensemble.forwards import Caller, leaves, part, replaced
from firstguess.ensemble.outputs import Pick, find_logits, is_float
from firstguess.ensemble.probes import OUTPUT, is_probed, main_tensor
from firstguess.ensemble.rules import Init, is_lookup
from firstguess.ensemble.seeds import member_seeds
from firstguess.ensemble.sources import Mode, Setup, source

DATA = "(data)"
CODE = "code"

# A prime, so that no width or number of tokens is mistaken for the number of points.
_POINTS = (509, 251, 127, 61, 31, 17, 7, 5, 3, 2)
_MOST_NUMBERS = 1 << 22  # of one tensor: decides how many points
_TRIVIAL = (
    "view",
    "unsafeview",
    "reshape",
    "permute",
    "transpose",
    "t",
    "clone",
    "unsqueeze",
    "squeeze",
    "alias",
    "tocopy",
    "expand",
    "accumulategrad",
)
_LONGEST_WALK = 400  # nodes of autograd's graph between two modules

Array: TypeAlias = NDArray[np.float64]
CENTER, SPREAD, MEAN = range(3)


@dataclass(frozen=True)
class Step:
    """One step: c before and after it, what it adds, with the standard error over initializations.

    `name` is a module's path (path#2 for its second call), or for plain code the module that the code feeds;
    `sources` are the steps whose results it takes. Of several sources the one with the largest c counts as before, so a
    sum is not blamed for what its summands bring. `mean` is the average value after the step.
    """

    name: str
    kind: str
    sources: tuple[str, ...]
    before: float
    after: float
    added: float
    se: float
    mean: float


@dataclass(frozen=True)
class Flow:
    """All steps of a model in the order of their calls, averaged over initializations."""

    data: float  # c of the inputs themselves
    steps: tuple[Step, ...]
    inits: int
    points: int
    only_to: dict[str, str] = field(default_factory=dict)  # module -> the one module that gets its output, unchanged


@dataclass
class _Plan:
    """What the first forward shows: the steps, and where each takes its input from."""

    order: list[str] = field(default_factory=list)
    kinds: dict[str, str] = field(default_factory=dict)
    sources: dict[str, tuple[str, ...]] = field(default_factory=dict)
    gaps: dict[str, str] = field(default_factory=dict)  # module call -> the code step that feeds it
    parents: set[str] = field(default_factory=set)  # calls with other steps inside
    readers: dict[str, list[str]] = field(default_factory=dict)


def trace_flow(
    what: nn.Module | Callable[[], nn.Module],
    batches: Sequence[Batch],
    *,
    inits: int = 20,
    seed: int = 0,
    seconds: float = math.inf,
    init: Init = None,
    logits: Pick = None,
    mode: Mode = "train",
) -> Flow:
    """Measure c before and after each step of `inits` initializations, on one batch of the data.

    >>> from firstguess.data import blob, collect
    >>> model = nn.Sequential(nn.Linear(50, 400, bias=False), nn.ReLU(), nn.Linear(400, 10, bias=False))
    >>> flow = trace_flow(model, collect(blob(300, 50)), inits=5)
    >>> max(flow.steps, key=lambda step: step.added).name  # the ReLU: c rises from 0 to 1/π
    '1'
    """
    call = Caller()
    two = part(batches[0], 0, min(2, batches[0].size))
    members = source(what, init, Setup(mode, None, None, lambda model: call(model, two, copies=True)))
    started = time.perf_counter()
    plan: _Plan | None = None
    rows: list[dict[str, Array]] = []
    batch = batches[0]
    for member_seed in member_seeds(seed, 0, inits):
        with members.member(int(member_seed)) as model:
            if plan is None:
                plan, largest = _discover(model, part(batch, 0, min(3, batch.size)), call, logits)
                batch = _gathered(batches, _points(largest, sum(b.size for b in batches)))
            rows.append(_measured(model, batch, call, logits, plan))
        if len(rows) >= 3 and time.perf_counter() - started > seconds:
            break
    assert plan is not None
    return _flow(plan, rows, batch.size)


# -- What feeds what ------------------------------------------------------------------------------------------------


class _Tracer:
    """Follows one forward with gradients on: which step each module's input comes from."""

    def __init__(self, plan: _Plan, inputs: dict[Any, torch.Tensor]) -> None:
        self.plan = plan
        self.largest = 1  # numbers of a sample, of the largest tensor
        self._nodes: dict[Any, str] = {}
        self._objects: dict[int, tuple[torch.Tensor, int, str]] = {}
        self._stack: list[str] = []
        self._latest = DATA
        for tensor in inputs.values():
            self._objects[id(tensor)] = (tensor, tensor._version, DATA)
            if tensor.is_floating_point():
                self._nodes[_leaf(tensor)] = DATA

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

    def leave(self, name: str, tensor: torch.Tensor | None, others: Sequence[torch.Tensor]) -> None:
        self._stack.pop()
        if tensor is None:
            return
        for other in others:  # a recurrence's last state, attention's weights: the module made them too
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
        """Operations and steps behind a tensor, nearest first."""
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
            word = _word(node.name())
            if word not in _TRIVIAL and word not in ops:
                ops.append(word)
            queue += [parent for parent, _ in node.next_functions]
        return ops, found


def _leaf(tensor: torch.Tensor) -> Any:
    """The node of autograd's graph that stands for an input."""
    with torch.enable_grad():  # a model may turn gradients off in its own forward
        return cast("Any", tensor.view_as(tensor).grad_fn).next_functions[0][0]


def _word(name: str) -> str:
    """'AddmmBackward0' -> 'addmm'."""
    return name.split("::")[-1].split("Backward")[0].lower().strip("_")


def _discover(model: nn.Module, batch: Batch, call: Caller, pick: Pick) -> tuple[_Plan, int]:
    plan = _Plan()
    floats = {
        key: leaf.detach().clone().requires_grad_() if leaf.is_floating_point() else leaf
        for key, leaf in leaves(batch.inputs).items()
    }
    inputs = Batch(replaced(batch.inputs, floats), None, batch.size)
    required = [(p, p.requires_grad) for p in model.parameters()]
    tracer: _Tracer | None = None

    def enter(name: str, module: nn.Module, tensor: torch.Tensor | None) -> None:
        nonlocal tracer
        if tracer is None:
            tracer = _Tracer(plan, given)
        tracer.enter(name, module, tensor)

    def leave(name: str, tensor: torch.Tensor | None, others: Sequence[torch.Tensor]) -> None:
        if tracer is not None:
            tracer.leave(name, tensor, others)

    given: dict[Any, torch.Tensor] = floats
    with torch.inference_mode(False), torch.enable_grad(), _hooks(model, enter, leave), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a user's code about gradients, which nobody asked for here
        for parameter, _ in required:
            if parameter.is_floating_point():
                parameter.requires_grad_()
        try:
            result = find_logits(call(model, inputs), pick)
        finally:
            for parameter, before in required:
                parameter.requires_grad_(before)
        if tracer is not None:
            tracer.output(result)
    return plan, (tracer.largest if tracer is not None else 1) // batch.size


def _tensors(output: Any) -> Iterator[torch.Tensor]:
    """Every float tensor in what a module returned."""
    if is_float(output):
        yield output
    elif isinstance(output, tuple | list):
        for item in cast("Sequence[Any]", output):
            yield from _tensors(item)


@contextmanager
def _hooks(
    model: nn.Module,
    enter: Callable[[str, nn.Module, torch.Tensor | None], None],
    leave: Callable[[str, torch.Tensor | None, Sequence[torch.Tensor]], None],
) -> Generator[None]:
    calls: dict[str, int] = {}
    names: dict[int, list[str]] = {}
    handles: list[Any] = []

    def before(path: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: Any, kwargs: Any) -> None:
            calls[path] = calls.get(path, 0) + 1
            name = path if calls[path] == 1 else f"{path}#{calls[path]}"
            names.setdefault(id(module), []).append(name)
            tensor = main_tensor(args)
            enter(name, module, tensor if tensor is not None else main_tensor(kwargs))

        return hook

    def after(module: nn.Module, _: Any, output: Any) -> None:
        leave(names[id(module)].pop(), main_tensor(output), list(_tensors(output)))

    try:
        for path, module in model.named_modules():
            if path and is_probed(module):
                handles.append(module.register_forward_pre_hook(before(path), with_kwargs=True))
                handles.append(module.register_forward_hook(after))
        yield
    finally:
        for handle in handles:
            handle.remove()


# -- Numbers of one initialization ------------------------------------------------------------------------------------


def _points(largest: int, available: int) -> int:
    most = min(available, max(2, _MOST_NUMBERS // max(largest, 1)))
    return next((points for points in _POINTS if points <= most), 2)


def _gathered(batches: Sequence[Batch], points: int) -> Batch:
    """One batch of `points` points, from the first batches of the same shape."""
    first = batches[0]
    if first.size >= points:
        return part(first, 0, points)
    shapes = {key: leaf.shape[1:] for key, leaf in leaves(first.inputs).items()}
    alike = [b for b in batches if {key: leaf.shape[1:] for key, leaf in leaves(b.inputs).items()} == shapes]
    joined = {
        key: torch.cat([leaves(b.inputs)[key] for b in alike])[:points]
        for key in shapes
        if leaves(first.inputs)[key].ndim
    }
    size = min(points, sum(b.size for b in alike))
    size = next(p for p in _POINTS if p <= size)
    return Batch(replaced(first.inputs, {key: leaf[:size] for key, leaf in joined.items()}), None, size)


def _measured(model: nn.Module, batch: Batch, call: Caller, pick: Pick, plan: _Plan) -> dict[str, Array]:
    numbers: dict[str, Array] = {}
    data = [leaf for leaf in leaves(batch.inputs).values() if leaf.is_floating_point()]
    if data:
        numbers[DATA] = _moments(data[0], batch.size)

    def enter(name: str, _: nn.Module, tensor: torch.Tensor | None) -> None:
        gap = plan.gaps.get(name)
        if gap is not None and tensor is not None:
            numbers[gap] = _moments(tensor, batch.size)

    def leave(name: str, tensor: torch.Tensor | None, _: Sequence[torch.Tensor]) -> None:
        if tensor is not None and name in plan.sources and name not in plan.parents:
            numbers[name] = _moments(tensor, batch.size)

    with torch.no_grad(), _hooks(model, enter, leave):
        result = find_logits(call(model, batch, copies=True), pick)
        if OUTPUT in plan.gaps:
            numbers[plan.gaps[OUTPUT]] = _moments(result, batch.size)
    return numbers


def _moments(tensor: torch.Tensor, size: int) -> Array:
    """center, spread and mean (theory.md (2)) of (samples, …); NaN where no axis runs over the samples."""
    x = tensor.detach()
    if x.ndim == 0 or x.shape[0] % size:
        if x.ndim < 2 or x.shape[1] != size:
            return np.full(3, np.nan)
        x = x.movedim(1, 0)
    x = x.reshape(size, -1).float() if x.dtype != torch.float64 else x.reshape(size, -1)
    variance, mean = (v.double() for v in torch.var_mean(x, dim=0, correction=1))
    spread = float(variance.mean())
    return np.array([float(mean.square().mean()) - spread / size, spread, float(mean.mean())])


# -- Averages -----------------------------------------------------------------------------------------------------


def _flow(plan: _Plan, rows: Sequence[dict[str, Array]], points: int) -> Flow:
    names = [name for name in plan.order if name not in plan.parents and any(name in row for row in rows)]
    missing = np.full(3, np.nan)
    table = {name: np.array([row.get(name, missing) for row in rows]) for name in {*names, DATA}}  # (inits, 3)
    curves = {name: _jackknifed(values) for name, values in table.items()}
    steps = list(_steps(plan, names, table, curves))
    only = {a: b for a, (b, *rest) in plan.readers.items() if not rest and b in plan.kinds and b not in plan.parents}
    return Flow(float(curves[DATA][0]), tuple(steps), len(rows), points, only)


def _steps(plan: _Plan, names: Sequence[str], table: dict[str, Array], curves: dict[str, Array]) -> Iterator[Step]:
    for name in names:
        sources = _measured_sources(plan, name, curves)
        after = curves[name]
        before = np.maximum.reduce([curves[s] for s in sources]) if sources else np.zeros_like(after)
        added = after - before
        if not np.isfinite(added[0]):
            continue
        left_out = added[1:]
        count = len(left_out)
        spread = left_out - left_out.mean()
        error = math.sqrt((count - 1) / count * float(np.square(spread).sum())) if count > 1 else math.nan
        mean = float(np.nanmean(table[name][:, MEAN]))
        yield Step(name, plan.kinds[name], sources, float(before[0]), float(after[0]), float(added[0]), error, mean)


def _measured_sources(plan: _Plan, name: str, curves: dict[str, Array]) -> tuple[str, ...]:
    """The sources that were measured; through parents and views to what is behind them."""
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
