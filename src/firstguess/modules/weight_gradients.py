"""The size of one point's gradient at a layer's weights, such that layers of any shape compare (theory.md (39))."""

from __future__ import annotations

import math
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import nn

from firstguess.modules.initializers import is_hugging_face_conv1d
from firstguess.modules.probes import Spec, main_tensor

_AT_ONCE = 1 << 22  # numbers of one step: points are taken a few at a time


class Inputs:
    """What layers with weights were given in the latest forward, by the names of their calls."""

    def __init__(self) -> None:
        self._calls: dict[str, int] = {}
        self._given: dict[str, tuple[nn.Module, torch.Tensor]] = {}

    def begin(self) -> None:
        self._calls.clear()
        self._given.clear()

    def take(self, name: str) -> tuple[nn.Module, torch.Tensor] | None:
        return self._given.pop(name, None)

    def see(self, path: str, module: nn.Module, given: Any) -> None:
        call = self._calls[path] = self._calls.get(path, 0) + 1
        tensor = main_tensor(given)
        if tensor is not None:
            self._given[path if call == 1 else f"{path}#{call}"] = (module, tensor.detach())

    @contextmanager
    def watched(self, model: nn.Module, paths: set[str]) -> Generator[Inputs]:
        """Dense layers and convolutions among `paths`; of others only the output's gradient is used."""
        handles = [
            module.register_forward_pre_hook(lambda m, given, path=path or "(model)": self.see(path, m, given))
            for path, module in model.named_modules()
            if (path or "(model)") in paths and _is_known(module)
        ]
        try:
            yield self
        finally:
            self.begin()
            for handle in handles:
                handle.remove()


def _is_known(module: nn.Module) -> bool:
    return isinstance(module, (nn.Linear, nn.Conv1d, nn.Conv2d)) or is_hugging_face_conv1d(module)


def squares(
    grad: torch.Tensor,
    spec: Spec,
    size: int,
    given: tuple[nn.Module, torch.Tensor] | None = None,
    *,
    coupled: bool = False,
) -> torch.Tensor | None:
    """By point, the squared gradient of its loss at the weights, for inputs of unit size: ‖∂L/∂W‖² / ‖h‖².

    With δ = ∂L/∂u at the layer's output u = W·h and positions p that share the weights (pixels, tokens),
    ∂L/∂W = Σ_p δ_p h_pᵀ, and ‖h‖² is the mean of ‖h_p‖² over positions (h_p: all that one output sees).

    It does not depend on shapes. Without positions it is Σ_i δ_i², which a wide dense layer multiplies going back by
    χ̃ = σw² E φ'² (theory.md (10)) whatever the widths: E δ_j² = φ'² Σ_i W_ij² δ_i², and W_ij² is σw²/fan-in on average.
    Where the terms of positions have nothing in common it is Σ_p ‖δ_p‖², which a convolution of any kernel and stride
    multiplies by the same χ̃. And an average over positions, which divides the gradient of each by their number, leaves
    the sum over them what it was. Where the input is not known (attention, recurrences) it is `bound`. None: not the
    shape that the layer had. `coupled`: the points of a batch see each other (a graph), and are positions of one.
    """
    x = spec.samples_first(grad, size)
    if x is None:
        return None
    if given is not None:
        module, h = given
        if not isinstance(module, (nn.Conv1d, nn.Conv2d)):
            sums = _dense(x, h, spec, size, coupled=coupled)
        else:
            sums = None if coupled else _conv(module, x, h, spec)
        if sums is not None:
            return sums
    return bound(x, spec.channel, coupled=coupled)


def bound(x: torch.Tensor, channel: int, *, coupled: bool = False) -> torch.Tensor:
    """By point, the larger of Σ_p ‖δ_p‖² and ‖Σ_p δ_p‖²: what `squares` is where no two positions see alike, and
    where all see the same; one without positions."""
    x = _rows(x, channel)
    x = x.flatten(0, 1).unsqueeze(0) if coupled else x
    return torch.maximum(x.square().sum((1, 2)), x.sum(1).square().sum(1))


def _rows(x: torch.Tensor, channel: int) -> torch.Tensor:
    """(points, positions, channels), in float64, whose squares reach further."""
    x = x.detach().to("cpu", torch.float64)
    if x.ndim < 3:
        return x.reshape(len(x), 1, -1)
    return x.movedim(channel, -1).flatten(1, -2)


