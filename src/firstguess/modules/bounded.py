"""Whether one output is a probability: which operations it was made of, from the last one back.

A number between 0 and 1 is decided at ½ if it is a probability, at 0 if it is a logit that happens to be small. Values
do not tell: an untrained network often gives logits of 0.1 to 0.4 on all points. Its last operations do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

Range: TypeAlias = "tuple[float, float] | None"  # what a number can be; None: nobody knows

EPS = 1e-7  # probabilities this near 0 or 1 are that near, as logits
_FREE = (-math.inf, math.inf)
_ENDS: dict[str, Range] = {
    **dict.fromkeys(("sigmoid", "_softmax", "_safe_softmax", "hardsigmoid"), (0.0, 1.0)),
    **dict.fromkeys(("tanh", "erf", "sin", "cos"), (-1.0, 1.0)),
    **dict.fromkeys(("mm", "addmm", "bmm", "baddbmm", "mv", "addmv", "dot", "convolution", "embedding"), _FREE),
}
_KEEPS = {
    "mean", "stack", "cat", "view", "_unsafe_view", "reshape", "squeeze", "unsqueeze", "select", "slice", "index",
    "index_select", "gather", "expand", "permute", "transpose", "t", "clone", "_to_copy", "detach", "alias", "amax",
    "amin", "max", "min", "maximum", "minimum", "split", "split_with_sizes", "unbind", "lerp",
}  # fmt: skip


class _Ranges(TorchDispatchMode):
    """Interval arithmetic on every tensor that an operation gives."""

    def __init__(self) -> None:
        super().__init__()
        self._known: dict[int, tuple[torch.Tensor, Range]] = {}  # tensors are kept: an id is then nobody else's

    def of(self, value: Any) -> Range:
        if isinstance(value, torch.Tensor):
            if id(value) in self._known:
                return self._known[id(value)][1]
            if value.ndim or isinstance(value, nn.Parameter):
                return _FREE
            value = float(value)
        return (float(value), float(value))

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        name = str(func.overloadpacket.__name__)
        found = self._range(name[:-1] if name.endswith("_") else name, args, kwargs or {})
        for tensor in _floats([out]):
            self._known[id(tensor)] = (tensor, found)
        return out

    def _range(self, name: str, args: Any, kwargs: Any) -> Range:
        if name in _ENDS:
            return _ENDS[name]
        tensors = [self.of(x) for x in _floats(args)]
        known = [x for x in tensors if x is not None]
        if not known or len(known) < len(tensors):
            return None
        if name in _KEEPS:
            return min(low for low, _ in known), max(high for _, high in known)
        if name in ("clamp", "hardtanh", "clamp_min", "relu"):
            given = (0.0,) if name == "relu" else (*args[1:], *kwargs.values())
            ends = [float(x) for x in given if isinstance(x, (int, float))]
            return (ends[0], ends[1]) if len(ends) == 2 else (max(known[0][0], ends[0]), known[0][1]) if ends else None
        if _FREE in known and name in ("add", "sub", "rsub", "mul", "div", "sum", "neg", "leaky_relu", "pow", "where"):
            return _FREE
        if name in ("add", "sub", "rsub", "mul", "div") and len(args) > 1:
            return _arithmetic(name, known[0], self.of(args[1]), float(kwargs.get("alpha", 1)))
        return (-known[0][1], -known[0][0]) if name == "neg" else None


def _arithmetic(name: str, x: tuple[float, float], y: Range, alpha: float) -> Range:
    if y is None:
        return None
    if name in ("add", "sub", "rsub"):
        by = alpha if name != "sub" else -alpha
        one, other = (x, y) if name != "rsub" else ((-x[1], -x[0]), y)
        ends = [a + by * b for a in one for b in other]
    elif name == "div" and y[0] <= 0.0 <= y[1]:
        return _FREE
    else:
        ends = [a * b if name == "mul" else a / b for a in x for b in y]
    return min(ends), max(ends)


def _floats(values: Any) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _floats(value)


def is_probability(rows: torch.Tensor, forward: Callable[[], torch.Tensor] | None) -> bool | None:
    """Whether one output of a model is within 0 and 1 by its last operations (`forward` runs them once more).

    None: it is within on all of these points, and operations do not tell.
    """
    if rows.ndim != 1 or not len(rows) or not bool(((rows >= 0) & (rows <= 1)).all()):
        return False
    try:
        with _Ranges() as ranges:
            found = None if forward is None else ranges.of(forward())
    except Exception:  # an operation that a mode of torch's cannot look at
        return None
    return None if found is None else found[0] >= 0.0 and found[1] <= 1.0
