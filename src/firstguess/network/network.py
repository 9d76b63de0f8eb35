"""A network as a plain description: an immutable sequence of layers and the number of classes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Integral
from typing import Any

from firstguess.base.errors import InvalidInput, NotCovered
from firstguess.network.grammar import parse_layers
from firstguess.network.layer import Layer, Mix, Symmetry, sequence_text, text
from firstguess.network.shapes import UNKNOWN
from firstguess.network.tensors import SourceWriter
from firstguess.network.walk import changed, every, shapes


@dataclass(frozen=True)
class Network:
    """A sequence of layers, read in closed form, as a kernel, or as an ensemble of real networks.

    `str(net)` is its text; `Network.parse` reads it back. Equal text and classes, equal network.

    >>> net = Network.parse("20 x [dense(weight_var=2) > layernorm > relu] > dense(weight_var=2)", classes=10)
    >>> len(net.layers), net.depth
    (61, 20)
    >>> print(net.where("layernorm after relu"))
    20 x [dense(weight_var=2) > relu > layernorm] > dense(weight_var=2)
    """

    layers: tuple[Layer, ...]
    classes: int = 2

    def __post_init__(self) -> None:
        if isinstance(self.layers, str) or not isinstance(self.layers, Iterable):
            hint = "Network.parse('dense > relu')"
            raise InvalidInput("a sequence of layers", got=repr(self.layers), where="Network", hint=hint)
        object.__setattr__(self, "layers", tuple(self.layers))
        if not self.layers:
            hint = "Network.parse('dense > relu > dense')"
            raise InvalidInput("at least one layer", got="none", where="Network", hint=hint)
        for layer in {type(x): x for x in self.layers}.values():
            if isinstance(layer, type) or not isinstance(layer, Layer):
                hint = "Network.parse('dense > relu > dense')"
                raise InvalidInput("a sequence of layers", got=f"{layer!r} in it", where="Network", hint=hint)
        if isinstance(self.classes, bool) or not isinstance(self.classes, Integral) or self.classes < 2:
            raise InvalidInput("at least 2 classes", got=self.classes, where="Network", hint="classes=2")
        object.__setattr__(self, "classes", int(self.classes))
        shapes(self.layers, UNKNOWN, None)

    @classmethod
    def parse(cls, source: str, *, classes: int = 2) -> Network:
        """The network that a text describes."""
        return cls(parse_layers(source), classes)

    @cached_property
    def _text(self) -> str:
        return sequence_text(self.layers)

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"Network({str(self)!r}, classes={self.classes})"

    def _repr_html_(self) -> str:
        import html

        return f"<code>{html.escape(str(self))}</code> ({self.classes} classes)"

    @property
    def depth(self) -> int:
        """Hidden layers with weights (residual blocks count once); the output layer is not one of them."""
        return sum(layer.weighted for layer in self.layers[:-1])

    @property
    def plain(self) -> bool:
        """Whether phases mean something: weights, activations and pools only, one after the other."""
        return not any(
            layer.paths or layer.mixes & ~Mix.POSITIONS or layer.symmetry is Symmetry.SHIFTS for layer in self.layers
        )

    def where(self, edit: str) -> Network:
        """A variant with one kind of layer moved or added: `net.where("layernorm after relu")`.

        All layers of the first kind are taken out, then one is put before or after every layer of the second kind.
        """
        match = re.fullmatch(r"\s*(.+?)\s+(before|after)\s+(.+?)\s*", edit)
        if match is None:
            hint = "net.where('batchnorm before relu')"
            raise InvalidInput("an edit like 'layernorm after relu'", got=repr(edit), where="where", hint=hint)
        (new, *rest), anchor = parse_layers(match[1]), match[3]
        if rest:
            hint = "net.where('layernorm after relu')"
            raise InvalidInput("one layer to place", got=match[1], where="where", hint=hint)
        without = self.without(new.name).layers if any(x.name == new.name for x in every(self.layers)) else self.layers
        if not any(anchor in (x.name, text(x)) for x in every(without)):
            hint = "net.where('layernorm after relu')"
            raise InvalidInput(f"a network that has {anchor}", got=str(self), where="where", hint=hint)

        def place(layer: Layer) -> tuple[Layer, ...]:
            if anchor not in (layer.name, text(layer)):
                return (layer,)
            return (layer, new) if match[2] == "after" else (new, layer)

        return replace(self, layers=changed(without, place))

    def without(self, kind: str) -> Network:
        """A variant with all layers of a kind taken out: `net.without("layernorm")`."""
        return replace(self, layers=changed(self.layers, lambda x: () if x.name == kind else (x,)))

    def to_dict(self) -> dict[str, Any]:
        """Plain data; `Network.from_dict` reads it back."""
        return {"text": str(self), "classes": self.classes}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Network:
        return cls.parse(data["text"], classes=data["classes"])


# PyTorch source for a description: what a user pastes into a project. Text only; torch is not loaded for it.

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
