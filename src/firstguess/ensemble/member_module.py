"""One member of an ensemble as a plain nn.Module, to take away, look at or train."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from firstguess.base.checks import count
from firstguess.ensemble.engine import check_data, moments_of
from firstguess.ensemble.places import Shape, Step, resolve
from firstguess.ensemble.seeds import fill_biases, fill_weights, member_seeds
from firstguess.network.activations.record import Activation
from firstguess.network.activations.tensors import module_of
from firstguess.network.inputs import Inputs
from firstguess.network.layers import (
    Activate,
    AvgPool,
    BatchNorm,
    Conv,
    Dense,
    GroupNorm,
    LayerNorm,
    MaxPool,
    Residual,
    RMSNorm,
    Scale,
    Shift,
)
from firstguess.network.network import Network

_EPS = float(torch.finfo(torch.float32).tiny)  # theory's norms have none


def build(
    network: Network,
    inputs: NDArray[Any] | Sequence[int] | int,
    *,
    width: int = 1000,
    seed: int = 0,
    member: int = 0,
) -> nn.Sequential:
    """The member (seed, member) of a description's ensemble as an nn.Sequential with the same weights.

    `inputs` is the data (n, d) or (n, channels, height, width), or the shape of one data point; a `centered` activation
    takes off the mean predicted for these data, or for the blob where only a shape is given. The weights are those of
    `DescriptionEngine(…, reduce=False)`: an exact reduction draws other numbers of the same law. BatchNorm uses the
    batch that it is given, or consecutive batches where the description says their size. Untrained norms have no
    parameters here.

    >>> model = build(Network.parse("dense(weight_var=2) > relu > dense"), 10, width=32)
    >>> [type(module).__name__ for module in model], tuple(model[0].weight.shape)
    (['Linear', 'ReLU', 'Linear'], (32, 10))
    """
    shape: Shape
    moments: Inputs | None
    if isinstance(inputs, np.ndarray):
        data = check_data(inputs)
        shape, moments = data.shape[1:], moments_of(data)
    else:
        sizes = (inputs,) if isinstance(inputs, int) else tuple(inputs)
        shape = tuple(count(size, 1, "size of a data point", "build", "build(net, 784)") for size in sizes)
        moments = Inputs()
    steps = resolve(network, shape, width=count(width, 1, "width", "build", "width=1000"), inputs=moments)
    member = count(member, 0, "member", "build", "member=0")
    generator = torch.Generator().manual_seed(int(member_seeds(seed, member, member + 1)[0]))
    return _sequence(steps, len(shape) == 1, generator)


def _sequence(steps: Sequence[Step], flat: bool, generator: torch.Generator) -> nn.Sequential:
    """Modules one after another; `flat`: whether vectors come in."""
    modules: OrderedDict[str, nn.Module] = OrderedDict()
    for index, step in enumerate(steps):
        if not flat and len(step.before) == 1:
            modules["flatten"] = nn.Flatten()
            flat = True
        if isinstance(step.layer, Dense) and len(step.before) == 3:
            modules[f"flatten{index}"] = nn.Flatten()
            flat = True
        modules[str(index)] = _module(step, generator)
    return nn.Sequential(modules)


def _module(step: Step, generator: torch.Generator) -> nn.Module:
    layer = step.layer
    flat = len(step.before) == 1
    if isinstance(layer, Dense):
        linear = nn.utils.skip_init(nn.Linear, step.fan_in, step.after[0], bias=layer.bias_var > 0.0)
        return _filled(linear, layer, step, generator)
    if isinstance(layer, Conv):
        conv = nn.utils.skip_init(
            nn.Conv2d,
            step.before[0],
            step.after[0],
            layer.kernel,
            stride=layer.stride,
            padding=layer.padding,
            bias=layer.bias_var > 0.0,
        )
        return _filled(conv, layer, step, generator)
    if isinstance(layer, Residual):
        branch = _sequence(step.branch, flat, generator)  # drawn first, as the engine does
        return ResidualSum(branch, layer.scale, _sequence(step.shortcut, flat, generator) if step.shortcut else None)
    if isinstance(layer, Activate):
        return _activation(layer.phi, step.constant)
    if isinstance(layer, BatchNorm):
        if layer.estimator == "leave_one_out":
            return LeaveOneOutNorm(layer.batch or 0)
        kind = nn.BatchNorm1d if flat else nn.BatchNorm2d
        norm = kind(step.before[0], eps=_EPS, affine=False, track_running_stats=False)
        return norm if layer.batch is None else Batches(norm, layer.batch)
    if isinstance(layer, LayerNorm):
        return nn.LayerNorm(list(step.before), eps=_EPS, elementwise_affine=False)
    if isinstance(layer, RMSNorm):
        return nn.RMSNorm(list(step.before), eps=_EPS, elementwise_affine=False)
    if isinstance(layer, GroupNorm):
        return nn.GroupNorm(layer.groups, step.before[0], eps=_EPS, affine=False)
    if isinstance(layer, MaxPool):
        return nn.MaxPool1d(layer.size) if flat else nn.MaxPool2d(round(layer.size**0.5), layer.stride, layer.padding)
    if isinstance(layer, AvgPool):
        return nn.AvgPool1d(layer.size) if flat else nn.AvgPool2d(round(layer.size**0.5))
    if isinstance(layer, (Scale, Shift)):
        return Affine(layer.factor, 0.0) if isinstance(layer, Scale) else Affine(1.0, layer.by)
    raise TypeError(f"no module for {layer.kind}")


def _filled(module: nn.Module, layer: Dense | Conv, step: Step, generator: torch.Generator) -> nn.Module:
    with torch.no_grad():
        init = layer.init if isinstance(layer, Dense) else "normal"
        weight = module.get_parameter("weight")
        fill_weights(weight, generator, init=init, weight_var=layer.weight_var, fan_in=step.fan_in)
        if layer.bias_var > 0.0:
            fill_biases(module.get_parameter("bias"), generator, bias_var=layer.bias_var)
    return module


def _activation(phi: Activation, constant: float | None) -> nn.Module:
    module = module_of(phi)
    if constant is None:
        return nn.Sequential(module, MeanFree())
    return module if constant == 0.0 else nn.Sequential(module, Affine(1.0, -constant))


class Affine(nn.Module):
    """factor · x + shift, both constants."""

    def __init__(self, factor: float, shift: float) -> None:
        super().__init__()
        self.factor, self.shift = factor, shift

    def extra_repr(self) -> str:
        return f"factor={self.factor}, shift={self.shift}"

    def forward(self, x: Tensor) -> Tensor:
        return x * self.factor + self.shift


class MeanFree(nn.Module):
    """x minus its mean over data and nodes."""

    def forward(self, x: Tensor) -> Tensor:
        return x - x.mean()


class ResidualSum(nn.Module):
    """shortcut(x) + scale · branch(x); without a shortcut x itself."""

    def __init__(self, branch: nn.Module, scale: float, shortcut: nn.Module | None = None) -> None:
        super().__init__()
        self.branch, self.scale, self.shortcut = branch, scale, shortcut or nn.Identity()

    def extra_repr(self) -> str:
        return "" if self.scale == 1.0 else f"scale={self.scale}"

    def forward(self, x: Tensor) -> Tensor:
        return self.shortcut(x) + self.scale * self.branch(x)


class Batches(nn.Module):
    """A norm applied to consecutive batches of the points."""

    def __init__(self, norm: nn.Module, batch: int) -> None:
        super().__init__()
        self.norm, self.batch = norm, batch

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.norm(part) for part in x.split(self.batch)])


class LeaveOneOutNorm(nn.Module):
    """BatchNorm where a point is left out of its own statistics: theory.md (5), NORM App. E.1."""

    def __init__(self, batch: int) -> None:
        super().__init__()
        self.batch = batch

    def forward(self, x: Tensor) -> Tensor:
        parts: list[Tensor] = []
        for part in x.split(self.batch):
            b = len(part)
            mean = (part.sum(0, keepdim=True) - part) / (b - 1)
            own = part.var(0, keepdim=True) * (b - 1)  # Σ (u − mean)²
            others = own - (part - part.mean(0, keepdim=True)) ** 2 * b / (b - 1)
            parts.append((part - mean) / (others / (b - 2)).sqrt())
        return torch.cat(parts)
