"""A network as a plain description: an immutable sequence of layers and the number of classes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Integral
from typing import Any, Literal

from firstguess.base.errors import InvalidInput
from firstguess.base.gaussian import Function
from firstguess.network.activations import lookup
from firstguess.network.activations.record import Activation
from firstguess.network.layers import (
    Activate,
    AvgPool,
    Conv,
    Dense,
    Layer,
    MaxPool,
    Residual,
    parse_layers,
    sequence_text,
    text,
)
from firstguess.network.layers.base import check_count

Placement = Literal["before", "after"]

_DEEPEST = 100_000


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
            raise InvalidInput(
                "a sequence of layers", got=repr(self.layers), where="Network", hint="Network.parse('dense > relu')"
            )
        object.__setattr__(self, "layers", tuple(self.layers))
        if not self.layers:
            raise InvalidInput(
                "at least one layer", got="none", where="Network", hint="Network.parse('dense > relu > dense')"
            )
        for layer in {type(x): x for x in self.layers}.values():
            if isinstance(layer, type) or not isinstance(layer, Layer):
                raise InvalidInput(
                    "a sequence of layers",
                    got=f"{layer!r} in it",
                    where="Network",
                    hint="Network.parse('dense > relu > dense')",
                )
        if isinstance(self.classes, bool) or not isinstance(self.classes, Integral) or self.classes < 2:
            raise InvalidInput("at least 2 classes", got=self.classes, where="Network", hint="classes=2")
        object.__setattr__(self, "classes", int(self.classes))
        _check_widths(self.layers)

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
        return sum(isinstance(layer, (Dense, Conv, Residual)) for layer in self.layers[:-1])

    def where(self, edit: str) -> Network:
        """A variant with one kind of layer moved or added: `net.where("layernorm after relu")`.

        All layers of the first kind are taken out, then one is put before or after every layer of the second kind.
        """
        match = re.fullmatch(r"\s*(.+?)\s+(before|after)\s+(.+?)\s*", edit)
        if match is None:
            raise InvalidInput(
                "an edit like 'layernorm after relu'",
                got=repr(edit),
                where="where",
                hint="net.where('batchnorm before relu')",
            )
        (new, *rest), anchor = parse_layers(match[1]), match[3]
        if rest:
            raise InvalidInput(
                "one layer to place", got=match[1], where="where", hint="net.where('layernorm after relu')"
            )
        moved, found = _place(
            self.without(_name(new)).layers if _has(self.layers, _name(new)) else self.layers,
            new,
            match[2] == "after",
            anchor,
        )
        if not found:
            raise InvalidInput(
                f"a network that has {anchor}", got=str(self), where="where", hint="net.where('layernorm after relu')"
            )
        return replace(self, layers=moved)

    def without(self, kind: str) -> Network:
        """A variant with all layers of a kind taken out: `net.without("layernorm")`."""
        return replace(self, layers=_drop(self.layers, kind))

    def to_dict(self) -> dict[str, Any]:
        """Plain data; `Network.from_dict` reads it back."""
        return {"text": str(self), "classes": self.classes}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Network:
        return cls.parse(data["text"], classes=data["classes"])


def _name(layer: Layer) -> str:
    return layer.phi.name if isinstance(layer, Activate) else layer.kind


def _has(layers: Iterable[Layer], kind: str) -> bool:
    return any(
        _name(x) == kind or (isinstance(x, Residual) and any(_has(path, kind) for path in x.paths)) for x in layers
    )


def _drop(layers: Iterable[Layer], kind: str) -> tuple[Layer, ...]:
    return tuple(
        x.with_paths(lambda path: _drop(path, kind)) if isinstance(x, Residual) else x
        for x in layers
        if _name(x) != kind
    )


def _place(layers: Iterable[Layer], new: Layer, after: bool, anchor: str) -> tuple[tuple[Layer, ...], bool]:
    result: list[Layer] = []
    found = False
    for layer in layers:
        if isinstance(layer, Residual):
            inside = [_place(path, new, after, anchor) for path in layer.paths]
            layer = replace(layer, branch=inside[0][0], shortcut=inside[1][0])
            found = found or inside[0][1] or inside[1][1]
        if anchor in (_name(layer), text(layer)):
            found = True
            result += [layer, new] if after else [new, layer]
        else:
            result.append(layer)
    return tuple(result), found


def _check_widths(layers: Iterable[Layer], width: int | None = None) -> int | None:
    """Where widths are written down, a pool must fit into its layer."""
    for index, layer in enumerate(layers, start=1):
        if isinstance(layer, Dense):
            width = layer.width
        elif isinstance(layer, Conv):
            width = None  # a pool there runs over positions
        elif isinstance(layer, Residual):
            for path in layer.paths:
                _check_widths(path, width)
        elif isinstance(layer, (AvgPool, MaxPool)) and width is not None:
            if layer.size > width:
                raise InvalidInput(
                    f"a pool of at most {width} nodes, the width of its layer",
                    got=layer.size,
                    where=f"layer {index} ({text(layer)})",
                    hint=f"{layer.kind}({width})",
                )
            width //= layer.size
    return width


def mlp(
    depth: int = 1,
    activation: str | Activation | Function = "relu",
    *,
    norm: str | Layer | None = None,
    placement: Placement = "before",
    weight_var: float = 2.0,
    bias_var: float = 0.0,
    classes: int = 2,
    width: int | None = None,
    pool: str | Layer | None = None,
) -> Network:
    """A multilayer perceptron: `depth` times [dense, norm?, activation, norm?, pool?], then the output layer.

    >>> print(mlp(depth=3, norm="layernorm", placement="after"))
    3 x [dense(weight_var=2) > relu > layernorm] > dense(weight_var=2)
    """
    _check_depth(depth, "mlp")
    phi = Activate(lookup.activation(activation))
    dense = Dense(weight_var, bias_var, width)
    block = [dense, *_around(phi, norm, placement), *([_layer(pool)] if pool is not None else [])]
    return Network((*block * depth, replace(dense, width=None)), classes)


def residual_mlp(
    depth: int = 1,
    activation: str | Activation | Function = "relu",
    *,
    norm: str | Layer | None = None,
    placement: Literal["before branch", "after sum"] = "before branch",
    branch_scale: float = 1.0,
    weight_var: float = 2.0,
    bias_var: float = 0.0,
    classes: int = 2,
    width: int | None = None,
) -> Network:
    """A stem, `depth` times x + scale·dense(φ(x)), and the output; the norm at the branch's head or after the sum.

    >>> print(residual_mlp(depth=2, norm="layernorm"))
    dense(weight_var=2) > 2 x [residual[layernorm > relu > dense(weight_var=2)]] > dense(weight_var=2)
    """
    _check_depth(depth, "residual_mlp")
    if placement not in ("before branch", "after sum"):
        raise InvalidInput(
            "placement 'before branch' or 'after sum'",
            got=placement,
            where="residual_mlp",
            hint="placement='before branch'",
        )
    phi = Activate(lookup.activation(activation))
    dense = Dense(weight_var, bias_var, width)
    norms = [_layer(norm)] if norm is not None else []
    head = norms if placement == "before branch" else []
    block: list[Layer] = [Residual((*head, phi, dense), branch_scale)]
    block += norms if placement == "after sum" else []
    return Network((dense, *block * depth, replace(dense, width=None)), classes)


def cnn(
    depth: int = 2,
    activation: str | Activation | Function = "relu",
    *,
    norm: str | Layer | None = None,
    placement: Placement = "before",
    pool: str | Layer | None = "maxpool(4)",
    kernel: int = 3,
    weight_var: float = 2.0,
    bias_var: float = 0.0,
    classes: int = 2,
    width: int | None = None,
) -> Network:
    """`depth` times [conv, norm?, activation, norm?, pool?], then a dense output layer.

    >>> print(cnn(depth=2, activation="tanh", pool="avgpool(4)", weight_var=1))
    2 x [conv(padding=1) > tanh > avgpool(4)] > dense
    """
    _check_depth(depth, "cnn")
    phi = Activate(lookup.activation(activation))
    check_count(kernel, "kernel", "cnn")
    conv = Conv(weight_var, bias_var, width, kernel, padding=kernel // 2)
    block = [conv, *_around(phi, norm, placement), *([_layer(pool)] if pool is not None else [])]
    return Network((*block * depth, Dense(weight_var, bias_var)), classes)


def _around(phi: Layer, norm: str | Layer | None, placement: Placement) -> list[Layer]:
    if placement not in ("before", "after"):
        raise InvalidInput("placement 'before' or 'after' the activation", got=placement, hint="placement='after'")
    if norm is None:
        return [phi]
    return [_layer(norm), phi] if placement == "before" else [phi, _layer(norm)]


def _layer(what: str | Layer) -> Layer:
    if not isinstance(what, str):
        return what
    layers = parse_layers(what)
    if len(layers) != 1:
        raise InvalidInput("one layer", got=repr(what), hint="norm='layernorm'")
    return layers[0]


def _check_depth(depth: int | None, where: str) -> None:
    if depth is None:
        raise InvalidInput("a depth", got=depth, where=where, hint="depth=20")
    check_count(depth, "depth", where)
    if depth > _DEEPEST:
        raise InvalidInput(f"a depth of at most {_DEEPEST}", got=depth, where=where, hint="depth=1000")
