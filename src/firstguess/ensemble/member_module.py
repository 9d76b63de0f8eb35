"""One member of an ensemble as a plain nn.Module, to take away, look at or train."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from firstguess.base.checks import count
from firstguess.base.errors import FirstguessError
from firstguess.ensemble.engine import check_data, moments_of
from firstguess.ensemble.resolved import resolve
from firstguess.ensemble.seeds import fill_biases, fill_weights, member_seeds
from firstguess.network.inputs import Inputs
from firstguess.network.network import Network
from firstguess.network.tensors import Place, Weights
from firstguess.network.torch_ops import join
from firstguess.network.walk import needs_tokens


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
    `DescriptionEngine(…, reduce=False)`: an exact reduction draws other numbers of the same distribution. BatchNorm
    uses the batch that it is given, or consecutive batches where the description says their size. Untrained norms have
    no parameters here.

    >>> model = build(Network.parse("dense(weight_var=2) > relu > dense"), 10, width=32)
    >>> [type(module).__name__ for module in model], tuple(model[0].weight.shape)
    (['Linear', 'ReLU', 'Linear'], (32, 10))
    """
    if isinstance(inputs, np.ndarray):
        data = check_data(inputs)
        sizes = data.shape[1:]

        def moments() -> Inputs | None:
            return moments_of(data)
    else:
        given = (inputs,) if isinstance(inputs, int) else tuple(inputs)
        sizes = tuple(count(size, 1, "size of a data point", "build", "build(net, 784)") for size in given)
        moments = Inputs
    ids = isinstance(inputs, np.ndarray) and len(sizes) == 1 and needs_tokens(network.layers)
    places = resolve(
        network,
        sizes,
        width=count(width, 1, "width", "build", "width=1000"),
        inputs=moments,
        vocabulary=int(np.max(inputs)) + 1 if ids else None,
    )
    member = count(member, 0, "member", "build", "member=0")
    return drawn(places, int(member_seeds(seed, member, member + 1)[0]), flat=len(sizes) == 1)


def drawn(places: Sequence[Place], seed: int, *, flat: bool | None = None) -> nn.Sequential:
    """The modules of these layers, with weights of a generator seeded so; `flat`: whether vectors come in."""
    found = _Drawn(torch.Generator().manual_seed(seed)).path(places, flat=flat)
    join(found)
    return found


@dataclass(frozen=True)
class _Drawn:
    """One member's draws, from its own generator, in the order of the engine."""

    generator: torch.Generator

    def fill(self, module: nn.Module, weights: Weights) -> nn.Module:
        """The module with its `weight`, and its `bias` if there are biases, drawn; frozen ones want no gradient."""
        module.requires_grad_(weights.trained)
        with torch.no_grad():
            fill_weights(module.get_parameter("weight"), self.generator, weights)
            if weights.bias_var > 0.0:
                fill_biases(module.get_parameter("bias"), self.generator, weights)
        return module

    def path(self, places: Sequence[Place], *, flat: bool | None = None) -> nn.Sequential:
        """Modules one after another; `flat`: whether vectors come in, if not what the first layer wants."""
        modules: OrderedDict[str, nn.Module] = OrderedDict()
        if flat is False and not places[0].before.images:
            modules["flatten"] = nn.Flatten()
        for index, place in enumerate(places):
            if place.layer.draws and place.before.images and len(place.after.sizes) == 1:
                modules[f"flatten{index}"] = nn.Flatten()
            try:
                modules[str(index)] = place.layer.module(place, self)
            except FirstguessError as error:
                raise error.at(place.where) from None
        return nn.Sequential(modules)
