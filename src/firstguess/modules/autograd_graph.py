"""Which step of a model feeds which: one forward with gradients on, followed back through autograd's graph."""

from __future__ import annotations

import warnings
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, cast

import torch
from torch import nn

from firstguess.data import Batch
from firstguess.modules.call_model import leaves, replaced
from firstguess.modules.guard import differentiable
from firstguess.modules.hooks.session import OUTPUT, Hooks
from firstguess.modules.members.initializers import is_lookup
from firstguess.modules.outputs import LogitCaller, floats

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


# What every gradient passes on its way back: the operations of one forward that no path to the input goes around.

_PRIME = (1 << 61) - 1  # paths are counted modulo this: a network of n skips has 2ⁿ
_MOST_NODES = 200_000  # of autograd's graph; an unrolled recurrence may have more, and then nothing is said


@dataclass(frozen=True)
class ResidualBlock:
    """The part between two operations of the backbone with several paths, on which there are layers with weights."""

    start: Any  # autograd's node of what enters it, and of what leaves it
    end: Any
    layers: tuple[str, ...]


@dataclass(frozen=True)
class Backbone:
    """`layers` with weights that every path from the logits to the first layer passes, and `blocks`; input first."""

    layers: tuple[str, ...]
    blocks: tuple[ResidualBlock, ...]
    after: Any = None  # what follows the last block and is of the kind that the others start from

    @property
    def residual(self) -> bool:
        """Whether blocks hold most layers: then the stream between them is what to follow (theory.md (39))."""
        return len(self.blocks) > 1 and sum(len(b.layers) for b in self.blocks) > len(self.layers)

    def stream(self) -> Iterator[tuple[str, str, Any]]:
        """(name, the layer it is read by or comes from, autograd's node) of the stream, input first."""
        for block in self.blocks:
            yield f"into {block.layers[0]}", block.layers[0], block.start
        if self.after is not None:
            yield f"after {self.blocks[-1].layers[-1]}", self.blocks[-1].layers[0], self.after


def backbone(output: Any, layers: Mapping[str, Any], lookups: Sequence[Any] = ()) -> Backbone | None:
    """The backbone between the logits' node and the first layer, or the lookup of tokens that makes the most of it.

    `layers`: autograd's node of what each layer with weights returned, in call order. An operation is on every path if
    as many paths go through it as there are at all: those to it times those from it.
    """
    order = _in_order(output)
    if order is None or not layers:
        return None
    place = {node: i for i, node in enumerate(order)}
    starts = [node for node in (next(iter(layers.values())), *lookups) if node in place]
    found = [_between(order, place, start, layers) for start in starts]
    return max(found, key=lambda b: (len(b.blocks), len(b.layers)), default=None)


def _in_order(output: Any) -> list[Any] | None:
    """Nodes that `output` comes from, each before those that it gets its inputs from."""
    done: set[Any] = set()
    order: list[Any] = []
    stack: list[tuple[Any, bool]] = [(output, False)]
    while stack:
        node, left = stack.pop()
        if left:
            order.append(node)
            continue
        if node in done:
            continue
        done.add(node)
        if len(done) > _MOST_NODES:
            return None
        stack.append((node, True))
        stack += [(parent, False) for parent, _ in node.next_functions if parent is not None and parent not in done]
    return order[::-1]


def _between(order: list[Any], place: dict[Any, int], start: Any, layers: Mapping[str, Any]) -> Backbone:
    last = place[start]
    parents = [[place[p] for p, _ in node.next_functions if p is not None] for node in order[: last + 1]]
    onward = [0] * len(order)  # paths from a node to the start
    onward[last] = 1
    for i in range(last - 1, -1, -1):
        onward[i] = sum(onward[p] for p in parents[i]) % _PRIME
    reached = [0] * len(order)  # paths from the output to a node
    reached[0] = 1
    for i in range(last):
        if reached[i] and onward[i]:
            for p in parents[i]:
                reached[p] = (reached[p] + reached[i]) % _PRIME
    total = onward[0]
    cut = [i for i in range(last + 1) if total and reached[i] * onward[i] % _PRIME == total]
    inside: dict[int, list[str]] = {}
    on: list[str] = []
    cuts = set(cut)
    for name, node in layers.items():
        i = place.get(node)
        if i is None or i > last or not onward[i]:
            continue
        if i in cuts:
            on.append(name)
        else:
            inside.setdefault(cut[bisect_left(cut, i) - 1], []).append(name)
    following = dict(pairwise(cut))  # of two on the backbone, the one nearer to the input
    tops = sorted(inside, reverse=True)
    blocks = tuple(ResidualBlock(order[following[top]], order[top], tuple(inside[top])) for top in tops)
    return Backbone(tuple(on), blocks, _after(order, cut, place, blocks))


def _after(order: list[Any], cut: list[int], place: dict[Any, int], blocks: tuple[ResidualBlock, ...]) -> Any:
    """After the last block, the first operation of the kind that blocks start from: an addition, a norm, a ReLU."""
    if len(blocks) < 2:
        return None
    kind = blocks[-1].start.name()
    for i in reversed([c for c in cut if c <= place[blocks[-1].end]]):
        if order[i].name() == kind:
            return order[i]
    return None
