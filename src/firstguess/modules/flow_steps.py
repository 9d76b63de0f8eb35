"""Which step of a model feeds which: one forward with gradients on, followed back through autograd's graph."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, cast

import torch
from torch import nn

from firstguess.data import Batch
from firstguess.modules.calling import Caller, leaves, replaced
from firstguess.modules.initializers import is_lookup
from firstguess.modules.outputs import Pick, find_logits, is_float
from firstguess.modules.probes import OUTPUT, is_probed, main_tensor

DATA = "(data)"
CODE = "code"

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


@dataclass
class Plan:
    """What the first forward shows: the steps, and where each takes its input from."""

    order: list[str] = field(default_factory=list)
    kinds: dict[str, str] = field(default_factory=dict)
    sources: dict[str, tuple[str, ...]] = field(default_factory=dict)
    gaps: dict[str, str] = field(default_factory=dict)  # module call -> the code step that feeds it
    parents: set[str] = field(default_factory=set)  # calls with other steps inside
    readers: dict[str, list[str]] = field(default_factory=dict)


class _Tracer:
    """Follows one forward with gradients on: which step each module's input comes from."""

    def __init__(self, plan: Plan, inputs: dict[Any, torch.Tensor]) -> None:
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


def discover(model: nn.Module, batch: Batch, call: Caller, pick: Pick) -> tuple[Plan, int]:
    plan = Plan()
    floats = {
        key: leaf.detach().clone().requires_grad_() if leaf.is_floating_point() else leaf
        for key, leaf in leaves(batch.inputs).items()
    }
    inputs = replace(batch, inputs=replaced(batch.inputs, floats))
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
    with torch.inference_mode(False), torch.enable_grad(), step_hooks(model, enter, leave), warnings.catch_warnings():
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
def step_hooks(
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
