"""Activations in torch: in place on tensors, as modules, and back from classes and functions to records.

Nothing but the names in a record says what it is there. Loads torch: layers ask `ops` for it.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from firstguess.base.errors import NotCovered
from firstguess.network.activations import registry
from firstguess.network.activations.record import Activation, TorchNames

Op = Callable[[Tensor], Tensor]
_FLOAT32 = 3.4e38


def resolve(name: str) -> Any:
    """What a dotted name of a record stands for."""
    root, *rest = name.split(".")
    found: Any = {"torch": torch, "F": torch.nn.functional, "aten": torch.ops.aten, "operator": operator}[root]
    for part in rest:
        found = getattr(found, part)
    return found


def elementwise(phi: Activation, constant: float = 0.0) -> Op:
    """φ(x) − constant, in place. A function that torch has no name for runs in NumPy, in float64."""
    apply = _in_place(phi)
    if constant == 0.0:
        return apply
    return lambda x: apply(x).sub_(constant)


def _in_place(phi: Activation) -> Op:
    if phi.torch is None or not phi.torch.inplace:
        return lambda x: x.copy_(torch.from_numpy(phi.offset + phi.rise(x.double().numpy())))
    # in place: fresh memory of this size is slow, and fragments
    run = resolve(phi.torch.inplace)
    keywords = _keywords(phi, phi.torch)
    if phi.torch.inplace.endswith(".out"):
        return lambda x: run(x, out=x, **keywords)
    return partial(run, **keywords) if keywords else run


def module_of(phi: Activation) -> nn.Module:
    """The module of torch.nn that is this activation before centring, or one that calls its function."""
    if phi.torch is not None and isinstance(phi.torch.module, type):
        return phi.torch.module(*_keywords(phi, phi.torch).values())
    if phi.torch is not None and phi.torch.module:
        return getattr(nn, str(phi.torch.module))(**_keywords(phi, phi.torch))
    return Elementwise(phi)


def _keywords(phi: Activation, names: TorchNames) -> dict[str, Any]:
    params = dict(phi.params)
    for name, value in params.items():
        if abs(value) > _FLOAT32:  # torch raises its own error in the middle of a run
            expected = "parameters that float32 can hold (up to 3e38)"
            raise NotCovered(expected, got=f"{name}={value:g}", where=str(phi), hint="a smaller one")
    return dict(names.fixed) | {theirs: params[ours] for theirs, ours in names.arguments if ours in params}


class InNumpy(torch.autograd.Function):
    """φ and its derivative, value by value."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, phi: Activation) -> Tensor:
        ctx.save_for_backward(x)
        ctx.slope = phi.derivative
        return _in_numpy(lambda x: phi.offset + phi.rise(x), x)

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Tensor) -> tuple[Tensor, None]:
        return grad_outputs[0] * _in_numpy(ctx.slope, *ctx.saved_tensors), None


class Elementwise(nn.Module):
    """An activation that torch has no module for; one of your own runs in NumPy, and so does its derivative."""

    def __init__(self, phi: Activation) -> None:
        super().__init__()
        self.phi = phi
        self.known: Op | None = resolve(phi.torch.calls[0]) if phi.torch and phi.torch.calls else None

    def extra_repr(self) -> str:
        return str(self.phi)

    def forward(self, x: Tensor) -> Tensor:
        if self.known is not None:
            return self.known(x)
        if x.requires_grad and self.phi.derivative is not None:
            return InNumpy.apply(x, self.phi)
        return _in_numpy(lambda x: self.phi.offset + self.phi.rise(x), x)


def _in_numpy(function: Callable[[Any], Any], x: Tensor) -> Tensor:
    return torch.from_numpy(function(x.detach().double().cpu().numpy())).to(x)


class Spelling(NamedTuple):
    """The activations that one class or function of torch may be, and the keywords by which they differ."""

    candidates: tuple[tuple[str, TorchNames], ...]
    keywords: tuple[tuple[str, Any], ...]  # with torch's defaults, in the order of its arguments

    def meaning(self, value: Callable[[int, str, Any], Any]) -> Activation | str:
        """The activation, or why none; `value(index, keyword, default)` gives an argument, the signal being 0."""
        given = {key: value(index, key, default) for index, (key, default) in enumerate(self.keywords, 1)}
        for name, names in self.candidates:
            if all(given[key] == wanted for key, wanted in names.fixed):
                parameters: dict[str, Any] = {ours: float(given[theirs]) for theirs, ours in names.arguments}
                return registry.activation(name, **parameters)
        refuse = next((names.refuse for _, names in self.candidates if names.refuse), "")
        return refuse.format(**given) or "a description has no such variant"


def names() -> tuple[tuple[str | type, ...], tuple[str, ...]]:
    """The classes that are activations, of torch.nn by name, and users'; and the functions and methods that are."""
    return _names(tuple(registry.names()))


@lru_cache(maxsize=1)
def _names(names: tuple[str, ...]) -> tuple[tuple[str | type, ...], tuple[str, ...]]:
    known = [one for name in names for one in _read(registry.activation(name))]
    modules, calls = (one.module for one in known if one.module), (call for one in known for call in one.calls)
    return tuple(dict.fromkeys(modules)), tuple(dict.fromkeys(calls))


def by_module() -> dict[type[nn.Module], Spelling]:
    """Every class of torch.nn that is an activation, subclasses before what they derive from."""
    return _tables(tuple(registry.names()))[0]


def by_call() -> dict[Any, Spelling]:
    """Every function that is an activation, and the names of methods."""
    return _tables(tuple(registry.names()))[1]


@lru_cache(maxsize=1)
def _tables(names: tuple[str, ...]) -> tuple[dict[type[nn.Module], Spelling], dict[Any, Spelling]]:
    modules: dict[type[nn.Module], list[tuple[str, TorchNames]]] = {}
    calls: dict[Any, list[tuple[str, TorchNames]]] = {}
    for name in names:
        for one in _read(registry.activation(name)):
            if one.module:
                kind = one.module if isinstance(one.module, type) else getattr(nn, one.module)
                modules.setdefault(kind, []).append((name, one))
            for key in (key for call in one.calls for key in targets(call)):
                calls.setdefault(key, []).append((name, one))
    ordered = sorted(modules, key=lambda kind: -len(kind.mro()))
    return {kind: _spelling(modules[kind]) for kind in ordered}, {key: _spelling(calls[key]) for key in calls}


def _read(phi: Activation) -> Iterator[TorchNames]:
    if phi.torch is not None and phi.torch.read:
        yield from (phi.torch, *phi.torch.also)


def targets(call: str) -> tuple[Any, ...]:
    """What a graph has for a function, or for a method and its in-place form, by its name in a record."""
    root, _, name = call.partition(".")
    return (name, f"{name}_") if root == "Tensor" else (resolve(call),)


def _spelling(candidates: list[tuple[str, TorchNames]]) -> Spelling:
    """Functions have the defaults of the class that does the same."""
    keywords: dict[str, Any] = {}
    for _, names in candidates:
        for key in (*(theirs for theirs, _ in names.arguments), *(key for key, _ in names.fixed)):
            kind = names.module if isinstance(names.module, type) else getattr(nn, names.module)
            given = inspect.signature(cast("Callable[..., nn.Module]", kind)).parameters.get(key)
            keywords[key] = None if given is None else given.default  # an attribute of a class that is no argument
    return Spelling(tuple(candidates), tuple(keywords.items()))
