"""Weights drawn at random from networks of a description, with the derivatives of all logits by them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from firstguess.base.errors import NotCovered
from firstguess.ensemble.member_module import build
from firstguess.network.layer import Mix, text
from firstguess.network.network import Network
from firstguess.network.walk import every
from firstguess.theory.lazy_adam import WeightSample

_STREAM = 0x5D8
_CHUNK = 2e7  # numbers at once, in products over positions


def trained(model: nn.Module, network: Network) -> list[nn.Linear | nn.Conv2d]:
    """The modules with weights that are trained, in the order of the description."""
    modules = [m for m in model.modules() if isinstance(m, nn.Linear | nn.Conv2d)]
    layers = [layer for layer in every(network.layers) if layer.draws]
    return [m for m, layer in zip(modules, layers, strict=True) if not getattr(layer, "frozen", False)]


def weight_sample(
    network: Network, x: NDArray[np.float32], *, width: int, columns: int, most: int, seed: int, member: int
) -> WeightSample:
    """At most `most` weights of every trained layer of one network.

    `columns` 1 is the difference of two classes' logits. Norms over the data are refused: there a point's logits depend
    on all points, and one backward pass does not tell them apart.
    """
    for layer in every(network.layers):
        if Mix.POINTS in layer.mixes:
            raise NotCovered("a network without norms over the data, for Adam weight by weight", got=text(layer))
    model = build(network, x, width=width, seed=seed, member=member)
    modules = trained(model, network)
    inputs, outputs = _followed(model, modules, torch.from_numpy(x))
    rows = outputs.pop()
    wanted = [rows[:, 1] - rows[:, 0]] if columns == 1 else list(rows.unbind(1))
    rng = np.random.default_rng([seed, _STREAM, member])
    # A point's logit depends on that point alone, so the gradient of the sum holds every point's own.
    backward = [torch.autograd.grad(logits.sum(), outputs, retain_graph=True) for logits in wanted]
    parts: list[NDArray[np.float32]] = []
    counts: list[NDArray[np.float64]] = []
    for index, (module, h) in enumerate(zip(modules, inputs, strict=True)):
        deltas = [found[index] for found in backward]
        units, places, stands_for = _choose(rng, module, h, deltas, most)
        rows = [_derivatives(module, h, delta, units, places) for delta in deltas]
        parts.append(torch.stack(rows, dim=1).reshape(len(x) * columns, -1).numpy())
        counts.append(stands_for)
    return WeightSample(np.concatenate(parts, axis=1), tuple(counts))


def _choose(
    rng: np.random.Generator, module: nn.Linear | nn.Conv2d, h: Tensor, deltas: list[Tensor], most: int
) -> tuple[Tensor, Tensor, NDArray[np.float64]]:
    """Weights by their unit and place in it, and how many each stands for; a bias is the weight of a 1 that comes in.

    Weights are drawn by how much they move logits: with a chance proportional to the root mean square of what comes in
    times that of what goes back. Each of the two is drawn systematically, so that every node has its due.
    """
    fan_in = module.weight[0].numel()
    places = fan_in + (module.bias is not None)
    weights = len(module.weight) * places
    if weights <= most:
        which = torch.arange(weights)
        return which // places, which % places, np.ones(weights)
    square = h.square().mean(dim=0)
    if isinstance(module, nn.Conv2d):
        square = square.flatten(1).mean(dim=1).repeat_interleave(fan_in // len(square))
    square = nn.functional.pad(square, (0, places - fan_in), value=1.0)
    squares = [delta.square().flatten(2).sum(2) if delta.ndim > 2 else delta.square() for delta in deltas]
    back = torch.stack([one.mean(0) for one in squares]).sum(0)
    (at, due), (units, own) = (_systematic(rng, np.sqrt(s.double().numpy()), most) for s in (square, back))
    return torch.from_numpy(units), torch.from_numpy(at), 1.0 / (most * due * own)


def _systematic(
    rng: np.random.Generator, size: NDArray[np.float64], count: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Numbers drawn in proportion to their size, in random order, and the chance of each."""
    chance = size / size.sum() if size.sum() > 0 else np.full(len(size), 1.0 / len(size))
    edges = np.cumsum(chance)
    at = (rng.permutation(count) + rng.random()) / count
    found = np.minimum(np.searchsorted(edges / edges[-1], at), len(size) - 1)
    return found, chance[found]


def _followed(model: nn.Module, modules: list[Any], x: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    """What goes into each module and what comes out; behind them the logits."""
    inputs: dict[int, Tensor] = {}
    outputs: dict[int, Tensor] = {}

    def hook(module: nn.Module, given: tuple[Tensor, ...], out: Tensor) -> Tensor:
        inputs[id(module)] = given[0].detach()
        outputs[id(module)] = out if out.requires_grad else out.requires_grad_()
        return outputs[id(module)]

    handles = [m.register_forward_hook(hook) for m in modules]
    try:
        with torch.enable_grad():
            rows = model(x)
    finally:
        for handle in handles:
            handle.remove()
    return [inputs[id(m)] for m in modules], [*(outputs[id(m)] for m in modules), rows]


def _derivatives(module: nn.Linear | nn.Conv2d, h: Tensor, delta: Tensor, units: Tensor, places: Tensor) -> Tensor:
    """(points, weights): of one logit by these weights."""
    if isinstance(module, nn.Linear):
        return nn.functional.pad(h, (0, 1), value=1.0)[:, places] * delta[:, units]
    return torch.cat(list(_over_positions(module, h, delta, units, places)))


def _over_positions(module: nn.Conv2d, h: Tensor, delta: Tensor, units: Tensor, places: Tensor) -> Iterator[Tensor]:
    positions = delta[0, 0].numel()
    step = max(1, int(_CHUNK / (len(units) * positions)))
    for i in range(0, len(h), step):
        padding: Any = module.padding
        sizes: Any = module.kernel_size
        patches = nn.functional.unfold(h[i : i + step], sizes, padding=padding, stride=cast("Any", module.stride))
        patches = nn.functional.pad(patches, (0, 0, 0, 1), value=1.0)
        yield torch.einsum("asp,asp->as", patches[:, places], delta[i : i + step].flatten(2)[:, units])