def _dense(x: torch.Tensor, h: torch.Tensor, spec: Spec, size: int, *, coupled: bool) -> torch.Tensor | None:
    given = spec.samples_first(h, size)
    if given is None or given.shape[:-1] != x.shape[:-1]:
        return None
    n = 1 if coupled else len(x)
    return _by_point(x.reshape(n, 1, -1, x.shape[-1]), given.reshape(n, 1, -1, given.shape[-1]))


def _conv(module: nn.Conv1d | nn.Conv2d, x: torch.Tensor, h: torch.Tensor, spec: Spec) -> torch.Tensor | None:
    if spec.axis or spec.rows > 1 or len(h) != len(x) or h.ndim != x.ndim:
        return None
    groups, n = module.groups, len(x)
    channels = x.shape[1] // groups
    patches = h.shape[1] // groups * math.prod(module.kernel_size)
    positions = math.prod(x.shape[2:])
    step = max(1, _AT_ONCE // max(1, groups * positions * patches))
    found: list[torch.Tensor] = []
    for i in range(0, n, step):
        part = _patches(module, h[i : i + step]).reshape(-1, groups, patches, positions).transpose(2, 3)
        delta = x[i : i + step].reshape(-1, groups, channels, positions).transpose(2, 3)
        found.append(_by_point(delta, part))
    return torch.cat(found)


def _patches(module: nn.Conv1d | nn.Conv2d, h: torch.Tensor) -> torch.Tensor:
    """What each output position sees: (points, channels × kernel, positions)."""
    around: list[int] = []
    for axis in reversed(range(len(module.kernel_size))):  # `pad` begins with the last
        whole = module.dilation[axis] * (module.kernel_size[axis] - 1) if module.padding == "same" else 0
        even = 0 if isinstance(module.padding, str) else module.padding[axis]
        around += [whole // 2 + even, whole - whole // 2 + even]
    mode = "constant" if module.padding_mode == "zeros" else module.padding_mode
    h = F.pad(h, around, mode=mode)
    if h.ndim == 3:
        shape = [(1, v[0]) for v in (module.kernel_size, module.dilation, module.stride)]
        h = h.unsqueeze(2)
    else:
        shape = [cast("tuple[int, int]", v) for v in (module.kernel_size, module.dilation, module.stride)]
    kernel, dilation, stride = shape
    return F.unfold(h, kernel, dilation=dilation, stride=stride)


def _by_point(delta: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
    """‖Σ_p δ_p h_pᵀ‖² over the mean of ‖h_p‖², of (points, groups, positions, channels in and out)."""
    n, groups, positions, out = delta.shape
    own = delta.to("cpu", torch.float64).square().sum((1, 2, 3))
    if positions == 1 and groups == 1:
        return own
    size = h.shape[-1]
    # Brought near 1, so that squares of tiny gradients are not lost in the number format.
    delta, unit = _near_one(delta)
    h, _ = _near_one(h)
    wide = min(positions * positions * 2, out * size) * groups
    step = max(1, _AT_ONCE // max(1, wide))
    found: list[torch.Tensor] = []
    for i in range(0, n, step):
        d, x = delta[i : i + step], h[i : i + step]
        if positions * (out + size) < out * size:  # products of positions are fewer than weights
            total = ((d @ d.mT) * (x @ x.mT)).sum((1, 2, 3), dtype=torch.float64)
        else:
            total = (d.mT @ x).square().sum((1, 2, 3), dtype=torch.float64)
        norm = x.square().sum((1, 2, 3), dtype=torch.float64) / (groups * positions)
        found.append(torch.where(norm > 0, total.clamp(min=0) / norm.clamp(min=1e-300), math.nan).cpu())
    seen = torch.cat(found) * unit.cpu().double() ** 2
    return torch.where(seen.isnan(), own, seen)  # an input of zeros, which has no size


def _near_one(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    x = x.detach()
    x = x if x.dtype in (torch.float32, torch.float64) else x.float()
    top = x.abs().amax((1, 2, 3)) if x.numel() else torch.ones(len(x))
    top = torch.where((top > 0) & top.isfinite(), top, torch.ones_like(top))
    return x / top[:, None, None, None], top
