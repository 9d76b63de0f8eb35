"""A session of hooks on a model: its layers and how to read them, and what the model as it is now shows."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Generator, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, TypeAlias, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn.utils import parametrize
from torch.utils.hooks import RemovableHandle

from firstguess.data import Batch
from firstguess.data.streams import IsolatedRandomness
from firstguess.ensemble.member_statistics import ProbedLayer
from firstguess.modules import outputs
from firstguess.modules.guard import every_module_called, is_lazy, own_copy, restored, unwrapped
from firstguess.modules.members.initializers import (
    BATCH_NORMS,
    CONVOLUTIONS,
    RUNNING_NORMS,
    is_hugging_face_conv1d,
    is_lookup,
    is_norm,
    is_weighted,
)
from firstguess.modules.members.sources import shaped_by
from firstguess.modules.outputs import Ending, LogitCaller, Pick, Tally

Node: TypeAlias = Literal["position", "channel"]
See: TypeAlias = Callable[[str, nn.Module, torch.Tensor], None]
Enter: TypeAlias = "Callable[[str, nn.Module, torch.Tensor | None], torch.Tensor | None]"
Leave: TypeAlias = "Callable[[str, torch.Tensor | None, Any], torch.Tensor | None]"

OUTPUT = "(output)"
_MOST_CALLS = 64  # of one module in one forward; an unrolled recurrence would fill the result with its steps
_SAME = (nn.Identity, nn.Flatten, nn.Unflatten, nn.Sequential, nn.ModuleList, nn.ModuleDict)
_SAME_BY_NAME = ("droppath", "stochasticdepth", "dropout")
_CHANNELS_FIRST = (*CONVOLUTIONS, *RUNNING_NORMS, nn.GroupNorm)
_CHANNELS_LAST = (nn.Linear, nn.LayerNorm, nn.MultiheadAttention, nn.RNNBase)


@dataclass(frozen=True)
class Spec(ProbedLayer):
    """A layer and how its output is read: which axis runs over the samples, how many rows of it belong to one, and
    which of the others (samples first) is the channel."""

    axis: int
    rows: int
    channel: int

    def samples_first(self, x: torch.Tensor, size: int) -> torch.Tensor | None:
        """(samples, …), or None if the shape is not what it was when the layer was found."""
        if x.ndim <= self.axis or x.shape[self.axis] != size * self.rows:
            return None
        x = x.detach()
        x = x.movedim(self.axis, 0) if self.axis else x
        return x.reshape(size, self.rows, *x.shape[1:]) if self.rows > 1 else x


def is_probed(module: nn.Module) -> bool:
    """Leaves and owners of parameters, without those that hand their input on."""
    if isinstance(module, _SAME) or any(word in type(module).__name__.lower() for word in _SAME_BY_NAME):
        return False
    if isinstance(module, parametrize.ParametrizationList):
        return False
    leaf = parametrize.is_parametrized(module) or not any(True for _ in module.children())
    return leaf or any(True for _ in module.parameters(recurse=False))


def main_tensor(output: Any) -> torch.Tensor | None:
    """The first float tensor in what a module returned."""
    if outputs.is_float(output):
        return output
    items = cast("Any", output).values() if isinstance(output, Mapping) else output
    if isinstance(items, torch.Tensor) or not hasattr(items, "__iter__"):
        return None
    return next((item for item in items if outputs.is_float(item)), None)


class Hooks:
    """Hooks on every probed module, removed at the end of `with`; each call has a name: path, path#2 for the second, …

    `see` gets the main tensor that a call returned. Steps have `enter`, which gets the one that a call is given (None:
    there is none) before it runs, and `leave`, which gets the main tensor and all that was returned; a tensor that
    either of them returns takes the place of the one it got.
    """

    def __init__(
        self, model: nn.Module, see: See | None = None, enter: Enter | None = None, leave: Leave | None = None
    ) -> None:
        self._see, self._enter, self._leave = see, enter, leave
        self._calls: dict[str, int] = {}
        self._running: dict[str, list[int]] = {}  # numbers of calls that have begun
        self._paused = False
        self._handles: list[RemovableHandle] = []
        for path, module in model.named_modules():
            if is_probed(module) and (path or leave is None):  # a model's own call is no step of it
                if enter is not None:
                    before = self._before(path or "(model)", enter)
                    self._handles.append(module.register_forward_pre_hook(before, with_kwargs=True))
                self._handles.append(module.register_forward_hook(self._after(path or "(model)")))

    def _before(self, path: str, enter: Enter) -> Callable[..., Any]:
        def hook(module: nn.Module, args: Any, kwargs: Any) -> Any:
            call = self._count(path)
            self._running.setdefault(path, []).append(call)
            tensor = main_tensor(args)
            tensor = tensor if tensor is not None else main_tensor(kwargs)
            new = enter(_name(path, call), module, tensor)
            if new is None or new is tensor or tensor is None:
                return None
            return _exchanged(args, tensor, new), _exchanged(kwargs, tensor, new)

        return hook

    def _after(self, path: str) -> Callable[..., Any]:
        def hook(module: nn.Module, _: Any, output: Any) -> Any:
            if self._paused:
                return None
            call = self._count(path) if self._enter is None else self._running[path].pop()
            if self._leave is not None:
                tensor = main_tensor(output)
                new = self._leave(_name(path, call), tensor, output)
                return None if new is None or new is tensor or tensor is None else _exchanged(output, tensor, new)
            tensor = main_tensor(output) if call <= _MOST_CALLS else None
            if tensor is not None and tensor.ndim and self._see is not None:
                with torch.no_grad():
                    self._see(_name(path, call), module, tensor)
            return None

        return hook

    def _count(self, path: str) -> int:
        self._calls[path] = self._calls.get(path, 0) + 1
        return self._calls[path]

    def begin(self) -> None:
        """Begin a forward."""
        self._calls.clear()
        self._running.clear()

    @contextmanager
    def paused(self) -> Generator[None]:
        """Ignore calls meanwhile."""
        self._paused = True
        try:
            yield
        finally:
            self._paused = False

    def __enter__(self) -> Hooks:
        return self

    def __exit__(self, *_: object) -> None:
        for handle in self._handles:
            handle.remove()


def _name(path: str, call: int) -> str:
    return path if call == 1 else f"{path}#{call}"


def _exchanged(value: Any, old: torch.Tensor, new: torch.Tensor) -> Any:
    """Arguments or a result, with one tensor in place of another."""
    if value is old:
        return new
    if isinstance(value, tuple):
        items = [_exchanged(item, old, new) for item in cast("tuple[Any, ...]", value)]
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    if isinstance(value, list):
        return [_exchanged(item, old, new) for item in cast("list[Any]", value)]
    if isinstance(value, MutableMapping):
        named = cast("MutableMapping[str, Any]", copy.copy(value))
        for key in list(named):
            named[key] = _exchanged(named[key], old, new)
        return named
    return value


class Finder:
    """Finds the layers and how to read them, from forwards over different numbers of samples."""

    def __init__(self) -> None:
        self.order: list[str] = []
        self.shapes: dict[str, dict[int, tuple[int, ...]]] = {}
        self.kinds: dict[str, tuple[str, bool, int]] = {}
        # Lookups of the same rows for every sample (positions, token types), and parents that return a child's output.
        self.skipped: dict[str, bool] = {}
        self.size = 0
        self.last: torch.Tensor | None = None  # what the latest layer with weights returned
        self.result = OUTPUT  # the layer that returns the logits
        self._previous: torch.Tensor | None = None
        self._latest = self._weighted = ""  # names of the latest layer, and of the latest with weights
        self._channel = 0
        self._place = 0  # in `order`, of the next call

    def begin(self, size: int) -> None:
        """Begin a forward; `undo` after one that failed."""
        seen = {name: dict(sizes) for name, sizes in self.shapes.items()}
        self._before = (list(self.order), seen, dict(self.kinds), dict(self.skipped))
        self.size = size
        self.last = self._previous = None
        self._latest = self._weighted = ""
        self._channel = self._place = 0

    def undo(self) -> None:
        """Forget the latest forward."""
        self.order, self.shapes, self.kinds, self.skipped = self._before

    def see(self, name: str, module: nn.Module, tensor: torch.Tensor) -> None:
        if isinstance(module, _CHANNELS_FIRST):
            self._channel = 1
        elif isinstance(module, _CHANNELS_LAST) or any(
            is_it(module) for is_it in (is_lookup, is_norm, is_hugging_face_conv1d)
        ):
            self._channel = -1
        weights = is_weighted(module) or is_lookup(module) or isinstance(module, nn.MultiheadAttention)
        if weights:
            self.last, self._weighted = tensor, name
        if name not in self.kinds:
            self.order.insert(self._place, name)  # where it was called: members may differ in what they call
            channel = self._channel or (1 if tensor.ndim > 3 else -1)
            self.kinds[name] = (type(module).__name__, weights, channel)
        self._place = self.order.index(name) + 1
        same = is_lookup(module) and bool((tensor == tensor[:1]).all())
        parent = any(True for _ in module.children())
        parent = parent and self._previous is not None and same_memory(self._previous, tensor)
        self.skipped[name] = self.skipped.get(name, True) and (same or parent)
        self._latest = self._latest if parent else name
        self._previous = tensor
        self.shapes.setdefault(name, {})[self.size] = tuple(tensor.shape)

    def output(self, logits: torch.Tensor) -> None:
        """Logits are a layer of their own, unless the latest layer, or the latest with weights, returned them."""
        returned = ((self._latest, self._previous), (self._weighted, self.last))
        names = [name for name, x in returned if x is not None and same_memory(x, logits)]
        self.result = names[0] if names and OUTPUT not in self.kinds else OUTPUT
        if self.result == OUTPUT:
            self.kinds[OUTPUT] = ("Output", False, -1)
            self.shapes.setdefault(OUTPUT, {})[self.size] = tuple(logits.shape)

    def specs(self, node: Node) -> Iterator[Spec]:
        """The layers that say something about the samples, in the order of their first calls."""
        for name in self.order:
            kind, weights, channel = self.kinds[name]
            found = _samples_axis(self.shapes[name])
            if found is None or self.skipped.get(name, False):
                continue
            spec = Spec(name, kind, 0, weights, *found, channel)
            size, shape = next(iter(self.shapes[name].items()))
            x = cast("torch.Tensor", spec.samples_first(torch.empty(shape, device="meta"), size))
            if x.numel():
                yield replace(spec, nodes=1 if x.ndim == 1 else x.shape[channel] if node == "channel" else x[0].numel())

    @property
    def head(self) -> torch.Tensor | None:
        """What the latest layer with weights returned, if its last axis is its channels."""
        return self.last if self._weighted and self.kinds[self._weighted][2] == -1 else None

    def output_spec(self, name: str, nodes: int) -> Spec:
        """The layer `name`, read as logits: points first, classes last."""
        kind, weights, _ = self.kinds[name]
        return Spec(name, kind, nodes, weights, 0, 1, -1)


def same_memory(x: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether a tensor is another one, seen in any shape."""
    return x.data_ptr() == other.data_ptr() and x.numel() == other.numel()


