"""What a model computes while it runs, operation by operation: soft-maxes, ReLUs, logarithms, masks, dropout.

Modules and plain code alike (`nn.ReLU`, `F.relu`, `x.relu_()`): a dispatch mode sees every operation of torch, and
hooks tell in which module it ran. Dropout is seen as a call, because in eval mode it does nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from firstguess.data import Batch
from firstguess.modules.initializers import is_weighted

SURE = 0.99  # of the range of a bounded activation: its gradient is 2 % of the largest and less
HIDDEN = -1e8  # a score at or below it is no score: masks are −Inf, −1e9 or the lowest float
ALL = 0.99  # dropout of at least this part leaves next to nothing
_DROPOUTS: tuple[Any, ...] = (
    F.dropout,
    F.dropout1d,
    F.dropout2d,
    F.dropout3d,
    F.alpha_dropout,
    F.feature_alpha_dropout,
    torch.dropout,
    torch.dropout_,
    torch.feature_dropout,
)
_LIKE_RELU = ("gelu", "mish")  # computed by a tanh, whose ends are then no saturation

# A ReLU's or tanh's place in a forward, and the module that it ran in: one module may be called many times.
Site: TypeAlias = tuple[int, str]


@dataclass
class Operations:
    """What was seen, in words of the model: where, and how much."""

    alive: dict[Site, torch.Tensor] = field(default_factory=dict[Site, torch.Tensor])  # ReLU units above 0 somewhere
    ends: dict[Site, tuple[int, int]] = field(default_factory=dict[Site, tuple[int, int]])  # values at the ends, values
    logs: dict[str, int] = field(default_factory=dict[str, int])  # logarithms of 0
    twice: list[str] = field(default_factory=list[str])  # soft-maxes of probabilities
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
        """Before each forward."""
        self.size, self.count = batch.size, 0
        self.relu, self.entry, self.relu_at = None, None, ""
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
            self.twice.append(self.here)

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
        name = str(func.overloadpacket.__name__)
        if name in _HANDLERS:
            _HANDLERS[name](self, args, kwargs, out)
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
    **dict.fromkeys(("relu", "relu_", "relu6"), lambda ops, _, __, out: ops.rectified(out)),
    **dict.fromkeys(
        ("clamp", "clamp_", "clamp_min", "clamp_min_", "threshold", "threshold_", "hardtanh", "hardtanh_"), _at_zero
    ),
    **dict.fromkeys(("tanh", "tanh_"), lambda ops, _, __, out: ops.bounded(out, 0.0, 1.0)),
    **dict.fromkeys(("sigmoid", "sigmoid_"), lambda ops, _, __, out: ops.bounded(out, 0.5, 0.5)),
    **dict.fromkeys(
        ("log", "log_", "log2", "log2_", "log10", "log10_", "log1p", "log1p_"),
        lambda ops, _, __, out: ops.logarithm(out),
    ),
    **dict.fromkeys(
        ("_softmax", "_log_softmax", "_safe_softmax"), lambda ops, args, _, __: ops.softmax(args[0], args[1])
    ),
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
        if self._ops.path and func in _DROPOUTS:
            p = args[1] if len(args) > 1 else (kwargs or {}).get("p", 0.5)
            if isinstance(p, (int, float)) and p >= ALL:
                self._ops.dropped[self._ops.here] = float(p)
        return func(*args, **(kwargs or {}))


@contextmanager
def watched(model: nn.Module) -> Generator[Operations]:
    """Within it, operations of `model` are seen; those outside its forward are not."""
    ops = Operations()
    handles: list[Any] = []
    for name, module in model.named_modules():
        leaf = not any(True for _ in module.children())
        handles.append(module.register_forward_pre_hook(_enter(ops, name), with_kwargs=True))
        handles.append(module.register_forward_hook(_leave(ops, name, leaf=leaf), always_call=True))
    try:
        with _Dispatch(ops), _Calls(ops):
            yield ops
    finally:
        for handle in handles:
            handle.remove()


def _enter(ops: Operations, name: str) -> Callable[..., None]:
    def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        ops.path.append((name, module))
        if ops.entry is None and (is_weighted(module) or isinstance(module, nn.RNNBase | nn.MultiheadAttention)):
            first = next((x for x in (*args, *kwargs.values()) if isinstance(x, torch.Tensor)), None)
            if first is not None and first.is_floating_point():
                ops.entry = first.detach()

    return hook


def _leave(ops: Operations, name: str, *, leaf: bool) -> Callable[..., None]:
    def hook(module: nn.Module, _: Any, output: Any) -> None:
        if ops.path and ops.path[-1][1] is module:
            ops.path.pop()
        if not leaf or not isinstance(output, torch.Tensor) or not output.is_floating_point():
            return
        if output.ndim > 1 and output.shape[0] == ops.size > 1:
            ops.alike.append((name, are_alike(output)))

    return hook


def are_alike(rows: torch.Tensor) -> bool:
    """Whether all points have the same values, up to the rounding of sums."""
    if rows.shape[0] < 2 or not rows.numel():
        return False
    spread = rows.amax(0) - rows.amin(0)
    return bool(spread.max() <= 1e-6 * rows.abs().max())
