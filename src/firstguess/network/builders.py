"""Builders: the usual networks as descriptions."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from firstguess.base.checks import check_count, is_module
from firstguess.base.errors import InvalidInput
from firstguess.base.gaussian import Function
from firstguess.network.activations import lookup
from firstguess.network.activations.record import Activation
from firstguess.network.grammar import parse_layers
from firstguess.network.layer import Layer
from firstguess.network.layers import KINDS, Activate, Conv, Dense, Residual
from firstguess.network.network import Network

Placement = Literal["before", "after"]

_DEEPEST = 100_000


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
    phi = _activate(activation)
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
    phi = _activate(activation)
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
    phi = _activate(activation)
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


def _activate(what: str | Activation | Function) -> Layer:
    """By name, with its parameters where it has some: "leaky_relu(0.2)", "centered(relu)"."""
    if not (isinstance(what, str) and "(" in what):
        return Activate(lookup.activation(what))
    layers = parse_layers(what)
    if len(layers) != 1 or layers[0].function is None:
        raise InvalidInput("one activation", got=repr(what), hint="activation='leaky_relu(0.2)'")
    return layers[0]


def _layer(what: str | Layer) -> Layer:
    if is_module(what):
        kind = what.__name__ if isinstance(what, type) else type(what).__name__
        known = [word for word in KINDS if word == kind.lower().rstrip("123d")]
        raise InvalidInput("one layer by its name", got=f"the module {kind}", hint=repr([*known, "layernorm"][0]))
    if not isinstance(what, str):
        return what
    layers = parse_layers(what)
    if len(layers) != 1:
        raise InvalidInput("one layer", got=repr(what), hint="norm='layernorm'")
    return layers[0]


def _check_depth(depth: int | None, where: str) -> None:
    if depth is None:
        raise InvalidInput("a depth", got=depth, where=where, hint="depth=20")
    if isinstance(depth, str):
        raise InvalidInput("a depth first", got=repr(depth), where=where, hint=f"fg.{where}(5, {depth!r})")
    check_count(depth, "depth", where)
    if depth > _DEEPEST:
        raise InvalidInput(f"a depth of at most {_DEEPEST}", got=depth, where=where, hint="depth=1000")