def _samples_axis(shapes: dict[int, tuple[int, ...]]) -> tuple[int, int] | None:
    """Which axis grows with the number of samples, and by how many rows a sample; a guess from one number only."""
    (size, shape), *others = shapes.items()
    if not others:
        for axis in range(min(2, len(shape))):
            if shape[axis] == size:
                return axis, 1
        return (0, shape[0] // size) if shape[0] and shape[0] % size == 0 else None
    other, grown = others[0]
    if len(shape) == len(grown):
        for axis, (a, b) in enumerate(zip(shape, grown, strict=True)):
            if a != b and a * other == b * size and a % size == 0:
                return axis, a // size
    return None


# A model as it is now: its guesses on data in its current mode, and what its layers show while it makes them.

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


def look(
    model: nn.Module, batches: Sequence[Batch], *, pick: Pick = None, seed: int = 0, watch: Any = None
) -> Snapshot:
    """Run the data through `model` as it is (a copy: its BatchNorms may count the batches).

    `watch` looks on: `begin(batch)`, then `end(output, its rows, logits where these are probabilities, batch)`.
    """
    view = _View(LogitCaller(pick), seed, watch)
    with IsolatedRandomness(seed), torch.no_grad(), every_module_called(), Hooks(model, view.see) as hooks:
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
    watch: Any = None
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
        classes, self.single = outputs.classes_of(rows), rows.ndim == 1
        self.tally = self.tally or Tally(classes, self.seed, 0)
        fine = torch.isfinite(rows).reshape(len(rows), -1).all(1)
        self.lost += int((~fine).sum())
        if not self.nonfinite and not bool(fine.all()):
            self.nonfinite = OUTPUT
        before = self._head_rows(raw, batch)
        if self.ending is None:
            head = before[fine] if before is not None else None
            told = partial(outputs.is_probability, rows[fine], lambda: self.call.raw(model, batch))
            self.ending = outputs.ending_of(rows[fine], head, told, self.call.pick)
        if self.ending == "probability":
            before = torch.logit(rows.float(), outputs.EPS)
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
        return outputs.as_rows(last.reshape(raw.shape), batch, self.call.pick)

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
