"""PyTorch source for a description: what a user pastes into a project. Text only; torch is not loaded for it."""

from __future__ import annotations

from collections.abc import Sequence

from firstguess.base.errors import NotCovered
from firstguess.network.layer import Layer, text
from firstguess.network.network import Network
from firstguess.network.source import SourceWriter

_HEAD = '''import math

import torch
from torch import nn


def dense(inputs: int, outputs: int, weight_var: float, bias_var: float = 0.0) -> nn.Linear:
    """Weights of variance weight_var/inputs, biases of variance bias_var."""
    layer = nn.Linear(inputs, outputs)
    nn.init.normal_(layer.weight, std=math.sqrt(weight_var / inputs))
    nn.init.normal_(layer.bias, std=math.sqrt(bias_var))
    return layer
'''
_LONGEST = 12  # layers of a block that is looked for


def pytorch_code(network: Network, *, width: int = 100) -> str:
    """A function `build(inputs, classes)` that makes the network as a module, blocks as loops.

    >>> from firstguess.network.builders import mlp
    >>> print(pytorch_code(mlp(2)).splitlines()[-1])
        return nn.Sequential(*layers)
    """
    layers = network.layers
    if not layers or not layers[-1].weighted or layers[-1].paths:
        raise NotCovered("a network that ends in weights", got=text(layers[-1]) if layers else "none", where="code")
    at = SourceWriter("inputs", width)
    lines = [f"def build(inputs: int, classes: int = {network.classes}) -> nn.Module:"]
    lines.append("    layers: list[nn.Module] = []")
    start = 0
    while start < len(layers):
        block, times = _repeated(layers, start)
        start += len(block) * times
        at.out = "classes" if start == len(layers) else None
        pad = "        " if times > 1 else "    "
        lines += [f"    for _ in range({times}):"] if times > 1 else []
        lines += [f"{pad}layers.append({layer.source(at)})" for layer in block]
    lines.append("    return nn.Sequential(*layers)")
    return "".join((_HEAD, *at.classes, "\n\n", "\n".join(lines), "\n"))


def _repeated(layers: Sequence[Layer], start: int) -> tuple[Sequence[Layer], int]:
    """The longest run of equal blocks from here on, without the output; before the first weights a layer alone."""
    best: tuple[Sequence[Layer], int] = (layers[start : start + 1], 1)
    if not any(layer.weighted for layer in layers[:start]):
        return best
    rest = len(layers) - start - 1
    for size in range(1, min(rest // 2, _LONGEST) + 1):
        block, times = layers[start : start + size], 1
        while (times + 1) * size <= rest and layers[start + times * size : start + (times + 1) * size] == block:
            times += 1
        if times > 1 and times * size > len(best[0]) * best[1]:
            best = (block, times)
    return best
